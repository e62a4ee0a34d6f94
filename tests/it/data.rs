//! Image files as users have them, against values computed by hand.

mod builtin;

use crate::common::transcript::Transcript;
use crate::common::{Temp, encoded, says, shared, words};
use audit::Exit;
use audit::data::{BUILTIN_SEED, Dataset, Preparation, Resize};
use image::codecs::png::PngEncoder;
use image::{DynamicImage, ExtendedColorType, ImageBuffer, ImageEncoder};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;

fn ids(folder: &Path) -> Vec<String> {
    Dataset::open(folder, None, None).unwrap().items.into_iter().map(|item| item.id).collect()
}

fn prep(channels: usize, height: usize, width: usize) -> Preparation {
    Preparation::new(channels, height, width)
}

fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
    encoded(image, image::ImageFormat::Png)
}

fn grey(width: u32, height: u32, values: &[u8]) -> DynamicImage {
    image::GrayImage::from_raw(width, height, values.to_vec()).unwrap().into()
}

/// The prepared values of one image file.
fn prepared(bytes: &[u8], prep: &Preparation) -> audit::Result<Vec<f32>> {
    let folder = Temp::new();
    folder.write("class/image.png", bytes);
    Dataset::open(&folder, None, None).unwrap().pixels(0, prep).map(|pixels| pixels.data)
}

fn bytes_over_255(values: &[u8]) -> Vec<f32> {
    values.iter().map(|&value| f32::from(value) / 255.0).collect()
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= tolerance, "{found:?} is not {expected:?}");
}

#[test]
#[ignore = "needs the reference data"]
fn a_folder_lists_like_the_published_names_and_decodes_like_the_published_array() {
    let shared = shared("data/omniglot28");
    let data = shared.join("data/omniglot28");
    let names = fs::read_to_string(data.join("test_names.txt")).unwrap();
    let dataset = Dataset::open(&data.join("test"), None, None).unwrap();
    assert!(dataset.items.iter().map(|item| item.id.as_str()).eq(names.lines()), "{:?}", dataset.items);
    assert_eq!(dataset.classes.len(), 106);
    for item in &dataset.items {
        assert!(item.id.starts_with(&format!("{}/", dataset.classes[item.class])));
    }
    let array = fs::read(data.join("test_images_u8.npy")).unwrap();
    let expected: Vec<u8> = npyz::NpyFile::new(&array[..]).unwrap().into_vec().unwrap();
    assert_eq!(expected.len(), dataset.items.len() * 784);
    for (index, expected) in expected.chunks(784).enumerate() {
        assert_eq!(dataset.pixels(index, &prep(1, 28, 28)).unwrap().data, bytes_over_255(expected));
    }
}

#[test]
fn only_visible_image_files_of_class_folders_count_and_names_sort_by_bytes() {
    let folder = Temp::new();
    let sorted = ["B/1.Jpeg", "a/X.bmp", "a/x.jpg", "a/x.tiff", "a/y.webp", "b/10.PNG", "b/2.png", "ä/x.tif"];
    let others =
        ["Thumbs.db", "notes.txt", ".DS_Store", "a/Thumbs.db", "a/._x.jpg", ".cache/x.png", "a/sub/z.png"];
    for name in sorted.iter().rev().chain(&others) {
        folder.write(name, b"");
    }
    assert_eq!(ids(&folder), sorted);
    // Files of Windows are no reason for a warning.
    let left_out = Dataset::open(&folder, None, None).unwrap().left_out;
    assert!(left_out.contains(&"a/sub/".to_string()), "{left_out:?}");
    assert!(!left_out.iter().any(|name| name.ends_with("Thumbs.db")), "{left_out:?}");
}

