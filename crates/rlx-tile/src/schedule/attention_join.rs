//! What joins the parts of an attention that was divided along its keys: an ordinary kernel, one invocation for each element of the result.
//!
//! A part has a sum of values `o` and a sum of weights `l`, both relative to the greatest of its scores, `m`. Relative to the greatest of all they are
//! less by a factor, which is what one pass over all keys would have multiplied them by:
//!
//! ```text
//! m = max mᵢ      o = Σ 2^(mᵢ - m) · oᵢ      l = Σ 2^(mᵢ - m) · lᵢ      result = o / l
//! ```

use rlx_ir::{DType, Error, ErrorKind, Result};
use rlx_kernel::build::Builder;
use rlx_kernel::ir::{Access, Kernel, MathFn, Ty, UnOp, Value};

use super::attention::Attention;

/// Invocations of a workgroup.
pub const JOIN_WORKGROUP: u32 = 64;

/// The names of the kernel's uniforms: how many parts, the sizes, where the greatest scores are in its first buffer, and where the result is in its second.
pub const JOIN_UNIFORMS: [&str; 13] = [
    "parts", "items", "heads", "rows", "values", "keys", "state", "base", "item", "head", "row", "of_head",
    "col",
];

/// The kernel that joins the parts of an attention: bound to the sums of [`Attention::parts`] and to the result.
///
/// # Errors
/// [`ErrorKind::Internal`] where the kernel language has no exponential.
pub fn attention_join(what: &Attention) -> Result<Kernel> {
    let exp = MathFn::named("Exp");
    let exp = exp.ok_or_else(|| Error::new(ErrorKind::Internal, "there is no exponential"))?;
    let mut b = Builder::new(format!("join.{}", what.dtype), JOIN_WORKGROUP);
    let sums = b.buffer("sums", DType::F32, Access::Read);
    let result = b.buffer("result", what.dtype, Access::Write);
    let uniforms = JOIN_UNIFORMS.map(|name| b.uniform(name, 0, i32::MAX));
    let [parts, items, heads, rows, values, keys, state, place @ ..] = uniforms;
    let lines = [items, heads, rows].into_iter().reduce(|x, y| b.mul(x, y)).unwrap_or(rows);
    let count = b.mul(lines, values);
    let element = b.global_id();
    let inside = b.lt(element, count);
    b.if_then(inside, |b| {
        let (line, col) = b.div_rem(element, values);
        // The greatest score of a part, and the sum of its weights behind it.
        let state_of = |b: &mut Builder, part: Value, which: i32| {
            let (before, two, which) = (b.mul(part, lines), b.int(2), b.int(which));
            let (number, first) = (b.add(before, line), b.add(state, which));
            let at = b.mul(number, two);
            let at = b.add(first, at);
            b.load(sums, at)
        };
        let least = b.number(Ty::F32, f64::from(f32::MIN));
        let greatest = b.var(least);
        b.for_each(parts, |b, part| {
            let (own, so_far) = (state_of(b, part, 0), b.get(greatest));
            let next = b.max(so_far, own);
            b.set(greatest, next);
        });
        let (zero, ln2) = (b.number(Ty::F32, 0.0), b.number(Ty::F32, std::f64::consts::LN_2));
        let (total, sum) = (b.var(zero), b.var(zero));
        b.for_each(parts, |b, part| {
            let (own, greatest) = (state_of(b, part, 0), b.get(greatest));
            let less = b.sub(own, greatest);
            let less = b.mul(less, ln2);
            let factor = b.math(exp, less);
            let before = b.mul(part, count);
            let at = b.add(before, element);
            for (var, of) in [(total, state_of(b, part, 1)), (sum, b.load(sums, at))] {
                let (so_far, own) = (b.get(var), b.mul(factor, of));
                let next = b.add(so_far, own);
                b.set(var, next);
            }
        });
        let (total, sum) = (b.get(total), b.get(sum));
        let inverse = what.inverse_of(b, total, |_| keys);
        let value = what.normalised(b, sum, inverse);
        let rounded = b.unary(if what.dtype == DType::F16 { UnOp::RoundF16 } else { UnOp::RoundBF16 }, value);
        let at = address(b, what, (line, col), (heads, rows), place);
        b.store(result, at, rounded);
    });
    Ok(b.finish())
}

/// Where an element of the result is: a line is a query of a head, the heads that share keys beside each other.
fn address(
    b: &mut Builder,
    what: &Attention,
    (line, col): (Value, Value),
    (heads, rows): (Value, Value),
    [base, item, head, row, of_head, col_stride]: [Value; 6],
) -> Value {
    let (plane, of_plane) = b.div_rem(line, rows);
    let (of_item, of_heads) = b.div_rem(plane, heads);
    let (query, shared) = what.query_of(b, of_plane);
    let places = [(of_item, item), (of_heads, head), (query, row), (col, col_stride)];
    let mut at = base;
    for (index, stride) in places.into_iter().chain(shared.map(|shared| (shared, of_head))) {
        let offset = b.mul(index, stride);
        at = b.add(at, offset);
    }
    at
}
