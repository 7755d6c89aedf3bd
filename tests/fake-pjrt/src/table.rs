//! The functions, and the table of them.

use std::ffi::c_void;
use std::sync::LazyLock;

use crate::world::{Failed, INTERNAL, INVALID, Source, Thing, World, world};

/// Arguments as words: the size, extensions, then the fields.
type Arguments = *mut u64;

/// How many functions the table has.
const FUNCTIONS: usize = 97;

/// The table: size, extensions, version (size, extensions, major and minor), functions.
#[repr(C)]
struct Table {
    size: usize,
    extensions: usize,
    version_size: usize,
    version_extensions: usize,
    major: i32,
    minor: i32,
    functions: [usize; FUNCTIONS],
}

/// Arguments of a call that was counted and checked.
struct Call(Arguments);

impl Call {
    fn get(&self, word: usize) -> u64 {
        // SAFETY: the size that the caller gave was compared with the header's, which has this word.
        unsafe { self.0.add(word).read() }
    }

    fn set(&self, word: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.add(word).write(value) }
    }

    fn bytes(&self, at: usize, size: usize) -> Vec<u8> {
        let (address, size) = (self.get(at) as *const u8, self.get(size) as usize);
        // SAFETY: the caller says that so many bytes are there.
        if size == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(address, size) }.to_vec() }
    }
}

/// Counts and checks a call, and does it: `size` is the header's, of the arguments.
fn call(
    arguments: Arguments,
    size: u64,
    does: impl FnOnce(&mut World, &Call) -> Result<(), Failed>,
) -> *mut c_void {
    let mut world = world();
    world.calls += 1;
    // SAFETY: arguments begin with their size.
    let given = unsafe { arguments.read() };
    let failed = match &mut world.fails {
        Some((0, code)) => {
            let code = *code;
            world.fails = None;
            Some((code, "a test asked for it".to_owned()))
        }
        Some((left, _)) => {
            *left -= 1;
            None
        }
        None => None,
    };
    let done = match failed {
        Some(failed) => Err(failed),
        None if given != size => {
            Err((INVALID, format!("arguments of {given} bytes, the header says {size}")))
        }
        None => does(&mut world, &Call(arguments)),
    };
    match done {
        Ok(()) => std::ptr::null_mut(),
        Err((code, message)) => world.add(Thing::Error { code, message }) as *mut c_void,
    }
}

extern "C" fn error_destroy(arguments: Arguments) {
    _ = world().remove(Call(arguments).get(2));
}

extern "C" fn error_message(arguments: Arguments) {
    let (world, call) = (world(), Call(arguments));
    if let Ok(Thing::Error { message, .. }) = world.get(call.get(2)) {
        call.set(3, message.as_ptr() as u64);
        call.set(4, message.len() as u64);
    }
}

extern "C" fn error_code(arguments: Arguments) -> *mut c_void {
    let (world, call) = (world(), Call(arguments));
    if let Ok(Thing::Error { code, .. }) = world.get(call.get(2)) {
        // SAFETY: the field is an int.
        unsafe { arguments.add(3).cast::<i32>().write(*code) };
    }
    std::ptr::null_mut()
}

extern "C" fn initialize(arguments: Arguments) -> *mut c_void {
    call(arguments, 16, |world, _| {
        world.ready = true;
        Ok(())
    })
}

extern "C" fn client_create(arguments: Arguments) -> *mut c_void {
    call(arguments, 88, |world, call| {
        if !world.ready {
            return Err((9, "the plugin was not set up".into()));
        }
        let client = world.add(Thing::Client);
        call.set(8, client);
        Ok(())
    })
}

/// Frees the thing in word 2.
extern "C" fn destroy(arguments: Arguments) -> *mut c_void {
    call(arguments, 24, |world, call| world.remove(call.get(2)).map(drop))
}

extern "C" fn devices(arguments: Arguments) -> *mut c_void {
    call(arguments, 40, |world, call| {
        world.get(call.get(2))?;
        // Lists stay for the process.
        let list: &'static [u64; 1] = Box::leak(Box::new([world.add(Thing::Device)]));
        call.set(3, list.as_ptr() as u64);
        call.set(4, 1);
        Ok(())
    })
}

extern "C" fn description(arguments: Arguments) -> *mut c_void {
    call(arguments, 32, |world, call| {
        world.get(call.get(2))?;
        let description = world.add(Thing::Description);
        call.set(3, description);
        Ok(())
    })
}

fn text(arguments: Arguments, text: &'static str) -> *mut c_void {
    call(arguments, 40, |world, call| {
        world.get(call.get(2))?;
        call.set(3, text.as_ptr() as u64);
        call.set(4, text.len() as u64);
        Ok(())
    })
}

