//! Images in archives and in Parquet.

use super::*;

#[test]
fn archives_of_webdataset_are_read() {
    let root = Transcript::new(Temp::new());
    let long = "a_folder_of_a_name_that_no_field_of_a_header_holds/".repeat(3);
    let gnu = open(&shard("gnu.tar"), None);
    let expected =
        ["7: gnu.tar/0001.png".into(), "7: gnu.tar/0002.png".into(), format!("8: gnu.tar/{long}0003.png")];
    assert_eq!(summary(&gnu), expected);
    assert_eq!([0, 1, 2].map(|i| level(&gnu, i)), [10, 20, 30]);
    says(&gnu.source, &["webdataset", "all files"]);
    let pax = open(&shard("pax.tar"), None);
    let expected =
        [format!("3: pax.tar/{long}2.png"), "é: pax.tar/é0.png".into(), "é: pax.tar/é1.png".into()];
    assert_eq!(summary(&pax), expected);
    assert_eq!([0, 1, 2].map(|i| level(&pax, i)), [50, 40, 41]);
    // File names tell the splits of a folder apart.
    for (from, to) in [("gnu.tar", "val-0.tar"), ("gnu.tar", "val-1.tar"), ("pax.tar", "train-0.tar")] {
        fs::copy(shard(from), root.join(to)).unwrap();
    }
    let test = open(&root, None);
    assert_eq!(test.items.len(), 6);
    assert_eq!(test.notes.len(), 1);
    says(&test.notes[0], &["not read: train-0.tar"]);
    assert_eq!(open(&root, Some(Split::Train)).items.len(), 3);
    assert_eq!(open(&root.join("train-0.tar"), None).items.len(), 3);

    // A list of them, from any folder, replaces a folder.
    fs::create_dir(root.join("lists")).unwrap();
    for lines in
        ["../val-{0..1}.tar\n../train-0.tar\n", "\u{feff}../train-0.tar\r\n\r\n../val-0.tar\r\n../val-1.tar"]
    {
        let list = root.write("lists/shards.txt", lines);
        assert_eq!(summary(&open(&list, None)), summary(&test), "{lines:?}");
        assert_eq!(open(&list, Some(Split::Train)).items.len(), 3, "{lines:?}");
    }
    refused(&root, &root.write("lists/shards.txt", "../val-0.tar\n../val-7.tar\n"));

    // Cut off or changed anywhere, it is an error or another data set, and no panic.
    let whole = fs::read(shard("pax.tar")).unwrap();
    let at = root.join("damaged/0.tar");
    for keep in (0..whole.len()).step_by(97) {
        root.write("damaged/0.tar", &whole[..keep]);
        _ = Dataset::open(&at, None, None);
    }
    for place in 0..2048 {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        root.write("damaged/0.tar", bytes);
        _ = Dataset::open(&at, None, None);
    }
    let bad = |content: &[u8]| refused_with(&root, &at, "damaged/0.tar", content);
    bad(&whole[..700]);
    bad(&[b'x'; 1024]);
    bad(&[0; 1024]);
    // A sample without a class, and one with two images.
    bad(&[file("1.png", b"x"), file("1.txt", b"a cat"), vec![0; 1024]].concat());
    let unlabelled = Dataset::open_as(&at, &Wanted { classless: true, ..Wanted::default() }).unwrap();
    let ids: Vec<&str> = unlabelled.items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!((unlabelled.classless, ids), (true, vec!["0.tar/1.png"]));
    bad(&[file("1.png", b"x"), file("1.jpg", b"x"), vec![0; 1024]].concat());
    bad(&[file("1.png", b"x"), file("1.json", b"[1]")].concat());
    // An image that can't be decoded is named with its archive.
    root.write("damaged/0.tar", [file("1.png", b"x"), file("1.cls", b"1")].concat());
    root.note(&open(&at, None).pixels(0, &Preparation::new(1, 3, 4)).unwrap_err().message);
    root.write("a.tar.gz", "");
    refused(&root, &root.join("a.tar.gz"));
    insta::assert_snapshot!(root.told());
}

