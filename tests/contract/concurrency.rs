//! What the contract says of threads and clones: the same bits whichever thread count or clone, parameters shared and
//! copied on write, clones that run at the same time.

use rlx_ir::op::Activation;
use rlx_ir::{DType, Graph, GraphExt, Shape};
use rlx_runtime::{CompiledGraph, Device, Session};

/// Large enough that every step is worth several threads.
const ROWS: usize = 96;
const WIDTH: usize = 192;

/// `softmax(gelu(x · w) · w)`.
fn model() -> Graph {
    let shape = |dims: &[usize]| Shape::new(dims, DType::F32);
    let mut g = Graph::new("model");
    let x = g.input("x", shape(&[ROWS, WIDTH]));
    let w = g.param("w", shape(&[WIDTH, WIDTH]));
    let product = g.mm(x, w);
    let bent = g.activation(Activation::Gelu, product, shape(&[ROWS, WIDTH]));
    let again = g.mm(bent, w);
    let y = g.softmax(again, -1, shape(&[ROWS, WIDTH]));
    g.set_outputs(vec![y]);
    g
}

/// Numbers in −0.5..0.5 that differ from seed to seed.
fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let at = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503)) >> 8) % 1000;
    (0..count as u32).map(|i| at(i) as f32 / 1000.0 - 0.5).collect()
}

fn compiled(session: &Session) -> CompiledGraph {
    let mut c = session.compile(model());
    c.set_param("w", &numbers(1, WIDTH * WIDTH));
    c
}

fn bits(c: &mut CompiledGraph, seed: u32) -> Vec<u32> {
    let x = numbers(seed, ROWS * WIDTH);
    c.run(&[("x", &x)]).remove(0).into_iter().map(f32::to_bits).collect()
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let want = bits(&mut compiled(&Session::new(Device::Cpu).try_with_threads(1).unwrap()), 7);
    for threads in [2, 3, 5] {
        let session = Session::new(Device::Cpu).try_with_threads(threads).unwrap();
        assert_eq!(bits(&mut compiled(&session), 7), want, "{threads} threads");
    }
}

#[test]
fn clones_run_at_the_same_time_and_give_the_same_bits() {
    let mut first = compiled(&Session::new(Device::Cpu));
    let want: Vec<Vec<u32>> = (0..4).map(|seed| bits(&mut first, seed)).collect();
    std::thread::scope(|scope| {
        for (seed, want) in want.iter().enumerate() {
            let mut clone = first.clone();
            scope.spawn(move || {
                for _ in 0..10 {
                    assert_eq!(&bits(&mut clone, seed as u32), want, "input {seed}");
                }
            });
        }
    });
}

#[test]
fn a_parameter_set_on_one_clone_is_not_seen_by_those_that_run() {
    let mut first = compiled(&Session::new(Device::Cpu));
    let want = bits(&mut first, 3);
    let mut other = first.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seed in 2..6 {
                other.set_param("w", &numbers(seed, WIDTH * WIDTH));
                assert_ne!(bits(&mut other, 3), want);
            }
        });
        for _ in 0..20 {
            assert_eq!(bits(&mut first, 3), want);
        }
    });
}
