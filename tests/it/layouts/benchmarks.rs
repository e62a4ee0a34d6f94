//! Benchmarks of papers, with their own splits.

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;

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
    // Whatever folder a file system lists first, and files that aren't read are known.
    fs::create_dir_all(root.join("images_evaluation/.ipynb_checkpoints/x")).unwrap();
    fs::write(root.join("images_evaluation/Greek/character01/c.heic"), b"x").unwrap();
    let found = open(&root.join("images_evaluation"), None);
    assert_eq!(summary(&found), summary(&test));
    assert_eq!(found.left_out, ["Greek/character01/c.heic"]);
    fs::create_dir(root.join("images_evaluation/Greek/character03")).unwrap();
    refused(&root, &root);
    fs::remove_dir_all(root.join("images_background")).unwrap();
    refused_as(&root, None, &root, Some(Split::Train));
    insta::assert_snapshot!(root.told());
}

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
