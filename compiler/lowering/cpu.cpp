// cpu.cpp — lowers plain tile programs for a CPU: section 5 of docs/ir/languages.md. The lanes of a
// vector run along the innermost axis. An instance is a sequential task.
#include <algorithm>

#include "compiler/lowering/lowering.h"

namespace braze {

namespace {

class CpuLowering : public Lowering {
 public:
  CpuLowering(const TileProgram& program, const Target& target)
      : Lowering(program, target), lanes_(target.vector_lanes(4)) {}

 private:
  void lower_phase(const Phase& phase) override {
    Phase lowered;
    lowered.grid = phase.grid;
    scratch_ = 0;
    Region body;
    builder_.enter(body);
    lower_region(phase.body);
    builder_.leave();
    lowered.body = std::move(body);
    lowered.scratch_bytes = scratch_;
    kernel_.phases.push_back(std::move(lowered));
  }

  // L1: vectors along the innermost axis, in an array over all axes.
  ValueType lower_type(const ValueType& tile) const {
    if (tile.rank() == 0) return tile;
    ValueType out = tile;
    const int64_t inner = tile.extents.back();
    out.lanes = static_cast<int32_t>(
        inner == 1 ? 1 : std::min<int64_t>(lanes_, power_of_two_at_least(inner)));
    out.extents.back() = (inner + out.lanes - 1) / out.lanes;
    return out;
  }
  ValueType array_type(ValueId tile) const override { return lower_type(tile_[tile].type); }

  // L2, L3: the positions of elements, as array positions and lanes.
  Form form(ValueId id) const override {
    const ValueType& tile = tile_[id].type;
    Form out{lower_type(tile), renamed_};
    for (size_t axis = 0; axis < tile.rank(); ++axis)
      out.positions["d" + std::to_string(axis)] = position(axis, tile, out.type);
    if (padded(tile, out.type)) out.inside = {inside(tile, out.type)};
    return out;
  }
  static Expr position(size_t axis, const ValueType& tile, const ValueType& lowered) {
    const Expr element =
        lowered.extents[axis] == 1 ? Expr(0) : position_symbol('e', axis, lowered.extents[axis]);
    if (axis + 1 < tile.rank() || lowered.lanes == 1) return element;
    return element * Expr(lowered.lanes) + lane_symbol(lowered.lanes);
  }
  // Whether some lanes are beyond the tile's innermost extent, and the condition that one is not.
  static bool padded(const ValueType& tile, const ValueType& lowered) {
    return tile.rank() > 0 && tile.extents.back() % lowered.lanes != 0;
  }
  static IndexComparison inside(const ValueType& tile, const ValueType& lowered) {
    const size_t last = tile.rank() - 1;
    return {position(last, tile, lowered), IndexComparison::Kind::Lt, tile.extents[last]};
  }
  ValueOperand select_inside(const ValueOperand& value, const ValueType& tile,
                             const ValueType& type, uint64_t identity) {
    ValueType flags = type;
    flags.dtype = DType::Bool;
    const ValueId in = builder_.append(TestOp{{inside(tile, type)}}, {flags}, "inside")[0];
    return row(ElementwiseOp::select, {in, value, ValueOperand::literal(type.dtype, identity)});
  }

  // L16: buffers get places in the scratch of the worker.
  void place_buffer(Memory& lowered, int64_t bytes) override {
    lowered.scratch_offset = scratch_;
    scratch_ += (bytes + 63) / 64 * 64;
  }

  // L10: folds whole vectors first, and then the lanes of one vector.
  void lower_fold(const FoldOp& op, const Statement& s) override {
    ValueOperand value = mapped(op.operand);
    const ValueType& tile = tile_[op.operand.value].type;
    const size_t last = tile.rank() - 1;
    ValueType now = tile;
    for (int64_t axis : op.axes) {
      const ValueType type = type_of(value);
      if (static_cast<size_t>(axis) != last || type.lanes == 1) {
        value = builder_.fold(op.monoid, value, {axis});
      } else {
        if (padded(now, type))
          value = select_inside(value, now, type, info(op.monoid).padding(type.dtype));
        value = fold_lanes(op.monoid, builder_.fold(op.monoid, value, {axis}));
      }
      now.extents[static_cast<size_t>(axis)] = 1;
    }
    define(s.results[0], value);
  }

