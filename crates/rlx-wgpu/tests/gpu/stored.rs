//! Kernels that another executable left: taken instead of made, checked as a stranger's, and what the driver made of
//! kernels cached on disk.

use std::path::Path;
use std::sync::Arc;

use rlx_backend::{Backend, CodePart, CompileCache, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::op::Activation;
use rlx_ir::testing::random_bindings;
use rlx_ir::{DType, DimBinding, ErrorKind, Extent, Graph, LirModule, Shape, text};
use rlx_kernel::build::Builder;
use rlx_kernel::ir::{Access, Inst, Ty};
use rlx_kernel::{Arg, KernelTarget, Launch, Launches, UniformArg};
use rlx_opt::CompileOptions;
use rlx_wgpu::{Lowered, WgpuBackend};

use crate::common::{MAIN, compile, device, devices, run, set_params};

/// A matmul with workgroup memory, rows, an index that may fail, and open dimensions.
fn mixed() -> Graph {
    text::parse(
        r#"graph "mixed" {
  %0 = Input {name="x"} : [batch, 24] f32
  %1 = Param {name="w"} : [24, 40] f32
  %2 = MatMul(%0, %1) : [batch, 40] f32
  %3 = Softmax(%2) {axis=-1} : [batch, 40] f32
  %4 = Constant {data=dense([2] i64, 3, 7)} : [2] i64
  %5 = Gather(%3, %4) {axis=1} : [batch, 2] f32
  return %5, %2
}
"#,
    )
    .unwrap()
}

/// `f` of four elements.
fn elementwise(f: Activation) -> Graph {
    let shape = Shape::new(&[4], DType::F32);
    let mut graph = Graph::new("elementwise");
    let x = graph.input("x", shape.clone());
    let y = graph.activation(f, x, shape);
    graph.set_outputs(vec![y]);
    graph
}

fn by(
    backend: &WgpuBackend,
    lir: &Arc<LirModule>,
    code: Vec<CodePart>,
) -> rlx_ir::Result<Box<dyn ExecutableGraph>> {
    let kept = CompileCache { code, ..CompileCache::default() };
    backend.compile_cached(Arc::clone(lir), &CompileOptions::default(), &kept)
}

