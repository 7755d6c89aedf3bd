//! Random rows in groups: the step of one grouped matmul, the lists that its kernel makes, and what its program makes of them.

use rlx_ir::lir::View;
use rlx_ir::oracle::evaluate_op;
use rlx_ir::testing::{Gen, difference, tolerance};
use rlx_ir::{DType, Extent, Graph, Op, Shape, Value};
use rlx_kernel::UniformArg;
use rlx_kernel::interp::{Binding, Counters, Pools, dispatch};
use rlx_kernel::schedule::{Arg, StepDesc};
use rlx_tile::schedule::{Bound, StepLaunch, Tiling, step, step_tilings};
use rlx_tile::{Arch, interp};

use super::{CANARY, decode, encode};

/// Elements before and behind the result that nothing may change.
const GUARD: usize = 8;

/// Rows, the matrices of groups, and the group that each row has chosen.
pub struct GroupedCase {
    pub arch: Arch,
    pub desc: StepDesc,
    /// Left rows, matrices, choices.
    pub values: [Value; 3],
    /// Matrices are stored as columns × depth.
    transposed: bool,
}

/// How rows choose.
#[derive(Debug, Clone, Copy)]
enum Choice {
    Any,
    /// All of them one group.
    One,
    /// Few of many groups.
    Few,
}

impl GroupedCase {
    /// Up to 70 rows in up to 9 groups, of any depth and any columns.
    pub fn random(g: &mut Gen, arch: Arch) -> GroupedCase {
        let dtype = if arch == Arch::Sm75 || g.chance(0.5) { DType::F16 } else { DType::BF16 };
        let groups = if g.chance(0.1) { 300 } else { g.size(1..=9) };
        let of = |g: &mut Gen, most: usize| {
            if g.chance(0.5) { g.size(1..=most) } else { 8 * g.size(1..=most / 8) }
        };
        let (k, n) = if groups > 9 { (g.size(1..=9), g.size(1..=9)) } else { (of(g, 70), of(g, 80)) };
        let lead = match g.int(0..=3) {
            0 => vec![g.size(1..=8)],
            1 => vec![g.size(1..=70)],
            2 => vec![g.size(1..=17), g.size(1..=4)],
            _ => vec![g.size(1..=3), g.size(1..=5), g.size(1..=4)],
        };
        // Left rows are repeated along some dimensions, as those of tokens with several experts are.
        let repeats = g.chance(0.4);
        let own = |(i, &d): (usize, &usize)| if repeats && (i + 1 == lead.len() || d == 3) { 1 } else { d };
        let mut left: Vec<usize> = lead.iter().enumerate().map(own).collect();
        left.push(k);
        let transposed = g.chance(0.3);
        let choice = g.pick(&[Choice::Any, Choice::Any, Choice::One, Choice::Few]);
        GroupedCase::of(g, (arch, dtype), (lead, left), [groups, k, n], (choice, transposed))
    }

    fn of(
        g: &mut Gen,
        (arch, dtype): (Arch, DType),
        (lead, left): (Vec<usize>, Vec<usize>),
        matrices: [usize; 3],
        (choice, transposed): (Choice, bool),
    ) -> GroupedCase {
        let [groups, ..] = matrices;
        let of_choice = if g.chance(0.5) { DType::I32 } else { DType::I64 };
        let (only, few) = (g.int(0..=groups as i64 - 1), groups.min(3) as i64);
        let chosen = (0..lead.iter().product::<usize>()).map(|_| {
            let group = match choice {
                Choice::Any => g.int(0..=groups as i64 - 1),
                Choice::One => only,
                Choice::Few => groups as i64 - 1 - g.int(0..=few - 1),
            };
            // A number below 0 counts from the end.
            i128::from(if g.chance(0.2) { group - groups as i64 } else { group })
        });
        let chosen = Value::int(of_choice, &lead, chosen.collect());
        let values = [g.value(dtype, &left, -1.0..1.0), g.value(dtype, &matrices, -1.0..1.0), chosen];
        GroupedCase::with(arch, values, transposed)
    }

    /// With these values.
    pub fn with(arch: Arch, values: [Value; 3], transposed: bool) -> GroupedCase {
        let mut graph = Graph::new("grouped");
        let ids: Vec<_> = values
            .iter()
            .enumerate()
            .map(|(i, v)| graph.input(format!("x{i}"), Shape::new(&v.dims, v.dtype)))
            .collect();
        let id = graph.try_add(Op::GroupedMatMul, &ids).unwrap();
        let mut desc = StepDesc::of_node(graph.node(id), &graph).unwrap();
        if transposed {
            let (dims, k) = (desc.inputs[1].view.dims.clone(), Extent::Const(values[1].dims[1] as i64));
            let strides = vec![k * dims[2], Extent::Const(1), k].into();
            desc.inputs[1].view = View { offset: Extent::Const(0), dims, strides }.into();
        }
        let result = (*desc.outputs[0].view).clone();
        desc.outputs[0].view = View { offset: Extent::Const(GUARD as i64), ..result }.into();
        GroupedCase { arch, desc, values, transposed }
    }

    /// The tilings of its step.
    pub fn tilings(&self) -> Vec<Tiling> {
        step_tilings(self.arch, &self.desc, None).unwrap()
    }

