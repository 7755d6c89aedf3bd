//! What a driver keeps: devices, contexts, memory, streams with their pending work. Work is done when somebody waits for it and not
//! before, so what is read too early is not there, and what is changed too early is noticed.

pub mod blas;
mod launch;
mod spoilt;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rlx_kernel::interp::{Binding, Pools};

use crate::arguments::Arguments;
use crate::loaded::{Code, Does};
use crate::models::DEVICES;

/// The numbers that both vendors have for these errors.
pub mod code {
    pub const INVALID_VALUE: i32 = 1;
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const NOT_INITIALIZED: i32 = 3;
    pub const INVALID_DEVICE: i32 = 101;
    pub const INVALID_IMAGE: i32 = 200;
    pub const INVALID_CONTEXT: i32 = 201;
    pub const INVALID_HANDLE: i32 = 400;
    pub const ILLEGAL_STATE: i32 = 401;
    pub const NOT_FOUND: i32 = 500;
    pub const NOT_READY: i32 = 600;
    pub const ILLEGAL_ADDRESS: i32 = 700;
    pub const OUT_OF_RESOURCES: i32 = 701;
    pub const MISALIGNED: i32 = 716;
    pub const CAPTURE_UNSUPPORTED: i32 = 900;
}

/// Why a call is rejected.
#[derive(Debug, Clone)]
pub struct Rejected {
    pub code: i32,
    pub why: String,
}

/// What calls give.
pub type Outcome<T> = Result<T, Rejected>;

/// Rejects.
pub fn reject<T>(code: i32, why: impl Into<String>) -> Outcome<T> {
    Err(Rejected { code, why: why.into() })
}

/// How much memory each device has.
const MEMORY: usize = 4 << 30;
/// Device memory begins here: no address of the host's.
const FIRST_ADDRESS: u64 = 0x7a00_0000_0000;
/// What memory holds that nobody wrote.
const POISON: u8 = 0xA5;
/// Larger allocations hold zeros instead, which the host has memory for only where something is written.
const MOST_POISONED: usize = 256 << 20;

/// A piece of work.
#[derive(Debug, Clone)]
pub enum Work {
    Fill { to: u64, bytes: usize, value: u8 },
    ToDevice { to: u64, from: HostBytes },
    ToHost { to: u64, from: u64, bytes: usize },
    OnDevice { to: u64, from: u64, bytes: usize },
    Launch { code: Arc<Code>, groups: i64, arguments: Arguments },
    Multiply(Box<blas::Product>),
    Event(u64),
}

/// Bytes of the host that are on their way: pinned ones are read when the copy is done, and must not have changed by then.
#[derive(Debug, Clone)]
pub struct HostBytes {
    pub pinned: Option<u64>,
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Allocation {
    bytes: usize,
    pool: usize,
}

#[derive(Debug, Default)]
struct Stream {
    pending: VecDeque<Work>,
    /// What is being recorded.
    recording: Option<Vec<Work>>,
}

/// What a handle stands for besides streams.
#[derive(Debug, Clone)]
pub enum Thing {
    /// Whether it takes the time, and when the device was last past it.
    Event {
        is_timed: bool,
        passed: Option<u64>,
    },
    Module(String, Arc<Code>),
    /// Of which module, what, and how much workgroup memory a launch may give.
    Function(u64, Arc<Code>, u64),
    Graph(Vec<Work>),
    Executable(Vec<Work>),
    /// A handle of a library for matmuls.
    Blas,
}

/// A context of a device.
#[derive(Debug, Default)]
pub struct Context {
    /// By address.
    memory: HashMap<u64, Allocation>,
    pools: Pools,
    free_pools: Vec<usize>,
    used: usize,
    /// Pinned memory, by address.
    pinned: HashMap<u64, Box<[u64]>>,
    pinned_bytes: HashMap<u64, usize>,
    streams: HashMap<u64, Stream>,
    things: HashMap<u64, Thing>,
    /// Why nothing works any more.
    broken: Option<Rejected>,
    /// How much work it did: its clock.
    clock: u64,
    /// What it computes wrongly: see [`Context::spoil`].
    spoilt: Option<String>,
}

/// A vendor's driver.
#[derive(Debug, Default)]
pub struct World {
    pub initialised: bool,
    /// The context of each device, by its handle.
    contexts: HashMap<u64, Context>,
    primary: [Option<u64>; DEVICES],
    /// What the library for matmuls keeps, on the host.
    pub descriptors: blas::Descriptors,
    handles: u64,
    next_address: u64,
}

impl World {
    pub fn handle(&mut self) -> u64 {
        // Multiples of 16, as pointers are.
        self.handles += 1;
        0x5000_0000 + 16 * self.handles
    }

