//! Programs as bytes: every family comes back equal, and damaged bytes are rejected, or are a program that keeps every rule.

#[path = "common/mod.rs"]
mod common;
#[path = "common/programs.rs"]
mod programs;

use common::Case;
use common::attention::{ARCHS, AttentionCase};
use common::attention_parts::Divided;
use common::convs::ConvCase;
use common::grouped::GroupedCase;
use common::prologue::PrologueCase;
use rlx_ir::ErrorKind;
use rlx_ir::testing::{Gen, damaged_bytes};
use rlx_tile::atom::Vendor;
use rlx_tile::ir::Stmt;
use rlx_tile::render::source;
use rlx_tile::stored::ProgramRecord;
use rlx_tile::verify::verify;
use rlx_tile::{Arch, Program};

/// Random programs of each family.
const CASES: u64 = 60;
const DAMAGES: usize = 2000;

/// Random matmuls (whole and in parts, with prologues and epilogues), convolutions, rows in groups, and attentions with windows, in parts and on pages.
fn random(seed: u64) -> Vec<Program> {
    let arch = Arch::ALL[seed as usize % Arch::ALL.len()];
    let g = || Gen::new(20_000 + seed);
    let case = Case::random(&mut g(), arch);
    let conv = ConvCase::random(&mut g(), arch);
    let mut all = vec![case.program(), conv.program(), PrologueCase::random(&mut g(), arch).program()];
    all.extend([case.in_parts().program(), conv.in_parts().program()]);
    let arch = ARCHS[seed as usize % ARCHS.len()];
    all.push((*GroupedCase::random(&mut g(), arch).launch(None).program).clone());
    let whole = AttentionCase::random(&mut g(), arch);
    let windowed = AttentionCase::windowed(&mut g(), arch, |g| (g.size(1..=40), g.size(40..=90)));
    let pages = AttentionCase::of_lengths(&mut g(), arch, |g| (g.size(1..=8), g.size(20..=90)));
    for case in [whole, windowed, pages.in_pages(&mut g())] {
        all.push(case.program());
        all.push(Divided::new(&case, case.tiling.keys as i32).program());
    }
    all
}

/// All families, the group level among them.
fn families() -> Vec<Program> {
    let listed = programs::programs().into_iter().map(|(_, program)| program);
    let attentions = programs::attentions().into_iter().map(|(_, _, program)| program);
    listed.chain(attentions).chain((0..CASES).flat_map(random)).collect()
}

fn bytes(program: &Program) -> Vec<u8> {
    postcard::to_allocvec(&ProgramRecord::of(program)).unwrap()
}

fn read(bytes: &[u8]) -> rlx_ir::Result<Program> {
    let record: ProgramRecord =
        postcard::from_bytes(bytes).map_err(|e| rlx_ir::Error::new(ErrorKind::Malformed, e.to_string()))?;
    record.program()
}

/// A program's text without the names of its buffers and uniforms, which are not stored.
fn unnamed(program: &Program) -> String {
    let text = program.to_string();
    let named = |line: &&str| !line.starts_with("  u") && !line.starts_with("  b");
    let lines = text.lines().filter(named).collect::<Vec<_>>().join("\n");
    format!("{lines}\n{:?}", program.buffers.iter().map(|b| (b.dtype, b.access)).collect::<Vec<_>>())
}

#[test]
fn every_family_of_programs_comes_back_equal() {
    let all = families();
    let has = |what: &dyn Fn(&Program) -> bool| all.iter().filter(|p| what(p)).count();
    let groups = has(&|p| p.producers() > 0);
    let windows = has(&|p| p.views.iter().any(|v| v.window.is_some()));
    let pages = has(&|p| p.views.iter().any(|v| v.lookup.is_some()));
    let bodies = has(&|p| p.to_string().contains("map {"));
    let bounded = has(&|p| p.to_string().contains(" below "));
    println!(
        "{} programs, groups {groups}, windows {windows}, pages {pages}, bodies {bodies}, bounded {bounded}",
        all.len()
    );
    assert!([groups, windows, pages, bodies, bounded].into_iter().all(|n| n > 10));
    for program in &all {
        let stored = bytes(program);
        let back = read(&stored).unwrap_or_else(|e| panic!("{e}\n{program}"));
        assert_eq!(back.hash(), program.hash(), "{program}");
        assert_eq!(unnamed(&back), unnamed(program));
        assert_eq!(bytes(&back), stored, "the same program, the same bytes");
        // What is read is equal in every field to what is stored again and read.
        assert_eq!(read(&stored).unwrap(), back);
        if program.arch.vendor() != Vendor::Apple {
            assert_eq!(source(&back, "k").unwrap(), source(program, "k").unwrap());
        }
    }
}

