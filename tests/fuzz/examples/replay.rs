//! Hands files to a fuzz target without a fuzzer, as to find out why one panics:
//! `cargo run -p rlx-fuzz --example replay TARGET FILE…`

use rlx_fuzz::TARGETS;

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().expect("usage: replay TARGET FILE…");
    let target = TARGETS.iter().find(|t| t.name == name).expect("a target of this name");
    for file in args {
        println!("{file}");
        (target.run)(&std::fs::read(&file).expect("a readable file"));
    }
}
