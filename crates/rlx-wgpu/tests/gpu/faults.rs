//! Faults: of values, of memory, of the driver. Each is a typed error, and what it leaves works.

use std::future::poll_fn;
use std::sync::Arc;

use rlx_backend::Backend;
use rlx_backend::testing::faults::{
    gather, gather_inputs, gathered, keeps_to_a_mebibyte, reports_an_index_out_of_range,
};
use rlx_ir::{DType, ErrorKind, Weight, text};
use rlx_kernel::KernelTarget;
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_wgpu::Lowered;

use crate::common::{DEVICES, compile, device, devices, lowered};
use crate::flights::awaited;
use crate::handles::{Kept, N, counter};

#[test]
fn an_index_out_of_range_names_the_node_and_the_next_run_is_right() {
    for backend in devices() {
        reports_an_index_out_of_range(&backend);
    }
}

#[test]
fn memory_above_the_limit_is_out_of_memory_and_smaller_work_goes_on() {
    let limits = Lowered { max_memory_bytes: Some(1 << 20), ..Lowered::default() };
    let Some(backend) = lowered(limits) else { return };
    keeps_to_a_mebibyte(&backend);
}

#[test]
fn a_value_larger_than_the_device_binds_is_out_of_memory_and_smaller_runs_go_on() {
    for backend in devices() {
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
        // The device's own limit: only the sum is above it.
        let most = backend.target(&CompileOptions::default()).unwrap().pool_spec().max_buffer_bytes;
        for (rows, fits) in [(2, true), (most / 4096 + 1, false), (3, true)] {
            let inputs = [vec![0u8; 4 * rows], vec![0u8; 4096]];
            match exec.run(&&inputs[..], &[rows as i64]) {
                Ok(()) => assert!(fits && exec.output(0).unwrap() == vec![0u8; 4096 * rows]),
                Err(e) => {
                    assert!(!fits, "{e}");
                    assert_eq!(e.kind(), ErrorKind::OutOfMemory, "{e}");
                    assert!(exec.output(0).is_err(), "outputs of a failed run");
                }
            }
        }
    }
}

#[test]
fn a_kernel_that_the_driver_rejects_is_a_typed_error_that_names_the_node() {
    let limits = Lowered { max_workgroup: Some(32), ..Lowered::default() };
    for of in DEVICES {
        let Some(backend) = device(of).map(|b| b.with_limits(limits)) else { continue };
        // A target that promises larger workgroups than the device was opened with.
        let target = KernelTarget::webgpu(of.feature());
        let pipeline = CompilePipeline::new(Arc::new(target.clone()), CompileOptions::default());
        let lir = Arc::new(pipeline.compile(&gather()).unwrap().lir);
        let error = backend.compile_for(lir, target).err().expect("the driver takes 32 invocations");
        assert_eq!((error.kind(), error.device()), (ErrorKind::Device, Some(of.name())), "{error}");
        assert!(error.node().is_some_and(|node| node.contains("Gather")), "{error}");
        assert!(error.to_string().contains("kernel \""), "{error}");
        // The device itself promises what it has: nothing is left that it could run, and says so.
        let honest = compile(&gather(), &backend).err().expect("no kernel is that small");
        assert_eq!(honest.kind(), ErrorKind::Unsupported, "{honest}");
        assert!(honest.to_string().contains("workgroup of"), "{honest}");
    }
}

#[test]
fn a_lost_device_is_a_typed_error_and_the_next_compile_opens_it_again() {
    for of in DEVICES {
        // Limits of its own, so that other tests' device stays.
        let limits = Lowered { max_memory_bytes: Some(1 << 30), ..Lowered::default() };
        let Some(backend) = device(of).map(|b| b.with_limits(limits)) else { continue };
        let mut exec = compile(&gather(), &backend).unwrap();
        exec.run(&&gather_inputs(0)[..], &[]).unwrap();
        backend.close().unwrap();
        let error = exec.run(&&gather_inputs(0)[..], &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.to_string().contains("lost"), "{error}");
        assert!(exec.try_clone().is_err());
        let mut again = compile(&gather(), &backend).unwrap();
        again.run(&&gather_inputs(0)[..], &[]).unwrap();
    }
}

