//! Generated images: handwritten characters of invented alphabets.
//!
//! A class is a glyph of a few Bézier strokes. Each image of it is the glyph in another handwriting (control
//! points jittered) and pose (rotated, scaled, sheared, shifted), with another pen, paper and light. Geometry
//! is in units of the glyph, so that an image looks the same at every resolution.
//!
//! All arithmetic is +, −, ×, ÷ and √ in f32, which IEEE 754 defines to the last bit: the same seed gives the
//! same bytes on every machine. So there is no sine, no exponential and no fused multiply-add here.

use super::{BUILTIN_SEED, BUILTIN_SOURCE, Dataset, Item, Origin, Pixels, Preparation, Split};
use audit_base::random::Random;
use audit_base::{Error, Result};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Prefix of the name of generated images, in place of a path.
const PREFIX: &str = "generated:";
/// Maximum number of images: a list of them takes about 12 GB.
const MAX_IMAGES: usize = 100_000_000;

/// The data set that `generated:CLASSESxIMAGES` names, with IMAGES images of each class; `None` if `path` is
/// not such a name. Errors (exit code 2): numbers with which no retrieval is possible, or too many images; a
/// layout or a split, which generated images don't have.
pub fn named(path: &Path, layout: Option<&str>, split: Option<Split>) -> Option<Result<Dataset>> {
    let rest = path.to_str()?.strip_prefix(PREFIX)?;
    let wrong = |why: &str| Error::usage(format!("data {}: {why}", path.display()));
    let numbers: Option<(usize, usize)> =
        rest.split_once('x').and_then(|(c, n)| Some((c.parse().ok()?, n.parse().ok()?)));
    Some(match numbers {
        _ if layout.is_some() || split.is_some() => {
            Err(wrong("generated images have neither layout nor split: leave --layout and --split out"))
        }
        Some((classes, images))
            if classes >= 1
                && images >= 2
                && images.checked_mul(classes).is_some_and(|all| all <= MAX_IMAGES) =>
        {
            let mut set = list(BUILTIN_SEED, classes, images);
            set.source = format!("{classes} classes of {images} {}", set.source);
            Ok(set)
        }
        _ => Err(wrong(&format!(
            "expected {PREFIX}CLASSESxIMAGES, such as {PREFIX}1000x20 for 1,000 classes of 20 images each: at least 2 of each class, \
             {MAX_IMAGES} in all at most"
        ))),
    })
}

/// Lists `classes` × `samples` images. They are drawn when they are read.
pub fn list(seed: u64, classes: usize, samples: usize) -> Dataset {
    let digits = |count: usize| count.saturating_sub(1).to_string().len().max(2);
    let (wide, narrow) = (digits(classes), digits(samples));
    let names: Vec<_> = (0..classes).map(|class| format!("class{class:0wide$}")).collect();
    let items = (0..classes * samples)
        .map(|at| {
            let (class, sample) = (at / samples, at % samples);
            let id = format!("{}/{sample:0narrow$}", names[class]);
            Item { id, class, origin: Origin::Generated { seed, sample } }
        })
        .collect();
    Dataset { source: format!("{BUILTIN_SOURCE}, seed {seed}"), classes: names, items, ..Dataset::default() }
}

/// Draws image `sample` of `class`. It depends only on these, the seed, the size and the number of channels;
/// [`Preparation::resize`] is ignored, because the image is drawn at its final size.
pub fn pixels(seed: u64, class: usize, sample: usize, prep: &Preparation) -> Pixels {
    let mut random = Sampler::new(seed, &[class]);
    let glyph = Glyph::invent(&mut random);
    let typical = Colours::invent(&mut random);
    let mut random = Sampler::new(seed, &[class, sample]);
    let writing = glyph.write(&mut random);
    let light = Light::cast(&mut random);
    let colours = match prep.channels {
        1 => Colours::grey(&mut random),
        _ => typical.vary(&mut random),
    };
    let cover = writing.cover(prep.height, prep.width);
    let bytes = light.develop(&cover, &colours, prep, &mut random);
    let data = bytes.iter().map(|&value| f32::from(value) / 255.0).collect();
    Pixels { data, digest: Sha256::digest(&bytes).into() }
}

/// Random numbers of several distributions. They depend on the seed and a path of indices.
struct Sampler(Random);

impl Sampler {
    fn new(seed: u64, path: &[usize]) -> Sampler {
        let path: Vec<u8> = path.iter().flat_map(|&index| (index as u64).to_le_bytes()).collect();
        Sampler(Random::keyed(&[b"audit built-in images 1", &seed.to_le_bytes(), &path]))
    }

    fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.0.unit()
    }

    /// A bell-shaped distribution around 0 with standard deviation `spread`, at most three times that: a sum
    /// of three uniforms.
    fn about(&mut self, spread: f32) -> f32 {
        spread * (self.between(-1.0, 1.0) + self.between(-1.0, 1.0) + self.between(-1.0, 1.0))
    }

    fn point(&mut self) -> Point {
        Point { x: self.between(-1.0, 1.0), y: self.between(-1.0, 1.0) }
    }
}

/// Deviation of control points between handwritings, in units of the glyph.
const JITTER: f32 = 0.15;
/// Straight pieces per curve.
const PIECES: usize = 16;
/// Standard deviation of the pixel noise.
const NOISE: f32 = 0.02;

#[derive(Clone, Copy)]
struct Point {
    x: f32,
    y: f32,
}

impl Point {
    fn toward(self, other: Point, share: f32) -> Point {
        Point { x: self.x + (other.x - self.x) * share, y: self.y + (other.y - self.y) * share }
    }

    fn moved(self, x: f32, y: f32) -> Point {
        Point { x: self.x + x, y: self.y + y }
    }

    fn distance(self, other: Point) -> f32 {
        let (x, y) = (self.x - other.x, self.y - other.y);
        (x * x + y * y).sqrt()
    }
}

/// A quadratic Bézier curve.
type Curve = [Point; 3];

fn along([start, bend, end]: Curve, share: f32) -> Point {
    start.toward(bend, share).toward(bend.toward(end, share), share)
}

/// A character of the alphabet, in [−1,1]².
struct Glyph(Vec<Stroke>);

struct Stroke {
    curve: Curve,
    /// An earlier stroke and the position on it where this one starts.
    joint: Option<(usize, f32)>,
}

impl Glyph {
    fn invent(random: &mut Sampler) -> Glyph {
        let mut strokes: Vec<Stroke> = Vec::new();
        let count = random.between(2.0, 5.0) as usize;
        while strokes.len() < count {
            let joint = (!strokes.is_empty() && random.between(0.0, 1.0) < 0.65).then(|| {
                let earlier = random.between(0.0, strokes.len() as f32) as usize;
                // Its end is as probable as all other positions together.
                (earlier.min(strokes.len() - 1), random.between(0.0, 2.0).min(1.0))
            });
            let start =
                joint.map_or_else(|| random.point(), |(earlier, share)| along(strokes[earlier].curve, share));
            let end = random.point();
            let length = start.distance(end);
            let swing = random.between(-0.9, 0.9);
            if length < 0.7 {
                continue;
            }
            let bend = start.toward(end, 0.5).moved((start.y - end.y) * swing, (end.x - start.x) * swing);
            let bend = Point { x: bend.x.clamp(-1.2, 1.2), y: bend.y.clamp(-1.2, 1.2) };
            strokes.push(Stroke { curve: [start, bend, end], joint });
        }
        // Scaled so that the character fills its square, wherever its strokes are.
        let ink: Vec<Point> = strokes
            .iter()
            .flat_map(|stroke| (0..=8).map(|eighth| along(stroke.curve, eighth as f32 / 8.0)))
            .collect();
        let reach = |of: fn(&Point) -> f32| {
            let (low, high) = ink.iter().map(of).fold((f32::MAX, f32::MIN), |(a, b), v| (a.min(v), b.max(v)));
            ((low + high) / 2.0, (high - low) / 2.0)
        };
        let ((middle_x, wide), (middle_y, tall)) = (reach(|point| point.x), reach(|point| point.y));
        let size = wide.max(tall);
        for point in strokes.iter_mut().flat_map(|stroke| &mut stroke.curve) {
            *point = Point { x: (point.x - middle_x) / size, y: (point.y - middle_y) / size };
        }
        Glyph(strokes)
    }

    /// The strokes in one handwriting.
    fn write(&self, random: &mut Sampler) -> Writing {
        let mut curves: Vec<Curve> = Vec::with_capacity(self.0.len());
        for stroke in &self.0 {
            let [start, bend, end] =
                stroke.curve.map(|point| point.moved(random.about(JITTER), random.about(JITTER)));
            let start = stroke.joint.map_or(start, |(earlier, share)| {
                along(curves[earlier], share).moved(random.about(JITTER / 4.0), random.about(JITTER / 4.0))
            });
            curves.push([start, bend, end]);
        }
        // Half the tangent of the angle gives its sine and cosine without computing either.
        let half = random.about(0.08);
        let (cosine, sine) = ((1.0 - half * half) / (1.0 + half * half), 2.0 * half / (1.0 + half * half));
        let shear = random.about(0.15);
        let size = random.between(0.55, 0.75);
        let (wide, tall) = (size * random.between(0.85, 1.15), size * random.between(0.85, 1.15));
        let (right, down) = (random.about(0.1), random.about(0.1));
        for point in curves.iter_mut().flatten() {
            let (x, y) = ((point.x + shear * point.y) * wide, point.y * tall);
            *point = Point { x: cosine * x - sine * y + right, y: sine * x + cosine * y + down };
        }
        Writing { curves, pen: random.between(0.045, 0.085) }
    }
}

