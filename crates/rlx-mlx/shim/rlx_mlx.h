// The C interface between RLX and MLX (https://github.com/ml-explore/mlx): arrays, and programs of MLX's operations.
//
// Every function that can fail gives an `rlx_mlx_status`, and says why in the `rlx_mlx_error` that it is given; no exception leaves
// the library. Handles are freed by whoever made them, and may be used from any thread: calls that evaluate are serialised.
//
// A program is a list of words (i64), all of them checked when it is made:
//
//   program := inputs, instructions, {instruction}, outputs, {value}
//   instruction := operation, operands, attributes, results, {operand value}, {attribute}
//
// Values are numbered: the inputs first, then the results in order. An operand is a value that comes before. Operations are known by
// name, and their numbers asked for with `rlx_mlx_operation`: a number means something for the loaded library alone.
#ifndef RLX_MLX_H
#define RLX_MLX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define RLX_MLX_API __declspec(dllexport)
#else
#define RLX_MLX_API __attribute__((visibility("default")))
#endif

// Which interface this is. It changes whenever an older RLX could not use it.
#define RLX_MLX_ABI 1

// What became of a call.
typedef enum {
  RLX_MLX_OK = 0,
  // The arguments make no sense: a mistake of the caller's.
  RLX_MLX_INVALID = 1,
  // Memory that cannot be had.
  RLX_MLX_OUT_OF_MEMORY = 2,
  // An operation failed in MLX.
  RLX_MLX_FAILED = 3,
} rlx_mlx_status;

// Element types.
typedef enum {
  RLX_MLX_BOOL = 0,
  RLX_MLX_U8 = 1,
  RLX_MLX_U16 = 2,
  RLX_MLX_U32 = 3,
  RLX_MLX_U64 = 4,
  RLX_MLX_I8 = 5,
  RLX_MLX_I16 = 6,
  RLX_MLX_I32 = 7,
  RLX_MLX_I64 = 8,
  RLX_MLX_F16 = 9,
  RLX_MLX_BF16 = 10,
  RLX_MLX_F32 = 11,
  RLX_MLX_F64 = 12,
} rlx_mlx_dtype;

// Why a call failed, as text that ends in 0.
typedef struct {
  char text[1024];
} rlx_mlx_error;

// What was loaded.
typedef struct {
  // MLX's version, as text that ends in 0.
  char version[64];
  // 1 where it computes on a GPU, 0 on the CPU.
  uint32_t gpu;
  // The version of MLX whose headers this was built with: 100000 · major + 1000 · minor + patch.
  uint32_t built_for;
  // Bytes of memory that the device has in all; 0 where that is not known.
  uint64_t memory;
} rlx_mlx_info;

typedef struct rlx_mlx_array rlx_mlx_array;
typedef struct rlx_mlx_program rlx_mlx_program;

// RLX_MLX_ABI of the library.
RLX_MLX_API uint32_t rlx_mlx_abi(void);

// The number of an operation, or -1 where the library has none of that name.
RLX_MLX_API int64_t rlx_mlx_operation(const char* name);

RLX_MLX_API rlx_mlx_status rlx_mlx_open(rlx_mlx_info* info, rlx_mlx_error* error);

// An array of `bytes` row-major bytes. With `borrow`, it may read them where they are for as long as it lives, which its
// maker promises; else, and where MLX cannot, they are copied.
RLX_MLX_API rlx_mlx_status rlx_mlx_array_new(
    uint32_t dtype,
    const int64_t* dims,
    size_t rank,
    const void* data,
    size_t bytes,
    uint32_t borrow,
    rlx_mlx_array** made,
    rlx_mlx_error* error);

RLX_MLX_API void rlx_mlx_array_free(rlx_mlx_array* array);

// Where an evaluated array's row-major bytes are, and how many; valid for as long as it lives.
RLX_MLX_API rlx_mlx_status
rlx_mlx_array_data(const rlx_mlx_array* array, const void** data, size_t* bytes, rlx_mlx_error* error);

RLX_MLX_API rlx_mlx_status rlx_mlx_program_new(
    const int64_t* words,
    size_t count,
    rlx_mlx_program** made,
    rlx_mlx_error* error);

RLX_MLX_API void rlx_mlx_program_free(rlx_mlx_program* program);

// Runs a program and waits for it. The outputs are new arrays, evaluated, each in row-major order and in memory of its own or of
// an array that was not borrowed. An input whose flag in `donated` is not 0 has no value afterwards: outputs may be written over it.
RLX_MLX_API rlx_mlx_status rlx_mlx_program_run(
    rlx_mlx_program* program,
    rlx_mlx_array* const* inputs,
    const uint8_t* donated,
    size_t input_count,
    rlx_mlx_array** outputs,
    size_t output_count,
    rlx_mlx_error* error);

// Bytes that MLX holds for arrays at present.
RLX_MLX_API size_t rlx_mlx_memory(void);

#ifdef __cplusplus
}
#endif

#endif
