#include "runtime/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "braze/io.h"
#include "ir/values/host_tensor.h"
#include "tests/runtime/programs.h"
#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// The file of this header, as it is, and these data.
std::string file_of(const std::string& header, std::string_view data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return out + header + std::string(data);
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

SafetensorsFile parse(const std::string& file) {
  return SafetensorsFile::parse(std::as_bytes(std::span(file)), "x.safetensors");
}

std::string bytes_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

HostTensor counted(DType dtype, const std::vector<int64_t>& shape) {
  HostTensor value(dtype, shape);
  for (int64_t i = 0; i < value.numel(); ++i) value.set_int(i, dtype == DType::Bool ? i % 2 : i);
  return value;
}

class SafetensorsTest : public testing::Test {
 protected:
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::string write(const char* name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return path(name);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(folder_))
      names.push_back(file.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path;
};

TEST_F(SafetensorsTest, RoundTripOfEveryTypeAndShape) {
  std::map<std::string, Array> arrays;
  for (const DType dtype : kAllDTypes)
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {0}, {3}, {2, 3}, {2, 0, 3}, {4, 1, 2, 5}, {0, INT64_MAX}})
      arrays[std::string(name(dtype)) + "." + testing::PrintToString(shape)] =
          Array::from_host(counted(dtype, shape));
  save_safetensors(path("a.safetensors"), arrays, {{"format", "pt"}, {"\xc3\xa4\n", "\"\\"}});
  const std::map<std::string, Array> read = load_safetensors(path("a.safetensors"));
  ASSERT_EQ(read.size(), arrays.size());
  for (const auto& [name, array] : arrays)
    EXPECT_TRUE(identical(read.at(name).to_host(), array.to_host())) << name;
  EXPECT_EQ(load_safetensors_metadata(path("a.safetensors")),
            (std::map<std::string, std::string>{{"format", "pt"}, {"\xc3\xa4\n", "\"\\"}}));
  EXPECT_THAT(files(), ElementsAre("a.safetensors")) << "nothing is left behind";
}

TEST_F(SafetensorsTest, TheSameArraysAreTheSameBytesAligned) {
  const std::map<std::string, Array> arrays = {
      {"flag", Array::from_host(counted(DType::Bool, {3}))},
      {"b", Array::from_host(counted(DType::F32, {2}))},
      {"a", Array::from_host(counted(DType::F32, {1}))},
      {"half", Array::from_host(counted(DType::BF16, {1}))},
      {"line", Array::from_host(counted(DType::Bool, {64}))},
      {"lines", Array::from_host(counted(DType::F32, {4, 8}))},
      {"wide", Array::from_host(counted(DType::I64, {1}))}};
  save_safetensors(path("1"), arrays);
  save_safetensors(path("2"), arrays);
  const std::string file = read_file(path("1"));
  EXPECT_EQ(file, read_file(path("2")));
  const std::string header =
      "{" + entry("lines", "F32", "4,8", "0,128") + "," + entry("line", "BOOL", "64", "128,192") +
      "," + entry("wide", "I64", "1", "192,200") + "," + entry("a", "F32", "1", "200,204") + "," +
      entry("b", "F32", "2", "204,212") + "," + entry("half", "BF16", "1", "212,214") + "," +
      entry("flag", "BOOL", "3", "214,217") + "}";
  EXPECT_THAT(file.substr(8), StartsWith(header + "   "));
  EXPECT_EQ((file.size() - 217) % 64, 0u) << "data begin at a line";
  const SafetensorsFile read = SafetensorsFile::open(path("1"));
  for (const auto& [name, tensor] : read.tensors())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % size_of(*tensor.dtype), 0u)
        << name;
}

TEST_F(SafetensorsTest, EmptyFiles) {
  save_safetensors(path("none"), {});
  EXPECT_TRUE(load_safetensors(path("none")).empty());
  const SafetensorsFile none = parse(file_of("{}", ""));
  EXPECT_TRUE(none.tensors().empty());
  const SafetensorsFile words = parse(file_of(R"({"__metadata__":{}})", ""));
  EXPECT_TRUE(words.tensors().empty());
}

