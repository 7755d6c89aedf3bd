//! Errors as JavaScript's objects, and panics.

use std::cell::RefCell;
use std::panic;

use js_sys::{Object, Reflect};
use rlx_ir::Error;
use wasm_bindgen::prelude::*;

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn console_error(text: &str);
}

/// `{ kind, message, hint?, device?, node?, origin? }`, of which the package makes an `RlxError`.
pub(crate) fn js_error(error: &Error) -> JsValue {
    let object = Object::new();
    // Setting a property of a fresh object does not fail.
    let set = |key: &str, value: &str| drop(Reflect::set(&object, &key.into(), &value.into()));
    set("kind", &format!("{:?}", error.kind()));
    set("message", &error.to_string());
    let parts = [
        ("hint", error.hint()),
        ("device", error.device()),
        ("node", error.node()),
        ("origin", error.origin()),
    ];
    for (key, value) in parts {
        if let Some(value) = value {
            set(key, value);
        }
    }
    object.into()
}

/// Keeps what a panic says: it ends the module's call by a trap, which has no text.
#[wasm_bindgen(start)]
pub fn start() {
    panic::set_hook(Box::new(|info| {
        console_error(&format!("rlx: {info}"));
        LAST_PANIC.with(|last| *last.borrow_mut() = Some(info.to_string()));
    }));
}

/// What the last panic said, if there was one. The module is of no use afterwards.
#[wasm_bindgen(js_name = lastPanic)]
pub fn last_panic() -> Option<String> {
    LAST_PANIC.with(|last| last.borrow().clone())
}
