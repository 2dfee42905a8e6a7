// emitter_p.h — the state of one tile program while it is emitted. Private to emitter*.cpp:
//
//   emitter.cpp               the program: its parameters, its phases, the walk over their tiles
//   emitter_passes.cpp        the passes over one tile: loops, accumulated values, folds;
//   reductions
//                             in chunks, added up in a second phase
//   emitter_values.cpp        values: what the Inliner asks for, conversions, loads and stores
//   emitter_threads.cpp       how a GPU's threads share a tile
//   emitter_slices.cpp        products on a GPU: factors on chip, slice by slice while others are
//                             multiplied
//
// Notation: K tile dimensions, one per parallel axis with tile > 1 (the lane axis last), then one
// for the innermost inner axis if the schedule tiles it. d<k> is the position along dimension k.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/fusion/inliner.h"
#include "compiler/tiling/emitter.h"
#include "compiler/tiling/families.h"
#include "ir/code/layout.h"

namespace braze {

class TileEmitter;

using Bindings = std::unordered_map<std::string, Expr>;

inline constexpr int64_t kMatrixDepth = 8;  // steps of one product of matrices in a warp
inline constexpr int64_t kMostSlots = 8;    // of slices

inline constexpr Code kScheduleThreads{
    "schedule-threads", ErrorKind::InvalidArgument,
    "A schedule asks for threads or units in a way that a block cannot serve."};

std::vector<Expr> substitute(const std::vector<Expr>& exprs, const Bindings& bindings);

// A tiled axis at its current place.
struct TileDim {
  std::string axis;      // the space's symbol
  Expr extent;           // of the axis
  int64_t tile = 1;      // 1: the dimension is inactive here
  Expr base;             // first index of the tile
  bool lane = false;     // along vectors: tails are masked; others are clamped
  bool partial = false;  // the tile may reach beyond the extent,
  bool before = false;   // or begin before the first index
};

// The symbol of the position along an axis within its tile, in the places of buffers.
std::string position_name(const std::string& axis);
Expr position_of_axis(const TileDim& dim);

// An operand of tile operations. Literals have the dtype that is said here.
struct TileValue {
  ValueOperand operand;
  DType dtype = DType::F32;
};

// The Inliner's sink: makes tile operations.
class TileSink {
 public:
  using Value = TileValue;

  explicit TileSink(TileEmitter& emitter) : emitter_(emitter) {}

  Value load(NodeId node, std::vector<Expr> at, const Conditions& conditions);
  Value reduced(NodeId node, const std::vector<Expr>& at, const Conditions& conditions);
  Value index(const Expr& value, DType dtype);
  Value constant(DType dtype, uint64_t bits) { return {ValueOperand::literal(dtype, bits), dtype}; }
  Value inside(const Conditions& conditions);
  Value apply(ElementwiseOp op, std::span<const Value> arguments, DType result);
  Expr as_index(const Value& value, const Expr& extent);
  std::optional<Value> cached(NodeId node, const std::vector<Expr>& at);

 private:
  TileEmitter& emitter_;
};
extern template class Inliner<TileSink>;

// The state of one reduction while its loops run: one value, or a value and an index.
struct Accumulator {
  const SpaceTask* task;
  const LoopForm* form;
  size_t first;  // position in the carried list
};
// The neutral element in that dtype.
uint64_t identity_bits(const LoopForm& form);

// An expensive value that several passes compute at the same coordinates, kept in a buffer.
struct KeptValue {
  NodeId node;
  std::vector<Expr> at;  // over the space's symbols
  MemoryId buffer;
  size_t first_pass;
  std::vector<Expr> place;  // over the space's symbols
};

// A factor of a contraction that was copied to a place from which the inner loop reads it better;
// 16-bit floats as f32, which the loop computes in.
struct StagedFactor {
  ValueAt value;
  MemoryId memory;
  std::vector<Expr> place;  // where it lies, over the space's symbols and "<axis>.position"
  DType dtype;              // there
  int64_t together = 1;     // steps of the reduced axis that one load takes
};

// Steps of a slice's reduced axis that one load takes.
struct StepGroup {
  std::string axis;
  Expr begin;      // in the slice
  int64_t at = 0;  // the step of them at hand
  std::map<MemoryId, ValueId> loaded;
};

class TileEmitter {
 public:
  TileEmitter(const TilingRequest& request, const Space& space, const Schedule& schedule);

