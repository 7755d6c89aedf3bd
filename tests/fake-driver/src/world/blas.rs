//! What the libraries for matmuls keep, and their arithmetic: descriptors of the host, matrices by columns, sums in f64 that are rounded
//! once, which is nobody's order of sums.

use std::collections::HashMap;

use half::{bf16, f16};

use super::{Context, Outcome, Rejected, code, reject};

/// The element types, by the vendors' numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    F32,
    F16,
    BF16,
}

impl Element {
    pub fn numbered(number: i32) -> Option<Element> {
        match number {
            0 => Some(Element::F32),
            2 => Some(Element::F16),
            14 => Some(Element::BF16),
            _ => None,
        }
    }

    pub fn bytes(self) -> u64 {
        if self == Element::F32 { 4 } else { 2 }
    }

    fn read(self, bytes: &[u8], at: u64) -> f64 {
        let at = (at * self.bytes()) as usize;
        let half = || [bytes[at], bytes[at + 1]];
        match self {
            Element::F32 => {
                f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]).into()
            }
            Element::F16 => f16::from_le_bytes(half()).to_f64(),
            Element::BF16 => bf16::from_le_bytes(half()).to_f64(),
        }
    }

    fn write(self, bytes: &mut [u8], at: u64, value: f64) {
        let at = (at * self.bytes()) as usize;
        match self {
            Element::F32 => bytes[at..at + 4].copy_from_slice(&(value as f32).to_le_bytes()),
            Element::F16 => bytes[at..at + 2].copy_from_slice(&f16::from_f64(value).to_le_bytes()),
            Element::BF16 => bytes[at..at + 2].copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
        }
    }
}

/// A matrix by columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    pub element: Element,
    pub rows: u64,
    pub columns: u64,
    pub leading: u64,
    pub batch: u64,
    /// Elements from one matrix to the next, once it was said.
    pub stride: Option<u64>,
}

impl Layout {
    /// The bytes from its first element to the end of its last one.
    pub fn bytes(&self) -> u64 {
        let last =
            (self.batch - 1) * self.stride.unwrap_or(0) + (self.columns - 1) * self.leading + self.rows;
        last * self.element.bytes()
    }

    /// Why it is none, if it is none.
    pub fn fault(&self) -> Option<String> {
        if self.leading < self.rows {
            return Some(format!("columns of {} elements, {} from one to the next", self.rows, self.leading));
        }
        (self.batch > 1 && self.stride.is_none()).then(|| "a batch without a stride".to_owned())
    }
}

/// What a descriptor is of.
#[derive(Debug, Clone)]
pub enum Descriptor {
    /// Whether the operands are transposed.
    MatMul([bool; 2]),
    Layout(Layout),
    /// The most bytes of workspace.
    Preference(u64),
}

/// Descriptors by handle.
pub type Descriptors = HashMap<u64, Descriptor>;

/// A matmul without its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Problem {
    pub transposed: [bool; 2],
    /// Of the operands and of the result.
    pub layouts: [Layout; 3],
}

impl Problem {
    /// Rows, depth and columns.
    ///
    /// # Errors
    /// Why the layouts are not those of a matmul.
    pub fn sizes(&self) -> Result<[u64; 3], String> {
        let taken = |i: usize| {
            let Layout { rows, columns, .. } = self.layouts[i];
            if self.transposed[i] { [columns, rows] } else { [rows, columns] }
        };
        let ([m, k], [depth, n], result) = (taken(0), taken(1), self.layouts[2]);
        if k != depth || [m, n] != [result.rows, result.columns] {
            return Err(format!("{m}x{k} by {depth}x{n} into {}x{}", result.rows, result.columns));
        }
        if self.layouts.iter().any(|l| l.element != result.element) {
            return Err("matrices of several types".to_owned());
        }
        if self.layouts.iter().any(|l| l.batch != result.batch) {
            return Err("batches of several sizes".to_owned());
        }
        let plane = (result.columns - 1) * result.leading + result.rows;
        if result.batch > 1 && result.stride.is_some_and(|stride| stride < result.rows.min(plane)) {
            return Err("results that overlap".to_owned());
        }
        match self.layouts.iter().find_map(Layout::fault) {
            Some(fault) => Err(fault),
            None => Ok([m, k, n]),
        }
    }

    /// Whether there is an algorithm: none for halves whose columns begin at odd places.
    pub fn is_supported(&self) -> bool {
        self.layouts.iter().all(|l| l.element == Element::F32 || l.leading % 2 == 0)
    }
}

/// A matmul as a piece of work.
#[derive(Debug, Clone)]
pub struct Product {
    pub problem: Problem,
    /// Where the operands and the result begin.
    pub at: [u64; 3],
    /// The workspace: where, and how many bytes.
    pub workspace: (u64, u64),
}

impl Product {
    /// What memory it uses.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, usize)> {
        let matrices = self.at.iter().zip(&self.problem.layouts).map(|(&at, layout)| (at, layout.bytes()));
        let workspace = (self.workspace.1 > 0).then_some(self.workspace);
        matrices.chain(workspace).map(|(at, bytes)| (at, bytes as usize))
    }
}

impl Context {
    /// Multiplies.
    pub(super) fn multiply(&mut self, product: &Product) -> Outcome<()> {
        let gone = |r: Rejected| Rejected { code: code::ILLEGAL_ADDRESS, ..r };
        let Product { problem, at, workspace } = product;
        let [a, b, c] = problem.layouts;
        let Ok([m, k, n]) = problem.sizes() else {
            return reject(code::ILLEGAL_ADDRESS, "a matmul that is none");
        };
        let mut memory = Vec::new();
        for (&at, layout) in at.iter().zip(&problem.layouts) {
            let (_, range) = self.range(at, layout.bytes() as usize).map_err(gone)?;
            memory.push(range);
        }
        let read = |i: usize| {
            let range = &memory[i];
            self.pools.0[range.pool][range.offset..][..problem.layouts[i].bytes() as usize].to_vec()
        };
        let (left, right) = (read(0), read(1));
        let place = |layout: &Layout, transposed: bool, [row, column]: [u64; 2]| {
            if transposed { row * layout.leading + column } else { column * layout.leading + row }
        };
        let out = &mut self.pools.0[memory[2].pool][memory[2].offset..];
        for batch in 0..c.batch {
            let [start_a, start_b, start_c] = [a, b, c].map(|l| batch * l.stride.unwrap_or(0));
            for (row, column) in (0..n).flat_map(|column| (0..m).map(move |row| (row, column))) {
                let term = |i: u64| {
                    let x = start_a + place(&a, problem.transposed[0], [row, i]);
                    let y = start_b + place(&b, problem.transposed[1], [i, column]);
                    a.element.read(&left, x) * b.element.read(&right, y)
                };
                let sum: f64 = (0..k).map(term).sum();
                c.element.write(out, start_c + place(&c, false, [row, column]), sum);
            }
        }
        // What was there is the library's to spoil.
        if workspace.1 > 0 {
            let (_, range) = self.range(workspace.0, workspace.1 as usize).map_err(gone)?;
            self.pools.0[range.pool][range.offset..][..workspace.1 as usize].fill(0x5A);
        }
        Ok(())
    }
}
