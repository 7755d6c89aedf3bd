// The functions of rlx_mlx.h. Whatever MLX throws ends here.
#include "rlx_mlx.h"

#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "program.h"

using rlx::Arrays;
using rlx::Invalid;
namespace mx = mlx::core;

struct rlx_mlx_array {
  mx::array value;
  // Whether the memory is its maker's.
  bool borrowed;
};

struct rlx_mlx_program {
  std::shared_ptr<rlx::Program> program;
};

namespace {

// MLX keeps what it compiled and where it computes in tables of its own that are not for several threads at a time.
std::mutex& one_at_a_time() {
  static std::mutex lock;
  return lock;
}

void say(rlx_mlx_error* error, const char* text) {
  if (error != nullptr) {
    std::snprintf(error->text, sizeof error->text, "%s", text);
  }
}

// MLX's allocators throw a runtime error, which only its text tells apart.
rlx_mlx_status kind_of(const char* text) {
  for (const char* sign : {"Unable to allocate", "maximum allowed buffer size", "out of memory", "Insufficient Memory"}) {
    if (std::strstr(text, sign) != nullptr) {
      return RLX_MLX_OUT_OF_MEMORY;
    }
  }
  return RLX_MLX_FAILED;
}

template <typename F>
rlx_mlx_status guarded(rlx_mlx_error* error, F body) {
  try {
    std::lock_guard<std::mutex> alone(one_at_a_time());
    body();
    return RLX_MLX_OK;
  } catch (const Invalid& e) {
    say(error, e.text.c_str());
    return RLX_MLX_INVALID;
  } catch (const std::bad_alloc&) {
    say(error, "memory that cannot be had");
    return RLX_MLX_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    say(error, e.what());
    return kind_of(e.what());
  } catch (...) {
    say(error, "an exception without a text");
    return RLX_MLX_FAILED;
  }
}

// Host and device share their memory, on Apple's systems and on the CPU.
uint64_t memory_of_machine() {
#if defined(_SC_PHYS_PAGES)
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(size) : 0;
#else
  return 0;
#endif
}

void require(bool holds, const char* text) {
  if (!holds) {
    throw Invalid{text};
  }
}

// An array that owns a copy of what another one reads.
mx::array owned(const mx::array& x) {
  const char* from = x.data<char>();
  auto memory = mx::allocator::malloc(x.nbytes());
  std::memcpy(memory.buffer().raw_ptr(), from, x.nbytes());
  return mx::array(std::move(memory), x.shape(), x.dtype());
}

} // namespace

