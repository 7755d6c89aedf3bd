//! Tensor copies: where the emulator puts the elements of a box, and what it finds in maps and copies that are wrong.

use rlx_ptx::{Launch, Memory, Module, TensorMap, run};

/// Thread 0 copies a box; then each thread stores a chunk of workgroup memory behind the map's tensor.
const COPY: &str = "mbarrier.init.shared::cta.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 1024;
    cvta.param.u64 %rd2, %rd1;
    prefetch.tensormap [%rd2];
    mov.u32 %r4, 4;
    mov.u32 %r5, -1;
    cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2, {%r4, %r5, %r6}], [%r2];
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;";

/// A tensor of 2 × 6 × 70 whose rows are 80 elements apart: element (n, r, c) is `1000·n + 100·r + c`.
fn tensor() -> (TensorMap, Vec<u8>) {
    let mut elements = vec![u16::MAX; 2 * 6 * 80];
    for (n, r, c) in (0..12).flat_map(|nr| (0..70).map(move |c| (nr / 6, nr % 6, c))) {
        elements[(n * 6 + r) * 80 + c] = (1000 * n + 100 * r + c) as u16;
    }
    let map = TensorMap {
        address: 0,
        sizes: vec![70, 6, 2],
        strides: vec![160, 960],
        box_sizes: vec![64, 8, 1],
        window: Vec::new(),
    };
    (map, elements.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// The words of workgroup memory behind a copy of the box at (n, -1, 4).
fn copied(copy: &str, n: u32, change: impl FnOnce(&mut TensorMap)) -> Result<Vec<u16>, String> {
    let text = format!(
        ".extern .shared .align 1024 .b8 s[];
         .visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) {{
           .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
           .shared .align 8 .b8 m[16];
           mov.b64 %rd1, map;
           ld.param.u64 %rd3, [out];
           mov.u32 %r2, m;
           mov.u32 %r3, s;
           mov.u32 %r6, {n};
           {copy}
           mov.u32 %r8, 0;
           $next:
           add.s32 %r9, %r3, %r8;
           ld.shared.u32 %r10, [%r9];
           cvt.u64.u32 %rd4, %r8;
           add.s64 %rd5, %rd3, %rd4;
           st.global.u32 [%rd5], %r10;
           add.s32 %r8, %r8, 4;
           setp.lt.s32 %p2, %r8, 1024;
           @%p2 bra $next;
           ret;
         }}"
    );
    let (mut map, elements) = tensor();
    let mut memory = Memory::default();
    map.address = memory.allocate(elements);
    change(&mut map);
    let parameters = vec![memory.allocate(map.encoded()), memory.allocate(vec![0; 1024])];
    let launch = Launch { grid: [1, 1, 1], threads: 1, parameters, shared: 2048 };
    run(&Module::parse(&text)?, &launch, &mut memory)?;
    Ok(memory.buffer(2).chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect())
}

#[test]
fn a_box_is_swizzled_and_what_is_beyond_the_tensor_is_zero() {
    for n in 0..2 {
        let words = copied(COPY, n, |_| ()).unwrap();
        for (row, col) in (0..8).flat_map(|row| (0..64).map(move |col| (row, col))) {
            // Rows begin at -1, columns at 4.
            let inside = (1..7).contains(&row) && col + 4 < 70;
            let want = if inside { 1000 * n as usize + 100 * (row - 1) + col + 4 } else { 0 };
            let place = row * 64 + ((col / 8) ^ row) * 8 + col % 8;
            assert_eq!(usize::from(words[place]), want, "{n} {row} {col}");
        }
    }
    // Behind the last matrix there is nothing.
    assert!(copied(COPY, 2, |_| ()).unwrap().iter().all(|&x| x == 0));
}

#[test]
fn maps_and_copies_that_are_wrong_are_found() {
    let of = |change: fn(&mut TensorMap)| copied(COPY, 0, change).unwrap_err();
    for change in [
        (|m| m.address += 2) as fn(&mut TensorMap),
        |m| m.strides[0] = 152,
        |m| m.strides[1] = 0,
        |m| m.sizes[1] = 0,
        |m| m.box_sizes[0] = 32,
        |m| m.box_sizes[1] = 512,
    ] {
        assert!(of(change).contains("not in order"));
    }
    // Fewer bytes than are expected.
    assert!(of(|m| m.box_sizes[1] = 4).contains("a deadlock"));
    // More matrices than there are.
    let beyond = copied(COPY, 2, |m| m.sizes[2] = 3).unwrap_err();
    assert!(beyond.contains("of buffer 0"), "{beyond}");
    let text = |from: &str, to: &str| {
        assert!(COPY.contains(from));
        copied(&COPY.replace(from, to), 0, |_| ()).unwrap_err()
    };
    assert!(text("tensor.3d", "tensor.2d").contains("2d with 3 indices"));
    assert!(text("%r4, %r5, %r6", "%r4, %r5").contains("3d with 2 indices"));
    assert!(text("[%r3], [%rd2", "[%r3+16], [%rd2").contains("not aligned"));
    assert!(text("[%rd2, {", "[%rd3, {").contains("tensor map"));
    assert!(text("_, [%r2], 1024", "_, [%r2], 512").contains("a deadlock"));
    let read = COPY.replace("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;", "");
    assert!(copied(&read, 0, |_| ()).unwrap_err().contains("under way"));
}

/// A parameter by value is an address, not a word.
#[test]
fn parameters_by_value_are_not_loaded_as_words() {
    let e = copied(&COPY.replace("prefetch.tensormap [%rd2];", "ld.param.u64 %rd6, [map];"), 0, |_| ());
    assert!(e.unwrap_err().contains("not declared"));
}
