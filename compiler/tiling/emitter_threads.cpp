// emitter_threads.cpp — how the threads of a GPU share a tile.

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "compiler/tiling/emitter_p.h"
#include "ir/code/dot_layouts.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Matrices of 16 x 8 sums and 8 steps. The extents of operands must differ from those of the sums.
bool deals_matrices(const Schedule& schedule, const std::vector<TileDim>& dims) {
  const bool vectors = schedule.vector == 2 || schedule.vector == 4 || schedule.vector == 8;
  return schedule.slice > 0 && schedule.slice % kMatrixDepth == 0 && vectors && dims.size() == 2 &&
         schedule.threads[0] >= 8 && schedule.threads[1] >= 4 &&
         dims[0].tile % (2 * schedule.threads[0]) == 0 && dims[0].tile > kMatrixDepth &&
         dims[1].tile > kMatrixDepth;
}

// Slices need rows and lanes, and threads that divide them.
bool deals_slices(const Schedule& schedule, const std::vector<TileDim>& dims) {
  return dims.size() == 2 && dims[1].lane && schedule.inner_tile <= 1 && schedule.stages != 1 &&
         schedule.stages <= kMostSlots && dims[0].tile % schedule.threads[0] == 0 &&
         dims[1].tile % (schedule.threads[1] * schedule.vector) == 0;
}

}  // namespace

void TileEmitter::plan_threads() {
  const int64_t threads = std::accumulate(schedule_.threads.begin(), schedule_.threads.end(),
                                          int64_t{1}, std::multiplies<>());
  bool deals =
      threads % kWarpThreads == 0 && schedule_.threads.size() == std::max<size_t>(dims_.size(), 1);
  if (schedule_.mma) deals = deals && deals_matrices(schedule_, dims_);
  if (schedule_.slice > 0 || schedule_.mma) deals = deals && deals_slices(schedule_, dims_);
  if (!deals)
    refuse(kScheduleThreads,
           fmt::format(
               "threads= has {} entries, {} threads in all, which does not fit {} tile dimensions",
               schedule_.threads.size(), threads, dims_.size()));
  result_.program.warps = threads / kWarpThreads;
  result_.program.registers = schedule_.registers;
  plan_cluster();
  define_layout();
}

void TileEmitter::plan_cluster() {
  const bool along_rows = inner_dim_ >= 0 && schedule_.lane_axis < 0;
  if (schedule_.cluster > 1 && (schedule_.cluster > request_.target.cluster_blocks || !along_rows ||
                                !std::has_single_bit(static_cast<uint64_t>(schedule_.cluster)) ||
                                schedule_.inner_tile % schedule_.cluster != 0))
    refuse(kScheduleThreads,
           fmt::format("a cluster of {} blocks cannot share inner={} on {}", schedule_.cluster,
                       schedule_.inner_tile, request_.target.name),
           fmt::format(
               "use clusters of 1, 2, 4 .. or {} blocks that divide `inner`, in a family of rows",
               request_.target.cluster_blocks));
  result_.program.cluster = schedule_.cluster;
}

// The layout of tiles with the present extents.
void TileEmitter::define_layout() {
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

void TileEmitter::add_layout(Layout layout) {
  std::vector<NamedLayout>& all = result_.program.layouts;
  const bool known = std::any_of(all.begin(), all.end(),
                                 [&](const NamedLayout& named) { return named.layout == layout; });
  if (!known) all.push_back({fmt::format("t{}", all.size()), std::move(layout)});
}

// Rows of odd length begin anywhere in a line of memory. Their tiles begin where the memory line
// does, or the vector if there is no room for more, so that vectors are whole and no two warps
// share a line.
void TileEmitter::plan_lead() {
  constexpr int64_t kLineBytes = 128;
  const bool by_row = inner_dim_ >= 0 && dims_.size() == 1 && schedule_.slice == 0;
  if (!by_row || schedule_.split > 1) return;
  struct Access {
    Expr first;    // of a row
    size_t bytes;  // of its element
  };
  std::vector<Access> found;
  int64_t walks = 0, extent = 0;
  size_t least = kLineBytes;
  for (const Pass& pass : space_.passes) {
    if (pass.inner.empty()) continue;
    if (pass.inner.size() > 1) return;
    ++walks;
    extent = std::max(extent, pass.inner[0].extent.range().max);
    for (const AccessInfo& access : accesses(request_, pass)) {
      if (access.conditional || access.indirect || access.stride(pass.inner[0]) != 1) continue;
      const std::string& along = pass.inner[0].symbol.symbol_name();
      found.push_back({access.offset.substitute(along, 0), access.bytes});
      least = std::min(least, access.bytes);
    }
  }
  const bool resident = fits_tile(extent);
  if (walks > 1 && !resident) return;  // what is kept on chip lies by index
  int64_t step = kLineBytes / static_cast<int64_t>(least);
  const auto fits = [&] {
    return extent >= step && (!resident || extent + step - 1 <= schedule_.inner_tile);
  };
  while (step > schedule_.vector && !fits()) step /= 2;
  if (!fits()) return;
  // The tensor with most bytes decides. Accesses to tensors that begin elsewhere are not aligned.
  std::unordered_map<std::string, size_t> bytes;
  size_t most = 0;
  for (const Access& access : found) {
    const Expr lead = mod(access.first, step);
    size_t& sum = bytes[lead.to_string()];
    sum += access.bytes;
    if (sum <= most) continue;
    most = sum;
    lead_ = lead;
  }
  // All of a tensor within one line: it would begin at the same place for every row.
  for (const Access& access : found)
    for (const std::string& symbol : access.first.symbols())
      if (!(access.first - lead_).uses(symbol)) lead_ = 0;
}

// Whether the tiles of every pass cover its inner axes, so that no pass loops and each value is
// computed once and stays in registers.
bool TileEmitter::rows_in_registers() const {
  return on_gpu() && inner_dim_ >= 0 &&
         std::all_of(space_.passes.begin(), space_.passes.end(), [&](const Pass& pass) {
           return pass.inner.empty() || (pass.inner.size() == 1 && fits_tile(pass.inner[0].extent));
         });
}

bool TileEmitter::fits_tile(const Expr& extent) const {
  return on_gpu() && (extent + lead_).range().max <= schedule_.inner_tile;
}

// The dimension other than the lanes' along which an access is contiguous, if threads along the
// lanes would jump.
std::optional<size_t> TileEmitter::crossing_dim(const Expr& offset, const ValueType& type) const {
  if (!on_gpu() || fetching_ || type.rank() < 2 || type.extents.back() == 1) return std::nullopt;
  const auto stride = [&](size_t k) {
    const auto coefficient = offset.coefficient_of("d" + std::to_string(k));
    return coefficient ? coefficient->as_constant() : std::nullopt;
  };
  const size_t last = type.rank() - 1;
  if (const auto lanes = stride(last); !lanes || (*lanes >= 0 && *lanes <= 1)) return std::nullopt;
  for (const std::string& symbol : offset.symbols())
    if (symbol[0] == '%') return std::nullopt;
  for (size_t k = 0; k < last; ++k)
    if (type.extents[k] > 1 && stride(k) == 1) return k;
  return std::nullopt;
}

// Loads with dimension `k` in the place of the last, so that threads read neighbours, and turns
// the tile.
ValueId TileEmitter::load_across(MemoryId memory, const Expr& offset, const Condition& condition,
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
ValueOperand TileEmitter::fold_digits(Monoid monoid, const ValueOperand& value) {
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

}  // namespace braze
