//! Formats of image files: supported ones, how to detect a truncated file, and how to convert other formats.

use image::error::UnsupportedErrorKind;
use image::{ExtendedColorType, ImageError, ImageFormat};
use std::io::ErrorKind;
use std::path::Path;

pub struct Format {
    pub name: &'static str,
    /// Extensions of its files, in lower case.
    extensions: &'static [&'static str],
    /// Whether these are the bytes of such a file. Supported formats are recognised by their decoder.
    matches: fn(&[u8]) -> bool,
    support: Support,
}

/// Whether a format is supported.
enum Support {
    /// See [`read`].
    Read { by: ImageFormat, cut: fn(&[u8]) -> bool },
    /// Not supported. The package that Pillow needs to read the format, and the module to import.
    Convert(Option<[&'static str; 2]>),
}

/// A supported format. Some decoders fill in missing data: `cut` tells whether a file ends before its image.
const fn read(
    name: &'static str,
    extensions: &'static [&'static str],
    by: ImageFormat,
    cut: fn(&[u8]) -> bool,
) -> Format {
    Format { name, extensions, matches: |_| false, support: Support::Read { by, cut } }
}

/// A format that is not supported. `needs`: as in [`Support::Convert`].
const fn convertible(
    name: &'static str,
    extensions: &'static [&'static str],
    needs: Option<[&'static str; 2]>,
    matches: fn(&[u8]) -> bool,
) -> Format {
    Format { name, extensions, matches, support: Support::Convert(needs) }
}

/// The decoder refuses what ends before its image.
const REFUSED: fn(&[u8]) -> bool = |_| false;

/// All known formats. To support another one, enable it in Cargo.toml's `image`, and make its row a [`read`].
const FORMATS: &[Format] = &[
    read("PNG", &["png"], ImageFormat::Png, REFUSED),
    read("JPEG", &["jpg", "jpeg"], ImageFormat::Jpeg, jpeg_is_cut),
    read("WebP", &["webp"], ImageFormat::WebP, webp_is_cut),
    read("BMP", &["bmp"], ImageFormat::Bmp, REFUSED),
    read("TIFF", &["tif", "tiff"], ImageFormat::Tiff, REFUSED),
    read("PNM", &["pgm", "ppm", "pbm", "pnm"], ImageFormat::Pnm, REFUSED),
    read("GIF", &["gif"], ImageFormat::Gif, gif_is_cut),
    // Only version 2 of the format has a signature, at the end.
    convertible("TGA", &["tga"], None, |bytes| bytes.ends_with(b"TRUEVISION-XFILE.\0")),
    convertible("ICO", &["ico"], None, |bytes| bytes.starts_with(&[0, 0, 1, 0])),
    convertible("JPEG 2000", &["jp2", "j2k", "jpf", "jpx"], None, |bytes| {
        bytes.starts_with(b"\0\0\0\x0cjP  \r\n\x87\n") || bytes.starts_with(&[0xff, 0x4f, 0xff, 0x51])
    }),
    convertible("AVIF", &["avif"], None, |bytes| has_brand(bytes, &[b"avi"])),
    convertible(
        "HEIC",
        &["heic", "heif"],
        Some(["pillow-heif", "pillow_heif; pillow_heif.register_heif_opener()"]),
        |bytes| has_brand(bytes, &[b"hei", b"hev", b"mif", b"msf"]),
    ),
    convertible("JPEG XL", &["jxl"], Some(["pillow-jxl-plugin", "pillow_jxl"]), |bytes| {
        bytes.starts_with(&[0xff, 0x0a]) || bytes.starts_with(b"\0\0\0\x0cJXL ")
    }),
];

/// Whether a file of the ISO base media format has a brand that begins in one of these ways.
fn has_brand(bytes: &[u8], starts: &[&[u8; 3]]) -> bool {
    let brand = bytes.get(8..12).filter(|_| bytes[4..8] == *b"ftyp");
    brand.is_some_and(|brand| starts.iter().any(|start| brand.starts_with(*start)))
}

impl Format {
    /// The format of a file name's extension.
    pub fn by_extension(name: &Path) -> Option<&'static Format> {
        let own = name.extension()?.to_str()?;
        FORMATS.iter().find(|format| format.extensions.iter().any(|known| known.eq_ignore_ascii_case(own)))
    }

