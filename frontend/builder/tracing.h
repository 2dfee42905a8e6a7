// tracing.h — runs a C++ function of Tensors to get its graph, for the functions that compile it.
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

/// The type of one array of the arguments, in a form that is quickly compared with a call's array.
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

/// One function, and what all of its calls have in common.
struct Tracer {
  std::string name;
  std::vector<int> donate;          ///< the positions of the donated arguments
  std::vector<std::string> inputs;  ///< the names of the arguments
  std::source_location where;
  /// Held while the user's function runs, because it may not be thread-safe.
  mutable std::mutex mutex = {};

  std::string argument_name(int position) const;
  /// The types to compile for: the declared type of an argument, else the type that the call has.
  std::vector<Spec> leaf_specs(const TracedCall& call, const std::vector<Spec>& specs) const;
  /// Throws if an argument that is to be donated does not exist.
  void check_donations(const TracedCall& call) const;
  /// Throws if a number is not a value of a dtype that it takes in the function.
  void check_numbers(const FlatCall& flat, const TracedCall& call,
                     const std::vector<NumberUse>& uses) const;
  /// Throws if this thread is already tracing the function.
  void refuse_recursion() const;
  /// The graph that the function builds for arguments of these types. It runs over `mesh`, if that
  /// is given.
  Graph trace(const TracedCall& call, const std::vector<Spec>& specs, Traced& traced,
              const TracedMesh* mesh = nullptr) const;

 private:
  using Places = std::vector<std::pair<int, std::string>>;
  void set_outputs(Graph& graph, const Builder& builder, const Traced& traced,
                   const std::vector<Tensor>& arguments, const Places& places) const;
  /// Throws unless every result took over the argument that `update` gave it.
  void check_updates(const Builder& builder, const Traced& traced,
                     const std::vector<Tensor>& arguments,
                     const std::vector<GraphOutput>& outputs) const;
};

/// The report of `check` about a result.
CheckReport report_of(const CheckResult& result);

}  // namespace detail
}  // namespace braze
