#include "braze/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "braze/io.h"
#include "ir/values/host_tensor.h"
#include "tests/runtime/programs.h"
#include "tests/source_path.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The file and its values were made outside of Braze: gguf/make.py.
std::string folder() { return source_path("tests/runtime/gguf/"); }

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

GgufFile parse(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf");
}

/// Little endian.
std::string whole(uint64_t value, int size) {
  std::string out;
  for (int i = 0; i < size; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}
std::string text(const std::string& value) { return whole(value.size(), 8) + value; }
std::string header(uint64_t tensors, uint64_t values) {
  return "GGUF" + whole(3, 4) + whole(tensors, 8) + whole(values, 8);
}
std::string described(const std::string& name, const std::vector<uint64_t>& extents, uint32_t type,
                      uint64_t offset) {
  std::string out = text(name) + whole(extents.size(), 4);
  for (const uint64_t extent : extents) out += whole(extent, 8);
  return out + whole(type, 4) + whole(offset, 8);
}
/// Up to the next multiple of 32.
std::string padded(std::string bytes) {
  bytes.resize((bytes.size() + 31) / 32 * 32);
  return bytes;
}

std::string error(const std::string& bytes) {
  return error_of([&] { parse(bytes); });
}

TEST(Gguf, MetadataOfEveryKind) {
  const GgufFile file = GgufFile::open(folder() + "blocks.gguf");
  EXPECT_EQ(file.string("general.name"), "blocks \u00e9");
  EXPECT_EQ(file.integer("test.uint8"), 200);
  EXPECT_EQ(file.integer("test.int8"), -100);
  EXPECT_EQ(file.integer("test.uint16"), 60000);
  EXPECT_EQ(file.integer("test.int16"), -30000);
  EXPECT_EQ(file.integer("test.uint32"), 4000000000);
  EXPECT_EQ(file.integer("test.int32"), -2000000000);
  EXPECT_EQ(file.integer("test.int64"), -(int64_t{1} << 62));
  EXPECT_EQ(file.number("test.uint64"), 0x1p63);
  EXPECT_EQ(file.number("test.int8"), -100);
  EXPECT_EQ(file.number("test.float32"), 0.1f);
  EXPECT_EQ(file.number("test.float64"), 0.1);
  EXPECT_TRUE(file.boolean("test.bool"));
  EXPECT_THAT(file.strings("test.strings"), ElementsAre("a", "", "\u4f60\u597d"));
  EXPECT_THAT(file.integers("test.integers"), ElementsAre(1, -2, 3));
  EXPECT_THAT(file.numbers("test.floats"), ElementsAre(0.5, -1.5));
  EXPECT_THAT(file.integers("test.bools"), ElementsAre(1, 0));
  EXPECT_TRUE(file.has("test.bool"));
  EXPECT_FALSE(file.has("test.boo"));
  EXPECT_THAT(error_of([&] { file.string("general.nam"); }),
              HasSubstr("did you mean \"general.name\"?"));
  EXPECT_THAT(error_of([&] { file.string("test.uint8"); }), HasSubstr("is u8, not a string"));
  EXPECT_THAT(error_of([&] { file.integers("test.floats"); }),
              HasSubstr("is f32, not a list of whole numbers"));
  EXPECT_THAT(error_of([&] { file.boolean("test.uint8"); }), HasSubstr("is u8, not bool"));
}

TEST(Gguf, TensorsOfEveryTypeHaveTheValuesOfGgml) {
  const GgufFile file = GgufFile::open(folder() + "blocks.gguf");
  const std::map<std::string, Array> expected = load_npz(folder() + "blocks.npz", "cpu");
  ASSERT_EQ(file.tensors().size(), expected.size());
  for (const auto& [name, values] : expected) {
    SCOPED_TRACE(name);
    EXPECT_EQ(file.tensor(name).type, name);
    HostTensor want = values.to_host();
    if (name == "BF16") {  // NumPy has none: its values stand there as f32
      HostTensor rounded(DType::BF16, want.shape());
      for (int64_t i = 0; i < want.numel(); ++i) rounded.set_double(i, want.get_double(i));
      want = std::move(rounded);
    }
    EXPECT_TRUE(identical(file.load(name, "cpu").to_host(), want));
  }
}

TEST(Gguf, BlocksBecomeHalves) {
  const GgufFile file = GgufFile::open(folder() + "blocks.gguf");
  const HostTensor whole_values = file.load("Q4_K", "cpu").to_host();
  for (const DType dtype : {DType::F16, DType::BF16}) {
    const HostTensor halves = file.load("Q4_K", "cpu", dtype).to_host();
    HostTensor expected(dtype, whole_values.shape());
    for (int64_t i = 0; i < expected.numel(); ++i)
      expected.set_double(i, whole_values.get_double(i));
    EXPECT_TRUE(identical(halves, expected));
  }
  EXPECT_THAT(error_of([&] { file.load("Q4_K", "cpu", DType::I32); }),
              HasSubstr("blocks become f32, f16 or bf16"));
}

TEST(Gguf, QuantizedPartsHaveTheirPlaces) {
  const GgufFile file = GgufFile::open(folder() + "blocks.gguf");
  const auto q4 = file.load_quantized("Q4_1", "cpu");
  EXPECT_EQ(q4.low.dtype(), DType::U32);
  EXPECT_THAT(q4.low.shape(), ElementsAre(64, 3));
  EXPECT_TRUE(q4.high.empty());
  EXPECT_EQ(q4.scales.dtype(), DType::F16);
  EXPECT_THAT(q4.scales.shape(), ElementsAre(16, 3));
  ASSERT_EQ(q4.offsets.size(), 1u);
  const auto q6 = file.load_quantized("Q6_K", "cpu");
  EXPECT_EQ(q6.low.dtype(), DType::I32);
  ASSERT_EQ(q6.high.size(), 1u);
  EXPECT_THAT(q6.high[0].shape(), ElementsAre(32, 3));
  EXPECT_EQ(q6.scales.dtype(), DType::F32);
  EXPECT_THAT(q6.scales.shape(), ElementsAre(32, 3));
  EXPECT_TRUE(q6.offsets.empty());
  const std::vector<int64_t> order{2, 0};
  const auto some = file.load_quantized("Q4_1", "cpu", order);
  const auto all = q4.low.to_vector<uint32_t>(), words = some.low.to_vector<uint32_t>();
  ASSERT_EQ(words.size(), 128u);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(words[2 * i], all[3 * i + 2]);
    EXPECT_EQ(words[2 * i + 1], all[3 * i]);
  }
  EXPECT_THAT(error_of([&] { file.load_quantized("Q4_1", "cpu", std::vector<int64_t>{3}); }),
              HasSubstr("has 3, and it has 3 rows"));
  EXPECT_THAT(error_of([&] { file.load_quantized("F32", "cpu"); }), HasSubstr("read it with load"));
  EXPECT_THAT(error_of([&] { file.load("Q4_2", "cpu"); }), HasSubstr("did you mean \"Q4_0\"?"));
}

