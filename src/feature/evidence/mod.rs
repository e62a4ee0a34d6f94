//! Evidence: an archive with which a stranger confirms the outcomes of a report from the untouched model,
//! without this program.
//!
//! A report has no images. The trials are run once more, as the report's command line says, and must end as
//! they did.

mod archive;

use crate::choice::Choice;
use crate::data::{Dataset, ListedPair, Photograph, file_of};
use crate::facts::is_robust;
use crate::files::hex;
use crate::pipeline::attack::{Attacks, Work};
use crate::pipeline::attacked_files::is_unchanged;
use crate::pipeline::describe;
use crate::pipeline::embed::{CLUSTERINGS, Embedded};
use crate::pipeline::open::{Opened, Purpose, Setup, Subject};
use crate::pipeline::photographs::Photographs;
use crate::pipeline::selection;
use crate::pipeline::settings::Settings;
use crate::progress::{Mode, Phase};
use crate::record::{Outcome, Properties, Report, Space, SuiteRecord};
use crate::report::{self, Destination};
use crate::request::{Demands, LongRun, Output, Request, Sample, StrongSample};
use crate::space::verification::Pair;
use crate::threat::{AttackContext, Evidence, Objective, Trial};
use crate::{Error, Result};
use archive::{Contents, refuse_too_many};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;

/// What confirms the outcomes: it goes into every archive.
const VERIFY: &str = include_str!("../verify.py");
/// Bytes of attacked images that are in memory at a time.
const ROOM: usize = 64 << 20;

/// Writes the evidence for `report`, which was read from `path`, to `to`; what it says. `made_by` turns its
/// command line into a request; the model may use `memory` bytes. Errors: the report is a part or was merged
/// of parts, or made from embeddings (exit code 2 or 13); model, images or settings are others than the
/// report's (2); a trial ends otherwise than in the report (12).
pub fn bundle(
    report: &Report,
    path: &Path,
    made_by: &dyn Fn(&str) -> Result<Request>,
    to: &Path,
    memory: Option<u64>,
) -> Result<String> {
    confirmable(report)?;
    let mut request = request_of(report, path, made_by)?;
    // Never what the command line states: a stranger's limit is none.
    request.compute.memory = memory;
    let destination = Destination::open("--bundle", to)?;
    let mut embedded = embed_again(report, &request)?;
    let trials = trials_of(report, &request, &embedded)?;
    let Embedded { subject, setup, context, .. } = &mut embedded;
    let Subject { dataset, prep, model, .. } = subject;

    let mut contents = Contents::new();
    contents.add("verify.py", VERIFY.as_bytes())?;
    contents.add("report.json", &report::json(report)?)?;
    let pooling = model.info.pooling;
    let input = model.input().to_owned();
    let (items, pictures) = contents.images(&request, dataset, prep, model.shape())?;
    let plan = &setup.plan;
    let of_trial = 1 + usize::from(plan.space == Space::File) + usize::from(plan.mask.is_some());
    // A JPEG file, and the image that it holds.
    let saved = report.outcomes.iter().filter(|outcome| plan.jpeg.is_some() && !is_unchanged(outcome));
    // The manifest is still missing.
    refuse_too_many(contents.hashes.len() + 1 + trials.len() * of_trial + 2 * saved.count())?;
    let photographs = Photographs::of(plan, dataset, prep, &trials, request.progress)?;
    let photographs = photographs.as_ref();
    let work = Work { dataset, prep, context, trials: &trials, plan, photographs, speed: None };
    let mut attacks = Attacks { work, model, surrogate: None };
    let made = Made::again(&mut contents, &mut attacks, report, request.progress)?;
    // The queries that hubs' places name, in this order.
    let held_out = context.heads.as_ref().map_or(Vec::new(), |heads| heads.queries.clone());
    let manifest = json!({
        "format": 1,
        "input": input,
        "pooling": pooling.map(Choice::name),
        "held_out": held_out,
        "pairs": pairs(report, context),
        "listed": listed(dataset),
        "items": items,
        "images": pictures,
        "attacked": made.attacked,
        "written": made.written,
        "decoded": made.decoded,
        "photographs": made.photographs,
        "masks": made.masks,
        "files": contents.hashes
    });
    let bytes = contents.finish(&manifest)?;
    destination.write(&bytes)?;
    let to = to.display();
    Ok(format!(
        "{to}: evidence for {} outcomes, {:.1} MB, sha256 {}\nAnybody can verify it with: unzip -p {to} verify.py > verify.py && python \
         verify.py {to} {}\n",
        trials.len(),
        bytes.len() as f64 / 1e6,
        hex(&Sha256::digest(&bytes)),
        report.model_name()
    ))
}

