// pipelined_copies.cpp — buffers and slots on chip, and bulk copies to and from them: D2, D4, D9 to
// D11, D16 to D18.
#include <algorithm>

#include "compiler/lowering/pipelined.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int64_t kChunkBytes = 16;  // a swizzle moves units of this many bytes
constexpr int64_t kMostBoxExtent = 256;
constexpr int64_t kMapAlign = 16;   // alignment of addresses and strides
constexpr int64_t kBoxAlign = 128;  // alignment of a box on chip

// The number that decides how the chunks of a row move (section 7.3).
Expr swizzle_phase(const Expr& row, int64_t swizzle) {
  return mod(floordiv(row, 128 / swizzle), swizzle / kChunkBytes);
}

}  // namespace

bool PipelinedLowering::is_on_chip(MemoryId tile) const {
  const MemorySpace space = tile_[tile].space;
  return space == MemorySpace::Local || space == MemorySpace::Window || space == MemorySpace::Field;
}

PipelinedLowering::Matrix PipelinedLowering::matrix(MemoryId tile) const {
  const Memory& memory = tile_[tile];
  const ValueType type = memory_type(memory);
  Matrix out;
  out.columns = type.extents.back();
  if (type.rank() > 1) out.rows = type.extents[type.rank() - 2];
  out.panel = memory.swizzle > 0 ? memory.swizzle / static_cast<int64_t>(size_of(memory.dtype))
                                 : out.columns;
  return out;
}

// A whole buffer is a window of itself. Each copy of the role has its own buffer (D2).
PipelinedLowering::OnChip PipelinedLowering::on_chip(MemoryId tile) const {
  if (const auto window = windows_.find(tile); window != windows_.end()) return window->second;
  const ValueType type = memory_type(tile_[tile]);
  return {tile, memories_[tile.index], role_.copy * Expr(type.count()),
          std::vector<Expr>(type.rank())};
}

void PipelinedLowering::lower_buffer(const BufferOp& op) {
  const Memory& memory = tile_[op.memory];
  const int64_t count = memory_type(memory).count();
  memories_[op.memory.index] = shared(memory.name, memory.dtype, role_.op->copies * count,
                                      memory.swizzle > 0 ? 1024 : 128, buffers_);
}

void PipelinedLowering::lower_op(const MemoryViewOp& op, const Statement&) {
  OnChip place;
  if (op.item) {
    const Memory& field = tile_[op.source];
    const auto owner =
        std::find_if(tile_.channels.begin(), tile_.channels.end(), [&](const Channel& channel) {
          return std::find(channel.fields.begin(), channel.fields.end(), op.source) !=
                 channel.fields.end();
        });
    place = {op.source,
             memories_[op.source.index],
             slot(*owner, uniform(*op.item)) * Expr(memory_type(field).count()),
             {}};
    place.offsets.resize(field.shape.size());
  } else {
    place = on_chip(op.source);
  }
  for (size_t axis = 0; axis < op.offsets.size(); ++axis)
    place.offsets[axis] += uniform(op.offsets[axis]);
  windows_[op.window] = place;
}

// The address, in the kernel's memory object, of the first element of a part.
Expr PipelinedLowering::origin(const OnChip& place) const {
  const Matrix m = matrix(place.tile);
  const auto rank = place.offsets.size();
  const ValueType type = memory_type(tile_[place.tile]);
  Expr number;  // the number of the matrix
  for (size_t axis = 0; axis + 2 < rank; ++axis)
    number = number * Expr(type.extents[axis]) + place.offsets[axis];
  const Expr row = rank > 1 ? place.offsets[rank - 2] : Expr(0);
  const Expr& column = place.offsets[rank - 1];
  return place.base + number * Expr(m.elements()) +
         floordiv(column, m.panel) * Expr(m.panel_elements()) + row * Expr(m.panel) +
         mod(column, m.panel);
}

MemoryId PipelinedLowering::memory_of(MemoryId tile) const {
  return is_on_chip(tile) ? on_chip(tile).memory : memories_[tile.index];
}

Expr PipelinedLowering::address(MemoryId tile, const std::vector<Expr>& at, const Form& form) {
  return is_on_chip(tile) ? chip_address(on_chip(tile), at, form)
                          : offset(tile, at, form.positions);
}

int64_t PipelinedLowering::alignment(MemoryId tile, const Expr& address) const {
  return is_on_chip(tile) ? 0 : Lowering::alignment(tile, address);
}

