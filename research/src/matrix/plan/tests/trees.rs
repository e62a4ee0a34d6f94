//! The tables of the papers by the real programs, on a small tree of each layout.

use super::*;

/// A small tree of each layout in the papers: three classes of two images in either half.
fn trees(folder: &Path, audit: &Path) -> [PathBuf; 4] {
    let made = folder.join("made");
    let ran = std::process::Command::new(audit)
        .args(["images", "--classes", "6", "--samples", "2", "--size", "256", "--channels", "3", "--out"])
        .arg(&made)
        .status()
        .unwrap();
    assert!(ran.success());
    // (half, class, image)
    let mut images: Vec<(usize, usize, PathBuf)> = vec![];
    for class in 0..6 {
        let entries = fs::read_dir(made.join(format!("class{class:02}"))).unwrap();
        images.extend(entries.map(|entry| (class / 3, class, entry.unwrap().path())));
    }
    let put = |root: &Path, file: &str, image: &Path| {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::copy(image, root.join(file)).unwrap();
    };
    let numbered = || (1..).zip(&images);
    let roots = ["CUB_200_2011", "stanford_cars", "Stanford_Online_Products", "In-shop"]
        .map(|name| folder.join(name));
    let [birds, cars, products, shop] = &roots;
    let (mut list, mut labels, mut names) = (String::new(), String::new(), String::new());
    let mut halves = [0; 2].map(|_| "image_id class_id super_class_id path\n".to_string());
    let mut parts = format!("{}\nimage_name item_id evaluation_status\n", images.len());
    for (number, (half, class, image)) in numbered() {
        let kind = [1, 2, 3, 101, 102, 103][*class];
        let file = format!("{kind:03}.Kind/{number}.png");
        put(birds, &format!("images/{file}"), image);
        list += &format!("{number} {file}\n");
        labels += &format!("{number} {kind}\n");
        if number % 2 == 1 {
            names += &format!("{kind} {kind:03}.Kind\n");
        }
        put(cars, &format!("car_ims/{number:06}.jpg"), image);
        let file = format!("chair_final/{number}.png");
        put(products, &file, image);
        halves[*half] += &format!("{number} {} 1 {file}\n", class + 1);
        let file = format!("img/{number}.png");
        put(shop, &file, image);
        let part = if *half == 0 { "train" } else { ["gallery", "query"][number % 2] };
        parts += &format!("{file} id_{class:08} {part}\n");
    }
    for (name, text) in [("images.txt", list), ("image_class_labels.txt", labels), ("classes.txt", names)] {
        fs::write(birds.join(name), text).unwrap();
    }
    let annotations = xtask::project::root().join("tests/golden/cars/cars_pairs.mat");
    fs::copy(annotations, cars.join("cars_annos.mat")).unwrap();
    for (name, text) in ["Ebay_train.txt", "Ebay_test.txt"].into_iter().zip(halves) {
        fs::write(products.join(name), text).unwrap();
    }
    fs::create_dir_all(shop.join("Eval")).unwrap();
    fs::write(shop.join("Eval/list_eval_partition.txt"), parts).unwrap();
    roots
}

