//! Ctrl-C, and what CI systems send to end a job: the first asks for a clean end, the second ends at once.

use crate::{Error, Exit, Result, files};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Begins to listen, for the rest of the process.
pub fn listen() -> Result<()> {
    let asked = ASKED.get_or_init(Arc::default);
    let failed = |e: std::io::Error| Error::internal(format!("can't listen for Ctrl-C: {e}"));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal finds the flag up.
        flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, asked.clone())
            .map_err(failed)?;
        flag::register(signal, asked.clone()).map_err(failed)?;
    }
    Ok(())
}

/// Whether somebody asked for an end.
pub fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}

/// Bytes of the stack of [`watched`]'s thread: as much as a main thread has.
const STACK: usize = 8 << 20;

/// What `work` returns, or, as soon as somebody asks for an end, an error (exit code 130): for work that can't look for itself,
/// such as ONNX Runtime's. The work goes on in its thread then, until the process ends; `when` says what it was. `look` is called some
/// twenty times a second meanwhile.
pub fn watched<T: Send + 'static>(
    when: &str,
    look: &mut dyn FnMut(),
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = channel();
    let work = move || {
        let done = work();
        // Nobody listens any more where somebody asked for an end.
        let _ = sender.send(());
        done
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
    let thread = thread.map_err(|e| Error::internal(format!("can't begin a thread: {e}")))?;
    loop {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Err(RecvTimeoutError::Timeout) if asked() => {
                return Err(Error::interrupted(format!(
                    "interrupted {when}. Run the same command again; it starts from the beginning"
                )));
            }
            Err(RecvTimeoutError::Timeout) => look(),
            // Done, or it panicked.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    thread.join().or_else(|panicked| std::panic::resume_unwind(panicked))
}

/// Ends the process without running what libraries want run at its end: a thread that [`watched`] left behind still uses them. Its
/// temporary folders go.
pub fn end() -> ! {
    files::remove_scratch();
    signal_hook::low_level::exit(Exit::Interrupted as i32)
}
