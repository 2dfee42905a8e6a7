#include "runtime/io/npy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "braze/io.h"
#include "runtime/io/file_writer.h"
#include "tests/runtime/programs.h"
#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// A file of this header text and data, padded as NumPy does unless `pad` is off.
std::string npy(std::string header, std::string_view data, int version = 1) {
  const size_t fixed = version == 1 ? 10 : 12;
  while ((fixed + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (size_t i = 0; i < fixed - 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + std::string(data);
}

std::string header(std::string_view descr, std::string_view shape, bool fortran = false) {
  return "{'descr': " + std::string(descr) + ", 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + std::string(shape) + ", }";
}

template <class T>
std::string bytes_of(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

HostTensor parse(const std::string& file) {
  return parse_npy(std::as_bytes(std::span(file)), "test.npy");
}

std::string temporary_path(const char* name) {
  return (std::filesystem::path(testing::TempDir()) / name).string();
}

TEST(Npy, RoundTripOfEveryType) {
  const std::string path = temporary_path("round.npy");
  for (const DType dtype : kAllDTypes) {
    if (is_stored_float(dtype)) {
      EXPECT_THAT(error_of([&] { save_npy(path, Array::from_host(HostTensor(dtype, {1}))); }),
                  AllOf(StartsWith("npy-type"), HasSubstr(name(dtype))));
      continue;
    }
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {0}, {3}, {2, 3}, {2, 0, 3}, {4, 1, 2, 5}}) {
      HostTensor value(dtype, shape);
      for (int64_t i = 0; i < value.numel(); ++i)
        value.set_int(i, dtype == DType::Bool ? i % 2 : i);
      save_npy(path, Array::from_host(value));
      const Array read = load_npy(path);
      EXPECT_EQ(read.dtype(), dtype);
      EXPECT_EQ(read.shape(), shape);
      EXPECT_TRUE(identical(read.to_host(), value)) << name(dtype);
      const std::vector<std::byte> bytes = npy_bytes(value);
      EXPECT_TRUE(identical(parse_npy(bytes, "bytes"), value));
      EXPECT_EQ(bytes.size(), std::filesystem::file_size(path));
      EXPECT_EQ((bytes.size() - value.size_bytes()) % 64, 0u);
    }
  }
}

TEST(Npy, WritesWhatNumPyWrites) {
  HostTensor value(DType::F32, {2, 3});
  const std::vector<std::byte> bytes = npy_bytes(value);
  const std::string expected = npy(header("'<f4'", "(2, 3)"), std::string(24, '\0'));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), expected);
  const std::vector<std::byte> one = npy_bytes(HostTensor(DType::Bool, {1}));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(one.data()), one.size()),
            npy(header("'|b1'", "(1,)"), std::string(1, '\0')));
}