    /// The context of a device, made where there is none.
    pub fn primary(&mut self, device: usize) -> Outcome<u64> {
        if device >= DEVICES {
            return reject(code::INVALID_DEVICE, format!("there is no device {device}"));
        }
        if let Some(handle) = self.primary[device] {
            return Ok(handle);
        }
        let handle = self.handle();
        self.contexts.insert(handle, Context::default());
        self.primary[device] = Some(handle);
        Ok(handle)
    }

    /// The device that a context is of.
    pub fn device_of(&self, context: u64) -> Option<usize> {
        self.primary.iter().position(|of| *of == Some(context))
    }

    /// Drops everything of a device.
    pub fn reset(&mut self, device: usize) -> Outcome<()> {
        if device >= DEVICES {
            return reject(code::INVALID_DEVICE, format!("there is no device {device}"));
        }
        if let Some(handle) = self.primary[device].take() {
            self.contexts.remove(&handle);
        }
        Ok(())
    }

    /// A context that works.
    pub fn context(&mut self, handle: u64) -> Outcome<&mut Context> {
        match self.contexts.get_mut(&handle) {
            None => reject(code::INVALID_CONTEXT, "no context is current in this thread"),
            Some(context) => match &context.broken {
                Some(broken) => Err(broken.clone()),
                None => Ok(context),
            },
        }
    }

    pub fn allocate(&mut self, context: u64, bytes: usize) -> Outcome<u64> {
        if bytes == 0 {
            return reject(code::INVALID_VALUE, "an allocation of nothing");
        }
        let at = FIRST_ADDRESS + self.next_address;
        let context = self.context(context)?;
        if context.used.saturating_add(bytes) > MEMORY {
            return reject(
                code::OUT_OF_MEMORY,
                format!("{bytes} bytes, {} of {MEMORY} are used", context.used),
            );
        }
        context.used += bytes;
        let pool = context.free_pools.pop().unwrap_or_else(|| {
            context.pools.0.push(Vec::new());
            context.pools.0.len() - 1
        });
        context.pools.0[pool] = vec![if bytes > MOST_POISONED { 0 } else { POISON }; bytes];
        context.memory.insert(at, Allocation { bytes, pool });
        // Room between allocations, so that what runs out of one is in none.
        self.next_address += (bytes as u64).next_multiple_of(1 << 16) + (1 << 16);
        Ok(at)
    }
}

impl Context {
    // ---- Memory.

    /// The allocation with these bytes: its address, and where they are in its pool.
    fn range(&self, at: u64, bytes: usize) -> Outcome<(u64, Binding)> {
        let found = self.memory.iter().find(|(base, a)| (**base..**base + a.bytes as u64).contains(&at));
        let Some((&base, allocation)) = found else {
            return reject(code::INVALID_VALUE, format!("{at:#x} is no memory of this context"));
        };
        let offset = (at - base) as usize;
        if bytes > allocation.bytes - offset {
            let why = format!("{bytes} bytes at {offset} of an allocation of {}", allocation.bytes);
            return reject(code::INVALID_VALUE, why);
        }
        Ok((base, Binding { pool: allocation.pool, offset, len: allocation.bytes - offset }))
    }

    fn pinned_range(&self, at: u64, bytes: usize) -> Option<u64> {
        let inside = |(base, len): (&u64, &usize)| at >= *base && at + bytes as u64 <= base + *len as u64;
        self.pinned_bytes.iter().find(|&entry| inside(entry)).map(|(base, _)| *base)
    }

