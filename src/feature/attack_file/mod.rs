//! `audit attack`: changes a photograph so that a search in a gallery, or a comparison with a reference, gets
//! it wrong.

mod goal;
mod page;
mod text;

pub use goal::{Found, Nearest, Wish};

use crate::data::{GREY_LEVEL, Photograph, Pixels, Resampling, file_of, grey_level};
use crate::files::hex;
use crate::model::Model;
use crate::pipeline::open::{Opened, Purpose, Subject};
use crate::pipeline::settings::{self, Settings};
use crate::progress::Phase;
use crate::record::{Acceptance, Finding, Metric, Severity, Space, Warning};
use crate::report::terminal::wrap;
use crate::report::{Destination, by_extension};
use crate::request::Request;
use crate::space::Gallery;
use crate::threat::{CleanImage, Event, Others, Plan, Room, Strong};
use crate::{Error, Exit, Result, interrupt};
use goal::{Comparison, Goal, Point};
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The extension of a page.
const PAGE: &str = "html";

/// The photograph to attack, the goal and the files to write.
#[derive(Clone, Debug)]
pub struct FileAttack {
    /// The photograph.
    pub photograph: PathBuf,
    /// The files to write: one image, .png, or .jpg with `jpeg`, and one page, .html; either may be left out.
    pub files: Vec<PathBuf>,
    /// The quality of a JPEG file; `None` for PNG.
    pub jpeg: Option<u8>,
    /// The attacker's goal.
    pub wish: Wish,
}

