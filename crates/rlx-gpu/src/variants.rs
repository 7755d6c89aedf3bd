//! The variants of a step: by what a device may do it, which of them give the bits that it has unmeasured, and what a tuning chose.
//!
//! Under strict numerics they are the tilings of its tile program, or else those of its kernels, all of one [`BitClass`]. Under
//! [`Numerics::Fast`](rlx_opt::Numerics::Fast) there are classes besides: where the vendor's library, or a kernel for few rows, does the step unmeasured, the device's own programs; where its sum
//! is divided, other numbers of parts, and one; where it is not, parts for the rows that whole rounds of tiles leave.
//!
//! ```text
//! [5, 1200] f16 · [1200, 72] f16 on sm_80, fast numerics      tiles.sm_80.16x64x32.1x2.s4.parts18                 what is taken unmeasured
//!                                                             tiles.sm_80.64x64x32.2x2.s4.parts18                 the same bits
//!                                                             tiles.sm_80.16x64x32.1x2.s4.parts9@sm_80.parts9     other bits
//!                                                             tiles.sm_80.16x64x32.1x2.s4@sm_80                   other bits, not divided
//! ```
//!
//! A measurement that takes one of another class holds its results to the oracle first.

use rlx_backend::tuning::{BitClass, TuningKey};
use rlx_ir::Result;
use rlx_ir::lir::{LirModule, Step};
use rlx_kernel::schedule::StepDesc;
use rlx_kernel::{KernelTarget, few_rows_of, step_variants};
use rlx_tile::schedule::{Division, WavesLaunch};

use crate::blas::Taken;
use crate::few_rows;
use crate::own::Own;
use crate::tiles::{self, MatrixUnits};
use crate::waves::Waves;

/// The most variants of a step in waves.
const MOST_WAVES: usize = 2;

/// By what a step is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Variant {
    /// What the device takes unmeasured.
    #[default]
    Unmeasured,
    /// The kernels of this number among [`step_variants`].
    Kernels(usize),
    /// The tiling of this number among those of its tile program.
    Tiling(usize),
    /// A tile program in as many parts as occupy so many compute units.
    Parts { units: u32 },
    /// The tiling of this number for as many rows as fill the device a number of times, and parts for the others.
    Waves { tiling: usize },
}

/// What a tuning says of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Choice {
    pub variant: Variant,
    /// Whether nothing else does it for some runs: no library, no kernel for few rows, and its sum is divided only as the variant says.
    pub alone: bool,
}

/// A variant that a device has for a step.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    choice: Choice,
    name: String,
    class: BitClass,
    /// Its time relative to others of the step; 0 for what is always worth measuring.
    predicted: Option<u64>,
}

impl Offer {
    fn new(choice: Choice, name: String, class: &BitClass, predicted: Option<u64>) -> Offer {
        Offer { choice, name, class: class.clone(), predicted }
    }

    pub(crate) fn choice(&self) -> Choice {
        self.choice
    }
}

/// The key of a step with these variants, where there are several.
pub(crate) fn key(step: &Step, lir: &LirModule, offers: &[Offer]) -> Option<TuningKey> {
    let names = offers.iter().map(|of| of.name.clone()).collect();
    let key = TuningKey::of(lir, step, "", names)?;
    let predicted: Option<Vec<u64>> = offers.iter().map(|of| of.predicted).collect();
    let key = match predicted {
        Some(predicted) => key.with_predicted(predicted),
        None => key,
    };
    Some(key.with_classes(offers.iter().map(|of| of.class.clone()).collect()))
}

/// What a device has for steps.
#[derive(Clone, Copy)]
pub(crate) struct Means<'m> {
    pub target: &'m KernelTarget,
    pub own: &'m Own,
}

impl Means<'_> {
    /// The variants of a step of the run, the one that is taken unmeasured first.
    ///
    /// # Errors
    /// A step without kernels, or with one that breaks a rule.
    pub(crate) fn offers(&self, step: &Step, lir: &LirModule) -> Result<Vec<Offer>> {
        let desc = StepDesc::of(step, lir).ok();
        let tiles = desc.as_ref().zip(self.own.matrix_units).and_then(|(desc, units)| {
            TileOffers::of(step, desc, units, self).filter(|of| !of.tilings.is_empty())
        });
        let before_all = match self.own.library.filter(|_| Taken::of(step, &lir.graph).is_some()) {
            Some(library) => Some(library.to_owned()),
            None => self.few_rows(step, lir, desc.as_ref())?,
        };
        let Some(name) = before_all else {
            return match tiles {
                Some(tiles) => {
                    Ok(tiles.usual().chain(tiles.other_divisions()).chain(tiles.waves()).collect())
                }
                None => self.kernels(step, lir, false),
            };
        };
        let class = BitClass::new(&name);
        let first = Offer::new(Choice::default(), name, &class, Some(0));
        let own = match tiles {
            Some(tiles) => tiles.parts(tiles.division).chain(tiles.whole()).chain(tiles.waves()).collect(),
            None => self.kernels(step, lir, true)?,
        };
        Ok([first].into_iter().chain(own).collect())
    }

    /// The name of the kernel for few rows that does every run of a step.
    fn few_rows(&self, step: &Step, lir: &LirModule, desc: Option<&StepDesc>) -> Result<Option<String>> {
        let Some(desc) = desc.filter(|_| self.own.fast.may_divide(step, lir)) else { return Ok(None) };
        let all = few_rows_of(desc, self.target)?;
        Ok(all.into_iter().find(few_rows::is_always_taken).map(|of| of.name))
    }

    fn kernels(&self, step: &Step, lir: &LirModule, alone: bool) -> Result<Vec<Offer>> {
        let class = BitClass::new("kernels");
        let names = step_variants(step, lir, self.target)?;
        let choice = |i| Choice { variant: Variant::Kernels(i), alone };
        let predicted = alone.then_some(0);
        Ok({ names.into_iter().enumerate() }
            .map(|(i, name)| Offer::new(choice(i), name, &class, predicted))
            .collect())
    }
}

