//! Matmul: `result[b] = epilogue(prologue(left[b]) · prologue(right[b]))`, with sums in f32.
//!
//! A workgroup computes a tile of the result, each of its warps a part of that. Along the depth it goes in steps, whose parts of the operands
//! are copied to workgroup memory ahead of it. Sizes are uniforms; what is beyond an edge is read as 0 and not stored. Each result is one
//! chain of sums in order of the depth, in groups of the matrix instruction's depth, so all tilings of one architecture give the
//! same bits.
//!
//! With [`Matmul::parts`] the depth is divided among workgroups ("split-K"): the first dimension of the batch counts its parts, and what is stored are sums
//! of a part, which another step adds up. The parts are neighbours, so operands have strides from part to part as from batch to batch; a window's columns are
//! numbered through all parts, and its stride is 0.

use rlx_ir::{DType, Error, ErrorKind, Result};
use rlx_kernel::TypeSupport;
use rlx_kernel::build::Builder;
use rlx_kernel::ir::{Access, Buffer, BufferDecl, Value};

use super::grouped;
use super::matmul_groups::matmul_groups;
use super::matmul_tensors::matmul_tensors;
use super::tilings::Tiling;
use crate::atom::{Arch, Atom, Loading, Vendor};
use crate::beside::{Beside, Span};
use crate::ir::{
    Coord, Copy, Counter, Fragment, FragmentDecl, Grid, Index, Program, Role, Size, Stage, Stmt, Tile,
    TileDecl, View, ViewDecl,
};
use crate::layout::Swizzle;
use crate::lookup::Lookup;
use crate::scalar::{Place, Scalar};
use crate::window::Slide;

/// An operand, or the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// Its element type: f32, f16 or bf16; of left and right also integers of 4 or 8 bits, of which 8 are accessed at once.
    pub dtype: DType,
    /// It is stored with rows and columns exchanged: the left operand as depth × rows, the right one as columns × depth.
    pub transposed: bool,
    /// So many neighbouring elements are accessed at once: 1, 2, 4 or 8, at most 16 bytes. With more than 1, elements of a stored row are
    /// neighbours, and base, strides and the length of stored rows are multiples of it.
    pub vector: u32,
}

/// Numbers that the body of an operand is given beside each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// Their type: f32, f16 or bf16.
    pub dtype: DType,
    /// As [`Operand::vector`]; 1 where elements share a number.
    pub vector: u32,
    /// Which elements share one.
    pub span: Span,
}

/// What a matmul computes, apart from its sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Matmul {
    /// The type that is multiplied: f16, bf16, or on Apple's devices f32; operands of another one are rounded to it.
    pub compute: DType,
    /// The left operand.
    pub left: Operand,
    /// The right operand.
    pub right: Operand,
    /// The result; `transposed` does not apply.
    pub result: Operand,
    /// Dimensions of the batch; with `parts`, the number of the part is the first.
    pub batch: usize,
    /// A workgroup sums over its part of the depth.
    pub parts: bool,
    /// Rows of both operands and of the result are looked up, so that a workgroup has rows of one group ([`Lists`](super::Lists)): the batch is the tiles of all
    /// groups, each of as many rows as a workgroup has.
    pub grouped: bool,
    /// Rows of the left operand are windows that slide over images, which it is stored as: along how many dimensions, and how.
    pub window: Vec<Slide>,
    /// What the body of the left operand is given beside an element, in the order of its variables.
    pub left_with: Vec<Given>,
    /// The same of the right operand.
    pub right_with: Vec<Given>,
    /// What the epilogue is given beside a sum: of the rows and columns of the result.
    pub result_with: Vec<Given>,
    /// The last of these is what the result is stored over: it has no buffer of its own.
    pub over: bool,
    /// Buffers that the bodies read, behind those of left, right, result and what bodies are given.
    pub buffers: Vec<BufferDecl>,
    /// Uniforms of the bodies, behind those of the matmul.
    pub uniforms: Vec<String>,
    /// What becomes of elements of the left operand; not for what is beyond its edge.
    pub left_map: Option<Scalar>,
    /// The same of the right operand.
    pub right_map: Option<Scalar>,
    /// What becomes of sums before they are stored.
    pub epilogue: Option<Scalar>,
}

