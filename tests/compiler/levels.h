// levels.h — kernels of a compilation one level above: as tile programs.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "braze/compile.h"
#include "ir/code/text.h"
#include "ir/program/program.h"

namespace braze::testing {

/// Notes a compilation's tile programs by their kernels' names. Those and the kernels must read as
/// they were printed.
class TileTexts {
 public:
  /// The observer of one compilation, during which this must live.
  std::function<void(const CompilePhase&)> observer() {
    return [this](const CompilePhase& phase) {
      if (phase.stage != "tile" && phase.stage != "kernel") return;
      const std::string text = phase.text();
      if (phase.stage == "tile") {
        EXPECT_EQ(to_text(parse_tile(text, "tile")), text);
        tiles_.emplace(phase.kernel, text);
      } else {
        EXPECT_EQ(to_text(parse_kernel(text, "kernel")), text);
      }
    };
  }

  /// The compiled program with tile programs in place of kernels.
  Program in(Program program) const {
    for (Artifact& artifact : program.artifacts)
      artifact = {"tile", artifact.kernel, tiles_.at(artifact.kernel), {}};
    return program;
  }

 private:
  std::map<std::string, std::string> tiles_;
};

}  // namespace braze::testing
