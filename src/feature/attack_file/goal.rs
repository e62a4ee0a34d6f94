//! The goal of the attacked file: to find another item in a gallery, or to be accepted or refused as a
//! person.

use crate::data::Dataset;
use crate::error::{did_you_mean, shortened};
use crate::record::{Form, Metric, Outcome, Role};
use crate::space::Gallery;
use crate::threat::objective::r1::R1;
use crate::threat::objective::top1::near_copies;
use crate::threat::objective::within::{DODGE, IMPERSONATE};
use crate::threat::{AttackContext, ContextSettings, Objective, Trial, measure, select};
use crate::{Error, Result};
use ndarray::Array2;
use std::path::{Path, PathBuf};

/// Classes that an error names.
const SHOWN_CLASSES: usize = 8;

/// Images of a search that are shown.
const NEAREST: usize = 5;

/// What the attacked file should achieve.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// An image is nearest whose class is neither that of the clean answer nor the photograph's own; without
    /// classes another image.
    OtherClass,
    /// An image of this class, or this image, is nearest.
    Find(String),
    /// It is accepted as who is on this image.
    AcceptAs(PathBuf),
    /// It is not accepted any more as who is on this image.
    NotAs(PathBuf),
}

/// A comparison with one reference, which is accepted at a threshold.
pub(super) struct Comparison<'a> {
    pub flag: &'static str,
    pub reference: &'a Path,
    objective: &'static Objective,
    verb: &'static str,
}

impl Wish {
    /// `None` if the file is searched for in a gallery.
    pub(super) fn comparison(&self) -> Option<Comparison<'_>> {
        let (flag, objective, verb, reference) = match self {
            Wish::OtherClass | Wish::Find(_) => return None,
            Wish::AcceptAs(reference) => ("--accept-as", &IMPERSONATE, "is accepted as", reference),
            Wish::NotAs(reference) => ("--not-as", &DODGE, "is not accepted as", reference),
        };
        Some(Comparison { flag, reference, objective, verb })
    }
}

/// Result of a system for an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The nearest images, at most five, nearest first; of a comparison the reference.
    pub nearest: Vec<Nearest>,
    /// Whether the image is accepted; `None` of a search.
    pub accepted: Option<bool>,
    /// Whether it meets the goal.
    pub(super) reached: bool,
}

/// An image at a distance.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    /// Its name.
    pub id: String,
    /// Its class; `None` of a reference, and without classes.
    pub class: Option<String>,
    /// Its distance.
    pub distance: f64,
    /// Whether the attack wants it to be nearest.
    pub wanted: bool,
}

/// A photograph as one further point of a space.
pub(super) struct Point<'a> {
    /// Unlike a path, this is the name of no item, and the same wherever the file lies.
    pub id: String,
    pub raw: &'a [f32],
}

/// The goal of the file, with everything that the attack needs.
pub(super) struct Goal {
    /// The goal as a verb: "finds class `cat`".
    pub words: String,
    pub context: AttackContext,
    pub trial: Trial,
    /// The class of each item of the context's gallery; empty of a reference, and without classes.
    classes: Vec<String>,
}

/// The items that the file may find.
enum Target {
    /// Any class but these.
    NotClasses(Vec<usize>),
    /// Any image but these.
    NotImages(Vec<usize>),
    Class(usize),
    Image(usize),
}

impl Target {
    /// The label of an item, or of the photograph: the attack succeeds if an item with another label than the
    /// photograph's is nearest.
    fn label(&self, all: &Gallery, item: Option<usize>) -> usize {
        match (self, item) {
            (Target::NotClasses(kept), None) => kept[0],
            (Target::NotClasses(kept), Some(i)) if kept.contains(&all.labels[i]) => kept[0],
            (Target::NotClasses(_), Some(i)) => all.labels[i],
            (Target::NotImages(same), Some(i)) => usize::from(!same.contains(&i)),
            (_, None) => 0,
            (Target::Class(class), Some(i)) => usize::from(all.labels[i] == *class),
            (Target::Image(image), Some(i)) => usize::from(i == *image),
        }
    }
}

