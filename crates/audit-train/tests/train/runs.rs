//! Whole trainings: killed and resumed, collapsed, without what they need.

use super::*;

const SMALL: &str = "--batch 16 --steps 24 --alpha 12/255 --pgd-steps 3";

#[test]
fn every_method_trains_and_audit_takes_the_model() {
    let (folder, data) = stage(12);
    let folder = folder.path();
    let init = plain(folder, &data, "--batch 24 --steps 200");
    let first = rows(&folder.join("plain.jsonl"));
    assert!(first.last().unwrap().clean.triplet_loss < 0.5 * first[0].clean.triplet_loss, "it learns");
    for (name, words) in [
        ("est", "est"),
        ("act", "act"),
        ("hm-lga", "hm"),
        ("hm-sampler", "hm --sampler random --destination semihard --ics 0"),
        ("hm-constant", "hm --destination -0.05"),
        ("cap", "cap --lambda 2 --progressive off"),
        ("anp", "anp --lambda 2 --progressive off --top-rank off"),
        ("paper", "ca-tride --reading paper --progressive off"),
        ("released", "ca-tride --reading released --progressive off"),
        ("naive", "ca-tride --reading naive"),
        ("panum", "panum --loss contrastive --gamma 1"),
        ("adml-a", "adml"),
        ("adml-u", "adml --target uniformity"),
        ("adml-t", "adml --target triplet --loss margin"),
    ] {
        let out = folder.join(format!("{name}.onnx")).display().to_string();
        let extra = if words.contains("--pgd") { "" } else { SMALL };
        train(&format!(
            "{words} --data {data:?} --out {out:?} --init {init:?} {extra} --on-collapse continue"
        ))
        .unwrap();
        let last = rows(&folder.join(format!("{name}.jsonl"))).pop().unwrap();
        let seen = last.batches.unwrap();
        assert!(last.image_steps > 0 && seen.shift > 0.0, "{name}: the attack did nothing: {seen:?}");
        assert!(
            ["naive", "est"].contains(&name) || seen.hardness_after > seen.hardness_before,
            "{name}: {seen:?}"
        );
    }
    let model = folder.join("hm-lga.onnx").display().to_string();
    let words = ["audit", "-q", "--suite", "smoke", &model, "--data", &data];
    let mut request = audit::command::Cli::try_parse_from(words).unwrap().run.request().unwrap();
    request.compute.library = request.compute.library.or_else(runtime_folder);
    let report = audit::run(&request).unwrap();
    assert_eq!(
        (report.benign.as_ref().unwrap().queries, report.model.metric.name()),
        (96, "normalized-euclidean")
    );
    // Its own R@1, from libtorch's embeddings, equals the auditor's.
    let own = rows(&folder.join("hm-lga.jsonl")).pop().unwrap().clean.recall;
    assert!(
        (100.0 * own - report.benign.as_ref().unwrap().r1).abs() < 1.1,
        "{} and {}",
        100.0 * own,
        report.benign.as_ref().unwrap().r1
    );
}

/// Mean of CAP's dynamics over the last epoch, from one trained net.
#[test]
fn working_cap_makes_no_triplet_easier_and_released_cap_makes_most_easier() {
    let (folder, data) = stage(40);
    let folder = folder.path();
    let init = plain(folder, &data, "--batch 64 --steps 250");
    let easier = |reading: &str| {
        let out = folder.join(format!("{reading}.onnx")).display().to_string();
        // With a learning rate near 0: the attack on the plain net itself.
        train(&format!(
            "cap --reading {reading} --lambda 10 --progressive off --data {data:?} --out {out:?} --init {init:?} --batch 64 --steps 5 \
             --sampler random --alpha 3/255 --pgd-steps 16 --lr 1e-9"
        ))
        .unwrap();
        let seen = rows(&folder.join(format!("{reading}.jsonl"))).pop().unwrap().batches.unwrap();
        assert!(seen.collapseness_before < -0.1, "{seen:?}");
        (seen.easier, seen.collapseness_after)
    };
    let (working, c) = easier("working");
    // A coarse step may overshoot 0, but the attack stops there.
    assert!(working == 0.0 && c > 0.0 && c < 0.3, "{working} {c}");
    let (released, _) = easier("released");
    assert!(released > 0.4, "{released}");
}