TEST_F(SafetensorsTest, ReadsWhatOthersWrite) {
  const std::string data("\1\2\3\4\5\6\7\0\377", 9);
  // Any order, blanks, unaligned, behind one another, without elements in between.
  const std::string bytes =
      file_of("{ " + entry("b", "I32", "2", "1,9") + ",\n" + entry("e", "F64", "0,3", "1,1") + "," +
                  entry("\\u0061", "BOOL", "", "0,1") + " } ",
              "\377" + data.substr(0, 8));
  const SafetensorsFile file = parse(bytes);
  EXPECT_EQ(bytes_of(file.at("b").bytes), data.substr(0, 8));
  EXPECT_THAT(file.at("b").shape, ElementsAre(2));
  EXPECT_EQ(file.at("b").dtype, DType::I32);
  EXPECT_EQ(file.at("e").bytes.size(), 0u);
  EXPECT_EQ(file.at("a").bytes.size(), 1u);
}

TEST_F(SafetensorsTest, UnalignedDataAndBoolsAreRead) {
  const std::string header =
      "{" + entry("flag", "BOOL", "3", "0,3") + "," + entry("x", "F32", "1", "3,7") + "}";
  const std::string one("\0\0\x80\x3f", 4);
  const std::map<std::string, Array> arrays =
      load_safetensors(write("u", file_of(header, std::string("\0\1\377", 3) + one)));
  EXPECT_THAT(arrays.at("x").to_vector<float>(), ElementsAre(1.0f));
  EXPECT_THAT(arrays.at("flag").to_vector<bool>(), ElementsAre(false, true, true));
  EXPECT_EQ(arrays.at("flag").to_host().get_bits(2), 1u) << "true is 1";
}

TEST_F(SafetensorsTest, OtherTypesAreErrorsOnlyWhenAskedFor) {
  const std::string file = write(
      "types",
      file_of("{" + entry("a", "F8_E8M0", "2", "0,2") + "," + entry("b", "F4", "4", "2,4") + "," +
                  entry("c", "F128_NEW", "1", "4,20") + "," + entry("x", "F16", "1", "20,22") + "}",
              std::string(22, '\0')));
  EXPECT_EQ(load_safetensors(file, "cpu", {"x"}).at("x").dtype(), DType::F16);
  for (const char* name : {"a", "b", "c"})
    EXPECT_THAT(error_of([&] { load_safetensors(file, "cpu", {name}); }),
                AllOf(StartsWith("safetensors-type"), HasSubstr("Braze reads BOOL, I32")));
  EXPECT_THAT(error_of([&] { load_safetensors(file); }), StartsWith("safetensors-type"));
  EXPECT_THAT(error_of([&] { load_safetensors(file, "cpu", {"y"}); }),
              StartsWith("unknown-tensor"));
}

struct Bad {
  const char* what;
  std::string file;
  const char* code;
  const char* message = "";
};

