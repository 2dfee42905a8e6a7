#include "compiler/tiling/pipelined_dot.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/tiling/tensor_view.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"
#include "ir/target/features.h"

namespace braze {

namespace {

constexpr Code kDotSchedule{"dot-schedule", ErrorKind::InvalidArgument,
                            "A schedule asks for a pipelined dot that cannot be made."};
constexpr int64_t kCopyBytes = 16;
constexpr int64_t kSwizzle = 128;

// Of a slot along the contracted axis: one row of a swizzled panel.
int64_t depth_of(DType dtype) { return kSwizzle / static_cast<int64_t>(size_of(dtype)); }

constexpr int64_t kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr int64_t kBarrierBytes = 1024;
// Operations on each sum up to which code for all sums of a thread is worth its length.
constexpr double kMostUnrolled = 12;

bool uses(const Expr& e, const SpaceAxis& axis) { return e.uses(axis.symbol.symbol_name()); }

bool uses(const ValueAt& value, const SpaceAxis& axis) {
  return std::any_of(value.at.begin(), value.at.end(),
                     [&](const Expr& e) { return uses(e, axis); });
}

// Whether a coordinate is the axis's index, counted from a place that does not depend on it.
bool runs_along(const Expr& e, const SpaceAxis& axis) {
  return e.coefficient_of(axis.symbol.symbol_name()).value_or(Expr(0)).is_constant(1);
}

// Each coordinate is one of the two axes, perhaps from a place on that is the same for a whole
// matrix, or only such a place; rows are whole 16 bytes.
std::optional<MatrixFactor> matrix_factor(const TilingRequest& request, const Space& space,
                                          const ValueAt& value, const SpaceAxis& parallel) {
  const SpaceAxis& contracted = space.passes[0].inner[0];
  const TensorView view(request, space, {value.node});
  MatrixFactor out{value.node, view.at(value.at)};
  const DType dtype = request.forms.graph()[value.node].type.dtype;
  const auto bytes = static_cast<int64_t>(size_of(dtype));
  if (out.at.size() < 2 || out.at.size() > kMostTensorRank ||
      !(view.shape().dims().back() * Expr(bytes)).is_multiple_of(kCopyBytes))
    return std::nullopt;
  size_t parallels = 0, contracteds = 0;
  for (size_t axis = 0; axis < out.at.size(); ++axis) {
    const Expr& e = out.at[axis];
    const bool along_parallel = runs_along(e, parallel),
               along_contracted = runs_along(e, contracted);
    if (along_parallel == along_contracted && (uses(e, parallel) || uses(e, contracted)))
      return std::nullopt;
    // What lies behind a part of the contracted axis must not be fetched with it.
    const bool whole = e == contracted.symbol && view.shape()[axis] == contracted.extent;
    if (along_contracted && !whole && !contracted.extent.is_multiple_of(depth_of(dtype)))
      return std::nullopt;
    parallels += along_parallel;
    contracteds += along_contracted;
  }
  if (parallels != 1 || contracteds != 1) return std::nullopt;
  out.contracted_last = runs_along(out.at.back(), contracted);
  if (!out.contracted_last && !runs_along(out.at.back(), parallel)) return std::nullopt;
  return out;
}

}  // namespace

std::optional<MatrixProduct> matrix_product(const TilingRequest& request, const Space& space) {
  const auto axes = factor_axes(request, space);
  if (!axes || space.passes[0].inner.size() != 1 || space.passes[0].inner[0].extent.range().min < 1)
    return std::nullopt;
  const auto [lane, row] = *axes;
  const SpaceTask& task = space.passes[0].reduces[0];
  const LoopForm* form = request.forms.find(task.node);
  if (form->monoid != Monoid::Sum || form->accumulator != DType::F32) return std::nullopt;
  for (const SpaceAxis& axis : space.parallel)
    if (axis.extent.range().min < 1) return std::nullopt;
  const Graph& graph = request.forms.graph();
  const std::vector<bool> inside = membership(graph, request.fusion.nodes);
  std::vector<ValueAt> product =
      product_of(request, task, [&](const ValueAt& value) { return !inside[value.node.index]; });
  if (product.empty()) return std::nullopt;
  if (!uses(product[0], space.parallel[row])) std::swap(product[0], product[1]);
  const auto a = matrix_factor(request, space, product[0], space.parallel[row]);
  const auto b = matrix_factor(request, space, product[1], space.parallel[lane]);
  if (!a || !b || request.aliases.contains(a->node) || request.aliases.contains(b->node))
    return std::nullopt;
  const DType dtype = graph[a->node].type.dtype;
  // The instructions for tf32 take factors along the contracted axis only.
  const bool tf32 = dtype == DType::F32 && form->tf32 && a->contracted_last && b->contracted_last;
  if ((!is_half(dtype) && !tf32) || graph[b->node].type.dtype != dtype) return std::nullopt;
  for (size_t n = 1; n < space.passes.size(); ++n)
    for (const AccessInfo& access : accesses(request, space.passes[n]))
      if (access.conditional || access.indirect) return std::nullopt;
  return MatrixProduct{row, lane, *a, *b, dtype};
}

// Machine operations on each sum.
double operations_after(const TilingRequest& request, const Space& space) {
  double out = 0;
  for (size_t p = 1; p < space.passes.size(); ++p)
    out += flops_per_element(request, space.passes[p]);
  return out;
}

// Copies of an output's slab on chip, for each consumer: one is written while another leaves,
// unless rows of the sums take that space.
int64_t output_slots(const Schedule& schedule) { return schedule.by_row ? 1 : 2; }

// Positions in a part of a slab.
std::vector<Expr> part_position(int64_t rows) {
  return {position_symbol('d', 0, rows), position_symbol('d', 1, PipelinedDot::kSlabColumns)};
}

// Rows of tiles so that those of all blocks together are about a square; 0 if there are few.
int64_t band_of(int64_t tile_rows, int64_t tile_columns, int64_t blocks, int64_t row_tiles) {
  const double square = static_cast<double>(blocks * tile_columns) / static_cast<double>(tile_rows);
  const auto band = std::max<int64_t>(std::lround(std::sqrt(square)), 1);
  return row_tiles <= band ? 0 : band;
}

std::optional<Schedule> schedule_pipelined_dot(const TilingRequest& request, const Space& space) {
  if (!has_asynchronous_dots(request.target)) return std::nullopt;
  const auto product = matrix_product(request, space);
  if (!product) return std::nullopt;
  const int64_t m = planned_extent(space.parallel[product->row].extent),
                n = planned_extent(space.parallel[product->lane].extent),
                k = planned_extent(space.passes[0].inner[0].extent);
  double work = static_cast<double>(k);
  for (const SpaceAxis& axis : space.parallel)
    work *= static_cast<double>(planned_extent(axis.extent));
  if (work < kLeastAsynchronousDot) return std::nullopt;
  const double matrices = work / (static_cast<double>(m * n) * static_cast<double>(k));
  Schedule schedule{.family = "dot"};
  schedule.tile.assign(space.parallel.size(), 1);
  schedule.lane_axis = static_cast<int64_t>(product->lane);
  schedule.tile[product->row] = 128;
  schedule.tile[product->lane] = n <= 64 ? 64 : 128;
  // Wide tiles read less, if they leave work for all multiprocessors.
  if (n > 128 &&
      static_cast<double>((m + 127) / 128 * ((n + 255) / 256)) * matrices >= request.target.cores)
    schedule.tile[product->lane] = 256;
  schedule.inner_tile = depth_of(product->dtype);
  schedule.consumers = 2;
  // As many slots as fit beside two slabs of each output for each consumer.
  int64_t output_bytes = 0;
  for (size_t p = 1; p < space.passes.size(); ++p)
    for (const SpaceTask& task : space.passes[p].stores)
      output_bytes += static_cast<int64_t>(size_of(request.forms.graph()[task.node].type.dtype));
  schedule.by_row = operations_after(request, space) > kMostUnrolled;
  const auto sum_bytes =
      static_cast<int64_t>(size_of(request.forms.find(space.passes[0].reduces[0].node)->result));
  const int64_t slabs = schedule.consumers * PipelinedDot::kSlabRows * PipelinedDot::kSlabColumns *
                        (output_slots(schedule) * output_bytes + (schedule.by_row ? sum_bytes : 0));
  const auto stages = [&] {
    const int64_t slot = (schedule.tile[product->row] + schedule.tile[product->lane]) * kSwizzle;
    return (request.target.l1_bytes - slabs - kBarrierBytes) / slot;
  };
  while (stages() < 3 && schedule.tile[product->lane] > 64) schedule.tile[product->lane] /= 2;
  if (stages() < 2) return std::nullopt;
  schedule.stages = std::min<int64_t>(stages(), 6);
  schedule.block = schedule.tile;
  schedule.form = "cooperative";
  schedule.blocks = request.target.cores;
  schedule.band = band_of(schedule.tile[product->row], schedule.tile[product->lane],
                          schedule.blocks, (m + 127) / 128);
  return schedule;
}

int64_t PipelinedDot::epilogue_rows(const Schedule& schedule, DType dtype) {
  if (!schedule.by_row) return kSlabRows;
  const int64_t neighbours = kCopyBytes / static_cast<int64_t>(size_of(dtype));
  return 4 * kWarpThreads * neighbours / kSlabColumns;
}

// --- The program --------------------------------------------------------------------------------

PipelinedDot::PipelinedDot(CodeBuilder& builder, const Space& space, const MatrixProduct& product,
                           const Schedule& schedule, MemoryId a, MemoryId b)
    : builder_(builder), space_(space), product_(product), schedule_(schedule), a_(a), b_(b) {
  check();
}

int64_t PipelinedDot::depth() const { return depth_of(product_.dtype); }

int64_t PipelinedDot::parts() const {
  return tile_rows() / kSlabRows / (cooperative() ? schedule_.consumers : 1);
}

void PipelinedDot::check() const {
  const int64_t rows = kSlabRows * (cooperative() ? schedule_.consumers : 1);
  const bool forms =
      schedule_.form == "cooperative" || (schedule_.form == "pingpong" && schedule_.consumers == 2);
  bool right = schedule_.tile.size() == space_.parallel.size();
  for (size_t p = 0; right && p < schedule_.tile.size(); ++p)
    right = !is_batch(p) || schedule_.tile[p] == 1;
  right = right && schedule_.inner_tile == depth() && forms && tile_rows() % rows == 0 &&
          parts() >= 1 && parts() <= 2 && tile_columns() % kSlabColumns == 0 &&
          tile_columns() >= kSlabColumns && tile_columns() * parts() <= 256 &&
          schedule_.stages >= 2 && schedule_.stages <= 16 && schedule_.consumers >= 1 &&
          schedule_.consumers <= 2 && schedule_.blocks >= 1 &&
          (schedule_.cluster == 1 || schedule_.cluster == 2) && schedule_.band >= 0;
  if (right) return;
  fail(kDotSchedule,
       fmt::format("schedule of @{}: {}", builder_.code().name, schedule_.to_string()),
       {.fix =
            "tiles are 64 rows for each consumer (or 128), 64, 128, 192 or 256 columns, inner "
            "64, and 1 along the axes of a batch; 1 or 2 consumers, 2 with form=pingpong; 2 to 16 "
            "stages; clusters of 1 or 2"});
}

Memory PipelinedDot::field(const MatrixFactor& factor, std::string_view name,
                           int64_t parallel) const {
  Memory out{.name = std::string(name),
             .space = MemorySpace::Field,
             .mode = Mode::In,
             .dtype = product_.dtype};
  out.shape = factor.contracted_last ? std::vector<Expr>{parallel, depth()}
                                     : std::vector<Expr>{depth(), parallel};
  out.swizzle = kSwizzle;
  return out;
}

// Symbols of the phase, the ring of slots and, with consumers in turns, their token.
void PipelinedDot::declare() {
  const Expr rows = space_.parallel[product_.row].extent,
             columns = space_.parallel[product_.lane].extent,
             length = space_.passes[0].inner[0].extent;
  row_tiles_ = builder_.let("mt", ceildiv(rows, tile_rows() * schedule_.cluster));
  column_tiles_ = ceildiv(columns, tile_columns());
  if (schedule_.band > 0) column_tiles_ = builder_.let("nt", column_tiles_);
  matrix_tiles_ = row_tiles_ * column_tiles_;
  Expr matrices = 1;
  for (size_t p = 0; p < space_.parallel.size(); ++p)
    if (is_batch(p)) matrices *= space_.parallel[p].extent;
  if (matrices != Expr(1)) matrix_tiles_ = builder_.let("mnt", matrix_tiles_);
  tiles_ = builder_.let("tiles", matrix_tiles_ * matrices);
  steps_ = builder_.let("nk", ceildiv(length, depth()));
  Channel channel{.name = builder_.fresh_name("ab"), .depth = schedule_.stages};
  channel.producer = "load";
  channel.receiver = "mma";
  if (!cooperative()) channel.only = mod(floordiv(item_symbol(), steps_), schedule_.consumers);
  const auto add = [&](Memory memory) {
    channel.fields.emplace_back(code().memories.size());
    code().memories.push_back(std::move(memory));
    return channel.fields.back();
  };
  field_a_ = add(field(product_.a, channel.name + ".a", tile_rows()));
  field_b_ = add(field(product_.b, channel.name + ".b", tile_columns()));
  channel_ = ChannelId(code().channels.size());
  code().channels.push_back(std::move(channel));
  builder_.append(ChannelOp{channel_}, {});
  if (cooperative()) return;
  turn_ = TokenId(code().tokens.size());
  code().tokens.push_back({builder_.fresh_name("turn"), schedule_.consumers, "mma", 0});
  builder_.append(TurnsOp{turn_}, {});
}

size_t PipelinedDot::stage_output(MemoryId output, std::vector<Expr> at) {
  staged_.push_back({.output = output, .at = std::move(at)});
  return staged_.size() - 1;
}

void PipelinedDot::emit(const Epilogue& epilogue) {
  epilogue_ = &epilogue;
  Phase phase;
  const std::string block = builder_.fresh_name("t");
  phase.grid.push_back({block, schedule_.blocks / schedule_.cluster});
  block_ = grid_symbol(block, phase.grid[0].extent);
  if (schedule_.cluster > 1) {
    phase.cluster = builder_.fresh_name("b");
    phase.cluster_size = schedule_.cluster;
    rank_ = grid_symbol(phase.cluster, schedule_.cluster);
  }
  builder_.enter(phase.body);
  declare();
  emit_producer();
  emit_consumers();
  builder_.leave();
  code().phases.push_back(std::move(phase));
}

Expr PipelinedDot::first_item(const Expr& u) const {
  return floordiv(u - block_, schedule_.blocks / schedule_.cluster) * steps_;
}
// Blocks that run at the same time share what they read of both factors if their tiles are about
// a square: the grid walks bands of rows, in each column by column; and matrix by matrix.
std::vector<Expr> PipelinedDot::first_of(const Expr& u) {
  std::vector<Expr> first(space_.parallel.size());
  Expr tile = u, matrix = floordiv(u, matrix_tiles_);
  if (first.size() > 2) {
    matrix = builder_.let("matrix", matrix);
    tile = builder_.let("tile", mod(u, matrix_tiles_));
  }
  for (size_t p = first.size(); p-- > 0;) {
    if (!is_batch(p)) continue;
    first[p] = mod(matrix, space_.parallel[p].extent);
    matrix = floordiv(matrix, space_.parallel[p].extent);
  }
  Expr row = mod(tile, row_tiles_), column = floordiv(tile, row_tiles_);
  if (schedule_.band > 0) {
    const Expr band_tiles = column_tiles_ * Expr(schedule_.band);
    const Expr band = builder_.let("band", floordiv(tile, band_tiles));
    const Expr above = band * Expr(schedule_.band);
    const Expr height = builder_.let("height", max(1, min(schedule_.band, row_tiles_ - above)));
    const Expr inside = builder_.let("inside", mod(tile, band_tiles));
    row = above + mod(inside, height);
    column = floordiv(inside, height);
  }
  first[product_.row] = (row * Expr(schedule_.cluster) + rank_) * Expr(tile_rows());
  first[product_.lane] = column * Expr(tile_columns());
  return first;
}

std::vector<Expr> PipelinedDot::placed(const std::vector<Expr>& at, std::vector<Expr> parallel,
                                       const Expr& contracted) const {
  std::unordered_map<std::string, Expr> indices;
  for (size_t p = 0; p < parallel.size(); ++p)
    indices.emplace(space_.parallel[p].symbol.symbol_name(), std::move(parallel[p]));
  indices.emplace(space_.passes[0].inner[0].symbol.symbol_name(), contracted);
  std::vector<Expr> out;
  for (const Expr& e : at) out.push_back(e.substitute(indices));
  return out;
}

void PipelinedDot::copy(const MatrixFactor& factor, MemoryId memory, MemoryId target, const Expr& k,
                        const std::vector<Expr>& first, size_t parallel) {
  const ValueType type = memory_type(code()[target]);
  const size_t k_axis = factor.contracted_last ? 1 : 0;
  std::vector<Expr> indices = first;
  indices[parallel] += position_symbol('d', 1 - k_axis, type.extents[1 - k_axis]);
  CopyOp op{memory, placed(factor.at, std::move(indices),
                           k + position_symbol('d', k_axis, type.extents[k_axis]))};
  op.guard.clip = true;
  op.field = target;
  builder_.append(std::move(op), {});
}

void PipelinedDot::emit_producer() {
  CopiesOp role{.name = "load", .symbol = {}, .copies = 1, .warps = 4};
  role.registers = kProducerRegisters;
  Region body;
  builder_.enter(body);
  const int64_t step = schedule_.blocks / schedule_.cluster;
  builder_.for_loop("u", block_, tiles_, step, {}, [&](const Expr& u, const auto&) {
    const Expr first = builder_.let("q", first_item(u));
    const std::vector<Expr> tile = first_of(u);
    builder_.for_loop("kk", 0, steps_, 1, {}, [&](const Expr& kk, const auto&) {
      PutOp put{channel_, first + kk};
      Region copies;
      builder_.enter(copies);
      copy(product_.a, a_, field_a_, kk * Expr(depth()), tile, product_.row);
      copy(product_.b, b_, field_b_, kk * Expr(depth()), tile, product_.lane);
      builder_.leave();
      put.body = std::move(copies);
      builder_.append(std::move(put), {});
      return std::vector<ValueOperand>();
    });
    return std::vector<ValueOperand>();
  });
  builder_.leave();
  role.body = std::move(body);
  builder_.append(std::move(role), {});
}

void PipelinedDot::emit_consumers() {
  CopiesOp role{.name = "mma", .symbol = builder_.fresh_name("c"), .copies = schedule_.consumers};
  role.registers = kConsumerRegisters;
  consumer_ = grid_symbol(role.symbol, role.copies);
  Region body;
  builder_.enter(body);
  for (Staged& staged : staged_) {
    staged.buffer = builder_.buffer("cs", code()[staged.output].dtype,
                                    {output_slots(schedule_), kSlabRows, kSlabColumns});
    code().memories[staged.buffer.index].swizzle = kSwizzle;
  }
  if (schedule_.by_row) {
    sums_ = builder_.buffer("sums", epilogue_->dtype, {kSlabRows, kSlabColumns});
    code().memories[sums_.index].swizzle = kSwizzle;
  }
  const int64_t step = schedule_.blocks / schedule_.cluster;
  const Expr first = cooperative() ? block_ : block_ + consumer_ * Expr(step);
  builder_.for_loop("u", first, tiles_, cooperative() ? step : step * schedule_.consumers, {},
                    [&](const Expr& u, const auto&) {
                      emit_tile(u);
                      return std::vector<ValueOperand>();
                    });
  builder_.leave();
  role.body = std::move(body);
  builder_.append(std::move(role), {});
}

void PipelinedDot::emit_tile(const Expr& u) {
  const Expr first = builder_.let("q", first_item(u));
  const Expr consumer_row = cooperative() ? consumer_ * Expr(parts() * kSlabRows) : Expr(0);
  std::vector<Expr> tile = first_of(u);
  Expr& row = tile[product_.row];
  Expr& column = tile[product_.lane];
  row = builder_.let("row", row + consumer_row);
  column = builder_.let("col", column);
  Expr turn;
  if (!cooperative()) {
    turn = builder_.let(
        "turn", floordiv(u - block_, schedule_.blocks / schedule_.cluster * schedule_.consumers));
    builder_.append(TakeOp{turn_, consumer_, turn}, {});
  }
  const std::vector<ValueOperand> sums = multiply(first);
  builder_.append(ReleaseOp{channel_, first + steps_ - 1}, {});
  if (!cooperative()) builder_.append(PassOp{turn_, Expr(1) - consumer_, turn + consumer_}, {});
  if (schedule_.by_row) return follow_by_rows(sums, tile);
  for (size_t i = 0; i < sums.size(); ++i) {
    for_static("g", slabs(), [&](const Expr& g) {
      open_slab(Expr(static_cast<int64_t>(i) * slabs()) + g, tile);
      slab_part_.sums = rounded_slab(sums[i], g);
      epilogue_->follow(slab_part_);
    });
  }
}

void PipelinedDot::open_slab(const Expr& number, const std::vector<Expr>& tile) {
  slab_ = number;
  slab_part_ = {{}, tile};
  slab_part_.first[product_.row] += floordiv(number, slabs()) * Expr(kSlabRows);
  slab_part_.first[product_.lane] += mod(number, slabs()) * Expr(kSlabColumns);
  first_row_ = 0;
}

// Slab `g` of an accumulator, the symbol of a static loop where there are several.
ValueOperand PipelinedDot::rounded_slab(const ValueOperand& sums, const Expr& g) {
  ViewOp slice{ViewKind::Slice, sums, {}, {Expr(0), g * Expr(kSlabColumns)}};
  if (slabs() == 1) slice = {ViewKind::Slice, sums, {0, 0}, {}};
  const ValueType type{DType::F32, 1, {kSlabRows, kSlabColumns}};
  return epilogue_->rounded(builder_.append(std::move(slice), {type}, "sum")[0]);
}

namespace {

// Whether a load reads memory that no one writes, at a place for which it needs no name of `own`.
bool reads_without(const KernelCode& code, const LoadOp& load, const std::set<std::string>& own) {
  const Memory& memory = code[load.memory];
  if (memory.space != MemorySpace::Parameter || memory.mode != Mode::In || load.guard) return false;
  return std::all_of(load.at.begin(), load.at.end(), [&](const Expr& e) {
    const auto names = e.symbols();
    return std::none_of(names.begin(), names.end(), [&](const std::string& name) {
      return own.contains(name) || name[0] == '%';
    });
  });
}

void note_names(const Region& region, std::set<std::string>& names) {
  for (const Statement& s : region.statements) {
    if (const auto* let = s.as<LetOp>()) names.insert(let->symbol);
    if (const auto* loop = s.as<ForOp>()) names.insert(loop->symbol);
    for (const Region* inner : regions_of(s)) note_names(*inner, names);
  }
}

// Moves what the loops of a region load again and again to its front, where it is on the way while
// threads wait for each other.
void raise_loads(const KernelCode& code, Region& region) {
  std::set<std::string> own;
  note_names(region, own);
  std::vector<Statement> raised;
  for (Statement& s : region.statements) {
    auto* loop = s.as<ForOp>();
    if (!loop) continue;
    std::vector<Statement> kept;
    for (Statement& inner : loop->body->statements) {
      const auto* load = inner.as<LoadOp>();
      const bool raises = load && reads_without(code, *load, own);
      (raises ? raised : kept).push_back(std::move(inner));
    }
    loop->body->statements = std::move(kept);
  }
  region.statements.insert(region.statements.begin(), std::make_move_iterator(raised.begin()),
                           std::make_move_iterator(raised.end()));
}

}  // namespace

// Code for a few rows of a slab serves them all: what a thread would compute of all its sums at
// once can be longer than the cache of instructions, and takes as long to compile. Threads also
// hold neighbours of a row then, which they read and write together.
void PipelinedDot::follow_by_rows(const std::vector<ValueOperand>& sums,
                                  const std::vector<Expr>& tile) {
  const int64_t count = parts() * slabs();
  const auto follow = [&](const Expr& slab) {
    open_slab(slab, tile);
    store_slab(sums);
    follow_rows();
  };
  if (count == 1) return follow(0);
  ForOp loop{.symbol = builder_.fresh_name("slab"), .low = 0, .high = count};
  Region body;
  builder_.enter(body);
  follow(loop_symbol(loop.symbol, loop.low, loop.high, 1));
  builder_.leave();
  raise_loads(code(), body);
  loop.body = std::move(body);
  builder_.append(std::move(loop), {});
}

// Registers are known by name, so that the slab at hand is found among all.
void PipelinedDot::store_slab(const std::vector<ValueOperand>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    for_static("g", slabs(), [&](const Expr& g) {
      const auto store = [&] {
        builder_.store(rounded_slab(sums[i], g), sums_, part_position(kSlabRows));
      };
      const Expr number = Expr(static_cast<int64_t>(i) * slabs()) + g;
      if (parts() * slabs() == 1) return store();
      builder_.if_then({{slab_, IndexComparison::Kind::Eq, number}}, store);
    });
  }
}

