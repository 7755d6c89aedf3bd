//! Launches: what their arguments must be, and the code on its interpreter.

use rlx_kernel::interp::dispatch;
use rlx_kernel::ir::Access;

use super::{Context, Outcome, Rejected, code, reject};
use crate::arguments::{Arguments, Uniforms};
use crate::loaded::{Code, Does};
use crate::tensor_maps;

impl Arguments {
    /// The addresses among them.
    pub(super) fn addresses(&self) -> impl Iterator<Item = u64> {
        let at = if let Uniforms::At(at) = self.uniforms { Some(at) } else { None };
        at.into_iter().chain(self.buffers.iter().copied())
    }

    /// Whether each begins a range that the code's buffer may be in.
    pub(super) fn are_aligned(&self, code: &Code) -> Outcome<()> {
        for (decl, &at) in code.buffers().iter().zip(&self.buffers) {
            let bytes = code.align(decl);
            if at % bytes != 0 {
                return reject(code::MISALIGNED, format!("{at:#x} for accesses of {bytes} bytes"));
            }
        }
        Ok(())
    }
}

impl Context {
    /// The uniforms of a launch, and behind them the step's number where the code can fail.
    fn uniforms(&self, code: &Code, given: &Uniforms) -> Outcome<Vec<i32>> {
        let words = code.uniforms() + usize::from(code.can_fail());
        match given {
            Uniforms::Values(values) => Ok(values[..words].to_vec()),
            Uniforms::At(at) => {
                let (_, u) = self.range(*at, 4 * words)?;
                let bytes = &self.pools.0[u.pool][u.offset..u.offset + 4 * words];
                Ok(bytes.as_chunks().0.iter().map(|&word| i32::from_le_bytes(word)).collect())
            }
        }
    }

    /// Runs code on its interpreter: uniforms, buffers and, where it can fail, the fault record behind them.
    pub(super) fn launch(&mut self, code: &Code, groups: i64, arguments: &Arguments) -> Outcome<()> {
        let gone = |r: Rejected| Rejected { code: code::ILLEGAL_ADDRESS, ..r };
        let mut uniforms = self.uniforms(code, &arguments.uniforms).map_err(gone)?;
        let step = if code.can_fail() { uniforms.pop().unwrap_or_default() } else { 0 };
        let mut bindings = Vec::new();
        for (decl, &at) in code.buffers().iter().zip(&arguments.buffers) {
            let mut binding = self.range(at, 1).map_err(gone)?.1;
            // What is bound for words has whole words.
            if decl.access == Access::Atomic {
                binding.len -= binding.len % 4;
            }
            bindings.push(binding);
        }
        let wrong = |why: String| Rejected { code: code::ILLEGAL_ADDRESS, why };
        let kernel = match &code.does {
            Does::Kernel(kernel) => kernel,
            Does::Tiles(program) => {
                for (decl, given) in program.maps().iter().zip(&arguments.maps) {
                    let map = decl.bound(program, &uniforms).map_err(|e| wrong(e.to_string()))?;
                    if *given != tensor_maps::expected(&map, arguments.buffers[map.buffer]) {
                        return Err(wrong(format!("a tensor map of something else than {map:?}")));
                    }
                }
                let (grid, pools) = (groups.unsigned_abs(), &mut self.pools);
                let ran = rlx_tile::interp::run_in(program, grid, &uniforms, pools, &bindings);
                ran.map_err(|e| wrong(e.to_string()))?;
                self.move_lanes(code, &bindings);
                return Ok(());
            }
        };
        let fault = dispatch(kernel, groups, &uniforms, &bindings, &mut self.pools);
        let fault = fault.map_err(|e| wrong(e.to_string()))?;
        self.move_lanes(code, &bindings);
        if let (Some(fault), Some(&record)) = (fault, arguments.buffers.last().filter(|_| code.can_fail())) {
            let (_, record) = self.range(record, 16).map_err(gone)?;
            let record = &mut self.pools.0[record.pool][record.offset..record.offset + 16];
            let first = record[..4] == [0; 4];
            record[0] = 1;
            if first {
                for (at, value) in [(4, step as u32), (8, fault.code), (12, fault.value as u32)] {
                    record[at..at + 4].copy_from_slice(&value.to_le_bytes());
                }
            }
        }
        Ok(())
    }
}
