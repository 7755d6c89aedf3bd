//! How the dimensions before and after a reshape correspond.

use std::ops::Range;

use rlx_ir::{Dim, Extent};

/// Neighbouring dimensions that become neighbouring dimensions with the same product.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    /// The dimensions before.
    pub from: Range<usize>,
    /// The dimensions after.
    pub to: Range<usize>,
}

/// Cuts a reshape into the smallest groups; `None` when symbols leave that open.
///
/// Dimensions of 1 that come or go are groups of their own, with nothing on the other side.
pub(crate) fn groups(from: &[Dim], to: &[Dim]) -> Option<Vec<Group>> {
    const ONE: Dim = Dim::Static(1);
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    loop {
        let (first_i, first_j) = (i, j);
        match (from.get(i).copied(), to.get(j).copied()) {
            (None, None) => return Some(found),
            (Some(a), Some(b)) if a == b => (i, j) = (i + 1, j + 1),
            (Some(ONE), _) => i += 1,
            (_, Some(ONE)) => j += 1,
            (Some(a), Some(b)) => {
                let (mut x, mut y) = (a.extent(), b.extent());
                (i, j) = (i + 1, j + 1);
                while x != y {
                    if smaller(x, y) {
                        x = x * from.get(i)?.extent();
                        i += 1;
                    } else if smaller(y, x) {
                        y = y * to.get(j)?.extent();
                        j += 1;
                    } else {
                        return None;
                    }
                }
            }
            _ => return None,
        }
        found.push(Group { from: first_i..i, to: first_j..j });
    }
}

/// Whether `a` must be multiplied by something to become `b`.
fn smaller(a: Extent, b: Extent) -> bool {
    match (a, b) {
        (Extent::Const(a), Extent::Const(b)) => a != 0 && a < b,
        _ => b.modulo(a) == Extent::Const(0),
    }
}

/// The permutation that undoes `perm`.
pub(crate) fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(i, &p)| inverse[p] = i);
    inverse
}

/// `dims` in the order of `perm`.
pub(crate) fn permuted<T: Copy>(items: &[T], perm: &[usize]) -> Vec<T> {
    perm.iter().map(|&p| items[p]).collect()
}

/// Whether `perm` moves nothing but dimensions of 1, so that elements keep their order.
pub(crate) fn keeps_order(dims: &[Dim], perm: &[usize]) -> bool {
    let moved: Vec<usize> = perm.iter().copied().filter(|&p| dims[p] != Dim::Static(1)).collect();
    moved.is_sorted()
}

/// `dims` with dimensions of 1 in front, up to `rank`.
pub(crate) fn extended(dims: &[Dim], rank: usize) -> Vec<Dim> {
    let mut all = vec![Dim::Static(1); rank.saturating_sub(dims.len())];
    all.extend_from_slice(dims);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::sym;

    fn dims(d: &[usize]) -> Vec<Dim> {
        d.iter().map(|&n| Dim::Static(n)).collect()
    }

    fn sizes(groups: &[Group]) -> Vec<(usize, usize)> {
        groups.iter().map(|g| (g.from.len(), g.to.len())).collect()
    }

    #[test]
    fn reshapes_fall_into_groups() {
        assert_eq!(sizes(&groups(&dims(&[2, 12]), &dims(&[2, 3, 4])).unwrap()), [(1, 1), (1, 2)]);
        assert_eq!(sizes(&groups(&dims(&[2, 3, 4]), &dims(&[6, 4])).unwrap()), [(2, 1), (1, 1)]);
        assert_eq!(sizes(&groups(&dims(&[2, 3]), &dims(&[2, 1, 3])).unwrap()), [(1, 1), (0, 1), (1, 1)]);
        assert_eq!(sizes(&groups(&dims(&[4, 6]), &dims(&[3, 8])).unwrap()), [(2, 2)]);
    }

    #[test]
    fn symbols_group_by_division() {
        let (b, s) = (Extent::sym(sym::BATCH), Extent::sym(sym::SEQ));
        let from = [Dim::from(b * s), Dim::Static(4)];
        let to = [Dim::from(b), Dim::from(s), Dim::Static(2), Dim::Static(2)];
        assert_eq!(sizes(&groups(&from, &to).unwrap()), [(1, 2), (1, 2)]);
        assert!(groups(&[Dim::from(b)], &[Dim::from(s)]).is_none());
    }
}