extern "C" fn platform(arguments: Arguments) -> *mut c_void {
    text(arguments, "fake")
}

extern "C" fn version(arguments: Arguments) -> *mut c_void {
    text(arguments, "for tests")
}

extern "C" fn kind(arguments: Arguments) -> *mut c_void {
    text(arguments, "XLA on the CPU")
}

extern "C" fn event_await(arguments: Arguments) -> *mut c_void {
    call(arguments, 24, |world, call| match world.get(call.get(2))? {
        Thing::Event => Ok(()),
        _ => Err((INVALID, "no event".into())),
    })
}

fn load(world: &mut World, source: Source) -> Result<u64, Failed> {
    let program = world.worker()?.compile(&source).map_err(|e| (INVALID, e))?;
    Ok(world.add(Thing::Loaded { program, source }))
}

extern "C" fn compile(arguments: Arguments) -> *mut c_void {
    call(arguments, 56, |world, call| {
        world.get(call.get(2))?;
        let program = Call(call.get(3) as Arguments);
        if program.get(0) != 48 || program.bytes(4, 5) != b"mlir" {
            return Err((INVALID, "no MLIR".into()));
        }
        let source = Source { options: call.bytes(4, 5), text: program.bytes(2, 3) };
        // CompileOptionsProto begins with executable_build_options.
        if source.options.first() != Some(&0x1a) {
            return Err((INVALID, "no options".into()));
        }
        let loaded = load(world, source)?;
        call.set(6, loaded);
        Ok(())
    })
}

/// Bytes of an element by the header's number of its type; packed ones come one in a byte.
fn element(ty: i32) -> Option<usize> {
    Some(match ty {
        1 | 2 | 6 | 16..=22 | 24 | 25 | 28 | 29 => 1,
        3 | 7 | 10 | 13 => 2,
        4 | 8 | 11 => 4,
        5 | 9 | 12 | 14 => 8,
        _ => return None,
    })
}

extern "C" fn from_host(arguments: Arguments) -> *mut c_void {
    call(arguments, 120, |world, call| {
        world.get(call.get(2))?;
        if !matches!(world.get(call.get(10))?, Thing::Device) || call.get(8) != 0 || call.get(9) as i32 != 0 {
            return Err((INVALID, "another device, strides, or memory that is kept".into()));
        }
        let (ty, rank) = (call.get(4) as i32, call.get(6) as usize);
        // SAFETY: the caller says that so many dimensions are there.
        let dims: Vec<i64> =
            (0..rank).map(|i| unsafe { (call.get(5) as *const i64).add(i).read() }).collect();
        let size =
            element(ty).ok_or((INVALID, format!("type {ty}")))? * dims.iter().product::<i64>() as usize;
        let bytes = if size == 0 {
            Vec::new()
        } else {
            // SAFETY: there are as many bytes as the dimensions say.
            unsafe { std::slice::from_raw_parts(call.get(3) as *const u8, size) }.to_vec()
        };
        let (buffer, event) = (world.add(Thing::Buffer(Some((ty, dims, bytes)))), world.add(Thing::Event));
        call.set(13, event);
        call.set(14, buffer);
        Ok(())
    })
}

extern "C" fn to_host(arguments: Arguments) -> *mut c_void {
    call(arguments, 56, |world, call| {
        let Thing::Buffer(Some((_, dims, bytes))) = world.get(call.get(2))? else {
            return Err((INVALID, "the buffer was donated".into()));
        };
        let layout = Call(call.get(3) as Arguments);
        // Tiled, by the order of the dimensions: the last one runs fastest.
        let order: Vec<i64> = (0..layout.get(5) as usize)
            // SAFETY: the layout says that so many are there.
            .map(|i| unsafe { (layout.get(4) as *const i64).add(i).read() })
            .collect();
        if layout.get(0) != 80 && layout.get(0) != 76
            || order != (0..dims.len() as i64).rev().collect::<Vec<_>>()
        {
            return Err((INVALID, format!("a layout of {} bytes, order {order:?}", layout.get(0))));
        }
        if (call.get(5) as usize) < bytes.len() {
            return Err((INVALID, format!("room for {} of {} bytes", call.get(5), bytes.len())));
        }
        // SAFETY: there is room for so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), call.get(4) as *mut u8, bytes.len()) };
        let event = world.add(Thing::Event);
        call.set(6, event);
        Ok(())
    })
}

/// Which arguments of a program outputs may be written over, as its text says.
fn aliased(text: &[u8], count: usize) -> Vec<bool> {
    let text = String::from_utf8_lossy(text);
    let head = text.lines().find(|line| line.contains("@main(")).unwrap_or_default().to_owned();
    let argument = |i: usize| {
        let begin = head.find(&format!("%a{i}: ")).unwrap_or(head.len());
        let end = head[begin..].find(&format!("%a{}: ", i + 1)).map_or(head.len(), |at| begin + at);
        head[begin..end].contains("tf.aliasing_output")
    };
    (0..count).map(argument).collect()
}

