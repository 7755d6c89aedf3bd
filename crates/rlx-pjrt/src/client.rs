//! What a plugin has, as values that free themselves: client, programs, buffers, events; and compiling ahead of time.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use rlx_ir::{DType, Error, ErrorKind, Result, memory};

use crate::api::{
    self, ClientCompile, ClientCreate, CompileAhead, Deserialize, Execute, ExecuteOptions, Fault, FromHost,
    Function, Layout, List, MemoryStats, NULL, Number, One, Opaque, Other, Program, Properties, Serialize,
    Table, Text, TiledLayout, ToHost, TopologyCreate,
};
use crate::load::Plugin;

/// One device, and values of 16 bits that are rounded as the graph says (XLA would keep more digits where it can):
/// `CompileOptionsProto { executable_build_options { num_replicas: 1, num_partitions: 1 },
/// env_option_overrides { key: "xla_allow_excess_precision", value { bool_field: false } } }`.
pub(crate) const OPTIONS: &[u8] =
    b"\x1a\x04\x20\x01\x28\x01\x3a\x20\x0a\x1axla_allow_excess_precision\x12\x02\x10\x00";

/// A fault as a typed error.
pub(crate) fn typed(fault: &Fault) -> Error {
    let kind = match fault.code {
        8 => ErrorKind::OutOfMemory,
        12 => ErrorKind::Unsupported,
        _ => ErrorKind::Device,
    };
    let first = fault.message.lines().next().unwrap_or_default();
    Error::new(kind, format!("{} gave error {}: {first}", fault.function, fault.code))
        .with_device(rlx_driver::Device::Tpu.name())
}

/// A thing of a plugin's that has a function to destroy it.
struct Owned {
    plugin: Arc<Plugin>,
    of: Opaque,
    destroy: Function,
}

// SAFETY: PJRT's things may be used and destroyed on any thread.
unsafe impl Send for Owned {}
// SAFETY: its functions may be called on several threads at once.
unsafe impl Sync for Owned {}

impl Owned {
    fn new(plugin: &Arc<Plugin>, of: Opaque, destroy: Function) -> Owned {
        Owned { plugin: Arc::clone(plugin), of, destroy }
    }

    fn table(&self) -> Table {
        self.plugin.table
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.of.is_null() {
            return;
        }
        // SAFETY: it is destroyed once, and not used after that.
        let done = unsafe { self.table().call(self.destroy, &mut One { of: self.of, ..One::default() }) };
        if let Err(fault) = done {
            tracing::debug!(?fault, "not freed");
        }
    }
}

/// Calls a function of a plugin's.
///
/// # Safety
/// As [`Table::call`].
unsafe fn call<A>(table: Table, function: Function, arguments: &mut A) -> Result<()> {
    // SAFETY: as the caller promises.
    unsafe { table.call(function, arguments) }.map_err(|fault| typed(&fault))
}

/// A client of a plugin, and the first device that it addresses.
pub(crate) struct Client {
    client: Owned,
    device: Opaque,
    /// Platform, version, and kind of device.
    pub(crate) machine: String,
}