    pub fn launch(&self, tiling: Option<&Tiling>) -> StepLaunch {
        step(self.arch, &self.desc, tiling).unwrap_or_else(|e| panic!("{}: {}", self.describe(), e.0))
    }

    pub fn describe(&self) -> String {
        let [x, w, chosen] = &self.values;
        format!("{} {} {:?} by {:?} of {:?}", self.arch.name(), x.dtype, x.dims, w.dims, chosen)
    }

    /// Left rows, matrices, result, lists, which nothing is known of, and choices.
    fn before(&self, launch: &StepLaunch) -> Pools {
        let [x, w, chosen] = &self.values;
        let mut matrices = w.encode();
        if self.transposed {
            let &[groups, k, n] = &w.dims[..] else { unreachable!("matrices have three dimensions") };
            let at = |g: usize, i: usize, j: usize| 2 * ((g * k + i) * n + j);
            let (stored, whole) = (matrices.clone(), 0..groups);
            let columns = whole.flat_map(|g| (0..n).flat_map(move |j| (0..k).map(move |i| (g, i, j))));
            matrices = columns.flat_map(|(g, i, j)| stored[at(g, i, j)..][..2].to_vec()).collect();
        }
        let results = self.results() + 2 * GUARD;
        let result = (0..results).flat_map(|_| encode(x.dtype, CANARY)).collect();
        let scratch = launch.lists.as_ref().expect("lists").scratch.as_const().unwrap();
        Pools(vec![x.encode(), matrices, result, vec![0xFF; 4 * scratch as usize], chosen.encode()])
    }

    fn results(&self) -> usize {
        self.values[2].len() * self.values[1].dims[2]
    }

    /// The values of uniforms, of known sizes.
    fn numbers(uniforms: &[UniformArg]) -> Vec<i32> {
        let number = |u: &UniformArg| match *u {
            UniformArg::Extent(e) | UniformArg::Base { offset: e, .. } => e.as_const().unwrap() as i32,
        };
        uniforms.iter().map(number).collect()
    }

    pub fn uniforms(&self, launch: &StepLaunch) -> Vec<i32> {
        GroupedCase::numbers(&launch.uniforms)
    }

    /// What the program finds, with its lists made, and where its buffers are in that.
    pub fn memory(&self, launch: &StepLaunch) -> rlx_ir::Result<(Pools, Vec<Binding>)> {
        let mut pools = self.before(launch);
        let listed = launch.lists.as_ref().expect("lists");
        let at = |bound: &Bound| match *bound {
            Bound::Operand(Arg::Input(2)) => 4,
            Bound::Operand(Arg::Input(i)) => i,
            Bound::Operand(Arg::Output(_)) => 2,
            Bound::Scratch => 3,
        };
        let bound = |pools: &Pools, bindings: &[Bound]| -> Vec<Binding> {
            let of = |bound: &Bound| Binding { pool: at(bound), offset: 0, len: pools.0[at(bound)].len() };
            bindings.iter().map(of).collect()
        };
        for of in launch.checks.iter().chain([&listed.launch]) {
            let (bindings, uniforms) = (bound(&pools, &of.bindings), GroupedCase::numbers(&of.uniforms));
            rlx_kernel::verify::verify(&of.code).unwrap();
            let groups = of.groups.as_const().unwrap();
            if let Some(fault) = dispatch(&of.code, groups, &uniforms, &bindings, &mut pools)? {
                return Err(rlx_ir::Error::new(rlx_ir::ErrorKind::Value, format!("{}", fault.value)));
            }
        }
        let bindings = bound(&pools, &launch.bindings);
        Ok((pools, bindings))
    }

    /// What the program leaves.
    pub fn interpret(&self, launch: &StepLaunch) -> rlx_ir::Result<(Pools, Counters)> {
        let (mut pools, bindings) = self.memory(launch)?;
        let uniforms = self.uniforms(launch);
        let workgroups = interp::workgroups(&launch.program, &uniforms);
        assert_eq!(launch.groups.as_const(), Some(workgroups as i64), "{}", self.describe());
        let counters = interp::run(&launch.program, &uniforms, &mut pools, &bindings)?;
        Ok((pools, counters))
    }

    /// The result's rows, as bits.
    pub fn rows(&self, pools: &Pools) -> Vec<Vec<u8>> {
        let n = self.values[1].dims[2];
        let all = &pools.0[2][2 * GUARD..2 * (GUARD + self.results())];
        all.chunks(2 * n).map(<[u8]>::to_vec).collect()
    }

    /// Holds what a program left to the oracle.
    pub fn check(&self, pools: &Pools) {
        let [x, w, chosen] = &self.values;
        let want = evaluate_op(&Op::GroupedMatMul, &[x, w, chosen], &[]).unwrap().remove(0);
        let elements: Vec<f64> = pools.0[2].chunks(2).map(|bytes| decode(x.dtype, bytes)).collect();
        let (before, rest) = elements.split_at(GUARD);
        let (got, behind) = rest.split_at(self.results());
        let got = Value::float(x.dtype, &want.dims, got.to_vec());
        if let Some(what) = difference(&want, &got, tolerance(x.dtype)) {
            panic!("{}: {what}", self.describe());
        }
        let guard = decode(x.dtype, &encode(x.dtype, CANARY));
        assert!(before.iter().chain(behind).all(|&x| x == guard), "{}", self.describe());
    }
}