#[test]
fn damaged_bytes_are_rejected_or_keep_every_rule() {
    let (all, mut g) = (families(), Gen::new(77));
    let (mut kept, mut rejected) = (0, 0);
    for at in 0..DAMAGES {
        let stored = bytes(&all[g.size(0..=all.len() - 1)]);
        let changed = damaged_bytes(&stored, at, &mut g);
        match read(&changed) {
            Ok(program) => {
                kept += 1;
                verify(&program).unwrap();
            }
            Err(e) => {
                rejected += 1;
                assert_eq!(e.kind(), ErrorKind::Malformed, "{e}");
            }
        }
    }
    println!("{rejected} rejected, {kept} kept");
    assert!(rejected > 1500, "{rejected} rejected, {kept} kept");
}

/// Damage that comes with the right hash is the verifier's to find, and it looks at all of it without a panic.
#[test]
fn damaged_programs_with_right_hashes_are_looked_at_without_a_panic() {
    let (all, mut g) = (families(), Gen::new(78));
    let (mut kept, mut rejected) = (0, 0);
    for _ in 0..DAMAGES {
        // The hash comes first.
        let mut changed = bytes(&all[g.size(0..=all.len() - 1)]).split_off(32);
        let place = g.size(0..=changed.len() - 1);
        changed[place] = match g.size(0..=2) {
            0 => changed[place] ^ 1 << g.size(0..=7),
            1 => changed[place].wrapping_add(1),
            _ => g.size(0..=255) as u8,
        };
        let Ok(program) = postcard::from_bytes::<Program>(&changed) else {
            rejected += 1;
            continue;
        };
        match read(&bytes(&program)) {
            Ok(program) => {
                kept += 1;
                let _ = source(&program, "k");
            }
            Err(e) => {
                rejected += 1;
                assert_eq!(e.kind(), ErrorKind::Malformed, "{e}");
            }
        }
    }
    println!("{rejected} rejected, {kept} kept");
    assert!(rejected > 500 && kept > 50, "{rejected} rejected, {kept} kept");
}

#[test]
fn statements_that_nest_too_deep_are_rejected() {
    let mut program = Case::random(&mut Gen::new(1), Arch::Sm80).program();
    let nested = |depth: usize| {
        (0..depth).fold(vec![Stmt::Barrier], |consumers, _| {
            vec![Stmt::Roles { producer: Vec::new(), multiplier: Vec::new(), consumers }]
        })
    };
    program.body = nested(12);
    let text = |program: &Program| read(&bytes(program)).unwrap_err().to_string();
    assert!(text(&program).contains("roles"), "the verifier's");
    program.body = nested(100);
    assert!(!text(&program).contains("roles"), "the reader's");
    // As deep as a file may be long: written byte by byte, as no writer's stack would take it.
    let shallow = postcard::to_allocvec(&{
        program.body = nested(1);
        program.clone()
    })
    .unwrap();
    let deeper = postcard::to_allocvec(&{
        program.body = nested(2);
        program.clone()
    })
    .unwrap();
    let same = shallow.iter().zip(&deeper).take_while(|(a, b)| a == b).count();
    let level = deeper.len() - shallow.len();
    let mut bytes = [vec![0; 32], shallow[..same].to_vec()].concat();
    (0..200_000).for_each(|_| bytes.extend_from_slice(&deeper[same - level..same]));
    assert_eq!(read(&bytes).unwrap_err().kind(), ErrorKind::Malformed);
}
