//! `cargo xtask setup`: ONNX Runtime, out of the wheel that its makers publish for Python.
//!
//! The wheel is the one form in which every platform's library can be had with tools that people already
//! have.

use crate::{
    project::{Error, Result, Since, file, output, remove, shown, target},
    python,
    version::{NEWEST, OLDEST, VERSION},
    wheel::{Wheel, megabytes},
};
use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process,
    time::Instant,
};

const OWN: &str = "or set ORT_DYLIB_PATH to an ONNX Runtime library of your own (version 1.24 or newer)";

/// ONNX Runtime for a platform, in `target/<its package>`; of other versions than the usual one with the
/// version added.
struct Build {
    os: &'static str,
    arch: &'static str,
    wheel: Wheel,
    /// Libraries that the first one loads from beside itself.
    providers: &'static [&'static str],
}

/// Operating system, architecture, and pip's name of the platform.
type Machine = [&'static str; 3];

const LINUX: Machine = ["linux", "x86_64", "manylinux_2_28_x86_64"];
const LINUX_ARM: Machine = ["linux", "aarch64", "manylinux_2_28_aarch64"];
const MAC: Machine = ["macos", "aarch64", "macosx_14_0_arm64"];
const WINDOWS: Machine = ["windows", "x86_64", "win_amd64"];
const WINDOWS_ARM: Machine = ["windows", "aarch64", "win_arm64"];

const CPU: &str = "onnxruntime";

const fn build(
    package: &'static str,
    version: &'static str,
    [os, arch, platform]: Machine,
    sha256: &'static str,
) -> Build {
    let wheel = Wheel { package, version, python: "3.12", platform, sha256 };
    Build { os, arch, wheel, providers: &[] }
}

/// The one with CUDA, beside the other.
const GPU: Build = Build {
    providers: &["libonnxruntime_providers_cuda.so", "libonnxruntime_providers_shared.so"],
    ..build(
        "onnxruntime-gpu",
        VERSION,
        LINUX,
        "05d548956197b9d01f59b625de740e0d6be3593f874e241a12dc0362650ecdf7",
    )
};

const BUILDS: [Build; 5] = [
    build(CPU, VERSION, LINUX, "1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536"),
    build(CPU, VERSION, LINUX_ARM, "0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc"),
    build(CPU, VERSION, MAC, "96dd2564b10ea7153ad9c207e7cd8e5917cb3ba521e0e0a62ac03486fdc8d56c"),
    build(CPU, VERSION, WINDOWS, "ae8a9a351efda685cc59a66226cdefaa37a126c1d66872ca23a2de9425326130"),
    build(CPU, VERSION, WINDOWS_ARM, "fe8b9ac1ae8e894e12c47ee82e4f6dfc1835768133687257866469fda80d0bf1"),
];

/// Both ends of the range of versions that work, for the tests (tests/it/versions.rs).
const RANGE: [Build; 2] = [
    build(CPU, OLDEST, LINUX, "34b6119526eda12613f0d0498e2ae59563c247c370c9cef74c2fc93133dde157"),
    build(CPU, NEWEST, LINUX, "99e1074c4b2197accd5073052a465361be17b89c093b8ffb6e6bd8f986c52df8"),
];

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

    install(for_this_machine()?)
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
            GPU.wheel.package
        )));
    }
    install(&GPU)?;
    println!(
        "  use it with: audit MODEL --ep cuda --ort-lib {}; the driver, CUDA 13 and cuDNN 9 are yours to install \
         (docs/cuda.md)",
        shown(&target()?.join(GPU.wheel.package))
    );
    Ok(())
}

/// `cargo xtask setup --range`.
pub fn setup_range() -> Result {
    let here = |build: &&Build| {
        (build.os, build.arch) == (env::consts::OS, env::consts::ARCH) && !cfg!(target_env = "musl")
    };
    let range: Vec<&Build> = RANGE.iter().filter(here).collect();
    if range.is_empty() {
        println!("skipped: ONNX Runtime {OLDEST} and {NEWEST} are fetched for linux x86_64 alone");
    }
    range.into_iter().try_for_each(install)
}