void PipelinedDot::follow_rows() {
  if (!staged_.empty()) builder_.append(WaitStoreOp{0}, {});
  for (Staged& staged : staged_) open(staged);
  const int64_t rows = epilogue_rows(schedule_, epilogue_->dtype);
  builder_.for_loop("r", 0, kSlabRows, rows, {}, [&](const Expr& r, const auto&) {
    first_row_ = r;
    auto at = part_position(rows);
    at[0] += r;
    const ValueId sums = builder_.load(sums_, at, {epilogue_->dtype, 1, {rows, kSlabColumns}});
    Part part{sums, slab_part_.first, rows};
    part.first[product_.row] += r;
    epilogue_->follow(part);
    return std::vector<ValueOperand>();
  });
  for (const Staged& staged : staged_) send(staged);
}

// All steps along the contracted axis; a slot is released when the dots that read it are done,
// one step later.
std::vector<ValueOperand> PipelinedDot::multiply(const Expr& first) {
  const ValueType type{DType::F32, 1, {kSlabRows, tile_columns()}};
  const int64_t count = parts();
  std::vector<ValueOperand> zeros;
  for (int64_t i = 0; i < count; ++i) zeros.emplace_back(builder_.constant(type, 0));
  const auto wait = [&](int64_t pending, const std::vector<ValueOperand>& values) {
    const auto waited = builder_.append(WaitDotOp{pending, values},
                                        std::vector<ValueType>(values.size(), type), "sum");
    return std::vector<ValueOperand>(waited.begin(), waited.end());
  };
  const auto sums = builder_.for_loop(
      "kk", 0, steps_, 1, zeros, [&](const Expr& kk, const std::vector<ValueId>& carried) {
        builder_.append(ReceiveOp{channel_, first + kk}, {});
        const MemoryId b =
            window(field_b_, first + kk, {0, 0}, memory_type(code()[field_b_]).extents);
        std::vector<ValueOperand> started;
        for (int64_t i = 0; i < count; ++i) {
          const Expr row =
              (cooperative() ? consumer_ * Expr(count * kSlabRows) : Expr(0)) + Expr(i * kSlabRows);
          const bool last = product_.a.contracted_last;
          StartDotOp dot{
              .a = {},
              .a_window = window(field_a_, first + kk,
                                 last ? std::vector<Expr>{row, 0} : std::vector<Expr>{0, row},
                                 last ? std::vector<int64_t>{kSlabRows, depth()}
                                      : std::vector<int64_t>{depth(), kSlabRows}),
              .b_window = b,
              .c = carried[static_cast<size_t>(i)]};
          dot.contract_a = last ? 1 : 0;
          dot.contract_b = product_.b.contracted_last ? 1 : 0;
          dot.tf32 = product_.dtype == DType::F32;
          dot.fresh = true;
          dot.fresh_when = {{kk, IndexComparison::Kind::Eq, 0}};
          started.emplace_back(builder_.append(std::move(dot), {type}, "dot")[0]);
        }
        const std::vector<ValueOperand> flying = wait(count, started);
        builder_.if_then({{kk, IndexComparison::Kind::Gt, 0}}, [&] {
          builder_.append(ReleaseOp{channel_, first + kk - 1}, {});
        });
        return flying;
      });
  return wait(0, {sums.begin(), sums.end()});
}

