//! What the emulator finds in kernels of sm_100a that are wrong about tensor memory; what is wrong about waits and fences is in the tests of `rlx-tile`.

use rlx_ptx::{Launch, Memory, Module, run};

/// The first warp allocates 64 columns, and all threads then know where they are.
const BEFORE: &str = "shr.u32 %r4, %r1, 5;
    setp.ne.s32 %p1, %r4, 0;
    @%p1 bra $allocated;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 64;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    $allocated:
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    ld.shared.u32 %r5, [%r2];";

/// It frees them.
const AFTER: &str = "tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    @%p1 bra $end;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 64;
    $end:";

fn made(body: &str) -> Result<(), String> {
    let text = format!(
        ".visible .entry k(.param .u64 p) {{
           .reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %rd<8>;
           .shared .align 8 .b8 m[16];
           mov.u32 %r1, %tid.x;
           mov.u32 %r2, m;
           {body}
           ret;
         }}"
    );
    let launch = Launch { grid: [1, 1, 1], threads: 128, parameters: vec![0], shared: 0 };
    run(&Module::parse(&text)?, &launch, &mut Memory::default())
}

/// What is found of a statement between allocating and freeing.
fn fault(between: &str) -> String {
    made(&format!("{BEFORE}\n{between}\n{AFTER}")).expect_err(between)
}

#[test]
fn columns_are_allocated_and_freed_once() {
    made(&format!("{BEFORE}\n{AFTER}")).unwrap();
    let changed = |from: &str, to: &str| {
        let text = format!("{BEFORE}\n{AFTER}");
        let other = text.replacen(from, to, 1);
        assert!(other != text, "{from}");
        made(&other).expect_err(to)
    };
    assert!(changed("[%r2], 64", "[%r2], 48").contains("no power of two"));
    assert!(changed("[%r2], 64", "[%r2], 16").contains("no power of two"));
    assert!(changed("b32 %r5, 64", "b32 %r5, 32").contains("freed otherwise"));
    assert!(changed("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 64;", "").contains("not freed"));
    let twice = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 64;\n    $allocated:";
    assert!(changed("$allocated:", twice).contains("behind relinquish_alloc_permit"));
}

/// A load by the second warp alone.
fn load(at: &str) -> String {
    format!(
        "setp.ne.s32 %p2, %r4, 1;
         @%p2 bra $loaded;
         tcgen05.ld.sync.aligned.16x256b.x1.b32 {{%f1, %f2, %f3, %f4}}, [%r5+{at}];
         $loaded:"
    )
}

#[test]
fn warps_load_lanes_and_columns_that_are_theirs() {
    let own = 32 << 16;
    for (at, what) in [
        (own, "nothing was multiplied into"),
        (own + (16 << 16), "nothing was multiplied into"),
        (own + (8 << 16), "lanes 40..56 of tensor memory in warp 1"),
        (0, "lanes 0..16 of tensor memory in warp 1"),
        (2 * own, "lanes 64..80 of tensor memory in warp 1"),
        (own + 57, "columns 505..513 of tensor memory"),
    ] {
        let e = fault(&load(&at.to_string()));
        assert!(e.contains(what), "{at}: {e}");
    }
}

/// A multiplication by the first thread, with these descriptors.
fn multiply(at: &str, operands: u64, how: u32) -> String {
    format!(
        "setp.ne.s32 %p2, %r1, 0;
         @%p2 bra $multiplied;
         mov.u64 %rd1, {operands:#x};
         mov.u32 %r6, {how};
         tcgen05.mma.cta_group::1.kind::f16 [%r5+{at}], %rd1, %rd1, %r6, %p2;
         $multiplied:"
    )
}

#[test]
fn descriptors_say_what_is_multiplied() {
    // A swizzle of 128 bytes, 1024 bytes from 8 rows to the next; f16 into f32, 128 rows by 64 columns.
    let (operands, how) = (2u64 << 61 | 1 << 46 | 64 << 32, 1u32 << 4 | 8 << 17 | 8 << 24);
    let descriptor = "the shared memory descriptor";
    let shape = "the instruction descriptor";
    for (at, operands, how, what) in [
        ("0", operands, how, "of workgroup memory"),
        ("0", operands & !(1 << 46), how, descriptor),
        ("0", 4 << 61 | operands & !(7 << 61), how, descriptor),
        ("0", operands | 1 << 49, how, descriptor),
        ("0", operands, how & !(1 << 4), shape),
        ("0", operands, how ^ (12 << 24), shape),
        ("0", operands, how | 1 << 15, shape),
        ("0", operands, how | 1 << 17, shape),
        ("0", operands, how | 1 << 7, "the types of"),
        ("0", operands, how + (8 << 17), "of which 448..512 are allocated"),
        ("16", operands, how, "of which 448..512 are allocated"),
        ("1048576", operands, how, "from lane 16 on"),
    ] {
        let e = fault(&multiply(at, operands, how));
        assert!(e.contains(what), "{at} {operands:#x} {how:#x}: {e}");
    }
}
