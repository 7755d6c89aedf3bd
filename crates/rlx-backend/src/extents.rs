//! Extents at run time: every expression of a module evaluated once per binding of its symbols.
//!
//! Steps refer to a slot of the table instead of an expression, so that binding new dimensions walks one
//! flat list and then only reads numbers.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use rlx_ir::dim::Held;
use rlx_ir::lir::{Buffer, IoSlot, Operand, View, place_view};
use rlx_ir::maps::HashMap;
use rlx_ir::sort::sort;
use rlx_ir::{DType, Error, ErrorKind, Extent, LirModule, Result, Weight, sym};

/// A number that is known, or a slot of the [`ExtentTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ex {
    /// A number.
    Const(i64),
    /// What slot `.0` holds.
    Slot(u32),
}

/// The distinct symbolic expressions of a module.
#[derive(Debug, Default)]
pub struct ExtentTable {
    exprs: Vec<Extent>,
    ids: HashMap<Extent, u32>,
    held: Held,
    /// The places that were asked for since [`ExtentTable::forget_asked`].
    asked: Vec<u32>,
    /// The checks of views that other operands share, by the view's address and the elements of the buffer.
    views: HashMap<(usize, Extent), CheckedView>,
}

/// The check of a view that is shared.
#[derive(Debug)]
struct CheckedView {
    /// Keeps the view's address from being used again.
    _view: Arc<View>,
    extents: Arc<[Ex]>,
    /// How many more operands may ask.
    left: usize,
}

impl ExtentTable {
    /// The place of `e`.
    pub fn add(&mut self, e: Extent) -> Ex {
        if let Some(c) = e.as_const() {
            return Ex::Const(c);
        }
        let next = self.exprs.len() as u32;
        let id = *self.ids.entry(e).or_insert(next);
        if id == next {
            self.exprs.push(e);
            self.held.extent(e);
        }
        self.asked.push(id);
        Ex::Slot(id)
    }

    /// Notes that the place was asked for.
    fn ask(&mut self, e: Ex) {
        if let Ex::Slot(id) = e {
            self.asked.push(id);
        }
    }

    /// The check of a view that an operand before had. It is forgotten with the last one: a large model has many views.
    fn checked(&mut self, key: (usize, Extent)) -> Option<Arc<[Ex]>> {
        let Entry::Occupied(mut known) = self.views.entry(key) else { return None };
        known.get_mut().left -= 1;
        if known.get().left == 0 {
            return Some(known.remove().extents);
        }
        Some(Arc::clone(&known.get().extents))
    }

    /// Everything is prepared that will be: nothing is added any more.
    pub fn seal(&mut self) {
        (self.ids, self.views, self.asked) = Default::default();
        self.exprs.shrink_to_fit();
    }

    /// Begins to note which places are asked for.
    pub fn forget_asked(&mut self) {
        self.asked.clear();
    }

    /// The places that were asked for since, ascending: what binding a step reads whose extents were added.
    pub fn asked(&mut self) -> Box<[u32]> {
        sort(&mut self.asked);
        self.asked.dedup();
        self.asked.as_slice().into()
    }

    /// Evaluates every expression for `dims`, the values of `symbols` (as many, ascending).
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when an expression has a symbol that is not among `symbols`.
    pub fn eval(&self, symbols: &[u32], dims: &[i64], out: &mut Vec<i64>) -> Result<()> {
        self.eval_by(&|s| symbols.binary_search(&s).ok().and_then(|i| dims.get(i).copied()), out)
    }

    /// Evaluates every expression by the values that `value` gives.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when it does not know a symbol.
    pub fn eval_by(&self, value: &dyn Fn(u32) -> Option<i64>, out: &mut Vec<i64>) -> Result<()> {
        out.clear();
        self.exprs.iter().try_for_each(|&e| {
            out.push(number(e, value)?);
            Ok(())
        })
    }

