//! The programs that committed tables and vendors' compilers are shown: each architecture, type and tiling, and each way that operands can be stored.

use rlx_ir::DType;
use rlx_kernel::ir::{Access, Buffer, BufferDecl, Ty};
use rlx_tile::atom::{Atom, Loading};
use rlx_tile::beside::Span;
use rlx_tile::schedule::{
    Attention, AttentionTiling, Given, Mask, Matmul, Operand, Pages, Tiling, attention,
    attention_group_tilings, attention_tilings, computed_tilings, group_tilings, large_tilings, matmul,
    tensor_tilings, tilings, turn_tilings,
};
use rlx_tile::window::Slide;
use rlx_tile::{Arch, Program, Scalar};

/// The programs by name, such as `sm_80.bf16.128x128x32.2x2.s3.nn`.
pub fn programs() -> Vec<(String, Program)> {
    let mut all = Vec::new();
    let types = |arch| [DType::F16, DType::BF16, DType::F32].map(|dtype| (arch, dtype));
    for (arch, dtype) in Arch::ALL.into_iter().chain([Arch::Coop16]).flat_map(types) {
        if Atom::of(arch, dtype).is_some() {
            of_warps(arch, dtype, &mut |name, program| all.push((name, program)));
        }
    }
    for dtype in [DType::F16, DType::BF16] {
        let mut add = |what: &Matmul, tiling: &Tiling, suffix: &str| {
            let name = format!("{}.{dtype}.{}.{suffix}", Arch::Sm90a.name(), tiling.name());
            all.push((name, matmul(Arch::Sm90a, what, tiling).unwrap()));
        };
        let (plain, tilings) = (Matmul::new(dtype), group_tilings());
        tilings.iter().for_each(|t| add(&plain, t, "nn"));
        let columns = Matmul { right: Operand { transposed: true, ..plain.right }, ..plain.clone() };
        [0, 2].into_iter().for_each(|i| add(&columns, &tilings[i], "nt"));
        let mut batch = Matmul { batch: 2, ..plain.clone() };
        batch.result = Operand { dtype: DType::F32, ..batch.result };
        add(&batch, &tilings[1], "nn.f32_batch");
        let turns = turn_tilings();
        turns.iter().for_each(|t| add(&plain, t, "nn"));
        [0, 1, 4].into_iter().for_each(|i| add(&columns, &turns[i], "nt"));
        add(&batch, &turns[0], "nn.f32_batch");
        let slide = Slide { taps: 3, stride: 1, dilation: 1, before: 1 };
        let window = Matmul { window: vec![slide; 2], ..columns.clone() };
        tilings.iter().chain([&turns[0]]).for_each(|t| add(&window, t, "conv3x3.nt"));
        [&tilings[0], &turns[0], &turns[3], &turns[4]]
            .into_iter()
            .for_each(|t| add(&gelu(plain.clone()), t, "nn.bias_gelu"));
    }
    for dtype in [DType::F16, DType::BF16] {
        of_tensors(dtype, &mut |name, program| all.push((name, program)));
    }
    all
}

