// space.h — the iteration space that the nodes of a Fusion share.
//
// A Fusion is one kernel if its reductions and outputs can be computed together: there are parallel
// axes p0, p1, ... over which all of them run, and every instance makes one or more passes over
// inner axes. A pass accumulates reductions over its inner axes, stores outputs over them, or both;
// a pass sees the reductions of the passes before it. Softmax over rows: parallel [m]; pass 0
// reduces the maximum, pass 1 the sum of exponentials, pass 2 stores the quotients.
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

/// A node computed at coordinates over the symbols of the parallel and the pass's inner axes.
struct SpaceTask {
  NodeId node;
  std::vector<Expr> at;         ///< per axis of the node's domain
  std::vector<Expr> reduction;  ///< per reduction axis; empty for stores
  bool accumulates = false;     ///< runs the body of a reduction; else takes the node's value
};

struct Pass {
  std::vector<SpaceAxis> inner;
  std::vector<SpaceTask> reduces;
  std::vector<SpaceTask> stores;
};

struct Space {
  std::vector<SpaceAxis> parallel;
  std::vector<Pass> passes;
  /// The pass whose only reduction is placed, and the parallel axis of its places.
  struct Placed {
    size_t pass = 0, axis = 0;
  };
  std::optional<Placed> placed = {};
  /// The only pass has scans along its one inner axis, and the stores of what they make.
  bool running = false;
};

/// The axes over which a pass computes: the parallel axes, without the axis of the places of a
/// placed reduction, and then the inner axes.
std::vector<SpaceAxis> axes_of(const Space& space, size_t pass);
/// Whether nothing is reduced and all results have the parallel axes. Such kernels are made from
/// loop trees.
bool is_pointwise(const Space& space);
/// The value that the terms of a placed reduction are added to, at its coordinates.
SpaceTask start_of(const LoopForms& forms, const SpaceTask& placed);

/// Why nodes do not share a space; a code of fusion/reasons.h and the nodes concerned.
struct NoSpace {
  const Code* code = nullptr;
  NodeId first, second;
  std::string detail;
};

/// Finds the space of `fusion`.
std::variant<Space, NoSpace> find_space(const LoopForms& forms, const Fusion& fusion);

/// What one element of a pass accesses, found by inlining.
struct MemoryAccess {
  NodeId node;
  std::vector<Expr> at;
  bool conditional = false;
  bool indirect = false;  ///< an index was loaded at run time
};
struct PassTrace {
  std::vector<MemoryAccess> loads;
  std::vector<NodeId> reduced;  ///< inner reductions that it reads
  double flops =
      0;  ///< machine operations for an element; math rows count by their approximate length
  double uniform_flops = 0;  ///< those that are the same along the innermost loop
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
/// What a task evaluates unconditionally, users before their operands and values in memory last.
/// Operands of `kept` values are left out.
std::vector<ValueAt> visited_values(const LoopForms& forms, const Fusion& fusion,
                                    const SpaceTask& task, std::span<const SharedValue> kept);

/// Traces the evaluation of one task, or of a whole pass. The tasks of a pass share what they have
/// in common, and values in `kept` are already available. `inside[i]` says that node i is part of
/// the kernel. If `lane` names a symbol, it is the innermost loop of a pass without inner axes.
PassTrace trace(const LoopForms& forms, const std::vector<bool>& inside, const SpaceTask& task);
PassTrace trace(const LoopForms& forms, const Fusion& fusion, const SpaceTask& task);
PassTrace trace(const LoopForms& forms, const Fusion& fusion, const Pass& pass,
                std::span<const SharedValue> kept = {}, std::string_view lane = {});

/// The number of machine operations of a row; math rows count by their approximate length.
double operation_cost(ElementwiseOp op);

/// The element offset of an access in its row-major tensor.
Expr linear_offset(const std::vector<Expr>& at, const Shape& shape);

/// `flags[i]` says that node i is in the list.
std::vector<bool> membership(const Graph& graph, const std::vector<NodeId>& nodes);

}  // namespace braze
