#include "program.h"

#include <limits>

namespace rlx {

namespace {

// Bodies within bodies, at most: they are read by recursion.
constexpr int MOST_NESTED = 64;

int64_t operation_count() {
  return static_cast<int64_t>(operations().size());
}

// `if`: condition, what the first body takes, what the second takes; attributes are the length of the first body, and both bodies.
int64_t number_of_if() {
  return operation_count();
}

// `loop`: limit (i64), condition, carried values, scanned arrays, captured values; attributes are how many are carried and scanned, the
// most iterations, and the body. The body takes iteration, condition, carried values, a slice of each scanned array, captured values,
// and gives condition, carried values, values to stack. A loop that stacks runs as often as the stacks are long.
int64_t number_of_loop() {
  return operation_count() + 1;
}

std::string name_of(int64_t operation) {
  if (operation < operation_count()) {
    return operations()[operation].name;
  }
  return operation == number_of_if() ? "if" : "loop";
}

bool holds(const mx::array& condition) {
  auto flat = mx::astype(mx::reshape(condition, mx::Shape{}), mx::bool_);
  return flat.item<bool>();
}

mx::array row(const mx::array& x, int i) {
  if (x.ndim() == 0 || i >= x.shape(0)) {
    throw Invalid{"a loop goes beyond the slices that it scans"};
  }
  return mx::take(x, i, 0);
}

} // namespace

int64_t operation_number(const std::string& name) {
  const auto& all = operations();
  for (size_t i = 0; i < all.size(); i++) {
    if (name == all[i].name) {
      return static_cast<int64_t>(i);
    }
  }
  return name == "if" ? number_of_if() : name == "loop" ? number_of_loop() : -1;
}

struct Reader {
  const int64_t* words;
  size_t count;
  size_t at = 0;

  int64_t next() {
    if (at >= count) {
      throw Invalid{"a program ends early"};
    }
    return words[at++];
  }

  // A number of things of which each takes a word at least.
  size_t length() {
    int64_t n = next();
    if (n < 0 || static_cast<uint64_t>(n) > count - at) {
      throw Invalid{"a program has a list of " + std::to_string(n)};
    }
    return static_cast<size_t>(n);
  }

  size_t value(size_t known) {
    int64_t n = next();
    if (n < 0 || static_cast<uint64_t>(n) >= known) {
      throw Invalid{"a program uses value " + std::to_string(n) + " before it is there"};
    }
    return static_cast<size_t>(n);
  }

  std::shared_ptr<Program> body(const std::vector<int64_t>& all, size_t from, size_t to, int depth) {
    if (from > to || to > all.size()) {
      throw Invalid{"a body is longer than its instruction"};
    }
    Reader inner{all.data() + from, to - from};
    return inner.program(depth + 1);
  }

  Program::Instruction instruction(size_t known, int depth) {
    int64_t operation = next();
    size_t operands = length(), attributes = length();
    int64_t results = next();
    if (operation < 0 || operation > number_of_loop()) {
      throw Invalid{"there is no operation " + std::to_string(operation)};
    }
    if (results < 1 || results > std::numeric_limits<int32_t>::max()) {
      throw Invalid{"an instruction has " + std::to_string(results) + " results"};
    }
    Program::Instruction made{operation, {}, Attributes({}), static_cast<size_t>(results), {}};
    for (size_t i = 0; i < operands; i++) {
      made.operands.push_back(value(known));
    }
    std::vector<int64_t> list;
    for (size_t i = 0; i < attributes; i++) {
      list.push_back(next());
    }
    made.attributes = Attributes(std::move(list));
    check(made, depth);
    return made;
  }

  void check(Program::Instruction& made, int depth) {
    size_t operands = made.operands.size(), bodies_results = made.results;
    const auto& words = made.attributes.words();
    auto wrong = [&](const char* what) { throw Invalid{name_of(made.operation) + ": " + what}; };
    if (made.operation < operation_count()) {
      int takes = operations()[made.operation].operands;
      if (takes < 0 ? operands == 0 : operands != static_cast<size_t>(takes)) {
        wrong("another number of operands");
      }
      if (made.results != 1) {
        wrong("it has one result");
      }
    } else if (made.operation == number_of_if()) {
      int64_t first = made.attributes.word(0);
      if (first < 0 || static_cast<uint64_t>(first) > words.size() - 1) {
        wrong("a body is longer than the instruction");
      }
      size_t end = 1 + static_cast<size_t>(first);
      made.bodies = {body(words, 1, end, depth), body(words, end, words.size(), depth)};
      if (operands != 1 + made.bodies[0]->inputs() + made.bodies[1]->inputs()) {
        wrong("another number of operands than its bodies take");
      }
      if (made.bodies[0]->outputs() != bodies_results || made.bodies[1]->outputs() != bodies_results) {
        wrong("another number of results than its bodies give");
      }
    } else {
      int64_t carried = made.attributes.word(0), scanned = made.attributes.word(1);
      if (carried < 0 || scanned < 0 || carried > 1 << 20 || scanned > 1 << 20 || made.attributes.word(2) < 0) {
        wrong("its attributes");
      }
      made.bodies = {body(words, 3, words.size(), depth)};
      if (operands != made.bodies[0]->inputs() || operands < static_cast<size_t>(2 + carried + scanned)) {
        wrong("another number of operands than its body takes");
      }
      if (made.bodies[0]->outputs() != bodies_results + 1 || bodies_results < static_cast<size_t>(carried)) {
        wrong("another number of results than its body gives");
      }
    }
  }

