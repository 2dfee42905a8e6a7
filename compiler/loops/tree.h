// tree.h — the loop tree: one kernel as loops over axes, with tasks in them.
//
// docs/design/0003-loop-tree.md defines it. A tree says what is computed where, and its marks say
// how emission turns it into a tile program. It is complete in itself: it declares its tensors and
// values, and bodies refer to them by number. text.h prints and parses it without loss, `verify`
// finds everything that is wrong, `interpret` runs it, and `build_loops` makes the first tree of a
// kernel. Steps are functions from tree to tree.
//
// In an index expression, an axis always means the whole index along it, whatever loops stand
// around. Along each of its axes, the tile of a task has the indices that one turn of the innermost
// loop over the axis takes. If no loop runs over the axis, the tile has the whole axis.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "ir/code/code.h"
#include "ir/graph/graph.h"
#include "ir/graph/loop_form.h"
#include "ir/ops/combiner.h"
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
  /// Whether its elements are finite whenever the values that they were computed from are finite.
  bool finite = false;
  std::optional<size_t> same = {};  ///< the tensor of which it is another name (`apart`)
  NodeId node = {};                 ///< the node that it holds, if the tree was made from a graph
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
  /// A reduction combines in the dtype of its body (a dot with 16-bit factors combines in f32). Its
  /// result is rounded to this dtype where it is read.
  DType dtype = DType::F32;
  std::vector<size_t> axes;
  Storage storage = Storage::Registers;
  /// For a value in a workspace or on chip: how many indices of its last axis lie side by side.
  /// These panels lie one after the other. 0 means that the value is row-major.
  int64_t panel = 0;
  std::optional<NamedLayout> layout = {};
  NodeId node = {};
};

/// A dot on ordinary units sums so few indices of a turn one after the other, from registers; more
/// are a loop that reads buffers.
inline constexpr int64_t kMostUnrolledSums = 8;

/// One operation of a body. The operations are numbered in order.
struct LoopStep {
  enum class Kind : uint8_t {
    Load,   ///< of a tensor at `at`; if `conditions` fail, the result is `otherwise` or unspecified
    Read,   ///< of a value, at the coordinates `at` along its axes
    Index,  ///< `at[0]` as an integer of `dtype`
    Constant,  ///< `bits` of `dtype`
    Inside,    ///< a bool: whether all `conditions` hold
    Apply,     ///< `op`, applied to earlier steps
  };
  Kind kind = Kind::Apply;
  DType dtype = DType::F32;
  size_t source = 0;    ///< Load: the tensor; Read: the value
  bool before = false;  ///< Read: whether it reads the value from before this turn of its loop
  std::vector<Expr> at = {};  ///< over axes, sizes, and "e<k>", the integer result of step k
  std::vector<RangeCondition> conditions = {};
  /// Load without conditions: the value of elements outside of the tensor.
  std::optional<uint64_t> otherwise = {};
  /// Constant: its bits. Apply: 1 if this is a comparison that is true in the turns in which the
  /// conditions of a part of a loop around hold, whose bounds are limits (see `is_kept`).
  uint64_t bits = 0;
  ElementwiseOp op{};
  bool coarse = false;  ///< Apply: whether the coarse body of the row computes it
  std::vector<uint32_t> arguments = {};
  friend bool operator==(const LoopStep&, const LoopStep&) = default;
};

/// One expression over the rows of the op table, or several expressions that share steps.
struct LoopBody {
  std::vector<LoopStep> steps;
  std::vector<uint32_t> results;  ///< numbers of steps
  friend bool operator==(const LoopBody&, const LoopBody&) = default;
};

/// How the partial states of parallel turns are combined. The order is always that of the turns.
/// Tasks of one phase are combined by the blocks of a cluster only; with `Phase`, the step `chunk`
/// makes a second phase of the tree.
enum class Combine : uint8_t { None, Rank, Phase };
enum class Unit : uint8_t { None, Fma, Mma, Wgmma };

