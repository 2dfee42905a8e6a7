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

namespace braze {

namespace codes {
inline constexpr Code kSpecMismatch{"spec-mismatch", ErrorKind::InvalidArgument,
                                    "An argument does not fit its declaration."};
}  // namespace codes

namespace detail {

/// The type of one array of the arguments, in the form that a call is compared with.
class LeafSignature {
 public:
  explicit LeafSignature(const Spec& spec);
  bool admits(const Array& array) const;
  bool admits(size_t axis, int64_t extent) const;

 private:
  struct Extent {
    int64_t least, greatest, divisor;
  };
  DType dtype_;
  std::vector<Extent> extents_;
};

/// One function, and what its calls have in common.
struct Tracer {
  std::string name;
  std::vector<int> donate;          ///< positions of arguments
  std::vector<std::string> inputs;  ///< names of arguments
  std::source_location where;
  /// By who runs the user's function, which may not be thread-safe.
  mutable std::mutex mutex = {};

  std::string argument_name(int position) const;
  /// The types to compile for: by position of the argument what was declared, else what came.
  std::vector<Spec> leaf_specs(const TracedCall& call, const std::vector<Spec>& specs) const;
  /// Throws unless all donated arguments are there.
  void check_donations(const TracedCall& call) const;
  /// Throws if a number is no value of a dtype that it takes.
  void check_numbers(const FlatCall& flat, const TracedCall& call,
                     const std::vector<NumberUse>& uses) const;
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

}  // namespace detail
}  // namespace braze
