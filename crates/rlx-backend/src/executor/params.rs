//! Which parameters are set, loaded, used up, and changed since the init program ran.

use std::sync::{Arc, Weak};

use rlx_ir::lir::IoSlot;
use rlx_ir::{Error, ErrorKind, Result, Weight};

/// A parameter's state.
pub(super) enum Param<M> {
    /// Not loaded yet: what was made of the weight may be there already.
    Set(Arc<Weight>),
    /// Where kernels can read it.
    Loaded(Arc<M>),
    /// Used up by the init program.
    Forgotten,
}

impl<M> Clone for Param<M> {
    fn clone(&self) -> Self {
        match self {
            Param::Set(weight) => Param::Set(Arc::clone(weight)),
            Param::Loaded(memory) => Param::Loaded(Arc::clone(memory)),
            Param::Forgotten => Param::Forgotten,
        }
    }
}

/// The parameters of an executable.
pub(super) struct Params<M> {
    pub(super) of: Vec<Option<Param<M>>>,
    /// How many bytes each was set to.
    bytes: Vec<usize>,
    /// Which weights those are, also when they were used up.
    weights: Vec<Option<Weak<Weight>>>,
    /// Those set since the init program ran.
    pub(super) changed: Vec<bool>,
    /// Whether there are any, or it never ran.
    pub(super) stale: bool,
}

impl<M> Clone for Params<M> {
    fn clone(&self) -> Self {
        Params {
            of: self.of.clone(),
            bytes: self.bytes.clone(),
            weights: self.weights.clone(),
            changed: self.changed.clone(),
            stale: self.stale,
        }
    }
}

impl<M> Params<M> {
    pub(super) fn new(count: usize) -> Self {
        Params {
            of: (0..count).map(|_| None).collect(),
            bytes: vec![0; count],
            weights: vec![None; count],
            changed: vec![true; count],
            stale: true,
        }
    }

    pub(super) fn set(&mut self, index: usize, weight: &Arc<Weight>, param: Param<M>) {
        self.bytes[index] = weight.size_bytes().unwrap_or(usize::MAX);
        self.weights[index] = Some(Arc::downgrade(weight));
        self.of[index] = Some(param);
        self.changed[index] = true;
        self.stale = true;
    }

    /// Takes a parameter out of memory that can be loaded again.
    pub(super) fn unload(&mut self, index: usize) {
        if let (Some(Param::Loaded(_)), Some(weight)) = (&self.of[index], &self.weights[index])
            && let Some(weight) = weight.upgrade()
        {
            weight.release();
            self.of[index] = Some(Param::Set(weight));
        }
    }

    /// The init program ran for all that changed; those of `forgettable` are not needed any more.
    pub(super) fn used(&mut self, forgettable: &[bool]) {
        for (param, &forgettable) in self.of.iter_mut().zip(forgettable) {
            if forgettable && param.is_some() {
                *param = Some(Param::Forgotten);
            }
        }
    }

    /// What the init program left was taken from elsewhere, so that `spent` ones need not be there.
    pub(super) fn spend(&mut self, spent: &[bool]) {
        for (index, _) in spent.iter().enumerate().filter(|&(_, &spent)| spent) {
            (self.of[index], self.weights[index]) = (Some(Param::Forgotten), None);
            self.changed[index] = false;
        }
    }

    /// The bytes that parameter `index` was set to, where it holds something.
    pub(super) fn bytes(&self, index: usize) -> Option<usize> {
        match self.of[index] {
            Some(Param::Set(_) | Param::Loaded(_)) => Some(self.bytes[index]),
            Some(Param::Forgotten) | None => None,
        }
    }

    /// The weights of some parameters, if all of them are known.
    pub(super) fn weights_of(&self, params: &[usize]) -> Option<Vec<&Weak<Weight>>> {
        params.iter().map(|&p| self.weights[p].as_ref()).collect()
    }

    /// Rejects parameters that were never set; those that `spared` says need not be.
    pub(super) fn check(&self, slots: &[IoSlot], spared: impl Fn(usize) -> bool) -> Result<()> {
        let unset = |&(i, param): &(usize, &Option<Param<M>>)| param.is_none() && !spared(i);
        match self.of.iter().enumerate().find(unset) {
            None => Ok(()),
            Some((i, _)) => {
                let message = format!("parameter {:?} was never set", slots[i].name);
                Err(Error::new(ErrorKind::Binding, message).with_hint("call set_param first"))
            }
        }
    }
}
