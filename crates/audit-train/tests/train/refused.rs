//! Command lines that make no sense.

use super::*;

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let (folder, data) = stage(10);
    let folder = folder.path();
    let out = folder.join("m.onnx").display().to_string();
    train(&format!("none --data {data:?} --out {out:?} --batch 16 --steps 1")).unwrap();
    let checkpoint = folder.join("m.checkpoint").display().to_string();
    let none = folder.join("none.onnx").display().to_string();
    let text = folder.join("text.checkpoint");
    std::fs::write(&text, "no tensors").unwrap();
    for (words, said) in [
        ("pgd", "method `pgd` is unknown; known: none, est"),
        ("none --eps 8/255", "none has no attack"),
        ("none --lambda 2", "--lambda is for cap, anp, ca-tride"),
        ("hm --reading paper", "--reading is for cap, anp, ca-tride; hm has"),
        ("hm --loss multi-similarity", "hm is defined with triplet"),
        ("panum --loss margin", "panum is defined with triplet, contrastive"),
        ("hm --regulariser triplet", "--regulariser triplet: expected one of he-0, he-1, g-he"),
        ("none --regulariser-weight 2", "there is no regulariser to weigh"),
        ("hm --perturb ax", "--perturb ax: expected letters out of a (anchor)"),
        ("panum --perturb pn", "panum moves one image of a triplet"),
        ("panum --formulation joint --perturb a", "--perturb is for --formulation sample"),
        ("panum --adversarial-weight 1", "only with --formulation shift"),
        ("cap --top-rank-margin 0.1", "belong to L_TR, which isn't used here"),
        ("anp --reading naive --top-rank term", "use --top-rank loss or another reading"),
        ("hm --destination -0.1 --lga-u 2", "--lga-u is for --destination lga"),
        ("none --crop-area 0", "--crop-area 0: expected 0.01 to 1"),
        ("none --ers-every 0", "--ers-every 0: expected 1 or more epochs"),
        ("cap --steps 3", "it would train without an attack"),
        ("none --loss info-nce --sampler random", "info-nce takes every pair"),
        ("none --sampler nearest", "sampler `nearest` is unknown"),
        (
            "none --sampler random --eta 0.3",
            "are for the sampler semihard, also as --destination, found random",
        ),
        ("hm --sampler random --destination hardest --eta 0.1", "are for the sampler semihard, also as"),
        ("hm --sampler semihard --destination semihard", "as hard as that already"),
        ("hm --destination -3", "expected -2 to 2"),
        ("hm --destination x", "expected lga, a number such as -0.1, or a sampler"),
        (
            "hm --destination lga+0.1",
            "with a constant where its hardness is to be boosted, such as semihard+0.1",
        ),
        ("hm --destination semihard+", "--destination semihard+: expected lga, a number"),
        ("hm --destination semihard+x", "--destination semihard+x: expected lga, a number"),
        ("hm --destination nearest+0.1", "--destination nearest+0.1: expected lga, a number"),
        ("hm --destination semihard+3", "--destination semihard+3: hardness is a difference"),
        ("hm --destination distance5", "--destination distance5: expected lga, a number"),
        ("hm --sampler distance-clamped --destination distance-clamped", "as hard as that already"),
        ("hm --sampler semihard --destination semihard-0.1", "triplets of the sampler semihard are as hard"),
        ("cap --top-rank on", "belongs to anchor perturbation"),
        ("anp --reading naive --lambda 2", "weighs all samples alike"),
        ("ca-tride --lambda -1", "--lambda -1: expected 0 to 100"),
        ("ca-tride --lambda 101", "--lambda 101: expected 0 to 100"),
        ("ca-tride --lambda NaN", "--lambda NaN: expected 0 to 100"),
        ("ca-tride --eps 8", "--eps `8`: expected a fraction like 8/255"),
        ("ca-tride --eps 0", "--eps `0`: expected a fraction"),
        ("ca-tride --alpha 2", "--alpha `2`: expected a fraction"),
        ("ca-tride --pgd-steps 0", "train with `none`"),
        ("panum --gamma 1.5", "--gamma 1.5: expected 0 to 1"),
        ("none --batch 15", "expected an even number"),
        ("none --batch 1000", "larger than the data, which holds 80 images; give at most --batch 80"),
        (
            "none --batch 40",
            "two images of each of 20 classes, and the data holds 10 classes in 80 images; give at most --batch 20",
        ),
        ("none --steps 0", "trains nothing"),
        ("none --backbone vgg", "backbone `vgg` is unknown"),
        ("none --backbone resnet18", "give --pretrained or --init"),
        ("est --backbone resnet18", "would start from random weights"),
        ("--recipe est-released --batch 16", "would start from random weights"),
        ("none --norms train", "c2f1 has no batch norm"),
        ("none --pretrained x.safetensors", "takes torchvision's weights"),
        ("none --device cuda:7", "libtorch sees 0 CUDA devices"),
        ("none --device gpu", "expected cpu or cuda:N"),
        ("none --resume", "there is no checkpoint"),
        (&format!("none --init {text:?}"), "can't read"),
        (
            &format!("none --init {checkpoint:?} --backbone c2f2"),
            "is a checkpoint of a c2f1 with 128 dimensions, and this is a c2f2 with 512: missing",
        ),
        (
            &format!("none --init {checkpoint:?} --dim 64"),
            "fc1.weight is [128, 1568] there and [64, 1568] here",
        ),
    ] {
        let batch = if words.contains("--batch") { "" } else { "--batch 16" };
        if words.contains("cuda") && tch::Cuda::is_available() {
            continue;
        }
        let e = train(&format!("{words} --data {data:?} --out {none:?} {batch}")).expect_err(words);
        assert!(e.message.contains(said), "{words}: {e}");
        assert_eq!(e.exit, Exit::Usage, "{words}: {e}");
        assert!(!Path::new(&none).exists());
    }
    let e = train(&format!("none --data {data:?} --out {out:?} --batch 16 --steps 2 --resume --seed 4"))
        .unwrap_err();
    assert!(
        e.message.contains("seed 0 there and 4 here") && e.message.contains("steps 1 there and 2 here"),
        "{e}"
    );
    let e = train(&format!("none --batch 16 --data {data:?} --out {:?}", folder.join("m.pt"))).unwrap_err();
    assert!(e.message.contains("expected a name that ends in .onnx"), "{e}");
    // A damaged image, before a batch has it.
    let damaged = Path::new(&data).join("class07");
    let damaged = std::fs::read_dir(damaged).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&damaged).unwrap();
    std::fs::write(&damaged, "no image").unwrap();
    let (_other, validation) = stage(3);
    let words =
        format!("none --data {data:?} --validation {validation:?} --out {none:?} --batch 4 --steps 1");
    let e = train(&words).unwrap_err();
    assert!(e.message.contains(&damaged.display().to_string()) && e.exit == Exit::Usage, "{e}");
    assert!(e.message.ends_with("Replace the image, or remove it from the data"), "{e}");
    assert!(!Path::new(&none).with_extension("jsonl").exists());
    std::fs::write(&damaged, whole).unwrap();
    // A class with one image.
    std::fs::create_dir_all(Path::new(&data).join("lonely")).unwrap();
    let first = std::fs::read_dir(Path::new(&data).join("class00")).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(first, Path::new(&data).join("lonely/one.png")).unwrap();
    let e = train(&format!("none --data {data:?} --out {none:?} --batch 16")).unwrap_err();
    assert!(e.message.contains("a class of one image: lonely") && e.exit == Exit::Usage, "{e}");
}
