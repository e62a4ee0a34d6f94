//! Tells the linker where libtorch lies, so that what is built with the feature `train` runs without LD_LIBRARY_PATH.
//! Without the feature there is nothing to tell.

use std::{env, path::Path};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let (Some(_), Some(home)) = (env::var_os("CARGO_FEATURE_TRAIN"), env::var_os("LIBTORCH")) else { return };
    let library = Path::new(&home).join("lib");
    let has = |name: &str| library.join(name).exists();
    if env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family == "unix") {
        println!("cargo:rustc-link-arg-bins=-Wl,-rpath,{}", library.display());
        println!("cargo:rustc-link-arg-tests=-Wl,-rpath,{}", library.display());
    }
    // Nothing names a symbol of it, so the linker would drop it, and with it the GPU.
    if has("libtorch_cuda.so") {
        let flags = "-Wl,--no-as-needed,-ltorch_cuda,--as-needed";
        println!("cargo:rustc-link-arg-bins={flags}");
        println!("cargo:rustc-link-arg-tests={flags}");
    }
}
