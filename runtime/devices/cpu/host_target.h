// host_target.h — the machine on which this process runs, as a Target.
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

/// The names of the instruction sets in the table of targets that the processor and the system
/// support: "avx2", "fma", "avx512f" ...
std::vector<std::string_view> host_features();

/// The instruction sets that code for `target` uses and that are not in `features`.
std::vector<std::string_view> missing_features(const Target& target,
                                               const std::vector<std::string_view>& features);

/// The best row of the table that a processor with `features` can run, or the row called `wanted`.
/// If there is none, Unsupported says what is missing and what works nevertheless.
Target choose_target(const std::vector<std::string_view>& features,
                     const std::optional<std::string>& wanted);

/// The number of cores that this process may use, by its affinity and its control group.
int usable_cores();

/// The target of a CPU device with this number of threads: the row, which BRAZE_CPU_TARGET can
/// name, with the cache sizes of this host and the speeds that are typical for its class. Throws
/// like choose_target.
Target host_target(int threads);

}  // namespace braze
