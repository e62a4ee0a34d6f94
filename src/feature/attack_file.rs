//! `audit attack`: a file beside a photograph that the search in a gallery gets wrong.

use crate::data::{Photograph, Resampling, file_of, grey_level};
use crate::files::hex;
use crate::pipeline::{self, Embedded};
use crate::progress::Phase;
use crate::record::{Finding, Severity, Space};
use crate::report::Destination;
use crate::request::Request;
use crate::space::Gallery;
use crate::threat::objective::r1::R1;
use crate::threat::{AttackContext, CleanImage, ContextSettings, Event, Others, Plan, Strong, select};
use crate::{Error, Exit, Result, interrupt};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A grey level of the [0, 1] range.
const LEVEL: f32 = 1.0 / 255.0;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct FileAttack {
    /// The photograph.
    pub photograph: PathBuf,
    /// The file to write: .png, or .jpg with `jpeg`.
    pub file: PathBuf,
    /// The quality of a JPEG file; `None` for PNG.
    pub jpeg: Option<u8>,
    /// The class or the image that the file is to find; `None` for any other class than the photograph finds.
    pub find: Option<String>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct AttackedFile {
    /// What was asked for.
    pub asked: FileAttack,
    /// The goal in words: "another class than `cat`".
    pub goal: String,
    /// Channels, height and width of the photograph.
    pub shape: [usize; 3],
    /// The gallery in words.
    pub gallery: String,
    /// ε in grey levels.
    pub eps: u32,
    /// What the photograph finds.
    pub clean: Nearest,
    /// What the file finds, read as it was written; `None` if there is none.
    pub attacked: Option<Nearest>,
    /// The largest change in grey levels, and the share of the values that changed.
    pub change: (u32, f64),
}

/// The nearest image of the gallery.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    /// Its name.
    pub id: String,
    /// Its class.
    pub class: String,
    /// Its distance.
    pub distance: f64,
}

