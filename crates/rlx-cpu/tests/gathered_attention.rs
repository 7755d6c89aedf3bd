//! Attention that finds its keys and values in a table, as pages of caches or as the caches that a search goes on with: the bits of
//! a gather and an attention apart, and its errors.

mod common;

use common::{against_oracle, compile, oracle, run};
use rlx_cpu::CpuBackend;
use rlx_cpu::isa::Isa;
use rlx_ir::op::{MaskKind, Unseen};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Graph, LirModule, NodeId, Op, OpKind, Shape, Value, sym};
use rlx_opt::{CompileOptions, FusionOptions};

/// Rows of a page, key heads, elements of a row.
const PAGE: usize = 4;
const HEADS: usize = 2;
const SIZE: usize = 20;

/// Pages of a table.
const PAGES: usize = 7;

/// How keys and values come from their tables.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// `[pages, rows, heads, size]`, transposed to `[batch, heads, rows, size]`.
    Pages,
    /// `[pages, rows, heads·size]`, whose heads the attention finds.
    Joined,
    /// `[caches, heads, rows, size]`, one cache for each item of the batch.
    Caches,
}

struct Case {
    form: Form,
    dtype: DType,
    /// Items of the batch, pages of each, queries of each.
    batch: usize,
    pages: usize,
    queries: usize,
    /// Whether values come from a table, too.
    both: bool,
    masked: bool,
}

impl Case {
    fn table(&self) -> Vec<usize> {
        match self.form {
            Form::Pages => vec![PAGES, PAGE, HEADS, SIZE],
            Form::Joined => vec![PAGES, PAGE, HEADS * SIZE],
            Form::Caches => vec![PAGES, HEADS, self.rows(), SIZE],
        }
    }

    fn rows(&self) -> usize {
        self.pages * PAGE
    }

    /// The graph, whose batch is open, and the node of each gather.
    fn graph(&self) -> Graph {
        let (batch, fixed) = (Dim::Dynamic(sym::BATCH), Dim::Static);
        let mut graph = Graph::new("gathered");
        let (heads, size) = (fixed(HEADS), fixed(SIZE));
        let q = [batch, fixed(2 * HEADS), fixed(self.queries), size];
        let joined = [batch, fixed(self.queries), fixed(2 * HEADS * SIZE)];
        let q = if self.form == Form::Joined { &joined[..] } else { &q };
        let q = graph.input("q", Shape::from_dims(q, self.dtype));
        let indices = if self.form == Form::Caches { vec![batch] } else { vec![batch, fixed(self.pages)] };
        let indices = graph.input("indices", Shape::from_dims(&indices, DType::I64));
        let gathered = |graph: &mut Graph, name: &str| -> NodeId {
            let table = graph.input(name, Shape::new(&self.table(), self.dtype));
            let rows = graph.try_add(Op::Gather { axis: 0 }, &[table, indices]).unwrap();
            let to = match self.form {
                Form::Pages => vec![batch, fixed(self.rows()), heads, size],
                Form::Joined => vec![batch, fixed(self.rows()), fixed(HEADS * SIZE)],
                Form::Caches => return rows,
            };
            let rows = graph.try_add(Op::Reshape { to }, &[rows]).unwrap();
            match self.form {
                Form::Pages => graph.try_add(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[rows]).unwrap(),
                _ => rows,
            }
        };
        let k = gathered(&mut graph, "keys");
        let v = if self.both {
            gathered(&mut graph, "values")
        } else {
            let dims = graph.shape(k).dims().to_vec();
            graph.input("values", Shape::from_dims(&dims, self.dtype))
        };
        let mut inputs = vec![q, k, v];
        if self.masked {
            let dims = [batch, fixed(1), fixed(1), fixed(self.rows())];
            inputs.push(graph.input("mask", Shape::from_dims(&dims, DType::Bool)));
        }
        let mask = if self.masked { MaskKind::Custom } else { MaskKind::Causal };
        let attention = Op::Attention {
            num_heads: 2 * HEADS,
            head_dim: SIZE,
            mask,
            window: None,
            scale: None,
            unseen: Unseen::Zero,
        };
        let y = graph.try_add(attention, &inputs).unwrap();
        graph.set_outputs(vec![y]);
        graph
    }