  // L11: the steps of an arg-reduction, over the array first and then over lanes.
  void lower_arg_fold(const ArgFoldOp& op, const Statement& s) override {
    ValueOperand values = mapped(op.values), indices = mapped(op.indices);
    const ValueType& tile = tile_[op.values.value].type;
    BRAZE_CHECK(op.axes.size() == 1, "an arg-reduction must have one axis");
    const auto axis = static_cast<size_t>(op.axes[0]);
    const bool along_lanes = axis + 1 == tile.rank();
    const ValueType type = type_of(values);
    indices = splat_to(indices, type);
    if (along_lanes && padded(tile, type)) {
      const Monoid monoid = op.is_max ? Monoid::Max : Monoid::Min;
      values = select_inside(values, tile, type, info(monoid).identity(type.dtype));
      const ValueType numbers = type_of(indices);
      indices = select_inside(indices, tile, numbers, info(Monoid::Min).identity(numbers.dtype));
    }
    std::tie(values, indices) = arg_fold_array(op.is_max, values, indices, axis);
    if (along_lanes && type.lanes > 1)
      std::tie(values, indices) = arg_fold_lanes(op.is_max, values, indices);
    define(s.results[0], values);
    define(s.results[1], indices);
  }

  // L12: the steps of a scan.
  void lower_scan(const TileScanOp& op, const Statement& s) override {
    Tuple parts = mapped(op.operands);
    const ValueType& tile = tile_[op.operands[0].value].type;
    const auto axis = static_cast<size_t>(op.axis);
    const ValueType type = type_of(parts[0]);
    if (axis + 1 < tile.rank() || type.lanes == 1)
      return define_scan(s, scan_array(op, parts, axis));
    std::vector<uint64_t> identity, padding;
    for (size_t i = 0; i < parts.size(); ++i) {
      identity.push_back(op.combiner.identity(i, type_of(parts[i]).dtype));
      padding.push_back(op.combiner.padding(i, type_of(parts[i]).dtype));
    }
    const bool from_padding = op.reverse && padded(tile, type);
    const auto pad = [&](const std::vector<uint64_t>& bits) {
      for (size_t i = 0; from_padding && i < parts.size(); ++i)
        parts[i] = select_inside(parts[i], tile, type_of(parts[i]), bits[i]);
    };
    pad(padding);
    parts = scan_vectors(op, parts, tile.extents[axis], padding);
    Scanned out;
    if (op.totals) out.total = last_elements(op, parts, tile.extents[axis]);
    if (op.exclusive) {
      pad(identity);
      parts = each_row(op, parts, [&](std::vector<Tuple>& vectors) {
        shift(op, vectors, 1, identity, [](const Tuple& moved, const Tuple&) { return moved; });
      });
    }
    out.each = std::move(parts);
    define_scan(s, out);
  }

  // A shift by less than a vector also takes lanes of the vector before. Larger shifts move whole
  // vectors.
  Tuple scan_vectors(const TileScanOp& op, const Tuple& parts, int64_t extent,
                     const std::vector<uint64_t>& padding) {
    const int32_t lanes = type_of(parts[0]).lanes;
    return each_row(op, parts, [&](std::vector<Tuple>& vectors) {
      for (int32_t by = 1; by < std::min<int64_t>(lanes, extent); by *= 2)
        shift(op, vectors, by, padding, [&](const Tuple& moved, const Tuple& own) {
          return combined(op.combiner, moved, own);
        });
      scan_list(op, vectors);
    });
  }