/// Searches for the file, and writes it if one is found. Errors (exit code 2): the photograph can't be read, or is no image of 8 bits; ε is
/// not a whole number of grey levels; `find` names no class and no image, or what the photograph finds already; those of the model and the
/// gallery.
pub fn run(request: &Request, asked: &FileAttack) -> Result<AttackedFile> {
    let FileAttack { photograph: path, file, jpeg, find } = asked;
    let (format, endings) = match jpeg {
        None => ("a PNG", &["png"][..]),
        Some(_) => ("a JPEG with --jpeg", &["jpg", "jpeg"][..]),
    };
    let ending = file.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    if !endings.iter().any(|known| ending.as_deref() == Some(known)) {
        return Err(Error::usage(format!(
            "-o {}: the attacked file is {format}. Name a file that ends in .{}",
            file.display(),
            endings[0]
        )));
    }
    let destination = Destination::open("-o", file)?;
    elsewhere(request, asked)?;
    // Whatever is wrong with the photograph is said before the work; whether it must be grey, the model says.
    Photograph::read(path, 3)?;
    let name = path.display().to_string();
    let mut embedded = pipeline::embed(request)?;
    let findings = embedded.findings.iter().cloned().filter_map(Finding::warning);
    let serious = findings.filter(|finding| finding.severity >= Severity::Warning);
    serious.for_each(|warning| request.progress.warn(&format!("[{}] {}", warning.id, warning.text)));
    let eps = whole_levels(&embedded)?;

    // The photograph as one more query of the gallery.
    let photograph = Photograph::read(path, embedded.subject.prep.channels)?;
    let resampling = Arc::new(
        Resampling::new(&embedded.subject.prep, photograph.shape)
            .map_err(|e| e.context(format!("image {name}")))?,
    );
    let as_file = Arc::new((*resampling).clone().through_jpeg(*jpeg));
    let itself = itself(&embedded, path);
    // Unlike a path, this is the name of no item, and the same wherever the file lies.
    let id = hex(&photograph.digest);
    let raw = embed_photograph(&mut embedded, &resampling, &photograph)?;
    let classes = &embedded.subject.dataset.classes;
    let all = &embedded.context.gallery;
    let plain = all.searched_by(id.clone(), &raw, itself, |i| i.map_or(0, |i| all.labels[i]))?;
    let clean = nearest(&plain, plain.point(plain.len()), classes, all);
    let searched = format!(
        "{}: {} images of {} classes{}",
        embedded.subject.dataset.source,
        plain.len(),
        classes.len(),
        if request.images.data.is_none() { "; --data FOLDER names yours" } else { "" }
    );
    let goal = Goal::of(find.as_deref(), (all, itself), classes, &clean)?;
    let gallery = all.searched_by(id.clone(), &raw, itself, |i| goal.label(all, i))?;
    let query = gallery.len();
    if !(0..query).any(|i| gallery.labels[i] != gallery.labels[query]) {
        return Err(Error::usage(format!(
            "all images of the gallery but the photograph itself have class `{}`: no other can be found",
            clean.class
        )));
    }

    // The strong search for R@1: the labels say which items end it.
    let plan = Plan {
        ladder: None,
        mask: None,
        space: Space::File,
        jpeg: *jpeg,
        eps: eps as f32 * LEVEL,
        ..embedded.setup.plan.within(eps as f32 * LEVEL)
    };
    let context = AttackContext::new(gallery, &[&R1], ContextSettings::default())?;
    let image = search(request, &mut embedded, &context, &plan, (&photograph, &as_file))?;
    let classes = &embedded.subject.dataset.classes;
    let Some(image) = image else {
        let (goal, asked) = (goal.words, asked.clone());
        return Ok(AttackedFile {
            asked,
            goal,
            shape: photograph.shape,
            gallery: searched,
            eps,
            clean,
            attacked: None,
            change: (0, 0.0),
        });
    };

    // What counts is the file, read as it is written.
    let bytes = file_of(&image, photograph.shape, *jpeg)?;
    let written = Photograph::of(&bytes, file, photograph.shape[0])?;
    let classes = classes.clone();
    let raw = embed_photograph(&mut embedded, &resampling, &written)?;
    let all = &embedded.context.gallery;
    let again = all.searched_by(id, &raw, itself, |i| goal.label(all, i))?;
    let attacked = nearest(&again, again.point(again.len()), &classes, all);
    let found = again.find(&attacked.id).map(|i| again.labels[i]);
    let changes: Vec<u32> = written
        .data
        .iter()
        .zip(&photograph.data)
        .map(|(a, b)| u32::from(grey_level(*a).abs_diff(grey_level(*b))))
        .collect();
    let largest = changes.iter().copied().max().unwrap_or(0);
    // What JPEG adds is no part of the attack.
    let within = jpeg.is_some() || largest <= eps;
    if found == Some(again.labels[again.len()]) || !within {
        return Err(Error::internal(format!(
            "{}: the file differs from what the search found; please report this",
            file.display()
        )));
    }
    let share = changes.iter().filter(|change| **change > 0).count() as f64 / changes.len() as f64;
    destination.write(&bytes)?;
    Ok(AttackedFile {
        asked: asked.clone(),
        goal: goal.words,
        shape: photograph.shape,
        gallery: searched,
        eps,
        clean,
        attacked: Some(attacked),
        change: (largest, share),
    })
}

/// Refuses to write over the photograph, or into the folder of the gallery, where the file would be one of its images. Errors: exit code 2.
fn elsewhere(request: &Request, asked: &FileAttack) -> Result<()> {
    let FileAttack { photograph, file, .. } = asked;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(place) = folder.canonicalize() else { return Ok(()) };
    let shown = file.display();
    if file.exists() && file.canonicalize().ok() == photograph.canonicalize().ok() {
        return Err(Error::usage(format!("-o {shown}: this is the photograph. Name another file")));
    }
    let gallery = request.images.data.as_ref().filter(|data| data.is_dir());
    if let Some(data) = gallery.filter(|data| data.canonicalize().is_ok_and(|data| place.starts_with(data))) {
        return Err(Error::usage(format!(
            "-o {shown}: it would lie in the gallery, {}, and be one of its images. Name a file elsewhere",
            data.display()
        )));
    }
    Ok(())
}

