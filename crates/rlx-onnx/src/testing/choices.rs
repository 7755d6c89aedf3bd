//! The source of a mutator's decisions: a seed, or a fuzzer's bytes.

/// Decisions, one after the other.
///
/// ```
/// use rlx_onnx::testing::Choices;
/// let mut choices = Choices::seeded(7);
/// assert!(choices.below(10) < 10);
/// // A fuzzer's bytes decide as long as there are some; from then on everything is the first alternative.
/// let mut choices = Choices::from_bytes(&[3]);
/// assert_eq!((choices.below(5), choices.below(5)), (3, 0));
/// ```
#[derive(Debug, Clone)]
pub struct Choices<'b> {
    source: Source<'b>,
}

#[derive(Debug, Clone)]
enum Source<'b> {
    /// The state of SplitMix64.
    Seed(u64),
    Bytes(&'b [u8]),
}

impl Choices<'static> {
    /// Decisions that follow from a number.
    pub fn seeded(seed: u64) -> Self {
        Choices { source: Source::Seed(seed) }
    }
}

impl<'b> Choices<'b> {
    /// Decisions that follow from bytes.
    pub fn from_bytes(bytes: &'b [u8]) -> Self {
        Choices { source: Source::Bytes(bytes) }
    }

    /// A number below `n`, or 0.
    pub fn below(&mut self, n: usize) -> usize {
        let n = n.max(1) as u64;
        match &mut self.source {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                ((z ^ (z >> 31)) % n) as usize
            }
            Source::Bytes(bytes) => {
                // As many bytes as the number needs, so that small choices use few.
                let mut value = 0u64;
                let mut reach = 1u64;
                while reach < n {
                    let Some((&first, rest)) = bytes.split_first() else { break };
                    *bytes = rest;
                    value = value << 8 | u64::from(first);
                    reach = reach.saturating_mul(256);
                }
                (value % n) as usize
            }
        }
    }

    /// Whether one of `n` cases holds.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n.saturating_sub(1)
    }

    /// One of these.
    ///
    /// # Panics
    /// When there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// One of these, if there is any.
    pub fn pick_mut<'t, T>(&mut self, from: &'t mut [T]) -> Option<&'t mut T> {
        let at = self.below(from.len());
        from.get_mut(at)
    }
}
