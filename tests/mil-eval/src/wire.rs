//! Protobuf's wire format: a message as its fields.

use crate::Res;

/// A field's value.
#[derive(Debug, Clone, Copy)]
pub enum Field<'a> {
    /// A number of variable length.
    Varint(u64),
    /// Four bytes.
    Fixed32([u8; 4]),
    /// A text, a message, or a list of numbers.
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    /// A message, a text or a list.
    pub fn bytes(self) -> Res<&'a [u8]> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            other => Err(format!("a message where {other:?} is")),
        }
    }

    /// A text.
    pub fn text(self) -> Res<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|e| e.to_string())
    }

    /// A number.
    pub fn number(self) -> Res<u64> {
        match self {
            Field::Varint(value) => Ok(value),
            other => Err(format!("a number where {other:?} is")),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Res<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&first, rest) = bytes.split_first().ok_or("a number without an end")?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number of more than ten bytes".to_string())
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Res<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or("a field beyond the end")?;
    *bytes = rest;
    Ok(taken)
}

/// The fields of a message with their numbers, in order.
pub fn fields(mut bytes: &[u8]) -> Res<Vec<(u64, Field<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut bytes)?),
            5 => Field::Fixed32(take(&mut bytes, 4)?.try_into().map_err(|_| "four bytes")?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|e| e.to_string())?;
                Field::Bytes(take(&mut bytes, length)?)
            }
            other => return Err(format!("wire type {other}")),
        };
        found.push((key >> 3, field));
    }
    Ok(found)
}

/// Numbers of a repeated field, packed or one by one.
pub fn varints(field: Field<'_>) -> Res<Vec<u64>> {
    match field {
        Field::Varint(value) => Ok(vec![value]),
        other => {
            let (mut bytes, mut values) = (other.bytes()?, Vec::new());
            while !bytes.is_empty() {
                values.push(varint(&mut bytes)?);
            }
            Ok(values)
        }
    }
}

/// Floats of a repeated field, packed or one by one.
pub fn floats(field: Field<'_>) -> Res<Vec<f32>> {
    match field {
        Field::Fixed32(bytes) => Ok(vec![f32::from_le_bytes(bytes)]),
        other => {
            let bytes = other.bytes()?;
            if bytes.len() % 4 != 0 {
                return Err("half a float".to_string());
            }
            Ok(bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
        }
    }
}