/// Where elements of an operand are: element `i` of batch `(b0, …)` and stored row `r`, column `c` is at `base + Σ b·batch + r·row + c·col`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strides {
    /// The first element.
    pub base: i32,
    /// From stored row to row.
    pub row: i32,
    /// From column to column; 1 where several are accessed at once.
    pub col: i32,
    /// From batch to batch; 0 repeats.
    pub batch: Vec<i32>,
}

/// The sizes of one dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Rows of the result.
    pub m: i32,
    /// Columns.
    pub n: i32,
    /// Depth.
    pub k: i32,
    /// How much of the depth is a part, where it is divided.
    pub part: i32,
    /// The batch.
    pub batch: Vec<i32>,
    /// Where rows are looked up, where the lists of left rows and of the result's begin behind that of groups, and how many left rows, groups and rows of the result there are.
    pub lists: Vec<i32>,
    /// With a window its channels, then the places, the size and the step of each of its dimensions.
    pub window: Vec<i32>,
    /// The left operand.
    pub left: Strides,
    /// The right operand.
    pub right: Strides,
    /// The result.
    pub result: Strides,
    /// What the bodies of the operands are given, the left one's before the right one's, and behind them what the epilogue is given.
    pub given: Vec<Strides>,
}

impl Matmul {
    /// A matmul of one type without a batch, its operands stored as rows × depth and depth × columns, 16 bytes accessed at once.
    pub fn new(dtype: DType) -> Self {
        let operand = Operand { dtype, transposed: false, vector: if dtype == DType::F32 { 4 } else { 8 } };
        Matmul {
            compute: dtype,
            left: operand,
            right: operand,
            result: Operand { vector: 2, ..operand },
            batch: 0,
            parts: false,
            grouped: false,
            window: Vec::new(),
            left_with: Vec::new(),
            right_with: Vec::new(),
            result_with: Vec::new(),
            over: false,
            buffers: Vec::new(),
            uniforms: Vec::new(),
            left_map: None,
            right_map: None,
            epilogue: None,
        }
    }

