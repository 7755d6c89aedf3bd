//! A step around a convolution with its channels last, in parts: which operands are multiplied, how the window slides, and what becomes of a sum.
//!
//! As [`super::MatMulParts`] is for matmuls, this is for who multiplies by other means than [`super::conv_pool`]. It is a matmul for each group: its rows are
//! places of the result (of all images), its columns filters, and it sums over taps and, innermost, channels.
//!
//! ```text
//! x [2, 9, 9, 16] ∗ w [24, 16, 3, 3], strides [2, 2]   rows 2·4·4, columns 24, depth 3·3·16
//! ```

use rlx_ir::lir::{Operand, View};
use rlx_ir::op::DataFormat;
use rlx_ir::{DType, Extent, Node, NodeId, Op};

use super::cx::Cx;
use super::joined::{Joined, joined};
use super::matmul_operand::{MatMulRead, inputs_of};
use super::matmul_parts::{Epilogue, of_floats};
use super::{Arg, Scheduled, StepDesc, UniformArg, anchor_of, elementwise, reject};
use crate::ir::{BufferDecl, Ty, Value};

/// How a window slides along a dimension, and how large that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvAxis {
    /// Places of the result.
    pub places: Extent,
    /// Elements of the input.
    pub size: Extent,
    /// Elements of the window.
    pub taps: Extent,
    /// Elements of the input from place to place.
    pub stride: usize,
    /// Elements of the input from tap to tap.
    pub dilation: usize,
    /// How far before the input the first window begins.
    pub before: usize,
}

/// A step around one convolution with its channels last, with one result.
#[derive(Debug)]
pub struct ConvParts<'s> {
    step: &'s StepDesc,
    anchor: &'s Node,
    /// The image and the weights.
    pub operands: [Arg; 2],
    /// Images.
    pub images: Extent,
    /// Groups of channels and filters.
    pub groups: usize,
    /// Input channels of a group.
    pub channels: Extent,
    /// Filters of a group.
    pub filters: Extent,
    /// The dimensions over which the window slides.
    pub axes: Vec<ConvAxis>,
    /// The type of the operands' elements, to which a sum with its bias is rounded before anything else is done with it.
    pub dtype: DType,
}

/// The convolution that a step is around; none where it is around something else, or around nothing.
pub fn convolution(step: &StepDesc) -> Option<&Node> {
    anchor_of(step).ok().flatten().filter(|anchor| matches!(anchor.op, Op::Conv { .. }))
}

/// The one stride of the rows that all dimensions but the last make, if there is one: elements from row to row.
pub fn stride_of_rows(view: &View) -> Option<Extent> {
    let rows = view.dims.len().checked_sub(1)?;
    let mut inside: Option<(Extent, Extent)> = None;
    for (&dim, &stride) in view.dims.iter().zip(&*view.strides).take(rows).rev() {
        match inside {
            _ if dim == Extent::Const(1) => {}
            None => inside = Some((stride, dim * stride)),
            Some((_, next)) if next != stride => return None,
            Some((first, next)) => inside = Some((first, dim * next)),
        }
    }
    Some(inside.map_or(Extent::Const(0), |(stride, _)| stride))
}

impl<'s> ConvParts<'s> {
    /// The parts of a step.
    ///
    /// # Errors
    /// A step around something else, channels that are first, several results, operands that are computed in the step, a result that has dimensions
    /// of its own or is written over anything but what its epilogue reads at the same place.
    pub fn of(step: &'s StepDesc) -> Scheduled<Self> {
        let Some(anchor) = convolution(step) else { return reject("no convolution") };
        let Op::Conv { strides, pads, dilations, groups, format } = &anchor.op else {
            return reject("no convolution");
        };
        if *format != DataFormat::ChannelsLast {
            return reject("a convolution with its channels first");
        }
        let (graph, &[image, weights, ..]) = (&step.graph, &anchor.inputs[..]) else {
            return reject("a convolution without two operands");
        };
        let ([_], [result]) = (&step.outputs[..], &graph.outputs[..]) else {
            return reject("several results");
        };
        if graph.shape(*result).dims() != anchor.shape.dims() {
            return reject("an epilogue of other dimensions");
        }
        let number = |id| graph.inputs().position(|input| input.id == id).map(Arg::Input);
        let (Some(left), Some(right)) = (number(image), number(weights)) else {
            return reject("an operand that is computed as it is read");
        };
        let operands = [left, right];
        if step.is_written_over_others(&operands) {
            return reject("a result that is written over other elements than its epilogue reads");
        }
        let dtype = anchor.shape.dtype();
        if [image, weights].iter().any(|&id| graph.shape(id).dtype() != dtype) {
            return reject("operands of another type than the result's");
        }
        let extents = |id: NodeId| graph.shape(id).dims().iter().map(|d| d.extent()).collect::<Vec<_>>();
        let (x, w, y) = (extents(image), extents(weights), extents(anchor.id));
        let axes = (0..strides.len()).map(|i| ConvAxis {
            places: y[1 + i],
            size: x[1 + i],
            taps: w[2 + i],
            stride: strides[i],
            dilation: dilations[i],
            before: pads[i],
        });
        Ok(ConvParts {
            step,
            anchor,
            operands,
            images: x[0],
            groups: *groups,
            channels: w[1],
            filters: w[0].floor_div(*groups as i64),
            axes: axes.collect(),
            dtype,
        })
    }

