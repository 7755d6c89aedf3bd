//! Faults: of values, of memory, of the driver. Each is a typed error, and what it leaves works.

use rlx_backend::Backend;
use rlx_backend::testing::faults::{
    gather, gather_inputs, gathered, keeps_to_a_mebibyte, reports_an_index_out_of_range,
};
use rlx_driver::Device;
use rlx_ir::{DType, ErrorKind, Graph, Op, Shape, text};
use rlx_simt::SimtBackend;

use crate::common::{DEVICES, Fake, all, compile, fake, fakes, second_gpu, with_memory};

#[test]
fn an_index_out_of_range_names_the_node_and_the_next_run_is_right() {
    for backend in all() {
        reports_an_index_out_of_range(&backend);
    }
}

#[test]
fn memory_above_the_limit_is_out_of_memory_and_smaller_work_goes_on() {
    for backend in all() {
        keeps_to_a_mebibyte(&with_memory(&backend, 1 << 20));
    }
}

#[test]
fn the_drivers_own_want_of_memory_is_out_of_memory_and_the_next_run_is_right() {
    for backend in fakes() {
        let graph = text::parse(
            r#"graph "outer" {
              %0 = Input {name="x"} : [s2, 1] f32
              %1 = Input {name="y"} : [1, 1024] f32
              %2 = Binary.Add(%0, %1) : [s2, 1024] f32
              return %2
            }"#,
        )
        .expect("the test's graph");
        let mut exec = compile(&graph, &backend).unwrap();
        // Above what a buffer may have, and what the kernels count.
        for (rows, fits) in [(2, true), (1 << 20, false), (3, true)] {
            let inputs = [vec![0u8; 4 * rows], vec![0u8; 4096]];
            match exec.run(&&inputs[..], &[rows as i64]) {
                Ok(()) => assert!(fits && exec.output(0).unwrap() == vec![0u8; 4096 * rows]),
                Err(e) => {
                    assert!(!fits, "{e}");
                    assert_eq!(e.kind(), ErrorKind::OutOfMemory, "{e}");
                }
            }
        }
    }
}

/// Compiles, runs three times (the second and third as a graph) and reads the output.
fn work(backend: &SimtBackend) -> rlx_ir::Result<Vec<u8>> {
    let mut exec = compile(&gather(), backend)?;
    for _ in 0..3 {
        exec.run(&&gather_inputs(0)[..], &[])?;
    }
    Ok(exec.output(0)?.to_vec())
}

/// Each driver call of [`work`] fails in turn with `code`; what is done after it is right.
fn each_call_fails(backend: &SimtBackend, code: i32, kind: ErrorKind) {
    let fake = Fake::get();
    assert_eq!(work(backend).unwrap(), gathered(0));
    let before = fake.calls();
    assert_eq!(work(backend).unwrap(), gathered(0));
    let calls = fake.calls() - before;
    let mut reported = 0;
    for call in 1..=calls {
        fake.fail(call, code);
        match work(backend) {
            Ok(found) => assert_eq!(found, gathered(0), "call {call}"),
            Err(e) => {
                reported += 1;
                assert_eq!((e.kind(), e.device().is_some()), (kind, true), "call {call}: {e}");
                let named = e.to_string();
                assert!(named.contains("cu") || named.contains("hip"), "call {call}: {e}");
                assert!(named.contains(&code.to_string()) || named.contains("lost"), "call {call}: {e}");
            }
        }
        fake.fail(0, 0);
        assert_eq!(work(backend).unwrap(), gathered(0), "after call {call}");
    }
    // What frees has no one to report to.
    assert!(2 * reported > calls, "{reported} of {calls} faults were reported");
}

#[test]
fn each_call_fails_in_turn() {
    for backend in fakes() {
        each_call_fails(&backend, 1, ErrorKind::Device);
    }
}

#[test]
fn each_call_is_out_of_memory_in_turn() {
    for backend in fakes() {
        each_call_fails(&backend, 2, ErrorKind::OutOfMemory);
    }
}

