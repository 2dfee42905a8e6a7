// files.h — what a command reads stays as it is, whatever it writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braze::tool {

/// A file that a command reads, and what it is to the command: "holds the weights".
struct ReadFile {
  std::string path;
  std::string_view what;
};

/// Usage failure if one of the files to be written is one of those to be read, or another one to
/// be written, by whatever names or links. Empty paths are no files.
void check_overwrites(const std::vector<ReadFile>& read, const std::vector<std::string>& written);

}  // namespace braze::tool