#[test]
fn killed_and_resumed_gives_the_same_weights() {
    let (folder, data) = stage(10);
    let folder = folder.path();
    let out = |name: &str| folder.join(format!("{name}.onnx")).display().to_string();
    // LGA has state besides the net; epochs are 10 batches of pairs, and the last one is incomplete.
    let words = |name: &str| {
        let out = out(name);
        format!(
            "hm --data {data:?} --out {out:?} --loader pairs --batch 16 --steps 203 --alpha 12/255 --pgd-steps 3 --progressive on --random-start \
             --on-collapse continue"
        )
    };
    train(&words("whole")).unwrap();
    assert_eq!(checkpoint::load(&folder.join("whole.checkpoint")).unwrap().state.step, 203);
    kill_after(&words("part"), &folder.join("part.checkpoint"), 5);
    let part = checkpoint::load(&folder.join("part.checkpoint")).unwrap().state.step;
    assert!((5..203).contains(&part) && !folder.join("part.onnx").exists(), "killed after {part} steps");
    train(&format!("{} --resume", words("part"))).unwrap();
    let bytes = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert!(bytes("whole.onnx") == bytes("part.onnx"), "a resumed run and a whole one");
    // The logs agree too, except for times.
    let plain = |name: &str| {
        let rows = rows(&folder.join(format!("{name}.jsonl"))).into_iter();
        rows.map(|r| (r.epoch, r.step, r.image_steps, r.clean)).collect::<Vec<_>>()
    };
    assert_eq!(plain("whole"), plain("part"));
    assert!(matches!(
        log(&folder.join("part.jsonl")).last(),
        Some(LogLine::End { how: Ending::Done, step: 203, .. })
    ));
    // Another seed gives another net.
    train(&format!("{} --seed 1", words("other"))).unwrap();
    assert!(bytes("whole.onnx") != bytes("other.onnx"));
}