fn install(build: &Build) -> Result {
    let Wheel { package, version, .. } = build.wheel;
    let folder = match version {
        VERSION => target()?.join(package),
        other => target()?.join(format!("{package}-{other}")),
    };
    if build.is_installed(&folder) {
        println!("{} {version} is in {}", build.title(), shown(&folder));
        return Ok(());
    }

    let started = Instant::now();
    println!("{} {version} for {} {}: fetching", build.title(), build.os, build.arch);
    let python = python::find().map_err(|error| error.then(OWN))?;
    let draft = Draft::beside(&folder)?;
    let archive = build.wheel.fetch(&python, &draft.0, OWN)?;
    build.unpack(&python, &archive, &draft.0.join("unpacked"))?;
    build.publish(&draft.0.join("unpacked"), &folder)?;
    println!(
        "  unpacked to {} in {}: library of {}, licence and notices",
        shown(&folder),
        Since(started),
        megabytes(&library(&folder))
    );
    Ok(())
}

fn for_this_machine() -> Result<&'static Build> {
    let (os, arch) = (env::consts::OS, env::consts::ARCH);
    let musl = cfg!(target_env = "musl");
    BUILDS.iter().find(|build| build.os == os && build.arch == arch && !musl).ok_or_else(|| {
        let known: Vec<_> = BUILDS.iter().map(|build| format!("{} {}", build.os, build.arch)).collect();
        Error::Failed(format!(
            "there is no wheel of ONNX Runtime {VERSION} for {os} {arch}{}, only for {}; build or install ONNX Runtime \
             {OLDEST} or newer and set ORT_DYLIB_PATH to its library",
            if musl { " with musl" } else { "" },
            known.join(", ")
        ))
    })
}

