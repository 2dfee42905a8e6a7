// tree.h — the loop tree: one kernel as loops over axes, with tasks in them.
//
// docs/design/0003-loop-tree.md defines it. A tree says what is computed where; `build` makes one
// in which nothing was decided yet.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"
#include "ir/graph/graph.h"
#include "ir/ops/monoid.h"

namespace braze {

/// A range of integers that values are indexed by. Its index is the symbol of its name.
struct LoopAxis {
  std::string name;
  Expr extent;
  Expr index() const { return Expr::index(name, extent); }
};

/// One step of what a task computes; steps are numbered in order.
struct LoopValue {
  enum class Kind : uint8_t {
    Load,      ///< of tensor `node` at `at`, unspecified where `conditions` fail
    Read,      ///< of what the task of `node` computes, at `at`
    Index,     ///< `at[0]` as an integer of `dtype`
    Constant,  ///< `bits` of `dtype`
    Inside,    ///< bool: all `conditions` hold
    Apply,     ///< `op` of earlier values
  };
  Kind kind = Kind::Apply;
  DType dtype = DType::F32;
  NodeId node = {};
  std::vector<Expr> at = {};  ///< over the axes, sizes, and "v<k>": the integer value of step k
  Conditions conditions = {};
  uint64_t bits = 0;
  ElementwiseOp op{};
  std::vector<uint32_t> arguments = {};
};

/// What is computed, at one index of each of its axes.
struct LoopTask {
  enum class Kind : uint8_t {
    Fold,   ///< the body, combined by a monoid over `over`
    Arg,    ///< the index at which the body is greatest or least
    Dot,    ///< the sum over `over` of the two factors whose product the body ends in
    Place,  ///< terms combined with the elements of the result that they name
    Store,  ///< the body, to the tensor of `node`
  };
  Kind kind = Kind::Store;
  NodeId node;
  std::vector<Expr> at;      ///< of the node's domain, over the axes
  std::vector<size_t> axes;  ///< of the value, without those of extent 1
  std::vector<size_t> over;
  std::vector<LoopValue> body;
  uint32_t value = 0;    ///< the step that is the body's value
  Monoid monoid{};       ///< Fold, Dot, Place
  bool arg_max = false;  ///< Arg
  // Place: the axis of the node's domain that no loop runs over, the steps that are a term's place
  // along it, and what the terms are added to.
  size_t placed_axis = 0;
  uint32_t place = 0, start = 0;
};

struct Loop;
using LoopItem = std::variant<LoopTask, std::unique_ptr<Loop>>;
using LoopRegion = std::vector<LoopItem>;

struct Loop {
  bool parallel = false;  ///< no turn needs another; else they carry the state of tasks
  size_t axis = 0;
  LoopRegion body;
};

struct LoopTree {
  std::vector<LoopAxis> axes;
  LoopRegion body;
};

/// The tree of the kernel that `fusion` describes: each loop as far out as values allow, and
/// nothing decided.
LoopTree build_loops(const LoopForms& forms, const Fusion& fusion);

/// The text of docs/design/0003-loop-tree.md, section 1.1.
std::string to_text(const LoopTree& tree, const Graph& graph, std::string_view name);

}  // namespace braze
