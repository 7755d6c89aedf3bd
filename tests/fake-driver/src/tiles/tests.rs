//! Texts of programs read back, and what is found of a change in them.

use super::*;
use rlx_tile::schedule::{group_tilings, tensor_tilings, turn_tilings};

/// The text of a matmul with a bias behind it.
fn text(arch: Arch) -> String {
    text_of(arch, false)
}

/// The same of parts of its depth.
fn text_of(arch: Arch, parts: bool) -> String {
    let mut what = Matmul { parts, ..Matmul::new(DType::F16) };
    what.batch = 1;
    what.right.transposed = true;
    what.buffers = vec![BufferDecl { name: "bias".into(), dtype: DType::F16, access: Access::Read }];
    what.epilogue = Some(what.scalar("bias", |b, x, place| {
        let bias = b.load(rlx_kernel::ir::Buffer(3), place.col);
        b.add(x, bias)
    }));
    let tiling = Tiling { tile: (64, 64, 32), warps: (2, 2), stages: 2, bands: 8, groups: false, teams: 0 };
    render::source(&matmul(arch, &what, &tiling).unwrap(), "k").unwrap()
}

const ARCHS: [Arch; 5] = [Arch::Sm75, Arch::Sm80, Arch::Gfx90a, Arch::Gfx1100, Arch::Gfx1200];

#[test]
fn a_program_is_read_back() {
    for arch in ARCHS {
        let in_parts = compile(&text_of(arch, true)).expect("a tile program").unwrap();
        assert!(in_parts.program.name.ends_with(".parts"));
        let function = compile(&text(arch)).expect("a tile program").unwrap();
        assert_eq!((function.name.as_str(), function.program.arch), ("k", arch));
        let batch = function.program.grid.batch.len();
        assert_eq!(
            (batch, function.program.buffers.len(), function.program.workgroup() / 4),
            (1, 4, arch.lanes())
        );
    }
}

#[test]
fn a_program_of_the_group_level_is_read_back_and_every_line_counts() {
    let of_sm_90a = group_tilings().into_iter().chain(turn_tilings()).map(|t| (Arch::Sm90a, t));
    let all = of_sm_90a.chain(tensor_tilings().into_iter().map(|t| (Arch::Sm100a, t)));
    for ((arch, tiling), transposed) in all.flat_map(|t| [(t, false), (t, true)]) {
        let mut what = Matmul { batch: 2, ..Matmul::new(DType::BF16) };
        what.right.transposed = transposed;
        let program = matmul(arch, &what, &tiling).unwrap();
        every_line_counts(
            &program,
            &[("box [", "box [1"), ("blocks ", "blocks 1"), (".g", ".4x"), ("Map a1", "Map a2")],
        );
    }
}

/// A matmul by weights of 4 bits in blocks, of an activation times another tensor and a number of its row.
fn blocks(arch: Arch) -> Program {
    let mut what = Matmul::new(DType::F16);
    what.right = Operand { dtype: DType::U4, transposed: true, vector: 8 };
    let scale = Given { dtype: DType::F32, vector: 1, span: Span::Columns(32) };
    what.right_with = vec![scale, Given { dtype: DType::F16, ..scale }];
    let up = Given { dtype: DType::F16, vector: 8, span: Span::One };
    what.left_with = vec![up, Given { dtype: DType::F32, vector: 1, span: Span::Row }];
    let (buffers, uniforms) = (what.all_buffers(), what.all_uniforms());
    what.right_map = Some(Scalar::with_rows("blocks", &buffers, &uniforms, 2, |b, x, given, _| {
        let x = b.sub(x, given[1]);
        b.mul(x, given[0])
    }));
    what.left_map = Some(Scalar::with_rows("gate", &buffers, &uniforms, 2, |b, x, given, _| {
        let x = b.mul(x, given[0]);
        b.mul(x, given[1])
    }));
    let tiling = Tiling { tile: (64, 64, 32), warps: (2, 2), stages: 2, bands: 8, groups: false, teams: 0 };
    matmul(arch, &what, &tiling).unwrap()
}

