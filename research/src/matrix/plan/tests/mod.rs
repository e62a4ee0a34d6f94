//! Plans and their pages, with stand-ins for both programs.

mod trees;

use super::*;
use std::os::unix::fs::PermissionsExt;

const PLAN: &str = "
data:
  - {name: letters, train: a, test: b}
seeds: [0, 1]
train: --steps 7 --batch 16
audit: --suite ars
methods:
  - {name: hm far, train: hm --destination -0.05 --steps 9, from: none, curve: hm}
  - {name: none, train: none}
  - {name: hm, train: hm, from: none}
compare: [[hm, none]]
";

fn plan(text: &str) -> Result<Vec<Spec>> {
    yaml::read::<MatrixPlan>("plan.yaml", text).and_then(|plan| plan.specs("letters"))
}

#[test]
fn methods_give_flags_of_their_own() {
    let specs = plan(PLAN).unwrap();
    let words: Vec<(&str, String)> = specs.iter().map(|s| (s.name.as_str(), s.words.join(" "))).collect();
    assert_eq!(
        words,
        [
            ("hm far", "hm --destination -0.05 --steps 9 --batch 16".to_string()),
            ("hm", "hm --steps 7 --batch 16".into()),
            ("none", "none --steps 7 --batch 16".into()),
        ]
    );
    assert_eq!((specs[0].family.as_str(), specs[0].point.as_str(), specs[0].main), ("hm", "hm far", false));
}

#[test]
fn what_makes_no_sense_is_named() {
    for (from, to, expected) in [
        ("seeds: [0, 1]", "seeds: []", "seeds is empty"),
        ("seeds: [0, 1]", "seeds: [1, 1]", "seeds: 1 is there twice"),
        ("name: hm,", "name: none,", "methods: none is there twice"),
        ("name: hm,", "name: a/b,", "the name `a/b` becomes a part of file names"),
        ("train: hm, from: none", "train: hm, from: nobody", "methods, hm: from: nobody is no method"),
        ("train: none}", "train: none --seed 3}", "methods, none: --seed is given by the matrix itself"),
        ("--suite ars", "--suite ars -o x.json", "audit: -o is given by the matrix itself"),
        ("[hm, none]", "[hm, cap]", "compare: cap is no curve"),
        ("seeds: [0, 1]", "seed: [0, 1]", "unknown key `seed`"),
        ("seeds: [0, 1]", "seeds: [0, 1]\nthreads: 0", "threads: 0; expected 1 or more"),
        (
            "train: none}",
            "train: none, printed: {letters: {R@1: high}}}",
            "methods, none: printed, R@1: expected a number as the paper prints it, found `high`",
        ),
    ] {
        assert!(PLAN.contains(from));
        let e = plan(&PLAN.replacen(from, to, 1)).unwrap_err();
        assert!(e.message.contains(expected), "{expected}: {e}");
    }
}

fn flags(plan: &Path) -> Flags {
    let (data, only, seeds) = (vec![], vec![], vec![]);
    let (train, audit) = (String::new(), String::new());
    Flags { plan: plan.into(), data, only, seeds, train, audit, jobs: 1, work: None, out: None }
}

