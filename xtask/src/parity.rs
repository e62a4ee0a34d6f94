//! `cargo xtask parity`: PyTorch's gradients and audit's, of the same models at the same points. There are
//! two oracles: the model that a file was exported from, and the net that onnx2pytorch makes of the file,
//! wherever it does (tools/second_oracle.py). The second needs no source, so that any file can be compared.
//!
//! The exporter and the list of models are reference data beside the checkout (CONTRIBUTING.md). The
//! comparison itself is `examples/parity.rs`.

use crate::{
    project::{Error, Result, Since, cargo, file, reference, root, run, shown, target},
    python, setup,
};
use std::{
    fs, path,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

pub const ARGUMENTS: &str =
    "[--models NAME ...] [--group core|all|post] [--dir DIR]; DIR alone: all models that lie there";

#[derive(Debug, PartialEq)]
struct Options {
    models: Vec<String>,
    group: Option<String>,
    dir: Option<PathBuf>,
}

pub fn parity(arguments: &[String]) -> Result {
    let Options { models, group, dir } = parse(arguments)?;
    let usual = group.as_deref().unwrap_or("core");
    let alone = dir.is_some() && models.is_empty() && group.is_none();
    let names = match (&dir, models.is_empty(), &group) {
        (_, false, _) => models,
        // A folder alone says what is compared: nothing is exported to it.
        (Some(dir), true, None) => lying_in(dir)?,
        _ => in_group(&zoo()?, usual)?,
    };
    let dir = match dir {
        Some(dir) => file("find", &dir, path::absolute(&dir))?,
        None => target()?.join("parity").join(usual),
    };
    setup::setup()?;
    let is_missing = |name: &&str| !alone && !is_there(&dir, name);
    let missing: Vec<&str> = names.iter().map(String::as_str).filter(is_missing).collect();
    if !missing.is_empty() {
        export(&dir, &missing)?;
    }

    // What cannot be exported cannot be compared; the others still can, and then it is said.
    let (lost, there): (Vec<&str>, Vec<&str>) = names.iter().map(String::as_str).partition(is_missing);
    if !there.is_empty() {
        println!("Building PyTorch nets out of {} files with onnx2pytorch", there.len());
        let mut convert = Command::new(python::environment()?);
        convert.arg("-B").arg(root().join("tools/second_oracle.py")).arg(&dir).args(&there);
        run(convert.env("PYTHONWARNINGS", "ignore").stdin(Stdio::null()))?;
        let example = ["run", "--release", "--locked", "--example", "parity", "--", "--dir"];
        run(cargo(&example).arg(&dir).args(&there))?;
    }
    match lost.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(format!(
            "{} of {} models could not be exported: {}; {} says why, for each in NAME.json",
            lost.len(),
            names.len(),
            lost.join(", "),
            shown(&dir)
        ))),
    }
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { models: vec![], group: None, dir: None };
    let mut words = arguments.iter().peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--models" => {
                while let Some(name) = words.next_if(|name| !name.starts_with("--")) {
                    options.models.push(name.clone());
                }
                if options.models.is_empty() {
                    return Err(Error::Usage("expected names after --models, found none".to_owned()));
                }
            }
            "--group" => match words.next() {
                Some(group) => options.group = Some(group.clone()),
                None => return Err(Error::Usage("expected core, all or post after --group".to_owned())),
            },
            "--dir" => match words.next() {
                Some(dir) => options.dir = Some(dir.into()),
                None => return Err(Error::Usage("expected a folder after --dir".to_owned())),
            },
            other => return Err(Error::Usage(format!("expected {ARGUMENTS}, found `{other}`"))),
        }
    }
    Ok(options)
}

/// The folder of the exporter and the list of models, if it is there.
pub fn shared_tools() -> Result<PathBuf> {
    let tools = reference("tools");
    match tools.join("export.py").is_file() && tools.join("zoo.txt").is_file() {
        true => Ok(tools),
        false => Err(Error::Failed(
            "expected export.py and zoo.txt, which make models for the comparison with PyTorch, among the reference data \
             beside the checkout, found none; CONTRIBUTING.md says what these data are"
                .to_owned(),
        )),
    }
}

/// All models that are known, each with its group.
fn zoo() -> Result<Vec<(String, String)>> {
    let path = shared_tools()?.join("zoo.txt");
    Ok(read_zoo(&file("read", &path, fs::read_to_string(&path))?))
}

fn read_zoo(text: &str) -> Vec<(String, String)> {
    let mut group = "";
    let mut models = vec![];
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => group = name,
            None => models.push((group.to_owned(), line.to_owned())),
        }
    }
    models
}

