// tree.h — the loop tree: one kernel as loops over axes, with tasks in them.
//
// docs/design/0003-loop-tree.md defines it. A tree says what is computed where, and its marks say
// what emission makes of it. It is complete in itself: it declares its tensors and values, and
// bodies name them by number. Its text is exact both ways (text.h), `verify` finds everything that
// is wrong, `interpret` runs it, `build` makes the first tree of a kernel, and steps are functions
// from tree to tree.
//
// An axis in an index expression is always the whole index along it, whatever loops stand around.
// Along each axis, the tile of a task has what a turn of the innermost loop over that axis takes.
// An axis without a loop around is there as a whole.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/code/code.h"
#include "ir/graph/graph.h"
#include "ir/graph/loop_form.h"
#include "ir/ops/monoid.h"
#include "ir/support/box.h"

namespace braze {

/// A range of integers that index values. Its index is the symbol with its name.
struct LoopAxis {
  std::string name;
  Expr extent;
  SourceLocation location = {};
  Expr index() const { return Expr::index(name, extent); }
};

/// A parameter of the kernel.
struct LoopTensor {
  std::string name;
  Mode mode = Mode::In;
  TensorType type;
  std::vector<Expr> strides = {};  ///< in elements; empty: row-major
  int64_t align = 0;               ///< bytes; 0: the dtype's size
  bool finite = false;             ///< its elements are, if what they were computed of is
  NodeId node = {};                ///< the node that it holds, if the tree was made from a graph
  SourceLocation location = {};
};

enum class Storage : uint8_t {
  Registers,
  Chip,
  Workspace,
  Result,  ///< the memory of the tensor to which the value is stored
};

/// What a task computes, at each index of its axes.
struct LoopValue {
  std::string name;  ///< without %
  /// A reduction combines in the dtype of its body (a dot with 16-bit factors: f32), and is rounded
  /// to this dtype where it is read.
  DType dtype = DType::F32;
  std::vector<size_t> axes;
  Storage storage = Storage::Registers;
  /// In a workspace: how many indices of the last axis lie side by side. These panels lie one after
  /// the other. 0: the axes are in their order.
  int64_t panel = 0;
  std::optional<NamedLayout> layout = {};
  NodeId node = {};
};

/// One step of a body; steps are numbered in order.
struct LoopStep {
  enum class Kind : uint8_t {
    Load,      ///< of a tensor at `at`; if `conditions` fail: `otherwise`, or unspecified
    Read,      ///< of a value, at `at` along its axes
    Index,     ///< `at[0]` as an integer of `dtype`
    Constant,  ///< `bits` of `dtype`
    Inside,    ///< bool: all `conditions` hold
    Apply,     ///< `op` of earlier steps
  };
  Kind kind = Kind::Apply;
  DType dtype = DType::F32;
  size_t source = 0;          ///< Load: the tensor; Read: the value
  bool before = false;        ///< Read: its value before this turn of its loop
  std::vector<Expr> at = {};  ///< over axes, sizes, and "e<k>", the integer of step k
  std::vector<RangeCondition> conditions = {};
  /// Load without conditions: the value of elements outside of the tensor.
  std::optional<uint64_t> otherwise = {};
  uint64_t bits = 0;
  ElementwiseOp op{};
  std::vector<uint32_t> arguments = {};
  friend bool operator==(const LoopStep&, const LoopStep&) = default;
};

/// An expression over the rows of the op table, or several expressions that share steps.
struct LoopBody {
  std::vector<LoopStep> steps;
  std::vector<uint32_t> results;  ///< steps
};

/// How partial states of parallel turns are combined; always in the order of the turns.
enum class Combine : uint8_t { None, Rank, Ticket, Phase };
enum class Unit : uint8_t { None, Fma, Mma, Wgmma };

/// One computation, for one index of each of its axes.
struct LoopTask {
  enum class Kind : uint8_t {
    Compute,  ///< the body
    Fold,     ///< the body, combined by a monoid over `over`
    Arg,      ///< the index along `over` at which the body is greatest or least
    Scan,     ///< the body, combined with all elements before it along `over`
    Dot,      ///< the sum over `over` of the product of the two results of the body
    Place,    ///< terms (result 0), combined with result 2, at the place that result 1 names
    Stage,    ///< a copy of the body, which is a load
    Store,    ///< stores the body to a tensor
  };
  Kind kind = Kind::Store;
  size_t target = 0;     ///< the value made; Store: the tensor
  std::vector<Expr> at;  ///< Store: coordinates in the tensor, over axes and the steps of the body
  std::vector<size_t> over;
  LoopBody body;
  Monoid monoid{};                          ///< Fold, Scan, Place
  bool replaces = false;                    ///< Place: no monoid; a term replaces what is there
  bool arg_max = false;                     ///< Arg
  bool reverse = false, exclusive = false;  ///< Scan
  std::vector<size_t> along;                ///< Place: the axes whose digits form a place
  // Marks.
  std::optional<LoopBody>
      rescale;  ///< the factor by which the state is multiplied before each turn
  Combine combine = Combine::None;
  Unit unit = Unit::None;
  bool swap = false;  ///< the right factor's own axis is the rows of the unit
  bool tf32 = false;
  bool unrounded = false;  ///< Fold: the products that it sums may be added before they are rounded
  int64_t ahead = 0;       ///< number of turns that it runs early
  // Marks of a store.
  std::optional<Layout> layout = {};  ///< of the stored tensor
  CacheHint cache = CacheHint::None;
  SourceLocation location = {};

