// Programs as text and as bytes.
#include <gmock/gmock.h>

#include <cstring>

#include "ir/program/cuda_versions.h"
#include "ir/program/package.h"
#include "ir/program/text.h"
#include "ir/program/verify.h"
#include "ir/values/host_tensor.h"

namespace braze {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Matcher;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// One of everything that a program can have.
Program full_program() {
  const Expr n = Expr::symbol("n", {1, 64}), m = Expr::symbol("m", {16, 1 << 20}, 16);
  Program p;
  p.name = "step";
  p.target = *find_target("sm_90a");
  p.precision = Precision::Fast;
  p.symbols = {n, m};
  const TensorType x{DType::BF16, {n, m}}, y{DType::F32, {n}}, w{DType::F32, {Expr(3)}};
  p.inputs = {{"x \"quoted\"\n", x}, {"state", y}};
  p.outputs = {{"result", y, 2}, {"state'", y, 1, 1}};
  auto weights = std::make_shared<HostTensor>(DType::F32, std::vector<int64_t>{3});
  weights->set_double(1, -0.5);
  p.constants = {weights, std::make_shared<HostTensor>(DType::Bool, std::vector<int64_t>{0, 7})};
  p.slots = {{Slot::Kind::Input, 0, x, 0, "x"},
             {Slot::Kind::Input, 1, y, 0, "state"},
             {Slot::Kind::Output, 0, y, 0, ""},
             {Slot::Kind::Constant, 0, w, 0, "w"},
             {Slot::Kind::Temporary, 0, y, ceildiv(n * m, 64) * 64, "t.0"}};
  p.artifacts = {{.format = "cubin",
                  .kernel = "dot_add",
                  .code = std::string("\x7f"
                                      "ELF\0\1",
                                      6),
                  .entries = {},
                  .entry_names = {"dot_add_p0", "dot_add_p1"},
                  .maker = "ptxas 13.0",
                  .facts = {{.registers = 168,
                             .local_bytes = 8,
                             .spill_bytes = 4,
                             .warnings = {"C7510 \"serialised\""}},
                            {.registers = 32}}}};
  Launch launch;
  launch.buffers = {0, 3, 4};
  launch.zeroed = {4};
  launch.scalars = {n, floordiv(m, 16), mod(n * m, 8), min(n, m - n)};
  launch.instances = {ceildiv(n, 4), Expr(1)};
  launch.scratch_bytes = 128;
  launch.gpu = {{.block = 384, .shared_bytes = 200000, .cluster = 2, .overlaps = true},
                {.block = 32, .resident = true}};
  launch.tensor_maps = {
      {.buffer = 0, .dtype = DType::BF16, .extents = {n, m}, .box = {64, 64}, .swizzle = 128}};
  launch.name = "dot, add";
  launch.members = {"dot, add", "dot, add_1", "\"third\""};
  launch.ops = {"dot (model.cpp:12)", "add"};
  launch.schedule = "dot tile=128x256 stages=4";
  launch.bytes_read = n * m * 2;
  launch.bytes_written = n * 4;
  launch.flops = n * m * 2;
  Launch copy{.artifact = Launch::kCopy};
  copy.buffers = {4, 2};
  copy.name = "t.0";
  p.launches = {launch, copy};
  p.arena_bytes = ceildiv(n * m, 64) * 64 + 256;
  p.ops_before_fusion = 17;
  p.report = "kernel dot_add: dot, add\n";
  p.locations = {{"model.cpp", 7, 0}, {"model.cpp", 9, 4}, {}, {"other.braze", 1, 1}, {}};
  return p;
}

void expect_error(std::string_view text, std::string_view code, std::string_view message,
                  const Program& blobs = full_program()) {
  try {
    parse_program(text, "p.txt", blobs_of(blobs));
    ADD_FAILURE() << "no error: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code().name, code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(std::string(message)));
  }
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProgramText, RoundTripIsExact) {
  const Program program = full_program();
  ASSERT_TRUE(verify(program).empty()) << verify(program).front().to_string();
  const std::string text = to_text(program);
  const Program read = parse_program(text, "p.txt", blobs_of(program));
  EXPECT_EQ(to_text(read), text);
  EXPECT_EQ(read.report, program.report);
  EXPECT_THAT(text, HasSubstr("lines \"model.cpp\" [7, 9:4, 0]\nlines \"other.braze\" [1:1, 0]\n"));
  ASSERT_EQ(read.locations.size(), program.locations.size());
  for (size_t i = 0; i < read.locations.size(); ++i)
    EXPECT_EQ(read.locations[i].to_string(), program.locations[i].to_string());
  EXPECT_EQ(read.artifacts[0].code, program.artifacts[0].code);
  EXPECT_TRUE(identical(*read.constants[0], *program.constants[0]));
  EXPECT_EQ(read.constants[1]->shape(), program.constants[1]->shape());
  EXPECT_EQ(read.target, program.target);
  EXPECT_EQ(read.symbols, program.symbols);
  EXPECT_EQ(read.symbols[1].divisor(), 16);
}

// A file can hold any bytes; in memory bool is 0 or 1.
TEST(ProgramText, BoolConstantsAreMadeOfAnyBytes) {
  Program program = full_program();
  auto flags = std::make_shared<HostTensor>(DType::Bool, std::vector<int64_t>{3});
  const char bytes[] = {0, 2, '\377'};
  std::memcpy(flags->data(), bytes, sizeof bytes);
  program.constants[1] = flags;
  const Program read = parse_program(to_text(program), "p.txt", blobs_of(program));
  const std::vector<std::byte> got(read.constants[1]->data(), read.constants[1]->data() + 3);
  EXPECT_THAT(got, ::testing::ElementsAre(std::byte{0}, std::byte{1}, std::byte{1}));
}

TEST(ProgramText, BytesAreReproducible) {
  const std::string bytes = encode(full_program());
  EXPECT_EQ(encode(decode(bytes_of(bytes), "p")), bytes);
}

TEST(ProgramText, WhatIsWrongIsSaid) {
  const Program program = full_program();
  const std::string text = to_text(program);
  const auto wrong = [&](std::string_view from, std::string_view to, std::string_view code,
                         std::string_view message) {
    expect_error(replaced(text, from, to), code, message);
  };
  wrong("braze 1 program", "braze 2 program", "text-version", "version");
  wrong("artifact @dot_add: cubin", "artifact @dot_add: function", "syntax", "a format of code");
  wrong("cubin 6 B", "cubin 7 B", "syntax", "the written size");
  wrong("constant f32[3]", "constant f32[4]", "syntax", "the size of its type");
  wrong("constant f32[3]", "constant f32[4611686018427387904]", "syntax", "the size of its type");
  wrong("constant f32[3]", "constant f32[n]", "syntax", "symbolic");
  wrong("slot 1: input 1", "slot 1: input 9", "malformed-program", "does not exist");
  wrong("slot 2: output 0 f32[n]", "slot 2: output 0 f32[m]", "malformed-program",
        "does not have the type of its argument");
  wrong("buffers [0, 3, 4]", "buffers [0, 3, 99]", "malformed-program", "does not exist");
  wrong("arena[64*", "arena[65*", "malformed-program", "multiple of 64");
  wrong("instances [", "instances [1, ", "malformed-program", "different numbers of phases");
  wrong("instances [", "instances [k, ", "syntax", "is not declared");
  wrong("tensormap buffer 0", "tensormap buffer 3", "malformed-program", "tensor map");
  wrong("box [64, 64]", "box [64, 257]", "malformed-program", "box");
  wrong("constant bool[0, 7]\n", "", "syntax", "more blobs");
  wrong("constant f32[3]", "constant f32[3] constant f32[3]", "syntax", "the size of its type");
  wrong("scratch 128", "scratch -1", "syntax", "out of range");
  wrong("updates input 1", "updates input 7", "malformed-program",
        "updates an input that does not exist");
  wrong("[7, 9:4", "[7, -9:4", "syntax", "out of range");
}

TEST(MinimumDriver, IsThatOfTheNewestPtxOrTheAssembler) {
  Program program;
  EXPECT_EQ(minimum_driver(program), "");
  program.artifacts = {{.format = "image", .kernel = "a", .code = "", .entries = {}}};
  EXPECT_EQ(minimum_driver(program), "");
  const auto ptx = [](std::string version) {
    return Artifact{.format = "ptx",
                    .kernel = "k",
                    .code = "//\n.version " + version + "\n.target sm_80\n",
                    .entries = {}};
  };
  program.artifacts = {ptx("8.1"), ptx("7.4")};
  EXPECT_EQ(minimum_driver(program), "CUDA 12.1 (530)");
  program.artifacts = {ptx("9.9")};
  EXPECT_EQ(minimum_driver(program), "of PTX 9.9");
  program.artifacts = {
      {.format = "cubin", .kernel = "k", .code = "", .entries = {}, .maker = "nvPTXCompiler 13.0"}};
  EXPECT_EQ(minimum_driver(program), "CUDA 13");
}

TEST(Package, HoldsFunctionsAndWeights) {
  const Program a = full_program();
  Program b = full_program();
  b.target = *find_target("sm_80");
  b.artifacts[0].format = "ptx";
  const std::string weights = "weights";
  PackageContents contents{.functions = {{"main", {&a, &b}, {{1, "state"}}}, {"other", {&b}, {}}},
                           .weights = {"w.safetensors", bytes_of(weights)},
                           .facts = {{"maker", "a test"}}};
  std::string file;
  write_package(contents, [&](std::span<const std::byte> part) {
    file.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  const PackageReader reader(bytes_of(file), "p.bzp");
  ASSERT_EQ(reader.functions().size(), 2u);
  EXPECT_EQ(reader.functions()[0].weights, contents.functions[0].weights);
  ASSERT_EQ(reader.functions()[0].variants.size(), 2u);
  EXPECT_EQ(reader.functions()[0].variants[1].target, "sm_80");
  EXPECT_EQ(reader.functions()[0].variants[1].format, "ptx");
  EXPECT_EQ(reader.functions()[1].variants[0].text, reader.functions()[0].variants[1].text);
  EXPECT_EQ(to_text(reader.program(reader.functions()[0].variants[1])), to_text(b));
  EXPECT_EQ(reader.weight_file(), "w.safetensors");
  EXPECT_EQ(reader.weight_bytes().size(), weights.size());
  EXPECT_EQ(reader.facts(), contents.facts);
}

// The code of the error that reading a package ends with; "" if it reads.
std::string fault_of(const std::string& file) {
  try {
    decode(bytes_of(file), "p.bzp");
  } catch (const Error& error) {
    return std::string(error.code().name);
  }
  return "";
}

// Every byte of a package counts, and none that is missing or too many goes unseen.
TEST(Package, AnyChangeIsSeen) {
  const std::string file = encode(full_program());
  EXPECT_EQ(fault_of(file), "");
  constexpr size_t kVersionEnd = 12;  // behind the magic
  const Matcher<std::string> damaged = Eq("package-damaged"),
                             of_the_front = AnyOf("not-a-package", "package-version", damaged);
  for (size_t i = 0; i < file.size(); ++i) {
    std::string changed = file;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    EXPECT_THAT(fault_of(changed), i < kVersionEnd ? of_the_front : damaged) << "byte " << i;
    EXPECT_THAT(fault_of(file.substr(0, i)), i < kVersionEnd ? of_the_front : damaged)
        << "length " << i;
  }
  EXPECT_THAT(fault_of(file + '\0'), damaged);
}

TEST(Package, SaysWhatIsWrongWithAFile) {
  const std::string file = encode(full_program());
  EXPECT_EQ(fault_of(""), "not-a-package");
  EXPECT_EQ(fault_of("braze 1 graph"), "not-a-package");
  EXPECT_EQ(fault_of(file.substr(0, 40)), "package-damaged");
  EXPECT_EQ(fault_of(file.substr(0, file.size() - 1)), "package-damaged");
  std::string newer = file;
  newer[8] = 2;
  EXPECT_EQ(fault_of(newer), "package-version");
}

}  // namespace
}  // namespace braze
