//! The untouched model, to compare with, and a smooth one to take finite differences of.

mod frozen;

use super::card::{Pooling, Preprocessing};
use super::output;
use super::prepared::{as_f32, forget_shapes, in_floats};
use super::runtime::{Input, Optimise, Options, RuntimeTensor, Session};
use super::{Info, refused, stack};
use audit_base::{Error, Result, files};
use ndarray::{Array2, s};
use onnx_grad::Graph;
use onnx_grad::graph::{Bytes, DType};

/// The model file as it is, apart from the output chosen, with preprocessing and pooling done on the CPU.
pub struct Untouched {
    /// Unoptimised, and as users run it. `None`: ONNX Runtime has no kernels for the file's precision on this
    /// machine.
    plain: Option<[Session; 2]>,
    /// Whether the first one runs, once one of them has run: a kernel may refuse a node that optimisation
    /// replaces.
    unoptimised: Option<bool>,
    smooth: Smooth,
    input: String,
    output: String,
    preprocessing: Preprocessing,
    pooling: Option<Pooling>,
    /// Images at a time.
    each: usize,
    /// Whether the file leaves the number of images in a batch open.
    free: bool,
}

/// Images at a time where the file leaves that open, and the model itself takes no fewer: as many as the
/// check at load looks at. Much larger batches, as a GPU has them, would only be padding.
const MAX_BATCH: usize = 8;

/// What finite differences are taken of.
enum Smooth {
    /// The file itself.
    File,
    /// The float32 form of a model in half precision, whose own rounding would drown the differences, or with
    /// an input of integers.
    Widened(Session),
    /// A quantised model with its rounding held still: each quantiser adds to its real-valued input the
    /// rounding that it did at the point (`at`), each max-pool and largest value of a map is made of the
    /// values of which it was made there, each rectifier and clip has the slopes that it had there, and each
    /// comparison decides what it did there. There it computes what the model does, and its derivative is the
    /// straight-through estimate.
    Frozen {
        /// Outputs each quantiser's rounding, the sides of rectifiers, clips and comparisons, the weights of
        /// largest values, and each max-pool's choice.
        probe: Session,
        /// Takes them as inputs.
        frozen: Session,
        /// Their names: those in float32, then the choices of max-pools.
        held: Vec<String>,
        /// Their values, for each run of the images.
        at: Vec<Vec<RuntimeTensor>>,
    },
    /// Nothing: quantised in a way that can't be held still.
    None,
}

impl Untouched {
    /// `batch` is the model's own, and the file's where that is fixed. `quantised`: the model's gradient
    /// passes straight through rounding.
    pub(super) fn open(
        info: &Info,
        quantised: bool,
        input: &str,
        batch: usize,
        options: Options,
    ) -> Result<Untouched> {
        let bytes = read(info)?;
        let mut file =
            chosen(Graph::decode_as_is(bytes.clone(), &info.path).map_err(refused)?, &info.output)?;
        let free = file.inputs.iter().find(|i| i.name == input).is_none_or(|i| i.fixed_batch().is_none());
        let widened = info.precision != DType::F32 || info.preprocessing.integers.is_some();
        if widened {
            as_f32(&mut file, input, &info.output);
        }
        let both = || -> Result<[Session; 2]> {
            Ok([Session::new(&file, options, Optimise::Off)?, Session::as_shipped(&file, options)?])
        };
        let plain = match both() {
            Ok(both) => Some(both),
            // The float32 form has been through ONNX Runtime: what it doesn't take here is the precision.
            Err(_) if info.precision != DType::F32 => None,
            Err(e) => return Err(e),
        };
        let smooth = if quantised {
            match frozen::freeze(&self::widened(bytes, info, input)?, input) {
                Some(([probe, frozen], held)) => Smooth::Frozen {
                    probe: Session::new(&probe, options, Optimise::Off)?,
                    frozen: Session::new(&frozen, options, Optimise::Off)?,
                    held,
                    at: vec![],
                },
                None => Smooth::None,
            }
        } else if widened {
            Smooth::Widened(Session::new(&self::widened(bytes, info, input)?, options, Optimise::Off)?)
        } else {
            Smooth::File
        };
        let mut reference = Untouched {
            plain,
            unoptimised: None,
            smooth,
            input: input.to_string(),
            output: info.output.clone(),
            preprocessing: info.preprocessing.clone(),
            pooling: info.pooling,
            each: if free { batch.min(MAX_BATCH) } else { batch },
            free,
        };
        // A graph may count on its batch further in, in a constant.
        let one = vec![0.5; reference.preprocessing.pixels()];
        if reference.each < batch && reference.embed(&one).is_err() {
            reference.each = batch;
        }
        Ok(reference)
    }

