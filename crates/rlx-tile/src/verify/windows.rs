//! Windows that slide over images.

use super::{Checked, Rule, Verifier, must};
use crate::ir::{Copy, Size, ViewDecl};
use crate::window::{MOST_AXES, MOST_OF_SLIDE};

impl Verifier<'_> {
    pub(super) fn declared_window(&self, at: &str, v: &ViewDecl) -> Checked {
        let Some(window) = &v.window else { return Ok(()) };
        window.sizes().try_for_each(|size| self.size(at, size))?;
        must((1..=MOST_AXES).contains(&window.axes.len()) && v.heads.is_none(), at, || {
            Rule::Declaration("a window slides over one to three dimensions, and over one matrix".to_string())
        })?;
        must(window.divisors().all(|size| size != Size::Const(0)), at, || {
            Rule::Declaration("a window of no channels or places".to_string())
        })?;
        let counts = |n: u32| (1..=MOST_OF_SLIDE).contains(&n);
        let known = window.axes.iter().map(|axis| axis.slide).all(|slide| {
            counts(slide.taps)
                && counts(slide.stride)
                && counts(slide.dilation)
                && slide.before <= MOST_OF_SLIDE
        });
        must(known && counts(window.taps()), at, || {
            Rule::Declaration(format!("a window of, or that slides by, 0 or more than {MOST_OF_SLIDE}"))
        })
    }

    /// What is beside an image is 0 where the element is multiplied, so nothing may become of it on the way.
    pub(super) fn copy_of_window(&self, at: &str, c: &Copy) -> Checked {
        let as_they_are = c.map.is_none() && self.p.view_dtype(c.from) == self.p.tile(c.to).dtype;
        let beside = c.with.iter().any(|beside| self.p.view(beside.view).window.is_some());
        must(!beside && (self.p.view(c.from).window.is_none() || as_they_are), at, || {
            Rule::Transfer("elements of windows are copied as they are".to_string())
        })
    }
}
