//! What earlier versions wrote is still read, and a refusal doesn't call it edited.

use crate::common::{models, run, says, words};
use crate::report_fixture::{add_strong_search, report};
use audit::Exit;
use audit::data::embedded::Embedded;
use audit::judge::gate::Rules;
use audit::judge::strong;
use audit::record::{Enough, Verdict};

/// 0.03137 stands for 8/255, and its half for 4/255. Earlier versions counted within the half itself,
/// 3.99968/255, which a change of 4 levels does not lie in.
#[test]
fn a_gate_takes_rungs_as_earlier_versions_counted_them() {
    let mut report = report(0.5);
    add_strong_search(&mut report);
    // 20 of 32 queries fail from 4 levels on, 11 from 6, and one withstands all.
    report.outcomes.retain(|o| o.attack == "R1");
    for (i, outcome) in report.outcomes.iter_mut().enumerate() {
        let levels = [(20, 4.0), (31, 6.0)].into_iter().find(|(until, _)| i < *until);
        let size = levels.map(|(_, levels)| levels / 255.0);
        outcome.enough = Some(Enough { size, ..Enough::default() });
        outcome.linf = 8.0 / 255.0;
    }
    (report.suite.eps, report.suite.ladder) = (0.03137, Some(5));
    report.scores.robust_r1 = strong::robust(&report);
    let rules = Rules::settle(&[], &["robust_r1@4/255=0".into()], &[], &[]).unwrap();
    for (saved, accepted) in [(37.5, true), (100.0, true), (50.0, false)] {
        let rung = &mut report.scores.robust_r1.as_mut().unwrap().ladder.as_mut().unwrap().rungs[1];
        // What this version counts.
        assert!(saved != 37.5 || rung.r1 == saved, "{}", rung.r1);
        rung.r1 = saved;
        match Verdict::judge(&report, None, &rules) {
            Ok(verdict) => assert!(accepted && verdict.checks[0].found == Some(saved), "{verdict:?}"),
            Err(e) => assert!(!accepted && e.exit == Exit::Usage, "{e}"),
        }
    }
}

/// Earlier versions saved no part: whether it is another is unknown, and the refusal doesn't say that it is.
#[test]
fn embeddings_without_parts_are_refused_for_the_lack_of_them() {
    let dir = models::stage(3, 4);
    let rows = |row: &dyn Fn(usize, usize) -> String| {
        let all = (0..6).map(|at| row(at, at / 2));
        all.collect::<Vec<_>>().join(", ")
    };
    let files = rows(&|at, class| {
        format!(r#"{{"id": {at}, "file_name": "data/class{class:02}/{:02}.png"}}"#, at % 2)
    });
    let boxes = rows(&|at, class| {
        format!(r#"{{"id": {at}, "image_id": {at}, "category_id": {class}, "bbox": [0, 0, 12, 12]}}"#)
    });
    let classes = r#"{"id": 0, "name": "a"}, {"id": 1, "name": "b"}, {"id": 2, "name": "c"}"#;
    let list = format!(r#"{{"images": [{files}], "annotations": [{boxes}], "categories": [{classes}]}}"#);
    dir.write("coco.json", list);
    run(&dir, words("embed model.onnx --data coco.json -q -o g.parquet")).ended(0);
    let path = dir.join("g.parquet");
    let mut saved = Embedded::read(&path).unwrap();
    assert!(saved.images.iter().all(|image| image.part.is_some()));
    saved.images.iter_mut().for_each(|image| image.part = None);
    saved.write(&path).unwrap();
    let line = "model.onnx --data coco.json --suite smoke --strong-sample off -q --gallery-cache g.parquet";
    let told = run(&dir, words(line)).ended(2).err;
    says(&told, &["doesn't say which part of its file `data/class00/00.png#0` is", "Remove the file"]);
}
