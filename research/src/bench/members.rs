//! `cargo research bench members`, one part of `bench strong`: each member of the strong search for R@1
//! alone, with increasing work.
//!
//! Attacks the queries of the report. Prints a line of JSON for each member and effort:
//! `{"member", "effort", "queries", "left", "steps"}`, where `left` of the queries stay correct, and `steps`
//! are the image steps of all of them.
//!
//! A member that continues from another's result begins at the clean image here. One that aims at the classes
//! to which another came nearest runs behind that other member, whose steps count.

use audit::data::{BUILTIN_SEED, Dataset, Preparation};
use audit::model::Model;
use audit::model::card::Card;
use audit::model::runtime::{self, Options, Provider};
use audit::space::{Gallery, Metric};
use audit::threat::ensemble::{Aims, Ensemble, Member};
use audit::threat::objective::r1::R1;
use audit::threat::{AttackContext, Event, ImageSource, Objective, Others, Strong, Trial, read_trials};
use audit::{Error, Result, suite::Suite};
use clap::Args;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// What is attacked, and how hard.
#[derive(Args)]
pub struct Flags {
    /// A model, with its card beside it
    model: PathBuf,
    /// The report of an audit of it with R1 on the built-in images
    report: PathBuf,
    /// Multiples of the usual work
    #[arg(required = true)]
    efforts: Vec<usize>,
}

/// The members, each with the members that it needs before it.
fn alone() -> Vec<(&'static Member, Vec<&'static Member>)> {
    let all = || R1.members.iter().flat_map(|tier| tier.iter());
    let before = |member: &Member| match member.aims {
        Aims::Best(_) => all().filter(|m| matches!(m.aims, Aims::Nearest(_))).collect(),
        Aims::One | Aims::Several(_) | Aims::Nearest(_) => Vec::new(),
    };
    // Members for queries that come nearer to being lost are longer runs of another member.
    all().filter(|m| !m.closing).map(|member| (member, before(member))).collect()
}

/// The gallery of all images.
fn embedded(model: &mut Model, dataset: &Dataset, images: &ImageSource, metric: Metric) -> Result<Gallery> {
    let count = dataset.items.len();
    let all = (0..count).map(images).collect::<Result<Vec<_>>>()?;
    let all: Vec<f32> = all.into_iter().flat_map(|image| image.data).collect();
    let raw = model.embed(&all)?;
    let labels = dataset.items.iter().map(|item| item.class).collect();
    Gallery::new(metric, raw, labels, dataset.items.iter().map(|item| item.id.clone()).collect())
}

/// Prints a line for each member and effort.
pub fn each_alone(flags: &Flags) -> Result<()> {
    let Flags { model: path, report, efforts } = flags;
    runtime::load(None, None)?;
    let file = path.with_extension("yaml");
    let text =
        std::fs::read_to_string(&file).map_err(|e| Error::usage(format!("{}: {e}", file.display())))?;
    let card: Card = audit::yaml::read(&file.display().to_string(), &text)?;
    let options = Options { provider: Provider::Cpu, threads: runtime::cores() };
    let mut model = Model::open(path, &card, options, None)?;
    let [channels, height, width] = model.shape();
    let preparation = Preparation::new(channels, height, width);
    let dataset = Dataset::builtin(BUILTIN_SEED);
    let images = |i: usize| dataset.pixels(i, &preparation).map(|p| p.data.into());
    let gallery =
        embedded(&mut model, &dataset, &images, card.metric.unwrap_or(Metric::NormalizedEuclidean))?;
    let context = AttackContext::from(gallery);
    let name = report.display().to_string();
    let text = std::fs::read_to_string(report).map_err(|e| Error::usage(format!("{name}: {e}")))?;
    let report: Value = serde_json::from_str(&text).map_err(|e| Error::usage(format!("{name}: {e}")))?;
    let listed = read_trials(&name, &report["trials"].to_string(), &context)?.selection.trials;
    let queries: Vec<usize> =
        listed.iter().filter(|t| t.objective.code == R1.code).map(|t| t.query).collect();
    let (_, plan) = Suite::load("strong")?.plan(height.max(width), report["seed"].as_u64().unwrap_or(0))?;
    for (member, before) in alone() {
        let tiers: Vec<&'static [Member]> =
            before.into_iter().chain([member]).map(std::slice::from_ref).collect();
        let members: Ensemble = tiers.leak();
        let objective: &'static Objective = Box::leak(Box::new(Objective { members, ..R1 }));
        let trials: Vec<Trial> =
            queries.iter().map(|&query| Trial { objective, query, targets: Vec::new() }).collect();
        for &effort in efforts {
            let others = Others { images: &images, shape: model.shape() };
            let (context, largest) = (&context, model.pixels());
            let strong = Strong {
                context,
                images: &images,
                trials: &trials,
                plan: &plan,
                effort,
                others,
                largest,
                files: None,
            };
            let (mut left, mut steps, mut ran) = (0, 0, false);
            let mut watch = |event: Event| {
                if let Event::Done(_, outcome, _) = event {
                    left += usize::from(outcome.after.hit == Some(true));
                    steps += outcome.steps;
                    ran |= outcome.members.iter().flatten().any(|m| m.member == member.name);
                }
                ControlFlow::Continue(())
            };
            strong.run(&mut model.passes_for_search(), &mut watch)?;
            // A model may lack a backward pass.
            if ran {
                let line = json!({"member": member.name, "effort": effort, "queries": queries.len(), "left": left, "steps": steps});
                println!("{line}");
            }
        }
    }
    Ok(())
}
