//! Binding a run: which bytes each input comes from, and what the symbols' values are.
//!
//! A symbol's value comes from dimensions the caller states ([`super::CompiledGraph::set_dims`], tensors with
//! dimensions, an active extent), otherwise from an input whose length is known and that has one dynamic dimension. Every
//! length is then checked against the declared shape at these values.

use rlx_ir::{DType, DimBinding, Error, ErrorKind, LirModule, Result, Shape, SymRange, memory, sym};

use super::bytes::{AlignedBytes, copy_block};
use super::handles::Handle;
use super::request::{Data, Inputs};
use super::slot::{DimForm, Infos, Slot, UNKNOWN};
use rlx_backend::convert;
use rlx_ir::nearest;

/// Copies the value of an input's handle from the device that stores it.
pub(super) type DeviceHandle<'a> = dyn Fn(usize) -> Result<Vec<u8>> + 'a;

/// Where an input's bytes are in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Missing,
    /// The caller's item of this index, used directly.
    Given(usize),
    /// The input's handle, used directly.
    Handle,
    /// Converted or cropped into the input's staging buffer.
    Staged,
}

/// The bytes of a bound run, as the device reads them.
pub(super) struct BoundInputs<'a> {
    pub(super) given: &'a Inputs<'a>,
    pub(super) handles: &'a [Option<Handle>],
    pub(super) binder: &'a Binder,
}

impl rlx_backend::InputSource for BoundInputs<'_> {
    fn bytes(&self, index: usize) -> &[u8] {
        let whole = match (self.binder.sources[index], &self.handles[index]) {
            (Source::Given(item), _) => self.given.item(item).data.bytes(),
            (Source::Handle, Some(handle)) => handle.host_bytes(),
            (Source::Staged, _) => self.binder.staging[index].as_slice(),
            _ => &[],
        };
        // A crop of the outermost dimension alone is a prefix.
        &whole[..self.binder.inputs[index].run_bytes().unwrap_or(0)]
    }

    fn handle(&self, index: usize) -> Option<usize> {
        let source = (self.binder.sources[index], &self.handles[index]);
        let (Source::Handle, Some(handle)) = source else { return None };
        if handle.is_resident() { self.binder.inputs[index].run_bytes() } else { None }
    }
}

/// Binds runs of one graph; keeps its buffers from run to run.
#[derive(Debug, Clone)]
pub(super) struct Binder {
    pub(super) symbols: Vec<u32>,
    ranges: Vec<SymRange>,
    /// The dimensions set by [`super::CompiledGraph::set_dims`].
    fixed: Vec<i64>,
    /// The symbol of the active extent, its actual and upper value.
    active: Option<(usize, i64, i64)>,
    pub(super) inputs: Vec<Slot>,
    sources: Vec<Source>,
    staging: Vec<AlignedBytes>,
    /// The symbols' values as the caller sees them.
    pub(super) full: Vec<i64>,
    /// The symbols' values as the device computes.
    pub(super) run: Vec<i64>,
}

impl Binder {
    pub(super) fn new(lir: &LirModule, inputs: &Infos) -> Self {
        let open = vec![UNKNOWN; lir.symbols.len()];
        Binder {
            symbols: lir.symbols.clone(),
            ranges: lir.symbols.iter().map(|&s| lir.graph.symbol_range(s)).collect(),
            fixed: open.clone(),
            active: None,
            inputs: Slot::all(inputs, &lir.symbols),
            sources: vec![Source::Missing; lir.inputs.len()],
            staging: vec![AlignedBytes::default(); lir.inputs.len()],
            full: open.clone(),
            run: open,
        }
    }

    pub(super) fn set_fixed(&mut self, dims: &DimBinding) {
        for (value, &symbol) in self.fixed.iter_mut().zip(&self.symbols) {
            *value = dims.get(symbol).map_or(UNKNOWN, |n| i64::try_from(n).unwrap_or(i64::MAX));
        }
    }

    /// Whether only a part of an axis is computed.
    pub(super) fn has_active(&self) -> bool {
        self.active.is_some()
    }

