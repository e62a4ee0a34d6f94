//! `audit attack`: changes a photograph so that a search in a gallery, or a comparison with a reference, gets
//! it wrong.

mod files;
mod goal;
mod page;
mod result;
mod system;
mod text;

pub use goal::{Found, Nearest, Wish};
pub use result::{Attacked, AttackedFile};

use crate::data::{GREY_LEVEL, Photograph, Pixels, Preparation, Resampling, file_of};
use crate::files::hex;
use crate::model::Model;
use crate::pipeline::open::{Opened, Purpose};
use crate::pipeline::settings::Settings;
use crate::progress::Phase;
use crate::record::{Space, Warning};
use crate::report::by_extension;
use crate::report::terminal::wrap;
use crate::request::Request;
use crate::threat::{CleanImage, Event, Others, Plan, Room, Strong};
use crate::{Error, Result, interrupt};
use files::Files;
use goal::{Goal, Point};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use system::{System, with_suite};

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

/// Searches for the file, and writes it and its page if one is found. Errors (exit code 2): the photograph
/// can't be read, or is no image of 8 bits; ε is not a whole number of grey levels; the file can't be asked
/// for this, or does it without an attack; those of the model and the images.
pub fn run(request: &Request, attack: &FileAttack) -> Result<AttackedFile> {
    let files = Files::open(request, attack)?;
    // Errors of the photograph come before the work; only the model decides whether it must be grey.
    let path = &attack.photograph;
    refuse_others(request, path)?;
    Photograph::read(path, 3)?;
    let comparison = attack.wish.comparison();
    let request = &with_suite(request, comparison.as_ref())?;
    let Settings { suite, card, .. } = Settings::settle(request)?;
    let acceptance = suite.threshold;
    let mut opened = Opened::new(request, suite, card, Purpose::Attacks)?;
    if let Wish::Find(name) = &attack.wish {
        goal::refuse_unknown(name, &opened.subject.dataset)?;
    }
    let eps = whole_levels(opened.setup.plan.eps)?;

    // The photograph as one more point.
    let subject = &mut opened.subject;
    let (photograph, resampling) = read(path, &subject.prep)?;
    let raw = embed(&mut subject.model, &resampling, &photograph)?;
    let point = Point { id: hex(&photograph.digest), raw: &raw };
    let reference = comparison
        .as_ref()
        .map(|comparison| Pixels::read(comparison.reference, &subject.prep))
        .transpose()?;

    let mut system = System::new(request, opened, acceptance)?;
    let said = |warning: &Warning| wrap(&format!("[{}] {}", warning.id, warning.text));
    system.serious().for_each(|warning| request.progress.warn(&said(warning)));
    let compared = comparison.as_ref().zip(reference.as_ref());
    let (goal, decides, own) = system.goal(request, attack, compared, &point)?;

    let plan = plan_of(&system.plan, attack, eps);
    let as_file = Arc::new(resampling.clone().through_jpeg(attack.jpeg));
    // No step looks at signals before the first one has ended, which takes seconds on large photographs.
    interrupt::check("")?;
    let image = search(request, &mut system.subject.model, &goal, &plan, (&photograph, &as_file))?;
    let clean = goal.judge(&raw);
    let class = clean.nearest.first().and_then(|first| first.class.as_ref());
    let wrong = own.filter(|own| class.is_some_and(|class| class != own));
    let result = AttackedFile {
        attack: attack.clone(),
        goal: goal.words.clone(),
        shape: photograph.shape,
        system: decides,
        metric: system.subject.metric,
        eps,
        clean,
        wrong,
        attacked: None,
    };
    let Some(image) = image else { return Ok(result) };

    // What counts is the file, read as it is written.
    let bytes = file_of(&image, photograph.shape, attack.jpeg)?;
    let written = Photograph::of(&bytes, path, photograph.shape[0])?;
    let found = goal.judge(&embed(&mut system.subject.model, &resampling, &written)?);
    let attacked = Some(Attacked::new(&bytes, found, &written, &photograph));
    let result = AttackedFile { attacked, ..result }.confirmed()?;
    let shown = page::Shown {
        request,
        subject: &system.subject,
        data: system.images.as_ref().map(|(_, data)| data),
        warnings: system.serious().collect(),
        photograph: &photograph,
        attacked: &written,
        reference: reference.as_ref(),
    };
    let page = files.page.is_some().then(|| page::render(&result, &shown)).transpose()?;
    files.write(&bytes, page.as_deref())?;
    Ok(result)
}

/// Refuses a photograph that is a model or a folder. Errors: exit code 2.
fn refuse_others(request: &Request, path: &Path) -> Result<()> {
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
    Ok(())
}

/// The photograph, and how the model's image is made of it.
fn read(path: &Path, prep: &Preparation) -> Result<(Photograph, Resampling)> {
    let photograph = Photograph::read(path, prep.channels)?;
    let resampling = Resampling::new(prep, photograph.shape)
        .map_err(|e| e.context(format!("image {}", path.display())))?;
    Ok((photograph, resampling))
}

/// The plan within `eps` grey levels of the photograph at its own size; all pixels may change.
fn plan_of(usual: &Plan, attack: &FileAttack, eps: u32) -> Plan {
    let within = usual.within(eps as f32 * GREY_LEVEL);
    Plan { ladder: None, mask: None, space: Space::File, jpeg: attack.jpeg, ..within }
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