fn floats(values: [f32; 4]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A device of its own, whose kernels no other test compiles.
fn alone(backend: &WgpuBackend, number: u64) -> WgpuBackend {
    let limits = Lowered { max_memory_bytes: Some((1 << 30) + number), ..Lowered::default() };
    backend.clone().with_limits(limits)
}

fn stored_kernels_give_the_same_bits(backend: &WgpuBackend) {
    let backend = &alone(backend, 1);
    let graph = mixed();
    let mut own = compile(&graph, backend).unwrap();
    let code = own.code().unwrap();
    assert_eq!(compile(&graph, backend).unwrap().code().unwrap(), code, "the same module, the same bytes");
    let pipelines = backend.kernel_count().unwrap();
    let mut sealed = by(backend, own.lir(), code.clone()).unwrap();
    assert_eq!(backend.kernel_count().unwrap(), pipelines, "what this user's RLX left runs as its own");
    let mut here = by(backend, own.lir(), unsealed(code.clone())).unwrap();
    let guarded = backend.kernel_count().unwrap();
    assert!(guarded > pipelines, "kernels of files have pipelines of their own, with checks");
    by(backend, own.lir(), unsealed(code.clone())).unwrap();
    assert_eq!(backend.kernel_count().unwrap(), guarded, "the same kernels need no new pipelines");
    // A device opened again, which has none of them.
    let lowered = Lowered { max_memory_bytes: Some(1 << 30), ..Lowered::default() };
    let fresh = backend.clone().with_limits(lowered);
    let mut there = by(&fresh, own.lir(), unsealed(code.clone())).unwrap();
    assert_eq!(there.code().unwrap(), code);
    for batch in [1, 5] {
        let bindings = random_bindings(&graph, &DimBinding::batch_seq(batch, 1), 3);
        let want = answer(&mut *own, &bindings);
        assert_eq!(answer(&mut *sealed, &bindings), want);
        assert_eq!(answer(&mut *here, &bindings), want);
        assert_eq!(answer(&mut *there, &bindings), want);
    }
}

/// The same as a stranger's.
fn unsealed(mut code: Vec<CodePart>) -> Vec<CodePart> {
    let parts = code.len();
    code.retain(|part| part.name != "seal");
    assert_eq!(code.len() + 1, parts, "what is left is sealed");
    code
}

#[test]
fn a_seal_is_of_these_kernels_for_this_module() {
    for backend in devices().map(|backend| alone(&backend, 2)) {
        let abs = compile(&elementwise(Activation::Abs), &backend).unwrap();
        let neg = compile(&elementwise(Activation::Neg), &backend).unwrap();
        let (of_abs, of_neg) = (abs.code().unwrap(), neg.code().unwrap());
        let seal_of = |code: &[CodePart]| code.iter().find(|part| part.name == "seal").unwrap().clone();
        let own = backend.kernel_count().unwrap();
        by(&backend, abs.lir(), of_abs.clone()).unwrap();
        assert_eq!(backend.kernel_count().unwrap(), own);
        // Another module's kernels, whole with their seal; these with that one's seal; and with a damaged one.
        let mut other = of_abs[..1].to_vec();
        other.push(seal_of(&of_neg));
        let mut damaged = of_abs[..1].to_vec();
        let CodePart { name, mut bytes } = seal_of(&of_abs);
        bytes[3] ^= 1;
        damaged.push(CodePart { name, bytes });
        let before = backend.kernel_count().unwrap();
        by(&backend, abs.lir(), of_neg).unwrap();
        let swapped = backend.kernel_count().unwrap();
        assert!(swapped > before, "guarded");
        by(&backend, abs.lir(), other).unwrap();
        let guarded = backend.kernel_count().unwrap();
        assert!(guarded > swapped, "guarded");
        by(&backend, abs.lir(), damaged).unwrap();
        assert_eq!(backend.kernel_count().unwrap(), guarded, "guarded, as before");
    }
}

fn answer(exec: &mut dyn ExecutableGraph, bindings: &rlx_ir::oracle::Bindings) -> Vec<Vec<u8>> {
    set_params(exec, bindings).unwrap();
    run(exec, bindings).unwrap()
}

#[test]
fn stored_kernels_give_the_same_bits_on_the_main_device() {
    device(MAIN).iter().for_each(stored_kernels_give_the_same_bits);
}

#[test]
fn stored_kernels_give_the_same_bits_on_opengl() {
    device(Device::OpenGl).iter().for_each(stored_kernels_give_the_same_bits);
}

#[test]
fn stored_kernels_are_taken_and_not_made_again() {
    for backend in devices() {
        let abs = compile(&elementwise(Activation::Abs), &backend).unwrap();
        let neg = compile(&elementwise(Activation::Neg), &backend).unwrap();
        // Kernels that fit the module and compute something else: the answer is theirs.
        let mut swapped = by(&backend, abs.lir(), neg.code().unwrap()).unwrap();
        swapped.run(&&[floats([1.0, -2.0, 0.5, 4.0])][..], &[]).unwrap();
        assert_eq!(swapped.output(0).unwrap(), floats([-1.0, 2.0, -0.5, -4.0]));
    }
}

#[test]
fn what_does_not_fit_is_rejected_and_the_device_goes_on() {
    for backend in devices() {
        let (abs, mixed) =
            (compile(&elementwise(Activation::Abs), &backend).unwrap(), compile(&mixed(), &backend));
        let whole = abs.code().unwrap();
        let part = |bytes: Vec<u8>| vec![CodePart { bytes, ..whole[0].clone() }];
        let cut = whole[0].bytes[..whole[0].bytes.len() - 1].to_vec();
        for code in
            [part(Vec::new()), part(b"no kernels".to_vec()), part(cut), mixed.unwrap().code().unwrap()]
        {
            let Err(e) = by(&backend, abs.lir(), code) else { panic!("it was taken") };
            assert_eq!(e.kind(), ErrorKind::Malformed, "{e}");
        }
        // Parts of other names are not this device's.
        let other = vec![CodePart { name: "something else".to_owned(), bytes: vec![1, 2, 3] }];
        let mut exec = by(&backend, abs.lir(), other).unwrap();
        exec.run(&&[floats([1.0, -2.0, 0.5, 4.0])][..], &[]).unwrap();
        assert_eq!(exec.output(0).unwrap(), floats([1.0, 2.0, 0.5, 4.0]));
    }
}

#[test]
fn kernels_that_reach_out_of_their_buffers_touch_nothing_else() {
    for backend in devices() {
        let mut abs = compile(&elementwise(Activation::Abs), &backend).unwrap();
        let input = [floats([1.0, -2.0, 0.5, 4.0])];
        abs.run(&&input[..], &[]).unwrap();
        let want = abs.output(0).unwrap().to_vec();
        let (lir, target) = (Arc::clone(abs.lir()), KernelTarget::webgpu("webgpu"));
        let bytes = abs.code().unwrap().remove(0).bytes;
        for far in [4, 1 << 12, i64::from(i32::MAX), -1, i64::from(i32::MIN), i64::MAX] {
            let mut launches = Launches::from_bytes(&bytes, &lir, &target).unwrap();
            for (_, launch) in launches.run.iter_mut().flatten() {
                for uniform in &mut launch.uniforms {
                    match uniform {
                        UniformArg::Base { offset, .. } => *offset = Extent::Const(far),
                        UniformArg::Extent(e) => *e = Extent::Const(far),
                    }
                }
            }
            let code = CodePart { name: "kernels".to_owned(), bytes: launches.to_bytes().unwrap() };
            let mut wild = by(&backend, &lir, vec![code]).unwrap();
            // Whatever it computes; what other executables have stays theirs.
            let _ = wild.run(&&input[..], &[]);
            abs.run(&&input[..], &[]).unwrap();
            assert_eq!(abs.output(0).unwrap(), want, "after {far}");
        }
    }
}

/// A kernel of four elements whose indices are far out of its buffers and its workgroup memory.
fn wild(launches: &Launches, far: i32) -> Launches {
    let mut b = Builder::new("wild", 64);
    let (x, y) = (b.buffer("x", DType::F32, Access::Read), b.buffer("y", DType::F32, Access::Write));
    let s = b.shared(Ty::F32, 4);
    let (local, far) = (b.inst(Inst::LocalId), b.int(far));
    let index = b.mul(local, far);
    let value = b.load(x, index);
    b.store_shared(s, index, value);
    b.barrier();
    let value = b.load_shared(s, index);
    b.store(y, index, value);
    let kernel = Arc::new(b.finish());
    let (_, own) = &launches.run[0][0];
    let launch = Launch {
        kernel: Arc::clone(&kernel),
        bindings: vec![Arg::Input(0), Arg::Output(0)],
        uniforms: Vec::new(),
        groups: own.groups,
    };
    Launches { kernels: vec![(kernel.hash(), kernel)], init: Vec::new(), run: vec![vec![(0, launch)]] }
}

#[test]
fn workgroup_memory_is_bounded_and_cleared_for_kernels_of_files() {
    for backend in devices() {
        let mut abs = compile(&elementwise(Activation::Abs), &backend).unwrap();
        let input = [floats([1.0, -2.0, 0.5, 4.0])];
        abs.run(&&input[..], &[]).unwrap();
        let want = abs.output(0).unwrap().to_vec();
        let (lir, target) = (Arc::clone(abs.lir()), KernelTarget::webgpu("webgpu"));
        let own = Launches::from_bytes(&abs.code().unwrap()[0].bytes, &lir, &target).unwrap();
        for far in [1, 5, 1_000_003, i32::MAX, -1, i32::MIN] {
            let code = CodePart { name: "kernels".to_owned(), bytes: wild(&own, far).to_bytes().unwrap() };
            let mut exec = match by(&backend, &lir, vec![code]) {
                Ok(exec) => exec,
                // Microsoft's compiler of HLSL rejects what it sees several invocations write at once.
                Err(e) if e.device() == Some(Device::DirectX.name()) => {
                    assert_eq!(e.kind(), ErrorKind::Malformed, "{e}");
                    assert!(e.to_string().contains("\"wild\""), "{e}");
                    continue;
                }
                Err(e) => panic!("{e}"),
            };
            exec.run(&&input[..], &[]).unwrap();
            let inside = input[0].chunks(4).chain([&[0; 4][..]]);
            let inside: Vec<&[u8]> = inside.collect();
            let found = exec.output(0).unwrap();
            assert!(found.chunks(4).all(|value| inside.contains(&value)), "{found:?} is from elsewhere");
            abs.run(&&input[..], &[]).unwrap();
            assert_eq!(abs.output(0).unwrap(), want, "after {far}");
        }
    }
}

/// The files that a process of its own leaves in `folder`, where it compiles and runs.
fn in_a_process_of_its_own(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "stored::what_the_driver_made_is_kept_on_disk", "--nocapture"]);
    let output = child.env("RLX_CACHE_DIR", folder).env("RLX_TEST_CHILD", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let kept = rlx_backend::pipelines::list(&folder.join("pipelines"));
    kept.into_iter().map(|kept| kept.path).collect()
}