// D4: the address of an element of the part at the coordinates `at`, over the positions of `form`.
Expr PipelinedLowering::chip_address(const OnChip& place, const std::vector<Expr>& at,
                                     const Form& form) {
  OnChip element = place;
  const size_t missing = element.offsets.size() - at.size();  // leading extents of 1
  for (size_t axis = 0; axis < at.size(); ++axis)
    element.offsets[missing + axis] += at[axis].substitute(form.positions);
  const Memory& memory = tile_[place.tile];
  if (memory.swizzle == 0) return origin(element);
  const auto chunk_elements = kChunkBytes / static_cast<int64_t>(size_of(memory.dtype));
  const size_t rank = element.offsets.size();
  const Expr column = element.offsets[rank - 1];
  const ValueType i32{DType::I32, 1, form.type.extents};
  const Expr within = mod(column, matrix(place.tile).panel);
  const ValueId chunk = builder_.iota(floordiv(within, chunk_elements), i32);
  const ValueId phase =
      builder_.iota(swizzle_phase(element.offsets[rank - 2], memory.swizzle), i32);
  const ValueId moved = builder_.row(ElementwiseOp::logical_xor, {chunk, phase});
  element.offsets[rank - 1] = column - within;
  return origin(element) + value_symbol(kernel_, moved) * Expr(chunk_elements) +
         mod(within, chunk_elements);
}

// Whether the lanes of an access are an aligned vector. A swizzle moves whole chunks, and these are
// at least as large as a vector.
bool PipelinedLowering::chip_neighbours(const OnChip& place, const std::vector<Expr>& at,
                                        const Form& form) const {
  OnChip element = place;
  const size_t missing = element.offsets.size() - at.size();
  for (size_t axis = 0; axis < at.size(); ++axis)
    element.offsets[missing + axis] += at[axis].substitute(form.positions);
  const Expr lane = lane_symbol(static_cast<int32_t>(form.type.lanes));
  for (size_t axis = 0; axis + 1 < element.offsets.size(); ++axis)
    if (element.offsets[axis].uses("lane")) return false;
  const Matrix m = matrix(place.tile);
  return m.panel % form.type.lanes == 0 &&
         (element.offsets.back() - lane).is_multiple_of(form.type.lanes);
}

// --- D16 ----------------------------------------------------------------------------------------

std::optional<Access> PipelinedLowering::shared_access(MemoryId tile, const std::vector<Expr>&,
                                                       bool store) const {
  if (!is_on_chip(tile) || (!windows_.contains(tile) && !memories_[tile.index]))
    return std::nullopt;
  const OnChip place = on_chip(tile);
  if (tile_[place.tile].space != MemorySpace::Local) return std::nullopt;
  return Access{place.memory, store};
}

void PipelinedLowering::before_access(MemoryId memory, bool store, const Slot&) {
  if (std::ranges::find(buffers_, memory, &SharedObject::memory) != buffers_.end())
    wait_for({memory, store});
}

void PipelinedLowering::before_async_read(const OnChip& place) {
  if (tile_[place.tile].space != MemorySpace::Local || !accesses_.unfenced(place.memory)) return;
  builder_.instruction(Instruction::fence_proxy_async);
  accesses_.note_fence();
  barrier();
}

// --- Bulk copies: D11, D18 ----------------------------------------------------------------------

// The box that a tensor map can describe. None if there is no such map.
std::optional<TileBox> PipelinedLowering::box(MemoryId memory, const std::vector<Expr>& at,
                                              const Guard& guard, const ValueType& part) const {
  const Memory& tensor = tile_[memory];
  const auto bytes = static_cast<int64_t>(size_of(tensor.dtype));
  const bool fits =
      tensor.space == MemorySpace::Parameter && tensor.strides.empty() &&
      tensor.align >= kMapAlign && guard.condition.empty() && !guard.mask &&
      (tensor.shape.size() == 1 || tensor.shape.back().is_multiple_of(kMapAlign / bytes));
  auto out = fits ? find_box(at, part.extents) : std::nullopt;
  // A box begins at whole 16 bytes of a row.
  if (!out || !out->at.back().is_multiple_of(kMapAlign / bytes)) return std::nullopt;
  for (Expr& e : out->at) e = e.substitute(renamed_);
  return out;
}

