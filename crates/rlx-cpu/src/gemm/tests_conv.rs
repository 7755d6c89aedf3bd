//! Convolutions as matmuls against f64, on every instruction set this processor has, and what of their windows is seen to be zeros.

use super::conv::Windows;
use super::kernel::{Following, Rows};
use super::tiling::Tiling;
use super::*;
use crate::testing::{Rng, assert_close};

/// A convolution of volumes the obvious way, in f64; padding, stride, dilation, one group.
fn conv_reference(x: &[f32], w: &[f32], volumes: usize, c: usize, oc: usize, rows: &ConvRows) -> Vec<f64> {
    let mut out = Vec::new();
    let inside = |o: usize, k: usize, d: usize| {
        let at = (o * rows.stride[d] + k * rows.dilation[d]) as i64 - rows.pad[d] as i64;
        (0..rows.size[d] as i64).contains(&at).then_some(at as usize)
    };
    // The coordinates of the `i`-th place of a box.
    let place = |i: usize, [_, h, w]: [usize; 3]| [i / (h * w), i / w % h, i % w];
    let count = |b: [usize; 3]| b.iter().product::<usize>();
    for i in 0..volumes * count(rows.out) * oc {
        let (o, window) = (i % oc, place(i / oc % count(rows.out), rows.out));
        let volume = i / oc / count(rows.out);
        let mut sum = 0.0;
        for tap in 0..count(rows.kernel) {
            let k = place(tap, rows.kernel);
            let at = [0, 1, 2].map(|d| inside(window[d], k[d], d));
            let [Some(z), Some(y), Some(xx)] = at else { continue };
            let pixel = ((volume * rows.size[0] + z) * rows.size[1] + y) * rows.size[2] + xx;
            for ch in 0..c {
                sum += f64::from(x[pixel * c + ch]) * f64::from(w[(tap * c + ch) * oc + o]);
            }
        }
        out.push(sum);
    }
    out
}

/// A convolution of `volumes` and `c` channels to `oc`, whose extents but not its addresses are in `rows`, beside the obvious way.
fn check_convolution(rng: &mut Rng, [volumes, c, oc]: [usize; 3], rows: ConvRows, tolerance: f64) {
    let pixels: usize = rows.size.iter().product();
    let taps: usize = rows.kernel.iter().product();
    let (x, w) = (rng.vec(volumes * pixels * c), rng.vec(taps * c * oc));
    let zeros = vec![0.0f32; c];
    let [_, lines, width] = rows.size;
    let rows = ConvRows {
        input: x.as_ptr(),
        zeros: zeros.as_ptr(),
        strides: [lines * width * c, width * c, c],
        volume_stride: pixels * c,
        ..rows
    };
    let want = conv_reference(&x, &w, volumes, c, oc, &rows);
    let mut packed = vec![f32::NAN; packed_len(taps * c, oc).unwrap()];
    // SAFETY: the vectors cover the extents.
    unsafe { pack(w.as_ptr(), oc as isize, 1, taps * c, oc, packed.as_mut_ptr(), 0..panels(oc)) };
    for isa in Isa::available() {
        let m = volumes * rows.out.iter().product::<usize>();
        let mut out = vec![0.0f32; m * oc];
        let (b, epilogue) = (packed.as_ptr(), Epilogue::NONE);
        let (c_stride, tile_sizes, ahead) = (oc, TileSizes::DEFAULT, Ahead::Panels);
        let g = Gemm {
            m,
            n: oc,
            k: c,
            rows,
            b,
            c: out.as_mut_ptr(),
            c_stride,
            epilogue,
            tile_sizes,
            ahead,
            wide: None,
        };
        let tasks = g.tasks(isa);
        // SAFETY: the vectors cover the extents.
        unsafe {
            g.run(isa, 0..tasks / 2);
            g.run(isa, tasks / 2..tasks);
        }
        assert_close(&out, &want, tolerance, &format!("{rows:?} {isa:?}"));
    }
}

/// The extents of a convolution; its addresses are found later.
fn extents(
    size: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    dilation: [usize; 3],
    pad: [usize; 3],
) -> Option<ConvRows> {
    let extent = |d: usize| {
        let span = (kernel[d] - 1) * dilation[d] + 1;
        (size[d] + 2 * pad[d]).checked_sub(span).map(|room| room / stride[d] + 1)
    };
    let [Some(depth), Some(height), Some(width)] = [0, 1, 2].map(extent) else { return None };
    let (input, zeros, out) = (std::ptr::null(), std::ptr::null(), [depth, height, width]);
    Some(ConvRows {
        input,
        zeros,
        size,
        strides: [0; 3],
        volume_stride: 0,
        out,
        kernel,
        stride,
        dilation,
        pad,
        first: 0,
    })
}

