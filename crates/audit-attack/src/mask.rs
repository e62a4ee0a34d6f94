//! Masks: the part of an image that an attacker may change.

use super::draw::Draw;
use audit_base::{Error, Result, files};
use audit_gallery::data;
use audit_report::record;
use image::DynamicImage;
use sha2::{Digest, Sha256};
use std::path::Path;

/// Which pixels of an image may change, in all their channels.
#[derive(Clone, Debug, PartialEq)]
pub enum Mask {
    /// The white pixels of an image file.
    File {
        /// Its path, as the user gave it.
        path: String,
        /// SHA-256 of its bytes.
        sha256: String,
        /// Height and width.
        size: [usize; 2],
        /// Whether each pixel is free, [H·W].
        free: Vec<bool>,
    },
    /// A rectangle with the proportions of the image, at a position drawn for each query.
    Patch {
        /// Its share of the image's area, above 0 and at most 1.
        share: f32,
    },
}

impl Mask {
    /// Reads a mask from an image file: a pixel is free if its luma is at least a half; alpha is ignored.
    /// Errors (exit code 2): the file is no image, or none of its pixels is white.
    pub fn read(path: &Path) -> Result<Mask> {
        let shown = path.display().to_string();
        let wrong = |why: String| Error::usage(format!("mask {shown}: {why}"));
        let bytes = files::read(path, files::IMAGE).map_err(|e| wrong(format!("can't read it: {e}")))?;
        let (image, _) = data::decode(&bytes, path).map_err(|why| {
            wrong(format!(
                "can't decode it: {why}. Expected is an image that is white where pixels may change"
            ))
        })?;
        let grey = image.into_rgb8();
        let grey = DynamicImage::from(grey).into_luma8();
        let size = [grey.height() as usize, grey.width() as usize];
        let free: Vec<bool> = grey.into_raw().into_iter().map(|v| v >= 128).collect();
        if !free.contains(&true) {
            return Err(wrong(
                "no pixel is white, so that no attack could change any. Paint them white".into(),
            ));
        }
        let sha256 = audit_base::files::hex(&Sha256::digest(&bytes));
        Ok(Mask::File { path: shown, sha256, size, free })
    }

    /// Refuses images of another size than the mask's (exit code 2). `shape` is [C, H, W].
    pub fn fits(&self, [_, height, width]: [usize; 3]) -> Result<()> {
        match self {
            Mask::File { path, size: [h, w], .. } if [*h, *w] != [height, width] => {
                Err(Error::usage(format!(
                    "mask {path} has {w} × {h} pixels, and the model takes images of {width} × {height}: scale the mask to this \
                     size"
                )))
            }
            _ => Ok(()),
        }
    }

    /// The mask at another height and width: each pixel is free if the nearest pixel of the file is.
    pub fn scaled(&self, [height, width]: [usize; 2]) -> Mask {
        let Mask::File { path, sha256, size: [h, w], free } = self else { return self.clone() };
        let nearest = |at: usize, of: usize, from: usize| ((2 * at + 1) * from / (2 * of)).min(from - 1);
        let pixel = |i: usize| free[nearest(i / width, height, *h) * w + nearest(i % width, width, *w)];
        let free = (0..height * width).map(pixel).collect();
        Mask::File { path: path.clone(), sha256: sha256.clone(), size: [height, width], free }
    }

    /// Which values of an image of `shape` [C, H, W] may change, [C·H·W]. The position of a patch depends on
    /// the seed and the query's id, so that it is the same in all attacks on a query. Errors: those of
    /// [`Mask::fits`].
    pub fn free(&self, shape: [usize; 3], seed: u64, id: &str) -> Result<Vec<bool>> {
        self.fits(shape)?;
        let [channels, height, width] = shape;
        let plane = match self {
            Mask::File { free, .. } => free.clone(),
            Mask::Patch { share } => {
                let side = |of: usize| ((of as f32 * share.sqrt()).round() as usize).clamp(1, of);
                let (high, wide) = (side(height), side(width));
                let mut draw = Draw::new(seed, "patch", id, 0);
                let (top, left) = (draw.index(height - high + 1), draw.index(width - wide + 1));
                let within = |i: usize| {
                    (top..top + high).contains(&(i / width)) && (left..left + wide).contains(&(i % width))
                };
                (0..height * width).map(within).collect()
            }
        };
        Ok(plane.repeat(channels))
    }

