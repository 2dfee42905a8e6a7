#include "compiler/tiling/emitter.h"

#include <algorithm>

#include "compiler/tiling/emitter_p.h"
#include "ir/support/text.h"

namespace braze {

namespace {

void collect_symbols(const Expr& e, std::map<std::string, Expr>& found) {
  if (e.kind() == Expr::Kind::Symbol) found.emplace(e.symbol_name(), e);
  for (const Expr& operand : e.operands()) collect_symbols(operand, found);
}

// The graph's symbols that the kernel's shapes and bodies use, in the order of the graph.
std::vector<Expr> size_symbols(const TilingRequest& request) {
  const Graph& graph = request.forms.graph();
  std::map<std::string, Expr> found;
  const auto add = [&](NodeId node) {
    for (const Expr& dim : graph[node].type.shape) collect_symbols(dim, found);
  };
  for (NodeId node : request.fusion.nodes) {
    add(node);
    if (const LoopForm* form = request.forms.find(node))
      for (const BodyStep& step : form->body) collect_symbols(step.expr, found);
  }
  for (NodeId node : request.fusion.inputs) add(node);
  std::vector<Expr> symbols;
  for (const Expr& symbol : request.forms.symbols())
    if (found.contains(symbol.symbol_name())) symbols.push_back(symbol);
  return symbols;
}

std::string memory_hint(const Graph& graph, NodeId node) {
  if (const auto* input = graph[node].as<InputOp>()) return input->name;
  if (!graph[node].label.empty()) return graph[node].label;
  return fmt::format("t{}", node.index);
}

}  // namespace

std::vector<Expr> substitute(const std::vector<Expr>& exprs, const Bindings& bindings) {
  std::vector<Expr> out;
  for (const Expr& e : exprs) out.push_back(e.substitute(bindings));
  return out;
}

std::string position_name(const std::string& axis) { return axis + ".position"; }

Expr position_of_axis(const TileDim& dim) {
  return Expr::symbol(position_name(dim.axis), {0, dim.tile - 1});
}

// --- The program --------------------------------------------------------------------------------

TileEmitter::TileEmitter(const TilingRequest& request, const Space& space, const Schedule& schedule)
    : request_(request),
      space_(space),
      schedule_(schedule),
      graph_(request.forms.graph()),
      inside_(membership(graph_, request.fusion.nodes)),
      builder_(result_.program),
      sink_(*this),
      inliner_(request.forms, inside_, sink_) {}

TiledKernel TileEmitter::emit() {
  TileProgram& program = result_.program;
  program.name = builder_.fresh_name(request_.name);
  program.schedule = schedule_.to_string();
  program.symbols = size_symbols(request_);
  for (const Expr& symbol : program.symbols) builder_.fresh_name(symbol.symbol_name());
  add_parameters();
  plan_dimensions();
  tile_dims_ = dims_;
  if (on_gpu()) {
    plan_lead();
    plan_threads();
  }
  plan_factors();
  if (schedule_.split > 1) {
    emit_partial_phase();
    emit_phase([&] { emit_passes(/*first_from_partials=*/true); });
  } else {
    emit_phase([&] { emit_passes(false); });
  }
  return std::move(result_);
}

void TileEmitter::add_parameters() {
  std::map<NodeId, NodeId> taken_over;
  for (const auto& [input, output] : request_.aliases) taken_over.emplace(output, input);
  const auto add = [&](NodeId node, Mode mode) {
    const TensorType& type = graph_[node].type;
    const Memory memory{.name = memory_hint(graph_, node),
                        .space = MemorySpace::Parameter,
                        .mode = mode,
                        .dtype = type.dtype,
                        .shape = {type.shape.numel()},
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

void TileEmitter::plan_dimensions() {
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

std::vector<Expr> TileEmitter::place(NodeId node, std::vector<Expr> at) const {
  return {linear_offset(at, graph_[node].type.shape)};
}

void TileEmitter::refuse(const Code& code, const std::string& why, const std::string& fix) const {
  fail(code, fmt::format("schedule of @{}: {}", request_.name, why), {.fix = fix});
}

// --- Phases -------------------------------------------------------------------------------------

// One instance per block of the parallel axes; `body` runs at every tile of it.
void TileEmitter::emit_phase(const Body& body, const std::vector<GridAxis>& extra) {
  emit_instances(
      [&](const std::vector<Expr>& blocks) { walk_parallel(loop_order(), 0, blocks, body); },
      extra);
}

// One instance per block of the parallel axes, whose numbers `body` gets.
void TileEmitter::emit_instances(const std::function<void(const std::vector<Expr>&)>& body,
                                 const std::vector<GridAxis>& extra) {
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
  add_phase(std::move(grid), std::move(region));
  new_scope();
}

void TileEmitter::add_phase(std::vector<GridAxis> grid, Region body) {
  result_.program.phases.push_back({.grid = std::move(grid)});
  result_.program.phases.back().body = std::move(body);
}

// Contractions walk the lanes' axis outside, so that a panel of it stays in cache.
std::vector<size_t> TileEmitter::loop_order() const {
  std::vector<size_t> order;
  for (size_t p = 0; p < space_.parallel.size(); ++p)
    if (static_cast<int64_t>(p) != schedule_.lane_axis) order.push_back(p);
  if (schedule_.lane_axis < 0) return order;
  const auto lane = static_cast<size_t>(schedule_.lane_axis);
  const auto natural = schedule_.family == "dot"
                           ? order.begin()
                           : std::lower_bound(order.begin(), order.end(), lane);
  order.insert(natural, lane);
  return order;
}

void TileEmitter::walk_parallel(const std::vector<size_t>& order, size_t depth,
                                const std::vector<Expr>& blocks, const Body& body) {
  if (depth == order.size()) {
    new_scope();
    body();
    return;
  }
  const size_t p = order[depth];
  const Expr low = blocks[p] * Expr(schedule_.block[p]);
  const Body next = [&] { walk_parallel(order, depth + 1, blocks, body); };
  if (schedule_.tile[p] == 1)
    walk_untiled(p, low, next);
  else
    walk_tiles(p, low, next);
}

void TileEmitter::walk_untiled(size_t p, const Expr& low, const Body& next) {
  const SpaceAxis& axis = space_.parallel[p];
  const int64_t block = schedule_.block[p];
  if (block == 1) {
    bindings_[axis.symbol.symbol_name()] = low;
    next();
    return;
  }
  builder_.for_loop("i", low, min(low + block, axis.extent), 1, {}, [&](Expr i, const auto&) {
    bindings_[axis.symbol.symbol_name()] = i;
    next();
    return std::vector<ValueOperand>{};
  });
}

void TileEmitter::walk_tiles(size_t p, const Expr& low, const Body& next) {
  const SpaceAxis& axis = space_.parallel[p];
  const int64_t block = schedule_.block[p], tile = schedule_.tile[p];
  TileDim& dim = dims_[dim_of_parallel_.at(p)];
  const Expr high = axis.extent.is_multiple_of(block) ? low + block : min(low + block, axis.extent);
  const auto at_tile = [&](const Expr& base, bool partial) {
    dim.base = base;
    dim.partial = partial;
    bind_parallel_tile(dim);
    next();
  };
  const bool whole = axis.extent.is_multiple_of(tile);
  // Rows are clamped, and values on chip need no masks, so one program serves whole tiles and
  // others.
  if (whole || !dim.lane || schedule_.slice > 0)
    return loop_or_once(low, high, tile, block == tile,
                        [&](const Expr& base) { at_tile(base, !whole); });
  // Whole tiles without masks, then at most one tile with a mask.
  if (block == tile)
    return builder_.if_then(
        {{low + tile, IndexComparison::Kind::Le, axis.extent}}, [&] { at_tile(low, false); },
        [&] { at_tile(low, true); });
  const Expr end = builder_.let("whole", low + floordiv(high - low, tile) * Expr(tile));
  builder_.for_loop("j", low, end, tile, {}, [&](Expr j, const auto&) {
    at_tile(j, false);
    return std::vector<ValueOperand>{};
  });
  builder_.if_then({{end, IndexComparison::Kind::Lt, high}}, [&] { at_tile(end, true); });
}

void TileEmitter::loop_or_once(const Expr& low, const Expr& high, int64_t step, bool once,
                               const std::function<void(const Expr&)>& body) {
  if (once) {
    body(low);
    return;
  }
  builder_.for_loop("j", low, high, step, {}, [&](Expr j, const auto&) {
    body(j);
    return std::vector<ValueOperand>{};
  });
}

// Loads go through the clamped index, so that rows beyond the end read some row that exists.
void TileEmitter::bind_parallel_tile(TileDim& dim) {
  const size_t k = static_cast<size_t>(&dim - dims_.data());
  const Expr index = dim.base + position(k);
  bindings_[dim.axis] = dim.partial && !dim.lane ? min(index, dim.extent - 1) : index;
  bindings_[position_name(dim.axis)] = position(k);
  store_bindings_[dim.axis] = index;
}

TiledKernel emit_tiles(const TilingRequest& request, const Space& space, const Schedule& schedule) {
  BRAZE_CHECK(schedule.tile.size() == space.parallel.size() &&
                  schedule.block.size() == space.parallel.size(),
              "the schedule does not have the axes of the kernel");
  TiledKernel kernel = TileEmitter(request, space, schedule).emit();
  remove_dead_code(kernel.program);
  return kernel;
}

}  // namespace braze
