//! The file column: robust R@1 of files beside that of images at the model's input.

use super::*;

/// The ladder of an audit of files has one column, since all of its images are files; at the input the words
/// say which images the column of files has.
#[test]
fn the_ladder_says_which_files_it_is_about() {
    let folder = Transcript::new(stage());
    let ladder = |more: &str| {
        let files = "-o r.md -o r.html -o r.json";
        let line =
            format!("model.onnx --data photos --eps 8/255 --max-queries 10 --no-cache -q {files} {more}");
        run(&folder, words(&line)).ended(0);
        let (text, page) = (folder.text("r.md"), folder.text("r.html"));
        let report = folder.json("r.json");
        let rungs = report["scores"]["robust_r1"]["ladder"]["rungs"].as_array().unwrap();
        let same = rungs.iter().all(|rung| rung["as_file"].is_null() || rung["as_file"] == rung["r1"]);
        let size = |rung: &Value| (255.0 * rung["eps"].as_f64().unwrap() * 1e4).round() / 1e4;
        let sizes: Vec<f64> = rungs.iter().map(size).collect();
        assert_eq!(text.contains("| 0.5/255 |"), sizes.contains(&0.5), "{text}");
        // What the columns are.
        folder.note(text.lines().find(|line| line.contains(", in %;")).unwrap());
        (
            text.contains("| the same in the file |"),
            page.contains("Dashed: the photograph itself is changed, at its own size, and saved as a file"),
            same,
            sizes,
        )
    };
    let gate = ["gate", "r.json", "--fail-under", "robust_r1@0.5/255=0"];
    let (column, curve, _, sizes) = ladder("");
    assert!(column && curve);
    assert_eq!(sizes, [8.0, 4.0, 2.0, 1.0, 0.5, 0.25]);
    run(&folder, gate).ended(0);
    assert_eq!(folder.json("r.json")["suite"]["file_column"], "file");
    let (column, curve, same, sizes) = ladder("--space file");
    assert!(!column && !curve && same);
    // No file lies between two grey levels: nothing is measured below 1/255, and a gate says so.
    assert_eq!(sizes, [8.0, 4.0, 2.0, 1.0]);
    folder.refused(&gate, 2);
    insta::assert_snapshot!(folder.told());
}

/// Each query's ε*, of images and of files, by its id.
fn stars(folder: &Temp, report: &str) -> BTreeMap<String, [Option<f64>; 2]> {
    let report = folder.json(report);
    let of = |o: &Value| {
        let sizes = ["size", "as_file"].map(|key| o["enough"][key].as_f64());
        (o["query"].as_str().unwrap().to_string(), sizes)
    };
    report["outcomes"].as_array().unwrap().iter().map(of).collect()
}

/// The file column of the default suite is about the files of the images: of each query that is wrong under
/// an attack of the model's input it has what `--space file` finds, whatever part of a run the query is in.
#[test]
fn the_file_column_is_that_of_attacks_on_files() {
    let folder = stage();
    let audit = |report: &str, more: &str| {
        let line = format!("model.onnx --data photos --eps 24/255 --no-cache -q -o {report} {more}");
        run(&folder, words(&line)).ended(0);
    };
    audit("both.json", "");
    audit("files.json", "--space file");
    let (both, files) = (stars(&folder, "both.json"), stars(&folder, "files.json"));
    let own_size = |query: &str| query.ends_with("4.png");
    let mut compared = 0;
    for (query, [size, as_file]) in &both {
        match size {
            Some(0.0) => assert_eq!(*as_file, Some(0.0), "{query}"),
            None => assert_eq!(*as_file, None, "{query}"),
            Some(_) if own_size(query) => assert!(as_file.is_none_or(|file| file >= size.unwrap() - 1e-6)),
            Some(_) => {
                compared += usize::from(as_file.is_some());
                assert_eq!(*as_file, files[query][0], "{query}");
            }
        }
    }
    assert!(compared > 3, "{both:?}");
    for part in ["1", "2"] {
        audit(&format!("{part}.json"), &format!("--partition hash:{part}/2"));
    }
    run(&folder, words("merge 1.json 2.json -o merged.json")).ended(0);
    assert_eq!(stars(&folder, "merged.json"), both);
}

/// Images that can't be attacked as files, and very large ones, leave the column to images of the model's
/// size, and the audit says why.
#[test]
fn the_file_column_says_why_it_is_not_about_files() {
    let deep = image::ImageBuffer::from_fn(12, 12, |x, y| image::Luma([(x * 5000 + y) as u16]));
    let large = image::GrayImage::from_fn(2000, 1001, |x, y| image::Luma([(x + y) as u8]));
    let told = [image::DynamicImage::from(deep), large.into()].map(|image| {
        let folder = stage();
        image.save(folder.join("photos/class0/0.png")).unwrap();
        let line = "model.onnx --data photos --eps 8/255 --max-queries 3 --no-cache -o r.json";
        let err = run(&folder, words(line)).ended(0).err;
        assert!(folder.json("r.json")["suite"]["file_column"].is_null());
        let mut lines = err[err.find("robust R@1 as an 8-bit file").expect("a note")..].lines();
        // Its further lines are indented.
        let first = lines.next().unwrap().to_string();
        one_line(&lines.take_while(|line| line.starts_with(' ')).fold(first, |all, line| all + line))
    });
    insta::assert_snapshot!(told.join("\n"));
}

/// Evidence repeats the search in files; images without classes have the column too; a file that no program
/// reads changes nothing of it; and a mask, which is of the model's image, has none of files.
#[test]
fn the_file_column_of_other_audits() {
    let folder = stage();
    let audit = |report: &str, more: &str| {
        let line = format!("model.onnx --data photos --eps 24/255 --no-cache -o {report} {more}");
        run(&folder, words(&line)).ended(0)
    };
    let column = |report: &str| folder.json(report)["suite"]["file_column"].clone();
    audit("r.json", "");
    run(&folder, words("report r.json --bundle evidence.zip")).ended(0);
    audit("top1.json", "--labels none");
    assert_eq!(column("top1.json"), "file");
    run(&folder, words("report top1.json --bundle top1.zip")).ended(0);
    image::GrayImage::from_pixel(12, 12, image::Luma([255])).save(folder.join("mask.png")).unwrap();
    let masked = audit("masked.json", "--mask mask.png");
    assert!(column("masked.json").is_null());
    says(&masked.err, &["the mask has the size of the model's images"]);
    // The flag states the only space.
    audit("input.json", "--space input");
    assert!(column("input.json").is_null());
    folder.write("photos/class0/9.png", "");
    audit("unread.json", "");
    assert_eq!(column("unread.json"), "file");
    assert_eq!(stars(&folder, "unread.json"), stars(&folder, "r.json"));
}
