//! Speed of the matmul of bytes beside that of f32, interleaved, on every instruction set and on one thread.
//!
//! `cargo run --release -p rlx-cpu --example gemm_bytes_bench [-- ROUNDS]`

use std::time::Instant;

use rlx_cpu::gemm::{self, Ahead, AnyRows, ByteGemm, Epilogue, Gemm, Strided, TileSizes, ZeroPoints};
use rlx_cpu::isa::Isa;

/// Billions of operations in a second, the best of some rounds.
fn rate(operations: usize, rounds: usize, mut f: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let t = Instant::now();
        f();
        best = best.min(t.elapsed().as_secs_f64());
    }
    operations as f64 / best / 1e9
}

fn floats(isa: Isa, [m, k, n]: [usize; 3], rounds: usize) -> f64 {
    let (a, b) = (vec![0.5f32; m * k], vec![0.25f32; k * n]);
    let mut packed = vec![0.0f32; gemm::packed_len(k, n).unwrap_or(0)];
    let mut c = vec![0.0f32; m * n];
    // SAFETY: every buffer covers its extents.
    unsafe { gemm::pack(b.as_ptr(), n as isize, 1, k, n, packed.as_mut_ptr(), 0..gemm::panels(n)) };
    let rows = Strided { ptr: a.as_ptr(), row_stride: k as isize };
    let (b, c) = (packed.as_ptr(), c.as_mut_ptr());
    let g = Gemm {
        m,
        n,
        k,
        rows,
        b,
        c,
        c_stride: n,
        epilogue: Epilogue::NONE,
        tile_sizes: TileSizes::DEFAULT,
        ahead: Ahead::Panels,
        wide: None,
    };
    // SAFETY: as above.
    rate(2 * m * n * k, rounds, || unsafe { g.run(isa, 0..g.tasks(isa)) })
}

/// `zero`: the zero point of B, other than 0 where rows must be summed, too.
fn bytes(isa: Isa, [m, k, n]: [usize; 3], signed: bool, zero: u8, rounds: usize) -> f64 {
    let (a, b) = (vec![77u8; m * k], vec![5u8; k * n]);
    let mut packed = vec![0.0f32; gemm::byte_words(1, k, n).unwrap_or(0)];
    let mut c = vec![0i32; m * n];
    // SAFETY: every buffer covers its extents.
    unsafe {
        gemm::pack_bytes(b.as_ptr(), true, [n as isize, 1], k, n, packed.as_mut_ptr(), 0..gemm::panels(n))
    };
    let rows = AnyRows::Matrix(Strided { ptr: a.as_ptr(), row_stride: k as isize });
    let b_zero = ZeroPoints { ptr: &zero, step: 0, signed: true };
    let (b, c) = (packed.as_ptr(), c.as_mut_ptr());
    let g = ByteGemm {
        m,
        n,
        k,
        terms: k,
        rows,
        even: None,
        signed,
        b,
        a_zero: 128,
        b_zero,
        c,
        c_stride: n,
        epilogue: None,
        ahead: Ahead::Panels,
    };
    // SAFETY: as above.
    rate(2 * m * n * k, rounds, || unsafe { g.run(isa, 0..g.tasks(isa)) })
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(30);
    println!("Gop/s on one thread; u8·i8, i8·i8, u8·i8 with a zero point on the right");
    for isa in Isa::available().into_iter().flat_map(|isa| [isa, isa.without_extensions()]) {
        // The last ones are pixels of ResNet-50, whose columns are a panel and a part of one.
        for shape in [[1, 1024, 1024], [64, 512, 512], [256, 1024, 1024], [3136, 576, 64], [784, 1152, 128]] {
            let f32s = floats(isa, shape, rounds);
            let [a, b, c] = [(false, 0), (true, 0), (false, 3)].map(|(s, z)| bytes(isa, shape, s, z, rounds));
            println!("{isa:<24} {shape:?}: f32 {f32s:7.1}, bytes {a:7.1} {b:7.1} {c:7.1} ({:.1}×)", a / f32s);
        }
    }
}