    pub fn pin(&mut self, bytes: usize) -> Outcome<u64> {
        if bytes == 0 {
            return reject(code::INVALID_VALUE, "an allocation of nothing");
        }
        let memory = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        let at = memory.as_ptr().addr() as u64;
        self.pinned.insert(at, memory);
        self.pinned_bytes.insert(at, bytes);
        Ok(at)
    }

    /// A range of pinned memory as the host has it.
    fn host(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        let base = self.pinned_range(at, bytes)?;
        let memory = self.pinned.get_mut(&base)?;
        let start = (at - base) as usize;
        let all: &mut [u64] = memory;
        // SAFETY: words as bytes; the range is inside of them. The program under test reads and writes the same memory by its
        // address, between calls.
        let all = unsafe { std::slice::from_raw_parts_mut(all.as_mut_ptr().cast::<u8>(), 8 * all.len()) };
        Some(&mut all[start..start + bytes])
    }

    /// Bytes that a copy to the device reads from the host.
    pub fn host_bytes(&mut self, at: u64, bytes: usize, pageable: impl FnOnce() -> Vec<u8>) -> HostBytes {
        match self.host(at, bytes) {
            Some(own) => HostBytes { bytes: own.to_vec(), pinned: Some(at) },
            None => HostBytes { bytes: pageable(), pinned: None },
        }
    }

    /// The allocations of the device and of the host that a piece of work uses.
    fn uses(&self, work: &Work) -> Outcome<Vec<u64>> {
        let device = |at: u64, bytes: usize| Ok(self.range(at, bytes)?.0);
        let host = |at: u64, bytes: usize| {
            let missing = || Rejected {
                code: code::INVALID_VALUE,
                why: format!("{bytes} bytes at {at:#x} are not pinned memory"),
            };
            self.pinned_range(at, bytes).ok_or_else(missing)
        };
        match work {
            Work::Fill { to, bytes, .. } => Ok(vec![device(*to, *bytes)?]),
            Work::ToDevice { to, from } => {
                let mut all = vec![device(*to, from.bytes.len())?];
                if let Some(at) = from.pinned {
                    all.push(host(at, from.bytes.len())?);
                }
                Ok(all)
            }
            Work::ToHost { to, from, bytes } => Ok(vec![host(*to, *bytes)?, device(*from, *bytes)?]),
            Work::OnDevice { to, from, bytes } => Ok(vec![device(*to, *bytes)?, device(*from, *bytes)?]),
            Work::Launch { arguments, .. } => arguments.addresses().map(|at| device(at, 1)).collect(),
            Work::Multiply(product) => product.ranges().map(|(at, bytes)| device(at, bytes)).collect(),
            Work::Event(_) => Ok(Vec::new()),
        }
    }

    fn pending_use(&self, base: u64, except: Option<u64>) -> bool {
        let others = self.streams.iter().filter(|(handle, _)| Some(**handle) != except);
        let mut pending = others.flat_map(|(_, stream)| &stream.pending);
        pending.any(|work| self.uses(work).is_ok_and(|uses| uses.contains(&base)))
    }

    pub fn free(&mut self, at: u64) -> Outcome<()> {
        if !self.memory.contains_key(&at) {
            return reject(
                code::INVALID_VALUE,
                format!("{at:#x} is no allocation of this context, or was freed"),
            );
        }
        if self.pending_use(at, None) {
            return reject(
                code::ILLEGAL_STATE,
                "memory is freed that pending work uses: a synchronisation is missing",
            );
        }
        if let Some(allocation) = self.memory.remove(&at) {
            self.pools.0[allocation.pool] = Vec::new();
            self.free_pools.push(allocation.pool);
            self.used -= allocation.bytes;
        }
        Ok(())
    }

    pub fn unpin(&mut self, at: u64) -> Outcome<()> {
        if !self.pinned.contains_key(&at) {
            return reject(
                code::INVALID_VALUE,
                format!("{at:#x} is no pinned memory of this context, or was freed"),
            );
        }
        if self.pending_use(at, None) {
            return reject(
                code::ILLEGAL_STATE,
                "pinned memory is freed that pending work uses: a synchronisation is missing",
            );
        }
        self.pinned.remove(&at);
        self.pinned_bytes.remove(&at);
        Ok(())
    }

