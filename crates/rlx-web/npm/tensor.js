// Tensors: an element type, dimensions, elements.

import { RlxError } from './errors.js';

/** Element types, and the arrays that hold them. 16-bit floats are given as their bits. */
const ARRAYS = {
  f32: Float32Array,
  f64: Float64Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  i8: Int8Array,
  i16: Int16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  u64: BigUint64Array,
  bool: Uint8Array,
};

/** The element type that an array stands for unless one is named: of 16 bits the integer, of bytes `u8`. */
const TYPES = new Map(
  ['u8', 'u16', 'f32', 'f64', 'i8', 'i16', 'i32', 'i64', 'u32', 'u64'].map((type) => [ARRAYS[type], type]),
);

const count = (dims) => dims.reduce((product, dim) => product * dim, 1);

/** A tensor in memory of its own, row-major. */
export class Tensor {
  constructor(data, dims, dtype) {
    const type = dtype ?? TYPES.get(data.constructor);
    const array = ARRAYS[type];
    if (array === undefined) {
      const known = Object.keys(ARRAYS).join(', ');
      throw new RlxError('DType', `a tensor takes a typed array of one of: ${known}; not ${dtype ?? data?.constructor?.name}`);
    }
    this.dtype = type;
    this.data = data instanceof array ? data : array.from(data);
    this.dims = Array.from(dims ?? [this.data.length]);
    if (count(this.dims) !== this.data.length) {
      throw new RlxError('Shape', `${this.data.length} elements are no tensor [${this.dims.join(', ')}]`);
    }
  }
}

/** Anything that `run` takes as a tensor: a `Tensor`, `{ data, dims, dtype }`, a typed array of one dimension. */
function tensorOf(name, value) {
  if (value instanceof Tensor) return value;
  if (ArrayBuffer.isView(value)) return new Tensor(value);
  if (value?.data !== undefined) return new Tensor(value.data, value.dims, value.dtype);
  throw new RlxError('Binding', `input "${name}" is no tensor: give a typed array, or { data, dims }`);
}

/** Named inputs as the module takes them. */
export function toModule(inputs) {
  return Object.entries(inputs).map(([name, value]) => {
    const { data, dims, dtype } = tensorOf(name, value);
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    return { name, dtype, dims: Uint32Array.from(dims), data: bytes };
  });
}

/** The module's outputs by name. */
export function fromModule(outputs) {
  const one = ({ name, dtype, dims, data }) => {
    const array = ARRAYS[dtype];
    if (array === undefined) {
      throw new RlxError('DType', `output "${name}" has elements of type ${dtype}, which JavaScript has no array for`);
    }
    return [name, new Tensor(new array(data.buffer, data.byteOffset, data.byteLength / array.BYTES_PER_ELEMENT), dims, dtype)];
  };
  return Object.fromEntries(outputs.map(one));
}
