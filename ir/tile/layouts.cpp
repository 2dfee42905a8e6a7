#include "ir/tile/layouts.h"

#include <algorithm>

#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

namespace {

Layout without_digits(size_t rank) { return {std::vector<std::vector<Digit>>(rank)}; }

// Whether the digits of an axis name the same threads and numbers of registers. The place of a
// register in the array may differ.
bool same_digits(const std::vector<Digit>& a, const std::vector<Digit>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Digit& x, const Digit& y) {
    return x.resource == y.resource && x.extent == y.extent &&
           (x.resource == Resource::Register || x.stride == y.stride);
  });
}

std::vector<Digit> flattened(const Layout& layout) {
  std::vector<Digit> out;
  for (const std::vector<Digit>& axis : layout.axes)
    out.insert(out.end(), axis.begin(), axis.end());
  return out;
}

bool has_extents(const Layout& layout, const std::vector<int64_t>& extents) {
  if (layout.rank() != extents.size()) return false;
  for (size_t axis = 0; axis < extents.size(); ++axis)
    if (layout.extent(axis) != extents[axis]) return false;
  return true;
}

}  // namespace

TileLayouts::TileLayouts(const TileProgram& program, Report report)
    : program_(program), report_(std::move(report)), layouts_(program.values.size()) {
  for (size_t i = 0; i < layouts_.size(); ++i)
    layouts_[i] = without_digits(program.values[i].type.rank());
  for (const Phase& phase : program.phases) walk(phase.body);
}

void TileLayouts::expect(bool holds, const Statement& s, const std::string& message) const {
  if (!holds && report_) report_(s, message);
}

void TileLayouts::expect_same_threads(const Layout& a, const Layout& b, const Statement& s) {
  bool same = a.rank() == b.rank();
  for (size_t axis = 0; same && axis < a.rank(); ++axis)
    same = same_digits(a.axes[axis], b.axes[axis]);
  expect(same, s,
         fmt::format(
             "the operands have the layouts {} and {}, but elements must lie in the same threads",
             a.to_string(), b.to_string()));
}

void TileLayouts::walk(const Region& region) {
  for (const Statement& s : region.statements) {
    infer(s);
    if (s.as<ForOp>() || s.as<IfOp>()) continue;  // its results were set with its region
    for (const Region* inner : regions_of(s)) walk(*inner);
  }
}

void TileLayouts::infer(const Statement& s) {
  if (const auto* loop = s.as<ForOp>()) return infer_loop(*loop, s);
  if (const auto* branch = s.as<IfOp>()) return infer_branch(*branch, s);
  if (s.results.empty()) return;
  const ValueId result = s.results[0];
  if (const auto* row = s.as<RowOp>()) {
    infer_row(*row, s);
  } else if (const auto* fold = s.as<FoldOp>()) {
    set(result, folded(of(fold->operand), fold->axes));
  } else if (const auto* scan = s.as<TileScanOp>()) {
    const size_t parts = scan->operands.size();
    for (size_t i = 0; i < parts; ++i) {
      expect_same_threads(of(scan->operands[0]), of(scan->operands[i]), s);
      set(s.results[i], of(scan->operands[i]));
    }
    for (size_t i = parts; i < s.results.size(); ++i)
      set(s.results[i], folded(of(scan->operands[i - parts]), {scan->axis}));
  } else if (const auto* dot = s.as<TileDotOp>()) {
    set(result, of(dot->c));
  } else if (const auto* start = s.as<StartDotOp>()) {
    set(result, of(start->c));
  } else if (const auto* wait = s.as<WaitDotOp>()) {
    for (size_t i = 0; i < s.results.size(); ++i) set(s.results[i], of(wait->operands[i]));
  } else if (const auto* view = s.as<MovementOp>(); view && view->kind == MovementKind::Slice) {
    set(result, sliced(of(view->operand), program_[result].type, s));
  } else if (view && view->kind == MovementKind::Transpose) {
    Layout out = without_digits(view->arguments.size());
    for (size_t axis = 0; axis < out.rank(); ++axis)
      out.axes[axis] = of(view->operand).axes[static_cast<size_t>(view->arguments[axis])];
    set(result, std::move(out));
  } else {
    set(result, written(s));
    if (const auto* reshape = s.as<MovementOp>(); reshape && reshape->kind == MovementKind::Reshape)
      expect(same_digits(flattened(of(reshape->operand)), flattened((*this)[result])), s,
             fmt::format("a reshape from {} to {} would move elements between threads",
                         of(reshape->operand).to_string(), (*this)[result].to_string()));
  }
}