  bool makes_value() const { return kind != Kind::Store; }
  /// Whether the turns of loops over `over` change one state.
  bool has_state() const {
    return kind == Kind::Fold || kind == Kind::Arg || kind == Kind::Dot || kind == Kind::Place ||
           kind == Kind::Scan;
  }
};

/// An axis, and how many of its indices a turn takes.
struct LoopLevel {
  size_t axis = 0;
  int64_t turn = 1;
};

/// The part of the machine that takes the turns of a parallel loop.
enum class Machine : uint8_t { None, Grid, Rank, Group, Member };

/// How the turns of a grid's loops are numbered: section 5 of 0003.
struct Deal {
  enum class Order : uint8_t { Rows, Columns, Band, Grouped, Longest, Persistent };
  Order order = Order::Rows;
  int64_t number = 0;  ///< Band, Grouped, Persistent
  size_t axis = 0;     ///< Grouped
};

struct Loop;
using LoopItem = std::variant<LoopTask, Box<Loop>>;
using LoopRegion = std::vector<LoopItem>;

struct Loop {
  bool parallel =
      false;  ///< whether no turn needs another; else the turns carry the state of tasks
  std::vector<LoopLevel> levels;  ///< the outermost first
  Machine on = Machine::None;
  /// For a loop over one level: where its axis begins and ends. In these bounds, an axis stands for
  /// the beginning of its present turn and "<axis>.end" for its end; loops on group do not count.
  std::optional<std::pair<Expr, Expr>> bounds = {};
  bool down = false;  ///< whether it runs from the last turn to the first
  // Marks.
  int64_t ring = 0;    ///< number of slots for the stages inside
  int64_t unroll = 0;  ///< number of turns that are unrolled
  bool turns = false;  ///< groups start their dots one after the other
  bool seek = false;   ///< turns whose terms are placed elsewhere are left out
  std::vector<Deal> deal = {};
  std::vector<IndexComparison> parts =
      {};  ///< conditions; emission cuts the loop where they become decided
  LoopRegion body = {};
  SourceLocation location = {};
};

/// Stages are the work of one role, and everything else that of another. Each number is the
/// registers of a thread.
struct LoopRoles {
  int64_t stages = 0, rest = 0;
};

struct LoopTree {
  std::string name;
  std::vector<Expr> symbols;  ///< sizes
  std::vector<LoopTensor> tensors;
  std::vector<LoopAxis> axes;
  std::vector<LoopValue> values;
  std::string target;  ///< empty: no target in particular
  std::optional<LoopRoles> roles = {};
  int64_t registers = 0;  ///< of a thread at most, without roles; 0: as many as the block leaves
  std::vector<LoopRegion> phases;
};

/// The dtype in which a task combines or computes.
DType body_dtype(const LoopTask& task);
/// The number of the step for which the symbol "e<k>" of a coordinate stands. No size has such a
/// name.
std::optional<uint32_t> loaded_step(std::string_view symbol);
/// The symbol of step k in coordinates.
Expr loaded_symbol(uint32_t step, int64_t limit = int64_t{1} << 47);
/// "<axis>.end" in the bounds of a loop.
Expr end_symbol(const LoopAxis& axis);

/// What a step compares, if it compares two indices, or an index and a constant.
std::optional<IndexComparison> comparison_of_indices(const LoopBody& body, const LoopStep& s);

/// The dtype in which a placed reduction has its sums. Terms that replace each other stay as they
/// are.
DType sums_dtype(const LoopTask& task);

/// Whether a ring of the loop right around has slots for what the task makes: a copy or, in a tree
/// without roles, a value on chip that is computed of nothing that the kernel made before.
bool is_made_ahead(const LoopTree& tree, const LoopTask& task);

/// Whether the task is a sum of floats whose body ends in a product.
bool sums_products(const LoopTask& task);

/// Equal steps have equal hashes.
uint64_t hash_of(const LoopStep& step);
/// For each step, whether results or coordinates need it.
std::vector<bool> needed_steps(const LoopBody& body);
/// Removes steps that neither results nor coordinates need.
void remove_dead_steps(LoopBody& body);

/// Calls `visit` for every task, with the loops around it, the outermost first.
void for_each_task(
    const LoopRegion& region,
    const std::function<void(const LoopTask&, const std::vector<const Loop*>&)>& visit);

}  // namespace braze