    /// Evaluates some expressions again.
    ///
    /// # Errors
    /// As [`ExtentTable::eval_by`].
    pub fn eval_again(
        &self,
        slots: &[u32],
        value: &dyn Fn(u32) -> Option<i64>,
        out: &mut [i64],
    ) -> Result<()> {
        for &slot in slots {
            let at = slot as usize;
            if let (Some(&e), Some(to)) = (self.exprs.get(at), out.get_mut(at)) {
                *to = number(e, value)?;
            }
        }
        Ok(())
    }

    /// For each symbol, the places of the expressions that mention it.
    pub fn mentioning(&self) -> HashMap<u32, Vec<u32>> {
        let mut places: HashMap<u32, Vec<u32>> = HashMap::default();
        for (slot, e) in (0..).zip(&self.exprs) {
            e.symbols().into_iter().for_each(|symbol| places.entry(symbol).or_default().push(slot));
        }
        places
    }
}

/// The value of an expression.
fn number(e: Extent, value: &dyn Fn(u32) -> Option<i64>) -> Result<i64> {
    e.eval(value).ok_or_else(|| {
        let open = e.symbols().into_iter().find(|&s| value(s).is_none());
        let message = match open {
            Some(open) => format!("{e} needs a value for {}", sym::name(open)),
            None => format!("{e} overflows, or divides by zero, for these dimensions"),
        };
        Error::new(ErrorKind::Dimension, message)
    })
}

/// The evaluated table.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a>(pub &'a [i64]);

impl Values<'_> {
    /// The number that `e` stands for.
    pub fn get(&self, e: Ex) -> i64 {
        match e {
            Ex::Const(c) => c,
            Ex::Slot(i) => self.0[i as usize],
        }
    }

    /// The number as a size.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when it is negative or too large.
    pub fn size(&self, e: Ex) -> Result<usize> {
        let n = self.get(e);
        // i64::MAX is what saturated arithmetic gives.
        usize::try_from(n).ok().filter(|_| n < i64::MAX).ok_or_else(|| {
            Error::new(ErrorKind::Dimension, format!("these dimensions make an extent of {n}"))
        })
    }
}

/// How much a caller must give for each of a module's inputs or parameters.
///
/// Kernels read what is given in place, so an executable asks here before it uses any of it, whatever the caller says to
/// have checked.
#[derive(Debug)]
pub struct SlotSizes {
    slots: Vec<(String, DType, Ex)>,
}

impl SlotSizes {
    /// The sizes of `slots`, which are inputs or parameters of `lir`.
    pub fn new(slots: &[IoSlot], lir: &LirModule, table: &mut ExtentTable) -> Self {
        let size = |slot: &IoSlot| {
            let elements = lir.buffers[slot.operand.buffer.index()].elements;
            (slot.name.clone(), slot.operand.dtype, table.add(elements))
        };
        SlotSizes { slots: slots.iter().map(size).collect() }
    }

    /// The bytes of each at these values, into `out`.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] for a size that makes no sense.
    pub fn bytes(&self, values: &Values<'_>, out: &mut Vec<usize>) -> Result<()> {
        out.clear();
        (0..self.slots.len()).try_for_each(|index| {
            out.push(self.bytes_of(index, values)?);
            Ok(())
        })
    }

    /// Whether every slot was given the bytes that it needs at these values; `have` says how many it was given, `None` for
    /// one that holds nothing now.
    ///
    /// # Errors
    /// As [`SlotSizes::bytes`] and [`SlotSizes::check`].
    pub fn check_all(&self, values: &Values<'_>, have: impl Fn(usize) -> Option<usize>) -> Result<()> {
        (0..self.slots.len()).try_for_each(|index| match have(index) {
            Some(have) => self.check(index, have, self.bytes_of(index, values)?),
            None => Ok(()),
        })
    }

    fn bytes_of(&self, index: usize, values: &Values<'_>) -> Result<usize> {
        let &(ref name, dtype, elements) = &self.slots[index];
        let bytes = dtype.storage_bytes(values.size(elements)?);
        bytes
            .ok_or_else(|| Error::new(ErrorKind::Dimension, format!("{name:?} is larger than memory can be")))
    }