/// The pairs behind the threshold, by the places of their images, and whether they are genuine.
fn pairs(report: &Report, context: &AttackContext) -> Vec<Value> {
    let pair = |pair: &Pair| json!([pair.probe, pair.reference, pair.same]);
    match &report.verification {
        Some(_) => context.pairs.all.iter().map(pair).collect(),
        None => Vec::new(),
    }
}

/// Refuses reports that the script in an archive can't confirm: those of parts (exit code 2 or 13), and
/// attacks whose images or outcomes follow from more than the model and the images (2).
fn confirmable(report: &Report) -> Result<()> {
    report.whole()?;
    let confirmed = |code: &str| Objective::find(code).is_ok_and(|of| of.measure.confirmed);
    if let Some(outcome) = report.outcomes.iter().find(|outcome| !confirmed(&outcome.attack)) {
        return Err(Error::usage(format!(
            "--bundle: the script in an archive can't confirm {}; make a report of other attacks",
            outcome.attack
        )));
    }
    if report.suite.surrogate.is_some() {
        return Err(Error::usage(
            "--bundle: these attacks were made on another model (--surrogate); make a report without it, and the evidence from that",
        ));
    }
    if report.targets.is_some() {
        return Err(Error::usage(
            "--bundle: these attacks aim at embeddings of something else than images (--targets), which the script in an archive can't make \
             again; make a report without it, and the evidence from that",
        ));
    }
    Ok(())
}

/// The request that the report was made with, for its trials and for nothing else. `made_by` reads its
/// command line.
fn request_of(report: &Report, path: &Path, made_by: &dyn Fn(&str) -> Result<Request>) -> Result<Request> {
    let unfit = |why: &str| {
        Error::usage(format!("--bundle: {why}. Make the report with one audit, and the evidence from that"))
    };
    let command =
        report.command.as_deref().ok_or_else(|| unfit("the report doesn't say its command line"))?;
    let mut request = made_by(command).map_err(|e| unfit(&e.message))?;
    if request.images.gallery.is_some() {
        return Err(unfit(
            "the report's gallery has only embeddings, which can't be verified without their images",
        ));
    }
    // The report may be a stranger's: its command line chooses no code to load and no file to write. It does
    // choose what is read: the model and its card, the images, the suite and the mask.
    if let Some(library) = request.compute.library.take() {
        // In quotes, with control characters escaped.
        request.progress.warn(&format!(
            "--bundle: the report's command line names the library {library:?}, which is not loaded. If you trust it, set ORT_DYLIB_PATH"
        ));
    }
    request.output = Output::default();
    request.run = LongRun { no_cache: request.run.no_cache, ..LongRun::default() };
    (request.images.targets, request.attack.surrogate) = (None, None);
    request.gate = Demands::default();
    request.queries.trials = Some(path.into());
    // The report has the queries, however they were chosen.
    request.queries.sample = Sample::Any;
    // Trials of robust R@1 are in the report, or there were none.
    let sampled = report.outcomes.iter().any(is_robust);
    request.queries.strong = (!sampled).then_some(StrongSample::Off);
    request.allow_untrusted = true;
    Ok(request)
}

