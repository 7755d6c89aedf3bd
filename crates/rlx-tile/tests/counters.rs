//! What programs ask of a GPU's memory: a committed table that may not get worse.
//!
//! `RLX_WRITE_DOCS=1 cargo test -p rlx-tile --test counters` writes `counters.tsv` again unless something grew (`RLX_WRITE_DOCS=anyway`: even then).

#[path = "common/programs.rs"]
mod programs;

use std::collections::BTreeMap;
use std::path::PathBuf;

use rlx_kernel::interp::{Binding, Counters, Pools};
use rlx_tile::Program;
use rlx_tile::interp;
use rlx_tile::ir::Size;
use rlx_tile::schedule::{Attention, AttentionSizes, List, Strides};

/// Rows, columns, depth: two tiles or more of most tilings, with edges.
const SIZES: [i32; 3] = [200, 136, 72];
const BATCH: i32 = 2;
/// Of the depth, or of keys: two parts, of which the second is smaller.
const PART: i32 = 64;
/// Workgroups where those have several tiles.
const GRID: u64 = 2;

/// The counters of a program on dense operands of zeros.
fn counted(program: &Program) -> Counters {
    if program.name.starts_with("conv.") {
        return counted_conv(program);
    }
    if program.name.starts_with("grouped.") {
        return counted_grouped(program);
    }
    let [m, n, k] = SIZES;
    let batch = program.grid.batch.len();
    let transposed = |view: usize, cols: u32| match program.views[view].cols {
        Size::Uniform(i) | Size::Part { whole: i, .. } => i != cols,
        Size::Const(_) => true,
    };
    let rows = [if transposed(0, 2) { m } else { k }, if transposed(1, 1) { k } else { n }, n];
    let (left, right) = (m * k, k * n);
    let result = m * n;
    let mut uniforms = vec![m, n, k];
    uniforms.extend(std::iter::repeat_n(BATCH, batch));
    // Parts of the depth are neighbours, each has sums of its own.
    let along_rows = rows[1] == n;
    let parts =
        program.name.ends_with(".parts").then_some([PART, if along_rows { PART * n } else { PART }, result]);
    for (i, (row, all)) in rows.into_iter().zip([left, right, result]).enumerate() {
        uniforms.extend([0, row, 1]);
        let strides = (0..batch).map(|i| all * BATCH.pow((batch - 1 - i) as u32));
        uniforms.extend(strides.map(|stride| parts.map_or(stride, |along| along[i])));
    }
    let mut sizes = vec![left, right, result];
    // What bodies are given: at each element, or one for a row or a block of it.
    for view in program.views.iter().skip(3) {
        let length = |size: Size| match size {
            Size::Uniform(i) | Size::Part { whole: i, .. } => SIZES[i as usize],
            Size::Const(_) => 0,
        };
        let row = if view.vector == 1 { 8 } else { length(view.cols) };
        uniforms.extend([0, row, 1]);
        // Numbers of blocks of 32.
        uniforms.extend(parts.map(|_| PART / 32));
        sizes.push(length(view.rows) * row);
    }
    uniforms.extend(parts.map(|_| PART));
    sizes.push(n);
    let sizes: Vec<i32> = sizes.into_iter().map(|size| size * BATCH.pow(batch as u32)).collect();
    run(program, &uniforms, &sizes)
}

/// The same of rows in two groups: the list of a tile's rows has every second one, of as many as there are, and behind these rows that are not there.
fn counted_grouped(program: &Program) -> Counters {
    let [m, n, k] = SIZES;
    let tile = program.grid.tile.0 as i32;
    let of_group = (m / 2 + tile - 1) / tile;
    let tiles = 2 * of_group;
    let mut lists: Vec<i32> = (0..tiles).map(|t| t / of_group).collect();
    lists.extend((0..tiles * tile).map(|i| {
        let (group, row) = (i / (of_group * tile), i % (of_group * tile));
        if row < m / 2 { 2 * row + group } else { i32::MAX }
    }));
    let transposed = program.views[1].rows == Size::Uniform(1);
    let mut uniforms = vec![tile, n, k, tiles];
    for (row, all) in [(k, 0), (if transposed { k } else { n }, k * n), (n, 0)] {
        uniforms.extend([0, row, 1, all]);
    }
    uniforms.extend([tiles, tiles, m, 2, m]);
    let elements = [m * k, 2 * k * n, m * n].map(|size| vec![0; 2 * size as usize]);
    let mut pools: Vec<Vec<u8>> = elements.into();
    pools.push(lists.iter().flat_map(|number| number.to_le_bytes()).collect());
    run_on(program, &uniforms, pools)
}

