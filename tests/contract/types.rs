//! The contract of `rlx_ir`'s types and shapes, by its public names.

use rlx_ir::{DType, Dim, DimBinding, Shape, sym};

#[test]
fn element_types_know_their_size_and_kind() {
    let sizes = [
        (DType::F32, 4),
        (DType::F16, 2),
        (DType::BF16, 2),
        (DType::F64, 8),
        (DType::I8, 1),
        (DType::I16, 2),
        (DType::I32, 4),
        (DType::I64, 8),
        (DType::U8, 1),
        (DType::U16, 2),
        (DType::U32, 4),
        (DType::U64, 8),
        (DType::Bool, 1),
        (DType::C64, 8),
    ];
    for (dtype, bytes) in sizes {
        assert_eq!(dtype.size_bytes(), bytes, "{dtype}");
    }
    assert!(DType::BF16.is_float() && !DType::I8.is_float());
    assert!(DType::U64.is_int() && !DType::F32.is_int());
    assert_eq!(format!("{:?}", DType::F32.clone()), "F32");
}

#[test]
fn shapes_report_what_they_are() {
    let s = Shape::new(&[2, 3], DType::F32);
    assert_eq!((s.rank(), s.dtype(), s.dim(1)), (2, DType::F32, Dim::Static(3)));
    assert_eq!(s.dims(), [Dim::Static(2), Dim::Static(3)]);
    assert_eq!((s.num_elements(), s.size_bytes(), s.is_static()), (Some(6), Some(24), true));
    assert_eq!(s.to_string(), "[2, 3] f32");
    assert_eq!(Shape::scalar(DType::I64).num_elements(), Some(1));
    assert_eq!(format!("{s:?}"), format!("{:?}", s.clone()));
}

#[test]
fn symbolic_shapes_become_fixed_by_binding() {
    let dims = [sym::BATCH, sym::SEQ, sym::PAST_SEQ, sym::ROWS].map(Dim::Dynamic);
    let s = Shape::from_dims(&dims, DType::F16);
    assert!(!s.is_static());
    assert_eq!((s.num_elements(), s.size_bytes()), (None, None));
    let part = s.bind(&DimBinding::batch_seq(2, 9));
    assert_eq!(part.dims()[..2], [Dim::Static(2), Dim::Static(9)]);
    assert!(!part.is_static());
    let mut all = DimBinding::batch_past_seq(2, 4);
    all.set(sym::SEQ, 9).set(sym::ROWS, 1).set(777, 5);
    assert_eq!(s.bind(&all), Shape::new(&[2, 9, 4, 1], DType::F16), "unused symbols are ignored");
}

#[test]
fn bindings_hold_pairs() {
    assert!(DimBinding::new().is_empty());
    let b = DimBinding::from_pairs(&[(sym::SEQ, 3), (sym::BATCH, 1)]);
    assert_eq!((b.len(), b.get(sym::SEQ), b.get(sym::ROWS)), (2, Some(3), None));
    assert_eq!(b.iter().collect::<Vec<_>>(), [(sym::BATCH, 1), (sym::SEQ, 3)]);
    assert_eq!(b, DimBinding::batch_seq(1, 3));
}
