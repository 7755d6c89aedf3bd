//! Buffers: copies into workgroup memory.

use half::{bf16, f16};
use rlx_ir::DType;
use rlx_kernel::ir::{Access, Ty};

use super::Group;
use super::shared::{self, Chunk, Step};
use crate::beside::Span;
use crate::ir::{Copy, Size, View};
use crate::layout::CHUNK;
use crate::scalar::Scalar;

/// Elements of a chunk; `None` for those beyond the view.
pub(super) type Elements = [Option<f32>; CHUNK as usize];

/// What a lane has read for a chunk: where it is in the view, its elements, and the numbers beside them.
type Read = ((i64, i64), Elements, Vec<Elements>);

/// What the lanes of a workgroup have read for a copy.
pub struct Fetched(Vec<Read>);

/// The bits of a number rounded to `dtype`.
pub(super) fn rounded(dtype: DType, x: f32) -> u32 {
    match dtype {
        DType::F32 => x.to_bits(),
        DType::F16 => u32::from(f16::from_f32(x).to_bits()),
        _ => u32::from(bf16::from_f32(x).to_bits()),
    }
}

impl Group<'_> {
    /// The element of a view, checked against its promise of alignment.
    pub(super) fn element(&self, view: View, row: i64, col: i64) -> Step<i64> {
        // Windows are read alone, and there [`Group::read_element`] knows where.
        self.read_element(view, row, col)?.ok_or_else(|| format!("g{} is read beside its images", view.0))
    }

    /// The same of a view that is read alone, or stored to; none where it reads as 0, and nothing is stored.
    pub(super) fn read_element(&self, view: View, row: i64, col: i64) -> Step<Option<i64>> {
        let v = self.p.view(view);
        let Some((image, of_axes, along)) = self.in_window(view, row, col)? else { return Ok(None) };
        // Numbers of 32 bits, multiplied and added: no sum of them leaves 128.
        let times = |s: Size, i: i64| i128::from(self.value(s)) * i128::from(i);
        let strides = v.batch.iter().zip(&self.batch.1).map(|(&s, &i)| times(s, i));
        let Some((of_page, line)) = self.in_page(view, image)? else { return Ok(None) };
        let of_row = v.heads.map_or(of_page + times(v.row_stride, line), |heads| {
            let count = i64::from(heads.count);
            times(v.row_stride, row / count) + times(heads.stride, row % count)
        });
        let at = times(v.base, 1) + strides.sum::<i128>() + of_row + of_axes + times(v.col_stride, along);
        let vector = i64::from(v.vector);
        let at =
            i64::try_from(at).map_err(|_| format!("element ({row}, {col}) of g{} is too far", view.0))?;
        let promised = (i128::from(at) - i128::from(along)) % i128::from(vector) == 0
            && self.value(v.cols) % vector == 0;
        if !promised {
            return Err(format!("element ({row}, {col}) of g{} is not aligned to {vector} elements", view.0));
        }
        Ok(Some(at))
    }

    /// The element of a buffer, if it has it.
    pub(super) fn checked(&self, buffer: usize, at: i64) -> Step<usize> {
        let index = i32::try_from(at).map_err(|_| format!("element {at} of b{buffer} is too far"))?;
        self.bindings[buffer].element(index, self.p.buffers[buffer].dtype)
    }

    /// Reads what a copy reads, a chunk by each lane.
    pub(super) fn fetch(&mut self, c: &Copy) -> Step<Fetched> {
        let tile = *self.p.tile(c.to);
        let (row, col) = (self.position(&c.row, (0, 0)), self.position(&c.col, (0, 0)));
        let mut fetched = Vec::new();
        let chunks = tile.rows * tile.chunks();
        // Lanes are numbered through the warps, and a workgroup's next chunks follow in another round.
        let lanes = self.p.arch.lanes();
        for warp in (0..chunks).step_by(lanes as usize) {
            // One of each instruction of the views, one after the other.
            let mut accesses = vec![vec![Vec::new(); CHUNK as usize]; 1 + c.with.len()];
            for chunk in warp..(warp + lanes).min(chunks) {
                let of = tile.copied(chunk);
                let at = (row + i64::from(of.0), col + i64::from(of.1));
                let read = c.reads().zip(&mut accesses).map(|(of, accesses)| {
                    // No more than a chunk at once.
                    self.read_chunk(of, at, tile.chunk(), accesses)
                });
                let mut read = read.collect::<Step<Vec<Elements>>>()?;
                fetched.push((at, read.remove(0), read));
            }
            for access in accesses.into_iter().flatten().filter(|a| !a.is_empty()) {
                self.count.buffer_access(access.into_iter());
            }
        }
        Ok(Fetched(fetched))
    }

    /// What a view has for the elements of a chunk, with the bits of memory that each instruction reads for it.
    pub(super) fn read_chunk(
        &self,
        (from, span): (View, Span),
        (row, col): (i64, i64),
        chunk: u32,
        accesses: &mut [Vec<(u64, u64)>],
    ) -> Step<Elements> {
        let view = self.p.view(from);
        let (buffer, dtype, vector) = (view.buffer.index(), self.p.view_dtype(from), view.vector.min(chunk));
        let (rows, cols) = (self.value(view.rows), self.value(view.cols));
        let (bits, mut elements) = (dtype.bits() as u64, [None; CHUNK as usize]);
        for part in (0..chunk).step_by(vector as usize) {
            let first_col = col + i64::from(part);
            if row >= rows || first_col >= cols {
                continue;
            }
            let Some(first) = self.read_element(from, row, span.col(first_col))? else { continue };
            for i in 0..vector {
                // Columns that are read together are neighbours.
                let element = self.checked(buffer, first.saturating_add(i64::from(i)))?;
                let value = self.pools.load(&self.bindings[buffer], element, dtype) as u32;
                let value = match Ty::of(dtype) {
                    Ty::F32 => f32::from_bits(value),
                    _ => value as i32 as f32,
                };
                elements[(part + i) as usize] = Some(value);
            }
            // A number that a chunk shares is read once.
            if span == Span::One || part == 0 {
                accesses[(part / vector) as usize].push((first as u64 * bits, u64::from(vector) * bits));
            }
        }
        Ok(elements)
    }

    /// Writes what was read into a stage of a tile.
    pub(super) fn put(&mut self, c: &Copy, fetched: Fetched, asynchronous: bool) -> Step {
        let tile = *self.p.tile(c.to);
        let stage = self.stage(c.to, c.stage);
        let lanes = self.p.workgroup() as usize;
        let mut written = Vec::with_capacity(fetched.0.len());
        for (number, (at, elements, beside)) in fetched.0.into_iter().enumerate() {
            let mut data: Chunk = [0; CHUNK as usize];
            for (i, x) in elements.into_iter().enumerate() {
                if let Some(x) = x {
                    let at = (at.0, at.1 + i as i64);
                    let given: Vec<f32> = beside.iter().map(|of| of[i].unwrap_or_default()).collect();
                    let x = self.mapped(c.map.as_ref(), (x, &given), at, None)?;
                    data[i] = rounded(tile.dtype, x);
                }
            }
            let (row, col) = tile.copied(number as u32);
            let chunk = self.shared.at(c.to, tile.chunk_at(stage, row, col));
            let lane = number % lanes;
            match asynchronous {
                true => self.shared.write_async(chunk, lane, data)?,
                false => self.shared.write(chunk, lane, data)?,
            }
            written.push(Some(chunk));
        }
        for warp in written.chunks(self.p.arch.lanes() as usize) {
            shared::count(&mut self.count, warp);
        }
        Ok(())
    }

    /// What a scalar body makes of an element with these numbers of its row or beside it. Of what the program writes it may read the element that it is stored `over`.
    pub(super) fn mapped(
        &mut self,
        map: Option<&Scalar>,
        (x, rows): (f32, &[f32]),
        (row, col): (i64, i64),
        over: Option<(usize, usize)>,
    ) -> Step<f32> {
        let Some(scalar) = map else { return Ok(x) };
        let (buffers, bindings, pools) = (&self.p.buffers, self.bindings, &*self.pools);
        let mut load = |buffer: usize, index: i32| {
            let dtype = buffers[buffer].dtype;
            let element = bindings[buffer].element(index, dtype)?;
            if buffers[buffer].access != Access::Read && over != Some((buffer, element)) {
                return Err(format!(
                    "a body reads element {element} of b{buffer}, which another one may write"
                ));
            }
            Ok(pools.load(&bindings[buffer], element, dtype))
        };
        scalar.eval(x, rows, [self.batch.0, row as i32, col as i32], self.uniforms, &mut load)
    }
}
