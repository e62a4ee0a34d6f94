//! Reports: every format from one, none of which lets a file's text become code; the schema; the page in a browser.

mod common;
mod report_fixture;

use audit::judge::gate::Rules;
use audit::record::reason::REASONS;
use audit::record::{Report, Severity, Verdict};
use audit::report::{self, FORMATS, Target};
use report_fixture::{NASTY, PIXEL, folder, python, warning};
use std::path::Path;
use std::process::Command;

/// With a verdict: one check passes, one fails.
fn judged() -> Report {
    let mut report = report_fixture::report(0.5);
    let demands = ["ars=1", "ers=99"].map(String::from);
    let rules = Rules::settle(&[], &demands, &[], &[]).unwrap();
    report.gate = Some(Verdict::judge(&report, None, &rules).unwrap());
    report
}

fn rendered(report: &Report, extension: &str) -> String {
    let format = FORMATS.iter().find(|f| f.extension == extension).unwrap();
    String::from_utf8((format.render)(report).unwrap()).unwrap()
}

#[test]
fn json_comes_back_as_it_went() {
    let json = rendered(&judged(), "json");
    assert!(rendered(&Report::parse(&json).unwrap(), "json") == json, "to the last bit");
}

#[test]
fn a_sample_is_stated_wherever_a_person_reads() {
    let mut report = judged();
    assert!(report::terminal::render(&report).contains(&format!("{} queries", report.suite.queries)));
    report.suite.sampling = Some("60 of 900 queries, stratified by class, seed 0".into());
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [report::terminal::render(&report), rendered(&report, "md"), rendered(&report, "html")] {
        assert!(flat(text).contains("60 of 900 queries, stratified by class, seed 0"));
    }
}

#[test]
fn reports_of_a_newer_audit_and_other_files_are_refused_with_words() {
    let newer = rendered(&judged(), "json").replacen("\"schema_version\": 1", "\"schema_version\": 2", 1);
    let error = Report::parse(&newer).unwrap_err();
    assert_eq!(error.exit, audit::Exit::Usage);
    assert!(error.message.contains("newer") && error.message.contains("reads up to 1"), "{error}");
    for other in ["", "{}", "[1]", "not json", "{\"schema_version\": 1}"] {
        assert_eq!(Report::parse(other).unwrap_err().exit, audit::Exit::Usage, "{other}");
    }
}

#[test]
fn the_files_ending_chooses_the_format() {
    let dir = folder("endings");
    for (name, known) in [
        ("a.json", true),
        ("a.junit.xml", true),
        ("A.SARIF", true),
        ("a.b.html", true),
        ("a.xml", false),
        ("json", false),
    ] {
        match Target::open(&dir.join(name)) {
            Ok(target) => {
                assert!(known, "{name}");
                target.write(&judged()).unwrap();
                assert!(dir.join(name).is_file());
            }
            Err(e) => assert!(!known && e.message.contains(".junit.xml"), "{name}: {e}"),
        }
    }
    let left = std::fs::read_dir(&dir).unwrap().flatten();
    assert!(left.map(|e| e.file_name()).all(|n| !n.to_string_lossy().contains("partial")));
    let nowhere = Target::open(&dir.join("none/a.json")).err().unwrap();
    assert!(nowhere.message.contains("Make the folder"), "{nowhere}");
}

#[test]
fn text_from_files_stays_text() {
    let report = judged();
    for format in ["html", "junit.xml", "md"] {
        let text = rendered(&report, format);
        assert!(!text.contains("<script"), "{format}");
        assert!(text.contains("&lt;script"), "{format}: the text is to be shown, not dropped");
        assert!(!text.contains('\u{1}'), "{format}");
    }
    let page = rendered(&report, "html");
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("@import"),
        "no network"
    );
    let mut broken = judged();
    let examples = broken.examples.as_mut().unwrap();
    examples.trials[0].clean = format!("{PIXEL}\" onerror=\"x");
    assert!(!rendered(&broken, "html").contains("onerror"));
    // A cell stays in its row: no raw line break or bar.
    for line in rendered(&report, "md").lines().filter(|l| l.starts_with('|')) {
        assert!(line.ends_with('|'), "{line}");
    }
}

