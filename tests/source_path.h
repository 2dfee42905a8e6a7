// source_path.h — where the tests find their texts.
#pragma once

#include <cstdlib>
#include <string>

namespace braze::test {

/// A path below the source folder, or below BRAZE_SOURCE_DIR where a bundle was unpacked.
inline std::string source_path(const std::string& relative) {
  const char* moved = std::getenv("BRAZE_SOURCE_DIR");
  return std::string(moved ? moved : BRAZE_SOURCE_DIR) + "/" + relative;
}

}  // namespace braze::test