void PipelinedDot::store(size_t output, ValueOperand value) {
  Staged& staged = staged_[output];
  const ValueType& type = code()[value.value].type;
  auto at = part_position(type.extents[0]);
  at[0] += first_row_;
  if (schedule_.by_row) {
    builder_.store(value, staged.place, at);
    return;
  }
  // The half that is filled now was last used two slabs ago; where tiles have an odd number of
  // slabs, perhaps by the slab before.
  const auto outputs = static_cast<int64_t>(staged_.size());
  const bool alternate = slabs() * parts() % 2 == 0;
  builder_.append(WaitStoreOp{(alternate ? 2 : 1) * outputs - 1}, {});
  open(staged);
  builder_.store(value, staged.place, at);
  send(staged);
}

// The place of the slab at hand.
void PipelinedDot::open(Staged& staged) {
  staged.place = window(staged.buffer, {}, {mod(slab_, output_slots(schedule_)), 0, 0},
                        {kSlabRows, kSlabColumns});
}

void PipelinedDot::send(const Staged& staged) {
  const auto position = part_position(kSlabRows);
  std::vector<Expr> indices = slab_part_.first;
  indices[product_.row] += position[0];
  indices[product_.lane] += position[1];
  StartStoreOp start{staged.place, staged.output, placed(staged.at, std::move(indices))};
  start.guard.clip = true;
  builder_.append(std::move(start), {});
}

