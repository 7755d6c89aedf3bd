//! Placement of text in a diagram, so that no text covers another.

/// A box: left, top, right, bottom.
pub(super) type Box = [f64; 4];

/// Boxes that are taken.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Box>);

impl Places {
    /// Takes a box that nothing is to be put in.
    pub(super) fn hold(&mut self, taken: Box) {
        self.0.push(taken);
    }

    /// Takes all of these, if none of them is taken.
    pub(super) fn take(&mut self, boxes: &[Box]) -> bool {
        let meets = |a: &Box, b: &Box| a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
        let free = boxes.iter().all(|a| !self.0.iter().any(|b| meets(a, b)));
        if free {
            self.0.extend(boxes);
        }
        free
    }
}

/// The bounding box of text of this width whose baseline starts at a point.
pub(super) fn text_box(x: f64, y: f64, width: f64) -> Box {
    [x, y - 10.0, x + width, y + 4.0]
}

/// The boxes covered by text that starts at a point and is rotated by an angle; `below` moves its baseline to the other side.
pub(super) fn turned_boxes([x, y]: [f64; 2], below: f64, width: f64, angle: f64) -> Vec<Box> {
    const STEP: f64 = 6.0;
    const HALF: f64 = 8.0;
    let (sin, cos) = angle.sin_cos();
    // The middle of the text's height.
    let across = below - 4.0;
    let along = (0..=(width / STEP).ceil() as usize).map(|i| i as f64 * STEP);
    let at = |s: f64| [x + s * cos - across * sin, y + s * sin + across * cos];
    along.map(at).map(|[x, y]| [x - HALF, y - HALF, x + HALF, y + HALF]).collect()
}
