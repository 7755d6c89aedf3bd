//! Kernels of which sizes are a part: the structure and the bits of the kernel that has them as uniforms, with less arithmetic of indices.
//!
//! ```text
//! v9 = v4 / u2; v10 = v9 * u2; v11 = v4 - v10     u2 = 8     v9 = v4 >> 3; v11 = v4 & 7
//! if v4 < u0 { … }                                u0 = 512   …, where 512 is a multiple of what a workgroup has
//! for i in 0..u3 { … }                            u3 = 3     … … …
//! ```
//!
//! A kernel serves every size otherwise, and one that serves one size alone has to be compiled for it: so a device takes these where it measured
//! that they are faster, and never before.

use std::sync::Arc;

use crate::rewrite::{Known, rewrite};
use crate::schedule::{Launch, UniformArg};
use crate::unroll::unroll;

/// The launch with its sizes and strides in the kernel, as far as they are numbers. Where buffers start in what is bound remains for the device to
/// say. `max_groups` is the most workgroups along one dimension of a dispatch: of more, there may be some without work.
pub(crate) fn specialised(launch: Launch, max_groups: u32) -> Launch {
    let number = |uniform: &UniformArg| match uniform {
        UniformArg::Extent(e) => i32::try_from(e.as_const()?).ok(),
        UniformArg::Base { .. } => None,
    };
    let uniforms: Vec<Option<i32>> = launch.uniforms.iter().map(number).collect();
    let groups = launch.groups.as_const().and_then(|n| i32::try_from(n).ok());
    let groups = groups.filter(|&n| u32::try_from(n).is_ok_and(|n| n <= max_groups));
    let mut left = uniforms.iter();
    let mut kept = launch.uniforms;
    kept.retain(|_| left.next().is_none_or(Option::is_none));
    let known = Known { uniforms, groups, ..Known::default() };
    let kernel = unroll(rewrite(&launch.kernel, &known));
    Launch { kernel: Arc::new(kernel), uniforms: kept, ..launch }
}
