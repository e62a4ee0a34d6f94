//! `audit sweep`: each point is the audit with the same settings, and an interrupted sweep is resumed.

use crate::common::models::stage;
use crate::common::transcript::{Transcript, readable};
use crate::common::{Ran, Temp, bundled, one_line, run, says, words};
use audit::command::Command;
use audit::feature::sweep;
use audit::feature::sweep::{Sweep, SweepPoint};
use audit::judge::row::Mark;
use audit::record::{Report, Verification};
use std::collections::BTreeMap;

const SUITE: &str = "form: corrected\nattacks: [CA+, QA+, ES, GTT]\nsteps: 3\n";
/// A sweep as a user starts it.
fn program_swept(dir: &Temp, flags: &str) -> Ran {
    run(dir, words(&format!("sweep model.onnx --suite suite.yaml --data data {flags}")))
}

/// A small model, 6 classes of 5 images, and a suite.
fn bench() -> Temp {
    let dir = stage(6, 5);
    dir.write("suite.yaml", SUITE);
    dir
}

/// The flags of a sweep over `over` in a folder.
fn swept(dir: &Temp, more: &[&str]) -> audit::Result<Sweep> {
    let path = |name: &str| dir.join(name).display().to_string();
    let files = [path("model.onnx"), path("suite.yaml"), path("data")];
    let line = ["audit", "sweep", &files[0], "--suite", &files[1], "--data", &files[2], "-q"];
    let Some(Command::Sweep(args)) = crate::common::cli(&[&line[..], more].concat()).command else {
        panic!("no sweep")
    };
    sweep::run(&crate::common::here(args.request()?), &args.over)
}

fn audited(dir: &Temp, more: &[&str]) -> Report {
    let path = |name: &str| dir.join(name).display().to_string();
    let files = [path("model.onnx"), path("suite.yaml"), path("data")];
    let line = [&files[0], "--suite", &files[1], "--data", &files[2]];
    crate::common::audit(&[&line[..], more].concat()).unwrap()
}

/// The fields that a point and an audit share, with the findings and robust R@1.
macro_rules! numbers {
    ($of:expr) => {
        serde_json::json!([$of.suite, $of.attacks, $of.retrieval, $of.smallest, $of.scores, $of.warnings])
    };
}

#[test]
fn every_point_is_the_audit_with_its_settings() {
    let dir = bench();
    let found = swept(&dir, &["--over", "eps=2/255,0.1", "--over", "steps=1,4"]).unwrap();
    assert_eq!((found.axes.join(" "), found.points.len()), ("eps steps".into(), 4));
    assert_eq!(found.points[1].at, ["2/255", "4"]);
    assert!((found.points[1].place[0] - 2.0 / 255.0).abs() < 1e-8 && found.points[1].place[1] == 4.0);
    for point in &found.points {
        let alone = audited(&dir, &["--eps", &point.at[0], "--steps", &point.at[1]]);
        assert_eq!(numbers!(point), numbers!(alone), "{:?}", point.at);
        // QA+, ES, GTT and the strong search move queries.
        assert_eq!((point.retrieval.len(), point.smallest.is_none()), (4, true));
        assert_eq!(point.scores.robust_r1.as_ref().unwrap().queries, 30, "all that there are");
        let ids: Vec<&str> = point.warnings.iter().map(|w| w.id.as_str()).collect();
        assert!(ids.contains(&"few-queries"), "{ids:?}");
    }
    let off = swept(&dir, &["--over", "eps=2/255", "--strong-sample", "off"]).unwrap();
    assert!(off.points[0].scores.robust_r1.is_none() && off.points[0].retrieval.len() == 3);
    // Targets and starts are no flags of an audit; a suite states them.
    let found = swept(&dir, &["--over", "m=1,3", "--over", "w=2", "--over", "restarts=0,1"]).unwrap();
    let suite = SUITE.replace("CA+, QA+", "CA+ w=2, QA+ m=3") + "restarts: 1\n";
    dir.write("suite.yaml", suite);
    let alone = audited(&dir, &[]);
    let last = found.points.last().unwrap();
    assert_eq!(last.at, ["3", "2", "1"]);
    assert_eq!(numbers!(last), numbers!(alone));
    assert_ne!(numbers!(last), numbers!(found.points[0]));
    // The smallest perturbations, at two values of the largest ε.
    dir.write("suite.yaml", "form: corrected\nattacks: [MIN]\nschedule: bisection\nsteps: 40\n");
    for point in &swept(&dir, &["--over", "eps=0.02,0.5"]).unwrap().points {
        let alone = audited(&dir, &["--eps", &point.at[0]]);
        assert_eq!(numbers!(point), numbers!(alone), "{:?}", point.at);
        assert!(point.smallest.as_ref().is_some_and(|s| s.most == point.place[0] as f32));
    }
    // Decisions by a threshold. A sweep has no outcomes, and so no groups of single pairs.
    let pairs = "form: corrected\nthreshold: far=0.1\nattacks: [DODGE, IMPERSONATE]\nsteps: 3\n";
    dir.write("suite.yaml", pairs);
    let found = swept(&dir, &["--over", "eps=2/255,0.1"]).unwrap();
    for point in &found.points {
        let alone = audited(&dir, &["--eps", &point.at[0]]).verification.unwrap();
        let expected = Verification { group_of: BTreeMap::new(), ..alone };
        assert_eq!(point.verification.as_ref(), Some(&expected), "{:?}", point.at);
    }
    let clean = found.points[0].verification.as_ref().unwrap();
    let (threshold, tar) = (format!("{:.4}", clean.threshold), format!("{:.1}", clean.tar));
    says(&sweep::terminal(&found), &["threshold", "clean FAR, %", "clean TAR, %", &threshold, &tar]);
}

