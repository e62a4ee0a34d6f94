//! The conductor: what `audit --suite ars model.onnx` does, from the first flag to the report.

use crate::attack::{self, Differentiable, Event, Outcome, Plan, Selection, TrialFile};
use crate::check::{self, GradientCheck, Warning};
use crate::cli::{Gradient, Run};
use crate::data::vectors::{self, Vectors};
use crate::data::{BUILTIN_SEED, Dataset, Item, Preparation, Resize};
use crate::examples::Collector;
use crate::gate::{Rules, Verdict};
use crate::model::card::{Card, Preprocessing};
use crate::model::runtime::{self, Provider};
use crate::model::{Model, hex};
use crate::progress::Progress;
use crate::report::{self, Destination, Report, Target};
use crate::score::{self, Basis, Estimate, Scores};
use crate::space::benign::{Benign, CMC, benign};
use crate::space::{Gallery, Metric};
use crate::suite::{self, Protocol, Suite};
use crate::{Error, Result};
use ndarray::Array2;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// Restarts of the k-means behind NMI.
const CLUSTERINGS: usize = 4;
/// Items × classes × dimensions beyond which there is no clustering: an iteration would take seconds, and there are
/// hundreds.
const MOST_CLUSTERING: f64 = 5e9;

/// Runs an audit and returns its report, written to every file that was asked for.
pub fn run(flags: &Run) -> Result<Report> {
    let start = Instant::now();
    let targets = flags.reports.iter().map(|path| Target::open(path)).collect::<Result<Vec<_>>>()?;
    let keep = flags.save_baseline.as_ref().map(|p| Destination::open("--save-baseline", p)).transpose()?;
    let baseline = flags.demands.baseline.as_deref().map(Report::load).transpose()?;
    let suite = settle_suite(flags)?;
    let rules = settle_rules(flags, &suite)?;
    let path = flags.model.as_deref().ok_or_else(|| Error::usage("name a model, an .onnx file"))?;
    let card = settle_card(flags, path)?;
    let mut dataset = open_data(flags)?;
    let vectors = flags.gallery.as_deref().map(vectors::read).transpose()?;

    runtime::load(flags.ort_lib.as_deref())?;
    let mut model = match flags.gradient {
        Gradient::Exact => Model::open(path, &card, flags.options(), flags.batch),
        Gradient::Estimate => Model::open_estimated(path, &card, flags.options(), flags.batch, flags.seed),
    }?;
    let model_s = start.elapsed().as_secs_f64();
    let preprocessing = model.info.preprocessing.clone();
    let (protocol, plan) = suite.plan(preprocessing.height.max(preprocessing.width), flags.seed)?;

    let (first, count) = first_batch(&dataset, &model)?;
    let (gradient_check, mut warnings) = check::at_load(&mut model, &first, count)?;
    let check_s = start.elapsed().as_secs_f64() - model_s;

    let metric = card.metric.unwrap_or(Metric::NormalizedEuclidean);
    if flags.data.is_some() {
        warnings.extend(doubtful(&dataset, &mut model, metric)?);
    }
    if let Some((name, vectors)) =
        vectors.as_ref().zip(flags.gallery.as_ref()).map(|(v, path)| (path.display(), v))
    {
        if vectors.embeddings.ncols() != model.info.dim {
            return Err(Error::usage(format!(
                "{name} holds embeddings of {} dimensions, and the model's `{}` has {}; embed the gallery with this \
                 model, or choose another --output",
                vectors.embeddings.ncols(),
                model.info.output,
                model.info.dim
            )));
        }
        dataset.search_in(&name.to_string(), vectors)?;
    }
    let (gallery, data) = embed(flags, &mut dataset, vectors, &mut model, metric)?;
    let clustering = data.gallery as f64 * data.classes as f64 * model.info.dim as f64;
    let clusterings = (clustering <= MOST_CLUSTERING).then_some(CLUSTERINGS);
    let benign = benign(&gallery, clusterings, flags.seed)?;
    let gallery_s = start.elapsed().as_secs_f64() - model_s - check_s;

    let Selection { trials, skipped } = select(flags, &suite, protocol, &plan, &gallery)?;
    let record = attack::write_trials(name_of(protocol), plan.form, &gallery, &trials)?;
    let mut collector = targets.iter().any(Target::shows_examples).then(Collector::new);
    let (outcomes, image_steps) =
        attack_all(flags, &dataset, &mut model, &gallery, &trials, &plan, &mut collector)?;
    let examples = match collector {
        Some(c) => c.finish(&gallery, &dataset, &preparation(&preprocessing), plan.eps)?,
        None => None,
    };
    let total_s = start.elapsed().as_secs_f64();

    // Ranks run to the number of items beside the query, which is one more where it isn't among them.
    let ranked = gallery.len() + usize::from(gallery.separate());
    let basis = Basis { gallery: ranked, form: plan.form, metric };
    let scores = score::score(&outcomes, &skipped, &basis, flags.seed);
    warnings.extend(reservations(flags, &preprocessing, &data, &outcomes, &benign));
    warnings.splice(0..0, check::estimated(&model));
    let mut report = Report {
        schema_version: report::SCHEMA_VERSION,
        tool: report::Tool {
            name: "audit".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            runtime: format!("ONNX Runtime {}", runtime::version()),
            provider: match flags.ep {
                Provider::Cpu => "cpu".into(),
                Provider::Cuda(n) => format!("cuda:{n}"),
            },
        },
        model: describe(&model, &card, metric, gradient_check),
        data,
        suite: report::Suite {
            name: suite.name.clone(),
            form: plan.form.to_string(),
            protocol: name_of(protocol).into(),
            eps: plan.eps,
            alpha: plan.alpha,
            steps: plan.steps,
            schedule: format!("{:?}", plan.schedule).to_lowercase(),
            restarts: plan.restarts,
            queries: trials.iter().map(|t| t.query).collect::<std::collections::BTreeSet<_>>().len(),
            sampling: sampling(flags, &suite, &gallery),
        },
        seed: flags.seed,
        benign: percent(&benign, &dataset),
        attacks: rows(&scores, &plan),
        scores: wanted(&suite, scores),
        trials: serde_json::from_str(&record).map_err(|e| Error::internal(format!("trials: {e}")))?,
        outcomes,
        skipped,
        warnings,
        gate: None,
        examples,
        command: Some(command_line()),
        timing: report::Timing {
            model_s,
            gallery_s,
            check_s,
            attacks_s: total_s - model_s - check_s - gallery_s,
            total_s,
            image_steps,
            batch: model.batch(),
            threads: flags.threads,
        },
    };
    if baseline.is_some() || !rules.is_empty() {
        report.gate = Some(Verdict::judge(&report, baseline.as_ref(), &rules)?);
    }
    for target in targets {
        target.write(&report)?;
    }
    if let Some(file) = keep {
        // A failed gate must not lower the bar for the next audit.
        match report.gate.as_ref().and_then(Verdict::exit) {
            None => file.write(&report::json(&report.as_baseline())?)?,
            Some(_) => eprintln!("--save-baseline: not saved, as the gate failed"),
        }
    }
    Ok(report)
}

