/** Element types. 16-bit floats are arrays of their bits. */
export interface ArrayOf {
  f32: Float32Array;
  f64: Float64Array;
  f16: Uint16Array;
  bf16: Uint16Array;
  i8: Int8Array;
  i16: Int16Array;
  i32: Int32Array;
  i64: BigInt64Array;
  u8: Uint8Array;
  u16: Uint16Array;
  u32: Uint32Array;
  u64: BigUint64Array;
  bool: Uint8Array;
}

export type DType = keyof ArrayOf;
export type TypedArray = ArrayOf[DType];

/** A tensor in memory of its own, row-major. */
export class Tensor<T extends DType = DType> {
  /** @param dims one dimension, unless given; @param dtype the array's own type, unless given (`f16`, `bf16` and `bool` must be). */
  constructor(data: ArrayOf[T] | ArrayLike<number>, dims?: readonly number[], dtype?: T);
  readonly dtype: T;
  readonly dims: number[];
  readonly data: ArrayOf[T];
}

/** What `run` takes as a tensor. A typed array alone has one dimension. */
export type TensorLike =
  | Tensor
  | TypedArray
  | { data: TypedArray | ArrayLike<number>; dims?: readonly number[]; dtype?: DType };

export type ErrorKind =
  | 'Shape' | 'DType' | 'InvalidGraph' | 'Parse' | 'Io' | 'Malformed' | 'Unsupported' | 'NeedsInputValue' | 'Binding' | 'Value'
  | 'Dimension' | 'DeviceUnavailable' | 'OutOfMemory' | 'Device' | 'Config' | 'Cancelled' | 'Panic' | 'Internal';

/** An error of RLX. */
export class RlxError extends Error {
  readonly kind: ErrorKind;
  /** What to do next. */
  readonly hint?: string;
  readonly device?: string;
  /** The node of the graph. */
  readonly node?: string;
  /** Where in the model that node comes from. */
  readonly origin?: string;
}

export interface Progress {
  /** `fetch` counts bytes; the others count parts: nodes, passes, weights. */
  stage: 'fetch' | 'read' | 'import' | 'compile' | 'prepare' | 'run';
  done: number;
  /** 0 where no one knows. */
  total: number;
  /** What it is busy with. */
  text: string;
}

export type DeviceName = 'webgpu' | 'cpu';

export interface LoadOptions {
  /** `auto` (the default) is WebGPU, and the CPU where that is not there or cannot run the model, which is said: see `onFallback`. */
  device?: 'auto' | DeviceName;
  onProgress?: (progress: Progress) => void;
  /** Stops fetching, and loading between its parts. */
  signal?: AbortSignal;
  /** Whether the browser keeps what is fetched (the default). Kept files are used while the server has the same version. */
  cache?: boolean;
  /** Files with data of the model's tensors, by name, where they are not beside the model. */
  files?: Record<string, string | URL | ArrayBuffer | Uint8Array>;
  /** Sizes of dynamic dimensions; the model is compiled for these alone, and runs faster. */
  dims?: Record<string, number>;
  /** Called when the model goes to the CPU instead of WebGPU; the console says it in any case. */
  onFallback?: (reason: RlxError) => void;
}

export interface RunOptions {
  /** Gives up waiting for the run. */
  signal?: AbortSignal;
  /** What the first run compiles. */
  onProgress?: (progress: Progress) => void;
}

export interface TensorInfo {
  name: string;
  dtype: DType;
  /** A dynamic dimension is its name. */
  dims: (number | string)[];
}

/** A model on a device. */
export class Model {
  private constructor();
  readonly device: DeviceName;
  /** Why it does not run on WebGPU, where that was to be tried first. */
  readonly fallback?: RlxError;
  readonly inputs: TensorInfo[];
  readonly outputs: TensorInfo[];
  /**
   * Runs on named tensors; gives the outputs by name. The first run with other dimensions compiles. Runs that are asked for at once are
   * done one after the other. After an error of kind `Device` (the GPU was lost) the next run opens the device again.
   */
  run(inputs: Record<string, TensorLike>, options?: RunOptions): Promise<Record<string, Tensor>>;
  /** Gives its memory back. */
  free(): void;
}

export interface DeviceInfo {
  name: DeviceName;
  available: boolean;
  /** The adapter, the instruction set, or what is missing. */
  about: string;
  /** Whether it is computed by software on the processor. */
  software: boolean;
  reason?: RlxError;
}

/** Loads an ONNX model from a URL or from its bytes. Data beside a model that comes from a URL is fetched from there. */
export function load(source: string | URL | ArrayBuffer | Uint8Array, options?: LoadOptions): Promise<Model>;

/** What there is to run on, the fastest first. */
export function devices(): Promise<DeviceInfo[]>;

/** Loads the WebAssembly module, which `load` does otherwise: from beside `index.js`, or from another place. */
export function init(options?: { module?: string | URL | Request | Response | ArrayBuffer | WebAssembly.Module }): Promise<unknown>;

/** Gives the WebGPU device back to the browser; models on it open it again. */
export function closeWebGpu(): Promise<void>;
