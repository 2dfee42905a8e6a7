#include "ir/code/index_program.h"

#include <algorithm>
#include <charconv>

#include "ir/ops/scalar.h"

namespace braze {

namespace {

int64_t combine(Expr::Kind kind, int64_t a, int64_t b) {
  return with_operation(kind, [&](auto op) { return op(a, b); });
}

}  // namespace

int64_t flatten(const std::vector<int64_t>& at, const std::vector<int64_t>& extents) {
  int64_t index = 0;
  for (size_t i = 0; i < extents.size(); ++i) index = index * extents[i] + at[i];
  return index;
}

std::vector<int64_t> unflatten(int64_t index, const std::vector<int64_t>& extents) {
  std::vector<int64_t> at(extents.size());
  for (size_t i = extents.size(); i-- > 0; index /= extents[i]) at[i] = index % extents[i];
  return at;
}

int64_t broadcast_index(const std::vector<int64_t>& from, std::vector<int64_t> at) {
  if (from.empty()) return 0;
  for (size_t d = 0; d < at.size(); ++d)
    if (from[d] == 1) at[d] = 0;
  return flatten(at, from);
}

std::vector<int64_t> element_positions(const ValueType& type, size_t axis) {
  const int64_t count = type.count() * type.lanes;
  int64_t inner = axis < type.rank() ? type.lanes : 1;
  for (size_t i = axis + 1; i < type.rank(); ++i) inner *= type.extents[i];
  const int64_t extent = axis < type.rank() ? type.extents[axis] : type.lanes;
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = i / inner % extent;
  return out;
}

bool is_position_symbol(const std::string& name, char letter) {
  if (letter == 'e' && name == "lane") return true;
  return name[0] == letter && name.size() > 1 &&
         name.find_first_not_of("0123456789", 1) == std::string::npos;
}

std::vector<uint32_t> broadcast_map(const ValueType& from, const ValueType& to) {
  if (from.lanes == to.lanes && from.extents == to.extents) return {};
  const int64_t count = to.count() * to.lanes;
  std::vector<uint32_t> map(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i / to.lanes, place = 0, stride = 1;
    for (size_t axis = to.rank(); axis-- > 0; rest /= to.extents[axis]) {
      if (axis >= from.rank() || from.extents[axis] == 1) continue;
      place += rest % to.extents[axis] * stride;
      stride *= from.extents[axis];
    }
    map[static_cast<size_t>(i)] =
        static_cast<uint32_t>(place * from.lanes + (from.lanes > 1 ? i % to.lanes : 0));
  }
  return map;
}

std::vector<uint32_t> part_map(const MovementOp& view, const ValueType& from, const ValueType& to) {
  std::vector<int64_t> strides(from.rank());
  int64_t stride = from.lanes, start = 0;
  for (size_t axis = from.rank(); axis-- > 0; stride *= from.extents[axis]) strides[axis] = stride;
  std::vector<int64_t> read = strides;
  for (size_t axis = 0; axis < from.rank(); ++axis) {
    if (view.kind == MovementKind::Transpose)
      read[axis] = strides[static_cast<size_t>(view.arguments[axis])];
    else
      start += view.arguments[axis] * strides[axis];
  }
  std::vector<uint32_t> map(static_cast<size_t>(to.count() * to.lanes));
  for (size_t i = 0; i < map.size(); ++i) {
    auto rest = static_cast<int64_t>(i) / to.lanes;
    int64_t place = start + static_cast<int64_t>(i) % to.lanes;
    for (size_t axis = to.rank(); axis-- > 0; rest /= to.extents[axis])
      place += rest % to.extents[axis] * read[axis];
    map[i] = static_cast<uint32_t>(place);
  }
  return map;
}

IndexProgram::IndexProgram(const Expr& e, const IndexContext& context)
    : count_(static_cast<size_t>(context.type.count() * context.type.lanes)) {
  add(e, context);
}

size_t IndexProgram::add(const Expr& e, const IndexContext& context) {
  Node node;
  node.kind = e.kind();
  if (const auto constant = e.as_constant()) {
    node.kind = Expr::Kind::Constant;
    node.scalar = *constant;
  } else if (e.kind() == Expr::Kind::Symbol) {
    const std::string& name = e.symbol_name();
    if (name[0] == '%') {
      const auto [array, type] = context.value(name);
      node.value = array;
      node.dtype = type.dtype;
      node.form = Form::Array;
      node.map = broadcast_map(type, context.type);
      node.table.resize(count_);
    } else if (is_position_symbol(name, context.letter)) {
      size_t axis = context.type.rank();
      if (name != "lane") std::from_chars(name.data() + 1, name.data() + name.size(), axis);
      node.form = Form::Table;
      node.table = element_positions(context.type, axis);
    } else {
      node.slot = context.slot(name);
    }
  } else {
    // Terms of the same form stand side by side, so that tables are added when the expression is
    // compiled.
    std::vector<std::pair<Form, size_t>> operands;
    for (const Expr& operand : e.operands()) {
      const size_t i = add(operand, context);
      operands.emplace_back(nodes_[i].form, i);
    }
    const bool ordered = e.kind() == Expr::Kind::FloorDiv || e.kind() == Expr::Kind::Mod;
    if (!ordered)
      std::stable_sort(operands.begin(), operands.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<size_t> tables;
    for (const auto& [form, i] : operands) {
      node.operands.push_back(i);
      node.form = std::max(node.form, form);
      if (form == Form::Table) tables.push_back(i);
    }
    // A constant among table terms is added to the table. With a symbol the whole becomes an array.
    const bool all_known = std::all_of(node.operands.begin(), node.operands.end(), [&](size_t i) {
      return nodes_[i].form == Form::Table || nodes_[i].kind == Expr::Kind::Constant;
    });
    if (node.form == Form::Table && !all_known) node.form = Form::Array;
    if (!ordered && tables.size() > 1 && node.form == Form::Array) {
      Node known;
      known.kind = node.kind;
      known.form = Form::Table;
      known.operands = tables;
      known.table.resize(count_);
      evaluate(known, {});
      std::erase_if(node.operands, [&](size_t i) { return nodes_[i].form == Form::Table; });
      nodes_.push_back(std::move(known));
      node.operands.push_back(nodes_.size() - 1);
    }
    if (node.form != Form::Uniform) node.table.resize(count_);
    if (node.form == Form::Table) evaluate(node, {});
  }
  nodes_.push_back(std::move(node));
  return nodes_.size() - 1;
}

void IndexProgram::evaluate(const Node& node, const std::vector<int64_t>& symbols) const {
  if (node.kind == Expr::Kind::Constant) return;
  if (node.kind == Expr::Kind::Symbol) {
    if (node.form == Form::Uniform) node.scalar = symbols[node.slot];
    if (node.value)
      for (size_t i = 0; i < count_; ++i)
        node.table[i] = bits_to_int(node.dtype, (*node.value)[node.map.empty() ? i : node.map[i]]);
    return;
  }
  if (node.form == Form::Uniform) {
    node.scalar = nodes_[node.operands[0]].scalar;
    for (size_t k = 1; k < node.operands.size(); ++k)
      node.scalar = combine(node.kind, node.scalar, nodes_[node.operands[k]].scalar);
    return;
  }
  const Node& first = nodes_[node.operands[0]];
  if (first.form == Form::Uniform)
    std::fill(node.table.begin(), node.table.end(), first.scalar);
  else
    node.table = first.table;
  int64_t* const table = node.table.data();
  for (size_t k = 1; k < node.operands.size(); ++k) {
    const Node& next = nodes_[node.operands[k]];
    if (next.form == Form::Uniform)
      with_operation_by(node.kind, next.scalar, [&](auto op) {
        for (size_t i = 0; i < count_; ++i) table[i] = op(table[i]);
      });
    else
      with_operation(node.kind, [&](auto op) {
        for (size_t i = 0; i < count_; ++i) table[i] = op(table[i], next.table.data()[i]);
      });
  }
}

int64_t IndexProgram::scalar(const std::vector<int64_t>& symbols) const {
  for (const Node& node : nodes_) evaluate(node, symbols);
  return nodes_.back().form == Form::Uniform ? nodes_.back().scalar : nodes_.back().table.at(0);
}

const std::vector<int64_t>& IndexProgram::array(const std::vector<int64_t>& symbols) const {
  for (const Node& node : nodes_)
    if (node.form != Form::Table) evaluate(node, symbols);
  const Node& last = nodes_.back();
  if (last.form == Form::Uniform) last.table.assign(count_, last.scalar);
  return last.table;
}

}  // namespace braze