/// Those of warps.
fn of_warps(arch: Arch, dtype: DType, add: &mut dyn FnMut(String, Program)) {
    let mut add = |what: &Matmul, tiling: &Tiling, suffix: &str| {
        let name = format!("{}.{dtype}.{}.{suffix}", arch.name(), tiling.name());
        add(name, matmul(arch, what, tiling).unwrap());
    };
    let mut plain = Matmul::new(dtype);
    // As many as a lane has beside each other.
    plain.result.vector = Atom::of(arch, dtype).map_or(1, |atom| atom.sum.neighbours());
    tilings(arch).iter().chain(&large_tilings(arch)).for_each(|t| add(&plain, t, "nn"));
    let tiling = &tilings(arch)[2];
    for (suffix, left, right) in [("nt", false, true), ("tn", true, false), ("tt", true, true)] {
        let mut what = plain.clone();
        (what.left.transposed, what.right.transposed) = (left, right);
        add(&what, tiling, suffix);
    }
    let of = |dtype, vector| Operand { dtype, transposed: false, vector };
    let odd = Matmul { left: of(dtype, 1), right: of(dtype, 1), result: of(dtype, 1), ..plain.clone() };
    add(&odd, tiling, "nn.odd");
    let wide = Matmul {
        left: if dtype == DType::F32 { of(DType::F16, 8) } else { of(DType::F32, 4) },
        result: of(DType::F32, plain.result.vector.min(4)),
        batch: 2,
        ..plain.clone()
    };
    // Small results by parts of the depth, whose sums are f32.
    let sums = of(DType::F32, plain.result.vector.min(4));
    let parts = Matmul { parts: true, batch: 1, result: sums, ..plain.clone() };
    [2, 5].into_iter().for_each(|i| add(&parts, &tilings(arch)[i], "nn.parts"));
    add(&wide, tiling, if dtype == DType::F32 { "nn.f16_batch" } else { "nn.f32_batch" });
    add(&gelu(plain.clone()), &tilings(arch)[0], "nn.bias_gelu");
    convolutions(&plain, &mut |what, number, suffix| add(what, &tilings(arch)[number], suffix));
    in_groups(arch, &plain, &mut add);
    if dtype != DType::F32 {
        let computed = computed_tilings(arch);
        [0, 2, 5].iter().for_each(|&i| add(&gated(plain.clone()), &computed[i], "nn.gated"));
        // WGSL has no buffers of integers of 4 or 8 bits.
        if arch == Arch::Coop16 {
            return;
        }
        computed.iter().for_each(|t| add(&by_blocks(plain.clone(), DType::U4), t, "nt.u4_blocks"));
        add(&by_blocks(plain.clone(), DType::I8), tiling, "nt.i8_blocks");
        [2, 5].into_iter().for_each(|i| {
            add(&by_blocks(parts.clone(), DType::U4), &computed[i], "nt.u4_blocks.parts");
        });
    }
}

/// The same of tensor memory.
fn of_tensors(dtype: DType, add: &mut dyn FnMut(String, Program)) {
    let arch = Arch::Sm100a;
    let mut add = |what: &Matmul, tiling: &Tiling, suffix: &str| {
        let name = format!("{}.{dtype}.{}.{suffix}", arch.name(), tiling.name());
        add(name, matmul(arch, what, tiling).unwrap());
    };
    let (plain, tilings) = (Matmul::new(dtype), tensor_tilings());
    let columns = Matmul { right: Operand { transposed: true, ..plain.right }, ..plain.clone() };
    let mut batch = Matmul { batch: 2, ..plain.clone() };
    batch.result = Operand { dtype: DType::F32, ..batch.result };
    let slide = Slide { taps: 3, stride: 1, dilation: 1, before: 1 };
    let window = Matmul { window: vec![slide; 2], ..columns.clone() };
    for tiling in &tilings {
        add(&plain, tiling, "nn");
        add(&columns, tiling, "nt");
        add(&gelu(plain.clone()), tiling, "nn.bias_gelu");
        add(&window, tiling, "conv3x3.nt");
    }
    add(&batch, &tilings[1], "nn.f32_batch");
}

/// Convolutions: a window of 3×3 by several tilings, one with a stride and groups, one over three dimensions, one of few channels, and what is behind one.
fn convolutions(plain: &Matmul, add: &mut dyn FnMut(&Matmul, usize, &str)) {
    let slide = |taps, stride| Slide { taps, stride, dilation: 1, before: taps / 2 };
    let weights = |vector| Operand { transposed: true, vector, ..plain.right };
    let of = |window| Matmul { window, right: weights(plain.right.vector), ..plain.clone() };
    let three = of(vec![slide(3, 1); 2]);
    [0, 2, 5].into_iter().for_each(|number| add(&three, number, "conv3x3.nt"));
    add(&Matmul { batch: 1, ..of(vec![slide(3, 2); 2]) }, 2, "conv3x3.nt.groups");
    add(&of(vec![slide(3, 1); 3]), 2, "conv3x3x3.nt");
    let few =
        Matmul { left: Operand { vector: 1, ..plain.left }, right: weights(1), ..of(vec![slide(7, 2); 2]) };
    add(&few, 2, "conv7x7.nt.odd");
    add(&gelu(three.clone()), 0, "conv3x3.nt.bias_gelu");
    // Small results by parts of the depth, whose sums are f32.
    let result = Operand { dtype: DType::F32, vector: plain.result.vector.min(4), ..plain.result };
    [2, 5].into_iter().for_each(|number| {
        add(&Matmul { parts: true, batch: 1, result, ..three.clone() }, number, "conv3x3.nt.parts");
    });
}

