//! How work is divided into workers.

use super::card::Preprocessing;
use super::runtime::{self, Options, Provider};
use audit_base::{Error, Result};
use onnx_grad::graph::Value;

/// Default batch of one worker on the CPU for photographs. The values of two photographs stay in a core's
/// cache from one operator to the next. The default is never one image: some operators use other kernels for
/// a batch of one, and these round differently.
const PHOTOGRAPHS: usize = 2;
/// Default batch of one worker on the CPU for small images. It is large enough that the work of an operator
/// outweighs the cost of its call, and no larger: the last searches of the strong search run on few images,
/// which fill no large batch.
const SMALL_IMAGES: usize = 8;
/// Number of values of a photograph. Smaller images make batches of as many values, up to [`SMALL_IMAGES`].
const PHOTOGRAPH: usize = 3 * 224 * 224;
/// Number of values of an image up to which it counts as small on a GPU. The default batch there shrinks in
/// proportion as images grow.
const SMALL: usize = 3 * 64 * 64;
/// Images of all workers together on a GPU, for photographs and for small images, and the smallest batch of a
/// worker.
const ALL_ON_GPU: [usize; 2] = [64, 512];
const EACH_ON_GPU: [usize; 2] = [16, 64];

/// The largest number of values in a batch of pixels: 2 GB of float32. A model that needs more is taken for a
/// damaged file.
const MOST_VALUES: usize = 1 << 29;

/// How work is divided into workers. A worker is one thread's share: its own tensors and its own batch of
/// images.
///
/// On the CPU each worker runs its batch through the whole graph in its own thread. With one batch for all
/// threads, every operator would wait for the slowest thread, and operators that ONNX Runtime does not
/// parallelise would use one thread.
///
/// On a GPU the workers take turns. While one of them computes, the others compute losses and move images on
/// the host; and a long search on few images, which fill no batch, computes a small one. docs/cuda.md has
/// measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Workers {
    pub(super) count: usize,
    /// Images per worker: the batch that the graphs are built for.
    pub(super) each: usize,
}

impl Workers {
    /// The default workers for images of `pixels` values.
    pub(super) fn usual(options: Options, pixels: usize) -> Workers {
        let of = |[few, many]: [usize; 2]| (many * SMALL / pixels.max(1)).clamp(few, many);
        let (count, each) = match options.provider {
            Provider::Cpu => {
                let as_many = PHOTOGRAPHS * PHOTOGRAPH / pixels.max(1);
                (threads(options), as_many.clamp(PHOTOGRAPHS, SMALL_IMAGES))
            }
            Provider::Cuda(_) => {
                let (all, fewest) = (of(ALL_ON_GPU), of(EACH_ON_GPU));
                let count = 1 << threads(options).min(all / fewest).ilog2();
                (count, all / count)
            }
        };
        Workers { count, each }
    }

    /// Reduces the workers until one attack step of all of them fits into half of the `available` memory.
    ///
    /// The values of the forward pass (`bytes` per worker) are kept for the backward pass, which computes
    /// about as many. `free` says whether the batch may be reduced too.
    pub(super) fn fitting(self, free: bool, bytes: u64, available: Option<u64>) -> Workers {
        let Some(available) = available else { return self };
        let bytes = bytes / self.each as u64;
        let fits = |count: usize, each: usize| 2 * bytes * (count * each) as u64 <= available / 2;
        let halves = |n: usize| std::iter::successors(Some(n), |n| Some(n / 2)).take_while(|n| *n > 0);
        let count = halves(self.count).find(|n| fits(*n, self.each)).unwrap_or(1);
        let each = halves(self.each).find(|n| !free || fits(count, *n)).unwrap_or(1);
        Workers { count, each }
    }

    /// Session options: the threads are divided among the workers, for use within operators.
    pub(super) fn options(self, options: Options) -> Options {
        match options.provider {
            Provider::Cpu => Options { threads: (threads(options) / self.count).max(1), ..options },
            Provider::Cuda(_) => options,
        }
    }
}

/// The requested number of threads, or one per core.
pub(super) fn threads(options: Options) -> usize {
    if options.threads > 0 { options.threads } else { runtime::cores() }
}

/// The workers for this input. The batch is the model's own where it is fixed, else `requested`, else the
/// default.
pub(super) fn workers_of(
    input: &Value,
    requested: Option<usize>,
    p: &Preprocessing,
    options: Options,
) -> Result<Workers> {
    let usual = Workers::usual(options, p.pixels());
    let each = match (input.fixed_batch(), requested) {
        (Some(n), Some(m)) if n != m => {
            return Err(Error::usage(format!(
                "--batch {m}: the model's batch is fixed to {n}. Leave --batch out"
            )));
        }
        (Some(0), _) => {
            return Err(Error::model("its batch is fixed to 0. Export it with another, or a free one"));
        }
        (None, Some(0)) => return Err(Error::usage("--batch must be at least 1")),
        (fixed, requested) => fixed.or(requested).unwrap_or(usual.each),
    };
    match p.pixels().checked_mul(each) {
        Some(values) if values <= MOST_VALUES => Ok(Workers { each, ..usual }),
        _ => Err(Error::model(format!(
            "a batch of {each} images of {}x{} is more than can be held. Choose a smaller --batch or --size",
            p.height, p.width
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::runtime::{Cuda, Options, Provider};
    use super::Workers;

    #[test]
    fn small_images_go_many_at_a_time() {
        let usual = |provider, threads, side: usize| {
            let Workers { count, each } = Workers::usual(Options { provider, threads }, 3 * side * side);
            [count, each]
        };
        let sides = [28, 64, 112, 224, 5000];
        let on_cpu = sides.map(|side| usual(Provider::Cpu, 3, side));
        assert_eq!(on_cpu, [[3, 8], [3, 8], [3, 8], [3, 2], [3, 2]]);
        let cuda = Provider::Cuda(Cuda::default());
        let on_gpu = sides.map(|side| usual(cuda, 16, side));
        assert_eq!(on_gpu, [[8, 64], [8, 64], [8, 20], [4, 16], [4, 16]]);
        // Threads are what workers need.
        assert_eq!([1, 2, 3].map(|threads| usual(cuda, threads, 224)), [[1, 64], [2, 32], [2, 32]]);
    }

    #[test]
    fn a_batch_takes_half_of_the_memory_at_most() {
        let workers = |count, each| Workers { count, each };
        let fitting = |free, bytes, available| workers(2, 4).fitting(free, bytes, available);
        assert_eq!(fitting(true, 1 << 29, None), workers(2, 4));
        // 1 GiB of values for both workers and as many for the backward pass: 2 GiB, half of 4 GiB.
        assert_eq!(fitting(true, 1 << 29, Some(4 << 30)), workers(2, 4));
        assert_eq!(fitting(true, 1 << 29, Some(3 << 30)), workers(1, 4));
        assert_eq!(fitting(true, 1 << 29, Some(1 << 30)), workers(1, 2));
        assert_eq!(fitting(false, 1 << 29, Some(1 << 30)), workers(1, 4));
        assert_eq!(fitting(true, 1 << 29, Some(1 << 20)), workers(1, 1));
    }
}