#[test]
fn images_in_parquet_are_read() {
    let root = Transcript::new(Temp::new());
    let found = open(&shard("datasets.parquet"), None);
    let name = |class: &str, row: usize| format!("{class}: datasets.parquet/{row:06}");
    assert_eq!(summary(&found), [name("cat", 2), name("cat", 4), name("dog", 1), name("dog", 3)]);
    assert_eq!([0, 1, 2, 3].map(|i| level(&found, i)), [61, 63, 60, 62]);
    says(&found.notes[0], &["columns that are not read: score"]);
    let plain = open(&shard("plain.parquet"), None);
    let expected = ["x: plain.parquet/000002 g", "y: plain.parquet/000003 g", "x: plain.parquet/000001 q"];
    assert_eq!(summary(&plain), expected);
    assert_eq!(level(&plain, 2), 70);
    // As in a repository.
    fs::create_dir(root.join("data")).unwrap();
    for split in ["train", "test"] {
        let to = root.join(&format!("data/{split}-00000-of-00001.parquet"));
        fs::copy(shard("datasets.parquet"), to).unwrap();
    }
    let test = open(&root, None);
    assert_eq!(test.items[0].id, "test-00000-of-00001.parquet/000002");
    says(&test.notes.join("\n"), &["not read: train-00000-of-00001.parquet"]);
    says(&open(&root, Some(Split::Train)).items[0].id, &["train-0"]);
    // A column may state the split of each row. A label of -1 is unknown.
    let split = shard("split.parquet");
    let detected = Layout::detect(&split).unwrap();
    assert!((detected.has_splits)(&split) && !(detected.has_splits)(&shard("plain.parquet")));
    let train = open(&split, Some(Split::Train));
    assert_eq!(summary(&train), ["cat: split.parquet/000001", "dog: split.parquet/000002"]);
    says(&train.source, &["train split"]);
    let classless = Wanted { classless: true, ..Wanted::default() };
    let test = Dataset::open_as(&split, &classless).unwrap();
    assert_eq!(test.items.len(), 3);
    says(&test.source, &["test split"]);
    refused(&root, &split);
    // Names state the split of a file, and a file of the other one is not missing.
    fs::copy(shard("datasets.parquet"), root.join("train-0.parquet")).unwrap();
    refused_as(&root, None, &root.join("train-0.parquet"), Some(Split::Test));
    fs::copy(shard("gnu.tar"), root.join("0.tar")).unwrap();
    refused_as(&root, None, &root.join("0.tar"), Some(Split::Train));
    // Files of one name in several folders, by a list of them.
    for folder in ["a", "b/train"] {
        fs::create_dir_all(root.join(folder)).unwrap();
        fs::copy(shard("datasets.parquet"), root.join(folder).join("0000.parquet")).unwrap();
    }
    let list = root.write("files.txt", "a/0000.parquet\nb/train/0000.parquet\n");
    assert_eq!(open(&list, None).items[0].id, "0000.parquet/000002");
    let list = root.write("both.txt", "a/0000.parquet\nb/../a/0000.parquet\n");
    assert_eq!(open(&list, None).items.len(), 8);
    // Stored embeddings beside class folders are no data set of shards.
    images(&root, &["photos/x/1.png", "photos/y/2.png"]);
    fs::copy(golden("galleries/pandas.parquet"), root.join("photos/gallery.parquet")).unwrap();
    let photos = open(&root.join("photos"), None);
    assert_eq!(summary(&photos), ["x: x/1.png", "y: y/2.png"]);
    // A folder of images beside shards is no set of classes.
    images(&root, &["repository/assets/logo.png"]);
    fs::copy(shard("plain.parquet"), root.join("repository/0000.parquet")).unwrap();
    assert_eq!(open(&root.join("repository"), None).items.len(), 3);
    // The folder of a list says nothing of the split.
    fs::create_dir_all(root.join("training")).unwrap();
    for split in ["train", "val"] {
        fs::copy(shard("gnu.tar"), root.join(&format!("training/{split}-0.tar"))).unwrap();
    }
    let list = root.write("lists/tars.txt", "../training/train-0.tar\n../training/val-0.tar\n");
    assert_eq!(open(&list, None).items[0].id, "val-0.tar/0001.png");
    // With several row groups, read in any order. Missing values that the file doesn't declare show when they
    // are read.
    let groups = open(&shard("groups.parquet"), None);
    let row = |i: usize| groups.items[i].id.rsplit('/').next().unwrap().parse::<u64>().unwrap();
    for i in [3, 0, 4, 1, 0, 3, 2, 1] {
        match row(i) {
            4 => root.note(&groups.pixels(i, &Preparation::new(1, 3, 4)).unwrap_err().message),
            row => assert_eq!(u64::from(level(&groups, i)), 79 + row, "{i}"),
        }
    }
    refused(&root, &shard("bad-empty.parquet"));
    refused(&root, &golden("galleries/pandas.parquet"));
    refused_with(&root, &root.join("bad.parquet"), "bad.parquet", "PAR1");
    insta::assert_snapshot!(root.told());
}
