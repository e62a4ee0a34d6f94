//! The pixels near a position along one axis, with their weights.

use crate::grad::Cx;

/// The values outside of the image.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Outside {
    Zeros,
    /// The nearest pixel of the border.
    Border,
    /// The image, mirrored at the outer pixels' centres or at their edges.
    Mirrored {
        at_centres: bool,
    },
}

/// A neighbour of a position along one axis: its place (an integer, as float), its weight and the weight's
/// slope with respect to the position; `None` for 1 and for 0.
pub(super) struct Near {
    pub place: String,
    pub weight: Option<String>,
    pub slope: Option<String>,
}

/// The nearest neighbour; halves are rounded to even.
pub(super) fn nearest(cx: &Cx, position: &str) -> Vec<Near> {
    vec![Near { place: cx.op("Round", &[position]), weight: None, slope: None }]
}

/// The neighbours on both sides, weighted by distance.
pub(super) fn linear(cx: &Cx, position: &str) -> Vec<Near> {
    let low = cx.op("Floor", &[position]);
    let part = cx.sub(position, &low);
    let one = cx.scalar(1.0);
    let rest = cx.sub(&one, &part);
    let high = cx.add(&low, &one);
    vec![
        Near { place: low, weight: Some(rest), slope: Some(cx.scalar(-1.0)) },
        Near { place: high, weight: Some(part), slope: Some(one) },
    ]
}

/// Two neighbours on each side: Keys' cubic convolution with a = −3/4 (IEEE TASSP 29, 1981, equation 15).
pub(super) fn cubic(cx: &Cx, position: &str) -> Vec<Near> {
    const A: f32 = -0.75;
    let low = cx.op("Floor", &[position]);
    let part = cx.sub(position, &low);
    // c0 + d·(c1 + d·(c2 + d·c3))
    let polynomial = |d: &str, c: [f32; 4]| {
        let mut value = cx.scalar(c[3]);
        for c in c[..3].iter().rev() {
            value = cx.add(&cx.mul(&value, d), &cx.scalar(*c));
        }
        value
    };
    let far = ([-4.0 * A, 8.0 * A, -5.0 * A, A], [8.0 * A, -10.0 * A, 3.0 * A, 0.0]);
    let close = ([1.0, 0.0, -(A + 3.0), A + 2.0], [0.0, -2.0 * (A + 3.0), 3.0 * (A + 2.0), 0.0]);
    (-1i8..=2)
        .map(|step| {
            let place = cx.add(&low, &cx.scalar(f32::from(step)));
            // For the neighbours above, the distance falls as the position rises.
            let above = step > 0;
            let distance = if above {
                cx.sub(&cx.scalar(f32::from(step)), &part)
            } else {
                cx.sub(&part, &cx.scalar(f32::from(step)))
            };
            let (weight, slope) = if matches!(step, -1 | 2) { far } else { close };
            let slope = polynomial(&distance, slope);
            Near {
                place,
                weight: Some(polynomial(&distance, weight)),
                slope: Some(if above { cx.neg(&slope) } else { slope }),
            }
        })
        .collect()
}

/// A place or a position, mirrored into the axis, and whether it rises with its argument: 1 or 0. `None` for
/// a single pixel that is mirrored at its centre.
fn mirror(cx: &Cx, at: &str, size: i64, at_centres: bool) -> Option<[String; 2]> {
    let (start, period) =
        if at_centres { (0.0, 2.0 * (size as f32 - 1.0)) } else { (-0.5, 2.0 * size as f32) };
    if period == 0.0 {
        return None;
    }
    let from = cx.sub(at, &cx.scalar(start));
    let turns = cx.op("Floor", &[&cx.scale(&from, 1.0 / period)]);
    let phase = cx.sub(&from, &cx.scale(&turns, period));
    // Forwards up to the middle of the period, then back.
    let back = cx.sub(&cx.scalar(period), &phase);
    let rises = cx.one_where(&cx.op("Less", &[&phase, &back]));
    Some([cx.add(&cx.op("Min", &[&phase, &back]), &cx.scalar(start)), rises])
}

/// [`linear`] for values outside that are not 0: the position is first moved into the image. The slopes are
/// those of PyTorch's `clip_coordinates_set_grad` and `reflect_coordinates_set_grad`.
pub(super) fn linear_within(cx: &Cx, position: &str, size: i64, outside: Outside) -> Vec<Near> {
    let mirrored = match outside {
        Outside::Mirrored { at_centres } => mirror(cx, position, size, at_centres),
        _ => None,
    };
    let (position, rises) = match mirrored {
        Some([position, rises]) => (position, Some(rises)),
        None => (position.to_string(), None),
    };
    let last = size as f32 - 1.0;
    let inside = cx.op("And", &[&cx.greater(&position, 0.0), &cx.less(&position, last)]);
    let mut turn = cx.one_where(&inside);
    if let Some(rises) = rises {
        turn = cx.mul(&turn, &cx.sub(&cx.scale(&rises, 2.0), &cx.scalar(1.0)));
    }
    let clipped = cx.op("Clip", &[&position, &cx.scalar(0.0), &cx.scalar(last)]);
    let turned = |near: Near| Near { slope: near.slope.map(|slope| cx.mul(&slope, &turn)), ..near };
    linear(cx, &clipped).into_iter().map(turned).collect()
}

/// The place within the axis, and whether it was inside: 1 or 0, `None` if values outside count.
pub(super) fn clamp_place(cx: &Cx, place: &str, size: i64, outside: Outside) -> (String, Option<String>) {
    let last = size as f32 - 1.0;
    let clipped = |place: &str| cx.op("Clip", &[place, &cx.scalar(0.0), &cx.scalar(last)]);
    match outside {
        Outside::Zeros => {
            let low = cx.op("GreaterOrEqual", &[place, &cx.scalar(0.0)]);
            let high = cx.op("LessOrEqual", &[place, &cx.scalar(last)]);
            let inside = cx.one_where(&cx.op("And", &[&low, &high]));
            (clipped(place), Some(inside))
        }
        Outside::Border => (clipped(place), None),
        Outside::Mirrored { at_centres } => {
            let within = mirror(cx, place, size, at_centres).map(|[within, _]| cx.op("Round", &[&within]));
            (clipped(within.as_deref().unwrap_or(place)), None)
        }
    }
}