/// Reads the text of a program back, and sees that nothing can be left out of it, nor be changed so.
fn every_line_counts(program: &Program, changes: &[(&str, &str)]) {
    let (text, name) = (render::source(program, "k").unwrap(), &program.name);
    let read = compile(&text).unwrap().unwrap();
    assert!(read.program.to_string() == program.to_string(), "{name}");
    let lines: Vec<&str> = text.lines().collect();
    for at in 1..lines.len() {
        let mut left = lines.clone();
        left.remove(at);
        let compiled = compile(&(left.join("\n") + "\n")).unwrap();
        assert!(compiled.is_err(), "{name}: without line {at}: {}", lines[at]);
    }
    for (from, to) in changes {
        let changed = text.replacen(from, to, 1);
        assert!(changed != text && compile(&changed).unwrap().is_err(), "{name}: {from} as {to}");
    }
}

#[test]
fn operands_that_are_computed_are_read_back_and_every_line_counts() {
    for arch in ARCHS {
        every_line_counts(
            &blocks(arch),
            &[("by 32", "by 64"), ("by row", "by 8"), ("u4 read", "i4 read"), ("m5", "m4")],
        );
    }
}

/// A matmul with a bias and a residual behind it that its result is stored over.
fn beside(arch: Arch, tiling: Tiling) -> Program {
    let given = Given { dtype: DType::BF16, vector: 8, span: Span::One };
    let mut what = Matmul { result_with: vec![given, given], over: true, ..Matmul::new(DType::BF16) };
    what.result.vector = 8;
    let (buffers, uniforms) = (what.all_buffers(), what.all_uniforms());
    what.epilogue = Some(Scalar::with_rows("beside", &buffers, &uniforms, 2, |b, x, given, _| {
        let x = b.add(x, given[0]);
        b.add(x, given[1])
    }));
    matmul(arch, &what, &tiling).unwrap()
}

#[test]
fn stores_with_numbers_beside_their_sums_are_read_back_and_every_line_counts() {
    let tiling = Tiling { tile: (64, 64, 32), warps: (2, 2), stages: 2, bands: 8, groups: false, teams: 0 };
    let of_groups = (Arch::Sm90a, group_tilings()[1]);
    for (arch, tiling) in ARCHS[1..].iter().map(|&arch| (arch, tiling)).chain([of_groups]) {
        every_line_counts(
            &beside(arch, tiling),
            &[("store g2 with g3", "store g2 with g4"), ("g4 b2", "g4 b3"), ("m5", "m4")],
        );
    }
}

/// The text of a causal attention.
fn attention_text() -> String {
    let what = Attention { mask: Mask::Causal, ..Attention::new(DType::BF16, 64) };
    let tiling = rlx_tile::schedule::attention_tilings(Arch::Sm80, 64)[1];
    render::source(&attention(Arch::Sm80, &what, &tiling).unwrap(), "k").unwrap()
}

#[test]
fn attentions_of_all_tilings_are_read_back() {
    for (arch, head) in ARCHS.into_iter().flat_map(|arch| [64, 128, 256].map(|head| (arch, head))) {
        let (mask, groups) = (Mask::Given(DType::Bool), head / 64);
        let what = Attention { mask, groups, parts: head == 128, ..Attention::new(DType::F16, head) };
        let tilings = rlx_tile::schedule::attention_tilings(arch, head);
        assert!(!tilings.is_empty());
        for tiling in tilings {
            let program = attention(arch, &what, &tiling).unwrap();
            let read = compile(&render::source(&program, "k").unwrap()).unwrap().unwrap();
            assert!(read.program == program, "{} {}", arch.name(), tiling.name());
        }
    }
}

#[test]
fn attentions_of_the_group_level_are_read_back_and_every_line_counts() {
    for head in [64, 128, 256] {
        for tiling in rlx_tile::schedule::attention_group_tilings(head) {
            let what = Attention { mask: Mask::Causal, ..Attention::new(DType::BF16, head) };
            let program = attention(Arch::Sm90a, &what, &tiling).unwrap();
            every_line_counts(
                &program,
                &[("box [", "box [1"), (".g", ".w"), ("causal", "all"), ("Map a2", "Map a3")],
            );
        }
    }
}