    /// Whether the format is supported.
    pub fn is_read(&self) -> bool {
        matches!(self.support, Support::Read { .. })
    }

    /// How to convert its files to PNG.
    pub fn way_out(&self) -> String {
        let (needs, import) = match self.support {
            Support::Convert(Some([package, module])) => {
                (format!(" (it needs `pip install {package}`)"), format!("import {module}; "))
            }
            _ => (String::new(), String::new()),
        };
        format!("Convert it to PNG with Pillow{needs}: {}", convert(&import, ""))
    }
}

/// A command that writes a PNG file beside each image.
fn convert(import: &str, change: &str) -> String {
    format!(
        "python3 -c \"import sys; from PIL import Image; {import}[Image.open(f){change}.save(f + '.png') for f in sys.argv[1:]]\" FILES"
    )
}

/// The extensions of supported files.
pub fn extensions() -> Vec<&'static str> {
    FORMATS.iter().filter(|format| format.is_read()).flat_map(|format| format.extensions).copied().collect()
}

/// The unsupported formats among files, by their extensions: names and advice. `None` if there are none.
pub fn unread<'n>(files: impl Iterator<Item = &'n str>) -> Option<String> {
    let mut unread: Vec<&Format> = Vec::new();
    for format in files.filter_map(|file| Format::by_extension(Path::new(file))) {
        if !format.is_read() && !unread.iter().any(|known| known.name == format.name) {
            unread.push(format);
        }
    }
    let each = unread.iter().map(|format| format!("{} is not read. {}", format.name, format.way_out()));
    (!unread.is_empty()).then(|| each.collect::<Vec<_>>().join(". "))
}

/// Whether a file of the format `by` ends before its image does.
pub fn is_cut(by: ImageFormat, bytes: &[u8]) -> bool {
    let read = |format: &&Format| matches!(format.support, Support::Read { by: own, .. } if own == by);
    match FORMATS.iter().find(read).map(|format| &format.support) {
        Some(Support::Read { cut, .. }) => cut(bytes),
        _ => false,
    }
}

/// First bytes of files that aren't images in spite of their names, and advice.
const STRANGERS: [(&[u8], &str); 6] = [
    (b"version https://git-lfs", "it is a pointer of Git LFS. Fetch the images: git lfs pull"),
    (b"<!DOCTYPE", WEB_PAGE),
    (b"<!doctype", WEB_PAGE),
    (b"<html", WEB_PAGE),
    (b"<svg", DRAWING),
    (b"<?xml", DRAWING),
];
const WEB_PAGE: &str = "it is a web page, as a server sends in place of a file that it doesn't give. Download the image again, or remove the file";
const DRAWING: &str =
    "it is a drawing (SVG or XML) without pixels. Convert it to PNG: rsvg-convert FILE -o FILE.png";

/// Why a truncated file is refused, and advice.
pub const CUT: &str =
    "the file ends before the image does: it was cut off. Copy it again from its source, or remove it";

/// Why a file without bytes is refused, and advice. An interrupted copy leaves such files.
pub const EMPTY: &str = "the file is empty (0 bytes). Copy it again from its source, or remove it";