#[cfg(unix)]
#[test]
fn symbolic_links_to_images_are_followed() {
    let folder = Temp::new();
    let target = folder.write("elsewhere/image.bin", png(grey(2, 1, &[7, 9])));
    fs::create_dir_all(folder.join("data/class")).unwrap();
    std::os::unix::fs::symlink(target, folder.join("data/class/link.png")).unwrap();
    let dataset = Dataset::open(&folder.join("data"), None, None).unwrap();
    assert_eq!(dataset.pixels(0, &prep(1, 1, 2)).unwrap().data, bytes_over_255(&[7, 9]));
}

#[test]
fn what_is_no_data_set_is_refused_with_the_next_step() {
    let folder = Transcript::new(Temp::new());
    let loose = ["loose/stray.png", "loose/class/image.png", "split/train/cat/image.png"];
    let few = ["hollow/full/image.png", "hollow/vacant/notes.txt", "bare/notes.txt"];
    for file in [&["archive.zip", "image.png"], &loose[..], &few].concat() {
        folder.write(file, b"");
    }
    for name in ["absent", "archive.zip", "image.png", "loose", "split", "hollow", "bare"] {
        let error = Dataset::open(&folder.join(name), None, None).unwrap_err();
        let empty = ["hollow", "bare"].contains(&name);
        assert_eq!(error.exit, if empty { Exit::Empty } else { Exit::Usage }, "{error}");
        folder.note(&error.message);
    }
    let error = Dataset::open(&folder, Some("imagenet"), None).unwrap_err();
    folder.note(&error.message);
    insta::assert_snapshot!(folder.told());
}

/// If folders of a split lie where classes are expected, the images that no model was trained on are named.
#[test]
fn of_train_and_val_the_latter_is_suggested() {
    let folder = Temp::new();
    for part in ["train", "val"] {
        folder.write(&format!("{part}/cat/image.png"), b"");
    }
    let error = Dataset::open(&folder, None, None).unwrap_err().message;
    assert!(error.ends_with(&format!("--data {}", folder.join("val").display())), "{error}");
}

#[test]
fn eight_bit_pixels_of_the_right_size_are_untouched() {
    let values: Vec<u8> = (0..=255).collect();
    let file = png(grey(16, 16, &values));
    assert_eq!(prepared(&file, &prep(1, 16, 16)).unwrap(), bytes_over_255(&values));
    let thrice = [bytes_over_255(&values), bytes_over_255(&values), bytes_over_255(&values)].concat();
    assert_eq!(prepared(&file, &prep(3, 16, 16)).unwrap(), thrice);
    // Grey stored as RGB gives the same grey: the luma weights add up to 1.
    let rgb: Vec<u8> = values.iter().flat_map(|&value| [value; 3]).collect();
    let rgb = png(image::RgbImage::from_raw(16, 16, rgb).unwrap());
    assert_eq!(prepared(&rgb, &prep(1, 16, 16)).unwrap(), bytes_over_255(&values));
}

#[test]
fn colours_come_channel_by_channel_and_turn_grey_by_luma_601() {
    let two = png(image::RgbImage::from_raw(2, 1, vec![255, 0, 10, 0, 255, 20]).unwrap());
    assert_eq!(prepared(&two, &prep(3, 1, 2)).unwrap(), bytes_over_255(&[255, 0, 0, 255, 10, 20]));
    // In 8 bits, as PIL's convert("L"): 255 times 0.299, 0.587 and 0.114, rounded.
    let primaries = png(image::RgbImage::from_raw(3, 1, vec![255, 0, 0, 0, 255, 0, 0, 0, 255]).unwrap());
    assert_eq!(prepared(&primaries, &prep(1, 1, 3)).unwrap(), bytes_over_255(&[76, 150, 29]));
    let deep = vec![65535u16, 0, 0, 0, 65535, 0, 0, 0, 65535];
    let deep = png(ImageBuffer::<image::Rgb<u16>, _>::from_raw(3, 1, deep).unwrap());
    assert_close(&prepared(&deep, &prep(1, 1, 3)).unwrap(), &[0.299, 0.587, 0.114], 1e-5);
}

