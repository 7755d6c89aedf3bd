//! What attention does to single elements: scores that a query may not see, and what its result is divided by.

use rlx_ir::DType;
use rlx_ir::ops::Unseen;
use rlx_kernel::build::Builder;
use rlx_kernel::ir::{Buffer, Inst, Ty, Value};

use super::attention::{Attention, KEYS, Mask, ROWS, SHIFT};
use crate::scalar::{Place, Scalar};

impl Attention {
    /// A score as a power of 2, −∞ where the query may not see the key.
    pub(super) fn masked(&self) -> Scalar {
        let log2 = std::f64::consts::LOG2_E;
        let scale = f64::from(self.scale) * log2;
        self.scalar("score", 0, |b, x, _, at| {
            let (scale, never) = (b.number(Ty::F32, scale), b.number(Ty::F32, f64::NEG_INFINITY));
            let keys = b.inst(Inst::Uniform(KEYS));
            let key = self.key_of(b, at);
            let (score, inside) = (b.mul(x, scale), b.lt(key, keys));
            match self.mask {
                Mask::None => b.select(inside, score, never),
                Mask::Causal | Mask::Window(_) => {
                    let shift = b.inst(Inst::Uniform(SHIFT));
                    let (query, _) = self.query_of(b, at.row);
                    let last = b.add(query, shift);
                    let (seen, score) = (b.le(key, last), b.select(inside, score, never));
                    let score = b.select(seen, score, never);
                    let Mask::Window(window) = self.mask else { return score };
                    let (behind, window) = (b.sub(last, key), b.int(window as i32));
                    let near = b.lt(behind, window);
                    b.select(near, score, never)
                }
                Mask::Given(dtype) => {
                    let rows = b.inst(Inst::Uniform(ROWS));
                    let row = b.lt(at.row, rows);
                    let inside = b.and(inside, row);
                    let masked = b.var(never);
                    b.if_then(inside, |b| {
                        let index = mask_index(b, self, at, key);
                        let given = b.load(Buffer(4), index);
                        let value = match dtype {
                            DType::Bool => b.select(given, score, never),
                            _ => {
                                let bias = b.convert(Ty::F32, given);
                                biased(b, score, bias)
                            }
                        };
                        b.set(masked, value);
                    });
                    b.get(masked)
                }
            }
        })
    }

    /// The number of a key among all of them, of which a workgroup may have a part.
    fn key_of(&self, b: &mut Builder, at: Place) -> Value {
        if !self.parts {
            return at.col;
        }
        let (part, each) = (self.part_of(b, at), b.inst(Inst::Uniform(self.part_uniform())));
        let before = b.mul(part, each);
        b.add(before, at.col)
    }

    /// The number of the part of a divided attention.
    fn part_of(&self, b: &mut Builder, at: Place) -> Value {
        let [heads, items] = [0, 1].map(|i| b.inst(Inst::Uniform(self.heads_uniform() - i)));
        let of_item = b.div(at.batch, heads);
        b.div(of_item, items)
    }

    /// What the weighted sum of the values is multiplied by.
    pub(super) fn inverse(&self) -> Scalar {
        self.scalar("inverse", 0, |b, x, _, _| self.inverse_of(b, x, |b| b.inst(Inst::Uniform(KEYS))))
    }

    /// What the weighted sum of the values is multiplied by, for a sum of weights and a number of keys.
    pub(super) fn inverse_of(
        &self,
        b: &mut Builder,
        x: Value,
        keys: impl FnOnce(&mut Builder) -> Value,
    ) -> Value {
        let (zero, one) = (b.number(Ty::F32, 0.0), b.number(Ty::F32, 1.0));
        match self.unseen {
            Unseen::Zero => {
                let (none, inverse) = (b.eq(x, zero), b.div(one, x));
                b.select(none, zero, inverse)
            }
            // 0 also where the sum is NaN.
            Unseen::Guard => {
                let (some, inverse) = (b.gt(x, zero), b.div(one, x));
                b.select(some, inverse, zero)
            }
            // NaN: 0 / 0 is NaN, but of no keys at all the sum is 0.
            _ => {
                let (keys, none) = (keys(b), b.int(0));
                let (some, inverse) = (b.gt(keys, none), b.div(one, x));
                b.select(some, inverse, zero)
            }
        }
    }

    /// A sum of values times what [`Attention::inverse_of`] gives.
    pub(super) fn normalised(&self, b: &mut Builder, x: Value, inverse: Value) -> Value {
        if self.unseen != Unseen::Guard {
            return b.mul(x, inverse);
        }
        // What was multiplied by 0 may be NaN.
        let (zero, product) = (b.number(Ty::F32, 0.0), b.mul(x, inverse));
        let none = b.eq(inverse, zero);
        b.select(none, zero, product)
    }
}

/// The element of the mask for a score of a key.
fn mask_index(b: &mut Builder, what: &Attention, at: Place, key: Value) -> Value {
    let uniform = |b: &mut Builder, i: u32| b.inst(Inst::Uniform(i));
    let (first, heads) = (what.first_uniform(4), uniform(b, what.heads_uniform()));
    let (head, mut item) = (b.rem(at.batch, heads), b.div(at.batch, heads));
    // A part's mask is where the keys are.
    let skip = u32::from(what.parts);
    if what.parts {
        let items = uniform(b, what.heads_uniform() - 1);
        item = b.rem(item, items);
    }
    let (query, of_head) = what.query_of(b, at.row);
    let of_head = of_head.map(|of_head| (5 + skip, of_head));
    let mut index = uniform(b, first);
    for (i, by) in [(1, query), (2, key), (3 + skip, item), (4 + skip, head)].into_iter().chain(of_head) {
        let stride = uniform(b, first + i);
        let offset = b.mul(by, stride);
        index = b.add(index, offset);
    }
    index
}

/// A score and what a mask adds to it. A finite mask stays finite as a power of 2: it may be the least number of its type.
fn biased(b: &mut Builder, score: Value, bias: Value) -> Value {
    let (log2, least) = (b.number(Ty::F32, std::f64::consts::LOG2_E), b.number(Ty::F32, f64::from(f32::MIN)));
    let never = b.number(Ty::F32, f64::NEG_INFINITY);
    let scaled = b.mul(bias, log2);
    let (beyond, finite) = (b.lt(scaled, least), b.gt(bias, never));
    let held = b.and(beyond, finite);
    let bias = b.select(held, least, scaled);
    b.add(score, bias)
}
