//! Recipes: the flags of published trainings.

use crate::batch::recipe;
use crate::words::words;
use audit::data::{Dataset, Preparation};
use audit_train::cli::Cli;
use audit_train::log::{self, LogLine};
use audit_train::net::Norms;
use audit_train::published::PUBLISHED;
use audit_train::sampler::Anchors;
use audit_train::settings::{Loader, Reading, TopRank};

/// Values of robrank's configs_rank.py (rres18, 150 epochs halved for pairs), of its HM, of CA-TRIDE's
/// defenses/pnp.py, of appendix A of Panum et al. and of section 4 of ADML; images and batches are those of
/// CUB's training half.
#[test]
fn recipes_are_what_the_authors_ran() {
    let of = |words: &str| recipe(words, 5864).unwrap_or_else(|e| panic!("{e}"));
    let weights = "--pretrained w.safetensors";
    for row in PUBLISHED {
        let recipe = of(&format!("--recipe {} {weights}", row.name));
        let s = &recipe.settings;
        assert_eq!(s.method, row.method);
        let released = row.name.ends_with("-released");
        if released {
            assert_eq!((recipe.per_epoch(), recipe.epochs(), s.steps), (105, 75, 7875), "{}", row.name);
            assert_eq!((s.batch, s.loader, s.anchors), (112, Loader::Pairs, Anchors::Pairs));
            assert_eq!((s.lr, s.lr_drop, s.weight_decay), (1e-5, None, 4e-4));
            assert_eq!((s.backbone.as_str(), s.dim, s.loss.as_str()), ("resnet18", 512, "triplet"));
            assert!(!s.random_start);
        }
        let norms = if row.method == "est" { Norms::Train } else { Norms::Frozen };
        assert_eq!(s.norms, norms, "{}", row.name);
        let attack = (s.eps, s.alpha, s.pgd_steps, s.progressive);
        let close = |(eps, alpha, steps, progressive): (f64, f64, u32, bool)| {
            (eps - attack.0).abs() < 1e-6
                && (alpha - attack.1).abs() < 1e-6
                && (steps, progressive) == (attack.2, attack.3)
        };
        let (expected, sampler) = match row.name {
            "none-released" => ((0.0, 0.0, 0, false), "random"),
            "est-released" | "act-released" => ((8.0 / 255.0, 1.0 / 255.0, 32, false), "random"),
            "hm-released" => ((8.0 / 255.0, 1.0 / 255.0, 32, false), "softhard"),
            "ca-tride-released" => ((8.0 / 255.0, 1.0 / 255.0, 16, true), "semihard"),
            "panum-paper" => ((0.01, 0.004, 5, false), "distance-clamped"),
            "adml-paper" => ((8.0 / 255.0, 0.007, 7, false), "distance-clamped"),
            other => panic!("{other}: what did its authors run?"),
        };
        assert!(close(expected), "{}: {attack:?}", row.name);
        assert_eq!(s.sampler, sampler, "{}", row.name);
    }
    let s = of(&format!("--recipe hm-released {weights}")).settings;
    assert_eq!((s.destination.as_str(), s.lga_u, s.ics, s.perturb.as_str()), ("lga", 0.2, 0.5, "apn"));
    let s = of(&format!("--recipe ca-tride-released {weights}")).settings;
    assert_eq!((s.reading, s.top_rank, s.lambda), (Reading::Released, TopRank::On, 10.0));
    assert_eq!((s.eta, s.eta_scheduled, s.top_rank_margin, s.top_rank_weight), (0.2, true, 0.04, 0.5));
    let s = of(&format!("--recipe panum-paper {weights}")).settings;
    assert_eq!((s.backbone.as_str(), s.dim, s.lr, s.crop_area), ("resnet50", 128, 1e-6, Some(0.6)));
    assert_eq!((s.loss.as_str(), s.random_start, s.anchors), ("contrastive", true, Anchors::Every));
    let s = of(&format!("--recipe adml-paper {weights}")).settings;
    assert_eq!((s.loss.as_str(), s.adversarial_weight, s.lr), ("multi-similarity", 0.1, 1e-5));
}

#[test]
fn flags_of_the_user_override_those_of_a_recipe() {
    let weights = "--pretrained w.safetensors";
    let of = |words: &str| recipe(words, 5864).unwrap_or_else(|e| panic!("{e}"));
    let s = of(&format!("--recipe ca-tride-released --lambda 2 --epochs 3 {weights}")).settings;
    assert_eq!((s.lambda, s.steps, s.reading), (2.0, 315, Reading::Released));
    // Before the recipe too; and the method may be named.
    let s = of(&format!("--lr 1e-4 ca-tride --recipe=ca-tride-released --steps 120 {weights}")).settings;
    assert_eq!((s.lr, s.steps, s.batch), (1e-4, 120, 112));
    // On a small net, with ε still that of the recipe.
    let s = of("--recipe hm-released --backbone c2f1 --batch 16 --lr 1e-3").settings;
    assert_eq!((s.backbone.as_str(), s.steps, s.pgd_steps), ("c2f1", 75 * 733, 32));
    assert!((s.eps - 8.0 / 255.0).abs() < 1e-6);
    let refused = |words: &str| {
        let all =
            ["audit-train", "--data", "x", "--out", "x.onnx"].into_iter().chain(words.split_whitespace());
        Cli::parse_words(all).unwrap_err().to_string()
    };
    let said = refused("act --recipe hm-released");
    assert!(said.contains("--recipe hm-released trains with hm, found act; leave the method out"), "{said}");
    let said = refused("--recipe hm-release");
    assert!(said.contains("hm-released") && said.contains("ca-tride-released"), "{said}");
    let said = refused("--lr 1e-3");
    assert!(said.contains("<METHOD|--recipe <NAME>>") || said.contains("METHOD"), "{said}");
}

#[test]
fn a_recipe_trains() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("images");
    Dataset::generated(5, 6, 4).export(&data, &Preparation::new(1, 28, 28)).unwrap();
    let out = folder.path().join("m.onnx");
    let line = format!(
        "audit-train --recipe ca-tride-released --backbone c2f1 --dim 16 --batch 12 --epochs 3 --data {data:?} --out {out:?} -q --threads 1"
    );
    audit_train::run(&Cli::parse_words(words(&line)).unwrap().run).unwrap();
    // 24 images in batches of 6 pairs.
    let rows = log::read(&out.with_extension("jsonl")).unwrap();
    assert!(matches!(rows.last(), Some(LogLine::End { step: 12, .. })), "{:?}", rows.last());
    let Some(LogLine::Epoch(last)) = rows.iter().rev().nth(1) else { panic!("no epoch") };
    assert!(last.batches.unwrap().shift > 0.0 && last.image_steps > 0, "{last:?}");
}
