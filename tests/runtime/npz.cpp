#include "runtime/io/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "braze/io.h"
#include "runtime/io/npy.h"
#include "runtime/io/zip.h"
#include "tests/runtime/programs.h"
#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

using Values = std::map<std::string, HostTensor>;

Values parse(const std::string& file) { return parse_npz(std::as_bytes(std::span(file)), "x.npz"); }

HostTensor counted(DType dtype, const std::vector<int64_t>& shape) {
  HostTensor value(dtype, shape);
  for (int64_t i = 0; i < value.numel(); ++i) value.set_int(i, dtype == DType::Bool ? i % 2 : i);
  return value;
}

struct Member {
  std::string name;
  std::string bytes;
  bool deflated = false;
};

std::string npy(const HostTensor& value) {
  const std::vector<std::byte> bytes = npy_bytes(value);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string archive(const std::vector<Member>& members, uint64_t zip64_from = 0xffffffff) {
  std::string out;
  ZipWriter writer(
      [&](std::span<const std::byte> bytes) {
        out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      },
      zip64_from);
  for (const Member& m : members)
    writer.add(m.name, {std::as_bytes(std::span(m.bytes))}, m.deflated);
  writer.finish();
  return out;
}

class NpzTest : public testing::Test {
 protected:
  std::string path(const char* name) const { return (folder_ / name).string(); }
  static std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path;
};

std::string fixture(const char* name) {
  return std::string(BRAZE_SOURCE_DIR) + "/tests/fuzz/corpus/npz/" + name;
}

std::map<std::string, Array> arrays_of_every_type() {
  std::map<std::string, Array> arrays;
  for (const DType dtype : kAllDTypes)
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {0}, {3}, {2, 3}, {2, 0, 3}, {40, 1, 20, 5}}) {
      if (is_stored_float(dtype)) continue;  // the format has none
      arrays[std::string(name(dtype)) + std::to_string(shape.size()) + "." +
             std::to_string(checked_numel(shape))] = Array::from_host(counted(dtype, shape));
    }
  return arrays;
}

void expect_same(const std::map<std::string, Array>& got,
                 const std::map<std::string, Array>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, array] : expected)
    EXPECT_TRUE(identical(got.at(name).to_host(), array.to_host())) << name;
}

TEST_F(NpzTest, RoundTripOfEveryTypeAndShape) {
  const std::map<std::string, Array> arrays = arrays_of_every_type();
  save_npz(path("stored.npz"), arrays);
  save_npz(path("deflated.npz"), arrays, Compression::Deflate);
  expect_same(load_npz(path("stored.npz")), arrays);
  expect_same(load_npz(path("deflated.npz")), arrays);
  EXPECT_LT(fs::file_size(path("deflated.npz")), fs::file_size(path("stored.npz")) / 2);
  save_npz(path("none.npz"), {});
  EXPECT_TRUE(load_npz(path("none.npz")).empty());
}