#[test]
fn alpha_is_dropped_and_the_colour_below_it_kept() {
    let rgba = png(image::RgbaImage::from_raw(2, 1, vec![10, 20, 30, 0, 40, 50, 60, 128]).unwrap());
    assert_eq!(prepared(&rgba, &prep(3, 1, 2)).unwrap(), bytes_over_255(&[10, 40, 20, 50, 30, 60]));
    let grey_alpha = png(image::GrayAlphaImage::from_raw(2, 1, vec![70, 0, 80, 255]).unwrap());
    assert_eq!(prepared(&grey_alpha, &prep(1, 1, 2)).unwrap(), bytes_over_255(&[70, 80]));
}

#[test]
fn sixteen_bits_stay_sixteen_bits() {
    let values = [0u16, 1, 1000, 65534, 65535];
    let expected = values.map(|value| f32::from(value) / 65535.0);
    let file = png(ImageBuffer::<image::Luma<u16>, _>::from_raw(5, 1, values.to_vec()).unwrap());
    assert_close(&prepared(&file, &prep(1, 1, 5)).unwrap(), &expected, 1e-7);
    let rgb: Vec<u16> = values.iter().flat_map(|&value| [value, 0, 0]).collect();
    let file = png(ImageBuffer::<image::Rgb<u16>, _>::from_raw(5, 1, rgb).unwrap());
    assert_close(&prepared(&file, &prep(3, 1, 5)).unwrap()[..5], &expected, 1e-7);
}

#[test]
fn the_orientation_in_the_file_is_applied() {
    // EXIF as written by a camera held upright: little-endian TIFF, one entry, tag 0x0112 (orientation) = 6,
    // which means a quarter turn clockwise.
    let exif =
        [&b"II*\0\x08\0\0\0\x01\0"[..], &[0x12, 0x01, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0], &[0, 0, 0, 0]].concat();
    let mut file = Vec::new();
    let mut encoder = PngEncoder::new(&mut file);
    encoder.set_exif_metadata(exif).unwrap();
    encoder.write_image(&[1, 2, 3, 4, 5, 6], 3, 2, ExtendedColorType::L8).unwrap();
    assert_eq!(prepared(&file, &prep(1, 3, 2)).unwrap(), bytes_over_255(&[4, 1, 5, 2, 6, 3]));
}

#[test]
fn resizing_is_bilinear_and_antialiased() {
    // Half size: each output weighs 4 inputs by a triangle of half-width 2 around its centre; at the border
    // ¾, ¾, ¼ of them are left. Without antialiasing the edge would stay 0 and 1.
    let deep = |width, height, values: &[u16]| {
        png(ImageBuffer::<image::Luma<u16>, _>::from_raw(width, height, values.to_vec()).unwrap())
    };
    let edge = deep(4, 1, &[0, 0, 65535, 65535]);
    assert_close(&prepared(&edge, &prep(1, 1, 2)).unwrap(), &[1.0 / 7.0, 6.0 / 7.0], 1e-6);
    // Double size: centres at −¼, ¼, ¾, 1¼ of the way, the outer ones held at the border.
    let pair = deep(1, 2, &[0, 65535]);
    assert_close(&prepared(&pair, &prep(1, 4, 1)).unwrap(), &[0.0, 0.25, 0.75, 1.0], 1e-6);
    // An image of 8 bits, in 8 bits: 36.4 and 218.6, 63.75 and 191.25.
    let edge = png(grey(4, 1, &[0, 0, 255, 255]));
    assert_eq!(prepared(&edge, &prep(1, 1, 2)).unwrap(), bytes_over_255(&[36, 219]));
    let pair = png(grey(1, 2, &[0, 255]));
    assert_eq!(prepared(&pair, &prep(1, 4, 1)).unwrap(), bytes_over_255(&[0, 64, 191, 255]));
}

