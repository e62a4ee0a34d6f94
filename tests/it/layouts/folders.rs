//! Folders of classes, of queries and gallery, and with a list of classes.

use super::*;

#[test]
fn class_folders_and_detection() {
    let root = Transcript::new(Temp::new());
    images(&root.join("test"), &["x/a.png", "x/b.png", "y/a.png"]);
    assert_eq!(summary(&open(&root, Some(Split::Test))), ["x: x/a.png", "x: x/b.png", "y: y/a.png"]);
    let own = open(&root.join("test"), None);
    assert_eq!((own.items.len(), own.stretched), (3, false));
    root.note(&Dataset::open(&root, None, Some(Split::Train)).unwrap_err().message);
    // Two benchmarks in one folder: the message asks which.
    root.write("Ebay_test.txt", "");
    root.write("list_query.txt", "");
    root.write("list_gallery.txt", "");
    refused(&root, &root);
    refused_as(&root, Some("sopp"), &root, None);
    refused(&root, &root.join("none"));
    root.write("a.zip", "");
    refused(&root, &root.join("a.zip"));
    assert_eq!(LAYOUTS.last().unwrap().name, "folder");
    insta::assert_snapshot!(root.told());
}

#[test]
fn query_and_gallery_are_folders() {
    let root = Transcript::new(Temp::new());
    let names = |part: &str, class: &str, files: &[&str]| {
        files.iter().map(|file| format!("pytorch/{part}/{class}/{file}")).collect::<Vec<_>>()
    };
    images(&root, &names("query", "0002", &["0002_c1s1_000451_03.jpg"]));
    images(&root, &names("gallery", "0002", &["0002_c1s1_000900_00.jpg", "0002_c4s2_000451_00.jpg"]));
    images(&root, &names("gallery", "-1", &["-1_c1s1_000001_00.jpg"]));
    images(&root, &names("train", "0007", &["0007_c2s3_070952_01.jpg", "0007_c5s3_070953_01.jpg"]));
    images(&root, &["__MACOSX/pytorch/query/0002/._0002_c1s1_000451_03.jpg"]);
    let test = open(&root, None);
    let expected = [
        "0002: gallery/0002/0002_c1s1_000900_00.jpg g c1",
        "0002: gallery/0002/0002_c4s2_000451_00.jpg g c4",
        "0002: query/0002/0002_c1s1_000451_03.jpg q c1",
    ];
    assert_eq!(summary(&test), expected);
    assert_eq!(summary(&open(&root.join("pytorch"), None)), expected);
    says(&test.notes[0], &["pytorch", "folders that are not read: train"]);
    let train = open(&root, Some(Split::Train));
    assert_eq!(summary(&train)[0], "0007: train/0007/0007_c2s3_070952_01.jpg c2");
    // The benchmark itself, with the same folders beside its own.
    images(&root, &["query/0002_c1s1_000451_03.jpg", "bounding_box_test/0002_c3s1_000451_03.jpg"]);
    says(&open(&root, None).source, &["market-1501"]);

    let root = Transcript::new(Temp::new());
    images(&root, &["query/0002_c1s1_000451_03.jpg", "gallery/0002_c2s1_000451_03.jpg"]);
    assert_eq!(summary(&open(&root, None))[0], "0002: gallery/0002_c2s1_000451_03.jpg g c2");
    images(&root, &["query/shirt/1.jpg"]);
    refused(&root, &root);
    images(&root, &["gallery/shirt/2.jpg"]);
    assert_eq!(summary(&open(&root, None))[3], "shirt: query/shirt/1.jpg q");
    images(&root, &["query/3.jpg"]);
    refused(&root, &root);
    refused_as(&root, Some("query-gallery"), &root.join("gallery"), None);
    insta::assert_snapshot!(root.told());
}

#[test]
fn image_folders_have_their_classes_in_a_list() {
    let root = Transcript::new(Temp::new());
    images(&root, &["flat/1.png", "flat/2.png", "split/test/1.png", "split/test/2.png", "split/train/3.png"]);
    root.write("flat/metadata.csv", "file_name,label\n1.png,x\n2.png,x\n");
    let flat = open(&root.join("flat"), None);
    assert_eq!(summary(&flat), ["x: 1.png", "x: 2.png"]);
    says(&flat.source, &["imagefolder", "all rows"]);
    decodes(&flat);
    for (folder, name) in [("test", "1"), ("test", "2"), ("train", "3")] {
        let row = format!("{{\"file_name\": \"{name}.png\", \"text\": \"y\"}}\n");
        let path = format!("split/{folder}/metadata.jsonl");
        let before = fs::read_to_string(root.join(&path)).unwrap_or_default();
        root.write(&path, before + &row);
    }
    let split = open(&root.join("split"), None);
    assert_eq!(summary(&split), ["y: 1.png", "y: 2.png"]);
    root.note(&split.notes.join("\n"));
    assert_eq!(summary(&open(&root.join("split"), Some(Split::Train))), ["y: 3.png"]);
    // Two columns that may be the class.
    root.write("flat/metadata.csv", "file_name,breed,colour\n1.png,x,red\n2.png,x,red\n");
    refused(&root, &root.join("flat"));
    fs::remove_file(root.join("flat/metadata.csv")).unwrap();
    root.write("flat/labels.csv", "file_name,label\n1.png,x\n2.png,x\n");
    refused(&root, &root.join("flat"));
    refused_as(&root, Some("imagefolder"), &root.join("flat"), None);
    // Class folders are recognised whatever a list says of captions.
    images(&root, &["folders/x/1.png", "folders/x/2.png"]);
    root.write("folders/metadata.csv", "file_name,caption\nx/1.png,one\nx/2.png,two\n");
    assert_eq!(summary(&open(&root.join("folders"), None)), ["x: x/1.png", "x: x/2.png"]);
    insta::assert_snapshot!(root.told());
}
