//! Some rows of a step around a matmul, as a step of its own: for whoever computes some rows otherwise than the others.
//!
//! ```text
//! relu(x [300, 64] · w [64, 40] + bias [40])      rows 256 to 300:  relu(x[256..300] [44, 64] · w [64, 40] + bias [40])
//! ```

use std::ops::Range;
use std::sync::Arc;

use rlx_ir::lir::{Operand, View};
use rlx_ir::{Dim, Extent, Graph, Node, Op, Shape};

use super::StepDesc;

/// What a node of a step has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    /// Nothing that the result needs.
    Nothing,
    /// The rows of the result, as its last dimension but one.
    Rows,
    /// What each row needs.
    Whole,
}

impl StepDesc {
    /// The step that computes some rows of this one's result, where they are.
    ///
    /// `None` where rows are not the one dimension of the result besides its columns, sizes are open, or anything but the left operand of a matmul and what is
    /// done element by element has rows.
    pub fn of_rows(&self, rows: Range<i64>) -> Option<StepDesc> {
        let ([output], &[result]) = (&self.outputs[..], &self.graph.outputs[..]) else { return None };
        let has = self.with_rows(result)?;
        let graph = self.sliced(&has, rows.end - rows.start)?;
        let inputs = self.graph.inputs().zip(&self.inputs).map(|(node, operand)| {
            if has[node.id.index()] == Has::Rows { of_rows(operand, &rows) } else { Some(operand.clone()) }
        });
        let inputs = inputs.collect::<Option<Vec<Operand>>>()?;
        Some(StepDesc {
            name: self.name.clone(),
            graph,
            inputs,
            outputs: vec![of_rows(output, &rows)?],
            raw: self.raw,
        })
    }

    /// Which nodes have rows.
    fn with_rows(&self, result: rlx_ir::NodeId) -> Option<Vec<Has>> {
        let count = rows_of(self.graph.shape(result))?;
        let mut has = vec![Has::Nothing; self.graph.nodes().len()];
        has[result.index()] = Has::Rows;
        for node in self.graph.nodes().iter().rev() {
            let own = has[node.id.index()];
            for (i, input) in node.inputs.iter().enumerate() {
                let needs = match own {
                    Has::Nothing => continue,
                    Has::Whole => Has::Whole,
                    Has::Rows => needed(node, i, self.graph.shape(*input), count)?,
                };
                let known = &mut has[input.index()];
                if *known != Has::Nothing && *known != needs {
                    return None;
                }
                *known = needs;
            }
        }
        Some(has)
    }

    /// The body with so many rows.
    fn sliced(&self, has: &[Has], count: i64) -> Option<Graph> {
        let mut graph = Graph::new(self.graph.name.clone());
        let mut ids = Vec::with_capacity(has.len());
        for node in self.graph.nodes() {
            let inputs: Vec<_> = node.inputs.iter().map(|id| ids[id.index()]).collect();
            ids.push(match &node.op {
                Op::Input { name } if has[node.id.index()] == Has::Rows => {
                    graph.input(name.clone(), with_rows(&node.shape, count))
                }
                Op::Input { .. } | Op::Constant { .. } => {
                    graph.add_node(node.op.clone(), inputs, node.shape.clone())
                }
                op => graph.try_add(op.clone(), &inputs).ok()?,
            });
        }
        graph.set_outputs(self.graph.outputs.iter().map(|id| ids[id.index()]).collect());
        Some(graph)
    }
}

/// How many rows there are in a matrix of known sizes, whose other dimensions are 1.
fn rows_of(shape: &Shape) -> Option<i64> {
    let (lead, [rows, cols]) = shape.dims().split_last_chunk::<2>()?;
    let is_matrix = cols.as_static().is_some() && lead.iter().all(|&d| d == Dim::Static(1));
    rows.as_static().filter(|_| is_matrix).map(|rows| rows as i64)
}

/// What of an input the rows of a node need.
fn needed(node: &Node, input: usize, shape: &Shape, count: i64) -> Option<Has> {
    let in_rows = || rows_of(shape).filter(|&rows| rows == count).map(|_| Has::Rows);
    match &node.op {
        Op::MatMul | Op::MatMulBlocks if input == 0 => in_rows(),
        Op::MatMulBlocks => Some(Has::Whole),
        // A batch of matrices is another matrix for other rows.
        Op::MatMul => (shape.rank() == 2).then_some(Has::Whole),
        op if op.is_elementwise() => match shape.dims() {
            [] | [_] => Some(Has::Whole),
            [.., rows, _] if *rows == Dim::Static(1) => Some(Has::Whole),
            _ => in_rows(),
        },
        _ => None,
    }
}