/// Stand-ins for audit-train and audit: they record their calls, and write files. A call that only checks
/// flags does neither.
fn programs(folder: &Path) -> [PathBuf; 2] {
    let report = folder.join("report.json");
    let write = |name: &str, body: &str| {
        let path = folder.join(name);
        let calls = folder.join("calls");
        let check = "case \"$*\" in *--check) exit 0;; esac";
        let calls = calls.display();
        fs::write(&path, format!("#!/bin/sh\nset -e\n{check}\necho \"{name} $*\" >> {calls}\n{body}"))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let row = r#"{"epoch":{"step":7,"clean":{"distance":1.5},"image_steps":2000000,"seconds":60,"collapsed":false}}"#;
    let find = "while [ \"$1\" != \"$KEY\" ]; do shift; done; out=$2\n";
    let trainer = write(
        "trainer",
        &format!("{}echo x > $out; echo '{row}' > ${{out%.onnx}}.jsonl\n", find.replace("$KEY", "--out")),
    );
    let audit = write("auditor", &format!("{}cp {} $out\n", find.replace("$KEY", "-o"), report.display()));
    [trainer, audit]
}

/// A report with R@1 90.4, ARS 31, and CA+ withstood by half.
fn report() -> serde_json::Value {
    let score = |value: f64| serde_json::json!({ "value": value, "interval": null });
    serde_json::json!({
        "schema_version": audit::record::SCHEMA_VERSION,
        "tool": { "name": "audit", "version": "0.1.0", "runtime": "ONNX Runtime", "provider": "cpu" },
        "model": {
            "path": "m.onnx", "sha256": "ab", "inputs": ["x"], "output": "y", "dim": 8, "metric": "normalized-euclidean",
            "preprocessing": {
                "channels": 1, "height": 28, "width": 28, "layout": "nchw", "order": "grey",
                "scale": [1.0], "shift": [0.0], "resize": null, "assumed": true,
            },
            "licence": null, "source": null,
            "gradient_check": { "embedding_error": 1e-7, "gradient_error": 1e-3, "directions": 16 },
        },
        "data": {
            "source": "b", "images": 9, "gallery": 9, "queries": 9, "classes": 3, "sha256": "cd", "unreadable": [],
        },
        "suite": {
            "name": "full", "form": "published", "protocol": "rob28", "eps": 0.3, "alpha": 0.01,
            "steps": 32, "schedule": "fixed", "restarts": 0, "queries": 9,
        },
        "seed": 0,
        "benign": {
            "r1": 90.4, "r2": 95.0, "map": 50.0, "map_at_r": 40.0, "nmi": null, "queries": 9, "without_positive": 0,
        },
        "attacks": [{
            "code": "CA+", "form": "published", "queries": 9, "skipped": 0, "before": 50.0, "after": 25.5,
            "after_interval": null, "ers_term": 50.0, "resistance": { "per_trial": 50.0, "table": 50.0 },
        }],
        "scores": { "ers": score(33.0), "ars": score(31.0), "notes": [] },
        "trials": { "protocol": "rob28", "form": "published", "metric": "normalized-euclidean", "attacks": {} },
        "outcomes": [], "skipped": [], "warnings": [], "command": "audit",
        "timing": audit::record::Timing::default(),
    })
}

#[test]
fn what_is_finished_is_not_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("report.json"), report().to_string()).unwrap();
    ["a", "b"].iter().for_each(|name| fs::create_dir(folder.join(name)).unwrap());
    let [trainer, audit] = programs(folder);
    let tools = Tools { trainer, audit };
    let file = folder.join("plan.yaml");
    let flags = flags(&file);
    let run_with = |text: &str| {
        fs::write(&file, text).unwrap();
        let _ = fs::remove_file(folder.join("calls"));
        let message = make(&flags, &tools).unwrap();
        let calls = fs::read_to_string(folder.join("calls")).unwrap_or_default();
        (message, calls.lines().map(String::from).collect::<Vec<_>>())
    };
    let (message, calls) = run_with(PLAN);
    assert!(message.ends_with("plan.md: 6 models"), "{message}");
    assert_eq!(calls.len(), 12, "{calls:#?}");
    // A model comes after the one that it starts from.
    assert!(calls[0].starts_with("trainer none --steps 7") && calls[1].starts_with("auditor "));
    assert!(calls.iter().filter(|c| c.starts_with("trainer hm")).all(|c| c.contains("--init ")));
    let page = fs::read_to_string(folder.join("plan.md")).unwrap();
    assert!(
        page.contains(
            "| hm | 90.4 ± 0.0 | 1.500 ± 0.000 | 50.0 | 33.0 ± 0.0 | 31.0 ± 0.0 | – | 2.00 | 1.0 | no |"
        ),
        "{page}"
    );
    assert!(
        page.contains("| hm far | 90.4 ± 0.0 | 95.0 ± 0.0 | 50.0 ± 0.0 | 40.0 ± 0.0 | – | – | 25.5 ± 0.0 |")
            && page.contains("## Matched R@1"),
        "{page}"
    );
    assert!(folder.join("plan-letters.svg").is_file());
    assert_eq!(run_with(PLAN).1.len(), 0, "all of it is done");
    // One more seed is trained alone; another length changes everything but the model with its own
    // length.
    assert_eq!(run_with(&PLAN.replace("[0, 1]", "[0, 1, 2]")).1.len(), 6);
    let longer = PLAN.replace("--steps 7", "--steps 8");
    assert_eq!(run_with(&longer).1.len(), 12, "what starts from another net is another net");
    // Another audit of the same models.
    let (_, calls) = run_with(&longer.replace("audit: ", "audit: --seed 1 "));
    assert_eq!(calls.len(), 6, "{calls:#?}");
    assert!(calls.iter().all(|c| c.starts_with("auditor ") && c.contains("--seed 1")), "{calls:#?}");
    run_with(&longer);
    // An audit that was not finished.
    fs::remove_file(folder.join("plan.work/letters/hm-1.json")).unwrap();
    let (_, calls) = run_with(&longer);
    assert!(calls.len() == 1 && calls[0].starts_with("auditor "), "{calls:?}");
}

