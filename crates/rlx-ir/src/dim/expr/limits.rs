//! How large expressions may be.
//!
//! Sizes multiply quickly: the square of a sum of eight names, squared again four times, has millions of terms, and an
//! expression that contains another one twice, as a slice's length may, doubles with each. Evaluating, printing and
//! bounding walk all of an expression, so an expression ends at [`MOST_TERMS`], [`MOST_PARTS`] and [`MOST_DEPTH`]; what models
//! have is far below. What would be larger is [`Extent::TOO_LARGE`]: it has no value, nothing is known of its range, and
//! whatever is made of it is the same. A graph that mentions it does not verify ([`check_extents`]), so that no two of them
//! are taken for equal.
//!
//! Many expressions within the limits cost time and memory, too. Who makes them on behalf of a file bounds that by an
//! [`ExprBudget`]; what is made when it is used up is too large as well.

use std::cell::RefCell;

use super::{ExprId, Extent};
use crate::dim::owners::forget;
use crate::error::{Error, ErrorKind, Result};
use crate::maps::HashSet;

/// An expression is a sum of so many products at most.
pub(super) const MOST_TERMS: usize = 128;
/// So many products, and symbols and functions in them, at most: all that is written when it is printed.
pub(super) const MOST_PARTS: u32 = 1024;
/// Functions of functions go so deep at most.
pub(super) const MOST_DEPTH: u32 = 64;
/// A product of two expressions has so many factors at most, before equal terms are joined.
pub(super) const MOST_WORK: usize = 1 << 14;

impl ExprId {
    /// The first entry of the table.
    pub(in crate::dim) const TOO_LARGE: ExprId = ExprId { slot: 0, generation: 0 };
}

impl Extent {
    /// What stands for every expression that would be larger than the limits: it has no value.
    pub const TOO_LARGE: Extent = Extent::Expr(ExprId::TOO_LARGE);

    /// Whether it stands for an expression that would be larger than the limits.
    pub fn is_too_large(self) -> bool {
        self == Extent::TOO_LARGE
    }
}

/// That none of these stands for an expression that would be too large.
///
/// # Errors
/// [`ErrorKind::Dimension`] naming the limits.
pub fn check_extents(extents: impl IntoIterator<Item = Extent>) -> Result<()> {
    if !extents.into_iter().any(Extent::is_too_large) {
        return Ok(());
    }
    let message = format!(
        "an expression over dimensions grows beyond {MOST_TERMS} terms, {MOST_PARTS} symbols and functions or {MOST_DEPTH} \
         levels, or there are too many expressions"
    );
    Err(Error::new(ErrorKind::Dimension, message).with_hint("give dimensions sizes (--dim NAME=VALUE)"))
}

/// What this thread may still spend on expressions.
struct Left {
    /// Expressions made already, which cost nothing when they are made again.
    made: HashSet<ExprId>,
    /// Terms and factors of new ones.
    parts: usize,
    /// Steps of arithmetic.
    work: usize,
}

thread_local! {
    static LEFT: RefCell<Option<Left>> = const { RefCell::new(None) };
}

/// Bounds what this thread spends on expressions until it is dropped; one inside another counts for nothing.
///
/// ```
/// use rlx_ir::{Extent, ExprBudget, sym};
/// let budget = ExprBudget::for_bytes(100);
/// let sizes: Vec<Extent> = (0..1_000_000).map(|i| Extent::sym(sym::SEQ) + i).collect();
/// drop(budget);
/// assert!(!sizes[1000].is_too_large() && sizes[999_999].is_too_large());
/// ```
#[derive(Debug)]
pub struct ExprBudget {
    outermost: bool,
    /// It belongs to its thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl ExprBudget {
    /// Parts of expressions in any case, and the bytes of a file that make room for one more.
    const PARTS: usize = 1 << 19;
    const BYTES_OF_PART: usize = 4;
    /// Steps of arithmetic in any case (about a quarter of a second), and for each byte of a file.
    const WORK: usize = 1 << 22;
    const WORK_OF_BYTE: usize = 4;

    /// What a file of so many bytes may ask for.
    pub fn for_bytes(bytes: usize) -> ExprBudget {
        let parts = Self::PARTS + bytes / Self::BYTES_OF_PART;
        let work = Self::WORK.saturating_add(bytes.saturating_mul(Self::WORK_OF_BYTE));
        let outermost = LEFT.with_borrow_mut(|left| {
            let outermost = left.is_none();
            left.get_or_insert_with(|| Left { made: HashSet::default(), parts, work });
            outermost
        });
        // What was made before counts when it is made again.
        forget();
        ExprBudget { outermost, _thread: std::marker::PhantomData }
    }
}

impl Drop for ExprBudget {
    fn drop(&mut self) {
        if self.outermost {
            LEFT.set(None);
        }
    }
}

/// Takes steps of arithmetic; small ones are free.
pub(super) fn charge(steps: usize) {
    const FREE: usize = 16;
    if steps > FREE {
        LEFT.with_borrow_mut(|left| {
            if let Some(left) = left {
                left.work = left.work.saturating_sub(steps);
            }
        });
    }
}

