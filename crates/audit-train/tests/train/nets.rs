//! Nets, their weights and the optimiser.

use super::*;

#[test]
fn backbones_have_torchvisions_names_and_outputs() {
    let golden = golden();
    assert_eq!(golden.backbones.len(), BACKBONES.len());
    for backbone in BACKBONES {
        let expected = &golden.backbones[backbone.name];
        let net = filled(backbone);
        let counter = |name: &str| name.ends_with("num_batches_tracked");
        let theirs: BTreeMap<&str, &Vec<i64>> =
            expected.weights.iter().filter(|(n, _)| !counter(n)).map(|(n, s)| (n.as_str(), s)).collect();
        let ours: Vec<(&str, Vec<i64>)> = net.weights.iter().map(|(n, t)| (n.as_str(), t.size())).collect();
        assert_eq!(ours.len(), theirs.len(), "{}", backbone.name);
        assert!(ours.iter().all(|(name, shape)| theirs.get(name) == Some(&shape)), "{}", backbone.name);
        let (channels, side) = backbone.input;
        let x = Tensor::cat(&[image(channels, side, 0.0), image(channels, side, 1.0)], 0);
        let found = tch::no_grad(|| net.embed(&net.weights, &x, Norms::Frozen));
        close(&found, &tensor(&expected.embeddings), 1e-4, backbone.name);
    }
}

#[test]
fn adam_takes_the_steps_of_torch_optim() {
    let Trained { losses, after } = golden().adam;
    let net = filled(Backbone::find("c2f1").unwrap());
    let images = Tensor::cat(&(0..6).map(|i| image(1, 28, i as f64)).collect::<Vec<_>>(), 0);
    let mut adam = Adam::new(&net, 1e-3);
    for expected in losses {
        let e = net.unit(&net.weights, &images, Norms::Frozen);
        let [a, p, n] = [0, 2, 4].map(|at| e.narrow(0, at, 2));
        let loss = triplet_loss(&a, &p, &n);
        assert!((number(&loss.detach()) - expected).abs() < 1e-5, "{} instead of {expected}", number(&loss));
        adam.step(&net, &loss, 1e-2, 1e-2);
    }
    for (name, values) in after {
        let found = net.weights[&name].detach().flatten(0, -1).narrow(0, 0, 5);
        close(&found, &Tensor::from_slice(&values), 1e-4, &name);
    }
}

#[test]
fn onnx_runtime_computes_the_embeddings_of_libtorch() {
    runtime::load(runtime_folder().as_deref(), None).unwrap_or_else(|e| panic!("{e}"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for backbone in BACKBONES {
        let net = Net::new(backbone, 32, 3, Device::Cpu);
        let path = folder.join(format!("{}.onnx", backbone.name));
        export::write(&net, &path, PhotographSize::Square, "a test").unwrap();
        let (channels, side) = backbone.input;
        let images = Dice::new(1, "images", 0).tensor(&[3, channels, side, side]);
        let expected = tch::no_grad(|| net.embed(&net.weights, &images, Norms::Frozen));
        // With the card, as audit does: its own graph, with preprocessing.
        let card: audit::model::card::Card =
            serde_saphyr::from_str(&std::fs::read_to_string(path.with_extension("yaml")).unwrap()).unwrap();
        let mut graph = Graph::load(&path).unwrap();
        let prep = audit::model::card::preprocessing(&graph.inputs[0], &card).unwrap();
        assert!(!prep.assumed);
        let input = graph.inputs[0].name.clone();
        audit::model::card::prepend(&prep, &mut graph, &input, 3);
        let options = Options { provider: Provider::Cpu, threads: 1 };
        let mut session = Session::as_shipped(&graph, options).unwrap();
        let values: Vec<f32> = Vec::try_from(images.flatten(0, -1)).unwrap();
        let shape = prep.pixel_shape(3);
        let held =
            session.run(&[(audit::model::IMAGE, Input::Host(&shape, &values))], &["embedding"]).unwrap();
        let (shape, values) = held[0].floats().unwrap();
        assert_eq!(shape, [3, 32]);
        close(&Tensor::from_slice(values).view([3, 32]), &expected, 1e-5, backbone.name);
    }
}

#[test]
fn torchvisions_weights_are_taken_but_for_the_head_and_missing_names_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let backbone = Backbone::find("resnet18").unwrap();
    // A file like torchvision's: a head of 1,000 classes, counters of batches.
    let theirs = Net::new(backbone, 1000, 9, Device::Cpu);
    let mut tensors: Vec<(String, Tensor)> =
        theirs.weights.iter().map(|(n, t)| (n.clone(), t.detach())).collect();
    tensors.push(("bn1.num_batches_tracked".into(), Tensor::from(7i64)));
    let path = folder.join("resnet18.safetensors");
    Tensor::write_safetensors(&tensors, &path).unwrap();
    let mut net = Net::new(backbone, 64, 0, Device::Cpu);
    let head = net.weights["fc.weight"].detach().copy();
    let note = net.load_pretrained(&path).unwrap().unwrap();
    assert!(
        note.contains("fc.weight is [1000, 512] there and [64, 512] here") && !note.contains("tracked"),
        "{note}"
    );
    assert_eq!(net.weights["layer4.1.conv2.weight"], theirs.weights["layer4.1.conv2.weight"]);
    assert_eq!(net.weights["fc.weight"], head);
    let e = net.load_pretrained(&folder.join("resnet18.pth")).unwrap_err().message;
    assert!(
        e.contains("`python tools/pretrained.py ") && e.contains("resnet18.safetensors` converts it"),
        "{e}"
    );
    tensors.retain(|(name, _)| name != "layer1.0.conv1.weight");
    tensors.push(("layer9.weight".into(), Tensor::from(1f32)));
    Tensor::write_safetensors(&tensors, &path).unwrap();
    let e = net.load_pretrained(&path).unwrap_err();
    assert!(e.message.contains("missing layer1.0.conv1.weight; unexpected layer9.weight"), "{e}");
    let images = TrainingImages::of(Dataset::generated(3, 4, 3), backbone).unwrap();
    // Photographs are cropped from 256 pixels.
    assert_eq!(
        images.draw(4, None, &mut Dice::new(0, "test", 0), Device::Cpu).unwrap().images.size(),
        [4, 3, 224, 224]
    );
}

#[test]
fn frozen_batch_norm_stays_and_trained_batch_norm_moves() {
    let backbone = Backbone::find("resnet18").unwrap();
    let net = Net::new(backbone, 8, 0, Device::Cpu);
    let x = Dice::new(3, "images", 0).tensor(&[2, 3, 224, 224]);
    let before = net.weights["bn1.running_mean"].copy();
    let _ = net.embed(&net.weights, &x, Norms::Frozen);
    assert_eq!(net.weights["bn1.running_mean"], before);
    // An attack runs in inference mode, even if training doesn't.
    let budget = PgdBudget { eps: 0.1, alpha: 0.1, steps: 1, random_start: false };
    pgd(&net, &net.frozen(), &x, &budget, &mut Dice::new(0, "pgd", 0), |e, _| Some(e.sum(Kind::Float)));
    assert_eq!(net.weights["bn1.running_mean"], before);
    let _ = net.embed(&net.weights, &x, Norms::Train);
    assert_ne!(net.weights["bn1.running_mean"], before);
}