#[test]
fn what_the_driver_made_is_kept_on_disk() {
    let Some(backend) = device(MAIN) else { return };
    let graph = mixed();
    if std::env::var_os("RLX_TEST_CHILD").is_some() {
        let bindings = random_bindings(&graph, &DimBinding::batch_seq(2, 1), 3);
        let mut exec = compile(&graph, &backend).unwrap();
        set_params(&mut *exec, &bindings).unwrap();
        let difference = crate::common::disagreement(&graph, &bindings, &mut *exec);
        assert_eq!(difference, None);
        return;
    }
    let folder = std::env::temp_dir().join(format!("rlx-driver-cache-{}", std::process::id()));
    let mut first = in_a_process_of_its_own(&folder);
    if first.is_empty() {
        println!("@skip 1 the driver of {} gives no pipelines", backend.machine().unwrap());
        return;
    }
    first.sort();
    let bytes = |paths: &[std::path::PathBuf]| -> Vec<Vec<u8>> {
        paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
    };
    let (want, mut second) = (bytes(&first), in_a_process_of_its_own(&folder));
    second.sort();
    assert_eq!(second, first, "the same kernels, the same files");
    for (path, want) in first.iter().zip(&want) {
        let mut damaged = want.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        std::fs::write(path, &damaged).unwrap();
    }
    in_a_process_of_its_own(&folder);
    for (path, want) in first.iter().zip(&want) {
        assert_eq!(std::fs::read(path).unwrap().len(), want.len(), "a damaged file was not written again");
    }
    // A folder that others may write is left alone.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let pipelines = folder.join("pipelines");
        rlx_backend::pipelines::clear(&pipelines).unwrap();
        std::fs::set_permissions(&pipelines, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(in_a_process_of_its_own(&folder).is_empty());
    }
    std::fs::remove_dir_all(folder).unwrap();
}
