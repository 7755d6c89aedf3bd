//! Rows that are looked up: the page of a row.

use std::fmt::Write;

use super::body::Body;
use super::language::size;
use crate::ir::{Program, Size, View};

/// Ends a workgroup that has nothing to do.
pub(super) fn return_without_table(p: &Program, out: &mut String) {
    let Some(view) = p.grid.table else { return };
    let Some(lookup) = &p.view(view).lookup else { return };
    let (v, pages) = (view.0, size(lookup.pages));
    let _ = writeln!(out, "  if (l{v}[0] < -{pages} || l{v}[0] >= {pages}) return;");
}

impl Body<'_> {
    /// Declares the page of a row, whether the table has it, and the row's number in it.
    pub(super) fn page_of_row(&mut self, view: View) {
        let p = self.p;
        let v = p.view(view);
        let Some(lookup) = &v.lookup else { return };
        let behind = match v.rows {
            Size::Part { each, .. } => format!(" + n0 * d{each}"),
            Size::Const(_) | Size::Uniform(_) => String::new(),
        };
        let numbered = format!("row + {}{behind}", size(lookup.first));
        self.line(&format!("const int numbered = {numbered};"));
        let (number, line) = match lookup.page {
            None => ("0".to_string(), "numbered".to_string()),
            Some(rows) => {
                (format!("(int)((u32)numbered / {rows}u)"), format!("(int)((u32)numbered % {rows}u)"))
            }
        };
        self.line(&format!("const int line = {line};"));
        let pages = size(lookup.pages);
        self.line(&format!("i64 page = row < {} ? (i64)l{}[{number}] : 0;", size(v.rows), view.0));
        self.line(&format!("page += page < 0 ? (i64){pages} : 0;"));
        self.line(&format!("const bool found = page >= 0 && page < {pages};"));
    }
}
