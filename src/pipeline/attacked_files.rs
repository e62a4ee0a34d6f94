//! `--attacked-out`: the changed photographs of an audit in file space, and a list of them.

use crate::data::{Dataset, Photograph, file_of, grey_level};
use crate::files::{self, IMAGE, hex};
use crate::record::{Form, Outcome, Space};
use crate::report::escape;
use crate::request::Request;
use crate::shards::identity::Identity;
use crate::space::Gallery;
use crate::suite::Suite;
use crate::threat::{Evidence, Objective};
use crate::{Error, Result, interrupt};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

/// The list in the folder. It is written last: a folder without it belongs to an audit that did not end.
const LIST: &str = "attacked.csv";

/// The file with the identity of the audit whose files are in the folder, and then a line of JSON for each
/// file: its path and its SHA-256. It is written first. `cp FOLDER/*` and uploads of artifacts would leave a
/// hidden file behind.
const RUN: &str = "attacked.run";
/// Its name in earlier versions.
const HIDDEN_RUN: &str = ".run";

/// The folder, and the names in it.
pub struct AttackedFiles {
    folder: PathBuf,
    /// The quality of JPEG files; `None` for PNG.
    jpeg: Option<u8>,
    /// By query, the file's name below the folder of its attack.
    names: BTreeMap<String, String>,
    /// SHA-256 of the files of this audit, by their paths in the folder.
    written: BTreeMap<String, String>,
    /// The open file of [`RUN`], whose lock keeps other audits out.
    claim: Option<File>,
}

/// Refuses a folder if this audit makes no files, if it has other files, or if it is among the images, where
/// the next audit would read the files (exit code 2). The folder is made with the first file in it.
pub fn settle(request: &Request, suite: &Suite) -> Result<()> {
    let Some(folder) = &request.output.attacked else { return Ok(()) };
    let shown = folder.display();
    let refused = |why: String| Err(Error::usage(format!("--attacked-out {shown}: {why}")));
    if suite.space == Space::Input {
        return refused("this audit changes the model's input, and no file. Add --space file".into());
    }
    // The existing part of its path.
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    if !there.is_dir() {
        return refused(format!("can't make the folder: {} is a file. Choose another", there.display()));
    }
    if let Err(e) = files::partial(&there.join(LIST)) {
        return refused(format!("can't write there: {e}. Choose another"));
    }
    if !request.run.resume && has_files(folder) {
        return refused("the folder is not empty. Name a new one, or empty this one".into());
    }
    match request.images.around(there) {
        Some(data) => refused(format!(
            "it lies in {}, and its files would be images of the next audit. Name a folder elsewhere",
            data.display()
        )),
        None => Ok(()),
    }
}

/// Whether an audit wrote into the folder, or somebody else.
fn has_files(folder: &Path) -> bool {
    let is_run = |entry: &std::fs::DirEntry| [RUN, HIDDEN_RUN].iter().any(|name| entry.file_name() == *name);
    folder.read_dir().is_ok_and(|entries| entries.flatten().any(|entry| !is_run(&entry)))
}

impl AttackedFiles {
    /// Names for the queries among `dataset`.
    pub fn new(folder: &Path, jpeg: Option<u8>, dataset: &Dataset) -> AttackedFiles {
        let mut names = BTreeMap::new();
        let mut taken = std::collections::BTreeSet::new();
        for item in &dataset.items {
            let mut name = below(&item.id, if jpeg.is_some() { "jpg" } else { "png" });
            while !taken.insert(name.to_lowercase()) {
                name.insert(0, '_');
            }
            names.insert(item.id.clone(), name);
        }
        AttackedFiles { folder: folder.into(), jpeg, names, written: BTreeMap::new(), claim: None }
    }