// SAFETY: the device is the client's, and may be named on any thread.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    pub(crate) fn new(plugin: &Arc<Plugin>) -> Result<Client> {
        let table = plugin.table;
        let mut made = ClientCreate::default();
        // SAFETY: no options, and no store of keys.
        unsafe { call(table, Function::ClientCreate, &mut made) }?;
        let client = Owned::new(plugin, made.client, Function::ClientDestroy);
        let mut devices = List { of: client.of, ..List::default() };
        // SAFETY: the client is there.
        unsafe { call(table, Function::ClientAddressableDevices, &mut devices) }?;
        if devices.count == 0 || devices.items.is_null() {
            return Err(crate::load::unavailable(format!("{} finds no device", plugin.path.display())));
        }
        // SAFETY: the list has the client's lifetime and is not empty.
        let device = unsafe { devices.items.read() };
        let text = |function, of| {
            let mut said = Text { of, ..Text::default() };
            // SAFETY: functions of this form, of things that are there; the text has their lifetime.
            let done = unsafe { table.call(function, &mut said) };
            // SAFETY: as above.
            done.map_or_else(|_| String::new(), |()| unsafe { api::text(said.text, said.size) })
        };
        let mut description = Other { of: device, ..Other::default() };
        // SAFETY: the device is there. Without a description its kind stays empty.
        let described = unsafe { table.call(Function::DeviceGetDescription, &mut description) };
        let kind = described
            .map_or_else(|_| String::new(), |()| text(Function::DeviceDescriptionKind, description.other));
        let machine = format!(
            "{} {kind}, {}",
            text(Function::ClientPlatformName, client.of),
            text(Function::ClientPlatformVersion, client.of).replace('\n', " ")
        );
        Ok(Client { client, device, machine })
    }

    /// Compiles a module's text.
    pub(crate) fn compile(self: &Arc<Self>, text: &str) -> Result<Executable> {
        let program = program(text);
        let mut made = ClientCompile {
            client: self.client.of,
            program: &program,
            options: OPTIONS.as_ptr().cast(),
            options_size: OPTIONS.len(),
            ..ClientCompile::default()
        };
        // SAFETY: program and options live until the call returns.
        unsafe { call(self.client.table(), Function::ClientCompile, &mut made) }?;
        Ok(self.loaded(made.executable))
    }

    /// The program that [`Executable::serialize`] gave bytes of, on the same machine.
    pub(crate) fn deserialize(self: &Arc<Self>, bytes: &[u8]) -> Result<Executable> {
        let mut made = Deserialize {
            client: self.client.of,
            bytes: bytes.as_ptr().cast(),
            size: bytes.len(),
            ..Deserialize::default()
        };
        // SAFETY: the bytes live until the call returns; they come from the user's own cache.
        unsafe { call(self.client.table(), Function::ExecutableDeserializeAndLoad, &mut made) }?;
        Ok(self.loaded(made.executable))
    }

    fn loaded(self: &Arc<Self>, executable: Opaque) -> Executable {
        let owned = Owned::new(&self.client.plugin, executable, Function::LoadedExecutableDestroy);
        Executable { owned, client: Arc::clone(self) }
    }

    /// Brings elements to the device, those of less than a byte each in one.
    pub(crate) fn upload(self: &Arc<Self>, bytes: &[u8], dtype: DType, dims: &[usize]) -> Result<Buffer> {
        let ty = code(dtype)?;
        let sizes: Vec<i64> = dims.iter().map(|&n| n as i64).collect();
        let mut made = FromHost {
            client: self.client.of,
            data: bytes.as_ptr().cast(),
            ty,
            dims: sizes.as_ptr(),
            num_dims: sizes.len(),
            device: self.device,
            ..FromHost::default()
        };
        // SAFETY: data and dimensions live until the call returns, and are not kept longer (semantics 0).
        unsafe { call(self.client.table(), Function::ClientBufferFromHostBuffer, &mut made) }?;
        let buffer = self.buffer(made.buffer, dtype, dims);
        Event::new(&self.client.plugin, made.done).wait()?;
        Ok(buffer)
    }

    fn buffer(self: &Arc<Self>, buffer: Opaque, dtype: DType, dims: &[usize]) -> Buffer {
        let owned = Owned::new(&self.client.plugin, buffer, Function::BufferDestroy);
        Buffer { owned, dtype, dims: dims.to_vec(), _client: Arc::clone(self) }
    }
}

fn program(text: &str) -> Program {
    Program {
        code: text.as_ptr().cast(),
        code_size: text.len(),
        format: c"mlir".as_ptr(),
        format_size: 4,
        ..Program::default()
    }
}

/// What the header calls an element type.
fn code(dtype: DType) -> Result<c_int> {
    Ok(match dtype {
        DType::Bool => 1,
        DType::I8 => 2,
        DType::I16 => 3,
        DType::I32 => 4,
        DType::I64 => 5,
        DType::U8 => 6,
        DType::U16 => 7,
        DType::U32 => 8,
        DType::U64 => 9,
        DType::F16 => 10,
        DType::F32 => 11,
        DType::F64 => 12,
        DType::BF16 => 13,
        DType::C64 => 14,
        DType::F8E5M2 => 16,
        DType::F8E4M3FN => 17,
        DType::F8E5M2FNUZ => 19,
        DType::F8E4M3FNUZ => 20,
        DType::I4 => 21,
        DType::U4 => 22,
        DType::I2 => 24,
        DType::U2 => 25,
        DType::F8E8M0 => 28,
        DType::F4E2M1 => 29,
        dtype => return Err(Error::new(ErrorKind::Unsupported, format!("PJRT has no {dtype}"))),
    })
}