/// A data set of CUB's layout: a class on either side of the split, as empty files.
fn birds(folder: &Path) -> PathBuf {
    let root = folder.join("CUB_200_2011");
    fs::create_dir_all(root.join("images")).unwrap();
    for (name, text) in [
        ("images.txt", "1 001.A/a.jpg\n2 150.B/b.jpg\n"),
        ("image_class_labels.txt", "1 1\n2 150\n"),
        ("classes.txt", "1 001.A\n150 150.B\n"),
    ] {
        fs::write(root.join(name), text).unwrap();
    }
    root
}

#[test]
fn a_papers_tables_have_its_numbers_beside_those_here() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("report.json"), report().to_string()).unwrap();
    let [trainer, audit] = programs(folder);
    let tools = Tools { trainer, audit };
    let run_with = |name: &str, only: &[&str]| {
        let mut flags = flags(Path::new(name));
        flags.data = vec![birds(folder)];
        flags.only = only.iter().map(|name| (*name).to_string()).collect();
        flags.train = "--steps 2 --lambda 3".into();
        flags.audit = "--max-queries 5".into();
        flags.seeds = vec![7];
        flags.work = Some(folder.join("work"));
        flags.out = Some(folder.join("page.md"));
        let _ = fs::remove_file(folder.join("calls"));
        make(&flags, &tools).unwrap();
        let calls = fs::read_to_string(folder.join("calls")).unwrap();
        (fs::read_to_string(folder.join("page.md")).unwrap(), calls)
    };
    let (page, calls) = run_with("ca-tride-tables", &["none", "ca-tride"]);
    let lines: Vec<&str> = calls.lines().collect();
    assert!(lines.len() == 4, "{calls}");
    let trained = lines.iter().find(|line| line.starts_with("trainer ca-tride ")).unwrap();
    assert!(
        trained.contains(" --steps 2 --lambda 3 --reading released --pgd-steps 16 --backbone resnet18 "),
        "{trained}"
    );
    assert!(!trained.contains("--epochs") && trained.contains("--seed 7"), "{trained}");
    assert!(calls.contains("auditor ") && calls.contains("--max-queries 5 --suite full"), "{calls}");
    // Table 1 of the paper, and the stand-in report.
    let printed = "| ca-tride | printed, table 1 | 34.9 | 45.1 | 19.6 | 45.6 | 32.6 | 68.5 | 41.8 | 79.2 | 61.9 | 59.0 | 64.8 | 5.1 | 51.6 |\n\
                   | | printed, table 3 | 34.9 | – | – | – | 32.6 | 68.5 | 41.8 | 79.2 | 61.9 | 59.0 | 64.8 | 5.1 | 51.6 |\n\
                   | | printed, table 4 | 34.9 |";
    assert!(page.contains("## Printed and here") && page.contains(printed), "{page}");
    assert!(page.contains("\n| | here | 90.4 | 95.0 | 50.0 | – | 50.0 |"), "{page}");
    assert!(page.contains("# CUB\n"), "{page}");
    // The flags of the call go before those that a method has for some data.
    let mut other = flags(Path::new("ca-tride-tables"));
    other.data = vec![birds(folder)];
    other.train = "--lambda 3".into();
    other.audit = "--suite panum-fgsm".into();
    let plan = Plan::read(&other).unwrap().plan;
    let method = plan.methods.iter().find(|m| m.name == "ca-tride").unwrap();
    let words = plan.words(method, "CARS").join(" ");
    assert!(words.contains("--lambda 3") && !words.contains("9.5"), "{words}");
    // The paper's numbers don't apply to another attack.
    assert!(plan.methods.iter().all(|m| m.rows.is_empty()));
    other.audit = "--suite=panum-fgsm".into();
    let plan = Plan::read(&other).unwrap().plan;
    assert!(plan.methods.iter().all(|m| m.rows.is_empty()));
    assert_eq!(plan.audit.matches("--suite").count(), 1, "{}", plan.audit);
    let (page, _) = run_with("panum-tables", &["triplet γ 0.5"]);
    assert!(page.contains("| model | | R@1 | mAP@R | NN R@1 | NN mAP@R |"), "{page}");
    assert!(
        page.contains(
            "| triplet γ 0.5 | printed | 53.8 | 17.4 | 23.1 | 8.6 |\n| | here | 90.4 | 40.0 | – | – |"
        ),
        "{page}"
    );
    // Numbers have the digits of the paper.
    let (page, _) = run_with("adml-tables", &["adml+u"]);
    assert!(page.contains("| adml+u | printed | 68.60 | 65.46 | 24.58 | 27.89 | 15.10 | 1.06 |"), "{page}");
    let refused = |change: &dyn Fn(&mut Flags)| {
        let mut flags = flags(Path::new("hm-tables"));
        flags.data = vec![birds(folder)];
        change(&mut flags);
        Plan::read(&flags).err().unwrap().message
    };
    assert!(refused(&|f| f.data.clear()).contains("hm-tables: --data is missing; expected CUB-200-2011"));
    assert!(refused(&|f| f.data = vec![folder.join("work")]).contains("no training half"));
    assert!(refused(&|f| f.data = vec!["nothing".into()]).contains("found nothing"));
    assert!(
        refused(&|f| f.only = vec!["hm".into()])
            .contains("--only hm: no such method; expected some of none, est R 8")
    );
    let shops = |f: &mut Flags| f.data = vec![in_shop(folder)];
    assert!(
        refused(&shops)
            .contains("--data of In-shop: the paper has no numbers on it; expected CUB, CARS, SOP")
    );
    assert!(refused(&|f| f.plan = "hm-table".into()).contains("one of ca-tride-tables, hm-tables"));
    assert!(refused(&|f| f.train = "--out x".into()).contains("--out is given by the matrix itself"));
}

