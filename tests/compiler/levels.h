// levels.h — kernels of a compilation one level above: as tile programs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

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

  /// The compiled program with tile programs in place of kernels, each of which is a launch.
  Program in(Program program) const {
    std::vector<Launch> launches;
    for (const Launch& launch : program.launches) {
      if (!launch.is_kernel()) {
        launches.push_back(launch);
        continue;
      }
      const std::string& name = launch.members.empty() ? launch.name : launch.members[0];
      program.artifacts[launch.artifact] = {"tile", name, tiles_.at(name), {}};
      const size_t count = launch.buffers.size() / launch.member_count();
      for (size_t member = 0; member < launch.member_count(); ++member) {
        Launch& one = launches.emplace_back(launch);
        const auto first = launch.buffers.begin() + static_cast<ptrdiff_t>(member * count);
        one.members.clear();
        one.buffers.assign(first, first + static_cast<ptrdiff_t>(count));
        std::erase_if(one.zeroed, [&](uint32_t slot) {
          return std::ranges::find(one.buffers, slot) == one.buffers.end();
        });
      }
    }
    program.launches = std::move(launches);
    return program;
  }

 private:
  std::map<std::string, std::string> tiles_;
};

}  // namespace braze::testing