    /// Embeddings [n, D] of n images [n, P], by the unoptimised model, or by the optimised one if that runs
    /// alone; `None` where ONNX Runtime can't run it.
    pub fn embed(&mut self, pixels: &[f32]) -> Result<Option<Array2<f32>>> {
        self.plain(pixels, 0)
    }

    /// The same in runs of `each` images. `None` too where the file takes no batch of that size.
    pub fn embed_in_batches(&mut self, pixels: &[f32], each: usize) -> Result<Option<Array2<f32>>> {
        self.in_batches(each, |reference| reference.embed(pixels))
    }

    /// The same by the model as ONNX Runtime optimises it by default.
    pub fn embed_optimised_in_batches(&mut self, pixels: &[f32], each: usize) -> Result<Option<Array2<f32>>> {
        self.in_batches(each, |reference| reference.embed_optimised(pixels))
    }

    fn in_batches(
        &mut self,
        each: usize,
        embed: impl FnOnce(&mut Untouched) -> Result<Option<Array2<f32>>>,
    ) -> Result<Option<Array2<f32>>> {
        if !self.free {
            return Ok(None);
        }
        let usual = std::mem::replace(&mut self.each, each);
        let found = embed(self);
        self.each = usual;
        // A graph may count on its batch further in, in a constant: then no such batch is ever run.
        Ok(found.unwrap_or(None))
    }

    /// The same by the model as ONNX Runtime optimises it by default, which is how users run it; `None` too
    /// if that is the only way in which it runs, so that there is nothing to compare.
    pub fn embed_optimised(&mut self, pixels: &[f32]) -> Result<Option<Array2<f32>>> {
        if self.unoptimised == Some(false) { Ok(None) } else { self.plain(pixels, 1) }
    }

    fn plain(&mut self, pixels: &[f32], which: usize) -> Result<Option<Array2<f32>>> {
        if self.plain.is_none() {
            return Ok(None);
        }
        let parts = self.parts(pixels, &self.preprocessing);
        let held = parts.iter().map(|x| self.run(x, which)).collect::<Result<Vec<RuntimeTensor>>>()?;
        self.embeddings(&held, pixels).map(Some)
    }

    /// What the file makes of its input, without optimisation (0) or with it (1). Where the first fails and
    /// the second runs, the second is what the file computes.
    fn run(&mut self, x: &[f32], which: usize) -> Result<RuntimeTensor> {
        let shape = self.preprocessing.input_shape(self.each);
        let Some(sessions) = &mut self.plain else {
            return Err(Error::internal("there is no model to run"));
        };
        let feed = [(self.input.as_str(), Input::Host(&shape, x))];
        let mut run = |which: usize| Ok(sessions[which].run(&feed, &[&self.output])?.remove(0));
        match (which, self.unoptimised) {
            (0, None) => {
                let (found, unoptimised) = match run(0) {
                    Ok(found) => (found, true),
                    Err(refused) => (run(1).map_err(|_| refused)?, false),
                };
                self.unoptimised = Some(unoptimised);
                Ok(found)
            }
            (0, Some(false)) => run(1),
            _ => run(which),
        }
    }

