//! Warnings of the library, printed on standard error; the command continues.
//!
//! The library emits them as tracing events with fields. The text form is `warning: MESSAGE: ERROR (model m)`; with
//! `--json` each is a line `{"warning": {"message": …, "error": …, "model": …}}`.

use std::fmt::Debug;

use serde_json::{Map, Value as Json, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::output::Messages;

/// Shows warnings from now on.
pub fn show(json: bool) {
    // Anyone who has set another one before wants them there.
    let _ = tracing::subscriber::set_global_default(Warnings { json });
}

struct Warnings {
    json: bool,
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN && metadata.target().starts_with("rlx")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        match self.json {
            true => writeln!(Messages, "{}", json!({ "warning": fields.0 })),
            false => writeln!(Messages, "{}", fields.text()),
        }
    }

    // Spans are not enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What an event says, by name.
#[derive(Default)]
struct Fields(Map<String, Json>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // What is to be displayed comes here, too, and is formatted so.
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }
}

impl Fields {
    fn text(&self) -> String {
        let plain =
            |value: &Json| value.as_str().map_or_else(|| value.to_string(), |s| s.replace('\n', "; "));
        let named =
            |name: &str| self.0.get(name).map(plain).map_or_else(String::new, |text| format!(": {text}"));
        let about = self.0.iter().filter(|(name, _)| !["message", "error"].contains(&name.as_str()));
        let about: Vec<String> = about.map(|(name, value)| format!("{name} {}", plain(value))).collect();
        let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
        format!("warning{}{}{about}", named("message"), named("error"))
    }
}
