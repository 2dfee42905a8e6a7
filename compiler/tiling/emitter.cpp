#include "compiler/tiling/emitter.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>

#include "compiler/lowering/rows.h"
#include "compiler/tiling/families.h"
#include "compiler/tiling/pipelined_dot.h"
#include "compiler/tiling/tensor_view.h"
#include "ir/code/dot_layouts.h"
#include "ir/code/layout.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Notation: K tile dimensions, one per parallel axis with tile > 1 (the lane axis last), then one
// for the innermost inner axis if the schedule tiles it. d<k> is the position along dimension k.

using Bindings = std::unordered_map<std::string, Expr>;

constexpr int64_t kCopyVectors = 4;    // of one step of a copy
constexpr int64_t kMatrixDepth = 8;    // steps of one product of matrices in a warp
constexpr int64_t kLineElements = 16;  // of four bytes in a cache line

constexpr Code kScheduleThreads{"schedule-threads", ErrorKind::InvalidArgument,
                                "A schedule deals out threads in a way that no block has."};
constexpr Code kScheduleDirect{"schedule-direct", ErrorKind::InvalidArgument,
                               "A schedule adds where the kernel's result cannot be."};

int64_t ceil_power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

// A tiled axis at its current place.
struct TileDim {
  std::string axis;      // the space's symbol
  Expr extent;           // of the axis
  int64_t tile = 1;      // 1: the dimension is inactive here
  Expr base;             // first index of the tile
  bool lane = false;     // along vectors: tails are masked; others are clamped
  bool partial = false;  // the tile may reach beyond the extent
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

// A factor of which a block holds two slices along the reduced axis: one that it multiplies, one
// that it fetches.
struct SlicedFactor {
  StagedFactor staged;
  bool lanes = false;   // along the axis of the lanes, else along that of the rows
  bool across = false;  // lies in memory along the reduced axis
  bool computed = false;
  bool ahead = false;  // copied while earlier slices are multiplied, else fetched and then stored
  int64_t vector = 1;  // neighbours that one thread fetches
};

// The symbol, in places of slices, of the one that is meant.
constexpr int64_t kMostSlots = 8;
Expr slot_symbol() { return Expr::symbol("slice.slot", {0, kMostSlots - 1}); }

// One loop of such a copy, over [0, count) from index `base` of an axis on.
struct CopyLoop {
  std::string axis;
  Expr base, count;
  std::optional<Expr> last = {};  // of the axis, if the loop may go beyond it
  int64_t step = 1;
  int dim = -1;  // of the copied tile, if it has one along the axis
};

class Emitter;

// The Inliner's sink: makes tile operations.
class TileSink {
 public:
  struct Value {
    Operand operand;
    DType dtype = DType::F32;
  };

  explicit TileSink(Emitter& emitter) : emitter_(emitter) {}

  Value load(NodeId node, std::vector<Expr> at, const Conditions& conditions);
  Value reduced(NodeId node, const std::vector<Expr>& at);
  Value index(const Expr& value, DType dtype);
  Value constant(DType dtype, uint64_t bits) { return {Operand::literal(dtype, bits), dtype}; }
  Value inside(const Conditions& conditions);
  Value apply(ElementwiseOp op, std::span<const Value> arguments, DType result);
  Expr as_index(const Value& value, const Expr& extent);
  std::optional<Value> cached(NodeId node, const std::vector<Expr>& at);

 private:
  Emitter& emitter_;
};

using Value = TileSink::Value;

class Emitter {
 public:
  Emitter(const TilingRequest& request, const Space& space, const Schedule& schedule)
      : request_(request),
        space_(space),
        schedule_(schedule),
        graph_(request.forms.graph()),
        inside_(membership(graph_, request.fusion.nodes)),
        builder_(result_.program),
        sink_(*this),
        inliner_(request.forms, inside_, sink_) {}

  TiledKernel emit() {
    TileProgram& program = result_.program;
    program.name = builder_.fresh_name(request_.name);
    program.schedule = schedule_.to_string();
    program.symbols = size_symbols();
    for (const Expr& symbol : program.symbols) builder_.fresh_name(symbol.symbol_name());
    add_parameters();
    if (pipelined()) {
      emit_on_matrix_units();
      return std::move(result_);
    }
    plan_dimensions();
    tile_dims_ = dims_;
    if (on_gpu()) plan_threads();
    plan_factors();
    if (schedule_.pack) emit_pack_phases();
    if (space_.placed) {
      emit_placed_phase();
    } else if (schedule_.split > 1) {
      emit_partial_phase();
      emit_phase([&] { emit_passes(/*first_from_partials=*/true); });
    } else {
      emit_phase([&] { emit_passes(false); });
    }
    return std::move(result_);
  }

 private:
  friend class TileSink;

  // --- Parameters and symbols ----------------------------------------------------------------

  std::vector<Expr> size_symbols() const {
    std::map<std::string, Expr> found;
    const auto add = [&](NodeId node) {
      for (const Expr& dim : graph_[node].type.shape) collect_symbols(dim, found);
    };
    for (NodeId node : request_.fusion.nodes) {
      add(node);
      if (const LoopForm* form = request_.forms.find(node))
        for (const BodyStep& step : form->body) collect_symbols(step.expr, found);
    }
    for (NodeId node : request_.fusion.inputs) add(node);
    std::vector<Expr> symbols;
    for (const Expr& symbol : graph_.symbols())
      if (found.contains(symbol.symbol_name())) symbols.push_back(symbol);
    return symbols;
  }
  static void collect_symbols(const Expr& e, std::map<std::string, Expr>& found) {
    if (e.kind() == Expr::Kind::Symbol) found.emplace(e.symbol_name(), e);
    for (const Expr& operand : e.operands()) collect_symbols(operand, found);
  }

  static std::string memory_hint(const Graph& graph, NodeId node) {
    if (const auto* input = graph[node].as<InputOp>()) return input->name;
    if (!graph[node].label.empty()) return graph[node].label;
    return fmt::format("t{}", node.index);
  }

  void add_parameters() {
    std::map<NodeId, NodeId> taken_over;
    for (const auto& [input, output] : request_.aliases) taken_over.emplace(output, input);
    const auto add = [&](NodeId node, Mode mode) {
      const TensorType& type = graph_[node].type;
      if (pipelined()) {
        std::vector<NodeId> nodes = {node};
        if (const auto input = taken_over.find(node); input != taken_over.end())
          nodes.push_back(input->second);
        for (NodeId each : nodes) views_.emplace(each, TensorView(request_, space_, nodes));
      }
      const Memory memory{.name = memory_hint(graph_, node),
                          .space = MemorySpace::Parameter,
                          .mode = mode,
                          .dtype = type.dtype,
                          .shape = pipelined() ? views_.at(node).shape().dims()
                                               : std::vector<Expr>{type.shape.numel()},
                          .align = 64};
      memory_of_[{node.index, mode != Mode::In}] = builder_.add_memory(memory);
      result_.parameters.push_back(node);
    };
    for (NodeId node : request_.fusion.inputs)
      if (!request_.aliases.contains(node)) add(node, Mode::In);
    for (NodeId node : request_.fusion.outputs) {
      const auto alias = taken_over.find(node);
      add(node, alias == taken_over.end() ? Mode::Out : Mode::InOut);
      if (alias != taken_over.end())
        memory_of_[{alias->second.index, false}] = memory_of_.at({node.index, true});
    }
  }

  // --- The tile's dimensions ------------------------------------------------------------------

  void plan_dimensions() {
    const auto add = [&](size_t p) {
      dims_.push_back({.axis = space_.parallel[p].symbol.symbol_name(),
                       .extent = space_.parallel[p].extent,
                       .tile = schedule_.tile[p],
                       .lane = static_cast<int64_t>(p) == schedule_.lane_axis});
      dim_of_parallel_[p] = dims_.size() - 1;
    };
    for (size_t p = 0; p < space_.parallel.size(); ++p)
      if (schedule_.tile[p] > 1 && static_cast<int64_t>(p) != schedule_.lane_axis) add(p);
    // The lanes' axis is the last.
    const auto add_inner = [&] {
      inner_dim_ = static_cast<int>(dims_.size());
      dims_.push_back({.axis = {}, .extent = 1, .tile = 1, .lane = true});
    };
    if (schedule_.inner_tile > 1 && schedule_.lane_axis >= 0) add_inner();
    if (schedule_.lane_axis >= 0) add(static_cast<size_t>(schedule_.lane_axis));
    if (schedule_.inner_tile > 1 && schedule_.lane_axis < 0) add_inner();
  }

  // --- GPU: matrix units ------------------------------------------------------------------------

  // Bulk copies see tensors with axes; all else is flat.
  bool pipelined() const { return schedule_.stages > 0 && schedule_.slice == 0; }
  std::vector<Expr> place(NodeId node, std::vector<Expr> at) const {
    if (pipelined()) return views_.at(node).at(std::move(at));
    return {linear_offset(at, graph_[node].type.shape)};
  }

  void emit_on_matrix_units();
  void stage_outputs(const MatrixProduct& product);
  bool lies_along(const std::vector<Expr>& at, size_t row, size_t lane) const;

  // --- GPU: the block's threads ---------------------------------------------------------------

  bool on_gpu() const { return !schedule_.threads.empty(); }

  void plan_threads() {
    const int64_t threads = std::accumulate(schedule_.threads.begin(), schedule_.threads.end(),
                                            int64_t{1}, std::multiplies<>());
    bool deals = threads % kWarpThreads == 0 &&
                 schedule_.threads.size() == std::max<size_t>(dims_.size(), 1);
    if (schedule_.slice > 0 || schedule_.mma) deals = deals && deals_product();
    if (!deals)
      fail(kScheduleThreads,
           fmt::format("schedule of @{}: {} counts of threads, {} in all, for {} tile dimensions",
                       request_.name, schedule_.threads.size(), threads, dims_.size()));
    result_.program.warps = threads / kWarpThreads;
    result_.program.registers = schedule_.registers;
    plan_cluster();
    define_layout();
  }

  // Slices need rows and lanes, and threads that divide them.
  bool deals_product() const {
    if (schedule_.mma && !deals_matrices()) return false;
    return dims_.size() == 2 && dims_[1].lane && inner_dim_ < 0 && schedule_.stages != 1 &&
           schedule_.stages <= kMostSlots && dims_[0].tile % schedule_.threads[0] == 0 &&
           dims_[1].tile % (schedule_.threads[1] * schedule_.vector) == 0;
  }

  // Matrices of 16 x 8 sums and 8 steps. Operands must differ in extents from the sums.
  bool deals_matrices() const {
    const bool vectors = schedule_.vector == 2 || schedule_.vector == 4 || schedule_.vector == 8;
    return schedule_.slice > 0 && schedule_.slice % kMatrixDepth == 0 && vectors &&
           dims_.size() == 2 && schedule_.threads[0] >= 8 && schedule_.threads[1] >= 4 &&
           dims_[0].tile % (2 * schedule_.threads[0]) == 0 && dims_[0].tile > kMatrixDepth &&
           dims_[1].tile > kMatrixDepth;
  }

  // The layout of tiles with the present extents.
  void define_layout() {
    if (dims_.empty()) return;
    std::vector<int64_t> extents;
    for (const TileDim& dim : dims_) extents.push_back(dim.tile);
    if (schedule_.mma) {
      const DotLayouts layouts = warp_dot_layouts(extents, schedule_.threads, schedule_.vector);
      for (const Layout& layout : {layouts.sums, layouts.left, layouts.right}) add_layout(layout);
      return;
    }
    add_layout(schedule_.slice > 0
                   ? product_layout(extents, schedule_.threads, schedule_.vector)
                   : spread(extents, schedule_.threads, schedule_.vector, schedule_.cluster));
  }
  void plan_cluster() {
    const bool along_rows = inner_dim_ >= 0 && schedule_.lane_axis < 0;
    if (schedule_.cluster > 1 &&
        (schedule_.cluster > request_.target.cluster_blocks || !along_rows ||
         !std::has_single_bit(static_cast<uint64_t>(schedule_.cluster)) ||
         schedule_.inner_tile % schedule_.cluster != 0))
      fail(
          kScheduleThreads,
          fmt::format("schedule of @{}: a cluster of {} blocks cannot share inner={} on {}",
                      request_.name, schedule_.cluster, schedule_.inner_tile, request_.target.name),
          {.fix = fmt::format("clusters have 1, 2, 4 .. or {} blocks, which divide `inner` of rows",
                              request_.target.cluster_blocks)});
    result_.program.cluster = schedule_.cluster;
  }
  void add_layout(Layout layout) {
    std::vector<NamedLayout>& all = result_.program.layouts;
    const bool known = std::any_of(
        all.begin(), all.end(), [&](const NamedLayout& named) { return named.layout == layout; });
    if (!known) all.push_back({fmt::format("t{}", all.size()), std::move(layout)});
  }