/// What the gate demands; a metric that the audit won't give is refused before the work.
fn settle_rules(flags: &Run, suite: &Suite) -> Result<Rules> {
    let rules = Rules::settle(
        &suite.gate,
        &flags.demands.fail_under,
        &flags.demands.fail_over,
        &flags.demands.max_drop,
    )?;
    if let Some(metric) = rules.metrics().find(|m| !m.given_by(suite)) {
        return Err(Error::usage(format!(
            "the gate demands `{}`, which suite {} doesn't measure; choose another suite or drop the demand",
            metric.name, suite.name
        )));
    }
    if !flags.demands.max_drop.is_empty() && flags.demands.baseline.is_none() {
        return Err(Error::usage("--max-drop compares with a baseline: add --baseline FILE"));
    }
    Ok(rules)
}

/// The command line, quoted where a shell needs it.
fn command_line() -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=+,:@%".contains(c);
    let quote = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let program = "audit".to_string();
    let words = std::env::args_os().skip(1).map(|word| quote(word.to_string_lossy().into_owned()));
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

/// The suite, with what flags override.
fn settle_suite(flags: &Run) -> Result<Suite> {
    let mut suite = Suite::load(&flags.suite)?;
    let share = |flag: &str, text: &Option<String>| {
        text.as_ref().map(|t| suite::parse_fraction(t).map_err(|e| e.context(flag))).transpose()
    };
    suite.eps = share("--eps", &flags.eps)?.or(suite.eps);
    suite.alpha = share("--alpha", &flags.alpha)?.or(suite.alpha);
    if flags.steps == Some(0) || flags.max_queries == Some(0) {
        return Err(Error::usage("--steps and --max-queries must be at least 1"));
    }
    suite.steps = flags.steps.or(suite.steps);
    suite.max_queries = flags.max_queries.or(suite.max_queries);
    suite.form = flags.form.unwrap_or(suite.form);
    suite.protocol = match flags.protocol.as_deref() {
        None => suite.protocol,
        Some("auto") => Protocol::Auto,
        Some("rob28") => Protocol::Rob28,
        Some("rob224") => Protocol::Rob224,
        Some(other) => {
            return Err(Error::usage(format!("--protocol {other}: expected auto, rob28 or rob224")));
        }
    };
    Ok(suite)
}

