//! The reference by hand.

use super::*;
use crate::oracle::evaluate_op;

/// A line of three elements at these positions.
fn line(mode: SampleMode, outside: Outside, positions: &[f64]) -> Vec<f64> {
    let x = Value::float(DType::F32, &[1, 1, 3], vec![1.0, 2.0, 4.0]);
    let at = Value::float(DType::F32, &[1, positions.len()], positions.to_vec());
    evaluate_op(&Op::GridSample { mode, outside }, &[&x, &at], &[]).unwrap()[0].to_f64()
}

#[test]
fn lines_by_hand() {
    use Outside as O;
    use SampleMode as M;
    assert_eq!(
        line(M::Linear, O::Zeros, &[-1.0, -0.5, 0.0, 0.25, 1.5, 2.5]),
        [0.0, 0.5, 1.0, 1.25, 3.0, 2.0]
    );
    assert_eq!(line(M::Linear, O::Border, &[-9.0, -0.5, 1.5, 2.5]), [1.0, 1.0, 3.0, 4.0]);
    // Mirrored at −0.5 and 2.5, and at 0 and 2.
    assert_eq!(line(M::Linear, O::ReflectEdges, &[-0.75, -1.5, 3.0, 4.5, 7.0]), [1.0, 1.5, 4.0, 1.5, 2.0]);
    assert_eq!(line(M::Linear, O::ReflectCentres, &[-0.75, -1.5, 3.0, 4.5]), [1.75, 3.0, 2.0, 1.5]);
    assert_eq!(
        line(M::Nearest, O::Zeros, &[-0.75, -0.5, 0.5, 1.5, 2.5, 2.75]),
        [0.0, 1.0, 1.0, 4.0, 4.0, 0.0]
    );
    // At the elements cubic interpolation gives them, too.
    assert_eq!(line(M::Cubic, O::Zeros, &[0.0, 1.0, 2.0, 4.0]), [1.0, 2.0, 4.0, 0.0]);
    // −3/32, 19/32, 19/32 and −3/32 of the neighbours.
    assert_eq!(line(M::Cubic, O::Zeros, &[0.5]), [(-3.0 * 4.0 + 19.0 * 3.0) / 32.0]);
    assert_eq!(line(M::Cubic, O::Border, &[0.5]), [(-3.0 * 5.0 + 19.0 * 3.0) / 32.0]);
}

#[test]
fn what_is_no_number_or_far_away_is_outside() {
    for mode in [SampleMode::Nearest, SampleMode::Linear, SampleMode::Cubic] {
        let at = [f64::NAN, f64::NEG_INFINITY, f64::INFINITY, -1e38, 1e38];
        assert_eq!(line(mode, Outside::Zeros, &at), [0.0; 5]);
        assert_eq!(line(mode, Outside::Border, &at), [1.0, 1.0, 4.0, 1.0, 4.0]);
        for outside in [Outside::ReflectCentres, Outside::ReflectEdges] {
            assert!(line(mode, outside, &at).iter().all(|y| (0.5..4.5).contains(y)), "{mode} {outside}");
        }
    }
}

#[test]
fn an_infinity_of_weight_zero_adds_nothing() {
    let x = Value::float(DType::F32, &[1, 1, 1, 2], vec![1.0, f64::INFINITY]);
    let at = |v: &[f64]| Value::float(DType::F32, &[1, v.len()], v.to_vec());
    for outside in [Outside::Zeros, Outside::Border, Outside::ReflectCentres, Outside::ReflectEdges] {
        let op = Op::GridSample { mode: SampleMode::Linear, outside };
        let y = evaluate_op(&op, &[&x, &at(&[0.0, 0.0]), &at(&[0.0, 0.5])], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [1.0, f64::INFINITY], "{outside}");
    }
}

#[test]
fn the_first_positions_are_those_of_the_first_dimension() {
    let x = Value::int(DType::U8, &[1, 2, 2, 3], (0..12).collect());
    let at = |v: f64| Value::float(DType::F32, &[1], vec![v]);
    let op = Op::GridSample { mode: SampleMode::Nearest, outside: Outside::Zeros };
    let y = evaluate_op(&op, &[&x, &at(1.0), &at(2.0)], &[]).unwrap();
    assert_eq!((y[0].dims.clone(), y[0].to_f64()), (vec![1, 2], vec![5.0, 11.0]));
}

#[test]
fn mismatches_name_all_shapes_and_an_empty_image_has_nothing_to_read() {
    let s = |dims: &[usize]| Shape::new(dims, DType::F32);
    let op = Op::GridSample { mode: SampleMode::Linear, outside: Outside::Border };
    let infer = |x: &[usize], y: &[usize], z: &[usize]| GridSampleDef.infer(&op, &[&s(x), &s(y), &s(z)], &[]);
    assert_eq!(infer(&[2, 3, 4, 5], &[2, 6], &[2, 6]).unwrap()[..], [s(&[2, 3, 6])]);
    let error = infer(&[2, 3, 4, 5], &[2, 6], &[2, 7]).unwrap_err().to_string();
    assert!(error.contains("[2, 3, 4, 5] f32 at [2, 6] f32, [2, 7] f32"), "{error}");
    assert!(infer(&[2, 3, 4], &[2, 6], &[2, 6]).is_err());
    assert!(infer(&[3, 3, 4, 5], &[2, 6], &[2, 6]).is_err());
    assert!(infer(&[2, 3, 4, 5], &[], &[]).is_err());
    let (x, at) =
        (Value::float(DType::F32, &[1, 1, 0], vec![]), Value::float(DType::F32, &[1, 1], vec![0.0]));
    assert_eq!(evaluate_op(&op, &[&x, &at], &[]).unwrap_err().kind(), ErrorKind::Value);
}