  // Whether the tiles of every pass cover its inner axes, so that no pass loops and each value is
  // computed once and stays in registers.
  bool rows_in_registers() const {
    return on_gpu() && inner_dim_ >= 0 &&
           std::all_of(space_.passes.begin(), space_.passes.end(), [&](const Pass& pass) {
             return pass.inner.empty() ||
                    (pass.inner.size() == 1 && fits_tile(pass.inner[0].extent));
           });
  }
  bool fits_tile(const Expr& extent) const {
    return on_gpu() && extent.range().max <= schedule_.inner_tile;
  }

  // The dimension other than the lanes' along which an access is contiguous, if threads along the
  // lanes would jump.
  std::optional<size_t> crossing_dim(const Expr& offset, const ValueType& type) const {
    if (!on_gpu() || fetching_ || type.rank() < 2 || type.extents.back() == 1) return std::nullopt;
    const auto stride = [&](size_t k) {
      const auto coefficient = offset.coefficient_of("d" + std::to_string(k));
      return coefficient ? coefficient->as_constant() : std::nullopt;
    };
    const size_t last = type.rank() - 1;
    if (const auto lanes = stride(last); !lanes || (*lanes >= 0 && *lanes <= 1))
      return std::nullopt;
    for (const std::string& symbol : offset.symbols())
      if (symbol[0] == '%') return std::nullopt;
    for (size_t k = 0; k < last; ++k)
      if (type.extents[k] > 1 && stride(k) == 1) return k;
    return std::nullopt;
  }

  // Loads with dimension `k` in the place of the last, so that threads read neighbours, and turns
  // the tile.
  ValueId load_across(MemoryId memory, const Expr& offset, const Condition& condition,
                      const ValueType& type, size_t k) {
    const size_t last = type.rank() - 1;
    ValueType turned = type;
    std::swap(turned.extents[k], turned.extents[last]);
    add_layout(spread(turned.extents, schedule_.threads, schedule_.vector));
    Bindings names = {{"d" + std::to_string(k), position_symbol('d', last, turned.extents[last])},
                      {"d" + std::to_string(last), position_symbol('d', k, turned.extents[k])}};
    Condition guard;
    for (const IndexComparison& c : condition)
      guard.push_back({c.left.substitute(names), c.kind, c.right.substitute(names)});
    const ValueId value =
        builder_.load(memory, {offset.substitute(names)}, turned, {std::move(guard), {}});
    std::vector<int64_t> order(type.rank());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::swap(order[k], order[last]);
    return builder_.view(ViewKind::Transpose, value, type, order);
  }

  // Folds the inner dimension with an axis for each digit of its layout: registers, lanes, warps,
  // blocks.
  Operand fold_digits(Monoid monoid, const Operand& value) {
    const auto inner = static_cast<size_t>(inner_dim_);
    const ValueType type = result_.program[value.value].type;
    const Layout& layout =
        layout_of(result_.program.layouts, type.extents, result_.program.warps * kWarpThreads);
    const std::vector<Digit> digits = layout.axes[inner];
    if (digits.size() < 2) return builder_.fold(monoid, value, {inner_dim_});
    ValueType split = type;
    Layout split_layout = layout;
    const auto at = static_cast<ptrdiff_t>(inner);
    split.extents.erase(split.extents.begin() + at);
    split_layout.axes.erase(split_layout.axes.begin() + at);
    for (size_t i = digits.size(); i-- > 0;) {
      split.extents.insert(split.extents.begin() + at, digits[i].extent);
      split_layout.axes.insert(split_layout.axes.begin() + at, {digits[i]});
    }
    add_layout(split_layout);
    std::vector<int64_t> order;
    for (const Resource resource :
         {Resource::Register, Resource::Lane, Resource::Warp, Resource::Block})
      for (size_t i = 0; i < digits.size(); ++i)
        if (digits[i].resource == resource) order.push_back(inner_dim_ + static_cast<int64_t>(i));
    const ValueId parts = builder_.view(ViewKind::Reshape, value, split);
    const ValueId folded = builder_.fold(monoid, parts, order);
    ValueType result = type;
    result.extents[inner] = 1;
    return builder_.view(ViewKind::Reshape, folded, result);
  }

  Expr position(size_t k) const { return position_symbol('d', k, dims_[k].tile); }

  // The type of a value that depends on the dimensions in `uses`.
  ValueType tile_type(DType dtype, const std::vector<bool>& uses) const {
    ValueType type{dtype, 1, {}};
    for (size_t k = 0; k < dims_.size(); ++k) type.extents.push_back(uses[k] ? dims_[k].tile : 1);
    return type;
  }
  ValueType full_type(DType dtype) const {
    return tile_type(dtype, std::vector<bool>(dims_.size(), true));
  }

  // Which dimensions an expression depends on, through positions and through loaded indices.
  void note_uses(const Expr& e, std::vector<bool>& uses) const {
    for (const std::string& symbol : e.symbols()) {
      if (symbol[0] == '%') {
        const auto& extents = value_extents_.at(symbol);
        for (size_t k = 0; k < extents.size(); ++k) uses[k] = uses[k] || extents[k] > 1;
      } else if (symbol[0] == 'd' && symbol.size() > 1 &&
                 std::isdigit(static_cast<unsigned char>(symbol[1])) &&
                 symbol.find('.') == std::string::npos) {
        const size_t k = std::stoul(symbol.substr(1));
        if (k < uses.size()) uses[k] = true;
      }
    }
  }

  Condition to_condition(const Conditions& conditions) const {
    Condition out;
    for (const RangeCondition& c : conditions) {
      if (!proves_at_most(c.min, c.value))
        out.push_back({c.min, IndexComparison::Kind::Le, c.value});
      if (proves_less(c.value, c.limit) != true)
        out.push_back({c.value, IndexComparison::Kind::Lt, c.limit});
    }
    return out;
  }

  // --- Phases -------------------------------------------------------------------------------

  Region& new_phase(std::vector<GridAxis> grid) {
    result_.program.phases.push_back({.grid = std::move(grid)});
    return result_.program.phases.back().body;
  }

  // One instance per block of the parallel axes; `body` runs at every tile of it.
  void emit_phase(const std::function<void()>& body, const std::vector<GridAxis>& extra = {}) {
    emit_instances(
        [&](const std::vector<Expr>& blocks) {
          declare_row_buffers();
          walk_parallel(loop_order(), 0, blocks, body);
        },
        extra);
  }

  // One instance per block of the parallel axes, whose numbers `body` gets.
  void emit_instances(const std::function<void(const std::vector<Expr>&)>& body,
                      const std::vector<GridAxis>& extra = {}) {
    std::vector<GridAxis> grid = extra;
    std::vector<Expr> blocks;
    for (size_t p = 0; p < space_.parallel.size(); ++p) {
      const Expr count = ceildiv(space_.parallel[p].extent, schedule_.block[p]);
      const std::string symbol = builder_.fresh_name("g" + std::to_string(p));
      grid.push_back({symbol, count});
      blocks.push_back(grid_symbol(symbol, count));
    }
    Region region;
    builder_.enter(region);
    body(blocks);
    builder_.leave();
    new_phase(std::move(grid)) = std::move(region);
    new_scope();
  }

  static Expr grid_symbol(const std::string& name, const Expr& count) {
    return Expr::symbol(name, {0, std::max<int64_t>(count.range().max, 1) - 1});
  }

  // Contractions that copy a tile's rows use them for all their lanes; others walk the lanes' axis
  // outside, so that a panel of it stays in cache.
  std::vector<size_t> loop_order() const {
    std::vector<size_t> order;
    for (size_t p = 0; p < space_.parallel.size(); ++p)
      if (static_cast<int64_t>(p) != schedule_.lane_axis) order.push_back(p);
    if (schedule_.lane_axis < 0) return order;
    const auto lane = static_cast<size_t>(schedule_.lane_axis);
    if (schedule_.stage) {
      std::stable_partition(order.begin(), order.end(),
                            [&](size_t p) { return schedule_.tile[p] == 1; });
      order.push_back(lane);
    } else {
      const auto natural = schedule_.family == "dot"
                               ? order.begin()
                               : std::lower_bound(order.begin(), order.end(), lane);
      order.insert(natural, lane);
    }
    return order;
  }

  void walk_parallel(const std::vector<size_t>& order, size_t depth,
                     const std::vector<Expr>& blocks, const std::function<void()>& body) {
    if (depth == order.size()) {
      new_scope();
      body();
      return;
    }
    const size_t p = order[depth];
    const SpaceAxis& axis = space_.parallel[p];
    const int64_t block = schedule_.block[p], tile = schedule_.tile[p];
    const Expr low = blocks[p] * Expr(block);
    const auto next = [&] { walk_parallel(order, depth + 1, blocks, body); };
    if (tile == 1) {
      if (block == 1) {
        bindings_[axis.symbol.symbol_name()] = low;
        next();
      } else {
        builder_.for_loop("i", low, min(low + block, axis.extent), 1, {}, [&](Expr i, const auto&) {
          bindings_[axis.symbol.symbol_name()] = i;
          next();
          return std::vector<Operand>{};
        });
      }
      return;
    }
    TileDim& dim = dims_[dim_of_parallel_.at(p)];
    const Expr high =
        axis.extent.is_multiple_of(block) ? low + block : min(low + block, axis.extent);
    const auto at_tile = [&](const Expr& base, bool partial) {
      dim.base = base;
      dim.partial = partial;
      bind_parallel_tile(dim);
      if (dim.lane) return next();
      const size_t staged = staged_.size();
      stage_rows(dim);
      next();
      staged_.resize(staged);
    };
    const bool whole = axis.extent.is_multiple_of(tile);
    if (whole) {
      loop_or_once(low, high, tile, block == tile, [&](const Expr& base) { at_tile(base, false); });
    } else if (!dim.lane) {
      loop_or_once(low, high, tile, block == tile, [&](const Expr& base) { at_tile(base, true); });
    } else if (schedule_.slice > 0) {
      // What is on chip needs no masks: one program serves whole tiles and others.
      loop_or_once(low, high, tile, block == tile, [&](const Expr& base) { at_tile(base, true); });
    } else {
      // Whole tiles without masks, then at most one with.
      const Expr whole_end = low + floordiv(high - low, tile) * Expr(tile);
      if (block == tile) {
        builder_.if_then(
            {{low + tile, IndexComparison::Kind::Le, axis.extent}}, [&] { at_tile(low, false); },
            [&] { at_tile(low, true); });
      } else {
        const Expr end = builder_.let("whole", whole_end);
        builder_.for_loop("j", low, end, tile, {}, [&](Expr j, const auto&) {
          at_tile(j, false);
          return std::vector<Operand>{};
        });
        builder_.if_then({{end, IndexComparison::Kind::Lt, high}}, [&] { at_tile(end, true); });
      }
    }
  }

  void loop_or_once(const Expr& low, const Expr& high, int64_t step, bool once,
                    const std::function<void(const Expr&)>& body) {
    if (once) {
      body(low);
      return;
    }
    builder_.for_loop("j", low, high, step, {}, [&](Expr j, const auto&) {
      body(j);
      return std::vector<Operand>{};
    });
  }

  // Loads go through the clamped index, so that rows beyond the end read some row that exists.
  void bind_parallel_tile(TileDim& dim) {
    const size_t k = static_cast<size_t>(&dim - dims_.data());
    const Expr index = dim.base + position(k);
    bindings_[dim.axis] = dim.partial && !dim.lane ? min(index, dim.extent - 1) : index;
    bindings_[position_name(dim.axis)] = position(k);
    store_bindings_[dim.axis] = index;
  }

  // The symbol of the position along an axis within its tile, in the places of buffers.
  static std::string position_name(const std::string& axis) { return axis + ".position"; }
  static Expr position_of_axis(const TileDim& dim) {
    return Expr::symbol(position_name(dim.axis), {0, dim.tile - 1});
  }

  // --- Passes -------------------------------------------------------------------------------

  std::vector<Expr> bound(const std::vector<Expr>& exprs) const {
    std::vector<Expr> out;
    for (const Expr& e : exprs) out.push_back(e.substitute(bindings_));
    return out;
  }

  void emit_passes(bool first_from_partials) {
    plan_cache();
    keeps_values_ = rows_in_registers() && !first_from_partials;
    for (size_t n = 0; n < space_.passes.size(); ++n) {
      if (n == 0 && first_from_partials) {
        combine_partials(space_.passes[0]);
      } else {
        emit_pass(n, {}, {});
      }
      if (n == 0 && schedule_.by_row) {
        emit_row_by_row();
        break;
      }
    }
    keeps_values_ = false;
    caches_.clear();
    reduced_.clear();
  }