    /// Whether the `have` bytes given for slot `index` are the `want` that there must be.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] naming it.
    pub fn check(&self, index: usize, have: usize, want: usize) -> Result<()> {
        if have == want {
            return Ok(());
        }
        Err(self.wrong_size(index, have, want))
    }

    #[cold]
    fn wrong_size(&self, index: usize, have: usize, want: usize) -> Error {
        let name = self.slots.get(index).map_or("?", |(name, ..)| name);
        Error::new(ErrorKind::Binding, format!("{name:?} was given {have} bytes, the run needs {want}"))
            .with_hint("give as many elements of the declared type as the shape has")
    }

    /// Whether a weight can be parameter `index`: its type, and its size where that depends on no symbol. Gives whether it
    /// does depend on one, and so must be checked with the next values.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for a weight that cannot, or when there is no such parameter.
    pub fn check_weight(&self, index: usize, weight: &Weight) -> Result<bool> {
        let Some((name, dtype, elements)) = self.slots.get(index) else {
            return Err(Error::new(ErrorKind::Binding, format!("there is no parameter {index}")));
        };
        if weight.dtype() != *dtype {
            let message = format!("parameter {name:?} is {dtype}, and was given {}", weight.dtype());
            return Err(Error::new(ErrorKind::Binding, message));
        }
        let Ex::Const(elements) = *elements else { return Ok(true) };
        let want = usize::try_from(elements).ok().and_then(|n| dtype.storage_bytes(n));
        let have = weight.shape().size_bytes();
        self.check(index, have.unwrap_or(usize::MAX), want.unwrap_or(usize::MAX - 1)).map(|()| false)
    }
}

/// A view whose extents are entries of a table: what must hold of it before a step may use it. Operands that have one view of
/// buffers of one size share it.
#[derive(Debug, Clone)]
pub struct ViewCheck {
    /// The offset and the buffer's elements, then a dimension and a stride in turn.
    extents: Arc<[Ex]>,
}

impl ViewCheck {
    /// The check of an operand that looks into `buffer`.
    pub fn new(operand: &Operand, buffer: &Buffer, table: &mut ExtentTable) -> Self {
        let key = (Arc::as_ptr(&operand.view).addr(), buffer.elements);
        if let Some(extents) = table.checked(key) {
            extents.iter().for_each(|&e| table.ask(e));
            return ViewCheck { extents };
        }
        let view = &operand.view;
        let axes = view.dims.iter().zip(&*view.strides).flat_map(|(&d, &s)| [d, s]);
        let all = [view.offset, buffer.elements].into_iter().chain(axes);
        let extents: Arc<[Ex]> = all.map(|e| table.add(e)).collect();
        let left = Arc::strong_count(view) - 1;
        if left > 0 {
            let checked = CheckedView { _view: Arc::clone(view), extents: Arc::clone(&extents), left };
            table.views.insert(key, checked);
        }
        ViewCheck { extents }
    }

    /// How many elements the buffer holds.
    pub fn elements(&self) -> Ex {
        self.extents[1]
    }

    /// The dimensions and strides at these values, outermost first.
    pub fn axes<'a>(&'a self, values: &'a Values<'_>) -> impl Iterator<Item = (i64, i64)> + 'a {
        self.extents[2..].chunks_exact(2).map(|axis| (values.get(axis[0]), values.get(axis[1])))
    }

    /// Whether the view stays within its buffer at these values.
    ///
    /// # Errors
    /// As [`ViewCheck::place`].
    pub fn holds(&self, values: &Values<'_>) -> Result<()> {
        self.place(values).map(drop)
    }

    /// Where the view starts in its buffer at these values; `None` for a view without elements. A view that holds has
    /// sizes, offset and strides that fit memory when they are counted in bytes: see [`rlx_ir::lir::place_view`].
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] when it leaves its buffer, or an extent has no sensible value.
    pub fn place(&self, values: &Values<'_>) -> Result<Option<usize>> {
        place_view(values.get(self.extents[0]), self.axes(values), values.get(self.extents[1]))
    }
}
