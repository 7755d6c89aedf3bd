//! What the emulator finds in kernels that are wrong, and what it does not know.

use rlx_ptx::{Launch, Memory, Module, run};

/// A kernel of one buffer with the given statements.
fn kernel(body: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 p) {{
           .reg .pred %p<4>; .reg .b16 %rs<4>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %rd<4>;
           .shared .align 16 .b8 s[1024];
           ld.param.u64 %rd1, [p];
           mov.u32 %r1, %tid.x;
           shl.b32 %r2, %r1, 2;
           mov.u32 %r3, s;
           add.s32 %r4, %r3, %r2;
           {body}
           ret;
         }}"
    )
}

/// The buffer after a run of a workgroup of so many threads.
fn made(body: &str, threads: u32, buffer: Vec<u8>) -> Result<Vec<u8>, String> {
    let module = Module::parse(&kernel(body))?;
    let mut memory = Memory::default();
    let p = memory.allocate(buffer);
    run(&module, &Launch { grid: [1, 1, 1], threads, parameters: vec![p], shared: 0 }, &mut memory)?;
    Ok(memory.buffer(0).to_vec())
}

fn fault(body: &str, threads: u32) -> String {
    made(body, threads, vec![0; 256]).expect_err(body)
}

#[test]
fn accesses_stay_in_their_memory_and_are_aligned() {
    assert!(fault("ld.global.u32 %r5, [%rd1+256];", 1).contains("which has 256"));
    assert!(fault("ld.global.u32 %r5, [%rd1+2];", 1).contains("not aligned"));
    assert!(fault("st.global.v2.f32 [%rd1+4], {%f1, %f2};", 1).contains("not aligned"));
    assert!(fault("mov.u64 %rd2, 64; ld.global.u32 %r5, [%rd2];", 1).contains("in no buffer"));
    assert!(fault("st.shared.u32 [%r3+1024], %r1;", 1).contains("which has 1024"));
    assert!(fault("ld.shared.u32 %r5, [%r3];", 1).contains("before it is written"));
}

const EXCHANGE: &str = "st.shared.u32 [%r4], %r1;
    bar.sync 0;
    xor.b32 %r5, %r2, 4;
    add.s32 %r5, %r5, %r3;
    ld.shared.u32 %r6, [%r5];
    cvt.u64.u32 %rd2, %r2;
    add.s64 %rd2, %rd2, %rd1;
    st.global.u32 [%rd2], %r6;";

#[test]
fn threads_meet_at_barriers() {
    let exchanged = made(EXCHANGE, 64, vec![0; 256]).unwrap();
    assert_eq!(exchanged[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let without = EXCHANGE.replace("bar.sync 0;", "");
    let e = fault(&without, 64);
    assert!(e.contains("a race") || e.contains("before it is written"), "{e}");
    let some = "setp.lt.u32 %p1, %r1, 40; @%p1 bar.sync 0;";
    assert!(fault(some, 64).contains("not all threads"));
    assert!(fault("bar.sync 1;", 32).contains("part of a workgroup"));
}

#[test]
fn copies_are_waited_for() {
    let copy = "cvt.u64.u32 %rd2, %r2;
        add.s64 %rd2, %rd2, %rd1;
        cp.async.ca.shared.global [%r4], [%rd2], 4, 4;
        cp.async.commit_group;
        WAIT
        ld.shared.u32 %r6, [%r4];
        add.s32 %r6, %r6, 1;
        st.global.u32 [%rd2], %r6;";
    let waited = made(&copy.replace("WAIT", "cp.async.wait_group 0;"), 32, vec![3; 128]).unwrap();
    assert_eq!(waited[..4], [4, 3, 3, 3]);
    for wait in ["", "cp.async.wait_group 1;"] {
        assert!(fault(&copy.replace("WAIT", wait), 32).contains("under way"));
    }
    let zeros = copy.replace("4, 4;", "4, 0;").replace("WAIT", "cp.async.wait_group 0;");
    assert_eq!(made(&zeros, 32, vec![3; 128]).unwrap()[..4], [1, 0, 0, 0]);
}

#[test]
fn a_warp_is_together_at_its_instructions() {
    let mma = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r5, %r5}, {%r5}, {%f5, %f5, %f5, %f5};";
    assert!(made(mma, 32, vec![0; 4]).is_ok());
    assert!(fault(mma, 16).contains("not all lanes"));
    let some = format!("setp.lt.u32 %p1, %r1, 20; @%p1 bra $skip; {mma} $skip:");
    assert!(fault(&some, 32).contains("not all lanes"));
}

/// Ones in f16 everywhere: each sum is the depth.
#[test]
fn sums_of_ones_are_the_depth() {
    for (k, a, b) in [(8, "{%r5, %r5}", "{%r5}"), (16, "{%r5, %r5, %r5, %r5}", "{%r5, %r5}")] {
        let body = format!(
            "mov.u32 %r5, 0x3c003c00;
             mov.f32 %f5, 0f3F800000;
             mma.sync.aligned.m16n8k{k}.row.col.f32.f16.f16.f32 {{%f1, %f2, %f3, %f4}}, {a}, {b}, {{%f5, %f5, %f5, %f5}};
             cvt.u64.u32 %rd2, %r2;
             add.s64 %rd2, %rd2, %rd1;
             st.global.f32 [%rd2], %f3;"
        );
        let sums = made(&body, 32, vec![0; 128]).unwrap();
        assert!(sums.chunks(4).all(|s| s == (k as f32 + 1.0).to_le_bytes()), "{sums:?}");
    }
}

#[test]
fn lanes_see_what_others_have() {
    let shuffled = |how: &str, lane: &str, members: &str| {
        let body = format!(
            "shfl.sync.{how}.b32 %r5|%p1, %r1, {lane}, 31, {members};
             cvt.u64.u32 %rd2, %r2;
             add.s64 %rd2, %rd2, %rd1;
             st.global.u32 [%rd2], %r5;"
        );
        made(&body, 64, vec![0; 256])
    };
    let first_of = |made: Vec<u8>| made.chunks(4).map(|word| word[0]).collect::<Vec<u8>>();
    let exchanged: Vec<u8> = (0..64).map(|t| t ^ 2).collect();
    assert_eq!(first_of(shuffled("bfly", "2", "-1").unwrap()), exchanged);
    // The same lane of each warp.
    let same: Vec<u8> = (0..64).map(|t| t / 32 * 32 + 5).collect();
    assert_eq!(first_of(shuffled("idx", "5", "-1").unwrap()), same);
    assert!(shuffled("idx", "5", "3").unwrap_err().contains("part of a warp"));
}

#[test]
fn what_is_not_known_names_its_line() {
    let e = Module::parse(&kernel("lg2.approx.ftz.f32 %f1, %f2;")).unwrap_err();
    assert!(e.contains("line 9") && e.contains("lg2.approx.ftz.f32"), "{e}");
    assert!(Module::parse(&kernel("add.s32 %r99, %r1, %r2;")).unwrap_err().contains("%r99"));
    assert!(Module::parse(&kernel("bra nowhere;")).unwrap_err().contains("nowhere"));
    assert!(fault("mov.u32 %r5, 0; div.u32 %r6, %r1, %r5;", 1).contains("leaves open"));
    assert!(Module::parse("").is_err() && Module::parse(".entry k( {").is_err());
}