fn with_rows(shape: &Shape, count: i64) -> Shape {
    let (mut dims, rows) = (shape.dims().to_vec(), shape.rank().saturating_sub(2));
    dims[rows] = Dim::Static(count.unsigned_abs() as usize);
    shape.with_dims(dims)
}

/// Where rows of an operand are.
fn of_rows(operand: &Operand, rows: &Range<i64>) -> Option<Operand> {
    let View { offset, dims, strides } = &*operand.view;
    let at = dims.len().checked_sub(2)?;
    if dims[at].as_const()? < rows.end {
        return None;
    }
    let mut dims = Arc::clone(dims);
    Arc::make_mut(&mut dims)[at] = Extent::Const(rows.end - rows.start);
    let view = View { offset: *offset + strides[at] * rows.start, dims, strides: Arc::clone(strides) };
    Some(Operand { view: view.into(), ..operand.clone() })
}

#[cfg(test)]
mod tests {
    use rlx_ir::text;

    use super::*;

    /// The step of a graph as a region.
    fn step(body: &str) -> StepDesc {
        let graph =
            text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap_or_else(|e| panic!("{e}\n{body}"));
        let mut buffers = 0;
        let mut dense = |shape: &Shape| {
            buffers += 1;
            Operand {
                buffer: rlx_ir::lir::BufferId(buffers),
                view: View::dense(shape.dims()).into(),
                dtype: shape.dtype(),
            }
        };
        let inputs = graph.inputs().map(|node| dense(&node.shape)).collect();
        let outputs = graph.outputs.iter().map(|&id| dense(graph.shape(id))).collect();
        StepDesc { name: "g".into(), graph, inputs, outputs, raw: false }
    }

    const LAYER: &str = "%0 = Input {name=\"x\"} : [1, 300, 64] f16 %1 = Input {name=\"w\"} : [64, 40] f16 \
        %2 = Input {name=\"b\"} : [40] f16 %3 = Input {name=\"r\"} : [300, 40] f16 \
        %4 = MatMul(%0, %1) : [1, 300, 40] f16 %5 = Binary.Add(%4, %2) : [1, 300, 40] f16 \
        %6 = Binary.Add(%5, %3) : [1, 300, 40] f16 return %6";

    #[test]
    fn rows_of_a_layer_are_those_of_what_has_rows() {
        let whole = step(LAYER);
        let some = whole.of_rows(256..300).unwrap();
        let shapes: Vec<String> = some.graph.inputs().map(|node| node.shape.to_string()).collect();
        assert_eq!(shapes, ["[1, 44, 64] f16", "[64, 40] f16", "[40] f16", "[44, 40] f16"]);
        let at = |operand: &Operand| (operand.view.offset, operand.view.dims.iter().rev().nth(1).copied());
        assert_eq!(at(&some.inputs[0]), (Extent::Const(256 * 64), Some(Extent::Const(44))));
        assert_eq!((&some.inputs[1], &some.inputs[2]), (&whole.inputs[1], &whole.inputs[2]));
        for operand in [&some.inputs[3], &some.outputs[0]] {
            assert_eq!(at(operand), (Extent::Const(256 * 40), Some(Extent::Const(44))));
        }
        let shape = some.graph.shape(some.graph.outputs[0]);
        assert_eq!(shape.to_string(), "[1, 44, 40] f16");
    }

    #[test]
    fn what_has_other_rows_is_not_sliced() {
        let none = |from: &str, to: &str| {
            let body = LAYER.replace(from, to);
            assert_ne!(body, LAYER);
            assert!(step(&body).of_rows(0..2).is_none(), "{body}");
        };
        // Matrices of a batch, open sizes, a sum over rows.
        none("1, 300", "2, 300");
        none("1, 300", "1, rows");
        let summed = "Reduce(%5) {op=Sum, axes=[1], keep_dim=true} : [1, 1, 40] f16 %7 = Binary.Add(%5, %6)";
        none(
            "Binary.Add(%5, %3) : [1, 300, 40] f16 return %6",
            &format!("{summed} : [1, 300, 40] f16 return %7"),
        );
        // One weight for each matrix, and a row that all have.
        assert!(step(&LAYER.replace("[64, 40]", "[1, 64, 40]")).of_rows(0..2).is_none());
        assert!(step(&LAYER.replace("r\"} : [300, 40]", "r\"} : [1, 40]")).of_rows(0..2).is_some());
    }
}
