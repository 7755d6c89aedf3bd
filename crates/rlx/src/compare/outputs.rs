//! The outputs of two runs: of two models, or of a model and of another program.

use rlx_ir::tensor::Elements;
use rlx_ir::{ConstData, DType, Error, ErrorKind, Result, Value};

use super::{Difference, Tolerance, Tolerances, floats, shorter};
use crate::units::counted;

/// Outputs by name.
type Outputs = [(String, ConstData)];

/// An output in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputDifference {
    /// Its name in the first run.
    pub name: String,
    /// Its name in the second, where outputs are matched by their order.
    pub other_name: String,
    /// The difference; all of it, if the shapes are not the same.
    pub difference: Difference,
    /// The element with the largest absolute error.
    pub worst: Option<Worst>,
    /// Both shapes, if they are not the same.
    pub shapes: Option<(String, String)>,
    /// The tolerance that it was held to.
    pub tolerance: Tolerance,
}

/// An element in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    /// Its position.
    pub index: Vec<usize>,
    /// Its value in the first run.
    pub want: f64,
    /// Its value in the second run.
    pub got: f64,
}

/// Compares the outputs of a run with what is expected: by name where every expected name is among the outputs, else by order
/// where there are as many. Float types may be different, as NumPy has no bf16: they are held to the tolerance of the shorter one.
/// `rounded_to` is the shortest type that an output was rounded to on its way, where that is known.
///
/// ```
/// use rlx::compare::{Tolerances, compare_outputs};
/// use rlx_ir::ConstData;
/// let want = [("y".to_owned(), ConstData::from_f32(&[2], &[1.0, 2.0])?)];
/// let got = [("y".to_owned(), ConstData::from_f32(&[2], &[1.0, 2.5])?)];
/// let found = compare_outputs(&want, &got, &[], Tolerances::default())?;
/// assert!(!found[0].difference.ok);
/// assert_eq!(found[0].worst.as_ref().unwrap().index, [1]);
/// # Ok::<(), rlx_ir::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Binding`] where outputs cannot be matched.
pub fn compare_outputs(
    want: &Outputs,
    got: &Outputs,
    rounded_to: &[DType],
    tolerances: Tolerances,
) -> Result<Vec<OutputDifference>> {
    let pairs = matched(want, got)?;
    let compared = pairs.into_iter().map(|((name, want), at)| {
        let (other_name, got) = &got[at];
        let own = shorter(want.dtype(), got.dtype());
        let dtype = rounded_to.get(at).map_or(own, |&inner| shorter(inner, own));
        one(name, other_name, want, got, tolerances.of(dtype))
    });
    compared.collect()
}

/// For each expected output its position among the others.
fn matched<'a>(want: &'a Outputs, got: &Outputs) -> Result<Vec<(&'a (String, ConstData), usize)>> {
    let at = |name: &str| got.iter().position(|(n, _)| n == name);
    let by_name: Option<Vec<_>> = want.iter().map(|pair| Some((pair, at(&pair.0)?))).collect();
    if let Some(pairs) = by_name.filter(|pairs| !pairs.is_empty()) {
        return Ok(pairs);
    }
    if want.len() == got.len() {
        return Ok(want.iter().zip(0..).collect());
    }
    let names = |list: &Outputs| list.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", ");
    let all = |list: &Outputs| format!("{} ({})", counted(list.len(), "output", "outputs"), names(list));
    let message = format!("{} and {}", all(want), all(got));
    Err(Error::new(ErrorKind::Binding, format!("outputs cannot be matched: {message}"))
        .with_hint("give those that are compared the names of the model's outputs"))
}

fn one(
    name: &str,
    other_name: &str,
    want: &ConstData,
    got: &ConstData,
    tolerance: Tolerance,
) -> Result<OutputDifference> {
    let (name, other_name) = (name.to_owned(), other_name.to_owned());
    if want.dims() != got.dims() {
        let difference =
            Difference { ok: false, max_abs: f64::INFINITY, cosine: f64::NAN, ..Difference::NONE };
        let shapes = Some((want.shape().to_string(), got.shape().to_string()));
        return Ok(OutputDifference { name, other_name, difference, worst: None, shapes, tolerance });
    }
    let (want, got) = (want.try_value()?, got.try_value()?);
    let difference = values(&want, &got, tolerance);
    let is_worst = difference.max_abs > 0.0;
    let worst = is_worst.then(|| Worst {
        index: index(&want.dims, difference.worst),
        want: want.to_f64().get(difference.worst).copied().unwrap_or(f64::NAN),
        got: got.to_f64().get(difference.worst).copied().unwrap_or(f64::NAN),
    });
    Ok(OutputDifference { name, other_name, difference, worst, shapes: None, tolerance })
}