// The tensor map of a tensor, box and swizzle. Each is made once.
TensorMapId PipelinedLowering::tensor_map(MemoryId memory, std::vector<int64_t> extents,
                                          int64_t swizzle) {
  const Memory& tensor = tile_[memory];
  std::string key = fmt::format("{} {}", tensor.name, swizzle);
  for (const int64_t extent : extents) key += fmt::format(" {}", extent);
  const auto found = maps_.find(key);
  if (found != maps_.end()) return found->second;
  const TensorMapId id = builder_.add_tensor_map({.name = "m" + tensor.name,
                                                  .memory = memories_[memory.index],
                                                  .dtype = tensor.dtype,
                                                  .extents = tensor.shape,
                                                  .box = std::move(extents),
                                                  .swizzle = swizzle});
  maps_.emplace(key, id);
  return id;
}

void PipelinedLowering::each_panel(int64_t panels, const std::function<void(const Expr&)>& visit) {
  if (panels == 1) return visit(0);
  builder_.for_loop(
      "g", 0, panels, 1, {},
      [&](const Expr& panel, const auto&) {
        visit(panel);
        return std::vector<ValueOperand>();
      },
      panels);
}

// The coordinates `at` over the last two axes of a field, for the matrix with this number.
static std::vector<Expr> at_matrix(const std::vector<Expr>& at, const ValueType& type,
                                   int64_t number) {
  Positions map;
  for (size_t axis = type.rank() - 2; axis-- > 0; number /= type.extents[axis])
    map.insert_or_assign("d" + std::to_string(axis), number % type.extents[axis]);
  std::vector<Expr> out;
  for (const Expr& e : at) out.push_back(e.substitute(map));
  return out;
}

// The box that a tensor map copies for the matrix with this number: one panel, and only this
// block's part of its rows if the blocks of a cluster share them. None if there is no such map.
std::optional<PipelinedLowering::FieldBox> PipelinedLowering::field_box(const CopyOp& op,
                                                                        int64_t number) const {
  const Memory& field = tile_[op.field];
  const Matrix m = matrix(op.field);
  const ValueType type = memory_type(field);
  const int64_t parts = replicated_.contains(&op) ? phase_->cluster_size : 1;
  const int64_t slice = m.rows / parts;
  const int64_t row_bytes = m.panel * static_cast<int64_t>(size_of(field.dtype));
  if (type.rank() < 2 || m.rows % parts != 0 || (field.swizzle > 0 && slice % 8 != 0) ||
      slice > kMostBoxExtent || m.panel > kMostBoxExtent || row_bytes % kMapAlign != 0 ||
      slice * row_bytes % kBoxAlign != 0)
    return std::nullopt;
  // The axes before the last two count matrices.
  ValueType one = type;
  std::fill(one.extents.begin(), one.extents.end() - 2, 1);
  const auto at = at_panel(at_matrix(op.at, type, number), one.extents, m.panel);
  one.extents.back() = m.panel;
  auto found = box(op.memory, at, op.guard, one);
  if (!found || found->extents.size() < 2 || found->extents.back() != m.panel) return std::nullopt;
  FieldBox out{std::move(*found)};
  for (size_t axis = 0; axis + 1 < out.extents.size() && parts > 1; ++axis)
    if (out.extents[axis] == m.rows) out.row = axis;
  if (parts > 1 && !out.row) return std::nullopt;
  if (out.row) out.extents[*out.row] = slice;
  return out;
}

void PipelinedLowering::lower_op(const CopyOp& op, const Statement&) {
  if (by_threads_.contains(&op)) return copy_by_threads(op);
  const Memory& field = tile_[op.field];
  const Expr place = slot(tile_[put_->channel], uniform(put_->item));
  const Matrix m = matrix(op.field);
  const ValueType type = memory_type(field);
  const int64_t parts = replicated_.contains(&op) ? phase_->cluster_size : 1;
  const int64_t slice = m.rows / parts;
  const Expr rank = parts > 1 ? grid_symbol(phase_->cluster, phase_->cluster_size) : Expr(0);
  const Place full{channels_.at(put_->channel).full, place};
  const auto copy_matrix = [&](int64_t number) {
    FieldBox whole = field_box(op, number).value();
    const TensorMapId map = tensor_map(op.memory, whole.extents, field.swizzle);
    if (whole.row) whole.at[*whole.row] += rank * Expr(slice);
    const Expr first =
        place * Expr(type.count()) + Expr(number * m.elements()) + rank * Expr(slice * m.panel);
    each_panel(m.columns / m.panel, [&](const Expr& panel) {
      std::vector<Expr> at;
      for (const Expr& e : whole.at) at.push_back(e.substitute("panel", panel));
      const Place to{memories_[op.field.index], first + panel * Expr(m.panel_elements())};
      if (parts == 1)
        builder_.instruction(Instruction::tma_load, {to, MapPlace{map, at}, full});
      else
        builder_.instruction(Instruction::tma_load_multicast,
                             {to, MapPlace{map, at}, full, Expr((int64_t{1} << parts) - 1)});
    });
  };
  const auto copy_all = [&] {
    for (int64_t number = 0; number < type.count() / m.elements(); ++number) copy_matrix(number);
  };
  if (channels_.at(put_->channel).fills == 1)
    copy_all();  // this is the put's thread
  else
    by_first_thread(copy_all);
}

