#include "tools/braze/files.h"

#include <fmt/format.h>

#include <filesystem>

#include "tools/braze/command.h"

namespace braze::tool {

namespace {

namespace fs = std::filesystem;

// The path at which a file would appear, behind all links, including links to files that do not
// exist yet.
fs::path destination(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::error_code error;
  for (int links = 0; links < kMostLinks && fs::is_symlink(path, error); ++links)
    path = path.parent_path() / fs::read_symlink(path, error);
  return fs::weakly_canonical(fs::absolute(path, error), error);
}

bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code is_missing;
  return fs::equivalent(a, b, is_missing) || destination(a) == destination(b);
}

}  // namespace

void check_overwrites(const std::vector<ReadFile>& read, const std::vector<std::string>& written) {
  for (size_t i = 0; i < written.size(); ++i) {
    for (const ReadFile& file : read)
      if (is_same_file(file.path, written[i]))
        fail_usage(fmt::format("{} {}, but an output would replace it; choose another output",
                               file.path, file.what));
    for (size_t j = 0; j < i; ++j)
      if (is_same_file(written[j], written[i]))
        fail_usage(fmt::format("two outputs have the same file, {}; choose another for one of them",
                               written[i]));
  }
}

}  // namespace braze::tool