/// The tile programs of a step.
struct TileOffers<'s> {
    desc: &'s StepDesc,
    means: (MatrixUnits, &'s KernelTarget),
    /// How its sum may be divided, and is unmeasured.
    division: Option<Division>,
    tilings: Vec<(String, Option<u64>)>,
}

impl<'s> TileOffers<'s> {
    fn of(step: &Step, desc: &'s StepDesc, units: MatrixUnits, means: &Means<'s>) -> Option<TileOffers<'s>> {
        let tilings = tiles::offered(step, desc, units, &means.target.limits)?;
        let division = means.own.fast.division;
        Some(TileOffers { desc, means: (units, means.target), division, tilings })
    }

    fn class(&self) -> BitClass {
        BitClass::new(self.means.0.arch.name())
    }

    /// The tilings as they are unmeasured, in parts where that pays.
    fn usual(&self) -> impl Iterator<Item = Offer> {
        let class = self.parts(self.division).next().map_or_else(|| self.class(), |of| of.class);
        let choice = |i| Choice { variant: Variant::Tiling(i), alone: false };
        { self.tilings.iter().enumerate() }
            .map(move |(i, (name, predicted))| Offer::new(choice(i), name.clone(), &class, *predicted))
    }

    /// The tilings, each of which does all of the step in every run.
    fn whole(&self) -> impl Iterator<Item = Offer> {
        let class = self.class();
        let choice = |i| Choice { variant: Variant::Tiling(i), alone: true };
        { self.tilings.iter().enumerate() }
            .map(move |(i, (name, predicted))| Offer::new(choice(i), name.clone(), &class, *predicted))
    }

    /// By a program in parts, where that pays.
    fn parts(&self, division: Option<Division>) -> impl Iterator<Item = Offer> {
        let offer = |division: Division| {
            let divided = tiles::divided(self.desc, self.means, &division)?;
            let units = division.units;
            let class = match divided.count {
                Some(count) => format!("{}.parts{count}", self.class()),
                None => format!("{}.parts_for_{units}_units", self.class()),
            };
            let choice = Choice { variant: Variant::Parts { units }, alone: true };
            Some(Offer::new(choice, divided.name, &BitClass::new(&class), Some(0)))
        };
        division.and_then(offer).into_iter()
    }

    /// Where no sum is divided: in waves, by the first tilings that do not come out even.
    fn waves(&self) -> Vec<Offer> {
        let (units, target) = self.means;
        let Some(division) = self.division.filter(|_| self.parts(self.division).next().is_none()) else {
            return Vec::new();
        };
        let offer = |(tiling, of): (usize, WavesLaunch)| {
            let what = format!("rows{}.parts{}", of.from, of.parts());
            let class = BitClass::new(&format!("{}.{what}", self.class()));
            let choice = Choice { variant: Variant::Waves { tiling }, alone: true };
            Offer::new(choice, format!("{}.{what}", self.tilings[tiling].0), &class, Some(0))
        };
        Waves { units, target, division }.all(self.desc).take(MOST_WAVES).map(offer).collect()
    }

    /// Where the sum is divided unmeasured: in about half and twice as many parts, and not at all.
    fn other_divisions(&self) -> Vec<Offer> {
        let Some((division, usual)) = self.division.zip(self.parts(self.division).next()) else {
            return Vec::new();
        };
        let scaled = [division.units.div_ceil(2), division.units.saturating_mul(2)];
        let scaled = scaled.map(|units| Some(Division { units, ..division }));
        let divided = scaled.into_iter().flat_map(|division| self.parts(division));
        // The first tiling is the one that suits the sizes.
        let mut others: Vec<Offer> =
            divided.chain(self.whole().take(1)).filter(|of| of.class != usual.class).collect();
        others.dedup_by(|a, b| a.class == b.class);
        others.iter_mut().for_each(|of| of.predicted = of.predicted.map(|_| 0));
        others
    }
}
