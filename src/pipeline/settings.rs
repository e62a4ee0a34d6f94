//! The request, the suite and the model card combined, and the output files opened.

use super::attacked_files;
use crate::cache::embeddings;
use crate::data::{BUILTIN_SOURCE, Dataset};
use crate::facts::Facts;
use crate::facts::protocols::parse_size;
use crate::feature::{corruption, verification};
use crate::judge::gate::{self, Rules};
use crate::judge::quantity::{Needs, Quantity, ROBUST};
use crate::model::card::{CARDS, Card};
use crate::model::exported;
use crate::model::runtime::Provider;
use crate::record::{Precision, Protocol, Report, Space};
use crate::report::{self, Destination, Target};
use crate::request::{Compute, Ep, Gradient, Request, Sample, StrongSample};
use crate::shards::journal::{Journal, beside};
use crate::suite::{self, Alpha, Suite};
use crate::threat::objective::top1::TOP1;
use crate::threat::{Ball, Mask};
use crate::{Error, Result, files, yaml};
use std::path::Path;

/// The output files.
pub struct Files {
    /// `-o`.
    pub targets: Vec<Target>,
    /// `--trials-out`.
    pub trials: Option<Destination>,
    /// `--save-baseline`.
    pub baseline: Option<Destination>,
}

/// Settings that are known before any work.
pub struct Settings {
    pub files: Files,
    pub journal: Option<Journal>,
    /// The report of `--baseline`.
    pub baseline: Option<Report>,
    /// The suite, with what flags override.
    pub suite: Suite,
    pub rules: Rules,
    /// Description of the model by flags and card.
    pub card: Card,
}

impl Settings {
    /// Combines them. Errors (exit code 2): any fault of the request, suite, card or output files.
    pub fn settle(request: &Request) -> Result<Settings> {
        let journal = request.run.journal.as_deref().map(|path| ("--journal", path));
        refuse_one_file_for_two(outputs(request).into_iter().chain(journal))?;
        refuse_over_inputs(request)?;
        let targets = Target::open_all(&request.output.reports)?;
        let trials = report::open_trials(request.output.trials.as_deref())?;
        let save_baseline = request.output.baseline.as_deref().map(open_baseline).transpose()?;
        let baseline = request.gate.baseline.as_deref().map(load_baseline).transpose()?;
        let suite = settle_suite(request)?;
        let rules = settle_rules(request, &suite)?;
        let card =
            settle_card(request.reading.stated.clone(), request.reading.card.as_deref(), &request.model)?;
        refuse_without_cuda(&request.compute)?;
        refuse_idle_sample(request, &suite)?;
        refuse_partial_gate(request)?;
        refuse_beside_surrogate(request, &suite, &rules)?;
        refuse_beside_targets(request, &suite)?;
        if let Some(baseline) = &baseline {
            gate::refuse_baseline(&rules, baseline)?;
            refuse_without_data(request, baseline)?;
        }
        if request.attack.precision == Precision::Fp16 && request.reading.gradient == Gradient::Estimate {
            return Err(Error::usage(
                "--attack-precision fp16 is about gradients that are formed out of the graph, but --gradient estimate takes \
                 differences of embeddings, which float16 would round away. Leave one of them out",
            ));
        }
        attacked_files::settle(request, &suite)?;
        embeddings::settle(request)?;
        let journal = settle_journal(request)?;
        Ok(Settings {
            files: Files { targets, trials, baseline: save_baseline },
            journal,
            baseline,
            suite,
            rules,
            card,
        })
    }
}

/// Refuses two outputs with one file (exit code 2): only the last would remain, or none if one is the
/// journal, which is removed in the end.
pub fn refuse_one_file_for_two<'p>(outputs: impl IntoIterator<Item = Named<'p>>) -> Result<()> {
    let mut seen = std::collections::HashMap::new();
    for (flag, path) in outputs {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let place = folder
            .canonicalize()
            .unwrap_or_else(|_| folder.into())
            .join(path.file_name().unwrap_or_default());
        if let Some(other) = seen.insert(place, flag) {
            let path = path.display();
            return Err(Error::usage(format!("{other} and {flag} both name {path}: give each its own file")));
        }
    }
    Ok(())
}

/// A file with its name in messages: an output has its flag, an input is "the file of --data".
pub type Named<'a> = (&'static str, &'a Path);

