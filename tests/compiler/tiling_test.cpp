// Which schedules the rules choose, and that what they choose shows in the code.
#include <gtest/gtest.h>

#include "ir/graph/build.h"
#include "ir/support/text.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

using testing::parse;

// The host with caches of a given size: what is "large" must not depend on the machine.
Target host_with_cache(int64_t bytes) {
  Target target = Device("cpu").target();
  target.l3_bytes = bytes;
  return target;
}

// The text of a phase of the compilation of the graph's first kernel.
std::string phase_text(const Graph& graph, const Target& target, std::string_view stage) {
  std::string text;
  CompileOptions options;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage == stage && text.empty()) text = phase.text();
  };
  compile(graph, target, options);
  return text;
}

Graph sum_of(const std::string& type) {
  return parse(fmt::format(R"(graph @main(%x: {0}, %y: {0}) {{
  %z = add %x, %y : {0}
  return %z
}})",
                           type));
}

bool streams(const Graph& graph, int64_t cache) {
  return phase_text(graph, host_with_cache(cache), "asm").find("vmovnt") != std::string::npos;
}

TEST(Streaming, ResultsThatNoCacheHoldsBypassIt) {
  for (const char* type : {"f32[64, 256]", "f64[64, 256]", "i32[64, 256]"}) {
    EXPECT_TRUE(streams(sum_of(type), 32 << 10)) << type;
    EXPECT_FALSE(streams(sum_of(type), 16 << 20)) << type;
  }
  // Vectors of 16-bit values are half a register.
  EXPECT_TRUE(streams(sum_of("bf16[64, 256]"), 32 << 10));
  // A line that begins in the row before is not written whole by one store.
  EXPECT_FALSE(streams(parse(R"(graph @main(%x: f32[64, 255], %y: f32[64]) {
  %yb = broadcast %y {axes: [0]} : f32[64, 255]
  %z = add %x, %yb : f32[64, 255]
  return %z
})"),
                       32 << 10));
}

TEST(Streaming, SizesThatMayBeSmallStayInTheCache) {
  const std::string text = "graph @main(%x: f32[n]) {\n  %y = neg %x : f32[n]\n  return %y\n}";
  EXPECT_FALSE(streams(parse("symbol n: 1..1048576\n" + text), 32 << 10));
  EXPECT_TRUE(streams(parse("symbol n: 65536..1048576\n" + text), 32 << 10));
}

TEST(Streaming, AnUpdateInPlaceIsWrittenWhereItWasRead) {
  const Graph graph = parse(R"(graph @main(%x: f32[16384]) {
  %y = neg %x : f32[16384]
  return %y updates %x
})");
  EXPECT_FALSE(streams(graph, 32 << 10));
}

TEST(Streaming, ChangesNoResult) {
  const Graph graph = sum_of("f32[33, 257]");
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, 1);
  const auto program = std::make_shared<const Program>(compile(graph, host_with_cache(4096)));
  EXPECT_TRUE(check_outputs(graph, inputs, testing::run(program, "cpu", inputs)).ok);
}

}  // namespace
}  // namespace braze