/// ε in grey levels.
fn whole_levels(embedded: &Embedded) -> Result<u32> {
    let eps = f64::from(embedded.setup.plan.eps) * 255.0;
    let whole = eps.round();
    if whole < 1.0 || (eps - whole).abs() > 1e-3 {
        return Err(Error::usage(format!(
            "--eps: {eps:.2}/255 is not a whole number of grey levels, which a file of 8 bits holds. Give one such as {}/255",
            whole.max(1.0)
        )));
    }
    Ok(whole as u32)
}

/// The item of the gallery that is the file of the photograph.
fn itself(embedded: &Embedded, path: &Path) -> Option<usize> {
    let path = path.canonicalize().ok()?;
    let items = &embedded.subject.dataset.items;
    let same = |file: &Path| file.canonicalize().is_ok_and(|file| file == path);
    let item = items.iter().find(|item| item.file().is_some_and(same))?;
    embedded.context.gallery.find(&item.id)
}

/// The raw embedding [D] of a photograph.
fn embed_photograph(
    embedded: &mut Embedded,
    resampling: &Resampling,
    photograph: &Photograph,
) -> Result<Vec<f32>> {
    let model = &mut embedded.subject.model;
    let mut input = vec![0.0; model.pixels()];
    resampling.apply(&photograph.data, &mut input)?;
    Ok(model.embed(&input)?.iter().copied().collect())
}

/// The nearest item of `gallery` to the point `z`. Its class is that in `all`, the gallery that it comes from.
fn nearest(gallery: &Gallery, z: &[f32], classes: &[String], all: &Gallery) -> Nearest {
    let d = gallery.distances(z);
    let first = gallery.nearest(&d, 1, |_| true)[0];
    let id = gallery.ids[first].clone();
    let class = all.find(&id).map_or(String::new(), |i| classes[all.labels[i]].clone());
    Nearest { id, class, distance: d[first] }
}

/// Which items of the gallery the file is to find.
struct Goal {
    words: String,
    target: Target,
}

/// The items that the file may find.
enum Target {
    /// Any class but this one.
    NotClass(usize),
    Class(usize),
    Image(usize),
}

impl Goal {
    /// Errors (exit code 2): `find` names no class and no image of the gallery, the photograph itself, or what is found already.
    fn of(
        find: Option<&str>,
        (all, itself): (&Gallery, Option<usize>),
        classes: &[String],
        clean: &Nearest,
    ) -> Result<Goal> {
        let others = || (0..all.len()).filter(|&i| Some(i) != itself);
        let already =
            |what: &str| Error::usage(format!("--find {what}: the photograph finds it without an attack"));
        let Some(name) = find else {
            let class = all.find(&clean.id).map_or(0, |i| all.labels[i]);
            let words = format!("another class than `{}`", clean.class);
            return Ok(Goal { words, target: Target::NotClass(class) });
        };
        if let Some(class) = classes.iter().position(|class| class == name) {
            if clean.class == name {
                return Err(already(name));
            }
            if !others().any(|i| all.labels[i] == class) {
                return Err(Error::usage(format!(
                    "--find {name}: the gallery has no image of this class besides the photograph"
                )));
            }
            return Ok(Goal { words: format!("class `{name}`"), target: Target::Class(class) });
        }
        let Some(image) = all.find(name) else {
            let some: Vec<&str> = classes.iter().take(5).map(String::as_str).collect();
            return Err(Error::usage(format!(
                "--find {name}: no class and no image of the gallery has this name. Classes are {}{}; an image is named as {}",
                some.join(", "),
                if classes.len() > some.len() { " and others" } else { "" },
                all.ids[0]
            )));
        };
        if !others().any(|i| i == image) {
            let why = if Some(image) == itself {
                "is the photograph itself"
            } else {
                "is a query, and not in the gallery"
            };
            return Err(Error::usage(format!("--find {name}: this image {why}. Name another")));
        }
        match clean.id == name {
            true => Err(already(name)),
            false => Ok(Goal { words: format!("image `{name}`"), target: Target::Image(image) }),
        }
    }

