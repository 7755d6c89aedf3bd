//! The threads of a program.

use std::sync::Arc;

use crate::pool::Pool;

/// Which threads a program runs on.
#[derive(Debug, Clone)]
pub(crate) enum Threads {
    /// The process's pool.
    Global(&'static Pool),
    /// One of its own.
    Own(Arc<Pool>),
}

impl Threads {
    pub(crate) fn pool(&self) -> &Pool {
        match self {
            Threads::Global(pool) => pool,
            Threads::Own(pool) => pool,
        }
    }
}
