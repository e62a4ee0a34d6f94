//! Writes generated images as PNG class folders: `images OUT SEED SIZE CHANNELS [CLASSES SAMPLES]`.

use audit::data::{Dataset, Preparation};
use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| match arguments.get(at).map(|text| text.parse()) {
        Some(Ok(value)) => value,
        None => default,
        Some(Err(reason)) => fail(&format!("argument {}: {reason}", at + 1)),
    };
    let Some(out) = arguments.first() else { fail("usage: images OUT SEED SIZE CHANNELS [CLASSES SAMPLES]") };
    let size = number(2, 28);
    let prep = Preparation::new(number(3, 1), size, size);
    match Dataset::generated(number(1, 0) as u64, number(4, 48), number(5, 20)).export(Path::new(out), &prep)
    {
        Ok(count) => println!("{count} images in {out}"),
        Err(error) => fail(&error.message),
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}