/// One computation, for one index of each of its axes.
struct LoopTask {
  enum class Kind : uint8_t {
    Compute,  ///< the body
    Fold,     ///< the body, combined by a monoid over `over`
    Arg,      ///< the index along `over` at which the body is greatest or least
    /// A part of the body's results, combined with all elements before along `over`. If the value
    /// has no such axis, the combination of all elements. After the parts of an element, the body
    /// may have as many results with which the combination begins, instead of the identity.
    Scan,
    Dot,    ///< the sum over `over` of the product of the two results of the body
    Place,  ///< result 2, combined with terms (result 0) at the place to which result 1 points
    Stage,  ///< a copy of the body, which is a load
    Store,  ///< stores the body to a tensor
  };
  Kind kind = Kind::Store;
  size_t target = 0;     ///< the value made; Store: the tensor
  std::vector<Expr> at;  ///< Store: coordinates in the tensor, over axes and the steps of the body
  std::vector<size_t> over;
  LoopBody body;
  Monoid monoid{};                          ///< Fold, Place
  bool replaces = false;                    ///< Place: no monoid; a term replaces what is there
  bool arg_max = false;                     ///< Arg
  Combiner combiner;                        ///< Scan
  size_t part = 0;                          ///< Scan: of the combined parts: the value
  bool reverse = false, exclusive = false;  ///< Scan
  std::vector<size_t> along;                ///< Place: the axes whose digits form a place
  // Marks.
  /// The factor by which the state is multiplied before each turn.
  std::optional<LoopBody> rescale;
  bool shifts = false;  ///< Fold: `rescale` is added to the state instead
  Combine combine = Combine::None;
  Unit unit = Unit::None;
  /// Whether the unit takes the right factor's own axis as its rows (otherwise the left factor's).
  bool swap = false;
  bool tf32 = false;
  /// Fold: whether it may add the products that it sums before they are rounded.
  bool unrounded = false;
  int64_t ahead = 0;  ///< number of turns that it runs early
  // Marks of a store.
  std::optional<Layout> layout = {};  ///< of the stored tensor
  CacheHint cache = CacheHint::None;
  SourceLocation location = {};

  bool makes_value() const { return kind != Kind::Store; }
  /// Scan: whether the body says with what the combination begins.
  bool begins_after() const { return body.results.size() > combiner.parts(); }
  /// Whether all turns of the loops over the axes `over` change the same state.
  bool has_state() const {
    return kind == Kind::Fold || kind == Kind::Arg || kind == Kind::Dot || kind == Kind::Place ||
           kind == Kind::Scan;
  }
};

/// An axis, and how many of its indices a turn takes.
struct LoopLevel {
  size_t axis = 0;
  int64_t turn = 1;
  friend bool operator==(const LoopLevel&, const LoopLevel&) = default;
};

/// The part of the machine that takes the turns of a parallel loop.
enum class Machine : uint8_t { None, Grid, Rank, Group };

/// How the turns of the loops on grid are numbered (0003, section 5).
struct Deal {
  enum class Order : uint8_t { Rows, Columns, Band, Grouped, Longest, Persistent };
  Order order = Order::Rows;
  int64_t number = 0;  ///< Band, Grouped, Persistent
  size_t axis = 0;     ///< Grouped
};

/// The turns of a loop as a list in a workspace, which an earlier phase has left. The value has one
/// axis more than there are coordinates: the place in the list.
struct LoopPicks {
  size_t value = 0;
  std::vector<Expr> at = {};
};

struct Loop;
using LoopItem = std::variant<LoopTask, Box<Loop>>;
using LoopRegion = std::vector<LoopItem>;

