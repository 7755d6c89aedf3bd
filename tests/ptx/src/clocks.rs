//! What each thread knows of the others: vector clocks.
//!
//! A thread's clock has a number for each thread and one for each barrier in memory (`mbarrier`): whatever thread `t` did while its own number was at
//! most the one that another has of `t` happened before. Who arrives gives what it knows, who waits is given what all that arrived knew.

/// What a thread knows: how far each thread was, then how many phases of each barrier have ended.
pub type Clock = Vec<u32>;

/// The number of a part.
pub fn number(clock: &Clock, part: usize) -> u32 {
    clock.get(part).copied().unwrap_or(0)
}

/// Learns what another knows.
pub fn join(clock: &mut Clock, other: &Clock) {
    clock.resize(clock.len().max(other.len()), 0);
    clock.iter_mut().zip(other).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
}

/// Sets the number of a part.
pub fn set(clock: &mut Clock, part: usize, to: u32) {
    clock.resize(clock.len().max(part + 1), 0);
    clock[part] = to;
}
