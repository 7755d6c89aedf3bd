//! What invocations read of buffers and write to them.

use std::fmt::Write;

use rlx_ir::DType;

use super::super::c::size;
use super::body::{Body, COMPONENTS, component, half};
use crate::beside::{Beside, Span};
use crate::ir::{Size, View};
use crate::layout::CHUNK;
use crate::window::Window;

impl Body<'_> {
    fn number(&self, view: View) -> &'static str {
        if self.p.view_dtype(view) == DType::F16 { "f16" } else { "f32" }
    }

    /// Declares the two halves of a chunk of a view's elements.
    pub(super) fn declare_chunk(&mut self, view: View, name: &str) {
        let ty = self.number(view);
        self.line(&format!("var {name}l: vec4<{ty}>;"));
        self.line(&format!("var {name}h: vec4<{ty}>;"));
    }

    /// Reads the chunk at `row`, `col` of a view; what is beyond it is 0.
    pub(super) fn read_chunk(&mut self, view: View, x: &str) {
        let (ty, buffer) = (self.number(view), self.p.view(view).buffer.index());
        let (vector, together) = (self.p.view(view).vector.min(CHUNK), self.together[buffer]);
        self.line(&format!("{x}l = vec4<{ty}>();"));
        self.line(&format!("{x}h = vec4<{ty}>();"));
        for part in 0..CHUNK / vector {
            let (address, inside) = self.place(view, part * vector);
            self.open(&format!("if ({inside}) {{"));
            self.line(&format!("let at = u32({address}) >> {}u;", together.ilog2()));
            for i in 0..vector / together {
                self.line(&format!("let w{i} = b{buffer}[at + {i}u];"));
            }
            self.take_words(x, (part * vector, vector), together);
            self.close();
        }
    }

    /// Puts the words that were read, each of `together` elements, into so many elements of a chunk: halves as wholes where words have those.
    fn take_words(&mut self, x: &str, (first, count): (u32, u32), together: u32) {
        for e in 0..count {
            let (word, within) = (format!("w{}", e / together), e % together);
            let line = match together {
                1 => format!("{} = {word};", component(x, first + e)),
                2 => format!("{} = {word}.{};", component(x, first + e), COMPONENTS[within as usize]),
                _ if !e.is_multiple_of(4) => continue,
                4 => format!("{x}{} = {word};", half(first + e)),
                _ => format!("{x}{} = {word}.{};", half(first + e), if within < 4 { "low" } else { "high" }),
            };
            self.line(&line);
        }
    }

    /// Reads what is beside the chunk at `row`, `col`.
    pub(super) fn read_beside(&mut self, with: &[Beside], name: &str) {
        for (n, b) in with.iter().enumerate() {
            let name = format!("{name}_{n}");
            match b.span {
                Span::One => self.read_chunk(b.view, &name),
                span => self.read_shared(b.view, span, &name),
            }
        }
    }

    /// Reads the number that a chunk shares. It is there where the chunk's first element is.
    fn read_shared(&mut self, view: View, span: Span, name: &str) {
        let (v, buffer) = (self.p.view(view), self.p.view(view).buffer.index());
        let col = match span {
            Span::Columns(n) => format!("(col / {n}i)"),
            _ => "0i".to_owned(),
        };
        let inside = format!("row < {} && col < {}", size(v.rows), size(v.cols));
        let address = format!("g{} + row * {} + {col} * {}", view.0, size(v.row_stride), size(v.col_stride));
        // Such a view accesses single elements, so its buffer's array has those.
        self.line(&format!("{name} = 0.0f;"));
        self.open(&format!("if ({inside}) {{"));
        self.line(&format!("{name} = f32(b{buffer}[u32({address})]);"));
        self.close();
    }

    /// Writes numbers, as many as the view accesses at once, where the element `e` columns on is.
    pub(super) fn write_run(&mut self, view: View, address: &str, values: &[String]) {
        let (ty, buffer) = (self.number(view), self.p.view(view).buffer.index());
        let together = self.together[buffer];
        let value = |x: &String| if ty == "f16" { format!("f16(round_f16({x}))") } else { x.clone() };
        self.line(&format!("let at = u32({address}) >> {}u;", together.ilog2()));
        for (i, values) in values.chunks(together as usize).enumerate() {
            let values: Vec<String> = values.iter().map(value).collect();
            let element = match together {
                1 => values.join(", "),
                2 | 4 => format!("vec{together}<{ty}>({})", values.join(", ")),
                _ => format!(
                    "Chunk(vec4<f16>({}), vec4<f16>({}))",
                    values[..4].join(", "),
                    values[4..].join(", ")
                ),
            };
            self.line(&format!("b{buffer}[at + {i}u] = {element};"));
        }
    }

    /// The place of the element `e` columns on in its buffer, and whether it is in the view, and in its image; declares its coordinates where the view is of windows.
    pub(super) fn place(&mut self, view: View, e: u32) -> (String, String) {
        let p = self.p;
        let v = p.view(view);
        let col = if e == 0 { "col".to_owned() } else { format!("(col + {e}i)") };
        let mut inside = format!("row < {} && {col} < {}", size(v.rows), size(v.cols));
        let along = |col: &str| match v.col_stride {
            Size::Const(1) => col.to_owned(),
            stride => format!("{col} * {}", size(stride)),
        };
        let Some(window) = &v.window else {
            return (format!("g{} + row * {} + {}", view.0, size(v.row_stride), along(&col)), inside);
        };
        let numbered = match v.cols {
            Size::Part { each, .. } => format!("({col} + n0 * d{each})"),
            _ => col,
        };
        let (tap, channel) = (format!("tap{e}"), format!("channel{e}"));
        self.tap_of(window, &numbered, (&tap, &channel));
        let mut address = format!("g{} + image * {}", view.0, size(v.row_stride));
        for ((i, axis), tap) in window.axes.iter().enumerate().zip(window.taps_along(&tap, "i")) {
            let position = format!("at{e}_{i}");
            self.line(&format!("let {position} = first{i} + {tap} * {}i;", axis.slide.dilation));
            let _ = write!(inside, " && u32({position}) < u32({})", size(axis.size));
            let _ = write!(address, " + {position} * {}", size(axis.step));
        }
        let _ = write!(address, " + {}", along(&channel));
        (address, inside)
    }

    /// Declares quotient and remainder of `n`, which is not negative.
    fn divide(&mut self, n: &str, by: Size, (quotient, remainder): (&str, &str)) {
        let by = size(by);
        self.line(&format!("let {quotient} = i32(u32({n}) / u32({by}));"));
        self.line(&format!("let {remainder} = {n} - {quotient} * {by};"));
    }

    /// Declares the image of a row, and where the first tap of its window falls along each dimension.
    pub(super) fn row_of_window(&mut self, view: View) {
        let p = self.p;
        let Some(window) = &p.view(view).window else { return };
        let mut rest = "row".to_owned();
        for (i, axis) in window.axes.iter().enumerate().rev() {
            let above = if i == 0 { "image".to_owned() } else { format!("above{i}") };
            self.divide(&rest, axis.places, (&above, &format!("place{i}")));
            let (stride, before) = (axis.slide.stride, axis.slide.before);
            self.line(&format!("let first{i} = place{i} * {stride}i - {before}i;"));
            rest = above;
        }
    }

    /// Declares the tap, where there are several, and the channel of a column.
    fn tap_of(&mut self, window: &Window, col: &str, (tap, channel): (&str, &str)) {
        match window.taps() {
            1 => self.line(&format!("let {channel} = {col};")),
            _ => self.divide(col, window.channels, (tap, channel)),
        }
    }
}