    /// What its programs are called.
    pub(super) fn kind(&self) -> &'static str {
        match (self.grouped, self.window.is_empty()) {
            (true, _) => "grouped",
            (false, true) => "matmul",
            (false, false) => "conv",
        }
    }

    /// What bodies are given, with the operand that it is beside.
    pub(super) fn given(&self) -> impl Iterator<Item = (&Operand, &Given)> {
        let of_left = self.left_with.iter().map(|given| (&self.left, given));
        let of_right = self.right_with.iter().map(|given| (&self.right, given));
        of_left.chain(of_right).chain(self.result_with.iter().map(|given| (&self.result, given)))
    }

    /// The program's buffers: left, right, result, what bodies are given, and those of the bodies.
    pub fn all_buffers(&self) -> Vec<BufferDecl> {
        let of =
            |name: &str, o: &Operand, access| BufferDecl { name: name.to_owned(), dtype: o.dtype, access };
        let mut all = vec![
            of("left", &self.left, Access::Read),
            of("right", &self.right, Access::Read),
            of("result", &self.result, Access::Write),
        ];
        let given = self.given().take(self.given().count().saturating_sub(usize::from(self.over)));
        all.extend(given.enumerate().map(|(i, (_, given))| BufferDecl {
            name: format!("given{i}"),
            dtype: given.dtype,
            access: Access::Read,
        }));
        all.extend(self.grouped.then(|| BufferDecl {
            name: "lists".to_owned(),
            dtype: grouped::LIST,
            access: Access::Read,
        }));
        all.extend(self.buffers.iter().cloned());
        all
    }

    /// The names of the program's uniforms: m, n, k, the batch, the base and strides of each operand and of what bodies are given, with parts the size of
    /// one, those of lists, those of a window, and those of the bodies.
    pub fn all_uniforms(&self) -> Vec<String> {
        let mut all: Vec<String> = ["m", "n", "k"].map(String::from).to_vec();
        all.extend((0..self.batch).map(|i| format!("batch{i}")));
        let given = (0..self.given().count()).map(|i| format!("given{i}"));
        for name in ["left", "right", "result"].map(String::from).into_iter().chain(given) {
            all.extend(["base", "row", "col"].map(|what| format!("{name}.{what}")));
            all.extend((0..self.batch).map(|i| format!("{name}.batch{i}")));
        }
        all.extend(self.parts.then(|| "part".to_owned()));
        all.extend(grouped::UNIFORMS.iter().filter(|_| self.grouped).map(|name| (*name).to_owned()));
        all.extend(self.window_uniforms());
        all.extend(self.uniforms.iter().cloned());
        all
    }

    /// The values of the uniforms, without those of the bodies.
    pub fn uniform_values(&self, sizes: &Sizes) -> Vec<i32> {
        let mut all = vec![sizes.m, sizes.n, sizes.k];
        all.extend(&sizes.batch);
        for strides in [&sizes.left, &sizes.right, &sizes.result].into_iter().chain(&sizes.given) {
            all.extend([strides.base, strides.row, strides.col]);
            all.extend(&strides.batch);
        }
        all.extend(self.parts.then_some(sizes.part));
        all.extend(&sizes.lists);
        all.extend(&sizes.window);
        all
    }

    /// The number of the first uniform of the bodies.
    pub fn first_uniform(&self) -> usize {
        self.first_of_window() + self.window_uniforms().count()
    }

    /// The number of the first uniform of the window.
    pub(super) fn first_of_window(&self) -> usize {
        self.first_of_lists() + if self.grouped { grouped::UNIFORMS.len() } else { 0 }
    }

    /// The number of the first uniform of lists.
    pub(super) fn first_of_lists(&self) -> usize {
        self.part_uniform() + usize::from(self.parts)
    }

    /// How the rows of an operand are looked up, if they are.
    fn looked_up(&self, number: u32) -> Option<Lookup> {
        let (first, strides) = (self.first_of_lists() as u32, 3 + self.batch as u32);
        grouped::lookup(number, (first, strides), Size::Uniform(M)).filter(|_| self.grouped)
    }

    /// The number of the uniform that says how much of the depth is a part, if it is divided.
    fn part_uniform(&self) -> usize {
        3 + self.batch + (3 + self.given().count()) * (3 + self.batch)
    }

    /// How far a workgroup goes along the depth.
    fn depth(&self) -> Size {
        match self.parts {
            true => Size::Part { whole: K, each: self.part_uniform() as u32 },
            false => Size::Uniform(K),
        }
    }

    /// A body over the program's buffers and uniforms; state buffers and uniforms before.
    pub fn scalar(&self, name: &str, f: impl FnOnce(&mut Builder, Value, Place) -> Value) -> Scalar {
        Scalar::new(name, &self.all_buffers(), &self.all_uniforms(), f)
    }

    /// The views of what bodies are given, each with the rows and columns of its operand.
    pub(super) fn given_views(&self) -> impl Iterator<Item = ViewDecl> {
        let (of_left, of_right) = (self.left_with.len(), self.right_with.len());
        self.given().enumerate().map(move |(i, (operand, given))| {
            let sizes = match i {
                _ if i < of_left => (M, K),
                _ if i < of_left + of_right => (K, N),
                _ => (M, N),
            };
            let sizes = if operand.transposed { (sizes.1, sizes.0) } else { sizes };
            self.view(3 + i as u32, &Operand { vector: given.vector, ..*operand }, sizes)
        })
    }

    /// The statement that stores sums, with its epilogue.
    pub(super) fn store(&self, from: Fragment, row: Index, col: Index) -> Stmt {
        let first = 3 + self.left_with.len() + self.right_with.len();
        let with = (first as u32..).zip(&self.result_with);
        let with = with.map(|(view, given)| Beside { view: View(view), span: given.span }).collect();
        Stmt::Store { to: View(2), from, row, col, with, map: self.epilogue.clone() }
    }

    /// The statements that fetch ahead what the epilogue is given for so many rows and columns from these on. NVIDIA's compiler does not keep enough reads of an
    /// epilogue under way: of a residual of 51 MB, an H200 takes 110 µs, where memory would take 15.
    pub(super) fn prefetches(&self, arch: Arch, at: (Index, Index), size: (u32, u32)) -> Vec<Stmt> {
        let first = 3 + self.left_with.len() + self.right_with.len();
        let given = (first as u32..).zip(&self.result_with);
        // What is not read several at once may be anywhere, column by column.
        let is_of_rows = |given: &Given| given.span == Span::One && given.vector > 1;
        let given = given.filter(|(_, given)| is_of_rows(given) && arch.vendor() == Vendor::Nvidia);
        let prefetch = |(view, _): (u32, &Given)| Stmt::Prefetch {
            from: View(view),
            row: at.0.clone(),
            col: at.1.clone(),
            rows: size.0,
            cols: size.1,
        };
        given.map(prefetch).collect()
    }

    pub(super) fn batch_sizes(&self, first: usize) -> Vec<Size> {
        (first..first + self.batch).map(|i| Size::Uniform(i as u32)).collect()
    }

    pub(super) fn view(&self, number: u32, operand: &Operand, (rows, cols): (u32, u32)) -> ViewDecl {
        let first = 3 + self.batch + number as usize * (3 + self.batch);
        let uniform = |i: usize| Size::Uniform((first + i) as u32);
        let size = |i: u32| if i == K { self.depth() } else { Size::Uniform(i) };
        let over = self.over && number as usize == 2 + self.given().count();
        ViewDecl {
            buffer: Buffer(if over { 2 } else { number }),
            base: uniform(0),
            rows: size(rows),
            cols: size(cols),
            row_stride: uniform(1),
            heads: None,
            window: if number == 0 { self.window_of_left() } else { None },
            lookup: self.looked_up(number),
            col_stride: if operand.vector > 1 { Size::Const(1) } else { uniform(2) },
            batch: match self.grouped {
                // Lists say where a tile's rows are.
                true => vec![Size::Const(0); self.batch],
                false => self.batch_sizes(first + 3),
            },
            vector: operand.vector,
        }
    }
}