    fn dims(&self) -> DimBinding {
        DimBinding::from_pairs(&[(sym::BATCH, self.batch)])
    }

    fn bindings(&self, graph: &Graph) -> Bindings {
        let (mut g, mut bindings) = (Gen::new(3), Bindings::default());
        for node in graph.inputs() {
            let Op::Input { name } = &node.op else { continue };
            let dims = node.shape.bind(&self.dims()).static_dims().unwrap();
            let value = match node.shape.dtype() {
                // Negative ones count from the end.
                DType::I64 => {
                    let count = dims.iter().product();
                    let some = (0..count).map(|i| [3, -1, 0, 3, -7, 5][i % 6]).collect();
                    Value::int(DType::I64, &dims, some)
                }
                dtype => g.value(dtype, &dims, -2.0..2.0),
            };
            bindings.set_input(name.clone(), value);
        }
        bindings
    }
}

/// How many gathers are computed inside of regions, and how many are steps.
fn gathers(lir: &LirModule) -> [usize; 2] {
    let gathers = |graph: &Graph| graph.nodes().iter().filter(|n| n.op.kind() == OpKind::Gather).count();
    let mut found = [0; 2];
    for step in &lir.steps {
        match &lir.graph.node(step.node).op {
            Op::Region { body } => found[0] += gathers(&body.graph),
            op => found[1] += usize::from(op.kind() == OpKind::Gather),
        }
    }
    found
}

fn check(case: &Case) {
    let graph = case.graph();
    let bindings = case.bindings(&graph);
    let expected = oracle(&graph, &bindings);
    let all = 1 + usize::from(case.both);
    for isa in Isa::available() {
        let mut bits = Vec::new();
        for (producers, threads) in [(true, 1), (true, 2), (false, 1)] {
            let fusion = FusionOptions { producers, ..FusionOptions::default() };
            let backend = CpuBackend::new().with_isa(isa).with_threads(threads).unwrap();
            let mut exec = compile(&graph, &backend, &CompileOptions::default().fusion_opts(fusion)).unwrap();
            assert_eq!(gathers(exec.lir()), if producers { [all, 0] } else { [0, all] }, "{}", exec.lir());
            let got = run(&mut *exec, &bindings, &case.dims()).unwrap();
            if let Some(difference) = against_oracle(&expected, &got) {
                panic!("{} on {threads} threads, producers: {producers}: {difference}", isa.kind());
            }
            bits.push(got);
        }
        assert!(bits.iter().all(|b| *b == bits[0]), "{}: other bits", isa.kind());
    }
}

#[test]
fn pages_and_caches_are_read_where_they_are() {
    for form in [Form::Pages, Form::Joined, Form::Caches] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            // One query and few read keys in place, many pack them.
            for queries in [1, 3, 9] {
                for (both, masked) in [(true, false), (false, true)] {
                    check(&Case { form, dtype, batch: 3, pages: 5, queries, both, masked });
                }
            }
        }
    }
}

#[test]
fn nothing_to_gather_is_no_error() {
    for (batch, pages) in [(0, 5), (2, 0)] {
        check(&Case {
            form: Form::Pages,
            dtype: DType::F32,
            batch,
            pages,
            queries: 2,
            both: true,
            masked: true,
        });
    }
}

#[test]
fn a_page_that_is_not_there_is_an_error() {
    let case = Case {
        form: Form::Pages,
        dtype: DType::F32,
        batch: 1,
        pages: 2,
        queries: 1,
        both: true,
        masked: false,
    };
    let graph = case.graph();
    let mut exec = compile(&graph, &CpuBackend::new(), &CompileOptions::default()).unwrap();
    let mut bindings = case.bindings(&graph);
    for (index, number) in [(PAGES as i64, 1), (-(PAGES as i64) - 1, 0)] {
        let mut indices = vec![0; 2];
        indices[number] = i128::from(index);
        bindings.set_input("indices", Value::int(DType::I64, &[1, 2], indices));
        let error = run(&mut *exec, &bindings, &case.dims()).unwrap_err().to_string();
        let want = format!(
            "index {index} (number {number} of the indices) is out of range: axis 0 has {PAGES} elements"
        );
        assert!(error.contains(&want), "{error}");
    }
}

