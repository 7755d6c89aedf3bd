//! Matmuls whose tiles do not come out even on the fake driver's GPUs: whole tiles for the first rows, parts of sums for the others, under fast numerics and where it was
//! tuned. The first rows have the bits of the undivided step, all are right, and what was made is stored and read.

use rlx_backend::testing::run;
use rlx_backend::tuning::Tuning;
use rlx_backend::{Backend, CompileCache};
use rlx_driver::Device;
use rlx_ir::DimBinding;
use rlx_ir::testing::{Gen, random_bindings};

use crate::common::{Fake, everything, fake, second_gpu};
use crate::parts::{MODELS, check, fast, module, strict};
use crate::written::layer;

/// The row from which sums are divided, by the name of a variant.
fn divided_from(name: &str) -> Option<usize> {
    let (_, rows) = name.split('@').next()?.rsplit_once(".rows")?;
    rows.split('.').next()?.parse().ok()
}

#[test]
fn the_last_rows_of_tiles_that_do_not_come_out_even_may_be_divided() {
    let _alone = second_gpu();
    let mut found = 0;
    let some = [(Device::Cuda, 0), (Device::Cuda, 1), (Device::Rocm, 1)];
    let models = if everything() { &MODELS[..] } else { &some };
    for &(device, ordinal) in models {
        let backend = fake(device, ordinal);
        for seed in 0..if everything() { 12 } else { 1 } {
            let mut g = Gen::new(30 + seed);
            let (rows, k, n) = (g.int(130..=330), 64 * g.size(3..=6), 8 * g.size(8..=24));
            let graph = layer(&rows.to_string(), k, n);
            let bindings = random_bindings(&graph, &DimBinding::new(), seed);
            let (lir, _) = module(&graph, &backend, &fast());
            let key = |options| backend.tuning_key(&lir, &lir.steps[0], &options).unwrap().expect("several");
            assert!(key(strict()).variants.iter().all(|name| divided_from(name).is_none()));
            let key = key(fast());
            // Seven runs each, of so many tile programs.
            let by = |cache: &CompileCache, what: &str, programs: u64| {
                let mut exec = backend.compile_cached(lir.clone(), &fast(), cache).unwrap();
                let before = Fake::get().tile_runs();
                check(&graph, &bindings, &mut *exec, what);
                let result = run(&mut *exec, &bindings).unwrap().remove(0);
                assert_eq!(Fake::get().tile_runs() - before, 7 * programs, "{device} {ordinal} {what}");
                (result, exec.code().unwrap())
            };
            let (usual, usual_code) = by(&CompileCache::default(), &key.variants[0], 1);
            for (variant, name) in key.variants.iter().enumerate() {
                let Some(from) = divided_from(name) else { continue };
                let mut tuning = Tuning::default();
                tuning.choose(&key, variant);
                assert!(!key.has_usual_bits(variant), "{name}");
                let (got, code) = by(&CompileCache { tuning, ..CompileCache::default() }, name, 2);
                let whole = usual.len() / rows as usize * from;
                assert!((1..rows as usize).contains(&from), "{name} of {rows} rows");
                assert!(
                    got[..whole] == usual[..whole],
                    "{device} {ordinal} {name}: other bits of whole tiles"
                );
                assert_ne!(code, usual_code);
                let (again, stored) =
                    by(&CompileCache { code: code.clone(), ..CompileCache::default() }, "stored", 2);
                assert!(again == got && stored == code, "{device} {ordinal} {name}: stored");
                found += 1;
            }
        }
    }
    assert!(found >= 2, "{found} in waves");
}