// D11: a copy that no tensor map can make. Every thread of the producer loads and stores a part.
void PipelinedLowering::copy_by_threads(const CopyOp& op) {
  const Memory& field = tile_[op.field];
  const ValueType type = memory_type(field);
  const Layout layout = default_layout(type.extents, role_.threads());
  const auto axes = register_digits(layout);
  OnChip to{op.field, memories_[op.field.index],
            slot(tile_[put_->channel], uniform(put_->item)) * Expr(type.count()),
            std::vector<Expr>(type.rank())};
  std::vector<Expr> everywhere;
  for (size_t axis = 0; axis < type.rank(); ++axis)
    everywhere.push_back(position_symbol('d', axis, type.extents[axis]));
  Form own = form(layout, type.dtype, axes, 1);
  const auto bytes = static_cast<int64_t>(size_of(type.dtype));
  const bool neighbours =
      !axes.empty() && axes.back().axis + 1 == type.rank() && axes.back().weight == 1;
  for (int64_t lanes = neighbours ? axes.back().extent : 1; lanes > 1; lanes /= 2) {
    Form vector = form(layout, type.dtype, axes, lanes);
    const Expr address = offset(op.memory, op.at, vector.positions);
    if (axes.back().extent % lanes != 0 || lanes * bytes > kChunkBytes || op.guard.mask ||
        divides_vectors(op.guard, op.memory, op.at, vector) ||
        !address.coefficient_of("lane").value_or(Expr(0)).is_constant(1) ||
        alignment(op.memory, address) < lanes * bytes || !chip_neighbours(to, everywhere, vector))
      continue;
    own = std::move(vector);
    break;
  }
  LoadOp load{memories_[op.memory.index],
              {offset(op.memory, op.at, own.positions)},
              lower_guard(op.guard, op.memory, op.at, own),
              0,
              0,
              op.cache};
  load.align = alignment(op.memory, load.at[0]);
  const ValueId value = builder_.append(std::move(load), {own.type}, "part")[0];
  builder_.store(value, to.memory, {chip_address(to, everywhere, own)},
                 {first_of(thread_digits(layout)), {}});
}

// The bytes of an item that arrive by bulk copies, which the barrier counts.
int64_t PipelinedLowering::bulk_bytes(const PutOp& op) const {
  int64_t out = 0;
  for (const Statement& s : op.body->statements) {
    const auto* copy = s.as<CopyOp>();
    if (!copy || by_threads_.contains(copy)) continue;
    const ValueType type = memory_type(tile_[copy->field]);
    out += type.count() * static_cast<int64_t>(size_of(type.dtype));
  }
  return out;
}

// D17: one thread starts the bulk store of each panel.
void PipelinedLowering::lower_op(const StartStoreOp& op, const Statement& s) {
  const OnChip place = on_chip(op.window);
  before_async_read(place);
  const Matrix m = matrix(place.tile);
  const ValueType part = memory_type(tile_[op.window]);
  auto whole_box = box(op.memory, op.at, op.guard, part);
  if (!whole_box) not_lowered("a store.start whose addresses no tensor map can describe", s);
  TileBox& whole = *whole_box;
  const int64_t columns = part.extents.back();
  const bool panels = columns % m.panel == 0 && place.offsets.back().is_multiple_of(m.panel);
  if (part.rank() != 2 || !panels || whole.extents.back() != columns)
    not_lowered("a store of a part that does not consist of whole panels", s);
  const auto bytes = static_cast<int64_t>(size_of(tile_[place.tile].dtype));
  if (!origin(place).is_multiple_of(kBoxAlign / bytes) ||
      (columns > m.panel && m.panel_elements() * bytes % kBoxAlign != 0))
    not_lowered(
        fmt::format("a store of a part that does not begin at a multiple of {} bytes", kBoxAlign),
        s);
  whole.extents.back() = m.panel;
  const TensorMapId map = tensor_map(op.memory, whole.extents, tile_[place.tile].swizzle);
  by_first_thread([&] {
    each_panel(columns / m.panel, [&](const Expr& panel) {
      auto at = whole.at;
      at.back() += panel * Expr(m.panel);
      builder_.instruction(Instruction::tma_store,
                           {MapPlace{map, at},
                            Place{place.memory, origin(place) + panel * Expr(m.panel_elements())}});
    });
    builder_.instruction(Instruction::bulk_commit);
  });
}

