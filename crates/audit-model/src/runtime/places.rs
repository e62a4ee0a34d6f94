//! Search path of ONNX Runtime's library, and of the CUDA libraries of Python packages.

use std::path::{Path, PathBuf};

/// The folders that the search starts from.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The program's own file.
    pub program: Option<PathBuf>,
    /// The active conda environment (CONDA_PREFIX).
    pub conda: Option<PathBuf>,
    pub system: Vec<PathBuf>,
}

pub struct SearchPath {
    pub name: &'static str,
    /// Folders to search, for the surroundings of this process.
    pub folders: fn(&Surroundings) -> Vec<PathBuf>,
}

/// Every place that is searched where neither `--ort-lib` nor ORT_DYLIB_PATH names a library.
pub const PLACES: [SearchPath; 4] = [
    SearchPath { name: "beside the program", folders: beside },
    SearchPath { name: "the program's Python environment", folders: environment },
    SearchPath { name: "conda", folders: conda },
    SearchPath { name: "the system", folders: |at| at.system.clone() },
];

impl Surroundings {
    /// Those of this process.
    pub fn here() -> Surroundings {
        let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let loader = ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"].into_iter().filter_map(folder);
        let mut system: Vec<PathBuf> =
            loader.flat_map(|list| std::env::split_paths(&list).collect::<Vec<_>>()).collect();
        let arch = std::env::consts::ARCH;
        system.extend(["/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64"].map(PathBuf::from));
        system.push(format!("/usr/lib/{arch}-linux-gnu").into());
        system.push("/opt/homebrew/lib".into());
        Surroundings {
            program: std::env::current_exe().ok(),
            conda: folder("CONDA_PREFIX").map(PathBuf::from),
            system,
        }
    }

    /// The folder that has the program's `bin`: that of a virtual environment, a conda environment or a
    /// system.
    fn prefix(&self) -> Option<&Path> {
        self.program.as_deref()?.parent()?.parent()
    }
}

/// `cargo xtask setup` puts the library into `target/onnxruntime`; the program lies up to two folders below
/// `target`.
fn beside(at: &Surroundings) -> Vec<PathBuf> {
    let above = at.program.iter().flat_map(|program| program.ancestors().skip(1).take(3));
    above.flat_map(|dir| [dir.to_path_buf(), dir.join("onnxruntime")]).collect()
}

/// pip puts `audit` into the `bin` of an environment, and the package `onnxruntime` into its site-packages.
fn environment(at: &Surroundings) -> Vec<PathBuf> {
    at.prefix().into_iter().flat_map(site_packages).map(|site| capi(&site)).collect()
}

/// conda puts libraries into the `lib` of an environment, on Windows into `Library/bin`.
fn conda(at: &Surroundings) -> Vec<PathBuf> {
    let is_conda = |prefix: &&Path| prefix.join("conda-meta").is_dir();
    let prefixes = at.prefix().filter(is_conda).into_iter().chain(at.conda.as_deref());
    prefixes
        .flat_map(|prefix| {
            let packages = site_packages(prefix).into_iter().map(|site| capi(&site));
            [prefix.join("lib"), prefix.join("Library/bin")].into_iter().chain(packages).collect::<Vec<_>>()
        })
        .collect()
}

/// Where the package `onnxruntime` keeps its library.
fn capi(site: &Path) -> PathBuf {
    site.join("onnxruntime/capi")
}

/// The folders of Python packages under a prefix that exist, of the newest Python first.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"].map(|lib| prefix.join(lib)) {
        let mut versions = list(&lib);
        versions.retain(|path| begins(path, "python3"));
        versions.sort_by_key(|path| std::cmp::Reverse(version(path)));
        let kinds =
            |python: PathBuf| ["site-packages", "dist-packages"].map(|packages| python.join(packages));
        found.extend(versions.into_iter().flat_map(kinds));
    }
    found.push(prefix.join("Lib").join("site-packages"));
    found.retain(|site| site.is_dir());
    found
}

/// 12 of `python3.12`; 0 of `python3`.
fn version(python: &Path) -> u32 {
    let name = python.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("python3.").and_then(|minor| minor.parse().ok()).unwrap_or(0)
}

