//! Tile programs and choices as records.

use std::fmt::Display;
use std::sync::Arc;

use rlx_ir::lir::{LirModule, Step};
use rlx_ir::{DType, Error, ErrorKind, Result};
use rlx_kernel::ir::{Access, BufferDecl};
use rlx_kernel::stored::{ArgRecord, Extents, KernelRecord, ReadExtents, UniformRecord, fits_operand};
use rlx_kernel::{FewRows, Kernel, KernelHash, KernelTarget, Launch, UniformArg};
use rlx_tile::Program;
use rlx_tile::schedule::{Bound, PartLaunch, PartsLaunch, StepLaunch, Tiling};
use rlx_tile::stored::{FORMAT as PROGRAMS, ProgramRecord};
use serde::{Deserialize, Serialize};

use crate::tiles::{self, MatrixUnits, StepLists, StepParts, StepTiles, TileLaunches};

/// Raised whenever the bytes, or what a choice means, change.
const FORMAT: u32 = 3;

fn malformed(what: impl Display) -> Error {
    Error::new(ErrorKind::Malformed, format!("stored choices: {what}"))
}

#[derive(Serialize, Deserialize)]
struct ChoicesRecord {
    /// [`FORMAT`], and that of programs.
    format: (u32, u32),
    /// Distinct expressions in the text form; dispatches refer to them by position.
    extents: Vec<String>,
    programs: Vec<ProgramRecord>,
    joins: Vec<KernelRecord>,
    init: Vec<StepRecord>,
    run: Vec<StepRecord>,
}

/// See [`StepTiles`].
#[derive(Serialize, Deserialize)]
struct StepRecord {
    whole: Vec<WholeRecord>,
    lists: Option<ListsRecord>,
    parts: Vec<PartsRecord>,
    few: Vec<FewRecord>,
    checks: Vec<DispatchRecord>,
    without_library: bool,
    in_waves: bool,
}

#[derive(Serialize, Deserialize)]
struct DispatchRecord {
    /// Its place among programs or joins.
    code: u32,
    /// An operand each, or the scratch memory.
    bindings: Vec<Option<ArgRecord>>,
    uniforms: Vec<UniformRecord>,
    groups: u32,
}

#[derive(Serialize, Deserialize)]
struct WholeRecord {
    dispatch: DispatchRecord,
    tiling: Tiling,
    size: (u32, u32),
}

/// What makes the lists of each of the step's programs, and elements of their scratch memory.
#[derive(Serialize, Deserialize)]
struct ListsRecord {
    kernels: Vec<DispatchRecord>,
    scratch: u32,
}

#[derive(Serialize, Deserialize)]
struct PartsRecord {
    parts: DispatchRecord,
    join: DispatchRecord,
    count: u32,
    scratch: u32,
    rows: u32,
    most_rows: Option<u32>,
    tiling: Tiling,
}

#[derive(Serialize, Deserialize)]
struct FewRecord {
    name: String,
    dispatch: DispatchRecord,
    rows: u32,
    most_rows: i64,
}

/// The bytes of a module's tile programs and choices; the same for the same ones.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for what is not read back.
pub(crate) fn write(tiles: &TileLaunches) -> Result<Vec<u8>> {
    let rejected =
        |what: &str| Error::new(ErrorKind::Unsupported, format!("choices cannot be stored: {what}"));
    let mut extents = Extents::default();
    let mut steps = |steps: &[StepTiles]| steps.iter().map(|s| StepRecord::of(s, &mut extents)).collect();
    let (init, run) = (steps(&tiles.init), steps(&tiles.run));
    let programs: Vec<ProgramRecord> = tiles.programs.iter().map(|(_, p)| ProgramRecord::of(p)).collect();
    let joins: Vec<KernelRecord> = tiles.joins.iter().map(|(_, kernel)| KernelRecord::of(kernel)).collect();
    let record =
        ChoicesRecord { format: (FORMAT, PROGRAMS), extents: extents.texts, programs, joins, init, run };
    let bytes = postcard::to_allocvec(&record).map_err(|e| rejected(&e.to_string()))?;
    // What does not come back equal is not stored.
    let back: ChoicesRecord = postcard::from_bytes(&bytes).map_err(|e| rejected(&e.to_string()))?;
    for ((hash, _), program) in tiles.programs.iter().zip(back.programs) {
        if program.hash() != *hash {
            return Err(rejected("a program"));
        }
        program.program().map_err(|e| rejected(e.message()))?;
    }
    for ((hash, _), join) in tiles.joins.iter().zip(back.joins) {
        if join.kernel().map_err(|e| rejected(e.message()))?.hash() != *hash {
            return Err(rejected("a kernel"));
        }
    }
    Ok(bytes)
}

