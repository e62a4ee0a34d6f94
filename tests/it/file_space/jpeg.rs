//! Changed files that are JPEG.

use super::*;
use crate::common::bundled;

/// A JPEG file of each query, measured from the file as it is read again, here from the folder.
#[test]
fn jpeg_files_are_measured_as_they_are_read_again() {
    let folder = stage();
    // 0.062743 is slightly less than 16 grey levels, and counts as 16.
    audit(&folder, "-o r.json -o page.html --attacked-out out --jpeg 75 --eps 0.062743").ended(0);
    let report = folder.json("r.json");
    assert_eq!(report["suite"]["jpeg"], 75);
    // The doctor attacks the model's input, and has no flag for files; an audit of more queries has both.
    let page = folder.text("page.html").replace("<span class=\"flag\">", "").replace("</span>", "");
    let commands = |name: &str| {
        page.split("<code class=\"line\">").filter(move |part| part.starts_with(name)).collect::<Vec<_>>()
    };
    let [doctor, all] = ["audit doctor", "audit "].map(commands);
    assert!(doctor.iter().all(|line| !line.contains("--space")) && !doctor.is_empty(), "{doctor:?}");
    assert!(all.iter().any(|line| line.contains("--space file --jpeg 75")), "{all:?}");
    let [clean, attacked] = ["photos", "out/ES"].map(|data| embeddings(&folder, data));
    let outcomes = report["outcomes"].as_array().unwrap().iter().filter(|outcome| outcome["attack"] == "ES");
    let rows = listed(&folder, "out/attacked.csv");
    let (mut moved, mut beyond) = (0, 0);
    for outcome in outcomes {
        let query = outcome["query"].as_str().unwrap();
        let file = format!("{query}.jpg");
        assert_eq!(std::fs::read(folder.join("out/ES").join(&file)).unwrap()[..2], [0xFF, 0xD8]);
        let (found, stated) = (distance(&clean[query], &attacked[&file]), outcome["shift"].as_f64().unwrap());
        assert!((found - stated).abs() < 1e-5, "{query}: {found}, and the report says {stated}");
        assert!(outcome["linf"].as_f64().unwrap() < 16.01 / 255.0);
        // The list has the difference that a file's reader sees: more than ε.
        let row = rows.iter().find(|row| row["attack"] == "ES" && row["source"] == query).unwrap();
        let [before, after] = [format!("photos/{query}"), format!("out/ES/{file}")]
            .map(|name| image::open(folder.join(&name)).unwrap().into_luma8());
        let levels = levels(&before, &after);
        assert_eq!(row["levels"], levels.to_string(), "{query}");
        beyond += usize::from(levels > 16);
        moved += usize::from(stated > 0.01);
    }
    assert!(moved > 15 && beyond > 10, "{moved} of 20 moved, {beyond} by more than ε");
}

/// The strong search ends with the mean gradient over qualities on every query, also on those lost before,
/// whose image it improves.
#[test]
fn files_are_hardened_against_other_qualities() {
    let folder = stage();
    folder.write("suite.yaml", "form: corrected\nattacks: [R1]\neffort: 1\neps: 24/255\nspace: file\n");
    let audit = |flags: &str| {
        let fixed = "model.onnx --suite suite.yaml --data photos --no-cache -q -o r.json";
        run(&folder, words(&format!("{fixed} {flags}"))).ended(0);
        folder.json("r.json")
    };
    let report = audit("--jpeg 75");
    let (mut ran, mut counts, mut lost) = (0, 0, 0);
    for outcome in report["outcomes"].as_array().unwrap() {
        // Queries that are wrong without an attack have no members.
        let Some(members) = outcome["members"].as_array().filter(|all| !all.is_empty()) else { continue };
        let last = members.iter().find(|m| m["member"] == "jpeg qualities").expect("it runs on every query");
        let reached = |m: &Value| m["reached"] == true;
        ran += 1;
        lost += usize::from(outcome["after"]["hit"] == false);
        counts += usize::from(last["counts"] == true && reached(last));
        assert_eq!(members.iter().any(reached), outcome["after"]["hit"] == false, "{outcome}");
    }
    assert!(ran >= 10 && lost >= 5 && counts * 2 > lost, "{ran} ran, {lost} lost, {counts} count");
    let rows = report["scores"]["robust_r1"]["members"].as_array().unwrap();
    assert_eq!(rows.last().unwrap()["name"], "jpeg qualities");
    // Without --jpeg there is no such member, and no row of it.
    assert!(!audit("").to_string().contains("jpeg qualities"));
}

/// The evidence has the JPEG files, the images before, and what the program reads from them; the script reads
/// the files by Pillow too.
#[test]
#[ignore = "needs Python with numpy, onnx, onnxruntime, PIL"]
fn evidence_of_jpeg_files_is_confirmed() {
    let folder = made_by_python();
    let [evidence, net, gallery] = ["evidence.zip", "net.onnx", "gallery"].map(|name| folder.join(name));
    for quality in ["75", "90"] {
        let line = "net.onnx --data gallery --space file --eps 16/255 --max-queries 20 --no-cache -q -o r.json --jpeg";
        run(&folder, words(&format!("{line} {quality}"))).ended(0);
        run(&folder, words("report r.json --bundle evidence.zip")).ended(0);
        let quality = format!("JPEG files of quality {quality}");
        let said = ["confirmed: 20 outcomes", &quality, "as Pillow reads them, 20 of 20"];
        confirmed(&evidence, &net, &gallery, &said);
    }
    let arguments = [folder.path().to_str().unwrap(), VERIFY, "files"];
    let forged = python(PACKAGES, include_str!("../forged.py"), &arguments);
    let lines: Vec<&str> = forged.lines().collect();
    assert_eq!(lines.len(), 3, "{forged}");
    says(lines[0], &["another image: refused: ", "Pillow's decoding of the file differs by"]);
    says(lines[1], &["another quality: refused: ", "no JPEG file of quality 90"]);
    says(lines[2], &["another change: refused: ", "grey levels from the attacked image as JPEG"]);

    // Grey files; a query that is wrong without an attack has none.
    run(&folder, words("images --out grey --size 40 --channels 1 --classes 12 --samples 8")).ended(0);
    let plain = bundled("plain.onnx");
    let flags = "--space file --max-queries 10 --no-cache -q -o grey.json --jpeg 90 --attacked-out out";
    run(&folder, words(&format!("{plain:?} --data grey {flags}"))).ended(0);
    run(&folder, words("report grey.json --bundle grey.zip")).ended(0);
    let said = ["confirmed: 10 outcomes", "as Pillow reads them, 9 of 9"];
    confirmed(&folder.join("grey.zip"), &plain, &folder.join("grey"), &said);
    let listed = listed(&folder, "out/attacked.csv");
    assert_eq!(listed.iter().map(|row| row["success"].is_empty()).filter(|open| *open).count(), 1);
}