    /// Claims the folder for the audit `run`, until this value is dropped. Returns how many files of an
    /// earlier process were changed since; these are written again, as are files that it did not list. Errors
    /// (exit code 2): another process has the folder; it has files of another audit, or of one that is
    /// unknown. `resumed`: whether there may be files of an earlier process.
    pub fn claim(&mut self, run: &Identity, resumed: bool) -> Result<usize> {
        let failed = |why: String| Error::usage(format!("--attacked-out {}: {why}", self.folder.display()));
        let path = self.folder.join(RUN);
        let unwritable = |e: std::io::Error| failed(format!("can't write {}: {e}", path.display()));
        let run = run.sha256()?;
        std::fs::create_dir_all(&self.folder).map_err(unwritable)?;
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(unwritable)?;
        // Until the first image is written, an audit that runs looks like one that was interrupted. Some
        // network file systems have no locks; there nothing tells the two apart.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(failed("another audit is writing there. Let it end, or name a new folder".into()));
        }
        let mut found = Vec::new();
        (&file).take(files::LARGE).read_to_end(&mut found).map_err(unwritable)?;
        if found.is_empty() {
            found = files::read(&self.folder.join(HIDDEN_RUN), files::BY_HAND).unwrap_or_default();
        }
        let found = String::from_utf8_lossy(&found);
        let mut lines = found.lines();
        match lines.next().unwrap_or_default() {
            first if first == run => {}
            _ if !has_files(&self.folder) => {}
            // It was empty when this audit began: its journal may lie there.
            "" if !resumed => {}
            "" => {
                _ = std::fs::remove_file(&path);
                return Err(failed(
                    "its files are of an unknown audit. Name a new folder, or empty this one".into(),
                ));
            }
            _ => {
                return Err(failed(
                    "its files are of another audit. Name a new folder, or empty this one".into(),
                ));
            }
        }
        // A file that was written twice has two lines. A line that was cut off is none.
        let listed: BTreeMap<String, String> =
            lines.filter_map(|line| serde_json::from_str::<(String, String)>(line).ok()).collect();
        let mut changed = 0;
        for (path, sha256) in listed {
            interrupt::check(" while attacked files were compared").map_err(interrupt::with_next_step)?;
            match files::read(&self.folder.join(&path), IMAGE) {
                Ok(bytes) if hex(&Sha256::digest(&bytes)) == sha256 => _ = self.written.insert(path, sha256),
                Ok(_) => changed += 1,
                // A missing file is written again.
                Err(_) => {}
            }
        }
        let mut text = run + "\n";
        for (path, sha256) in &self.written {
            text += &row(path, sha256)?;
        }
        // The first line stays whole at any time: without it, the files would be of an unknown audit.
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(text.as_bytes()))
            .and_then(|()| file.set_len(text.len() as u64))
            .and_then(|()| file.sync_all())
            .map_err(unwritable)?;
        self.claim = Some(file);
        Ok(changed)
    }

    fn path(&self, outcome: &Outcome) -> String {
        let name = self.names.get(&outcome.query).map_or("", String::as_str);
        format!("{}/{name}", outcome.attack)
    }

    /// Whether this audit wrote the file of an outcome, and it was not changed before [`claim`](Self::claim).
    pub fn has(&self, outcome: &Outcome) -> bool {
        let path = self.path(outcome);
        self.written.contains_key(&path) && self.folder.join(path).is_file()
    }

    /// Writes the file of an outcome. Error (exit code 1): the disk is full.
    pub fn write(&mut self, outcome: &Outcome, evidence: &Evidence) -> Result<()> {
        let name = self.path(outcome);
        let path = self.folder.join(&name);
        let failed =
            |why: String| Error::internal(format!("--attacked-out: can't write {}: {why}", path.display()));
        let folder = path.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(folder).map_err(|e| failed(e.to_string()))?;
        let bytes = file_of(&evidence.image, evidence.shape, self.jpeg)?;
        files::replace(&path, &bytes).map_err(|e| failed(e.to_string()))?;
        let sha256 = hex(&Sha256::digest(&bytes));
        if let Some(claim) = &mut self.claim {
            claim.write_all(row(&name, &sha256)?.as_bytes()).map_err(|e| failed(format!("{RUN}: {e}")))?;
        }
        self.written.insert(name, sha256);
        Ok(())
    }

    /// Writes the list, with a row for each outcome; `source` is the query. With its columns path and label,
    /// `--data` accepts it. Error (exit code 2): a file was changed while the audit ran.
    pub fn finish(
        &self,
        outcomes: &[Outcome],
        gallery: &Gallery,
        dataset: &Dataset,
        form: Form,
    ) -> Result<()> {
        let mut text = "path,label,attack,source,targets,levels,success,sha256\n".to_string();
        for outcome in outcomes {
            let path = self.path(outcome);
            let bytes = files::read(&self.folder.join(&path), IMAGE)
                .map_err(|e| Error::usage(format!("--attacked-out: can't read {path} again: {e}")))?;
            let sha256 = hex(&Sha256::digest(&bytes));
            if self.written.get(&path) != Some(&sha256) {
                return Err(Error::usage(format!(
                    "--attacked-out: another program changed {path} while the audit ran"
                )));
            }
            let levels = match self.jpeg {
                None => (255.0 * outcome.linf).round() as u8,
                Some(_) => largest_change(dataset, &outcome.query, &bytes)?,
            };
            let label = gallery.find(&outcome.query).map_or("", |i| &dataset.classes[gallery.labels[i]]);
            let ranked = form.ranked_in(gallery) as f64;
            // The clean result of a query was not measured from a JPEG file.
            let measured = self.jpeg.is_none() || !is_unchanged(outcome);
            let success = Objective::find(&outcome.attack)?.success(outcome, form, ranked);
            let success = success.filter(|_| measured);
            let fields =
                [&path, label, &outcome.attack, &outcome.query, &outcome.targets.join(" ")].map(escape::csv);
            let _ = writeln!(
                text,
                "{},{},{},{}",
                fields.join(","),
                levels,
                success.map_or(String::new(), |(_, after)| format!("{after:.2}")),
                sha256
            );
        }
        let path = self.folder.join(LIST);
        let written =
            std::fs::create_dir_all(&self.folder).and_then(|()| files::replace(&path, text.as_bytes()));
        written.map_err(|e| Error::internal(format!("--attacked-out: can't write {}: {e}", path.display())))
    }
}

