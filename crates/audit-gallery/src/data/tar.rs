//! WebDataset: archives (shards) of files. Files of one name with different extensions are a sample. Archives
//! are read as streams of headers; only the positions of images stay in memory.

use super::format::Format;
use super::image_list::LABELS;
use super::listing::{ListedImage, Listing};
use super::shards::{self, Shards};
use super::table::{Column, Form, scalars};
use super::{Dataset, Layout, Open, Part, Wanted};
use audit_base::{Error, Result, files};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

const ABOUT: &str = "a .tar file, a folder of them, or a list of them, with an image for each sample and its class beside it: 0001.jpg and 0001.cls, or \
                     0001.json with the key label";

pub const LAYOUT: Layout = Layout {
    name: "webdataset",
    about: ABOUT,
    takes_file: true,
    stretched: false,
    detect: |path| Shards::are_at(path, EXTENSION),
    has_splits: |path| Shards::have_splits(path, EXTENSION),
    open: Open::Columns(open),
};

const EXTENSION: &str = shards::TAR;

/// The label of a sample in its JSON file.
const LABEL: Form = Form {
    columns: &[Column { also: &[&LABELS], flag: "--label-column", ..Column::optional("label") }],
    bare: &[],
    about: ABOUT,
};
/// Maximum size of a file that describes an image, in bytes.
const SAID: u64 = 1 << 20;
const BLOCK: u64 = 512;

fn open(path: &Path, wanted: &Wanted) -> Result<Dataset> {
    if let Some(name) = &wanted.image_column {
        return Err(Error::usage(format!(
            "--image-column {name}: {} is an archive, which has no columns. Leave the flag out",
            path.display()
        )));
    }
    let shards = Shards::of(path, EXTENSION, wanted.split)
        .ok_or_else(|| Shards::missing(path, EXTENSION, wanted.split, ABOUT))?;
    let mut listing = Listing::default();
    let mut notes = shards.notes.clone();
    for (shard, name) in shards.taken.iter().zip(&shards.names) {
        notes.extend(list(shard, name, wanted, &mut listing).map_err(|e| shards.wrong(e))?);
    }
    Ok(Dataset { notes, ..listing.finish(path, LAYOUT.name, shards.part)? })
}

/// The files of one name.
#[derive(Default)]
struct Sample {
    key: String,
    /// The name of the image, and its position in the archive.
    image: Option<(String, Part)>,
    class: Option<String>,
    extensions: Vec<String>,
}

/// Lists the samples of an archive, and returns a note if it may be cut off. `shown` is its name in ids.
fn list(shard: &Path, shown: &str, wanted: &Wanted, listing: &mut Listing) -> Result<Option<String>> {
    let mut archive = Archive::open(shard)?;
    let mut sample = Sample::default();
    while let Some(Entry { name, from, length }) = archive.next()? {
        let file = name.rsplit('/').next().unwrap_or(&name);
        // Hidden files that a Mac adds to archives.
        let Some(dot) = file.find('.').filter(|&dot| dot > 0) else { continue };
        let (key, extension) = name.split_at(name.len() - file.len() + dot);
        let extension = extension[1..].to_lowercase();
        if key != sample.key {
            std::mem::replace(&mut sample, Sample { key: key.into(), ..Sample::default() })
                .finish(shard, shown, listing)?;
        }
        let wrong = |what: String| Error::usage(format!("{}, `{name}`: {what}", shard.display()));
        if Format::by_extension(Path::new(&name)).is_some() {
            if let Some((other, _)) = &sample.image {
                return Err(wrong(format!(
                    "`{other}` is an image of the same sample. Leave one image in each sample"
                )));
            }
            sample.image = Some((name.clone(), Part::Bytes { from, length }));
        } else if extension == "cls" && wanted.label_column.is_none() {
            let class = archive.text(from, length).map_err(wrong)?;
            sample.class = Some(class.trim().to_owned()).filter(|class| !class.is_empty());
        } else if extension == "json" && sample.class.is_none() {
            let text = archive.text(from, length).map_err(wrong)?;
            let object =
                serde_json::from_str(&text).map_err(|e| wrong(format!("expected a JSON object: {e}")))?;
            sample.class = match scalars(object, &LABEL, &wanted.label()) {
                Ok(mut found) => found.remove("label"),
                Err(_) if wanted.classless => None,
                Err(what) => return Err(wrong(what)),
            };
        }
        sample.extensions.push(extension);
    }
    sample.finish(shard, shown, listing)?;
    Ok((!archive.ended).then(|| format!("{}: it has no end mark, and may be cut off", shard.display())))
}

impl Sample {
    fn finish(self, shard: &Path, shown: &str, listing: &mut Listing) -> Result<()> {
        let Some((name, part)) = self.image else { return Ok(()) };
        let id = format!("{shown}/{name}");
        let class = self.class.unwrap_or_else(|| {
            let (shard, extensions) = (shard.display(), self.extensions.join(", "));
            let what = format!(
                "{shard}, sample `{}`: its files say no class: {extensions}. Expected is {ABOUT}",
                self.key
            );
            listing.lacks_a_class(&id, what)
        });
        listing.add(shard.display(), ListedImage { part, ..ListedImage::new(id, class, shard.into()) })
    }
}