/// Whether this thread may still make expressions.
pub(super) fn may_make() -> bool {
    LEFT.with_borrow(|left| left.as_ref().is_none_or(|left| left.work > 0 && left.parts > 0))
}

/// Takes room for an expression of so many terms and factors, the first time that it is made.
pub(super) fn take(id: ExprId, parts: usize) {
    LEFT.with_borrow_mut(|left| {
        if let Some(left) = left
            && left.made.insert(id)
        {
            left.parts = left.parts.saturating_sub(parts);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::{Dim, SymRange, sym};
    use crate::{DType, Graph, GraphExt, Op, Shape, verify};

    /// A sum of symbols that no other test uses.
    fn sum_of(count: u32) -> Extent {
        (0..count).fold(Extent::Const(1), |sum, i| sum + Extent::sym(1000 + i))
    }

    #[test]
    fn a_budget_counts_what_the_thread_made_before_it() {
        let make = || (0..300_000).map(|i| Extent::sym(1_000_000 + i)).filter(|e| e.is_too_large()).count();
        crate::dim::scoped(|| {
            assert_eq!(make(), 0);
            let budget = ExprBudget::for_bytes(0);
            assert!(make() > 0, "two parts of each are more than the budget has");
            drop(budget);
            assert_eq!(make(), 0);
        });
    }

    #[test]
    fn what_grows_beyond_the_limits_is_one_expression_without_a_value() {
        let wide = sum_of(MOST_TERMS as u32 - 1);
        assert!(!wide.is_too_large());
        assert_eq!(wide.eval(&|_| Some(2)), Some(255));
        let (mut square, mut doubled, mut deep) = (sum_of(8), sum_of(2), sum_of(2));
        for i in 0..2 * MOST_DEPTH {
            square = square * square;
            doubled = (doubled * 2 - 7).min(doubled + i64::from(i));
            deep = (deep * 3).modulo(7) * 3;
        }
        for e in [square, doubled, deep, wide + Extent::sym(sym::SEQ)] {
            assert_eq!(e, Extent::TOO_LARGE);
            assert_eq!(e.eval(&|_| Some(1)), None);
            assert_eq!(e.range(&|_| SymRange::new(1, 1)), SymRange::new(i64::MIN, i64::MAX));
            assert_eq!(e.to_string(), "(too large)");
            assert!(e.symbols().is_empty());
        }
    }

    #[test]
    fn whatever_is_made_of_it_is_too_large_as_well() {
        let (e, b) = (Extent::TOO_LARGE, Extent::sym(sym::BATCH));
        for other in [e, b, Extent::Const(0), Extent::Const(1), Extent::Const(3)] {
            for (x, y) in [(e, other), (other, e)] {
                let made =
                    [x + y, x - y, x * y, x.floor_div(y), x.modulo(y), x.min(y), x.max(y), x.ceil_div(y)];
                assert!(made.into_iter().all(Extent::is_too_large), "{x} and {y}");
            }
        }
        assert!(e.substitute(&|_| Some(Extent::Const(1))).is_too_large() && (-e).is_too_large());
        assert!(e.upper(&|_| Some(Extent::Const(1))).is_too_large());
    }

    #[test]
    fn a_graph_that_mentions_one_does_not_verify() {
        let open = Shape::from_dims(&[Dim::from(Extent::TOO_LARGE)], DType::F32);
        let mut graph = Graph::new("large");
        let x = graph.input("x", open.clone());
        let y = graph.relu(x);
        graph.set_outputs(vec![y]);
        let error = verify(&graph).remove(0).error;
        assert_eq!(error.kind(), ErrorKind::Dimension);
        assert!(error.to_string().contains("at %0 Input \"x\"") && error.hint().is_some(), "{error}");
        let mut graph = Graph::new("large");
        let x = graph.input("x", Shape::new(&[4], DType::F32));
        let op = Op::Slice { starts: vec![Extent::TOO_LARGE], steps: vec![1], to: vec![Dim::Static(1)] };
        assert_eq!(graph.try_add(op, &[x]).unwrap_err().kind(), ErrorKind::Dimension);
    }

    #[test]
    fn a_budget_counts_expressions_once_and_ends_with_its_scope() {
        let budget = ExprBudget::for_bytes(0);
        for _ in 0..1_000_000 {
            assert!(!(Extent::sym(sym::SEQ) + 1).is_too_large());
        }
        let many: Vec<Extent> = (0..200_000).map(|i| Extent::sym(sym::SEQ) * 3 + i).collect();
        assert!(!many[1000].is_too_large() && many[199_999].is_too_large());
        {
            let _inner = ExprBudget::for_bytes(1 << 30);
            assert!((Extent::sym(sym::SEQ) * 5 + 1).is_too_large());
        }
        drop(budget);
        assert!(!(Extent::sym(sym::SEQ) * 5 + 1).is_too_large());
    }
}
