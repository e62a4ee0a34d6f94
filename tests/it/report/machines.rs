//! Formats that programs read: JSON, SARIF, CSV, Parquet, trackers, statements.

use super::*;

/// Attacks along the gradient of another model are none along the audited model's, and black-box attacks are
/// none either. The strong search is.
#[test]
fn catalogues_are_referred_to_for_what_was_done() {
    let along = |report: &Report| {
        let text = rendered(report, "md");
        ["AML.T0043.000", "AML.T0043.002"].map(|id| text.contains(id))
    };
    let mut report = judged();
    assert_eq!(along(&report), [true, false]);
    report.suite.surrogate =
        Some(Surrogate { path: "s.onnx".into(), sha256: "ab".repeat(32), ..Surrogate::default() });
    assert_eq!(along(&report), [false, true]);
    report.suite.surrogate = None;
    report.suite.forward_passes = Some(100);
    assert_eq!(along(&report), [false, false]);
    add_strong_search(&mut report);
    assert_eq!(along(&report), [true, false]);
}

#[test]
#[ignore = "needs Python with jsonschema"]
fn a_schema_is_published_and_reports_follow_it() {
    let dir = Temp::new();
    let flags = ["--suite", "smoke", "-q", "--max-queries", "4", "--pictures", "-o", "real.json"];
    ran(program(&dir).args(flags).arg(bundled("hardened.onnx"))).ended(0);
    let schema = dir.write("schema.json", report::schema().unwrap());
    let json = rendered(&judged(), "json");
    let good = dir.write("good.json", &json);
    let bad = dir.write("bad.json", json.replacen("\"seed\": 0", "\"seed\": \"none\"", 1));
    let program = "import sys, json, jsonschema\n\
        schema = json.load(open(sys.argv[1])); jsonschema.Draft202012Validator.check_schema(schema)\n\
        v = jsonschema.Draft202012Validator(schema)\n\
        print([len(list(v.iter_errors(json.load(open(f))))) for f in sys.argv[2:]])";
    let files = [schema, dir.join("real.json"), good, bad].map(|path| path.display().to_string());
    assert_eq!(python("jsonschema", program, &files.each_ref().map(|path| path.as_str())), "[0, 0, 1]\n");
}

#[test]
#[ignore = "needs Python with csv, json, xml"]
fn machines_read_junit_sarif_and_csv() {
    let dir = Temp::new();
    let report = judged();
    for extension in ["junit.xml", "sarif", "csv"] {
        dir.write(&format!("r.{extension}"), rendered(&report, extension));
    }
    let program = include_str!("machines.py");
    assert_eq!(python("csv, json, xml", program, &[dir.to_str().unwrap(), NASTY]), "read\n");
}

/// Code scanning shows `[text](address)` of a message as a link.
#[test]
fn names_are_no_links_in_sarif() {
    let mut report = judged();
    report.model.path = "models/[safe](1).onnx".into();
    report.warnings.push(warning("a-name", "warning", "see [x](1)"));
    let log = as_json(&report, "sarif");
    let results = log["runs"][0]["results"].as_array().unwrap();
    let texts: Vec<&str> = results.iter().map(|r| r["message"]["text"].as_str().unwrap()).collect();
    assert!(texts.iter().all(|text| !text.contains("](")), "{texts:?}");
    assert!(texts.iter().any(|text| text.ends_with("see [x] (1)")), "{texts:?}");
}

/// A finding that --allow-untrusted accepts fails nothing: it is a warning in code scanning, in attestations
/// and in the results of tests.
#[test]
fn accepted_findings_are_warnings_everywhere() {
    let mut report = fixture(0.5);
    report.gate = None;
    report.warnings = vec![warning("parity", "error", "found")];
    for (allowed, level, result, failures) in [(false, "error", "FAILED", 1), (true, "warning", "WARNED", 0)]
    {
        report.allow_untrusted = allowed;
        let log = as_json(&report, "sarif");
        assert_eq!(log["runs"][0]["results"][0]["level"], level);
        let statement = as_json(&report, "intoto.json");
        assert_eq!(statement["predicate"]["result"], result);
        let cases = rendered(&report, "junit.xml");
        assert_eq!(cases.matches("<failure type=\"untrusted\"").count(), failures, "{cases}");
    }
}