// The layout that is written after the type. Tiles of one element need none.
Layout TileLayouts::written(const Statement& s) {
  const Value& value = program_[s.results[0]];
  if (!value.layout) {
    expect(value.type.count() == 1, s,
           fmt::format("the type {} needs a layout, because it has more than one element",
                       value.type.to_string()));
    return without_digits(value.type.rank());
  }
  const Layout& layout = value.layout->layout;
  expect(has_extents(layout, value.type.extents), s,
         fmt::format("the layout {} does not have the extents of {}", layout.to_string(),
                     value.type.to_string()));
  return has_extents(layout, value.type.extents) ? layout : without_digits(value.type.rank());
}

// The digits of each axis are those of an operand that has the axis. Registers are numbered as in
// an operand that has all axes, if there is one.
void TileLayouts::infer_row(const RowOp& op, const Statement& s) {
  const ValueType& type = program_[s.results[0]].type;
  Layout out = without_digits(type.rank());
  for (const ValueOperand& operand : op.operands) {
    if (operand.is_literal() || of(operand).rank() != type.rank()) continue;
    const ValueType& own = program_[operand.value].type;
    if (own.extents == type.extents) {
      out = of(operand);
      break;
    }
    for (size_t axis = 0; axis < type.rank(); ++axis)
      if (own.extents[axis] > 1) out.axes[axis] = of(operand).axes[axis];
  }
  for (const ValueOperand& operand : op.operands) {
    if (operand.is_literal() || of(operand).rank() != type.rank()) continue;
    for (size_t axis = 0; axis < type.rank(); ++axis)
      expect(program_[operand.value].type.extents[axis] == 1 ||
                 same_digits(of(operand).axes[axis], out.axes[axis]),
             s,
             fmt::format("axis {} of an operand with the layout {} does not lie in the threads of "
                         "the result, which has the layout {}",
                         axis, of(operand).to_string(), out.to_string()));
  }
  renumber_registers(out);
  set(s.results[0], std::move(out));
}

Layout TileLayouts::folded(Layout out, const std::vector<int64_t>& axes) {
  for (const int64_t axis : axes) out.axes[static_cast<size_t>(axis)].clear();
  renumber_registers(out);
  return out;
}

// The layout of a slice. Only register digits can be cut; of an axis, the outermost digit can be
// cut in part.
Layout TileLayouts::sliced(const Layout& from, const ValueType& to, const Statement& s) {
  Layout out = from;
  for (size_t axis = 0; axis < out.rank(); ++axis) {
    std::vector<Digit>& digits = out.axes[axis];
    int64_t rest = out.extent(axis) / to.extents[axis];
    while (rest > 1 && !digits.empty() && digits[0].resource == Resource::Register) {
      const int64_t cut = std::min(rest, digits[0].extent);
      if (digits[0].extent % cut != 0) break;
      digits[0].extent /= cut;
      rest /= cut;
      if (digits[0].extent == 1) digits.erase(digits.begin());
    }
    expect(
        out.extent(axis) == to.extents[axis], s,
        fmt::format("a slice along axis {} of {} would not take the same elements from each thread",
                    axis, from.to_string()));
  }
  renumber_registers(out);
  return out;
}

void TileLayouts::infer_loop(const ForOp& op, const Statement& s) {
  for (const auto& [inside, first] : op.carried) set(inside, of(first));
  walk(*op.body);
  for (size_t i = 0; i < op.carried.size(); ++i) {
    if (i < op.body->yields.size() && !op.body->yields[i].is_literal())
      expect_same_threads(of(op.body->yields[i]), of(op.carried[i].second), s);
    if (i < s.results.size()) set(s.results[i], of(op.carried[i].second));
  }
}

void TileLayouts::infer_branch(const IfOp& op, const Statement& s) {
  walk(*op.then);
  if (op.otherwise) walk(*op.otherwise);
  for (size_t i = 0; i < s.results.size() && i < op.then->yields.size(); ++i) {
    const ValueOperand& yielded = op.then->yields[i];
    if (!yielded.is_literal()) set(s.results[i], of(yielded));
  }
}

}  // namespace braze