/// Something that happens later.
pub(crate) struct Event(Owned);

impl Event {
    fn new(plugin: &Arc<Plugin>, event: Opaque) -> Event {
        Event(Owned::new(plugin, event, Function::EventDestroy))
    }

    /// Waits for it.
    pub(crate) fn wait(self) -> Result<()> {
        if self.0.of.is_null() {
            return Ok(());
        }
        // SAFETY: the event is there until this is dropped.
        unsafe { call(self.0.table(), Function::EventAwait, &mut One { of: self.0.of, ..One::default() }) }
    }
}

/// A tensor on the device.
pub(crate) struct Buffer {
    owned: Owned,
    dtype: DType,
    dims: Vec<usize>,
    // Dropped last: the client must be there when the buffer is freed.
    _client: Arc<Client>,
}

impl Buffer {
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its elements in row-major order, once they are computed; those of less than a byte each in one.
    pub(crate) fn download(&self) -> Result<Vec<u8>> {
        let bytes = self.dims.iter().product::<usize>() * self.dtype.size_bytes();
        let mut to: Vec<u8> = memory::zeroed(bytes, || "an output".into())?;
        let order: Vec<i64> = (0..self.dims.len() as i64).rev().collect();
        let tiled =
            TiledLayout { minor_to_major: order.as_ptr(), rank: order.len(), ..TiledLayout::default() };
        let layout = Layout { tiled, ..Layout::default() };
        let mut copied = ToHost {
            buffer: self.owned.of,
            layout: &layout,
            to: to.as_mut_ptr().cast::<c_void>(),
            size: bytes,
            ..ToHost::default()
        };
        // SAFETY: there is room for all elements, which is written until the event is there; it is waited for in any case.
        unsafe { call(self.owned.table(), Function::BufferToHostBuffer, &mut copied) }?;
        Event::new(&self.owned.plugin, copied.event).wait()?;
        Ok(to)
    }
}

/// A program on the device.
pub(crate) struct Executable {
    owned: Owned,
    client: Arc<Client>,
}

impl Executable {
    /// Starts a run. `kept` are the numbers of arguments that must not be written over; `results` are types and dimensions
    /// of what comes back.
    pub(crate) fn execute(
        &self,
        arguments: &[&Buffer],
        kept: &[i64],
        results: &[(DType, Vec<usize>)],
    ) -> Result<(Vec<Buffer>, Event)> {
        let list: Vec<Opaque> = arguments.iter().map(|buffer| buffer.owned.of).collect();
        let mut given = vec![NULL; results.len()];
        let (lists, outputs) = ([list.as_ptr()], [given.as_mut_ptr()]);
        let mut events = [NULL];
        let mut options =
            ExecuteOptions { kept: kept.as_ptr(), num_kept: kept.len(), ..ExecuteOptions::default() };
        let mut run = Execute {
            executable: self.owned.of,
            options: &mut options,
            arguments: lists.as_ptr(),
            num_devices: 1,
            num_arguments: list.len(),
            outputs: outputs.as_ptr(),
            events: events.as_mut_ptr(),
            ..Execute::default()
        };
        // SAFETY: lists and options live until the call returns; there is room for as many outputs as the program has.
        unsafe { call(self.owned.table(), Function::LoadedExecutableExecute, &mut run) }?;
        let event = Event::new(&self.owned.plugin, events[0]);
        let buffer =
            |(&raw, (dtype, dims)): (&Opaque, &(DType, Vec<usize>))| self.client.buffer(raw, *dtype, dims);
        Ok((given.iter().zip(results).map(buffer).collect(), event))
    }

    /// The program as bytes that the same plugin takes on the same kind of device.
    pub(crate) fn serialize(&self) -> Result<Vec<u8>> {
        let mut of = Other { of: self.owned.of, ..Other::default() };
        // SAFETY: the program is there.
        unsafe { call(self.owned.table(), Function::LoadedExecutableGetExecutable, &mut of) }?;
        serialize(&Owned::new(&self.owned.plugin, of.other, Function::ExecutableDestroy))
    }
}