struct Entry {
    name: String,
    from: u64,
    length: u64,
}

/// An archive, read header by header: POSIX's ustar and pax formats, and GNU's long names.
struct Archive {
    path: PathBuf,
    file: BufReader<File>,
    /// Position of the next header.
    next: u64,
    length: u64,
    at: u64,
    /// Whether the mark of the archive's end was read.
    ended: bool,
}

impl Archive {
    fn open(path: &Path) -> Result<Archive> {
        let unreadable = |reason| Error::usage(format!("can't read {}: {reason}", path.display()));
        let file = files::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        Ok(Archive { path: path.into(), file: BufReader::new(file), next: 0, length, at: 0, ended: false })
    }

    /// The next regular file.
    fn next(&mut self) -> Result<Option<Entry>> {
        let (mut long, mut sized) = (None, None);
        loop {
            if self.next >= self.length {
                return Ok(None);
            }
            let place = self.next;
            let header = self.bytes(place, BLOCK).map_err(|what| self.wrong(place, what))?;
            if header.iter().all(|&byte| byte == 0) {
                self.ended = true;
                return Ok(None);
            }
            let sum: u64 = (header.iter().enumerate())
                .map(|(at, &byte)| u64::from(if (148..156).contains(&at) { b' ' } else { byte }))
                .sum();
            if number(&header[148..156]) != Some(sum) {
                return Err(self.wrong(place, "there is no header of a file where one must be"));
            }
            let length = sized.take().or_else(|| number(&header[124..136]));
            let from = place + BLOCK;
            let end = length.and_then(|length| from.checked_add(length)).filter(|&end| end <= self.length);
            let (Some(length), Some(end)) = (length, end) else {
                return Err(
                    self.wrong(place, "it ends before the file that begins there does: it was cut off")
                );
            };
            self.next = end.next_multiple_of(BLOCK);
            let text = |archive: &mut Archive| archive.text(from, length);
            match header[156] {
                b'L' => {
                    let name = text(self).map_err(|what| self.wrong(place, what))?;
                    long = Some(name.trim_end_matches('\0').to_owned());
                }
                b'x' => {
                    let records = text(self).map_err(|what| self.wrong(place, what))?;
                    let value = |key: &str| {
                        let record =
                            records.lines().find_map(|line| line.split_once(' ')?.1.strip_prefix(key));
                        record.map(str::to_owned)
                    };
                    long = value("path=").or(long);
                    sized = value("size=").and_then(|size| size.parse().ok());
                }
                b'0' | 0 => {
                    let field = |range: std::ops::Range<usize>| {
                        let bytes = header[range].split(|&byte| byte == 0).next().unwrap_or_default();
                        String::from_utf8_lossy(bytes).into_owned()
                    };
                    let prefix =
                        if &header[257..263] == b"ustar\0" { field(345..500) } else { String::new() };
                    let name = long.unwrap_or_else(|| match prefix.is_empty() {
                        true => field(0..100),
                        false => format!("{prefix}/{}", field(0..100)),
                    });
                    let name = name.strip_prefix("./").map(str::to_owned).unwrap_or(name);
                    return Ok(Some(Entry { name, from, length }));
                }
                // Folders, links, and pax headers of the whole archive.
                _ => long = None,
            }
        }
    }

    /// Reads a text file in the archive.
    fn text(&mut self, from: u64, length: u64) -> std::result::Result<String, String> {
        if length > SAID {
            return Err(format!(
                "it has {length} bytes, and at most {SAID} are read of a file that is no image"
            ));
        }
        String::from_utf8(self.bytes(from, length)?).map_err(|_| "it is not UTF-8 text".into())
    }

    fn bytes(&mut self, from: u64, length: u64) -> std::result::Result<Vec<u8>, String> {
        let mut bytes = vec![0; length as usize];
        let read = self.file.seek_relative(from as i64 - self.at as i64);
        read.and_then(|()| self.file.read_exact(&mut bytes)).map_err(|reason| match reason.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                "it ends before the file that begins there does: it was cut off".into()
            }
            _ => reason.to_string(),
        })?;
        self.at = from + length;
        Ok(bytes)
    }

    fn wrong(&self, place: u64, what: impl std::fmt::Display) -> Error {
        Error::usage(format!("{}, byte {place}: {what}. Copy the archive again", self.path.display()))
    }
}

/// A number in a header: octal digits, or GNU's form for large ones.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let all = field.iter().skip(1).try_fold(u64::from(field[0] & 0x7f), |all, &byte| {
            all.checked_mul(256).map(|all| all | u64::from(byte))
        });
        return all;
    }
    let text = std::str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    u64::from_str_radix(text, 8).ok()
}
