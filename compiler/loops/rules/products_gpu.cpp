// products_gpu.cpp — the rule for products (sums whose factors run along different parallel axes)
// on a GPU's ordinary units and on the matrix units of warps: each thread has a block of sums in
// registers.
//
// Large products have slices of their factors on chip, which the threads of a block share. While
// one slice is multiplied, the next ones are fetched. Small products load factors as they multiply.
#include <algorithm>

#include "compiler/loops/rules/factored_sums.h"
#include "compiler/loops/rules/layouts.h"
#include "compiler/loops/rules/sliced_tiles.h"
#include "compiler/loops/rules/summed_nest.h"
#include "ir/code/dot_layouts.h"
#include "ir/target/features.h"

namespace braze {

namespace {

constexpr int64_t kMatrixStages = 3, kLeastStages = 2;
constexpr int64_t kAccessBytes = 16;  // bytes that a thread accesses at once
constexpr int64_t kLeastCopied = 4;   // bytes of an asynchronous copy
constexpr int64_t kDirectThreads = 256;
constexpr int64_t kUnrolled = 4;
// Of a thread, if a second phase adds the sums of chunks: sums that it makes, and chunks that it
// adds.
constexpr int64_t kAddedSums = 4, kAddedChunks = 16;

// One factor along one of the two axes, rows or lanes.
struct Factor {
  bool lanes = false;
  bool across = false;       // whether it is contiguous along the innermost summed axis
  int64_t vector = 1;        // neighbours that one thread should read together
  size_t tensor = SIZE_MAX;  // the tensor to copy, if it is copied
  bool copied = false;       // whether its slices are copied past the registers
};

// Sums that are at least so long, and at most so many, are shared by threads.
constexpr int64_t kLeastSharedDepth = 128, kMostSharedSums = 1 << 15;

// How the sums are dealt to blocks and threads.
struct Tiling {
  int64_t rows = 1, lanes = 1;  // of a block
  int64_t row_threads = 1, lane_threads = 1;
  int64_t vector = 1;             // neighbours along the lanes in one thread
  int64_t slice = 0, stages = 0;  // 0: no slices
  int64_t chunks = 1;
  int64_t depth = 0;    // of one product of matrices in a warp; 0: threads multiply
  bool copies = false;  // whether factors that can be copied are copied ahead
  int64_t threads() const { return row_threads * lane_threads; }
};

// Whether a load can be a copy whose conditions divide no vector along the axis: a vector is read
// as a whole, or is 0.
bool is_copy(const LoopTree& tree, const LoopStep& load, const LoopAxis& axis) {
  if (load.kind != LoopStep::Kind::Load || load.otherwise.value_or(0) != 0) return false;
  for (const RangeCondition& c : load.conditions)
    if (c.value.uses(axis.name) || c.min.uses(axis.name) || c.limit.uses(axis.name)) return false;
  const Shape& shape = tree.tensors[load.source].type.shape;
  for (size_t d = 0; d < load.at.size() && load.conditions.empty() && load.otherwise; ++d)
    if (load.at[d].uses(axis.name) && !proves_in_bounds(load.at[d], shape[d])) return false;
  return true;
}

std::vector<Factor> factors_along(const LoopTree& tree, const FactoredSums& sums, bool lanes) {
  const size_t along = lanes ? sums.lanes : sums.rows, without = lanes ? sums.rows : sums.lanes;
  const LoopAxis &own = tree.axes[along], &inner = tree.axes[sums.summed.back()];
  std::vector<Factor> out;
  for (const LoopBody& body : factors_of(tree, *sums.loop, along, without)) {
    if (!axes_used(tree, body).contains(sums.summed.back())) continue;
    Factor& factor = out.emplace_back();
    factor.lanes = lanes;
    std::vector<TreeAccess> loads;
    int64_t lies = 0, bytes = 0;
    for (const LoopStep& s : body.steps) {
      if (s.kind != LoopStep::Kind::Load) continue;
      loads.push_back(
          {s.source, linear_offset(s.at, tree.tensors[s.source].type.shape), size_of(s.dtype)});
      lies += (loads.back().stride(inner) == 1) - (loads.back().stride(own) == 1);
      factor.tensor = s.source;
      bytes = static_cast<int64_t>(size_of(s.dtype));
    }
    factor.across = lies > 0;
    factor.vector = vector_along(loads, factor.across ? inner : own);
    factor.copied = body.steps.size() == 1 &&
                    is_copy(tree, body.steps[0], factor.across ? inner : own) &&
                    factor.vector * bytes >= kLeastCopied;
  }
  return out;
}

std::vector<Factor> all_factors(const LoopTree& tree, const FactoredSums& sums) {
  auto out = factors_along(tree, sums, false);
  std::ranges::copy(factors_along(tree, sums, true), std::back_inserter(out));
  return out;
}

void set_unit(LoopTree& tree, const FactoredSums& sums, Unit unit) {
  const std::string& sum = tree.values[sums.sums.front()->target].name;
  task_at(tree, maker_of(tree, find_value(tree, sum).value())).unit = unit;
}

// Whether everything that is summed is read for many lines, as the factors of a product are. Folds
// that read some tensor only once are served as other reductions are.
bool reads_all_again(const LoopTree& tree, const FactoredSums& sums) {
  return std::ranges::all_of(accesses(tree, *sums.sums.front()), [&](const TreeAccess& access) {
    return std::ranges::any_of(sums.nest, [&](size_t line) {
      return planned_extent(tree, line) > kWarpThreads && !access.offset.uses(tree.axes[line].name);
    });
  });
}

// Whether warps can multiply the factors: they have 16 bits, are f32 and may be rounded to tf32, or
// are f64.
bool has_matrix_products(const LoopTree& tree, const LoopTask& sum) {
  if (sum.kind != LoopTask::Kind::Dot || tree.values[sum.target].axes.size() < 2) return false;
  const bool doubles = body_dtype(sum) == DType::F64;
  if (!doubles && body_dtype(sum) != DType::F32) return false;
  return std::ranges::all_of(sum.body.results, [&](uint32_t result) {
    const DType dtype = sum.body.steps[result].dtype;
    if (doubles) return dtype == DType::F64;
    return is_half(dtype) || (dtype == DType::F32 && sum.tf32);
  });
}

// Joins the summed axes if matrix units of warps multiply and no factor is contiguous along one: a
// slice then has elements of any places, and chunks can be cut anywhere. Otherwise each walk along
// the innermost axis would begin with an empty ring. Tiles of short rows or lanes are mostly empty,
// so such products are left to kernels that have more rows.
void join_places(Scheduled& out) {
  constexpr int64_t kLeastSide = 16;
  for (bool again = true; again;) {
    again = false;
    const auto found = find_factored_sums(out.tree);
    const auto* sums = std::get_if<FactoredSums>(&found);
    if (!sums || sums->summed.size() < 2 || !has_matrix_products(out.tree, *sums->sums.front()) ||
        planned_extent(out.tree, sums->rows) < kLeastSide ||
        planned_extent(out.tree, sums->lanes) < kLeastSide)
      return;
    const auto is_contiguous = [&](size_t axis) {
      return std::ranges::any_of(
          accesses(out.tree, *sums->sums.front()),
          [&](const TreeAccess& access) { return access.stride(out.tree.axes[axis]) == 1; });
    };
    const auto is_known = [&](size_t axis) {
      return out.tree.axes[axis].extent.as_constant().has_value();
    };
    if (std::ranges::any_of(sums->summed, is_contiguous) ||
        !std::ranges::all_of(sums->summed, is_known))
      return;
    const size_t inner = sums->summed.size() - 1;
    again = out.try_take(CollapseStep{{out.tree.axes[sums->summed[inner - 1]].name},
                                      {out.tree.axes[sums->summed[inner]].name}});
  }
}

// --- Slices -------------------------------------------------------------------------------------

// A tile with slices. None if they would not pay, because the product is small or has a factor that
// does not vary along the summed axis.
std::optional<Tiling> choose_slices(const LoopTree& tree, const FactoredSums& sums,
                                    const std::vector<Factor>& found, const ProductSize& given,
                                    const Target& target) {
  const LoopTask& sum = *sums.sums.front();
  for (const bool lanes : {false, true})
    if (std::ranges::find(found, lanes, &Factor::lanes) == found.end()) return std::nullopt;
  const double products =
      static_cast<double>(given.rows) * static_cast<double>(given.lanes) *
      static_cast<double>(given.batches) *
      static_cast<double>(product_of(tree, sums.summed, [](size_t) { return true; }));
  if (found.size() > kMostFactors || given.depth < kLeastDepth || products < kLeastProducts)
    return std::nullopt;
  Tiling out;
  const bool matrices = sum.unit == Unit::Mma;
  if (matrices) out.depth = warp_dot_depth(sum);
  const DType multiplied = matrices ? warp_dot_dtype(sum) : body_dtype(sum);
  const bool halves = matrices && is_half(multiplied);
  const bool copied = std::ranges::all_of(found, &Factor::copied);
  // Threads read several lanes together, so copies would have to turn a factor that is contiguous
  // along the depth: they would move single elements.
  const bool turned =
      std::ranges::any_of(found, [](const Factor& f) { return f.lanes && f.across; });
  const bool some_copied = std::ranges::any_of(found, &Factor::copied);
  ProductSize size = given;
  size.ahead = copied && (matrices || !turned);
  const Multiplier multiplier = !matrices                  ? Multiplier::Threads
                                : halves                   ? Multiplier::HalfMatrices
                                : multiplied == DType::F64 ? Multiplier::DoubleMatrices
                                                           : Multiplier::Tf32Matrices;
  const auto [best, chunks] = best_tile(multiplier, size, sums.summed.size() == 1, target);
  // Sums of eight bytes take two registers each. Tiles of matrices in f64 consider that.
  const auto bytes = static_cast<int64_t>(size_of(compute_type(body_dtype(sum))));
  const int64_t narrower = matrices ? 1 : std::max<int64_t>(bytes / 4, 1);
  out.rows = best->rows / narrower;
  out.lanes = best->lanes;
  out.row_threads = best->row_threads;
  out.lane_threads = best->lane_threads;
  out.vector = matrices ? 2 : kAccessBytes / std::max<int64_t>(bytes, 4);
  out.chunks = chunks;
  if (halves) {
    const auto [length, stages] = half_slices(*best, chunks, size, target);
    out.slice = length;
    out.stages = some_copied ? stages : kLeastStages;
    out.copies = true;
  } else {
    // Threads of the largest tile multiply for so long that fetched slices do not delay them. Other
    // slices are copied if they can be. They are twice as deep then, because copies take no
    // registers, but not the whole depth: slices are turns of a loop.
    const bool largest = !matrices && best->rows * best->lanes == kLargestSums;
    out.copies = size.ahead && !largest;
    out.slice = out.copies && size.depth != 2 * best->slice ? 2 * best->slice : best->slice;
    out.stages = out.copies && matrices ? kMatrixStages : kLeastStages;
  }
  // A slice takes several products of matrices, in a loop, and is not the whole depth.
  if (out.slice == out.depth) {
    if (size.depth <= 2 * out.depth) return std::nullopt;
    out.slice = 2 * out.depth;
  }
  return out;
}

// --- Without slices -----------------------------------------------------------------------------

// One side of a block's tile: its threads, and the elements of each.
struct Side {
  int64_t threads = 16, each = 4;
  int64_t tile() const { return threads * each; }
};

Side side_of(int64_t extent) {
  Side side;
  const int64_t wanted = ceil_power_of_two(extent);
  while (side.each > 1 && side.tile() > wanted) side.each /= 2;
  while (side.threads > 1 && side.threads > wanted) side.threads /= 2;
  return side;
}

Tiling choose_direct(const ProductSize& size, const Target& target) {
  Side lanes = side_of(size.lanes), rows = side_of(size.rows);
  // If one side is short, its threads work along the other.
  while (lanes.threads * rows.threads < kDirectThreads && lanes.tile() < size.lanes)
    lanes.threads *= 2;
  while (lanes.threads * rows.threads < kDirectThreads && rows.tile() < size.rows)
    rows.threads *= 2;
  // There should be blocks for all multiprocessors; if necessary, threads take fewer elements.
  const auto blocks = [&] {
    return size.batches * ceil_divide(size.lanes, lanes.tile()) *
           ceil_divide(size.rows, rows.tile());
  };
  while (rows.each > 1 && blocks() < target.cores) rows.each /= 2;
  while (lanes.each > 1 && blocks() < target.cores) lanes.each /= 2;
  Tiling out{.rows = rows.tile(),
             .lanes = lanes.tile(),
             .row_threads = rows.threads,
             .lane_threads = lanes.threads,
             .vector = lanes.each};
  out.lane_threads *= ceil_divide(kWarpThreads, out.threads());  // a whole warp
  return out;
}

// --- Steps --------------------------------------------------------------------------------------

// The axes by name, because steps change their numbers.
struct Names {
  std::vector<std::string> batch;
  std::string rows, lanes, inner;
};

// The layout in which a slice of a factor is fetched: neighbours in memory belong to one thread.
Layout slice_layout(const Scheduled& out, const Names& names, const Factor& factor,
                    const Tiling& tiling) {
  const std::string& own = factor.lanes ? names.lanes : names.rows;
  const int64_t tile = factor.lanes ? tiling.lanes : tiling.rows, all = tiling.threads();
  const std::vector<int64_t> extents =
      factor.across ? std::vector{tile, tiling.slice} : std::vector{tiling.slice, tile};
  const int64_t along = std::min(all, std::max<int64_t>(extents.back() / factor.vector, 1));
  Layout layout = spread(extents, {all / along, along}, factor.vector);
  const bool own_first = *find_axis(out.tree, own) < *find_axis(out.tree, names.inner);
  if (own_first != factor.across) std::swap(layout.axes[0], layout.axes[1]);
  return layout;
}

// Puts the slices of factors on chip. A factor is copied if this is wanted and possible; otherwise
// it is fetched into registers and stored.
void slice_factors(Scheduled& out, const Names& names, const std::vector<Factor>& factors,
                   const Tiling& tiling) {
  const LoopName turns{names.inner}, steps{names.inner, 2};
  const auto made_from = [&](size_t first, const Factor& factor) {
    for (size_t v = first; v < out.tree.values.size(); ++v) {
      const std::string value = out.tree.values[v].name;
      out.take(KeepStep{value, Storage::Chip});
      out.try_take(BindStep{{true, value}, slice_layout(out, names, factor, tiling)});
    }
  };
  for (const bool lanes : {!tiling.copies, tiling.copies}) {  // `factor` puts the last one first
    const auto first = std::ranges::find(factors, lanes, &Factor::lanes);
    // Sums read several steps of rows that lie side by side; matrix units read both factors as they
    // lie.
    const bool along = first->across && (tiling.depth > 0 || !lanes);
    const size_t before = out.tree.values.size();
    if (tiling.copies && first->copied) {
      const LoopTensor& tensor = out.tree.tensors[first->tensor];
      const auto place =
          find_task(out.tree, [&](const LoopTask& task) { return task.has_state(); });
      const LoopTask& sum = task_at(out.tree, *place);
      const auto load = std::ranges::find_if(sum.body.steps, [&](const LoopStep& s) {
        return s.kind == LoopStep::Kind::Load && s.source == first->tensor;
      });
      // Whether the summed axis is the last axis of the copy that `stage` makes.
      const bool lies_along = load->at.back().uses(names.inner) || load->at.size() < 2;
      if (out.try_take(StageStep{{false, tensor.name}, turns, lies_along != along}))
        made_from(before, *first);
    }
    if (out.tree.values.size() > before) continue;
    out.take(FactorStep{steps, lanes ? names.lanes : names.rows, lanes ? names.rows : names.lanes,
                        turns, /*transposed=*/!along});
    size_t v = before;
    for (const Factor& factor : factors)
      if (factor.lanes == lanes && v < out.tree.values.size()) {
        const std::string value = out.tree.values[v++].name;
        out.take(KeepStep{value, Storage::Chip});
        out.try_take(BindStep{{true, value}, slice_layout(out, names, factor, tiling)});
      }
  }
}

// The tile of a block in the second phase, which adds the sums of the chunks.
struct AddingTile {
  int64_t rows = 1, lanes = 1;
  Layout layout;  // of the chunks, the rows and the lanes
};

// The second phase only moves bytes. Its tiles are so small that all multiprocessors have blocks,
// and each thread loads few sums, of which neighbours in memory come together. Tiles with the same
// extents have the same layout, so the tiles must not look like those of the first phase.
AddingTile choose_adding(const Tiling& tiling, const ProductSize& size, const Target& target) {
  const int64_t adders =
      std::max<int64_t>(std::min(tiling.chunks / kAddedChunks, tiling.threads() / kWarpThreads), 1);
  const int64_t threads = tiling.threads() / adders;
  const int64_t sides[] = {tiling.rows, tiling.lanes, tiling.slice, tiling.depth, tiling.vector};
  const auto unlike = [&](int64_t side) {
    while (side > 1 && std::ranges::count(sides, side) > 0) side /= 2;
    return side;
  };
  AddingTile out;
  for (int64_t each = kAddedSums; each >= 1; each /= 2) {
    out.lanes = std::min(std::max<int64_t>(ceil_power_of_two(size.lanes), 2), threads * each);
    out.lanes = unlike(out.lanes);
    out.rows = unlike(threads * each / out.lanes);
    const int64_t vector = std::min(each, out.lanes);
    const int64_t along = std::min(threads, out.lanes / vector);
    out.layout =
        spread({tiling.chunks, out.rows, out.lanes}, {adders, threads / along, along}, vector);
    if (size.batches * size.rows * size.lanes >= target.cores * out.rows * out.lanes) break;
  }
  return out;
}

// Cuts the depth into chunks, the sums of which a second phase adds. Returns the layout of that
// phase, or nothing if the depth cannot be cut.
std::vector<TiledAxis> chunk_depth(Scheduled& out, const Names& names, const Tiling& tiling,
                                   const ProductSize& size, const Target& target) {
  Scheduled cut = out;
  if (!cut.try_take(ChunkStep{{names.inner}, tiling.chunks, Combine::Phase, /*apart=*/true}))
    return {};
  const std::string chunk = cut.tree.axes.back().name;
  const AddingTile tile = choose_adding(tiling, size, target);
  const auto make_tile = [&](const std::string& axis, int64_t extent) {
    if (extent == 1) return true;
    const int64_t number = count_loops(cut.tree, axis);  // the last one is that of the second phase
    return cut.try_take(SplitStep{{axis, number}, extent, /*padded=*/true}) &&
           cut.try_take(WholeStep{{axis, number + 1}});
  };
  if (!make_tile(names.rows, tile.rows) || !make_tile(names.lanes, tile.lanes)) return {};
  out = std::move(cut);
  out.take(LastStep{names.lanes});
  return {{chunk, tiling.chunks, tile.layout.axes[0]},
          {names.rows, tile.rows, tile.layout.axes[1]},
          {names.lanes, tile.lanes, tile.layout.axes[2]}};
}

void take_steps(Scheduled& out, const FactoredSums& sums, const Tiling& tiling,
                const std::vector<Factor>& factors, const ProductSize& size, const Target& target) {
  Names names;
  const auto name = [&](size_t axis) { return out.tree.axes[axis].name; };
  names.rows = name(sums.rows);
  names.lanes = name(sums.lanes);
  names.inner = name(sums.summed.back());
  for (const size_t axis : sums.nest)
    if (axis != sums.rows && axis != sums.lanes) names.batch.push_back(name(axis));
  const bool is_dot = sums.sums.front()->kind == LoopTask::Kind::Dot;
  const std::string sum = out.tree.values[sums.sums.front()->target].name;

  std::vector<std::string> order = names.batch;
  order.insert(order.end(), {names.rows, names.lanes});
  sort_nest(out, sums.nest, order);
  if (sums.rows > sums.lanes) out.take(LastStep{names.lanes});
  std::vector<LoopName> grid;
  for (const std::string& axis : names.batch) grid.push_back({axis});
  // If all loops are dealt before they are cut, a second phase can cut them in another way.
  const bool chunked = tiling.chunks > 1;
  if (chunked) {
    grid.insert(grid.end(), {{names.rows}, {names.lanes}});
    deal_out(out, grid);
  }
  const auto cut = [&](const std::string& axis, int64_t tile) {
    const Expr extent = axis_of(out.tree, axis).extent;
    const bool covered = extent.is_constant(tile) && !chunked;
    if (tile > 1 && !covered) out.take(SplitStep{{axis}, tile, /*padded=*/true});
    if (tile > 1) out.take(WholeStep{{axis, covered ? 1 : 2}});
    if ((!covered || tile == 1) && !chunked) grid.push_back({axis});
  };
  cut(names.rows, tiling.rows);
  cut(names.lanes, tiling.lanes);
  if (!chunked) deal_out(out, grid);

  // The layout of the sums: threads along the two axes, and neighbours in one thread.
  const std::vector<int64_t> extents{tiling.rows, tiling.lanes},
      threads{tiling.row_threads, tiling.lane_threads};
  const Layout layout = tiling.depth > 0
                            ? warp_dot_layouts(extents, threads, tiling.vector, tiling.depth).sums
                        : tiling.slice > 0 ? product_layout(extents, threads, tiling.vector)
                                           : spread(extents, threads, tiling.vector);
  std::vector<TiledAxis> tiled = {{names.rows, tiling.rows, layout.axes[0]},
                                  {names.lanes, tiling.lanes, layout.axes[1]}};
  if (tiling.slice == 0) {
    if (is_dot) out.take(UnitStep{sum, Unit::Fma});
    out.take(UnrollStep{{names.inner}, kUnrolled});
    part_tail(out, {names.lanes}, tiling.lanes);
    return bind_layouts(out, tiled);
  }
  out.take(SplitStep{{names.inner}, tiling.slice, /*padded=*/true});
  // One load takes several steps of a factor if they lie side by side.
  const auto rows = std::ranges::find(factors, false, &Factor::lanes);
  const int64_t together = tiling.depth > 0 ? tiling.depth
                           : is_dot && rows->across && tiling.slice % tiling.vector == 0
                               ? tiling.vector
                               : 1;
  if (together > 1) {
    out.take(SplitStep{{names.inner, 2}, together});
    out.take(WholeStep{{names.inner, 3}});
  }
  if (is_dot) out.take(UnitStep{sum, tiling.depth > 0 ? Unit::Mma : Unit::Fma});
  std::vector<TiledAxis> added;
  if (tiling.chunks > 1) added = chunk_depth(out, names, tiling, size, target);
  slice_factors(out, names, factors, tiling);
  out.take(UnrollStep{{names.inner, 2}, tiling.slice / together});
  out.take(RingStep{{names.inner}, tiling.stages});
  bind_layouts(out, tiled, 0);
  if (!added.empty()) bind_layouts(out, added, 1);
}

}  // namespace

std::optional<Refusal> tile_products_for_gpu(Scheduled& out, const Target& target) {
  // Most trees are refused here, before anything is copied.
  const auto nest = find_summed_nest(out.tree);
  if (const auto* refusal = std::get_if<Refusal>(&nest)) return *refusal;
  join_axes(out);
  join_digits(out, kWarpThreads);
  join_places(out);
  flatten_tensors(out);  // so that coordinates have no digits
  read_apart(out);       // so that each factor is copied alone
  LoopTree tree = out.tree;
  auto found = find_factored_sums(tree);
  if (auto* refusal = std::get_if<Refusal>(&found)) return std::move(*refusal);
  const auto& sums = std::get<FactoredSums>(found);
  if (sums.sums.front()->kind == LoopTask::Kind::Fold && !reads_all_again(tree, sums))
    return no_rule("the elements that a sum reads are read by no other sum");
  const auto is_batch = [&](size_t axis) { return axis != sums.lanes && axis != sums.rows; };
  const ProductSize size{.rows = planned_extent(tree, sums.rows),
                         .lanes = planned_extent(tree, sums.lanes),
                         .batches = product_of(tree, sums.nest, is_batch),
                         .depth = planned_extent(tree, sums.summed.back()),
                         .ahead = false};
  // What the factors are depends on the unit: that of warps takes 16 bits as they are.
  if (has_matrix_products(tree, *sums.sums.front())) set_unit(tree, sums, Unit::Mma);
  auto factors = all_factors(tree, sums);
  if (factors.size() != 2 && sums.sums.front()->unit == Unit::Mma) {
    set_unit(tree, sums, Unit::Fma);
    factors = all_factors(tree, sums);
  }
  const auto sliced = choose_slices(tree, sums, factors, size, target);
  if (!sliced && size.depth >= kLeastSharedDepth &&
      size.batches * size.rows * size.lanes <= kMostSharedSums)
    return no_rule("the sums are few and long, so threads share each of them");
  take_steps(out, sums, sliced ? *sliced : choose_direct(size, target), factors, size, target);
  mark_streaming(out, target);
  return std::nullopt;
}

}  // namespace braze
