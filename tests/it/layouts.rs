//! Every layout as a small folder that is read back: splits, roles, cameras, ids; and the messages for wrong
//! or partial folders.

use crate::common::transcript::Transcript;
use crate::common::{Temp, npy, says, words};
use audit::Exit;
use audit::data::{Dataset, Interpolation, LAYOUTS, Preparation, Resize, Role, Split, Wanted, vectors};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Tiny images at these paths below `root`.
fn images(root: &Path, paths: &[impl AsRef<Path>]) {
    for path in paths {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(golden("pixels/small.png"), path).unwrap();
    }
}

fn open(path: &Path, split: Option<Split>) -> Dataset {
    Dataset::open(path, None, split).unwrap_or_else(|e| panic!("{e}"))
}

/// The test split of a benchmark, whose images are stretched unless the card states something else.
fn benchmark(path: &Path) -> Dataset {
    let found = open(path, None);
    assert!(found.stretched, "{}", found.source);
    found
}

/// Notes the error for a layout that is detected.
#[track_caller]
fn refused(root: &Transcript, path: &Path) {
    refused_as(root, None, path, None);
}

/// Writes a file below `root`, and notes the error for `path`.
#[track_caller]
fn refused_with(root: &Transcript, path: &Path, file: &str, content: impl AsRef<[u8]>) {
    root.write(file, content);
    refused(root, path);
}

#[track_caller]
fn refused_as(root: &Transcript, layout: Option<&str>, path: &Path, split: Option<Split>) {
    let error = Dataset::open(path, layout, split).expect_err("refused");
    assert!(matches!(error.exit, Exit::Usage | Exit::Empty), "{error}");
    root.note(&error.message);
}

/// class, id, role and camera of each item, in short.
fn summary(data: &Dataset) -> Vec<String> {
    let show = |item: &audit::data::Item| {
        let role = match item.role() {
            Role::Both => "",
            Role::Query => " q",
            Role::Gallery => " g",
        };
        let camera = item.camera().map_or(String::new(), |camera| format!(" c{camera}"));
        format!("{}: {}{role}{camera}", data.classes[item.class], item.id)
    };
    data.items.iter().map(show).collect()
}

/// The first image decodes.
fn decodes(data: &Dataset) {
    let pixels = data.pixels(0, &Preparation::new(3, 8, 8)).unwrap();
    assert_eq!(pixels.data.len(), 3 * 8 * 8);
}

fn cub() -> Transcript {
    let root = Transcript::new(Temp::new());
    let files = ["099.Wren/a.jpg", "100.Gull/a.jpg", "101.Tern/a.jpg", "101.Tern/b.jpg", "102.Auk/a.jpg"];
    let lines =
        |of: &dyn Fn(usize) -> String| (0..5).map(|i| format!("{} {}\n", i + 1, of(i))).collect::<String>();
    root.write("CUB_200_2011/images.txt", lines(&|i| files[i].into()));
    let class = |i: usize| files[i][..3].trim_start_matches('0').into();
    root.write("CUB_200_2011/image_class_labels.txt", lines(&class));
    root.write("CUB_200_2011/train_test_split.txt", lines(&|i| (i % 2).to_string()));
    root.write("CUB_200_2011/classes.txt", "99 099.Wren\n100 100.Gull\n101 101.Tern\n102 102.Auk\n");
    images(&root.join("CUB_200_2011/images"), &files);
    root
}

#[test]
fn cub_splits_at_class_100() {
    let root = cub();
    let test = benchmark(&root);
    let expected = ["101.Tern: 101.Tern/a.jpg", "101.Tern: 101.Tern/b.jpg", "102.Auk: 102.Auk/a.jpg"];
    assert_eq!(summary(&test), expected);
    says(&test.source, &["cub-200-2011", "classes from 101"]);
    decodes(&test);
    assert_eq!(summary(&open(&root.join("CUB_200_2011"), Some(Split::Train))).len(), 2);

    fs::remove_file(root.join("CUB_200_2011/images/101.Tern/b.jpg")).unwrap();
    refused(&root, &root);
    let three = "1 099.Wren/a.jpg\n2 100.Gull/a.jpg\n3 101.Tern/a.jpg\n";
    for (name, text) in [
        ("images.txt", format!("{three}3 101.Tern/a.jpg\n").as_str()),
        ("images.txt", three),
        ("image_class_labels.txt", "1 99\n2 100\n3 101\n"),
        ("image_class_labels.txt", "1 99\n2 100\n3 birds\n"),
        ("image_class_labels.txt", "1 99 1\n"),
    ] {
        refused_with(&root, &root, &format!("CUB_200_2011/{name}"), text);
    }
    fs::remove_file(root.join("CUB_200_2011/classes.txt")).unwrap();
    refused(&root, &root);
    insta::assert_snapshot!(root.told());
}

#[test]
fn cars_in_both_packagings() {
    let root = Transcript::new(Temp::new());
    fs::copy(golden("cars/cars_annos.mat"), root.join("cars_annos.mat")).unwrap();
    refused(&root, &root);
    images(&root, &[1, 2, 3, 4, 5, 6].map(|i| format!("car_ims/{i:06}.jpg")));
    let expected = [
        "099 Make Model 99: car_ims/000002.jpg",
        "099 Make Model 99: car_ims/000003.jpg",
        "100 Make Model 100: car_ims/000004.jpg",
        "100 Make Model 100: car_ims/000005.jpg",
    ];
    assert_eq!(summary(&open(&root, None)), expected);
    let train = ["001 Make Model 1: car_ims/000006.jpg", "098 Make Model 98: car_ims/000001.jpg"];
    assert_eq!(summary(&open(&root, Some(Split::Train))), train);
    // Cut off anywhere, it is an error and no panic.
    let whole = fs::read(golden("cars/cars_annos.mat")).unwrap();
    for keep in (0..whole.len()).step_by(7) {
        root.write("cars_annos.mat", &whole[..keep]);
        Dataset::open(&root, None, None).expect_err("cut off");
    }

    insta::assert_snapshot!(root.told());
    let root = Transcript::new(Temp::new());
    fs::create_dir(root.join("devkit")).unwrap();
    for file in ["cars_train_annos.mat", "cars_test_annos_withlabels.mat", "cars_meta.mat"] {
        fs::copy(golden("cars").join(file), root.join("devkit").join(file)).unwrap();
    }
    for part in ["cars_train", "cars_test"] {
        images(&root, &[1, 2, 3].map(|i| format!("{part}/{i:05}.jpg")));
    }
    let expected = [
        "099 Make Model 99: cars_train/00002.jpg",
        "099 Make Model 99: cars_train/00003.jpg",
        "100 Make Model 100: cars_test/00001.jpg",
        "100 Make Model 100: cars_test/00002.jpg",
    ];
    assert_eq!(summary(&open(&root, None)), expected);
    fs::copy(golden("cars/cars_meta.mat"), root.join("devkit/cars_train_annos.mat")).unwrap();
    refused(&root, &root);
    refused_as(&root, Some("cars-196"), &root.join("devkit"), None);
    fs::copy(golden("cars/cars_train_annos.mat"), root.join("devkit/cars_train_annos.mat")).unwrap();
    fs::remove_file(root.join("devkit/cars_test_annos_withlabels.mat")).unwrap();
    refused(&root, &root);
    insta::assert_snapshot!(root.told());
}

