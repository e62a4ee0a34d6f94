//! Lists of images with their classes: rows and columns, text, COCO.

use super::*;

#[test]
fn lists_say_everything_in_rows() {
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

    for content in [
        "path,lable\n",
        "path\na.png\n",
        "path,label,path\n",
        "path,label\na.png\n",
        "path,label\na.png,\n",
        "path,label\na.png,x\nz.png,x\n",
        "path,label\na.png,x\na.png,y\n",
        "path,label\n\"a.png,x\n",
        "path,label,camera\na.png,x,left\n",
        "path,label,split\na.png,x,dev\n",
        "path,label,x_1\na.png,x,4\n",
        &format!("{header}a.png,x,test,0,0,\n"),
        &format!("{header}a.png,x,test,1,0,\nb.png,y,test,0,1,\n"),
        &format!("{header}a.png,x,test,maybe,0,\n"),
        "path,label\n",
    ] {
        refused_with(&root, &at, "data.csv", content);
    }
    root.write("data.csv", "path,label\na.png,x\nb.png,x\n");
    refused_as(&root, None, &at, Some(Split::Test));
    refused_with(&root, &at, "data.csv", b"path,label\na.png,\xff\n");
    root.write("data.csv", b"\xef\xbb\xbfpath,label\na.png,x\nb.png,x\n");
    assert_eq!(open(&at, None).items.len(), 2, "a byte order mark is no part of the header");
    insta::assert_snapshot!(root.told());
}

/// A list beside the folder of its images, inside of it, and one without extensions: the message names the
/// file that was meant.
#[test]
fn a_missing_image_is_looked_for_nearby() {
    let root = Temp::new();
    images(&root, &["photos/a.png", "photos/b.png"]);
    let begin = "paths in a list begin at the list's folder";
    for (list, row, next) in [
        ("list.csv", "a.png", begin),
        ("photos/list.csv", "photos/a.png", begin),
        ("photos/list.csv", "a", "write the extension into the list"),
    ] {
        let list = root.write(list, format!("path,label\n{row},x\n"));
        let error = Dataset::open(&list, None, None).unwrap_err().message;
        let found = root.join("photos/a.png");
        assert!(error.ends_with(&format!("There is {}: {next}", found.display())), "{error}");
    }
    let list = root.write("list.csv", "path,label\nz.png,x\n");
    let error = Dataset::open(&list, None, None).unwrap_err().message;
    assert!(error.ends_with("Unpack the data set completely, or remove the row"), "{error}");
}

/// A list whose columns have names that nobody can know names the flags.
#[test]
fn columns_of_unknown_names_are_named_by_flags() {
    let root = Temp::new();
    images(&root, &["a.png", "b.png"]);
    for (rows, next) in [
        ("foto,whale\na.png,x\nb.png,x\n", "Say which of them it is, --image-column NAME, or name it `path`"),
        (
            "path,one,two\na.png,x,y\nb.png,x,y\n",
            "Say which of them it is, --label-column NAME, or name it `label`",
        ),
    ] {
        let list = root.write("list.csv", rows);
        let error = Dataset::open(&list, None, None).unwrap_err().message;
        assert!(error.contains(next), "{error}");
    }
}

/// A name in quotation marks may contain a line break, as RFC 4180 has it. Rows after it keep their number. A
/// mark within a field opens nothing, so that a row with a lone one is refused with its line.
#[test]
#[cfg(unix)]
fn names_may_contain_line_breaks() {
    let root = Temp::new();
    images(&root, &["a\nb.png", "say \"c\"\n.png", "d.png"]);
    let rows = "\"a\nb.png\",x\n\n\"say \"\"c\"\"\n.png\", \"y\nz\"\n";
    let at = root.write("data.csv", format!("path,label\n{rows}d.png,x\n"));
    assert_eq!(summary(&open(&at, None)), ["x: a\nb.png", "x: d.png", "y\nz: say \"c\"\n.png"]);
    let missing = root.write("data.csv", format!("path,label\n{rows}e.png,x\n"));
    let error = Dataset::open(&missing, None, None).unwrap_err().message;
    says(&error, &["data.csv, line 8: image", "is listed, but missing"]);
    let lone = root.write("data.csv", "path,label\nd.png,5\" disc\na.png,6\" disc\n");
    let error = Dataset::open(&lone, None, None).unwrap_err().message;
    says(&error, &["data.csv, line 2: a quotation mark is never closed"]);
}

/// Lists by users of other programs: another separator, encoding or column name. All name the images of
/// `audit images --out src`.
#[test]
fn lists_of_other_programs_are_read() {
    let root = Transcript::new(Temp::new());
    let paths = |class: usize| (0..6).map(move |i| format!("src/class{class:02}/{i:02}.png"));
    images(&root, &(0..6).flat_map(paths).collect::<Vec<_>>());
    let list = |name: &str| {
        fs::copy(list_file(name), root.join(name)).unwrap();
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
    // Words of their own, though some are near a column that has a meaning.
    assert_eq!(
        read("list.csv", b"path,label,name,area,sport,groups\na.png,x,1,2,3,4\nb c.png,x,1,2,3,4\n"),
        [a, b]
    );
    let lines = br#"{"file_name": "a.png", "label": 3, "box": [1, 2]}
        {"file_name": "b c.png", "label": 3}"#;
    assert_eq!(read("list.jsonl", lines), ["3: a.png", "3: b c.png"]);
    for (name, content) in [
        ("list.csv", &b"filename,image_path,label\na.png,a.png,x\n"[..]),
        ("list.csv", b"path,class,identity\na.png,x,1\n"),
        ("list.csv", b"a,b,c\na.png,x,1\n"),
        ("list.csv", b"path,label,spilt\na.png,x,train\n"),
        ("list.csv", b"path,label\na.png,x,y\n"),
        ("list.csv", b"a.png,x,1\nb c.png,x,1\n"),
        ("list.txt", b"some notes about the images\n"),
        ("list.csv", b"\xff\xfea\0,"),
        ("list.csv", b"path,label\na.png,caf\xe9\n"),
        ("list.jsonl", b"{\"file_name\": \"a.png\", \"label\": 3}\nx\n"),
        ("list.jsonl", b"{\"file_name\": \"a.png\", \"labels\": [3]}\n"),
    ] {
        refused(&root, &root.write(name, content));
    }
    insta::assert_snapshot!(root.told());
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
    insta::assert_snapshot!(root.told());
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
    let twice = r#"{"images": [{"id": 5, "file_name": "a.png"}, {"id": 5, "file_name": "b.png"}],
        "annotations": [], "categories": []}"#;
    refused(&root, &root.write("twice.json", twice));
    refused(&root, &root.write("report.json", "{\"images\": []}"));
    refused_as(&root, None, &root.join("report.json"), Some(Split::Test));
    // The list of the reference data, whose images are whole files.
    let paths = |class: usize| (0..6).map(move |i| format!("src/class{class:02}/{i:02}.png"));
    images(&root, &(0..6).flat_map(paths).collect::<Vec<_>>());
    fs::copy(list_file("coco.json"), root.join("coco.json")).unwrap();
    let whole = open(&root.join("coco.json"), None);
    assert_eq!((whole.items.len(), summary(&whole)[7].as_str()), (36, "c1: src/class01/01.png"));
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