    /// The mask as reports describe it.
    pub fn described(&self) -> record::MaskRecord {
        match self {
            Mask::File { path, sha256, free, .. } => record::MaskRecord {
                path: Some(path.clone()),
                sha256: Some(sha256.clone()),
                share: free.iter().filter(|free| **free).count() as f64 / free.len() as f64,
            },
            Mask::Patch { share } => {
                record::MaskRecord { path: None, sha256: None, share: f64::from(*share) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quarter of the area is half of each side. The position depends only on the seed and the query.
    #[test]
    fn a_patch_has_its_share_of_the_area_at_a_drawn_place() {
        let patch = Mask::Patch { share: 0.25 };
        let mut places = std::collections::BTreeSet::new();
        for query in 0..50 {
            let free = patch.free([3, 8, 12], 1, &query.to_string()).unwrap();
            assert_eq!(free.iter().filter(|free| **free).count(), 3 * 4 * 6);
            assert_eq!(free[..96], free[96..192]);
            let first = free.iter().position(|free| *free).unwrap();
            assert!(free[first + 5] && free[first + 3 * 12 + 5], "a rectangle of 4 × 6");
            assert!((free[..96].iter().rposition(|free| *free).unwrap()) == first + 3 * 12 + 5);
            assert_eq!(patch.free([3, 8, 12], 1, &query.to_string()).unwrap(), free);
            places.insert(first);
        }
        assert!(places.len() > 20, "{places:?}");
        let whole = Mask::Patch { share: 1.0 }.free([1, 5, 7], 0, "q").unwrap();
        assert!(whole.iter().all(|free| *free));
        let least = Mask::Patch { share: 1e-6 }.free([1, 5, 7], 0, "q").unwrap();
        assert_eq!(least.iter().filter(|free| **free).count(), 1);
    }

    /// By hand: a pixel becomes four, and of four the lower right one is nearest to the middle, as in
    /// Pillow's `resize(…, NEAREST)`.
    #[test]
    fn a_mask_takes_the_size_of_a_photograph() {
        let mask = |size: [usize; 2], free: &[bool]| Mask::File {
            path: "mask.png".into(),
            sha256: String::new(),
            size,
            free: free.to_vec(),
        };
        let small = mask([1, 2], &[true, false]);
        assert_eq!(small.scaled([2, 4]), mask([2, 4], &[true, true, false, false].repeat(2)));
        let large = mask([2, 2], &[false, false, false, true]);
        assert_eq!(large.scaled([1, 1]), mask([1, 1], &[true]));
        let patch = Mask::Patch { share: 0.5 };
        assert_eq!(patch.scaled([3, 3]), patch);
    }

    #[test]
    fn a_mask_is_white_where_pixels_may_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mask.png");
        image::GrayImage::from_raw(3, 2, vec![0, 127, 128, 255, 0, 0]).unwrap().save(&path).unwrap();
        let mask = Mask::read(&path).unwrap();
        let free = mask.free([2, 2, 3], 0, "q").unwrap();
        let plane = [false, false, true, true, false, false];
        assert_eq!(free, [plane, plane].concat());
        assert!((mask.described().share - 1.0 / 3.0).abs() < 1e-9);
        let message = mask.free([1, 3, 2], 0, "q").unwrap_err().message;
        assert!(message.contains("has 3 × 2 pixels") && message.contains("images of 2 × 3"), "{message}");
        image::GrayImage::new(3, 2).save(&path).unwrap();
        assert!(Mask::read(&path).unwrap_err().message.contains("no pixel is white"));
        std::fs::write(&path, "text").unwrap();
        assert!(Mask::read(&path).unwrap_err().message.contains("can't decode"));
        std::fs::remove_file(&path).unwrap();
        assert!(Mask::read(&path).unwrap_err().message.contains("can't read"));
    }
}