/// The flag of the only file that may replace the baseline: it is not written if the gate fails.
const SAVE_BASELINE: &str = "--save-baseline";

/// The files that a request writes, without the journal.
pub fn outputs(request: &Request) -> Vec<Named<'_>> {
    let reports = request.output.reports.iter().map(|path| ("-o", path.as_path()));
    let others = [("--trials-out", &request.output.trials), (SAVE_BASELINE, &request.output.baseline)];
    reports.chain(others.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)))).collect()
}

/// The files that a request reads, except --baseline ([`refuse_over_inputs`]), and --trials: an audit may
/// replace an earlier report.
pub fn inputs(request: &Request) -> Vec<Named<'_>> {
    let Request { model, reading, images, attack, run, .. } = request;
    let all = [
        ("the model", Some(model.as_path())),
        ("the file of --card", reading.card.as_deref()),
        ("the file of --data", images.data.as_deref()),
        ("the file of --gallery", images.gallery.as_deref()),
        ("the file of --targets", images.targets.as_deref()),
        ("the file of --suite", Some(Path::new(&attack.suite))),
        ("the file of --mask", attack.mask.as_deref()),
        ("the model of --surrogate", attack.surrogate.as_deref()),
        ("the file of --gallery-cache", run.gallery_cache.as_deref()),
    ];
    all.into_iter().filter_map(|(what, path)| Some((what, path?))).collect()
}

/// Refuses to replace a file that the request reads (exit code 2).
pub fn refuse_over_inputs(request: &Request) -> Result<()> {
    let mut outputs = outputs(request);
    refuse_inputs(&inputs(request), &outputs)?;
    outputs.retain(|(flag, _)| *flag != SAVE_BASELINE);
    let baseline = request.gate.baseline.as_deref().map(|path| ("the file of --baseline", path));
    refuse_inputs(baseline.as_slice(), &outputs)
}

/// Refuses outputs that would replace an input (exit code 2).
pub fn refuse_inputs(inputs: &[Named], outputs: &[Named]) -> Result<()> {
    for (flag, path) in outputs {
        // A new file replaces none.
        let Ok(place) = path.canonicalize() else { continue };
        let is_place = |path: &Path| path.canonicalize().is_ok_and(|other| other == place);
        if let Some((what, _)) = inputs.iter().find(|(_, input)| input.is_file() && is_place(input)) {
            let path = path.display();
            return Err(Error::usage(format!("{flag} {path}: this is {what}. Name another file")));
        }
    }
    Ok(())
}

/// Reads the file of `--baseline`. Errors (exit code 2): it is missing or no report.
fn load_baseline(path: &Path) -> Result<Report> {
    Report::load(path).map_err(|e| match path.exists() {
        true => e,
        false => {
            let first =
                format!("{SAVE_BASELINE} {} in place of --baseline makes the first one", path.display());
            Error { message: format!("{}. {first}", e.message), ..e }
        }
    })
}

/// Refuses a baseline on images of the user if the audit has no `--data` (exit code 2).
fn refuse_without_data(request: &Request, baseline: &Report) -> Result<()> {
    let source = &baseline.data.source;
    if request.images.data.is_some() || source.contains(BUILTIN_SOURCE) {
        return Ok(());
    }
    let data = Path::new(source).exists().then(|| vec!["--data".to_string(), source.clone()]);
    Err(Error::usage(format!(
        "--data is missing: the baseline is of the images {source}, and without --data this audit takes generated ones"
    ))
    .lacking(data))
}

/// Claims the file of `--save-baseline`. Errors (exit code 2): the extension is not .json; those of
/// [`Destination::open`].
fn open_baseline(path: &Path) -> Result<Destination> {
    match path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) {
        true => Destination::open(SAVE_BASELINE, path),
        false => Err(Error::usage(format!(
            "{SAVE_BASELINE} {}: a baseline is a report in JSON. Name a file that ends in .json",
            path.display()
        ))),
    }
}