/// Steps that are too small leave most queries, and the strong search none: ARS is marked, as in a report.
#[test]
fn a_contradicted_score_is_marked() {
    let dir = Temp::new();
    let flags = "--suite ars --max-queries 24 --alpha 0.001 --over steps=32 -q -o s.json -o s.html";
    let done = run(&dir, words(&format!("sweep {:?} {flags}", bundled("plain.onnx")))).ended(0);
    let found: Sweep = serde_json::from_str(&dir.text("s.json")).unwrap();
    let [point] = found.points.as_slice() else { panic!("{} points", found.points.len()) };
    assert_eq!(point.marks.get("ars"), Some(&Mark::Contradicted), "{:?}", point.warnings);
    assert_eq!(point.marks.get("robust_r1"), None);
    says(&done.out, &["), contradicted"]);
    says(&dir.text("s.html"), &["), contradicted"]);
}

/// Queries, trials and starts of each seed are those of `audit --seed`; the table has mean and deviation.
#[test]
fn seeds_vary_and_are_summed_up() {
    let dir = bench();
    let flags = words("--max-queries 12 --over eps=2/255,0.1 --over seed=3,1,2");
    let found = swept(&dir, &flags).unwrap();
    assert_eq!((found.axes.join(" "), found.points.len()), ("eps seed".into(), 6));
    let mut queries = Vec::new();
    for point in &found.points[..3] {
        let alone = audited(&dir, &["--eps", &point.at[0], "--seed", &point.at[1], "--max-queries", "12"]);
        let expected = serde_json::json!([alone.suite, alone.scores, alone.attacks]);
        assert_eq!(serde_json::json!([point.suite, point.scores, point.attacks]), expected, "{:?}", point.at);
        queries.push(alone.outcomes.into_iter().map(|o| o.query).collect::<Vec<_>>());
    }
    assert!(queries[0] != queries[1] || queries[0] != queries[2], "{queries:?}");
    assert_ne!(serde_json::json!(found.points[0].attacks), serde_json::json!(found.points[1].attacks));
    let rank = |p: &SweepPoint| p.attacks.iter().find(|a| a.code == "QA+").unwrap().after.unwrap();
    let ranks: Vec<f64> = found.points[..3].iter().map(rank).collect();
    let mean = ranks.iter().sum::<f64>() / 3.0;
    let deviation = (ranks.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    let shown = sweep::terminal(&found);
    says(&shown, &["mean ± standard deviation over the seeds", &format!("{mean:.1} ± {deviation:.1}")]);
    // Without several seeds there is no mean.
    let one = swept(&dir, &["--over", "seed=3", "--strong-sample", "off"]).unwrap();
    assert!(!sweep::terminal(&one).contains("±"), "{}", sweep::terminal(&one));
}

/// The error at the end of what a run printed.
fn error(of: &Ran) -> &str {
    &of.err[of.err.rfind("audit: ").expect("an error")..]
}

/// The lines on points, and on trials that an earlier run finished.
fn resumed(of: &Ran) -> String {
    let told = |line: &&str| line.starts_with("point ") || line.contains("are done already");
    of.err.lines().filter(told).collect::<Vec<_>>().join("\n")
}

/// The second point can't begin, because a folder is at the path of its journal. The first one's trials are
/// kept.
#[test]
fn a_sweep_that_was_broken_off_goes_on() {
    let dir = Transcript::new(bench());
    // Four attacks on 30 queries and no others.
    let run = |out: &str, more: &str| {
        let flags = format!("--strong-sample off --over eps=2/255,8/255 -o {out} --progress plain");
        program_swept(&dir, &format!("{flags} {more}"))
    };
    std::fs::create_dir(dir.join("a.json.journal.2")).unwrap();
    dir.note(error(&run("a.json", "").ended(2)));
    assert!(dir.join("a.json.journal.1").is_file() && !dir.join("a.json").exists());
    std::fs::remove_dir(dir.join("a.json.journal.2")).unwrap();
    dir.note(error(&run("a.json", "")));
    dir.note(&resumed(&run("a.json", "--resume").ended(0)));
    insta::assert_snapshot!(dir.told());
    run("b.json", "").ended(0);
    let lasting = |name: &str| {
        let mut value = dir.json(name);
        value.as_object_mut().unwrap().remove("command");
        value["points"].as_array_mut().unwrap().iter_mut().for_each(|p| {
            p.as_object_mut().unwrap().remove("timing");
        });
        value
    };
    assert_eq!(lasting("a.json"), lasting("b.json"));
    assert!(dir.names().iter().all(|name| !name.contains("journal")), "{:?}", dir.names());
}

/// A grid that was extended at its end is resumed, with one gallery for all points; another grid is refused,
/// and keeps the journals.
#[test]
fn a_grid_that_has_grown_goes_on() {
    let dir = Transcript::new(bench());
    let run = |flags: &str| {
        program_swept(&dir, &format!("--strong-sample off -o a.json --progress plain --over {flags}"))
    };
    std::fs::create_dir(dir.join("a.json.journal.2")).unwrap();
    run("eps=2/255,8/255").ended(2);
    std::fs::remove_dir(dir.join("a.json.journal.2")).unwrap();
    dir.note(error(&run("eps=0.1,2/255 --resume").ended(2)));
    let grown = run("eps=2/255,8/255,0.1 --resume").ended(0);
    dir.note(&resumed(&grown));
    insta::assert_snapshot!(dir.told());
    assert_eq!(grown.err.matches("gallery: 100 %").count(), 1, "{}", grown.err);
    assert_eq!(dir.json("a.json")["points"].as_array().unwrap().len(), 3);
}

#[test]
fn tables_and_curves_are_written() {
    let dir = Transcript::new(bench());
    let files = "-q -o s.html -o s.csv -o s.json";
    let done = program_swept(&dir, &format!("--over eps=2/255,8/255 --over steps=1,2 {files}")).ended(0);
    let (html, csv) = (dir.text("s.html"), dir.text("s.csv"));
    // What was swept, the tables' columns and captions, and the page's lines without numbers.
    let (what, tables) = done.out.split_once("\nwithout an attack: ").unwrap();
    let captions = ["in brackets", "terms under", "what attacked"];
    let about = |line: &&str| line.contains(" eps ") || captions.iter().any(|words| line.starts_with(words));
    let page = readable(&html);
    let measured = |line: &str| line.replace("95 %", "").contains(|c: char| c.is_ascii_digit());
    let text = page.lines().filter(|line| !measured(line));
    dir.note(&one_line(what));
    tables.lines().filter(about).for_each(|line| dir.note(&one_line(line)));
    dir.note(&text.collect::<Vec<_>>().join("\n"));
    insta::assert_snapshot!(dir.told());
    // Robust R@1 and five terms, each with a plot of two curves of two points.
    assert_eq!((html.matches("<polyline").count(), html.matches("<circle").count()), (12, 24));
    let plots: Vec<&str> = html.split("aria-label=\"").skip(1).filter_map(|t| t.split('"').next()).collect();
    let plots: Vec<&str> = plots.into_iter().filter(|name| name.contains(" along ")).collect();
    assert_eq!(plots[0], "R1 along eps");
    says(&html, &["steps=2"]);
    // The plots are 340 wide. A value's name is centred below its position, and its letters are about 6 wide.
    let ends: Vec<f64> = (html.split("<text x=\"").skip(1))
        .filter_map(|text| text.split_once("\" y=\"214\" text-anchor=\"middle\">"))
        .map(|(x, rest)| x.parse::<f64>().unwrap() + 3.0 * rest.split('<').next().unwrap().len() as f64)
        .collect();
    assert!(!ends.is_empty() && ends.iter().all(|end| *end <= 340.0), "{ends:?}");
    assert_eq!(csv.lines().count(), 1 + 4 * 6);
    let found: Sweep = serde_json::from_str(&dir.text("s.json")).unwrap();
    let es = found.points[3].attacks.iter().find(|a| a.code == "ES:D").unwrap();
    let row = csv.lines().find(|line| line.starts_with("8/255,2,ES:D,")).unwrap();
    assert_eq!(row.split(',').nth(5), Some(es.after.unwrap().to_string().as_str()));
    let after = found.points[3].retrieval.iter().find(|r| r.attack == "ES").unwrap().after;
    let robust = found.points[3].scores.robust_r1.as_ref().unwrap();
    let (low, high) = robust.interval.unwrap();
    let within = format!("{:.1} ({:.1} – {:.1})", robust.value, low, high);
    says(tables, &["8/255", &within]);
    says(&html, &[&within]);
    let whole = &found.points[3].suite;
    // Without a suite on pairs there is no threshold.
    let expected = [
        robust.value.to_string(),
        low.to_string(),
        high.to_string(),
        robust.queries.to_string(),
        whole.eps.to_string(),
        whole.alpha.to_string(),
        found.points[3].warnings.iter().map(|w| w.id.as_str()).collect::<Vec<_>>().join(" "),
        String::new(),
        String::new(),
        String::new(),
    ];
    let last: Vec<&str> = row.split(',').skip(15).collect();
    assert_eq!(last, expected.each_ref().map(String::as_str));
    // Every finding of every point is on the page, and its id in the terminal.
    for finding in found.points.iter().flat_map(|p| &p.warnings) {
        says(tables, &[&format!("{} [{}]", finding.word(), finding.id)]);
        says(&html, &[&format!("<code>{}</code>", finding.id)]);
    }
    let cells: Vec<&str> = row.split(',').skip(9).collect();
    let numbers = [after.r1, after.map, after.map_at_r, after.map_at_c, after.nmi.unwrap()];
    assert_eq!(cells[..5], numbers.map(|v| v.to_string()).each_ref().map(String::as_str));
    assert_eq!(cells[5], "", "no search for the smallest perturbations");
    says(tables, &[&format!("{:.1}", after.map_at_c)]);
    says(&html, &[&format!("{:.1}", after.map_at_c)]);
    // The median of the smallest perturbations.
    dir.write("suite.yaml", "form: corrected\nattacks: [MIN]\nschedule: bisection\nsteps: 40\n");
    let flags = "--strong-sample off --over eps=0.0001,0.5 -q -o m.csv -o m.json";
    let done = program_swept(&dir, flags).ended(0);
    let found: Sweep = serde_json::from_str(&dir.text("m.json")).unwrap();
    let median = found.points[1].smallest.as_ref().unwrap().median.unwrap();
    let above = "above 0.0255/255 (95 % above 0.0255/255)";
    let found = format!("{} (95 % ", audit::record::size("linf", median, 2));
    says(&done.out, &["smallest ε, median", above, &found]);
    let ends: Vec<String> =
        dir.text("m.csv").lines().map(|line| line.split(',').nth(13).unwrap().to_string()).collect();
    assert_eq!(ends, ["smallest_median", "", &median.to_string()]);
}

#[test]
fn grids_that_mean_nothing_are_refused() {
    let dir = Transcript::new(bench());
    for flags in [
        "--over eps",
        "--over epsilon=1/255",
        "--over eps=1/255 --over eps=2/255",
        "--over eps=1/255 --eps 2/255",
        "--over eps=2",
        "--over steps=0",
        "--over seed=1.5",
        "--over eps=",
        "--over eps=8/255,8/255",
        "--over seed=1,01",
        "--over eps=1/255,8/255 --alpha 3/255",
    ] {
        let refused = swept(&dir, &words(flags)).unwrap_err();
        assert_eq!(refused.exit, audit::Exit::Usage, "{refused}");
        dir.note(&refused.message);
    }
    dir.write("suite.yaml", "form: corrected\nattacks: [ES]\n");
    dir.note(&swept(&dir, &["--over", "m=2"]).unwrap_err().message);
    dir.write("suite.yaml", "form: corrected\nattacks: [ES]\ncorruptions: [blur]\n");
    dir.note(&swept(&dir, &["--over", "eps=1/255"]).unwrap_err().message);
    // The strong search without `effort`, as in suite robust.
    dir.write("suite.yaml", "form: corrected\nattacks: [R1]\n");
    dir.note(&swept(&dir, &["--over", "steps=1,2"]).unwrap_err().message);
    insta::assert_snapshot!(dir.told());
}
