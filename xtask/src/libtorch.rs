//! `cargo xtask setup --train`: the part of libtorch that `audit-train` needs on a machine without a GPU, out
//! of the wheels that PyTorch's makers publish for Python.
//!
//! PyPI's Linux torch is the CUDA build, several GB with what it depends on. libtorch_cpu.so alone needs but
//! two small libraries of CUDA; libtorch.so is an empty shell over libtorch_cpu.so and libtorch_cuda.so, and
//! a linker script that names the first takes its place.

use crate::{
    project::{Error, Result, Since, file, output, remove, root, shown},
    python,
    setup::Draft,
    wheel::Wheel,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// The version that the `tch` in Cargo.toml is made for.
const VERSION: &str = "2.11.0";

const fn wheel(
    package: &'static str,
    version: &'static str,
    platform: &'static str,
    sha256: &'static str,
) -> Wheel {
    Wheel { package, version, python: "3.11", platform, sha256 }
}

const WHEELS: [Wheel; 3] = [
    wheel(
        "torch",
        VERSION,
        "manylinux_2_28_x86_64",
        "7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a",
    ),
    wheel(
        "nvidia-cuda-runtime",
        "13.0.96",
        "manylinux2014_x86_64",
        "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    ),
    wheel(
        "nvidia-cuda-cupti",
        "13.0.85",
        "manylinux_2_25_x86_64",
        "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
    ),
];

const OWN: &str = "set LIBTORCH to the folder of a libtorch 2.11 of your own, with include and lib in it (a Python's \
                   site-packages/torch will do)";

/// Headers and libraries to where a linker looks for them. Wheel folder, then the folder to fill.
const UNPACK: &str = "
import fnmatch, os, shutil, sys, zipfile
wheels, out = sys.argv[1:]
wanted = {
    'torch/include/*': 'include/', 'torch/lib/libtorch_cpu.so': 'lib/', 'torch/lib/libc10.so': 'lib/',
    'torch/lib/libgomp.so.1': 'lib/', '*/libcudart.so.13': 'lib/', '*/libcupti.so.13': 'lib/',
    'torch-*.dist-info/licenses/LICENSE': '', 'torch-*.dist-info/licenses/NOTICE': '',
}
found = set()
for wheel in sorted(os.listdir(wheels)):
    if not wheel.endswith('.whl'):
        continue
    with zipfile.ZipFile(os.path.join(wheels, wheel)) as archive:
        for name in archive.namelist():
            for pattern, place in wanted.items():
                if fnmatch.fnmatch(name, pattern) and not name.endswith('/'):
                    rest = name[len('torch/include/'):] if place == 'include/' else name.rsplit('/', 1)[1]
                    path = os.path.join(out, place, rest)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with archive.open(name) as source, open(path, 'wb') as copy:
                        shutil.copyfileobj(source, copy)
                    found.add(pattern)
missing = [p for p in wanted if p not in found and 'dist-info' not in p]
if missing:
    sys.exit('not in the wheels: ' + ', '.join(missing))
";

/// Where .cargo/config.toml says that libtorch is, unless the user's LIBTORCH says otherwise.
fn folder() -> PathBuf {
    root().join("target/libtorch")
}

pub fn setup() -> Result {
    let folder = folder();
    // Cargo hands down its own setting, too: only another one is the user's.
    if let Some(own) =
        env::var_os("LIBTORCH").map(PathBuf::from).filter(|own| !own.as_os_str().is_empty() && *own != folder)
    {
        return check(&own);
    }
    if !(env::consts::OS == "linux" && env::consts::ARCH == "x86_64" && cfg!(target_env = "gnu")) {
        return Err(Error::Failed(format!(
            "libtorch is fetched for linux x86_64 with glibc alone, and this is {} {}; {OWN}",
            env::consts::OS,
            env::consts::ARCH
        )));
    }
    let stamp: String =
        WHEELS.iter().map(|w| format!("{} {} {}\n", w.package, w.version, w.sha256)).collect();
    if fs::read_to_string(folder.join("stamp")).is_ok_and(|found| found == stamp) {
        println!("libtorch {VERSION} is in {}", shown(&folder));
        return Ok(());
    }
    let started = Instant::now();
    println!("libtorch {VERSION}: fetching three wheels (544 MB); the part that is kept takes 0.5 GB");
    let or = format!("or {OWN}");
    let python = python::find().map_err(|error| error.then(&or))?;
    let draft = Draft::beside(&folder)?;
    for wheel in &WHEELS {
        wheel.fetch(&python, &draft.0, &or)?;
    }
    let made = draft.0.join("libtorch");
    file("make", &made, fs::create_dir(&made))?;
    output(python::script(&python, UNPACK).arg(&draft.0).arg(&made)).map_err(|error| error.then(&or))?;
    let text = |name: &str, text: &str| {
        let path = made.join(name);
        file("write", &path, fs::write(&path, text))
    };
    text("lib/libtorch.so", "INPUT(-ltorch_cpu)\n")?;
    text("build-version", VERSION)?;
    text("stamp", &stamp)?;
    remove(&folder)?;
    file("make", &folder, fs::rename(&made, &folder))?;
    println!("  unpacked to {} in {}", shown(&folder), Since(started));
    Ok(())
}

fn library(own: &Path) -> PathBuf {
    own.join("lib").join(format!("{}torch_cpu{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
}

/// The user's own: there, and of the version that tch wants, as far as it says.
fn check(own: &Path) -> Result {
    let library = library(own);
    if !library.is_file() {
        return Err(Error::Failed(format!(
            "LIBTORCH names {}, and there is no {} there; correct it, or unset it to have libtorch fetched",
            own.display(),
            library.display()
        )));
    }
    let version = fs::read_to_string(own.join("build-version")).ok();
    let version = version.as_deref().map(|text| text.split('+').next().unwrap_or(text).trim());
    match version {
        Some(found) if found != VERSION => Err(Error::Failed(format!(
            "LIBTORCH names {}, which is libtorch {found}; expected {VERSION}, for which the bindings are made",
            own.display()
        ))),
        _ => {
            println!("libtorch: LIBTORCH names {}, so there is nothing to fetch", own.display());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_are_pinned() {
        assert!(WHEELS.iter().all(Wheel::is_pinned));
    }

    /// What nets are compared with in Python must be the same libtorch.
    #[test]
    fn the_tools_want_the_same_versions() {
        let wanted = fs::read_to_string(root().join("tools/requirements.txt")).unwrap();
        for Wheel { package, version, .. } in &WHEELS {
            let line = format!("{package}=={version}");
            assert!(wanted.lines().any(|found| found.split(';').next() == Some(line.as_str())), "{line}");
        }
    }

    #[test]
    fn a_libtorch_of_another_version_is_refused() {
        let draft = Draft::beside(&env::temp_dir().join("xtask-libtorch")).ok().unwrap();
        let folder = &draft.0;
        let says = |result: Result| match result {
            Err(Error::Failed(text)) => text,
            Err(Error::Usage(_)) | Ok(()) => String::new(),
        };
        fs::create_dir_all(folder.join("lib")).unwrap();
        assert!(says(check(folder)).contains("there is no"));
        fs::write(library(folder), "").unwrap();
        fs::write(folder.join("build-version"), "2.9.1+cpu").unwrap();
        assert!(says(check(folder)).contains("which is libtorch 2.9.1; expected 2.11.0"));
        fs::write(folder.join("build-version"), "2.11.0+cpu").unwrap();
        assert!(check(folder).is_ok());
    }
}