#[test]
fn a_schema_is_published_and_reports_follow_it() {
    let dir = folder("schema");
    let (schema, good, bad) = (dir.join("schema.json"), dir.join("good.json"), dir.join("bad.json"));
    std::fs::write(&schema, report::schema().unwrap()).unwrap();
    let json = rendered(&judged(), "json");
    std::fs::write(&good, &json).unwrap();
    std::fs::write(&bad, json.replacen("\"seed\": 0", "\"seed\": \"none\"", 1)).unwrap();
    let program = "import sys, json, jsonschema\n\
        schema = json.load(open(sys.argv[1])); jsonschema.Draft202012Validator.check_schema(schema)\n\
        v = jsonschema.Draft202012Validator(schema)\n\
        print([len(list(v.iter_errors(json.load(open(f))))) for f in sys.argv[2:]])";
    let files = [&schema, &good, &bad].map(|p| p.to_str().unwrap());
    if let Some(errors) = python("jsonschema", program, &files) {
        assert_eq!(errors.trim(), "[0, 1]");
    }
}

/// What an audit of a bundled model on generated images writes: the schema holds for it, and the page shows examples.
#[test]
fn a_real_audit_follows_the_schema_and_shows_examples() {
    common::load_runtime();
    let dir = folder("real");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/hardened.onnx");
    let at = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let (json, html) = (at("r.json"), at("r.html"));
    let library = std::env::var("ORT_DYLIB_PATH").unwrap_or_else(|_| {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("../onnxruntime").to_str().unwrap().into()
    });
    let flags = ["--suite", "smoke", model, "-q", "--ort-lib", &library, "-o", &json, "-o", &html];
    let (code, _, stderr) = report_fixture::audit(&flags);
    assert_eq!(code, 0, "{stderr}");
    let report = Report::load(Path::new(&json)).unwrap();
    let examples = report.examples.unwrap();
    assert_eq!(examples.trials.len(), 6);
    for e in &examples.trials {
        assert_eq!((e.nearest_before.len(), e.nearest_after.len()), (5, 5));
        assert_eq!(
            e.losses.len(),
            report.outcomes.iter().find(|o| o.query == e.query && o.attack == e.attack).unwrap().steps + 1
        );
        let shown = e.nearest_before.iter().chain(&e.nearest_after);
        assert!(shown.into_iter().all(|n| examples.thumbnails.contains_key(&n.id)));
    }
    assert!(!examples.map.queries.is_empty() && examples.map.gallery.len() > 100);
    let schema = dir.join("schema.json");
    std::fs::write(&schema, report::schema().unwrap()).unwrap();
    let program = "import sys, json, jsonschema\n\
        jsonschema.Draft202012Validator(json.load(open(sys.argv[1]))).validate(json.load(open(sys.argv[2])))";
    python("jsonschema", program, &[schema.to_str().unwrap(), &json]);
}

#[test]
fn machines_read_junit_sarif_and_csv() {
    let dir = folder("machines");
    let report = judged();
    for extension in ["junit.xml", "sarif", "csv"] {
        std::fs::write(dir.join(format!("r.{extension}")), rendered(&report, extension)).unwrap();
    }
    let program = r#"
import sys, csv, json, xml.etree.ElementTree as E
d = sys.argv[1]
root = E.parse(d + '/r.junit.xml').getroot()
cases = root.findall('.//testcase')
assert int(root.get('tests')) == len(cases) == 13, len(cases)
assert int(root.get('failures')) == len(root.findall('.//failure')) == 1
log = json.load(open(d + '/r.sarif'))
# What the schema of SARIF 2.1.0 requires: version and runs; of a run its tool's driver with a name; of a result a
# message; of levels one of four; URIs that are references.
assert log['version'] == '2.1.0' and log['$schema'].endswith('sarif-2.1.0.json') and len(log['runs']) == 1
run = log['runs'][0]
assert run['tool']['driver']['name'] == 'audit'
for r in run['results']:
    assert isinstance(r['message']['text'], str) and r['level'] in ('none', 'note', 'warning', 'error')
    place = r['locations'][0]['physicalLocation']
    assert place['region']['startLine'] >= 1 and ' ' not in place['artifactLocation']['uri']
assert all(isinstance(r['shortDescription']['text'], str) for r in run['tool']['driver']['rules'])
ids = [r['ruleId'] for r in run['results']]
assert ids == ['gate/ers/min', 'trust/a-warning'], ids
for r in run['results']:
    assert run['tool']['driver']['rules'][r['ruleIndex']]['id'] == r['ruleId']
    assert len(r['partialFingerprints']['auditFinding/v1']) == 64
    assert '<' not in r['locations'][0]['physicalLocation']['artifactLocation']['uri']
rows = list(csv.DictReader(open(d + '/r.csv', newline='')))
assert len(rows) == 9 * 60 + 1 and None not in rows[0] and None not in rows[-1].values()
assert {r['status'] for r in rows} == {'run', 'skipped: alone, in its class'}
assert rows[0]['query'] == 'class/00' + sys.argv[2], rows[0]['query']
print('read')
"#;
    if let Some(said) = python("csv", program, &[dir.to_str().unwrap(), NASTY]) {
        assert_eq!(said.trim(), "read");
    }
}

