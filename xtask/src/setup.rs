//! `cargo xtask setup`: ONNX Runtime, out of the wheel that its makers publish for Python.
//!
//! The wheel is the one form in which every platform's library can be had with tools that people already have, behind
//! whatever proxy or mirror their pip is set up for. It is pinned by hash, so where it came from does not matter.

use crate::{
    project::{Error, Result, Since, file, output, run, shown, target},
    python,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    time::Instant,
};

const VERSION: &str = "1.31.1";

const OWN: &str = "or set ORT_DYLIB_PATH to an ONNX Runtime library of your own (version 1.24 or newer)";

struct Wheel {
    /// pip's name of the package.
    package: &'static str,
    /// Libraries that the first one loads from beside itself.
    providers: &'static [&'static str],
    os: &'static str,
    arch: &'static str,
    /// pip's name of the platform.
    platform: &'static str,
    /// The library's name in the wheel; in `target/onnxruntime` it has the system's usual one, without a version.
    library: &'static str,
    sha256: &'static str,
}

const CPU: Wheel =
    Wheel { package: "onnxruntime", providers: &[], os: "", arch: "", platform: "", library: "", sha256: "" };

/// The one with CUDA, beside the other: `target/onnxruntime-gpu`.
const GPU: Wheel = Wheel {
    package: "onnxruntime-gpu",
    providers: &["libonnxruntime_providers_cuda.so", "libonnxruntime_providers_shared.so"],
    os: "linux",
    arch: "x86_64",
    platform: "manylinux_2_28_x86_64",
    library: "libonnxruntime.so.1.31.1",
    sha256: "05d548956197b9d01f59b625de740e0d6be3593f874e241a12dc0362650ecdf7",
};

const WHEELS: [Wheel; 5] = [
    Wheel {
        os: "linux",
        arch: "x86_64",
        platform: "manylinux_2_28_x86_64",
        library: "libonnxruntime.so.1.31.1",
        sha256: "1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536",
        ..CPU
    },
    Wheel {
        os: "linux",
        arch: "aarch64",
        platform: "manylinux_2_28_aarch64",
        library: "libonnxruntime.so.1.31.1",
        sha256: "0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc",
        ..CPU
    },
    Wheel {
        os: "macos",
        arch: "aarch64",
        platform: "macosx_14_0_arm64",
        library: "libonnxruntime.1.31.1.dylib",
        sha256: "96dd2564b10ea7153ad9c207e7cd8e5917cb3ba521e0e0a62ac03486fdc8d56c",
        ..CPU
    },
    Wheel {
        os: "windows",
        arch: "x86_64",
        platform: "win_amd64",
        library: "onnxruntime.dll",
        sha256: "ae8a9a351efda685cc59a66226cdefaa37a126c1d66872ca23a2de9425326130",
        ..CPU
    },
    Wheel {
        os: "windows",
        arch: "aarch64",
        platform: "win_arm64",
        library: "onnxruntime.dll",
        sha256: "fe8b9ac1ae8e894e12c47ee82e4f6dfc1835768133687257866469fda80d0bf1",
        ..CPU
    },
];

pub const SHA256: &str = "
import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())
";

const UNPACK: &str = "
import shutil, sys, zipfile
wheel, folder, *members = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for member in members:
        path, name = member.split('=')
        with archive.open('onnxruntime/' + path) as source, open(folder + '/' + name, 'wb') as copy:
            shutil.copyfileobj(source, copy)
";

pub fn setup() -> Result {
    if let Some(own) = env::var_os("ORT_DYLIB_PATH").filter(|own| !own.is_empty()) {
        let own = PathBuf::from(own);
        if !own.is_file() {
            return Err(Error::Failed(format!(
                "ORT_DYLIB_PATH names {}, which is not a file; correct it, or unset it to have ONNX Runtime fetched",
                own.display()
            )));
        }
        println!("ONNX Runtime: ORT_DYLIB_PATH names {}, so there is nothing to fetch", own.display());
        return Ok(());
    }

    install(wheel()?)
}