    /// Where an operand is.
    pub fn operand(&self, arg: Arg) -> &'s Operand {
        match arg {
            Arg::Input(i) => &self.step.inputs[i],
            Arg::Output(i) => &self.step.outputs[i],
        }
    }

    /// Rows of the matmul: places of the result.
    pub fn rows(&self) -> Extent {
        self.axes.iter().fold(self.images, |n, axis| n * axis.places)
    }

    /// Whether what the epilogue reads at a place, and where it is stored, is found by the number of the row alone: everything is spread over all places
    /// with one stride, or is the same at all of them.
    fn is_of_rows(&self) -> bool {
        let (dims, graph) = (self.anchor.shape.dims(), &self.step.graph);
        let rows = dims.len() - 1;
        let others = || graph.nodes().iter().filter(|node| node.id != self.anchor.id);
        let multiplied =
            |id| self.anchor.inputs.contains(&id) && !others().any(|node| node.inputs.contains(&id));
        let spread = |node: &Node| {
            let own = node.shape.dims();
            let own = &own[..own.len().saturating_sub(1)];
            *own == dims[..rows] || own.iter().all(|d| d.extent() == Extent::Const(1))
        };
        let one_stride =
            |operand: &Operand| operand.view.dims.is_empty() || stride_of_rows(&operand.view).is_some();
        others().filter(|node| !multiplied(node.id)).all(spread) && { graph.inputs().zip(&self.step.inputs) }
            .all(|(node, operand)| multiplied(node.id) || one_stride(operand))
    }

    /// The index of the place with this number along the dimensions before the channels.
    fn place(&self, cx: &mut Cx<'_>, row: Value) -> Vec<Value> {
        let dims: Vec<Extent> =
            std::iter::once(self.images).chain(self.axes.iter().map(|axis| axis.places)).collect();
        let one = Extent::Const(1);
        if self.is_of_rows() {
            // All of it is the index along the innermost dimension: outer ones are as far apart as their number times that one's stride.
            let zero = cx.b.int(0);
            let mut index = vec![zero; dims.len()];
            if let Some(innermost) = dims.iter().rposition(|&dim| dim != one) {
                index[innermost] = row;
            }
            return index;
        }
        let sizes = cx.sizes("place", &dims);
        let index = cx.unflatten(row, &sizes);
        // As the body has it: the index along a dimension of one element is 0.
        index.into_iter().zip(&dims).map(|(i, &dim)| if dim == one { cx.b.int(0) } else { i }).collect()
    }

    /// The step behind sums over so many parts of the depth, of all places and, innermost, the filters of all groups.
    ///
    /// # Errors
    /// A body that is not in order.
    pub fn joined(&self, parts: Extent) -> Scheduled<Joined> {
        joined(self.step, self.anchor, self.anchor.inputs.get(2).copied(), parts)
    }

    /// What the epilogue and the bias read, as far as whoever stores tiles can read all of it in tiles of the result: what has one stride along all places, or is the
    /// same at all of them. Nothing where that is not so, or the epilogue has ops that are not elementwise.
    pub fn beside(&self) -> Vec<MatMulRead> {
        let (graph, anchor) = (&self.step.graph, self.anchor);
        let (mut inputs, roots) = (Vec::new(), [Some(graph.outputs[0]), anchor.inputs.get(2).copied()]);
        for root in roots.into_iter().flatten() {
            if inputs_of(graph, root, Some(anchor.id), &mut inputs).is_err() {
                return Vec::new();
            }
        }
        of_floats(inputs.into_iter().map(|input| self.read_beside(input)).collect())
    }

    /// How an input is read beside sums.
    fn read_beside(&self, input: NodeId) -> Scheduled<MatMulRead> {
        let Some(number) = self.step.graph.inputs().position(|node| node.id == input) else {
            return reject("something that is no input");
        };
        let (of, one) = (&self.step.inputs[number], Extent::Const(1));
        let own: Vec<Extent> = self.anchor.shape.dims().iter().map(|d| d.extent()).collect();
        let (rows, last) = (own.len() - 1, of.view.dims.len().checked_sub(1));
        let column = last.map_or(Extent::Const(0), |last| match of.view.dims[last] {
            dim if dim == own[rows] => of.view.strides[last],
            _ => Extent::Const(0),
        });
        let (lead, all) = (&of.view.dims[..last.unwrap_or(0)], &own[..rows]);
        let row = match stride_of_rows(&of.view) {
            _ if lead.iter().all(|&dim| dim == one) => Extent::Const(0),
            Some(stride) if lead == all => stride,
            _ => return reject("rows that have no one stride"),
        };
        let batch = (self.groups > 1).then_some(column * self.filters).into_iter().collect();
        let (arg, offset) = (Arg::Input(number), of.view.offset);
        Ok(MatMulRead { arg, dtype: of.dtype, offset, batch, strides: [row, column], block: None })
    }

    /// What becomes of a sum, over buffers and uniforms of which the first are given; none where it is stored as it is. The number of the batch is that of
    /// the group, the row that of the place, the column that of the filter in its group. It is given what is read `beside` the sum: all of [`Self::beside`],
    /// or nothing, and reads the rest itself.
    ///
    /// # Errors
    /// A result that is not of f32, f16 or bf16, or an op that has no element-by-element form.
    pub fn epilogue(
        &self,
        buffers: &[(BufferDecl, Arg)],
        uniforms: &[(String, UniformArg)],
        beside: &[MatMulRead],
    ) -> Scheduled<Option<Epilogue>> {
        let (result, bias) = (self.step.graph.outputs[0], self.anchor.inputs.get(2));
        if result == self.anchor.id && bias.is_none() {
            return Ok(None);
        }
        let mut cx = Cx::over(&format!("epilogue.{}", self.step.name), self.step, buffers, uniforms);
        if Ty::of(cx.dtype(result)) != Ty::F32 {
            return reject(format!("a result of {}", cx.dtype(result)));
        }
        let [sum, group, row, column] = [Ty::F32, Ty::I32, Ty::I32, Ty::I32].map(|ty| cx.b.declare_var(ty));
        if !beside.is_empty() {
            let mut made = cx.given_beside(beside);
            let mut value = cx.b.get(sum);
            if let Some(&bias) = bias {
                let bias = cx.pointwise(bias, &mut made)?;
                value = cx.b.add(value, bias);
            }
            made.insert(self.anchor.id, elementwise::narrowed(&mut cx.b, value, self.dtype));
            let value = cx.pointwise(result, &mut made)?;
            cx.b.set(sum, value);
            return Ok(Some(Epilogue::of(cx)));
        }
        let row = cx.b.get(row);
        let mut index = self.place(&mut cx, row);
        let mut channel = cx.b.get(column);
        if self.groups > 1 {
            let (filters, group) = (cx.size("filters", self.filters), cx.b.get(group));
            let first = cx.b.mul(group, filters);
            channel = cx.b.add(first, channel);
        }
        index.push(channel);
        let mut value = cx.b.get(sum);
        if let Some(&bias) = bias {
            let bias = cx.element(bias, &[channel])?;
            value = cx.b.add(value, bias);
        }
        let value = elementwise::narrowed(&mut cx.b, value, self.dtype);
        cx.bind(self.anchor.id, &index, value);
        let value = cx.element(result, &index)?;
        cx.b.set(sum, value);
        Ok(Some(Epilogue::of(cx)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_one_stride_where_dimensions_follow_each_other() {
        let rows = |dims: &[i64], strides: &[i64]| {
            let of = |list: &[i64]| list.iter().map(|&n| Extent::Const(n)).collect();
            let view = View { offset: Extent::Const(3), dims: of(dims), strides: of(strides) };
            stride_of_rows(&view).and_then(|stride| stride.as_const())
        };
        assert_eq!(rows(&[2, 3, 4, 8], &[96, 32, 8, 1]), Some(8));
        // Some of the channels of more.
        assert_eq!(rows(&[2, 3, 4, 8], &[240, 80, 20, 1]), Some(20));
        // Rows of a larger image.
        assert_eq!(rows(&[2, 3, 4, 8], &[160, 40, 8, 1]), None);
        assert_eq!(rows(&[2, 3, 1, 8], &[96, 32, 7, 1]), Some(32));
        assert_eq!(rows(&[1, 1, 1, 8], &[5, 5, 5, 1]), Some(0));
    }
}
