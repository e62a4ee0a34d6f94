//! Embeddings that are made once and used by many processes, parts numbered by engines, and the parts left to
//! run.

use crate::common::models::{self, small};
use crate::common::transcript::Transcript;
use crate::common::{Ran, Temp, lasting_text, program, ran, run, says, words};
use onnx_grad::graph::Node;
use std::path::Path;

fn stage() -> Temp {
    let dir = models::stage(6, 5);
    dir.write("suite.yaml", "form: published\nattacks: [CA+, ES]\nsteps: 3\n");
    dir
}

const FLAGS: &str = "model.onnx --suite suite.yaml --data data --strong-sample off";

fn audit(dir: &Path, args: &str) -> Ran {
    run(dir, words(&format!("{FLAGS} {args}")))
}

fn embed(dir: &Path, args: &str) -> Ran {
    run(dir, words(&format!("embed model.onnx --data data {args}")))
}

#[track_caller]
fn done(ran: Ran) -> Ran {
    ran.ended(0)
}

#[track_caller]
fn refused(dir: &Transcript, ran: Ran, code: i32) {
    let err = ran.ended(code).err;
    // Behind its progress.
    let at = err.find("audit: ").or_else(|| err.find("error: ")).unwrap();
    dir.note(&err[at..]);
}

/// The report equals that of a run that embeds all images itself, to the last byte except timing and command
/// line.
#[test]
fn stored_embeddings_change_nothing() {
    let dir = Transcript::new(stage());
    dir.write("data/class00/broken.png", "no image");
    done(audit(&dir, "-o own.json"));
    let said = done(embed(&dir, "-o gallery.parquet"));
    says(&said.out, &["gallery.parquet: 30 embeddings", "1 image can't be read and was left out"]);
    let said = done(audit(&dir, "-o stored.json --gallery-cache gallery.parquet"));
    says(&said.err, &["31 embeddings from gallery.parquet", "30 of them were computed again and agree"]);
    assert_eq!(lasting_text(&dir, "stored.json"), lasting_text(&dir, "own.json"));
    // In parts, made and merged in any order.
    for part in 1..=3 {
        done(embed(&dir, &format!("-o g{part}.parquet --partition hash:{part}/3")));
    }
    let merge = |args: &str| run(&dir, words(&format!("merge {args}")));
    refused(&dir, merge("g1.parquet g3.parquet -o g.parquet"), 13);
    refused(&dir, merge("g1.parquet own.json -o g.parquet"), 2);
    refused(&dir, merge("g1.parquet g2.parquet g3.parquet -o g.parquet --trials-out t.json"), 2);
    assert!(["g.parquet", "t.json"].iter().all(|name| !dir.join(name).exists()));
    done(merge("g3.parquet g1.parquet g2.parquet -o g.parquet"));
    let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(bytes("g.parquet"), bytes("gallery.parquet"));
    refused(&dir, audit(&dir, "--gallery-cache g2.parquet"), 2);
    // Parts of the run read it too.
    for part in 1..=2 {
        done(audit(&dir, &format!("-o p{part}.json --gallery-cache g.parquet --partition hash:{part}/2")));
    }
    done(merge("p1.json p2.json -o whole.json"));
    assert_eq!(lasting_text(&dir, "whole.json"), lasting_text(&dir, "own.json"));
    insta::assert_snapshot!(dir.told());
}

