//! Room in memory for decoded images. All threads decode at the same time, and a photograph of 50 million
//! pixels takes hundreds of megabytes. More than there is would end this process, or another one.

use audit_base::memory;
use std::hint::black_box;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The part of the free memory that decoded images may take together, as a divisor.
const PARTS: u64 = 4;

/// Bytes of the images that are being decoded and resized to the model's input now.
static TAKEN: Mutex<u64> = Mutex::new(0);
/// Some of them were given back.
static RETURNED: Condvar = Condvar::new();

/// Bytes that are reserved until this is dropped. While it is held, wait for no other thread, such as one of
/// rayon: it may wait for room.
#[derive(Debug)]
pub struct Room(u64);

impl Room {
    /// Waits until other images leave room for `bytes`. An image that needs more than all may take together
    /// waits until it is alone. `None`: it needs more than is free.
    pub fn take(bytes: u64) -> Option<Room> {
        static MOST: OnceLock<u64> = OnceLock::new();
        let most = *MOST.get_or_init(|| memory::free().map_or(u64::MAX, |free| free / PARTS));
        let full = |taken: &mut u64| *taken > 0 && taken.saturating_add(bytes) > most;
        let mut taken = RETURNED.wait_while(lock(), full).unwrap_or_else(PoisonError::into_inner);
        let fits = bytes <= most || memory::free().is_none_or(|free| bytes <= free);
        if !fits || !is_given(bytes) {
            return None;
        }
        *taken += bytes;
        Some(Room(bytes))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *lock() -= self.0;
        RETURNED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, u64> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the system gives this process so many bytes, as `ulimit -v` may forbid.
fn is_given(bytes: u64) -> bool {
    let mut tried = Vec::<u8>::new();
    let given = usize::try_from(bytes).is_ok_and(|bytes| tried.try_reserve_exact(bytes).is_ok());
    // The compiler must not leave the allocation out.
    black_box(&tried);
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// In one test, as it is about all threads of the process.
    #[test]
    fn images_wait_for_room_and_none_takes_more_than_there_is() {
        assert!(Room::take(u64::MAX).is_none());
        if let Some(free) = memory::free() {
            assert!(Room::take(free.saturating_mul(2)).is_none());
            // Each is more than its part, so that it waits until it is alone.
            let (at_once, bytes) = (AtomicUsize::new(0), free / 3);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let room = Room::take(bytes).unwrap();
                        assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::sleep(Duration::from_millis(20));
                        at_once.fetch_sub(1, Ordering::SeqCst);
                        drop(room);
                    });
                }
            });
        }
        // Small ones do not wait for each other.
        let (a, b) = (Room::take(1 << 10).unwrap(), Room::take(1 << 10).unwrap());
        drop((a, b));
    }
}