/// The journal: at the place that flags state, or beside a report.
fn settle_journal(request: &Request) -> Result<Option<Journal>> {
    let begun = |path: &Path| (request.run.resume && path.is_file()).then(|| path.to_path_buf());
    let path = match &request.run.journal {
        Some(path) => Some(path.clone()),
        None => beside(&request.output.reports, begun)?,
    };
    match path {
        Some(path) => Journal::open(&path, request.run.resume).map(Some),
        None if request.run.resume => Err(Error::usage(
            "--resume continues from the journal beside the first report: give the same -o as before, or --journal FILE",
        )),
        None => Ok(None),
    }
}

/// Refuses a choice among queries if all of them are attacked.
fn refuse_idle_sample(request: &Request, suite: &Suite) -> Result<()> {
    let replayed = request.queries.trials.is_some() || request.gate.baseline.is_some();
    match request.queries.sample {
        Sample::Correct if replayed => Err(Error::usage(
            "--sample correct chooses queries, and --trials and --baseline replay those of an earlier audit. Leave one out",
        )),
        Sample::Correct if suite.max_queries.is_none() => Err(Error::usage(
            "--sample correct chooses which queries are attacked, and without a limit all are. Add --max-queries N",
        )),
        _ => Ok(()),
    }
}

/// Refuses flags of CUDA unless CUDA is requested.
pub fn refuse_without_cuda(compute: &Compute) -> Result<()> {
    let cuda = [
        ("--fast-math", compute.fast_math, "which computes in full float32 and has nothing faster"),
        ("--allow-cpu-nodes", compute.allow_cpu_nodes, "where all nodes are"),
    ];
    let runs = match compute.provider {
        Ep::On(Provider::Cuda(_)) => return Ok(()),
        Ep::On(Provider::Cpu) => "runs",
        Ep::Auto => "may run",
    };
    match cuda.iter().find(|(_, given, _)| *given) {
        Some((flag, _, why)) => Err(Error::usage(format!(
            "{flag} is about CUDA, and this audit {runs} on the CPU, {why}. Leave it out, or add --ep cuda"
        ))),
        None => Ok(()),
    }
}

/// Refuses settings that transfer attacks don't support: they follow the surrogate's gradient, in float32, by
/// one search.
fn refuse_beside_surrogate(request: &Request, suite: &Suite, rules: &Rules) -> Result<()> {
    let refused = [
        (
            suite.searches_strongly(),
            "the suite runs the strong search, which attacks the audited model: choose another suite, such as --suite ars",
        ),
        (
            request.queries.strong.is_some_and(|sample| sample != StrongSample::Off),
            "--strong-sample attacks the audited model: leave one of the two out",
        ),
        (
            rules.metrics().any(|m| m.whole() == ROBUST),
            "the gate has a rule for robust_r1, which transfer attacks don't measure",
        ),
        (
            request.attack.precision != Precision::Fp32,
            "--attack-precision fp16 doesn't support transfer attacks: leave it out",
        ),
    ];
    match refused.into_iter().find(|(found, _)| request.attack.surrogate.is_some() && *found) {
        Some((_, why)) => Err(Error::usage(format!("--surrogate: {why}"))),
        None => Ok(()),
    }
}

/// Refuses settings that foreign targets don't support: they belong to one embedding space and to no class,
/// and some attack must aim at them.
fn refuse_beside_targets(request: &Request, suite: &Suite) -> Result<()> {
    let aims = suite.attacks.iter().any(|entry| entry.objective.measure.takes_foreign);
    let refused = [
        (
            !aims,
            format!(
                "the suite has none of the attacks that aim at targets ({}): take --suite targets or hub",
                Facts::codes(|o| o.measured.takes_foreign)
            ),
        ),
        (
            request.attack.surrogate.is_some(),
            "they are of the audited model's space, and --surrogate has another: leave one of the two out"
                .into(),
        ),
        (
            suite.hub_class.is_some(),
            "a hub's queries are the targets, which have no class: leave the hub class out".into(),
        ),
    ];
    match refused.into_iter().find(|(found, _)| request.images.targets.is_some() && *found) {
        Some((_, why)) => Err(Error::usage(format!("--targets: {why}"))),
        None => Ok(()),
    }
}