#[test]
fn a_device_lost_while_runs_are_in_flight_fails_each_of_them_and_what_is_compiled_again_is_right() {
    for of in DEVICES {
        let limits = Lowered { max_memory_bytes: Some(3 << 28), ..Lowered::default() };
        let Some(backend) = device(of).map(|b| b.with_limits(limits)) else { continue };
        let one = Arc::new(Weight::owned(DType::F32, &[1], 1f32.to_le_bytes().to_vec()).unwrap());
        for again in 0..2 {
            let mut rows = compile(&gather(), &backend).unwrap();
            let mut kept = compile(&counter(), &backend).unwrap();
            // The weight is the one that the lost device had.
            kept.set_param(0, Arc::clone(&one)).unwrap();
            let handles = kept.handles_mut().expect("handles");
            handles.set(0, &vec![0; 4 * N]).unwrap();
            handles.feed(0, Some(0)).unwrap();
            for last in [0, 1, 2] {
                rows.submit(&&gather_inputs(last)[..], &[]).unwrap();
                kept.submit(&Kept, &[]).unwrap();
            }
            if again == 1 {
                rows.drain().unwrap();
                assert_eq!(rows.output(0).unwrap(), gathered(2));
                assert_eq!(kept.output(1).unwrap(), 2f32.to_le_bytes());
                break;
            }
            assert_eq!((rows.in_flight(), kept.in_flight()), (3, 3));
            backend.close().unwrap();
            let lost = |error: rlx_ir::Error| {
                assert_eq!((error.kind(), error.device()), (ErrorKind::Device, Some(of.name())), "{error}");
                assert!(error.to_string().contains("lost"), "{error}");
            };
            // A task that awaits the run goes on, and collecting says why.
            awaited(poll_fn(|context| rows.poll_collect(context)));
            while rows.in_flight() > 0 {
                lost(rows.collect().unwrap_err());
            }
            lost(kept.drain().unwrap_err());
            lost(rows.submit(&&gather_inputs(0)[..], &[]).unwrap_err());
            let handle = kept.handles().unwrap().read(0).unwrap_err();
            assert_eq!(handle.kind(), ErrorKind::Binding, "the run that made its value failed: {handle}");
            assert!(rows.output(0).is_err() && kept.output(1).is_err(), "outputs of runs that failed");
        }
    }
}

/// What tells a process of this program that it is to be refused memory.
const REFUSED: &str = "RLX_TEST_REFUSED";

/// A process of its own is given a limit of addresses once its device is open: where the driver is software, that refuses it memory. OpenGL's does not say so.
#[cfg(target_os = "linux")]
#[test]
fn memory_that_the_driver_refuses_is_out_of_memory_and_the_device_goes_on() {
    let Some(backend) = crate::common::main_device().filter(|backend| backend.is_software().unwrap()) else {
        println!("@skip 1 a software device for memory that is refused");
        return;
    };
    if std::env::var_os(REFUSED).is_some() {
        return is_refused(&backend);
    }
    let own = std::env::current_exe().expect("a test knows its program");
    let name = "faults::memory_that_the_driver_refuses_is_out_of_memory_and_the_device_goes_on";
    let ran = std::process::Command::new(own)
        .args(["--exact", name, "--nocapture"])
        .env(REFUSED, "1")
        .output()
        .expect("a process of this program");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("1 passed") && said.contains("was refused"), "{said}");
}

/// The most bytes of addresses that this process has from now on.
#[cfg(target_os = "linux")]
fn limit_addresses(most: &str) {
    let process = std::process::id().to_string();
    let limited = std::process::Command::new("prlimit")
        .args(["--pid", &process, &format!("--as={most}:")])
        .status()
        .expect("util-linux is part of every system");
    assert!(limited.success(), "the limit is the process's own to set");
}

#[cfg(target_os = "linux")]
fn is_refused(backend: &rlx_wgpu::WgpuBackend) {
    let graph = text::parse(
        r#"graph "outer" {
          %0 = Input {name="x"} : [s2, 1] f32
          %1 = Input {name="y"} : [1, 1024] f32
          %2 = Binary.Add(%0, %1) : [s2, 1024] f32
          return %2
        }"#,
    )
    .expect("the test's graph");
    let mut exec = compile(&graph, backend).unwrap();
    let most = backend.target(&CompileOptions::default()).unwrap().pool_spec().max_buffer_bytes;
    let ones = |count: usize| 1f32.to_le_bytes().repeat(count);
    let mut run = |rows: usize| -> rlx_ir::Result<()> {
        exec.run(&&[ones(rows), ones(1024)][..], &[rows as i64])?;
        assert!(exec.output(0).unwrap() == 2f32.to_le_bytes().repeat(1024 * rows));
        Ok(())
    };
    run(2).unwrap();
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux says so");
    let pages: u64 = pages.split(' ').next().and_then(|n| n.parse().ok()).expect("a number first");
    // Room for the driver itself.
    let (room, rows) = (48 << 20, most.min(1 << 30) / 4096);
    assert!(4096 * rows > 2 * room, "the device binds {most} bytes");
    limit_addresses(&(4096 * pages + room as u64).to_string());
    let error = run(rows).unwrap_err();
    assert_eq!(
        (error.kind(), error.device()),
        (ErrorKind::OutOfMemory, Some(crate::common::MAIN.name())),
        "{error}"
    );
    assert!(error.message().contains(" bytes for "), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("smaller")), "{error}");
    // What the driver said is behind it.
    let mut sources = std::iter::successors(std::error::Error::source(&error), |e| e.source());
    assert!(sources.any(|e| e.is::<wgpu::Error>()), "{error:?}");
    for rows in [3, 2] {
        run(rows).unwrap();
    }
    limit_addresses("unlimited");
    run(40).unwrap();
    println!("was refused: {error}");
}