/// The table of trials as Parquet, read back by the crate's own generic reader: the same rows as in CSV, with types.
#[test]
fn parquet_holds_the_rows_of_csv() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let report = judged();
    let file = folder("parquet").join("r.parquet");
    Target::open(&file).unwrap().write(&report).unwrap();
    let reader = SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap();
    let csv = rendered(&report, "csv");
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), report.outcomes.len() + report.skipped.len());
    let text = |s: &str| Field::Str(s.into());
    for (i, row) in rows.iter().enumerate() {
        let fields: std::collections::HashMap<&str, &Field> =
            row.get_column_iter().map(|(name, field)| (name.as_str(), field)).collect();
        assert_eq!(row.get_column_iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), header);
        let optional = |v: Option<f64>| v.map_or(Field::Null, Field::Double);
        let flag = |v: Option<bool>| v.map_or(Field::Null, Field::Bool);
        let Field::ListInternal(targets) = fields["targets"] else {
            panic!("a list: {:?}", fields["targets"])
        };
        let Some(o) = report.outcomes.get(i) else {
            let skipped = &report.skipped[i - report.outcomes.len()];
            assert_eq!(*fields["status"], text(&format!("skipped: {}", skipped.why)));
            assert_eq!((fields["query"], targets.elements().len()), (&text(&skipped.query), 0));
            assert!(
                ["loss_first", "steps", "linf", "hit_after"].iter().all(|name| *fields[name] == Field::Null)
            );
            continue;
        };
        assert_eq!(targets.elements(), o.targets.iter().map(|t| text(t)).collect::<Vec<_>>());
        for (name, expected) in [
            ("attack", text(&o.attack)),
            ("query", text(&o.query)),
            ("status", text("run")),
            ("start", Field::Long(o.start as i64)),
            ("steps", Field::Long(o.steps as i64)),
            ("loss_first", Field::Double(o.loss_first)),
            ("loss_last", Field::Double(o.loss_last)),
            ("shift", Field::Double(o.shift)),
            ("linf", Field::Float(o.linf)),
            ("rank_before", optional(o.before.rank)),
            ("rank_after", optional(o.after.rank)),
            ("cosine_before", optional(o.before.cosine)),
            ("cosine_after", optional(o.after.cosine)),
            ("hit_before", flag(o.before.hit)),
            ("hit_after", flag(o.after.hit)),
            ("retained_before", flag(o.before.retained)),
            ("retained_after", flag(o.after.retained)),
        ] {
            assert_eq!(*fields[name], expected, "row {i}, {name}");
        }
    }
}