/// A line of [`RUN`].
fn row(path: &str, sha256: &str) -> Result<String> {
    let json = serde_json::to_string(&(path, sha256))
        .map_err(|e| Error::internal(format!("the list of attacked files: {e}")))?;
    Ok(json + "\n")
}

/// Whether an outcome is that of the photograph itself, which reaches the goal without an attack.
pub fn is_unchanged(outcome: &Outcome) -> bool {
    outcome.linf == 0.0 && outcome.shift == 0.0
}

/// The largest difference between a query's photograph and a file of it, in grey levels.
fn largest_change(dataset: &Dataset, query: &str, file: &[u8]) -> Result<u8> {
    let path = dataset.items.iter().find(|item| item.id == query).and_then(|item| item.file());
    let path = path.ok_or_else(|| Error::internal(format!("image `{query}` is no file")))?;
    // A grey image has three equal channels.
    let (before, after) = (Photograph::read(path, 3)?, Photograph::of(file, path, 3)?);
    let pairs = before.data.iter().zip(&after.data);
    Ok(pairs.map(|(a, b)| grey_level(*a).abs_diff(grey_level(*b))).max().unwrap_or(0))
}

/// Most bytes of a file's name. File systems take 255, and while a file is written its name is longer.
const LONGEST: usize = 200;

/// A query's id as a path below a folder, with this extension. A long name is cut.
fn below(id: &str, extension: &str) -> String {
    let parts = Path::new(id).components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    let mut name = parts.collect::<Vec<_>>().join("/");
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    name.truncate(name.floor_char_boundary(file + LONGEST));
    let has_it = Path::new(&name).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension));
    if has_it { name } else { format!("{name}.{extension}") }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, below};

    #[test]
    fn files_lie_below_their_folder() {
        for (id, expected) in [
            ("class03/00.png", "class03/00.png"),
            ("a/b.JPG", "a/b.JPG.png"),
            ("../x.png", "x.png"),
            ("/etc/passwd", "etc/passwd.png"),
            ("7", "7.png"),
        ] {
            assert_eq!(below(id, "png"), expected);
        }
    }

    /// A name of 255 bytes is one that a file may have, but not the file that is being written.
    #[test]
    fn long_names_are_cut() {
        let of_file = |id: &str| below(id, "png").rsplit_once('/').map(|(_, name)| name.to_string()).unwrap();
        let (latin, greek) = ("n".repeat(251), "ν".repeat(125));
        assert_eq!(of_file(&format!("class/{latin}.png")), "n".repeat(LONGEST) + ".png");
        // Not within a character.
        assert_eq!(
            of_file(&format!("class/n{greek}.jpg")),
            format!("n{}.png", "ν".repeat((LONGEST - 1) / 2))
        );
        assert_eq!(of_file(&format!("{latin}/0.png")), "0.png");
    }
}