TEST_F(SafetensorsTest, MalformedFilesAreErrors) {
  const std::string data(24, '\1');
  const std::string good_entry = entry("a", "F32", "2,3", "0,24");
  const std::string good = file_of("{" + good_entry + "}", data);
  ASSERT_EQ(error_of([&] { parse(good).at("a"); }), "");
  const auto with = [&](const std::string& header) { return file_of(header, data); };
  const auto tensor = [&](const char* type, const char* shape, const char* offsets) {
    return with("{" + entry("a", type, shape, offsets) + "}");
  };
  const auto two = [&](const char* first, const char* second) {
    return with("{" + entry("a", "F32", "3", first) + "," + entry("b", "F32", "3", second) + "}");
  };
  std::string dims = "1";
  for (int i = 0; i < 64; ++i) dims += ",1";
  std::string huge = good, above = good;
  huge.replace(0, 8, std::string(8, '\xff'));
  above.replace(0, 8, std::string("\1\341\365\5\0\0\0\0", 8));  // 100,000,001
  const std::vector<Bad> table = {
      {"empty", "", "safetensors-file", "first 8 bytes"},
      {"seven bytes", good.substr(0, 7), "safetensors-file", "first 8 bytes"},
      {"half a header", good.substr(0, 30), "safetensors-file", "ends in its header"},
      {"no data", good.substr(0, good.size() - 24), "safetensors-file", "truncated"},
      {"a byte missing", good.substr(0, good.size() - 1), "safetensors-file", "truncated"},
      {"a byte too many", good + "x", "safetensors-file", "1 bytes behind"},
      {"a header of 2^64 - 1 bytes", huge, "safetensors-format", "too long"},
      {"a header beyond the limit", above, "safetensors-format", "too long"},
      {"another format", "PK\3\4\1\1\1\1 and so on", "safetensors-format", "too long"},
      {"no header", file_of("", ""), "safetensors-format", "does not begin with a '{'"},
      {"blanks first", with(" {" + good_entry + "}"), "safetensors-format", "begin with a '{'"},
      {"an array", with("[]"), "safetensors-format", "begin with a '{'"},
      {"no end", with("{" + good_entry), "json-syntax", ""},
      {"more behind the end", with("{" + good_entry + "}{}"), "json-syntax", "goes on"},
      {"a NUL behind the end", with("{" + good_entry + "}" + '\0'), "json-syntax", "goes on"},
      {"not UTF-8", with("{" + entry("\xff", "F32", "2,3", "0,24") + "}"), "json-syntax", "UTF-8"},
      {"deep", with("{\"a\":" + std::string(100, '[')), "json-syntax", ""},
      {"a name twice", with("{" + good_entry + "," + entry("a", "F32", "0", "0,0") + "}"),
       "safetensors-format", "comes twice"},
      {"a name twice by escapes",
       with("{" + good_entry + "," + entry("\\u0061", "F32", "0", "0,0") + "}"),
       "safetensors-format", "comes twice"},
      {"metadata twice", with("{\"__metadata__\":{},\"__metadata__\":{}," + good_entry + "}"),
       "safetensors-format", "twice"},
      {"a key of the metadata twice",
       with("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," + good_entry + "}"),
       "safetensors-format", "twice"},
      {"metadata that is no text", with("{\"__metadata__\":{\"k\":1}," + good_entry + "}"),
       "json-syntax", ""},
      {"a tensor that is none", with("{\"a\":1}"), "json-syntax", ""},
      {"no members", with("{\"a\":{}}"), "safetensors-format", "lacks"},
      {"no dtype", with("{\"a\":{\"shape\":[6],\"data_offsets\":[0,24]}}"), "safetensors-format",
       "lacks"},
      {"no shape", with("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,24]}}"),
       "safetensors-format", "lacks"},
      {"no offsets", with("{\"a\":{\"dtype\":\"F32\",\"shape\":[6]}}"), "safetensors-format",
       "lacks"},
      {"dtype twice",
       with("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"I32\",\"shape\":[6],\"data_offsets\":[0,24]}}"),
       "safetensors-format", "\"dtype\" twice"},
      {"shape twice",
       with("{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"shape\":[6],\"data_offsets\":[0,24]}}"),
       "safetensors-format", "\"shape\" twice"},
      {"an unknown member",
       with("{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24],\"order\":\"F\"}}"),
       "safetensors-format", "unknown member"},
      {"a dtype that is no text",
       with("{\"a\":{\"dtype\":4,\"shape\":[6],\"data_offsets\":[0,24]}}"), "json-syntax", ""},
      {"a negative extent", tensor("F32", "-2,3", "0,24"), "json-syntax", "unsigned number"},
      {"a fraction", tensor("F32", "6.0", "0,24"), "json-syntax", "an integer without"},
      {"an extent beyond int64", tensor("F32", "9223372036854775808", "0,24"), "safetensors-format",
       "is too large"},
      {"an extent beyond uint64", tensor("F32", "18446744073709551616", "0,24"), "json-syntax",
       "2^64"},
      {"too many dimensions", tensor("F32", dims.c_str(), "0,24"), "safetensors-format",
       "is too large"},
      {"a size that overflows", tensor("F32", "4611686018427387904,4", "0,24"),
       "safetensors-format", "no number of bytes"},
      {"a size that overflows to little", tensor("F32", "4294967296,4294967296,6", "0,24"),
       "safetensors-format", "no number of bytes"},
      {"half a byte", tensor("F4", "47", "0,24"), "safetensors-format", "no number of bytes"},
      {"one offset", tensor("F32", "2,3", "0"), "safetensors-format", "not a begin and an end"},
      {"three offsets", tensor("F32", "2,3", "0,24,24"), "safetensors-format",
       "not a begin and an end"},
      {"offsets backwards", tensor("F32", "0", "24,0"), "safetensors-format",
       "not a begin and an end"},
      {"beyond the end", tensor("F32", "2,3", "4,28"), "safetensors-file", "truncated"},
      {"far beyond", tensor("F32", "2,3", "0,18446744073709551615"), "safetensors-file",
       "truncated"},
      {"more than its shape", tensor("F32", "5", "0,24"), "safetensors-format", "20 bytes"},
      {"less than its shape", tensor("F32", "7", "0,24"), "safetensors-format", "28 bytes"},
      {"an overlap", two("0,12", "8,20"), "safetensors-format", "an overlap"},
      {"twice the same", two("0,12", "0,12"), "safetensors-format", "an overlap"},
      {"a gap", two("0,12", "16,28"), "safetensors-file", "truncated"},
      {"a gap within",
       with("{" + entry("a", "F32", "2", "0,8") + "," + entry("b", "F32", "3", "12,24") + "}"),
       "safetensors-format", "a gap"},
      {"a gap at the beginning", tensor("F32", "5", "4,24"), "safetensors-format", "a gap"},
      {"an empty tensor inside of another",
       with("{" + good_entry + "," + entry("z", "F32", "0", "4,4") + "}"), "safetensors-format",
       "an overlap"},
      {"a tail", tensor("F32", "5", "0,20"), "safetensors-file", "4 bytes behind"},
      {"data of none", with("{}"), "safetensors-file", "24 bytes behind"},
  };
  for (const Bad& bad : table) {
    EXPECT_THAT(error_of([&] { parse(bad.file); }),
                AllOf(StartsWith(std::string(bad.code) + ":"), HasSubstr(bad.message)))
        << bad.what;
    EXPECT_THAT(error_of([&] { load_safetensors(write("bad", bad.file)); }),
                StartsWith(std::string(bad.code) + ":"))
        << bad.what;
  }
}