#[test]
fn a_centre_cut_follows_the_resize() {
    let values: Vec<u8> = (0..20).collect();
    let file = png(grey(5, 4, &values));
    let cut = Preparation { resize: Some(Resize::Exact(4, 5)), ..prep(1, 2, 3) };
    assert_eq!(prepared(&file, &cut).unwrap(), bytes_over_255(&[6, 7, 8, 11, 12, 13]));
    // Height is resized separately: 2 rows of 0 and 255 become 0, 64, 191, 255, of which the middle ones
    // stay.
    let tall = Preparation { resize: Some(Resize::Exact(4, 1)), ..prep(1, 2, 1) };
    let found = prepared(&png(grey(1, 2, &[0, 255])), &tall).unwrap();
    assert_eq!(found, bytes_over_255(&[64, 191]));
}

#[test]
fn every_format_is_read_whatever_its_extension_says() {
    let image = image::RgbImage::from_raw(2, 1, vec![255, 0, 10, 0, 255, 20]).unwrap();
    let expected = bytes_over_255(&[255, 0, 0, 255, 10, 20]);
    for format in [image::ImageFormat::Bmp, image::ImageFormat::Tiff, image::ImageFormat::WebP] {
        let file = encoded(image.clone(), format);
        assert_eq!(prepared(&file, &prep(3, 1, 2)).unwrap(), expected, "{format:?}");
    }
    let flat = encoded(image::GrayImage::from_pixel(8, 8, image::Luma([100])), image::ImageFormat::Jpeg);
    assert_close(&prepared(&flat, &prep(1, 8, 8)).unwrap(), &[100.0 / 255.0; 64], 1.5 / 255.0);
}

#[test]
fn a_broken_image_is_named_with_the_reason() {
    let told = Transcript::new(Temp::new());
    let whole = png(grey(16, 16, &(0..=255).collect::<Vec<u8>>()));
    let glaring = ImageBuffer::<image::Rgb<f32>, _>::from_raw(1, 1, vec![0.5, 2.5, 0.0]).unwrap();
    let glaring = encoded(glaring, image::ImageFormat::Tiff);
    for bytes in [&b"not an image"[..], b"", &whole[..whole.len() / 2], &glaring] {
        let error = prepared(bytes, &prep(1, 16, 16)).unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        told.note(&error.message);
    }
    insta::assert_snapshot!(told.told());
}

/// A file of tests/formats, written by Pillow because the encoders of the `image` crate can't.
fn foreign(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats").join(name)).unwrap()
}

/// An image in every supported format and kind of file: a name, the file, and whether it holds one image
/// only.
fn whole_files() -> Vec<(String, Vec<u8>, bool)> {
    use image::ImageFormat::{Bmp, Gif, Jpeg, Png, Pnm, Tiff, WebP};
    let value = |x: u32, y: u32, k: u32| ((x * (16 + k) + y * (3 + 5 * k)) % 256) as u8;
    let colour = image::RgbImage::from_fn(16, 12, |x, y| image::Rgb([0, 1, 2].map(|k| value(x, y, k))));
    let grey = image::GrayImage::from_fn(16, 12, |x, y| image::Luma([value(x, y, 0)]));
    let mut all = Vec::new();
    for format in [Png, Jpeg, WebP, Bmp, Tiff, Pnm] {
        all.push((format!("{format:?}"), encoded(colour.clone(), format), true));
        all.push((format!("grey {format:?}"), encoded(grey.clone(), format), true));
    }
    let one = "progressive.jpg restart.jpg cmyk.jpg lossy.webp exif.webp palette.png palette.bmp image.gif \
               lzw.tif jpeg.tif image.pgm image.ppm image.pbm";
    all.extend(words(one).into_iter().map(|name| (name.to_string(), foreign(name), true)));
    // Colours are written to a palette, and the encoder takes no grey.
    all.push(("Gif".into(), encoded(colour, Gif), true));
    let several = ["several.jpg", "animated.webp", "animated.png"];
    all.extend(several.map(|name| (name.to_string(), foreign(name), false)));
    all
}

