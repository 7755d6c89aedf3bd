//! A small case of each class of kernels, with what it must give: computed here from what an op means, element by element, and by none of the code that kernels, the interpreter or the
//! oracle share.

use rlx_ir::{DType, Value};

use crate::classes::{Class, Family};

/// A graph of one output, what its inputs and parameters are, and what it gives.
pub(crate) struct Case {
    pub graph: String,
    pub values: Vec<(&'static str, Value)>,
    dtype: DType,
    want: Vec<f64>,
    /// How far from what is wanted a result may be, as a part of it: what the order of sums changes, and one rounding. Nothing where all is exact.
    near: f64,
}

impl Case {
    /// What is wrong with these bytes of the output.
    pub fn fault(&self, got: &[u8]) -> Option<String> {
        let got = Value::try_decode(self.dtype, &[self.want.len()], got).ok()?.to_f64();
        let is_near = |(want, got): (&f64, &f64)| (want - got).abs() <= self.near * want.abs();
        let wrong = self.want.iter().zip(&got).filter(|&pair| !is_near(pair)).count();
        let at = self.want.iter().zip(&got).position(|pair| !is_near(pair))?;
        let (want, got) = (self.want[at], got[at]);
        Some(format!(
            "{wrong} of {} results are wrong, the first is {got} where it is {want}",
            self.want.len()
        ))
    }
}

/// The case of a class.
pub(crate) fn of(class: Class) -> Option<Case> {
    Some(match class {
        Class::Tiles { family: Family::MatMul, dtype, .. } => product([72, 88, 136], dtype),
        Class::Tiles { family: Family::Parts, dtype, .. } => product([8, 1024, 64], dtype),
        Class::Tiles { family: Family::Blocks, dtype, .. } => blocks(dtype),
        // Tensor copies take whole channels and heads of 64 elements.
        Class::Tiles { family: Family::Conv, dtype, groups } => conv(if groups { 64 } else { 16 }, dtype),
        Class::Tiles { family: Family::Attention, dtype, groups } => {
            attention([40, 40], if groups { 64 } else { 16 }, dtype, false)
        }
        Class::Tiles { family: Family::Pages, dtype, .. } => attention([40, 40], 16, dtype, true),
        Class::Tiles { family: Family::KeysInParts, dtype, .. } => attention([1, 1056], 16, dtype, false),
        Class::Tiles { family: Family::Grouped, dtype, .. } => grouped(dtype),
        Class::Tiled => product([40, 56, 72], DType::F32),
        Class::FewRows => product([2, 512, 64], DType::F32),
        Class::Reduce => reduced(),
        Class::ArgReduce => greatest(),
        Class::TopK => sorted(),
        Class::Scan => running(),
        Class::Rows => softmax(),
        Class::Attention => attention([40, 40], 16, DType::F32, false),
        Class::Exchanges => return None,
    })
}

/// A number from `least` to `most` that follows from a place and is unlike its neighbours'.
fn small(place: [usize; 3], least: i64, most: i64) -> f64 {
    let mixed = place.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |mixed, &at| {
        let next = (mixed ^ at as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        next ^ (next >> 29)
    });
    (least + (mixed % (most - least + 1) as u64) as i64) as f64
}

/// What a function gives of all indices of a matrix, by rows.
fn matrix([rows, cols]: [usize; 2], of: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let all = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
    all.map(|(row, col)| of(row, col)).collect()
}

fn case(graph: String, values: Vec<(&'static str, Value)>, dtype: DType, want: Vec<f64>) -> Case {
    Case { graph: format!("graph \"trial\" {{ {graph} }}"), values, dtype, want, near: 0.0 }
}

/// A matrix of `m` rows by one of `n` columns. Sums of these integers are below 256, which all types have exactly.
fn product([m, k, n]: [usize; 3], dtype: DType) -> Case {
    let most = if k > 100 { 1 } else { 2 };
    let (left, right) = (|row, i| small([1, row, i], -most, most), |i, col| small([2, i, col], -1, 1));
    let want = matrix([m, n], |row, col| (0..k).map(|i| left(row, i) * right(i, col)).sum());
    let graph = format!(
        "%0 = Input {{name=\"x\"}} : [{m}, {k}] {dtype} %1 = Input {{name=\"w\"}} : [{k}, {n}] {dtype} \
         %2 = MatMul(%0, %1) : [{m}, {n}] {dtype} return %2"
    );
    let x = Value::float(dtype, &[m, k], matrix([m, k], left));
    let w = Value::float(dtype, &[k, n], matrix([k, n], right));
    case(graph, vec![("x", x), ("w", w)], dtype, want)
}

/// Rows, each by two of five matrices, which lists name.
fn grouped(dtype: DType) -> Case {
    let ([rows, k, n], [chosen, matrices]) = ([40, 64, 72], [2, 5]);
    let x = |row, i| small([1, row, i], -1, 1);
    let w = |of: usize, at| small([2, of, at], -1, 1);
    let of = |row, which| small([3, row, which], 0, matrices as i64 - 1) as usize;
    let want = matrix([rows, chosen * n], |row, at| {
        let (of, col) = (of(row, at / n), at % n);
        (0..k).map(|i| x(row, i) * w(of, i * n + col)).sum()
    });
    let graph = format!(
        "%0 = Input {{name=\"x\"}} : [{rows}, 1, {k}] {dtype} %1 = Input {{name=\"w\"}} : [{matrices}, {k}, {n}] {dtype} \
         %2 = Input {{name=\"chosen\"}} : [{rows}, {chosen}] i64 \
         %3 = GroupedMatMul(%0, %1, %2) : [{rows}, {chosen}, {n}] {dtype} return %3"
    );
    let list = matrix([rows, chosen], |row, which| of(row, which) as f64);
    let values = vec![
        ("x", Value::float(dtype, &[rows, 1, k], matrix([rows, k], x))),
        ("w", Value::float(dtype, &[matrices, k, n], matrix([matrices, k * n], w))),
        ("chosen", Value::int(DType::I64, &[rows, chosen], list.into_iter().map(|of| of as i128).collect())),
    ];
    case(graph, values, dtype, want)
}

/// Rows by weights of four bits in blocks of 32, each with a scale and a zero point.
fn blocks(dtype: DType) -> Case {
    let ([m, k, n], block) = ([40, 64, 72], 32);
    let x = |row, i| small([1, row, i], -1, 1);
    let w = |col, i| small([2, col, i], 0, 7);
    let scale = |of, col| 1.0 / small([3, of, col], 1, 2);
    let zero = |of, col| small([4, of, col], 3, 4);
    let weight = |i, col| (w(col, i) - zero(i / block, col)) * scale(i / block, col);
    let want = matrix([m, n], |row, col| (0..k).map(|i| x(row, i) * weight(i, col)).sum());
    let parts = k / block;
    let graph = format!(
        "%0 = Input {{name=\"x\"}} : [{m}, {k}] {dtype} %1 = Input {{name=\"w\"}} : [{n}, {parts}, {block}] u4 \
         %2 = Input {{name=\"s\"}} : [{parts}, {n}] {dtype} %3 = Input {{name=\"z\"}} : [{parts}, {n}] {dtype} \
         %4 = MatMulBlocks(%0, %1, %2, %3) : [{m}, {n}] {dtype} return %4"
    );
    let packed = matrix([n, k], w).into_iter().map(|w| w as i128).collect();
    let values = vec![
        ("x", Value::float(dtype, &[m, k], matrix([m, k], x))),
        ("w", Value::int(DType::U4, &[n, parts, block], packed)),
        ("s", Value::float(dtype, &[parts, n], matrix([parts, n], scale))),
        ("z", Value::float(dtype, &[parts, n], matrix([parts, n], zero))),
    ];
    case(graph, values, dtype, want)
}

/// Filters of 3 × 3 over an image with a border of zeros, its channels last.
fn conv(channels: usize, dtype: DType) -> Case {
    let ([rows, cols], filters) = ([9, 10], 24);
    let x = |at: usize, c: usize| small([1, at, c], -1, 1);
    let w = |f: usize, at: usize| small([2, f, at], -1, 1);
    let want = matrix([rows * cols, filters], |at, f| {
        let (row, col) = (at / cols, at % cols);
        let taps = (0..channels).flat_map(|c| (0..9).map(move |tap| (c, tap / 3, tap % 3)));
        let inside = |&(_, i, j): &(usize, usize, usize)| {
            (1..=rows).contains(&(row + i)) && (1..=cols).contains(&(col + j))
        };
        let term = |(c, i, j): (usize, usize, usize)| {
            x((row + i - 1) * cols + col + j - 1, c) * w(f, c * 9 + 3 * i + j)
        };
        taps.filter(inside).map(term).sum()
    });
    let graph = format!(
        "%0 = Input {{name=\"x\"}} : [1, {rows}, {cols}, {channels}] {dtype} \
         %1 = Param {{name=\"w\"}} : [{filters}, {channels}, 3, 3] {dtype} \
         %2 = Conv(%0, %1) {{strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsLast}} \
         : [1, {rows}, {cols}, {filters}] {dtype} return %2"
    );
    let values = vec![
        ("x", Value::float(dtype, &[1, rows, cols, channels], matrix([rows * cols, channels], x))),
        ("w", Value::float(dtype, &[filters, channels, 3, 3], matrix([filters, channels * 9], w))),
    ];
    case(graph, values, dtype, want)
}

/// Heads of an attention.
const HEADS: usize = 2;
/// Rows of a page.
const PAGE: usize = 8;

/// Element `at` of code number `code`, 1 or −1, of `size` elements, a power of two. There are twice as many codes; a product of two is `size` where they are the same, and 0 or
/// less where they differ.
fn code(code: usize, at: usize, size: usize) -> f64 {
    let of_row = if ((code % size) & at).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    if code % (2 * size) < size { of_row } else { -of_row }
}

/// Each query is 8 times a code, and sees the keys up to its own place, of which neighbours have the same code: so the weights of the keys of its code are the same, and all others are
/// less than f32 has. What is seen may lie in pages, of which every other one of a table is in use.
fn attention([queries, keys]: [usize; 2], size: usize, dtype: DType, pages: bool) -> Case {
    let (width, codes) = (HEADS * size, 2 * size);
    let of_key = |key: usize, head: usize| (key / 2 + 3 * head) % codes;
    let seen = |query: usize| keys - queries + query + 1;
    // That of one of the pairs that are seen whole, or of the only key.
    let asked = |query: usize, head: usize| {
        let pairs = (seen(query) / 2).clamp(1, codes);
        of_key(2 * (small([1, query, head], 0, 1 << 20) as usize % pairs), head)
    };
    let q = |query, at: usize| 8.0 * code(asked(query, at / size), at % size, size);
    let k = |key, at: usize| code(of_key(key, at / size), at % size, size);
    let v = |key, at| small([2, key, at], -8, 8);
    let want = matrix([queries, width], |query, at| {
        let head = at / size;
        let is_asked = |key: &usize| of_key(*key, head) == asked(query, head);
        let found: Vec<f64> = (0..seen(query)).filter(is_asked).map(|key| v(key, at)).collect();
        found.iter().sum::<f64>() / found.len() as f64
    });
    let values = vec![
        ("q", Value::float(dtype, &[1, queries, width], matrix([queries, width], q))),
        keys_or_values("k", &k, [keys, width], dtype, pages),
        keys_or_values("v", &v, [keys, width], dtype, pages),
    ];
    let mut lines = attended([queries, keys, width], dtype, pages);
    lines += &format!(
        "{{num_heads={HEADS}, head_dim={size}, mask=Causal, window=none, scale=1, unseen=Zero}} : \
         [1, {queries}, {width}] {dtype} "
    );
    lines += if pages { "return %8" } else { "return %3" };
    let list = Value::int(
        DType::I64,
        &[1, keys / PAGE],
        (0..keys / PAGE).map(|page| 2 * page as i128 + 1).collect(),
    );
    let values = values.into_iter().chain(pages.then_some(("list", list))).collect();
    // Means of more than two values are rounded.
    Case { near: if keys > 2 * codes { 0.02 } else { 0.0 }, ..case(lines, values, dtype, want) }
}

/// Keys or values: rows, or those of pages number 1, 3, 5, … of a table, whose other pages are for nothing.
fn keys_or_values(
    name: &'static str,
    of: &dyn Fn(usize, usize) -> f64,
    [rows, width]: [usize; 2],
    dtype: DType,
    pages: bool,
) -> (&'static str, Value) {
    if !pages {
        return (name, Value::float(dtype, &[1, rows, width], matrix([rows, width], of)));
    }
    let in_table = matrix([2 * rows, width], |row, at| match (row / PAGE).checked_sub(1) {
        Some(before) if before % 2 == 0 => of(before / 2 * PAGE + row % PAGE, at),
        _ => 5.0,
    });
    (name, Value::float(dtype, &[2 * rows / PAGE, PAGE, width], in_table))
}

/// The lines up to an attention and its operands.
fn attended([queries, keys, width]: [usize; 3], dtype: DType, pages: bool) -> String {
    let input = |id: usize, name: &str, dims: &[usize]| {
        format!("%{id} = Input {{name=\"{name}\"}} : {dims:?} {dtype} ")
    };
    let (count, mut lines) = (keys / PAGE, input(0, "q", &[1, queries, width]));
    let dims = if pages { vec![2 * count, PAGE, width] } else { vec![1, keys, width] };
    lines += &(input(1, "k", &dims) + &input(2, "v", &dims));
    if !pages {
        return lines + "%3 = Attention(%0, %1, %2) ";
    }
    lines += &format!("%3 = Input {{name=\"list\"}} : [1, {count}] i64 ");
    for (from, to) in [(1, 4), (2, 6)] {
        lines += &format!(
            "%{to} = Gather(%{from}, %3) {{axis=0}} : [1, {count}, {PAGE}, {width}] {dtype} \
             %{} = Reshape(%{to}) {{to=[1, {keys}, {width}]}} : [1, {keys}, {width}] {dtype} ",
            to + 1
        );
    }
    lines + "%8 = Attention(%0, %5, %7) "
}

/// Rows and length of what workgroups have.
const LONG: [usize; 2] = [5, 300];

/// A case of rows, `[5, 300]` of small integers, by the ops of a text whose input is `%0`.
fn rows(ops: &str, want: Vec<f64>) -> Case {
    let [m, n] = LONG;
    let graph = format!("%0 = Input {{name=\"x\"}} : [{m}, {n}] f32 {ops}");
    case(graph, vec![("x", Value::float(DType::F32, &LONG, matrix(LONG, element)))], DType::F32, want)
}

/// An element of rows.
fn element(row: usize, at: usize) -> f64 {
    small([1, row, at], -9, 9)
}

fn reduced() -> Case {
    let [m, n] = LONG;
    let ops = format!(
        "%1 = Reduce(%0) {{op=Sum, axes=[1], keep_dim=false}} : [{m}] f32 %2 = Reduce(%0) {{op=Sum, axes=[0, 1], keep_dim=false}} : [] f32 \
         %3 = Binary.Sub(%1, %2) : [{m}] f32 return %3"
    );
    let sum = |row| (0..n).map(|at| element(row, at)).sum::<f64>();
    let all: f64 = (0..m).map(sum).sum();
    rows(&ops, (0..m).map(|row| sum(row) - all).collect())
}

/// Where the first and where the last of the greatest elements of each row is.
fn greatest() -> Case {
    let [m, n] = LONG;
    let ops = format!(
        "%1 = ArgReduce(%0) {{op=Max, axis=1, keep_dim=false, last=false}} : [{m}] i64 \
         %2 = ArgReduce(%0) {{op=Max, axis=1, keep_dim=false, last=true}} : [{m}] i64 \
         %3 = Cast(%1) {{to=f32}} : [{m}] f32 %4 = Cast(%2) {{to=f32}} : [{m}] f32 \
         %5 = Binary.Mul(%3, %4) : [{m}] f32 return %5"
    );
    let want = (0..m).map(|row| {
        let most = (0..n).map(|at| element(row, at)).fold(f64::MIN, f64::max);
        let is_most = |at: &usize| element(row, *at) == most;
        let (first, last) = ((0..n).find(is_most), (0..n).rfind(is_most));
        (first.unwrap_or_default() * last.unwrap_or_default()) as f64
    });
    rows(&ops, want.collect())
}

/// The greatest elements of each row times their places: few, which are found one after the other, and many, which are sorted. Of equal elements the first comes first.
fn sorted() -> Case {
    let ([m, _], [few, many]) = (LONG, [4, 20]);
    let found = |id: usize, k: usize| {
        let [places, numbers, product] = [1, 2, 3].map(|next| id + next);
        format!(
            "%{id} = TopK(%0) {{k={k}, axis=1, largest=true, sorted=true}} : ([{m}, {k}] f32, [{m}, {k}] i64) \
             %{places} = Result(%{id}) {{index=1}} : [{m}, {k}] i64 %{numbers} = Cast(%{places}) {{to=f32}} : [{m}, {k}] f32 \
             %{product} = Binary.Mul(%{id}, %{numbers}) : [{m}, {k}] f32 "
        )
    };
    let all = few + many;
    let ops = format!(
        "{}{}%9 = Concat(%4, %8) {{axis=1}} : [{m}, {all}] f32 return %9",
        found(1, few),
        found(5, many)
    );
    let want = matrix([m, all], |row, at| {
        let mut places: Vec<usize> = (0..LONG[1]).collect();
        places.sort_by(|&a, &b| element(row, b).total_cmp(&element(row, a)));
        let place = places[if at < few { at } else { at - few }];
        element(row, place) * place as f64
    });
    rows(&ops, want)
}

fn running() -> Case {
    let [m, n] = LONG;
    let ops = format!(
        "%1 = Cumulative(%0) {{op=Sum, axis=1, exclusive=false, reverse=false}} : [{m}, {n}] f32 return %1"
    );
    rows(&ops, matrix(LONG, |row, at| (0..=at).map(|i| element(row, i)).sum()))
}

fn softmax() -> Case {
    let [m, n] = LONG;
    let ops = format!("%1 = Softmax(%0) {{axis=-1}} : [{m}, {n}] f32 return %1");
    let sums: Vec<f64> = (0..m).map(|row| (0..n).map(|at| element(row, at).exp()).sum()).collect();
    let want = matrix(LONG, |row, at| element(row, at).exp() / sums[row]);
    Case { near: 1e-4, ..rows(&ops, want) }
}

#[cfg(test)]
mod tests {
    use rlx_ir::oracle::{self, Bindings};
    use rlx_ir::{Op, text};
    use rlx_tile::Arch;

    use super::*;

    /// What the oracle gives of a case.
    fn by_the_oracle(case: &Case) -> Vec<u8> {
        let graph = text::parse(&case.graph).unwrap_or_else(|e| panic!("{e}\n{}", case.graph));
        let mut bindings = Bindings::default();
        for (name, value) in &case.values {
            let is_it = |n: &rlx_ir::Node| matches!(&n.op, Op::Param { name: of } if of == name);
            match graph.nodes().iter().any(is_it) {
                true => bindings.set_param(*name, value.clone()),
                false => bindings.set_input(*name, value.clone()),
            };
        }
        oracle::evaluate(&graph, &bindings).unwrap_or_else(|e| panic!("{e}\n{}", case.graph))[0].encode()
    }

    fn all() -> Vec<(Class, Case)> {
        let with_case = |class: Class| Some((class, of(class)?));
        Class::all(Some(Arch::Sm90a)).into_iter().filter_map(with_case).collect()
    }

    #[test]
    fn cases_are_right_by_the_oracle() {
        for (class, case) in all() {
            let got = by_the_oracle(&case);
            assert_eq!(case.fault(&got), None, "{class}\n{}", case.graph);
        }
    }

    /// Whatever two results change places, whichever one is that of a neighbour, it shows; so do all that are nothing.
    #[test]
    fn results_that_change_places_are_seen() {
        for (class, case) in all() {
            let (got, size) = (by_the_oracle(&case), case.dtype.size_bytes());
            assert!(case.fault(&vec![0; got.len()]).is_some(), "{class}: nothing");
            for away in [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|away| 2 * away * size <= got.len()) {
                let mut moved = got.clone();
                moved.rotate_left(away * size);
                assert!(case.fault(&moved).is_some(), "{class}: {away} away");
            }
        }
    }
}