    // ---- Streams and things.

    pub fn add_stream(&mut self, handle: u64) {
        self.streams.insert(handle, Stream::default());
    }

    fn stream(&mut self, handle: u64) -> Outcome<&mut Stream> {
        let missing = || Rejected { code: code::INVALID_HANDLE, why: "no stream of this context".into() };
        self.streams.get_mut(&handle).ok_or_else(missing)
    }

    pub fn drop_stream(&mut self, handle: u64) -> Outcome<()> {
        if !self.stream(handle)?.pending.is_empty() {
            return reject(
                code::ILLEGAL_STATE,
                "a stream is destroyed that has pending work: a synchronisation is missing",
            );
        }
        self.streams.remove(&handle);
        Ok(())
    }

    pub fn add(&mut self, handle: u64, thing: Thing) {
        self.things.insert(handle, thing);
    }

    pub fn thing(&self, handle: u64) -> Outcome<Thing> {
        let missing =
            || Rejected { code: code::INVALID_HANDLE, why: "nothing of this context has this handle".into() };
        self.things.get(&handle).cloned().ok_or_else(missing)
    }

    /// Allows launches of a function to give so many bytes of workgroup memory.
    pub fn allow(&mut self, function: u64, bytes: u64) -> Outcome<()> {
        match self.things.get_mut(&function) {
            Some(Thing::Function(.., most)) => {
                *most = bytes;
                Ok(())
            }
            _ => reject(code::INVALID_HANDLE, "the handle is of something else than a function"),
        }
    }

    pub fn remove(&mut self, handle: u64, is: fn(&Thing) -> bool) -> Outcome<()> {
        if !is(&self.thing(handle)?) {
            return reject(code::INVALID_HANDLE, "the handle is of something else");
        }
        if matches!(self.things.remove(&handle), Some(Thing::Module(..))) {
            self.things.retain(|_, thing| !matches!(thing, Thing::Function(of, ..) if *of == handle));
        }
        Ok(())
    }

    /// Gives a stream work.
    pub fn give(&mut self, stream: u64, work: Work) -> Outcome<()> {
        let uses = self.uses(&work)?;
        if let Work::Launch { code, arguments, .. } = &work {
            arguments.are_aligned(code)?;
        }
        if let Some(recording) = &mut self.stream(stream)?.recording {
            if matches!(work, Work::Event(_)) {
                return reject(code::CAPTURE_UNSUPPORTED, "an event in a recording");
            }
            recording.push(work);
            return Ok(());
        }
        if uses.iter().any(|&base| self.pending_use(base, Some(stream))) {
            let why = "memory that pending work of another stream uses: a synchronisation is missing";
            return reject(code::ILLEGAL_STATE, why);
        }
        // Until the copy is waited for, nothing sensible is there.
        if let Work::ToHost { to, bytes, .. } = work
            && let Some(host) = self.host(to, bytes)
        {
            host.fill(POISON);
        }
        // Now: who waits may be another thread.
        if let Work::Launch { code, .. } = &work
            && let Does::Tiles(program) = &code.does
        {
            crate::calls::count_tiles(program.grid.tile.0);
        }
        self.stream(stream)?.pending.push_back(work);
        Ok(())
    }

    pub fn begin_recording(&mut self, stream: u64) -> Outcome<()> {
        let stream = self.stream(stream)?;
        if stream.recording.is_some() {
            return reject(code::ILLEGAL_STATE, "the stream is recorded already");
        }
        stream.recording = Some(Vec::new());
        Ok(())
    }

    pub fn end_recording(&mut self, stream: u64) -> Outcome<Vec<Work>> {
        let missing = || Rejected { code: code::ILLEGAL_STATE, why: "the stream is not recorded".into() };
        self.stream(stream)?.recording.take().ok_or_else(missing)
    }

    // ---- Waiting.