/// The model card: flags first, then the file given, or the one beside the model.
fn settle_card(flags: &Run, model: &Path) -> Result<Card> {
    let said = flags.card().map_err(Error::usage)?;
    let beside = model.with_extension("yaml");
    let path = match &flags.card {
        Some(path) => path,
        None if beside.is_file() => &beside,
        None => return Ok(said),
    };
    let name = path.display().to_string();
    let yaml = std::fs::read_to_string(path).map_err(|e| Error::usage(format!("can't read {name}: {e}")))?;
    Ok(said.or(suite::read(&name, &yaml)?))
}

fn open_data(flags: &Run) -> Result<Dataset> {
    let dataset = match &flags.data {
        Some(path) => Dataset::open(path, flags.layout.as_deref(), flags.split)?,
        None => Dataset::builtin(BUILTIN_SEED),
    };
    let mut sizes = vec![0; dataset.classes.len()];
    dataset.items.iter().for_each(|item| sizes[item.class] += 1);
    if flags.gallery.is_none() && sizes.iter().all(|&n| n < 2) {
        return Err(Error::empty(format!(
            "{}: no class has two images, so no query has anything to find. Retrieval needs classes of at least 2",
            dataset.source
        )));
    }
    Ok(dataset)
}

fn preparation(p: &Preprocessing) -> Preparation {
    let resize = match (p.resize, p.resize_shorter) {
        (_, Some(side)) => Some(Resize::Shorter(side)),
        (exact, None) => exact.map(|[h, w]| Resize::Exact(h, w)),
    };
    let interpolation = p.interpolation;
    Preparation { resize, interpolation, ..Preparation::new(p.channels, p.height, p.width) }
}

/// Images for the check at load: the first that can be read, spread over the data, in a full batch [B, P]; and how
/// many are real.
fn first_batch(dataset: &Dataset, model: &Model) -> Result<(Vec<f32>, usize)> {
    const MOST: usize = 8;
    let prep = preparation(&model.info.preprocessing);
    let n = dataset.items.len();
    let count = model.batch().min(MOST).min(n);
    let mut images = Vec::with_capacity(model.batch() * model.pixels());
    let mut found = 0;
    let mut failure = None;
    // A stride through the whole set, so that the check sees several classes.
    for i in (0..n).map(|k| (k % count) * (n / count) + k / count).filter(|&i| i < n) {
        match dataset.pixels(i, &prep) {
            Ok(p) => {
                images.extend(p.data);
                found += 1;
            }
            Err(e) => failure = Some(e),
        }
        if found == count {
            break;
        }
    }
    if let (0, Some(e)) = (found, failure) {
        return Err(Error::empty(format!("{}: no image can be read; the last one: {e}", dataset.source)));
    }
    images.resize(model.batch() * model.pixels(), 0.5);
    Ok((images, found))
}

