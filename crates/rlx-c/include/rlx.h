// RLX: load a model, run it, read its outputs.
//
// Every function may be given null pointers and wrong sizes: it then returns an error. Functions that return `RlxStatus` leave a
// message for the calling thread in `rlx_last_error`. A model may be run by several threads at once.
//
// Made by cbindgen from crates/rlx-c; do not edit. `RLX_WRITE_HEADER=1 cargo test -p rlx-c --test header` makes it again.

#ifndef RLX_H
#define RLX_H

#include <stddef.h>
#include <stdint.h>

// What a call gave; everything but `Ok` left a message in `rlx_last_error`.
enum RlxStatus
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // All went well.
  RLX_STATUS_OK = 0,
  // An argument that makes no sense: a null pointer, text that is not UTF-8, an index out of range, an unknown option.
  RLX_STATUS_INVALID_ARGUMENT = 1,
  // A file that could not be read or written.
  RLX_STATUS_FILE = 2,
  // A file that is not a model, or breaks its format.
  RLX_STATUS_MALFORMED = 3,
  // An op, attribute or element type that is valid but not implemented.
  RLX_STATUS_UNSUPPORTED = 4,
  // An input that is missing, unknown, or of the wrong type or shape, or a value that an op forbids.
  RLX_STATUS_INVALID_INPUT = 5,
  // A device that is absent, or a build without its backend.
  RLX_STATUS_DEVICE_UNAVAILABLE = 6,
  // Memory that cannot be had.
  RLX_STATUS_OUT_OF_MEMORY = 7,
  // A fault the device's driver reported.
  RLX_STATUS_DEVICE = 8,
  // A bug in RLX.
  RLX_STATUS_INTERNAL = 9,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum RlxStatus RlxStatus;
#else
typedef int32_t RlxStatus;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The type of a tensor's elements.
enum RlxDtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // IEEE 754 binary32: `float`.
  RLX_DTYPE_F32 = 0,
  // IEEE 754 binary16.
  RLX_DTYPE_F16 = 1,
  // The upper half of binary32.
  RLX_DTYPE_BF16 = 2,
  // IEEE 754 binary64: `double`.
  RLX_DTYPE_F64 = 3,
  // `int8_t`.
  RLX_DTYPE_I8 = 4,
  // `int16_t`.
  RLX_DTYPE_I16 = 5,
  // `int32_t`.
  RLX_DTYPE_I32 = 6,
  // `int64_t`.
  RLX_DTYPE_I64 = 7,
  // `uint8_t`.
  RLX_DTYPE_U8 = 8,
  // `uint16_t`.
  RLX_DTYPE_U16 = 9,
  // `uint32_t`.
  RLX_DTYPE_U32 = 10,
  // `uint64_t`.
  RLX_DTYPE_U64 = 11,
  // One byte, 0 or 1.
  RLX_DTYPE_BOOL = 12,
  // Two binary32: real, imaginary.
  RLX_DTYPE_C64 = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum RlxDtype RlxDtype;
#else
typedef int32_t RlxDtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A model on a device. Several threads may run it at once.
typedef struct RlxModel RlxModel;

// How a model is loaded.
typedef struct RlxOptions RlxOptions;

// A run that is done, with its outputs. It may be read by several threads.
typedef struct RlxRun RlxRun;

// What a model declares of an input or output. It belongs to the model, and is valid until `rlx_model_free`.
typedef struct RlxTensorInfo {
  // The name, UTF-8.
  const char *name;
  // The element type: a value of `RlxDtype`; -1 for one that C has no name for.
  int32_t dtype;
  // How many dimensions there are.
  size_t rank;
  // The dimensions, outermost first; -1 for a dynamic one.
  const int64_t *dims;
  // The names of dynamic dimensions, UTF-8; null for dimensions of a fixed size.
  const char *const *dim_names;
} RlxTensorInfo;

