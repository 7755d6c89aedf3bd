//! Neighbouring elements that WGSL reads, or writes, by one access: their buffer is an array of vectors.
//!
//! ```text
//! v7: f32, v8: f32, v9: f32, v10: f32 = load b1[v6..]          b2[v6..] = v7, v8, v9, v10
//!
//! var<storage, read> b1: array<vec4<f32>>;                     var<storage, read_write> b2: array<vec4<f32>>;
//! let q7 = b1[v6 >> 2u]; let v7: f32 = q7[0]; …                b2[v6 >> 2u] = vec4<f32>(v7, v8, v9, v10);
//! ```
//!
//! A software driver may access every element of a vector by itself, with a look at the bounds and at whether its lane is active. There eight elements
//! are four numbers of 64 bits, whose halves are taken apart in registers.

use crate::ir::{Access, Inst, Kernel, Stmt, Value};

/// What the elements of a buffer's array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wide {
    /// Four elements.
    Four,
    /// Eight elements, as four numbers of 64 bits.
    Long,
}

/// Of each buffer, what its array's elements are; `None` where they are the buffer's. `long`: whether there are numbers of 64 bits.
pub(super) fn widths(kernel: &Kernel, long: bool) -> Vec<Option<Wide>> {
    let mut wide = vec![None; kernel.buffers.len()];
    let mut short = vec![!long; kernel.buffers.len()];
    kernel.for_each_stmt(&mut |s| match s {
        Stmt::LoadWide { values, buffer, .. } | Stmt::StoreWide { values, buffer, .. } => {
            wide[buffer.index()] = Some(Wide::Long);
            short[buffer.index()] |= values.len() % 8 != 0;
        }
        Stmt::Let(_, Inst::Load(buffer, _)) | Stmt::Store { buffer, .. } => short[buffer.index()] = true,
        _ => {}
    });
    let can = |i: usize| kernel.buffers[i].access != Access::Atomic && kernel.buffers[i].dtype.bits() == 32;
    let kind = |(i, wide): (usize, Option<Wide>)| {
        let wide = wide.filter(|_| can(i))?;
        Some(if short[i] { Wide::Four } else { wide })
    };
    wide.into_iter().enumerate().map(kind).collect()
}

impl Wide {
    fn elements(self) -> usize {
        match self {
            Wide::Four => 4,
            Wide::Long => 8,
        }
    }

    /// The type of the array's elements, of a buffer of `element`.
    pub fn of(self, element: &str) -> String {
        match self {
            Wide::Four => format!("vec4<{element}>"),
            Wide::Long => "vec4<u64>".to_string(),
        }
    }

    /// The place in the array of the part with this number, of what begins at element `index`.
    pub fn place(self, index: &str, part: usize) -> String {
        let place = format!("({index} >> {}u)", self.elements().trailing_zeros());
        if part == 0 { place } else { format!("({place} + {part}i)") }
    }

    /// Lines that define `values`, of type `ty`, by what `read` gives of each part.
    pub fn lines(self, values: &[Value], ty: &str, read: &dyn Fn(usize) -> String) -> Vec<String> {
        let mut lines = Vec::new();
        for (part, values) in values.chunks(self.elements()).enumerate() {
            // Named after their first value: no other name is the same.
            let name = values[0].0;
            lines.push(format!("let q{name} = {};", read(part)));
            let halves = match self {
                Wide::Four => vec![format!("q{name}")],
                Wide::Long => {
                    for (half, bits) in
                        [("lo", format!("q{name}")), ("hi", format!("q{name} >> vec4<u32>(32u)"))]
                    {
                        lines.push(format!("let {half}{name} = bitcast<vec4<{ty}>>(vec4<u32>({bits}));"));
                    }
                    vec![format!("lo{name}"), format!("hi{name}")]
                }
            };
            for (i, v) in values.iter().enumerate() {
                let (half, lane) = (&halves[i % halves.len()], i / halves.len());
                lines.push(format!("let {v}: {ty} = {half}[{lane}];"));
            }
        }
        lines
    }

    /// Statements that write `values`, of type `ty`, to the places in the array that `written` gives of each part.
    pub fn stores(self, values: &[String], ty: &str, written: &dyn Fn(usize) -> String) -> Vec<String> {
        let store = |(part, values): (usize, &[String])| {
            let place = written(part);
            match self {
                Wide::Four => format!("{place} = vec4<{ty}>({});", values.join(", ")),
                Wide::Long => {
                    let half = |of: usize| {
                        let own: Vec<&str> = values.iter().skip(of).step_by(2).map(String::as_str).collect();
                        format!("vec4<u64>(bitcast<vec4<u32>>(vec4<{ty}>({})))", own.join(", "))
                    };
                    format!("{place} = {} | ({} << vec4<u32>(32u));", half(0), half(1))
                }
            }
        };
        values.chunks(self.elements()).enumerate().map(store).collect()
    }
}