/// Decodes and embeds every image. Those that can't be read are left out of the data set, or end the audit.
fn embed(
    flags: &Run,
    dataset: &mut Dataset,
    vectors: Option<Vectors>,
    model: &mut Model,
    metric: Metric,
) -> Result<(Gallery, report::Data)> {
    let prep = preparation(&model.info.preprocessing);
    let n = dataset.items.len();
    let mut progress = Progress::new("gallery", n as u64, flags.quiet);
    let mut readable = vec![false; n];
    let mut unreadable = Vec::new();
    let mut contents = Sha256::new();
    // A gallery given as embeddings comes first.
    let given = vectors.as_ref().map_or(0, |v| v.ids.len());
    let mut embeddings = vectors.map_or_else(Vec::new, |v| v.embeddings.into_raw_vec_and_offset().0);
    for (item, point) in dataset.items[..given].iter().zip(embeddings.chunks(model.info.dim)) {
        contents.update(format!("{}\t{}\t", item.id, dataset.classes[item.class]));
        point.iter().for_each(|v| contents.update(v.to_le_bytes()));
    }
    readable[..given].fill(true);
    embeddings.reserve_exact((n - given) * model.info.dim);
    let mut waiting: Vec<f32> = Vec::new();
    let batch = model.batch();
    let full = batch * model.pixels();
    let mut flush = |waiting: &mut Vec<f32>, all: bool| -> Result<()> {
        while waiting.len() >= full || (all && !waiting.is_empty()) {
            let rest = waiting.split_off(full.min(waiting.len()));
            embeddings.extend(model.embed(waiting)?.iter());
            *waiting = rest;
        }
        Ok(())
    };
    // Decoded a few batches at a time, the next while the model is at work on the last: all cores busy, the gallery
    // never in memory as pixels.
    let chunk = batch.max(64);
    let images: &Dataset = dataset;
    std::thread::scope(|scope| -> Result<()> {
        let (sender, decoded) = std::sync::mpsc::sync_channel(1);
        let prep = &prep;
        scope.spawn(move || {
            for from in (given..n).step_by(chunk) {
                let range = from..n.min(from + chunk);
                let all: Vec<Result<_>> = range.into_par_iter().map(|i| images.pixels(i, prep)).collect();
                if sender.send((from, all)).is_err() {
                    break; // the audit ended
                }
            }
        });
        for (from, all) in decoded {
            let to = from + all.len();
            for (item, (i, pixels)) in images.items[from..].iter().zip((from..).zip(all)) {
                match pixels {
                    Ok(p) => {
                        readable[i] = true;
                        contents.update(format!("{}\t{}\t", item.id, images.classes[item.class]));
                        contents.update(p.digest);
                        waiting.extend(p.data);
                    }
                    Err(e) if flags.strict_data => return Err(e),
                    Err(e) => unreadable.push(e.message),
                }
            }
            flush(&mut waiting, false)?;
            progress.set(to as u64);
        }
        Ok(())
    })?;
    flush(&mut waiting, true)?;
    progress.finish();
    dataset.keep(|i| readable[i]);
    let raw = Array2::from_shape_vec((dataset.items.len(), model.info.dim), embeddings)
        .map_err(|e| Error::internal(format!("embeddings: {e}")))?;
    let labels: Vec<usize> = dataset.items.iter().map(|i| i.class).collect();
    let ids = dataset.items.iter().map(|i| i.id.clone()).collect();
    let classes = labels.iter().collect::<std::collections::BTreeSet<_>>().len();
    let cameras = dataset.items.iter().map(Item::camera).collect();
    let images = labels.len();
    let gallery = Gallery::new(metric, raw, labels, ids)?.with_roles(&dataset.roles(), cameras)?;
    let data = report::Data {
        source: dataset.source.clone(),
        images,
        gallery: gallery.len(),
        queries: gallery.queries().len(),
        classes,
        sha256: hex(&contents.finalize()),
        unreadable,
    };
    Ok((gallery, data))
}

