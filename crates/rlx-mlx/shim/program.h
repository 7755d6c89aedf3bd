// Programs: lists of operations, checked when they are made, and compiled by MLX.
#pragma once

#include <functional>
#include <memory>

#include "operations.h"

namespace rlx {

class Program {
 public:
  // Reads a program from words; what breaks a rule of theirs is thrown as `Invalid`.
  static std::shared_ptr<Program> read(const int64_t* words, size_t count);

  size_t inputs() const {
    return inputs_;
  }
  size_t outputs() const {
    return outputs_.size();
  }

  // The outputs' arrays, not yet evaluated but where control flow takes it.
  Arrays run(const Arrays& inputs) const;

 private:
  struct Instruction {
    int64_t operation;
    std::vector<size_t> operands;
    Attributes attributes;
    size_t results;
    // Of control flow.
    std::vector<std::shared_ptr<Program>> bodies;
  };

  friend struct Reader;

  Arrays record(const Arrays& inputs) const;
  static void execute(const Instruction& instruction, const Arrays& operands, Arrays& values);

  size_t inputs_ = 0;
  std::vector<Instruction> instructions_;
  std::vector<size_t> outputs_;
  // Where nothing in it hangs on data.
  std::function<Arrays(const Arrays&)> compiled_;
};

// The numbers of control flow, behind those of the operations.
int64_t operation_number(const std::string& name);

} // namespace rlx
