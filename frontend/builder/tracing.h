// tracing.h — from a C++ function of Tensors to a graph, for the functions that compile it.
#pragma once

#include <mutex>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "braze/jit.h"
#include "frontend/builder/builder.h"
#include "ir/graph/check.h"

namespace braze::detail {

/// One function, and what its calls have in common.
struct Tracer {
  std::string name;
  std::vector<int> donate;          ///< positions of arguments
  std::vector<std::string> inputs;  ///< names of arguments
  std::source_location where;
  /// By who runs the user's function, which may not be thread-safe.
  mutable std::mutex mutex = {};

  std::string argument_name(int position) const;
  /// Throws unless all donated arguments are there.
  void check_donations(const TracedCall& call) const;
  /// Throws if this thread is tracing the function already.
  void refuse_recursion() const;
  /// What the function builds for arguments of these types; over `mesh`, if there is one.
  Graph trace(const TracedCall& call, const std::vector<Spec>& specs, Traced& traced,
              const TracedMesh* mesh = nullptr) const;

 private:
  using Places = std::vector<std::pair<int, std::string>>;
  void set_outputs(Graph& graph, const Builder& builder, const Traced& traced,
                   const std::vector<Tensor>& arguments, const Places& places) const;
  /// What `update` said of a result has become of it.
  void check_updates(const Builder& builder, const Traced& traced,
                     const std::vector<Tensor>& arguments,
                     const std::vector<GraphOutput>& outputs) const;
};

/// What `check` says of a result.
CheckReport report_of(const CheckResult& result);

}  // namespace braze::detail