/// Refuses gates on a part: the gate judges the numbers of a whole run.
fn refuse_partial_gate(request: &Request) -> Result<()> {
    let demands = &request.gate;
    let whole = [
        ("--fail-under", !demands.fail_under.is_empty()),
        ("--fail-over", !demands.fail_over.is_empty()),
        ("--max-drop", !demands.max_drop.is_empty()),
        (SAVE_BASELINE, request.output.baseline.is_some()),
    ];
    match whole.iter().find(|(_, given)| *given && request.run.partition.is_some()) {
        Some((flag, _)) => Err(Error::usage(format!(
            "{flag} is about a whole run, and --partition runs a part. Leave it out here, and use it in `audit gate` on the report of `audit merge`"
        ))),
        None => Ok(()),
    }
}

/// The suite, with what flags override.
fn settle_suite(request: &Request) -> Result<Suite> {
    let mut suite = Suite::load(&request.attack.suite)?;
    bound_otherwise(&mut suite, request)?;
    let share = |flag: &str, text: &Option<String>| {
        text.as_ref().map(|t| parse_size(t, suite.ball).map_err(|e| e.context(flag))).transpose()
    };
    let (eps, alpha) = (share("--eps", &request.attack.eps)?, share("--alpha", &request.attack.alpha)?);
    (suite.eps, suite.alpha) = (eps.or(suite.eps), alpha.map(Alpha::Size).or(suite.alpha));
    if request.attack.alpha.is_some() && !suite.search.takes_alpha {
        return Err(Error::usage(format!(
            "--alpha is a fixed step size, and suite {} finds its own. Leave it out, or take a suite of fixed steps",
            suite.name
        )));
    }
    for (flag, count, most) in [
        ("--steps", request.attack.steps, suite::MOST_STEPS),
        ("--max-queries", request.queries.most, usize::MAX),
    ] {
        let checked = suite::between(count.unwrap_or(1), 1, most);
        checked.map_err(|why| Error::usage(format!("{flag} {why}")))?;
    }
    let own = [("--steps", request.attack.steps.is_some()), ("--alpha", request.attack.alpha.is_some())];
    if let Some((flag, _)) = own.iter().find(|(_, given)| *given && suite.searches_strongly_alone()) {
        return Err(Error::usage(format!(
            "{flag}: suite {} runs the strong search, whose members have their own steps. Leave {flag} out, or take a suite of \
             one search, such as --suite ars",
            suite.name
        )));
    }
    if request.queries.strong.is_some() && suite.has_robust_r1() {
        return Err(Error::usage(format!(
            "--strong-sample: suite {} runs the strong search on all queries that it attacks. Leave the flag out, and state \
             their number by --max-queries",
            suite.name
        )));
    }
    suite.steps = request.attack.steps.or(suite.steps);
    suite.max_queries = request.queries.most.or(suite.max_queries);
    refuse_in_file_space(request, &suite)?;
    suite.hub_class = request.attack.hub_class.clone().or(suite.hub_class.take());
    suite::check_hub_class(&suite.hub_class, &suite.attacks)?;
    let threshold = request.attack.threshold.or(suite.threshold);
    suite.threshold = verification::threshold(threshold, suite.objectives())?;
    suite.form = request.attack.form.unwrap_or(suite.form);
    if let Some(name) = &request.attack.protocol {
        let known = [Protocol::Auto, Protocol::Rob28, Protocol::Rob224];
        suite.protocol = known
            .into_iter()
            .find(|p| p.name() == name)
            .ok_or_else(|| Error::usage(format!("--protocol {name}: expected auto, rob28 or rob224")))?;
    }
    Ok(suite)
}

/// Refuses settings that attacks on files don't support (exit code 2).
fn refuse_in_file_space(request: &Request, suite: &Suite) -> Result<()> {
    if suite.space == Space::Input {
        return match suite.jpeg {
            None => Ok(()),
            Some(_) => Err(Error::usage(
                "--jpeg is about changed files, and this audit changes the model's input. Add --space file",
            )),
        };
    }
    let shares = suite.objectives().find(|objective| objective.shared.is_some());
    let corrupts = corruption::beside_files(&suite.name, &suite.corruptions);
    let refused = [
        (
            !suite.ball.is_box,
            format!("ε counts grey levels there, and {} is a length. Take --norm linf", suite.ball.name),
        ),
        (
            suite.eps.is_some_and(|eps| eps * 255.0 < 0.999),
            "a file changes by whole grey levels, and ε is below one. Give --eps 1/255 or more".into(),
        ),
        (
            shares.is_some(),
            format!(
                "{} is one perturbation for all images, and photographs have different sizes. Take --space input",
                shares.map_or("", |objective| objective.code)
            ),
        ),
        (corrupts.is_some(), corrupts.unwrap_or_default()),
        (
            request.attack.surrogate.is_some(),
            "attacks on files are made on the audited model. Leave --surrogate out".into(),
        ),
    ];
    match refused.into_iter().find(|(found, _)| *found) {
        Some((_, why)) => Err(Error::usage(format!("--space file: {why}"))),
        None => Ok(()),
    }
}

