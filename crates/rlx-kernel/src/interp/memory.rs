//! Memory as the interpreter sees it: pools of bytes, bindings into them, workgroup memory, and the shadows
//! that find races.

use half::{bf16, f16};
use rlx_ir::DType;

use crate::ir::{Access, BufferDecl, Shared, SharedDecl};

/// What a buffer of a kernel is bound to: a range of bytes of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// Which pool.
    pub pool: usize,
    /// Where the range starts.
    pub offset: usize,
    /// How long it is.
    pub len: usize,
}

impl Binding {
    /// Element `index` of type `dtype`, when it is within the range.
    ///
    /// # Errors
    /// The index and how many elements there are.
    pub fn element(&self, index: i32, dtype: DType) -> Result<usize, String> {
        let elements = self.len * 8 / dtype.bits();
        match usize::try_from(index) {
            Ok(i) if i < elements => Ok(i),
            _ => Err(format!("element {index} of a buffer of {elements} {dtype} elements")),
        }
    }
}

/// Ranges of memory.
#[derive(Debug, Clone, Default)]
pub struct Pools(pub Vec<Vec<u8>>);

impl Pools {
    /// Whether a range is within its pool.
    ///
    /// # Errors
    /// The range.
    pub fn check(&self, b: &Binding) -> Result<(), String> {
        let inside =
            self.0.get(b.pool).is_some_and(|p| b.offset.checked_add(b.len).is_some_and(|end| end <= p.len()));
        if inside { Ok(()) } else { Err(format!("{b:?} is not within its pool")) }
    }

    fn bytes<const N: usize>(&self, b: &Binding, element: usize) -> [u8; N] {
        let at = b.offset + element * N;
        let mut out = [0; N];
        out.copy_from_slice(&self.0[b.pool][at..at + N]);
        out
    }

    /// The element (already checked), as the bits of a value of its type of computation.
    pub fn load(&self, b: &Binding, element: usize, dtype: DType) -> u64 {
        if dtype.is_packed() {
            let (bits, per_byte) = (dtype.bits(), 8 / dtype.bits());
            let up = self.0[b.pool][b.offset + element / per_byte] << (8 - bits * (element % per_byte + 1));
            let signed = u64::from((up as i8 >> (8 - bits)) as i32 as u32);
            return if dtype.is_signed_int() { signed } else { u64::from(up >> (8 - bits)) };
        }
        match dtype {
            DType::F16 => u64::from(f16::from_le_bytes(self.bytes(b, element)).to_f32().to_bits()),
            DType::BF16 => u64::from(bf16::from_le_bytes(self.bytes(b, element)).to_f32().to_bits()),
            DType::I8 => u64::from(i32::from(self.bytes::<1>(b, element)[0] as i8) as u32),
            DType::I16 => u64::from(i32::from(i16::from_le_bytes(self.bytes(b, element))) as u32),
            DType::Bool => u64::from(self.bytes::<1>(b, element)[0] != 0),
            _ => match dtype.bits() {
                8 => u64::from(self.bytes::<1>(b, element)[0]),
                16 => u64::from(u16::from_le_bytes(self.bytes(b, element))),
                32 => u64::from(u32::from_le_bytes(self.bytes(b, element))),
                _ => u64::from_le_bytes(self.bytes(b, element)),
            },
        }
    }

    /// Writes the element (already checked), rounding to its type.
    pub fn store(&mut self, b: &Binding, element: usize, dtype: DType, bits: u64) {
        let pool = &mut self.0[b.pool];
        if dtype.is_packed() {
            let (width, per_byte) = (dtype.bits(), 8 / dtype.bits());
            let (byte, shift) = (&mut pool[b.offset + element / per_byte], width * (element % per_byte));
            let mask = 0xFF >> (8 - width);
            *byte = *byte & !(mask << shift) | ((bits as u8 & mask) << shift);
            return;
        }
        let stored = match dtype {
            DType::F16 => u64::from(f16::from_f32(f32::from_bits(bits as u32)).to_bits()),
            DType::BF16 => u64::from(bf16::from_f32(f32::from_bits(bits as u32)).to_bits()),
            _ => bits,
        };
        let n = dtype.size_bytes();
        let at = b.offset + element * n;
        pool[at..at + n].copy_from_slice(&stored.to_le_bytes()[..n]);
    }
}