pub(super) const M: u32 = 0;
pub(super) const N: u32 = 1;
pub(super) const K: u32 = 2;

/// The program of a matmul.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where the architecture has no instruction for the type, or the tiling does not fit the architecture or itself.
pub fn matmul(arch: Arch, what: &Matmul, tiling: &Tiling) -> Result<Program> {
    let unsupported = |why: String| {
        Error::new(ErrorKind::Unsupported, format!("matmul {} on {}: {why}", tiling.name(), arch.name()))
    };
    match (tiling.groups, arch) {
        (true, Arch::Sm90a) => return matmul_groups(what, tiling),
        (true, Arch::Sm100a) => return matmul_tensors(what, tiling),
        (true, _) => return Err(unsupported("the group level is that of sm_90a and sm_100a".to_owned())),
        (false, _) => {}
    }
    let Some(atom) = Atom::of(arch, what.compute) else {
        return Err(unsupported(format!("no matrix instruction multiplies {}", what.compute)).with_hint(
            "f16 needs sm_75, AMD's or Apple's matrix instructions, bf16 sm_80 or those, f32 Apple's",
        ));
    };
    if let Some(why) = unsaid(arch, what).or_else(|| refused_in_groups(what)) {
        return Err(unsupported(why));
    }
    let ((tm, tn, tk), (wr, wc)) = (tiling.tile, tiling.warps);
    // Copies through registers run one stage ahead.
    let as_is = |o: &Operand, map: &Option<Scalar>| map.is_none() && o.dtype == what.compute;
    let ahead = as_is(&what.left, &what.left_map) && as_is(&what.right, &what.right_map);
    let tiling = &Tiling { stages: if ahead { tiling.stages } else { tiling.stages.min(2) }, ..*tiling };
    let block = atom.block;
    let whole =
        |size: u32, parts: u32| (1..=32).contains(&parts) && size > 0 && size.is_multiple_of(parts * block);
    if !(whole(tm, wr) && whole(tn, wc) && tk > 0 && tk.is_multiple_of(atom.depth)) {
        return Err(unsupported(format!("warps multiply blocks of {block}, over a depth of {}", atom.depth)));
    }
    let what = &for_language(arch, what)?;
    let program = Schedule { arch, atom, what, tiling, warp: (tm / wr, tn / wc) }.program();
    // What is too large for the architecture is said by the verifier.
    crate::verify::verify(&program).map_err(|v| unsupported(v.to_string()))?;
    Ok(program)
}

