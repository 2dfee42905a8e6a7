// run.h — compiles graphs for a device, runs them and judges the results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braze/array.h"
#include "braze/compile.h"
#include "braze/executable.h"
#include "ir/graph/check.h"
#include "ir/graph/graph.h"
#include "ir/graph/text.h"
#include "ir/program/package.h"
#include "ir/target/target.h"

namespace braze::testing {

/// The device that BRAZE_TEST_DEVICE names; else the CPU.
inline Device test_device() {
  const char* name = std::getenv("BRAZE_TEST_DEVICE");
  return Device(name ? name : "cpu");
}

/// The GPU that BRAZE_TEST_DEVICE names if it runs what `simulator` ("sim:sm_80" or "sim:sm_90")
/// stands for; else the simulator.
inline Device gpu_or(const std::string& simulator) {
  const Device device = test_device();
  const std::string& name = device.target().name;
  const bool runs = name == "sm_90a" || (name == "sm_80" && simulator == "sim:sm_80");
  return runs ? device : Device(simulator);
}

/// The text of a graph with f32 in the place of all narrower floats.
inline std::string with_floats(std::string text) {
  for (const std::string_view narrow : {"bf16", "f16"})
    for (size_t at = 0; (at = text.find(narrow, at)) != std::string::npos;)
      text.replace(at, narrow.size(), "f32");
  return text;
}

inline std::shared_ptr<const Program> compile_for(const Device& device, const Graph& graph,
                                                  CompileOptions options = {}) {
  // BRAZE_TEST_CODEGEN=nvrtc: the other way to code for a GPU.
  if (const char* codegen = std::getenv("BRAZE_TEST_CODEGEN");
      codegen && std::string_view(codegen) == "nvrtc")
    options.gpu_code = GpuCode::Nvrtc;
  // Through a file's bytes, as packages and caches have it.
  const std::string bytes = encode(compile(graph, device.target(), options));
  return std::make_shared<const Program>(decode(std::as_bytes(std::span(bytes)), "test"));
}

inline std::vector<HostTensor> run(const std::shared_ptr<const Program>& program,
                                   const Device& device, std::span<const HostTensor> inputs) {
  std::vector<Array> arguments;
  for (const HostTensor& input : inputs) arguments.push_back(Array::from_host(input, device));
  std::vector<HostTensor> outputs;
  for (const Array& output : Executable::load(program, device).run(arguments))
    outputs.push_back(output.to_host());
  return outputs;
}

/// Judges `got`, what `graph` gave for `inputs`. What was expected the last few times is kept,
/// because tests run the same graph with the same inputs on several devices and with several
/// schedules.
inline CheckResult check(const Graph& graph, std::span<const HostTensor> inputs,
                         std::span<const HostTensor> got,
                         Precision precision = Precision::Standard) {
  struct Judged {
    std::string text;
    std::vector<HostTensor> inputs;
    Precision precision;
    ExpectedOutputs expected;
  };
  constexpr size_t kMostKept = 16;
  thread_local std::list<Judged> kept;  // the latest first
  const std::string text = to_text(graph);
  const auto found = std::ranges::find_if(kept, [&](const Judged& judged) {
    return judged.text == text && judged.precision == precision &&
           std::ranges::equal(judged.inputs, inputs, [](const HostTensor& a, const HostTensor& b) {
             return identical(a, b);
           });
  });
  if (found != kept.end()) {
    kept.splice(kept.begin(), kept, found);
  } else {
    const std::vector<HostTensor> copy(inputs.begin(), inputs.end());
    kept.push_front({text, copy, precision, ExpectedOutputs(graph, copy, precision)});
    if (kept.size() > kMostKept) kept.pop_back();
  }
  return kept.front().expected.check(got);
}

/// Compiles and runs `graph` and compares with the interpreter by the rules of the check; the
/// failure shows the graph.
inline ::testing::AssertionResult agrees(const Graph& graph, std::span<const HostTensor> inputs,
                                         const Device& device = test_device(),
                                         const CompileOptions& options = {}) {
  const auto got = run(compile_for(device, graph, options), device, inputs);
  const CheckResult result = check(graph, inputs, got, options.precision);
  if (result.ok) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.summary() << "\n" << to_text(graph);
}

inline Graph parse(const std::string& text) {
  return parse_graph("braze 1 graph\n" + text, "test");
}

}  // namespace braze::testing