/// What [`write`] made these bytes of, where it fits the module and the device.
///
/// # Errors
/// [`ErrorKind::Malformed`] for what does not.
pub(crate) fn read(
    bytes: &[u8],
    lir: &LirModule,
    units: Option<MatrixUnits>,
    target: &KernelTarget,
) -> Result<TileLaunches> {
    let record = match postcard::take_from_bytes::<ChoicesRecord>(bytes) {
        Ok((record, [])) if record.format == (FORMAT, PROGRAMS) => record,
        Ok((record, [])) => return Err(malformed(format!("format {:?}", record.format))),
        Ok((_, rest)) => return Err(malformed(format!("{} bytes too many", rest.len()))),
        Err(e) => return Err(malformed(e)),
    };
    let mut tiles = TileLaunches::default();
    for stored in record.programs {
        let hash = stored.hash();
        tiles.programs.push((hash, Arc::new(fitting(stored.program()?, units, target)?)));
    }
    tiles.joins = record.joins.iter().map(|stored| stored.verified(target)).collect::<Result<_>>()?;
    let extents = ReadExtents::of(&record.extents, lir)?;
    for (init, records, steps) in [(true, record.init, &lir.init), (false, record.run, &lir.steps)] {
        if records.len() != steps.len() {
            return Err(malformed(format!("{} steps, the module has {}", records.len(), steps.len())));
        }
        for (record, step) in records.into_iter().zip(steps) {
            let reader = Reader { extents: &extents, step, tiles: &tiles };
            let (mut of, divided) = reader.step(record)?;
            if init && (!divided.is_empty() || of.lists.is_some()) {
                return Err(malformed("a step of the init program that has scratch memory"));
            }
            if divided.iter().any(|of| of.launch.scratch != divided[0].launch.scratch) {
                return Err(malformed("parts of a step that need other scratch memory"));
            }
            let of_lists = of.lists.as_ref().map(|lists| (DType::I32, lists.elements));
            let of_parts = divided.first().map(|of| tiles::of_parts(&of.launch));
            let scratch = tiles.scratch_of(of_parts.or(of_lists));
            of.parts = divided.into_iter().map(|of| StepParts { scratch, ..of }).collect();
            of.lists.iter_mut().for_each(|lists| lists.scratch = scratch);
            if init { tiles.init.push(of) } else { tiles.run.push(of) }
        }
    }
    Ok(tiles)
}

/// A program that the device runs.
fn fitting(program: Program, units: Option<MatrixUnits>, target: &KernelTarget) -> Result<Program> {
    let runs = units.is_some_and(|units| {
        [units.arch, units.arch.of_warps()].contains(&program.arch)
            && tiles::fits(&program, units, &target.limits)
    });
    match runs {
        true => Ok(program),
        false => {
            Err(malformed(format!("{:?} of {} is not for this device", program.name, program.arch.name())))
        }
    }
}

impl DispatchRecord {
    fn new(
        code: usize,
        bindings: impl Iterator<Item = Bound>,
        uniforms: &[UniformArg],
        groups: rlx_ir::Extent,
        extents: &mut Extents,
    ) -> Self {
        let binding = |bound| match bound {
            Bound::Operand(arg) => Some(ArgRecord::of(arg)),
            Bound::Scratch => None,
        };
        DispatchRecord {
            code: code as u32,
            bindings: bindings.map(binding).collect(),
            uniforms: uniforms.iter().map(|u| extents.uniform(u)).collect(),
            groups: extents.add(groups),
        }
    }

    fn of<P>(code: usize, of: &PartLaunch<P>, extents: &mut Extents) -> Self {
        DispatchRecord::new(code, of.bindings.iter().copied(), &of.uniforms, of.groups, extents)
    }
}