/// Rows that are divided, a gather that something else reads, and one along another axis stay steps.
#[test]
fn other_gathers_stay_steps() {
    let case = Case {
        form: Form::Caches,
        dtype: DType::F32,
        batch: 2,
        pages: 1,
        queries: 1,
        both: false,
        masked: false,
    };
    let steps = |graph: &Graph| {
        let exec = compile(graph, &CpuBackend::new(), &CompileOptions::default()).unwrap();
        gathers(exec.lir())
    };
    let mut graph = case.graph();
    assert_eq!(steps(&graph), [1, 0]);
    let gather = graph.nodes().iter().find(|n| n.op.kind() == OpKind::Gather).unwrap().id;
    let outputs = [graph.outputs.clone(), vec![gather]].concat();
    graph.set_outputs(outputs);
    assert_eq!(steps(&graph), [0, 1]);

    // Two rows of a page are one key; the rows of a key head, picked along the second axis.
    let width = HEADS * SIZE;
    assert_eq!(steps(&keys_of(&[PAGES, 8, width / 2], 0, &[2, 1])), [0, 1]);
    assert_eq!(steps(&keys_of(&[2, 9, width], 1, &[4])), [0, 1]);
    assert_eq!(steps(&keys_of(&[PAGES, 4, width], 0, &[2, 1])), [1, 0]);
}

/// Attention of two items to four keys each, which are gathered from a table and reshaped.
fn keys_of(table: &[usize], axis: usize, indices: &[usize]) -> Graph {
    let mut graph = Graph::new("keys");
    let width = HEADS * SIZE;
    let q = graph.input("q", Shape::new(&[2, 1, 2 * width], DType::F32));
    let table = graph.input("table", Shape::new(table, DType::F32));
    let indices = graph.input("indices", Shape::new(indices, DType::I64));
    let keys = graph.try_add(Op::Gather { axis }, &[table, indices]).unwrap();
    let to = [2, 4, width].map(Dim::Static).to_vec();
    let keys = graph.try_add(Op::Reshape { to }, &[keys]).unwrap();
    let values = graph.input("values", Shape::new(&[2, 4, width], DType::F32));
    let attention = Op::Attention {
        num_heads: 2 * HEADS,
        head_dim: SIZE,
        mask: MaskKind::None,
        window: None,
        scale: None,
        unseen: Unseen::Zero,
    };
    let y = graph.try_add(attention, &[q, keys, values]).unwrap();
    graph.set_outputs(vec![y]);
    graph
}

/// Keys that are one number repeated take no memory; the scratch for their scores would take more than there is.
#[test]
fn scores_of_more_rows_than_memory_are_an_error() {
    let mut graph = Graph::new("rows");
    let one = Shape::new(&[1, 1, 1, 1], DType::F16);
    let (q, x) = (graph.input("q", one.clone()), graph.input("x", one));
    let to = [1, 1, 1 << 40, 1].map(Dim::Static).to_vec();
    let keys = graph.try_add(Op::Expand { to }, &[x]).unwrap();
    let attention = Op::Attention {
        num_heads: 1,
        head_dim: 1,
        mask: MaskKind::None,
        window: None,
        scale: None,
        unseen: Unseen::Zero,
    };
    let y = graph.try_add(attention, &[q, keys, keys]).unwrap();
    graph.set_outputs(vec![y]);
    let mut bindings = Bindings::default();
    for name in ["q", "x"] {
        bindings.set_input(name, Gen::new(1).value(DType::F16, &[1, 1, 1, 1], -1.0..1.0));
    }
    let made = compile(&graph, &CpuBackend::new(), &CompileOptions::default());
    let error = made.and_then(|mut exec| run(&mut *exec, &bindings, &DimBinding::new())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}
