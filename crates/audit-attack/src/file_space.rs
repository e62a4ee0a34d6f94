//! Attacks on the pixels of a file: images are photographs at their own size, resized and cropped on their way to the model.

use super::ensemble::WorkerSource;
use audit_base::Result;
use audit_gallery::data::Resampling;
use audit_model::{Cotangent, Differentiable, OnWorkers, Route};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};
use rayon::prelude::*;

/// Values of photographs that a batch holds at most: 256 MiB of float32.
const ROOM: usize = 64 << 20;

/// A worker whose images are photographs of one size. Its embeddings are those of the files that hold them: they are rounded to grey levels and
/// resized as a file is. Gradients pass rounding straight through.
pub struct FileSpace<'m> {
    model: &'m mut dyn Differentiable,
    resampling: &'m Resampling,
    /// The model's images of a batch, and the gradients for them.
    inputs: Vec<f32>,
    gradient: Vec<f32>,
}

impl<'m> FileSpace<'m> {
    /// `model` is a worker, and `resampling` ends at its input.
    pub fn new(model: &'m mut dyn Differentiable, resampling: &'m Resampling) -> FileSpace<'m> {
        FileSpace { model, resampling, inputs: Vec::new(), gradient: Vec::new() }
    }

    /// Resizes those photographs [n, P] that `wanted` names into the model's images, in a batch of `count`.
    fn resize(&mut self, photographs: &[f32], count: usize, wanted: impl Fn(usize) -> bool + Sync) {
        let (from, to) = (self.pixels(), self.model.pixels());
        self.inputs.resize(count * to, 0.0);
        let pairs = photographs.par_chunks(from).zip(self.inputs.par_chunks_mut(to)).enumerate();
        let resampling = self.resampling;
        pairs
            .filter(|(i, _)| wanted(*i))
            .for_each(|(_, (photograph, input))| resampling.apply(photograph, input));
    }
}

impl Differentiable for FileSpace<'_> {
    fn batch(&self) -> usize {
        self.model.batch().min(ROOM / self.pixels()).max(1)
    }

    fn shape(&self) -> [usize; 3] {
        self.resampling.shape()
    }

    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        let count = images.len() / self.pixels();
        self.resize(images, count, |_| true);
        self.model.embed(&self.inputs)
    }

    fn gradient(
        &mut self,
        images: &[f32],
        reach: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        let (count, all) = (self.batch(), self.model.batch());
        let (from, to) = (self.pixels(), self.model.pixels());
        // A slot with reach 0 is empty. If all are 0, no reach is known.
        let known = reach.iter().any(|reach| *reach > 0.0);
        let wanted = |i: usize| !known || reach[i] > 0.0;
        self.resize(images, all, wanted);
        self.gradient.resize(all * to, 0.0);
        let mut padded = vec![0.0; all];
        padded[..count].copy_from_slice(reach);
        let mut of_photographs = |e: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
            out.fill(0.0);
            cotangent(e.slice(s![..count, ..]), out.slice_mut(s![..count, ..]));
        };
        self.model.gradient(&self.inputs, &padded, &mut of_photographs, &mut self.gradient)?;
        let pairs = self.gradient.par_chunks(to).zip(gradient.par_chunks_mut(from)).enumerate();
        let resampling = self.resampling;
        pairs.for_each(|(i, (given, out))| match wanted(i) {
            true => resampling.pull_back(given, out),
            false => out.fill(0.0),
        });
        Ok(())
    }
}

/// Wraps the workers of every route in [`FileSpace`].
pub fn in_file_space<'r>(
    workers: &'r mut WorkerSource<'r>,
    resampling: &'r Resampling,
) -> impl FnMut(Route, &mut OnWorkers) -> Result<bool> + 'r {
    move |route, work| {
        workers(route, &mut |workers| {
            let mut all: Vec<FileSpace> =
                workers.into_iter().map(|worker| FileSpace::new(worker, resampling)).collect();
            work(all.iter_mut().map(|worker| worker as &mut dyn Differentiable).collect())
        })
    }
}