/// `cargo xtask setup --cuda`.
pub fn setup_cuda() -> Result {
    if (env::consts::OS, env::consts::ARCH) != (GPU.os, GPU.arch) || cfg!(target_env = "musl") {
        return Err(Error::Failed(format!(
            "ONNX Runtime with CUDA is fetched for {} {} with glibc alone, and this is {} {}; get {} {VERSION} some other \
             way and name its library with --ort-lib",
            GPU.os,
            GPU.arch,
            env::consts::OS,
            env::consts::ARCH,
            GPU.package
        )));
    }
    install(&GPU)?;
    println!(
        "  use it with: audit MODEL --ep cuda --ort-lib {}; the driver, CUDA 13 and cuDNN 9 are yours to install \
         (docs/cuda.md)",
        shown(&target()?.join(GPU.package))
    );
    Ok(())
}

fn install(wheel: &Wheel) -> Result {
    let folder = target()?.join(wheel.package);
    if is_installed(wheel, &folder) {
        println!("{} {VERSION} is in {}", wheel.title(), shown(&folder));
        return Ok(());
    }

    let python = python::find().map_err(|error| error.then(OWN))?;
    let draft = Draft::beside(&folder)?;
    let archive = fetch(wheel, &python, &draft.0)?;
    verify(wheel, &python, &archive)?;
    unpack(wheel, &python, &archive, &draft.0.join("unpacked"))?;
    publish(wheel, &draft.0.join("unpacked"), &folder)
}

impl Wheel {
    fn title(&self) -> &'static str {
        if self.providers.is_empty() { "ONNX Runtime" } else { "ONNX Runtime with CUDA" }
    }
}

fn wheel() -> Result<&'static Wheel> {
    let (os, arch) = (env::consts::OS, env::consts::ARCH);
    let musl = cfg!(target_env = "musl");
    WHEELS.iter().find(|wheel| wheel.os == os && wheel.arch == arch && !musl).ok_or_else(|| {
        let known: Vec<_> = WHEELS.iter().map(|wheel| format!("{} {}", wheel.os, wheel.arch)).collect();
        Error::Failed(format!(
            "there is no wheel of ONNX Runtime {VERSION} for {os} {arch}{}, only for {}; build or install ONNX Runtime \
             1.24 or newer and set ORT_DYLIB_PATH to its library",
            if musl { " with musl" } else { "" },
            known.join(", ")
        ))
    })
}

