//! Tensors: an element type, dimensions, elements in row-major order.

use crate::Res;

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Ty {
    F16,
    F32,
    I8,
    U8,
    I32,
    Bool,
    Text,
}

impl Ty {
    /// The type of a number of `MIL.proto`.
    pub fn of_code(code: u64) -> Res<Ty> {
        Ok(match code {
            1 => Ty::Bool,
            2 => Ty::Text,
            10 => Ty::F16,
            11 => Ty::F32,
            21 => Ty::I8,
            23 => Ty::I32,
            31 => Ty::U8,
            other => return Err(format!("data type {other}")),
        })
    }

    /// The type of a name, as `cast` has it.
    pub fn of_name(name: &str) -> Res<Ty> {
        Ok(match name {
            "bool" => Ty::Bool,
            "fp16" => Ty::F16,
            "fp32" => Ty::F32,
            "int8" => Ty::I8,
            "uint8" => Ty::U8,
            "int32" => Ty::I32,
            other => return Err(format!("data type {other:?}")),
        })
    }

    /// Whether it is a float.
    pub fn is_float(self) -> bool {
        matches!(self, Ty::F16 | Ty::F32)
    }
}

/// The elements.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Floats; those of 16 bits are rounded.
    Floats(Vec<f32>),
    /// Integers.
    Ints(Vec<i32>),
    /// Truth values.
    Bools(Vec<bool>),
    /// One text.
    Text(String),
}

/// A tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// The element type.
    pub ty: Ty,
    /// The dimensions.
    pub dims: Vec<usize>,
    /// The elements.
    pub data: Data,
}

impl Tensor {
    /// Floats of 32 bits.
    pub fn floats(dims: &[usize], values: Vec<f32>) -> Tensor {
        Tensor { ty: Ty::F32, dims: dims.to_vec(), data: Data::Floats(values) }
    }

    /// Integers of 32 bits.
    pub fn ints(dims: &[usize], values: Vec<i32>) -> Tensor {
        Tensor { ty: Ty::I32, dims: dims.to_vec(), data: Data::Ints(values) }
    }

    /// Truth values.
    pub fn bools(dims: &[usize], values: Vec<bool>) -> Tensor {
        Tensor { ty: Ty::Bool, dims: dims.to_vec(), data: Data::Bools(values) }
    }

    /// Floats of a type, rounded to it.
    pub fn of_floats(ty: Ty, dims: &[usize], mut values: Vec<f32>) -> Tensor {
        if ty == Ty::F16 {
            values.iter_mut().for_each(|v| *v = half_to_float(float_to_half(*v)));
        }
        Tensor { ty, dims: dims.to_vec(), data: Data::Floats(values) }
    }

    /// Zeros.
    pub fn zeros(ty: Ty, dims: &[usize]) -> Tensor {
        let n = dims.iter().product();
        let data = match ty {
            Ty::Bool => Data::Bools(vec![false; n]),
            ty if ty.is_float() => Data::Floats(vec![0.0; n]),
            _ => Data::Ints(vec![0; n]),
        };
        Tensor { ty, dims: dims.to_vec(), data }
    }

    /// How many elements the dimensions say.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The floats.
    pub fn as_floats(&self) -> Res<&[f32]> {
        match &self.data {
            Data::Floats(values) => Ok(values),
            _ => Err(format!("floats where {:?} are", self.ty)),
        }
    }

    /// The integers.
    pub fn as_ints(&self) -> Res<&[i32]> {
        match &self.data {
            Data::Ints(values) => Ok(values),
            _ => Err(format!("integers where {:?} are", self.ty)),
        }
    }

    /// The truth values.
    pub fn as_bools(&self) -> Res<&[bool]> {
        match &self.data {
            Data::Bools(values) => Ok(values),
            _ => Err(format!("bools where {:?} are", self.ty)),
        }
    }

    /// The elements at these positions, with other dimensions.
    pub fn pick(&self, dims: &[usize], at: impl Iterator<Item = usize>) -> Tensor {
        let data = match &self.data {
            Data::Floats(v) => Data::Floats(at.map(|i| v[i]).collect()),
            Data::Ints(v) => Data::Ints(at.map(|i| v[i]).collect()),
            Data::Bools(v) => Data::Bools(at.map(|i| v[i]).collect()),
            Data::Text(text) => Data::Text(text.clone()),
        };
        Tensor { ty: self.ty, dims: dims.to_vec(), data }
    }
}

/// The distance of neighbours along each dimension.
pub fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    strides
}

/// For every index of `dims` in order, the sum of index times stride.
pub fn offsets(dims: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut found = vec![0];
    for (&size, &stride) in dims.iter().zip(strides) {
        found = found.iter().flat_map(|&base| (0..size).map(move |i| base + i * stride)).collect();
    }
    found
}

/// The dimensions that two broadcast to.
pub fn broadcast(a: &[usize], b: &[usize]) -> Res<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(format!("{a:?} and {b:?} do not broadcast")),
        })
        .collect()
}

/// Where the elements of a tensor of `dims` are for each element of what it is broadcast to.
pub fn broadcast_offsets(dims: &[usize], to: &[usize]) -> Vec<usize> {
    let mut steps = vec![0; to.len() - dims.len()];
    steps.extend(strides(dims).iter().zip(dims).map(|(&s, &d)| if d == 1 { 0 } else { s }));
    offsets(to, &steps)
}

/// The nearest float of 16 bits, ties to even.
pub fn float_to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = f64::from(value.abs());
    if value.is_nan() {
        return sign | 0x7e00;
    }
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    // In units of the last place of its binade; below 2⁻¹⁴ all are 2⁻²⁴.
    let exponent = if magnitude < 2f64.powi(-14) { -14 } else { magnitude.log2().floor() as i32 };
    let units = (magnitude / 2f64.powi(exponent - 10)).round_ties_even() as u32;
    let encoded = if exponent == -14 && units < 1024 {
        units
    } else {
        // A carry out of the fraction is the next exponent.
        (((exponent + 15) as u32) << 10) + (units - 1024)
    };
    sign | encoded as u16
}

/// A float of 16 bits.
pub fn half_to_float(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from((bits >> 10) & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    (sign * magnitude) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_halves_are_kept_and_ties_go_to_even() {
        for bits in (0..0x7c00u16).chain(0x8000..0xfc00) {
            assert_eq!(float_to_half(half_to_float(bits)), bits);
        }
        assert_eq!(half_to_float(float_to_half(1.0 + 1.0 / 2048.0)), 1.0);
        assert_eq!(half_to_float(float_to_half(1.0 + 3.0 / 2048.0)), 1.0 + 2.0 / 1024.0);
        assert_eq!(half_to_float(float_to_half(70000.0)), f32::INFINITY);
    }
}