#[test]
fn other_programs_read_parquet() {
    let dir = folder("parquet-read");
    let report = judged();
    for extension in ["parquet", "json"] {
        let format = FORMATS.iter().find(|f| f.extension == extension).unwrap();
        std::fs::write(dir.join(format!("r.{extension}")), (format.render)(&report).unwrap()).unwrap();
    }
    // (module, how it makes a list of rows as dictionaries)
    for (module, rows) in [
        (
            "duckdb",
            "(lambda t: [dict(zip(t.columns, row)) for row in t.fetchall()])(duckdb.read_parquet(path))",
        ),
        ("polars", "polars.read_parquet(path).to_dicts()"),
        ("pandas", "pandas.read_parquet(path, dtype_backend='pyarrow').to_dict('records')"),
    ] {
        let program = format!(
            r#"
import json, sys, {module}
path = sys.argv[1] + '/r.parquet'
rows, report = {rows}, json.load(open(sys.argv[1] + '/r.json'))
nothing = lambda v: v is None or v != v or str(v) == '<NA>'
assert len(rows) == len(report['outcomes']) + len(report['skipped']), len(rows)
for row, o in zip(rows, report['outcomes']):
    assert (row['attack'], row['query'], list(row['targets'])) == (o['attack'], o['query'], o['targets']), row
    assert (row['steps'], row['loss_last'], row['status']) == (o['steps'], o['loss_last'], 'run'), row
    for when in ('before', 'after'):
        for what in ('rank', 'cosine', 'hit', 'retained'):
            found, expected = row[what + '_' + when], o[when].get(what)
            assert nothing(found) if expected is None else found == expected, (what, row, o)
assert rows[-1]['status'].startswith('skipped') and nothing(rows[-1]['shift']) and len(rows[-1]['targets']) == 0
print('read')
"#
        );
        if let Some(said) = python(module, &program, &[dir.to_str().unwrap()]) {
            assert_eq!(said.trim(), "read", "{module}");
        }
    }
}

#[test]
fn the_same_finding_has_the_same_fingerprint_whatever_its_numbers() {
    let prints = |strength: f64| -> Vec<String> {
        let mut report = report_fixture::report(strength);
        let rules = Rules::settle(&[], &["ars=99".into()], &[], &[]).unwrap();
        report.gate = Some(Verdict::judge(&report, None, &rules).unwrap());
        let log: serde_json::Value = serde_json::from_str(&rendered(&report, "sarif")).unwrap();
        let results = log["runs"][0]["results"].as_array().unwrap().clone();
        results.iter().map(|r| r["partialFingerprints"].to_string()).collect()
    };
    assert_eq!(prints(0.4), prints(0.6));
}

/// However much there is to say, a pull request's comment takes it.
#[test]
fn markdown_fits_a_comment() {
    let mut report = judged();
    let long = "a_b&c ".repeat(20_000);
    report.warnings = REASONS.iter().map(|r| r.warning(long.clone())).collect();
    report.scores.notes = vec![long.clone(); 2];
    report.model.path = long.clone();
    report.data.source = long;
    let text = rendered(&report, "md");
    assert!(text.chars().count() < 65_536, "{}", text.chars().count());
    assert!(text.contains("duplicates") && text.contains("sha256"), "nothing is left out whole");
}

/// docs/trust.md has a row for each reason to distrust a result, with when it is looked for, and for nothing else.
#[test]
fn the_page_on_trust_lists_every_reason() {
    let page = include_str!("../docs/trust.md");
    let rows = page.lines().skip_while(|l| !l.starts_with("| check | made |")).skip(2);
    let mut listed: Vec<(&str, &str)> = rows
        .take_while(|l| l.starts_with('|'))
        .flat_map(|row| {
            let mut cells = row.split('|').skip(1).map(str::trim);
            let (ids, when) = (cells.next().unwrap(), cells.next().unwrap());
            ids.split(", ").map(move |id| (id, when))
        })
        .collect();
    let mut known: Vec<(&str, &str)> = REASONS.iter().map(|r| (r.id, r.when)).collect();
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known);
}

/// Each check looks for a reason of its own, in the order of the table.
#[test]
fn checks_and_reasons_belong_together() {
    let checked: Vec<&str> = audit::judge::check::CHECKS.iter().map(|c| c.reason.id).collect();
    let known: Vec<&str> = REASONS.iter().map(|r| r.id).collect();
    assert_eq!(checked, known[..checked.len()]);
}

/// The order in which a reader asks.
#[test]
fn the_page_answers_in_order() {
    let page = rendered(&judged(), "html");
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("no {what}"));
    let order = [
        "How robust is it?",
        "Can I trust it?",
        "Where is it weak?",
        "Show me",
        "Where do the embeddings go?",
        "How was it measured?",
    ];
    assert!(order.windows(2).all(|w| at(w[0]) < at(w[1])));
    // A loss curve and five images before and after for the one trial.
    assert_eq!((page.matches("class=\"loss\"").count(), page.matches("<i>✓</i>").count()), (1, 5));
    assert!(page.matches("class=\"miss").count() == 5 && page.contains("difference ×1.7"));
    let said = r"command";
    assert!(page.to_lowercase().contains(said) && page.contains(&"ab".repeat(32)));
}

