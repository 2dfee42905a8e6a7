// check.h — decides whether the results of an implementation are right.
//
// Where the promises (reference.h) leave no choice, results must be equal to those of the
// interpreter, bit for bit. Elsewhere they must be within the bounds of the reference. Tests,
// fuzzing and `braze compare` use this.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braze/precision.h"
#include "ir/graph/graph.h"
#include "ir/values/compare.h"

namespace braze {

/// Whether every implementation must compute `id` bit for bit as the interpreter does. This is so
/// if it depends on no reduction, contraction or scatter and on no math row (not even in the body
/// of a formula row), if no row of which it is made may be computed coarsely (coarse.h), and if
/// `id` is not made from the bits of floats as integers, because the bits of a NaN are not
/// promised.
bool is_exact(const Graph& graph, NodeId id);

struct OutputCheck {
  std::string name;
  bool exact = false;  ///< compared bit for bit with the interpreter; otherwise with the reference
  Comparison comparison;
};

struct CheckResult {
  bool ok = true;  ///< no element is out of its bound
  std::vector<OutputCheck> outputs;

  /// The summary of all outputs.
  Coverage coverage() const;
  /// One line for each output: "out 'y' (bound): max error 0.31 of its bound at [3, 17]: ...".
  std::string summary() const;
};

/// What a graph promises of its outputs for some inputs. It is computed when it is first needed,
/// and then serves all implementations that are judged.
class ExpectedOutputs {
 public:
  /// In fast precision no output has to be exact. `by_nccl` has the reductions that NCCL makes,
  /// which are judged less strictly (reference.h).
  ExpectedOutputs(Graph graph, std::vector<HostTensor> inputs,
                  Precision precision = Precision::Standard, std::vector<NodeId> by_nccl = {});

  /// Judges `got`, the outputs of an implementation. Throws InvalidArgument if their number is
  /// wrong.
  CheckResult check(std::span<const HostTensor> got);

 private:
  Graph graph_;
  std::vector<HostTensor> inputs_;
  Precision precision_;
  std::vector<NodeId> by_nccl_;
  std::optional<std::vector<HostTensor>> interpreted_;
  std::optional<std::vector<Bounded>> referenced_;
};

/// Judges one implementation: ExpectedOutputs, used once.
CheckResult check_outputs(const Graph& graph, std::span<const HostTensor> inputs,
                          std::span<const HostTensor> got,
                          Precision precision = Precision::Standard,
                          std::span<const NodeId> by_nccl = {});

}  // namespace braze