/// The same of a convolution: two images of 9 by 7 (by 5) places in two groups of 16 channels and 40 filters; of three channels, where they are accessed one by one, and of 64 in a map.
fn counted_conv(program: &Program) -> Counters {
    const PLACES: [i32; 3] = [9, 7, 5];
    let window = program.views[0].window.as_ref().expect("a window");
    let parts = program.name.ends_with(".parts");
    let groups = if program.grid.batch.is_empty() || parts { 1 } else { 2 };
    let channels = match program.views[0].vector {
        _ if !program.maps().is_empty() => 64,
        1 => 3,
        _ => 16,
    };
    let (images, filters) = (2, 40);
    let places = &PLACES[..window.axes.len()];
    let (rows, depth) = (images * places.iter().product::<i32>(), channels * window.taps() as i32);
    let (mut step, mut of_axes) = (groups * channels, Vec::new());
    for (&places, axis) in places.iter().zip(&window.axes).rev() {
        let size = places * axis.slide.stride as i32;
        of_axes.splice(0..0, [places, size, step]);
        step *= size;
    }
    let mut uniforms = vec![rows, filters, depth];
    let (grouped, count) = (groups > 1, if parts { (depth + PART - 1) / PART } else { 1 });
    uniforms.extend(parts.then_some(count).or(grouped.then_some(groups)));
    let results = rows * groups * filters;
    // From group to group, or from part to part.
    let operands =
        [(step, channels, 0), (depth, filters * depth, PART), (groups * filters, filters, results)];
    for (row, group, part) in operands {
        uniforms.extend([0, row, 1]);
        uniforms.extend(parts.then_some(part).or(grouped.then_some(group)));
    }
    uniforms.extend(parts.then_some(PART));
    uniforms.push(channels);
    uniforms.extend(of_axes);
    run(program, &uniforms, &[images * step, groups * filters * depth, count * results, filters])
}

/// The same of an attention of two items.
fn counted_attention(what: &Attention, program: &Program) -> Counters {
    const BATCH: [i32; 2] = [2, 1];
    // Keys are divided where queries are few.
    let (queries, keys) = (if what.parts { 5 } else { SIZES[1] }, SIZES[2]);
    let [head, value] = [what.head_dim, what.value_dim].map(|size| size as i32);
    let ([_, shared], groups) = (BATCH, what.groups as i32);
    // Items, then rows, then heads.
    let of = |row: i32, heads: i32, size: i32, head: [i32; 2]| {
        let all = heads * size;
        (
            Strides { base: 0, row: all, col: 1, batch: vec![row * all, head[0], head[1]] },
            BATCH[0] * row * all,
        )
    };
    let each = |size: i32| [size * groups, size];
    let (q, k) = (of(queries, shared * groups, head, each(head)), of(keys, shared, head, [head, 0]));
    let (v, result) = (of(keys, shared, value, [value, 0]), of(queries, shared * groups, value, each(value)));
    // One mask for all items and heads.
    let mask = (Strides { base: 0, row: keys, col: 1, batch: vec![0; 3] }, queries * keys);
    let elements: [i32; 5] = [q.1, k.1, v.1, result.1, mask.1];
    let operands = [q.0, k.0, v.0, result.0];
    let mut sizes =
        AttentionSizes { queries, keys, batch: BATCH, operands, mask: mask.0, ..AttentionSizes::default() };
    let mut elements = elements;
    if what.parts {
        let rows = queries * groups;
        let dense = |base: i32, size: i32| {
            let batch = vec![BATCH[0] * shared * rows * size, shared * rows * size, rows * size, 0];
            Strides { base, row: size, col: 1, batch }
        };
        for (strides, along) in sizes.operands.iter_mut().zip([0, PART, PART]) {
            strides.batch.insert(0, along * strides.row);
        }
        let lines = 2 * BATCH[0] * shared * rows;
        (sizes.parts, sizes.state) = ([2, PART], dense(lines * value, 2));
        (sizes.operands[3], elements[3]) = (dense(0, value), lines * (value + 2));
    }
    // Pages of an item are one behind the other, from the last one on.
    let mut lists = Vec::new();
    for (i, pages) in what.pages.iter().enumerate() {
        let Some(rows) = pages.and_then(|pages| pages.rows).map(|rows| rows as i32) else { continue };
        let each = (keys + rows - 1) / rows;
        let count = BATCH[0] * each;
        let strides = &mut sizes.operands[i + 1];
        let page = rows * strides.row;
        elements[i + 1] = count * page;
        strides.batch[usize::from(what.parts)] = 0;
        let mut batch = vec![each, 0];
        if what.parts {
            (strides.batch[0], batch) = (0, vec![0, each, 0]);
        }
        sizes.lists.push(List { base: 0, first: 0, pages: count, batch, page });
        lists.push((0..i64::from(count)).rev().flat_map(i64::to_le_bytes).collect::<Vec<u8>>());
    }
    let mut pools = zeroed(program, &elements);
    let operands = program.buffers.len() - lists.len();
    pools.truncate(operands);
    pools.extend(lists);
    run_on(program, &what.uniform_values(&sizes), pools)
}