/// Opens and embeds the report's model and images. Errors (exit code 2): model, images or settings are others
/// than the report's.
fn embed_again(report: &Report, request: &Request) -> Result<Embedded> {
    let Settings { suite, card, .. } = Settings::settle(request)?;
    let mut opened = Opened::new(request, suite, card, Purpose::Attacks)?;
    // The same searches as the audit's.
    opened.setup.plan.in_files = report.suite.file_column == Space::File;
    same_settings(report, request, &opened.setup)?;
    same("model", &opened.subject.model.info.identity.sha256, &report.model.sha256)?;
    // Outcomes hold the clusters of their queries.
    let embedded = opened.embed(request, Some(CLUSTERINGS))?;
    same("data", &embedded.data.sha256, &report.data.sha256)?;
    Ok(embedded)
}

/// The report's trials, in the order of its outcomes.
fn trials_of(report: &Report, request: &Request, embedded: &Embedded) -> Result<Vec<Trial>> {
    let Embedded { setup, context, queries, .. } = embedded;
    let trials = selection::choose(request, setup, context, queries)?.selection.trials;
    if trials.len() != report.outcomes.len() {
        return Err(Error::internal(format!(
            "--bundle: expected the {} trials of the report, found {}",
            report.outcomes.len(),
            trials.len()
        )));
    }
    in_order(report, &trials, |t| context.gallery.ids[t.query].as_str())
}

/// The trials in the order of the report's outcomes.
fn in_order<'t>(
    report: &Report,
    trials: &'t [Trial],
    id: impl Fn(&'t Trial) -> &'t str,
) -> Result<Vec<Trial>> {
    let by_name: HashMap<(&str, &str), &Trial> =
        trials.iter().map(|t| ((t.objective.code, id(t)), t)).collect();
    let find = |o: &Outcome| {
        by_name.get(&(o.attack.as_str(), o.query.as_str())).map(|t| (*t).clone()).ok_or_else(|| {
            Error::internal(format!(
                "--bundle: the trial {} of {} is not among the report's trials",
                o.attack, o.query
            ))
        })
    };
    report.outcomes.iter().map(find).collect()
}

/// The listed pairs, as the hash of the data takes them: the fold is left out where the list has none.
fn listed(dataset: &Dataset) -> Vec<Value> {
    let pair = |ListedPair { probe, reference, same, group, fold }: &ListedPair| -> Value {
        let parts =
            [json!(probe), json!(reference), json!(same), json!(group.as_deref().unwrap_or_default())];
        parts.into_iter().chain(fold.map(|fold| json!(fold))).collect()
    };
    dataset.pairs.iter().map(pair).collect()
}

/// Refuses a model or images with another hash than the report's.
fn same(what: &str, found: &str, expected: &str) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "--bundle: the {what} changed since the report was made: expected sha256 {expected}, found {found}. Make the report \
             again, and the evidence from that"
        ))),
    }
}

/// Refuses settings that the report states otherwise than its command line, from which the trials are run
/// again: the script in an archive knows only those of the report.
fn same_settings(report: &Report, request: &Request, setup: &Setup) -> Result<()> {
    let made = describe::suite(setup, None, request.attack.precision, None);
    let properties = |suite: &SuiteRecord, seed: u64| -> Properties {
        suite.settings().into_iter().chain([("seed", seed.to_string())]).collect()
    };
    let stated = properties(&report.suite, report.seed);
    let differs = stated.differences(&properties(&made, request.seed));
    match differs.is_empty() {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "--bundle: the report and its command line differ in {}. Make the report again, and the evidence from that",
            differs.join("; in ")
        ))),
    }
}

/// Refuses a trial that ended otherwise than in the report.
fn agrees(found: &Outcome, reported: &Outcome) -> Result<()> {
    match found == reported {
        true => Ok(()),
        false => Err(Error::untrusted(format!(
            "--bundle: run again, {} of {} ends differently from the report{}. Results repeat to the last bit on one machine with one \
             version of audit and ONNX Runtime: make the report here, and the evidence from that",
            reported.attack,
            reported.query,
            difference(found, reported)
        ))),
    }
}

