//! Ctrl-C and other signals that end a job: SIGTERM of schedulers and CI systems, SIGHUP of a terminal that
//! closes. The first signal asks a command that listens for a clean end. A second one, or the first during
//! any other command, ends the process at once, with a message about saved trials.

use crate::{Error, Exit, Result, files};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

static LISTENING: AtomicBool = AtomicBool::new(false);
static END_REQUESTED: AtomicBool = AtomicBool::new(false);
/// Whether a thread of [`watched`] was left behind.
static ABANDONED: AtomicBool = AtomicBool::new(false);
/// An error as a line on stderr.
type Line = Box<dyn Fn(&Error) -> String + Send + Sync>;
static LINE: OnceLock<Line> = OnceLock::new();
/// The message if the process ends at once. A signal handler may neither allocate nor lock, so the text is
/// prepared, and is never freed.
static LAST_WORDS: AtomicPtr<String> = AtomicPtr::new(null_mut());
/// Journals with finished trials, of this process or an earlier one.
static SAVED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// The next step if no trial is saved.
const AGAIN: &str = "Run the same command again; it starts from the beginning";

/// Handles signals for the rest of the process. `line` formats an error.
#[allow(unsafe_code)]
pub fn answer(line: impl Fn(&Error) -> String + Send + Sync + 'static) -> Result<()> {
    let failed = |e: std::io::Error| Error::internal(format!("can't answer Ctrl-C: {e}"));
    let stderr = Arc::new(stderr().map_err(failed)?);
    let _ = LINE.set(Box::new(line));
    prepare_last_words();
    let handle = move || {
        if LISTENING.load(Ordering::SeqCst) && !END_REQUESTED.swap(true, Ordering::SeqCst) {
            return;
        }
        // SAFETY: the pointer is null or of a string that is never freed.
        if let Some(words) = unsafe { LAST_WORDS.load(Ordering::SeqCst).as_ref() } {
            let _ = (&*stderr).write_all(words.as_bytes());
        }
        low_level::exit(Exit::Interrupted as i32);
    };
    for signal in signals() {
        // SAFETY: the handler reads and writes atomics, writes to a file descriptor without a buffer, and
        // ends the process.
        unsafe { low_level::register(signal, handle.clone()) }.map_err(failed)?;
    }
    Ok(())
}

/// The handled signals. One that is ignored stays ignored: `nohup audit …` outlives its terminal, and a
/// script's programs in the background don't get the SIGINT of the one in the foreground.
#[cfg(unix)]
#[allow(unsafe_code)]
fn signals() -> Vec<i32> {
    use signal_hook::consts::SIGHUP;
    // SAFETY: `before` is a local; without a new action the call only reads.
    let ignored = |signal: &i32| unsafe {
        let mut before = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(*signal, std::ptr::null(), &mut before) == 0 && before.sa_sigaction == libc::SIG_IGN
    };
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored(signal)).collect()
}

#[cfg(not(unix))]
fn signals() -> Vec<i32> {
    vec![SIGINT, SIGTERM]
}

/// Standard error without Rust's lock.
fn stderr() -> std::io::Result<File> {
    #[cfg(unix)]
    use std::os::fd::AsFd as _;
    #[cfg(windows)]
    use std::os::windows::io::AsHandle as _;
    let stderr = std::io::stderr();
    #[cfg(unix)]
    let owned = stderr.as_fd().try_clone_to_owned();
    #[cfg(windows)]
    let owned = stderr.as_handle().try_clone_to_owned();
    owned.map(File::from)
}

/// From now on the first signal asks for a clean end: the command looks at [`is_requested`].
pub fn listen() {
    LISTENING.store(true, Ordering::SeqCst);
}

/// An error if a signal asked for an end; `when` names the work.
pub fn check(when: &str) -> Result<()> {
    match is_requested() {
        true => Err(Error::interrupted(format!("interrupted{when}"))),
        false => Ok(()),
    }
}