TEST_F(SafetensorsTest, EveryBitFlippedIsAnErrorOrAnotherValue) {
  const std::string header = "{\"__metadata__\":{\"k\":\"v\"}," + entry("a", "F32", "2", "0,8") +
                             "," + entry("b", "BOOL", "3", "8,11") + "}  ";
  const std::string good = file_of(header, std::string(11, '\1'));
  for (size_t i = 0; i < good.size(); ++i)
    for (int value = 0; value < 256; ++value) {
      std::string file = good;
      file[i] = static_cast<char>(value);
      const std::string error = error_of([&] {
        uint64_t bytes = 0;
        const SafetensorsFile read = parse(file);
        for (const auto& item : read.tensors()) bytes += item.second.bytes.size();
        EXPECT_EQ(bytes, 11u);
      });
      EXPECT_FALSE(error.starts_with("internal")) << i << " " << value << " " << error;
    }
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THAT(error_of([&] { parse(good.substr(0, size)); }), StartsWith("safetensors-file"))
        << size;
}

TEST_F(SafetensorsTest, FilesThatAreNone) {
  EXPECT_THAT(error_of([&] { load_safetensors(path("missing")); }), StartsWith("file-missing"));
  EXPECT_THAT(error_of([&] { load_safetensors(folder_); }), StartsWith("file-kind"));
  EXPECT_THAT(error_of([&] { save_safetensors(path("no/x"), {}); }), StartsWith("file-unwritable"));
  EXPECT_THAT(error_of([&] { save_safetensors(folder_, {}); }), StartsWith("file-kind"));
}

TEST_F(SafetensorsTest, AFailedSaveLeavesTheOldFile) {
  const Array x = filled(3, 1);
  save_safetensors(path("w"), {{"x", x}});
  for (const char* name : {"__metadata__", "\xff"})
    EXPECT_THAT(error_of([&] {
                  save_safetensors(path("w"), {{name, x}});
                }),
                StartsWith("tensor-name"));
  EXPECT_THAT(error_of([&] {
                save_safetensors(path("w"), {{"y", x}}, {{"k", "\xff"}});
              }),
              StartsWith("tensor-name"));
  EXPECT_THAT(error_of([&] {
                save_safetensors(path("w"), {{"y", Array()}});
              }),
              StartsWith("empty-array"));
  EXPECT_TRUE(load_safetensors(path("w")).contains("x"));
  EXPECT_THAT(files(), ElementsAre("w"));
}