/// The whole with the real programs: every table, and every layout that a table has numbers of. Two epochs of
/// one or two steps, a small net, one query. One layout is enough for most tables, because layouts are read
/// alike for all.
#[test]
#[ignore = "needs a debug build of audit and audit-train"]
fn the_papers_tables_on_a_small_tree_of_each_layout() {
    let debug = |name: &str| xtask::project::root().join("target/debug").join(name);
    let tools = Tools { trainer: debug("audit-train"), audit: debug("audit") };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [birds, cars, products, shop] = trees(folder, &tools.audit);
    // A file such as torchvision's, of an untrained net.
    let weights = folder.join("resnet18.safetensors");
    let words = "none --backbone resnet18 --norms train --steps 1 --batch 6 -q --data";
    let ran = std::process::Command::new(&tools.trainer)
        .args(words.split(' '))
        .arg(&birds)
        .arg("--out")
        .arg(folder.join("untrained.onnx"))
        .status()
        .unwrap();
    assert!(ran.success());
    fs::write(&weights, safetensors(&folder.join("untrained.onnx"))).unwrap();
    let all = [birds, cars, products, shop];
    for (tables, only, train, layouts, found) in [
        ("ca-tride-tables", "ca-tride", "--pgd-steps 2", 1..2, "\n| ca-tride | printed, table 1 | 60.7 |"),
        (
            "hm-tables",
            "hm S-LGA ics 8",
            "--pgd-steps 2",
            2..3,
            "\n| hm S-LGA ics 8 | printed, table 6 | 48.3 |",
        ),
        (
            "panum-tables",
            "triplet γ 0.5",
            "--backbone resnet18",
            0..1,
            "\n| triplet γ 0.5 | printed | 53.8 |",
        ),
        (
            "adml-tables",
            "adml+u",
            "--backbone resnet18 --pgd-steps 2",
            0..4,
            "\n| adml+u | printed | 68.60 | 65.46 |",
        ),
    ] {
        let began = Instant::now();
        let mut flags = flags(Path::new(tables));
        flags.data = all[layouts.clone()].to_vec();
        flags.only = only.split(',').map(String::from).collect();
        flags.train = format!("--epochs 2 --batch 6 --pretrained {} {train}", weights.display());
        // With fewer steps the attack differs from the paper's, so there are no printed numbers beside
        // it.
        flags.audit = "--max-queries 1 --strong-sample off".into();
        flags.seeds = vec![0];
        flags.work = Some(folder.join("work").join(tables));
        flags.out = Some(folder.join(format!("{tables}.md")));
        let message = make(&flags, &tools).unwrap();
        eprintln!("{message} in {:.0} s", began.elapsed().as_secs_f64());
        let page = fs::read_to_string(folder.join(format!("{tables}.md"))).unwrap();
        assert!(page.contains(found), "{page}");
        for name in paper::data_names().skip(layouts.start).take(layouts.len()) {
            let section = page.split(&format!("\n# {name}\n")).nth(1).unwrap_or_default();
            let here = section.split("\n# ").next().unwrap_or_default();
            assert!(here.contains("## Printed and here") && here.contains("\n| | here | "), "{name}: {page}");
        }
    }
    let card = fs::read_to_string(folder.join("work/panum-tables/CUB/triplet_γ_0.5-0.yaml")).unwrap();
    assert!(card.contains("resize_shorter: 256"), "{card}");
    // A flag of one method is passed to all: the error has the next step.
    let mut wrong = flags(Path::new("ca-tride-tables"));
    wrong.data = all[..1].to_vec();
    wrong.train = format!("--steps 2 --batch 6 --pretrained {} --pgd-steps 2", weights.display());
    wrong.work = Some(folder.join("refused"));
    wrong.out = Some(folder.join("refused.md"));
    let error = make(&wrong, &tools).unwrap_err();
    assert_eq!(error.exit, audit::Exit::Usage);
    for words in ["method none: audit-train: none has no attack", "leave --pgd-steps out", "--only NAME"] {
        assert!(error.message.contains(words), "{error}");
    }
    // So does a flag that a later method refuses, and nothing is trained before.
    wrong.train = "--steps 2 --batch 6".into();
    wrong.plan = folder.join("later.yaml");
    let methods = "methods:\n- {name: first, train: none}\n- {name: second, train: none --pgd-steps 2}\n";
    fs::write(&wrong.plan, format!("seeds: [0]\n{methods}")).unwrap();
    let error = make(&wrong, &tools).unwrap_err();
    assert!(error.message.contains("method second: audit-train: none has no attack"), "{error}");
    let made = |folder: &Path| fs::read_dir(folder).unwrap().count();
    assert_eq!(made(&folder.join("refused/CUB")), 0);
}

/// The weights of a model in the form of a .safetensors file.
fn safetensors(model: &Path) -> Vec<u8> {
    let graph = onnx_grad::Graph::decode(fs::read(model).unwrap().into(), model).unwrap();
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, tensor) in &graph.constants {
        let start = data.len();
        tensor.to_f32s().unwrap().iter().for_each(|v| data.extend(v.to_le_bytes()));
        let entry =
            serde_json::json!({ "dtype": "F32", "shape": tensor.shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), entry);
    }
    let header = serde_json::Value::from(header).to_string();
    [(header.len() as u64).to_le_bytes().to_vec(), header.into_bytes(), data].concat()
}