#[test]
fn convolution_is_a_product_over_windows() {
    let mut rng = Rng::new(7);
    for round in 0..40 {
        let (volumes, c, oc) = (1 + rng.below(2), 1 + rng.below(9), 1 + rng.below(60));
        // Every other time images: volumes of one frame.
        let flat = round % 2 == 0;
        let mut below = |d: usize, n: usize| if d == 0 && flat { 0 } else { rng.below(n) };
        let size = [0, 1, 2].map(|d| 1 + below(d, if d == 0 { 4 } else { 10 }));
        let kernel = [0, 1, 2].map(|d| 1 + below(d, 3));
        let stride = [0, 1, 2].map(|d| 1 + below(d, 2));
        let dilation = [0, 1, 2].map(|d| 1 + below(d, 2));
        let pad = [0, 1, 2].map(|d| below(d, 3));
        let Some(rows) = extents(size, kernel, stride, dilation, pad) else { continue };
        check_convolution(&mut rng, [volumes, c, oc], rows, 1e-5);
    }
}

#[test]
fn a_convolution_is_split_between_its_taps_where_it_is_deep() {
    let mut rng = Rng::new(8);
    // Nine taps in blocks of one, of three and of five.
    for c in [1100, 600, 300] {
        let rows = extents([1, 5, 6], [1, 3, 3], [1; 3], [1; 3], [0, 1, 1]).unwrap();
        check_convolution(&mut rng, [1, c, 50], rows, 2e-4);
    }
}

#[test]
fn lines_beyond_an_image_add_nothing() {
    let mut rng = Rng::new(9);
    // Lines of tiles as high as each other, of others, and that tiles do not end with; windows that are outside for the most part.
    for (size, kernel, stride, dilation, pad) in [
        ([1, 7, 7], [1, 3, 3], [1; 3], [1; 3], [0, 1, 1]),
        ([1, 7, 31], [1, 5, 5], [1; 3], [1; 3], [0, 2, 2]),
        ([1, 6, 10], [1, 3, 3], [1; 3], [1; 3], [0, 1, 1]),
        ([1, 9, 29], [1, 5, 3], [1, 2, 2], [1, 2, 1], [0, 4, 1]),
        ([1, 2, 14], [1, 9, 1], [1; 3], [1; 3], [0, 6, 0]),
        ([2, 5, 16], [2, 3, 3], [1; 3], [1; 3], [1, 1, 1]),
    ] {
        let rows = extents(size, kernel, stride, dilation, pad).unwrap();
        check_convolution(&mut rng, [2, 5, 70], rows, 1e-5);
    }
}

#[test]
fn taps_that_are_left_out_are_zeros_in_all_rows() {
    let mut rng = Rng::new(10);
    let (image, zeros) = (vec![0.0f32; 1], vec![0.0f32; 1]);
    for _ in 0..500 {
        let size = [1, 1 + rng.below(9), 1 + rng.below(9)];
        let kernel = [1, 1 + rng.below(5), 1 + rng.below(3)];
        let step = [1, 1 + rng.below(3), 1 + rng.below(2)];
        let dilation = [1, 1 + rng.below(3), 1];
        let pad = [0, rng.below(6), rng.below(2)];
        let Some(rows) = extents(size, kernel, step, dilation, pad) else { continue };
        let rows = ConvRows {
            input: image.as_ptr(),
            zeros: zeros.as_ptr(),
            strides: [size[1] * size[2], size[2], 1],
            volume_stride: size[1] * size[2],
            ..rows
        };
        // Of several images, so that tiles go from one to the next.
        for row in 0..3 * rows.out.iter().product::<usize>() {
            let tile = rows.tile::<5>(row);
            let inside = rows.inside(&tile);
            assert!(inside.end <= rows.taps());
            for tap in (0..inside.start).chain(inside.end..rows.taps()) {
                let pieces = rows.pointers::<5>(&tile, tap);
                assert!(pieces.iter().all(|&p| p == zeros.as_ptr()), "{rows:?}, row {row}, tap {tap}");
            }
        }
    }
}

