//! The closest name to a wrong one, for messages.

/// The one of `names` with the smallest edit distance to `name`, if it is near enough to be meant.
///
/// ```
/// assert_eq!(rlx_ir::nearest("input_id", ["input_ids", "mask"]), Some("input_ids"));
/// assert_eq!(rlx_ir::nearest("x", ["attention_mask"]), None);
/// ```
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = |other: &str| name.chars().count().max(other.chars().count()).div_ceil(2);
    names
        .into_iter()
        .map(|other| (edit_distance(name, other), other))
        .filter(|&(distance, other)| distance <= limit(other))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, other)| other)
}

/// How many insertions, deletions and replacements of characters turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("weight", "weight"), 0);
    }
}