struct Loop {
  /// Whether the turns may run at the same time. Otherwise they carry the states of tasks.
  bool parallel = false;
  std::vector<LoopLevel> levels;  ///< the outermost first
  Machine on = Machine::None;
  /// For a loop over one level: where the range of its axis begins and ends. In these bounds, an
  /// axis means the beginning of its present turn, and "<axis>.end" its end. Loops on group do not
  /// count.
  std::optional<std::pair<Expr, Expr>> bounds = {};
  /// Integers that are loaded where the loop begins. `bounds` and `parts` use them as
  /// "<axis>.limit", "<axis>.limit1", ..
  std::optional<LoopBody> limit = {};
  /// If there is a list, the loop runs over the places in it: turn n takes the indices of the turn
  /// that the list has there. `bounds` and `parts` are then those of n, as if the axis began with
  /// the first turn of the list.
  std::optional<LoopPicks> picks = {};
  bool down = false;  ///< whether it runs from the last turn to the first
  // Marks.
  int64_t ring = 0;    ///< number of slots for the copies inside
  int64_t unroll = 0;  ///< number of turns that are unrolled
  /// Number of turns whose sums begin at zero and are added to the sums of the turns before. 0: the
  /// sums of all turns are one.
  int64_t partial = 0;
  bool turns = false;  ///< whether the groups start their dots one after the other
  /// Whether a turn is left out if the place of its term belongs to another turn of the loops
  /// around it.
  bool seek = false;
  std::vector<Deal> deal = {};
  /// Conditions. Emission cuts the loop where they become decided.
  std::vector<IndexComparison> parts = {};
  LoopRegion body = {};
  SourceLocation location = {};
};

/// One role does the work of all stages, and another role does everything else. Each number is how
/// many registers a thread of the role has.
struct LoopRoles {
  int64_t stages = 0, rest = 0;
};

struct LoopTree {
  std::string name;
  std::vector<Expr> symbols;  ///< sizes
  std::vector<LoopTensor> tensors;
  std::vector<LoopAxis> axes;
  std::vector<LoopValue> values;
  std::string target;  ///< empty if the tree is for no particular target
  std::optional<LoopRoles> roles = {};
  /// The most registers that a thread has, in a tree without roles. 0: as many as the size of the
  /// block allows.
  int64_t registers = 0;
  std::vector<LoopRegion> phases;
};

template <class Of, class Part>
concept IsPart = std::same_as<std::remove_const_t<Of>, Part>;
template <class Of>
concept HasExprs = IsPart<Of, LoopStep> || IsPart<Of, LoopBody> || IsPart<Of, LoopTask>;
/// Calls `visit` for every index expression of a step, of a body, or of a task with its coordinates
/// and its rescale. They may be const.
template <HasExprs Of, class Visit>
void for_each_expr(Of& of, const Visit& visit) {
  if constexpr (IsPart<Of, LoopStep>) {
    for (auto& e : of.at) visit(e);
    for (auto& c : of.conditions) visit(c.value), visit(c.min), visit(c.limit);
  } else if constexpr (IsPart<Of, LoopBody>) {
    for (auto& s : of.steps) for_each_expr(s, visit);
  } else {
    for (auto& e : of.at) visit(e);
    for_each_expr(of.body, visit);
    if (of.rescale) for_each_expr(*of.rescale, visit);
  }
}

/// The dtype in which a task combines or computes.
DType body_dtype(const LoopTask& task);
/// The number k if `symbol` is "e<k>", which stands for the result of step k in coordinates. No
/// size has such a name.
std::optional<uint32_t> loaded_step(std::string_view symbol);
/// The symbol "e<k>" for step k. Its value is less than `limit`.
Expr loaded_symbol(uint32_t step, int64_t limit = int64_t{1} << 47);
/// The symbol "<axis>.end", which the bounds of a loop may use.
Expr end_symbol(const LoopAxis& axis);
/// The condition that the axis has not ended.
IndexComparison before_end(const LoopAxis& axis);
/// The symbol "<axis>.limit", or "<axis>.limit<n>" for n > 0, which the bounds of a loop over the
/// axis may use if it has more than n limits. Numbers beyond `kLimits` count as the least or
/// greatest of them, so no sum overflows.
Expr limit_symbol(const LoopAxis& axis, size_t n = 0);
inline constexpr Interval kLimits{-(int64_t{1} << 48), int64_t{1} << 48};

