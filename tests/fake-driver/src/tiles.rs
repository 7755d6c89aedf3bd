//! The C of a tile program, read back to the program.
//!
//! The text says in comments what the program declares; a matmul, grouped or not, or a convolution, is made again of that and of its bodies (its epilogue, and what operands are computed by as they
//! are copied), which the front end of kernels (`cuda_c`) compiles. What was read is then rendered: every line but those of bodies must be equal to what was
//! given, whose bodies must be the same wherever they stand. An attention's bodies are all its own, and its name says what it is. So no comment is believed, every character counts, and what a renderer wrote for another program than this is an error.

use std::collections::BTreeMap;
use std::fmt::Display;

use rlx_ir::DType;
use rlx_ir::ops::Unseen;
use rlx_kernel::ir::{Access, BufferDecl, Ty};
use rlx_tile::beside::Span;
use rlx_tile::group::GROUP_WARPS;
use rlx_tile::schedule::{
    Attention, AttentionTiling, Given, Mask, Matmul, Operand, Pages, Tiling, attention, matmul,
};
use rlx_tile::window::Slide;
use rlx_tile::{Arch, Program, Scalar, render};

use crate::cuda_c::{Compiled, compile_body};

/// What the text of a tile program begins with.
const MARK: &str = "// program ";
/// What stands before a body.
const SUM: &str = "float m0 = ";

/// A program, and what its function is called.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    pub program: Program,
}

/// Compiles a source; `None` where it is that of a kernel.
///
/// # Errors
/// What is wrong.
pub fn compile(source: &str) -> Option<Compiled<Function>> {
    source.starts_with(MARK).then(|| read(source))
}

fn read(source: &str) -> Compiled<Function> {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let attention = attention_of(&lines)?;
    let all = attention.is_some();
    let program = attention.map_or_else(|| matmul_of(&lines), Ok)?;
    let head = lines.iter().find(|line| line.starts_with("extern")).ok_or("there is no kernel")?;
    let name = head.split_once(") ").and_then(|(_, rest)| Some(rest.split_once('(')?.0));
    let name = name.ok_or("a kernel without a name")?.to_owned();
    let again = render::source(&program, &name).map_err(said)?;
    let again: Vec<&str> = again.lines().map(str::trim_start).collect();
    let compared = |lines: Vec<&'_ str>| -> Compiled<Vec<String>> {
        let rest = if all { lines } else { Text::of(&lines)?.rest };
        Ok(rest.into_iter().map(str::to_owned).collect())
    };
    let (given, made) = (compared(lines)?, compared(again)?);
    if let Some((given, made)) = given.iter().zip(&made).find(|(a, b)| a != b) {
        return Err(format!("{given:?} where the program that was read has {made:?}"));
    }
    if given.len() != made.len() {
        return Err("another number of lines than the program that was read has".to_owned());
    }
    Ok(Function { name, program })
}

/// The matmul of a text, with its bodies.
fn matmul_of(lines: &[&str]) -> Compiled<Program> {
    let (arch, mut what, tiling) = declared(lines)?;
    let text = Text::of(lines)?;
    let (buffers, uniforms) = (what.all_buffers(), what.all_uniforms());
    for (of, body) in &text.bodies {
        let (to, given) = match of {
            None => (&mut what.epilogue, what.result_with.len()),
            Some(0) => (&mut what.left_map, what.left_with.len()),
            Some(1) => (&mut what.right_map, what.right_with.len()),
            Some(tile) => return Err(format!("a body of t{tile}")),
        };
        let mut vars = vec![Ty::F32, Ty::I32, Ty::I32, Ty::I32];
        vars.extend(std::iter::repeat_n(Ty::F32, given));
        let kernel = compile_body(body, buffers.clone(), uniforms.clone(), vars)?;
        *to = Some(Scalar::from_kernel_with(kernel, given).map_err(said)?);
    }
    matmul(arch, &what, &tiling).map_err(said)
}