/// In-shop as an empty list.
fn in_shop(folder: &Path) -> PathBuf {
    let root = folder.join("in-shop");
    fs::create_dir_all(root.join("Eval")).unwrap();
    fs::write(root.join("Eval/list_eval_partition.txt"), "0\nimage_name item_id evaluation_status\n")
        .unwrap();
    root
}

/// A row of a table of CUB only is made on CUB only, unless it is requested.
#[test]
fn rows_are_made_on_the_data_that_the_paper_has_them_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("report.json"), report().to_string()).unwrap();
    let [trainer, audit] = programs(folder);
    let tools = Tools { trainer, audit };
    let products = folder.join("sop");
    fs::create_dir_all(&products).unwrap();
    for half in ["train", "test"] {
        fs::write(products.join(format!("Ebay_{half}.txt")), "image_id class_id super_class_id path\n")
            .unwrap();
    }
    let run_with = |only: &[&str]| {
        let mut flags = flags(Path::new("ca-tride-tables"));
        flags.data = vec![products.clone(), birds(folder)];
        flags.only = only.iter().map(|name| (*name).to_string()).collect();
        flags.train = "--steps 2".into();
        flags.work = Some(folder.join("work"));
        flags.out = Some(folder.join("page.md"));
        let _ = fs::remove_file(folder.join("calls"));
        make(&flags, &tools).unwrap();
        let calls = fs::read_to_string(folder.join("calls")).unwrap_or_default();
        let trained =
            |data: &str| calls.lines().filter(|l| l.starts_with("trainer ") && l.contains(data)).count();
        (fs::read_to_string(folder.join("page.md")).unwrap(), trained("/SOP/"), trained("/CUB/"))
    };
    let (page, on_sop, on_cub) = run_with(&[]);
    assert_eq!((on_sop, on_cub), (4, 8));
    let left_out = "\n# SOP\n\nLeft out on SOP, where the paper has no numbers of them: anp, cap, top-rank off, top-rank term (--only NAME \
                    makes a method all the same).\n";
    assert!(page.contains(left_out) && page.matches("Left out on").count() == 1, "{page}");
    // Their flags are listed, as they are of CUB.
    assert!(page.contains("\n| anp | `anp --steps 2 --reading released --lambda 10 "), "{page}");
    let (page, on_sop, on_cub) = run_with(&["anp"]);
    assert_eq!((on_sop, on_cub), (1, 0), "that of CUB is done");
    assert!(!page.contains("Left out on"), "{page}");
}