  // The passes after a contraction on one row of its tile at a time: code for all of them at once
  // would be long, and need more registers than there are.
  void emit_row_by_row() {
    TileDim& row = *row_dim();
    const TileDim whole = row;
    const Bindings bindings = bindings_, store_bindings = store_bindings_;
    const std::map<uint32_t, Value> sums = reduced_;
    std::map<uint32_t, MemoryId> buffers;
    for (const auto& [node, sum] : sums) {
      const ValueType type = full_type(sum.dtype);
      buffers[node] = builder_.buffer("sums", sum.dtype, type.extents);
      builder_.store(full(sum.operand, sum.dtype), buffers[node], tile_place(0));
    }
    const Expr count = whole.partial ? min(whole.tile, whole.extent - whole.base) : whole.tile;
    row.tile = 1;
    row.partial = false;
    builder_.for_loop("row", 0, count, 1, {}, [&](Expr r, const auto&) {
      row.base = whole.base + r;
      bind_parallel_tile(row);
      new_scope();
      for (const auto& [node, sum] : sums)
        reduced_[node].operand = builder_.load(buffers[node], tile_place(r), full_type(sum.dtype));
      for (size_t n = 1; n < space_.passes.size(); ++n) emit_pass(n, {}, {});
      return std::vector<Operand>{};
    });
    row = whole;
    bindings_ = bindings;
    store_bindings_ = store_bindings;
    new_scope();
  }

  // Where the tile at hand lies in a buffer of the whole tile, whose row `first` is its first.
  std::vector<Expr> tile_place(const Expr& first) const {
    std::vector<Expr> place;
    for (size_t k = 0; k < dims_.size(); ++k)
      place.push_back(&dims_[k] == row_dim() ? first + position(k) : position(k));
    return place;
  }

  // The state of one reduction while its loops run: one value, or a value and an index.
  struct Accumulator {
    const SpaceTask* task;
    const LoopForm* form;
    size_t first;  // position in the carried list
    size_t width() const { return form->arg_max ? 2 : 1; }
  };

  // The neutral element in the dtype of the accumulated tiles.
  static uint64_t identity_bits(const LoopForm& form) {
    const Monoid monoid = form.monoid ? *form.monoid : *form.arg_max ? Monoid::Max : Monoid::Min;
    return info(monoid).identity(accumulator_type(form));
  }

  // dtype of the accumulated tiles: arg-reductions of 16-bit values compare in f32.
  static DType accumulator_type(const LoopForm& form) { return compute_type(form.accumulator); }

  // Runs pass n over its inner axes, the outermost of them within [low, high) if given, and leaves
  // the reductions' folded values in `reduced_`.
  void emit_pass(size_t n, const Expr& low, const std::optional<Expr>& high) {
    const Pass& pass = space_.passes[n];
    current_pass_ = n;
    new_scope();
    set_inner_tile(pass);
    // Kept values have the tile, and the mask, of the pass that computed them.
    if (inner_dim_ >= 0 && !pass.inner.empty()) {
      const TileDim& dim = dims_[static_cast<size_t>(inner_dim_)];
      if (dim.tile != kept_tile_ || !(dim.extent == kept_extent_)) forget_values();
      kept_tile_ = dim.tile;
      kept_extent_ = dim.extent;
    }
    std::vector<Accumulator> accumulators;
    std::vector<Operand> state;
    const bool covered = inner_dim_ >= 0 && pass.inner.size() == 1 && !high &&
                         fits_tile(pass.inner[0].extent) && pass.inner[0].extent.range().max > 0;
    for (const SpaceTask& task : pass.reduces) {
      const LoopForm* form = request_.forms.find(task.node);
      accumulators.push_back({&task, form, state.size()});
      const DType dtype = accumulator_type(*form);
      const uint64_t identity = identity_bits(*form);
      // Where a tile covers the row, its values are the sum: there is nothing to add them to.
      if (covered && !form->arg_max)
        state.push_back(Operand::literal(dtype, identity));
      else
        state.emplace_back(builder_.constant(full_type(dtype), identity));
      if (form->arg_max) state.emplace_back(builder_.constant(full_type(DType::I64), INT64_MAX));
    }
    state = inner_loops(pass, 0, low, high, accumulators, std::move(state));
    new_scope();
    fold(accumulators, state);
    set_inner_tile({});
  }

  void set_inner_tile(const Pass& pass) {
    if (inner_dim_ < 0) return;
    TileDim& dim = dims_[static_cast<size_t>(inner_dim_)];
    dim.tile = pass.inner.empty()
                   ? 1
                   : std::min(schedule_.inner_tile,
                              ceil_power_of_two(pass.inner.back().extent.range().max));
    dim.axis = pass.inner.empty() ? "" : pass.inner.back().symbol.symbol_name();
    dim.extent = pass.inner.empty() ? Expr(1) : pass.inner.back().extent;
    dim.base = 0;
    dim.partial = false;
    if (on_gpu() && !pass.inner.empty()) define_layout();
  }

  std::vector<Operand> inner_loops(const Pass& pass, size_t depth, const Expr& low,
                                   const std::optional<Expr>& high,
                                   const std::vector<Accumulator>& accumulators,
                                   std::vector<Operand> state) {
    if (depth == pass.inner.size()) return inner_step(pass, accumulators, state);
    const SpaceAxis& axis = pass.inner[depth];
    if (axis.extent.range().max <= 0) return state;  // an empty sum; its body may have no meaning
    const Expr begin = depth == 0 ? low : Expr(0);
    const Expr end = depth == 0 && high ? *high : axis.extent;
    const bool innermost = depth + 1 == pass.inner.size();
    if (innermost && schedule_.slice > 0 && !pass.reduces.empty())
      return slice_loop(pass, begin, end, accumulators, std::move(state));
    const auto body = [&](const Expr& index, std::vector<Operand> carried) {
      bindings_[axis.symbol.symbol_name()] = index;
      new_scope();
      return inner_loops(pass, depth + 1, 0, std::nullopt, accumulators, std::move(carried));
    };
    if (!innermost || inner_dim_ < 0) {
      return loop(
          "k", begin, end, 1, std::move(state), innermost ? schedule_.unroll : 1,
          [&](const Expr& k, std::vector<Operand> carried) { return body(k, std::move(carried)); });
    }
    TileDim& dim = dims_[static_cast<size_t>(inner_dim_)];
    const auto at_tile = [&](const Expr& base, bool partial, std::vector<Operand> carried) {
      dim.base = base;
      dim.partial = partial;
      return body(base + position(static_cast<size_t>(inner_dim_)), std::move(carried));
    };
    const Expr length = end - begin;
    if (fits_tile(length)) return at_tile(begin, !length.is_constant(dim.tile), std::move(state));
    const Expr whole = floordiv(length, dim.tile) * Expr(dim.tile);
    const Expr whole_end = begin + whole;
    if (!(whole.is_constant(0))) {
      if (length.is_constant(dim.tile)) {
        state = at_tile(begin, false, std::move(state));
      } else {
        state = loop("k", begin, whole_end, dim.tile, std::move(state), 1,
                     [&](const Expr& k, std::vector<Operand> carried) {
                       return at_tile(k, false, std::move(carried));
                     });
      }
    }
    if (length.is_multiple_of(dim.tile)) return state;
    // The tail: a loop of at most one turn, so that it can carry values.
    if (whole.is_constant(0) && length.as_constant().value_or(0) > 0)
      return at_tile(begin, true, std::move(state));
    return loop("k", whole_end, end, dim.tile, std::move(state), 1,
                [&](const Expr& k, std::vector<Operand> carried) {
                  return at_tile(k, true, std::move(carried));
                });
  }

  std::vector<Operand> loop(
      std::string_view hint, const Expr& low, const Expr& high, const Expr& step,
      std::vector<Operand> state, int64_t unroll,
      const std::function<std::vector<Operand>(const Expr&, std::vector<Operand>)>& body) {
    const auto results = builder_.for_loop(
        hint, low, high, step, std::move(state),
        [&](Expr k, const std::vector<ValueId>& carried) {
          return body(k, {carried.begin(), carried.end()});
        },
        unroll);
    new_scope();
    return {results.begin(), results.end()};
  }

  // One tile of the innermost loop: fill caches, accumulate, store.
  std::vector<Operand> inner_step(const Pass& pass, const std::vector<Accumulator>& accumulators,
                                  std::vector<Operand> state) {
    fill_caches();
    for (const Accumulator& accumulator : accumulators) accumulate(accumulator, state);
    // All values before the first store: an output may take over the memory of an input.
    std::vector<Value> values;
    for (const SpaceTask& task : pass.stores)
      values.push_back(inliner_.value(task.node, bound(task.at)));
    for (size_t i = 0; i < values.size(); ++i) store_output(pass.stores[i], values[i]);
    return state;
  }

  void accumulate(const Accumulator& accumulator, std::vector<Operand>& state) {
    const LoopForm& form = *accumulator.form;
    const DType dtype = accumulator_type(form);
    Value value = inliner_.reduction_body(accumulator.task->node, bound(accumulator.task->at),
                                          bound(accumulator.task->reduction));
    value = widened(value);
    Operand& sum = state[accumulator.first];
    const bool padded = inner_dim_ >= 0 && dims_[static_cast<size_t>(inner_dim_)].partial;
    if (form.arg_max) {
      accumulate_arg(accumulator, value, padded, state);
      return;
    }
    const auto padded_addend = [&] {
      return padded ? select_inside(value.operand, dtype, identity_bits(form)) : value.operand;
    };
    if (sum.is_literal()) {
      sum = full(padded_addend(), dtype);
      return;
    }
    // A sum of products takes one rounding less: the bound of a sum allows it. Strict precision
    // asks for that of a product which is a value of its own, not part of the op that sums.
    const bool own = form.body.back().kind == BodyStep::Kind::Apply;
    const bool may_join = own || request_.precision != Precision::Strict;
    const RowOp* product = *form.monoid == Monoid::Sum && is_floating(dtype) && !padded && may_join
                               ? last_product(value)
                               : nullptr;
    if (product) {
      const std::vector<Operand> operands = {product->operands[0], product->operands[1], sum};
      sum = full(builder_.row(ElementwiseOp::fma, operands), dtype);
      return;
    }
    sum = full(builder_.row(info(*form.monoid).combine, {sum, padded_addend()}), dtype);
  }

  // The statement just emitted, if it is the product that made `value`.
  const RowOp* last_product(const Value& value) const {
    const Statement* last = builder_.last_statement();
    if (value.operand.is_literal() || !last) return nullptr;
    const RowOp* row = last->as<RowOp>();
    const bool made =
        row && row->op == ElementwiseOp::mul && last->results[0] == value.operand.value;
    return made && !row->operands[0].is_literal() && !row->operands[1].is_literal() ? row : nullptr;
  }

  // `value` where the tile lies inside the inner extent, `identity` beyond.
  Operand select_inside(Operand value, DType dtype, uint64_t identity) {
    const TileDim& dim = dims_[static_cast<size_t>(inner_dim_)];
    std::vector<bool> uses(dims_.size());
    uses[static_cast<size_t>(inner_dim_)] = true;
    const ValueId in = builder_.test({{dim.base + position(static_cast<size_t>(inner_dim_)),
                                       IndexComparison::Kind::Lt, dim.extent}},
                                     tile_type(DType::Bool, uses));
    if (value.is_literal()) value = builder_.constant(tile_type(dtype, uses), value.bits);
    return builder_.row(ElementwiseOp::select, {in, value, Operand::literal(dtype, identity)});
  }

  // (v, i) replaces the kept pair if v is a NaN where the kept value is none, or wins by order;
  // equal values keep the lesser index.
  void accumulate_arg(const Accumulator& accumulator, Value value, bool padded,
                      std::vector<Operand>& state) {
    const LoopForm& form = *accumulator.form;
    const DType dtype = accumulator_type(form);
    Operand& best = state[accumulator.first];
    Operand& best_index = state[accumulator.first + 1];
    Operand candidate = value.operand;
    Operand index = sink_.index(bound(accumulator.task->reduction)[0], DType::I64).operand;
    if (padded) {
      candidate = select_inside(candidate, dtype, identity_bits(form));
      index = select_inside(index, DType::I64, INT64_MAX);
    }
    if (candidate.is_literal()) candidate = builder_.constant(full_type(dtype), candidate.bits);
    const auto row = [&](ElementwiseOp op, std::vector<Operand> operands) {
      return Operand(builder_.row(op, std::move(operands)));
    };
    Operand wins = row(*form.arg_max ? ElementwiseOp::gt : ElementwiseOp::lt, {candidate, best});
    Operand ties = row(ElementwiseOp::eq, {candidate, best});
    if (is_floating(dtype)) {
      const Operand is_nan = row(ElementwiseOp::is_nan, {candidate});
      const Operand was_nan = row(ElementwiseOp::is_nan, {best});
      wins = row(ElementwiseOp::logical_or,
                 {wins, row(ElementwiseOp::logical_and,
                            {is_nan, row(ElementwiseOp::logical_not, {was_nan})})});
      ties = row(ElementwiseOp::logical_or,
                 {ties, row(ElementwiseOp::logical_and, {is_nan, was_nan})});
    }
    const Operand earlier =
        row(ElementwiseOp::logical_and, {ties, row(ElementwiseOp::lt, {index, best_index})});
    const Operand take = row(ElementwiseOp::logical_or, {wins, earlier});
    best = full(row(ElementwiseOp::select, {take, candidate, best}), dtype);
    best_index = full(row(ElementwiseOp::select, {take, index, best_index}), DType::I64);
  }