/// The attention that a text's name says it is; none where it is a matmul.
fn attention_of(lines: &[&str]) -> Compiled<Option<Program>> {
    let comments = comments(lines);
    let (name, arch, dtype) = head(&comments)?;
    let (name, pages) = in_pages(name)?;
    let (whole, parts) = in_parts(name);
    let words: Vec<&str> = whole.split('.').collect();
    let &["attention", _, sizes, queries, keys, warps, stages, mask, unseen, scale] = &words[..] else {
        return Ok(None);
    };
    let number_of = |word: &str, mark: char| number(word.trim_start_matches(mark));
    let (below, beside) = warps.split_once('x').unwrap_or((warps, "1"));
    let below = match below.strip_prefix('g') {
        Some(groups) => number(groups)?.saturating_mul(GROUP_WARPS),
        None => number_of(below, 'w')?,
    };
    let (head_dim, rest) = sizes.split_once('x').ok_or("heads without sizes")?;
    let (value_dim, groups) = rest.split_once('x').unwrap_or((rest, "1"));
    let mut vectors = [1; 4];
    for (i, vector) in vectors.iter_mut().enumerate() {
        *vector = number(find(&comments, &format!("g{i}"))?.last().copied().unwrap_or_default())?;
    }
    let bits = u32::from_str_radix(scale.trim_start_matches('x'), 16).map_err(said)?;
    let what = Attention {
        dtype,
        head_dim: number(head_dim)?,
        value_dim: number(value_dim)?,
        groups: number(groups)?,
        vectors,
        scale: f32::from_bits(bits),
        mask: match mask {
            "all" => Mask::None,
            "causal" => Mask::Causal,
            mask if mask.starts_with("window") => Mask::Window(number(&mask["window".len()..])?),
            dtype => Mask::Given(dtype.parse().map_err(|_| format!("mask {dtype:?}"))?),
        },
        unseen: match unseen {
            "zero" => Unseen::Zero,
            "guard" => Unseen::Guard,
            "nan" => Unseen::Nan,
            _ => return Err(format!("unseen {unseen:?}")),
        },
        pages,
        parts,
    };
    let tiling = AttentionTiling {
        queries: number_of(queries, 'q')?,
        keys: number_of(keys, 'k')?,
        warps: (below, number(beside)?),
        stages: number_of(stages, 's')?,
        groups: warps.starts_with('g'),
    };
    attention(arch, &what, &tiling).map(Some).map_err(said)
}

/// A name without what says that keys and values are in pages, and how.
fn in_pages(mut name: &str) -> Compiled<(&str, [Option<Pages>; 2])> {
    let mut pages = [None; 2];
    for (i, of) in [(1, "values"), (0, "keys")] {
        let Some((before, said)) = name.rsplit_once('.') else { continue };
        let Some((rows, list)) = said.strip_prefix(of).and_then(|said| said.split_once('x')) else {
            continue;
        };
        let rows = Some(number(rows)?).filter(|&rows| rows > 0);
        pages[i] = Some(Pages { rows, list: list.parse().map_err(|_| format!("list {list:?}"))? });
        name = before;
    }
    Ok((name, pages))
}

/// A name without what says that the program does parts, and whether it does.
fn in_parts(name: &str) -> (&str, bool) {
    name.strip_suffix(".parts").map_or((name, false), |whole| (whole, true))
}

/// The words of each comment before a program.
fn comments<'s>(lines: &[&'s str]) -> Vec<Vec<&'s str>> {
    let comments = lines.iter().map_while(|line| line.strip_prefix("// "));
    comments.map(|line| line.split([' ', ',']).filter(|word| !word.is_empty()).collect()).collect()
}

/// The name, architecture and type of a program.
fn head<'s>(comments: &[Vec<&'s str>]) -> Compiled<(&'s str, Arch, DType)> {
    let [program, ..] = comments else { return Err("a program without declarations".to_owned()) };
    let &["program", name, "for", arch, dtype, "warps", _] = &program[..] else {
        return Err(format!("{program:?} begins no program"));
    };
    let all = Arch::ALL.into_iter().chain(Arch::OF_GROUPS);
    let arch = all.into_iter().find(|a| a.name() == arch).ok_or_else(|| format!("{arch:?}"))?;
    Ok((name, arch, dtype.parse().map_err(|_| format!("type {dtype:?}"))?))
}

fn said(e: impl Display) -> String {
    e.to_string()
}