/// The result of `audit attack`.
#[derive(Clone, Debug)]
pub struct AttackedFile {
    /// The photograph, the goal and the files.
    pub attack: FileAttack,
    /// What the file does if the attack succeeds: "finds another class than `cat`".
    pub goal: String,
    /// Channels, height and width of the photograph.
    pub shape: [usize; 3],
    /// What decides, each with its name: the gallery, or the reference and the threshold.
    pub system: Vec<(&'static str, String)>,
    /// The distance between embeddings.
    pub metric: Metric,
    /// ε in grey levels.
    pub eps: u32,
    /// Result for the photograph.
    pub clean: Found,
    /// The photograph's own class in the gallery, if the clean search finds another.
    pub wrong: Option<String>,
    /// The file; `None` if there is none.
    pub attacked: Option<Attacked>,
}

/// An attacked file.
#[derive(Clone, Debug)]
pub struct Attacked {
    /// Result for the file, read again after it was written.
    pub found: Found,
    /// The largest change of a value, in grey levels.
    pub largest: u32,
    /// The share of the values that changed, in [0, 1].
    pub share: f64,
    /// SHA-256 of the file.
    pub sha256: String,
}

/// Searches for the file, and writes it and its page if one is found. Errors (exit code 2): the photograph
/// can't be read, or is no image of 8 bits; ε is not a whole number of grey levels; the file can't be asked
/// for this, or does it without an attack; those of the model and the images.
pub fn run(request: &Request, attack: &FileAttack) -> Result<AttackedFile> {
    let files = Files::open(attack)?;
    elsewhere(request, attack)?;
    // Errors of the photograph come before the work; only the model decides whether it must be grey.
    let path = &attack.photograph;
    if by_extension(path, ["onnx"].into_iter()).is_ok() {
        return Err(Error::usage(format!(
            "the photograph {} is a model: the model comes first, audit attack {} {} …",
            path.display(),
            path.display(),
            request.model.display()
        )));
    }
    if path.is_dir() {
        return Err(Error::usage(format!(
            "{} is a folder, and audit attack changes one photograph. This attacks the photographs of a folder, and writes the \
             files: audit {} --data {} --space file --attacked-out FOLDER",
            path.display(),
            request.model.display(),
            path.display()
        )));
    }
    Photograph::read(path, 3)?;
    let comparison = attack.wish.comparison();
    let request = &with_suite(request, comparison.as_ref())?;
    let Settings { suite, card, .. } = Settings::settle(request)?;
    let acceptance = suite.threshold;
    let mut opened = Opened::new(request, suite, card, Purpose::Attacks)?;
    if let Wish::Find(name) = &attack.wish {
        goal::refuse_unknown(name, &opened.subject.dataset)?;
    }
    let stated = acceptance.map(|stated| stated.distance(opened.subject.metric)).transpose()?.flatten();
    let eps = whole_levels(opened.setup.plan.eps)?;

    // The photograph as one more point.
    let name = path.display();
    let subject = &mut opened.subject;
    let photograph = Photograph::read(path, subject.prep.channels)?;
    let resampling =
        Resampling::new(&subject.prep, photograph.shape).map_err(|e| e.context(format!("image {name}")))?;
    let raw = embed(&mut subject.model, &resampling, &photograph)?;
    let point = Point { id: hex(&photograph.digest), raw: &raw };
    let reference = comparison
        .as_ref()
        .map(|comparison| Pixels::read(comparison.reference, &subject.prep))
        .transpose()?;

    // A threshold that is stated needs no gallery.
    let (mut subject, plan, findings, images) = match stated {
        Some(_) => (opened.subject, opened.setup.plan, opened.findings, None),
        None => {
            let embedded = opened.embed(request, None)?;
            (
                embedded.subject,
                embedded.setup.plan,
                embedded.findings,
                Some((embedded.context, embedded.data)),
            )
        }
    };
    let warnings: Vec<Warning> = findings.into_iter().filter_map(Finding::warning).collect();
    let serious = || warnings.iter().filter(|warning| warning.severity >= Severity::Warning);
    let said = |warning: &Warning| wrap(&format!("[{}] {}", warning.id, warning.text));
    serious().for_each(|warning| request.progress.warn(&said(warning)));
    let threshold = stated.or(images.as_ref().map(|(context, _)| context.threshold)).unwrap_or(f64::NAN);
    let (goal, system, own) = match (&comparison, &reference) {
        (Some(comparison), Some(pixels)) => {
            let raw: Vec<f32> = subject.model.embed(&pixels.data)?.iter().copied().collect();
            let goal = Goal::comparison(comparison, &raw, subject.metric, threshold, &point)?;
            (goal, decided_by(comparison, &subject, threshold, acceptance), None)
        }
        _ => {
            let all = images.as_ref().map(|(context, _)| &context.gallery);
            let all = all.ok_or_else(|| Error::internal("a search without a gallery"))?;
            let find = match &attack.wish {
                Wish::Find(name) => Some(name.as_str()),
                _ => None,
            };
            let itself = itself(&subject, all, path);
            let names = (!subject.dataset.classless).then_some(&subject.dataset.classes[..]);
            let goal = Goal::search(find, (all, itself), names, &point, request.seed)?;
            let searched = searched(&subject, goal.context.gallery.len());
            let own = names.zip(itself).map(|(names, i)| names[all.labels[i]].clone());
            // Whoever forgets --data would take the result for one among his own images.
            let forgotten = request.images.data.is_none().then(|| {
                ("note", "generated characters, not your images: name yours by --data FOLDER".to_string())
            });
            (goal, std::iter::once(("gallery", searched)).chain(forgotten).collect(), own)
        }
    };

    let plan = Plan {
        ladder: None,
        mask: None,
        space: Space::File,
        jpeg: attack.jpeg,
        eps: eps as f32 * GREY_LEVEL,
        ..plan.within(eps as f32 * GREY_LEVEL)
    };
    let as_file = Arc::new(resampling.clone().through_jpeg(attack.jpeg));
    let image = search(request, &mut subject.model, &goal, &plan, (&photograph, &as_file))?;
    let clean = goal.found(&raw);
    let class = clean.nearest.first().and_then(|first| first.class.as_ref());
    let wrong = own.filter(|own| class.is_some_and(|class| class != own));
    let result = |attacked: Option<Attacked>| AttackedFile {
        attack: attack.clone(),
        goal: goal.words.clone(),
        shape: photograph.shape,
        system,
        metric: subject.metric,
        eps,
        clean,
        wrong,
        attacked,
    };
    let Some(image) = image else { return Ok(result(None)) };

    // What counts is the file, read as it is written.
    let bytes = file_of(&image, photograph.shape, attack.jpeg)?;
    let written = Photograph::of(&bytes, path, photograph.shape[0])?;
    let found = goal.found(&embed(&mut subject.model, &resampling, &written)?);
    let pairs = written.data.iter().zip(&photograph.data);
    let changes: Vec<u32> = pairs.map(|(a, b)| u32::from(grey_level(*a).abs_diff(grey_level(*b)))).collect();
    let largest = changes.iter().copied().max().unwrap_or(0);
    // What JPEG adds is no part of the attack.
    let within = attack.jpeg.is_some() || largest <= eps;
    let confirmed = found.reached && within;
    let share = changes.iter().filter(|change| **change > 0).count() as f64 / changes.len() as f64;
    let sha256 = hex(&Sha256::digest(&bytes));
    let result = result(Some(Attacked { found, largest, share, sha256 }));
    if !confirmed {
        return Err(Error::internal(format!(
            "{}: the file differs from what the search found; please report this",
            result.subject()
        )));
    }
    let page = match &files.page {
        None => None,
        Some(_) => {
            let shown = page::Shown {
                request,
                subject: &subject,
                data: images.as_ref().map(|(_, data)| data),
                warnings: serious().collect(),
                photograph: &photograph,
                attacked: &written,
                reference: reference.as_ref(),
            };
            Some(page::render(&result, &shown)?)
        }
    };
    if let Some(file) = files.image {
        file.write(&bytes)?;
    }
    if let Some((file, page)) = files.page.zip(page) {
        file.write(&page)?;
    }
    Ok(result)
}

/// The files that will be written.
struct Files {
    image: Option<Destination>,
    page: Option<Destination>,
}

impl FileAttack {
    /// The image to write.
    pub fn image(&self) -> Option<&Path> {
        self.files.iter().map(PathBuf::as_path).find(|file| !is_page(file))
    }