/// The trials: drawn, or replayed.
fn select(
    flags: &Run,
    suite: &Suite,
    protocol: Protocol,
    plan: &Plan,
    gallery: &Gallery,
) -> Result<Selection> {
    // A baseline's trials are replayed, so that differences are paired.
    let Some(path) = flags.trials.as_ref().or(flags.demands.baseline.as_ref()) else {
        let queries = attack::sample_queries(gallery, suite.max_queries, flags.seed);
        let mut all = Selection::default();
        for entry in &suite.attacks {
            let one = attack::select(gallery, entry.attack, entry.count, plan.form, flags.seed, &queries)?;
            all.trials.extend(one.trials);
            all.skipped.extend(one.skipped);
        }
        return some_trials(all);
    };
    let name = path.display().to_string();
    let json = std::fs::read_to_string(path).map_err(|e| Error::usage(format!("can't read {name}: {e}")))?;
    let TrialFile { protocol: file_protocol, form, metric, mut selection } =
        attack::read_trials(&name, &trials_of(&json), gallery)?;
    for (what, theirs, ours) in [
        ("protocol", file_protocol, name_of(protocol).to_string()),
        ("form", form.to_string(), plan.form.to_string()),
        ("metric", metric.name().to_string(), gallery.metric.name().to_string()),
    ] {
        if theirs != ours {
            return Err(Error::usage(format!(
                "{name}: these trials are of {what} {theirs}, and this audit is of {ours}. Add --{what} {theirs}"
            )));
        }
    }
    for entry in &suite.attacks {
        let code = entry.attack.code;
        if !selection.trials.iter().any(|t| t.attack.code == code)
            && !selection.skipped.iter().any(|s| s.attack == code)
        {
            return Err(Error::usage(format!(
                "{name} has no trials of {code}, which suite {} runs",
                suite.name
            )));
        }
    }
    let listed = |code: &str| suite.attacks.iter().any(|e| e.attack.code == code);
    selection.trials.retain(|t| listed(t.attack.code));
    selection.skipped.retain(|s| listed(&s.attack));
    some_trials(selection)
}

fn some_trials(selection: Selection) -> Result<Selection> {
    if selection.trials.is_empty() {
        let why = selection.skipped.first().map_or("nothing was selected", |s| s.why.as_str());
        return Err(Error::empty(format!("no trial can be run: {why}")));
    }
    Ok(selection)
}

/// A report holds its trials under a key of its own.
fn trials_of(json: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(json) {
        Ok(v) if v.get("schema_version").is_some() => v["trials"].to_string(),
        _ => json.to_string(),
    }
}

/// Runs the trials; also returns how many steps of single images were paid for.
fn attack_all(
    flags: &Run,
    dataset: &Dataset,
    model: &mut Model,
    gallery: &Gallery,
    trials: &[attack::Trial],
    plan: &Plan,
    collector: &mut Option<Collector>,
) -> Result<(Vec<Outcome>, usize)> {
    let prep = preparation(&model.info.preprocessing);
    let images = |i: usize| dataset.pixels(i, &prep).map(|p| p.data);
    let mut progress =
        Progress::new("attacks", (trials.len() * plan.steps * (plan.restarts + 1)) as u64, flags.quiet);
    let outcomes = attack::run(model, gallery, &images, trials, plan, &mut |event| {
        match event {
            Event::Steps(done, _) => progress.set(done as u64),
            Event::Done(outcome, evidence) => {
                collector.iter_mut().for_each(|c| c.see(outcome, evidence));
            }
        }
        ControlFlow::Continue(())
    })?;
    progress.finish();
    let steps = outcomes.iter().map(|o| o.steps).sum::<usize>() * (plan.restarts + 1);
    Ok((outcomes, steps))
}

/// How the queries were chosen, where they are not all.
fn sampling(flags: &Run, suite: &Suite, gallery: &Gallery) -> Option<String> {
    let all = gallery.queries().len();
    let replayed = flags.trials.is_some() || flags.demands.baseline.is_some();
    let most = suite.max_queries.filter(|&most| most < all && !replayed)?;
    Some(format!("{most} of {all} queries, stratified by class, seed {}", flags.seed))
}