TEST(Npy, ReadsWhatOthersWrite) {
  const std::string data = bytes_of<float>({1, 2, 3, 4, 5, 6});
  for (const int version : {1, 2, 3}) {
    const HostTensor v = parse(npy(header("'<f4'", "(2, 3)"), data, version));
    EXPECT_THAT(v.as<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  }
  const HostTensor fortran = parse(npy(header("'<f4'", "(2, 3)", true), data));
  EXPECT_THAT(fortran.shape(), ElementsAre(2, 3));
  EXPECT_THAT(fortran.as<float>(), ElementsAre(1, 3, 5, 2, 4, 6));
  const HostTensor deep =
      parse(npy(header("'<i4'", "(2, 2, 2)", true), bytes_of<int32_t>({0, 1, 2, 3, 4, 5, 6, 7})));
  EXPECT_THAT(deep.as<int32_t>(), ElementsAre(0, 4, 2, 6, 1, 5, 3, 7));
  const HostTensor big = parse(npy(header("'>i4'", "(2,)"), std::string("\0\0\0\1\0\0\1\0", 8)));
  EXPECT_THAT(big.as<int32_t>(), ElementsAre(1, 256));
  const HostTensor flags = parse(npy(header("'|b1'", "(3,)"), std::string("\0\1\xff", 3)));
  EXPECT_EQ(flags.get_bits(2), 1u) << "true is 1";
  const HostTensor brain = parse(npy(header("'|V2'", "()"), std::string("\x80\x3f", 2)));
  EXPECT_EQ(brain.dtype(), DType::BF16);
  const HostTensor bytes = parse(npy(header("'|u1'", "(2,)"), std::string("\x7f\xff", 2)));
  EXPECT_THAT(bytes.as<uint8_t>(), ElementsAre(127, 255));
  EXPECT_EQ(brain.get_double(0), 1);
  const HostTensor loose = parse(npy("{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<u4\"}",
                                     bytes_of<uint32_t>({7, 8})));
  EXPECT_THAT(loose.as<uint32_t>(), ElementsAre(7, 8));
  const HostTensor python2 = parse(npy(header("'<f4'", "(3L, 2L)"), data));
  EXPECT_THAT(python2.shape(), ElementsAre(3, 2));
  EXPECT_THAT(python2.as<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(parse(npy(header("'<f4'", "(6L,)"), data)).shape(), ElementsAre(6));
}

struct Bad {
  const char* what;
  std::string file;
  const char* code;
  const char* message;
};

TEST(Npy, MalformedFilesAreErrors) {
  const std::string data = bytes_of<float>({1, 2, 3, 4, 5, 6});
  const std::string good = npy(header("'<f4'", "(2, 3)"), data);
  const auto with_header = [&](const std::string& text) { return npy(text, data); };
  const auto with_shape = [&](const char* shape) { return npy(header("'<f4'", shape), data); };
  std::string many_dims = "(";
  for (int i = 0; i < 65; ++i) many_dims += "1, ";
  std::string long_header = good.substr(0, 8) + "\xff\xff" + std::string(70'000, ' ');
  std::string endless = good;
  endless[6] = 2;
  endless.replace(8, 2, "\xff\xff\xff\xff");
  const std::vector<Bad> table = {
      {"empty", "", "npy-format", "not a .npy file"},
      {"other format", "PK\3\4 and so on", "npy-format", "not a .npy file"},
      {"half a magic", "\x93NUM", "npy-format", "not a .npy file"},
      {"magic alone", good.substr(0, 6), "npy-file", "ends in its header"},
      {"no length", good.substr(0, 9), "npy-file", "ends in its header"},
      {"half a header", good.substr(0, 40), "npy-file", "ends in its header"},
      {"no data", good.substr(0, good.size() - data.size()), "npy-file",
       "needs 24 bytes, there are 0"},
      {"a byte missing", good.substr(0, good.size() - 1), "npy-file", "truncated"},
      {"a byte too many", good + "x", "npy-file", "1 bytes behind"},
      {"version 0", good.substr(0, 6) + '\0' + good.substr(7), "npy-format", "format 0"},
      {"version 4", good.substr(0, 6) + '\4' + good.substr(7), "npy-format", "format 4"},
      {"header too long", long_header, "npy-format", "too long"},
      {"header of 4 GiB", endless, "npy-format", "too long"},
      {"no dictionary", with_header("hello"), "npy-format", "lacks a '{'"},
      {"no end", with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)"),
       "npy-format", "lacks a '}'"},
      {"code after the end", with_header(header("'<f4'", "(2, 3)") + " + f()"), "npy-format",
       "goes on"},
      {"a call for a shape", with_shape("exit(1)"), "npy-format", "lacks a '('"},
      {"key missing", with_header("{'descr': '<f4', 'shape': (2, 3)}"), "npy-format", "lacks"},
      {"key twice",
       with_header("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (6,)}"),
       "npy-format", "twice"},
      {"key unknown",
       with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1}"), "npy-format",
       "unknown key"},
      {"string without end", with_header("{'descr': '<f4"), "npy-format", "does not end"},
      {"order not a bool", with_header("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}"),
       "npy-format", "neither True nor False"},
      {"negative extent", with_shape("(-2, 3)"), "npy-format", "not a valid size"},
      {"extent beyond int64", with_shape("(99999999999999999999,)"), "npy-format",
       "not a valid size"},
      {"extent not a number", with_shape("(a,)"), "npy-format", "not a valid size"},
      {"extent long twice", with_shape("(2LL, 3)"), "npy-format", "not a tuple"},
      {"extent long without digits", with_shape("(L, 3)"), "npy-format", "not a valid size"},
      {"extent with a zero in front", with_shape("(03, 2)"), "npy-format", "leading zero"},
      {"extent a float", with_shape("(2.0, 3)"), "npy-format", "not a tuple"},
      {"shape not a tuple", with_shape("(6)"), "npy-format", "not a tuple"},
      {"shape a list", with_shape("[6]"), "npy-format", "lacks a '('"},
      {"shape without end", with_shape("(2, 3"), "npy-format", "not a valid size"},
      {"too many dimensions", with_shape(many_dims.c_str()), "npy-format", "too many"},
      {"more than there is", with_shape("(1000000, 1000000)"), "npy-file", "truncated"},
      {"overflow", with_shape("(4611686018427387904, 4)"), "npy-file", "more than 2^64"},
      {"overflow to little", with_shape("(4294967296, 4294967296, 6)"), "npy-file",
       "more than 2^64"},
      {"empty with data", with_shape("(0, 3)"), "npy-file", "24 bytes behind"},
      {"complex", npy(header("'<c8'", "(3,)"), data), "npy-type", "<c8"},
      {"a byte without meaning", npy(header("'|V1'", "(24,)"), data), "npy-type", "|V1"},
      {"no type", npy(header("'<'", "(24,)"), data), "npy-type", "holds \"<\""},
      {"text", npy(header("'<U6'", "(1,)"), data), "npy-type", "holds \"<U6\""},
      {"objects", npy(header("'|O'", "(3,)"), data), "npy-type", "pickled"},
      {"records", npy(header("[('a', '<f4')]", "(6,)"), data), "npy-type", "records"},
      {"empty type", npy(header("''", "(6,)"), data), "npy-type", "holds \"\""},
      {"type without order", npy(header("'f4'", "(6,)"), data), "npy-type", "holds \"f4\""},
      {"zero bytes", npy(std::string(100, '\0'), data), "npy-format", "lacks a '{'"},
  };
  for (const Bad& bad : table) {
    EXPECT_THAT(error_of([&] { parse(bad.file); }),
                AllOf(StartsWith(std::string(bad.code) + ":"), HasSubstr(bad.message)))
        << bad.what;
    // From a file it is the same.
    const std::string path = temporary_path("bad.npy");
    std::ofstream(path, std::ios::binary)
        .write(bad.file.data(), static_cast<std::streamsize>(bad.file.size()));
    EXPECT_THAT(error_of([&] { load_npy(path); }), StartsWith(std::string(bad.code) + ":"))
        << bad.what;
  }
}

TEST(Npy, AnyDamageIsAnErrorOrAnotherValue) {
  const std::string good = npy(header("'<f4'", "(2, 3)"), bytes_of<float>({1, 2, 3, 4, 5, 6}));
  std::mt19937 random(1);
  int values = 0, errors = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string file = good;
    for (unsigned k = random() % 3 + 1; k > 0; --k)
      file[random() % 128] = static_cast<char>(random());
    if (random() % 4 == 0) file.resize(random() % file.size());
    const std::string error = error_of([&] {
      EXPECT_LE(parse(file).size_bytes(), file.size()) << "a value beyond the file";
      ++values;
    });
    if (error.empty()) continue;
    EXPECT_THAT(error, StartsWith("npy-"));
    ++errors;
  }
  EXPECT_GT(values, 50);
  EXPECT_GT(errors, 10'000);
}

TEST(Npy, FilesThatAreNone) {
  EXPECT_THAT(error_of([] { load_npy("/nonexistent/x.npy"); }),
              AllOf(StartsWith("file-missing"), HasSubstr("/nonexistent/x.npy")));
  EXPECT_THAT(error_of([] { load_npy("/"); }), StartsWith("file-kind"));
  EXPECT_THAT(error_of([] { load_npy("/dev/null"); }), HasSubstr("not a regular file"));
  const std::string fifo = temporary_path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { load_npy(fifo); }), HasSubstr("not a regular file")) << "and no wait";
  std::filesystem::remove(fifo);
}

