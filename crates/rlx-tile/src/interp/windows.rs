//! Where the elements of windows are.

use super::Group;
use super::shared::Step;
use crate::ir::View;

impl Group<'_> {
    /// What a view's row and column are: the number of the image, elements to the position of the tap in it, and the channel. Without a window, the row and
    /// the column themselves. None where the tap is beside the image.
    pub(super) fn in_window(&self, view: View, row: i64, col: i64) -> Step<Option<(i64, i128, i64)>> {
        let v = self.p.view(view);
        let Some(window) = &v.window else { return Ok(Some((row, 0, col))) };
        let (channels, before) = (self.value(window.channels), self.before_part(v.cols));
        if channels % i64::from(v.vector) != 0 {
            return Err(format!("{channels} channels of g{} are not aligned to {}", view.0, v.vector));
        }
        let divided = |n: i64, by: i64| match by {
            1.. => Ok((n / by, n % by)),
            _ => Err(format!("a window of g{} divides by {by}", view.0)),
        };
        let (mut tap, channel) = divided(before + col, channels)?;
        let (mut image, mut at, mut inside) = (row, 0, true);
        for axis in window.axes.iter().rev() {
            let (slide, size) = (axis.slide, self.value(axis.size));
            let place;
            (image, place) = divided(image, self.value(axis.places))?;
            let along = tap % i64::from(slide.taps);
            tap /= i64::from(slide.taps);
            let position = place * i64::from(slide.stride) + along * i64::from(slide.dilation);
            let position = position - i64::from(slide.before);
            inside &= (0..size).contains(&position);
            at += i128::from(position) * i128::from(self.value(axis.step));
        }
        Ok(inside.then_some((image, at, channel)))
    }
}
