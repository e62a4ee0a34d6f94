//! Batches of an epoch in which every image is an anchor once (`--loader pairs`).

use crate::dice::Dice;
use audit::{Error, Result};

/// Maximum number of orders tried. Except in tiny data sets, the first one has enough classes.
const TRIES: usize = 1000;

/// Number of batches of an epoch: each has `batch`/2 anchors, the last one the rest. A single remaining
/// anchor, which has no negative, joins the batch before.
pub fn batches(images: usize, batch: usize) -> usize {
    let (full, rest) = (images / (batch / 2), images % (batch / 2));
    (full + usize::from(rest > 1)).max(1)
}

/// The anchors of each batch, from images of these classes, in random order. Error (exit code 2): no order
/// gives each batch two classes.
pub fn anchors(classes: &[usize], batch: usize, dice: &mut Dice) -> Result<Vec<Vec<usize>>> {
    let count = batches(classes.len(), batch);
    for _ in 0..TRIES {
        let order = dice.choose(classes.len(), classes.len());
        let (most, last) = order.split_at((count - 1) * (batch / 2));
        let all: Vec<&[usize]> = most.chunks(batch / 2).chain([last]).collect();
        if all.iter().all(|rows| rows.iter().any(|&row| classes[row] != classes[rows[0]])) {
            return Ok(all.into_iter().map(<[usize]>::to_vec).collect());
        }
    }
    Err(Error::usage(format!(
        "--loader pairs: in {TRIES} random orders of {} images, some batch of {batch} had one class alone, so that its anchors \
         have no negative; give a larger --batch, or --loader classes",
        classes.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_is_an_anchor_once_an_epoch() {
        // CUB's 5,864 images in pairs of 56: 105 batches, 7,875 in 75 epochs.
        assert_eq!(batches(5864, 112), 105);
        for (images, batch, sizes) in
            [(40, 16, vec![8; 5]), (42, 16, vec![8, 8, 8, 8, 8, 2]), (41, 16, vec![8, 8, 8, 8, 9])]
        {
            let classes: Vec<usize> = (0..images).map(|i| i / 4).collect();
            let of = |epoch| anchors(&classes, batch, &mut Dice::new(0, "order", epoch)).unwrap();
            let epoch = of(0);
            assert_eq!(epoch.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
            assert_eq!(batches(images, batch), sizes.len());
            let mut all = epoch.concat();
            assert_ne!(all, (0..images).collect::<Vec<_>>(), "in random order");
            all.sort_unstable();
            assert_eq!(all, (0..images).collect::<Vec<_>>());
            assert_ne!(of(1), epoch, "each epoch has its own");
        }
    }

    #[test]
    fn a_batch_has_two_classes_or_none_is_made() {
        for seed in 0..20 {
            let made = anchors(&[0, 0, 1, 1, 0, 1], 4, &mut Dice::new(seed, "order", 0)).unwrap();
            assert!(made.iter().all(|rows| [0, 1].map(|c| rows.iter().any(|&r| [0, 0, 1, 1, 0, 1][r] == c)) == [true; 2]));
        }
        let e = anchors(&[0, 0, 0, 0, 1, 0], 4, &mut Dice::new(0, "order", 0)).unwrap_err();
        assert!(e.message.contains("give a larger --batch, or --loader classes"), "{e}");
    }
}