/// Why a file can't be decoded, and advice. `by`: the format that the decoder recognised.
pub fn why(error: &ImageError, by: Option<ImageFormat>, bytes: &[u8], path: &Path) -> String {
    let by_extension = || Format::by_extension(path).filter(|format| by.is_none() && !format.is_read());
    if let Some(format) = FORMATS.iter().find(|format| (format.matches)(bytes)).or_else(by_extension) {
        return format!("its format is {}, which is not read. {}", format.name, format.way_out());
    }
    if let Some((_, what)) = STRANGERS.iter().find(|(start, _)| bytes.trim_ascii_start().starts_with(start)) {
        return what.to_string();
    }
    match error {
        ImageError::IoError(reason) if by.is_some() && reason.kind() == ErrorKind::UnexpectedEof => {
            CUT.into()
        }
        ImageError::Unsupported(_) if by.is_none() => format!(
            "it is in none of the formats that are read ({}). Repair the file or remove it",
            FORMATS
                .iter()
                .filter(|format| format.is_read())
                .map(|format| format.name)
                .collect::<Vec<_>>()
                .join(", ")
        ),
        ImageError::Unsupported(kind) => {
            // Grey floating-point values. Pillow doesn't scale them by itself.
            let float = matches!(kind.kind(), UnsupportedErrorKind::Color(ExtendedColorType::Unknown(32)));
            let change = if float { ".point(lambda v: v * 255 + 0.5).convert('L')" } else { "" };
            let values = if float { ", if its values are floats from 0 to 1" } else { "" };
            format!("{error}. Convert it to PNG with Pillow{values}: {}", convert("", change))
        }
        other => format!("{other}. Repair the file or remove it"),
    }
}

/// Whether a JPEG file has no end marker after its image. The decoder fills missing data with grey.
///
/// Data between markers are skipped: in compressed data, 0xFF is followed by a zero or by a restart marker.
/// Segments are skipped by their length, so that the end marker of a thumbnail doesn't count. Bytes after the
/// end marker are ignored.
fn jpeg_is_cut(bytes: &[u8]) -> bool {
    const START: u8 = 0xd8;
    const END: u8 = 0xd9;
    const TEMPORARY: u8 = 0x01;
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == 0xff) {
        rest = &rest[at..];
        // Any number of 0xFF may precede a marker.
        let Some(filled) = rest.iter().position(|byte| *byte != 0xff) else { return true };
        let marker = rest[filled];
        rest = &rest[filled + 1..];
        match marker {
            END => return false,
            0 | TEMPORARY | 0xd0..=0xd7 | START => {}
            _ => {
                let length = rest.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
                let Some(after) = length.and_then(|length| rest.get(length..)) else { return true };
                rest = after;
            }
        }
    }
    true
}

/// Whether a GIF file ends before its first image does. The decoder gives no reason.
///
/// The file consists of blocks: extensions and images. Their data are pieces, each preceded by its length; a
/// piece of length 0 is the last.
fn gif_is_cut(bytes: &[u8]) -> bool {
    const SCREEN: usize = 13;
    const EXTENSION: u8 = 0x21;
    const IMAGE: u8 = 0x2c;
    /// Size in bytes of the colour table that flags announce.
    fn table(flags: u8) -> usize {
        if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
    }
    fn pieces(mut rest: &[u8]) -> Option<&[u8]> {
        loop {
            let (&length, after) = rest.split_first()?;
            rest = after.get(usize::from(length)..)?;
            if length == 0 {
                return Some(rest);
            }
        }
    }
    // `None` if the file ends first.
    let whole = || -> Option<()> {
        let mut rest = bytes.get(SCREEN + table(*bytes.get(10)?)..)?;
        loop {
            let (&kind, after) = rest.split_first()?;
            match kind {
                EXTENSION => rest = pieces(after.get(1..)?)?,
                // Position and size, flags, colours, and the initial code length.
                IMAGE => return pieces(after.get(9 + table(*after.get(8)?) + 1..)?).map(drop),
                _ => return Some(()),
            }
        }
    };
    whole().is_none()
}

/// Whether a WebP file is shorter than its header says.
fn webp_is_cut(bytes: &[u8]) -> bool {
    let size = bytes.get(4..8).and_then(|size| size.try_into().ok()).map(u32::from_le_bytes);
    size.is_none_or(|size| (bytes.len() as u64) < u64::from(size) + 8)
}