#[test]
fn stored_embeddings_of_something_else_are_refused() {
    let dir = Transcript::new(stage());
    done(embed(&dir, "-o g.parquet"));
    let stored = |args: &str| audit(&dir, &format!("--gallery-cache g.parquet {args}"));
    refused(&dir, stored("--range 0,255"), 2);
    refused(&dir, stored("--batch 4"), 2);
    refused(&dir, audit(&dir, "--gallery-cache suite.yaml"), 2);
    // An image with other bytes in a file of the same length.
    let image = dir.join("data/class03/02.png");
    let before = std::fs::read(&image).unwrap();
    let mut other = before.clone();
    let idat = other.windows(4).position(|w| w == b"IDAT").unwrap();
    other[idat - 8] ^= 1;
    std::fs::write(&image, &other).unwrap();
    let changed = stored("");
    assert!(changed.code == Some(2) && changed.err.contains("02.png"), "{}", changed.err);
    // A longer file is detected without being read.
    std::fs::write(&image, [&before[..], b"more"].concat()).unwrap();
    refused(&dir, stored(""), 2);
    std::fs::write(&image, &before).unwrap();
    std::fs::copy(&image, dir.join("data/class03/new.png")).unwrap();
    refused(&dir, stored(""), 2);
    std::fs::remove_file(dir.join("data/class03/new.png")).unwrap();
    std::fs::rename(&image, dir.join("elsewhere.png")).unwrap();
    refused(&dir, stored(""), 2);
    std::fs::rename(dir.join("elsewhere.png"), &image).unwrap();
    done(stored(""));
    // Another model of the same shape.
    let mut graph = small();
    graph.nodes.push(Node::new("Neg", &["embedding"], "negative"));
    graph.outputs[0].name = "negative".into();
    dir.write("model.onnx", graph.encode());
    refused(&dir, stored("--output negative"), 2);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_cache_embeds_no_image_twice() {
    let dir = stage();
    let first = done(audit(&dir, "--cache kept/here -o first.json"));
    assert!(!first.err.contains("computed again"), "{}", first.err);
    let second = done(audit(&dir, "--cache kept/here -o second.json"));
    says(&second.err, &["30 embeddings from kept/here/", "computed again and agree"]);
    assert_eq!(lasting_text(&dir, "first.json"), lasting_text(&dir, "second.json"));
    // Changed images get their own embeddings.
    let mut rng = crate::common::Rng::new(1);
    let pixels: Vec<u8> = (0..28 * 28).map(|_| (255.0 * rng.unit()) as u8).collect();
    image::GrayImage::from_raw(28, 28, pixels).unwrap().save(dir.join("data/class00/00.png")).unwrap();
    let third = done(audit(&dir, "--cache kept/here -o third.json"));
    assert!(!third.err.contains("computed again"), "{}", third.err);
    done(audit(&dir, "-o own.json"));
    assert_eq!(lasting_text(&dir, "third.json"), lasting_text(&dir, "own.json"));
}

#[test]
fn parts_are_those_of_the_engine_and_the_missing_ones_are_named() {
    let dir = Transcript::new(stage());
    std::fs::create_dir(dir.join("parts")).unwrap();
    let task = |id: u64| {
        let mut command = program(&dir);
        let flags = format!("{FLAGS} -q --resume --partition auto -o parts/{id}.json");
        command.args(words(&flags));
        for (name, value) in [("ID", id), ("MIN", 1), ("MAX", 5), ("COUNT", 5)] {
            command.env(format!("SLURM_ARRAY_TASK_{name}"), value.to_string());
        }
        done(ran(&mut command))
    };
    let missing = || ran(program(&dir).args(["merge", "--missing", "parts"]));
    refused(&dir, missing(), 2);
    task(2);
    // The settings that `onnx_audit.ray` writes beside its parts are no damaged part.
    dir.write("parts/run.json", "{\"version\": \"audit\", \"parts\": 5}\n");
    let found = missing();
    assert_eq!((found.code, found.out.as_str(), found.err.as_str()), (Some(13), "1,3-5\n", ""));
    // The output of a killed process is no finished part.
    dir.write("parts/3.json", "{\"schema_version\": 1,");
    let found = missing();
    assert_eq!((found.code, found.out.as_str()), (Some(13), "1,3-5\n"));
    says(&found.err, &["parts/3.json"]);
    for id in [1, 3, 4, 5] {
        task(id);
    }
    let found = missing();
    assert_eq!((found.code, found.out.as_str()), (Some(0), ""), "{}", found.err);
    let parts: Vec<String> = (1..=5).map(|id| format!("parts/{id}.json")).collect();
    done(ran(program(&dir).arg("merge").args(parts).args(["-o", "whole.json"])));
    done(audit(&dir, "-o own.json"));
    assert_eq!(lasting_text(&dir, "whole.json"), lasting_text(&dir, "own.json"));
    refused(&dir, audit(&dir, "--partition auto"), 2);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn flags_without_a_part_in_embedding_are_refused() {
    let dir = Transcript::new(stage());
    refused(&dir, embed(&dir, "-o g.parquet --suite ars"), 2);
    refused(&dir, embed(&dir, "-o g.json"), 2);
    refused(&dir, embed(&dir, ""), 2);
    let help = done(ran(program(&dir).args(["embed", "--help"])));
    assert!(help.out.contains("--partition") && !help.out.contains("--fail-under"), "{}", help.out);
    insta::assert_snapshot!(dir.told());
}