impl StepRecord {
    fn of(step: &StepTiles, x: &mut Extents) -> Self {
        // Every field is named, so that a new one cannot be forgotten. What reports numbers of lists is among the step's own.
        let &StepTiles { ref whole, ref lists, ref parts, ref few, ref checks, without_library, in_waves } =
            step;
        let of_whole = |(at, of): &(usize, StepLaunch)| {
            let StepLaunch { program: _, bindings, uniforms, groups, tiling, size, checks: _, lists: _ } = of;
            let dispatch = DispatchRecord::new(*at, bindings.iter().copied(), uniforms, *groups, x);
            WholeRecord { dispatch, tiling: *tiling, size: (x.add(size.0), x.add(size.1)) }
        };
        let whole = whole.iter().map(of_whole).collect();
        let lists = lists.as_ref().map(|StepLists { kernels, elements, scratch: _ }| ListsRecord {
            kernels: kernels.iter().map(|(at, of)| DispatchRecord::of(*at, of, x)).collect(),
            scratch: x.add(*elements),
        });
        let of_parts = |StepParts { program, join: joins, launch, scratch: _ }: &StepParts| {
            let PartsLaunch { parts, join, count, scratch, rows, most_rows, tiling } = launch;
            PartsRecord {
                parts: DispatchRecord::of(*program, parts, x),
                join: DispatchRecord::of(*joins, join, x),
                count: x.add(*count),
                scratch: x.add(*scratch),
                rows: x.add(*rows),
                most_rows: *most_rows,
                tiling: *tiling,
            }
        };
        let parts = parts.iter().map(of_parts).collect();
        let of_few = |(at, FewRows { name, launch, rows, most_rows }): &(usize, FewRows)| {
            let bindings = launch.bindings.iter().map(|&arg| Bound::Operand(arg));
            let dispatch = DispatchRecord::new(*at, bindings, &launch.uniforms, launch.groups, x);
            FewRecord { name: name.clone(), dispatch, rows: x.add(*rows), most_rows: *most_rows }
        };
        let few = few.iter().map(of_few).collect();
        let checks = checks.iter().map(|(at, of)| DispatchRecord::of(*at, of, x)).collect();
        StepRecord { whole, lists, parts, few, checks, without_library, in_waves }
    }
}

/// What dispatches of a step refer to.
struct Reader<'r> {
    extents: &'r ReadExtents,
    step: &'r Step,
    tiles: &'r TileLaunches,
}

/// Whether a dispatch may use scratch memory, how, and of which elements.
type ScratchUse = Option<(Access, DType)>;

