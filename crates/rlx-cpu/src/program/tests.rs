//! What a panic in a kernel leaves behind.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use rlx_backend::ExecutableGraph;
use rlx_backend::tuning::Tuning;
use rlx_ir::{DType, ErrorKind, Graph, Result, Shape};
use rlx_opt::{CompileOptions, CompilePipeline, PoolSpec};

use super::{CpuExecutable, Program, Threads, program as compile};
use crate::isa::Isa;
use crate::kernels::{BindCx, Needs, RunCx, StepKernel};
use crate::pool::Pool;
use crate::target::CpuTarget;

/// What a faulty kernel does, and what became of it.
#[derive(Default)]
struct Fault {
    /// The parts that panic, by bit.
    parts: AtomicUsize,
    /// How many parts are at work.
    working: AtomicUsize,
    /// Whether a part ran on another thread than the caller's.
    helped: AtomicBool,
}

/// A kernel on all threads, some of whose parts panic while others still work.
#[derive(Clone)]
struct Faulty {
    fault: Arc<Fault>,
    /// What it does when no part panics.
    inner: Arc<dyn Fn() -> Box<dyn StepKernel> + Send + Sync>,
    bound: Option<Arc<Box<dyn StepKernel>>>,
}

impl StepKernel for Faulty {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let mut kernel = (self.inner)();
        let needs = kernel.bind(cx)?;
        self.bound = Some(Arc::new(kernel));
        Ok(Needs { nanos: 1e9, ..needs })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let (threads, caller, fault) = (cx.pool.threads(), thread::current().id(), &self.fault);
        cx.pool.parallel_for_indexed(threads, &|part, _| {
            fault.working.fetch_add(1, Ordering::SeqCst);
            if thread::current().id() != caller {
                fault.helped.store(true, Ordering::SeqCst);
            }
            let panics = fault.parts.load(Ordering::SeqCst) >> part & 1 == 1;
            if !panics {
                thread::sleep(Duration::from_micros(300));
            }
            fault.working.fetch_sub(1, Ordering::SeqCst);
            assert!(!panics, "part {part}");
        });
        let kernel = self.bound.as_ref().expect("it is bound");
        // SAFETY: the caller's promise.
        unsafe { kernel.run(cx) }
    }
}

fn compiled(pool: &Arc<Pool>) -> Program {
    let shape = Shape::new(&[64, 64], DType::F32);
    let mut g = Graph::new("faulty");
    let x = g.input("x", shape.clone());
    let y = g.matmul(x, x, shape.clone());
    let y = g.softmax(y, -1, shape);
    g.set_outputs(vec![y]);
    let target = Arc::new(CpuTarget::new(Isa::detect()));
    let lir = CompilePipeline::new(target, CompileOptions::default()).compile(&g).expect("it compiles").lir;
    let threads = Threads::Own(Arc::clone(pool));
    compile(Arc::new(lir), Isa::detect(), threads, PoolSpec::default(), &Tuning::default()).expect("kernels")
}

fn program(pool: &Arc<Pool>) -> Arc<Program> {
    Arc::new(compiled(pool))
}

/// An executable whose last step's kernel is faulty.
fn faulty(pool: &Arc<Pool>, fault: &Arc<Fault>) -> CpuExecutable {
    let (sound, mut program) = (program(pool), compiled(pool));
    let last = program.steps.len() - 1;
    let inner = move || sound.steps[last].kernel.prototype.boxed();
    program.steps[last].kernel.prototype =
        Box::new(Faulty { fault: Arc::clone(fault), inner: Arc::new(inner), bound: None });
    CpuExecutable::new(Arc::new(program)).expect("memory")
}

fn input() -> Vec<Vec<u8>> {
    vec![(0..64 * 64).flat_map(|i| ((i % 31) as f32 * 0.1).to_le_bytes()).collect()]
}

fn run(exec: &mut CpuExecutable) -> Result<Vec<u8>> {
    exec.run(&&input()[..], &[])?;
    exec.output(0).map(<[u8]>::to_vec)
}

#[test]
fn a_kernel_that_panics_on_any_thread_fails_its_run_alone() {
    let pool = Arc::new(Pool::new(3).expect("a pool"));
    let program = program(&pool);
    let want = run(&mut CpuExecutable::new(Arc::clone(&program)).expect("memory")).expect("a run");
    let fault = Arc::new(Fault::default());
    let mut exec = faulty(&pool, &fault);
    for round in 0..20 {
        for parts in 1..8 {
            fault.parts.store(parts, Ordering::SeqCst);
            let e = run(&mut exec).expect_err("a part panics");
            assert_eq!(fault.working.load(Ordering::SeqCst), 0, "the caller waits for all parts");
            assert_eq!((e.kind(), e.device()), (ErrorKind::Panic, Some("cpu")), "{e}");
            assert!(e.node().is_some_and(|node| node.contains("Softmax")), "{e}");
            assert!(e.message().contains(&format!("part {}", parts.trailing_zeros())), "{e}");
            assert!(exec.output(0).is_err(), "a run that failed has no outputs");
        }
        fault.parts.store(0, Ordering::SeqCst);
        assert!(run(&mut exec).expect("a run") == want, "round {round}");
    }
    assert!(fault.helped.load(Ordering::SeqCst), "no helper took part");
}

#[test]
fn executables_that_share_the_threads_are_not_disturbed() {
    let pool = Arc::new(Pool::new(2).expect("a pool"));
    let program = program(&pool);
    let mut sound = CpuExecutable::new(Arc::clone(&program)).expect("memory");
    let want = run(&mut sound).expect("a run");
    let (fault, start) = (Arc::new(Fault::default()), Barrier::new(2));
    fault.parts.store(3, Ordering::SeqCst);
    let mut broken = faulty(&pool, &fault);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            for _ in 0..100 {
                assert_eq!(run(&mut broken).expect_err("a part panics").kind(), ErrorKind::Panic);
            }
        });
        start.wait();
        for _ in 0..300 {
            assert!(run(&mut sound).expect("a run") == want);
        }
    });
    assert_eq!(run(&mut sound).expect("a run"), want);
}
