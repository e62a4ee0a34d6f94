//! Memory of decoded photographs.

#![cfg(unix)]

use crate::common::{Temp, encoded, models};
use crate::memory::run_measured;
use image::{ImageFormat, RgbImage};

/// Peak memory of embedding four images of this size, in bytes.
fn peak(width: u32, height: u32) -> u64 {
    let dir = Temp::new();
    dir.write("model.onnx", models::colour().encode());
    let file = encoded(RgbImage::new(width, height), ImageFormat::Png);
    for number in 0..4 {
        dir.write(&format!("data/class/{number}.png"), &file);
    }
    let words = ["embed", "model.onnx", "--data", "data", "-o", "e.parquet", "-q", "--threads", "2"];
    let (done, most) = run_measured(&dir, &words);
    done.ended(0);
    most
}

/// Each of two threads has one at a time: 3 bytes a pixel, and what the decoder takes. As floats it would be
/// 15 bytes.
#[test]
fn photographs_are_resized_from_their_bytes() {
    let (width, height) = (4000, 3000);
    let more = peak(width, height).saturating_sub(peak(100, 75));
    let limit = 2 * 8 * u64::from(width * height);
    assert!(more < limit, "{more} bytes, and at most {limit} are expected");
}