/// What of a matmul no lists of rows go with.
fn refused_in_groups(what: &Matmul) -> Option<String> {
    let plain = what.batch == 1
        && !what.parts
        && what.window.is_empty()
        && !what.left.transposed
        && what.given().count() == 0
        && [&what.left_map, &what.right_map, &what.epilogue].iter().all(|map| map.is_none());
    (what.grouped && !plain)
        .then(|| "rows in groups are multiplied as they are, in one batch of tiles".to_owned())
}

/// What of a matmul the architecture's language cannot say: WGSL reads and writes buffers of 16 and 32 bits, and of 16 bits only half precision.
fn unsaid(arch: Arch, what: &Matmul) -> Option<String> {
    if arch.vendor() != Vendor::Khronos {
        return None;
    }
    let views = [what.left.dtype, what.right.dtype, what.result.dtype];
    let given = what.given().map(|(_, given)| given.dtype);
    let float = |dtype: &DType| matches!(dtype, DType::F16 | DType::F32);
    let read = |dtype: &DType| float(dtype) || matches!(dtype, DType::I32 | DType::U32);
    let mut others = views.into_iter().chain(given).filter(|dtype| !float(dtype));
    let mut bodies = what.buffers.iter().map(|buffer| buffer.dtype).filter(|dtype| !read(dtype));
    others.next().or_else(|| bodies.next()).map(|dtype| format!("its language has no buffer of {dtype}"))
}

/// The matmul with bodies that an architecture's language can say: the elementary functions of Metal and Vulkan are too far off, so they are computed by arithmetic.
fn for_language(arch: Arch, what: &Matmul) -> Result<Matmul> {
    let types = match arch.vendor() {
        Vendor::Nvidia | Vendor::Amd => return Ok(what.clone()),
        Vendor::Apple => TypeSupport::MSL,
        Vendor::Khronos => TypeSupport::WGSL_F16,
    };
    let mut what = what.clone();
    for map in [&mut what.left_map, &mut what.right_map, &mut what.epilogue].into_iter().flatten() {
        *map = map.emulated(types)?;
    }
    Ok(what)
}

struct Schedule<'m> {
    arch: Arch,
    atom: &'static Atom,
    what: &'m Matmul,
    tiling: &'m Tiling,
    /// Rows and columns of a warp's part.
    warp: (u32, u32),
}

const LEFT: Tile = Tile(0);
const RIGHT: Tile = Tile(1);
const SUM: Fragment = Fragment(0);
const A: Fragment = Fragment(1);
const B: Fragment = Fragment(2);

