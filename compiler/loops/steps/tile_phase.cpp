#include "compiler/loops/steps/tile_phase.h"

#include "compiler/loops/steps/own_names.h"
#include "ir/support/text.h"

namespace braze {

uint32_t BodyMaker::push(LoopStep s) { return braze::push(body, std::move(s)); }

uint32_t BodyMaker::read(size_t value) { return push(own_read(tree, value)); }

uint32_t BodyMaker::index(const Expr& e, DType dtype) {
  return push({.kind = LoopStep::Kind::Index, .dtype = dtype, .at = {e}});
}

uint32_t BodyMaker::apply(ElementwiseOp op, DType dtype, std::vector<uint32_t> arguments) {
  return push({.dtype = dtype, .op = op, .arguments = std::move(arguments)});
}

LoopBody BodyMaker::result(uint32_t step) {
  body.results = {step};
  return std::move(body);
}

bool takes_one(const LoopTree& tree, const std::vector<const Loop*>& around, size_t axis) {
  return is_cut(around, axis) && extent_in(tree, around, axis, /*groups=*/false).is_constant(1);
}

std::optional<std::string> why_not_loaded(const LoopTree& tree, const LoopBody& body) {
  if (has_loaded_coordinates(body)) return "a number is loaded at an index that is loaded";
  for (const LoopStep& s : body.steps) {
    if (s.kind == LoopStep::Kind::Read)
      return fmt::format("%{} is computed in this kernel, not loaded", tree.values[s.source].name);
    if (s.kind == LoopStep::Kind::Load && tree.tensors[s.source].mode != Mode::In)
      return fmt::format("the kernel also writes {}", tree.tensors[s.source].name);
  }
  return std::nullopt;
}

TilePhase::TilePhase(LoopTree& tree, const ItemPlace& place)
    : out_(tree),
      around_(loops_around(tree, place)),
      walk_(loop_at(tree, place).levels[0].axis),
      turn_(loop_at(tree, place).levels[0].turn) {}

size_t TilePhase::new_axis(const std::string& name, const Expr& extent) {
  out_.axes.push_back({unused_axis(out_, name), extent});
  return out_.axes.size() - 1;
}

size_t TilePhase::value(const std::string& name, DType dtype, std::vector<size_t> axes) {
  out_.values.push_back({unused_value(out_, name), dtype, std::move(axes)});
  return out_.values.size() - 1;
}

void TilePhase::cut(size_t axis) {
  if (digits_.contains(axis)) return;
  const std::string name = out_.axes[axis].name;
  const Expr extent = out_.axes[axis].extent;
  const int64_t turn = extent_in(out_, around_, axis, /*groups=*/false).as_constant().value_or(1);
  Expr index = 0;
  std::optional<size_t> number, inner;
  if (is_cut(around_, axis)) {
    number = new_axis(name + "t", ceildiv(extent, turn));
    grid_.push_back(*number);
    numbers_.push_back(floordiv(out_.axes[axis].index(), turn));
    index = out_.axes[*number].index() * Expr(turn);
  }
  if (!takes_one(out_, around_, axis)) {
    inner = new_axis(name + "r", turn);
    index += out_.axes[*inner].index();
    // The last index stands for those beyond the end.
    if (!extent.is_multiple_of(turn)) index = min(index, extent - 1);
  }
  digits_[axis] = {index, inner, number};
}

void TilePhase::cut_walk() {
  const LoopAxis walk = out_.axes[walk_];
  const Expr tiles = ceildiv(walk.extent, turn_);
  dtype_ = tiles.range().max < (int64_t{1} << 30) ? DType::I32 : DType::I64;
  if (grid_.empty()) {
    grid_.push_back(new_axis(walk.name + "g", 1));
    numbers_.emplace_back(0);
  }
  tile_ = new_axis(walk.name + "t", tiles);
  if (turn_ > 1) inner_ = new_axis(walk.name + "r", turn_);
}

LoopBody TilePhase::placed(LoopBody body) const {
  std::unordered_map<std::string, Expr> places;
  for (const auto& [axis, digit] : digits_) places.emplace(out_.axes[axis].name, digit.index);
  Expr index = out_.axes[tile_].index() * Expr(turn_);
  if (inner_) index += out_.axes[*inner_].index();
  const Expr extent = out_.axes[walk_].extent;
  if (!extent.is_multiple_of(turn_)) index = min(index, extent - 1);
  places.emplace(out_.axes[walk_].name, index);
  for_each_expr(body, [&](Expr& e) { e = e.substitute(places); });
  return body;
}

TilePhase::Extremes TilePhase::extremes(const LoopBody& number, std::vector<size_t> axes,
                                        std::optional<size_t> inner, LoopRegion& region) {
  LoopBody body = placed(number);
  const DType dtype = body.steps[body.results[0]].dtype;
  if (!inner) {
    const size_t own = value("span_number", dtype, std::move(axes));
    region.emplace_back(
        LoopTask{.kind = LoopTask::Kind::Compute, .target = own, .body = std::move(body)});
    return {own, own};
  }
  const size_t least = fold(region, "span_least", dtype, Monoid::Min, axes, {*inner}, body);
  return {least, fold(region, "span_greatest", dtype, Monoid::Max, axes, {*inner}, body)};
}

size_t TilePhase::fold(LoopRegion& region, const char* name, DType dtype, Monoid monoid,
                       std::vector<size_t> axes, std::vector<size_t> over, LoopBody body) {
  LoopTask task{.kind = LoopTask::Kind::Fold,
                .target = value(name, dtype, std::move(axes)),
                .over = std::move(over),
                .body = std::move(body)};
  task.monoid = monoid;
  region.emplace_back(std::move(task));
  return std::get<LoopTask>(region.back()).target;
}

uint32_t TilePhase::holds(BodyMaker& b, ElementwiseOp op, const Extremes& x, const Extremes& y,
                          bool all) {
  const auto compare = [&](ElementwiseOp row, size_t left, size_t right) {
    return b.apply(row, DType::Bool, {b.read(left), b.read(right)});
  };
  const auto both = [&](uint32_t left, uint32_t right) {
    return b.apply(ElementwiseOp::logical_and, DType::Bool, {left, right});
  };
  const auto either = [&](uint32_t left, uint32_t right) {
    return b.apply(ElementwiseOp::logical_or, DType::Bool, {left, right});
  };
  switch (op) {
    case ElementwiseOp::lt:
    case ElementwiseOp::le:
      return all ? compare(op, x.greatest, y.least) : compare(op, x.least, y.greatest);
    case ElementwiseOp::gt:
    case ElementwiseOp::ge:
      return all ? compare(op, x.least, y.greatest) : compare(op, x.greatest, y.least);
    case ElementwiseOp::eq:
      return all ? both(compare(ElementwiseOp::eq, x.least, y.greatest),
                        compare(ElementwiseOp::eq, x.greatest, y.least))
                 : both(compare(ElementwiseOp::le, x.least, y.greatest),
                        compare(ElementwiseOp::ge, x.greatest, y.least));
    default:
      return all ? either(compare(ElementwiseOp::lt, x.greatest, y.least),
                          compare(ElementwiseOp::gt, x.least, y.greatest))
                 : either(compare(ElementwiseOp::ne, x.least, y.greatest),
                          compare(ElementwiseOp::ne, x.greatest, y.least));
  }
}

void TilePhase::add_stream(LoopRegion& region, size_t axis, LoopRegion body) {
  Loop loop{.levels = {{axis}}};
  loop.body = std::move(body);
  region.emplace_back(std::move(loop));
}

}  // namespace braze
