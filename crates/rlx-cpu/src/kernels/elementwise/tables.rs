//! Functions of one byte as tables.
//!
//! Quantised models that keep a pair of quantisation and its opposite behind every op have long chains of ops from one byte to another, such as a
//! GELU of eight. Such a chain has 256 results at most: its instructions are run on all bytes once, and then each element is looked up, with
//! the same bits.
//!
//! ```text
//! v1 = dequantise v0; v2 = erf v1; v3 = add v2 1; v4 = mul v1 v3; v5 = quantise v4     →     v5 = look_up v0 (table of v0 → v5)
//! ```
//!
//! Scales and zero points may be operands of the step, as long as they are single elements: tables are made anew in each run.

use super::instr::{Code, Source};
use super::program::{Instr, ValueId};
use crate::isa::Isa;

/// Entries of a table, one for each byte.
pub(super) const ENTRIES: usize = 256;

/// A step of fewer elements is not worth its tables.
pub(super) const WORTH_TABLES: usize = 1 << 14;

/// Nanoseconds for an element from which on a chain is worth a table.
const WORTH_NANOS: f64 = 0.3;

/// All bytes in order: the operand of a table's instructions.
pub(super) static BYTES: [u8; ENTRIES] = {
    let (mut bytes, mut i) = ([0; ENTRIES], 0);
    while i < ENTRIES {
        bytes[i] = i as u8;
        i += 1;
    }
    bytes
};

/// A function of a byte.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// The byte.
    pub(super) from: ValueId,
    /// What computes the result from it, from constants and from single elements.
    pub(super) instrs: Box<[Instr]>,
    /// The result: a byte as well.
    pub(super) result: ValueId,
    /// The table as an operand of [`Code::LookUp`].
    pub(super) value: ValueId,
}

/// What is known about the values of a program while tables are looked for.
pub(super) struct Values<'a> {
    /// Those that are the same for all elements and no instruction makes: constants, and inputs of one element.
    pub(super) single: &'a [ValueId],
    /// Inputs that are bytes.
    pub(super) bytes: &'a [ValueId],
    pub(super) results: &'a [ValueId],
}

/// How a value depends on a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depends {
    /// On nothing but what is single.
    Not,
    /// On the byte alone, and what is single.
    Alone,
    /// On something else.
    Otherwise,
}

/// The program with tables for the chains that are worth one, and the tables, whose operands are numbered from `values` on; `None` if there are none.
pub(super) fn find(
    instrs: &[Instr],
    of: &Values<'_>,
    mut values: ValueId,
) -> Option<(Vec<Instr>, Vec<Table>)> {
    let (mut left, mut tables) = (instrs.to_vec(), Vec::new());
    let quantised = instrs.iter().filter(|i| matches!(i.code, Code::Quantise(..))).map(|i| i.out);
    for from in of.bytes.iter().copied().chain(quantised) {
        while let Some(at) = end_of_chain(&left, of, from) {
            let result = left[at].out;
            let chain: Box<[Instr]> = slice(&left[..=at], &[result], Some(from)).into();
            let value = values;
            values = values.checked_add(1)?;
            left[at] =
                Instr { code: Code::LookUp, args: [from, value, from, from, from], arity: 2, ..left[at] };
            left = slice(&left, of.results, None);
            tables.push(Table { from, instrs: chain, result, value });
        }
    }
    (!tables.is_empty()).then_some((left, tables))
}

/// The last instruction of a chain from the byte `from` to a byte that something else than the chain reads.
fn end_of_chain(instrs: &[Instr], of: &Values<'_>, from: ValueId) -> Option<usize> {
    let mut depends: Vec<(ValueId, Depends)> = of.single.iter().map(|&id| (id, Depends::Not)).collect();
    depends.push((from, Depends::Alone));
    let known = |depends: &[(ValueId, Depends)], id: ValueId| {
        depends.iter().find(|(of, _)| *of == id).map_or(Depends::Otherwise, |&(_, how)| how)
    };
    for instr in instrs.iter().filter(|i| i.out != from) {
        let how = instr.args().iter().fold(Depends::Not, |all, &arg| match (all, known(&depends, arg)) {
            (Depends::Otherwise, _) | (_, Depends::Otherwise) => Depends::Otherwise,
            (Depends::Not, Depends::Not) => Depends::Not,
            _ => Depends::Alone,
        });
        // A table that was made before is an operand that is not known.
        depends.push((instr.out, how));
    }
    let alone = |id: ValueId| known(&depends, id) == Depends::Alone;
    let leaves = |id: ValueId| {
        of.results.contains(&id) || instrs.iter().any(|i| i.args().contains(&id) && !alone(i.out))
    };
    instrs.iter().position(|instr| {
        let nanos = || slice(instrs, &[instr.out], Some(from)).iter().map(|i| i.code.nanos()).sum::<f64>();
        matches!(instr.code, Code::Quantise(..))
            && instr.out != from
            && alone(instr.out)
            && leaves(instr.out)
            && nanos() >= WORTH_NANOS
    })
}

/// Those of the instructions that compute the `results`, from `from` on.
fn slice(instrs: &[Instr], results: &[ValueId], from: Option<ValueId>) -> Vec<Instr> {
    let (mut wanted, mut kept) = (results.to_vec(), Vec::new());
    for instr in instrs.iter().rev() {
        if wanted.contains(&instr.out) && Some(instr.out) != from {
            wanted.extend(instr.args());
            kept.push(*instr);
        }
    }
    kept.reverse();
    kept
}