  // `value` broadcast to all dimensions, as carried state must be.
  Operand full(Operand value, DType dtype) {
    const ValueType type = full_type(dtype);
    if (!value.is_literal() && result_.program[value.value].type == type) return value;
    if (value.is_literal()) return builder_.constant(type, value.bits);
    return builder_.view(ViewKind::Broadcast, value, type);
  }

  void fold(const std::vector<Accumulator>& accumulators, const std::vector<Operand>& state) {
    const bool fold_inner = inner_dim_ >= 0 && dims_[static_cast<size_t>(inner_dim_)].tile > 1;
    for (const Accumulator& accumulator : accumulators) {
      const LoopForm& form = *accumulator.form;
      const DType dtype = accumulator_type(form);
      if (form.arg_max) {
        Operand best = state[accumulator.first], index = state[accumulator.first + 1];
        if (fold_inner) index = builder_.arg_fold(*form.arg_max, best, index, {inner_dim_}).second;
        reduced_[accumulator.task->node.index] = {index, DType::I64};
        continue;
      }
      Operand total = state[accumulator.first];
      if (fold_inner)
        total = on_gpu() ? fold_digits(*form.monoid, total)
                         : Operand(builder_.fold(*form.monoid, total, {inner_dim_}));
      // Partial results keep the accumulator's precision.
      reduced_[accumulator.task->node.index] =
          partial_ ? Value{total, dtype} : converted({total, dtype}, form.result);
    }
  }

  // --- Values -------------------------------------------------------------------------------

  // 16-bit floats are storage: arithmetic is in f32.
  Value widened(const Value& value) {
    if (!is_half(value.dtype)) return value;
    if (value.operand.is_literal())
      return {Operand::literal(
                  DType::F32,
                  constant_bits(DType::F32, bits_to_double(value.dtype, value.operand.bits))),
              DType::F32};
    auto [found, added] = widened_.try_emplace(value.operand.value.index);
    if (added) found->second = builder_.row(ElementwiseOp::convert, {value.operand}, DType::F32);
    return {found->second, DType::F32};
  }

  Value converted(const Value& value, DType to) {
    if (value.dtype == to) return value;
    if (is_half(value.dtype) && to == DType::F32) return widened(value);
    if (value.operand.is_literal()) {
      const uint64_t bits =
          evaluate_machine(ElementwiseOp::convert, value.dtype, to, value.operand.bits);
      return {Operand::literal(to, bits), to};
    }
    return {builder_.row(ElementwiseOp::convert, {value.operand}, to), to};
  }

  void store_output(const SpaceTask& task, const Value& value) {
    std::vector<Expr> at;
    Bindings bindings = bindings_;
    for (const auto& [axis, index] : store_bindings_) bindings[axis] = index;
    for (const Expr& e : task.at) at.push_back(e.substitute(bindings));
    if (const auto staged = bulk_outputs_.find(task.node); staged != bulk_outputs_.end())
      return dot_->store(staged->second, full(value.operand, value.dtype));
    // Every active dimension must be in the stored tile, or the store would be incomplete.
    Condition condition;
    for (size_t k = 0; k < dims_.size(); ++k) {
      const TileDim& dim = dims_[k];
      if (dim.partial && dim.tile > 1)
        condition.push_back({dim.base + position(k), IndexComparison::Kind::Lt, dim.extent});
    }
    const Operand stored = full(value.operand, value.dtype);
    const MemoryId memory = memory_of_.at({task.node.index, true});
    // An update in place has its lines in the cache already.
    const bool streams = schedule_.stream && result_.program[memory].mode == Mode::Out;
    builder_.store(stored, memory, place(task.node, std::move(at)), {condition, {}},
                   streams ? CacheHint::Stream : CacheHint::None);
  }

  // --- Values kept between passes -------------------------------------------------------------

  struct Cache {
    NodeId node;
    std::vector<Expr> at;  // over the space's symbols
    MemoryId buffer;
    size_t first_pass;
    std::vector<Expr> place;  // over the space's symbols
  };

  // An expensive value that several passes compute at the same coordinates is kept in a buffer.
  void plan_cache() {
    caches_.clear();
    if (space_.passes.size() < 2 || rows_in_registers()) return;
    for (const SharedValue& candidate : shared_values(request_.forms, request_.fusion, space_)) {
      const Pass& pass = space_.passes[candidate.first_pass];
      std::vector<int64_t> extents;
      std::vector<Expr> place;
      int64_t elements = 1;
      for (size_t k = 0; k < dims_.size(); ++k) {
        if (static_cast<int>(k) == inner_dim_) continue;
        extents.push_back(dims_[k].tile);
        place.push_back(position_of_axis(dims_[k]));
        elements *= dims_[k].tile;
      }
      for (const SpaceAxis& axis : pass.inner) {
        const int64_t most = axis.extent.range().max;
        if (most > (int64_t{1} << 20)) return;
        // Whole tiles are stored, so the last one needs its room.
        const int64_t room = inner_dim_ >= 0 ? (most + schedule_.inner_tile - 1) /
                                                   schedule_.inner_tile * schedule_.inner_tile
                                             : most;
        extents.push_back(std::max<int64_t>(room, 1));
        place.push_back(axis.symbol);
        elements *= extents.back();
      }
      const DType dtype = graph_[candidate.node].type.dtype;
      if (elements * static_cast<int64_t>(size_of(dtype)) > cache_room()) continue;
      caches_.push_back({candidate.node, candidate.at, builder_.buffer("row", dtype, extents),
                         candidate.first_pass, place});
    }
  }

  // Bytes for the values that passes share: on a CPU they should leave the cache some room, on a
  // GPU the sums that threads exchange need little.
  int64_t cache_room() const {
    constexpr int64_t kExchangeBytes = 4096;
    int64_t room =
        on_gpu() ? request_.target.l1_bytes - kExchangeBytes : request_.target.l2_bytes / 4;
    for (const Cache& cache : caches_) {
      const Memory& memory = result_.program[cache.buffer];
      int64_t bytes = static_cast<int64_t>(size_of(memory.dtype));
      for (const Expr& extent : memory.shape) bytes *= extent.as_constant().value_or(1);
      if (on_gpu()) room -= bytes;
    }
    return room;
  }

  std::vector<Expr> cache_place(const Cache& cache) const {
    Bindings bindings = bindings_;
    for (size_t k = 0; k < dims_.size(); ++k)
      if (static_cast<int>(k) != inner_dim_) bindings[position_name(dims_[k].axis)] = position(k);
    std::vector<Expr> out;
    for (const Expr& e : cache.place) out.push_back(e.substitute(bindings));
    return out;
  }

  void fill_caches() {
    for (const Cache& cache : caches_) {
      if (cache.first_pass != current_pass_) continue;
      const Value value = inliner_.value(cache.node, bound(cache.at));
      builder_.store(full(value.operand, value.dtype), cache.buffer, cache_place(cache));
    }
  }

  // --- Contractions: factors copied to where the inner loop reads them ------------------------

  const TileDim* row_dim() const;
  TileDim* row_dim() { return const_cast<TileDim*>(std::as_const(*this).row_dim()); }
  void plan_factors();
  void emit_pack_phases();
  void emit_pack_phase(const Factor& factor);
  void declare_row_buffers();
  void stage_rows(const TileDim& row);
  std::vector<CopyLoop> inner_copy_loops(std::vector<TileDim>& dims, bool tile_last) const;
  void copy_factor(const StagedFactor& staged, std::vector<TileDim> dims, Bindings bindings,
                   std::span<const CopyLoop> loops, bool across);
  void copy_loops(const StagedFactor& staged, std::span<const CopyLoop> loops, bool across);
  void copy_tile(const StagedFactor& staged, bool across);
  std::optional<Value> staged_value(NodeId node, const std::vector<Expr>& at);
  ValueId load_staged(const StagedFactor& staged, const std::vector<bool>& uses);

  // --- The same on a GPU, slice by slice --------------------------------------------------------

  void declare_slices(const Pass& pass);
  std::vector<Operand> slice_loop(const Pass& pass, const Expr& begin, const Expr& end,
                                  const std::vector<Accumulator>& accumulators,
                                  std::vector<Operand> state);
  std::vector<Operand> multiply_slice(const Pass& pass, const Expr& begin, const Expr& count,
                                      const std::vector<Accumulator>& accumulators,
                                      std::vector<Operand> state,
                                      const std::function<void()>& copy);
  std::vector<Operand> steps(
      const Expr& count, int64_t each, std::vector<Operand> state, int64_t unroll,
      const std::function<void()>& copy,
      const std::function<std::vector<Operand>(const Expr&, std::vector<Operand>)>& body);
  void at_fetch(size_t factor, const Expr& begin, const Expr& end, bool partial,
                const std::function<void()>& body);
  Operand fetch(size_t factor, const Expr& begin, const Expr& end, bool partial);
  void put(size_t factor, const Operand& values, const Expr& slot);
  int64_t slots() const { return std::max<int64_t>(schedule_.stages, 2); }
  Operand zero_beyond(const Operand& tile, const Expr& end);
  std::vector<Operand> multiply_matrices(std::vector<Operand> state,
                                         const std::function<void()>& copy);
  ValueId matrix(const StagedFactor& staged, bool right, const Expr& step);

  // --- Placed reductions ----------------------------------------------------------------------

  // Where the sums of an instance are while it walks the terms.
  struct PlacedSums {
    const SpaceTask* task = nullptr;
    const LoopForm* form = nullptr;
    MemoryId memory;
    Expr first, end;  // of the places that are the instance's
    DType place_dtype = DType::I64;
    Operand lowest, highest;  // the loaded places that are theirs
  };
  void emit_placed_phase();
  void check_direct() const;
  PlacedSums declare_sums(const std::vector<Expr>& blocks);
  std::vector<Expr> sums_place(const PlacedSums& sums, const std::vector<Expr>& blocks,
                               const Expr& place) const;
  void begin_sums(const PlacedSums& sums, const std::vector<Expr>& blocks);
  void walk_terms(const PlacedSums& sums, size_t depth, const std::vector<Expr>& blocks);
  void take_each(const PlacedSums& sums, const Expr& low, const Expr& high,
                 const std::vector<Expr>& blocks);
  Expr scan_groups(const PlacedSums& sums, const Expr& extent, const std::vector<Expr>& blocks);
  void at_places(int64_t count, const Expr& first, const std::function<void()>& body);
  Value loaded_places(const PlacedSums& sums);
  ValueId among(const PlacedSums& sums, const Value& places);
  void add_term(const PlacedSums& sums, const Value& loaded, const std::vector<Expr>& blocks);
  Expr place_at_hand() const;
  Guard sums_guard() const;
  Value load_sums(const PlacedSums& sums, const std::vector<Expr>& at);
  void finish_sums(const PlacedSums& sums, const std::vector<Expr>& blocks);

  // --- Split reductions -----------------------------------------------------------------------

  void emit_partial_phase();
  void combine_partials(const Pass& pass);
  bool holds_chunks() const;
  void fold_partials(const Pass& pass);
  std::vector<Expr> partial_place(const Expr& chunk, const Bindings& bindings) const;
  Condition partial_guard() const;

  void new_scope() {
    if (!keeps_values_) forget_values();
  }
  void forget_values() {
    inliner_.forget();
    widened_.clear();
  }

  const TilingRequest& request_;
  const Space& space_;
  const Schedule& schedule_;
  const Graph& graph_;
  std::vector<bool> inside_;
  TiledKernel result_;
  CodeBuilder builder_;
  TileSink sink_;
  Inliner<TileSink> inliner_;

