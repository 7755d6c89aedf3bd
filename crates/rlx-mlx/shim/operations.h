// MLX's operations by name: what each takes, and the call that computes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <mlx/mlx.h>

namespace rlx {

namespace mx = mlx::core;
using Arrays = std::vector<mx::array>;

// A mistake in a program or in the arguments of a call.
struct Invalid {
  std::string text;
};

// An instruction's attributes, each of them checked where it is read.
class Attributes {
 public:
  explicit Attributes(std::vector<int64_t> words) : words_(std::move(words)) {}

  size_t size() const {
    return words_.size();
  }

  int64_t word(size_t i) const {
    if (i >= words_.size()) {
      throw Invalid{"an attribute is missing"};
    }
    return words_[i];
  }

  // As MLX counts: in 32 bits.
  int number(size_t i) const;
  bool flag(size_t i) const {
    return word(i) != 0;
  }
  float real(size_t i) const;
  mx::Dtype dtype(size_t i) const;

  // Attributes `from..to`.
  std::vector<int> numbers(size_t from, size_t to) const;
  std::vector<int> numbers(size_t from = 0) const {
    return numbers(from, size());
  }
  mx::Shape shape(size_t from, size_t to) const;
  mx::Shape shape(size_t from = 0) const {
    return shape(from, size());
  }

  const std::vector<int64_t>& words() const {
    return words_;
  }

 private:
  std::vector<int64_t> words_;
};

// An operation that gives one array.
struct Operation {
  const char* name;
  // How many arrays it takes; -1: any number, but one at least.
  int operands;
  mx::array (*apply)(const Arrays& x, const Attributes& a);
};

const std::vector<Operation>& operations();

mx::Dtype dtype_of(int64_t code);

} // namespace rlx