/// As [`super::compare`], of elements whose types may be different.
fn values(want: &Value, got: &Value, tolerance: Tolerance) -> Difference {
    match (&want.elements, &got.elements) {
        (Elements::Int(a), Elements::Int(b)) => super::integers(a, b),
        // Of an integer and a float type, the numbers count.
        _ => floats(shorter(want.dtype, got.dtype), &want.to_f64(), &got.to_f64(), tolerance),
    }
}

/// The position of an element.
fn index(dims: &[usize], mut at: usize) -> Vec<usize> {
    let mut index: Vec<usize> = dims
        .iter()
        .rev()
        .map(|&d| {
            let i = at % d.max(1);
            at /= d.max(1);
            i
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(name: &str, dims: &[usize], values: &[f32]) -> (String, ConstData) {
        (name.to_owned(), ConstData::from_f32(dims, values).unwrap())
    }

    #[test]
    fn outputs_are_matched_by_name_and_else_by_order() {
        let want = [f32s("a", &[1], &[1.0]), f32s("b", &[1], &[2.0])];
        let swapped = [f32s("b", &[1], &[2.0]), f32s("a", &[1], &[1.0])];
        let renamed = [f32s("x", &[1], &[1.0]), f32s("y", &[1], &[2.0])];
        for got in [&swapped, &renamed] {
            let found = compare_outputs(&want, got, &[], Tolerances::default()).unwrap();
            assert!(found.iter().all(|d| d.difference.ok && d.worst.is_none()));
        }
        // Fewer may be expected than there are, by their names.
        assert_eq!(compare_outputs(&want[1..], &swapped, &[], Tolerances::default()).unwrap().len(), 1);
        assert!(compare_outputs(&want[1..], &renamed, &[], Tolerances::default()).is_err());
        let found =
            compare_outputs(&want[..1], &[f32s("a", &[2], &[1.0, 1.0])], &[], Tolerances::default()).unwrap();
        assert!(!found[0].difference.ok && found[0].shapes.is_some());
    }

    #[test]
    fn the_worst_element_and_the_cosine_are_found() {
        let want = [f32s("y", &[2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0])];
        let got = [f32s("y", &[2, 3], &[1.0, 0.0, 0.0, 0.0, 0.0, 1.0])];
        let found = &compare_outputs(&want, &got, &[], Tolerances::default()).unwrap()[0];
        let worst = found.worst.clone().unwrap();
        assert_eq!((worst.index, worst.want, worst.got), (vec![1, 1], 1.0, 0.0));
        assert!((found.difference.cosine - 0.5).abs() < 1e-12);
    }

    #[test]
    fn types_may_differ_and_the_shorter_one_decides() {
        let half = Value::float(DType::F16, &[1], vec![1.0]).to_const();
        let want = [f32s("y", &[1], &[1.004])];
        let got = [("y".to_owned(), half)];
        assert!(compare_outputs(&want, &got, &[], Tolerances::default()).unwrap()[0].difference.ok);
        let same = [f32s("y", &[1], &[1.0])];
        assert!(!compare_outputs(&want, &same, &[], Tolerances::default()).unwrap()[0].difference.ok);
        assert!(
            compare_outputs(&want, &same, &[DType::F16], Tolerances::default()).unwrap()[0].difference.ok
        );
        // Next to nothing is no difference, if so much is allowed.
        let tiny = [f32s("y", &[1], &[1e-9])];
        let zero = [f32s("y", &[1], &[0.0])];
        let floor = Tolerances { floor: 1e-6, ..Tolerances::default() };
        assert!(!compare_outputs(&tiny, &zero, &[], Tolerances::default()).unwrap()[0].difference.ok);
        assert!(compare_outputs(&tiny, &zero, &[], floor).unwrap()[0].difference.ok);
    }
}
