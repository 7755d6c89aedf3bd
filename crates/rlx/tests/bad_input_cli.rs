//! Damaged models through the whole command: an error or an answer, never a panic.
//!
//! The importer's test covers thousands of damaged models; these few go from the file to the exit code.

use std::process::Command;

use rlx_testdata::models::folder;

/// Reproducible damage: truncation, flipped bits, bytes that make lengths absurd.
fn damaged(whole: &[u8], seed: usize) -> Vec<u8> {
    let at = seed.wrapping_mul(2_654_435_761) % whole.len();
    let mut bytes = whole.to_vec();
    match seed % 3 {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << (seed % 8),
        _ => {
            let end = (at + 5).min(bytes.len());
            bytes[at..end].fill(0xff);
        }
    }
    bytes
}

#[test]
fn damaged_models_end_with_an_exit_code_and_a_message() {
    let path = std::env::temp_dir().join(format!("rlx-damaged-{}.onnx", std::process::id()));
    let whole = std::fs::read(folder().join("digits/digits.onnx")).expect("the model is committed");
    // Every other one within the first 3 kB, where the structure is.
    let cases = (0..90).map(|seed| match seed % 2 {
        0 => damaged(&whole, seed),
        _ => [damaged(&whole[..3000], seed), whole[3000..].to_vec()].concat(),
    });
    for (seed, bytes) in cases.enumerate() {
        std::fs::write(&path, bytes).expect("a temporary file");
        let output = Command::new(env!("CARGO_BIN_EXE_rlx"))
            .args([
                "run",
                path.to_str().expect("temporary paths are text"),
                "digits/samples/0_a.png",
                "--threads",
                "1",
            ])
            .current_dir(folder())
            .output()
            .expect("the command starts");
        let message = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => assert!(message.is_empty(), "case {seed}: {message}"),
            Some(1) => assert!(
                message.starts_with("error: ")
                    && message
                        .lines()
                        .skip(1)
                        .all(|l| ["  at: ", "  on: ", "  help: "].iter().any(|p| l.starts_with(p))),
                "{seed}: {message}"
            ),
            code => panic!("case {seed}: exit code {code:?}: {message}"),
        }
    }
    std::fs::remove_file(path).expect("the temporary file");
}
