// Runs kernels that were compiled for the processor, one workgroup after the other, whatever language they are in.
//
// An invocation of a kernel with barriers is a fiber, and a barrier is where a fiber stops until all of its workgroup have.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>
#include <ucontext.h>

namespace simt {
struct Position { unsigned x, y, z; };
// Which invocation of its workgroup runs, which workgroup that is, and how many there are.
static Position invocation, group, grid;

struct Fiber { ucontext_t context; char* stack; enum { Ready, AtBarrier, Done } state; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int current;
static void (*body)(void**);
static void** arguments;
static const size_t STACK = 256 << 10;

static void entry() {
  body(arguments);
  fibers[current].state = Fiber::Done;
  swapcontext(&fibers[current].context, &scheduler);
}

static void barrier() {
  Fiber& own = fibers[current];
  own.state = Fiber::AtBarrier;
  swapcontext(&own.context, &scheduler);
}

// What `x` is in invocation number `other`; all of a workgroup are here.
template <class T> static T value_of(T x, int other) {
  static char all[1024][sizeof(T)];
  memcpy(all[current], &x, sizeof x);
  barrier();
  memcpy(&x, all[other], sizeof x);
  barrier();
  return x;
}

// Runs a workgroup whose invocations wait for each other; false where not all of them reach a barrier.
static bool together(int n) {
  while ((int)fibers.size() < n) { fibers.push_back({}); fibers.back().stack = (char*)malloc(STACK); }
  for (int i = 0; i < n; i++) {
    Fiber& f = fibers[i];
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack;
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = nullptr;
    f.state = Fiber::Ready;
    makecontext(&f.context, entry, 0);
  }
  for (;;) {
    int waiting = 0;
    for (int i = 0; i < n; i++) {
      if (fibers[i].state != Fiber::Ready) continue;
      current = i;
      invocation.x = i;
      swapcontext(&scheduler, &fibers[i].context);
    }
    for (int i = 0; i < n; i++) waiting += fibers[i].state == Fiber::AtBarrier;
    if (waiting == 0) return true;
    if (waiting < n) return false;
    for (int i = 0; i < n; i++) fibers[i].state = Fiber::Ready;
  }
}

// Argument number `i` of `count` of a kernel: memory, or what is there by value; but where a language also has arguments that say which invocation runs.
template <class T> struct Argument { static T of(void** a, size_t i, size_t count) { return *(T*)a[i]; } };
template <class T> struct Argument<T*> { static T* of(void** a, size_t i, size_t count) { return (T*)a[i]; } };
// How many of a kernel's arguments are words.
static int words;
template <class... P, size_t... I> static void call(void (*f)(P...), void** a, std::index_sequence<I...>) {
  words = (0 + ... + (int)(sizeof(P) == 4));
  f(Argument<P>::of(a, I, sizeof...(P))...);
}
template <class... P> static void call(void (*f)(P...), void** a) { call(f, a, std::index_sequence_for<P...>()); }

struct Entry { void (*run)(void**); };

static int64_t read() {
  int64_t v;
  if (fread(&v, sizeof v, 1, stdin) != 1) { fprintf(stderr, "the records end early\n"); exit(2); }
  return v;
}
static void write(const void* from, size_t bytes) { if (bytes && fwrite(from, bytes, 1, stdout) != 1) exit(3); }

// Runs records from the standard input; writes what each leaves in memory.
static int serve(const Entry* entries) {
  for (int64_t count = read(); count > 0; count--) {
    const Entry& kernel = entries[read()];
    int64_t size = read(), barriers = read();
    std::vector<int64_t> groups(read());
    for (auto& g : groups) g = read();
    std::vector<int32_t> uniforms(read());
    for (auto& u : uniforms) u = (int32_t)read();
    // Filled up as a launch fills them up.
    uniforms.resize((uniforms.size() + 3) / 4 * 4);
    std::vector<std::vector<char>> memory(read());
    for (auto& m : memory) {
      m.resize(read());
      if (!m.empty() && fread(m.data(), m.size(), 1, stdin) != 1) exit(2);
    }
    uint32_t fault[4] = {};
    std::vector<void*> a{uniforms.data()};
    for (int64_t n = read(); n > 0; n--) a.push_back(memory[read()].data());
    a.push_back(fault);
    body = kernel.run;
    arguments = a.data();
    int64_t reached = 1;
    grid = {1, 1, 1};
    for (int64_t g : groups) {
      group = {(unsigned)g, 0, 0};
      if (barriers) { reached &= together((int)size); continue; }
      for (int64_t i = 0; i < size; i++) { invocation.x = (unsigned)i; body(arguments); }
    }
    write(&reached, sizeof reached);
    write(fault, sizeof fault);
    for (auto& m : memory) write(m.data(), m.size());
  }
  return 0;
}
}  // namespace simt
