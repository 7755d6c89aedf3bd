//! What the libraries for matmuls keep, and their arithmetic: descriptors of the host, matrices by columns, sums in f64 that are rounded
//! once behind the epilogue, which is nobody's order of sums.

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

/// The function of an epilogue, by a hyperbolic tangent.
fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

/// How a matmul is done: what its descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct How {
    /// Whether the operands are transposed.
    pub transposed: [bool; 2],
    /// Whether a GELU is applied last.
    pub gelu: bool,
    /// Whether a bias is added.
    pub biased: bool,
}

/// What a descriptor of a matmul says.
#[derive(Debug, Clone, Copy)]
pub struct MatMul {
    pub how: How,
    /// Where the bias is.
    pub bias: u64,
    /// The type of its elements, once it was said.
    pub bias_element: Option<Element>,
}

/// What a descriptor is of.
#[derive(Debug, Clone)]
pub enum Descriptor {
    MatMul(MatMul),
    Layout(Layout),
    /// The most bytes of workspace.
    Preference(u64),
}

/// Descriptors by handle.
pub type Descriptors = HashMap<u64, Descriptor>;

/// A matmul without its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Problem {
    pub how: How,
    /// Of the operands, of what is added and of the result.
    pub layouts: [Layout; 4],
    /// Whether the bias begins where 16 bytes can be read at once.
    pub bias_aligned: bool,
}

impl Problem {
    /// Rows, depth and columns.
    ///
    /// # Errors
    /// Why the layouts are not those of a matmul.
    pub fn sizes(&self) -> Result<[u64; 3], String> {
        let taken = |i: usize| {
            let Layout { rows, columns, .. } = self.layouts[i];
            if self.how.transposed[i] { [columns, rows] } else { [rows, columns] }
        };
        let ([m, k], [depth, n], result) = (taken(0), taken(1), self.layouts[3]);
        if k != depth || [m, n] != [result.rows, result.columns] {
            return Err(format!("{m}x{k} by {depth}x{n} into {}x{}", result.rows, result.columns));
        }
        let [_, _, added, _] = self.layouts;
        if [added.rows, added.columns] != [result.rows, result.columns] {
            return Err(format!("{}x{} are added to {m}x{n}", added.rows, added.columns));
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

    /// Whether there is an algorithm: none for halves whose columns begin at odd places, or for a bias that does not begin at a multiple of 16 bytes.
    pub fn is_supported(&self) -> bool {
        let even = self.layouts.iter().all(|l| l.element == Element::F32 || l.leading % 2 == 0);
        even && (!self.how.biased || self.bias_aligned)
    }
}

/// A matmul as a piece of work.
#[derive(Debug, Clone)]
pub struct Product {
    pub problem: Problem,
    /// Where the operands, what is added and the result begin.
    pub at: [u64; 4],
    /// By what the matrix that is added is multiplied: where it is 0, that is not read.
    pub beta: f32,
    /// Where the bias begins.
    pub bias: Option<u64>,
    /// The workspace: where, and how many bytes.
    pub workspace: (u64, u64),
}

impl Product {
    /// What memory it uses.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, usize)> {
        let used = move |i: &usize| *i != 2 || self.beta != 0.0;
        let matrices = (0..4).filter(used).map(|i| (self.at[i], self.problem.layouts[i].bytes()));
        let workspace = (self.workspace.1 > 0).then_some(self.workspace);
        let bias = self.bias.map(|at| (at, self.bias_bytes()));
        matrices.chain(bias).chain(workspace).map(|(at, bytes)| (at, bytes as usize))
    }

    /// A bias is as long as a column of the result, and of its type.
    fn bias_bytes(&self) -> u64 {
        let [.., result] = self.problem.layouts;
        result.rows * result.element.bytes()
    }
}

impl Context {
    /// Multiplies.
    pub(super) fn multiply(&mut self, product: &Product) -> Outcome<()> {
        let gone = |r: Rejected| Rejected { code: code::ILLEGAL_ADDRESS, ..r };
        let Product { problem, at, beta, bias, workspace } = product;
        let [a, b, c, d] = problem.layouts;
        let Ok([m, k, n]) = problem.sizes() else {
            return reject(code::ILLEGAL_ADDRESS, "a matmul that is none");
        };
        let copy = |at: u64, bytes: u64| {
            let (_, range) = self.range(at, bytes as usize).map_err(gone)?;
            Ok(self.pools.0[range.pool][range.offset..][..bytes as usize].to_vec())
        };
        let (left, right) = (copy(at[0], a.bytes())?, copy(at[1], b.bytes())?);
        let added = if *beta == 0.0 { None } else { Some(copy(at[2], c.bytes())?) };
        let bias = bias.map(|bias| copy(bias, product.bias_bytes())).transpose()?;
        let (_, stored) = self.range(at[3], d.bytes() as usize).map_err(gone)?;
        let place = |layout: &Layout, transposed: bool, [row, column]: [u64; 2]| {
            if transposed { row * layout.leading + column } else { column * layout.leading + row }
        };
        let out = &mut self.pools.0[stored.pool][stored.offset..];
        for batch in 0..d.batch {
            let [start_a, start_b, start_c, start_d] = problem.layouts.map(|l| batch * l.stride.unwrap_or(0));
            for (row, column) in (0..n).flat_map(|column| (0..m).map(move |row| (row, column))) {
                let term = |i: u64| {
                    let x = start_a + place(&a, problem.how.transposed[0], [row, i]);
                    let y = start_b + place(&b, problem.how.transposed[1], [i, column]);
                    a.element.read(&left, x) * b.element.read(&right, y)
                };
                let sum: f64 = (0..k).map(term).sum();
                let at = place(&c, false, [row, column]);
                let added = added.as_ref().map_or(0.0, |c_bytes| c.element.read(c_bytes, start_c + at));
                let bias = bias.as_ref().map_or(0.0, |bytes| d.element.read(bytes, row));
                let sum = sum + f64::from(*beta) * added + bias;
                let result = if problem.how.gelu { gelu(sum) } else { sum };
                d.element.write(out, start_d + place(&d, false, [row, column]), result);
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