#[test]
fn tiles_that_follow_others_are_where_they_would_be() {
    let mut rng = Rng::new(11);
    let (image, zeros) = (vec![0.0f32; 1], vec![0.0f32; 1]);
    let mut inside = 0;
    for _ in 0..500 {
        let [size, kernel, step, dilation] =
            [20, 4, 3, 2].map(|most| [1 + rng.below(2), 1 + rng.below(most), 1 + rng.below(most)]);
        let pad = [rng.below(2), rng.below(3), rng.below(3)];
        let Some(rows) = extents(size, kernel, step, dilation, pad) else { continue };
        let strides = [1000, 50, 2];
        let rows =
            ConvRows { input: image.as_ptr(), zeros: zeros.as_ptr(), strides, volume_stride: 9000, ..rows };
        let mut following = Following::none();
        for row in (0..3 * rows.out.iter().product::<usize>()).step_by(4) {
            let (next, alone) = (rows.next_tile::<4>(row, &mut following), rows.tile::<4>(row));
            inside += usize::from(matches!(next, Windows::Inside(_)));
            for tap in 0..rows.taps() {
                assert_eq!(
                    rows.pointers(&next, tap),
                    rows.pointers(&alone, tap),
                    "{rows:?}, row {row}, tap {tap}"
                );
            }
        }
    }
    assert!(inside > 1000, "{inside} tiles inside their image followed others");
}

#[test]
fn the_first_and_the_last_line_of_an_image_have_fewer_taps() {
    let rows = extents([1, 7, 7], [1, 3, 3], [1; 3], [1; 3], [0, 1, 1]).unwrap();
    let of_line = |y: usize| rows.inside(&rows.tile::<7>(7 * y));
    assert_eq!([of_line(0), of_line(1), of_line(6)], [3..9, 0..9, 0..6]);
    // A tile that ends with the second line has its taps as well.
    assert_eq!(rows.inside(&rows.tile::<8>(0)), 0..9);
}

#[test]
fn tiles_end_with_their_line() {
    for (line, most) in (1..80).flat_map(|line| [2, 3, 6, 9].map(|most| (line, most))) {
        let m = 5 * line;
        let Some(t) = Tiling::within_lines(line, [m, 100, 300], most, TileSizes::DEFAULT) else {
            assert!(line % most != 0, "tiles of {most} rows are whole in lines of {line}");
            continue;
        };
        let mut end = 0;
        for tile in 0..t.tiles {
            let rows = t.tile_rows(tile, m);
            assert_eq!((rows.start, rows.start / line), (end, (rows.end - 1) / line), "{t:?}");
            assert!((1..=most).contains(&rows.len()) && 3 * rows.len() >= 2 * most, "{t:?}: {rows:?}");
            end = rows.end;
        }
        assert_eq!(end, m);
        for first in 0..t.tiles {
            for tiles in (first..=t.tiles).map(|end| first..end) {
                let tile_by_tile = tiles.clone().map(|tile| t.tile_rows(tile, m));
                let runs = t.lines(&tiles).flat_map(|line| t.runs(line, &tiles, m));
                let of_runs = runs.flat_map(|(rows, height)| {
                    let end = rows.end;
                    rows.step_by(height).map(move |row| row..end.min(row + height))
                });
                assert!(of_runs.eq(tile_by_tile), "{t:?}");
            }
        }
    }
}

#[test]
fn windows_of_one_tap_on_long_lines_are_rows_of_a_matrix() {
    let mut rng = Rng::new(15);
    for _ in 0..20 {
        let (volumes, c, oc) = (1 + rng.below(2), 1 + rng.below(5), 1 + rng.below(60));
        let (size, stride) = ([1, 1 + rng.below(3), 300 + rng.below(200)], [1, 1, 1 + rng.below(2)]);
        let pad = [0, rng.below(2), rng.below(3)];
        let rows = extents(size, [1; 3], stride, [1; 3], pad).unwrap();
        check_convolution(&mut rng, [volumes, c, oc], rows, 1e-5);
        // Up to the end of a line they are where the tiles have them.
        let rows = ConvRows { strides: [0, size[2], 1], volume_stride: size[1] * size[2], ..rows };
        let (line, of_tile) = (pad[1] * rows.out[2], |row: usize| rows.pointers(&rows.tile::<1>(row), 0)[0]);
        let first = line + 2;
        let (end, matrix) = rows.next_rows(&(first..line + 2 * rows.out[2]), 8);
        let matrix = matrix.expect("a line inside the image");
        assert!(
            end > first && end <= line + rows.out[2] && (end - first).is_multiple_of(8),
            "{end}, {rows:?}"
        );
        assert!(rows.out[2] - (end - line) < 8 + 2, "{end}, {rows:?}");
        for row in first..end {
            assert_eq!(matrix.skip(row - first).ptr, of_tile(row), "{row}, {rows:?}");
        }
        // A tile that is on two lines is none.
        let end = line + rows.out[2];
        assert!(rows.next_rows(&(end - 2..end + 6), 8).1.is_none(), "{rows:?}");
    }
}
