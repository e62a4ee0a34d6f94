//! The form of a loss. Searches minimise it.

/// A loss at the point z `[D]` of the metric space.
pub enum Loss<'a> {
    /// A function of the point. Arguments: z; whether this is the first step of a run from the clean image;
    /// ∂L/∂z `[D]`, zero on entry. Returns the loss.
    Point(Box<PointLoss<'a>>),
    /// A function of the distances d from z to the whole gallery. Arguments: d `[N]`; ∂L/∂d `[N]`, zero on
    /// entry. Returns the loss. Only these losses need matrix products with the gallery.
    Gallery(Box<GalleryLoss<'a>>),
    /// Nothing: the query is left alone, and its clean image is the result. The loss is 0.
    Still,
}

/// See [`Loss::Point`].
pub type PointLoss<'a> = dyn Fn(&[f32], bool, &mut [f32]) -> f64 + Send + Sync + 'a;
/// See [`Loss::Gallery`].
pub type GalleryLoss<'a> = dyn Fn(&[f32], &mut [f32]) -> f64 + Send + Sync + 'a;
