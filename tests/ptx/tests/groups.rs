//! What the emulator finds in kernels of sm_90a that are wrong: bulk copies, barriers in memory, multiplications of warp groups.

use rlx_ptx::{Launch, Memory, Module, run};

/// Thread 0 fills workgroup memory by a bulk copy; then all threads do something with it.
const BEFORE: &str = "setp.ne.s32 %p1, %r1, 0;
    @%p1 bra $made;
    mbarrier.init.shared::cta.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
    $made:
    bar.sync 0;
    @%p1 bra $copied;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 4096;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 4096, [%r2];
    $copied:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;";

/// Sums of 64 × 8 over a depth of 16: of f16 ones, and so 16 each.
const MULTIPLY: &str = "shr.u32 %r4, %r3, 4;
    cvt.u64.u32 %rd2, %r4;
    or.b64 %rd3, %rd2, 34363932672;
    mov.f32 %f1, 0f00000000;
    mov.f32 %f2, 0f00000000;
    mov.f32 %f3, 0f00000000;
    mov.f32 %f4, 0f00000000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd3, %rd3, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    shl.b32 %r5, %r1, 2;
    cvt.u64.u32 %rd4, %r5;
    add.s64 %rd4, %rd4, %rd1;
    st.global.f32 [%rd4], %f2;";

fn made(body: &str, threads: u32) -> Result<Vec<u8>, String> {
    let text = format!(
        ".extern .shared .align 128 .b8 s[];
         .visible .entry k(.param .u64 p) {{
           .reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %rd<8>;
           .shared .align 8 .b8 m[16];
           ld.param.u64 %rd1, [p];
           mov.u32 %r1, %tid.x;
           mov.u32 %r2, m;
           mov.u32 %r3, s;
           {body}
           ret;
         }}"
    );
    let mut memory = Memory::default();
    let p = memory.allocate([0x00, 0x3c].repeat(2048));
    let launch = Launch { grid: [1, 1, 1], threads, parameters: vec![p], shared: 4096 };
    run(&Module::parse(&text)?, &launch, &mut memory)?;
    Ok(memory.buffer(0).to_vec())
}

fn fault(body: &str, threads: u32) -> String {
    made(body, threads).expect_err(body)
}

#[test]
fn a_warp_group_multiplies_what_was_copied() {
    let sums = made(&format!("{BEFORE}\n{MULTIPLY}"), 128).unwrap();
    assert!(sums[..512].chunks(4).all(|s| s == 16f32.to_le_bytes()), "{:?}", &sums[..16]);
    let set = MULTIPLY
        .replace("%rd3, 1, 1, 1", "%rd3, 0, 1, 1")
        .replace("mov.f32 %f2, 0f00000000", "mov.f32 %f2, 0f3F800000");
    let sums = made(&format!("{BEFORE}{set}"), 128).unwrap();
    assert!(sums[..512].chunks(4).all(|s| s == 16f32.to_le_bytes()), "sums are set, not added to");
}