/// Lines without bodies, and those that stand in their places: the epilogue, and the bodies of tiles by their numbers.
struct Text<'s> {
    rest: Vec<&'s str>,
    bodies: BTreeMap<Option<u32>, String>,
}

impl<'s> Text<'s> {
    fn of(lines: &[&'s str]) -> Compiled<Text<'s>> {
        let (mut rest, mut bodies): (Vec<&str>, BTreeMap<Option<u32>, String>) = Default::default();
        let mut at = 0;
        while at < lines.len() {
            rest.push(lines[at]);
            at += 1;
            if !lines[at - 1].starts_with(SUM) || lines.get(at) != Some(&"{") {
                continue;
            }
            let of_tile = at.checked_sub(2).and_then(|before| lines[before].strip_prefix("// "));
            let of_tile =
                of_tile.and_then(|said| said.strip_prefix(render::PROLOGUE)).map(number).transpose()?;
            let end = at + block(&lines[at..]).ok_or("a body without an end")?;
            // The brace, and where the element is.
            let place = |line: &&&str| line.starts_with("int m");
            let head = 1 + lines[at + 1..end].iter().take_while(place).count();
            rest.extend(&lines[at..at + head]);
            let own: String = lines[at + head..end].iter().map(|line| format!("{line}\n")).collect();
            if bodies.insert(of_tile, own.clone()).is_some_and(|body| body != own) {
                return Err("bodies that differ".to_owned());
            }
            at = end;
        }
        Ok(Text { rest, bodies })
    }
}

/// The line that closes the block which the first line opens.
fn block(lines: &[&str]) -> Option<usize> {
    let mut depth = 0usize;
    for (at, line) in lines.iter().enumerate() {
        depth = (depth + line.matches('{').count()).checked_sub(line.matches('}').count())?;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The matmul that the comments declare, without its bodies.
fn declared(lines: &[&str]) -> Compiled<(Arch, Matmul, Tiling)> {
    let comments = comments(lines);
    let (name, arch, dtype) = head(&comments)?;
    let grid = find(&comments, "grid")?;
    let bands = number(grid.last().copied().unwrap_or_default())?;
    let (whole, parts) = in_parts(name);
    let tiling = tiling(whole, bands)?;
    let mut what = Matmul { parts, ..Matmul::new(dtype) };
    what.batch = grid.iter().skip_while(|word| **word != "batch").filter(|word| word.contains('u')).count();
    let buffers = comments.iter().filter_map(|words| match words[..] {
        [buffer, dtype, access] if buffer.starts_with('b') => Some((buffer, dtype, access)),
        _ => None,
    });
    let mut declared = Vec::new();
    for (name, dtype, access) in buffers {
        let dtype = dtype.parse().map_err(|_| format!("type {dtype:?}"))?;
        let access = if access == "read" { Access::Read } else { Access::Write };
        declared.push(BufferDecl { name: name.to_owned(), dtype, access });
    }
    if declared.len() < 3 {
        return Err("a matmul has three buffers".to_owned());
    }
    let mut others = declared.split_off(3).into_iter();
    what.left_with = given(&comments, &["t0", "from"], 4, &mut others)?;
    what.right_with = given(&comments, &["t1", "from"], 4, &mut others)?;
    // The last one may be what the result is stored over, which has the result's buffer.
    let first = 3 + what.left_with.len() + what.right_with.len();
    let over = |words: &Vec<&str>| {
        let number = words.first().and_then(|word| word.strip_prefix('g')?.parse::<usize>().ok());
        number.is_some_and(|number| number >= first) && words.get(1) == Some(&"b2")
    };
    what.over = comments.iter().any(over);
    let result = declared[2].clone();
    let mut others = others.chain(what.over.then_some(result));
    what.result_with = given(&comments, &["store", "g2"], 3, &mut others)?;
    // Lists are the program's own.
    what.grouped = find(&comments, "g2")?.contains(&"pages");
    what.buffers = others.skip(usize::from(what.grouped)).collect();
    let normal = [("[u0", "u2"), ("[u2", "u1"), ("[u0", "u1")];
    let mut operands = Vec::new();
    for (i, buffer) in declared.iter().enumerate() {
        let view = find(&comments, &format!("g{i}"))?;
        let vector = number(view.last().copied().unwrap_or_default())?;
        // What is divided has the size of a part behind its own.
        let size = |word: &&str| word.trim_end_matches(']').split('/').next().map(str::to_owned);
        let sizes: Vec<_> = view.iter().skip(4).take(2).map(size).collect();
        let transposed = sizes != [normal[i].0, normal[i].1].map(|word| Some(word.to_owned()));
        operands.push(Operand { dtype: buffer.dtype, transposed, vector });
    }
    (what.left, what.right, what.result) = (operands[0], operands[1], operands[2]);
    what.window = window(find(&comments, "g0")?)?;
    let uniforms = number(find(&comments, "uniforms")?.get(1).copied().unwrap_or_default())?;
    what.uniforms = (what.first_uniform()..uniforms as usize).map(|i| format!("u{i}")).collect();
    Ok((arch, what, tiling))
}

/// How the window of a view slides: nothing where it has none.
fn window(view: &[&str]) -> Compiled<Vec<Slide>> {
    let axes = (0..view.len()).filter(|&at| view[at] == "taps");
    axes.map(|at| match view.get(at..at + 8) {
        Some(&["taps", taps, "stride", stride, "dilation", dilation, "before", before]) => Ok(Slide {
            taps: number(taps)?,
            stride: number(stride)?,
            dilation: number(dilation)?,
            before: number(before)?,
        }),
        _ => Err(format!("{view:?} has no window")),
    })
    .collect()
}

/// What a body is given, of the next buffers: what is behind so many words of the line that begins so.
fn given(
    comments: &[Vec<&str>],
    line: &[&str],
    skip: usize,
    buffers: &mut impl Iterator<Item = BufferDecl>,
) -> Compiled<Vec<Given>> {
    let line = comments.iter().find(|words| words.len() > skip && words.starts_with(line));
    let mut words = line.map_or(&[][..], |words| &words[skip..]).iter().peekable();
    let mut all = Vec::new();
    while let Some(view) = words.next() {
        let vector = number(find(comments, view)?.last().copied().unwrap_or_default())?;
        let by = words.next_if(|word| **word == "by").and_then(|_| words.next());
        let span = match by.copied() {
            None => Span::One,
            Some("row") => Span::Row,
            Some(columns) => Span::Columns(number(columns)?),
        };
        let dtype = buffers.next().ok_or("a view without a buffer")?.dtype;
        all.push(Given { dtype, vector, span });
    }
    Ok(all)
}

/// The line of comments that begins with a word.
fn find<'c, 's>(comments: &'c [Vec<&'s str>], word: &str) -> Compiled<&'c [&'s str]> {
    let found = comments.iter().find(|words| words.first() == Some(&word));
    found.map(Vec::as_slice).ok_or_else(|| format!("nothing declares {word:?}"))
}

fn number(word: &str) -> Compiled<u32> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

/// The tiling in a name such as `matmul.f16.128x128x32.2x2.s3`, or of the group level `matmul.f16.128x256x64.g2.s4`, where teams take turns with `.t2` behind it.
fn tiling(name: &str, bands: u32) -> Compiled<Tiling> {
    let numbers = |word: &str| word.split('x').map(number).collect::<Compiled<Vec<u32>>>();
    let words: Vec<&str> = name.split('.').collect();
    let (&["matmul" | "conv" | "grouped", _, tile, warps, stages], rest) = words.split_at(words.len().min(5))
    else {
        return Err(format!("{name:?} is no matmul, grouped or not, and no convolution"));
    };
    let stages = number(stages.trim_start_matches('s'))?;
    let teams = match rest {
        [] => 0,
        [teams] => number(teams.trim_start_matches('t'))?,
        _ => return Err(format!("{name:?} has more than a tiling")),
    };
    let groups = warps.starts_with('g');
    let warps = match warps.strip_prefix('g') {
        Some(groups) => vec![number(groups)?.saturating_mul(GROUP_WARPS), 1],
        None => numbers(warps)?,
    };
    match (&numbers(tile)?[..], &warps[..]) {
        (&[m, n, k], &[rows, cols]) => {
            Ok(Tiling { tile: (m, n, k), warps: (rows, cols), stages, bands, groups, teams })
        }
        _ => Err(format!("{name:?} has no tiling")),
    }
}

#[cfg(test)]
mod tests;