/// Starts the program and kills it when its checkpoint is at `step` batches or more.
fn kill_after(line: &str, path: &Path, step: u64) {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_audit-train"))
        .args(["-q", "--threads", "1"])
        .args(words(line))
        .spawn()
        .unwrap();
    for _ in 0..12_000 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        if path.exists() && checkpoint::load(path).is_ok_and(|c| c.state.step >= step) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_collapse_is_recognised_named_and_stopped_with_the_last_good_state_kept() {
    let (folder, data) = stage(40);
    let folder = folder.path();
    let init = plain(folder, &data, "--batch 64 --steps 250");
    for method in ["cap", "anp"] {
        let out = folder.join(format!("{method}.onnx"));
        let words = format!(
            "{method} --reading naive --progressive off --data {data:?} --out {out:?} --init {init:?} --batch 64 --steps 250 \
             --sampler random --alpha 12/255 --pgd-steps 8"
        );
        let e = train(&words).unwrap_err();
        assert_eq!(e.exit, Exit::Untrusted, "{e}");
        assert!(e.message.contains("collapsed by epoch") && e.message.contains("mean distance"), "{e}");
        assert!(!out.exists() && out.with_extension("collapsed.onnx").exists());
        let newest = out.with_extension("checkpoint");
        let apart = checkpoint::good(&newest);
        let kept = if apart.exists() { apart } else { newest };
        assert!(e.message.contains(&format!("is in {}", kept.display())), "{e}");
        let good = checkpoint::load(&kept).unwrap();
        let rows = rows(&out.with_extension("jsonl"));
        let last = rows.last().unwrap();
        assert!(last.collapsed && last.step > good.state.step && last.step <= 250, "{last:?}");
        // This state has no sign of collapse.
        assert!(rows.iter().any(|r| r.step == good.state.step && r.signs.is_empty()));
        let said = log(&out.with_extension("jsonl"));
        assert!(matches!(said.last(), Some(LogLine::End { how: Ending::Collapsed, .. })));
        let page = folder.join("page.html");
        audit_train::curves::write(&[folder.join("plain.jsonl"), out.with_extension("jsonl")], &page)
            .unwrap();
        let page = std::fs::read_to_string(page).unwrap();
        assert!(
            page.contains("collapsed: the ")
                && page.contains("Separability (between − within) / d̄")
                && page.contains("Loss of the net (solid), triplet loss of clean images (dashed)")
                && page.contains("the mean distance is")
                && page.contains('×')
                && !page.contains("<script")
        );
        assert!(
            page.matches("<polyline").count() == 32,
            "eleven plots of two runs, five of them with dashed lines"
        );
        // A run that continues reports at its end that the net has collapsed, as do its log and its page.
        let on = folder.join(format!("{method}-on.onnx"));
        let words = words.replace(&out.display().to_string(), &on.display().to_string());
        let told = train(&format!("{words} --on-collapse continue")).unwrap();
        assert!(
            told.contains("; the net has collapsed: ") && told.contains("the mean distance is"),
            "{told}"
        );
        let why = log(&on.with_extension("jsonl")).pop();
        let named = |why: &str| why.contains("the net has collapsed") && why.contains("the mean distance is");
        assert!(matches!(why, Some(LogLine::End { how: Ending::Done, why, .. }) if named(&why)));
        let page = folder.join("on.html");
        audit_train::curves::write(&[on.with_extension("jsonl")], &page).unwrap();
        assert!(std::fs::read_to_string(page).unwrap().contains("done, collapsed: the "));
        let good = folder.join("good.onnx");
        audit_train::export(&kept, &good).unwrap();
        assert!(Graph::load(&good).is_ok());
    }
}

#[test]
fn an_epoch_with_a_sign_of_collapse_is_saved_and_the_state_before_it_kept_apart() {
    let (folder, data) = stage(10);
    let out = folder.path().join("m.onnx");
    // Three epochs of five batches, in which the net hardly moves.
    let words =
        format!("none --sampler random --lr 1e-12 --data {data:?} --out {out:?} --batch 16 --epochs 3");
    let told = train(&words).unwrap();
    assert!(!told.contains("collapse"), "{told}");
    let newest = out.with_extension("checkpoint");
    let good = checkpoint::good(&newest);
    let state = |path: &Path| checkpoint::load(path).unwrap().state;
    assert!(!state(&newest).suspect && !good.exists());
    // Compared with such an R@1, every epoch has a sign.
    restate(&newest, |state| (state.step, state.best_recall) = (5, 10.0));
    let told = train(&format!("{words} --resume")).unwrap();
    assert!(told.contains("; a sign of collapse: clean R@1 fell to"), "{told}");
    assert!(state(&newest).step == 15 && state(&newest).suspect, "{:?}", state(&newest));
    assert!(state(&good).step == 5 && !state(&good).suspect, "{:?}", state(&good));
    // With a second sign it is a collapse, whose error names the state without one.
    restate(&newest, |state| (state.step, state.first_distance) = (10, 1e6));
    let before = std::fs::read(&newest).unwrap();
    let e = train(&format!("{words} --resume")).unwrap_err();
    assert!(e.message.contains(&format!("after 5 steps, is in {}", good.display())), "{e}");
    assert!(e.message.contains("Try a smaller --lr, another --sampler or --loss, or start"), "{e}");
    assert!(std::fs::read(&newest).unwrap() == before, "a collapsed state is no newer one");
    // It isn't the end, if the user says so. A stopped run has trained the same as one that continues.
    assert!(e.message.ends_with("--resume --on-collapse continue trains on"), "{e}");
    let told = train(&format!("{words} --resume --on-collapse continue")).unwrap();
    assert!(told.contains("; the net has collapsed: "), "{told}");
    assert_eq!(state(&newest).step, 15);
    // Without signs the newest state is a good one again.
    restate(&newest, |state| {
        (state.step, state.best_recall, state.first_distance) = (10, 0.0, 1e-6);
    });
    train(&format!("{words} --resume")).unwrap();
    assert!(!state(&newest).suspect && !good.exists());
}

#[test]
fn a_run_leaves_checkpoints_that_are_not_its_own() {
    let (folder, data) = stage(10);
    let out = folder.path().join("m.onnx");
    let words =
        format!("none --sampler random --lr 1e-12 --data {data:?} --out {out:?} --batch 16 --epochs 1");
    train(&words).unwrap();
    let newest = out.with_extension("checkpoint");
    let good = checkpoint::good(&newest);
    std::fs::copy(&newest, &good).unwrap();
    let before = std::fs::read(&good).unwrap();
    for init in [&newest, &good] {
        let e = train(&format!("{words} --init {init:?}")).unwrap_err();
        assert!(
            e.message.contains("it would be replaced; name another --out") && e.exit == Exit::Usage,
            "{e}"
        );
    }
    // Neither the state at the start nor an epoch without a sign removes it.
    train(&words).unwrap();
    assert!(std::fs::read(&good).unwrap() == before);
    let other = folder.path().join("m.good.onnx");
    let e = train(&format!("none --data {data:?} --out {other:?} --batch 16 --epochs 1")).unwrap_err();
    assert!(e.message.contains("m.good.checkpoint, would be replaced") && e.exit == Exit::Usage, "{e}");
    // A model alone has no checkpoint.
    audit_train::export(&good, &other).unwrap();
    assert!(std::fs::read(&good).unwrap() == before);
}

#[test]
fn a_loss_that_is_not_a_number_stops_with_its_step() {
    let (folder, data) = stage(10);
    let folder = folder.path();
    let out = folder.join("m.onnx");
    let words = format!("none --data {data:?} --out {out:?} --batch 16 --steps 30");
    train(&words).unwrap();
    // A resumed run with NaN in the optimiser: the first step spoils the weights, the second one shows it.
    let path = out.with_extension("checkpoint");
    let good = checkpoint::load(&path).unwrap();
    let mut net = Net::new(Backbone::find("c2f1").unwrap(), 128, 0, Device::Cpu);
    good.fill(&mut net, &path).unwrap();
    let mut adam = good.adam(&net, 0.0, &path).unwrap();
    adam.mean.values_mut().for_each(|t| *t = &*t * f64::NAN);
    let state = RunState { step: 10, ..good.state.clone() };
    checkpoint::save(&path, &good.settings, &state, &net, &adam).unwrap();
    let before = std::fs::read(&path).unwrap();
    let e = train(&format!("{words} --resume")).unwrap_err();
    assert_eq!(e.exit, Exit::Untrusted);
    let said = "loss of step 12 is not a number";
    assert!(e.message.contains(said) && e.message.contains("after 10 steps"), "{e}");
    assert!(std::fs::read(&path).unwrap() == before, "the last good state is kept");
    let said = log(&out.with_extension("jsonl"));
    assert!(matches!(said.last(), Some(LogLine::End { how: Ending::NotANumber, .. })));
    // A newest state with a sign of collapse is not the last good one.
    checkpoint::keep_good(&path).unwrap();
    let suspect = RunState { step: 11, suspect: true, ..state.clone() };
    checkpoint::save(&path, &good.settings, &suspect, &net, &adam).unwrap();
    let e = train(&format!("{words} --resume")).unwrap_err();
    let said = format!("after 10 steps, is in {}", checkpoint::good(&path).display());
    assert!(e.message.contains("loss of step 13 is not a number") && e.message.contains(&said), "{e}");
    // Weights of NaN from the start.
    let bad = net.weights.iter().map(|(name, t)| (name.clone(), t.detach() * f64::NAN)).collect();
    net.copy_from(&bad);
    checkpoint::save(&path, &good.settings, &state, &net, &adam).unwrap();
    let other = folder.join("n.onnx");
    let earlier = other.with_extension("jsonl");
    std::fs::write(&earlier, "of an earlier run").unwrap();
    let e = train(&format!("none --data {data:?} --out {other:?} --batch 16 --init {path:?}"));
    let e = e.unwrap_err();
    assert_eq!(e.exit, Exit::Untrusted);
    assert!(e.message.contains("embeddings of the net at the start are not numbers"), "{e}");
    assert_eq!(std::fs::read_to_string(&earlier).unwrap(), "of an earlier run", "it is left as it is");
}

#[test]
fn a_run_is_not_resumed_without_its_log() {
    let (folder, data) = stage(10);
    let out = folder.path().join("m.onnx");
    let words = format!("none --data {data:?} --out {out:?} --batch 16 --steps 2");
    train(&words).unwrap();
    let path = out.with_extension("jsonl");
    let whole = std::fs::read(&path).unwrap();
    let expected = checkpoint::load(&out.with_extension("checkpoint")).unwrap().state.log_bytes;
    assert!(expected > 10 && expected < whole.len() as u64, "the end of the run comes after it");
    let refused = |found: u64| {
        let e = train(&format!("{words} --resume")).unwrap_err();
        let said = format!("expected at least {expected} bytes, found {found}");
        assert!(e.message.contains("m.jsonl is missing or cut off") && e.message.contains(&said), "{e}");
        assert_eq!(e.exit, Exit::Usage, "{e}");
    };
    std::fs::write(&path, &whole[..10]).unwrap();
    refused(10);
    assert!(std::fs::read(&path).unwrap() == whole[..10], "it is left as it is");
    std::fs::remove_file(&path).unwrap();
    refused(0);
    assert!(!path.exists());
    std::fs::write(&path, &whole).unwrap();
    train(&format!("{words} --resume")).unwrap();
    assert_eq!(rows(&path).len(), 2);
}

#[test]
fn without_onnx_runtime_ers_is_refused_before_training() {
    let (folder, data) = stage(10);
    let (out, nowhere) = (folder.path().join("m.onnx"), folder.path().join("nowhere"));
    let line = format!(
        "-q --threads 1 none --data {data:?} --out {out:?} --batch 16 --steps 2 --ers-every 1 --ort-lib {nowhere:?}"
    );
    // A process of its own: this one may have loaded the library.
    let program = env!("CARGO_BIN_EXE_audit-train");
    let found = std::process::Command::new(program).args(words(&line)).output().unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(Exit::Usage as i32), "{said}");
    assert!(said.contains("--ers-every") && said.contains("nowhere"), "{said}");
    assert!(!out.with_extension("jsonl").exists() && !out.with_extension("checkpoint").exists());
}