/// Whether a signal asked for an end.
pub fn is_requested() -> bool {
    END_REQUESTED.load(Ordering::Relaxed)
}

/// Notes that a journal has finished trials, for the messages of interrupted work.
pub fn saved_in(journal: &Path) {
    let mut all = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
    if !all.iter().any(|path| path == journal) {
        all.push(journal.into());
    }
    drop(all);
    prepare_last_words();
}

/// Notes that a journal is removed.
pub fn not_saved_in(journal: &Path) {
    SAVED.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| path != journal);
    prepare_last_words();
}

/// Where finished trials are, and that --resume continues; `None` if no trial is saved.
pub fn saved() -> Option<String> {
    let all = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
    let path = all.last()?.display();
    Some(format!("Finished trials are saved in {path}: the same command with --resume continues"))
}

/// What to do after an interruption.
pub fn next_step() -> String {
    saved().unwrap_or_else(|| AGAIN.into())
}

/// An error of [`check`] with the next step, unless it has one.
pub fn with_next_step(mut error: Error) -> Error {
    if error.exit == Exit::Interrupted && !error.message.contains(". ") {
        error.message = format!("{}. {}", error.message, next_step());
    }
    error
}

/// Prepares the message of a sudden end.
fn prepare_last_words() {
    let Some(line) = LINE.get() else { return };
    // A terminal shows ^C, and perhaps a bar, in this line.
    let start = if std::io::stderr().is_terminal() { "\n" } else { "" };
    let words = format!("{start}{}\n", line(&Error::interrupted(format!("interrupted. {}", next_step()))));
    LAST_WORDS.store(Box::into_raw(Box::new(words)), Ordering::SeqCst);
}

/// Bytes of the stack of [`watched`]'s thread: as much as a main thread has.
const STACK: usize = 8 << 20;

/// Runs work that can't be interrupted, such as ONNX Runtime's, and returns its result, or an error (exit
/// code 130) as soon as a signal asks for an end. The work then continues in its thread until the process
/// ends; `when` names it. `look` is called some twenty times a second meanwhile.
pub fn watched<T: Send + 'static>(
    when: &str,
    look: &mut dyn FnMut(),
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let done = watched_for(None, when, look, work)?;
    done.ok_or_else(|| Error::internal("work without a bound reached it"))
}

/// [`watched`] with a time limit: `None` if `work` is not done within `limit`. It then continues in its
/// thread, and the process must end by [`end_abandoned`].
pub fn watched_for<T: Send + 'static>(
    limit: Option<Duration>,
    when: &str,
    look: &mut dyn FnMut(),
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>> {
    let began = Instant::now();
    let (sender, receiver) = channel();
    let work = move || {
        let done = work();
        // After a signal nobody waits for the result.
        let _ = sender.send(());
        done
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
    let thread = thread.map_err(|e| Error::internal(format!("can't begin a thread: {e}")))?;
    loop {
        let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(began.elapsed()));
        match receiver.recv_timeout(left.min(Duration::from_millis(50))) {
            Err(RecvTimeoutError::Timeout) if is_requested() => {
                ABANDONED.store(true, Ordering::SeqCst);
                return Err(Error::interrupted(format!("interrupted {when}. {}", next_step())));
            }
            Err(RecvTimeoutError::Timeout) if limit.is_some_and(|limit| began.elapsed() >= limit) => {
                ABANDONED.store(true, Ordering::SeqCst);
                return Ok(None);
            }
            Err(RecvTimeoutError::Timeout) => look(),
            // Done, or it panicked.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    thread.join().map(Some).or_else(|panicked| std::panic::resume_unwind(panicked))
}

/// Ends the process without the exit handlers of libraries, if a signal asked for an end or a thread of
/// [`watched`] still works: the handlers would free what this thread uses. Removes temporary folders.
pub fn end_abandoned(exit: u8) {
    if exit == Exit::Interrupted as u8 || ABANDONED.load(Ordering::SeqCst) {
        files::remove_scratch();
        low_level::exit(exit.into());
    }
}