bool contains(const std::vector<size_t>& list, size_t element);
bool runs_over(const Loop& loop, size_t axis);
/// Whether the loop runs over one of these axes.
bool runs_over_any(const Loop& loop, const std::vector<size_t>& axes);

/// Whether a step is a comparison of loaded integers that is known to be true in some turns of a
/// loop around: those in which the conditions of its parts hold that compare with limits.
inline bool is_kept(const LoopStep& s) { return s.kind == LoopStep::Kind::Apply && s.bits != 0; }
/// Whether a condition of a part compares the index of the loop with one of its limits.
bool compares_limit(const LoopTree& tree, const Loop& loop, const IndexComparison& part);

/// Whether the bounds of a loop surely leave a turn. `turns` says, for each axis, how many indices
/// a turn of the loops around takes; 0 if there is no such loop.
bool surely_has_turn(const LoopTree& tree, const Loop& loop, const std::vector<int64_t>& turns);

/// The comparison that step `s` makes, if it compares two indices, or an index and a constant.
std::optional<IndexComparison> comparison_of_indices(const LoopBody& body, const LoopStep& s);

/// What combines the terms of a fold, a placed reduction or a dot.
Monoid monoid_of(const LoopTask& task);

/// The dtype in which a placed reduction keeps its sums. Terms that replace each other keep their
/// own.
DType sums_dtype(const LoopTask& task);

/// Whether a ring of the innermost loop around the task provides slots for what the task makes. It
/// does for a copy and, in a tree without roles, for a value on chip that is computed from memory
/// alone.
bool is_made_ahead(const LoopTree& tree, const LoopTask& task);

/// Whether the task is a sum of floats whose body ends in a product.
bool sums_products(const LoopTask& task);

/// Why the states of a stream cannot be made of partial ones; nullopt if they can.
std::optional<std::string> no_partial_sums(const LoopTree& tree, const Loop& loop);

/// The element offset of coordinates in a row-major tensor.
Expr linear_offset(const std::vector<Expr>& at, const Shape& shape);

/// The hash of a step. Equal steps have equal hashes.
uint64_t hash_of(const LoopStep& step);
/// For each step: whether a result or a coordinate depends on it.
std::vector<bool> needed_steps(const LoopBody& body);
/// Removes the steps on which no result and no coordinate depends.
void remove_dead_steps(LoopBody& body);
/// The part of a body that makes the result of one step. That step is the last one.
LoopBody part_of(LoopBody body, uint32_t step);
/// Adds a step to a body, and returns its number.
uint32_t push(LoopBody& body, LoopStep step);
/// Whether the body reads the value.
bool reads(const LoopBody& body, size_t value);

/// What a recursive function says of the steps of bodies. It is computed once for each step, so
/// that a step which many others use is not visited again and again. The bodies must not change
/// meanwhile.
template <class T>
class ByStep {
 public:
  template <class Compute>
  T operator()(const LoopStep& step, Compute&& compute) {
    if (const auto known = known_.find(&step); known != known_.end()) return known->second;
    return known_.emplace(&step, compute()).first->second;
  }
  void clear() { known_.clear(); }

 private:
  std::unordered_map<const LoopStep*, T> known_;
};

/// Calls `visit` for every task, with the loops around it, the outermost first.
void for_each_task(
    const LoopRegion& region,
    const std::function<void(const LoopTask&, const std::vector<const Loop*>&)>& visit);
void for_each_task(
    const LoopTree& tree,
    const std::function<void(const LoopTask&, const std::vector<const Loop*>&)>& visit);
/// Whether the tree has a task of this kind.
bool has_kind(const LoopTree& tree, LoopTask::Kind kind);

/// The condition with the axes and sizes of the tree for their names. Nullopt if it uses other
/// names.
std::optional<IndexComparison> with_axes(const LoopTree& tree, const IndexComparison& condition);

}  // namespace braze
