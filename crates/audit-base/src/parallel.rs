//! Loops on all threads.

use rayon::prelude::*;

/// f(0), …, f(count − 1), computed on all threads. `f` is a reference, so that all callers with the same T
/// share one compiled loop. A loop for each caller takes the compiler seconds.
pub fn each<T: Send>(count: usize, f: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
    (0..count).into_par_iter().map(f).collect()
}
