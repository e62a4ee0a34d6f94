//! The system that decides on the file: the search in a gallery, or the comparison with a reference at a
//! threshold.

use super::goal::{Comparison, Goal, Point};
use super::{FileAttack, Wish};
use crate::data::Pixels;
use crate::pipeline::open::{Opened, Subject};
use crate::record::{Acceptance, Data, Finding, Severity, Warning};
use crate::request::Request;
use crate::space::Gallery;
use crate::threat::{AttackContext, Plan};
use crate::{Error, Result};
use std::path::Path;

/// What decides, each with its name, in words.
pub(super) type Words = Vec<(&'static str, String)>;

/// The request with the suite whose model, images and threshold the attack is about. Errors (exit code 2): a
/// threshold that is neither stated nor follows from images; one without a comparison.
pub(super) fn with_suite(request: &Request, comparison: Option<&Comparison>) -> Result<Request> {
    let (mut request, threshold) = (request.clone(), request.attack.threshold);
    let Some(Comparison { flag, .. }) = comparison else {
        request.attack.suite = "robust".into();
        return match threshold {
            Some(stated) => Err(Error::usage(format!(
                "--threshold {stated}: a search in a gallery has no threshold. Leave it out, or add --accept-as or --not-as REFERENCE"
            ))),
            None => Ok(request),
        };
    };
    request.attack.suite = "faces".into();
    let stated = threshold.is_some_and(|stated| !matches!(stated, Acceptance::Far(_)));
    match stated || request.images.data.is_some() {
        true => Ok(request),
        false => Err(Error::usage(format!(
            "{flag}: when does your system accept a pair? State its threshold, such as --threshold cosine=0.28, or give images from which \
             that of a false accept rate is computed: --data people/, with a folder for each person, or --data pairs.csv"
        ))),
    }
}

/// A model, and what it is asked for.
pub(super) struct System {
    pub subject: Subject,
    pub plan: Plan,
    pub warnings: Vec<Warning>,
    /// The images that were embedded. `None` if the threshold is stated: a comparison then needs no gallery.
    pub images: Option<(AttackContext, Data)>,
    /// The largest distance of an accepted pair; NaN of a search.
    threshold: f64,
    /// The source of the threshold.
    acceptance: Option<Acceptance>,
}

impl System {
    /// Embeds the images, unless the threshold is stated as a distance.
    pub fn new(request: &Request, opened: Opened, acceptance: Option<Acceptance>) -> Result<System> {
        let stated = acceptance.map(|stated| stated.distance(opened.subject.metric)).transpose()?.flatten();
        let (subject, plan, findings, images) = match stated {
            Some(_) => (opened.subject, opened.setup.plan, opened.findings, None),
            None => {
                let of = opened.embed(request, None)?;
                (of.subject, of.setup.plan, of.findings, Some((of.context, of.data)))
            }
        };
        let warnings = findings.into_iter().filter_map(Finding::warning).collect();
        let threshold = stated.or(images.as_ref().map(|(context, _)| context.threshold)).unwrap_or(f64::NAN);
        Ok(System { subject, plan, warnings, images, threshold, acceptance })
    }

    /// The warnings that cast doubt on the result.
    pub fn serious(&self) -> impl Iterator<Item = &Warning> {
        self.warnings.iter().filter(|warning| warning.severity >= Severity::Warning)
    }

    /// The goal, what decides, and the photograph's own class in the gallery. `compared` has the reference as
    /// the model takes it; without it the goal is about a search.
    pub fn goal(
        &mut self,
        request: &Request,
        attack: &FileAttack,
        compared: Option<(&Comparison, &Pixels)>,
        photograph: &Point,
    ) -> Result<(Goal, Words, Option<String>)> {
        let Some((comparison, reference)) = compared else { return self.search(request, attack, photograph) };
        let raw: Vec<f32> = self.subject.model.embed(&reference.data)?.iter().copied().collect();
        let goal = Goal::comparison(comparison, &raw, self.subject.metric, self.threshold, photograph)?;
        Ok((goal, self.compared(comparison), None))
    }

    /// The goal of a search in the gallery, the gallery in words, and the photograph's own class there.
    fn search(
        &self,
        request: &Request,
        attack: &FileAttack,
        photograph: &Point,
    ) -> Result<(Goal, Words, Option<String>)> {
        let all = self.images.as_ref().map(|(context, _)| &context.gallery);
        let all = all.ok_or_else(|| Error::internal("a search without a gallery"))?;
        let find = match &attack.wish {
            Wish::Find(name) => Some(name.as_str()),
            _ => None,
        };
        let dataset = &self.subject.dataset;
        let itself = itself(&self.subject, all, &attack.photograph);
        let names = (!dataset.classless).then_some(&dataset.classes[..]);
        let goal = Goal::search(find, (all, itself), names, photograph, request.seed)?;
        let searched = searched(&self.subject, goal.context.gallery.len());
        let own = names.zip(itself).map(|(names, i)| names[all.labels[i]].clone());
        // Whoever forgets --data would take the result for one among his own images.
        let forgotten = request.images.data.is_none().then(|| {
            ("note", "generated characters, not your images: name yours by --data FOLDER".to_string())
        });
        Ok((goal, std::iter::once(("gallery", searched)).chain(forgotten).collect(), own))
    }

    /// The reference and the threshold in words.
    fn compared(&self, comparison: &Comparison) -> Words {
        let System { subject, threshold, .. } = self;
        let cosine = subject.metric.cosine(*threshold);
        let cosine = cosine.map_or(String::new(), |least| format!(", cosine at least {least:.4}"));
        let source = match self.acceptance {
            Some(far @ Acceptance::Far(_)) => format!("{far}, from {}", subject.dataset.source),
            Some(stated) => stated.to_string(),
            None => String::new(),
        };
        let words = format!("distance at most {threshold:.4}{cosine} ({source})");
        vec![("reference", comparison.reference.display().to_string()), ("threshold", words)]
    }
}

/// The gallery in words.
fn searched(subject: &Subject, items: usize) -> String {
    format!(
        "{}: {items} images{}",
        subject.dataset.source,
        match subject.dataset.classless {
            true => " without classes".into(),
            false => format!(" of {} classes", subject.dataset.classes.len()),
        }
    )
}

/// The item of the gallery that is the file of the photograph.
fn itself(subject: &Subject, gallery: &Gallery, path: &Path) -> Option<usize> {
    let path = path.canonicalize().ok()?;
    let same = |file: &Path| file.canonicalize().is_ok_and(|file| file == path);
    let item = subject.dataset.items.iter().find(|item| item.file().is_some_and(same))?;
    gallery.find(&item.id)
}