#[test]
fn a_device_lost_at_each_call_is_opened_again() {
    let _alone = second_gpu();
    for device in DEVICES {
        each_call_fails(&fake(device, 1), 700, ErrorKind::Device);
    }
}

#[test]
fn executables_of_a_lost_device_say_so() {
    let _alone = second_gpu();
    let backend = fake(Device::Cuda, 1);
    let mut exec = compile(&gather(), &backend).unwrap();
    let mut limited = compile(&gather(), &with_memory(&backend, 1 << 30)).unwrap();
    exec.run(&&gather_inputs(0)[..], &[]).unwrap();
    Fake::get().fail(3, 719);
    let lost = exec.run(&&gather_inputs(0)[..], &[]).unwrap_err();
    assert!(lost.kind() == ErrorKind::Device && lost.to_string().contains("lost"), "{lost}");
    for _ in 0..2 {
        let error = exec.run(&&gather_inputs(0)[..], &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.to_string().contains("lost") && error.hint().is_some(), "{error}");
    }
    assert!(exec.try_clone().is_err());
    // The device is lost to whoever uses it, under other limits too, and what they free does not reach the next context.
    assert!(limited.run(&&gather_inputs(0)[..], &[]).unwrap_err().to_string().contains("lost"));
    assert_eq!(work(&backend).unwrap(), gathered(0));
    drop(limited);
    assert_eq!(work(&backend).unwrap(), gathered(0));
    assert!(exec.run(&&gather_inputs(0)[..], &[]).is_err(), "it is lost for good");
    drop(exec);
    backend.drain().unwrap();
}

#[test]
fn a_device_that_was_closed_is_lost_to_its_executables_and_opens_again() {
    let _alone = second_gpu();
    for device in DEVICES {
        let backend = fake(device, 1);
        let mut exec = compile(&gather(), &backend).unwrap();
        exec.run(&&gather_inputs(0)[..], &[]).unwrap();
        backend.close().unwrap();
        let error = exec.run(&&gather_inputs(0)[..], &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.message().contains("closed by this process") && error.hint().is_some(), "{error}");
        assert_eq!(work(&backend).unwrap(), gathered(0));
        drop(exec);
        assert_eq!(work(&backend).unwrap(), gathered(0));
    }
}

/// A graph whose kernel no one has compiled, ever.
fn fresh(number: u32) -> Graph {
    use std::time::{SystemTime, UNIX_EPOCH};
    let nanos =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.subsec_nanos() ^ t.as_secs() as u32);
    let bits = nanos.wrapping_mul(2_654_435_761).wrapping_add(number) & 0xff_ffff;
    let eps = f32::from_bits(0x3a00_0000 | bits);
    let mut graph = Graph::new("fresh");
    let x = graph.input("x", Shape::new(&[2, 4], DType::F32));
    let gamma = graph.input("gamma", Shape::new(&[4], DType::F32));
    let y = graph.try_add(Op::RmsNorm { axis: -1, eps }, &[x, gamma]).expect("the test's graph");
    graph.set_outputs(vec![y]);
    graph
}

#[test]
fn each_call_of_a_first_compilation_fails_in_turn() {
    for backend in fakes() {
        let (fake, mut number) = (Fake::get(), 0);
        compile(&gather(), &backend).unwrap();
        let mut compile_fresh = |after: u64| {
            number += 1;
            let graph = fresh(number);
            let before = fake.calls();
            fake.fail(after, if after > 0 { 6 } else { 0 });
            let made = compile(&graph, &backend).map(drop);
            fake.fail(0, 0);
            (made, fake.calls() - before)
        };
        let (made, calls) = compile_fresh(0);
        made.unwrap();
        let mut reported = 0;
        for call in 1..=calls {
            if let Err(e) = compile_fresh(call).0 {
                reported += 1;
                assert_eq!((e.kind(), e.device().is_some()), (ErrorKind::Device, true), "call {call}: {e}");
            }
            compile_fresh(0).0.unwrap();
        }
        assert!(calls > 8 && 2 * reported > calls, "{reported} of {calls} faults were reported");
    }
}