fn in_group(zoo: &[(String, String)], group: &str) -> Result<Vec<String>> {
    let names: Vec<_> = zoo.iter().filter(|model| model.0 == group).map(|model| model.1.clone()).collect();
    match names.is_empty() {
        false => Ok(names),
        true => {
            let mut groups: Vec<_> = zoo.iter().map(|model| model.0.as_str()).collect();
            groups.dedup();
            Err(Error::Usage(format!("expected one of the groups {}, found `{group}`", groups.join(", "))))
        }
    }
}

/// The models that a folder holds, by name.
fn lying_in(dir: &Path) -> Result<Vec<String>> {
    let mut names = vec![];
    for entry in file("list", dir, fs::read_dir(dir))? {
        let path = file("list", dir, entry)?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if path.extension().is_some_and(|ending| ending == "onnx") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    match names.is_empty() {
        false => Ok(names),
        true => Err(Error::Usage(format!(
            "expected models in {}, each as NAME.onnx, found none; --models or --group exports some there",
            shown(dir)
        ))),
    }
}

/// Whether the folder has a model's graph and PyTorch's gradients for it.
fn is_there(dir: &Path, name: &str) -> bool {
    ["onnx", "npz"].iter().all(|kind| dir.join(format!("{name}.{kind}")).is_file())
}

fn export(dir: &Path, names: &[&str]) -> Result {
    let tools = shared_tools()?;
    let python = python::environment()?;
    let zoo = zoo()?;
    let (derived, mut direct): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| name.starts_with("post."));
    let parents = derived.iter().filter_map(|name| parent(&zoo, name));
    direct.extend(parents.filter(|parent| !is_there(dir, parent)));
    direct.sort();
    direct.dedup();
    let started = Instant::now();
    println!("Exporting {} models from PyTorch to {}", names.len(), shown(dir));
    let script = |name: &str| {
        let mut command = Command::new(&python);
        command.arg(tools.join(name)).env("PYTHONWARNINGS", "ignore").stdin(Stdio::null());
        command
    };
    // Asked for by name, so an earlier failure is no reason not to try.
    if !direct.is_empty() {
        run(script("export.py").arg("--redo").arg("--out").arg(dir).arg("--names").args(&direct))?;
    }
    if !derived.is_empty() {
        run(script("post.py").arg("--models").arg(dir))?;
    }
    println!("  exported in {}", Since(started));
    Ok(())
}

/// The model that a derived one is made from: `tv.resnet18` for `post.tv.resnet18_qdq`.
fn parent<'a>(zoo: &'a [(String, String)], derived: &str) -> Option<&'a str> {
    let rest = derived.strip_prefix("post.")?;
    let is_parent = |name: &&str| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
    zoo.iter().map(|model| model.1.as_str()).filter(is_parent).max_by_key(|name| name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_read() {
        let options = parse(&words("--models a.b a.b--dyn18 --dir x --group all")).ok().unwrap();
        let expected =
            Options { models: words("a.b a.b--dyn18"), group: Some("all".into()), dir: Some("x".into()) };
        assert_eq!(options, expected);
        for wrong in ["--models --group all", "--group", "--dir", "core", "--redo"] {
            assert!(matches!(parse(&words(wrong)), Err(Error::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn a_folder_alone_is_compared_as_it_is() {
        let dir = target().ok().unwrap().join("test-parity-folder");
        fs::create_dir_all(&dir).unwrap();
        assert!(matches!(lying_in(&dir), Err(Error::Usage(_))));
        for name in ["b.x.onnx", "b.x.npz", "a.onnx", "a.npz", "lonely.onnx", "c.npz"] {
            fs::write(dir.join(name), "").unwrap();
        }
        let found = lying_in(&dir).ok().unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, ["a", "b.x", "lonely"]);
        assert!(lying_in(&dir).is_err());
    }

    #[test]
    fn the_zoo_is_read_by_groups() {
        let zoo = read_zoo("# models\n[core]\na.x\n\n[all]\na.x_50\n[post]\npost.a.x_50_fp16\n");
        assert_eq!(in_group(&zoo, "core").ok().unwrap(), ["a.x"]);
        assert!(matches!(in_group(&zoo, "cor"), Err(Error::Usage(_))));
        assert_eq!(parent(&zoo, "post.a.x_50_fp16"), Some("a.x_50"));
        assert_eq!(parent(&zoo, "post.a.x_fp16"), Some("a.x"));
        assert_eq!(parent(&zoo, "post.b_fp16"), None);
    }
}
