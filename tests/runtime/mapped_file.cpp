#include "runtime/io/mapped_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class MappedFileTest : public testing::Test {
 protected:
  fs::path write(const fs::path& name, std::string_view content = "content") const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << content;
    chmod(path.c_str(), 0600);
    return path;
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path;
};

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

template <class Open>
void expect_error(Open&& open, const Code& code, const std::string& text) {
  try {
    open();
    FAIL() << "no error; expected " << code.name;
  } catch (const Error& error) {
    EXPECT_EQ(error.code().name, code.name) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

void expect_distrust(const fs::path& path, const std::string& cause, const std::string& fix) {
  expect_error([&] { MappedFile::open_trusted(path); }, codes::kFileUntrusted, cause);
  expect_error([&] { MappedFile::open_trusted(path); }, codes::kFileUntrusted, fix);
  EXPECT_EQ(text_of(*MappedFile::open(path)), "content") << "data may come from anywhere";
}

TEST_F(MappedFileTest, HoldsTheFile) {
  const fs::path path = write("file");
  for (const auto open : {MappedFile::open, MappedFile::open_trusted}) {
    const auto file = open(path);
    EXPECT_EQ(text_of(*file), "content");
    EXPECT_EQ(file->path(), path);
    fs::remove(path);
    EXPECT_EQ(text_of(*file), "content") << "it outlives its name";
    write("file");
  }
  EXPECT_TRUE(MappedFile::open(write("empty", ""))->bytes().empty());
}

TEST_F(MappedFileTest, WhatIsNoFileIsAnError) {
  write("file");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const auto open : {MappedFile::open, MappedFile::open_trusted}) {
    const auto opening = [&](const fs::path& name) { return [=, this] { open(folder_ / name); }; };
    expect_error(opening("absent"), codes::kFileMissing, "does not exist");
    expect_error(opening("file/below"), codes::kFileKind, "a part of the path is not a folder");
    expect_error([&] { open(folder_.string() + std::string("/file\0", 6)); }, codes::kFilePath,
                 "NUL byte");
    expect_error([&] { open(""); }, codes::kFileMissing, "does not exist");
    expect_error(opening("."), codes::kFileKind, "not a regular file");
    expect_error([&] { open("/"); }, codes::kFileKind, "not a regular file");
    expect_error(opening("pipe"), codes::kFileKind, "not a regular file");
    expect_error([&] { open("/dev/null"); }, codes::kFileKind, "not a regular file");
  }
}

TEST_F(MappedFileTest, PermissionsAreNamed) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const fs::path path = write("file");
  chmod(path.c_str(), 0);
  expect_error([&] { MappedFile::open(path); }, codes::kFileDenied, "permission denied");
  expect_error([&] { MappedFile::open_trusted(path); }, codes::kFileDenied, "permission denied");
}

TEST_F(MappedFileTest, CodeComesFromFilesThatNoOtherCanWrite) {
  const fs::path path = write("file");
  chmod(path.c_str(), 0660);
  expect_distrust(path, "written by its group", "chmod go-w " + path.string());
  chmod(path.c_str(), 0606);
  expect_distrust(path, "written by everybody", "chmod go-w " + path.string());
  chmod(path.c_str(), 0644);
  EXPECT_EQ(text_of(*MappedFile::open_trusted(path)), "content");
}

TEST_F(MappedFileTest, CodeComesFromFoldersThatNoOtherCanWrite) {
  const fs::path path = write("a/b/file");
  const fs::path folder = folder_ / "a";
  chmod(folder.c_str(), 0777);
  expect_distrust(path, folder.string() + " can be written by everybody",
                  "chmod go-w " + folder.string());
  chmod(folder.c_str(), 0770);
  expect_distrust(path, "by its group", "chmod go-w " + folder.string());
  chmod(folder.c_str(), 01777);
  EXPECT_EQ(text_of(*MappedFile::open_trusted(path)), "content") << "sticky, as /tmp";
  EXPECT_NO_THROW(open_trusted_folder(folder / "b"));
  expect_error([&] { open_trusted_folder(folder); }, codes::kFileUntrusted, "by everybody");
}

TEST_F(MappedFileTest, CodeComesFromFilesOfThisUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const fs::path path = write("a/file");
  ASSERT_EQ(chown(path.c_str(), 12345, 0), 0);
  expect_distrust(path, "belongs to user 12345", "copy it");
  ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  ASSERT_EQ(chown((folder_ / "a").c_str(), 12345, 0), 0);
  expect_distrust(path, "belongs to user 12345", "copy it");
}

TEST_F(MappedFileTest, LinksAreFollowedAmongFoldersOnly) {
  const fs::path path = write("real/file");
  fs::create_symlink("real/file", folder_ / "link");
  expect_distrust(folder_ / "link", "is a symbolic link", "name what the link points to");
  fs::create_directory(folder_ / "b");
  fs::create_symlink("../real", folder_ / "b/relative");
  fs::create_symlink(folder_ / "b/relative", folder_ / "absolute");
  EXPECT_EQ(text_of(*MappedFile::open_trusted(folder_ / "b/relative/file")), "content");
  EXPECT_EQ(text_of(*MappedFile::open_trusted(folder_ / "absolute/../real/./file")), "content");
  expect_error([&] { open_trusted_folder(folder_ / "absolute"); }, codes::kFileUntrusted,
               "is a symbolic link");
  // The folders on a link's way are judged like those in the path.
  chmod((folder_ / "b").c_str(), 0777);
  expect_distrust(folder_ / "absolute/file", "written by everybody", "chmod go-w");
  chmod((folder_ / "b").c_str(), 0755);
  fs::create_symlink("round", folder_ / "round");
  expect_error([&] { open_trusted_folder(folder_ / "round/x"); }, codes::kFileUnreadable,
               "symbolic links");
}

TEST_F(MappedFileTest, LinksOfAnotherUserAreNotFollowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give links away";
  write("real/file");
  fs::create_symlink("real", folder_ / "link");
  ASSERT_EQ(lchown((folder_ / "link").c_str(), 12345, 0), 0);
  expect_distrust(folder_ / "link/file", "belongs to user 12345", "copy it");
}

TEST_F(MappedFileTest, RelativePathsBeginWhereTheProcessIs) {
  write("a/file");
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(text_of(*MappedFile::open_trusted("a/file")), "content");
  EXPECT_EQ(text_of(*MappedFile::open_trusted("./a/../a/file")), "content");
  fs::current_path(before);
}

}  // namespace
}  // namespace braze::test