void PipelinedLowering::lower_op(const WaitStoreOp& op, const Statement&) {
  by_first_thread([&] { builder_.instruction(Instruction::bulk_wait_read, {Expr(op.pending)}); });
  accesses_.note_all_loaded();
}

// --- Matrices of 16-bit elements: D4 ------------------------------------------------------------

bool PipelinedLowering::lower_matrix_store(const StoreOp& op) {
  if (!is_on_chip(op.memory) || !stores_matrices(op, on_chip(op.memory))) return false;
  store_matrices(op, on_chip(op.memory));
  return true;
}

// Whether a value in the layout of accumulators can be stored directly to a part that consists of
// panels.
bool PipelinedLowering::stores_matrices(const StoreOp& op, const OnChip& place) const {
  const ValueType& type = tile_[op.value.value].type;
  const Layout& layout = layouts_[op.value.value];
  if (!is_half(type.dtype) || op.guard || type.rank() != 2 || op.at.size() != 2) return false;
  for (size_t axis = 0; axis < 2; ++axis)
    if (op.at[axis].to_string() != "d" + std::to_string(axis)) return false;
  const Matrix m = matrix(place.tile);
  const bool aligned = m.panel % 8 == 0 && place.offsets.back().is_multiple_of(m.panel);
  return type.extents[1] % 16 == 0 && layout == accumulator_layout(type.extents[1]) && aligned;
}

// Stores four 8x8 matrices at a time, which are two column blocks of 16 rows. Lane l addresses row
// mod(l, 16) of column block floordiv(l, 16).
void PipelinedLowering::store_matrices(const StoreOp& op, const OnChip& place) {
  const ValueId tile = op.value.value;
  const ValueType& type = tile_[tile].type;
  const int64_t blocks = type.extents[1] / 8;
  const ValueOperand array = as_array(op.value, axes_of(tile));
  const ValueOperand pairs = builder_.regroup(array, {type.dtype, 2, {blocks, 2}});
  const Memory& memory = tile_[place.tile];
  const Matrix m = matrix(place.tile);
  const int64_t panel_chunks = m.panel / 8;
  const ValueType i32{DType::I32, 1, {}};
  OnChip row = place;
  row.offsets[row.offsets.size() - 2] += role_.warp * Expr(16) + mod(role_.lane, 16);
  const Expr start = origin(row);
  std::optional<ValueId> phase;
  if (memory.swizzle > 0)
    phase = builder_.iota(swizzle_phase(row.offsets[row.offsets.size() - 2], memory.swizzle), i32);
  ForOp loop{.symbol = builder_.fresh_name("j"), .low = 0, .high = blocks / 2};
  loop.is_static = true;
  const Expr j = loop_symbol(loop.symbol, loop.low, loop.high, 1);
  Region body;
  builder_.enter(body);
  const ValueOperand two =
      builder_.append(MovementOp{MovementKind::Slice, pairs, {}, {j * Expr(2), Expr(0)}},
                      {{type.dtype, 2, {2, 2}}}, tile_[tile].name)[0];
  const ValueOperand four = builder_.view(MovementKind::Reshape, two, {type.dtype, 2, {4}});
  const Expr block = j * Expr(2) + floordiv(role_.lane, 16);
  const Expr panel = floordiv(block, panel_chunks) * Expr(m.panel_elements());
  Expr chunk = mod(block, panel_chunks);
  if (phase) {
    const ValueId number = builder_.iota(chunk, i32);
    chunk = value_symbol(kernel_, builder_.row(ElementwiseOp::logical_xor, {number, *phase}));
  }
  builder_.instruction(Instruction::stmatrix_x4,
                       {Place{place.memory, start + panel + chunk * Expr(8)}, four});
  builder_.leave();
  loop.body = std::move(body);
  builder_.append(std::move(loop), {});
}

}  // namespace braze