impl Goal {
    /// The image that is nearest in `all` without `itself` is to be one of those that `find` names. Errors
    /// (exit code 2): `find` names an image that can't be read, the photograph itself, or what is found
    /// already. `classes` are the names of the classes, if there are any.
    pub fn search(
        find: Option<&str>,
        (all, itself): (&Gallery, Option<usize>),
        classes: Option<&[String]>,
        photograph: &Point,
        seed: u64,
    ) -> Result<Goal> {
        let mut z = photograph.raw.to_vec();
        all.metric.place(&mut z);
        let first = all.nearest(&all.distances(&z), 1, |i| Some(i) != itself);
        let first =
            *first.first().ok_or_else(|| Error::empty("the gallery has no image but the photograph"))?;
        let (words, target) = target(find, (all, itself), classes, first)?;
        let gallery =
            all.searched_by(photograph.id.clone(), photograph.raw, itself, |i| target.label(all, i))?;
        let query = gallery.len();
        if !(0..query).any(|i| gallery.labels[i] != gallery.labels[query]) {
            return Err(Error::usage(match classes {
                Some(classes) => format!(
                    "all images of the gallery but the photograph itself have class {}: no other can be found",
                    in_words(&answers(all, itself, first), classes, " or ")
                ),
                None => format!(
                    "all images of the gallery but the photograph itself are near copies of `{}`: no other can be found",
                    all.ids[first]
                ),
            }));
        }
        let items = (0..all.len()).filter(|&i| Some(i) != itself);
        let classes =
            classes.map_or(Vec::new(), |names| items.map(|i| names[all.labels[i]].clone()).collect());
        // The strong search for R@1: the labels say which items end it.
        let context = AttackContext::new(gallery, &[&R1], ContextSettings::default())?;
        let chosen = select(&context, &R1, 1, Form::Corrected, seed, &[query])?.trials.pop();
        let trial = chosen.ok_or_else(|| Error::internal("no trial for the photograph"))?;
        Ok(Goal { words, context, trial, classes })
    }

    /// The pair with the reference, whose raw embedding is `raw`, is to be accepted, or refused. Errors (exit
    /// code 2): it is without an attack.
    pub fn comparison(
        comparison: &Comparison,
        raw: &[f32],
        metric: Metric,
        threshold: f64,
        photograph: &Point,
    ) -> Result<Goal> {
        let Comparison { flag, reference, objective, verb } = comparison;
        let shown = reference.display().to_string();
        let both = Array2::from_shape_vec((2, raw.len()), [raw, photograph.raw].concat())
            .map_err(|e| Error::internal(format!("an embedding of another length: {e}")))?;
        let ids = vec![shown.clone(), photograph.id.clone()];
        let gallery = Gallery::new(metric, both, vec![0, 1], ids)?;
        let gallery = gallery.with_roles(&[Role::Gallery, Role::Query], vec![None; 2])?;
        let trial = Trial { objective, query: gallery.len(), targets: vec![0] };
        let context = AttackContext { threshold, ..gallery.into() };
        let words = format!("{verb} {shown}");
        let goal = Goal { words, context, trial, classes: Vec::new() };
        let clean = goal.judge(photograph.raw);
        match clean.reached {
            true => Err(Error::usage(format!(
                "{flag} {shown}: the photograph {} without an attack: {}. Choose another photograph or reference, or check --threshold",
                goal.words,
                clean.nearest[0].in_words(metric)
            ))),
            false => Ok(goal),
        }
    }

    /// Result for a file with this raw embedding.
    pub fn judge(&self, raw: &[f32]) -> Found {
        let (gallery, trial) = (&self.context.gallery, &self.trial);
        let mut z = raw.to_vec();
        gallery.metric.place(&mut z);
        let form = Form::Corrected;
        let after = measure(&self.context, form, trial, &z);
        let accepted = after.accepted;
        let outcome = Outcome { before: after.clone(), after, ..Outcome::default() };
        let success = trial.objective.success(&outcome, form, form.ranked_in(gallery) as f64);
        let d = gallery.distances(&z);
        let nearest = gallery.nearest(&d, NEAREST, |_| true).into_iter().map(|i| Nearest {
            id: gallery.ids[i].clone(),
            class: self.classes.get(i).cloned(),
            distance: d[i],
            wanted: gallery.labels[i] != gallery.labels[trial.query],
        });
        Found {
            nearest: nearest.collect(),
            accepted,
            reached: success.is_some_and(|(_, after)| after >= 100.0),
        }
    }
}