/// Warns where another common preprocessing retrieves clearly better on a sample of the images: a wrong mean and
/// channels in the wrong order are the commonest mistakes, and an audit of a model so fed is of no use.
///
/// Compares hits at 1 query by query; clearly is by 5 % of them and three standard errors of the difference.
fn doubtful(dataset: &Dataset, model: &mut Model, metric: Metric) -> Result<Option<Warning>> {
    const CLASSES: usize = 24;
    const EACH: usize = 4;
    let stated = model.info.preprocessing.clone();
    let prep = preparation(&stated);
    let mut members = vec![Vec::new(); dataset.classes.len()];
    dataset.items.iter().enumerate().for_each(|(i, item)| members[item.class].push(i));
    members.retain(|items| items.len() > 1);
    let stride = members.len().div_ceil(CLASSES).max(1);
    let chosen = members.iter().step_by(stride).flat_map(|items| items.iter().take(EACH));
    let chosen: Vec<usize> = chosen.copied().collect();
    let decoded: Vec<_> = chosen.par_iter().map(|&i| dataset.pixels(i, &prep).ok()).collect();
    let (labels, images): (Vec<usize>, Vec<Vec<f32>>) = (chosen.iter().zip(decoded))
        .filter_map(|(&i, pixels)| Some((dataset.items[i].class, pixels?.data)))
        .unzip();
    if images.len() < 8 {
        return Ok(None);
    }
    let mut hits = |other: &Preprocessing| -> Result<Vec<bool>> {
        let mut raw: Vec<f32> = Vec::new();
        for some in images.chunks(model.batch()) {
            // The model's own preprocessing stays in front of it: it is undone here.
            let pixels: Vec<f32> = some.iter().flat_map(|image| stated.disguise(image, other)).collect();
            raw.extend(model.embed(&pixels)?.iter());
        }
        let raw = Array2::from_shape_vec((images.len(), model.info.dim), raw)
            .map_err(|e| Error::internal(format!("embeddings: {e}")))?;
        if raw.iter().any(|v| !v.is_finite()) {
            return Ok(vec![false; images.len()]);
        }
        let ids = (0..images.len()).map(|i| i.to_string()).collect();
        let gallery = Gallery::new(metric, raw, labels.clone(), ids)?;
        let nearest = |i: usize| gallery.nearest(&gallery.distances(gallery.point(i)), 1, |j| j != i)[0];
        Ok((0..images.len()).map(|i| labels[nearest(i)] == labels[i]).collect())
    };
    let ours = hits(&stated)?;
    let mut best: Option<(i64, f64, &str)> = None;
    for (name, other) in stated.usual_others() {
        let theirs = hits(&other)?;
        let count = |better: bool| {
            ours.iter().zip(&theirs).filter(|(a, b)| **a != better && **b == better && a != b).count() as i64
        };
        let (won, lost) = (count(true), count(false));
        let clear = (0.05 * ours.len() as f64).max(3.0 * ((won + lost) as f64).sqrt());
        if (won - lost) as f64 > clear && best.as_ref().is_none_or(|(gain, ..)| won - lost > *gain) {
            let share = theirs.iter().filter(|hit| **hit).count() as f64 / theirs.len() as f64;
            best = Some((won - lost, share, name));
        }
    }
    let share = ours.iter().filter(|hit| **hit).count() as f64 / ours.len() as f64;
    Ok(best.map(|(_, better, name)| {
        Warning::new(
            "preprocessing-doubtful",
            format!(
                "on a sample of {} images R@1 is {:.0} %, and {:.0} % with {name}: check how the model was trained, and \
                 state it in the model card",
                ours.len(),
                100.0 * share,
                100.0 * better
            ),
        )
    }))
}

/// What a reader should know before trusting the numbers.
fn reservations(
    flags: &Run,
    preprocessing: &Preprocessing,
    data: &report::Data,
    outcomes: &[Outcome],
    benign: &Benign,
) -> Vec<Warning> {
    let mut found = Vec::new();
    if flags.data.is_none() {
        found.push(Warning::new(
            "built-in-data",
            "these are generated images: scores on them compare models with each other, not with published tables. \
             Give your own with --data",
        ));
    }
    if preprocessing.assumed {
        found.push(Warning::new(
            "preprocessing-assumed",
            "no model card and no flags state the preprocessing: ImageNet's mean and std were assumed. If the model \
             was trained with others, or has them inside, state --mean and --std (0 and 1 for none)",
        ));
    }
    if !data.unreadable.is_empty() {
        let some: Vec<&str> = data.unreadable.iter().map(String::as_str).take(5).collect();
        found.push(Warning::new(
            "unreadable-images",
            format!("{} images can't be read and were left out: {}", data.unreadable.len(), some.join("; ")),
        ));
    }
    if benign.without_positive > 0 {
        found.push(Warning::info(
            "lone-images",
            format!(
                "{} queries have nothing to find, being alone in their class or seen by one camera only: they have no R@1",
                benign.without_positive
            ),
        ));
    }
    if benign.nmi.is_none() {
        found.push(Warning::info(
            "no-clustering",
            format!(
                "NMI and AMI are left out: clustering {} items into {} classes would take longer than the audit",
                data.gallery, data.classes
            ),
        ));
    }
    let queries = outcomes.iter().map(|o| o.query.as_str()).collect::<std::collections::BTreeSet<_>>().len();
    if queries < 100 {
        found.push(Warning::new(
            "few-queries",
            format!("{queries} queries are few: mind the intervals, and compare models on more"),
        ));
    }
    let chance = 1.0 / data.classes as f64;
    if benign.r_at_1 < 2.0 * chance {
        found.push(Warning::new(
            "no-retrieval",
            format!(
                "R@1 is {:.1} % before any attack, hardly above chance: the preprocessing is wrong, or the model has \
                 collapsed. A collapsed model can score high; its scores mean nothing",
                100.0 * benign.r_at_1
            ),
        ));
    }
    found
}