/// Rows in groups, stored as wide as they may be, which are looked up where lanes know which sums they have.
fn in_groups(arch: Arch, plain: &Matmul, add: &mut dyn FnMut(&Matmul, &Tiling, &str)) {
    if Atom::of(arch, plain.compute).is_none_or(|atom| atom.loading == Loading::Matrix) {
        return;
    }
    let wide = Operand { vector: 8, ..plain.result };
    let rows = Matmul { grouped: true, batch: 1, result: wide, ..plain.clone() };
    let tilings = tilings(arch);
    [0, 2, 5].into_iter().for_each(|i| add(&rows, &tilings[i], "grouped.nn"));
    let columns = Matmul { right: Operand { transposed: true, ..plain.right }, ..rows.clone() };
    add(&columns, &tilings[5], "grouped.nt");
    let of = |operand: Operand| Operand { vector: 1, ..operand };
    let odd = Matmul { left: of(rows.left), right: of(rows.right), result: of(rows.result), ..rows };
    [2, 5].into_iter().for_each(|i| add(&odd, &tilings[i].with_twice_the_lanes(), "grouped.nn.odd"));
}

/// Attentions by name, such as `sm_80.bf16.attention.128.q64.k64.w4.s2.causal`: sizes of heads, every tiling of one of them, and each mask.
pub fn attentions() -> Vec<(String, Attention, Program)> {
    let mut all = Vec::new();
    let types = |arch| [DType::F16, DType::BF16].map(|dtype| (arch, dtype));
    for (arch, dtype) in Arch::ALL.into_iter().flat_map(types) {
        if Atom::of_rows(arch, dtype).is_none_or(|atom| atom.left_of_sums().is_none()) {
            continue;
        }
        let mut add = |what: &Attention, number: usize, suffix: &str| {
            let tiling = attention_tilings(arch, what.head_dim)[number];
            let name =
                format!("{}.{dtype}.attention.{}.{}.{suffix}", arch.name(), what.head_dim, tiling.name());
            all.push((name, what.clone(), attention(arch, what, &tiling).unwrap()));
        };
        let of = |head, mask| Attention { mask, ..Attention::new(dtype, head) };
        for head in [64, 128, 256] {
            for number in 0..attention_tilings(arch, head).len() {
                add(&of(head, Mask::None), number, "all");
            }
        }
        add(&of(128, Mask::Causal), 0, "causal");
        let last = attention_tilings(arch, 128).len() - 1;
        add(&Attention { groups: 4, ..of(128, Mask::Causal) }, last, "grouped");
        add(&of(64, Mask::Given(dtype)), 1, "added");
        add(&of(64, Mask::Given(DType::Bool)), 1, "bools");
        for head in [64, 128, 256] {
            let last = attention_tilings(arch, head).len() - 1;
            let vectors = [8, 8, 8, 2];
            add(&Attention { parts: true, vectors, ..of(head, Mask::Causal) }, last, "causal.parts");
        }
        add(&Attention { vectors: [2; 4], ..of(40, Mask::Causal) }, 0, "causal.odd");
        let pages = Pages { rows: Some(16), list: DType::I64 };
        let paged = Attention { pages: [Some(pages); 2], ..of(128, Mask::Causal) };
        add(&paged, 0, "causal.pages");
        add(&Attention { parts: true, groups: 4, ..paged }, last, "causal.pages.grouped.parts");
        let windowed = of(128, Mask::Window(40));
        add(&windowed, 0, "window");
        add(&Attention { groups: 4, parts: true, ..windowed }, last, "window.grouped.parts");
    }
    for dtype in [DType::F16, DType::BF16] {
        attentions_of_groups(dtype, &mut |name, what, program| all.push((name, what, program)));
    }
    all
}