#[test]
fn sop_takes_its_own_split() {
    let above = Transcript::new(Temp::new());
    let root = above.join("Stanford_Online_Products");
    let list = |split: &str, rows: &str| {
        let rows = format!("image_id class_id super_class_id path\n{rows}");
        above.write(&format!("Stanford_Online_Products/Ebay_{split}.txt"), rows);
    };
    list("train", "1 1 1 chair_final/1_0.JPG\n2 1 1 chair_final/1_1.JPG\n");
    list("test", "3 9 2 sofa_final/9_0.JPG\n4 9 2 sofa_final/9_1.JPG\n");
    let files = ["chair_final/1_0.JPG", "chair_final/1_1.JPG", "sofa_final/9_0.JPG", "sofa_final/9_1.JPG"];
    images(&root, &files);
    let test = benchmark(&above);
    assert_eq!(summary(&test), ["00009: sofa_final/9_0.JPG", "00009: sofa_final/9_1.JPG"]);
    assert_eq!(summary(&open(&root, Some(Split::Train)))[0], "00001: chair_final/1_0.JPG");
    refused_with(&above, &root, "Stanford_Online_Products/Ebay_test.txt", "image_id class_id path\n");
    list("test", "3 9 2 sofa_final/9_0.JPG\n4 9 2 sofa_final/9_0.JPG\n");
    refused(&above, &root);
    list("test", "");
    refused(&above, &root);
    fs::remove_file(root.join("Ebay_test.txt")).unwrap();
    refused_as(&above, Some("sop"), &root, None);
    insta::assert_snapshot!(above.told());
}

#[test]
fn in_shop_has_queries_outside_the_gallery() {
    let above = Transcript::new(Temp::new());
    let root = above.join("In-shop Clothes Retrieval Benchmark");
    let list = |count: usize, rows: &str| {
        let rows = format!("{count}\nimage_name item_id evaluation_status\n{rows}");
        above.write("In-shop Clothes Retrieval Benchmark/Eval/list_eval_partition.txt", rows);
    };
    let rows = "img/W/D/id_1/a.jpg   id_1   train \nimg/W/D/id_1/b.jpg id_1 train\nimg/W/D/id_2/a.jpg  id_2 query\n\
                img/W/D/id_2/b.jpg id_2 gallery\nimg/W/D/id_2/c.jpg id_2 gallery\n";
    list(5, rows);
    refused(&above, &above);
    let files = ["id_1/a.jpg", "id_1/b.jpg", "id_2/a.jpg", "id_2/b.jpg", "id_2/c.jpg"];
    images(&root.join("img/W/D"), &files);
    let test = benchmark(&above);
    let expected = ["id_2: img/W/D/id_2/b.jpg g", "id_2: img/W/D/id_2/c.jpg g", "id_2: img/W/D/id_2/a.jpg q"];
    assert_eq!(summary(&test), expected);
    assert_eq!(open(&root, Some(Split::Train)).items.len(), 2);
    for (count, rows) in [
        (6, rows),
        (1, "img/W/D/id_2/a.jpg id_2 query\n"),
        (1, "img/W/D/id_2/b.jpg id_2 gallery\n"),
        (1, "img/W/D/id_2/a.jpg id_2 val\n"),
    ] {
        list(count, rows);
        refused(&above, &root);
    }
    insta::assert_snapshot!(above.told());
}

#[test]
fn re_identification_by_file_name() {
    let root = Transcript::new(Temp::new());
    images(&root.join("query"), &["0002_c1s1_000451_03.jpg"]);
    let gallery = ["-1_c1s1_000001", "0000_c3s1_000002", "0002_c1s1_000900", "0002_c4s2_000451"];
    images(&root.join("bounding_box_test"), &gallery.map(|name| format!("{name}_00.jpg")));
    images(&root.join("bounding_box_train"), &["0007_c2s3_070952_01.jpg", "0007_c5s3_070953_01.jpg"]);
    root.write("bounding_box_test/Thumbs.db", "");
    let test = benchmark(&root);
    let expected = [
        "0000: bounding_box_test/0000_c3s1_000002_00.jpg g c3",
        "0002: bounding_box_test/0002_c1s1_000900_00.jpg g c1",
        "0002: bounding_box_test/0002_c4s2_000451_00.jpg g c4",
        "0002: query/0002_c1s1_000451_03.jpg q c1",
    ];
    assert_eq!(summary(&test), expected);
    assert!(test.source.contains("market-1501"));
    let train = summary(&open(&root, Some(Split::Train)));
    assert_eq!(train[0], "0007: bounding_box_train/0007_c2s3_070952_01.jpg c2");
    images(&root.join("query"), &["person.jpg"]);
    refused(&root, &root);
    fs::remove_dir_all(root.join("bounding_box_test")).unwrap();
    refused_as(&root, Some("market-1501"), &root, None);

    fs::remove_dir_all(root.join("query")).unwrap();
    fs::create_dir_all(root.join("bounding_box_test")).unwrap();
    refused_as(&root, Some("market-1501"), &root, None);

    insta::assert_snapshot!(root.told());
    let root = Temp::new();
    images(&root.join("DukeMTMC-reID/query"), &["0001_c2_f0046182.jpg"]);
    images(&root.join("DukeMTMC-reID/bounding_box_test"), &["0001_c8_f0046182.jpg"]);
    let duke = benchmark(&root);
    assert!(duke.source.contains("dukemtmc-reid"));
    assert_eq!(summary(&duke)[1], "0001: query/0001_c2_f0046182.jpg q c2");

    let root = Temp::new();
    images(&root.join("image_query"), &["0001_c011_00016450_0.jpg"]);
    images(&root.join("image_test"), &["0001_c020_00016450_0.jpg"]);
    assert_eq!(summary(&open(&root, None))[1], "0001: image_query/0001_c011_00016450_0.jpg q c11");
}