TEST_F(SafetensorsTest, AFullDiskLeavesTheOldFile) {
  save_safetensors(path("w"), {{"x", filled(3, 1)}});
  struct rlimit limit {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const struct rlimit small = {1 << 16, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of([&] {
    save_safetensors(path("w"), {{"y", filled(1 << 16, 1)}});
  });
  const std::string npz = error_of([&] { save_npz(path("w"), {{"y", filled(1 << 16, 1)}}); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, StartsWith("file-unwritable"));
  EXPECT_THAT(npz, StartsWith("file-unwritable"));
  EXPECT_TRUE(load_safetensors(path("w")).contains("x"));
  EXPECT_THAT(files(), ElementsAre("w"));
}

// --- Several files with an index ---------------------------------------------------------------

TEST_F(SafetensorsTest, ShardsAreReadAsOne) {
  std::map<std::string, Array> arrays;
  for (const char* name : {"a", "b", "c", "d"}) arrays[name] = filled(4, name[0]);  // 16 bytes each
  arrays["large"] = filled(100, 7);
  const std::string index = path("m.safetensors.index.json");
  save_safetensors_shards(index, arrays, 32, {{"format", "pt"}});
  EXPECT_THAT(files(), ElementsAre("m-00001-of-00003.safetensors", "m-00002-of-00003.safetensors",
                                   "m-00003-of-00003.safetensors", "m.safetensors.index.json"));
  const std::map<std::string, Array> read = load_safetensors(index);
  ASSERT_EQ(read.size(), 5u);
  for (const auto& [name, array] : arrays)
    EXPECT_TRUE(identical(read.at(name).to_host(), array.to_host())) << name;
  EXPECT_EQ(load_safetensors_metadata(index).at("format"), "pt");
  EXPECT_EQ(load_safetensors(path("m-00003-of-00003.safetensors")).size(), 1u);
  EXPECT_THAT(read_file(index), HasSubstr("\"total_size\": 464"));

  save_safetensors_shards(path("e.safetensors.index.json"), {}, 1);
  EXPECT_TRUE(load_safetensors(path("e.safetensors.index.json")).empty());
  EXPECT_THAT(error_of([&] { save_safetensors_shards(path("m.json"), arrays, 1); }),
              AllOf(StartsWith("safetensors-format"), HasSubstr("cannot be the name of an index")));
}

TEST_F(SafetensorsTest, AnIndexStaysInItsFolder) {
  fs::create_directory(folder_ / "in");
  save_safetensors(path("in/w.safetensors"), {{"x", filled(1, 1)}});
  save_safetensors(path("out.safetensors"), {{"x", filled(1, 1)}});
  fs::create_symlink("../out.safetensors", folder_ / "in/link.safetensors");
  fs::create_symlink("w.safetensors", folder_ / "in/alias.safetensors");
  fs::create_symlink("nowhere", folder_ / "in/dangling.safetensors");
  const auto index_of = [&](const std::string& name) {
    return write("in/i.json", "{\"weight_map\":{\"x\":\"" + name + "\"}}");
  };
  for (const char* name : {"w.safetensors", "alias.safetensors"})
    EXPECT_EQ(load_safetensors(index_of(name)).size(), 1u) << name;
  for (const char* name : {"../out.safetensors", "/etc/passwd", "in/../w.safetensors", "..", ".",
                           "", "w.safetensors\\u0000"})
    EXPECT_THAT(error_of([&] { load_safetensors(index_of(name)); }),
                AllOf(StartsWith("safetensors-format"), HasSubstr("not the name of a file")))
        << name;
  for (const char* name : {"link.safetensors", "dangling.safetensors"})
    EXPECT_THAT(
        error_of([&] { load_safetensors(index_of(name)); }),
        AllOf(StartsWith("safetensors-format"), HasSubstr("symbolic link"), HasSubstr("cp -rL")))
        << name;
  EXPECT_THAT(error_of([&] { load_safetensors(index_of("missing.safetensors")); }),
              StartsWith("file-missing"));
  EXPECT_THAT(error_of([&] { load_safetensors(index_of("i.json")); }), StartsWith("safetensors-"))
      << "an index is no file of tensors";
}

TEST_F(SafetensorsTest, MalformedIndexes) {
  save_safetensors(path("w"), {{"x", filled(1, 1)}});
  for (const auto& [text, code] : {
           std::pair("", "json-syntax"),
           {"{}", "safetensors-format"},
           {"[]", "json-syntax"},
           {R"({"weight_map":{"y":"w"}})", "safetensors-format"},
           {R"({"weight_map":{"x":"w","x":"w"}})", "safetensors-format"},
           {R"({"weight_map":{},"weight_map":{}})", "safetensors-format"},
           {R"({"weight_map":{"x":1}})", "json-syntax"},
           {R"({"weight_map":[]})", "json-syntax"},
           {R"({"weight_map":{"x":"w"}} x)", "json-syntax"},
       })
    EXPECT_THAT(error_of([&, text = text] { load_safetensors(write("i.json", text)); }),
                StartsWith(std::string(code) + ":"))
        << text;
  EXPECT_EQ(load_safetensors(write("i.json", R"({"metadata":{"total_size":4.0},"x":[null],
      "weight_map":{"x":"w"}})"))
                .size(),
            1u);
}

}  // namespace
}  // namespace braze::test