// A tensor in memory: row-major, in the machine's byte order.
//
// As an input it is the caller's, and is only read while `rlx_run` works. As an output it is the run's, and is valid until
// `rlx_run_free`.
typedef struct RlxTensor {
  // The input's or output's name, UTF-8.
  const char *name;
  // The element type: a value of `RlxDtype`; -1 for an output of a type that C has no name for.
  int32_t dtype;
  // How many dimensions there are.
  size_t rank;
  // The dimensions, outermost first; may be null where `rank` is 0.
  const size_t *dims;
  // The elements; may be null where `bytes` is 0.
  const void *data;
  // How many bytes the elements take.
  size_t bytes;
} RlxTensor;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The message of the last call of this thread that failed; empty if none did. It is valid until the thread's next call that fails.
const char *rlx_last_error(void);

// The version of RLX, as in "0.1.0".
const char *rlx_version(void);

// New options with their defaults, to be freed by `rlx_options_free`.
//
// `options` is null or may be written to.
RlxStatus rlx_options_new(struct RlxOptions **options);

// Sets an option: "device" ("cpu", "vulkan", …), "precision" ("f32", "f16", "bf16"), "policy", "numerics" ("fast", "strict"),
// "tune" ("off", "cached", "measure"), "threads", "cpu_fallback" and "cache" ("true", "false"), or "dim:NAME" for the size of a dynamic dimension.
//
// `options` is null or came from `rlx_options_new`; `name` and `value` are null or end with a zero.
RlxStatus rlx_options_set(struct RlxOptions *options,
                          const char *name,
                          const char *value);

// Frees options; null is allowed. Models that were loaded with them do not need them.
//
// `options` is null or came from `rlx_options_new`, and is not used again.
void rlx_options_free(struct RlxOptions *options);

// Loads a model: an ONNX file, or one that `rlx compile` wrote. `options` may be null. The model is compiled by its first run.
// It is to be freed by `rlx_model_free`.
//
// `path` is null or ends with a zero; `options` is null or came from `rlx_options_new`; `model` is null or may be written to.
RlxStatus rlx_load(const char *path,
                   const struct RlxOptions *options,
                   struct RlxModel **model);

// Loads an ONNX model of `size` bytes at `bytes`, which are copied. As `rlx_load` otherwise.
//
// `bytes` is null or has `size` bytes; `options` is null or came from `rlx_options_new`; `model` is null or may be written to.
RlxStatus rlx_load_bytes(const uint8_t *bytes,
                         size_t size,
                         const struct RlxOptions *options,
                         struct RlxModel **model);

// Frees a model; null is allowed. Its runs stay valid.
//
// `model` is null or came from `rlx_load` or `rlx_load_bytes`, and is not used again.
void rlx_model_free(struct RlxModel *model);

// How many inputs a model has; 0 for null.
//
// `model` is null or a model.
size_t rlx_input_count(const struct RlxModel *model);

// How many outputs a model has; 0 for null.
//
// `model` is null or a model.
size_t rlx_output_count(const struct RlxModel *model);

// What a model declares of input `index`.
//
// `model` is null or a model; `info` is null or may be written to.
RlxStatus rlx_input_info(const struct RlxModel *model, size_t index, struct RlxTensorInfo *info);

// What a model declares of output `index`.
//
// `model` is null or a model; `info` is null or may be written to.
RlxStatus rlx_output_info(const struct RlxModel *model, size_t index, struct RlxTensorInfo *info);

// Runs a model on `count` inputs. The run has the outputs, and is to be freed by `rlx_run_free`.
//
// `model` is null or a model; `inputs` is null or has `count` tensors, whose memory is as they say; `run` is null or may be written to.
RlxStatus rlx_run(const struct RlxModel *model,
                  const struct RlxTensor *inputs,
                  size_t count,
                  struct RlxRun **run);

// How many outputs a run has; 0 for null.
//
// `run` is null or a run.
size_t rlx_run_output_count(const struct RlxRun *run);

// Output `index` of a run, valid until the run is freed. Nothing is copied.
//
// `run` is null or a run; `output` is null or may be written to.
RlxStatus rlx_run_output(const struct RlxRun *run, size_t index, struct RlxTensor *output);

// The output called `name`, valid until the run is freed. Nothing is copied.
//
// `run` is null or a run; `name` is null or ends with a zero; `output` is null or may be written to.
RlxStatus rlx_run_find(const struct RlxRun *run,
                       const char *name,
                       struct RlxTensor *output);

// Frees a run and its outputs; null is allowed.
//
// `run` is null or came from `rlx_run`, and is not used again.
void rlx_run_free(struct RlxRun *run);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RLX_H */