TEST(Npy, PathsWithNulAreErrors) {
  const std::string path = temporary_path("x.npy");
  save_npy(path, filled(3, 1));
  const std::string longer = path + std::string("\0.png", 5);
  EXPECT_THAT(error_of([&] { load_npy(longer); }),
              AllOf(StartsWith("file-path"), HasSubstr("NUL byte")));
  EXPECT_THAT(error_of([&] { save_npy(longer, filled(4, 2)); }), StartsWith("file-path"));
  EXPECT_THAT(error_of([&] { load_npz(longer); }), StartsWith("file-path"));
  EXPECT_THAT(error_of([&] { save_npz(longer, {}); }), StartsWith("file-path"));
  EXPECT_THAT(error_of([&] { load_safetensors(longer); }), StartsWith("file-path"));
  EXPECT_THAT(error_of([&] { save_safetensors(longer, {}); }), StartsWith("file-path"));
  EXPECT_EQ(load_npy(path).numel(), 3) << "what the path begins with stays as it is";
}

TEST(Npy, WritingFollowsLinks) {
  const TemporaryFolder temporary;
  const fs::path here = temporary.path / "here", there = temporary.path / "there";
  fs::create_directories(here);
  fs::create_directories(there);
  fs::create_symlink("../there/second", here / "first");  // relative, to an absolute one
  fs::create_symlink(there / "x.npy", there / "second");  // leads to nothing yet
  for (const int64_t count : {3, 4}) {
    save_npy(here / "first", filled(count, 1));
    EXPECT_TRUE(fs::is_symlink(here / "first"));
    EXPECT_TRUE(fs::is_symlink(there / "second"));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(there / "x.npy")));
    EXPECT_EQ(load_npy(there / "x.npy").numel(), count);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(there), {}), 2) << "nothing is left behind";
  fs::create_symlink("round", here / "round");
  EXPECT_THAT(error_of([&] { save_npy(here / "round", filled(1, 1)); }),
              StartsWith("file-unwritable"));
  fs::create_symlink("../there", here / "folder");
  EXPECT_THAT(error_of([&] { save_npy(here / "folder", filled(1, 1)); }), StartsWith("file-kind"));
  save_npy(here / "folder" / "y.npy", filled(2, 1));
  EXPECT_EQ(load_npy(there / "y.npy").numel(), 2);
}

TEST(Npy, WritesThroughNoLinkOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give links away";
  const TemporaryFolder temporary;
  const fs::path file = temporary.path / "x.npy", link = temporary.path / "link";
  save_npy(file, filled(4, 1));
  fs::create_symlink(file, link);
  ASSERT_EQ(lchown(link.c_str(), 12345, 0), 0);
  EXPECT_THAT(error_of([&] { save_npy(link, filled(1, 1)); }),
              AllOf(StartsWith("file-unwritable"), HasSubstr("belongs to user 12345"),
                    HasSubstr("name what the link points to")));
  EXPECT_EQ(load_npy(file).numel(), 4) << "and stays as it was";
}

TEST(Npy, NothingStaysOfAWriterThatIsKilled) {
  const TemporaryFolder temporary;
  const int unnamed = open(temporary.path.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
  if (unnamed < 0) GTEST_SKIP() << "the file system has no files without names";
  close(unnamed);
  const fs::path file = temporary.path / "x.npy";
  for (const int64_t count : {3, 4}) {
    const pid_t child = fork();
    if (child == 0) {
      FileWriter writer(file);
      writer.append("a beginning");
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(std::distance(fs::directory_iterator(temporary.path), {}), count - 3);
    save_npy(file, filled(count, 1));
    EXPECT_EQ(load_npy(file).numel(), count);
  }
}

TEST(Npy, AFileThatIsNotPublishedCanBeReadByItsWriterAndLeavesNothing) {
  const TemporaryFolder temporary;
  const std::string file = (temporary.path / "never").string();
  {
    FileWriter writer(file);
    writer.append("some");
    writer.append(" bytes");
    std::ifstream reader(writer.reading_path(), std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), "some bytes");
    EXPECT_FALSE(fs::exists(file));
  }
  EXPECT_TRUE(fs::is_empty(temporary.path));
}

TEST(Npy, WritingReplacesTheFileAtOnce) {
  const std::string folder = temporary_path("npy_folder");
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/x.npy";
  save_npy(path, filled(3, 1));
  std::ifstream old(path, std::ios::binary);
  save_npy(path, filled(4, 2));
  const std::string content((std::istreambuf_iterator<char>(old)), {});
  EXPECT_EQ(parse(content).numel(), 3) << "who had it open reads the old one";
  EXPECT_EQ(load_npy(path).numel(), 4);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1)
      << "nothing is left behind";
  EXPECT_THAT(error_of([&] { save_npy(folder + "/no/x.npy", filled(1, 1)); }),
              StartsWith("file-unwritable"));
  EXPECT_THAT(error_of([&] { save_npy(folder, filled(1, 1)); }), StartsWith("file-kind"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace braze::test
