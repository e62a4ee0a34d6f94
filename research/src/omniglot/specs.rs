//! The trainings of the experiment, and their size.

use crate::matrix::{Spec, split};
use clap::ValueEnum;

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Budget {
    /// Shows that it runs, nothing else: minutes.
    Smoke,
    /// An idea of it: two seeds, a third of the steps.
    Short,
    /// Three seeds; within two hours on two cores.
    Full,
}

/// The numbers of a [`Budget`].
pub struct Size {
    pub seeds: u64,
    /// Steps of the plain nets that all others start from.
    pub plain: u64,
    /// Training steps of HM; the others get as many as cost the same image steps if no attack stopped early.
    pub base: u64,
    pub queries: usize,
    /// Steps of the audit's attacks; `None` for the protocol's.
    pub attack: Option<usize>,
}

impl Budget {
    pub fn size(self) -> Size {
        match self {
            // Half of HM's steps are more than an epoch (24), as a growing step size needs.
            Budget::Smoke => Size { seeds: 2, plain: 48, base: 50, queries: 20, attack: Some(2) },
            Budget::Short => Size { seeds: 2, plain: 600, base: 300, queries: 100, attack: None },
            Budget::Full => Size { seeds: 3, plain: 1500, base: 700, queries: 200, attack: None },
        }
    }
}

/// PGD inside training, for all: its steps, and the size of each.
pub const PGD_STEPS: u64 = 8;
pub const ALPHA: &str = "12/255";

/// Images that one training step of HM moves: all three of 56 triplets.
const HM_IMAGES: u64 = 168;

/// Methods by the name of their curve: flags, and images moved per training step.
pub const FAMILIES: [(&str, &str, u64, bool); 9] = [
    ("act", "act --sampler random", 112, false),
    ("hm", "hm --sampler random", 168, true),
    ("hm-softhard", "hm --sampler softhard", 168, false),
    ("cap", "cap --sampler random --lambda 2", 112, true),
    ("anp", "anp --sampler random --lambda 2", 56, true),
    ("ca-tride", "ca-tride --sampler random --lambda 2", 84, true),
    ("cap-naive", "cap --sampler random --reading naive", 112, false),
    ("anp-naive", "anp --sampler random --reading naive", 56, false),
    ("ca-tride-naive", "ca-tride --sampler random --reading naive", 84, true),
];

/// Families that must collapse, and be recognised as collapsed: one point of each is enough.
pub const COLLAPSING: [&str; 2] = ["cap-naive", "anp-naive"];

/// Further points of a curve, with and without a growing step size: its name, a label, a flag, and the flag's
/// values.
const SWEEPS: [(&str, &str, &str, [&str; 3]); 2] = [
    ("ca-tride", "λ", "--lambda", ["0", "4", "10"]),
    ("hm", "H", "--destination", ["-0.15", "-0.1", "-0.05"]),
];

/// Name of the plain nets.
pub const PLAIN: &str = "none";

/// The plain net of each seed, from which all others start.
pub fn plain(steps: u64) -> Spec {
    let words = split(&format!("none --sampler semihard --steps {steps}")).collect();
    Spec { name: PLAIN.into(), family: PLAIN.into(), point: "main".into(), main: true, words, from: None }
}

/// Every model but the plain one.
pub fn specs(base: u64) -> Vec<Spec> {
    let mut specs = vec![];
    for (name, flags, images, both) in FAMILIES {
        for (suffix, switch) in &[("", "off"), ("+p", "on")][..if both { 2 } else { 1 }] {
            let family = format!("{name}{suffix}");
            let full = base * HM_IMAGES / images;
            let mut add = |point: &str, extra: Option<(&str, &str)>, steps: u64| {
                let common =
                    format!("--progressive {switch} --steps {steps} --alpha {ALPHA} --pgd-steps {PGD_STEPS}");
                let mut words: Vec<String> = split(&format!("{flags} {common}")).collect();
                if let Some((flag, value)) = extra {
                    // A setting of the sweep replaces the family's own.
                    match words.iter().position(|w| w == flag) {
                        Some(at) => words[at + 1] = value.into(),
                        None => words.extend([flag.into(), value.into()]),
                    }
                }
                let main = point.is_empty();
                let name = if main { family.clone() } else { format!("{family} {point}") };
                let point = if main { "main".into() } else { point.into() };
                specs.push(Spec {
                    name,
                    family: family.clone(),
                    point,
                    main,
                    words,
                    from: Some(PLAIN.into()),
                });
            };
            add("", None, full);
            if COLLAPSING.contains(&name) {
                continue;
            }
            add("half", None, full / 2);
            for (_, label, flag, values) in SWEEPS.iter().filter(|sweep| sweep.0 == name) {
                for value in values {
                    add(&format!("{label} {value}"), Some((flag, value)), full);
                }
            }
        }
    }
    specs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_cost_the_same_image_steps() {
        for spec in specs(1000).iter().filter(|s| s.main) {
            let (_, _, images, _) =
                FAMILIES.iter().find(|f| f.0 == spec.family.trim_end_matches("+p")).unwrap();
            let steps = spec.words.iter().position(|word| word == "--steps").unwrap();
            assert_eq!(spec.words[steps + 1].parse::<u64>().unwrap() * images, 168_000, "{}", spec.name);
        }
        let names: Vec<String> = specs(1000).into_iter().map(|s| s.name).collect();
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(names.len(), once.len());
        let sweep = specs(1000).into_iter().find(|s| s.name == "ca-tride+p λ 10").unwrap();
        assert_eq!(sweep.words.iter().filter(|w| *w == "--lambda").count(), 1);
        assert!(sweep.words.windows(2).any(|w| w == ["--lambda", "10"]));
    }
}