/// The same of the group level.
fn attentions_of_groups(dtype: DType, add: &mut dyn FnMut(String, Attention, Program)) {
    let mut add = |what: &Attention, tiling: &AttentionTiling, suffix: &str| {
        let arch = Arch::Sm90a;
        let name = format!("{}.{dtype}.attention.{}.{}.{suffix}", arch.name(), what.head_dim, tiling.name());
        add(name, what.clone(), attention(arch, what, tiling).unwrap());
    };
    let of = |head, mask| Attention { mask, ..Attention::new(dtype, head) };
    for head in [64, 128, 192, 256] {
        attention_group_tilings(head).iter().for_each(|t| add(&of(head, Mask::None), t, "all"));
    }
    for head in [64, 128] {
        let all = attention_group_tilings(head);
        all[..2].iter().for_each(|t| add(&of(head, Mask::Causal), t, "causal"));
        add(&of(head, Mask::Given(dtype)), &all[0], "added");
        add(&Attention { groups: 4, ..of(head, Mask::Causal) }, &all[0], "causal.grouped");
    }
    add(&of(64, Mask::Given(DType::Bool)), &attention_group_tilings(64)[0], "bools");
}

/// By weights of 4 or 8 bits in blocks of 32, with a scale and a zero point for each.
fn by_blocks(mut what: Matmul, dtype: DType) -> Matmul {
    what.right = Operand { dtype, transposed: true, vector: 8 };
    let scale = Given { dtype: DType::F32, vector: 1, span: Span::Columns(32) };
    what.right_with = vec![scale, Given { dtype: what.compute, ..scale }];
    let (buffers, uniforms) = (what.all_buffers(), what.all_uniforms());
    what.right_map = Some(Scalar::with_rows("blocks", &buffers, &uniforms, 2, |b, x, given, _| {
        let x = b.sub(x, given[1]);
        b.mul(x, given[0])
    }));
    what
}

/// Of rows that are `max(x, 0) · y`, with a factor for each row.
fn gated(mut what: Matmul) -> Matmul {
    let (dtype, vector) = (what.compute, what.left.vector);
    let row = Given { dtype: DType::F32, vector: 1, span: Span::Row };
    what.left_with = vec![Given { dtype, vector, span: Span::One }, row];
    let (buffers, uniforms) = (what.all_buffers(), what.all_uniforms());
    what.left_map = Some(Scalar::with_rows("gated", &buffers, &uniforms, 2, |b, x, given, _| {
        let zero = b.number(Ty::F32, 0.0);
        let gate = b.max(x, zero);
        let both = b.mul(gate, given[0]);
        b.mul(both, given[1])
    }));
    what
}

/// With the sigmoid form of GELU after a bias, as an epilogue.
fn gelu(mut what: Matmul) -> Matmul {
    what.buffers.push(BufferDecl { name: "bias".into(), dtype: DType::F32, access: Access::Read });
    let erf = rlx_kernel::ir::MathFn::named("Erf").expect("erf is a function");
    what.epilogue = Some(what.scalar("bias_gelu", |b, x, at| {
        let bias = b.load(Buffer(3), at.col);
        let x = b.add(x, bias);
        let scale = b.number(Ty::F32, std::f64::consts::FRAC_1_SQRT_2);
        let scaled = b.mul(x, scale);
        let erf = b.math(erf, scaled);
        let (one, half) = (b.number(Ty::F32, 1.0), b.number(Ty::F32, 0.5));
        let sum = b.add(erf, one);
        let halved = b.mul(x, half);
        b.mul(halved, sum)
    }));
    what
}
