//! The code of a model: its struct, its inputs, its outputs.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use rlx_ir::DType;
use syn::Ident;

use crate::body::Body;
use crate::signature::{Signature, Tensor, TensorType};

/// `mlp` is `Mlp`, `llama_block` is `LlamaBlock`.
fn camel_case(name: &Ident) -> Ident {
    let text = name.to_string();
    let parts = text.split('_').filter(|part| !part.is_empty()).map(|part| {
        let mut chars = part.chars();
        chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
    });
    Ident::new(&parts.collect::<String>(), name.span())
}

/// All of a model's code; `root` is the crate it uses.
pub fn model(signature: &Signature, body: &Body, root: &TokenStream) -> TokenStream {
    let name = camel_case(&signature.name);
    let inputs = inputs_struct(signature, &name, root);
    let outputs = outputs_struct(signature, body, &name, root);
    let graph = graph_fn(signature, body, root);
    let compile = compile_fns(root);
    let run = run_fns(signature, body, &name, root);
    let setters = signature.params().map(|param| setter(param, root));
    let consts = signature.names.consts.iter().map(|(name, value)| {
        let (value, doc) = (*value as usize, format!("The model's constant `{name}`."));
        quote!(#[doc = #doc] pub const #name: usize = #value;)
    });
    let (docs, vis) = (&signature.docs, &signature.vis);
    let doc = format!("The model `{}`, compiled for a device, with its parameters.", signature.name);
    let docs = if docs.is_empty() { quote!(#[doc = #doc]) } else { quote!(#(#docs)*) };
    quote! {
        #docs
        #[derive(Debug, Clone)]
        #vis struct #name {
            compiled: #root::CompiledGraph,
        }

        #inputs
        #outputs

        impl #name {
            #(#consts)*
            #graph
            #compile
            #run
            #(#setters)*
        }
    }
}

/// The Rust type of one element.
fn element(ty: &TensorType, root: &TokenStream) -> TokenStream {
    let name = &ty.element;
    match ty.shape.dtype() {
        DType::F16 | DType::BF16 => quote!(#root::typed::#name),
        _ => quote!(#name),
    }
}

/// The nested array of the fixed dimensions.
fn row(ty: &TensorType, root: &TokenStream) -> TokenStream {
    ty.fixed().iter().rev().fold(element(ty, root), |inner, n| quote!([#inner; #n]))
}

fn dtype(ty: &TensorType) -> TokenStream {
    let variant = format_ident!("{}", format!("{:?}", ty.shape.dtype()));
    quote!(__rlx::DType::#variant)
}

fn shape(ty: &TensorType) -> TokenStream {
    let (dims, dtype) = (&ty.dims, dtype(ty));
    quote!(__rlx::Shape::from_dims(&[#(#dims),*], #dtype))
}

fn inputs_struct(signature: &Signature, name: &Ident, root: &TokenStream) -> TokenStream {
    if signature.inputs().next().is_none() {
        return TokenStream::new();
    }
    let fields = signature.inputs().map(|input| {
        let (field, row) = (&input.name, row(&input.ty, root));
        let doc = format!("`{}`", input.ty.shape);
        let ty = match input.ty.leading() {
            0 => quote!(&'a #row),
            1 => quote!(&'a [#row]),
            n => quote!(#root::typed::DenseView<'a, #row, #n>),
        };
        quote!(#[doc = #doc] pub #field: #ty)
    });
    let (vis, inputs) = (&signature.vis, format_ident!("{name}Inputs"));
    let doc = format!("The inputs of a run of [`{name}`].");
    quote! {
        #[doc = #doc]
        #[derive(Debug, Clone, Copy)]
        #vis struct #inputs<'a> {
            #(#fields),*
        }
    }
}

fn outputs_struct(signature: &Signature, body: &Body, name: &Ident, root: &TokenStream) -> TokenStream {
    let fields = signature.results.iter().zip(&body.results).map(|(ty, (field, _))| {
        let row = row(ty, root);
        let doc = format!("`{}`", ty.shape);
        let ty = match ty.leading() {
            0 => quote!(::std::boxed::Box<#row>),
            1 => quote!(::std::vec::Vec<#row>),
            n => quote!(#root::typed::Dense<#row, #n>),
        };
        quote!(#[doc = #doc] pub #field: #ty)
    });
    let (vis, outputs) = (&signature.vis, format_ident!("{name}Outputs"));
    let doc = format!("The outputs of a run of [`{name}`].");
    quote! {
        #[doc = #doc]
        #[derive(Debug, Clone, PartialEq)]
        #vis struct #outputs {
            #(#fields),*
        }
    }
}

fn graph_fn(signature: &Signature, body: &Body, root: &TokenStream) -> TokenStream {
    let name = signature.name.to_string();
    let sources = signature.tensors.iter().map(|tensor| {
        let (var, text, shape) = (&tensor.name, tensor.name.to_string(), shape(&tensor.ty));
        let declare = if tensor.is_param { quote!(param) } else { quote!(input) };
        quote!(let #var = __tracer.#declare(#text, #shape);)
    });
    let (statements, results) = (&body.statements, body.results.iter().map(|(_, code)| code));
    quote! {
        /// The model as a graph, by tracing its body.
        #[allow(clippy::all)]
        pub fn graph() -> #root::Graph {
            use #root as __rlx;
            __rlx::trace(#name, |__tracer| {
                #(#sources)*
                #(#statements)*
                ::std::vec![#(#results),*]
            })
        }
    }
}

fn compile_fns(root: &TokenStream) -> TokenStream {
    quote! {
        /// Compiles the model for `device`.
        ///
        /// # Panics
        /// With the text of `try_new`'s error.
        #[track_caller]
        pub fn new(device: #root::Device) -> Self {
            match Self::try_new(device) {
                ::std::result::Result::Ok(model) => model,
                ::std::result::Result::Err(e) => ::std::panic!("{e}"),
            }
        }

        /// Compiles the model for `device`.
        ///
        /// # Errors
        /// A device that is not there, or what compiling reports.
        pub fn try_new(device: #root::Device) -> ::std::result::Result<Self, #root::CompileError> {
            Self::compile(&#root::Session::try_new(device)?)
        }

        /// Compiles the model in `session`, with its precision and policy.
        ///
        /// # Errors
        /// What compiling reports.
        pub fn compile(session: &#root::Session) -> ::std::result::Result<Self, #root::CompileError> {
            ::std::result::Result::Ok(Self { compiled: session.try_compile(Self::graph())? })
        }

        /// Compiles the model in `session` with `options`.
        ///
        /// # Errors
        /// What compiling reports.
        pub fn compile_with(
            session: &#root::Session,
            options: &#root::CompileOptions,
        ) -> ::std::result::Result<Self, #root::CompileError> {
            ::std::result::Result::Ok(Self { compiled: session.try_compile_with(Self::graph(), options)? })
        }

        /// The compiled graph underneath.
        pub fn compiled(&self) -> &#root::CompiledGraph {
            &self.compiled
        }

        /// The compiled graph underneath.
        pub fn compiled_mut(&mut self) -> &mut #root::CompiledGraph {
            &mut self.compiled
        }

        /// Sets every parameter from stored weights of its name.
        ///
        /// # Errors
        /// A parameter without weights, or weights of another shape.
        pub fn load(&mut self, weights: &#root::WeightStore) -> ::std::result::Result<(), #root::Error> {
            #root::typed::load(&mut self.compiled, weights)
        }
    }
}

fn run_fns(signature: &Signature, body: &Body, name: &Ident, root: &TokenStream) -> TokenStream {
    let (inputs, outputs) = (format_ident!("{name}Inputs"), format_ident!("{name}Outputs"));
    let views = signature.inputs().map(view);
    let reads = signature.results.iter().zip(&body.results).map(|(ty, (field, _))| {
        let read = match ty.leading() {
            0 if ty.shape.rank() == 0 => quote!(scalar),
            0 => quote!(fixed),
            1 => quote!(rows),
            _ => quote!(dense),
        };
        quote!(#field: __rlx::typed::read::#read(__views.next())?)
    });
    let has_inputs = signature.inputs().next().is_some();
    let (param, arg) =
        if has_inputs { (quote!(, inputs: #inputs<'_>), quote!(inputs)) } else { Default::default() };
    quote! {
        /// Runs the model.
        ///
        /// # Panics
        /// With the text of `try_run`'s error.
        #[track_caller]
        pub fn run(&mut self #param) -> #outputs {
            match self.try_run(#arg) {
                ::std::result::Result::Ok(outputs) => outputs,
                ::std::result::Result::Err(e) => ::std::panic!("{e}"),
            }
        }

        /// Runs the model.
        ///
        /// # Errors
        /// A parameter that was never set, inconsistent dynamic dimensions, a value an op does not allow, a device error.
        pub fn try_run(&mut self #param) -> ::std::result::Result<#outputs, #root::Error> {
            use #root as __rlx;
            self.compiled.try_run_views(&[#(#views),*])?;
            let mut __views = self.compiled.output_views();
            ::std::result::Result::Ok(#outputs { #(#reads),* })
        }
    }
}

/// An input's field as a view of its bytes.
fn view(input: &Tensor) -> TokenStream {
    let (field, name, dtype) = (&input.name, input.name.to_string(), dtype(&input.ty));
    let fixed = input.ty.fixed();
    let (dims, bytes) = match input.ty.leading() {
        0 => (quote!(#(#fixed),*), quote!(__rlx::typed::bytes_of(inputs.#field))),
        1 => (quote!(inputs.#field.len(), #(#fixed),*), quote!(__rlx::typed::bytes_of_rows(inputs.#field))),
        n => {
            let leading = 0..n;
            let dims = quote!(#(inputs.#field.dims()[#leading],)* #(#fixed),*);
            (dims, quote!(__rlx::typed::bytes_of_rows(inputs.#field.rows())))
        }
    };
    quote!(__rlx::TensorView { name: #name, dtype: #dtype, dims: &[#dims], bytes: #bytes })
}

/// `set_NAME` and `try_set_NAME`.
fn setter(param: &Tensor, root: &TokenStream) -> TokenStream {
    let (name, row, dtype) = (param.name.to_string(), row(&param.ty, root), dtype(&param.ty));
    let (set, try_set) = (format_ident!("set_{}", param.name), format_ident!("try_set_{}", param.name));
    let doc = format!("Sets parameter `{name}`, `{}`.", param.ty.shape);
    let panics = format!("With the message of `{try_set}`'s error.");
    quote! {
        #[doc = #doc]
        ///
        /// # Panics
        #[doc = #panics]
        #[track_caller]
        pub fn #set(&mut self, value: &#row) {
            if let ::std::result::Result::Err(e) = self.#try_set(value) {
                ::std::panic!("{e}");
            }
        }

        #[doc = #doc]
        ///
        /// # Errors
        /// Memory that cannot be had.
        pub fn #try_set(&mut self, value: &#row) -> ::std::result::Result<(), #root::Error> {
            use #root as __rlx;
            self.compiled.try_set_param_typed(#name, __rlx::typed::bytes_of(value), #dtype)
        }
    }
}