/// Refuses a suite whose attacks change files, for a command that needs them at the model's input. `why` says
/// so (exit code 2).
pub fn refuse_file_space(suite: &Suite, why: &str) -> Result<()> {
    match suite.space {
        Space::Input => Ok(()),
        Space::File => Err(Error::usage(format!(
            "suite {} changes files (`space: file`), and {why}. Choose another suite",
            suite.name
        ))),
    }
}

/// Sets norm and mask from the flags. The suite's sizes are for its own norm and mask, and no longer apply.
fn bound_otherwise(suite: &mut Suite, request: &Request) -> Result<()> {
    let ball = request.attack.norm.as_deref().map(Ball::find).transpose().map_err(|e| e.context("--norm"))?;
    let patch = request
        .attack
        .patch
        .as_deref()
        .map(suite::parse_patch)
        .transpose()
        .map_err(|e| e.context("--patch"))?;
    let file = request.attack.mask.as_deref().map(Mask::read).transpose().map_err(|e| e.context("--mask"))?;
    let (ball, mask) = (ball.unwrap_or(suite.ball), file.or(patch));
    let otherwise = ball != suite.ball || mask.is_some();
    suite.ball = ball;
    suite.mask = mask.or(suite.mask.take());
    suite.space = request.attack.space.unwrap_or(suite.space);
    suite.jpeg = request.attack.jpeg;
    if otherwise {
        suite.eps = None;
        suite.alpha = suite.alpha.filter(|alpha| matches!(alpha, Alpha::Share(_)));
    }
    if suite.eps.is_none() && request.attack.eps.is_none() && !ball.is_box {
        return Err(Error::usage(format!(
            "suite {} has no ε in the norm {}: state --eps too, such as --eps 2.0",
            suite.name, ball.name
        )));
    }
    Ok(())
}

/// Rules of the gate. A metric that the audit won't measure is refused before the work.
fn settle_rules(request: &Request, suite: &Suite) -> Result<Rules> {
    let demands = &request.gate;
    let rules = Rules::settle(&suite.gate, &demands.fail_under, &demands.fail_over, &demands.max_drop)?;
    if let Some(metric) = rules.metrics().find(|m| !suite.gives(m)) {
        return Err(Error::usage(format!(
            "the gate has a rule for `{}`, which suite {} doesn't measure. Choose another suite, or remove the rule",
            metric.name, suite.name
        )));
    }
    let off = request.queries.strong == Some(StrongSample::Off) && !suite.has_robust_r1();
    if off && rules.metrics().any(|metric| metric.whole() == ROBUST) {
        return Err(Error::usage(
            "the gate has a rule for `robust_r1`, but with --strong-sample off the strong search attacks no query. Leave one of the two out",
        ));
    }
    if !demands.max_drop.is_empty() && demands.baseline.is_none() {
        return Err(Error::usage("--max-drop compares with a baseline: add --baseline FILE"));
    }
    Ok(rules)
}

/// The suite for images without classes: the model's result for the clean image replaces the class. Errors
/// (exit code 2): an attack, or another setting, needs classes.
pub fn without_classes(request: &Request, suite: Suite, dataset: &Dataset) -> Result<Suite> {
    let source = &dataset.source;
    let refused = |why: &str| Err(Error::usage(format!("{source}: the images have no classes, and {why}")));
    if let Some(entry) = suite.attacks.iter().find(|entry| !entry.objective.strong_only) {
        return refused(&format!(
            "{} of suite {} needs them. --suite robust does without; else give each class a folder, or a list with the columns path and label",
            entry.objective.code, suite.name
        ));
    }
    if request.queries.sample == Sample::Correct {
        return refused("--sample correct is about queries that find their class: leave it out");
    }
    if request.attack.surrogate.is_some() {
        return refused("attacks by --surrogate need them: leave it out");
    }
    if let Some(why) = corruption::without_classes(&suite.corruptions) {
        return refused(why);
    }
    let mut suite = suite;
    suite.attacks.truncate(1);
    suite.attacks.iter_mut().for_each(|entry| entry.objective = &TOP1);
    Ok(suite)
}

