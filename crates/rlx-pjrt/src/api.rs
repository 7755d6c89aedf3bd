//! PJRT's C API as far as it is called here: the table of functions by their order, the arguments of those that are used, and the
//! one place where they are called.
//!
//! Layouts are those of `pjrt_c_api.h` of version 0.113, which is in the public sources of XLA. Versions of one major number only
//! append, to the table and to arguments, and every struct begins with its size, so that both sides know what the other one knows.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

/// The major version that the layouts are of.
pub(crate) const MAJOR: c_int = 0;

/// Things of the plugin's; only their addresses are known here.
pub(crate) type Opaque = *mut c_void;

/// Declares the functions in the order of the table.
macro_rules! functions {
    ($($name:ident)*) => {
        /// A function, by its place in the table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(dead_code, clippy::upper_case_acronyms, reason = "the table has more than is called")]
        pub(crate) enum Function {
            $($name,)*
        }

        impl Function {
            /// What the header calls it.
            fn name(self) -> &'static str {
                match self { $(Function::$name => stringify!($name),)* }
            }
        }
    };
}

functions! {
    ErrorDestroy ErrorMessage ErrorGetCode PluginInitialize PluginAttributes EventDestroy EventIsReady EventError EventAwait
    EventOnReady ClientCreate ClientDestroy ClientPlatformName ClientProcessIndex ClientPlatformVersion ClientDevices
    ClientAddressableDevices ClientLookupDevice ClientLookupAddressableDevice ClientAddressableMemories ClientCompile
    ClientDefaultDeviceAssignment ClientBufferFromHostBuffer DeviceDescriptionId DeviceDescriptionProcessIndex
    DeviceDescriptionAttributes DeviceDescriptionKind DeviceDescriptionDebugString DeviceDescriptionToString
    DeviceGetDescription DeviceIsAddressable DeviceLocalHardwareId DeviceAddressableMemories DeviceDefaultMemory
    DeviceMemoryStats MemoryId MemoryKind MemoryDebugString MemoryToString MemoryAddressableByDevices ExecutableDestroy
    ExecutableName ExecutableNumReplicas ExecutableNumPartitions ExecutableNumOutputs ExecutableSizeOfGeneratedCodeInBytes
    ExecutableGetCostAnalysis ExecutableOutputMemoryKinds ExecutableOptimizedProgram ExecutableSerialize
    LoadedExecutableDestroy LoadedExecutableGetExecutable LoadedExecutableAddressableDevices LoadedExecutableDelete
    LoadedExecutableIsDeleted LoadedExecutableExecute ExecutableDeserializeAndLoad LoadedExecutableFingerprint
    BufferDestroy BufferElementType BufferDimensions BufferUnpaddedDimensions BufferDynamicDimensionIndices
    BufferGetMemoryLayout BufferOnDeviceSizeInBytes BufferDevice BufferMemory BufferDelete BufferIsDeleted
    BufferCopyToDevice BufferToHostBuffer BufferIsOnCpu BufferReadyEvent BufferUnsafePointer
    BufferIncreaseExternalReferenceCount BufferDecreaseExternalReferenceCount BufferOpaqueDeviceMemoryDataPointer
    CopyToDeviceStreamDestroy CopyToDeviceStreamAddChunk CopyToDeviceStreamTotalBytes CopyToDeviceStreamGranuleSize
    CopyToDeviceStreamCurrentBytes TopologyDescriptionCreate TopologyDescriptionDestroy TopologyDescriptionPlatformName
    TopologyDescriptionPlatformVersion TopologyDescriptionGetDeviceDescriptions TopologyDescriptionSerialize
    TopologyDescriptionAttributes Compile ExecutableOutputElementTypes ExecutableOutputDimensions BufferCopyToMemory
    ClientCreateViewOfDeviceBuffer ExecutableFingerprint ClientTopologyDescription ExecutableGetCompiledMemoryStats
}

/// The head of the table; functions follow it.
#[repr(C)]
pub(crate) struct Head {
    struct_size: usize,
    extensions: Opaque,
    version_size: usize,
    version_extensions: Opaque,
    pub(crate) major: c_int,
    pub(crate) minor: c_int,
}