TEST(Gguf, FilesThatAreCutOffAreErrors) {
  const std::string bytes = read_file(folder() + "blocks.gguf");
  parse(bytes);
  const size_t data =
      bytes.size() - GgufFile::open(folder() + "blocks.gguf").tensor("I32").bytes.size() - 8;
  for (size_t size = 0; size < data; size += size < 2000 ? 1 : 97)
    EXPECT_THAT(error(bytes.substr(0, size)),
                testing::AnyOf(HasSubstr("is truncated"), HasSubstr("does not begin with GGUF")))
        << size;
  EXPECT_THAT(error(bytes + std::string(64, 'x')), HasSubstr("behind the data of its tensors"));
}

TEST(Gguf, SizesThatAFileClaimsAreNotBelieved) {
  EXPECT_THAT(error("GGML"), HasSubstr("does not begin with GGUF"));
  EXPECT_THAT(error("GGUF" + whole(1, 4)), HasSubstr("GGUF version 1"));
  EXPECT_THAT(error("GGUF" + std::string("\0\0\0\3", 4)), HasSubstr("big endian"));
  EXPECT_THAT(error(header(0, UINT64_MAX)), HasSubstr("is truncated"));
  EXPECT_THAT(error(header(UINT64_MAX, 0)), HasSubstr("is truncated"));
  EXPECT_THAT(error(header(0, 1) + whole(UINT64_MAX, 8)), HasSubstr("is truncated"));
  EXPECT_THAT(error(header(0, 1) + text("a") + whole(13, 4)), HasSubstr("the unknown kind 13"));
  const std::string list = header(0, 1) + text("a") + whole(9, 4);
  EXPECT_THAT(error(list + whole(10, 4) + whole(uint64_t{1} << 61, 8)), HasSubstr("is truncated"));
  EXPECT_THAT(error(list + whole(8, 4) + whole(UINT64_MAX, 8)), HasSubstr("is truncated"));
  std::string nested = list;
  for (int i = 0; i < 20; ++i) nested += whole(9, 4) + whole(1, 8);
  EXPECT_THAT(error(nested), HasSubstr("nested more than 8 deep"));
  const std::string value = text("a") + whole(7, 4) + whole(1, 1);
  EXPECT_THAT(error(header(0, 2) + value + value), HasSubstr("the metadata have \"a\" twice"));
  EXPECT_THAT(error(header(0, 1) + text("general.alignment") + whole(4, 4) + whole(48, 4)),
              HasSubstr("an alignment of 48"));
}