/// Replaces `n` bytes by their entries of a table.
///
/// # Safety
/// `x` must be readable (for one byte if it steps by 0), `table` for [`ENTRIES`] bytes and `out` writable for `n` bytes; `out` may be `x`.
pub(super) unsafe fn look_up(isa: Isa, x: Source, table: *const u8, out: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if isa.has_vbmi() && x.step == 1 {
            return crate::simd::avx512_bytes::look_up(table, x.ptr, out, n);
        }
        let _ = isa;
        for i in 0..n {
            *out.add(i) = *table.add(usize::from(*x.ptr.add(i * x.step)));
        }
    }
}

#[cfg(test)]
mod tests {
    use rlx_ir::op::{Activation, BinaryOp};
    use rlx_ir::{DType, Graph, NodeId, Op, Shape};

    use super::*;
    use crate::kernels::elementwise::program::{TileProgram, of_body};

    const FLOATS: Op = Op::Dequantize { axis: None, to: DType::F32 };
    const BYTES: Op = Op::Quantize { axis: None, to: DType::U8 };

    /// The program of a body whose inputs are a matrix of bytes, a scale and a row of floats.
    fn program(results: fn(&mut Graph, [NodeId; 3]) -> Vec<NodeId>) -> TileProgram {
        let mut g = Graph::new("bytes");
        let q = g.input("q", Shape::new(&[64, 1000], DType::U8));
        let inputs = [
            q,
            g.input("scale", Shape::new(&[], DType::F32)),
            g.input("row", Shape::new(&[1000], DType::F32)),
        ];
        let results = results(&mut g, inputs);
        g.set_outputs(results);
        of_body(&g, None).unwrap()
    }

    fn activated(g: &mut Graph, q: NodeId, scale: NodeId) -> NodeId {
        let x = g.try_add(FLOATS, &[q, scale]).unwrap();
        let y = g.try_add(Op::Activation(Activation::Erf), &[x]).unwrap();
        let y = g.try_add(Op::Binary(BinaryOp::Mul), &[y, x]).unwrap();
        g.try_add(BYTES, &[y, scale]).unwrap()
    }

    fn added(g: &mut Graph, q: NodeId, [scale, row]: [NodeId; 2]) -> NodeId {
        let x = g.try_add(FLOATS, &[q, scale]).unwrap();
        let y = g.try_add(Op::Binary(BinaryOp::Add), &[x, row]).unwrap();
        g.try_add(BYTES, &[y, scale]).unwrap()
    }

    fn looked_up(program: &TileProgram) -> usize {
        let tabled = program.tabled.as_ref();
        tabled.map_or(0, |p| p.instrs.iter().filter(|i| matches!(i.code, Code::LookUp)).count())
    }

    #[test]
    fn a_chain_from_a_byte_to_a_byte_is_looked_up() {
        let whole = program(|g, [q, scale, _]| vec![activated(g, q, scale)]);
        let tabled = whole.tabled.as_ref().unwrap();
        assert_eq!((tabled.instrs.len(), tabled.tables.len()), (1, 1), "{tabled:?}");
        // Two chains in a row are one.
        let twice = program(|g, [q, scale, _]| {
            let q = activated(g, q, scale);
            vec![activated(g, q, scale)]
        });
        assert_eq!(twice.tabled.as_ref().unwrap().instrs.len(), 1);
    }

    #[test]
    fn what_depends_on_the_column_is_computed() {
        let none = program(|g, [q, scale, row]| vec![added(g, q, [scale, row])]);
        assert!(none.tabled.is_none(), "{none:?}");
        let behind = program(|g, [q, scale, row]| {
            let q = added(g, q, [scale, row]);
            vec![activated(g, q, scale)]
        });
        assert_eq!(looked_up(&behind), 1);
        // What leaves the chain here is no byte, but the float of one.
        let before = program(|g, [q, scale, row]| {
            let q = activated(g, q, scale);
            vec![added(g, q, [scale, row])]
        });
        assert_eq!(looked_up(&before), 0);
        // A scale for each column is no operand of a table.
        let each = program(|g, [q, scale, row]| {
            let x = g.try_add(FLOATS, &[q, scale]).unwrap();
            let y = g.try_add(Op::Activation(Activation::Erf), &[x]).unwrap();
            let y = g.try_add(Op::Binary(BinaryOp::Mul), &[y, row]).unwrap();
            vec![g.try_add(BYTES, &[y, scale]).unwrap()]
        });
        assert_eq!(looked_up(&each), 0);
    }

    #[test]
    fn a_byte_in_the_middle_that_is_a_result_is_looked_up_as_well() {
        let both = program(|g, [q, scale, _]| {
            let first = activated(g, q, scale);
            vec![first, activated(g, first, scale)]
        });
        assert_eq!(looked_up(&both), 2);
    }

    #[test]
    fn every_byte_is_replaced_by_its_entry() {
        let table: Vec<u8> = (0..ENTRIES).map(|i| (i * 37 + 11) as u8).collect();
        let x: Vec<u8> = (0..777).map(|i| (i * 13 % 256) as u8).collect();
        let want: Vec<u8> = x.iter().map(|&x| table[usize::from(x)]).collect();
        for isa in Isa::available().into_iter().flat_map(|isa| [isa, isa.without_extensions()]) {
            for n in [0, 1, 63, 64, 65, 777] {
                let mut out = vec![0; n];
                let source = Source { ptr: x.as_ptr(), step: 1 };
                // SAFETY: both have `n` elements, and the table all entries.
                unsafe { look_up(isa, source, table.as_ptr(), out.as_mut_ptr(), n) };
                assert_eq!(out, want[..n], "{n} on {isa:?}");
            }
        }
    }
}
