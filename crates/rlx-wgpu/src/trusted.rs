//! Shader modules without the checks that wgpu writes into others, and those that it does not look into.
//!
//! By default every index is clamped and every loop counts how often it went round, which costs more than many kernels compute. Own kernels keep
//! the rules without being made to; those of files are never compiled here.

/// A module of a kernel or tile program that this process made of a verified module: one that is not guarded ([`rlx_gpu::Job::guarded`]).
pub(crate) fn module(
    device: &wgpu::Device,
    description: wgpu::ShaderModuleDescriptor<'_>,
) -> wgpu::ShaderModule {
    // SAFETY: the caller's kernel was made by a schedule and holds to `rlx_kernel::verify`. Its indices stay within what it is bound to: views
    // were checked against their buffers when they were bound (`rlx_gpu::dispatch`), positions that are data are compared
    // with their axis before they are used, and the kernel's interpreter finds what would break either. Its loops count from one number to another in
    // steps of at least one, below what an `i32` holds, so each of them ends. A tile program holds to `rlx_tile::verify`, and its interpreter finds the same of it.
    unsafe { device.create_shader_module_trusted(description, wgpu::ShaderRuntimeChecks::unchecked()) }
}

/// What a device is opened with for cooperative matrices.
pub(crate) fn experimental() -> wgpu::ExperimentalFeatures {
    // SAFETY: of what this allows, only cooperative matrices are asked for (`crate::matrices::FEATURES`), where the adapter lists the one size and types that
    // programs use. Texts that use them are the renderer's of `rlx-tile`, of verified programs: every load and store of a matrix is whole within
    // workgroup memory, from where rows begin and with their stride, in control flow that is the same for the workgroup. What naga makes of them validates as
    // SPIR-V (`rlx-tile/tests/coop`), and a driver's products are compared before it is used (`Gpu::tried_units`).
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

/// A module of such a kernel in SPIR-V, which Vulkan is given as it is. Its one function is `entry`.
pub(crate) fn spirv(
    device: &wgpu::Device,
    label: Option<&str>,
    words: &[u32],
    entry: &str,
    workgroup: u32,
) -> wgpu::ShaderModule {
    let entries =
        [wgpu::PassthroughShaderEntryPoint { name: entry.into(), workgroup_size: (workgroup, 1, 1) }];
    let description = wgpu::ShaderModuleDescriptorPassthrough {
        label,
        entry_points: entries.as_slice().into(),
        spirv: Some(words.into()),
        ..Default::default()
    };
    // SAFETY: the words are what naga wrote of a text that it validated ([`crate::spirv`]), in this process or in one whose file is in a folder that
    // belongs to this user and that no one else may write, sealed with a hash and named for the whole text. The text is of an own kernel, which keeps
    // within its buffers and loops as above. Its bindings are those of the layout: wgpu numbers what a layout lists 0, 1, … in its order, as the text does.
    unsafe { device.create_shader_module_passthrough(description) }
}

/// A module of such a kernel in Metal's language, which Metal is given as it is. Its one function is `entry`, run by workgroups of `workgroup`.
pub(crate) fn metal(
    device: &wgpu::Device,
    label: Option<&str>,
    source: &str,
    entry: &str,
    workgroup: u32,
) -> wgpu::ShaderModule {
    let entries =
        [wgpu::PassthroughShaderEntryPoint { name: entry.into(), workgroup_size: (workgroup, 1, 1) }];
    let description = wgpu::ShaderModuleDescriptorPassthrough {
        label,
        entry_points: entries.as_slice().into(),
        msl: Some(source.into()),
        ..Default::default()
    };
    // SAFETY: as above, the caller's kernel was made by a schedule and keeps within its buffers and loops. The renderer gives the arguments the
    // indices at which wgpu binds what a layout of one group lists: 0, 1, … in their order, with no immediates before them. A text that Metal
    // rejects is an error of the call.
    unsafe { device.create_shader_module_passthrough(description) }
}