impl Schedule<'_> {
    fn program(&self) -> Program {
        let (arch, what, (tm, tn, tk)) = (self.arch, self.what, self.tiling.tile);
        let swapped = |o: &Operand, a: u32, b: u32| if o.transposed { (b, a) } else { (a, b) };
        let left = self.tile(swapped(&what.left, tm, tk), what.left.transposed);
        let right = self.tile(swapped(&what.right, tk, tn), !what.right.transposed);
        let (fragment, depth) = (|role, rows, cols| FragmentDecl { role, rows, cols }, self.atom.depth);
        Program {
            name: format!(
                "{}.{}.{}{}",
                what.kind(),
                what.compute,
                self.tiling.name(),
                if what.parts { ".parts" } else { "" }
            ),
            arch,
            dtype: what.compute,
            warps: self.tiling.warps,
            buffers: what.all_buffers(),
            uniforms: what.all_uniforms(),
            grid: Grid {
                rows: Size::Uniform(M),
                cols: Size::Uniform(N),
                tile: (tm, tn),
                batch: what.batch_sizes(3),
                // Tiles behind all groups.
                table: what.grouped.then_some(View(1)),
                bands: self.tiling.bands,
            },
            views: vec![
                what.view(0, &what.left, swapped(&what.left, M, K)),
                what.view(1, &what.right, swapped(&what.right, K, N)),
                what.view(2, &what.result, (M, N)),
            ]
            .into_iter()
            .chain(what.given_views())
            .collect(),
            tiles: vec![left, right],
            fragments: vec![
                fragment(Role::Sum, self.warp.0, self.warp.1),
                fragment(Role::Left, self.warp.0, depth),
                fragment(Role::Right, depth, self.warp.1),
            ],
            group: Default::default(),
            body: self.body(),
        }
    }

    /// A tile of so many rows and columns; lanes that load single elements of rows of the depth need another order of their chunks.
    fn tile(&self, (rows, cols): (u32, u32), depth_rows: bool) -> TileDecl {
        let (matrices, pad) = (self.atom.is_in_matrices(), self.atom.pad());
        if self.atom.loading == Loading::Matrix {
            let (dtype, stages) = (self.what.compute, self.tiling.stages);
            return TileDecl { dtype, rows, cols, stages, swizzle: Swizzle::NONE, pad, matrices };
        }
        let elements = depth_rows && matches!(self.atom.loading, Loading::Own(_));
        // Half of such a tile's columns may be unused: two rows of 16 elements would be in the same banks.
        let cols = if elements { cols.max(32) } else { cols };
        let swizzle = if elements { Swizzle::of_elements(cols, 8) } else { Swizzle::of(cols) };
        TileDecl { dtype: self.what.compute, rows, cols, stages: self.tiling.stages, swizzle, pad, matrices }
    }

    fn body(&self) -> Vec<Stmt> {
        let (what, (tm, tn, tk)) = (self.what, self.tiling.tile);
        let depth = Counter(0);
        let along = || Index::default().plus(Coord::Counter(depth), tk);
        let rows = Index::default().plus(Coord::GroupRow, tm);
        let cols = Index::default().plus(Coord::GroupCol, tn);
        let copy = |from: u32, to: Tile, (row, col): (Index, Index), map: &Option<Scalar>| {
            let (first, given) = match from {
                0 => (3, &what.left_with),
                _ => (3 + what.left_with.len() as u32, &what.right_with),
            };
            let beside = |(i, g): (u32, &Given)| Beside { view: View(first + i), span: g.span };
            Copy {
                from: View(from),
                row,
                col,
                to,
                stage: Stage { counter: Some(depth), ahead: 0 },
                with: (0..).zip(given).map(beside).collect(),
                map: map.clone(),
            }
        };
        let swapped = |o: &Operand, a: Index, b: Index| if o.transposed { (b, a) } else { (a, b) };
        let left = swapped(&what.left, rows.clone(), along());
        let right = swapped(&what.right, along(), cols.clone());
        let of_warp =
            (rows.clone().plus(Coord::WarpRow, self.warp.0), cols.clone().plus(Coord::WarpCol, self.warp.1));
        let mut body = what.prefetches(self.arch, of_warp.clone(), self.warp);
        body.extend([
            Stmt::Zero(SUM),
            Stmt::Pipelined {
                counter: depth,
                extent: what.depth(),
                below: None,
                step: tk,
                stages: self.tiling.stages,
                copies: vec![copy(0, LEFT, left, &what.left_map), copy(1, RIGHT, right, &what.right_map)],
                body: vec![self.multiply(depth)],
            },
            what.store(SUM, of_warp.0, of_warp.1),
        ]);
        body
    }

    /// Multiplies what one stage of the tiles has.
    fn multiply(&self, depth: Counter) -> Stmt {
        let step = Counter(1);
        let stage = Stage { counter: Some(depth), ahead: 0 };
        let along = || Index::default().plus(Coord::Counter(step), self.atom.depth);
        let load = |to, from, across: Index, depth_rows: bool| {
            let (row, col) = if depth_rows { (along(), across) } else { (across, along()) };
            Stmt::Load { to, from, stage, row, col, depth_rows, of_sums: false }
        };
        let rows = Index::default().plus(Coord::WarpRow, self.warp.0);
        let cols = Index::default().plus(Coord::WarpCol, self.warp.1);
        Stmt::For {
            counter: step,
            extent: Size::Const(self.tiling.tile.2),
            below: None,
            step: self.atom.depth,
            body: vec![
                load(A, LEFT, rows, self.what.left.transposed),
                load(B, RIGHT, cols, !self.what.right.transposed),
                Stmt::Mma { sum: SUM, left: A, right: B },
            ],
        }
    }
}