    /// What the model takes, run by run; the last run is filled with grey.
    fn parts(&self, pixels: &[f32], preprocessing: &Preprocessing) -> Vec<Vec<f32>> {
        let part = self.each * self.preprocessing.pixels();
        let full = |pixels: &[f32]| {
            let mut pixels = pixels.to_vec();
            pixels.resize(part, 0.5);
            preprocessing.apply(&pixels)
        };
        pixels.chunks(part).map(full).collect()
    }

    /// The same for the smooth model, which takes values between whole grey levels too.
    fn smooth_parts(&self, pixels: &[f32]) -> Vec<Vec<f32>> {
        self.parts(pixels, &Preprocessing { integers: None, ..self.preprocessing.clone() })
    }

    /// Those of the images themselves.
    fn embeddings(&self, held: &[RuntimeTensor], pixels: &[f32]) -> Result<Array2<f32>> {
        let mut parts = Vec::with_capacity(held.len());
        for held in held {
            let (shape, values) = held.floats()?;
            parts.push(output::pool(shape, values, self.each, self.pooling, self.preprocessing.layout)?);
        }
        let all = stack(&parts)?;
        Ok(all.slice_move(s![..pixels.len() / self.preprocessing.pixels(), ..]))
    }

    /// Sets the point that finite differences are taken around. False where there is nothing to take them of.
    pub fn around(&mut self, pixels: &[f32]) -> Result<bool> {
        let parts = self.smooth_parts(pixels);
        let shape = self.preprocessing.input_shape(self.each);
        if let Smooth::Frozen { probe, held, at, .. } = &mut self.smooth {
            let names: Vec<&str> = held.iter().map(String::as_str).collect();
            let mut run = |x| probe.run(&[(&self.input, Input::Host(&shape, x))], &names);
            *at = parts.iter().map(|x| run(x)).collect::<Result<_>>()?;
        }
        Ok(!matches!(self.smooth, Smooth::None))
    }

    /// Embeddings near the point, by a model that is smooth there.
    pub fn embed_smooth(&mut self, pixels: &[f32]) -> Result<Array2<f32>> {
        let parts = self.smooth_parts(pixels);
        let shape = self.preprocessing.input_shape(self.each);
        let mut embedded = Vec::with_capacity(parts.len());
        for (i, x) in parts.iter().enumerate() {
            if let Smooth::File = self.smooth {
                embedded.push(self.run(x, 0)?);
                continue;
            }
            let mut feed = vec![(self.input.as_str(), Input::Host(&shape, x))];
            let session = match &mut self.smooth {
                Smooth::Widened(session) => session,
                Smooth::Frozen { frozen, held, at, .. } => {
                    feed.extend(held.iter().map(String::as_str).zip(at[i].iter().map(Input::Runtime)));
                    frozen
                }
                Smooth::File | Smooth::None => {
                    return Err(Error::internal("there is no smooth model to take differences of"));
                }
            };
            embedded.extend(session.run(&feed, &[&self.output])?);
        }
        self.embeddings(&embedded, pixels)
    }
}

/// The file with the embedding as its only output: as it is, or its float32 form if it takes or computes
/// something else.
pub(super) fn file(info: &Info, input: &str) -> Result<Graph> {
    let bytes = read(info)?;
    match info.precision == DType::F32 && info.preprocessing.integers.is_none() {
        true => chosen(Graph::decode_as_is(bytes, &info.path).map_err(refused)?, &info.output),
        false => widened(bytes, info, input),
    }
}

/// The float32 form of a file.
fn widened(bytes: Bytes, info: &Info, input: &str) -> Result<Graph> {
    let graph = in_floats(Graph::decode(bytes, &info.path).map_err(refused)?, input)?;
    chosen(graph, &info.output)
}

fn read(info: &Info) -> Result<Bytes> {
    files::read(&info.path, files::LARGE)
        .map(Bytes::from)
        .map_err(|e| Error::internal(format!("can't read {} again: {e}", info.path.display())))
}

/// A graph with the value `output` as its only output.
fn chosen(mut graph: Graph, output: &str) -> Result<Graph> {
    output::choose(&mut graph, output)?;
    forget_shapes(&mut graph);
    graph.prune();
    graph.prune_inputs();
    Ok(graph)
}