/// Declares the arguments of functions. Each begins with its size, and with a list of extensions, of which none is given.
macro_rules! arguments {
    ($($(#[doc = $doc:literal])* $name:ident { $($field:ident: $ty:ty,)* })*) => {
        $(
            $(#[doc = $doc])*
            #[repr(C)]
            #[allow(dead_code, reason = "what the plugin alone reads")]
            pub(crate) struct $name {
                pub(crate) struct_size: usize,
                pub(crate) extensions: Opaque,
                $(pub(crate) $field: $ty,)*
            }

            impl Default for $name {
                fn default() -> Self {
                    // SAFETY: numbers, and addresses that may be null: all zero is a value of each.
                    let mut zero: $name = unsafe { std::mem::zeroed() };
                    zero.struct_size = size_of::<$name>();
                    zero
                }
            }
        )*
    };
}

arguments! {
    /// One thing: of functions that destroy it, wait for it, or ask for nothing else.
    One { of: Opaque, }
    /// Nothing.
    Nothing {}
    ErrorMessage { error: Opaque, message: *const c_char, size: usize, }
    ErrorCode { error: Opaque, code: c_int, }
    ClientCreate {
        options: Opaque, num_options: usize, kv_get: Opaque, kv_get_arg: Opaque, kv_put: Opaque, kv_put_arg: Opaque,
        client: Opaque, kv_try_get: Opaque, kv_try_get_arg: Opaque,
    }
    /// A text of a thing.
    Text { of: Opaque, text: *const c_char, size: usize, }
    /// A list of a thing's.
    List { of: Opaque, items: *const Opaque, count: usize, }
    /// A thing of a thing's.
    Other { of: Opaque, other: Opaque, }
    Program { code: *const c_char, code_size: usize, format: *const c_char, format_size: usize, }
    ClientCompile {
        client: Opaque, program: *const Program, options: *const c_char, options_size: usize, executable: Opaque,
    }
    CompileAhead {
        topology: Opaque, program: *const Program, options: *const c_char, options_size: usize, client: Opaque,
        executable: Opaque,
    }
    TopologyCreate {
        name: *const c_char, name_size: usize, options: Opaque, num_options: usize, topology: Opaque,
    }
    FromHost {
        client: Opaque, data: *const c_void, ty: c_int, dims: *const i64, num_dims: usize, strides: *const i64,
        num_strides: usize, semantics: c_int, device: Opaque, memory: Opaque, layout: Opaque, done: Opaque,
        buffer: Opaque,
    }
    TiledLayout {
        minor_to_major: *const i64, rank: usize, tile_dims: *const i64, tile_sizes: *const usize, num_tiles: usize,
    }
    /// A layout; the space of the union is that of its larger form.
    Layout { tiled: TiledLayout, kind: c_int, }
    ToHost { buffer: Opaque, layout: *const Layout, to: *mut c_void, size: usize, event: Opaque, }
    ExecuteOptions {
        send: Opaque, receive: Opaque, num_send: usize, num_receive: usize, launch: c_int, kept: *const i64,
        num_kept: usize, context: Opaque, location: *const c_char, num_tasks: usize, tasks: Opaque,
        incarnations: Opaque, multi_slice: Opaque, major_to_minor: bool, callbacks: Opaque, num_callbacks: usize,
    }
    Execute {
        executable: Opaque, options: *mut ExecuteOptions, arguments: *const *const Opaque, num_devices: usize,
        num_arguments: usize, outputs: *const *mut Opaque, events: *mut Opaque, device: Opaque,
    }
    Serialize {
        executable: Opaque, bytes: *const c_char, size: usize, backing: Opaque,
        deleter: Option<unsafe extern "C" fn(Opaque)>,
    }
    Deserialize {
        client: Opaque, bytes: *const c_char, size: usize, executable: Opaque, options: *const c_char,
        options_size: usize, load_options: Opaque,
    }
    Number { of: Opaque, value: i64, }
    MemoryStats { executable: Opaque, bytes: [i64; 15], }
    Properties { executable: Opaque, count: usize, items: *const NamedValue, }
    NamedValue { name: *const c_char, name_size: usize, kind: c_int, value: u64, size: usize, }
}

/// An error that a plugin gave: its code (absl's) and message.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) function: &'static str,
    pub(crate) code: c_int,
    pub(crate) message: String,
}

/// A plugin's table.
#[derive(Clone, Copy)]
pub(crate) struct Table(*const Head);

// SAFETY: the table is constant, and PJRT's functions may be called from any thread.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// A table that a plugin gave.
    ///
    /// # Safety
    /// `head` is null, or what `GetPjrtApi` of a library gave that stays loaded.
    pub(crate) unsafe fn new(head: *const Head) -> Option<Table> {
        (!head.is_null()).then_some(Table(head))
    }

    /// The major and minor version.
    pub(crate) fn version(self) -> (c_int, c_int) {
        // SAFETY: a table begins so in every version.
        let head = unsafe { &*self.0 };
        (head.major, head.minor)
    }

    /// The address of a function; `None` where the table is too short, or has none.
    fn address(self, function: Function) -> Option<Opaque> {
        let at = size_of::<Head>() + function as usize * size_of::<Opaque>();
        // SAFETY: a table begins so in every version.
        let size = unsafe { (*self.0).struct_size };
        if size < at + size_of::<Opaque>() {
            return None;
        }
        // SAFETY: the table is as long as it says.
        let address = unsafe { self.0.cast::<u8>().add(at).cast::<Opaque>().read() };
        (!address.is_null()).then_some(address)
    }

    /// The first of these functions that the plugin does not have.
    pub(crate) fn lacks(self, functions: &[Function]) -> Option<&'static str> {
        functions.iter().find(|&&function| self.address(function).is_none()).map(|function| function.name())
    }

    /// Calls a function.
    ///
    /// # Safety
    /// `arguments` are those of this function; what they point to is as the header asks.
    pub(crate) unsafe fn call<A>(self, function: Function, arguments: &mut A) -> Result<(), Fault> {
        let missing =
            || Fault { function: function.name(), code: 12, message: "the plugin does not have it".into() };
        let address = self.address(function).ok_or_else(missing)?;
        // SAFETY: every function but the two for errors has this signature.
        let function_at =
            unsafe { std::mem::transmute::<Opaque, unsafe extern "C" fn(*mut A) -> Opaque>(address) };
        // SAFETY: as the caller promises.
        let error = unsafe { function_at(arguments) };
        if error.is_null() { Ok(()) } else { Err(self.fault(function.name(), error)) }
    }

    /// Calls one of the functions for errors, which give nothing.
    ///
    /// # Safety
    /// As [`Table::call`].
    unsafe fn call_void<A>(self, function: Function, arguments: &mut A) {
        let Some(address) = self.address(function) else { return };
        // SAFETY: the two functions for errors have this signature.
        let function_at = unsafe { std::mem::transmute::<Opaque, unsafe extern "C" fn(*mut A)>(address) };
        // SAFETY: as the caller promises.
        unsafe { function_at(arguments) }
    }

    /// What an error says; it is freed.
    fn fault(self, function: &'static str, error: Opaque) -> Fault {
        let mut said = ErrorMessage { error, ..ErrorMessage::default() };
        // SAFETY: the error is there until it is destroyed below.
        unsafe { self.call_void(Function::ErrorMessage, &mut said) };
        // SAFETY: the message has the error's lifetime.
        let message = unsafe { text(said.message, said.size) };
        let mut code = ErrorCode { error, code: 2, ..ErrorCode::default() };
        if let Some(address) = self.address(Function::ErrorGetCode) {
            // SAFETY: the signature of the header.
            let get = unsafe {
                std::mem::transmute::<Opaque, unsafe extern "C" fn(*mut ErrorCode) -> Opaque>(address)
            };
            // SAFETY: the error is still there. An error of this is not looked at.
            unsafe { get(&mut code) };
        }
        // SAFETY: it is not used after this.
        unsafe { self.call_void(Function::ErrorDestroy, &mut One { of: error, ..One::default() }) };
        Fault { function, code: code.code, message }
    }
}

/// A text that a plugin gave.
///
/// # Safety
/// `text` is null, or `size` bytes that can be read.
pub(crate) unsafe fn text(text: *const c_char, size: usize) -> String {
    // SAFETY: as the caller promises.
    String::from_utf8_lossy(unsafe { bytes(text, size) }).into_owned()
}

/// Bytes that a plugin gave.
///
/// # Safety
/// `at` is null, or `size` bytes that can be read as long as the result is used.
pub(crate) unsafe fn bytes<'a>(at: *const c_char, size: usize) -> &'a [u8] {
    if at.is_null() || size == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(at.cast(), size) }
}

/// Nothing.
pub(crate) const NULL: Opaque = null_mut();