fn serialize(executable: &Owned) -> Result<Vec<u8>> {
    let mut made = Serialize { executable: executable.of, ..Serialize::default() };
    // SAFETY: the program is there.
    unsafe { call(executable.table(), Function::ExecutableSerialize, &mut made) }?;
    // SAFETY: the bytes are there until the deleter is called.
    let bytes = unsafe { api::bytes(made.bytes, made.size) }.to_vec();
    if let Some(deleter) = made.deleter {
        // SAFETY: once, on what it belongs to.
        unsafe { deleter(made.backing) };
    }
    Ok(bytes)
}

/// A program that was compiled for a device that is not here.
#[derive(Debug, Clone, Default)]
pub struct AheadOfTime {
    /// The serialised program.
    pub program: Vec<u8>,
    /// Bytes of machine code.
    pub code_bytes: i64,
    /// Bytes of arguments, outputs, what outputs share with arguments, and everything between.
    pub argument_bytes: i64,
    /// Bytes of the outputs.
    pub output_bytes: i64,
    /// Bytes of arguments that outputs are written over.
    pub alias_bytes: i64,
    /// Bytes of values between arguments and outputs.
    pub temporary_bytes: i64,
    /// What the compiler says of the cost: floating-point operations, bytes, ….
    pub costs: Vec<(String, f64)>,
}

/// Compiles a module's text for a topology, such as `v5e:2x2`, without a device.
pub(crate) fn compile_ahead(plugin: &Arc<Plugin>, topology: &str, text: &str) -> Result<AheadOfTime> {
    let table = plugin.table;
    let mut described = TopologyCreate {
        name: topology.as_ptr().cast(),
        name_size: topology.len(),
        ..TopologyCreate::default()
    };
    // SAFETY: the name lives until the call returns.
    unsafe { call(table, Function::TopologyDescriptionCreate, &mut described) }?;
    let topology = Owned::new(plugin, described.topology, Function::TopologyDescriptionDestroy);
    let program = program(text);
    let mut made = CompileAhead {
        topology: topology.of,
        program: &program,
        options: OPTIONS.as_ptr().cast::<c_char>(),
        options_size: OPTIONS.len(),
        ..CompileAhead::default()
    };
    // SAFETY: topology, program and options live until the call returns.
    unsafe { call(table, Function::Compile, &mut made) }?;
    let executable = Owned::new(plugin, made.executable, Function::ExecutableDestroy);
    let mut size = Number { of: executable.of, ..Number::default() };
    // SAFETY: the program is there.
    unsafe { call(table, Function::ExecutableSizeOfGeneratedCodeInBytes, &mut size) }?;
    let mut stats = MemoryStats { executable: executable.of, ..MemoryStats::default() };
    // SAFETY: as above.
    unsafe { call(table, Function::ExecutableGetCompiledMemoryStats, &mut stats) }?;
    let mut costs = Properties { executable: executable.of, ..Properties::default() };
    // SAFETY: as above. Not every plugin knows costs.
    let known = unsafe { table.call(Function::ExecutableGetCostAnalysis, &mut costs) }.is_ok();
    let costs = if known && !costs.items.is_null() {
        // SAFETY: so many values, which have the program's lifetime.
        let items = unsafe { std::slice::from_raw_parts(costs.items, costs.count) };
        // SAFETY: a name is as long as it says.
        let name = |item: &api::NamedValue| unsafe { api::text(item.name, item.name_size) };
        // Kind 3 is an f32, kind 1 an i64.
        let value = |item: &api::NamedValue| match item.kind {
            3 => Some(f64::from(f32::from_bits(item.value as u32))),
            1 => Some(item.value as i64 as f64),
            _ => None,
        };
        items.iter().filter_map(|item| Some((name(item), value(item)?))).collect()
    } else {
        Vec::new()
    };
    Ok(AheadOfTime {
        program: serialize(&executable)?,
        code_bytes: size.value,
        argument_bytes: stats.bytes[1],
        output_bytes: stats.bytes[2],
        alias_bytes: stats.bytes[3],
        temporary_bytes: stats.bytes[4],
        costs,
    })
}