#[test]
fn an_attention_is_read_back_and_every_line_counts() {
    let text = attention_text();
    let function = compile(&text).expect("a tile program").unwrap();
    assert_eq!((function.name.as_str(), function.program.buffers.len()), ("k", 4));
    let lines: Vec<&str> = text.lines().collect();
    for at in 1..lines.len() {
        let mut left = lines.clone();
        left.remove(at);
        let compiled = compile(&(left.join("\n") + "\n")).unwrap();
        assert!(compiled.is_err(), "without line {at}: {}", lines[at]);
    }
    for (from, to) in [("causal", "all"), ("zero", "nan"), ("q64", "q16"), (" < d1", " < d0")] {
        let changed = text.replace(from, to);
        assert!(changed != text && compile(&changed).unwrap().is_err(), "{from} as {to}");
    }
}

/// The text of a convolution in groups, or in parts, with a bias behind it.
fn conv_text(arch: Arch, parts: bool) -> String {
    let slide = |taps, before| Slide { taps, stride: 2, dilation: 1, before };
    let mut what = Matmul { parts, window: vec![slide(3, 1), slide(2, 0)], ..Matmul::new(DType::F16) };
    (what.batch, what.right.transposed) = (1, true);
    what.buffers = vec![BufferDecl { name: "bias".into(), dtype: DType::F16, access: Access::Read }];
    what.epilogue = Some(what.scalar("bias", |b, x, place| {
        let bias = b.load(rlx_kernel::ir::Buffer(3), place.col);
        b.add(x, bias)
    }));
    render::source(&matmul(arch, &what, &rlx_tile::schedule::tilings(arch)[2]).unwrap(), "k").unwrap()
}

#[test]
fn a_convolution_is_read_back_and_its_window_counts() {
    for arch in ARCHS {
        let in_parts = conv_text(arch, true);
        assert!(compile(&in_parts).expect("a tile program").unwrap().program.name.ends_with(".parts"));
        let whole = in_parts.replacen("col + n0", "col + 0", 1);
        assert!(whole != in_parts && compile(&whole).unwrap().is_err(), "{arch:?}");
        let text = conv_text(arch, false);
        let function = compile(&text).expect("a tile program").unwrap();
        let window = function.program.views[0].window.as_ref().expect("a window");
        assert_eq!((window.taps(), window.axes.len()), (6, 2), "{arch:?}");
        for (from, to) in [
            ("taps 2", "taps 4"),
            ("before 1", "before 2"),
            (" * 2 - 1", " * 2 - 0"),
            ("inverse", "inverted"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert!(changed != text && compile(&changed).unwrap().is_err(), "{arch:?}: {from} as {to}");
        }
    }
}

#[test]
fn a_change_of_any_line_is_noticed() {
    for arch in ARCHS {
        let text = text(arch);
        let lines: Vec<&str> = text.lines().collect();
        let body = lines.iter().position(|line| line.contains("b3[")).unwrap();
        for at in 0..lines.len() {
            let mut left = lines.clone();
            left.remove(at);
            let compiled = compile(&(left.join("\n") + "\n"));
            // Without its first line it is no tile program.
            assert_eq!(compiled.is_none(), at == 0, "{arch:?}");
            assert!(compiled.is_none_or(|c| c.is_err()), "{arch:?}: without line {at}: {}", lines[at]);
        }
        // An epilogue that is another one at one place, and one that reads where nothing was read before.
        let one = lines[..body].join("\n") + "\n" + &lines[body].replace("b3[", "b0[") + "\n";
        let rest = lines[body + 1..].join("\n") + "\n";
        assert!(compile(&(one + &rest)).unwrap().unwrap_err().contains("differ"), "{arch:?}");
        for (from, to) in [("m3", "m2"), ("8u", "9u"), ("< d0", "< d1"), ("f16 read", "bf16 read")] {
            let changed = text.replace(from, to);
            assert!(changed != text && compile(&changed).unwrap().is_err(), "{arch:?}: {from} as {to}");
        }
    }
}
