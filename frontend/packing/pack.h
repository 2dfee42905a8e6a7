// pack.h — the steps of save_package, for functions of any origin.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "braze/error.h"
#include "braze/pack.h"
#include "ir/program/program.h"
#include "ir/target/target.h"

namespace braze {

namespace codes {
inline constexpr Code kPackTarget{"pack-target", ErrorKind::InvalidArgument,
                                  "A package cannot hold code for these targets."};
inline constexpr Code kPackFunction{"pack-function", ErrorKind::InvalidArgument,
                                    "A package cannot hold these functions."};
inline constexpr Code kPackWeights{"pack-weights", ErrorKind::InvalidArgument,
                                   "Weights do not fit the functions of a package."};
}  // namespace codes

/// A function, and how it is compiled for a machine.
struct PackSource {
  std::string name;
  std::function<Program(const Target&, const CompileOptions&)> compile;
};

/// All targets for which the package will hold code.
std::vector<Target> pack_targets(const PackOptions& options);

PackSummary save_package(const std::string& path, const std::vector<PackSource>& functions,
                         const PackOptions& options);

}  // namespace braze
