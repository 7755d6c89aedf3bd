//! Non-maximum suppression: of boxes that overlap, the one with the best score stays.
//!
//! Each class of each image is one task: its candidates are sorted, and each is compared with those that stay. Their
//! numbers wait in the shared scratch until all are known, and are then written one behind the other.

use rlx_ir::{DType, Dim, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::{
    BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, check_count, mismatch, no_kernel,
    unbound,
};
use crate::alloc::ALIGN;
use crate::layout::At;

/// Boxes of f32.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    match node.inputs.first().map(|&id| graph.shape(id).dtype()) {
        Some(DType::F32) => Claim::Native,
        other => Claim::No(format!("there is no kernel for boxes of {other:?}")),
    }
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::NonMaxSuppression { count, most, overlap, score, centre } => {
            Ok(Box::new(NonMaxSuppression { count, most, overlap, score, centre, plan: None }))
        }
        ref op => Err(no_kernel(op, "it suppresses nothing")),
    }
}

#[derive(Debug, Clone, Copy)]
struct NonMaxSuppression {
    count: Dim,
    most: u64,
    overlap: f32,
    score: Option<f32>,
    centre: bool,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    batch: usize,
    classes: usize,
    boxes: usize,
    /// How many of a class may stay.
    most: usize,
    places: At,
    scores: At,
    out: At,
    worth: bool,
}

impl Plan {
    /// Classes of all images.
    fn tasks(&self) -> usize {
        self.batch * self.classes
    }
}

/// The corners of a box, the lesser ones first.
#[derive(Debug, Clone, Copy)]
struct Corners([f32; 4]);

impl Corners {
    fn new(b: [f32; 4], centre: bool) -> Corners {
        if centre {
            let (x, y, w, h) = (b[0], b[1], b[2] * 0.5, b[3] * 0.5);
            Corners([y - h, x - w, y + h, x + w])
        } else {
            Corners([b[0].min(b[2]), b[1].min(b[3]), b[0].max(b[2]), b[1].max(b[3])])
        }
    }

    fn area(&self) -> f32 {
        (self.0[2] - self.0[0]) * (self.0[3] - self.0[1])
    }

    /// Whether the shared part of what either covers is more than `most`.
    fn overlaps(&self, other: &Corners, most: f32) -> bool {
        let (a, b) = (self.area(), other.area());
        if a.is_nan() || b.is_nan() || a <= 0.0 || b <= 0.0 {
            // Boxes without an area share nothing; 0 is more than a negative threshold.
            return 0.0 > most;
        }
        let height = (self.0[2].min(other.0[2]) - self.0[0].max(other.0[0])).max(0.0);
        let width = (self.0[3].min(other.0[3]) - self.0[1].max(other.0[1])).max(0.0);
        let shared = height * width;
        shared / (a + b - shared) > most
    }
}

impl StepKernel for NonMaxSuppression {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (places, scores) = (&cx.inputs[0], &cx.inputs[1]);
        let shape_mismatch =
            || mismatch(format!("boxes {:?} with scores {:?}", places.dims(), scores.dims()));
        let &[batch, classes, boxes] = scores.dims() else { return Err(shape_mismatch()) };
        if places.dims() != [batch, boxes, 4] || !places.layout.is_dense() || !scores.layout.is_dense() {
            return Err(shape_mismatch());
        }
        // Classes without boxes are no tasks, and boxes without classes are not looked at, however many they are.
        let (classes, boxes) = if scores.layout.elements() == 0 { (0, 0) } else { (classes, boxes) };
        u32::try_from(boxes).map_err(|_| mismatch(format!("{boxes} boxes are too many")))?;
        let most = usize::try_from(self.most).unwrap_or(usize::MAX).min(boxes);
        let tasks = batch.checked_mul(classes).ok_or_else(shape_mismatch)?;
        let stay = tasks.checked_mul(most + 1).and_then(|n| n.checked_mul(4)).ok_or_else(shape_mismatch)?;
        let nanos = (tasks * boxes) as f64 * 40.0;
        self.plan = Some(Plan {
            batch,
            classes,
            boxes,
            most,
            places: places.at,
            scores: scores.at,
            out: cx.outputs[0].at,
            worth: nanos > WORTH_NANOS,
        });
        Ok(Needs { thread_scratch: boxes * 4, shared_scratch: stay.next_multiple_of(ALIGN), nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = self.plan else { return Err(unbound()) };
        let (places, scores) = (cx.shared::<f32>(plan.places), cx.shared::<f32>(plan.scores));
        let stay = Shared::new(cx.shared_scratch.cast::<u32>());
        cx.parallel(plan.worth, plan.tasks(), &|range, scratch| {
            for task in range {
                // SAFETY: the caller's promise; scratch has room for all boxes, and each task has its own list,
                // whose first element is its length.
                unsafe {
                    let scores = std::slice::from_raw_parts(scores.get().add(task * plan.boxes), plan.boxes);
                    let own = stay.get().add(task * (plan.most + 1));
                    let kept = std::slice::from_raw_parts_mut(own.add(1), plan.most);
                    let places = places.get().add(task / plan.classes * plan.boxes * 4).cast::<[f32; 4]>();
                    let places = std::slice::from_raw_parts(places, plan.boxes);
                    let order = std::slice::from_raw_parts_mut(scratch.cast::<u32>(), plan.boxes);
                    *own = self.choose(places, scores, order, kept) as u32;
                }
            }
        });
        // SAFETY: each list begins with its length.
        let stays = |task: usize| unsafe { *stay.get().add(task * (plan.most + 1)) as usize };
        check_count((0..plan.tasks()).map(stays).sum(), self.count)?;
        let (out, mut found) = (cx.ptr::<i64>(plan.out), 0);
        for task in 0..plan.tasks() {
            let (image, class) = (task / plan.classes, task % plan.classes);
            // SAFETY: as above; the result has room for all that may stay.
            unsafe {
                let own = stay.get().add(task * (plan.most + 1));
                for i in 0..*own as usize {
                    let row = [image as i64, class as i64, i64::from(*own.add(1 + i))];
                    std::ptr::copy_nonoverlapping(row.as_ptr(), out.add(found * 3), 3);
                    found += 1;
                }
            }
        }
        cx.found = Some(found);
        Ok(())
    }
}

impl NonMaxSuppression {
    /// Fills `kept` with the boxes that stay, the best first; gives their number.
    fn choose(&self, places: &[[f32; 4]], scores: &[f32], order: &mut [u32], kept: &mut [u32]) -> usize {
        let mut candidates = 0;
        for (i, &score) in scores.iter().enumerate() {
            if !score.is_nan() && self.score.is_none_or(|least| score > least) {
                order[candidates] = i as u32;
                candidates += 1;
            }
        }
        let order = &mut order[..candidates];
        // Equal scores in the order of the boxes.
        order.sort_unstable_by(|&i, &j| {
            let by_score = scores[j as usize].partial_cmp(&scores[i as usize]);
            by_score.unwrap_or(std::cmp::Ordering::Equal).then(i.cmp(&j))
        });
        let mut count = 0;
        for &i in order.iter() {
            if count == kept.len() {
                break;
            }
            let own = Corners::new(places[i as usize], self.centre);
            let hidden =
                |&j: &u32| own.overlaps(&Corners::new(places[j as usize], self.centre), self.overlap);
            if !kept[..count].iter().any(hidden) {
                kept[count] = i;
                count += 1;
            }
        }
        count
    }
}
