// temporary_folder.h — a folder for one test, which only its user can enter.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace braze::test {

/// A new folder, removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = std::filesystem::path(::testing::TempDir()) / "braze-test-XXXXXX";
    if (!mkdtemp(name.data())) ADD_FAILURE() << "cannot make " << name;
    path = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

}  // namespace braze::test
