//! SPIR-V of own kernels, cached in the user's cache folder beside what the driver made of them.
//!
//! wgpu parses and validates the WGSL of a kernel and writes SPIR-V in every process, which takes longer than all that RLX does for the kernel. Vulkan takes the
//! SPIR-V itself, which depends on the text alone: naga writes it once, without the checks that [`crate::trusted`] leaves out as well, and later
//! processes read it. Kernels of files are WGSL.

use naga::back::spv;
use naga::front::wgsl::{Frontend, Options};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

/// What kernels have beyond WebGPU's first version: numbers of 64 bits for processors, elements of 16 bits.
const CAPABILITIES: Capabilities = Capabilities::SHADER_INT64.union(Capabilities::SHADER_INT16);

/// The first word of SPIR-V.
const MAGIC: u32 = 0x0723_0203;

/// The file of a text's SPIR-V. `1` stands for what [`write`] asks naga for.
pub(crate) fn file_name(text: &str) -> String {
    format!("{}-spirv1", rlx_ir::hash::hash_of([text]))
}

/// The SPIR-V of an own kernel's text, which may exchange values within subgroups.
///
/// # Errors
/// What naga rejects.
pub(crate) fn write(text: &str, exchanges: bool) -> Result<Vec<u32>, String> {
    let capabilities = if exchanges { CAPABILITIES.union(Capabilities::SUBGROUP) } else { CAPABILITIES };
    let mut options = Options::new();
    options.capabilities = capabilities;
    let module = Frontend::new_with_options(options).parse(text).map_err(|e| e.emit_to_string(text))?;
    let validated = validator(capabilities).validate(&module);
    let info = validated.map_err(|e| e.emit_to_string(text))?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let policies = BoundsCheckPolicies {
        index: unchecked,
        buffer: unchecked,
        image_load: unchecked,
        binding_array: unchecked,
    };
    let options = spv::Options {
        // The first version, which every Vulkan takes; exchanges need 1.3, which Vulkan 1.1 takes, and wgpu offers subgroups from that on.
        lang_version: if exchanges { (1, 3) } else { (1, 0) },
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: policies,
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        // 16 bits are in buffers alone; as what a shader is given they are a feature of its own.
        use_storage_input_output_16: false,
        emit_int_div_checks: false,
        ..Default::default()
    };
    spv::write_vec(&module, &info, &options, None).map_err(|e| e.to_string())
}

fn validator(capabilities: Capabilities) -> Validator {
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    validator
}

/// Words as a file has them.
pub(crate) fn to_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words of a file; `None` where it is not SPIR-V of this writer.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Vec<u32>> {
    let (words, rest) = bytes.as_chunks();
    let words: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
    (rest.is_empty() && words.first() == Some(&MAGIC)).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop over a buffer by what another one holds, a division, and elements of 64 and 16 bits.
    const TEXT: &str = "enable wgpu_int16;
@group(0) @binding(0) var<uniform> u: array<vec4<i32>, 1>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u64>>;
@group(0) @binding(2) var<storage, read_write> y: array<u16>;
var<workgroup> s: array<u32, 64>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) local: u32) {
  for (var i: i32 = 0i; i < u[0][0]; i += 1i) { s[local] = u32(x[i / u[0][1]].x); }
  workgroupBarrier();
  y[local] = u16(s[63u - local]);
}
";

    #[test]
    fn texts_become_spirv_without_checks_and_come_back_from_bytes() {
        let words = write(TEXT, false).unwrap();
        assert_eq!(words[..2], [MAGIC, 0x0001_0000], "the first version");
        assert_eq!(write(TEXT, false).unwrap(), words, "the same text, the same words");
        let bytes = to_bytes(&words);
        assert_eq!(from_bytes(&bytes).as_ref(), Some(&words));
        assert!(from_bytes(&bytes[..bytes.len() - 1]).is_none() && from_bytes(&[0; 8]).is_none());
        assert!(from_bytes(&[]).is_none());
        // One comparison, by which the loop ends, where checks would compare divisors and counters as well; no select bounds an index.
        let ops: Vec<u32> = instructions(&words).collect();
        let count = |ops: &[u32], op: u32| ops.iter().filter(|&&found| found == op).count();
        const LESS_THAN: u32 = 177;
        const COMPARISONS: std::ops::RangeInclusive<u32> = 170..=179;
        const SELECT: u32 = 169;
        let compared = ops.iter().filter(|op| COMPARISONS.contains(op)).count();
        assert_eq!((count(&ops, LESS_THAN), compared, count(&ops, SELECT)), (1, 1, 0));
        assert_ne!(file_name(TEXT), file_name(&TEXT.replace("63u", "62u")), "another text, another file");
        assert!(write("fn main() { let x: i32 = 1.5f; }", false).unwrap_err().contains("x"));
    }

    #[test]
    fn exchanges_within_subgroups_need_a_later_version() {
        let text = TEXT.replace("u16(s[63u - local])", "u16(subgroupShuffleXor(s[local], 1u))");
        assert!(write(&text, false).is_err());
        let words = write(&text, true).unwrap();
        assert_eq!(words[..2], [MAGIC, 0x0001_0300], "version 1.3");
        const SHUFFLE_XOR: u32 = 346;
        assert_eq!(instructions(&words).filter(|&op| op == SHUFFLE_XOR).count(), 1);
    }

    /// The numbers of the instructions of a module.
    fn instructions(words: &[u32]) -> impl Iterator<Item = u32> {
        let mut at = 5;
        std::iter::from_fn(move || {
            let first = *words.get(at)?;
            at += (first >> 16) as usize;
            Some(first & 0xffff)
        })
    }
}
