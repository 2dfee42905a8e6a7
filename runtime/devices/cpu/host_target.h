// host_target.h — the machine that this process runs on, as a Target.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "braze/error.h"
#include "ir/target/target.h"

namespace braze {

namespace codes {
inline constexpr Code kUnsupportedCpu{"unsupported-cpu", ErrorKind::Unsupported,
                                      "The processor lacks instructions that generated code uses."};
}  // namespace codes

/// The names of the instruction sets that the processor and the system have, of those that the
/// table of targets asks for: "avx2", "fma", "avx512f" ...
std::vector<std::string_view> host_features();

/// Of the instruction sets that code for `target` uses, those that are not in `features`.
std::vector<std::string_view> missing_features(const Target& target,
                                               const std::vector<std::string_view>& features);

/// The best row of the table that a processor with `features` runs, or the row called `wanted`.
/// Unsupported, with what is missing and what works all the same, if there is none.
Target choose_target(const std::vector<std::string_view>& features,
                     const std::optional<std::string>& wanted);

/// The cores that this process may use: affinity and the limits of its control group.
int usable_cores();

/// The target of a CPU device with this many threads: the row, which BRAZE_CPU_TARGET can name,
/// with the sizes of this host's caches and speeds typical for its class. Throws as choose_target.
Target host_target(int threads);

}  // namespace braze
