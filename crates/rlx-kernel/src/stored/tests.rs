use rlx_ir::testing::{Gen, damaged_bytes, random_graph, random_symbolic_graph};
use rlx_ir::{DType, Op};
use rlx_opt::{CompileOptions, CompilePipeline, Target};

use super::kernels::Line;
use super::*;
use crate::ir::{Access, Ty, Value, Var};
use crate::render::{WgslOptions, wgsl};
use crate::verify;

fn target() -> KernelTarget {
    KernelTarget::webgpu("webgpu")
}

/// Modules of random graphs that the device takes.
fn modules() -> impl Iterator<Item = LirModule> {
    let pipeline = CompilePipeline::new(Arc::new(target()), CompileOptions::default());
    (0..).filter_map(move |seed| {
        let graph = if seed % 2 == 0 { random_graph(seed, 10).0 } else { random_symbolic_graph(seed, 10).0 };
        let leaf = |op: &Op| {
            matches!(op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. } | Op::Result { .. })
        };
        let claimed = graph.nodes().iter().all(|n| leaf(&n.op) || target().claim(n, &graph).is_native());
        claimed.then(|| pipeline.compile(&graph).map(|compiled| compiled.lir).ok()).flatten()
    })
}

/// What devices see of launches.
fn seen(launches: &Launches) -> String {
    let steps = launches.init.iter().chain(&launches.run);
    let launch = |(at, l): &(usize, Launch)| {
        format!(
            "{} {} {:?} {:?} {:?}\n",
            launches.kernels[*at].0,
            l.kernel.hash(),
            l.bindings,
            l.uniforms,
            l.groups
        )
    };
    steps.map(|step| step.iter().map(launch).collect::<String>() + "\n").collect()
}

#[test]
fn launches_of_random_graphs_come_back() {
    let (mut open, mut failing) = (0, 0);
    for module in modules().take(60) {
        let launches = Launches::of(&module, &target(), &|_| Ok(0)).unwrap();
        let bytes = launches.to_bytes().unwrap();
        let back = Launches::from_bytes(&bytes, &module, &target()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(seen(&back), seen(&launches));
        assert_eq!(back.to_bytes().unwrap(), bytes, "the same launches make the same bytes");
        for ((_, own), (_, read)) in launches.kernels.iter().zip(&back.kernels) {
            let text = |kernel| {
                let text = wgsl(kernel, WgslOptions::default()).unwrap();
                // Names of buffers are left out.
                text.lines().map(|l| l.split(" //").next().unwrap().to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(text(own), text(read));
            failing += usize::from(own.can_fail());
        }
        open += usize::from(!module.symbols.is_empty());
    }
    assert!(open > 5 && failing > 0, "{open} open, {failing} that can fail");
}

#[test]
fn damaged_launches_are_errors_or_keep_every_rule() {
    let (mut kept, mut rejected) = (0, 0);
    let mut g = Gen::new(9);
    for module in modules().take(20) {
        let bytes = Launches::of(&module, &target(), &|_| Ok(0)).unwrap().to_bytes().unwrap();
        for at in 0..100 {
            let changed = damaged_bytes(&bytes, at, &mut g);
            match Launches::from_bytes(&changed, &module, &target()) {
                Ok(launches) => {
                    kept += 1;
                    assert_eq!(launches.run.len(), module.steps.len());
                    launches.kernels.iter().for_each(|(_, k)| verify::verify(k).unwrap());
                }
                Err(e) => {
                    rejected += 1;
                    assert_eq!(e.kind(), ErrorKind::Malformed, "{e}");
                }
            }
        }
    }
    println!("{rejected} rejected, {kept} kept");
    assert!(rejected > 1000, "{rejected} rejected, {kept} kept");
}

/// A record of a module with one product, to be changed.
fn product() -> (LirModule, CodeRecord) {
    use rlx_ir::{Graph, Shape};
    let mut graph = Graph::new("product");
    let shape = |dims: &[usize]| Shape::new(dims, DType::F32);
    let (x, w) = (graph.input("x", shape(&[64, 64])), graph.param("w", shape(&[64, 64])));
    let y = graph.matmul(x, w, shape(&[64, 64]));
    graph.set_outputs(vec![y]);
    let pipeline = CompilePipeline::new(Arc::new(target()), CompileOptions::default());
    let module = pipeline.compile(&graph).unwrap().lir;
    let bytes = Launches::of(&module, &target(), &|_| Ok(0)).unwrap().to_bytes().unwrap();
    (module, postcard::from_bytes(&bytes).unwrap())
}

#[test]
fn what_breaks_a_rule_is_rejected_by_name() {
    let rejected = |change: &dyn Fn(&mut CodeRecord), why: &str| {
        let (module, mut record) = product();
        change(&mut record);
        // Anyone who changes a kernel on purpose makes its hash right again.
        for kernel in &mut record.kernels {
            if let Ok(changed) = kernel.kernel() {
                kernel.hash = changed.hash().0;
            }
        }
        let bytes = postcard::to_allocvec(&record).unwrap();
        let e = Launches::from_bytes(&bytes, &module, &target()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Malformed);
        assert!(e.to_string().contains(why), "{e}, not {why}");
    };
    rejected(&|r| r.format += 1, "format");
    rejected(&|r| r.run.push(Vec::new()), "steps");
    rejected(&|r| r.init.push(Vec::new()), "steps");
    rejected(&|r| r.run[0][0].kernel = 9, "kernel 9 of 1");
    rejected(&|r| r.run[0][0].groups = 1 << 20, "extent");
    rejected(&|r| r.run[0][0].bindings[0] = ArgRecord::Input(7), "operand 7 of 2");
    rejected(&|r| r.run[0][0].bindings[0] = ArgRecord::Output(0), "inputs are read");
    rejected(&|r| r.run[0][0].bindings.truncate(1), "as many bindings");
    rejected(&|r| r.run[0][0].uniforms.truncate(1), "as many bindings and uniforms");
    rejected(&|r| r.extents[0] = "strange + 1".to_owned(), "symbol");
    rejected(&|r| r.extents[0] = "1 +".to_owned(), "stored kernels");
    rejected(&|r| r.kernels[0].name = "x\nfn y() {}".to_owned(), "name");
    rejected(&|r| r.kernels[0].workgroup = 1 << 20, "workgroup");
    rejected(&|r| r.kernels[0].workgroup = 0, "workgroup");
    rejected(&|r| r.kernels[0].buffers[0].0 = "f16".to_owned(), "elements");
    rejected(&|r| r.kernels[0].buffers[0].0 = "word".to_owned(), "unknown type");
    rejected(&|r| r.kernels[0].buffers[0].1 = Access::Write, "inputs are read");
    rejected(&|r| r.kernels[0].uniforms = u32::MAX, "too large");
    rejected(&|r| r.kernels[0].values[0] = Ty::Bool, "declared");
    rejected(&|r| r.kernels[0].shared[0].len = 1 << 20, "workgroup memory");
    rejected(&|r| r.kernels[0].body.push(Line::End), "nest");
    rejected(&|r| r.kernels[0].body.push(Line::Set(Var(1 << 20), Value(0))), "variable");
    let deep = |r: &mut CodeRecord| {
        let body = &mut r.kernels[0].body;
        let Some(Line::Let(first, _)) = body.first() else { panic!("a value") };
        let first = *first;
        body.extend((0..100_000).map(|_| Line::If(first)));
        body.extend((0..100_000).map(|_| Line::End));
    };
    rejected(&deep, "nest");
}