/// For every rule of a gate and every finding of a check, code scanning shows what to do and links its
/// definition.
#[test]
fn every_rule_of_sarif_has_help_and_an_address() {
    let mut report = fixture(0.5);
    report.warnings = REASONS.iter().map(|r| r.warning("found")).collect();
    let rules = Rules::settle(&[], &["ars=99".into()], &[], &[]).unwrap();
    let mut verdict = Verdict::judge(&report, None, &rules).unwrap();
    let check = verdict.checks.remove(0);
    for quantity in Quantity::all() {
        verdict.checks.push(audit::record::GateCheck { metric: quantity.name.into(), ..check.clone() });
    }
    report.gate = Some(verdict);
    let log = as_json(&report, "sarif");
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), REASONS.len() + Quantity::all().len());
    for rule in rules {
        let help = rule["help"]["text"].as_str().unwrap();
        assert!(help.len() > 40 && help.contains("docs/") && !help.contains("?."), "{rule}");
        let address = rule["helpUri"].as_str().unwrap();
        let (host, page) = address.strip_prefix("https://").unwrap().split_once('/').unwrap();
        assert!(host.contains('.') && !page.is_empty(), "{rule}");
        assert!(address.is_ascii() && !address.contains(char::is_whitespace), "{rule}");
    }
    let of = |id: &str| rules.iter().find(|r| r["id"] == id).unwrap_or_else(|| panic!("no rule {id}"));
    let uri = |id: &str| of(id)["helpUri"].clone();
    // Zhou et al. (ECCV 2020) define CA, Athalye et al. (ICML 2018) name masked gradients, Tian et al. (ICML
    // 2024) define ARS.
    assert_eq!(uri("gate/attack.CA+/min"), "https://arxiv.org/abs/2002.11293");
    assert_eq!(uri("trust/masked-gradients"), "https://arxiv.org/abs/1802.00420");
    assert_eq!(uri("gate/ars/min"), "https://arxiv.org/abs/2312.07364");
    let collapse = of("trust/collapse");
    assert_eq!(collapse["name"], "TrustCollapse");
    assert!(collapse["help"]["text"].as_str().unwrap().contains("preprocessing"), "{collapse}");
}

#[test]
fn trackers_get_flat_numbers() {
    let mut report = judged();
    let flat = as_json(&report, "metrics.json");
    for (name, value) in flat.as_object().unwrap() {
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
        assert!(value.is_number(), "{name}");
    }
    let ars = report.scores.ars.clone().unwrap();
    assert_eq!(flat["ars"], ars.value);
    assert_eq!([&flat["ars_low"], &flat["ars_high"]], [ars.interval.unwrap().0, ars.interval.unwrap().1]);
    assert_eq!(flat["benign_r1"], report.benign.as_ref().unwrap().r1);
    assert_eq!(flat["gate_passed"], 0, "one check fails");
    assert!(flat.get("robust_r1").is_none(), "not measured, which is not 0");
    report.gate = None;
    let flat = as_json(&report, "metrics.json");
    assert!(flat.get("gate_passed").is_none());
}