  std::shared_ptr<Program> program(int depth) {
    if (depth > MOST_NESTED) {
      throw Invalid{"bodies are nested too deeply"};
    }
    auto made = std::make_shared<Program>();
    int64_t inputs = next();
    if (inputs < 0 || inputs > std::numeric_limits<int32_t>::max()) {
      throw Invalid{"a program has " + std::to_string(inputs) + " inputs"};
    }
    made->inputs_ = static_cast<size_t>(inputs);
    size_t known = made->inputs_, instructions = length();
    bool depends = false;
    for (size_t i = 0; i < instructions; i++) {
      made->instructions_.push_back(instruction(known, depth));
      known += made->instructions_.back().results;
      depends |= !made->instructions_.back().bodies.empty();
    }
    size_t outputs = length();
    for (size_t i = 0; i < outputs; i++) {
      made->outputs_.push_back(value(known));
    }
    if (at != count) {
      throw Invalid{"a program goes on behind its end"};
    }
    if (!depends) {
      // The program outlives the function, which is its own.
      const Program* self = made.get();
      made->compiled_ = mx::compile([self](const Arrays& inputs) { return self->record(inputs); });
    }
    return made;
  }
};

std::shared_ptr<Program> Program::read(const int64_t* words, size_t count) {
  return Reader{words, count}.program(0);
}

Arrays Program::run(const Arrays& inputs) const {
  if (inputs.size() != inputs_) {
    throw Invalid{"a program of " + std::to_string(inputs_) + " inputs was given " + std::to_string(inputs.size())};
  }
  return compiled_ ? compiled_(inputs) : record(inputs);
}

Arrays Program::record(const Arrays& inputs) const {
  Arrays values = inputs;
  for (const auto& instruction : instructions_) {
    Arrays operands;
    operands.reserve(instruction.operands.size());
    for (size_t i : instruction.operands) {
      operands.push_back(values[i]);
    }
    try {
      execute(instruction, operands, values);
    } catch (const std::exception& e) {
      throw std::runtime_error(name_of(instruction.operation) + ": " + e.what());
    }
  }
  Arrays given;
  given.reserve(outputs_.size());
  for (size_t i : outputs_) {
    given.push_back(values[i]);
  }
  return given;
}

void Program::execute(const Instruction& instruction, const Arrays& x, Arrays& values) {
  if (instruction.operation < operation_count()) {
    values.push_back(operations()[instruction.operation].apply(x, instruction.attributes));
    return;
  }
  if (instruction.operation == number_of_if()) {
    size_t first = instruction.bodies[0]->inputs();
    auto split = x.begin() + 1 + first;
    Arrays found = holds(x[0]) ? instruction.bodies[0]->run(Arrays(x.begin() + 1, split))
                               : instruction.bodies[1]->run(Arrays(split, x.end()));
    values.insert(values.end(), found.begin(), found.end());
    return;
  }
  size_t carried = instruction.attributes.word(0), scanned = instruction.attributes.word(1);
  int64_t trips = instruction.attributes.word(2), ran = 0;
  auto bound = mx::reshape(x[0], mx::Shape{});
  int64_t limit = bound.item<int64_t>();
  auto condition = x[1];
  Arrays state(x.begin() + 2, x.begin() + 2 + carried);
  std::vector<Arrays> stacks(instruction.results - carried);
  while (ran < limit && holds(condition)) {
    // Without stacks, nothing else bounds what a loop does.
    if (!stacks.empty() && ran >= trips) {
      throw Invalid{"a loop runs more often than its stacks are long"};
    }
    Arrays given = {mx::array(ran, mx::int64), condition};
    given.insert(given.end(), state.begin(), state.end());
    for (size_t i = 0; i < scanned; i++) {
      given.push_back(row(x[2 + carried + i], static_cast<int>(ran)));
    }
    given.insert(given.end(), x.begin() + 2 + carried + scanned, x.end());
    Arrays found = instruction.bodies[0]->run(given);
    condition = found[0];
    state.assign(found.begin() + 1, found.begin() + 1 + carried);
    for (size_t i = 0; i < stacks.size(); i++) {
      stacks[i].push_back(found[1 + carried + i]);
    }
    // One iteration's work at a time: else a long loop would be one long list of operations.
    mx::eval(found);
    ran++;
  }
  values.insert(values.end(), state.begin(), state.end());
  for (auto& stack : stacks) {
    if (static_cast<int64_t>(stack.size()) != trips) {
      throw Invalid{"a loop ran " + std::to_string(ran) + " times, and its stacks are " + std::to_string(trips) + " long"};
    }
    values.push_back(mx::stack(stack, 0));
  }
}

} // namespace rlx