TEST_F(NpzTest, LargeArraysCrossEveryBuffer) {
  // More than a header's prefix, than zlib's window and than the buffer of the writer.
  HostTensor value(DType::I32, {300'000});
  uint32_t x = 1;
  for (int64_t i = 0; i < value.numel(); ++i)
    value.set_int(i, (x = x * 1664525 + 1013904223) >> 20);
  const std::map<std::string, Array> arrays = {{"x", Array::from_host(value)}};
  save_npz(path("x.npz"), arrays, Compression::Deflate);
  expect_same(load_npz(path("x.npz")), arrays);
}

TEST_F(NpzTest, TheSameArraysAreTheSameBytes) {
  const std::map<std::string, Array> arrays = arrays_of_every_type();
  for (const Compression compression : {Compression::None, Compression::Deflate}) {
    save_npz(path("1"), arrays, compression);
    save_npz(path("2"), arrays, compression);
    EXPECT_EQ(read_file(path("1")), read_file(path("2")));
  }
}

TEST_F(NpzTest, ReadsWhatNumPyWrites) {
  for (const char* name : {"numpy_stored", "numpy_deflated"}) {
    const std::map<std::string, Array> arrays = load_npz(fixture(name));
    EXPECT_EQ(arrays.size(), 10u);
    EXPECT_THAT(arrays.at("flag").to_vector<bool>(), ElementsAre(true, false, true));
    EXPECT_THAT(arrays.at("i4").to_vector<int32_t>(), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(arrays.at("i8").to_vector<int64_t>(), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(arrays.at("i8").shape(), ElementsAre(2, 3));
    EXPECT_THAT(arrays.at("u4").to_vector<uint32_t>(), ElementsAre(7));
    EXPECT_EQ(arrays.at("f2").to_host().get_double(1), -2);
    EXPECT_EQ(arrays.at("bf16").to_host().get_double(1), -2);
    EXPECT_THAT(arrays.at("f4").to_vector<float>(), ElementsAre(0, 0.25f, 0.5f, 0.75f, 1));
    EXPECT_EQ(arrays.at("f8").item(), 1.5);
    EXPECT_THAT(arrays.at("empty").shape(), ElementsAre(0, 3));
    EXPECT_THAT(arrays.at("layer.0/weight").to_vector<float>(), ElementsAre(2, 2, 2, 2));
  }
  EXPECT_EQ(load_npz(fixture("streamed")).at("u4").item(), 7) << "sizes behind the data";
  EXPECT_EQ(load_npz(fixture("zip64")).at("u4").item(), 7);
}

TEST_F(NpzTest, NumPyReadsWhatWeWrite) {
  const char* const python = std::getenv("BRAZE_PYTHON");
  const std::string command = python != nullptr ? python : "/opt/peers/bin/python";
  if (std::system((command + " -c 'import numpy' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "no NumPy; BRAZE_PYTHON names a Python that has it";
  HostTensor half(DType::BF16, {2});
  half.set_double(1, -2);
  const std::map<std::string, Array> arrays = {
      {"x", Array::from_host(counted(DType::F32, {2, 3}))},
      {"\xc3\xa4/b", Array::from_host(counted(DType::Bool, {3}))},
      {"half", Array::from_host(half)},
      {"none", Array::from_host(counted(DType::I64, {0, 2}))}};
  save_npz(path("stored.npz"), arrays);
  save_npz(path("deflated.npz"), arrays, Compression::Deflate);
  std::ofstream(path("zip64.npz"), std::ios::binary)
      << archive({{"x.npy", npy(counted(DType::F32, {2, 3})), true},
                  {"\xc3\xa4/b.npy", npy(counted(DType::Bool, {3}))},
                  {"half.npy", npy(half)},
                  {"none.npy", npy(counted(DType::I64, {0, 2}))}},
                 0);
  std::ofstream(path("check.py")) << R"(
import numpy as np, sys, zipfile
for file in sys.argv[1:]:
    assert zipfile.ZipFile(file).testzip() is None
    a = np.load(file)
    assert sorted(a.keys()) == ['half', 'none', 'x', '\u00e4/b'], list(a.keys())
    assert a['x'].dtype == np.float32 and (a['x'] == np.arange(6).reshape(2, 3)).all()
    assert a['\u00e4/b'].tolist() == [False, True, False]
    assert a['half'].tobytes() == b'\0\0\0\xc0' and a['none'].shape == (0, 2)
)";
  EXPECT_EQ(std::system((command + " " + path("check.py") + " " + path("stored.npz") + " " +
                         path("deflated.npz") + " " + path("zip64.npz"))
                            .c_str()),
            0);
}

TEST_F(NpzTest, Zip64IsRead) {
  const HostTensor value = counted(DType::F32, {2, 3});
  for (const bool deflated : {false, true}) {
    const Values values =
        parse(archive({{"a.npy", npy(value), deflated}, {"b.npy", npy(value)}}, 0));
    ASSERT_EQ(values.size(), 2u);
    EXPECT_TRUE(identical(values.at("a"), value));
  }
  std::vector<Member> many;
  for (int i = 0; i < 65'536; ++i) many.push_back({std::to_string(i) + ".npy", ""});
  const std::string file = archive(many);
  EXPECT_EQ(parse_zip(std::as_bytes(std::span(file)), "x.npz").size(), 65'536u);
}

// --- Malformed files ---------------------------------------------------------------------------

/// `file` with `with` at the `nth` place where `what` stands, moved by `offset`.
std::string patched(std::string file, std::string_view what, size_t offset, std::string_view with,
                    bool last = false) {
  const size_t at = last ? file.rfind(what) : file.find(what);
  EXPECT_NE(at, std::string::npos);
  return file.replace(at + offset, with.size(), with);
}

constexpr std::string_view kLocal("PK\3\4"), kEntry("PK\1\2"), kEnd("PK\5\6"), kEnd64("PK\6\6"),
    kLocator("PK\6\7");
constexpr std::string_view kFour("\xff\xff\xff\xff");

struct Bad {
  const char* what;
  std::string file;
  const char* code;
  const char* message = "";
};

TEST_F(NpzTest, MalformedArchivesAreErrors) {
  const std::string x = npy(counted(DType::F32, {2, 3}));
  const std::string one = archive({{"a.npy", x}});
  const std::string two = archive({{"a.npy", x}, {"b.npy", x}});
  const std::string deflated = archive({{"a.npy", x, true}});
  const std::string large = archive({{"a.npy", x}}, 0);
  const auto zeros = [](size_t n) { return std::string(n, '\0'); };
  const auto byte = [](int value) { return std::string(1, static_cast<char>(value)); };
  const std::string data = x.substr(x.size() - 4);
  std::string other_crc = one;
  other_crc[30 + 5 + 140] ^= 1;
  const size_t entry = one.find(kEntry);
  const std::vector<Bad> table = {
      {"empty", "", "zip-file", "not a ZIP archive"},
      {"another format", x, "zip-file", "not a ZIP archive"},
      {"half", one.substr(0, one.size() / 2), "zip-file", "not a ZIP archive"},
      {"a byte missing", one.substr(0, one.size() - 1), "zip-file", ""},
      {"a byte too many", one + "x", "zip-file", ""},
      {"something before it", "MZ" + one, "zip-format", "does not end where"},
      {"a comment", patched(one, kEnd, 20, byte(4)) + "abcd", "zip-file", ""},
      {"a comment that is cut off", patched(one, kEnd, 20, byte(4)), "zip-format", "comment"},
      {"several disks", patched(one, kEnd, 4, byte(1)), "zip-method", "several parts"},
      {"members on another disk", patched(one, kEnd, 8, zeros(1)), "zip-method", "several parts"},
      {"a count of too many", patched(one, kEnd, 8, byte(2) + zeros(1) + byte(2)), "zip-format",
       "fewer members"},
      {"a count of too few", patched(two, kEnd, 8, byte(1) + zeros(1) + byte(1)), "zip-format",
       "more members"},
      {"a directory of another size", patched(one, kEnd, 12, byte(1)), "zip-format",
       "does not end where"},
      {"a directory beyond the file", patched(one, kEnd, 12, kFour), "zip-format", ""},
      {"a directory elsewhere", patched(one, kEnd, 16, byte(1)), "zip-format",
       "does not end where"},
      {"no directory entry", patched(one, kEntry, 0, "PK\1\3"), "zip-format", "not a list"},
      {"encrypted", patched(one, kEntry, 8, byte(1)), "zip-method", "encrypted"},
      {"strongly encrypted", patched(one, kEntry, 8, byte(0x41)), "zip-method", "encrypted"},
      {"bzip2", patched(one, kEntry, 10, byte(12)), "zip-method", "method 12"},
      {"another method than in its header", patched(one, kEntry, 10, byte(8)), "zip-format",
       "does not fit"},
      {"a checksum that is wrong", patched(one, kEntry, 16, byte(0) + byte(1)), "zip-file",
       "checksum"},
      {"data that were altered", other_crc, "zip-file", "checksum"},
      {"deflated data that were altered", patched(deflated, kLocal, 40, "\xff\xff\xff"),
       "npy-format", ""},
      {"stored data of two sizes", patched(one, kEntry, 24, byte(1)), "zip-format",
       "cannot be its"},
      {"a bomb", patched(deflated, kEntry, 24, "\xff\xff\xff\x7f"), "zip-format", "cannot be its"},
      {"more than it unpacks to", patched(deflated, kEntry, 24, byte(x.size() & 0xff) + byte(2)),
       "zip-file", "ends too early"},
      {"a name of 65535 bytes", patched(one, kEntry, 28, "\xff\xff"), "zip-format", "cut off"},
      {"an extra field beyond the end", patched(one, kEntry, 30, "\xff"), "zip-format", "cut off"},
      {"a comment beyond the end", patched(one, kEntry, 32, "\xff"), "zip-format", "cut off"},
      {"an offset beyond the file", patched(one, kEntry, 42, "\xff\xff\xff\x7f"), "zip-format",
       "does not fit"},
      {"an offset elsewhere", patched(one, kEntry, 42, byte(1)), "zip-format", "does not fit"},
      {"two entries of one member", patched(two, kEntry, 42, zeros(4), true), "zip-format",
       "does not fit"},
      {"another name than in its header", patched(one, kLocal, 30, "z"), "zip-format",
       "does not fit"},
      {"a local name beyond the file", patched(one, kLocal, 26, "\xff\xff"), "zip-format",
       "does not fit"},
      {"a local extra field that takes from the data", patched(one, kLocal, 28, byte(8)),
       "zip-format", "does not fit"},
      {"an archive within", archive({{"a.npy", x}, {"a.npy", x}}), "zip-format", "twice"},
      {"ZIP64: no end record", patched(large, kEnd64, 0, "PK\6\5"), "zip-format", "ZIP64"},
      {"ZIP64: an end record elsewhere", patched(large, kLocator, 8, byte(1)), "zip-format",
       "ZIP64"},
      {"ZIP64: an end record of another size", patched(large, kEnd64, 4, byte(45)), "zip-format",
       "another size"},
      {"ZIP64: another count", patched(large, kEnd64, 24, byte(9) + zeros(7) + byte(9)),
       "zip-format", "fewer members"},
      {"ZIP64: 2^64 - 1 members", patched(large, kEnd64, 24, std::string(16, '\xff')), "zip-format",
       "fewer members"},
      {"ZIP64: an offset beyond the file", patched(large, kEnd64, 48, std::string(8, '\xff')),
       "zip-format", "does not end where"},
      {"ZIP64: records that differ", patched(large, kEnd, 10, byte(9) + zeros(1), true),
       "zip-format", "differ"},
      {"ZIP64: a field that is cut off", patched(large, kEntry, 46 + 5 + 2, byte(8)), "zip-format",
       "cut off"},
      {"a gap",
       one.substr(0, entry) + "xxxx" + patched(one, kEnd, 16, byte(int(entry + 4))).substr(entry),
       "zip-format", "belong to no member"},
  };
  for (const Bad& bad : table) {
    EXPECT_THAT(error_of([&] { parse(bad.file); }),
                AllOf(StartsWith(std::string(bad.code) + ":"), HasSubstr(bad.message)))
        << bad.what;
    std::ofstream(path("bad.npz"), std::ios::binary) << bad.file;
    EXPECT_THAT(error_of([&] { load_npz(path("bad.npz")); }),
                StartsWith(std::string(bad.code) + ":"))
        << bad.what;
  }
}

TEST_F(NpzTest, MembersAreArraysOfPlainNames) {
  const std::string x = npy(counted(DType::F32, {2, 3}));
  const auto error = [&](const std::string& name, const std::string& content) {
    return error_of([&] { parse(archive({{name, content}})); });
  };
  EXPECT_EQ(error("a/b.c.npy", x), "");
  for (const char* name : {".npy", "/a.npy", "../a.npy", "a/../b.npy", "./a.npy", "a//b.npy",
                           "a/.npy", "a\\b.npy", "a\n.npy", "\xff.npy", "\x7f.npy", "..npy"})
    EXPECT_THAT(error(name, x), AllOf(StartsWith("npz-member"), HasSubstr("cannot be the name")))
        << name;
  EXPECT_THAT(error("readme.txt", "hello"),
              AllOf(StartsWith("npz-member"), HasSubstr("not a .npy")));
  EXPECT_THAT(error("a/", ""), StartsWith("npz-member"));
  EXPECT_THAT(error("a.npy", ""), AllOf(StartsWith("npy-format"), HasSubstr("x.npz: a.npy")));
  EXPECT_THAT(error("a.npy", x + "x"), StartsWith("npy-file"));
  EXPECT_THAT(error("a.npy", x.substr(0, x.size() - 1)), StartsWith("npy-file"));
  const Array one = filled(1, 1);
  for (const char* name : {"", "/a", "..", "a/../b", "\xff", "a\nb"})
    EXPECT_THAT(error_of([&] {
                  save_npz(path("n.npz"), {{name, one}});
                }),
                StartsWith("npz-member"));
  EXPECT_FALSE(fs::exists(path("n.npz")));
}

TEST_F(NpzTest, EveryBitFlippedIsAnErrorOrTheSameArrays) {
  const HostTensor value = counted(DType::I32, {2, 3});
  for (const bool deflated : {false, true})
    for (const uint64_t zip64_from : {uint64_t{0}, uint64_t{0xffffffff}}) {
      const std::string good =
          archive({{"a.npy", npy(value), deflated}, {"b.npy", npy(value), deflated}}, zip64_from);
      for (size_t i = 0; i < good.size(); ++i)
        for (int bit = 0; bit < 8; ++bit) {
          std::string file = good;
          file[i] = static_cast<char>(file[i] ^ 1 << bit);
          const std::string error = error_of([&] {
            // Times, versions and attributes do not matter. All that decides a value has a
            // checksum.
            const Values values = parse(file);
            EXPECT_EQ(values.size(), 2u);
            for (const auto& item : values) EXPECT_TRUE(identical(item.second, value)) << i;
          });
          EXPECT_FALSE(error.starts_with("internal")) << i << " " << error;
        }
      for (size_t size = 0; size < good.size(); ++size)
        EXPECT_THAT(error_of([&] { parse(good.substr(0, size)); }), StartsWith("zip-file")) << size;
    }
}

}  // namespace
}  // namespace braze::test
