//! Ctrl-C, and what CI systems send to end a job: the first asks for a clean end, the second ends at once.

use crate::{Error, Exit, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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
