//! `#[rlx_model]`: a model as a function, its shapes checked while the user's crate compiles.
//!
//! The macro reads the function's signature (the tensors it takes and returns, and their shapes) and *records
//! its body* with [`rlx_ir::trace`](mod@rlx_ir::trace), just as a running program would: the shape rules are the op table's own, and a
//! fault becomes a compile error at the operation that made it. What it generates is ordinary code: a struct of
//! the model's name whose `graph()` traces the same body, and whose inputs and outputs are typed.
//!
//! | module | what it does |
//! |---|---|
//! | `signature` | the function's signature: dimensions, tensors, results |
//! | `expr` | the value of an expression while the body is recorded |
//! | `body` | records the body and writes it as code over traced tensors |
//! | `generate` | the struct, its inputs, its outputs |
//!
//! The user's page is the documentation of [`macro@rlx_model`].
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod body;
mod expr;
mod generate;
mod signature;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes a model of a function: its shapes are checked while the crate compiles, and it becomes a struct with
/// typed inputs and outputs.
///
/// A model reads like this; the example at `rlx_runtime::rlx_model` compiles and runs one.
///
/// ```text
/// #[rlx_model]
/// fn mlp<Batch, const HIDDEN: usize = 128>(
///     x: Tensor<f32, Batch, 64>,
///     w1: Param<f32, 64, HIDDEN>,
///     b1: Param<f32, HIDDEN>,
///     w2: Param<f32, HIDDEN, 10>,
/// ) -> Tensor<f32, Batch, 10> {
///     let hidden = (x.matmul(w1) + b1).relu();
///     hidden.matmul(w2).softmax(-1)
/// }
/// ```
///
/// **Dimensions.** A type parameter (`Batch`) is a dynamic dimension, whose value each run determines; `Batch`, `Seq`,
/// `PastSeq` and `Rows` are the well-known symbols. A const parameter needs its value and is a name for it. In a
/// type, arithmetic is in braces: `Tensor<f32, Batch, {HIDDEN * 4}>`. A tensor without dimensions is
/// `Tensor<f32>`.
///
/// **Tensors.** A `Tensor` is an input of every run, a `Param` is set once. Each must be used.
///
/// **The body** is `let` statements and, at its end, the result or a tuple of results: operators, numbers, and the
/// methods of `TracedTensor` by name. `let` may state a shape, which is then checked:
/// `let scores: Tensor<f32, Batch, Seq, Seq> = …;`. A result that is a plain variable has its name, else it is
/// `output` (several: `output0`, `output1`, …).
///
/// **What it makes**, for `fn mlp`: the struct `Mlp` with
/// - `graph()`, the traced graph; `new`/`try_new(Device)`, `compile(&Session)`, `compile_with(&Session,
///   &CompileOptions)`: the same pipeline and precision policy as every graph;
/// - `run`/`try_run(MlpInputs { x: … }) -> MlpOutputs { output: … }`;
/// - `set_NAME`/`try_set_NAME` for each parameter, `load(&WeightStore)` for all;
/// - `compiled()` and `compiled_mut()`, the `CompiledGraph` underneath.
///
/// Fixed dimensions are arrays, checked by the compiler: `[Batch, 64]` is `&[[f32; 64]]` as an input and
/// `Vec<[f32; 64]>` as an output, `[2, 3]` is `&[[f32; 3]; 2]` and `Box<[[f32; 3]; 2]>`; with several
/// dynamic dimensions `[Batch, Seq, 64]` is a `DenseView<[f32; 64], 2>` and a `Dense<[f32; 64], 2>`.
///
/// `#[rlx_model(crate = path)]` names the crate whose items the generated code uses, for crates that re-export it.
#[proc_macro_attribute]
pub fn rlx_model(attr: TokenStream, item: TokenStream) -> TokenStream {
    expand(attr, item, quote::quote!(::rlx_runtime))
}

/// [`macro@rlx_model`] for users of the crate `rlx`, who need no dependency on `rlx_runtime`.
#[doc(hidden)]
#[proc_macro_attribute]
pub fn rlx_model_of_rlx(attr: TokenStream, item: TokenStream) -> TokenStream {
    expand(attr, item, quote::quote!(::rlx::prelude))
}

fn expand(attr: TokenStream, item: TokenStream, root: proc_macro2::TokenStream) -> TokenStream {
    let options = parse_macro_input!(attr as signature::Options);
    let function = parse_macro_input!(item as syn::ItemFn);
    let root = options.root.unwrap_or(root);
    model(&function, &root).unwrap_or_else(|e| e.to_compile_error()).into()
}

fn model(function: &syn::ItemFn, root: &proc_macro2::TokenStream) -> syn::Result<proc_macro2::TokenStream> {
    let signature = signature::Signature::of(function)?;
    let body = body::record(&signature, &function.block)?;
    Ok(generate::model(&signature, &body, root))
}