/// Most characters of a value that an error shows.
const SHOWN: usize = 40;

/// The first field in which two outcomes differ, with its values if they are short.
fn difference(found: &Outcome, reported: &Outcome) -> String {
    let [found, reported] = [found, reported].map(|outcome| json!(outcome));
    let mut names = [&found, &reported].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
    let Some(name) = names.find(|name| found.get(name.as_str()) != reported.get(name.as_str())) else {
        return String::new();
    };
    let value = |of: &Value| of.get(name.as_str()).map_or("nothing".to_string(), Value::to_string);
    let [found, reported] = [value(&found), value(&reported)];
    match found.len().max(reported.len()) <= SHOWN {
        true => format!(": {name} {found} instead of {reported}"),
        false => format!(": in {name}"),
    }
}

/// Names of the files of attacked images, in the order of the outcomes.
#[derive(Default)]
struct Made {
    attacked: Vec<String>,
    /// JPEG files, and the images that they hold. Null where the photograph itself reaches the goal.
    written: Vec<Value>,
    decoded: Vec<String>,
    /// The photographs, if attacks change these.
    photographs: Vec<String>,
    /// Where the images may change, if not everywhere.
    masks: Vec<String>,
}

impl Made {
    /// Runs the trials once more, and adds their images to `contents`.
    fn again(
        contents: &mut Contents,
        attacks: &mut Attacks,
        report: &Report,
        progress: Mode,
    ) -> Result<Made> {
        let work = attacks.work;
        let photographs = work.photographs.filter(|_| work.plan.space == Space::File);
        let largest = photographs.and_then(|all| all.sizes().max()).unwrap_or(attacks.model.pixels());
        let each = (ROOM / (4 * largest)).max(1);
        let mut made = Made::default();
        let mut phase = Phase::new("attacks", work.trials.len() as u64, progress);
        for places in (0..work.trials.len()).collect::<Vec<_>>().chunks(each) {
            for (&place, (outcome, evidence)) in places.iter().zip(attacks.images(places)?) {
                agrees(&outcome, &report.outcomes[place])?;
                made.add(contents, &work, place, &outcome, &evidence)?;
            }
            phase.set(made.attacked.len() as u64, None);
        }
        phase.finish();
        Ok(made)
    }

    fn add(
        &mut self,
        contents: &mut Contents,
        work: &Work,
        place: usize,
        outcome: &Outcome,
        Evidence { image, shape, .. }: &Evidence,
    ) -> Result<()> {
        let (plan, trial, shape) = (work.plan, &work.trials[place], *shape);
        let name = contents.image(&format!("attacked/{place:06}"), image, shape)?;
        // Programs decode JPEG files with a grey level of difference here and there: what the outcome was
        // measured from goes with the file. Where the photograph itself does it, nothing was saved.
        match plan.jpeg {
            Some(_) if is_unchanged(outcome) => {
                self.written.push(Value::Null);
                self.decoded.push(name.clone());
            }
            Some(quality) => {
                let file = file_of(image, shape, Some(quality))?;
                let path = format!("written/{place:06}.jpg");
                contents.add(&path, &file)?;
                let read = Photograph::of(&file, Path::new(&path), shape[0])?;
                self.written.push(path.into());
                self.decoded.push(contents.image(&format!("decoded/{place:06}"), &read.data, shape)?);
            }
            None => (),
        }
        self.attacked.push(name);
        if let Some(photographs) = work.photographs.filter(|_| plan.space == Space::File) {
            let photograph = photographs.image(work.dataset, work.prep, trial.query)?;
            let name = format!("photographs/{place:06}");
            self.photographs.push(contents.image(&name, &photograph.data, shape)?);
        }
        let one_channel = [1, shape[1], shape[2]];
        if let Some(free) = plan.free(one_channel, trial.objective, &outcome.query)? {
            let white: Vec<f32> = free.into_iter().map(f32::from).collect();
            self.masks.push(contents.image(&format!("masks/{place:06}"), &white, one_channel)?);
        }
        Ok(())
    }
}
