//! Memory formats of packed weights, as views: who reads or writes a packed buffer sees the strides of its format, and needs no other schedule.
//!
//! ```text
//! w [4, 8, 3, 3] f16 in format ChannelsLast   strides [72, 1, 24, 8]: what one tap multiplies, 8 channels, are neighbours
//! ```

use rlx_ir::Extent;
use rlx_ir::lir::{Operand, View};
use rlx_ir::op::PackFormat;

use super::{Scheduled, reject};

/// Weights of a convolution, `[filters, channels, taps…]`, stored as `[filters, taps…, channels]`.
pub(crate) const CHANNELS_LAST: PackFormat = PackFormat::new("ChannelsLast");

/// An operand of a buffer in this format, through the view that its elements have there.
///
/// # Errors
/// A format of another device, or a part of a packed buffer.
pub(super) fn seen(operand: &Operand, format: Option<PackFormat>) -> Scheduled<Operand> {
    let Some(format) = format else { return Ok(operand.clone()) };
    let view = &operand.view;
    if format != CHANNELS_LAST || view.dims.len() < 3 {
        return reject(format!("elements packed as {format}"));
    }
    if !view.is_dense() {
        return reject("a part of packed weights");
    }
    let mut strides = vec![Extent::Const(1); view.dims.len()];
    let mut inside = view.dims[1];
    for i in (2..view.dims.len()).rev() {
        (strides[i], inside) = (inside, inside * view.dims[i]);
    }
    strides[0] = inside;
    let view = View { offset: view.offset, dims: view.dims.clone(), strides: strides.into() };
    Ok(Operand { view: view.into(), ..operand.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::lir::BufferId;
    use rlx_ir::{DType, Dim};

    #[test]
    fn channels_are_neighbours() {
        let dims = [4, 8, 3, 5].map(Dim::Static);
        let operand = Operand { buffer: BufferId(0), view: View::dense(&dims).into(), dtype: DType::F16 };
        let strides = |format| seen(&operand, format).map(|o| o.view.strides.to_vec());
        assert_eq!(strides(Some(CHANNELS_LAST)), Ok([120, 1, 40, 8].map(Extent::Const).to_vec()));
        assert_eq!(strides(None), Ok(operand.view.strides.to_vec()));
        assert!(strides(Some(PackFormat::new("Panels"))).is_err());
    }
}
