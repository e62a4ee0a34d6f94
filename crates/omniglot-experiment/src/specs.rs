//! What is trained, and how much of it.

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
    /// Training steps of HM; the others get as many as cost the same image steps, were no attack to stop early.
    pub base: u64,
    pub queries: usize,
    /// Steps of the audit's attacks; `None` as the protocol has it.
    pub attack: Option<usize>,
}

impl Budget {
    pub fn size(self) -> Size {
        match self {
            Budget::Smoke => Size { seeds: 2, plain: 48, base: 12, queries: 20, attack: Some(2) },
            Budget::Short => Size { seeds: 2, plain: 600, base: 300, queries: 100, attack: None },
            Budget::Full => Size { seeds: 3, plain: 1500, base: 700, queries: 200, attack: None },
        }
    }
}

/// A model to make, for every seed.
pub struct Spec {
    /// Its name in tables and files.
    pub name: String,
    /// The curve that it is a point of.
    pub family: String,
    /// What sets it apart on the curve.
    pub point: String,
    /// Whether it is a row of the main table.
    pub main: bool,
    /// Flags of audit-train.
    pub words: Vec<String>,
    pub steps: u64,
}

/// PGD inside training, for all: its steps, and how far each goes.
pub const PGD_STEPS: u64 = 8;
pub const ALPHA: &str = "12/255";

/// Images that one training step of HM moves: 56 triplets, all three.
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

/// The plain net of each seed, from which all others start.
pub fn plain(steps: u64) -> Spec {
    Spec {
        name: "none".into(),
        family: "none".into(),
        point: "main".into(),
        main: true,
        words: vec!["none".into(), "--sampler".into(), "semihard".into()],
        steps,
    }
}

/// Every model but the plain one.
pub fn specs(base: u64) -> Vec<Spec> {
    let mut specs = vec![];
    for (name, flags, images, both) in FAMILIES {
        for progressive in if both { &[false, true][..] } else { &[false] } {
            let family = if *progressive { format!("{name}+p") } else { name.to_string() };
            let switch = if *progressive { "on" } else { "off" };
            let full = base * HM_IMAGES / images;
            let mut add = |point: &str, extra: &[(&str, &str)], steps: u64| {
                let mut words: Vec<String> = flags.split_whitespace().map(String::from).collect();
                words.extend(["--progressive".into(), switch.into()]);
                for (flag, value) in extra {
                    // A setting of the sweep takes the place of the family's own.
                    match words.iter().position(|w| w == flag) {
                        Some(at) => words[at + 1] = value.to_string(),
                        None => words.extend([flag.to_string(), value.to_string()]),
                    }
                }
                let main = point.is_empty();
                let name = if main { family.clone() } else { format!("{family} {point}") };
                let point = if main { "main".into() } else { point.into() };
                specs.push(Spec { name, family: family.clone(), point, main, words, steps });
            };
            add("", &[], full);
            if name.ends_with("naive") && name != "ca-tride-naive" {
                continue;
            }
            add("half", &[], full / 2);
            match name {
                "ca-tride" => {
                    for lambda in ["0", "4", "10"] {
                        add(&format!("λ {lambda}"), &[("--lambda", lambda)], full);
                    }
                }
                "hm" => {
                    for destination in ["-0.15", "-0.1", "-0.05"] {
                        add(&format!("H {destination}"), &[("--destination", destination)], full);
                    }
                }
                _ => {}
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
            assert_eq!(spec.steps * images, 168_000, "{}", spec.name);
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