/// The system's usual name, under which audit looks for it.
fn library(folder: &Path) -> PathBuf {
    folder.join(format!("{}onnxruntime{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
}

/// What the stamp of a whole installation says.
fn stamp(wheel: &Wheel, folder: &Path) -> Option<String> {
    let beside = wheel.providers.iter().map(|name| folder.join(name));
    let sizes =
        [library(folder)].into_iter().chain(beside).map(|path| fs::metadata(path).ok().map(|m| m.len()));
    let bytes: u64 = sizes.sum::<Option<u64>>()?;
    Some(format!("{} {VERSION}, wheel sha256 {}, library of {bytes} bytes\n", wheel.package, wheel.sha256))
}

fn is_installed(wheel: &Wheel, folder: &Path) -> bool {
    stamp(wheel, folder)
        .is_some_and(|stamp| fs::read_to_string(folder.join("stamp")).is_ok_and(|found| found == stamp))
}

fn fetch(wheel: &Wheel, python: &Path, folder: &Path) -> Result<PathBuf> {
    let started = Instant::now();
    let wanted = format!("{}=={VERSION}", wheel.package);
    // One version of Python for everybody: it is the library inside that is wanted.
    let tags = ["--python-version", "3.12", "--implementation", "cp", "--abi", "cp312"];
    let mut pip = python::pip(python).map_err(|error| error.then(OWN))?;
    pip.args(["download", "--quiet", "--no-deps", "--only-binary=:all:"]).args(tags);
    pip.args(["--platform", wheel.platform, "--dest"]).arg(folder).arg(&wanted);
    run(&mut pip).map_err(|_| {
        Error::Failed(format!(
            "pip could not fetch {wanted} for {} (its own words are above); check the network, and pip's proxy or mirror \
             if there is one, and run again; without a network, fetch the wheel elsewhere and run with PIP_NO_INDEX=1 \
             PIP_FIND_LINKS=its-folder; {OWN}",
            wheel.platform
        ))
    })?;
    let archive = file("read", folder, fs::read_dir(folder))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| format!("expected a wheel from pip in {}, found none; {OWN}", folder.display()))?;
    println!(
        "{} {VERSION} for {} {}: fetched {} in {}",
        wheel.title(),
        wheel.os,
        wheel.arch,
        megabytes(&archive),
        Since(started)
    );
    Ok(archive)
}

fn verify(wheel: &Wheel, python: &Path, archive: &Path) -> Result {
    let found = output(python::script(python, SHA256).arg(archive))?;
    if found != wheel.sha256 {
        return Err(Error::Failed(format!(
            "the wheel of ONNX Runtime {VERSION} is not the one that was pinned: expected sha256 {}, found {found}; it is \
             not used. If pip's cache is damaged, empty it (`python3 -m pip cache purge`) and run again; if a mirror \
             serves something else, ask whoever runs it; {OWN}",
            wheel.sha256
        )));
    }
    println!("  sha256 as pinned: {found}");
    Ok(())
}

fn unpack(wheel: &Wheel, python: &Path, archive: &Path, folder: &Path) -> Result {
    file("make", folder, fs::create_dir(folder))?;
    let name = library(Path::new(""));
    output(
        python::script(python, UNPACK)
            .args([archive, folder])
            .arg(format!("capi/{}={}", wheel.library, name.display()))
            .args(wheel.providers.iter().map(|name| format!("capi/{name}={name}")))
            .args(["LICENSE=LICENSE", "ThirdPartyNotices.txt=ThirdPartyNotices.txt"]),
    )?;
    let stamp = stamp(wheel, folder).ok_or(format!("expected {} in the wheel, found none", wheel.library))?;
    file("write", folder, fs::write(folder.join("stamp"), stamp))
}

/// Puts a finished folder in its place, so that nobody ever sees half a one.
fn publish(wheel: &Wheel, draft: &Path, folder: &Path) -> Result {
    // Another run may have been quicker, before this or within it; then its folder is as good as ours.
    if !is_installed(wheel, folder) {
        if folder.exists() {
            file("remove", folder, fs::remove_dir_all(folder))?;
        }
        let renamed = fs::rename(draft, folder);
        if !is_installed(wheel, folder) {
            file("make", folder, renamed)?;
        }
    }
    println!(
        "  unpacked to {}: library of {}, licence and notices",
        shown(folder),
        megabytes(&library(folder))
    );
    Ok(())
}

/// A folder for unfinished work, gone when it goes out of scope.
pub struct Draft(pub PathBuf);

impl Draft {
    pub fn beside(folder: &Path) -> Result<Draft> {
        let draft = folder.with_extension(format!("{}.tmp", process::id()));
        file("make", &draft, fs::create_dir_all(&draft))?;
        Ok(Draft(draft))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn megabytes(path: &Path) -> String {
    fs::metadata(path).map_or("?".to_owned(), |found| format!("{:.1} MB", found.len() as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_are_pinned_for_different_platforms() {
        for (i, wheel) in WHEELS.iter().chain([&GPU]).enumerate() {
            assert!(wheel.sha256.len() == 64 && wheel.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let before = &WHEELS[..i % WHEELS.len()];
            assert!(!before.iter().any(|other| (other.os, other.arch) == (wheel.os, wheel.arch)));
            assert!(wheel.os == "windows" || wheel.library.contains(VERSION), "{}", wheel.library);
        }
    }

    #[test]
    fn a_library_that_was_cut_short_is_not_installed() {
        let draft = Draft::beside(&env::temp_dir().join("xtask-stamp")).ok().unwrap();
        let (wheel, folder) = (&WHEELS[0], &draft.0);
        assert!(!is_installed(wheel, folder));
        fs::write(library(folder), "library").unwrap();
        fs::write(folder.join("stamp"), stamp(wheel, folder).unwrap()).unwrap();
        assert!(is_installed(wheel, folder));
        assert!(!is_installed(&WHEELS[1], folder));
        fs::write(library(folder), "lib").unwrap();
        assert!(!is_installed(wheel, folder));
    }
}