impl Reader<'_> {
    /// The step without its parts, and these, whose scratch memory has no number yet.
    fn step(&self, record: StepRecord) -> Result<(StepTiles, Vec<StepParts>)> {
        let StepRecord { whole, lists, parts, few, checks, without_library, in_waves } = record;
        let lists = lists.map(|of| self.lists(&of)).transpose()?;
        if lists.as_ref().is_some_and(|lists| lists.kernels.len() != whole.len() || !parts.is_empty()) {
            return Err(malformed("lists of other programs than those that do a step"));
        }
        if in_waves && (whole.len(), parts.len(), few.len()) != (1, 1, 0) {
            return Err(malformed("waves of other than one program for whole tiles and one for parts"));
        }
        let in_lists = lists.as_ref().map(|_| (Access::Read, DType::I32));
        let whole = whole.into_iter().map(|of| self.whole(&of, in_lists)).collect::<Result<_>>()?;
        let few = few.into_iter().map(|of| self.few(of)).collect::<Result<_>>()?;
        let checks = checks.iter().map(|of| self.join(of, None)).collect::<Result<_>>()?;
        let divided = parts.iter().map(|of| self.parts(of)).collect::<Result<_>>()?;
        Ok((StepTiles { whole, lists, parts: Vec::new(), few, checks, without_library, in_waves }, divided))
    }

    fn whole(&self, of: &WholeRecord, scratch: ScratchUse) -> Result<(usize, StepLaunch)> {
        let (at, PartLaunch { code: program, bindings, uniforms, groups }) =
            self.program(&of.dispatch, scratch)?;
        let (tiling, checks) = (checked(of.tiling)?, Vec::new());
        let size = (self.extents.get(of.size.0)?, self.extents.get(of.size.1)?);
        Ok((at, StepLaunch { program, bindings, uniforms, groups, tiling, size, checks, lists: None }))
    }

    /// Lists, whose scratch memory has no number yet.
    fn lists(&self, of: &ListsRecord) -> Result<StepLists> {
        let written = Some((Access::Write, DType::I32));
        let kernels = of.kernels.iter().map(|of| self.join(of, written)).collect::<Result<_>>()?;
        Ok(StepLists { kernels, elements: self.extents.get(of.scratch)?, scratch: 0 })
    }

    fn few(&self, of: FewRecord) -> Result<(usize, FewRows)> {
        let (at, PartLaunch { code: kernel, bindings, uniforms, groups }) = self.join(&of.dispatch, None)?;
        let launch = Launch { kernel, bindings: operands(bindings)?, uniforms, groups };
        Ok((at, FewRows { name: of.name, launch, rows: self.extents.get(of.rows)?, most_rows: of.most_rows }))
    }

    fn parts(&self, of: &PartsRecord) -> Result<StepParts> {
        let (program, parts) = self.program(&of.parts, Some((Access::Write, DType::F32)))?;
        let (at, join) = self.join(&of.join, Some((Access::Read, DType::F32)))?;
        let [count, scratch, rows] = [of.count, of.scratch, of.rows].map(|at| self.extents.get(at));
        let (count, scratch, rows) = (count?, scratch?, rows?);
        let (most_rows, tiling) = (of.most_rows, checked(of.tiling)?);
        let launch = PartsLaunch { parts, join, count, scratch, rows, most_rows, tiling };
        Ok(StepParts { program, join: at, launch, scratch: 0 })
    }

    fn program(&self, of: &DispatchRecord, scratch: ScratchUse) -> Result<(usize, PartLaunch<Program>)> {
        self.dispatch(of, &self.tiles.programs, |p| (&p.buffers, p.uniforms.len()), scratch)
    }

    fn join(&self, of: &DispatchRecord, scratch: ScratchUse) -> Result<(usize, PartLaunch<Kernel>)> {
        self.dispatch(of, &self.tiles.joins, |k| (&k.buffers, k.uniforms.len()), scratch)
    }

    fn dispatch<P>(
        &self,
        of: &DispatchRecord,
        codes: &[(KernelHash, Arc<P>)],
        declared: impl Fn(&P) -> (&[BufferDecl], usize),
        scratch: ScratchUse,
    ) -> Result<(usize, PartLaunch<P>)> {
        let at = of.code as usize;
        let Some((_, code)) = codes.get(at) else {
            return Err(malformed(format!("code {at} of {}", codes.len())));
        };
        let (buffers, uniforms) = declared(code);
        if (of.bindings.len(), of.uniforms.len()) != (buffers.len(), uniforms) {
            return Err(malformed("a dispatch has as many bindings and uniforms as its code"));
        }
        let bound = |(record, buffer): (&Option<ArgRecord>, &BufferDecl)| match record {
            Some(arg) => {
                let arg = arg.operand(self.step)?;
                fits_operand(buffer, arg, self.step).map_err(malformed)?;
                Ok(Bound::Operand(arg))
            }
            None if Some((buffer.access, buffer.dtype)) == scratch => Ok(Bound::Scratch),
            None => Err(malformed(
                "scratch memory is f32 of parts, read by what joins them, or i32 of lists, read by programs",
            )),
        };
        let bindings = of.bindings.iter().zip(buffers).map(bound).collect::<Result<_>>()?;
        let uniforms =
            of.uniforms.iter().map(|u| self.extents.uniform(u, self.step)).collect::<Result<_>>()?;
        let groups = self.extents.get(of.groups)?;
        Ok((at, PartLaunch { code: Arc::clone(code), bindings, uniforms, groups }))
    }
}

/// What is bound to operands alone.
fn operands(bindings: Vec<Bound>) -> Result<Vec<rlx_kernel::Arg>> {
    let operand = |bound| match bound {
        Bound::Operand(arg) => Ok(arg),
        Bound::Scratch => Err(malformed("scratch memory of a step that is not divided")),
    };
    bindings.into_iter().map(operand).collect()
}

/// A tiling of tiles that are something.
fn checked(tiling: Tiling) -> Result<Tiling> {
    let (rows, cols, depth) = tiling.tile;
    if [rows, cols, depth, tiling.warps.0, tiling.warps.1, tiling.stages].contains(&0) {
        return Err(malformed("a tiling of nothing"));
    }
    Ok(tiling)
}

#[cfg(test)]
mod tests;