/// Nobody used an element.
const NOBODY: u32 = u32::MAX;
/// Several invocations read an element.
const SEVERAL: u32 = u32::MAX - 1;

/// Who wrote and who read which element of a buffer in this dispatch, where the kernel writes it: invocations run in any order, so what
/// one writes is no one else's to use.
pub(super) struct Users(Option<Vec<(u32, u32)>>);

impl Users {
    pub fn new(decl: &BufferDecl, binding: &Binding) -> Self {
        let elements = binding.len * 8 / decl.dtype.bits();
        Users((decl.access == Access::Write).then(|| vec![(NOBODY, NOBODY); elements]))
    }

    pub fn write(&mut self, element: usize, who: u32) -> Result<(), String> {
        let Some(users) = &mut self.0 else { return Ok(()) };
        let (writer, reader) = &mut users[element];
        let old = std::mem::replace(writer, who);
        if old != NOBODY && old != who {
            return Err(format!("invocations {old} and {who} both write element {element}"));
        }
        match *reader {
            NOBODY => Ok(()),
            reader if reader == who => Ok(()),
            _ => Err(format!("invocation {who} writes element {element}, which another one reads")),
        }
    }

    pub fn read(&mut self, element: usize, who: u32) -> Result<(), String> {
        let Some(users) = &mut self.0 else { return Ok(()) };
        let (writer, reader) = &mut users[element];
        *reader = if [NOBODY, who].contains(reader) { who } else { SEVERAL };
        if [NOBODY, who].contains(writer) {
            return Ok(());
        }
        Err(format!("invocation {who} reads element {element}, which invocation {writer} wrote"))
    }
}

/// One element of workgroup memory, and who used it since which barrier.
#[derive(Debug, Clone, Copy)]
struct Cell {
    bits: u64,
    /// The barrier count and lane of the last write; count 0 is "never".
    written: (u32, usize),
    /// The barrier count of the last read, its lane, and whether others read too.
    read: (u32, usize, bool),
}

/// Workgroup memory.
pub(super) struct SharedCells {
    arrays: Vec<Vec<Cell>>,
    barriers: u32,
}

impl SharedCells {
    pub fn new(decls: &[SharedDecl]) -> Self {
        let cell = Cell { bits: 0, written: (0, 0), read: (0, 0, false) };
        SharedCells { arrays: decls.iter().map(|d| vec![cell; d.len as usize]).collect(), barriers: 1 }
    }

    /// A new workgroup: nothing is written yet.
    pub fn reset(&mut self) {
        self.barriers = 1;
        for cell in self.arrays.iter_mut().flatten() {
            *cell = Cell { bits: 0, written: (0, 0), read: (0, 0, false) };
        }
    }

    pub fn barrier(&mut self) {
        self.barriers += 1;
    }

    fn cell(&mut self, s: Shared, index: i32) -> Result<&mut Cell, String> {
        let array = &mut self.arrays[s.index()];
        let len = array.len();
        usize::try_from(index)
            .ok()
            .and_then(|i| array.get_mut(i))
            .ok_or_else(|| format!("element {index} of workgroup memory s{} of {len}", s.0))
    }

    pub fn load(&mut self, s: Shared, index: i32, lane: usize) -> Result<u64, String> {
        let now = self.barriers;
        let cell = self.cell(s, index)?;
        let (when, who) = cell.written;
        if when == 0 {
            return Err(format!("element {index} of workgroup memory s{} is read before it is written", s.0));
        }
        if when == now && who != lane {
            return Err(format!("a race on s{}[{index}]: {lane} reads what {who} wrote", s.0));
        }
        let others = cell.read.0 == now && (cell.read.2 || cell.read.1 != lane);
        cell.read = (now, lane, others);
        Ok(cell.bits)
    }

    pub fn store(&mut self, s: Shared, index: i32, bits: u64, lane: usize) -> Result<(), String> {
        let now = self.barriers;
        let cell = self.cell(s, index)?;
        let (when, who) = cell.written;
        if when == now && who != lane {
            return Err(format!("a race on s{}[{index}]: {lane} and {who} write it", s.0));
        }
        let (read_when, reader, others) = cell.read;
        if read_when == now && (others || reader != lane) {
            return Err(format!("a race on s{}[{index}]: {lane} writes what {reader} reads", s.0));
        }
        cell.bits = bits;
        cell.written = (now, lane);
        Ok(())
    }
}