TEST(Gguf, TensorsThatDoNotFitTheirDataAreErrors) {
  const auto of = [](const std::vector<std::string>& tensors, size_t data) {
    std::string bytes = header(tensors.size(), 0);
    for (const std::string& tensor : tensors) bytes += tensor;
    return padded(bytes) + std::string(data, '\0');
  };
  parse(of({described("a", {8}, 0, 0), described("b", {2, 4}, 0, 32)}, 64));
  EXPECT_THAT(parse(of({described("a", {2, 3}, 0, 0)}, 24)).tensor("a").shape, ElementsAre(3, 2));
  // Without elements, the other extents may be anything, and nothing is done for each of them.
  for (const auto& shape : {std::vector<uint64_t>{0, uint64_t{1} << 43},
                            std::vector<uint64_t>{32, 0, uint64_t{1} << 43}}) {
    const GgufFile empty = parse(of({described("a", shape, 2, 0)}, 0));
    EXPECT_EQ(empty.load_quantized("a", "cpu").low.size_bytes(), 0u);
    EXPECT_EQ(empty.load("a", "cpu").size_bytes(), 0u);
  }
  const auto wide = parse(of({described("a", {uint64_t{1} << 62, 0}, 14, 0)}, 0));
  EXPECT_THAT(wide.load_quantized("a", "cpu").high[0].shape(), ElementsAre(int64_t{1} << 58, 0));
  EXPECT_THAT(error(of({described("a", {8}, 0, 0)}, 31)),
              HasSubstr("is F32[8], and the file ends"));
  EXPECT_THAT(error(of({described("a", {uint64_t{1} << 62, 4}, 0, 0)}, 32)),
              HasSubstr("is truncated"));
  EXPECT_THAT(error(of({described("a", {uint64_t{1} << 63}, 0, 0)}, 32)),
              HasSubstr("is too large"));
  EXPECT_THAT(error(of({described("a", {1, 1, 1, 1, 1}, 0, 0)}, 32)),
              HasSubstr("has 5 dimensions"));
  EXPECT_THAT(error(of({described("a", {33}, 2, 0)}, 64)), HasSubstr("not a multiple of 32"));
  EXPECT_THAT(error(of({described("a", {8}, 0, 8)}, 64)), HasSubstr("not aligned to 32"));
  EXPECT_THAT(error(of({described("a", {8}, 0, 0), described("b", {8}, 0, 0)}, 64)),
              HasSubstr("the data of \"b\" begin at byte 0, those before them end at 32"));
  EXPECT_THAT(error(of({described("a", {8}, 0, 0), described("a", {8}, 0, 32)}, 64)),
              HasSubstr("the tensor \"a\" comes twice"));
  // A type that Braze does not know is an error only if it is wanted.
  const std::string strange = of({described("a", {8}, 99, 0), described("b", {8}, 0, 64)}, 96);
  const GgufFile file = parse(strange);
  EXPECT_EQ(file.load("b", "cpu").numel(), 8);
  EXPECT_THAT(error_of([&] { file.load("a", "cpu"); }), HasSubstr("\"a\" is type 99"));
}

}  // namespace
}  // namespace braze::test
