// space.h — the iteration space that the nodes of a Fusion share.
//
// A Fusion can be one kernel if its reductions and outputs can be computed together: all of them
// run over parallel axes p0, p1, ..., and every instance makes one or more passes over inner axes.
// A pass accumulates reductions over its inner axes, or stores outputs over them, or both, and it
// can read the reductions of earlier passes. Softmax over rows has parallel [m]; pass 0 reduces the
// maximum, pass 1 the sum of exponentials, and pass 2 stores the quotients.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"

namespace braze {

/// One axis of the space. The symbol ranges over [0, extent).
struct SpaceAxis {
  Expr symbol;
  Expr extent;
};

/// A node that is computed at coordinates over the symbols of the parallel axes and of the pass's
/// inner axes.
struct SpaceTask {
  NodeId node;
  std::vector<Expr> at;         ///< per axis of the node's domain
  std::vector<Expr> reduction;  ///< per reduction axis; empty for stores
  /// Whether it runs the body of a reduction; otherwise it computes the node's value.
  bool accumulates = false;
};

struct Pass {
  std::vector<SpaceAxis> inner;
  std::vector<SpaceTask> reduces;
  std::vector<SpaceTask> stores;
};

struct Space {
  std::vector<SpaceAxis> parallel;
  std::vector<Pass> passes;
  /// The pass whose only reduction is placed, and the parallel axis that has its places.
  struct Placed {
    size_t pass = 0, axis = 0;
  };
  std::optional<Placed> placed = {};
  /// Whether the only pass has scans along its one inner axis, with the stores of what they make.
  bool running = false;
};

/// The axes over which a pass computes: the parallel axes (without the one that has the places of a
/// placed reduction), and then the inner axes.
std::vector<SpaceAxis> axes_of(const Space& space, size_t pass);
/// Whether nothing is reduced and all results have the parallel axes.
bool is_pointwise(const Space& space);
/// The value to which the terms of a placed reduction are added, at its coordinates.
SpaceTask start_of(const LoopForms& forms, const SpaceTask& placed);

/// Why nodes share no space: a code of fusion/reasons.h and the nodes concerned.
struct NoSpace {
  const Code* code = nullptr;
  NodeId first, second;
  std::string detail;
};

/// Finds the space of `fusion`.
std::variant<Space, NoSpace> find_space(const LoopForms& forms, const Fusion& fusion);

/// A place in memory that one element of a pass reads.
struct MemoryAccess {
  NodeId node;
  std::vector<Expr> at;
  bool conditional = false;
  bool indirect = false;  ///< whether an index was loaded at run time
};
/// What inlining finds out about one element of a pass.
struct PassTrace {
  std::vector<MemoryAccess> loads;
  std::vector<NodeId> reduced;  ///< inner reductions that the pass reads
  /// Machine operations for one element. Math rows count by their approximate length.
  double flops = 0;
  double uniform_flops = 0;  ///< the part of `flops` that is the same along the innermost loop
};
/// A value that several passes compute at the same coordinates and that is worth keeping.
struct SharedValue {
  NodeId node;
  std::vector<Expr> at;  ///< over the space's symbols
  size_t first_pass;
};
std::vector<SharedValue> shared_values(const LoopForms& forms, const Fusion& fusion,
                                       const Space& space);

/// The value of a node at coordinates over the space's symbols.
struct ValueAt {
  NodeId node;
  std::vector<Expr> at;
};
/// The values that a task evaluates without conditions. Users come before their operands, and
/// values in memory come last. The operands of `kept` values are left out.
std::vector<ValueAt> visited_values(const LoopForms& forms, const Fusion& fusion,
                                    const SpaceTask& task, std::span<const SharedValue> kept);

/// Traces the evaluation of one task, or of a whole pass. The tasks of a pass share what they have
/// in common, and values in `kept` need no evaluation. `inside[i]` says whether node i is part of
/// the kernel. `lane` may name the symbol of the innermost loop, for a pass without inner axes.
PassTrace trace(const LoopForms& forms, const std::vector<bool>& inside, const SpaceTask& task);
PassTrace trace(const LoopForms& forms, const Fusion& fusion, const SpaceTask& task);
PassTrace trace(const LoopForms& forms, const Fusion& fusion, const Pass& pass,
                std::span<const SharedValue> kept = {}, std::string_view lane = {});

/// The number of machine operations of a row; math rows count by their approximate length.
double operation_cost(ElementwiseOp op);

/// The element offset of an access in its row-major tensor.
Expr linear_offset(const std::vector<Expr>& at, const Shape& shape);

/// For each node of the graph, whether it is in the list.
std::vector<bool> membership(const Graph& graph, const std::vector<NodeId>& nodes);

}  // namespace braze
