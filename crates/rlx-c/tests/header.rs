//! `include/rlx.h` is what cbindgen makes of the sources.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_header_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml");
    // The root of the sources, which names the others; so no cargo is run.
    let builder = cbindgen::Builder::new().with_config(config).with_src(folder.join("src/lib.rs"));
    let mut made = Vec::new();
    builder.generate().expect("the sources have a C interface").write(&mut made);
    // What must hold of pointers is said in C without Rust's heading.
    let made = String::from_utf8(made).expect("UTF-8").replace("// # Safety\n", "");
    let path = folder.join("include/rlx.h");
    if env::var_os("RLX_WRITE_HEADER").is_some() {
        fs::write(&path, &made).expect("include/rlx.h is written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == made,
        "include/rlx.h is old: RLX_WRITE_HEADER=1 cargo test -p rlx-c --test header makes it again"
    );
}