    /// Does the work of a stream, up to an event where one is given.
    pub fn wait(&mut self, stream: u64, event: Option<u64>) -> Outcome<()> {
        if self.stream(stream)?.recording.is_some() {
            return reject(code::CAPTURE_UNSUPPORTED, "a stream that is recorded cannot be waited for");
        }
        while let Some(work) = self.stream(stream)?.pending.pop_front() {
            if let Err(rejected) = self.do_work(&work) {
                // What fails on the device takes the context with it.
                self.streams.values_mut().for_each(|stream| stream.pending.clear());
                self.broken = Some(rejected.clone());
                return Err(rejected);
            }
            if event.is_some_and(|event| matches!(work, Work::Event(e) if e == event)) {
                break;
            }
        }
        Ok(())
    }

    /// Waits for an event: for the stream that it is pending in.
    pub fn wait_event(&mut self, event: u64) -> Outcome<()> {
        if !matches!(self.thing(event)?, Thing::Event { .. }) {
            return reject(code::INVALID_HANDLE, "the handle is of something else");
        }
        let is = |work: &Work| matches!(work, Work::Event(e) if *e == event);
        let last =
            self.streams.iter().find(|(_, stream)| stream.pending.iter().any(is)).map(|(handle, _)| *handle);
        last.map_or(Ok(()), |stream| self.wait(stream, Some(event)))
    }

    /// Milliseconds from one event to another: each piece of work takes a microsecond.
    pub fn elapsed(&self, from: u64, to: u64) -> Outcome<f32> {
        let when = |event: u64| match self.thing(event)? {
            Thing::Event { is_timed: true, passed: Some(when) } => Ok(when),
            Thing::Event { is_timed: true, .. } => {
                reject(code::NOT_READY, "the device is not past the event")
            }
            _ => reject(code::INVALID_HANDLE, "the handle is of something else than an event with times"),
        };
        Ok((when(to)? as f32 - when(from)? as f32) / 1000.0)
    }

    pub fn wait_all(&mut self) -> Outcome<()> {
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        streams.into_iter().try_for_each(|stream| self.wait(stream, None))
    }

    fn do_work(&mut self, work: &Work) -> Outcome<()> {
        self.clock += 1;
        let gone = |r: Rejected| Rejected { code: code::ILLEGAL_ADDRESS, ..r };
        match work {
            Work::Fill { to, bytes, value } => {
                let (_, to) = self.range(*to, *bytes).map_err(gone)?;
                self.pools.0[to.pool][to.offset..to.offset + bytes].fill(*value);
            }
            Work::ToDevice { to, from } => {
                if let Some(at) = from.pinned
                    && self.host(at, from.bytes.len()).is_none_or(|now| *now != *from.bytes)
                {
                    return reject(
                        code::ILLEGAL_STATE,
                        "pinned memory changed before a copy of it was done: a synchronisation is missing",
                    );
                }
                let (_, to) = self.range(*to, from.bytes.len()).map_err(gone)?;
                self.pools.0[to.pool][to.offset..to.offset + from.bytes.len()].copy_from_slice(&from.bytes);
            }
            Work::ToHost { to, from, bytes } => {
                let (_, from) = self.range(*from, *bytes).map_err(gone)?;
                let copy = self.pools.0[from.pool][from.offset..from.offset + bytes].to_vec();
                match self.host(*to, *bytes) {
                    Some(host) => host.copy_from_slice(&copy),
                    None => return reject(code::ILLEGAL_ADDRESS, "pinned memory is gone"),
                }
            }
            Work::OnDevice { to, from, bytes } => {
                let ((_, to), (_, from)) =
                    (self.range(*to, *bytes).map_err(gone)?, self.range(*from, *bytes).map_err(gone)?);
                let copy = self.pools.0[from.pool][from.offset..from.offset + bytes].to_vec();
                self.pools.0[to.pool][to.offset..to.offset + bytes].copy_from_slice(&copy);
            }
            Work::Launch { code, groups, arguments } => self.launch(code, *groups, arguments)?,
            Work::Multiply(product) => self.multiply(product)?,
            Work::Event(event) => {
                if let Some(Thing::Event { passed, .. }) = self.things.get_mut(event) {
                    *passed = Some(self.clock);
                }
            }
        }
        Ok(())
    }
}
