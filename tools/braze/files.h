// files.h — keeps a command from overwriting the files that it reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace braze::tool {

/// A file that a command reads, and its use: "holds the weights".
struct ReadFile {
  std::string path;
  std::string_view what;
};

/// Usage failure if one of the files to be written is also to be read, or is to be written twice,
/// under any names or links. Empty paths are not files.
void check_overwrites(const std::vector<ReadFile>& read, const std::vector<std::string>& written);

}  // namespace braze::tool