extern "C" {

uint32_t rlx_mlx_abi(void) {
  return RLX_MLX_ABI;
}

int64_t rlx_mlx_operation(const char* name) {
  try {
    return name == nullptr ? -1 : rlx::operation_number(name);
  } catch (...) {
    return -1;
  }
}

rlx_mlx_status rlx_mlx_open(rlx_mlx_info* info, rlx_mlx_error* error) {
  return guarded(error, [&] {
    require(info != nullptr, "no place for what was opened");
    std::memset(info, 0, sizeof *info);
    std::snprintf(info->version, sizeof info->version, "%s", mx::version());
    info->gpu = mx::default_device() == mx::Device::gpu ? 1 : 0;
    info->built_for = MLX_VERSION_NUMERIC;
    info->memory = memory_of_machine();
    if (info->gpu == 0) {
      // On the CPU, MLX would have fused operations compiled by the machine's C++ compiler, at run time.
      mx::set_compile_mode(mx::CompileMode::no_fuse);
    }
  });
}

rlx_mlx_status rlx_mlx_array_new(
    uint32_t dtype,
    const int64_t* dims,
    size_t rank,
    const void* data,
    size_t bytes,
    uint32_t borrow,
    rlx_mlx_array** made,
    rlx_mlx_error* error) {
  return guarded(error, [&] {
    require(made != nullptr && (rank == 0 || dims != nullptr) && (bytes == 0 || data != nullptr), "a null pointer");
    mx::Dtype type = rlx::dtype_of(dtype);
    mx::Shape shape;
    size_t size = type.size();
    for (size_t i = 0; i < rank; i++) {
      require(dims[i] >= 0 && dims[i] <= std::numeric_limits<int>::max(), "a dimension beyond 32 bits");
      require(!__builtin_mul_overflow(size, static_cast<size_t>(dims[i]), &size), "a size beyond all memory");
      shape.push_back(static_cast<int>(dims[i]));
    }
    require(size == bytes, "another number of bytes than the dimensions take");
    bool aligned = reinterpret_cast<uintptr_t>(data) % 16 == 0;
    if (borrow != 0 && aligned && size > 0) {
      *made = new rlx_mlx_array{mx::array(const_cast<void*>(data), shape, type, [](void*) {}), true};
      return;
    }
    auto memory = mx::allocator::malloc(size);
    if (size > 0) {
      std::memcpy(memory.buffer().raw_ptr(), data, size);
    }
    *made = new rlx_mlx_array{mx::array(std::move(memory), shape, type), false};
  });
}

void rlx_mlx_array_free(rlx_mlx_array* array) {
  guarded(nullptr, [&] { delete array; });
}

rlx_mlx_status
rlx_mlx_array_data(const rlx_mlx_array* array, const void** data, size_t* bytes, rlx_mlx_error* error) {
  return guarded(error, [&] {
    require(array != nullptr && data != nullptr && bytes != nullptr, "a null pointer");
    require(array->value.is_available(), "an array that was not evaluated");
    require(array->value.flags().row_contiguous, "an array that is not in row-major order");
    *bytes = array->value.nbytes();
    *data = *bytes == 0 ? nullptr : array->value.data<char>();
  });
}

rlx_mlx_status
rlx_mlx_program_new(const int64_t* words, size_t count, rlx_mlx_program** made, rlx_mlx_error* error) {
  return guarded(error, [&] {
    require(made != nullptr && (count == 0 || words != nullptr), "a null pointer");
    *made = new rlx_mlx_program{rlx::Program::read(words, count)};
  });
}

void rlx_mlx_program_free(rlx_mlx_program* program) {
  guarded(nullptr, [&] { delete program; });
}

rlx_mlx_status rlx_mlx_program_run(
    rlx_mlx_program* program,
    rlx_mlx_array* const* inputs,
    const uint8_t* donated,
    size_t input_count,
    rlx_mlx_array** outputs,
    size_t output_count,
    rlx_mlx_error* error) {
  return guarded(error, [&] {
    require(program != nullptr && (input_count == 0 || (inputs != nullptr && donated != nullptr)), "a null pointer");
    require(output_count == program->program->outputs(), "another number of outputs than the program has");
    require(output_count == 0 || outputs != nullptr, "a null pointer");
    Arrays given;
    for (size_t i = 0; i < input_count; i++) {
      require(inputs[i] != nullptr, "a null pointer");
      given.push_back(inputs[i]->value);
    }
    for (size_t i = 0; i < input_count; i++) {
      if (donated[i] != 0) {
        // Only what nothing else refers to is written over.
        inputs[i]->value = mx::array(0.0f);
      }
    }
    Arrays found = program->program->run(given);
    given.clear();
    for (auto& output : found) {
      output = mx::contiguous(output);
    }
    mx::eval(found);
    for (auto& output : found) {
      for (size_t i = 0; i < input_count; i++) {
        if (inputs[i]->borrowed && donated[i] == 0 && output.nbytes() > 0 && output.data_shared_ptr() == inputs[i]->value.data_shared_ptr()) {
          output = owned(output);
          break;
        }
      }
    }
    std::vector<std::unique_ptr<rlx_mlx_array>> made;
    for (auto& output : found) {
      made.emplace_back(new rlx_mlx_array{output, false});
    }
    for (size_t i = 0; i < output_count; i++) {
      outputs[i] = made[i].release();
    }
  });
}

size_t rlx_mlx_memory(void) {
  size_t bytes = 0;
  guarded(nullptr, [&] { bytes = mx::get_active_memory(); });
  return bytes;
}

} // extern "C"