#[test]
fn msmt17_reads_its_lists() {
    let root = Transcript::new(Temp::new());
    let [a, b, c] = [
        "0000/0000_000_01_0303morning_0008_0.jpg",
        "0000/0000_001_07_0303noon_0008_0.jpg",
        "0001/0001_000_02_x_0_0.jpg",
    ];
    images(&root.join("test"), &[a, b]);
    images(&root.join("train"), &[a, b, c]);
    root.write("list_query.txt", format!("{a} 0\n"));
    root.write("list_gallery.txt", format!("{b} 0\n"));
    root.write("list_train.txt", format!("{a} 0\n{b} 0\n"));
    root.write("list_val.txt", format!("{c} 1\n"));
    assert_eq!(summary(&open(&root, None)), [format!("0000: {b} g c7"), format!("0000: {a} q c1")]);
    assert_eq!(open(&root, Some(Split::Train)).items.len(), 3);
    refused_with(&root, &root, "list_gallery.txt", format!("{b}\n"));
    fs::remove_file(root.join("list_gallery.txt")).unwrap();
    refused_as(&root, Some("msmt17"), &root, None);
    insta::assert_snapshot!(root.told());
}

#[test]
fn omniglot_by_alphabet_and_character() {
    let root = Transcript::new(Temp::new());
    let files = ["Greek/character01/a.png", "Greek/character01/b.png", "Greek/character02/a.png"];
    images(&root.join("images_evaluation"), &files);
    images(&root.join("images_background"), &["Latin/character01/a.png"]);
    let test = benchmark(&root);
    assert_eq!(summary(&test)[2], "Greek/character02: Greek/character02/a.png");
    assert_eq!(summary(&open(&root, Some(Split::Train))), ["Latin/character01: Latin/character01/a.png"]);
    assert_eq!(summary(&open(&root.join("images_evaluation"), None)), summary(&test));
    fs::create_dir(root.join("images_evaluation/Greek/character03")).unwrap();
    refused(&root, &root);
    fs::remove_dir_all(root.join("images_background")).unwrap();
    refused_as(&root, None, &root, Some(Split::Train));
    insta::assert_snapshot!(root.told());
}

/// An IDX file.
fn idx(sizes: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.extend(values);
    bytes
}