/// The start of the file names of CUDA's libraries that ONNX Runtime's CUDA provider needs, each after those
/// that it needs itself.
const CUDA: [&str; 8] = [
    "libcudart.so.",
    "libnvJitLink.so.",
    "libcublasLt.so.",
    "libcublas.so.",
    "libcufft.so.",
    "libcurand.so.",
    "libnvrtc.so.",
    "libcudnn.so.",
];

/// The libraries of CUDA and cuDNN in the `nvidia-…` packages beside the package that `runtime`, ONNX
/// Runtime's library, belongs to, and in the program's environment. They are in the order in which they can
/// be loaded.
pub fn cuda_libraries(runtime: &Path, at: &Surroundings) -> Vec<PathBuf> {
    // site-packages/onnxruntime/capi/libonnxruntime.so
    let beside = runtime.ancestors().nth(3).map(Path::to_path_buf);
    let sites: Vec<PathBuf> =
        beside.into_iter().chain(at.prefix().into_iter().flat_map(site_packages)).collect();
    let folders = sites.iter().flat_map(|site| list(&site.join("nvidia"))).map(|package| package.join("lib"));
    let files: Vec<PathBuf> = folders.flat_map(|folder| list(&folder)).collect();
    CUDA.iter().filter_map(|start| files.iter().find(|path| begins(path, start)).cloned()).collect()
}

/// The entries of a folder, sorted; none if it can't be read.
pub fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Whether the name of a file begins so.
fn begins(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(root: &Path, files: &[&str]) {
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
    }

    /// The layouts are those of `python -m venv`, Debian's Python, conda and Windows.
    #[test]
    fn packages_are_found_in_the_environment_of_the_program() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let sites = [
            "venv/lib/python3.12/site-packages",
            "venv/lib/python3.9/site-packages",
            "debian/lib/python3/dist-packages",
            "windows/Lib/site-packages",
        ];
        made(root, &sites.map(|site| format!("{site}/a.py")).iter().map(String::as_str).collect::<Vec<_>>());
        let of = |program: &str| {
            let at = Surroundings { program: Some(root.join(program)), ..Default::default() };
            environment(&at)
        };
        let capi = |site: &str| root.join(site).join("onnxruntime/capi");
        assert_eq!(of("venv/bin/audit"), [capi(sites[0]), capi(sites[1])]);
        assert_eq!(of("debian/bin/audit"), [capi(sites[2])]);
        if !cfg!(target_os = "macos") {
            assert_eq!(of("windows/Scripts/audit.exe"), [capi(sites[3])]);
        }
        assert!(of("elsewhere/bin/audit").is_empty());
    }

    #[test]
    fn conda_is_the_active_environment_and_the_program_s_own() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        made(root, &["own/conda-meta/history", "venv/bin/audit"]);
        let lib = |prefix: &str| root.join(prefix).join("lib");
        let of = |program: &str, active: Option<&str>| {
            let conda = active.map(|name| root.join(name));
            conda_of(&Surroundings { program: Some(root.join(program)), conda, ..Default::default() })
        };
        fn conda_of(at: &Surroundings) -> Vec<PathBuf> {
            conda(at).into_iter().filter(|folder| folder.ends_with("lib")).collect()
        }
        assert_eq!(of("own/bin/audit", Some("active")), [lib("own"), lib("active")]);
        // A virtual environment's `lib` holds no libraries of conda.
        assert_eq!(of("venv/bin/audit", None), [] as [PathBuf; 0]);
    }

    /// The file names are those in the wheels of nvidia-…-cu13 and nvidia-cudnn-cu13.
    #[test]
    fn cuda_s_libraries_come_after_those_that_they_need() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let names = [
            "cu13/lib/libcublas.so.13",
            "cu13/lib/libcublasLt.so.13",
            "cu13/lib/libcudart.so.13",
            "cu13/lib/libnvrtc-builtins.so.13.0",
            "cu13/lib/libnvrtc.so.13",
            "cudnn/lib/libcudnn.so.9",
            "cudnn/lib/libcudnn_ops.so.9",
        ];
        let nvidia = |name: &str| format!("site-packages/nvidia/{name}");
        made(root, &names.map(nvidia).iter().map(String::as_str).collect::<Vec<_>>());
        let runtime = root.join("site-packages/onnxruntime/capi/libonnxruntime.so.1.31.1");
        let found = cuda_libraries(&runtime, &Surroundings::default());
        let expected = [2, 1, 0, 4, 5].map(|i| root.join(nvidia(names[i])));
        assert_eq!(found, expected);
    }
}