extern "C" fn execute(arguments: Arguments) -> *mut c_void {
    call(arguments, 80, |world, call| {
        let Thing::Loaded { program, source } = world.get(call.get(2))? else {
            return Err((INVALID, "no program".into()));
        };
        let (program, count) = (*program, call.get(6) as usize);
        let mut donated = aliased(&source.text, count);
        let options = Call(call.get(3) as Arguments);
        for i in 0..options.get(8) as usize {
            // SAFETY: the options say that so many are there.
            let kept = unsafe { (options.get(7) as *const i64).add(i).read() };
            *donated.get_mut(kept as usize).ok_or((INVALID, "no such argument".into()))? = false;
        }
        // SAFETY: one list, as there is one device.
        let list = unsafe { (call.get(4) as *const *const u64).read() };
        // SAFETY: of so many arguments.
        let inputs: Vec<u64> = (0..count).map(|i| unsafe { list.add(i).read() }).collect();
        let results = world.run(program, &inputs, &donated)?;
        // SAFETY: one list, with room for the program's outputs.
        let outputs = unsafe { (call.get(7) as *const *mut u64).read() };
        for (i, result) in results.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { outputs.add(i).write(result) };
        }
        let event = world.add(Thing::Event);
        // SAFETY: room for one event.
        unsafe { (call.get(8) as *mut u64).write(event) };
        Ok(())
    })
}

extern "C" fn get_executable(arguments: Arguments) -> *mut c_void {
    call(arguments, 32, |world, call| {
        let Thing::Loaded { source, .. } = world.get(call.get(2))? else {
            return Err((INVALID, "no program".into()));
        };
        let source = source.clone();
        let executable = world.add(Thing::Executable { source });
        call.set(3, executable);
        Ok(())
    })
}

extern "C" fn free_bytes(backing: u64) {
    _ = world().remove(backing);
}

extern "C" fn serialize(arguments: Arguments) -> *mut c_void {
    call(arguments, 56, |world, call| {
        let Thing::Executable { source } = world.get(call.get(2))? else {
            return Err((INVALID, "no program".into()));
        };
        let bytes = source.serialized();
        let (address, size) = (bytes.as_ptr() as u64, bytes.len() as u64);
        let backing = world.add(Thing::Bytes { _of: bytes });
        [(3, address), (4, size), (5, backing), (6, free_bytes as *const () as u64)]
            .into_iter()
            .for_each(|(word, value)| call.set(word, value));
        Ok(())
    })
}

extern "C" fn deserialize(arguments: Arguments) -> *mut c_void {
    call(arguments, 72, |world, call| {
        let bytes = call.bytes(3, 4);
        let source = Source::of_serialized(&bytes).ok_or((INTERNAL, "not serialised here".to_owned()))?;
        let loaded = load(world, source)?;
        call.set(5, loaded);
        Ok(())
    })
}

/// The table that the runtime asks for.
#[unsafe(no_mangle)]
pub extern "C" fn GetPjrtApi() -> *const c_void {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let mut functions = [0usize; FUNCTIONS];
        functions[0] = error_destroy as *const () as usize;
        functions[1] = error_message as *const () as usize;
        functions[2] = error_code as *const () as usize;
        type Function = extern "C" fn(Arguments) -> *mut c_void;
        let all: [(usize, Function); 22] = [
            (3, initialize),
            (5, destroy),
            (8, event_await),
            (10, client_create),
            (11, destroy),
            (12, platform),
            (14, version),
            (16, devices),
            (20, compile),
            (22, from_host),
            (26, kind),
            (29, description),
            (40, destroy),
            (49, serialize),
            (50, destroy),
            (51, get_executable),
            (55, execute),
            (56, deserialize),
            (58, destroy),
            (70, to_host),
            (83, destroy),
            (7, event_await),
        ];
        all.into_iter().for_each(|(at, function)| functions[at] = function as *const () as usize);
        let size = size_of::<Table>();
        Table {
            size,
            extensions: 0,
            version_size: 24,
            version_extensions: 0,
            major: 0,
            minor: 113,
            functions,
        }
    });
    (&raw const *TABLE).cast()
}

/// The call number `after` from now on fails with `code`; a code of 0 takes that back.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_fake_pjrt_fail(after: u64, code: i32) {
    world().fails = (code != 0).then_some((after, code));
}

/// How many calls there were.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_fake_pjrt_calls() -> u64 {
    world().calls
}

/// How many things the caller still has, but for clients and devices.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_fake_pjrt_left() -> u64 {
    world().left() as u64
}
