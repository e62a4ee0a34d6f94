//! Tells the linker the place of libtorch, so that the program and the tests run without LD_LIBRARY_PATH.

use std::{env, path::Path};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let Some(home) = env::var_os("LIBTORCH") else { return };
    let library = Path::new(&home).join("lib");
    if env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family == "unix") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", library.display());
    }
    // No code refers to a symbol of this library, so the linker would drop it, and the GPU with it.
    if library.join("libtorch_cuda.so").exists() {
        println!("cargo:rustc-link-arg=-Wl,--no-as-needed,-ltorch_cuda,--as-needed");
    }
}
