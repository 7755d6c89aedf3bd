//! Donated inputs: an output takes the memory of an input's handle, and kernels write the row that changes.

use rlx_backend::{ExecutableGraph, InputSource};
use rlx_ir::ErrorKind;
use rlx_ir::text;
use rlx_wgpu::Lowered;

use crate::common::{DEVICES, MAIN, compile, device};

/// Rows of the cache, of 64 numbers each.
const ROWS: usize = 1 << 12;
const ROW: usize = 64;
/// What every run reads back: the small output, and whether it failed, each at a multiple of 64 bytes.
const SMALL: u64 = 512;

/// Replaces a row of the cache, and reads one of the new cache.
const APPEND: &str = r#"graph "append" {
  donate "cache" to 0
  %0 = Input {name="cache"} : [4096, 64] f32
  %1 = Input {name="row"} : [1, 64] f32
  %2 = Input {name="at"} : [] i32
  %3 = Input {name="pick"} : [1] i32
  %4 = UpdateSlice(%0, %1, %2) {axis=0} : [4096, 64] f32
  %5 = Gather(%4, %3) {axis=0} : [1, 64] f32
  return %4, %5
}"#;

/// The handle supplies the cache.
struct Given([Vec<u8>; 3]);

impl Given {
    fn new(value: f32, at: i32, pick: i32) -> Given {
        Given([value.to_le_bytes().repeat(ROW), at.to_le_bytes().to_vec(), pick.to_le_bytes().to_vec()])
    }
}

impl InputSource for Given {
    fn bytes(&self, i: usize) -> &[u8] {
        if i == 0 { &[] } else { &self.0[i - 1] }
    }

    fn handle(&self, i: usize) -> Option<usize> {
        (i == 0).then_some(4 * ROWS * ROW)
    }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn start(exec: &mut dyn ExecutableGraph) {
    let handles = exec.handles_mut().unwrap();
    handles.set(0, &vec![0; 4 * ROWS * ROW]).unwrap();
    handles.feed(0, Some(0)).unwrap();
}

fn cache(exec: &dyn ExecutableGraph) -> Vec<f32> {
    numbers(&exec.handles().unwrap().read(0).unwrap())
}

#[test]
fn a_row_of_a_cache_is_replaced_where_it_is() {
    for of in DEVICES {
        // Limits of its own, so that no one else's bytes are counted.
        let limits = Lowered { max_memory_bytes: Some(1 << 29), ..Lowered::default() };
        let Some(backend) = device(of).map(|backend| backend.with_limits(limits)) else { continue };
        let graph = text::parse(APPEND).unwrap();
        let mut exec = compile(&graph, &backend).unwrap();
        assert_eq!(exec.lir().donated(0), Some(0), "{of}: {}", exec.lir());
        // The row that is read is all that the arena holds.
        assert!(exec.lir().plan().unwrap().arena_bytes < 1024, "{of}");
        start(&mut *exec);
        exec.run(&Given::new(1.0, 0, 0), &[]).unwrap();
        let (before, mut want) = (backend.transfers().unwrap(), vec![0.0; ROWS * ROW]);
        want[..ROW].fill(1.0);
        for (n, at) in [7, 4095, -2, 7].into_iter().enumerate() {
            let value = n as f32 + 2.0;
            exec.run(&Given::new(value, at, at), &[]).unwrap();
            assert_eq!(numbers(exec.output(1).unwrap()), [value; ROW], "{of}");
            let row = at.rem_euclid(ROWS as i32) as usize * ROW;
            want[row..row + ROW].fill(value);
        }
        let after = backend.transfers().unwrap();
        let (up, down) = (after.to_device - before.to_device, after.to_host - before.to_host);
        assert!(up <= 4 * SMALL && down <= 4 * SMALL, "{of}: {up} bytes up, {down} down");
        assert_eq!(cache(&*exec), want, "{of}");
        assert_eq!(numbers(exec.output(0).unwrap()), want, "{of}");
        // A clone has a value of its own from its first run on.
        let mut clone = exec.try_clone().unwrap();
        clone.run(&Given::new(90.0, 1, 1), &[]).unwrap();
        assert_eq!(cache(&*exec), want, "{of}");
        assert_eq!(cache(&*clone)[ROW..2 * ROW], [90.0; ROW], "{of}");
    }
}

#[test]
fn a_run_that_fails_while_it_updates_says_so_when_the_value_is_used_again() {
    let Some(backend) = device(MAIN) else { return };
    let mut exec = compile(&text::parse(APPEND).unwrap(), &backend).unwrap();
    start(&mut *exec);
    assert_eq!(exec.run(&Given::new(1.0, 0, 9999), &[]).unwrap_err().kind(), ErrorKind::Value);
    let e = exec.run(&Given::new(1.0, 0, 0), &[]).unwrap_err();
    assert!(e.to_string().contains("\"cache\" failed, so its value is lost"), "{e}");
    assert!(exec.handles().unwrap().read(0).is_err());
    start(&mut *exec);
    exec.run(&Given::new(3.0, 0, 0), &[]).unwrap();
    assert_eq!(numbers(exec.output(1).unwrap()), [3.0; ROW]);
}
