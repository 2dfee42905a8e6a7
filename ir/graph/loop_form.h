// loop_form.h — every op as a loop: domain, index maps, a scalar body, a monoid.
//
// Fusion, tiling and lowering see only this; they never name a graph op. The result of a node at
// index (d0, d1, ...) is its body evaluated there or, with a monoid, the body combined over all
// (r0, r1, ...) of the reduction domain in increasing row-major order (which a schedule may
// change within the error bound). Of a placed reduction every index of one axis of the result
// combines only those terms whose place, an index read at run time, it is: always in that order,
// and to an element that was there before. Of a scan every index of one axis of the domain
// combines only the terms up to its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// `min <= value < limit`, one condition under which a load takes place.
struct RangeCondition {
  Expr value, min, limit;
  friend bool operator==(const RangeCondition&, const RangeCondition&) = default;
};

/// One step of a body; values are numbered in order and the last one is the body's value.
struct BodyStep {
  enum class Kind : uint8_t {
    Load,      ///< operand `operand` at `index`; unspecified where `conditions` fail
    Index,     ///< the value of `expr` as an integer of `dtype`
    Constant,  ///< `bits` of `dtype`
    Inside,    ///< bool: all `conditions` hold
    Apply,     ///< elementwise op on earlier values
  };
  Kind kind = Kind::Apply;
  DType dtype = DType::F32;
  uint32_t operand = 0;
  /// Over the symbols d0.., r0.., the graph's symbols, and v<k>: the integer value of step k.
  std::vector<Expr> index = {};
  Expr expr = {};
  uint64_t bits = 0;
  std::vector<RangeCondition> conditions = {};
  ElementwiseOp op{};
  std::vector<uint32_t> arguments = {};
};

/// Where the terms of a placed reduction go. Its body does not depend on `axis`. Without a monoid a
/// term takes the place of what is there.
struct Placement {
  size_t axis = 0;       ///< of the domain
  uint32_t indices = 0;  ///< operand: what it has at `at`, clamped to the axis, is a term's place
  std::vector<Expr> at;  ///< over r0, r1, ...
  uint32_t start = 0;    ///< operand whose element at (d0, d1, ...) the terms are combined with
};

/// What a scan does differently from a reduction: its result keeps the axis that it combines.
struct RunningAxis {
  size_t axis = 0;         ///< of the domain; its index is r0's last
  bool reverse = false;    ///< ... or r0's first
  bool exclusive = false;  ///< it is no term of its own
};

struct LoopForm {
  std::vector<Expr> domain;     ///< extents of d0, d1, ...: the result's shape
  std::vector<Expr> reduction;  ///< extents of r0, r1, ...; empty without a monoid
  std::vector<BodyStep> body;
  std::optional<Monoid> monoid;
  /// An arg-reduction: the result is the first r0 at which the body is greatest (true) or least.
  std::optional<bool> arg_max;
  std::optional<Placement> placement;  ///< of a placed reduction
  std::optional<RunningAxis> running;  ///< of a scan
  DType accumulator = DType::F32;      ///< dtype in which the monoid combines
  DType result = DType::F32;
  /// Operands that exist before the result does, although nothing of them is read.
  std::vector<uint32_t> waits_for;
  bool tf32 = false;    ///< factors of its products may be rounded to tf32
  bool is_dot = false;  ///< a contraction: the body ends in the product of its two factors

  bool reduces() const {
    return monoid.has_value() || arg_max.has_value() || placement.has_value();
  }
  /// The number of times that the body is computed, at the largest extents.
  double largest_elements() const {
    double out = 1;
    for (const auto* extents : {&domain, &reduction})
      for (const Expr& extent : *extents) out *= static_cast<double>(extent.range().max);
    return out;
  }
};

/// The loop form of a node; nullopt for those that are read from memory: inputs, dense constants,
/// the place of the device; and for collectives, which no loop does.
std::optional<LoopForm> loop_form(const Graph& graph, NodeId node);

/// Symbols of loop forms: "d<axis>" over [0, extent) and "r<axis>".
Expr domain_symbol(size_t axis, const Expr& extent);
Expr reduction_symbol(size_t axis, const Expr& extent);

}  // namespace braze