/// Refuses attacks that are only for images without classes (exit code 2).
pub fn with_classes(suite: Suite) -> Result<Suite> {
    match suite.attacks.iter().any(|entry| entry.objective.code == TOP1.code) {
        true => Err(Error::usage(format!(
            "suite {} lists {}, which is for images without classes. Add --labels none, or list R1 instead",
            suite.name, TOP1.code
        ))),
        false => Ok(suite),
    }
}

/// Refuses demands on numbers that images with classes, or without, don't have (exit code 2).
pub fn refuse_beside_classes(rules: &Rules, has_classes: bool) -> Result<()> {
    let lacking = rules.metrics().find_map(|metric| Some((metric, metric.whole().beside(has_classes)?)));
    lacking.map_or(Ok(()), |(metric, why)| {
        let instead = if has_classes { "" } else { ". Demand robust_top1 or eps50" };
        Err(Error::usage(format!(
            "the gate has a rule for `{}`, which this audit can't measure: {why}{instead}",
            metric.name
        )))
    })
}

/// Refuses an audit that won't measure what the gate compares with the baseline (exit code 2).
pub fn refuse_unmeasured_drops(
    rules: &Rules,
    baseline: &Report,
    suite: &Suite,
    planned: &Report,
) -> Result<()> {
    let strong = |code: &str| Facts::find(code).is_ok_and(|of| of.strong_only);
    let skipped = || planned.skipped.iter().any(|s| strong(&s.attack));
    let searched = planned.trials.attacks.keys().any(|code| strong(code)) || skipped();
    let measured = |metric: &'static Quantity| {
        let of_search = metric.whole().is_robust() || matches!(metric.needs, Needs::Ladder);
        suite.gives(metric) && (searched || !of_search)
    };
    match rules.compared(baseline).into_iter().find(|&metric| !measured(metric)) {
        None => Ok(()),
        Some(metric) => Err(Error::usage(format!(
            "the gate compares `{}` with the baseline, and this audit doesn't measure it. Take the suite and \
             --strong-sample of the baseline, or switch it off in the suite's gate: {{ {}: {{ level: off }} }}",
            metric.name, metric.name
        ))),
    }
}

/// The model card: flags first, then the given file, or the one beside the model, or another program's
/// configuration beside it.
pub fn settle_card(stated: Card, file: Option<&Path>, model: &Path) -> Result<Card> {
    let beside = model.with_extension("yaml");
    stated.check("the flags")?;
    let path = match file {
        Some(path) => path,
        None if beside.is_file() => &beside,
        None => {
            let Some(card) = exported::card_beside(model)? else { return Ok(stated) };
            let file = card.taken_from.clone().unwrap_or_default();
            card.check(&file)?;
            let changed = card.clone().or(stated.clone()) != stated.clone().or(card.clone());
            let size_from = file_of_size(&stated, &card, &file);
            let taken_from = Some(if changed { format!("flags and {file}") } else { file });
            return Ok(Card { taken_from, size_from, ..stated.or(card) });
        }
    };
    let name = path.display().to_string();
    // A file has priority over a built-in card of the same name.
    let known = CARDS.iter().find(|(known, _)| file.is_some() && *known == name && !path.exists());
    let text = match known {
        Some((_, text)) => text.to_string(),
        None => files::read_text(path, files::BY_HAND).map_err(|e| {
            let known = CARDS.map(|(name, _)| name);
            Error::usage(format!("can't read the card {name}: {e} (built-in cards: {})", known.join(", ")))
        })?,
    };
    let card: Card = yaml::read(&name, &text)?;
    card.check(&name)?;
    Ok(Card { size_from: file_of_size(&stated, &card, &name), ..stated.or(card) })
}

/// The file that states the model's size, if flags don't.
fn file_of_size(flags: &Card, card: &Card, file: &str) -> Option<String> {
    (flags.size.is_none() && card.size.is_some()).then(|| file.to_string())
}