#[test]
fn an_epoch_whose_ers_fails_is_saved_and_a_collapse_reported() {
    runtime::load(runtime_folder().as_deref(), None).unwrap_or_else(|e| panic!("{e}"));
    let (folder, data) = stage(10);
    let out = folder.path().join("m.onnx");
    // The name of the audited model is taken.
    std::fs::create_dir(folder.path().join("m.probe.onnx")).unwrap();
    let words = format!("none --sampler random --data {data:?} --out {out:?} --batch 16 --epochs 3");
    let e = train(&format!("{words} --ers-every 1")).unwrap_err();
    assert!(
        e.message.contains("ERS after epoch 1: ") && e.message.contains("--resume continues from"),
        "{e}"
    );
    assert_eq!(e.exit, Exit::Internal, "{e}");
    let path = out.with_extension("checkpoint");
    let (saved, before) = (checkpoint::load(&path).unwrap(), std::fs::read(&path).unwrap());
    let found = rows(&out.with_extension("jsonl"));
    assert_eq!(found.iter().map(|r| (r.epoch, r.ers)).collect::<Vec<_>>(), [(0, None), (1, None)]);
    assert_eq!(saved.state.step, found[1].step);
    // Compared with such a distance at the start, the next epoch is a collapse.
    restate(&path, |state| state.first_distance = 1e6);
    let e = train(&format!("{words} --ers-every 1 --resume")).unwrap_err();
    assert!(e.message.contains("collapsed by epoch 2") && e.exit == Exit::Untrusted, "{e}");
    assert!(rows(&out.with_extension("jsonl")).last().unwrap().collapsed);
    // The run continues without ERS.
    std::fs::write(&path, before).unwrap();
    train(&format!("{words} --resume")).unwrap();
    assert_eq!(rows(&out.with_extension("jsonl")).len(), 4);
}