  TiledKernel emit();

 private:
  friend class TileSink;
  friend class SliceLoop;  // emitter_slices.cpp

  using Body = std::function<void()>;
  using LoopBody = std::function<std::vector<ValueOperand>(const Expr&, std::vector<ValueOperand>)>;

  // The program and its tile's dimensions.
  void add_parameters();
  void plan_dimensions();
  std::vector<Expr> place(NodeId node, std::vector<Expr> at) const;
  [[noreturn]] void refuse(const Code& code, const std::string& why,
                           const std::string& fix = {}) const;

  // Phases, and the walk over the tiles of an instance. A phase has one instance per block of the
  // parallel axes; bodies get the numbers of the blocks, or run at every tile.
  void emit_phase(const Body& body, const std::vector<GridAxis>& extra = {});
  void emit_instances(const std::function<void(const std::vector<Expr>&)>& body,
                      const std::vector<GridAxis>& extra = {});
  void add_phase(std::vector<GridAxis> grid, Region body);
  std::vector<size_t> loop_order() const;
  void walk_parallel(const std::vector<size_t>& order, size_t depth,
                     const std::vector<Expr>& blocks, const Body& body);
  void walk_untiled(size_t p, const Expr& low, const Body& next);
  void walk_tiles(size_t p, const Expr& low, const Body& next);
  void loop_or_once(const Expr& low, const Expr& high, int64_t step, bool once,
                    const std::function<void(const Expr&)>& body);
  void bind_parallel_tile(TileDim& dim);

  // Passes: each loops over its inner axes, and leaves its reductions' values in `reduced_`.
  void emit_passes(bool first_from_partials);
  void emit_pass(size_t n, const Expr& low = 0, const std::optional<Expr>& high = {});
  void set_inner_tile(const Pass& pass);
  std::vector<ValueOperand> inner_loops(const Pass& pass, size_t depth, const Expr& low,
                                        const std::optional<Expr>& high,
                                        const std::vector<Accumulator>& accumulators,
                                        std::vector<ValueOperand> state);
  std::vector<ValueOperand> loop(std::string_view hint, const Expr& low, const Expr& high,
                                 const Expr& step, std::vector<ValueOperand> state, int64_t unroll,
                                 const LoopBody& body);
  std::vector<ValueOperand> inner_step(const Pass& pass,
                                       const std::vector<Accumulator>& accumulators,
                                       std::vector<ValueOperand> state);
  void accumulate(const Accumulator& accumulator, std::vector<ValueOperand>& state);
  void accumulate_arg(const Accumulator& accumulator, const TileValue& value, bool padded,
                      std::vector<ValueOperand>& state);
  bool may_join(NodeId sum, const LoopForm& form) const;
  const RowOp* last_product(const TileValue& value) const;
  ValueOperand select_inside(ValueOperand value, DType dtype, uint64_t identity);
  void fold(const std::vector<Accumulator>& accumulators, const std::vector<ValueOperand>& state);

  // Tiles: their types, and what depends on where the tile at hand is.
  Expr position(size_t k) const { return position_symbol('d', k, dims_[k].tile); }
  ValueType tile_type(DType dtype, const std::vector<bool>& uses) const;
  ValueType full_type(DType dtype) const;
  void note_uses(const Expr& e, std::vector<bool>& uses) const;
  std::vector<Expr> bound(const std::vector<Expr>& exprs) const {
    return substitute(exprs, bindings_);
  }
  Bindings exact_bindings() const;
  void add_inside(size_t k, Condition& condition) const;
  Condition inside_extents(bool only_lanes = false) const;

