//! Runs the PTX of programs on the emulator, and has NVRTC make it.
#![allow(dead_code)]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_kernel::interp::Pools;
use rlx_ptx::{Launch, Memory, Module, TensorMap, run};
use rlx_tile::render::source;
use rlx_tile::{Arch, Program, interp};

/// Runs PTX, with a workgroup for each tile, and compares all buffers with what is expected.
pub fn compare(program: &Program, ptx: &str, uniforms: &[i32], memory: (Pools, Pools), what: &str) {
    compare_in(program, ptx, (interp::workgroups(program, uniforms), uniforms), memory, what);
}

/// The same in a grid of so many workgroups.
pub fn compare_in(
    program: &Program,
    ptx: &str,
    (groups, uniforms): (u64, &[i32]),
    (before, after): (Pools, Pools),
    what: &str,
) {
    let module = Module::parse(ptx).unwrap_or_else(|e| panic!("{e}\n{what}"));
    let mut memory = Memory::default();
    let words = uniforms.iter().flat_map(|u| u.to_le_bytes()).collect();
    // Uniforms are the first buffer, those of the program follow.
    let uniform = memory.allocate(words);
    let buffers: Vec<u64> = before.0.into_iter().map(|bytes| memory.allocate(bytes)).collect();
    let mut parameters = vec![uniform];
    for map in program.maps() {
        let map = map.bound(program, uniforms).unwrap_or_else(|e| panic!("{e}\n{what}"));
        let address = buffers[map.buffer] + 2 * map.base as u64;
        let window = map.window.iter().map(|axis| (axis.lower, axis.upper, axis.step)).collect();
        let map =
            TensorMap { address, sizes: map.sizes, strides: map.strides, box_sizes: map.box_sizes, window };
        parameters.push(memory.allocate(map.encoded()));
    }
    parameters.extend(buffers);
    let shared = program.dynamic_bytes() as usize;
    let launch = Launch { grid: [groups as u32, 1, 1], threads: program.workgroup(), parameters, shared };
    run(&module, &launch, &mut memory).unwrap_or_else(|e| panic!("{e}\n{what}"));
    for (i, want) in after.0.iter().enumerate() {
        let differs = want.iter().zip(memory.buffer(i + 1)).position(|(a, b)| a != b);
        assert_eq!(differs, None, "buffer {i} differs from this byte on: {what}");
    }
}

/// What NVRTC makes of texts, in order; `None` after saying that there is no NVRTC.
pub fn compiled(arch: Arch, texts: &[String]) -> Option<Vec<String>> {
    if std::env::var_os("RLX_NVRTC").is_none() {
        println!("@skip 1 RLX_NVRTC names no folder with NVRTC's package");
        return None;
    }
    // Tests of one process compile at the same time.
    static FOLDERS: AtomicUsize = AtomicUsize::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("rlx-ptx-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |i: usize, extension: &str| folder.join(format!("tile.{}.{i}.{extension}", arch.name()));
    for (i, text) in texts.iter().enumerate() {
        std::fs::write(file(i, "cu"), text).unwrap();
    }
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/nvrtc_check.py");
    let mut python = Command::new("python3");
    python.arg(tool).arg("--ptx").args((0..texts.len()).map(|i| file(i, "cu")));
    let out = python.output().unwrap_or_else(|e| panic!("python3: {e}"));
    let said = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&said));
    let made = (0..texts.len()).map(|i| std::fs::read_to_string(file(i, "ptx")).unwrap()).collect();
    std::fs::remove_dir_all(folder).unwrap();
    Some(made)
}

/// The committed PTX of a program, written again where that is asked for.
pub fn committed(arch: Arch, program: &Program, path: &Path) -> String {
    if std::env::var_os("RLX_BLESS").is_some()
        && let Some(made) = compiled(arch, &[source(program, "kernel").unwrap()])
    {
        std::fs::write(path, &made[0]).unwrap();
    }
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What the emulator says of a text in which other text stands in place of the lines that have a name: the one of this number, or all.
#[allow(dead_code, reason = "not every test that has this module damages texts")]
pub fn fault(ptx: &str, (name, which, instead): (&str, Option<usize>, &str), check: impl Fn(&str)) -> String {
    let mut n = 0;
    let lines = ptx.lines().map(|line| {
        let here = line.contains(name);
        n += usize::from(here);
        if here && which.is_none_or(|which| n == which + 1) { instead } else { line }
    });
    let changed = lines.collect::<Vec<_>>().join("\n");
    assert!(n > which.unwrap_or(0), "{name} {which:?} is there");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&changed)));
    let panic = caught.expect_err(&format!("the emulator finds {name} {which:?}"));
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}
