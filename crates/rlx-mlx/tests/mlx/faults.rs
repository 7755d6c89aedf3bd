//! Faults: of values, of memory, of MLX, of the shim. Each is a typed error, and what it leaves works.

use std::path::PathBuf;

use rlx_backend::Backend;
use rlx_backend::testing::faults::reports_an_index_out_of_range;
use rlx_backend::testing::{self, compile};
use rlx_ir::{ErrorKind, text};
use rlx_mlx::{MlxBackend, SHIM};

use crate::mlx;

#[test]
fn an_index_out_of_range_names_the_node_and_the_next_run_is_right() {
    let Some(backend) = mlx() else { return };
    reports_an_index_out_of_range(&backend);
}

#[test]
fn an_index_out_of_range_within_a_loop_is_reported() {
    let Some(backend) = mlx() else { return };
    let graph = text::parse(
        r#"graph "walk" {
          %0 = Input {name="start"} : [] i64
          %1 = Constant {data=dense([] i64, 3)} : [] i64
          %2 = Constant {data=dense([] bool, 1)} : [] bool
          %3 = Input {name="table"} : [3] i64
          %4 = Loop(%1, %2, %0, %3) {body=graph "step" {
            %0 = Input {name="iteration"} : [] i64
            %1 = Input {name="condition"} : [] bool
            %2 = Input {name="at"} : [] i64
            %3 = Input {name="table"} : [3] i64
            %4 = Gather(%3, %2) {axis=0} : [] i64
            return %1, %4
          }, trips=3, count=none, carried=1, scanned=0} : [] i64
          return %4
        }"#,
    )
    .expect("the test's graph");
    let mut exec = compile(&graph, &backend).unwrap();
    let bytes = |list: &[i64]| list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    exec.run(&&[bytes(&[0]), bytes(&[1, 2, 0])][..], &[]).unwrap();
    assert_eq!(exec.output(0).unwrap(), bytes(&[0]));
    let error = exec.run(&&[bytes(&[0]), bytes(&[1, 7, 0])][..], &[]).unwrap_err();
    assert!(error.kind() == ErrorKind::Value && error.to_string().contains("index 7"), "{error}");
}

#[test]
fn memory_that_cannot_be_had_is_out_of_memory_and_smaller_work_goes_on() {
    let Some(backend) = mlx() else { return };
    let graph = |rows: usize| {
        let text = format!(
            r#"graph "outer" {{
              %0 = Input {{name="x"}} : [{rows}, 1] f32
              %1 = Input {{name="y"}} : [1, {rows}] f32
              %2 = Binary.Add(%0, %1) : [{rows}, {rows}] f32
              return %2
            }}"#
        );
        text::parse(&text).expect("the test's graph")
    };
    let run = |rows: usize| {
        let mut exec = compile(&graph(rows), &backend)?;
        exec.run(&&[vec![0; 4 * rows], vec![0; 4 * rows]][..], &[])
    };
    // Sixteen terabytes.
    let error = run(1 << 21).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    run(64).unwrap();
}

#[test]
fn wrong_sizes_are_rejected() {
    let Some(backend) = mlx() else { return };
    testing::rejects_inputs_of_another_size(&backend);
    testing::rejects_parameters_of_another_size(&backend);
}

#[test]
fn damaged_modules_are_rejected_or_run() {
    let Some(backend) = mlx() else { return };
    let found = testing::damaged_modules(&backend, 0..8, 6);
    println!("{} ran, {:?} rejected", found.ran, found.rejected);
    assert!(found.ran > 0 && !found.rejected.is_empty());
}

/// A backend whose shim is the file `name` of the tests' own folder, made of this C.
fn with_shim_of(name: &str, source: Option<&str>) -> Option<MlxBackend> {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("mlx-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for tests");
    let shim = folder.join(SHIM);
    match source {
        None => std::fs::write(&shim, b"no library").expect("a file"),
        Some(source) => {
            std::fs::write(folder.join("shim.c"), source).expect("a file");
            let mut cc = std::process::Command::new("cc");
            cc.args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(folder.join("shim.c"));
            if !cc.status().is_ok_and(|status| status.success()) {
                println!("@skip 1 no C compiler");
                return None;
            }
        }
    }
    Some(MlxBackend::new().with_library_folders(vec![folder]))
}

#[test]
fn a_missing_shim_is_named_with_how_to_get_it() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-shim");
    let error = MlxBackend::new().with_library_folders(vec![folder]).probe().unwrap_err();
    assert_eq!((error.kind(), error.device()), (ErrorKind::DeviceUnavailable, Some("MLX")));
    assert!(error.message().contains(SHIM) && !error.message().contains('\n'), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("pip install mlx")), "{error}");
}

#[test]
fn a_shim_that_does_not_fit_says_why() {
    let other = "unsigned rlx_mlx_abi(void) { return 7; }";
    let few = "unsigned rlx_mlx_abi(void) { return 1; }\nlong long rlx_mlx_operation(const char* n) { return -1; }\nunsigned rlx_mlx_open(void* i, void* e) { return 0; }";
    for (name, source, says) in [
        ("damaged", None, "file too short"),
        ("other", Some(other), "has interface 7"),
        ("few", Some(few), "has no operation \"abs\""),
        ("empty", Some("int x;"), "has no function rlx_mlx_abi"),
    ] {
        let Some(backend) = with_shim_of(name, source) else { return };
        let error = backend.probe().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceUnavailable, "{error}");
        assert!(error.message().contains(says), "{name}: {error}");
        assert!(backend.target(&Default::default()).is_ok(), "graphs are checked without MLX");
    }
}