  std::map<std::pair<uint32_t, bool>, MemoryId> memory_of_;  // (node, written)
  std::vector<TileDim> dims_;
  std::vector<TileDim> tile_dims_;  // those of the kernel's tile, where others take their place
  std::map<size_t, size_t> dim_of_parallel_;
  int inner_dim_ = -1;
  Bindings bindings_, store_bindings_;
  std::map<uint32_t, Value> reduced_;
  std::map<uint32_t, ValueId> widened_;
  std::unordered_map<std::string, std::vector<int64_t>> value_extents_;
  std::vector<Cache> caches_;
  bool keeps_values_ = false;  // all passes stand in one region
  int64_t kept_tile_ = 1;      // of the inner dimension of the values kept
  Expr kept_extent_ = 1;
  size_t current_pass_ = 0;
  std::vector<Factor> factors_;
  std::vector<StagedFactor> row_buffers_;  // of the phase, by factor along the rows
  std::vector<StagedFactor> staged_;       // those that hold their values here
  std::vector<SlicedFactor> slices_;
  bool fetching_ = false;               // tiles are those of a slice
  std::string sliced_axis_;             // the reduced axis
  Expr group_begin_;                    // of the steps that one load takes, in the slice
  int64_t group_at_ = 0;                // the step of them at hand
  std::map<MemoryId, ValueId> groups_;  // what was loaded of them
  PipelinedDot* dot_ = nullptr;
  std::map<NodeId, TensorView> views_;
  std::map<NodeId, size_t> bulk_outputs_;  // and their numbers
  bool partial_ = false;
  std::vector<MemoryId> partials_;  // per reduction of the first pass
};

// --- Operations -------------------------------------------------------------------------------

Value TileSink::load(NodeId node, std::vector<Expr> at, const Conditions& conditions) {
  Emitter& e = emitter_;
  if (conditions.empty())
    if (const auto staged = e.staged_value(node, at)) return *staged;
  const DType dtype = e.graph_[node].type.dtype;
  Condition condition = e.to_condition(conditions);
  std::vector<bool> uses(e.dims_.size());
  for (const Expr& coordinate : at) e.note_uses(coordinate, uses);
  for (const IndexComparison& c : condition) {
    e.note_uses(c.left, uses);
    e.note_uses(c.right, uses);
  }
  for (size_t k = 0; k < e.dims_.size(); ++k) {
    const TileDim& dim = e.dims_[k];
    if (uses[k] && dim.lane && dim.partial)
      condition.push_back({dim.base + e.position(k), IndexComparison::Kind::Lt, dim.extent});
  }
  const Expr offset = linear_offset(at, e.graph_[node].type.shape);
  const MemoryId memory = e.memory_of_.at({node.index, false});
  const ValueType type = e.tile_type(dtype, uses);
  if (const auto contiguous = e.crossing_dim(offset, type))
    return {e.load_across(memory, offset, condition, type, *contiguous), dtype};
  return {e.builder_.load(memory, e.place(node, std::move(at)), type, {condition, {}}), dtype};
}

Value TileSink::reduced(NodeId node, const std::vector<Expr>&) {
  return emitter_.reduced_.at(node.index);
}

Value TileSink::index(const Expr& value, DType dtype) {
  std::vector<bool> uses(emitter_.dims_.size());
  emitter_.note_uses(value, uses);
  return {emitter_.builder_.iota(value, emitter_.tile_type(dtype, uses)), dtype};
}

Value TileSink::inside(const Conditions& conditions) {
  const Condition condition = emitter_.to_condition(conditions);
  if (condition.empty()) return constant(DType::Bool, 1);
  std::vector<bool> uses(emitter_.dims_.size());
  for (const IndexComparison& c : condition) {
    emitter_.note_uses(c.left, uses);
    emitter_.note_uses(c.right, uses);
  }
  return {emitter_.builder_.test(condition, emitter_.tile_type(DType::Bool, uses)), DType::Bool};
}

Value TileSink::apply(ElementwiseOp op, std::span<const Value> arguments, DType result) {
  CodeBuilder& builder = emitter_.builder_;
  if (op == ElementwiseOp::convert) return emitter_.converted(arguments[0], result);
  if (op == ElementwiseOp::select && arguments[0].operand.is_literal())
    return arguments[0].operand.bits ? arguments[1] : arguments[2];
  const bool literals = std::all_of(arguments.begin(), arguments.end(),
                                    [](const Value& v) { return v.operand.is_literal(); });
  if (literals && is_machine(op)) {
    uint64_t bits[3] = {};
    for (size_t i = 0; i < arguments.size(); ++i) bits[i] = arguments[i].operand.bits;
    return constant(
        result, evaluate_machine(op, arguments.back().dtype, result, bits[0], bits[1], bits[2]));
  }
  // Moving 16-bit values needs no arithmetic; all else is computed in f32 and rounded once.
  const bool moves = op == ElementwiseOp::select || op == ElementwiseOp::bitcast;
  std::vector<Operand> operands;
  for (const Value& argument : arguments)
    operands.push_back(moves ? argument.operand : emitter_.widened(argument).operand);
  if (literals) {
    const Value first = moves ? arguments[0] : emitter_.widened(arguments[0]);
    operands[0] =
        builder.constant(emitter_.tile_type(first.dtype, std::vector<bool>(emitter_.dims_.size())),
                         first.operand.bits);
  }
  if (has_half_body(op, result))
    return emitter_.converted({emit_half_body(builder, op, operands[0], result), DType::F32},
                              result);
  const DType computed = moves ? result : compute_type(result);
  const Value value{
      builder.row(op, operands,
                  op == ElementwiseOp::bitcast ? std::optional(result) : std::nullopt),
      computed};
  return emitter_.converted(value, result);
}

Expr TileSink::as_index(const Value& value, const Expr& extent) {
  CodeBuilder& builder = emitter_.builder_;
  const std::vector<bool> none(emitter_.dims_.size());
  const ValueId last = builder.iota(extent - 1, emitter_.tile_type(DType::I64, none));
  Operand clamped =
      builder.row(ElementwiseOp::min,
                  {value.operand.is_literal() ? Operand::literal(DType::I64, value.operand.bits)
                                              : value.operand,
                   last});
  clamped = builder.row(ElementwiseOp::max, {clamped, Operand::literal(DType::I64, 0)});
  const Expr symbol = value_symbol(builder.code(), clamped.value);
  emitter_.value_extents_[symbol.symbol_name()] = builder.code()[clamped.value].type.extents;
  return symbol;
}

std::optional<Value> TileSink::cached(NodeId node, const std::vector<Expr>& at) {
  Emitter& e = emitter_;
  if (const auto staged = e.staged_value(node, at)) return staged;
  for (const Emitter::Cache& cache : e.caches_) {
    if (cache.node != node || cache.first_pass >= e.current_pass_ || e.bound(cache.at) != at)
      continue;
    const DType dtype = e.graph_[node].type.dtype;
    return Value{e.builder_.load(cache.buffer, e.cache_place(cache), e.full_type(dtype)), dtype};
  }
  return std::nullopt;
}

// --- Matrix units -------------------------------------------------------------------------------

// The skeleton multiplies; the passes behind it run on one slab of its sums at a time.
void Emitter::emit_on_matrix_units() {
  const auto product = matrix_product(request_, space_);
  if (!product)
    fail(kScheduleThreads,
         fmt::format("schedule of @{}: the kernel is no product of two matrices in 16-bit floats "
                     "that copies in bulk can fetch",
                     request_.name),
         {.fix = "leave out stages="});
  result_.program.pipelined = true;
  result_.program.target = request_.target.name;
  PipelinedDot dot(builder_, space_, *product, schedule_,
                   memory_of_.at({product->a.node.index, false}),
                   memory_of_.at({product->b.node.index, false}));
  dot_ = &dot;
  const auto dimension = [&](size_t p, int64_t tile, int64_t whole, bool lane) {
    const SpaceAxis& axis = space_.parallel[p];
    dims_.push_back({.axis = axis.symbol.symbol_name(),
                     .extent = axis.extent,
                     .tile = tile,
                     .lane = lane,
                     .partial = !axis.extent.is_multiple_of(whole)});
  };
  dimension(product->row, PipelinedDot::kSlabRows, schedule_.tile[product->row] * schedule_.cluster,
            false);
  dimension(product->lane, PipelinedDot::kSlabColumns, schedule_.tile[product->lane], true);
  stage_outputs(*product);
  const NodeId node = space_.passes[0].reduces[0].node;
  const DType dtype = request_.forms.find(node)->result;
  PipelinedDot::Epilogue epilogue{.dtype = dtype};
  epilogue.rounded = [&](ValueId sums) { return converted({sums, DType::F32}, dtype).operand; };
  epilogue.follow = [&](const PipelinedDot::Part& part) {
    for (size_t p = 0; p < part.first.size(); ++p) {
      const std::string& axis = space_.parallel[p].symbol.symbol_name();
      bindings_[axis] = store_bindings_[axis] = part.first[p];
    }
    dims_[0].base = part.first[product->row];
    dims_[0].tile = part.rows;
    dims_[1].base = part.first[product->lane];
    for (TileDim& dim : dims_) bind_parallel_tile(dim);
    forget_values();
    reduced_[node.index] = {part.sums, dtype};
    for (size_t n = 1; n < space_.passes.size(); ++n) emit_pass(n, {}, {});
  };
  dot.emit(epilogue);
  assign_dot_layouts(result_.program, schedule_.tile[product->lane],
                     PipelinedDot::epilogue_rows(schedule_, dtype));
}

// Outputs whose matrices have rows and lanes in order go out in bulk.
void Emitter::stage_outputs(const MatrixProduct& product) {
  for (size_t n = 1; n < space_.passes.size(); ++n) {
    for (const SpaceTask& task : space_.passes[n].stores) {
      const auto bytes = static_cast<int64_t>(size_of(graph_[task.node].type.dtype));
      const TensorView& view = views_.at(task.node);
      std::vector<Expr> at = view.at(task.at);
      if ((bytes == 2 || bytes == 4) && lies_along(at, product.row, product.lane) &&
          (view.shape().dims().back() * Expr(bytes)).is_multiple_of(16))
        bulk_outputs_[task.node] =
            dot_->stage_output(memory_of_.at({task.node.index, true}), std::move(at));
    }
  }
}

// Whether the last coordinate is the lane, another the row, and all others neither.
bool Emitter::lies_along(const std::vector<Expr>& at, size_t row, size_t lane) const {
  const Expr &r = space_.parallel[row].symbol, &l = space_.parallel[lane].symbol;
  if (at.size() < 2 || at.size() > kMostTensorRank || at.back() != l) return false;
  return std::count(at.begin(), at.end(), r) == 1 &&
         std::all_of(at.begin(), at.end() - 1, [&](const Expr& e) {
           return e == r || (!e.uses(r.symbol_name()) && !e.uses(l.symbol_name()));
         });
}

// --- Contractions -----------------------------------------------------------------------------

const TileDim* Emitter::row_dim() const {
  for (const TileDim& dim : dims_)
    if (!dim.lane) return &dim;
  return nullptr;
}

void Emitter::plan_factors() {
  if (!schedule_.pack && !schedule_.stage && schedule_.slice == 0) return;
  const SpaceAxis* row = nullptr;
  for (const SpaceAxis& axis : space_.parallel)
    if (row_dim() && axis.symbol.symbol_name() == row_dim()->axis) row = &axis;
  BRAZE_CHECK(row && schedule_.lane_axis >= 0, "a contraction has rows and lanes");
  factors_ =
      factors(request_, space_, space_.parallel[static_cast<size_t>(schedule_.lane_axis)], *row);
  if (schedule_.mma && !sums_matrix_products(request_, space_, factors_))
    fail(kScheduleThreads,
         fmt::format("schedule of @{}: the kernel sums no products of two factors in 16-bit "
                     "floats, or in f32 where tf32 will do",
                     request_.name),
         {.fix = "leave out mma="});
}

// The loops over the inner axes; the last in steps of vectors, which become the tile's last
// dimension, if `tile_last`.
std::vector<CopyLoop> Emitter::inner_copy_loops(std::vector<TileDim>& dims, bool tile_last) const {
  std::vector<CopyLoop> loops;
  const auto& inner = space_.passes.front().inner;
  for (const SpaceAxis& axis : inner) loops.push_back({axis.symbol.symbol_name(), 0, axis.extent});
  if (!tile_last) return loops;
  CopyLoop& last = loops.back();
  last.step = std::min<int64_t>(kCopyVectors * request_.target.vector_lanes(4),
                                ceil_power_of_two(last.count.range().max));
  if (!dims.empty()) last.step = std::min<int64_t>(last.step, request_.target.vector_lanes(4));
  last.dim = static_cast<int>(dims.size());
  dims.push_back({.axis = last.axis, .extent = last.count, .tile = last.step, .lane = true});
  return loops;
}

void Emitter::emit_pack_phases() {
  for (const Factor& factor : factors_)
    if (factor.lanes) emit_pack_phase(factor);
}

// Panels of the lanes' factor, as wide as a tile: [batch axes, panel, inner axes, lane]. The inner
// loop reads them front to back.
void Emitter::emit_pack_phase(const Factor& factor) {
  const SpaceAxis& lane = space_.parallel[static_cast<size_t>(schedule_.lane_axis)];
  const int64_t width = schedule_.tile[static_cast<size_t>(schedule_.lane_axis)];
  const std::string& lane_name = lane.symbol.symbol_name();
  StagedFactor staged{factor.value, {}, {}, compute_type(graph_[factor.value.node].type.dtype)};
  std::vector<Expr> shape;
  std::vector<GridAxis> grid;
  Bindings bindings;
  for (const SpaceAxis& axis : space_.parallel) {
    const std::string& name = axis.symbol.symbol_name();
    const bool used = std::any_of(factor.value.at.begin(), factor.value.at.end(),
                                  [&](const Expr& e) { return e.uses(name); });
    if (name == lane_name || !used) continue;
    const std::string symbol = builder_.fresh_name("g");
    grid.push_back({symbol, axis.extent});
    bindings[name] = grid_symbol(symbol, axis.extent);
    shape.push_back(axis.extent);
    staged.place.push_back(axis.symbol);
  }
  const Expr panels = ceildiv(lane.extent, width);
  const std::string panel = builder_.fresh_name("panel");
  grid.push_back({panel, panels});
  shape.push_back(panels);
  staged.place.push_back(floordiv(lane.symbol, width));
  for (const SpaceAxis& axis : space_.passes.front().inner) {
    shape.push_back(axis.extent);
    staged.place.push_back(axis.symbol);
  }
  shape.push_back(width);
  staged.place.push_back(mod(lane.symbol, width));
  staged.memory = builder_.add_memory({.name = "panels",
                                       .space = MemorySpace::Workspace,
                                       .mode = Mode::InOut,
                                       .dtype = staged.dtype,
                                       .shape = shape,
                                       .align = 64});

  // A factor that lies along the inner axis is read along it and transposed tile by tile.
  std::vector<TileDim> dims{{.axis = lane_name,
                             .extent = lane.extent,
                             .tile = width,
                             .base = grid_symbol(panel, panels) * Expr(width),
                             .lane = !factor.across,
                             .partial = !lane.extent.is_multiple_of(width)}};
  const Expr column = dims[0].base + position_symbol('d', 0, width);
  const bool clamped = factor.across && dims[0].partial;
  bindings[lane_name] = clamped ? min(column, lane.extent - 1) : column;
  const auto loops = inner_copy_loops(dims, factor.across);
  Region region;
  builder_.enter(region);
  copy_factor(staged, std::move(dims), std::move(bindings), loops, factor.across);
  builder_.leave();
  new_phase(std::move(grid)) = std::move(region);
  staged_.push_back(std::move(staged));
}

// Buffers for the rows' factors of one tile: [row, inner axes], or [inner axes, row] where the rows
// are contiguous.
void Emitter::declare_row_buffers() {
  row_buffers_.clear();
  if (!schedule_.stage) return;
  const TileDim& row = *row_dim();
  for (const Factor& factor : factors_) {
    if (factor.lanes) continue;
    StagedFactor staged{factor.value, {}, {}, compute_type(graph_[factor.value.node].type.dtype)};
    std::vector<int64_t> extents;
    for (const SpaceAxis& axis : space_.passes.front().inner) {
      extents.push_back(std::max<int64_t>(axis.extent.range().max, 1));
      staged.place.push_back(axis.symbol);
    }
    if (factor.across) {
      // Whole vectors are stored. Rows an odd number of lines apart do not share a cache set.
      const int64_t unit = kCopyVectors * request_.target.vector_lanes(4);
      extents.back() = (extents.back() + unit - 1) / unit * unit + kLineElements;
      extents.insert(extents.begin(), row.tile);
      staged.place.insert(staged.place.begin(), position_of_axis(row));
    } else {
      extents.push_back(ceil_power_of_two(row.tile));
      staged.place.push_back(position_of_axis(row));
    }
    staged.memory = builder_.buffer("rows", staged.dtype, extents);
    row_buffers_.push_back(std::move(staged));
  }
}

// Fills the buffers for the tile of rows at hand.
void Emitter::stage_rows(const TileDim& row) {
  size_t next = 0;
  for (const Factor& factor : factors_) {
    if (factor.lanes || row_buffers_.empty()) continue;
    const StagedFactor& staged = row_buffers_[next++];
    std::vector<TileDim> dims;
    Bindings bindings = bindings_;
    std::vector<CopyLoop> loops;
    if (factor.across) {
      loops = inner_copy_loops(dims, true);
      CopyLoop rows{row.axis, row.base, row.tile};
      if (row.partial) rows.last = row.extent - 1;
      loops.insert(loops.begin(), std::move(rows));
    } else {
      dims.push_back(row);
      dims[0].lane = true;
      bindings[row.axis] = row.base + position_symbol('d', 0, row.tile);
      loops = inner_copy_loops(dims, false);
    }
    copy_factor(staged, std::move(dims), std::move(bindings), loops, false);
    staged_.push_back(staged);
  }
}

// Runs the loops with tiles along `dims` in place of the kernel's.
void Emitter::copy_factor(const StagedFactor& staged, std::vector<TileDim> dims, Bindings bindings,
                          std::span<const CopyLoop> loops, bool across) {
  std::swap(dims_, dims);
  std::swap(bindings_, bindings);
  new_scope();
  copy_loops(staged, loops, across);
  new_scope();
  std::swap(dims_, dims);
  std::swap(bindings_, bindings);
}

void Emitter::copy_loops(const StagedFactor& staged, std::span<const CopyLoop> loops, bool across) {
  if (loops.empty()) return copy_tile(staged, across);
  const CopyLoop& loop = loops.front();
  const auto turn = [&](const Expr& begin, bool partial) {
    Expr index = loop.base + begin;
    if (loop.dim >= 0) {
      TileDim& dim = dims_[static_cast<size_t>(loop.dim)];
      dim.base = index;
      dim.partial = partial;
      index += position(static_cast<size_t>(loop.dim));
    }
    bindings_[loop.axis] = loop.last ? min(index, *loop.last) : index;
    bindings_[position_name(loop.axis)] = begin;
    new_scope();
    copy_loops(staged, loops.subspan(1), across);
  };
  const Expr whole = floordiv(loop.count, loop.step) * Expr(loop.step);
  if (!whole.is_constant(0))
    loop_or_once(0, whole, loop.step, whole.is_constant(loop.step),
                 [&](const Expr& begin) { turn(begin, false); });
  if (!loop.count.is_multiple_of(loop.step))
    builder_.if_then({{whole, IndexComparison::Kind::Lt, loop.count}}, [&] { turn(whole, true); });
}

void Emitter::copy_tile(const StagedFactor& staged, bool across) {
  const Value value = widened(inliner_.value(staged.value.node, bound(staged.value.at)));
  Operand tile = full(value.operand, value.dtype);
  if (across)
    tile = builder_.view(ViewKind::Transpose, tile,
                         {value.dtype, 1, {dims_[1].tile, dims_[0].tile}}, {1, 0});
  Bindings bindings = bindings_;
  Guard guard;
  for (size_t k = 0; k < dims_.size(); ++k) {
    const TileDim& dim = dims_[k];
    const Expr position = position_symbol('d', across ? 1 - k : k, dim.tile);
    bindings[dim.axis] = dim.base + position;
    bindings[position_name(dim.axis)] = position;
    // Panels have no room beyond the inner axes, buffers have.
    if (across && k == 1 && dim.partial)
      guard.condition.push_back({dim.base + position, IndexComparison::Kind::Lt, dim.extent});
  }
  std::vector<Expr> place;
  for (const Expr& e : staged.place) place.push_back(e.substitute(bindings));
  builder_.store(tile, staged.memory, std::move(place), guard);
}

std::optional<Value> Emitter::staged_value(NodeId node, const std::vector<Expr>& at) {
  if (fetching_) return std::nullopt;
  for (const StagedFactor& staged : staged_) {
    if (staged.value.node != node || bound(staged.value.at) != at) continue;
    std::vector<bool> uses(dims_.size());
    for (const Expr& coordinate : at) note_uses(coordinate, uses);
    const ValueId value = load_staged(staged, uses);
    const DType dtype = graph_[node].type.dtype;
    if (dtype == staged.dtype) return Value{value, dtype};
    // Widening the narrowed value gives it back.
    const ValueId narrow = builder_.row(ElementwiseOp::convert, {value}, dtype);
    widened_[narrow.index] = value;
    return Value{narrow, dtype};
  }
  return std::nullopt;
}

// Several steps of a row's factor lie side by side: one load takes them, each is a part of it.
ValueId Emitter::load_staged(const StagedFactor& staged, const std::vector<bool>& uses) {
  if (staged.together == 1)
    return builder_.load(staged.memory, bound(staged.place), tile_type(staged.dtype, uses));
  const ValueType one = tile_type(staged.dtype, uses);
  auto [group, added] = groups_.try_emplace(staged.memory);
  if (added) {
    ValueType type = one;
    type.extents.back() = staged.together;
    Layout layout =
        layout_of(result_.program.layouts, one.extents, result_.program.warps * kWarpThreads);
    layout.axes.back() = {{Resource::Register, 1, staged.together}};
    add_layout(std::move(layout));
    Bindings bindings = bindings_;
    bindings[position_name(sliced_axis_)] =
        group_begin_ + position_symbol('d', type.rank() - 1, staged.together);
    std::vector<Expr> place;
    for (const Expr& e : staged.place) place.push_back(e.substitute(bindings));
    group->second = builder_.load(staged.memory, std::move(place), type);
  }
  return builder_.view(ViewKind::Slice, group->second, one, {0, group_at_});
}

// --- Slices of factors, on a GPU ----------------------------------------------------------------

// Two slices of each factor: [slot, reduced axis, lanes or rows]; a factor of the rows that lies
// along the reduced axis stays so, and several steps are read at once.
void Emitter::declare_slices(const Pass& pass) {
  slices_.clear();
  constexpr int64_t kAccessBytes = 16;
  const SpaceAxis& inner = pass.inner.back();
  sliced_axis_ = inner.symbol.symbol_name();
  const Expr step = Expr::symbol(position_name(sliced_axis_), {0, schedule_.slice - 1});
  for (const Factor& factor : factors_) {
    const TileDim& dim = dims_[factor.lanes ? 1 : 0];
    const DType dtype = compute_type(graph_[factor.value.node].type.dtype);
    const int64_t vector = kAccessBytes / static_cast<int64_t>(size_of(dtype));
    SlicedFactor slice{{factor.value, {}, {}, dtype},
                       factor.lanes,
                       factor.across,
                       factor.computed,
                       schedule_.stages > 0 && !factor.computed,
                       factor.vector};
    std::vector<int64_t> extents{slots(), schedule_.slice, dim.tile};
    slice.staged.place = {slot_symbol(), step, position_of_axis(dim)};
    if (factor.across && (schedule_.mma || !factor.lanes)) {
      std::swap(extents[1], extents[2]);
      std::swap(slice.staged.place[1], slice.staged.place[2]);
      // The tile that one load takes must differ from that of the sums.
      if (!schedule_.mma && schedule_.slice % vector == 0 && dims_[1].tile > vector)
        slice.staged.together = vector;
    }
    // Rows that are read, or written, side by side by one warp lie in different banks.
    if (schedule_.mma)
      extents[2] += factor.across ? vector : 2 * vector;
    else if (factor.across)
      extents[2] += vector;
    slice.staged.memory = builder_.buffer("slices", dtype, extents);
    slices_.push_back(std::move(slice));
  }
}

// Runs the body with the tile of a factor's slice in place of the kernel's. The tiles of factors
// have ranks of their own, and so layouts of their own.
void Emitter::at_fetch(size_t factor, const Expr& begin, const Expr& end, bool partial,
                       const std::function<void()>& body) {
  const SlicedFactor& slice = slices_[factor];
  TileDim along = dims_[slice.lanes ? 1 : 0];
  along.lane = true;
  TileDim reduced{.axis = sliced_axis_,
                  .extent = end,
                  .tile = schedule_.slice,
                  .base = begin,
                  .lane = true,
                  .partial = partial};
  std::vector<TileDim> dims(factor + 1);
  dims.push_back(slice.across ? along : reduced);
  dims.push_back(slice.across ? reduced : along);
  Bindings bindings = bindings_;
  std::swap(dims_, dims);
  for (size_t k = factor + 1; k < dims_.size(); ++k) {
    bindings_[dims_[k].axis] = dims_[k].base + position(k);
    bindings_[position_name(dims_[k].axis)] = position(k);
  }
  std::vector<int64_t> extents, threads(dims_.size(), 1);
  for (const TileDim& dim : dims_) extents.push_back(dim.tile);
  const int64_t all = result_.program.warps * kWarpThreads;
  threads.back() = std::min(all, std::max<int64_t>(extents.back() / slice.vector, 1));
  threads[threads.size() - 2] = all / threads.back();
  add_layout(spread(extents, threads, slice.vector));
  fetching_ = true;
  new_scope();
  body();
  new_scope();
  fetching_ = false;
  std::swap(dims_, dims);
  bindings_ = std::move(bindings);
}

Operand Emitter::fetch(size_t factor, const Expr& begin, const Expr& end, bool partial) {
  Operand tile;
  at_fetch(factor, begin, end, partial, [&] {
    const ValueAt& at = slices_[factor].staged.value;
    const Value value = widened(inliner_.value(at.node, bound(at.at)));
    tile = full(value.operand, value.dtype);
    // Matrices take what lies beyond as they take the rest: it must be zero.
    if (schedule_.mma && partial && slices_[factor].computed) tile = zero_beyond(tile, end);
  });
  return tile;
}

Operand Emitter::zero_beyond(const Operand& tile, const Expr& end) {
  const auto reduced = std::find_if(dims_.begin(), dims_.end(),
                                    [&](const TileDim& dim) { return dim.axis == sliced_axis_; });
  const auto k = static_cast<size_t>(reduced - dims_.begin());
  std::vector<bool> uses(dims_.size());
  uses[k] = true;
  const ValueId inside =
      builder_.test({{reduced->base + position(k), IndexComparison::Kind::Lt, end}},
                    tile_type(DType::Bool, uses));
  return builder_.row(ElementwiseOp::select, {inside, tile, Operand::literal(DType::F32, 0)});
}

void Emitter::put(size_t factor, const Operand& values, const Expr& slot) {
  const StagedFactor& staged = slices_[factor].staged;
  Bindings bindings = bindings_;
  bindings_[slot_symbol().symbol_name()] = slot;
  at_fetch(factor, 0, schedule_.slice, false,
           [&] { builder_.store(values, staged.memory, bound(staged.place)); });
  bindings_ = std::move(bindings);
}

// While a slice is multiplied the next ones are under way. What lies beyond the reduced axis is
// fetched as zeros, and multiplied by matrix units alone.
std::vector<Operand> Emitter::slice_loop(const Pass& pass, const Expr& begin, const Expr& end,
                                         const std::vector<Accumulator>& accumulators,
                                         std::vector<Operand> state) {
  const int64_t length = schedule_.slice;
  const bool whole = (end - begin).is_multiple_of(length) && (end - begin).range().min >= length;
  // Matrices multiply the zeros beyond: their last slice is like the others.
  const Expr turns = builder_.let(
      "turns", schedule_.mma ? ceildiv(end - begin, length) : floordiv(end - begin, length));
  declare_slices(pass);
  // The last turns of whole slices fetch the last once more.
  const auto fetched = [&](size_t factor, const Expr& n) {
    const Expr first = begin + (whole ? min(n, turns - 1) : n) * Expr(length);
    return fetch(factor, first, end, !whole);
  };
  const auto fetch_all = [&](const Expr& n) {
    std::vector<Operand> values(slices_.size());
    for (size_t i = 0; i < slices_.size(); ++i)
      if (!slices_[i].ahead) values[i] = fetched(i, n);
    return values;
  };
  const auto put_all = [&](const std::vector<Operand>& values, const Expr& slot) {
    for (size_t i = 0; i < slices_.size(); ++i)
      if (!slices_[i].ahead) put(i, values[i], slot);
  };
  const auto copy_ahead = [&](const Expr& n, const Expr& slot) {
    for (size_t i = 0; i < slices_.size(); ++i)
      if (slices_[i].ahead) put(i, fetched(i, n), slot);
  };
  for (int64_t n = 0; n + 1 < slots(); ++n) {
    put_all(fetch_all(n), n);
    copy_ahead(n, n);
  }
  const size_t staged = staged_.size();
  for (const SlicedFactor& slice : slices_) staged_.push_back(slice.staged);
  const auto at_slot = [&](const Expr& slot) { bindings_[slot_symbol().symbol_name()] = slot; };
  state = loop("slice", 0, turns, 1, std::move(state), 1,
               [&](const Expr& turn, std::vector<Operand> carried) {
                 const Expr slot = mod(turn, slots()), next = turn + (slots() - 1);
                 const auto values = fetch_all(next);
                 at_slot(slot);
                 const auto copy = [&] { copy_ahead(next, mod(next, slots())); };
                 carried = schedule_.mma ? multiply_matrices(std::move(carried), copy)
                                         : multiply_slice(pass, begin + turn * Expr(length), length,
                                                          accumulators, std::move(carried), copy);
                 put_all(values, mod(next, slots()));
                 return carried;
               });
  if (!whole && !schedule_.mma) {
    at_slot(mod(turns, slots()));
    const Expr rest = begin + turns * Expr(length);
    state = multiply_slice(pass, rest, end - rest, accumulators, std::move(state), {});
  }
  staged_.resize(staged);
  return state;
}

// The steps of a slice, `each` at a time. What the first reads is there, so what is copied from
// then on cannot overwrite what others still read.
std::vector<Operand> Emitter::steps(
    const Expr& count, int64_t each, std::vector<Operand> state, int64_t unroll,
    const std::function<void()>& copy,
    const std::function<std::vector<Operand>(const Expr&, std::vector<Operand>)>& body) {
  const bool ahead = copy && std::any_of(slices_.begin(), slices_.end(),
                                         [](const SlicedFactor& slice) { return slice.ahead; });
  if (!ahead) return loop("k", 0, count, each, std::move(state), unroll, body);
  state = body(0, std::move(state));
  copy();
  if (count.is_constant(each)) return state;
  return loop("k", each, count, each, std::move(state), unroll, body);
}

// Eight steps at a time, by the matrix units of the warps.
std::vector<Operand> Emitter::multiply_matrices(std::vector<Operand> state,
                                                const std::function<void()>& copy) {
  const SlicedFactor& first = slices_[0];
  const StagedFactor &left = slices_[first.lanes ? 1 : 0].staged,
                     &right = slices_[first.lanes ? 0 : 1].staged;
  return steps(schedule_.slice, kMatrixDepth, std::move(state), schedule_.slice / kMatrixDepth,
               copy, [&](const Expr& k, std::vector<Operand> carried) {
                 TileDotOp dot{.a = matrix(left, false, k),
                               .b = matrix(right, true, k),
                               .c = carried[0],
                               .a_buffer = {},
                               .b_buffer = {},
                               .tf32 = true};
                 return std::vector<Operand>{
                     builder_.append(std::move(dot), {full_type(DType::F32)}, "dot")[0]};
               });
}

// Rows x steps, or steps x lanes, of the slice at hand.
ValueId Emitter::matrix(const StagedFactor& staged, bool right, const Expr& step) {
  Bindings bindings = bindings_;
  bindings[position_name(sliced_axis_)] = step + position_symbol('d', right ? 0 : 1, kMatrixDepth);
  std::vector<Expr> place;
  for (const Expr& e : staged.place) place.push_back(e.substitute(bindings));
  ValueType type = full_type(staged.dtype);
  type.extents[right ? 0 : 1] = kMatrixDepth;
  return builder_.load(staged.memory, std::move(place), type);
}

// The steps of the slice that begins at index `begin`. Only a count that is known is unrolled.
std::vector<Operand> Emitter::multiply_slice(const Pass& pass, const Expr& begin, const Expr& count,
                                             const std::vector<Accumulator>& accumulators,
                                             std::vector<Operand> state,
                                             const std::function<void()>& copy) {
  const bool known = count.as_constant().has_value();
  int64_t together = 1;
  for (StagedFactor& staged : staged_) {
    if (!known) staged.together = 1;
    together = std::max(together, staged.together);
  }
  return steps(count, together, std::move(state), known ? schedule_.slice / together : 1, copy,
               [&](const Expr& k, std::vector<Operand> carried) {
                 groups_.clear();
                 group_begin_ = k;
                 for (group_at_ = 0; group_at_ < together; ++group_at_) {
                   bindings_[sliced_axis_] = begin + k + group_at_;
                   bindings_[position_name(sliced_axis_)] = k + group_at_;
                   new_scope();
                   carried = inner_step(pass, accumulators, std::move(carried));
                 }
                 return carried;
               });
}

// --- Split reductions -------------------------------------------------------------------------

// Where the partial results of a chunk lie: [chunk, parallel axes].
std::vector<Expr> Emitter::partial_place(const Expr& chunk, const Bindings& bindings) const {
  std::vector<Expr> place{chunk};
  for (const SpaceAxis& axis : space_.parallel) place.push_back(axis.symbol.substitute(bindings));
  return place;
}

Condition Emitter::partial_guard() const {
  Condition condition;
  for (size_t k = 0; k < dims_.size(); ++k)
    if (dims_[k].partial && dims_[k].tile > 1)
      condition.push_back(
          {dims_[k].base + position(k), IndexComparison::Kind::Lt, dims_[k].extent});
  return condition;
}

// Each chunk of the outermost reduction axis leaves its sums in a workspace.
void Emitter::emit_partial_phase() {
  const Pass& pass = space_.passes.front();
  std::vector<Expr> shape{schedule_.split};
  for (const SpaceAxis& axis : space_.parallel) shape.push_back(axis.extent);
  for (const SpaceTask& task : pass.reduces) {
    const LoopForm* form = request_.forms.find(task.node);
    BRAZE_CHECK(!form->arg_max, "arg-reductions are not split");
    partials_.push_back(builder_.add_memory({.name = "partial",
                                             .space = MemorySpace::Workspace,
                                             .mode = Mode::InOut,
                                             .dtype = accumulator_type(*form),
                                             .shape = shape,
                                             .align = 64}));
  }
  const std::string chunk_name = builder_.fresh_name("chunk");
  const Expr chunk = grid_symbol(chunk_name, schedule_.split);
  const Expr& extent = pass.inner.front().extent;
  const int64_t unit = pass.inner.size() == 1 ? std::max(schedule_.inner_tile, schedule_.slice) : 1;
  const Expr length = ceildiv(extent, schedule_.split * unit) * Expr(unit);
  emit_phase(
      [&] {
        const Expr low = builder_.let("low", min(chunk * length, extent));
        // Of chunks of one length, the length is known.
        const Expr high = extent.is_multiple_of(schedule_.split * unit)
                              ? low + length
                              : builder_.let("high", min(chunk * length + length, extent));
        partial_ = true;
        emit_pass(0, low, high);
        partial_ = false;
        Bindings bindings = bindings_;
        for (const auto& [axis, index] : store_bindings_) bindings[axis] = index;
        for (size_t i = 0; i < pass.reduces.size(); ++i) {
          const Value& sum = reduced_.at(pass.reduces[i].node.index);
          builder_.store(full(sum.operand, sum.dtype), partials_[i], partial_place(chunk, bindings),
                         {partial_guard(), {}});
        }
        reduced_.clear();
      },
      {{chunk_name, schedule_.split}});
}

// Adds the chunks in order.
void Emitter::combine_partials(const Pass& pass) {
  current_pass_ = 0;
  set_inner_tile({});
  if (on_gpu() && holds_chunks()) {
    fold_partials(pass);
    return;
  }
  std::vector<Operand> state;
  for (const SpaceTask& task : pass.reduces) {
    const LoopForm* form = request_.forms.find(task.node);
    const DType dtype = accumulator_type(*form);
    state.emplace_back(builder_.constant(full_type(dtype), identity_bits(*form)));
  }
  state =
      loop("chunk", 0, schedule_.split, 1, std::move(state), 1,
           [&](const Expr& chunk, std::vector<Operand> carried) {
             for (size_t i = 0; i < pass.reduces.size(); ++i) {
               const LoopForm* form = request_.forms.find(pass.reduces[i].node);
               Condition guard;
               for (size_t k = 0; k < dims_.size(); ++k)
                 if (dims_[k].lane && dims_[k].partial && dims_[k].tile > 1)
                   guard.push_back(
                       {dims_[k].base + position(k), IndexComparison::Kind::Lt, dims_[k].extent});
               const ValueId part = builder_.load(partials_[i], partial_place(chunk, bindings_),
                                                  full_type(accumulator_type(*form)), {guard, {}});
               carried[i] = builder_.row(info(*form->monoid).combine, {carried[i], part});
             }
             return carried;
           });
  for (size_t i = 0; i < pass.reduces.size(); ++i) {
    const LoopForm* form = request_.forms.find(pass.reduces[i].node);
    reduced_[pass.reduces[i].node.index] =
        converted({state[i], accumulator_type(*form)}, form->result);
  }
}

// Whether a thread's registers hold its elements of all chunks.
bool Emitter::holds_chunks() const {
  constexpr int64_t kMost = 128;
  int64_t elements = schedule_.split;
  for (const TileDim& dim : dims_) elements *= dim.tile;
  return schedule_.slice == 0 || elements <= kMost * result_.program.warps * kWarpThreads;
}

// The same with all chunks at once: one more axis of a tile.
void Emitter::fold_partials(const Pass& pass) {
  const auto chunk_axis = static_cast<int64_t>(dims_.size());
  Condition guard;
  for (size_t k = 0; k < dims_.size(); ++k)
    if (dims_[k].lane && dims_[k].partial && dims_[k].tile > 1)
      guard.push_back({dims_[k].base + position(k), IndexComparison::Kind::Lt, dims_[k].extent});
  for (size_t i = 0; i < pass.reduces.size(); ++i) {
    const LoopForm* form = request_.forms.find(pass.reduces[i].node);
    const ValueType type = full_type(accumulator_type(*form));
    ValueType chunks = type;
    chunks.extents.push_back(schedule_.split);
    add_layout(default_layout(chunks.extents, result_.program.warps * kWarpThreads));
    const Expr chunk = position_symbol('d', dims_.size(), schedule_.split);
    const ValueId parts = builder_.load(partials_[i], partial_place(chunk, bindings_), chunks,
                                        {guard, {}}, identity_bits(*form));
    const ValueId sum = builder_.fold(*form->monoid, parts, {chunk_axis});
    const ValueId value = builder_.view(ViewKind::Reshape, sum, type);
    reduced_[pass.reduces[i].node.index] =
        converted({value, accumulator_type(*form)}, form->result);
  }
}

// --- Placed reductions --------------------------------------------------------------------------

// An instance owns a block of places. Their sums begin with what the terms are added to; then it
// walks all terms in order, takes those whose place is its own, and in the end does with the sums
// what follows in the kernel.
void Emitter::emit_placed_phase() {
  if (schedule_.direct) check_direct();
  emit_instances([&](const std::vector<Expr>& blocks) {
    const PlacedSums sums = declare_sums(blocks);
    begin_sums(sums, blocks);
    walk_terms(sums, 0, blocks);
    finish_sums(sums, blocks);
  });
}

// Sums can be in the memory of the result if it is all that follows, in their dtype.
void Emitter::check_direct() const {
  const SpaceTask& task = space_.passes[space_.placed->pass].reduces.front();
  const LoopForm& form = *request_.forms.find(task.node);
  if (request_.fusion.outputs == std::vector{task.node} && form.result == accumulator_type(form))
    return;
  fail(kScheduleDirect,
       fmt::format("schedule of @{}: its sums are not the kernel's one result", request_.name),
       {.fix = "leave out direct="});
}

Emitter::PlacedSums Emitter::declare_sums(const std::vector<Expr>& blocks) {
  PlacedSums sums;
  const size_t axis = space_.placed->axis;
  const Expr &extent = space_.parallel[axis].extent, block = schedule_.block[axis];
  sums.task = &space_.passes[space_.placed->pass].reduces.front();
  sums.form = request_.forms.find(sums.task->node);
  sums.first = builder_.let("first", blocks[axis] * block);
  sums.end = builder_.let("end", min(sums.first + block, extent));
  if (schedule_.direct)
    sums.memory = memory_of_.at({sums.task->node.index, true});
  else
    sums.memory = builder_.buffer("sums", accumulator_type(*sums.form), schedule_.block);

  // Places beyond the axis count as its first or last.
  const NodeId indices = graph_[sums.task->node].operands[sums.form->placement->indices];
  const bool narrow = graph_[indices].type.dtype == DType::I32 && extent.range().max <= INT32_MAX;
  if (narrow) sums.place_dtype = DType::I32;
  const Interval range = narrow ? Interval{INT32_MIN, INT32_MAX} : Interval{};
  const ValueType scalar{sums.place_dtype, 1, {}}, flag{DType::Bool, 1, {}};
  const auto unless = [&](const Expr& a, const Expr& b, int64_t limit, const Expr& value) {
    return builder_.row(
        ElementwiseOp::select,
        {builder_.test({{a, IndexComparison::Kind::Eq, b}}, flag),
         Operand::literal(sums.place_dtype, constant_bits_int(sums.place_dtype, limit)),
         builder_.iota(value, scalar)});
  };
  sums.lowest = unless(sums.first, 0, range.min, sums.first);
  sums.highest = unless(sums.end, extent, range.max, sums.end - 1);
  return sums;
}

// Where the sum at `place` and the other coordinates at hand is.
std::vector<Expr> Emitter::sums_place(const PlacedSums& sums, const std::vector<Expr>& blocks,
                                      const Expr& place) const {
  Bindings bindings = bindings_;
  for (const auto& [axis, index] : store_bindings_) bindings[axis] = index;
  bindings[space_.parallel[space_.placed->axis].symbol.symbol_name()] = place;
  if (schedule_.direct) {
    std::vector<Expr> at;
    for (const Expr& e : sums.task->at) at.push_back(e.substitute(bindings));
    return {linear_offset(at, graph_[sums.task->node].type.shape)};
  }
  std::vector<Expr> at;
  for (size_t p = 0; p < space_.parallel.size(); ++p) {
    const Expr low = p == space_.placed->axis ? sums.first : blocks[p] * Expr(schedule_.block[p]);
    at.push_back(space_.parallel[p].symbol.substitute(bindings) - low);
  }
  return at;
}

// Buffers have room for whole tiles.
Guard Emitter::sums_guard() const {
  return schedule_.direct ? Guard{partial_guard(), {}} : Guard{};
}

Value Emitter::load_sums(const PlacedSums& sums, const std::vector<Expr>& at) {
  const DType dtype = accumulator_type(*sums.form);
  return {builder_.load(sums.memory, at, full_type(dtype), sums_guard()), dtype};
}

// What comes before the placed reduction is computed on the way. Sums that are in the memory of
// what they begin with are there already.
void Emitter::begin_sums(const PlacedSums& sums, const std::vector<Expr>& blocks) {
  const auto alias = request_.aliases.find(start_of(request_.forms, *sums.task).node);
  if (schedule_.direct && alias != request_.aliases.end() && alias->second == sums.task->node)
    return;
  walk_parallel(loop_order(), 0, blocks, [&] {
    const Value start = converted(inliner_.start(sums.task->node, bound(sums.task->at)),
                                  accumulator_type(*sums.form));
    builder_.store(full(start.operand, start.dtype), sums.memory,
                   sums_place(sums, blocks, place_at_hand()), sums_guard());
    for (size_t n = 0; n < space_.placed->pass; ++n) emit_pass(n, {}, {});
    for (const SpaceTask& task : space_.passes[space_.placed->pass].stores)
      store_output(task, inliner_.value(task.node, bound(task.at)));
  });
  new_scope();
}

// The terms in order, the innermost axis of them by groups.
void Emitter::walk_terms(const PlacedSums& sums, size_t depth, const std::vector<Expr>& blocks) {
  const std::vector<SpaceAxis>& inner = space_.passes[space_.placed->pass].inner;
  if (depth == inner.size()) return take_each(sums, 0, 1, blocks);
  const Expr& extent = inner[depth].extent;
  if (extent.range().max <= 0) return;  // no terms; their places may have no meaning
  if (depth + 1 == inner.size()) {
    Expr end;
    if (schedule_.scan > 1) end = scan_groups(sums, extent, blocks);
    if (!(end - extent).is_constant(0)) take_each(sums, end, extent, blocks);
    return;
  }
  builder_.for_loop("t", 0, extent, 1, {}, [&](Expr t, const auto&) {
    bindings_[inner[depth].symbol.symbol_name()] = t;
    new_scope();
    walk_terms(sums, depth + 1, blocks);
    return std::vector<Operand>{};
  });
  new_scope();
}

// Terms [low, high) of the innermost axis, one by one.
void Emitter::take_each(const PlacedSums& sums, const Expr& low, const Expr& high,
                        const std::vector<Expr>& blocks) {
  builder_.for_loop("t", low, high, 1, {}, [&](Expr t, const auto&) {
    at_places(1, t, [&] {
      const Value places = loaded_places(sums);
      Region region;
      const ValueId own = among(sums, places);
      builder_.enter(region);
      add_term(sums, places, blocks);
      builder_.leave();
      builder_.append(IfOp{{}, own, std::move(region), {}}, {});
    });
    return std::vector<Operand>{};
  });
  new_scope();
}

// Whole groups of the terms below `extent`; what is returned is where they end. The places of a
// group are compared at once; the number of a term among those that are the instance's is the least
// after that of the one before.
Expr Emitter::scan_groups(const PlacedSums& sums, const Expr& extent,
                          const std::vector<Expr>& blocks) {
  const int64_t group = schedule_.scan;
  const ValueType scalar{DType::I32, 1, {}}, tile{DType::I32, 1, {group}};
  const Operand none = Operand::literal(DType::I32, constant_bits_int(DType::I32, group));
  const Expr end = builder_.let("whole", floordiv(extent, group) * Expr(group));
  const auto all = [&](Monoid monoid, const Operand& value) {
    return builder_.view(ViewKind::Reshape, builder_.fold(monoid, value, {0}), scalar);
  };
  if (end.is_constant(0)) return end;
  // A thread's own terms first, then those of others: the fewest are exchanged.
  if (on_gpu()) add_layout(spread({group}, {result_.program.warps * kWarpThreads}, 1));
  builder_.for_loop("group", 0, end, group, {}, [&](Expr first, const auto&) {
    at_places(group, first, [&] {
      const Operand own = full(among(sums, loaded_places(sums)), DType::Bool);
      const ValueId number = builder_.iota(position_symbol('d', 0, group), tile);
      const ValueId numbers = builder_.row(ElementwiseOp::select, {own, number, none});
      const ValueId count =
          all(Monoid::Sum, builder_.row(ElementwiseOp::convert, {own}, DType::I32));
      const ValueId before = builder_.constant(scalar, constant_bits_int(DType::I32, -1));
      const Expr hits = value_symbol(builder_.code(), count);
      builder_.for_loop("hit", 0, hits, 1, {before}, [&](Expr, const auto& last) {
        const ValueId after = builder_.row(ElementwiseOp::gt, {numbers, last[0]});
        const ValueId rest = builder_.row(ElementwiseOp::select, {after, numbers, none});
        const ValueId next = all(Monoid::Min, rest);
        const Expr term = value_symbol(builder_.code(), next);
        value_extents_[term.symbol_name()] = {};
        at_places(1, first + term, [&] { add_term(sums, loaded_places(sums), blocks); });
        return std::vector<Operand>{next};
      });
    });
    return std::vector<Operand>{};
  });
  new_scope();
  return end;
}

// Runs the body with a tile of `count` places from term `first` on, or a scalar, in place of the
// kernel's tile.
void Emitter::at_places(int64_t count, const Expr& first, const std::function<void()>& body) {
  std::vector<TileDim> dims;
  const Bindings bindings = bindings_;
  const std::vector<SpaceAxis>& inner = space_.passes[space_.placed->pass].inner;
  if (!inner.empty()) {
    const std::string& axis = inner.back().symbol.symbol_name();
    bindings_[axis] = count > 1 ? first + position_symbol('d', 0, count) : first;
    if (count > 1)
      dims.push_back({.axis = axis, .extent = inner.back().extent, .tile = count, .base = first});
  }
  std::swap(dims_, dims);
  new_scope();
  body();
  new_scope();
  std::swap(dims_, dims);
  bindings_ = bindings;
}

Value Emitter::loaded_places(const PlacedSums& sums) {
  return converted(inliner_.place(sums.task->node, bound(sums.task->reduction)), sums.place_dtype);
}

// Which places are the instance's.
ValueId Emitter::among(const PlacedSums& sums, const Value& places) {
  Operand loaded = places.operand;
  if (loaded.is_literal()) loaded = builder_.constant({sums.place_dtype, 1, {}}, loaded.bits);
  return builder_.row(ElementwiseOp::logical_and,
                      {builder_.row(ElementwiseOp::ge, {loaded, sums.lowest}),
                       builder_.row(ElementwiseOp::le, {loaded, sums.highest})});
}

// The term at hand, all of its elements that are the instance's.
void Emitter::add_term(const PlacedSums& sums, const Value& loaded,
                       const std::vector<Expr>& blocks) {
  const size_t axis = space_.placed->axis;
  const Expr place = sink_.as_index(converted(loaded, DType::I64), space_.parallel[axis].extent);
  const std::vector<TileDim> scalar = std::move(dims_);
  dims_ = schedule_.tile[axis] > 1 ? std::vector<TileDim>{} : tile_dims_;
  std::vector<size_t> order = loop_order();
  std::erase(order, axis);
  walk_parallel(order, 0, blocks, [&] {
    const std::vector<Expr> at = sums_place(sums, blocks, place);
    std::vector<Operand> state{load_sums(sums, at).operand};
    accumulate({sums.task, sums.form, 0}, state);
    builder_.store(state[0], sums.memory, at, sums_guard());
  });
  new_scope();
  dims_ = scalar;
}

// What follows in the kernel reads the sums tile by tile.
void Emitter::finish_sums(const PlacedSums& sums, const std::vector<Expr>& blocks) {
  if (schedule_.direct) return;  // they are the result
  walk_parallel(loop_order(), 0, blocks, [&] {
    const std::vector<Expr> at = sums_place(sums, blocks, place_at_hand());
    reduced_[sums.task->node.index] = converted(load_sums(sums, at), sums.form->result);
    for (size_t n = space_.placed->pass + 1; n < space_.passes.size(); ++n) emit_pass(n, {}, {});
  });
  reduced_.clear();
}

// The place of the tile that a walk over the instance's block has reached.
Expr Emitter::place_at_hand() const {
  const std::string& name = space_.parallel[space_.placed->axis].symbol.symbol_name();
  const auto tiled = store_bindings_.find(name);
  return tiled == store_bindings_.end() ? bindings_.at(name) : tiled->second;
}

}  // namespace

TiledKernel emit_tiles(const TilingRequest& request, const Space& space, const Schedule& schedule) {
  BRAZE_CHECK(schedule.tile.size() == space.parallel.size() &&
                  schedule.block.size() == space.parallel.size(),
              "the schedule does not fit the space");
  TiledKernel kernel = Emitter(request, space, schedule).emit();
  remove_dead_code(kernel.program);
  return kernel;
}

}  // namespace braze