#[test]
fn a_file_that_is_cut_off_is_refused_in_every_format() {
    // Thousands of files: their folder is read once.
    let (folder, prep) = (Temp::new(), prep(3, 12, 16));
    folder.write("class/image.png", b"");
    let data = Dataset::open(&folder, None, None).unwrap();
    let prepared = |bytes: &[u8]| {
        folder.write("class/image.png", bytes);
        data.pixels(0, &prep).map(|pixels| pixels.data)
    };
    for (name, file, one) in whole_files() {
        let whole = prepared(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
        for length in (0..file.len()).filter(|n| n % 5 == 0 || file.len() - n < 12) {
            match prepared(&file[..length]) {
                // The end of an image's data is not always that of its file.
                Ok(found) => assert_eq!(found, whole, "{name}, {length} of {} bytes", file.len()),
                Err(e) => assert_eq!(e.exit, Exit::Usage, "{name}: {e}"),
            }
        }
        let half = prepared(&file[..file.len() / 2]);
        if one {
            says(&half.expect_err(&name).message, &["image.png", "was cut off", "Copy it again"]);
        }
    }
}

/// Both files show one image, by Pillow.
#[test]
fn of_a_gif_the_first_picture_is_read() {
    let prep = prep(3, 12, 16);
    let gif = foreign("image.gif");
    let first = prepared(&gif, &prep).unwrap();
    assert_eq!(first, prepared(&foreign("image.ppm"), &prep).unwrap());
    // A second image that is cut off is ignored: the file's own image again, without the end mark.
    let screen = 13 + (3 << ((gif[10] & 7) + 1));
    let more = [&gif[..gif.len() - 1], &gif[screen..gif.len() - 9]].concat();
    assert_eq!(prepared(&more, &prep).unwrap(), first);
}

#[test]
fn the_end_of_a_jpeg_is_that_of_its_image() {
    let prep = prep(3, 12, 16);
    let file = foreign("restart.jpg");
    let whole = prepared(&file, &prep).unwrap();
    let (body, end) = file.split_at(file.len() - 2);
    assert_eq!(end, [0xff, 0xd9]);
    // Bytes behind the end are no part of the image, even if they look like an image that was cut off;
    // padding may precede the end.
    let trailing = [&file[..], b"trailing", &file[..100]].concat();
    let padded = [body, &[0xff, 0xff, 0xff], end].concat();
    // A thumbnail has its own end. Here it is the file itself, in a segment of application data.
    let length = (file.len() as u16 + 2).to_be_bytes();
    let thumbnail = [&[0xff, 0xd8, 0xff, 0xe2][..], &length, &file, &file[2..]].concat();
    for found in [&trailing, &padded, &thumbnail] {
        assert_eq!(prepared(found, &prep).unwrap(), whole);
    }
    // Zeros instead of the rest, as left by a broken copy.
    let zeros = [&file[..file.len() / 2], &vec![0; file.len() / 2]].concat();
    for cut in [body, &thumbnail[..thumbnail.len() - 100], &zeros] {
        says(&prepared(cut, &prep).unwrap_err().message, &["was cut off"]);
    }
}

#[test]
fn formats_that_are_not_read_are_named_with_the_way_out() {
    let folder = Transcript::new(Temp::new());
    let written =
        ["image.tga", "image.ico", "image.jp2", "image.j2k", "image.avif", "palette.tif", "float.tif"];
    // Pillow writes none of these; their first bytes identify them.
    let begun: [&[u8]; 3] =
        [b"\0\0\0\x18ftypheic\0\0\0\0", b"\0\0\0\x18ftypmif1\0\0\0\0", b"\0\0\0\x0cJXL \r\n\x87\n"];
    let strangers: [&[u8]; 3] = [
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        b"\n<!DOCTYPE html><html>",
        b"<?xml version=\"1.0\"?><svg/>",
    ];
    for bytes in written.map(foreign).into_iter().chain(begun.iter().chain(&strangers).map(|b| b.to_vec())) {
        folder.note(&prepared(&bytes, &prep(3, 12, 16)).unwrap_err().message);
    }
    // TGA's first version has no mark: its extension identifies it.
    folder.write("list.csv", "path,label\nold.tga,a\nnew.png,a\n");
    folder.write("old.tga", [&[0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 24, 0, 1, 2, 3][..]].concat());
    folder.write("new.png", png(grey(1, 1, &[7])));
    let dataset = Dataset::open(&folder.join("list.csv"), None, None).unwrap();
    let found: Vec<_> = [0, 1].map(|i| dataset.pixels(i, &prep(3, 1, 1)).map_err(|e| e.message)).into();
    folder.note(found.iter().find_map(|found| found.as_ref().err()).unwrap());
    assert_eq!(found.iter().filter(|found| found.is_ok()).count(), 1);
    // A class of such files only.
    folder.write("faces/anna/1.avif", foreign("image.avif"));
    let error = Dataset::open(&folder.join("faces"), None, None).unwrap_err();
    assert_eq!(error.exit, Exit::Empty);
    folder.note(&error.message);
    insta::assert_snapshot!(folder.told());
}

#[test]
fn pnm_files_are_read_with_the_range_that_they_state() {
    let cases: [(&[u8], [f32; 2]); 4] = [
        (b"P5 2 1 255\n\x00\xcc", [0.0, 0.8]),
        (b"P5 2 1 15\n\x03\x0f", [0.2, 1.0]),
        (b"P5 2 1 65535\n\x33\x33\xff\xff", [0.2, 1.0]),
        (b"P2 2 1 255\n0 51\n", [0.0, 0.2]),
    ];
    for (file, expected) in cases {
        assert_close(&prepared(file, &prep(1, 1, 2)).unwrap(), &expected, 1e-6);
    }
    let folder = Temp::new();
    for name in ["s1/1.pgm", "s1/2.PPM", "s1/3.pbm", "s1/4.pnm"] {
        folder.write(name, foreign("image.pgm"));
    }
    assert_eq!(ids(&folder).len(), 4);
}

#[test]
fn the_digest_is_that_of_the_file() {
    let folder = Temp::new();
    let bytes = png(grey(2, 1, &[1, 2]));
    folder.write("class/image.png", &bytes);
    let pixels = Dataset::open(&folder, None, None).unwrap().pixels(0, &prep(1, 9, 9)).unwrap();
    assert_eq!(pixels.digest[..], Sha256::digest(&bytes)[..]);
}

#[test]
fn impossible_preparations_are_refused() {
    let told = Transcript::new(Temp::new());
    let dataset = Dataset::builtin(BUILTIN_SEED);
    told.note(&dataset.pixels(0, &prep(4, 28, 28)).unwrap_err().message);
    assert!(dataset.pixels(0, &prep(1, 0, 28)).is_err());
    for resize in [Resize::Exact(20, 40), Resize::Shorter(20)] {
        let cut = Preparation { resize: Some(resize), ..prep(1, 28, 28) };
        told.note(&dataset.pixels(0, &cut).unwrap_err().message);
    }
    insta::assert_snapshot!(told.told());
}

/// With a shorter side of 1000, an image of 4 x 4000 becomes 1000 x 1,000,000 pixels.
#[test]
fn an_image_that_would_be_resized_beyond_all_bounds_is_refused() {
    let prep = Preparation { resize: Some(Resize::Shorter(1000)), ..prep(1, 28, 28) };
    let error = prepared(&png(image::GrayImage::new(4000, 4)), &prep).unwrap_err();
    says(&error.message, &["image.png", "4 x 4000", "resized to 1000 x 1000000", "200 million"]);
}