  // Values. They are computed once where they are in scope.
  TileValue evaluate(const ValueAt& value);  // coordinates over the space's symbols
  TileValue widened(const TileValue& value);
  TileValue converted(const TileValue& value, DType to);
  ValueOperand full(ValueOperand value, DType dtype);
  void store_output(const SpaceTask& task, const TileValue& value);
  void new_scope();
  void forget_values();

  // Values kept between passes.
  void plan_kept_values();
  int64_t kept_room() const;
  std::vector<Expr> kept_place(const KeptValue& kept) const;
  void keep_values();

  // A GPU's threads: those of a block share each tile.
  bool on_gpu() const { return !schedule_.threads.empty(); }
  void plan_threads();
  void plan_cluster();
  void define_layout();
  void add_layout(Layout layout);
  void plan_lead();
  bool rows_in_registers() const;
  bool fits_tile(const Expr& extent) const;
  std::optional<size_t> crossing_dim(const Expr& offset, const ValueType& type) const;
  ValueId load_across(MemoryId memory, const Expr& offset, const Condition& condition,
                      const ValueType& type, size_t k);
  ValueOperand fold_digits(Monoid monoid, const ValueOperand& value);

  // Contractions: factors copied to where the inner loop reads them.
  const TileDim* row_dim() const;
  TileDim* row_dim() { return const_cast<TileDim*>(std::as_const(*this).row_dim()); }
  void plan_factors();
  std::optional<TileValue> staged_value(NodeId node, const std::vector<Expr>& at);
  ValueId load_staged(const StagedFactor& staged, const std::vector<bool>& uses);
  std::vector<ValueOperand> slice_loop(const Pass& pass, const Expr& begin, const Expr& end,
                                       const std::vector<Accumulator>& accumulators,
                                       std::vector<ValueOperand> state);

  // Split reductions: chunks of the sums in one phase, their sum in another.
  void emit_partial_phase();
  void combine_partials(const Pass& pass);
  bool holds_chunks() const;
  void fold_partials(const Pass& pass);
  std::vector<Expr> partial_place(const Expr& chunk, const Bindings& bindings) const;

  const TilingRequest& request_;
  const Space& space_;
  const Schedule& schedule_;
  const Graph& graph_;
  std::vector<bool> inside_;
  TiledKernel result_;
  CodeBuilder builder_;
  TileSink sink_;
  Inliner<TileSink> inliner_;

  // The tile at hand.
  std::map<std::pair<uint32_t, bool>, MemoryId> memory_of_;  // (node, written)
  std::vector<TileDim> dims_;
  std::vector<TileDim> tile_dims_;  // those of the kernel's tile, where others take their place
  std::map<size_t, size_t> dim_of_parallel_;
  int inner_dim_ = -1;
  Expr lead_;  // elements that the tiles of a row begin before it, over the space's symbols
  Bindings bindings_, store_bindings_;  // indices by axis: clamped for loads, and as they are

  // The values that are there.
  std::map<uint32_t, TileValue> reduced_;
  std::map<uint32_t, ValueId> widened_;
  std::unordered_map<std::string, std::vector<int64_t>> value_extents_;
  std::vector<KeptValue> kept_;
  bool keeps_scope_ = false;  // all passes stand in one region
  int64_t scope_tile_ = 1;    // of the inner dimension of the values in that scope
  Expr scope_extent_ = 1;
  size_t current_pass_ = 0;

  // Contractions.
  std::vector<Factor> factors_;
  std::vector<StagedFactor> staged_;  // those that hold their values here
  StepGroup group_;
  bool fetching_ = false;  // tiles are those of a slice

  // Split reductions.
  bool partial_ = false;
  std::vector<MemoryId> partials_;  // per reduction of the first pass
};

}  // namespace braze
