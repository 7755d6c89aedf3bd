//! Tensor memory: 128 lanes of 512 columns, of which a workgroup allocates some, and who may use them.
//!
//! What multiplications leave is there at once, and known to be there to a thread that waited for a barrier that a commit behind them arrived at. Allocating, and all loads before
//! freeing, are known to other threads by a fence before they meet.

use crate::Result;
use crate::asynchronous::Asynchronous;

/// Lanes.
pub const LANES: usize = 128;
/// Columns.
const COLUMNS: usize = 512;

/// What a thread did to tensor memory that others have to know of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// Something, and no fence is behind it.
    Unfenced,
    /// A fence was behind it at this number of the thread's.
    Fenced(u32),
}

impl Told {
    /// Whether a thread knows what another did.
    fn is_known(self, who: usize, thread: usize, beside: &Asynchronous) -> bool {
        match self {
            Told::Nothing => true,
            Told::Unfenced => who == thread,
            Told::Fenced(own) => beside.knows_of(thread as u32, who as u32, own),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Allocation {
    first: usize,
    columns: usize,
    /// The first thread of the warp, and whether others know.
    by: usize,
    told: Told,
}

#[derive(Debug)]
pub struct TensorMemory {
    cells: Vec<u32>,
    /// The last multiplication into each column; 0 where there was none.
    last: Vec<u32>,
    allocation: Option<Allocation>,
    gave_up: bool,
    /// Multiplications so far.
    pub begun: u32,
    /// Of each thread, whether others know of its loads.
    told: Vec<Told>,
}

impl TensorMemory {
    pub fn new(threads: u32) -> Self {
        TensorMemory {
            cells: Vec::new(),
            last: vec![0; COLUMNS],
            allocation: None,
            gave_up: false,
            begun: 0,
            told: vec![Told::Nothing; threads as usize],
        }
    }

    /// `tcgen05.alloc`: the address.
    pub fn allocate(&mut self, columns: usize, by: usize) -> Result<u32> {
        if !columns.is_power_of_two() || !(32..=COLUMNS).contains(&columns) {
            return Err(format!("{columns} columns of tensor memory, no power of two from 32 to 512"));
        }
        if self.gave_up || self.allocation.is_some() {
            return Err(
                "a second allocation of tensor memory, or one behind relinquish_alloc_permit".to_owned()
            );
        }
        // Where it begins is the device's: not at 0, so that an address that is left out is found.
        let first = COLUMNS - columns;
        self.allocation = Some(Allocation { first, columns, by, told: Told::Unfenced });
        Ok(first as u32)
    }

    /// `tcgen05.relinquish_alloc_permit`.
    pub fn give_up(&mut self) {
        self.gave_up = true;
    }

    /// `tcgen05.fence::before_thread_sync`, of a thread whose number this is and that has loads under way or not.
    pub fn fence(&mut self, thread: usize, own: u32, loads: bool) {
        let of_allocation = self.allocation.iter_mut().filter(|of| of.by == thread).map(|of| &mut of.told);
        let of_loads = self.told.get_mut(thread).filter(|_| !loads);
        for told in of_allocation.chain(of_loads) {
            if *told == Told::Unfenced {
                *told = Told::Fenced(own);
            }
        }
    }

    /// Columns that a thread may use.
    fn columns(&self, address: u32, count: usize, thread: usize, beside: &Asynchronous) -> Result<usize> {
        beside.has_fenced(thread as u32)?;
        let Some(Allocation { first, columns, by, told }) = self.allocation else {
            return Err("tensor memory that is not allocated".to_owned());
        };
        let at = (address & 0xffff) as usize;
        if at < first || at + count > first + columns {
            return Err(format!(
                "columns {at}..{} of tensor memory, of which {first}..{} are allocated",
                at + count,
                first + columns
            ));
        }
        // A thread of the warp that allocated knows it.
        let own = by / crate::warp::WARP == thread / crate::warp::WARP;
        match own || told.is_known(by, thread, beside) {
            true => Ok(at),
            false => Err("tensor memory is used that the thread does not know to be allocated".to_owned()),
        }
    }

    /// Begins a multiplication into columns: its number, and sums to change by row and column.
    pub fn multiply(
        &mut self,
        address: u32,
        count: usize,
        add: bool,
        thread: usize,
        beside: &Asynchronous,
    ) -> Result<usize> {
        let at = self.columns(address, count, thread, beside)?;
        if address >> 16 != 0 {
            return Err(format!("sums of 128 rows from lane {} on", address >> 16));
        }
        if add && self.last[at..at + count].contains(&0) {
            return Err("sums that were never set are added to".to_owned());
        }
        self.cells.resize(LANES * COLUMNS, 0);
        self.begun += 1;
        self.last[at..at + count].fill(self.begun);
        Ok(at)
    }

    pub fn cell(&mut self, lane: usize, column: usize) -> &mut u32 {
        &mut self.cells[lane * COLUMNS + column]
    }

    /// `tcgen05.ld`, of 16 lanes that are of the warp's own: the first lane and the first column.
    pub fn load(
        &mut self,
        address: u32,
        count: usize,
        first: usize,
        beside: &Asynchronous,
    ) -> Result<(usize, usize)> {
        let (lane, quarter) = ((address >> 16) as usize, first / crate::warp::WARP % 4);
        if lane / 32 != quarter || !lane.is_multiple_of(16) {
            return Err(format!("lanes {lane}..{} of tensor memory in warp {quarter} of a group", lane + 16));
        }
        for thread in first..first + crate::warp::WARP {
            let at = self.columns(address, count, thread, beside)?;
            for &number in &self.last[at..at + count] {
                if number == 0 {
                    return Err("tensor memory is loaded that nothing was multiplied into".to_owned());
                }
                if !beside.knows_done(thread as u32, number) {
                    return Err("tensor memory is loaded while it may still be multiplied into".to_owned());
                }
            }
            self.told[thread] = Told::Unfenced;
        }
        Ok((lane, (address & 0xffff) as usize))
    }

    /// `tcgen05.dealloc`.
    pub fn free(&mut self, address: u32, count: usize, first: usize, beside: &Asynchronous) -> Result {
        let at = self.columns(address, count, first, beside)?;
        match self.allocation {
            Some(of) if (of.first, of.columns, of.by) == (at, count, first) && address >> 16 == 0 => {}
            _ => return Err("tensor memory is freed otherwise than it was allocated".to_owned()),
        }
        if !beside.knows_done(first as u32, self.begun) {
            return Err("tensor memory is freed while it may still be multiplied into".to_owned());
        }
        let warp = first..first + crate::warp::WARP;
        if (0..self.told.len())
            .any(|who| !warp.contains(&who) && !self.told[who].is_known(who, first, beside))
        {
            return Err("tensor memory is freed while it may still be loaded".to_owned());
        }
        self.allocation = None;
        Ok(())
    }

    /// Whether what was allocated was freed.
    pub fn ended(&self) -> Result {
        match self.allocation {
            Some(_) => Err("tensor memory is not freed".to_owned()),
            None => Ok(()),
        }
    }
}