/// What the terminal shows keeps to its width, and names the gravest first.
#[test]
fn the_terminal_is_kept_to() {
    let mut report = judged();
    report.model.path = "models/a.onnx".into();
    report.data.source = "images".into();
    report.warnings = vec![
        warning("a-note", "info", &"worth knowing ".repeat(20)),
        warning("a-warning", "warning", &"worth minding ".repeat(20)),
        warning("an-error", "error", &"fatal ".repeat(30)),
    ];
    for width in [80, 200] {
        let text = report::terminal::render_in(&report, width);
        assert!(text.lines().all(|l| l.chars().count() <= width), "{width}\n{text}");
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what}"));
        assert!(text.starts_with("!! Not to be trusted"));
        assert!(at("error [") < at("warning [") && at("warning [") < at("note ["));
        let findings: Vec<_> = REASONS
            .iter()
            .map(|r| r.finding((Severity::Warning, "something was found here, as it happens".into())))
            .collect();
        let table = report::terminal::findings_in(&findings, width);
        assert!(table.lines().all(|l| l.chars().count() <= width), "{width}\n{table}");
        assert!(findings.iter().all(|f| table.contains(&f.check)), "{table}");
    }
}

/// Two reports compared, as a page.
fn comparison(dir: &Path) -> String {
    let files = [0.5, 0.3].map(|strength| {
        let mut report = report_fixture::report(strength);
        report.model.path = format!("models/a_rather_long_name-of-a-model-checkpoint-{strength}.onnx");
        let file = dir.join(format!("{strength}.json"));
        std::fs::write(&file, rendered(&report, "json")).unwrap();
        file
    });
    let comparison = audit::judge::compare::compare(&files, None, false).unwrap();
    String::from_utf8(report::html::comparison(&comparison).unwrap()).unwrap()
}

/// Opens the pages at the widths of a phone and of a desktop: nothing overflows, every picture loads, the console stays
/// empty.
#[test]
fn the_pages_open_in_a_browser() {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let Some(browser) = names.iter().find(works) else {
        eprintln!("skipped: needs Chromium");
        return;
    };
    let dir = folder("browser");
    let escape = report::escape::markup;
    let mut alarming = judged();
    alarming.warnings.push(warning("an-error", "error", NASTY));
    let pages = [("audit", rendered(&alarming, "html"), 13), ("compare", comparison(&dir), 0)];
    for ((name, page, images), width) in pages.iter().flat_map(|page| [(page, 400), (page, 1400)]) {
        // In a frame: a window can't be as narrow as a phone.
        let frame = escape(page);
        let wrapper = format!(
            "<!doctype html><html><body><iframe style=\"border:0;width:{width}px;height:900px\" srcdoc=\"{frame}\"></iframe>\
             <script>addEventListener('load', () => {{ const page = document.querySelector('iframe').contentDocument;\
             const images = [...page.images]; document.body.innerHTML = '<p>' + [images.length, images.filter(i => \
             i.naturalWidth == 0).length, page.documentElement.scrollWidth > {width}, page.scripts.length].join(' ') + '</p>' }})\
             </script></body></html>"
        );
        let path = dir.join(format!("{name}{width}.html"));
        std::fs::write(&path, wrapper).unwrap();
        let profile = format!("--user-data-dir={}", dir.join(format!("profile-{name}{width}")).display());
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--dump-dom",
            &profile,
        ];
        let done =
            Command::new(browser).args(flags).arg(format!("file://{}", path.display())).output().unwrap();
        let dom = String::from_utf8_lossy(&done.stdout);
        let log = String::from_utf8_lossy(&done.stderr);
        assert!(!log.contains("CONSOLE"), "{log}");
        let expected = format!("<p>{images} 0 false 0</p>");
        assert!(dom.contains(&expected), "{name} at {width}: pictures, broken, too wide, scripts: {dom}");
    }
}