/// The names of fields and results are those of in-toto's predicate test-result v0.1.
#[test]
fn a_statement_says_what_passed_and_failed() {
    let mut report = judged();
    let statement = |report: &Report| -> serde_json::Value { as_json(report, "intoto.json") };
    let found = statement(&report);
    assert_eq!(found["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(found["subject"][0]["digest"]["sha256"], report.model.sha256.as_str());
    assert_eq!(found["predicate"]["result"], "FAILED");
    assert_eq!(found["predicate"]["passedTests"], serde_json::json!(["gate/ars/min"]));
    let failed = found["predicate"]["failedTests"].as_array().unwrap();
    assert!(failed.contains(&"gate/ers/min".into()));
    report.gate = None;
    report.warnings.clear();
    let found = statement(&report);
    // Without a passed test it must not say that tests passed.
    assert_eq!(found["predicate"]["result"], "WARNED");
    assert_eq!(found["predicate"]["warnedTests"], serde_json::json!(["gate/none"]));
    for tests in ["passedTests", "failedTests"] {
        assert_eq!(found["predicate"][tests], serde_json::json!([]), "{tests}");
    }
    report.warnings.push(audit::record::reason::FEW_QUERIES.warning("3 queries"));
    let found = statement(&report);
    assert_eq!(found["predicate"]["result"], "WARNED");
    assert_eq!(found["predicate"]["warnedTests"], serde_json::json!(["gate/none", "trust/few-queries"]));
}

/// Catalogues are named beside findings, each where it applies.
#[test]
fn references_follow_from_what_ran() {
    let mut report = judged();
    let tags = |report: &Report| {
        let log = as_json(report, "sarif");
        log["runs"][0]["tool"]["driver"]["rules"][0]["properties"]["tags"].to_string()
    };
    assert!(tags(&report).contains("mitre-atlas-aml.t0043.000") && tags(&report).contains("c3.2.2"));
    assert!(!tags(&report).contains("aml.t0043.001"), "nothing was attacked without gradients");
    report.warnings.push(audit::record::reason::GRADIENT_ESTIMATED.warning("estimated"));
    assert!(tags(&report).contains("aml.t0043.001") && !tags(&report).contains("aml.t0043.000"));
    let page = rendered(&report, "md");
    assert!(page.contains("no statement of compliance") && page.contains("E2025"));
    report.gate = None;
    assert!(!rendered(&report, "md").contains("C3.2.2"), "nothing was demanded");
}

/// Every column has its row in docs/formats.md, in the order of the file.
#[test]
fn columns_are_documented() {
    let page = include_str!("../../../docs/formats.md");
    let section = page.split("## The table of trials").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|l| l.starts_with("| `"));
    let documented: Vec<&str> =
        rows.flat_map(|l| l.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect();
    let csv = rendered(&judged(), "csv");
    assert_eq!(documented, csv.lines().next().unwrap().split(',').collect::<Vec<_>>());
}

/// Columns without any value have a type too: text and lists have no gaps, and the others are numbers.
#[test]
fn no_column_leaves_its_type_open() {
    use parquet::basic::Type;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let dir = Temp::new();
    let mut report = judged();
    report.outcomes.retain(|o| o.attack == "CA+");
    let file = dir.join("r.parquet");
    Target::open(&file).unwrap().write(&report).unwrap();
    let reader = SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    let numbers = [Type::INT64, Type::DOUBLE, Type::FLOAT];
    for leaf in schema.columns() {
        let kind = leaf.physical_type();
        assert!(kind == Type::BYTE_ARRAY || numbers.contains(&kind), "{}", leaf.name());
    }
    let gap = |name: &str| {
        let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
        let null = |row: &parquet::record::Row| {
            row.get_column_iter().any(|(n, field)| n == name && *field == parquet::record::Field::Null)
        };
        rows.filter(null).count()
    };
    assert_eq!(["model", "data", "attack", "query", "query_label", "status"].map(gap), [0; 6]);
    assert!(gap("hit_after") > 0);
}

#[test]
#[ignore = "needs Python with duckdb"]
fn duckdb_reads_parquet() {
    let rows = "[dict(zip(t.columns, row)) for t in [duckdb.read_parquet(path)] for row in t.fetchall()]";
    parquet_is_read_by("duckdb", rows);
}

#[test]
#[ignore = "needs Python with polars"]
fn polars_reads_parquet() {
    parquet_is_read_by("polars", "polars.read_parquet(path).to_dicts()");
}

#[test]
#[ignore = "needs Python with pandas, pyarrow"]
fn pandas_reads_parquet() {
    let rows = "pandas.read_parquet(path, dtype_backend='pyarrow').to_dict('records')";
    parquet_is_read_by("pandas, pyarrow", rows);
}

/// `rows` makes a list of rows as dictionaries.
fn parquet_is_read_by(modules: &str, rows: &str) {
    let dir = Temp::new();
    let report = judged();
    for extension in ["parquet", "json"] {
        let format = FORMATS.iter().find(|f| f.extension == extension).unwrap();
        dir.write(&format!("r.{extension}"), (format.render)(&report).unwrap());
    }
    let program = format!(
        r#"
import json, sys, {modules}
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
    assert_eq!(python(modules, &program, &[dir.to_str().unwrap()]), "read\n");
}

#[test]
fn the_same_finding_has_the_same_fingerprint_whatever_its_numbers() {
    let prints = |strength: f64| -> Vec<String> {
        let mut report = fixture(strength);
        let rules = Rules::settle(&[], &["ars=99".into()], &[], &[]).unwrap();
        report.gate = Some(Verdict::judge(&report, None, &rules).unwrap());
        let log = as_json(&report, "sarif");
        let results = log["runs"][0]["results"].as_array().unwrap().clone();
        results.iter().map(|r| r["partialFingerprints"].to_string()).collect()
    };
    assert_eq!(prints(0.4), prints(0.6));
}

/// The table of trials as Parquet, read back by the crate's own generic reader: the same values as in CSV,
/// with types.
#[test]
fn parquet_holds_the_rows_of_csv() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};
    let mut report = named(judged());
    report.skipped[0].why = "alone".into();
    report.labels = report.outcomes.iter().map(|o| (o.query.clone(), "class/a".to_string())).collect();
    // For every second trial it is known what the query finds; for every fourth, the cluster too.
    for (i, o) in report.outcomes.iter_mut().enumerate().step_by(2) {
        let cluster = (i % 4 == 0).then_some(i);
        let found = Retrieval { first: true, ap: 0.5, ap_at_r: 0.25, at_c: 0.125, cluster };
        o.before.retrieval = Some(found);
        o.after.retrieval = Some(Retrieval { first: false, ap: 0.25, ..found });
    }
    let dir = Temp::new();
    let file = dir.join("r.parquet");
    Target::open(&file).unwrap().write(&report).unwrap();
    let reader = SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap();
    let cell = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::ListInternal(all) => {
            all.elements().iter().map(|e| e.to_string().replace('"', "")).collect::<Vec<_>>().join(";")
        }
        Field::Long(n) => n.to_string(),
        Field::Float(v) => v.to_string(),
        Field::Double(v) => v.to_string(),
        other => panic!("{other:?}"),
    };
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let head = rows[0].get_column_iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(",");
    let line = |row: &Row| row.get_column_iter().map(|(_, field)| cell(field)).collect::<Vec<_>>().join(",");
    let all: Vec<String> = std::iter::once(head).chain(rows.iter().map(line)).collect();
    let csv = rendered(&report, "csv");
    assert_eq!(all, csv.lines().collect::<Vec<_>>());
    // One trial of each attack, and the skipped ones.
    let some = (0..all.len()).filter(|i| [0, 541].contains(i) || i % 60 == 3).map(|i| all[i].as_str());
    insta::assert_snapshot!("table_of_trials", some.collect::<Vec<_>>().join("\n"));
}
