//! Sorting that is compiled once.
//!
//! The standard library's sorts are compiled for every element type and every comparison, some kilobytes each time. Names,
//! axes and rows of a table are few and seldom sorted, so here one sort of positions serves them all, and a type adds
//! no more than how two of its elements are compared and exchanged. Equal elements keep their order.
//!
//! ```
//! use rlx_ir::sort::{sort, sort_by_key};
//! let mut names = ["relu", "add", "softmax"];
//! sort(&mut names);
//! assert_eq!(names, ["add", "relu", "softmax"]);
//! sort_by_key(&mut names, |name| name.len());
//! assert_eq!(names, ["add", "relu", "softmax"]);
//! ```

use std::cmp::Ordering;

/// Lists of at most so many elements are sorted where they are.
const FEW: usize = 8;

/// Sorts by the elements' own order.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Sorts by a key, which is asked for at each comparison.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// Sorts by a comparison, which must be a total order.
pub fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    if items.len() <= FEW {
        // By insertion, which needs no memory: most lists are such.
        for end in 1..items.len() {
            let mut at = end;
            while at > 0 && compare(&items[at - 1], &items[at]).is_gt() {
                items.swap(at - 1, at);
                at -= 1;
            }
        }
        return;
    }
    let order = order(items.len(), &mut |a, b| compare(&items[a], &items[b]));
    permute(order, &mut |a, b| items.swap(a, b));
}

/// The positions `0..n` in order.
fn order(n: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| compare(a, b));
    order
}

/// Brings the element at `order[i]` to position `i`, for each of them, by exchanging elements along each cycle.
fn permute(mut order: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..order.len() {
        let mut at = start;
        loop {
            let from = std::mem::replace(&mut order[at], at);
            if from == start {
                break;
            }
            swap(at, from);
            at = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sorts_as_the_standard_library_does() {
        let mut state = 7u64;
        for n in 0..200 {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 60
            };
            let items: Vec<(u64, usize)> = (0..n).map(|i| (next(), i)).collect();
            let (mut mine, mut theirs) = (items.clone(), items);
            sort_by_key(&mut mine, |&(key, _)| key);
            theirs.sort_by_key(|&(key, _)| key);
            assert_eq!(mine, theirs);
            sort_by(&mut mine, |a, b| b.1.cmp(&a.1));
            assert!(mine.is_sorted_by_key(|&(_, i)| std::cmp::Reverse(i)));
            sort(&mut mine);
            assert!(mine.is_sorted());
        }
    }
}