    /// The label of an item, or of the photograph: the search ends when an item with another label than the photograph's is nearest.
    fn label(&self, all: &Gallery, item: Option<usize>) -> usize {
        match (&self.target, item) {
            (Target::NotClass(class), None) => *class,
            (Target::NotClass(_), Some(i)) => all.labels[i],
            (_, None) => 0,
            (Target::Class(class), Some(i)) => usize::from(all.labels[i] == *class),
            (Target::Image(image), Some(i)) => usize::from(i == *image),
        }
    }
}

/// The attacked photograph [C, H, W] in whole grey levels; `None` if no search found one.
fn search(
    request: &Request,
    embedded: &mut Embedded,
    context: &AttackContext,
    plan: &Plan,
    (photograph, resampling): (&Photograph, &Arc<Resampling>),
) -> Result<Option<Vec<f32>>> {
    let query = context.gallery.len();
    let chosen = select(context, &R1, 1, plan.form, request.seed, &[query])?;
    let mut phase = Phase::new("attack", 0, request.progress);
    phase.begin(plan.most_work(&R1) as u64, 0);
    let images = |item: usize| match item == query {
        true => Ok(CleanImage { data: photograph.data.clone(), resampling: Some(resampling.clone()) }),
        false => Err(Error::internal("the attack on a file reads no other image")),
    };
    let strong = Strong {
        context,
        images: &images,
        trials: &chosen.trials,
        plan,
        effort: 1,
        others: Others { images: &images, shape: photograph.shape },
        largest: photograph.data.len(),
    };
    let (mut found, mut end) = (None, Ok(()));
    {
        let mut workers = embedded.subject.model.passes_for_search();
        strong.run(&mut workers, &mut |event| {
            match event {
                Event::Step { done, passes, .. } => {
                    phase.advance(done as u64, [passes.made, passes.left], None);
                    end = interrupt::check("");
                }
                Event::Further(_) => (),
                Event::Done(_, outcome, evidence) => {
                    let reached = outcome.members.iter().flatten().any(|member| member.reached);
                    found = reached.then(|| evidence.image.clone());
                }
            }
            if end.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    end?;
    phase.finish();
    Ok(found)
}

impl AttackedFile {
    /// The exit code, if it is not 0.
    pub fn exit(&self) -> Option<Exit> {
        self.attacked.is_none().then_some(Exit::NotFound)
    }

    /// For people.
    pub fn text(&self) -> String {
        let AttackedFile { asked, goal, shape: [_, height, width], gallery, eps, clean, attacked, change } =
            self;
        let photograph = asked.photograph.display();
        let mut out = format!("{photograph} · {width} × {height}\ngallery   {gallery}\n");
        let mut line = |what: &str, found: &Nearest| {
            let _ = writeln!(
                out,
                "{what:<9} {} (class {}), distance {:.4}",
                found.id, found.class, found.distance
            );
        };
        line("clean", clean);
        match attacked {
            Some(found) => {
                line("attacked", found);
                let file = asked.file.display();
                let (largest, share) = (change.0, 100.0 * change.1);
                let change = match asked.jpeg {
                    None => format!("{share:.0} % of the values changed, by {largest}/255 at most"),
                    Some(quality) => format!(
                        "changed by {eps}/255 at most, then saved as JPEG {quality}, which makes it {largest}/255 at most"
                    ),
                };
                let _ = writeln!(out, "{file} finds {goal}: {change}");
            }
            None => {
                let file = asked.file.display();
                let earlier = if asked.file.exists() {
                    format!("; the earlier {file} is as it was")
                } else {
                    String::new()
                };
                let _ = writeln!(
                    out,
                    "no file within {eps}/255 of {photograph} was found that finds {goal}: nothing is written{earlier}"
                );
                if *eps < 255 {
                    let _ = writeln!(out, "help: try --eps {}/255", (2 * eps).min(255));
                }
            }
        }
        out
    }
}