MemoryId PipelinedDot::window(MemoryId source, std::optional<Expr> item, std::vector<Expr> offsets,
                              std::vector<int64_t> extents) {
  Memory memory{.name = builder_.fresh_name("view"),
                .space = MemorySpace::Window,
                .mode = Mode::InOut,
                .dtype = code()[source].dtype,
                .shape = {extents.begin(), extents.end()}};
  const MemoryId id(code().memories.size());
  code().memories.push_back(std::move(memory));
  builder_.append(WindowOp{id, source, std::move(item), std::move(offsets)}, {});
  return id;
}

void PipelinedDot::for_static(std::string_view hint, int64_t count,
                              const std::function<void(const Expr&)>& body) {
  if (count == 1) return body(0);
  ForOp loop{.symbol = builder_.fresh_name(hint), .low = 0, .high = count};
  loop.is_static = true;
  Region region;
  builder_.enter(region);
  body(loop_symbol(loop.symbol, loop.low, loop.high, 1));
  builder_.leave();
  loop.body = std::move(region);
  builder_.append(std::move(loop), {});
}

// --- Layouts ------------------------------------------------------------------------------------

namespace {

bool names_layout(const Statement& s) {
  const auto* view = s.as<ViewOp>();
  return s.as<ConstOp>() || s.as<IndexOp>() || s.as<TestOp>() || s.as<LoadOp>() ||
         (view && (view->kind == ViewKind::Broadcast || view->kind == ViewKind::Reshape));
}

void assign(TileProgram& program, const Region& region) {
  for (const Statement& s : region.statements) {
    for (const Region* inner : regions_of(s)) assign(program, *inner);
    if (!names_layout(s)) continue;
    Value& value = program.values[s.results[0].index];
    if (value.type.count() == 1) continue;
    Layout layout = layout_of(program.layouts, value.type.extents, 4 * kWarpThreads);
    renumber_registers(layout);
    value.layout = NamedLayout{"", layout};
    for (const NamedLayout& named : program.layouts)
      if (named.layout == layout) value.layout = named;
  }
}

}  // namespace

void assign_dot_layouts(TileProgram& program, int64_t columns, int64_t rows) {
  if (rows < PipelinedDot::kSlabRows) {
    const int64_t neighbours = rows * PipelinedDot::kSlabColumns / (4 * kWarpThreads);
    const int64_t along = PipelinedDot::kSlabColumns / neighbours;
    program.layouts.push_back({"rows", spread({rows, PipelinedDot::kSlabColumns},
                                              {4 * kWarpThreads / along, along}, neighbours)});
  }
  program.layouts.push_back({"slab", accumulator_layout(PipelinedDot::kSlabColumns)});
  if (columns != PipelinedDot::kSlabColumns)
    program.layouts.push_back({"acc", accumulator_layout(columns)});
  for (const Phase& phase : program.phases) assign(program, phase.body);
}

}  // namespace braze