    /// The page to write.
    pub fn page(&self) -> Option<&Path> {
        self.files.iter().map(PathBuf::as_path).find(|file| is_page(file))
    }
}

fn is_page(file: &Path) -> bool {
    by_extension(file, [PAGE].into_iter()).is_ok()
}

impl Files {
    /// Tries them. Errors (exit code 2): another extension than that of the image and of a page, two of a
    /// kind, a folder that is missing.
    fn open(attack: &FileAttack) -> Result<Files> {
        let (format, extensions) = match attack.jpeg {
            None => ("a PNG", &["png"][..]),
            Some(_) => ("a JPEG with --jpeg", &["jpg", "jpeg"][..]),
        };
        for (at, file) in attack.files.iter().enumerate() {
            if !is_page(file) && by_extension(file, extensions.iter().copied()).is_err() {
                let as_jpeg =
                    attack.jpeg.is_none() && by_extension(file, ["jpg", "jpeg"].into_iter()).is_ok();
                let jpeg = if as_jpeg { ", add --jpeg 90" } else { "" };
                return Err(Error::usage(format!(
                    "-o {}: the attacked file is {format}. Name a file that ends in .{}{jpeg}, or in .{PAGE} for a page",
                    file.display(),
                    extensions[0]
                )));
            }
            if let Some(other) = attack.files[..at].iter().find(|other| is_page(other) == is_page(file)) {
                return Err(Error::usage(format!(
                    "-o {} and -o {}: one image and one page are written. Leave one of the two out",
                    other.display(),
                    file.display()
                )));
            }
        }
        let open = |file: Option<&Path>| file.map(|file| Destination::open("-o", file)).transpose();
        Ok(Files { image: open(attack.image())?, page: open(attack.page())? })
    }
}

/// Refuses to write over a file that is read, such as the photograph, or into the folder of the gallery,
/// where the file would be one of its images. Errors: exit code 2.
fn elsewhere(request: &Request, attack: &FileAttack) -> Result<()> {
    let comparison = attack.wish.comparison();
    let mut inputs = vec![("the photograph", attack.photograph.as_path())];
    inputs.extend(comparison.as_ref().map(|comparison| ("the reference", comparison.reference)));
    inputs.extend(settings::inputs(request));
    let outputs: Vec<_> = attack.files.iter().map(|file| ("-o", file.as_path())).collect();
    settings::refuse_inputs(&inputs, &outputs)?;
    let Some(file) = attack.image() else { return Ok(()) };
    let shown = file.display();
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match request.images.around(folder) {
        Some(data) => Err(Error::usage(format!(
            "-o {shown}: it would lie in the gallery, {}, and be one of its images. Name a file elsewhere",
            data.display()
        ))),
        None => Ok(()),
    }
}

/// The request with the suite whose model, images and threshold the attack is about. Errors (exit code 2): a
/// threshold that is neither stated nor follows from images; one without a comparison.
fn with_suite(request: &Request, comparison: Option<&Comparison>) -> Result<Request> {
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

/// The reference and the threshold in words.
fn decided_by(
    comparison: &Comparison,
    subject: &Subject,
    threshold: f64,
    acceptance: Option<Acceptance>,
) -> Vec<(&'static str, String)> {
    let cosine = subject.metric.cosine(threshold);
    let cosine = cosine.map_or(String::new(), |least| format!(", cosine at least {least:.4}"));
    let source = match acceptance {
        Some(far @ Acceptance::Far(_)) => format!("{far}, from {}", subject.dataset.source),
        Some(stated) => stated.to_string(),
        None => String::new(),
    };
    let words = format!("distance at most {threshold:.4}{cosine} ({source})");
    vec![("reference", comparison.reference.display().to_string()), ("threshold", words)]
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

/// ε in grey levels.
fn whole_levels(eps: f32) -> Result<u32> {
    let eps = f64::from(eps) * 255.0;
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
fn itself(subject: &Subject, gallery: &Gallery, path: &Path) -> Option<usize> {
    let path = path.canonicalize().ok()?;
    let same = |file: &Path| file.canonicalize().is_ok_and(|file| file == path);
    let item = subject.dataset.items.iter().find(|item| item.file().is_some_and(same))?;
    gallery.find(&item.id)
}

/// The raw embedding [D] of a photograph.
fn embed(model: &mut Model, resampling: &Resampling, photograph: &Photograph) -> Result<Vec<f32>> {
    let mut input = vec![0.0; model.pixels()];
    resampling.apply(&photograph.data, &mut input)?;
    Ok(model.embed(&input)?.iter().copied().collect())
}

/// The attacked photograph [C, H, W] in whole grey levels; `None` if no search found one.
fn search(
    request: &Request,
    model: &mut Model,
    goal: &Goal,
    plan: &Plan,
    (photograph, resampling): (&Photograph, &Arc<Resampling>),
) -> Result<Option<Vec<f32>>> {
    let Goal { context, trial, .. } = goal;
    let mut phase = Phase::new("attack", 0, request.progress);
    phase.begin(plan.work(trial.objective) as u64, 0);
    phase.of_most();
    let room = Room::of(model);
    // Each is expected until it was not enough.
    let enough = [plan.first_passes(trial.objective, room), plan.usual_passes(trial.objective, 1, room)];
    let images = |item: usize| match item == trial.query {
        true => Ok(CleanImage { data: photograph.data.clone(), resampling: Some(resampling.clone()) }),
        false => Err(Error::internal("the attack on a file reads no other image")),
    };
    let strong = Strong {
        context,
        images: &images,
        trials: std::slice::from_ref(trial),
        plan,
        effort: 1,
        others: Others { images: &images, shape: photograph.shape },
        largest: photograph.data.len(),
        files: None,
    };
    let (mut found, mut end) = (None, Ok(()));
    {
        let mut workers = model.passes_for_search();
        strong.run(&mut workers, &mut |event| {
            match event {
                Event::Step { passes, .. } => {
                    let expected = enough.into_iter().find(|all| *all >= passes.made);
                    phase.expect(expected.unwrap_or(passes.made + passes.left), None);
                    phase.advance([passes.made, passes.left], None);
                    end = interrupt::check("");
                }
                Event::Further(_) | Event::Broken(_) => (),
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
}