/// Every row that a plan names is in the papers.
#[test]
fn rows_of_tables_are_published() {
    let known = published::names("CUB").unwrap();
    let mut count = 0;
    for (name, text) in TABLES {
        let plan: MatrixPlan = yaml::read(name, text).unwrap();
        for method in &plan.methods {
            assert!(method.rows.is_empty() != method.printed.is_empty(), "{name}, {}", method.name);
            assert!(method.rows.iter().all(|row| known.contains(row)), "{name}, {:?}", method.rows);
            count += 1;
        }
    }
    assert!(count > 70, "{count}");
}

/// The released code keeps its step size for few steps; audit-train's default reaches ε in any number of
/// them.
#[test]
fn few_steps_of_hms_tables_are_as_long_as_those_of_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let mut flags = flags(Path::new("hm-tables"));
    flags.data = vec![birds(folder.path())];
    let plan = Plan::read(&flags).unwrap().plan;
    let mut rows = 0;
    for method in &plan.methods {
        let words = format!("{} ", plan.words(method, "CUB").join(" "));
        if words.contains("--pgd-steps 2 ") || words.contains("--pgd-steps 4 ") {
            assert!(words.contains("--alpha 1/255 "), "{}: {words}", method.name);
            rows += 1;
        }
    }
    assert_eq!(rows, 14);
}

#[test]
fn the_plans_here_are_plans() {
    let folder = xtask::project::root().join("research/plans");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let specs = plan(&fs::read_to_string(&file).unwrap());
        assert!(specs.is_ok_and(|specs| !specs.is_empty()), "{}", file.display());
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn images_lie_beside_the_plan_or_among_the_reference_data() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let omniglot = Path::new("omniglot28/test");
    let known = reference("data").join(omniglot);
    assert_eq!(find(folder, omniglot), if known.exists() { known } else { folder.join(omniglot) });
    fs::create_dir_all(folder.join(omniglot)).unwrap();
    assert_eq!(find(folder, omniglot), folder.join(omniglot));
    assert_eq!(find(folder, Path::new("nothing")), folder.join("nothing"));
}

#[test]
fn circles_are_refused() {
    let circle = PLAN.replace("train: none}", "train: none, from: hm}");
    let specs = plan(&circle).unwrap();
    let lab = Lab {
        trainer: "x".into(),
        audit: "x".into(),
        train: "x".into(),
        test: "x".into(),
        audit_words: vec![],
        seeds: vec![0],
        jobs: 1,
        threads: 1,
        work: "x".into(),
        for_all: String::new(),
        began: Instant::now(),
    };
    let e = lab.make_all(&specs).unwrap_err();
    assert!(e.message.contains("start from each other"), "{e}");
}