fn describe(model: &Model, card: &Card, metric: Metric, gradient_check: GradientCheck) -> report::Model {
    let info = &model.info;
    report::Model {
        path: info.path.display().to_string(),
        sha256: info.sha256.clone(),
        inputs: info.inputs.clone(),
        output: info.output.clone(),
        dim: info.dim,
        metric: metric.name().into(),
        preprocessing: info.preprocessing.clone(),
        licence: card.licence.clone(),
        source: card.source.clone(),
        gradient_check,
    }
}

fn name_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Auto => "auto",
        Protocol::Rob28 => "rob28",
        Protocol::Rob224 => "rob224",
    }
}

fn percent(b: &Benign, dataset: &Dataset) -> report::Benign {
    let curve = CMC.iter().zip(&b.cmc).map(|(&k, share)| report::CmcPoint { k, value: 100.0 * share });
    let classes = b.classes.iter().map(|row| report::ClassRow {
        class: dataset.classes[row.label].clone(),
        queries: row.queries,
        r1: 100.0 * row.r_at_1,
        map_at_r: 100.0 * row.map_at_r,
    });
    report::Benign {
        r1: 100.0 * b.r_at_1,
        r2: 100.0 * b.r_at_2,
        map: 100.0 * b.map,
        map_at_r: 100.0 * b.map_at_r,
        nmi: b.nmi.map(|v| 100.0 * v),
        ami: b.ami.map(|v| 100.0 * v),
        mrr: Some(100.0 * b.mrr),
        r_precision: Some(100.0 * b.r_precision),
        map_at_c: Some(100.0 * b.map_at_c),
        cmc: curve.collect(),
        classes: classes.collect(),
        queries: b.queries,
        without_positive: b.without_positive,
    }
}

fn rows(scores: &Scores, plan: &Plan) -> Vec<report::Attack> {
    scores
        .summaries
        .iter()
        .map(|s| report::Attack {
            code: s.term.clone(),
            form: plan.form.to_string(),
            queries: s.queries,
            skipped: s.skipped,
            before: s.before,
            after: s.after.map(|a| a.value),
            after_interval: s.after.and_then(|a| a.interval),
            ers_term: s.ers_term,
            resistance: report::Resistance { per_trial: s.per_trial, table: s.table },
        })
        .collect()
}

/// The scores that the suite asks for; one that it doesn't isn't missed.
fn wanted(suite: &Suite, scores: Scores) -> report::Scores {
    let asks = |score| suite.scores.contains(&score);
    let score =
        |e: Option<Estimate>| e.map(|e| report::Score { value: e.value, interval: e.interval, table: None });
    let (ers, ars) = (asks(suite::ScoreName::Ers), asks(suite::ScoreName::Ars));
    let mut found = score(scores.ars.filter(|_| ars));
    if let Some(found) = &mut found {
        found.table = scores.ars_table.map(|e| e.value);
    }
    let about = |note: &String| (ers && note.starts_with("no ERS")) || (ars && note.starts_with("no ARS"));
    report::Scores {
        ers: score(scores.ers.filter(|_| ers)),
        ars: found,
        notes: scores.notes.into_iter().filter(about).collect(),
    }
}
