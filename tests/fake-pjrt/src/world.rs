//! What there is: things by number, errors on their way, and the failures that tests ask for.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::worker::{Tensor, Worker};

/// Something that a caller has.
pub(crate) enum Thing {
    Client,
    Device,
    Description,
    Event,
    Buffer(Option<Tensor>),
    Loaded {
        program: usize,
        source: Source,
    },
    Executable {
        source: Source,
    },
    /// What backs bytes that the caller looks at.
    Bytes {
        _of: Vec<u8>,
    },
    Error {
        code: i32,
        message: String,
    },
}

/// What a program is compiled from.
#[derive(Clone)]
pub(crate) struct Source {
    /// A `CompileOptionsProto`.
    pub(crate) options: Vec<u8>,
    pub(crate) text: Vec<u8>,
}

impl Source {
    const MARK: &[u8] = b"fake";

    /// A mark, the options behind their size, the text.
    pub(crate) fn serialized(&self) -> Vec<u8> {
        let size = (self.options.len() as u32).to_le_bytes();
        [Self::MARK, &size, &self.options, &self.text].concat()
    }

    /// What was serialised; `None` for bytes from elsewhere.
    pub(crate) fn of_serialized(bytes: &[u8]) -> Option<Source> {
        let (size, rest) = bytes.strip_prefix(Self::MARK)?.split_first_chunk()?;
        let (options, text) = rest.split_at_checked(u32::from_le_bytes(*size) as usize)?;
        Some(Source { options: options.to_vec(), text: text.to_vec() })
    }
}

#[derive(Default)]
pub(crate) struct World {
    things: HashMap<u64, Thing>,
    numbers: u64,
    pub(crate) ready: bool,
    /// The call that fails, counted from now, and its code.
    pub(crate) fails: Option<(u64, i32)>,
    pub(crate) calls: u64,
    worker: Option<Worker>,
}

/// A code and a message.
pub(crate) type Failed = (i32, String);

/// Codes of the header's.
pub(crate) const INVALID: i32 = 3;
pub(crate) const INTERNAL: i32 = 13;

pub(crate) fn world() -> MutexGuard<'static, World> {
    static WORLD: LazyLock<Mutex<World>> = LazyLock::new(Mutex::default);
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Gives a thing a number that looks like an address.
    pub(crate) fn add(&mut self, thing: Thing) -> u64 {
        self.numbers += 1;
        let number = 0x5000_0000 + 64 * self.numbers;
        self.things.insert(number, thing);
        number
    }

    pub(crate) fn get(&self, number: u64) -> Result<&Thing, Failed> {
        self.things.get(&number).ok_or_else(|| (INVALID, format!("there is no {number:#x}, or not any more")))
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Result<&mut Thing, Failed> {
        self.things
            .get_mut(&number)
            .ok_or_else(|| (INVALID, format!("there is no {number:#x}, or not any more")))
    }

    pub(crate) fn remove(&mut self, number: u64) -> Result<Thing, Failed> {
        self.things.remove(&number).ok_or_else(|| (INVALID, format!("{number:#x} is freed twice")))
    }

    /// How many things the caller still has, but for client and device.
    pub(crate) fn left(&self) -> usize {
        let lasting = |thing: &&Thing| !matches!(thing, Thing::Client | Thing::Device | Thing::Description);
        self.things.values().filter(lasting).count()
    }

    pub(crate) fn worker(&mut self) -> Result<&mut Worker, Failed> {
        if self.worker.is_none() {
            self.worker = Some(Worker::start().map_err(|e| (12, e))?);
        }
        self.worker.as_mut().ok_or((INTERNAL, "no worker".into()))
    }

    /// Runs a program on buffers; those in `donated` are gone after that.
    pub(crate) fn run(
        &mut self,
        program: usize,
        inputs: &[u64],
        donated: &[bool],
    ) -> Result<Vec<u64>, Failed> {
        let mut tensors = Vec::with_capacity(inputs.len());
        for &input in inputs {
            match self.get(input)? {
                Thing::Buffer(Some(tensor)) => tensors.push(tensor.clone()),
                Thing::Buffer(None) => return Err((INVALID, format!("buffer {input:#x} was donated"))),
                _ => return Err((INVALID, format!("{input:#x} is no buffer"))),
            }
        }
        let given: Vec<&Tensor> = tensors.iter().collect();
        let results = self.worker()?.run(program, &given).map_err(|e| (INTERNAL, e))?;
        for (&input, _) in inputs.iter().zip(donated).filter(|(_, donated)| **donated) {
            *self.get_mut(input)? = Thing::Buffer(None);
        }
        Ok(results.into_iter().map(|tensor| self.add(Thing::Buffer(Some(tensor)))).collect())
    }
}