#[test]
fn copies_are_waited_for_on_their_barrier() {
    let read = "ld.shared.u32 %r5, [%r3];";
    assert!(made(&format!("{BEFORE}{read}"), 64).is_ok());
    let without = |what: &str, instead: &str| {
        let text = BEFORE.lines().map(|l| if l.contains(what) { instead } else { l }).collect::<Vec<_>>();
        format!("{}{read}", text.join("\n"))
    };
    assert!(fault(&without("try_wait", ""), 64).contains("under way"));
    let some =
        without("try_wait", "@%p1 bra $go; mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; $go:");
    let e = fault(&some, 64);
    assert!(e.contains("under way") || e.contains("without a wait"), "{e}");
    assert!(fault(&without("expect_tx", ""), 64).contains("a deadlock"));
    let e = fault(&without("expect_tx", "mbarrier.arrive.shared::cta.b64 _, [%r2];"), 64);
    assert!(e.contains("under way"), "{e}");
    let less = without("expect_tx", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 2048;");
    assert!(fault(&less, 64).contains("a deadlock"));
    assert!(fault(&without("cp.async.bulk", ""), 64).contains("misses 0 arrivals and 4096 bytes"));
    assert!(fault(&without("fence.mbarrier_init", ""), 64).contains("without a fence"));
    assert!(fault(&without("bar.sync", ""), 64).contains("a race"));
    assert!(fault(&without("mbarrier.init", ""), 64).contains("no barrier is made"));
}

#[test]
fn who_waited_tells_others_at_a_barrier() {
    let told = BEFORE.replace("$copied:", "");
    let read = "$copied: bar.sync 0; ld.shared.u32 %r5, [%r3];";
    assert!(made(&format!("{told}{read}"), 64).is_ok());
    let alone = "$copied: ld.shared.u32 %r5, [%r3];";
    let e = fault(&format!("{told}{alone}"), 64);
    assert!(e.contains("under way") || e.contains("without a wait"), "{e}");
}

#[test]
fn addresses_and_sizes_of_bulk_copies_are_multiples_of_16() {
    for (from, to, wrong) in [
        ("[%rd1], 4096", "[%rd1], 4088", "no multiple of 16"),
        ("[%rd1], 4096", "[%rd1+8], 2048", "not aligned"),
        ("[%r3], [%rd1], 4096", "[%r3+8], [%rd1], 2048", "not aligned"),
        ("[%r3], [%rd1], 4096", "[%r3+2048], [%rd1], 4096", "which has"),
        ("[%r3], [%rd1], 4096", "[%r2], [%rd1], 16", "over a barrier"),
        ("_, [%r2], 4096", "_, [%r2+4], 4096", "not aligned"),
        ("_, [%r2], 4096", "_, [%r2+8], 4096", "no barrier is made"),
    ] {
        assert!(BEFORE.contains(from));
        let e = fault(&BEFORE.replace(from, to), 32);
        assert!(e.contains(wrong), "{to}: {e}");
    }
    assert!(fault(&format!("{BEFORE} ld.shared.u32 %r5, [%r2];"), 32).contains("a barrier's"));
}

#[test]
fn multiplications_are_fenced_and_waited_for() {
    let all = format!("{BEFORE}\n{MULTIPLY}");
    let without = |what: &str| {
        assert!(all.contains(what));
        all.lines().filter(|l| !l.contains(what)).collect::<Vec<_>>().join("\n")
    };
    assert!(fault(&without("wgmma.fence"), 128).contains("no wgmma.fence"));
    assert!(fault(&without("wgmma.wait_group"), 128).contains("while its multiplication is under way"));
    assert!(fault(&without("wgmma.commit_group"), 128).contains("under way"));
    let e = fault(&without("try_wait"), 128);
    assert!(e.contains("whose copy is under way"), "{e}");
    // Sums that are set again between.
    let set = all.replace("wgmma.mma_async", "mov.f32 %f3, 0f00000000; wgmma.mma_async");
    assert!(fault(&set, 128).contains("no wgmma.fence"));
    assert!(fault(&all, 96).contains("not all lanes of the warp group"));
    let apart = all.replace(
        "wgmma.fence",
        "add.s64 %rd3, %rd3, %rd2; setp.lt.u32 %p3, %r1, 32; @%p3 add.s64 %rd3, %rd3, 8; wgmma.fence",
    );
    assert!(fault(&apart, 128).contains("different matrices"));
    let swizzled = all.replace("wgmma.fence", "or.b64 %rd3, %rd3, -9223372036854775808; wgmma.fence");
    assert!(fault(&swizzled, 128).contains("swizzle"));
}

/// What threads write themselves is multiplied, or copied over, only behind a fence and a barrier.
#[test]
fn what_threads_write_is_fenced_for_what_runs_beside_them() {
    let fill = "shl.b32 %r6, %r1, 5; add.s32 %r6, %r6, %r3; mov.u32 %r7, 1006648320;
        st.shared.v4.u32 [%r6], {%r7, %r7, %r7, %r7}; st.shared.v4.u32 [%r6+16], {%r7, %r7, %r7, %r7};";
    let all = format!("{fill} fence.proxy.async; bar.sync 0; {MULTIPLY}");
    let sums = made(&all, 128).unwrap();
    assert!(sums[..512].chunks(4).all(|s| s == 16f32.to_le_bytes()));
    assert!(fault(&all.replace("fence.proxy.async;", ""), 128).contains("no fence.proxy.async"));
    let e = fault(&all.replace("bar.sync 0;", ""), 128);
    assert!(e.contains("a race") || e.contains("before it is written"), "{e}");
    let over = format!("{fill} {BEFORE}");
    assert!(fault(&over, 128).contains("no fence.proxy.async"));
    assert!(made(&format!("{fill} fence.proxy.async; {BEFORE}"), 128).is_ok());
    // And not while a multiplication reads.
    let early = all.replace("wgmma.wait_group", "st.shared.u32 [%r6], %r7; wgmma.wait_group");
    assert!(fault(&early, 128).contains("may still read"));
}

#[test]
fn nothing_is_under_way_at_the_end() {
    let no_wait: String = BEFORE.lines().filter(|l| !l.contains("try_wait")).collect::<Vec<_>>().join("\n");
    assert!(fault(&no_wait, 32).contains("a bulk copy is under way at the end"));
    let all = format!("{BEFORE}\n{MULTIPLY}");
    let end = all.find("wgmma.wait_group").unwrap();
    assert!(fault(&all[..end], 128).contains("a multiplication is under way at the end"));
}