  // The last elements of every row in the order of the scan.
  Tuple last_elements(const TileScanOp& op, const Tuple& parts, int64_t extent) {
    Tuple out;
    for (const ValueOperand& part : parts) {
      ValueType type = type_of(part);
      const auto last = static_cast<int32_t>(op.reverse ? 0 : extent - 1);
      const Tuple elements = array_elements(part);
      Tuple ends;
      for (size_t row = 0; row < elements.size(); row += static_cast<size_t>(type.extents.back()))
        ends.push_back(some_lanes(elements[row + static_cast<size_t>(last / type.lanes)],
                                  last % type.lanes, 1));
      type.extents.back() = type.lanes = 1;
      out.push_back(packed(std::move(ends), type));
    }
    return out;
  }

  // Runs `change` on the vectors of every row, in the order of the scan.
  template <class Change>
  Tuple each_row(const TileScanOp& op, const Tuple& parts, Change&& change) {
    std::vector<Tuple> elements;  // of each part
    for (const ValueOperand& part : parts) elements.push_back(array_elements(part));
    const auto count = static_cast<size_t>(type_of(parts[0]).extents.back());
    for (size_t row = 0; row < elements[0].size(); row += count) {
      const auto at = [&](size_t x) { return row + (op.reverse ? count - 1 - x : x); };
      std::vector<Tuple> vectors(count);
      for (size_t x = 0; x < count; ++x)
        for (const Tuple& part : elements) vectors[x].push_back(part[at(x)]);
      change(vectors);
      for (size_t x = 0; x < count; ++x)
        for (size_t i = 0; i < parts.size(); ++i) elements[i][at(x)] = vectors[x][i];
    }
    Tuple out;
    for (size_t i = 0; i < parts.size(); ++i)
      out.push_back(packed(std::move(elements[i]), type_of(parts[i])));
    return out;
  }

  // Makes every vector, in the order of the scan, from itself and the elements that lie `by` places
  // before its own. `first` stands for elements before the first one.
  template <class Make>
  void shift(const TileScanOp& op, std::vector<Tuple>& vectors, int32_t by,
             const std::vector<uint64_t>& first, Make&& make) {
    const int32_t lanes = type_of(vectors[0][0]).lanes;
    std::vector<int64_t> from;
    for (int32_t lane = 0; lane < lanes; ++lane)
      from.push_back(op.reverse ? lane + by : lanes - by + lane);
    for (size_t x = vectors.size(); x-- > 0;) {
      Tuple moved;
      for (size_t i = 0; i < first.size(); ++i) {
        const ValueOperand own = vectors[x][i];
        const ValueType type = type_of(own);
        const ValueOperand before = x > 0 ? vectors[x - 1][i] : builder_.constant(type, first[i]);
        const ValueOperand low = op.reverse ? own : before, high = op.reverse ? before : own;
        moved.emplace_back(builder_.append(ShuffleOp{low, high, from}, {type}, "shuffle")[0]);
      }
      vectors[x] = make(moved, vectors[x]);
    }
  }

  bool renames(const MovementOp& op, ValueId source, ValueId result) const override {
    const ValueType &from = tile_[source].type, &to = tile_[result].type;
    if (from.count() == 1 && to.count() == 1) return true;
    return from.rank() > 0 && to.rank() > 0 && from.extents.back() == to.extents.back() &&
           !padded(from, lower_type(from)) &&
           (op.kind != MovementKind::Transpose ||
            op.arguments.back() + 1 == static_cast<int64_t>(from.rank()));
  }

  // L18: an atomic addition tells which instance arrives last.
  void lower_ticket(const TicketOp& op, const Statement& s) override {
    define(s.results[0], arrive(op));
  }

  const int64_t lanes_;
  int64_t scratch_ = 0;
};

}  // namespace

Kernel lower_for_cpu(const TileProgram& program, const Target& target) {
  return CpuLowering(program, target).run();
}

}  // namespace braze