fn zeroed(program: &Program, elements: &[i32]) -> Vec<Vec<u8>> {
    (program.buffers.iter().zip(elements))
        .map(|(b, &size)| vec![0; size as usize * b.dtype.size_bytes()])
        .collect()
}

fn run(program: &Program, uniforms: &[i32], elements: &[i32]) -> Counters {
    run_on(program, uniforms, zeroed(program, elements))
}

fn run_on(program: &Program, uniforms: &[i32], pools: Vec<Vec<u8>>) -> Counters {
    let bindings: Vec<Binding> =
        pools.iter().enumerate().map(|(pool, p)| Binding { pool, offset: 0, len: p.len() }).collect();
    let grid = if program.has_several_tiles() { GRID } else { interp::workgroups(program, uniforms) };
    interp::run_in(program, grid, uniforms, &mut Pools(pools), &bindings).unwrap()
}

#[test]
fn counters_do_not_grow() {
    let mut table: BTreeMap<String, Counters> =
        programs::programs().into_iter().map(|(name, p)| (name, counted(&p))).collect();
    table.extend(
        programs::attentions().iter().map(|(name, what, p)| (name.clone(), counted_attention(what, p))),
    );
    for (name, counters) in &table {
        assert_eq!((counters.conflicts, counters.ways), (0, 1), "{name} has bank conflicts");
    }
    let columns = Counters::default().costs().map(|(name, _)| name).join("\t");
    let mut text = format!("program\tgroups\t{columns}\n");
    for (name, counters) in &table {
        let costs = counters.costs().map(|(_, n)| n.to_string()).join("\t");
        text.push_str(&format!("{name}\t{}\t{costs}\n", counters.groups));
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/counters.tsv");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let asked = std::env::var("RLX_WRITE_DOCS").unwrap_or_default();
    let worse = worse(&written, &table);
    assert!(worse.is_empty() || asked == "anyway", "counters grew:\n{}", worse.join("\n"));
    if !asked.is_empty() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert!(
        text == written,
        "counters.tsv is out of date: RLX_WRITE_DOCS=1 cargo test -p rlx-tile --test counters"
    );
}

/// The counters that are larger than a table's.
fn worse(written: &str, table: &BTreeMap<String, Counters>) -> Vec<String> {
    let mut worse = Vec::new();
    for line in written.lines().skip(1) {
        let mut fields = line.split('\t');
        let (Some(name), _) = (fields.next(), fields.next()) else { continue };
        let Some(now) = table.get(name) else { continue };
        for ((cost, n), before) in now.costs().into_iter().zip(fields) {
            if before.parse::<u64>().is_ok_and(|before| n > before) {
                worse.push(format!("{name}: {cost} {before} → {n}"));
            }
        }
    }
    worse
}

#[test]
fn a_counter_that_grew_is_found() {
    let table = BTreeMap::from([("p".to_string(), Counters { sectors: 9, ..Counters::default() })]);
    let line = |sectors: u64| format!("head\np\t1\t0\t{sectors}\t0\t0\t0\t0\t0\t0\t0\n");
    assert!(worse(&line(9), &table).is_empty() && worse(&line(10), &table).is_empty());
    assert_eq!(worse(&line(8), &table), ["p: sectors 8 → 9"]);
}