    pub(super) fn set_active(&mut self, extent: Option<(usize, usize)>) -> Result<()> {
        let Some((actual, upper)) = extent else {
            self.active = None;
            return Ok(());
        };
        let position = |symbol: u32| self.symbols.binary_search(&symbol).ok();
        let Some(rows) = position(sym::ROWS).or_else(|| position(sym::SEQ)) else {
            let message = "an active extent needs a graph with an open dimension \"rows\" or \"seq\"";
            return Err(Error::new(ErrorKind::Dimension, message)
                .with_hint("compile without a binding for it: Dim::Dynamic(sym::ROWS)"));
        };
        let (Ok(actual), Ok(upper)) = (i64::try_from(actual), i64::try_from(upper)) else {
            return Err(Error::new(ErrorKind::Dimension, format!("{upper} rows are too many")));
        };
        if actual > upper {
            let message = format!("{actual} actual rows are more than the upper bound of {upper}");
            return Err(Error::new(ErrorKind::Dimension, message));
        }
        self.active = Some((rows, actual, upper));
        Ok(())
    }

    /// Binds one run.
    pub(super) fn bind(
        &mut self,
        given: &Inputs<'_>,
        handles: &[Option<Handle>],
        device_handle: &DeviceHandle<'_>,
    ) -> Result<()> {
        self.match_items(given, handles)?;
        self.start_symbols();
        for i in 0..self.inputs.len() {
            if let Some(dims) = self.stated_dims(i, given, handles) {
                self.unify(i, dims)?;
            }
        }
        self.solve(given, handles);
        self.check_symbols()?;
        self.run.copy_from_slice(&self.full);
        if let Some((rows, actual, _)) = self.active {
            self.run[rows] = actual;
        }
        for i in 0..self.inputs.len() {
            self.place(i, given, handles, device_handle)?;
        }
        Ok(())
    }

    /// Which item or handle each input comes from.
    fn match_items(&mut self, given: &Inputs<'_>, handles: &[Option<Handle>]) -> Result<()> {
        self.sources.fill(Source::Missing);
        for item in 0..given.count() {
            let input = match given.item(item).name {
                Some(name) => self.position(name)?,
                None if item < self.inputs.len() => item,
                None => return Err(self.too_many(given.count())),
            };
            if self.sources[input] != Source::Missing {
                let message = format!("input {:?} was given twice", self.inputs[input].name());
                return Err(Error::new(ErrorKind::Binding, message));
            }
            self.sources[input] = Source::Given(item);
        }
        for (i, source) in self.sources.iter_mut().enumerate() {
            if *source == Source::Missing && handles[i].is_some() {
                *source = Source::Handle;
            }
        }
        match self.sources.iter().position(|s| *s == Source::Missing) {
            Some(i) => {
                let slot = &self.inputs[i];
                let message = format!("input {:?} was not given; it is {}", slot.name(), slot.shape());
                let names: Vec<String> = self.inputs.iter().map(|s| format!("{:?}", s.name())).collect();
                let hint = format!("a run takes a value for every input: {}", names.join(", "));
                Err(Error::new(ErrorKind::Binding, message).with_hint(hint))
            }
            None => Ok(()),
        }
    }

    /// The position of the input called `name`.
    pub(super) fn position(&self, name: &str) -> Result<usize> {
        self.inputs.iter().position(|s| s.name() == name).ok_or_else(|| {
            let names = self.inputs.iter().map(|s| s.name());
            unknown_name("input", name, names)
        })
    }

    fn too_many(&self, count: usize) -> Error {
        let names: Vec<&str> = self.inputs.iter().map(|s| s.name()).collect();
        let message =
            format!("{count} inputs were given, the graph takes {}: {}", names.len(), names.join(", "));
        Error::new(ErrorKind::Binding, message)
    }

    fn start_symbols(&mut self) {
        self.full.copy_from_slice(&self.fixed);
        if let Some((rows, _, upper)) = self.active {
            self.full[rows] = upper;
        }
    }

