//! The one place that catches panics: of libraries that panic at damaged files, or where others return an
//! error.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// Runs `work`. A panic becomes an error with its message, and is not printed. Panics elsewhere and in other
/// threads are printed as usual.
pub fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            if !QUIET.get() {
                report(panicked);
            }
        }));
    });
    // A guard within a guard leaves the outer one quiet.
    let before = QUIET.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    done.map_err(|panicked| words(&*panicked))
}

fn words(panicked: &(dyn Any + Send)) -> String {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    text.or(panicked.downcast_ref::<&str>().copied()).unwrap_or("no reason given").to_string()
}

#[cfg(test)]
mod tests {
    use super::quietly;

    #[test]
    fn a_panic_becomes_its_words() {
        assert_eq!(quietly(|| 1), Ok(1));
        assert_eq!(quietly(|| -> u8 { panic!("lost {}", 2) }), Err("lost 2".into()));
        assert_eq!(quietly(|| -> u8 { panic!("lost") }), Err("lost".into()));
        assert_eq!(quietly(|| quietly(|| -> u8 { panic!("inner") })), Ok(Err("inner".into())));
    }
}
