//! Neighbouring elements that the dialects of C access together: 8 or 16 bytes, which functions in front of the kernel read and write as a structure
//! of words.
//!
//! ```text
//! v7: f32, … v14: f32 = load b1[v6..]      (of bf16)
//!
//! const words4 q7 = read_16(b1 + v6);
//! const float v7 = from_brain(half_of(q7, 0)); …
//! ```

use rlx_ir::{DType, Result};

use super::c::{Flavour, loaded, stored, ty};
use super::reject;
use crate::ir::{Access, Buffer, Kernel, Stmt, Ty, Value, WideAccess};

/// Bytes of the largest access.
const MOST: usize = 16;

/// The functions, each after the word `function`; pointers to buffers begin with `space`.
fn functions(function: &str, space: &str) -> String {
    format!(
        "struct alignas(16) words4 {{ u32 x, y, z, w; }};
struct alignas(8) words2 {{ u32 x, y; }};
{function} words4 read_16({space}const void* p) {{ return *({space}const words4*)p; }}
{function} words2 read_8({space}const void* p) {{ return *({space}const words2*)p; }}
{function} void write_16({space}void* p, u32 x, u32 y, u32 z, u32 w) {{
  words4 q;
  q.x = x; q.y = y; q.z = z; q.w = w;
  *({space}words4*)p = q;
}}
{function} void write_8({space}void* p, u32 x, u32 y) {{
  words2 q;
  q.x = x; q.y = y;
  *({space}words2*)p = q;
}}
{function} u32 word_of(words4 q, int i) {{ return i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w; }}
{function} u32 word_of(words2 q, int i) {{ return i == 0 ? q.x : q.y; }}
{function} u16 half_of(words4 q, int i) {{ return (u16)(word_of(q, i / 2) >> (i % 2 * 16)); }}
{function} u16 half_of(words2 q, int i) {{ return (u16)(word_of(q, i / 2) >> (i % 2 * 16)); }}
{function} u32 halves(u16 low, u16 high) {{ return (u32)low | (u32)high << 16; }}
"
    )
}

/// What stands before a kernel that accesses elements together; nothing before others.
pub(super) fn prelude(kernel: &Kernel, function: &str, space: &str) -> String {
    let mut wide = false;
    kernel.for_each_stmt(&mut |s| wide |= matches!(s, Stmt::LoadWide { .. } | Stmt::StoreWide { .. }));
    if wide { functions(function, space) } else { String::new() }
}

/// Whether a loop of a kernel reads elements together.
pub(super) fn are_read_in_loops(kernel: &Kernel) -> bool {
    let mut wide = false;
    kernel.for_each_stmt(&mut |s| {
        if let Stmt::For { body, .. } = s {
            wide |= body.iter().any(|s| matches!(s, Stmt::LoadWide { .. }));
        }
    });
    wide
}

/// The type of a buffer's elements, of which so many are one access.
fn elements(kernel: &Kernel, flavour: &dyn Flavour, buffer: Buffer) -> Result<(DType, usize)> {
    let decl = &kernel.buffers[buffer.index()];
    if decl.access == Access::Atomic || !WideAccess::is_known(decl.dtype) {
        return reject(kernel, flavour.language(), format!("access to several elements of {}", decl.dtype));
    }
    Ok((decl.dtype, MOST * 8 / decl.dtype.bits()))
}

/// Where an access to elements from `index` on begins, of which `away` are not its own.
fn place(buffer: Buffer, index: &str, away: usize) -> String {
    let more = if away > 0 { format!(" + {away}") } else { String::new() };
    format!("b{} + {index}{more}", buffer.0)
}

/// Lines that read `values`.
pub(super) fn load(
    kernel: &Kernel,
    flavour: &dyn Flavour,
    values: &[Value],
    (buffer, index): (Buffer, &str),
) -> Result<Vec<String>> {
    let (dtype, at_once) = elements(kernel, flavour, buffer)?;
    let own = Ty::of(dtype);
    let element = |name: u32, i: usize| match dtype.bits() {
        16 => loaded(dtype, format!("half_of(q{name}, {i})")),
        _ if dtype.is_float() => flavour.bitcast(own, Ty::U32, &format!("word_of(q{name}, {i})")),
        _ => format!("({})word_of(q{name}, {i})", ty(own)),
    };
    let mut lines = Vec::new();
    for (part, values) in values.chunks(at_once).enumerate() {
        // Named after their first value: no other name is the same.
        let (name, bytes) = (values[0].0, values.len() * dtype.bits() / 8);
        let place = place(buffer, index, part * at_once);
        lines.push(format!("const words{} q{name} = read_{bytes}({place});", bytes / 4));
        for (i, v) in values.iter().enumerate() {
            lines.push(format!("const {} {v} = {};", ty(own), element(name, i)));
        }
    }
    Ok(lines)
}

/// Lines that write `values`.
pub(super) fn store(
    kernel: &Kernel,
    flavour: &dyn Flavour,
    (buffer, index): (Buffer, &str),
    values: &[String],
) -> Result<Vec<String>> {
    let (dtype, at_once) = elements(kernel, flavour, buffer)?;
    let words = |values: &[String]| -> Vec<String> {
        match dtype.bits() {
            16 => {
                let pair = |pair: &[String]| {
                    let [low, high] = [&pair[0], &pair[1]].map(|v| match dtype.is_float() {
                        true => stored(dtype, v),
                        false => format!("(u16){v}"),
                    });
                    format!("halves({low}, {high})")
                };
                values.chunks_exact(2).map(pair).collect()
            }
            _ if dtype.is_float() => values.iter().map(|v| flavour.bitcast(Ty::U32, Ty::F32, v)).collect(),
            _ => values.iter().map(|v| format!("(u32){v}")).collect(),
        }
    };
    let line = |(part, values): (usize, &[String])| {
        let bytes = values.len() * dtype.bits() / 8;
        format!("write_{bytes}({}, {});", place(buffer, index, part * at_once), words(values).join(", "))
    };
    Ok(values.chunks(at_once).enumerate().map(line).collect())
}