/// The system's usual name, under which audit looks for it.
fn library(folder: &Path) -> PathBuf {
    folder.join(format!("{}onnxruntime{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
}

impl Build {
    fn title(&self) -> &'static str {
        if self.providers.is_empty() { "ONNX Runtime" } else { "ONNX Runtime with CUDA" }
    }

    /// The library's name in the wheel; in the folder it has the system's usual one, without a version.
    fn packed(&self) -> String {
        let version = self.wheel.version;
        match self.os {
            "windows" => "onnxruntime.dll".into(),
            "macos" => format!("libonnxruntime.{version}.dylib"),
            _ => format!("libonnxruntime.so.{version}"),
        }
    }

    /// What the stamp of a whole installation says.
    fn stamp(&self, folder: &Path) -> Option<String> {
        let beside = self.providers.iter().map(|name| folder.join(name));
        let sizes =
            [library(folder)].into_iter().chain(beside).map(|path| fs::metadata(path).ok().map(|m| m.len()));
        let bytes: u64 = sizes.sum::<Option<u64>>()?;
        let Wheel { package, version, sha256, .. } = self.wheel;
        Some(format!("{package} {version}, wheel sha256 {sha256}, library of {bytes} bytes\n"))
    }

    fn is_installed(&self, folder: &Path) -> bool {
        self.stamp(folder)
            .is_some_and(|stamp| fs::read_to_string(folder.join("stamp")).is_ok_and(|found| found == stamp))
    }

    fn unpack(&self, python: &Path, archive: &Path, folder: &Path) -> Result {
        file("make", folder, fs::create_dir(folder))?;
        let (packed, name) = (self.packed(), library(Path::new("")));
        output(
            python::script(python, UNPACK)
                .args([archive, folder])
                .arg(format!("capi/{packed}={}", name.display()))
                .args(self.providers.iter().map(|name| format!("capi/{name}={name}")))
                .args(["LICENSE=LICENSE", "ThirdPartyNotices.txt=ThirdPartyNotices.txt"]),
        )?;
        let stamp = self.stamp(folder).ok_or(format!("expected {packed} in the wheel, found none"))?;
        file("write", folder, fs::write(folder.join("stamp"), stamp))
    }

    /// Puts a finished folder in its place, so that nobody ever sees half a one.
    fn publish(&self, draft: &Path, folder: &Path) -> Result {
        // Another run may have been quicker, before this or within it; then its folder is as good as ours.
        if !self.is_installed(folder) {
            remove(folder)?;
            let renamed = fs::rename(draft, folder);
            if !self.is_installed(folder) {
                file("make", folder, renamed)?;
            }
        }
        Ok(())
    }
}

/// A folder for unfinished work, gone when it goes out of scope. The open file's lock tells other processes
/// that this one is alive.
pub struct Draft(pub PathBuf, File);

/// The file in a draft that is locked.
const LOCK: &str = "lock";

impl Draft {
    pub fn beside(folder: &Path) -> Result<Draft> {
        remove_abandoned(folder);
        let draft = folder.with_extension(format!("{}.tmp", process::id()));
        file("make", &draft, fs::create_dir_all(&draft))?;
        let lock = file("write in", &draft, File::create(draft.join(LOCK)))?;
        // Without a lock the draft isn't told from one that was abandoned, and where files have no locks,
        // none is removed.
        let _ = lock.try_lock();
        Ok(Draft(draft, lock))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = self.1.unlock();
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes drafts of `folder` whose process was killed.
fn remove_abandoned(folder: &Path) {
    let stem = folder.file_stem().unwrap_or_default().to_string_lossy();
    let entries = folder.parent().and_then(|beside| fs::read_dir(beside).ok());
    for draft in entries.into_iter().flatten().flatten() {
        let name = draft.file_name();
        let name = name.to_string_lossy();
        let process = name.strip_prefix(&*stem).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".tmp"));
        if process.is_none_or(|id| id.parse::<u32>().is_err()) {
            continue;
        }
        // Drafts of earlier versions have no such file, and get one.
        let lock = File::options().write(true).create(true).truncate(false).open(draft.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(draft.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::root;

    #[test]
    fn builds_are_pinned_for_different_platforms() {
        for (i, build) in BUILDS.iter().enumerate() {
            assert!(build.wheel.is_pinned());
            assert!(!BUILDS[..i].iter().any(|other| (other.os, other.arch) == (build.os, build.arch)));
        }
        assert!(GPU.wheel.is_pinned() && RANGE.iter().all(|build| build.wheel.is_pinned()));
    }

    /// Messages, the Python package and the pages say from which version on ONNX Runtime works, and up to
    /// which it was tested.
    #[test]
    fn the_range_is_the_same_everywhere() {
        let [oldest, newest] = [OLDEST, NEWEST].map(|version| version.rsplit_once('.').unwrap().0);
        let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
        assert!(OWN.contains(&format!("{oldest} or newer")));
        assert!(read("pyproject.toml").contains(&format!("\"onnxruntime>={oldest}\"")));
        assert!(read("docs/python.md").contains(&format!("{oldest} to {newest}")));
    }

    /// What is compared with the reference in Python must be the same ONNX Runtime.
    #[test]
    fn the_tools_want_the_same_version() {
        let wanted = fs::read_to_string(root().join("tools/requirements.txt")).unwrap();
        assert!(wanted.lines().any(|line| line == format!("onnxruntime=={VERSION}")));
    }

    /// A process that is killed leaves its draft behind, with or without a lock that nobody holds any more.
    #[test]
    fn drafts_of_killed_processes_are_removed() {
        let folder = env::temp_dir().join("xtask-abandoned");
        let [dead, alive, other] =
            ["4000000001.tmp", "4000000002.tmp", "old.tmp"].map(|extension| folder.with_extension(extension));
        [&dead, &alive, &other].into_iter().for_each(|draft| fs::create_dir_all(draft).unwrap());
        let lock = File::create(alive.join(LOCK)).unwrap();
        lock.lock().unwrap();
        let draft = Draft::beside(&folder).ok().unwrap();
        assert_eq!([&dead, &alive, &other, &draft.0].map(|draft| draft.exists()), [false, true, true, true]);
        drop(lock);
        // Another test may just start a program, which holds the lock until it has begun.
        for _ in 0..100 {
            remove_abandoned(&folder);
            if !alive.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!([&alive, &other, &draft.0].map(|draft| draft.exists()), [false, true, true]);
        fs::remove_dir_all(other).unwrap();
    }

    #[test]
    fn a_library_that_was_cut_short_is_not_installed() {
        let draft = Draft::beside(&env::temp_dir().join("xtask-stamp")).ok().unwrap();
        let (build, folder) = (&BUILDS[0], &draft.0);
        assert!(!build.is_installed(folder));
        fs::write(library(folder), "library").unwrap();
        fs::write(folder.join("stamp"), build.stamp(folder).unwrap()).unwrap();
        assert!(build.is_installed(folder));
        assert!(!BUILDS[1].is_installed(folder));
        fs::write(library(folder), "lib").unwrap();
        assert!(!build.is_installed(folder));
    }
}
