// programs.h — programs made by hand from functions of the test, so that the runtime is tested
// without a compiler.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braze/executable.h"
#include "ir/program/text.h"
#include "runtime/devices/cpu/cpu_driver.h"

namespace braze::test {

/// Elements of one instance of the kernels below.
inline constexpr int64_t kBlock = 64;

inline Expr symbol_n() { return Expr::symbol("n", {0, 1 << 20}); }

inline TensorType vector_type(const Expr& n, DType dtype = DType::F32) { return {dtype, Shape{n}}; }

/// Makes programs of slots and launches.
struct Maker {
  std::shared_ptr<Program> program = std::make_shared<Program>();

  explicit Maker(std::string name, std::vector<Expr> symbols = {symbol_n()}) {
    program->name = std::move(name);
    program->target = *find_target("x86-64-v3");
    program->symbols = std::move(symbols);
  }
  uint32_t slot(Slot::Kind kind, size_t index, TensorType type, std::string label,
                Expr offset = 0) {
    program->slots.push_back(
        {kind, static_cast<uint32_t>(index), std::move(type), offset, std::move(label)});
    return static_cast<uint32_t>(program->slots.size() - 1);
  }
  uint32_t input(std::string name, const TensorType& type) {
    program->inputs.push_back({name, type});
    return slot(Slot::Kind::Input, program->inputs.size() - 1, type, name);
  }
  uint32_t output(std::string name, const TensorType& type, std::optional<uint32_t> updates = {}) {
    const uint32_t s = slot(Slot::Kind::Output, program->outputs.size(), type, name);
    program->outputs.push_back({name, type, s, updates});
    return s;
  }
  uint32_t temporary(std::string name, const TensorType& type, const Expr& offset) {
    return slot(Slot::Kind::Temporary, 0, type, std::move(name), offset);
  }
  Launch& launch(std::string name, std::vector<KernelFunction> phases,
                 std::vector<uint32_t> buffers, std::vector<Expr> scalars, const Expr& instances) {
    program->artifacts.push_back(function_artifact(name, phases));
    Launch& l = program->launches.emplace_back();
    l.artifact = static_cast<uint32_t>(program->artifacts.size() - 1);
    l.name = std::move(name);
    l.buffers = std::move(buffers);
    l.scalars = std::move(scalars);
    l.instances.assign(phases.size(), instances);
    return l;
  }
  Executable load(const Device& device = "cpu") const { return Executable::load(program, device); }
};

/// buffers[2] = buffers[0] + buffers[1]; scalars: n.
inline void add_kernel(void* const* buffers, const int64_t* scalars, void*, int64_t begin,
                       int64_t end) {
  const auto* x = static_cast<const float*>(buffers[0]);
  const auto* y = static_cast<const float*>(buffers[1]);
  auto* z = static_cast<float*>(buffers[2]);
  const int64_t last = std::min(end * kBlock, scalars[0]);
  for (int64_t i = begin * kBlock; i < last; ++i) z[i] = x[i] + y[i];
}

/// z = x + y over f32[n].
inline Maker add_program() {
  Maker m("sum");
  const Expr n = symbol_n();
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t y = m.input("y", vector_type(n));
  const uint32_t z = m.output("z", vector_type(n));
  Launch& launch = m.launch("add", {add_kernel}, {x, y, z}, {n}, ceildiv(n, kBlock));
  launch.bytes_read = 8 * n;
  launch.bytes_written = 4 * n;
  launch.flops = n;
  return m;
}

/// p = p + g over f32[n], in the memory of p.
inline Maker step_program() {
  Maker m("step");
  const Expr n = symbol_n();
  const uint32_t p = m.input("p", vector_type(n));
  const uint32_t g = m.input("g", vector_type(n));
  const uint32_t out = m.output("p_next", vector_type(n), 0);
  m.launch("update", {add_kernel}, {p, g, out}, {n}, ceildiv(n, kBlock));
  return m;
}

/// w = (x + x) + x over f32[n], the first sum in the arena.
inline Maker triple_program() {
  Maker m("triple");
  const Expr n = symbol_n();
  const Expr bytes = 64 * ceildiv(4 * n, 64);
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t t = m.temporary("twice", vector_type(n), 0);
  const uint32_t w = m.output("w", vector_type(n));
  m.program->arena_bytes = bytes;
  m.launch("double", {add_kernel}, {x, x, t}, {n}, ceildiv(n, kBlock));
  m.launch("triple", {add_kernel}, {t, x, w}, {n}, ceildiv(n, kBlock));
  return m;
}

inline Array filled(int64_t n, float value, const Device& device = "cpu") {
  return Array::from(std::vector<float>(static_cast<size_t>(n), value), {n}, device);
}

/// What `function` throws, as text; empty if nothing.
inline std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return std::string(error.code().name) + ": " + error.what();
  }
  return "";
}

}  // namespace braze::test