impl Nearest {
    /// Its distance, and the cosine if there is one.
    pub fn in_words(&self, metric: Metric) -> String {
        let cosine = metric.cosine(self.distance);
        let cosine = cosine.map_or(String::new(), |cosine| format!(", cosine {cosine:.4}"));
        format!("distance {:.4}{cosine}", self.distance)
    }
}

/// The classes of the clean answer `first` and, if it is another, of the photograph itself, where the gallery
/// or the queries have it. A search that finds either is not brought to fail by the attack.
fn answers(all: &Gallery, itself: Option<usize>, first: usize) -> Vec<usize> {
    let found = all.labels[first];
    let own = itself.map(|i| all.labels[i]).filter(|own| *own != found);
    std::iter::once(found).chain(own).collect()
}

/// The names of these classes.
fn in_words(labels: &[usize], classes: &[String], separator: &str) -> String {
    let names: Vec<String> = labels.iter().map(|&label| format!("`{}`", classes[label])).collect();
    names.join(separator)
}

/// Refuses a name that no class and no image of the data set has (exit code 2), before anything is embedded.
pub(super) fn refuse_unknown(find: &str, dataset: &Dataset) -> Result<()> {
    let classes: &[String] = if dataset.classless { &[] } else { &dataset.classes };
    if classes.iter().any(|class| class == find) || dataset.items.iter().any(|item| item.id == find) {
        return Ok(());
    }
    let example = dataset.items.first().map_or("", |item| item.id.as_str());
    Err(Error::usage(match classes {
        [] => format!("--find {find}: no image of the gallery has this name. They are named as {example}"),
        _ => format!(
            "--find {find}: no class and no image of the gallery has this name{}. Classes are {}; an image is named as {example}",
            did_you_mean(find, classes),
            shortened(classes, SHOWN_CLASSES)
        ),
    }))
}

/// What `find` names, in words and as items of the gallery; `None` is any class but those of [`answers`].
/// `first` is found without an attack.
fn target(
    find: Option<&str>,
    (all, itself): (&Gallery, Option<usize>),
    classes: Option<&[String]>,
    first: usize,
) -> Result<(String, Target)> {
    let others = || (0..all.len()).filter(|&i| Some(i) != itself);
    let class_of_first = classes.map(|classes| &classes[all.labels[first]]);
    let Some(name) = find else {
        return Ok(match classes {
            Some(classes) => {
                let kept = answers(all, itself, first);
                let words = format!("finds another class than {}", in_words(&kept, classes, " and "));
                (words, Target::NotClasses(kept))
            }
            None => (
                format!("finds another image than `{}`", all.ids[first]),
                Target::NotImages(near_copies(all, first)),
            ),
        });
    };
    let refused = |why: &str| Err(Error::usage(format!("--find {name}: {why}")));
    let already = "the photograph finds it without an attack";
    if let Some(class) = classes.and_then(|classes| classes.iter().position(|class| class == name)) {
        if class_of_first.is_some_and(|class| class == name) {
            return refused(already);
        }
        if !others().any(|i| all.labels[i] == class) {
            return refused("the gallery has no image of this class besides the photograph");
        }
        return Ok((format!("finds class `{name}`"), Target::Class(class)));
    }
    // Only images that can't be read are in the data set and not here.
    let Some(image) = all.find(name) else { return refused("this image can't be read. Name another") };
    match others().any(|i| i == image) {
        false if Some(image) == itself => refused("this image is the photograph itself. Name another"),
        false => refused("this image is a query, and not in the gallery. Name another"),
        true if image == first => refused(already),
        true => Ok((format!("finds image `{name}`"), Target::Image(image))),
    }
}
