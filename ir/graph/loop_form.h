// loop_form.h — describes every op as a loop: by a domain, index maps, a scalar body and a monoid.
//
// Fusion, tiling and lowering see only this; they never name a graph op. The result of a node at
// index (d0, d1, ...) is its body evaluated there. With a monoid it is the combination of the body
// over all (r0, r1, ...) of the reduction domain, in increasing row-major order (which a schedule
// may change within the error bound). In a placed reduction, each term has a place along one axis
// of the result, which is an index that is read at run time. An element combines only the terms
// whose place is its own index, always in that order, with an element that existed before. In a
// scan, each index of one axis of the domain combines only the terms up to its own. The terms of a
// scan may be tuples, which a body combines (combiner.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// `min <= value < limit`, a condition under which a load takes place.
struct RangeCondition {
  Expr value, min, limit;
  friend bool operator==(const RangeCondition&, const RangeCondition&) = default;
};

/// One step of a body. Steps are numbered in order, and the value of the last one is that of the
/// body.
struct BodyStep {
  enum class Kind : uint8_t {
    Load,      ///< operand `operand` at `index`; unspecified if `conditions` do not hold
    Index,     ///< the value of `expr` as an integer of `dtype`
    Constant,  ///< `bits` of `dtype`
    Inside,    ///< bool: all `conditions` hold
    Apply,     ///< elementwise op on earlier values
  };
  Kind kind = Kind::Apply;
  DType dtype = DType::F32;
  uint32_t operand = 0;
  /// Expressions over d0.., r0.., the graph's symbols, and v<k>, the integer value of step k.
  std::vector<Expr> index = {};
  Expr expr = {};
  uint64_t bits = 0;
  std::vector<RangeCondition> conditions = {};
  ElementwiseOp op{};
  std::vector<uint32_t> arguments = {};
};

/// The places of the terms of a placed reduction, whose body does not depend on `axis`. Without a
/// monoid a term replaces the element at its place.
struct Placement {
  size_t axis = 0;       ///< of the domain
  uint32_t indices = 0;  ///< operand whose element at `at`, clamped to the axis, is a term's place
  std::vector<Expr> at;  ///< over r0, r1, ...
  uint32_t start = 0;    ///< operand whose element at (d0, d1, ...) the terms are combined with
};

/// The axis of a scan. Unlike a reduction, a scan keeps the axis along which it combines.
struct RunningAxis {
  size_t axis = 0;         ///< of the domain; the terms of index d are r0 = 0 .. d
  bool reverse = false;    ///< the terms of index d are r0 = d, d + 1, ...
  bool exclusive = false;  ///< r0 = d is left out
  Combiner combiner;       ///< what combines the terms
  /// The steps of the body that make the parts of a term, if it is a tuple.
  std::vector<uint32_t> parts = {};
  size_t part = 0;  ///< of the combined terms: the one that is the result
};

struct LoopForm {
  std::vector<Expr> domain;     ///< extents of d0, d1, ...: the result's shape
  std::vector<Expr> reduction;  ///< extents of r0, r1, ...; empty if nothing is combined
  std::vector<BodyStep> body;
  std::optional<Monoid> monoid;  ///< also of a scan, if one combines its terms
  /// For an arg-reduction, whose result is the first r0 with the greatest (true) or least body.
  std::optional<bool> arg_max;
  std::optional<Placement> placement;  ///< of a placed reduction
  std::optional<RunningAxis> running;  ///< of a scan
  DType accumulator = DType::F32;      ///< dtype in which the monoid combines
  DType result = DType::F32;
  /// Operands that must exist before the result is computed, although they are not read.
  std::vector<uint32_t> waits_for;
  bool tf32 = false;    ///< factors of its products may be rounded to tf32
  bool is_dot = false;  ///< a contraction: the body ends in the product of its two factors

  bool reduces() const {
    return monoid.has_value() || arg_max.has_value() || placement.has_value() ||
           running.has_value();
  }
  /// The number of times that the body is computed, at the largest extents.
  double largest_elements() const {
    double out = 1;
    for (const auto* extents : {&domain, &reduction})
      for (const Expr& extent : *extents) out *= static_cast<double>(extent.range().max);
    return out;
  }
};

/// The loop form of a node. Nullopt for nodes that are read from memory (inputs, dense constants
/// and the place of the device), and for collectives and custom calls, which are no loops.
std::optional<LoopForm> loop_form(const Graph& graph, NodeId node);

/// Symbols of loop forms: "d<axis>" over [0, extent) and "r<axis>".
Expr domain_symbol(size_t axis, const Expr& extent);
Expr reduction_symbol(size_t axis, const Expr& extent);

}  // namespace braze