    fn data<'a>(&self, i: usize, given: &'a Inputs<'a>, handles: &'a [Option<Handle>]) -> Option<Data<'a>> {
        match (self.sources[i], &handles[i]) {
            (Source::Given(item), _) => Some(given.item(item).data),
            (Source::Handle, Some(handle)) => Some(handle.data(self.inputs[i].dtype)),
            _ => None,
        }
    }

    fn stated_dims<'a>(
        &self,
        i: usize,
        given: &'a Inputs<'a>,
        handles: &'a [Option<Handle>],
    ) -> Option<&'a [usize]> {
        match (self.sources[i], &handles[i]) {
            (Source::Given(item), _) => given.item(item).dims,
            (Source::Handle, Some(handle)) => handle.dims(),
            _ => None,
        }
    }

    /// Takes the symbols' values from dimensions the caller states.
    fn unify(&mut self, i: usize, dims: &[usize]) -> Result<()> {
        let slot = &self.inputs[i];
        let shape_mismatch = |why: String| {
            let given = Shape::new(dims, slot.dtype);
            let message = format!("input {:?} is {}, but was given {given}", slot.name(), slot.shape());
            Err(Error::new(ErrorKind::Binding, message).with_hint(why))
        };
        if dims.len() != slot.rank() {
            return shape_mismatch(format!("it takes {} dimensions, not {}", slot.rank(), dims.len()));
        }
        for (d, &n) in dims.iter().enumerate() {
            match slot.form(d) {
                DimForm::Fixed(want) if want != n => {
                    return shape_mismatch(format!("dimension {d} must be {want}, not {n}"));
                }
                DimForm::Symbol(s) => {
                    let value = i64::try_from(n).unwrap_or(i64::MAX);
                    if self.full[s] != UNKNOWN && self.full[s] != value {
                        let (name, known) = (sym::name(self.symbols[s]), self.full[s]);
                        return shape_mismatch(format!(
                            "dimension {d}, {name}, is {known} everywhere else: it has one size in a run"
                        ));
                    }
                    self.full[s] = value;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Derives the remaining symbols from the inputs' lengths: for each input with one unknown symbol.
    fn solve(&mut self, given: &Inputs<'_>, handles: &[Option<Handle>]) {
        while self.full.contains(&UNKNOWN) {
            let mut progress = false;
            for i in 0..self.inputs.len() {
                let count = self.data(i, given, handles).and_then(|d| d.count(self.inputs[i].dtype));
                if let Some((symbol, value)) = count.and_then(|n| self.solve_one(i, n)) {
                    self.full[symbol] = value;
                    progress = true;
                }
            }
            if !progress {
                return;
            }
        }
    }

    /// The only unknown symbol of input `i`, from its element count.
    fn solve_one(&self, i: usize, count: usize) -> Option<(usize, i64)> {
        let slot = &self.inputs[i];
        let (mut unknown, mut times, mut rest) = (None, 0u32, 1usize);
        for d in 0..slot.rank() {
            match (slot.form(d), slot.dim_at(d, &self.symbols, &self.full)) {
                (_, Some(n)) => rest = rest.checked_mul(n)?,
                (DimForm::Symbol(s), None) if unknown.is_none_or(|u| u == s) => {
                    unknown = Some(s);
                    times += 1;
                }
                _ => return None,
            }
        }
        let (symbol, power) = (unknown?, count.checked_div(rest)?);
        let root =
            if times == 1 { power } else { (power as f64).powf(1.0 / f64::from(times)).round() as usize };
        Some((symbol, i64::try_from(root).ok()?))
    }

    /// Every symbol of an input must have a value within its range.
    fn check_symbols(&self) -> Result<()> {
        for (s, (&value, range)) in self.full.iter().zip(&self.ranges).enumerate() {
            let name = || sym::name(self.symbols[s]);
            if value == UNKNOWN {
                let message = format!("the inputs' lengths do not tell dimension \"{}\"", name());
                return Err(Error::new(ErrorKind::Dimension, message).with_hint(
                    "give it with set_dims, run tensors with dimensions, or compile with dim_binding",
                ));
            }
            if value < range.min || value > range.max {
                let message =
                    format!("dimension \"{}\" is {value}, outside of {}..={}", name(), range.min, range.max);
                return Err(Error::new(ErrorKind::Dimension, message));
            }
        }
        Ok(())
    }

    /// Checks input `i`'s length and, where its bytes cannot go to the device as they are, stages them.
    fn place(
        &mut self,
        i: usize,
        given: &Inputs<'_>,
        handles: &[Option<Handle>],
        device_handle: &DeviceHandle<'_>,
    ) -> Result<()> {
        let (data, stated) = (self.data(i, given, handles), self.stated_dims(i, given, handles));
        let slot = &mut self.inputs[i];
        let evaluated = slot.evaluate(&self.symbols, &self.full, &self.run);
        let (Some(data), true) = (data, evaluated) else {
            let message = format!("input {:?} has dimensions without a value: {}", slot.name(), slot.shape());
            return Err(Error::new(ErrorKind::Dimension, message));
        };
        let named = |e: Error, slot: &Slot| {
            Error::new(e.kind(), format!("input {:?}: {}", slot.name(), e.message())).with_source(e)
        };
        if let Data::Bytes(_, dtype) | Data::Resident(_, dtype) = data
            && dtype != slot.dtype
        {
            let message = format!("input {:?} is {}, but was given {dtype}", slot.name(), slot.shape());
            let hint = format!(
                "give {} elements; the variants of run that take f32 convert it where that is exact",
                slot.dtype
            );
            return Err(Error::new(ErrorKind::DType, message).with_hint(hint));
        }
        // Dimensions that are expressions were not looked at before the symbols had values.
        if let Some(dims) = stated.filter(|dims| *dims != slot.dims()) {
            let (here, given) = (Shape::new(slot.dims(), slot.dtype), Shape::new(dims, slot.dtype));
            let message =
                format!("input {:?} is {}, here {here}, but was given {given}", slot.name(), slot.shape());
            return Err(Error::new(ErrorKind::Binding, message));
        }
        check_length(slot, data)?;
        let whole_bytes = slot.bytes().unwrap_or(0);
        let staging = &mut self.staging[i];
        let convert = matches!(data, Data::F32(_)) && !matches!(slot.dtype, DType::F32 | DType::C64);
        // Device kernels read elements where they are; unaligned ones only come from byte slices.
        let aligned = matches!(data, Data::Resident(..))
            || data.bytes().as_ptr().addr().is_multiple_of(slot.dtype.size_bytes().min(8));
        let prefix = !slot.cropped() || slot.dims().get(1..) == slot.run_dims().get(1..);
        if !convert && aligned && prefix {
            return Ok(());
        }
        self.sources[i] = Source::Staged;
        if let Data::Resident(..) = data {
            return crop(slot, &device_handle(i)?, staging);
        }
        if let (Data::F32(values), true) = (data, convert) {
            let converted = staging.resize(whole_bytes, || allocation_label(slot))?;
            convert::from_f32(slot.dtype, values, converted).map_err(|e| named(e, slot))?;
            if !prefix {
                let whole = memory::copy(staging.as_slice(), || allocation_label(slot))?;
                crop(slot, &whole, staging)?;
            }
            return Ok(());
        }
        crop(slot, data.bytes(), staging)
    }
}

/// The part of an input that is computed, into its staging buffer.
fn crop(slot: &Slot, whole: &[u8], staging: &mut AlignedBytes) -> Result<()> {
    if slot.dtype.bits() < 8 && slot.cropped() {
        let message =
            format!("input {:?}: an active extent within packed {} elements", slot.name(), slot.dtype);
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let out = staging.resize(slot.run_bytes().unwrap_or(0), || allocation_label(slot))?;
    if !slot.cropped() {
        out.copy_from_slice(&whole[..out.len()]);
    } else if !out.is_empty() {
        copy_block(whole, slot.dims(), out, slot.run_dims(), slot.dtype.size_bytes());
    }
    Ok(())
}

fn allocation_label(slot: &Slot) -> String {
    format!("a copy of input {:?}, {}", slot.name(), slot.shape())
}

fn check_length(slot: &Slot, data: Data<'_>) -> Result<()> {
    let (want, found, unit) = match data {
        Data::F32(values) => {
            (slot.elements().map(|n| n * convert::floats_per_element(slot.dtype)), values.len(), "elements")
        }
        Data::Bytes(bytes, _) => (slot.bytes(), bytes.len(), "bytes"),
        Data::Resident(len, _) => (slot.bytes(), len, "bytes"),
    };
    if want == Some(found) {
        return Ok(());
    }
    let shape = Shape::new(slot.dims(), slot.dtype);
    let want = want.map_or_else(|| "more than there can be".to_string(), |n| n.to_string());
    let message = format!("input {:?} is {shape}: {want} {unit}, but {found} were given", slot.name());
    Err(Error::new(ErrorKind::Binding, message))
}

/// An error for an unknown name, with the closest name and all known names.
pub(super) fn unknown_name<'a>(
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Error {
    let all: Vec<&str> = names.clone().take(8).collect();
    let more = names.clone().count() - all.len();
    let list = match (all.len(), more) {
        (0, _) => format!("the graph has no {what}s"),
        (_, 0) => format!("{what}s: {}", all.join(", ")),
        _ => format!("{what}s: {}, and {more} more", all.join(", ")),
    };
    let error = Error::new(ErrorKind::Binding, format!("there is no {what} {name:?}; {list}"));
    match nearest(name, names) {
        Some(close) => error.with_hint(format!("did you mean {close:?}?")),
        None => error,
    }
}