#[test]
fn mnist_bare_and_gzipped() {
    let root = Transcript::new(Temp::new());
    let pixels: Vec<u8> = (0..4 * 6).map(|v| v * 10).collect();
    let gzip = |bytes: &[u8]| {
        let mut to = GzEncoder::new(Vec::new(), Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    };
    root.write("raw/t10k-images-idx3-ubyte.gz", gzip(&idx(&[4, 2, 3], &pixels)));
    root.write("raw/t10k-labels-idx1-ubyte", idx(&[4], &[7, 1, 7, 1]));
    let test = benchmark(&root);
    assert_eq!(summary(&test), ["1: 1/00001", "1: 1/00003", "7: 7/00000", "7: 7/00002"]);
    let found = test.pixels(0, &Preparation::new(1, 2, 3)).unwrap();
    assert_eq!(found.data, pixels[6..12].iter().map(|&v| f32::from(v) / 255.0).collect::<Vec<_>>());
    assert_eq!(test.pixels(1, &Preparation::new(3, 28, 28)).unwrap().data.len(), 3 * 28 * 28);

    for labels in [idx(&[3], &[7, 1, 7]), idx(&[4], &[7, 1]), b"labels".to_vec()] {
        refused_with(&root, &root, "raw/t10k-labels-idx1-ubyte", labels);
    }
    refused_as(&root, None, &root, Some(Split::Train));
    insta::assert_snapshot!(root.told());
}

#[test]
fn manifests_say_everything_in_rows() {
    let root = Transcript::new(Temp::new());
    let at = root.join("data.csv");
    images(&root, &["a.png", "b.png", "c, d.png"]);
    let header = "path,label,split,is_query,is_gallery,camera\n";
    let good = "a.png,x,validation,True,False,1\nb.png,x,validation,False,True,2\n\"c, d.png\",y,train,,,\n";
    root.write("data.csv", format!("{header}{good}"));
    assert_eq!(summary(&open(&at, None)), ["x: b.png g c2", "x: a.png q c1"]);
    assert_eq!(summary(&open(&at, Some(Split::Train))), ["y: c, d.png"]);
    root.write("data.csv", "label,path,id\nx,a.png,one\nx,b.png,two\n");
    assert_eq!(summary(&open(&at, None)), ["x: one", "x: two"]);

    let bad = |content: &str| refused_with(&root, &at, "data.csv", content);
    bad("path,lable\n");
    bad("path\na.png\n");
    bad("path,label,path\n");
    bad("path,label\na.png\n");
    bad("path,label\na.png,\n");
    bad("path,label\na.png,x\nz.png,x\n");
    bad("path,label\na.png,x\na.png,y\n");
    bad("path,label\n\"a.png,x\n");
    bad("path,label,camera\na.png,x,left\n");
    bad("path,label,split\na.png,x,dev\n");
    bad("path,label,x_1\na.png,x,4\n");
    bad(&format!("{header}a.png,x,test,0,0,\n"));
    bad(&format!("{header}a.png,x,test,1,0,\nb.png,y,test,0,1,\n"));
    bad(&format!("{header}a.png,x,test,maybe,0,\n"));
    bad("path,label\n");
    root.write("data.csv", "path,label\na.png,x\nb.png,x\n");
    refused_as(&root, None, &at, Some(Split::Test));
    refused_with(&root, &at, "data.csv", b"path,label\na.png,\xff\n");
    root.write("data.csv", b"\xef\xbb\xbfpath,label\na.png,x\nb.png,x\n");
    assert_eq!(open(&at, None).items.len(), 2, "a byte order mark is no part of the header");
    insta::assert_snapshot!(root.told());
}

/// Lists by users of other programs: another separator, encoding or column name. All name the images of
/// `audit images --out src`.
#[test]
fn lists_of_other_programs_are_read() {
    let root = Transcript::new(Temp::new());
    let paths = |class: usize| (0..6).map(move |i| format!("src/class{class:02}/{i:02}.png"));
    images(&root, &(0..6).flat_map(paths).collect::<Vec<_>>());
    let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lists");
    let list = |name: &str| {
        fs::copy(lists.join(name), root.join(name)).unwrap();
        open(&root.join(name), None)
    };
    let plain = list("bom.csv");
    assert_eq!(plain.items.len(), 36);
    assert_eq!(summary(&plain)[7], "class01: src/class01/01.png");
    let unread = |name: &str| root.note(&list(name).notes.join("\n"));
    let other = "backslash crlf image_label names noheader pandas_index semicolon spaces tab upper utf16";
    for name in words(other) {
        let found = list(&format!("{name}.csv"));
        assert_eq!((summary(&found), &found.notes[..]), (summary(&plain), &[][..]), "{name}");
    }
    for name in ["extra.csv", "gldv2.csv"] {
        assert_eq!(summary(&list(name)), summary(&plain), "{name}");
        unread(name);
    }
    let text = list("list.txt");
    assert_eq!(summary(&text)[7], "1: src/class01/01.png");
    assert_eq!((text.items.len(), text.notes.len()), (36, 0));
    // Six classes, each with one query, or three images of the split.
    for name in ["boolquery.csv", "intquery.csv"] {
        assert_eq!(list(name).items.iter().filter(|item| item.role() == Role::Query).count(), 6, "{name}");
    }
    assert_eq!(list("valsplit.csv").items.len(), 18);
    insta::assert_snapshot!(root.told());
}

/// More lists of the same kinds, written here.
#[test]
fn what_a_list_means_is_read_or_asked() {
    let root = Transcript::new(Temp::new());
    images(&root, &["a.png", "b c.png", "d.jpg"]);
    let read = |name: &str, content: &[u8]| {
        let found = open(&root.write(name, content), None);
        found.notes.iter().for_each(|note| root.note(note));
        summary(&found)
    };
    let [a, b] = ["x: a.png", "x: b c.png"];
    let wide = |text: &str, bytes: fn(u16) -> [u8; 2]| {
        text.encode_utf16().chain([]).flat_map(bytes).collect::<Vec<u8>>()
    };
    let table = "\u{feff}Image Path;Class-Name\r\na.png; x \r\n\"b c.png\" ; x\r\n";
    for bytes in [table.as_bytes().to_vec(), wide(table, u16::to_le_bytes), wide(table, u16::to_be_bytes)] {
        assert_eq!(read("list.csv", &bytes), [a, b]);
    }
    // The last blank of a line ends its path.
    assert_eq!(read("list.txt", b"a.png x\nb c.png  x\n"), [a, b]);
    assert_eq!(read("list.tsv", b"a.png\tx\nb c.png\tx\n"), [a, b]);
    assert_eq!(read("list.txt", b"path label\na.png x\nb c.png x\n"), [a, b]);
    // Spreadsheets end lines with separators.
    assert_eq!(read("list.csv", b"path,label,,\na.png,x,,\nb c.png,x,,,,\n"), [a, b]);
    assert_eq!(read("list.csv", b"Image,Id\na.png,x\nb c.png,x\n"), [a, b]);
    assert_eq!(read("list.csv", b"file,bird\na.png,x\nb c.png,x\n"), [a, b]);
    assert_eq!(read("list.csv", b"path,label,class,SPLIT\na.png,x,1,Test\nb c.png,x,2,VAL\n"), [a, b]);
    let lines = br#"{"file_name": "a.png", "label": 3, "box": [1, 2]}
        {"file_name": "b c.png", "label": 3}"#;
    assert_eq!(read("list.jsonl", lines), ["3: a.png", "3: b c.png"]);
    let refuses = |name: &str, content: &[u8]| refused(&root, &root.write(name, content));
    refuses("list.csv", b"filename,image_path,label\na.png,a.png,x\n");
    refuses("list.csv", b"path,class,identity\na.png,x,1\n");
    refuses("list.csv", b"a,b,c\na.png,x,1\n");
    refuses("list.csv", b"path,label,spilt\na.png,x,train\n");
    refuses("list.csv", b"a.png,x,1\nb c.png,x,1\n");
    refuses("list.txt", b"some notes about the images\n");
    refuses("list.csv", b"\xff\xfea\0,");
    refuses("list.csv", b"path,label\na.png,caf\xe9\n");
    refuses("list.jsonl", b"{\"file_name\": \"a.png\", \"label\": 3}\nx\n");
    refuses("list.jsonl", b"{\"file_name\": \"a.png\", \"labels\": [3]}\n");
    insta::assert_snapshot!(root.told());
}

#[test]
fn image_folders_have_their_classes_in_a_table() {
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
    // Class folders are recognised whatever a table says of captions.
    images(&root, &["folders/x/1.png", "folders/x/2.png"]);
    root.write("folders/metadata.csv", "file_name,caption\nx/1.png,one\nx/2.png,two\n");
    assert_eq!(summary(&open(&root.join("folders"), None)), ["x: x/1.png", "x: x/2.png"]);
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

/// Pairs are recognised by the content of the list, whatever its name.
#[test]
fn pairs_of_other_programs_are_read() {
    let root = Transcript::new(Temp::new());
    let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lists");
    let names = ["Abel_Pacheco", "Al-Ani", "Bush_Jr.", "José_Ángel", "O'Neal", "Zico"];
    let files = names.iter().flat_map(|n| (1..=4).map(move |i| format!("lfw/{n}/{n}_{i:04}.jpg")));
    images(&root, &files.collect::<Vec<_>>());
    for (name, before, after) in [("pairsDevTest.txt", "", ""), ("pairs_label.csv", "lfw/", ".jpg")] {
        fs::copy(lists.join(name), root.join(name)).unwrap();
        let found = open(&root.join(name), None);
        let [one, two] = [1, 2].map(|i| format!("{before}Abel_Pacheco/Abel_Pacheco_000{i}{after}"));
        assert_eq!(pairs(&found)[0], format!("{one} = {two}"));
        says(&found.source, &["(pairs, ", "genuine and"]);
        decodes(&found);
    }
    let [one, two] = ["Zico/Zico_0001", "Zico/Zico_0002"];
    let [same, other] = [format!("{one} = {two}"), format!("{one} ≠ O'Neal/O'Neal_0003")];
    let read = |name: &str, content: &str| pairs(&open(&root.write(name, content), None));
    // LFW's list without its first line, with names that have blanks, and as a table.
    assert_eq!(read("dev.txt", "Zico 1 2\nZico 1 O'Neal 3\n"), [same.clone(), other.clone()]);
    images(&root, &["lfw/Pelé Jr/Pelé Jr_0001.jpg"]);
    let blanks = read("dev.txt", "Zico\t1\t2\nZico\t1\tPelé Jr\t1\n");
    assert_eq!(blanks[1], format!("{one} ≠ Pelé Jr/Pelé Jr_0001"));
    let kaggle = "name,imagenum1,imagenum2,\nZico,1,2,\nZico,1,O'Neal,3\n";
    assert_eq!(read("kaggle.csv", kaggle), [same, other]);
    // Tables and lists of paths, beside the images' folder; words for yes and no.
    let (path, third) = (|stem: &str| format!("{stem}.jpg"), "O'Neal/O'Neal_0003");
    for [yes, no] in [["yes", "no"], ["1", "0"], ["True", "FALSE"], ["same", "different"], ["1", "-1"]] {
        let rows = [[two, yes], [third, no]].map(|[b, word]| [path(one), path(b), word.to_string()]);
        for (name, head, mark) in [
            ("list.txt", "", " "),
            ("list.csv", "", ","),
            ("list.csv", "Image1;Image2;Match\n", ";"),
            ("list.tsv", "path_1\tpath_2\tis_same\n", "\t"),
        ] {
            let body = rows.each_ref().map(|row| row.join(mark) + "\n").concat();
            let expected =
                [format!("{} = {}", path(one), path(two)), format!("{} ≠ {}", path(one), path(third))];
            assert_eq!(read(name, &format!("{head}{body}")), expected, "{name} {head}{body}");
        }
    }
    let refuses = |name: &str, content: &str| refused(&root, &root.write(name, content));
    refuses("list.csv", "image1,image2\nZico/Zico_0001.jpg,Zico/Zico_0002.jpg\n");
    refuses("list.csv", "image1,image2,score,date\nZico/Zico_0001.jpg,Zico/Zico_0002.jpg,3,4\n");
    let both = "Zico/Zico_0001.jpg Zico/Zico_0002.jpg";
    refuses("list.txt", &format!("{both} 1\n{both} maybe\n"));
    insta::assert_snapshot!(root.told());
}

/// The grey level of the first pixel of an image that has one level.
fn level(data: &Dataset, index: usize) -> u32 {
    let pixels = data.pixels(index, &Preparation::new(1, 3, 4)).unwrap_or_else(|e| panic!("{e}"));
    (pixels.data[0] * 255.0).round() as u32
}

/// A file that research/golden/golden_shards.py wrote.
fn shard(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shards").join(name)
}

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
    let told = root.told().replace(env!("CARGO_MANIFEST_DIR"), "ROOT");
    insta::assert_snapshot!(told);
}

/// A file in an archive.
fn file(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let padding = vec![0; content.len().next_multiple_of(512) - content.len()];
    [header, content.to_vec(), padding].concat()
}

/// Flags name the columns: they override the usual names.
#[test]
fn columns_are_named_by_flags() {
    let root = Transcript::new(Temp::new());
    images(&root, &["a.png", "b.png", "c.png", "d.png"]);
    let named = |path: &Path, image: Option<&str>, label: Option<&str>| {
        let [image_column, label_column] = [image, label].map(|name| name.map(str::to_owned));
        Dataset::open_as(path, &Wanted { image_column, label_column, ..Wanted::default() })
    };
    let rows = ["a.png,d.png,1,red", "b.png,c.png,2,red", "c.png,b.png,1,blue", "d.png,a.png,2,blue"];
    let table = root.write("rows.csv", format!("path,Shot At,label,hue\n{}\n", rows.join("\n")));
    assert_eq!(summary(&open(&table, None)), ["1: a.png", "1: c.png", "2: b.png", "2: d.png"]);
    let by_hue = named(&table, None, Some("hue")).unwrap();
    assert_eq!(summary(&by_hue), ["blue: c.png", "blue: d.png", "red: a.png", "red: b.png"]);
    says(&by_hue.notes[0], &["columns that are not read: Shot At, label"]);
    let other = named(&table, Some("shot_at"), Some("hue")).unwrap();
    assert_eq!(summary(&other), ["blue: a.png", "blue: b.png", "red: c.png", "red: d.png"]);
    let lines = root.write("rows.jsonl", "{\"image\": \"a.png\", \"kind\": 1, \"label\": 2}\n{\"image\": \"b.png\", \"kind\": 1, \"label\": 3}\n");
    assert_eq!(summary(&named(&lines, None, Some("kind")).unwrap()), ["1: a.png", "1: b.png"]);
    // Images and classes of Parquet, and keys of archives.
    let images = named(&shard("datasets.parquet"), Some("image"), Some("label")).unwrap();
    assert_eq!(summary(&images), summary(&open(&shard("datasets.parquet"), None)));
    let plain = named(&shard("plain.parquet"), Some("jpg"), Some("identity")).unwrap();
    assert_eq!(summary(&plain), summary(&open(&shard("plain.parquet"), None)));
    let sample = |key: &str, text: &str| {
        let files = [("png", &b"x"[..]), ("cls", b"3"), ("json", text.as_bytes())];
        files.map(|(ending, content)| file(&format!("{key}.{ending}"), content)).concat()
    };
    let samples = [sample("1", "{\"Breed\": \"pug\", \"label\": 7}"), sample("2", "{\"breed\": \"pug\"}")];
    let keyed = root.write("keyed.tar", [samples.concat(), vec![0; 1024]].concat());
    assert_eq!(summary(&open(&keyed, None)), ["3: keyed.tar/1.png", "3: keyed.tar/2.png"]);
    let by_breed = named(&keyed, None, Some("breed")).unwrap();
    assert_eq!(summary(&by_breed), ["pug: keyed.tar/1.png", "pug: keyed.tar/2.png"]);
    for (path, image, label) in [
        (table.clone(), None, Some("huf")),
        (table.clone(), Some("photo"), None),
        (shard("datasets.parquet"), Some("photo"), None),
        (shard("datasets.parquet"), None, Some("breed")),
        (shard("pax.tar"), Some("png"), None),
        (shard("pax.tar"), None, Some("breed")),
        (root.to_path_buf(), None, Some("hue")),
        ("generated:3x4".into(), None, Some("hue")),
    ] {
        root.note(&named(&path, image, label).expect_err("refused").message);
    }
    let told = root.told().replace(env!("CARGO_MANIFEST_DIR"), "ROOT");
    insta::assert_snapshot!(told);
}

/// A .json that is no COCO list is refused by its content, with the lists that are supported.
#[test]
fn other_json_is_refused_by_what_it_holds() {
    let root = Transcript::new(Temp::new());
    for (name, text) in [
        ("report.json", "{\"a\": 1, \"images\": 3}"),
        ("empty.json", "{}"),
        ("rows.json", "[{\"path\": \"x.png\", \"label\": 1}]"),
        ("names.json", "[\"x.png\"]"),
        ("lines.json", "{\"path\": \"x.png\"}\n{\"path\": \"y.png\"}\n"),
        ("text.json", "path,label\nx.png,1\n"),
        ("number.json", "3"),
        ("wrong.json", "{\"images\": [{\"id\": 1}], \"annotations\": [], \"categories\": []}"),
    ] {
        refused_with(&root, &root.join(name), name, text);
    }
    insta::assert_snapshot!(root.told());
}

#[test]
fn boxes_of_coco_are_cut_out() {
    let root = Transcript::new(Temp::new());
    // Two halves of one picture: 10 on the left, 200 on the right.
    let picture = image::GrayImage::from_fn(8, 3, |x, _| image::Luma([if x < 4 { 10 } else { 200 }]));
    fs::create_dir_all(root.join("val2017")).unwrap();
    picture.save(root.join("val2017/a.png")).unwrap();
    let list = |annotations: &str| {
        let images = r#""images": [{"id": 5, "file_name": "a.png", "width": 8}]"#;
        let categories = r#""categories": [{"id": 1, "name": "left"}, {"id": 2, "name": "right"}]"#;
        let all = format!("{{{images}, {categories}, \"annotations\": [{annotations}]}}");
        root.write("annotations/instances_val2017.json", all)
    };
    let one = |id: u32, category: u32, rest: &str| {
        format!(r#"{{"id": {id}, "image_id": 5, "category_id": {category}{rest}}}"#)
    };
    let boxes = [
        one(1, 1, r#", "bbox": [0, 0, 3.5, 3], "area": 10"#),
        one(2, 2, r#", "bbox": [4.2, 0.5, 90, 90]"#),
        one(3, 2, r#", "bbox": [0, 0, 8, 3], "iscrowd": 1"#),
        one(4, 2, r#", "bbox": [0, 0, 0, 3]"#),
    ];
    let found = open(&list(&boxes.join(",")), None);
    assert_eq!(summary(&found), ["left: a.png#1", "right: a.png#2"]);
    assert_eq!([0, 1].map(|i| level(&found, i)), [10, 200]);
    says(&found.notes[0], &["2 annotations of crowds or without an area"]);
    assert!(found.items[0].file().is_none(), "other images are in the file too");
    let digests = [0, 1].map(|i| found.pixels(i, &Preparation::new(1, 3, 4)).unwrap().digest);
    assert_ne!(digests[0], digests[1]);
    assert_eq!(summary(&open(&list(&one(1, 1, "")), None)), ["left: a.png"]);
    let outside = open(&list(&one(1, 1, r#", "bbox": [9, 0, 3, 3]"#)), None);
    root.note(&outside.pixels(0, &Preparation::new(1, 3, 4)).unwrap_err().message);
    refused(&root, &list(&one(1, 3, "")));
    refused(&root, &list(&one(1, 1, r#", "bbox": [1, 2]"#)));
    refused(&root, &list(""));
    refused(&root, &root.write("report.json", "{\"images\": []}"));
    refused_as(&root, None, &root.join("report.json"), Some(Split::Test));
    // The list of the reference data, whose images are whole files.
    let paths = |class: usize| (0..6).map(move |i| format!("src/class{class:02}/{i:02}.png"));
    images(&root, &(0..6).flat_map(paths).collect::<Vec<_>>());
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lists/coco.json"), root.join("coco.json"))
        .unwrap();
    let whole = open(&root.join("coco.json"), None);
    assert_eq!((whole.items.len(), summary(&whole)[7].as_str()), (36, "c1: src/class01/01.png"));
    insta::assert_snapshot!(root.told());
}

/// docs/formats.md lists the layouts as the program does. `LAYOUTS=write` writes the table into the page.
#[test]
fn the_table_of_layouts_is_that_of_the_program() {
    const HEAD: &str = "| layout | what it looks like |\n|---|---|\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats.md");
    let mut page = fs::read_to_string(&path).unwrap();
    let rows = LAYOUTS.iter().map(|layout| {
        format!("| `{}` | {} |\n", layout.name, layout.about.replace('<', "\\<").replace('|', "\\|"))
    });
    let table = format!("{HEAD}{}", rows.collect::<String>());
    let from = page.find(HEAD).expect("docs/formats.md has no table of layouts");
    let to = page[from..].find("\n\n").map_or(page.len(), |end| from + end + 1);
    if page[from..to] != table && std::env::var("LAYOUTS").is_ok_and(|what| what == "write") {
        page.replace_range(from..to, &table);
        fs::write(&path, &page).unwrap();
        return;
    }
    assert_eq!(&page[from..to], table, "LAYOUTS=write writes the table into docs/formats.md");
}

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

/// class, probe, reference, kind and group of each pair, in short.
fn pairs(data: &Dataset) -> Vec<String> {
    let group =
        |p: &audit::data::ListedPair| p.group.clone().map_or(String::new(), |group| format!(" {group}"));
    let sign = |p: &audit::data::ListedPair| if p.same { "=" } else { "≠" };
    data.pairs.iter().map(|p| format!("{} {} {}{}", p.probe, sign(p), p.reference, group(p))).collect()
}

#[test]
fn pairs_of_a_table() {
    let root = Transcript::new(Temp::new());
    images(&root, &["a/1.png", "a/2.png", "b/1.png", "b/2.png", "c/1.png"]);
    let list = |rows: &str| root.write("pairs.csv", format!("path_a,path_b,same,group\n{rows}"));
    let at =
        list("a/2.png,a/1.png,true,x\nb/1.png,b/2.png,1,\na/2.png,b/1.png,False,y z\nc/1.png,b/2.png,0,x\n");
    let data = open(&at, None);
    // Identities are the components of genuine pairs, named by the first of their images; images of second
    // columns only are no queries.
    let first = ["a/1.png: a/1.png g", "a/1.png: a/2.png"];
    assert_eq!(summary(&data)[..2], first);
    assert_eq!(summary(&data)[2..], ["b/1.png: b/1.png", "b/1.png: b/2.png g", "c/1.png: c/1.png"]);
    let listed = ["a/2.png = a/1.png x", "b/1.png = b/2.png", "a/2.png ≠ b/1.png y z", "c/1.png ≠ b/2.png x"];
    assert_eq!(pairs(&data), listed);
    assert!(data.source.ends_with("pairs.csv (pairs, 2 genuine and 2 impostor pairs)"), "{}", data.source);
    decodes(&data);
    for rows in [
        "a/1.png,a/2.png,true,\na/1.png,a/1.png,false,\n",
        "a/1.png,a/2.png,maybe,\n",
        "a/1.png,a/2.png,,\n",
        "a/1.png,,true,\n",
        "a/1.png,a/2.png,true\n",
        "a/1.png,d/9.png,false,\n",
        "a/1.png,b/1.png,1,\nb/1.png,c/1.png,1,\nc/1.png,a/1.png,0,\n",
        "",
    ] {
        refused(&root, &list(rows));
    }
    refused_with(&root, &at, "pairs.csv", "path_a,path_c,same\n");
    refused_as(&root, None, &at, Some(Split::Test));
    // Tables of single images stay single.
    let single = root.write("single.csv", "path,label\na/1.png,a\na/2.png,a\n");
    assert!(open(&single, None).pairs.is_empty());
    insta::assert_snapshot!(root.told());
}

#[test]
fn pairs_of_lfw() {
    let root = Transcript::new(Temp::new());
    let folder = |name: &str| format!("lfw/{name}/{name}");
    let photos = [("Ann_Lee", 1), ("Ann_Lee", 12), ("Bo", 1), ("Bo", 3)];
    images(&root, &photos.map(|(name, i)| format!("{}_{i:04}.jpg", folder(name))));
    let list = |text: &str| root.write("pairs.txt", text);
    list("2\t1\nAnn_Lee\t1\t12\nAnn_Lee\t1\tBo\t3\nBo\t3\t1\nBo\t1\tAnn_Lee\t12\n");
    for at in [root.to_path_buf(), root.join("pairs.txt")] {
        let data = open(&at, None);
        let first = ["Ann_Lee: Ann_Lee/Ann_Lee_0001", "Ann_Lee: Ann_Lee/Ann_Lee_0012 g"];
        assert_eq!(summary(&data)[..2], first);
        assert_eq!(summary(&data)[2..], ["Bo: Bo/Bo_0001", "Bo: Bo/Bo_0003"]);
        assert_eq!(pairs(&data)[0], "Ann_Lee/Ann_Lee_0001 = Ann_Lee/Ann_Lee_0012");
        assert_eq!(pairs(&data)[3], "Bo/Bo_0001 ≠ Ann_Lee/Ann_Lee_0012");
        decodes(&data);
    }
    for text in [
        "10\t300\nAnn_Lee\t1\t12\n",
        "1\nAnn_Lee\t1\tx\nBo\t1\tAnn_Lee\t1\n",
        "1\nAnn_Lee\t1\n",
        "1\nAnn_Lee\t1\tAnn_Lee\t12\n",
        "1\nAnn_Lee\t1\t2\nBo\t1\tAnn_Lee\t1\n",
        "x y z\n",
        "1 2 3\n",
        "",
    ] {
        list(text);
        refused(&root, &root);
    }
    insta::assert_snapshot!(root.told());
}

#[test]
fn galleries_of_embeddings() {
    let root = Transcript::new(Temp::new());
    let at = root.join("gallery.npy");
    let values: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    fs::write(&at, npy("<f4", "(3, 2)", &values)).unwrap();
    root.write("gallery.csv", "id,label,camera\na,x,1\nb,x,\nc,y,2\n");
    let found = vectors::read(&at).unwrap();
    assert_eq!(found.embeddings, ndarray::array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    assert_eq!((found.ids.concat(), found.cameras), ("abc".into(), vec![Some(1), None, Some(2)]));

    let refused = || root.note(&vectors::read(&at).unwrap_err().message);
    for rows in ["id,label\na,x\nb,x\n", "id,label\na,x\nb,x\na,y\n", "id,class\n"] {
        root.write("gallery.csv", rows);
        refused();
    }
    fs::remove_file(root.join("gallery.csv")).unwrap();
    refused();
    for (kind, shape) in [("<f4", "(3, 3)"), ("<i8", "(3, 2)"), ("<f4", "(6,)")] {
        fs::write(&at, npy(kind, shape, &values)).unwrap();
        refused();
    }
    let wide: Vec<u8> = [0.5f64, -1.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    fs::write(&at, npy("<f8", "(1, 2)", &wide)).unwrap();
    root.write("gallery.csv", "id,label\na,x\n");
    assert_eq!(vectors::read(&at).unwrap().embeddings.row(0).to_vec(), [0.5, -1.0]);
    fs::write(&at, npy("<f4", "(1, 1)", &f32::NAN.to_le_bytes())).unwrap();
    refused();
    let other = vectors::read(Path::new("gallery.json")).unwrap_err().message;
    root.note(&other);
    insta::assert_snapshot!(root.told());
}

/// The files are those of pandas, polars, DuckDB and PyArrow; research/golden/golden_parquet.py made them and
/// describes them.
#[test]
fn galleries_of_embeddings_in_parquet() {
    let root = Transcript::new(Temp::new());
    for (name, ids) in [("pandas", "abc"), ("polars", "123"), ("duckdb", "abc"), ("pyarrow", "abc")] {
        let found = vectors::read(&golden("galleries").join(format!("{name}.parquet")))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let points: Vec<f32> = found.embeddings.iter().copied().collect();
        assert_eq!((found.embeddings.dim(), points), ((3, 2), vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.5]), "{name}");
        assert_eq!(found.ids, ids.chars().map(String::from).collect::<Vec<_>>(), "{name}");
        assert_eq!(found.labels, ["7", "7", "8"], "{name}");
        let cameras = if name == "duckdb" { [None; 3] } else { [Some(1), None, Some(2)] };
        assert_eq!(found.cameras, cameras, "{name}");
    }
    let bad = "no-label other-column null-id twice float-id camera camera-text ragged null-value null-list \
               not-finite whole single listed-id no-rows struct";
    for name in words(bad) {
        let file = format!("bad-{name}.parquet");
        let error = vectors::read(&golden("galleries").join(&file)).expect_err(name);
        assert_eq!(error.exit, Exit::Usage);
        root.note(&error.message);
    }
    insta::assert_snapshot!(root.told());
}

/// Cut off or changed anywhere, a file is an error or another gallery, and never a panic.
#[test]
fn damaged_parquet_is_refused() {
    let root = Temp::new();
    let at = root.join("gallery.parquet");
    for name in ["pandas", "polars", "duckdb", "pyarrow"] {
        let whole = fs::read(golden("galleries").join(format!("{name}.parquet"))).unwrap();
        for keep in (0..whole.len()).step_by(13) {
            fs::write(&at, &whole[..keep]).unwrap();
            let error = vectors::read(&at).expect_err("cut off");
            assert!(error.message.contains("gallery.parquet"), "{error}");
        }
        for place in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << (place % 8);
            fs::write(&at, bytes).unwrap();
            let _ = vectors::read(&at);
        }
    }
}

/// tests/golden/pixels has torchvision's results for the same files; research/golden/golden_data.py made it.
#[test]
fn pixels_are_torchvisions() {
    #[derive(serde::Deserialize)]
    struct Case {
        image: String,
        interpolation: Interpolation,
        resize: serde_json::Value,
        /// By torchvision with PIL 13.
        expected: String,
        /// By PIL up to 12, if it differs.
        rows_first: Option<String>,
    }
    let cases = fs::read_to_string(golden("pixels/cases.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&cases).unwrap();
    assert_eq!(cases.len(), 40);
    let root = Temp::new();
    for case in &cases {
        let class = root.join(&case.expected).join("x");
        fs::create_dir_all(&class).unwrap();
        fs::copy(golden("pixels").join(&case.image), class.join(&case.image)).unwrap();
        let resize = match case.resize.as_u64() {
            Some(side) => Resize::Shorter(side as usize),
            None => Resize::Exact(32, 32),
        };
        let plain = Preparation::new(3, 24, 24);
        let prep = Preparation { resize: Some(resize), interpolation: case.interpolation, ..plain };
        let found = open(&root.join(&case.expected), None).pixels(0, &prep).unwrap().data;
        // The mean and the largest difference, in 8-bit levels.
        let gap = |file: &str| {
            let image = image::open(golden("pixels").join(file)).unwrap().to_rgb8();
            let expected = (0..3).flat_map(|c| image.pixels().map(move |p| f32::from(p.0[c]) / 255.0));
            let gaps: Vec<f32> = expected.zip(&found).map(|(a, b)| (a - b).abs() * 255.0).collect();
            (gaps.iter().sum::<f32>() / gaps.len() as f32, gaps.iter().fold(0.0f32, |m, &gap| m.max(gap)))
        };
        let (mean, most) = gap(&case.expected);
        assert!(mean < 1.0, "{}: mean {mean}", case.expected);
        let (mean, most) = case.rows_first.as_deref().map_or((mean, most), gap);
        match case.image.ends_with("jpg") {
            // Another JPEG decoder rounds differently.
            true => assert!(mean < 0.6 && most < 6.0, "{}: mean {mean}, most {most}", case.expected),
            // torch resizes tensors in floating point, and the file holds the rounded result.
            false if case.expected.contains("aliased") => assert!(most < 0.51, "{}: {most}", case.expected),
            false => assert!(most < 1e-4, "{}: most {most}: PIL's pixels exactly", case.expected),
        }
    }
    let differing = cases.iter().filter(|case| case.rows_first.is_some()).count();
    assert!(differing > 0, "the order of the passes is tested");
}

#[test]
fn a_cut_larger_than_the_image_is_refused() {
    let root = Transcript::new(Temp::new());
    images(&root, &["x/a.png", "x/b.png"]);
    let data = open(&root, None);
    for resize in [Resize::Shorter(20), Resize::Exact(30, 20)] {
        let prep = Preparation { resize: Some(resize), ..Preparation::new(3, 24, 24) };
        root.note(&data.pixels(0, &prep).unwrap_err().message);
    }
    insta::assert_snapshot!(root.told());
}

/// Two labels that only a line separator, a no-break space or an em space tells apart are two, as in Parquet.
#[test]
fn labels_that_unusual_blanks_tell_apart_stay_apart() {
    let root = Temp::new();
    let labels = ["a", "a\u{2028}", "\u{2028}a", "a\u{a0}", "a\u{2003}", " a "];
    let mut rows = "path,label\n".to_string();
    for (i, label) in labels.iter().enumerate() {
        root.write(&format!("{i}.png"), b"x");
        rows += &format!("{i}.png,{label}\n");
    }
    let data = Dataset::open(&root.write("rows.csv", rows), None, None).unwrap();
    let mut expected = labels[..5].to_vec();
    expected.sort_unstable();
    assert_eq!(data.classes, expected);
}
