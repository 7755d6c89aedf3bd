//! Windows that slide over images: rows and columns as coordinates.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::body::Body;
use super::language::size;
use crate::ir::{Program, Size, View};
use crate::tensor_map::Map;
use crate::window::Window;

/// The inverses of the uniforms that rows and columns are divided by, made once.
pub(super) fn declare_inverses(p: &Program, out: &mut String) {
    let uniform = |size: Size| if let Size::Uniform(i) = size { Some(i) } else { None };
    let divisors = p.windows().flat_map(|window| window.divisors()).filter_map(uniform);
    for i in divisors.collect::<BTreeSet<u32>>() {
        let _ = writeln!(out, "  const u32 inverse{i} = 0xffffffffu / (u32)(d{i} > 0 ? d{i} : 1);");
    }
}

impl Body<'_> {
    /// Declares quotient and remainder of `n`, which is not negative.
    fn divide(&mut self, n: &str, by: Size, quotient: &str, remainder: &str) {
        let d = size(by);
        let Size::Uniform(i) = by else {
            let (n, d) = (format!("(u32){n}"), format!("{d}u"));
            return self
                .line(&format!("const int {quotient} = (int)({n} / {d}), {remainder} = (int)({n} % {d});"));
        };
        // What is multiplied by the inverse, rounded down, is at most 1 less: numbers are below 2^31.
        let product = format!("(int)((u64)(u32){n} * inverse{i} >> 32)");
        self.line(&format!("int {quotient} = {product}, {remainder} = {n} - {quotient} * {d};"));
        self.line(&format!("if ({remainder} >= {d}) {{ {quotient}++; {remainder} -= {d}; }}"));
    }

    /// Declares the image of a row, and where the first tap of its window falls along each dimension.
    pub(super) fn row_of_window(&mut self, view: View) {
        let p = self.p;
        let Some(window) = &p.view(view).window else { return };
        let mut rest = "row".to_string();
        for (i, axis) in window.axes.iter().enumerate().rev() {
            let above = if i == 0 { "image".to_string() } else { format!("above{i}") };
            self.divide(&rest, axis.places, &above, &format!("place{i}"));
            let (stride, before) = (axis.slide.stride, axis.slide.before);
            self.line(&format!("const int first{i} = place{i} * {stride} - {before};"));
            rest = above;
        }
    }

    /// The address of the element `at` columns on, and whether it is in the view and its image; declares its coordinates where the view is of windows.
    pub(super) fn place(&mut self, view: View, at: u32) -> (String, String) {
        let p = self.p;
        let v = p.view(view);
        let Some(window) = &v.window else { return self.address(view, at) };
        let col = if at == 0 { "col".to_string() } else { format!("(col + {at})") };
        let (tap, channel) = (format!("tap{at}"), format!("channel{at}"));
        let numbered = match (v.cols, at) {
            (Size::Part { each, .. }, 0) => format!("(col + n0 * d{each})"),
            (Size::Part { each, .. }, _) => format!("(col + {at} + n0 * d{each})"),
            _ => col.clone(),
        };
        self.tap_of(window, &numbered, &tap, &channel);
        let mut address = format!("g{} + (i64)image * {}", view.0, size(v.row_stride));
        let mut inside = format!("row < {} && {col} < {}", size(v.rows), size(v.cols));
        for ((i, axis), along) in window.axes.iter().enumerate().zip(window.taps_along(&tap, "")) {
            let position = format!("at{at}_{i}");
            self.line(&format!("const int {position} = first{i} + {along} * {};", axis.slide.dilation));
            let _ = write!(inside, " && (u32){position} < (u32){}", size(axis.size));
            let _ = write!(address, " + (i64){position} * {}", size(axis.step));
        }
        let _ = match v.col_stride {
            Size::Const(1) => write!(address, " + {channel}"),
            stride => write!(address, " + (i64){channel} * {}", size(stride)),
        };
        (address, inside)
    }

    /// Declares the tap, where there are several, and the channel of a column.
    fn tap_of(&mut self, window: &Window, col: &str, tap: &str, channel: &str) {
        match window.taps() {
            1 => self.line(&format!("const int {channel} = {col};")),
            _ => self.divide(col, window.channels, tap, channel),
        }
    }

    /// Copies a box of windows: the places from `row` on, with the channels from `col` on, which are of one tap.
    pub(super) fn copy_window(&mut self, from: Map, view: View, to: &str, barrier: &str) {
        let p = self.p;
        let Some(window) = &p.view(view).window else { return };
        self.row_of_window(view);
        self.tap_of(window, "col", "tap", "channel");
        let axes = || (0..window.axes.len()).rev();
        let along: Vec<String> = window.taps_along("tap", "").collect();
        let offset = |i: usize| format!("(u16)({} * {})", along[i], window.axes[i].slide.dilation);
        let indices: Vec<String> = axes().map(|i| format!("first{i}")).chain(["image".to_owned()]).collect();
        let offsets: Vec<String> = axes().map(offset).collect();
        self.line(&format!(
            "copy_window({to}, &a{}, channel, {}, {}, {barrier});",
            from.0,
            indices.join(", "),
            offsets.join(", ")
        ));
    }
}
