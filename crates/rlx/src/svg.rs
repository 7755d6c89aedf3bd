//! SVG helpers shared by all diagrams: escaped text, the document with its style sheet, estimates of text width.
//!
//! Diagrams are dark on light, or light on dark where the reader's `prefers-color-scheme` says so. Colours are classes with a
//! rule for each scheme and not CSS variables, which SVG converters do not support.
//!
//! ```
//! use rlx::svg;
//! let diagram = svg::document(120.0, 40.0, "", &svg::text(10.0, 24.0, "t", "a < b"));
//! assert!(diagram.contains("a &lt; b") && diagram.ends_with("</svg>\n"));
//! ```

use std::fmt::Write;

/// Characters of the small, even font are this wide.
const SMALL: f64 = 6.7;
/// Characters of titles, on average.
const TITLE: f64 = 8.2;

/// Text as XML wants it, in content and in attributes. Characters that XML does not allow become `�`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if (c as u32) < 0x20 || matches!(c as u32, 0xFFFE | 0xFFFF) => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

/// How wide small text is, about.
pub fn small_width(text: &str) -> f64 {
    text.chars().count() as f64 * SMALL
}

/// How wide a title is, about.
pub fn title_width(text: &str) -> f64 {
    text.chars().count() as f64 * TITLE
}

/// Text with a CSS class that starts at a point.
pub fn text(x: f64, y: f64, class: &str, content: &str) -> String {
    format!("<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>\n", short(x), short(y), escape(content))
}

/// A coordinate with as many digits as can be seen.
pub fn short(x: f64) -> String {
    let text = format!("{x:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Names longer than this many characters lose what follows their start; ends tell most.
pub fn shortened(name: &str, most: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= most {
        return name.to_owned();
    }
    let head = most / 6;
    let tail = most - head - 1;
    let part = |range: &[char]| range.iter().collect::<String>();
    format!("{}…{}", part(&chars[..head]), part(&chars[chars.len() - tail..]))
}

/// The classes that every diagram knows: `t` a title, `s` small text, `q` quiet text, and the page `bg`.
const COMMON: &str = "\
text{font-family:ui-sans-serif,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;fill:#1c2128}\
.t{font-size:13px;font-weight:600}\
.s,.q{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:11px}\
.q{fill:#656d76}\
.bg{fill:#ffffff}";
const COMMON_DARK: &str = "text{fill:#e6edf3}.q{fill:#9198a1}.bg{fill:#0d1117}";

/// A diagram of this size. `style` holds more rules: those for light, then, behind `@dark`, those for dark.
pub fn document(width: f64, height: f64, style: &str, body: &str) -> String {
    let (light, dark) = style.split_once("@dark").unwrap_or((style, ""));
    let (w, h) = (short(width.ceil()), short(height.ceil()));
    let mut out = String::with_capacity(body.len() + 2048);
    // Writing to a string does not fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
         role=\"img\">\n<style>{COMMON}{light}\
         @media (prefers-color-scheme:dark){{{COMMON_DARK}{dark}}}</style>\n\
         <rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_element() {
        let hostile = "</text><script>alert(\"1\" & '2')</script>\u{1}";
        let safe = escape(hostile);
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{1}']), "{safe}");
        assert_eq!(escape("größer → 3"), "größer → 3");
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(shortened("short", 9), "short");
        let cut = shortened("encoder.layer.11.attention.self.query.weight", 20);
        assert_eq!(cut.chars().count(), 20);
        assert!(cut.starts_with("enc…") && cut.ends_with("elf.query.weight"), "{cut}");
    }
}