/// Strokes on paper, whose shorter side is [−1,1].
struct Writing {
    curves: Vec<Curve>,
    /// Half the width of the line.
    pen: f32,
}

impl Writing {
    /// Share of each pixel that is ink, 0 to 1, with smooth edges; row by row.
    fn cover(&self, height: usize, width: usize) -> Vec<f32> {
        let half = height.min(width) as f32 / 2.0;
        let (middle_x, middle_y) = (width as f32 / 2.0, height as f32 / 2.0);
        // Everything below is in pixels; `reach` is the maximum distance of visible ink.
        let pen = self.pen * half;
        let reach = pen + 0.5;
        let mut nearest = vec![reach * reach; height * width];
        // Pixels whose centre may be within reach of [low, high].
        let span = |low: f32, high: f32, size: usize| {
            let from = (low - reach).max(0.0) as usize;
            from..((high + reach).max(0.0) as usize + 1).min(size)
        };
        for curve in &self.curves {
            let on_paper =
                curve.map(|point| Point { x: point.x * half + middle_x, y: point.y * half + middle_y });
            let mut a = on_paper[0];
            for piece in 1..=PIECES {
                let b = along(on_paper, piece as f32 / PIECES as f32);
                let (dx, dy) = (b.x - a.x, b.y - a.y);
                let square = (dx * dx + dy * dy).max(1e-12);
                for row in span(a.y.min(b.y), a.y.max(b.y), height) {
                    for column in span(a.x.min(b.x), a.x.max(b.x), width) {
                        let (x, y) = (column as f32 + 0.5 - a.x, row as f32 + 0.5 - a.y);
                        let share = ((x * dx + y * dy) / square).clamp(0.0, 1.0);
                        let (x, y) = (x - share * dx, y - share * dy);
                        let best = &mut nearest[row * width + column];
                        *best = best.min(x * x + y * y);
                    }
                }
                a = b;
            }
        }
        nearest.into_iter().map(|square| (reach - square.sqrt()).min(1.0)).collect()
    }
}

/// Colours of paper and ink, one value per channel.
struct Colours {
    paper: Vec<f32>,
    ink: Vec<f32>,
}

impl Colours {
    /// Bright ink on dark paper.
    fn grey(random: &mut Sampler) -> Colours {
        Colours { paper: vec![random.between(0.0, 0.12)], ink: vec![random.between(0.65, 1.0)] }
    }

    /// A typical pair of colours of a class.
    fn invent(random: &mut Sampler) -> Colours {
        let mut three = |low, high| (0..3).map(|_| random.between(low, high)).collect();
        Colours { paper: three(0.05, 0.45), ink: three(0.45, 1.0) }
    }

    /// The pair in one image of the class.
    fn vary(&self, random: &mut Sampler) -> Colours {
        let mut stray = |values: &[f32]| values.iter().map(|value| value + random.about(0.1)).collect();
        Colours { paper: stray(&self.paper), ink: stray(&self.ink) }
    }
}

/// Uneven light: its slope to the right, downwards, and along the diagonals.
struct Light {
    right: f32,
    down: f32,
    twist: f32,
}

impl Light {
    fn cast(random: &mut Sampler) -> Light {
        Light { right: random.about(0.08), down: random.about(0.08), twist: random.about(0.05) }
    }

    /// The image as 8-bit values, C×H×W, with camera noise.
    fn develop(&self, cover: &[f32], colours: &Colours, prep: &Preparation, random: &mut Sampler) -> Vec<u8> {
        let (height, width) = (prep.height, prep.width);
        let mut bytes = Vec::with_capacity(prep.channels * cover.len());
        for (paper, ink) in colours.paper.iter().zip(&colours.ink) {
            for (at, cover) in cover.iter().enumerate() {
                let x = ((at % width) as f32 + 0.5) / width as f32 * 2.0 - 1.0;
                let y = ((at / width) as f32 + 0.5) / height as f32 * 2.0 - 1.0;
                let light = 1.0 + self.right * x + self.down * y + self.twist * x * y;
                let value = (paper + (ink - paper) * cover) * light + random.about(NOISE);
                // The conversion saturates at 0 and 255.
                bytes.push((value * 255.0 + 0.5) as u8);
            }
        }
        bytes
    }
}
