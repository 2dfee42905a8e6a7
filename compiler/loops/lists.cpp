#include "compiler/loops/lists.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "compiler/loops/rules/rules.h"
#include "compiler/loops/steps/places.h"
#include "compiler/loops/text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

Refusal unlike(std::string why) { return {&codes::kUnlike, std::move(why), ""}; }

void note_loops(LoopRegion& region, std::vector<Expr*>& out) {
  for (LoopItem& item : region) {
    auto* loop = std::get_if<Box<Loop>>(&item);
    if (!loop) continue;
    Loop& l = **loop;
    if (l.bounds) out.insert(out.end(), {&l.bounds->first, &l.bounds->second});
    for (IndexComparison& part : l.parts) out.insert(out.end(), {&part.left, &part.right});
    note_loops(l.body, out);
  }
}

// All index expressions of a tree, except for the shapes of tensors. Those of the axes come first.
std::vector<Expr*> exprs_of(LoopTree& tree) {
  std::vector<Expr*> out;
  for (LoopAxis& axis : tree.axes) out.push_back(&axis.extent);
  for (LoopTensor& tensor : tree.tensors)
    for (Expr& stride : tensor.strides) out.push_back(&stride);
  const auto note = [&](Expr& e) { out.push_back(&e); };
  for (LoopRegion& phase : tree.phases) {
    change_tasks(phase, [&](LoopTask& task) { for_each_expr(task, note); });
    note_loops(phase, out);
  }
  return out;
}

// The numbers of the axes, by their names.
std::unordered_map<std::string, size_t> axes_by_name(const LoopTree& tree) {
  std::unordered_map<std::string, size_t> out;
  for (size_t i = 0; i < tree.axes.size(); ++i) out.emplace(tree.axes[i].name, i);
  return out;
}

// The expression with "#" in place of integers, and numbers in place of the names of axes.
std::string skeleton(const Expr& e, const std::unordered_map<std::string, size_t>& axes) {
  if (e.as_constant()) return "#";
  if (e.kind() == Expr::Kind::Symbol) {
    const auto axis = axes.find(e.symbol_name());
    return axis == axes.end() ? e.symbol_name() : fmt::format("a{}", axis->second);
  }
  return fmt::format(
      "{}({})", static_cast<int>(e.kind()),
      join(e.operands(), " ", [&](const Expr& operand) { return skeleton(operand, axes); }));
}

// Makes one expression from those that stand at the same place of all forms.
class Unifier {
 public:
  explicit Unifier(std::span<const LoopTree* const> forms) : sizes(forms.size()) {
    for (const LoopTree* form : forms) axes_.push_back(axes_by_name(*form));
    for (const LoopAxis& axis : forms.front()->axes) used_.insert(axis.name);
    for (const LoopTensor& tensor : forms.front()->tensors) used_.insert(tensor.name);
    for (const LoopValue& value : forms.front()->values) used_.insert(value.name);
  }

  Expr unify(const std::vector<Expr>& all) {
    const Expr& first = all.front();
    if (first.as_constant()) {
      std::vector<int64_t> values;
      for (const Expr& e : all) values.push_back(*e.as_constant());
      return std::ranges::all_of(values, [&](int64_t n) { return n == values.front(); })
                 ? first
                 : size(values);
    }
    if (first.kind() == Expr::Kind::Symbol) return symbol(all);
    std::vector<Expr> parts;
    for (size_t i = 0; i < first.operands().size(); ++i) {
      std::vector<Expr> part;
      for (const Expr& e : all) part.push_back(e.operands()[i]);
      parts.push_back(unify(part));
    }
    return rebuilt(first.kind(), parts);
  }

  // The index of each axis in the tree of the list.
  std::vector<Expr> indices;
  std::vector<Expr> symbols;
  std::vector<std::vector<int64_t>> sizes;
  std::optional<Refusal> refused;

 private:
  Expr symbol(const std::vector<Expr>& all) {
    const auto axis = axes_.front().find(all.front().symbol_name());
    if (axis != axes_.front().end()) return indices[axis->second];
    for (const Expr& e : all)
      if (e.range() != all.front().range())
        refused = unlike(fmt::format("the integers {} that are loaded have ranges that differ",
                                     all.front().symbol_name()));
    return all.front();
  }

  Expr rebuilt(Expr::Kind kind, const std::vector<Expr>& parts) {
    switch (kind) {
      case Expr::Kind::Sum:
        return std::accumulate(parts.begin(), parts.end(), Expr(0));
      case Expr::Kind::Product:
        return std::accumulate(parts.begin(), parts.end(), Expr(1),
                               [](const Expr& a, const Expr& b) { return a * b; });
      case Expr::Kind::Min:
        return min(parts);
      case Expr::Kind::Max:
        return max(parts);
      default:
        break;
    }
    if (!parts[1].as_constant())
      refused = unlike(
          "an index is divided by a size that differs, which would cost a division "
          "for each element");
    else
      return kind == Expr::Kind::FloorDiv ? floordiv(parts[0], parts[1]) : mod(parts[0], parts[1]);
    return parts[0];
  }

  // The symbol that has these values, plus a number if some are negative.
  Expr size(const std::vector<int64_t>& values) {
    const auto [found, added] = by_values_.try_emplace(values);
    if (added) {
      // A symbol is no negative number, as what a padding adds to an index may be.
      const auto [least, most] = std::ranges::minmax(values);
      const int64_t base = std::min<int64_t>(least, 0);
      int64_t divisor = 0;
      for (const int64_t value : values) divisor = std::gcd(divisor, value - base);
      symbols.push_back(Expr::symbol(unused_name(), {least - base, most - base}, divisor));
      found->second = symbols.back() + base;
      for (size_t m = 0; m < values.size(); ++m) sizes[m].push_back(values[m] - base);
    }
    return found->second;
  }
  std::string unused_name() {
    std::string name = "size";
    for (size_t n = 1; !used_.insert(name).second; ++n) name = fmt::format("size{}", n);
    return name;
  }

  std::vector<std::unordered_map<std::string, size_t>> axes_;  // by form
  std::map<std::vector<int64_t>, Expr> by_values_;
  std::set<std::string> used_;
};

std::optional<Refusal> no_member(const LoopTree& form) {
  if (!form.symbols.empty())
    return unlike(fmt::format("its size {} is a symbol, and the code of a list contains all sizes",
                              form.symbols.front().symbol_name()));
  std::optional<Refusal> out;
  for (const LoopRegion& phase : form.phases) {
    visit_loops(phase, [&](const Loop& loop) {
      if (loop.bounds || loop.limit || !loop.parts.empty())
        out = unlike("a loop has bounds of its own: " + to_text(form, loop));
    });
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      if (task.kind == LoopTask::Kind::Place || task.kind == LoopTask::Kind::Scan)
        out = unlike("the steps of places and scans depend on extents: " + to_text(form, task));
    });
  }
  return out;
}

}  // namespace

LoopTree list_form(LoopTree first) {
  Scheduled out{std::move(first)};
  join_axes(out);
  flatten_tensors(out);
  return std::move(out.tree);
}

std::variant<std::string, Refusal> list_key(const LoopTree& form) {
  if (auto refusal = no_member(form)) return std::move(*refusal);
  LoopTree plain = form;
  const auto axes = axes_by_name(plain);
  std::string out;
  for (Expr* e : exprs_of(plain)) {
    out += skeleton(*e, axes) + "\n";
    *e = 0;
  }
  plain.name = "list";
  for (size_t i = 0; i < plain.axes.size(); ++i) plain.axes[i].name = fmt::format("a{}", i);
  for (size_t i = 0; i < plain.values.size(); ++i) plain.values[i].name = fmt::format("v{}", i);
  for (size_t i = 0; i < plain.tensors.size(); ++i) {
    LoopTensor& tensor = plain.tensors[i];
    tensor.name = fmt::format("t{}", i);
    tensor.type.shape = Shape(std::vector<Expr>(tensor.type.shape.rank(), 1));
  }
  return out + to_text(plain);
}

std::variant<ListTree, Refusal> list_tree(std::span<const LoopTree* const> forms) {
  std::vector<LoopTree> trees;
  for (const LoopTree* form : forms) trees.push_back(*form);
  std::vector<std::vector<Expr*>> exprs;
  for (LoopTree& tree : trees) exprs.push_back(exprs_of(tree));
  LoopTree& tree = trees.front();
  Unifier unifier(forms);
  const auto unify = [&](const auto& expr_of) {
    std::vector<Expr> all;
    for (size_t m = 0; m < trees.size(); ++m) all.push_back(expr_of(m));
    return unifier.unify(all);
  };
  for (size_t i = 0; i < exprs.front().size(); ++i) {
    *exprs.front()[i] = unify([&](size_t m) { return *exprs[m][i]; });
    if (i < tree.axes.size()) unifier.indices.push_back(tree.axes[i].index());
  }
  for (size_t t = 0; t < tree.tensors.size(); ++t) {
    std::vector<Expr> dims;
    for (size_t d = 0; d < tree.tensors[t].type.shape.dims().size(); ++d)
      dims.push_back(unify([&](size_t m) { return trees[m].tensors[t].type.shape.dims()[d]; }));
    tree.tensors[t].type.shape = Shape(dims);
  }
  if (unifier.refused) return std::move(*unifier.refused);
  if (unifier.symbols.empty()) return unlike("the kernels do not differ in their sizes");
  for (const LoopRegion& phase : tree.phases) {
    std::optional<Refusal> refused;
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      for (const size_t axis : task.over)
        if (!tree.axes[axis].extent.as_constant())
          refused = unlike(fmt::format("a sum runs over {}, whose extent differs: {}",
                                       tree.axes[axis].name, to_text(tree, task)));
    });
    if (refused) return std::move(*refused);
  }
  tree.symbols = unifier.symbols;
  return ListTree{std::move(tree), std::move(unifier.sizes)};
}

LoopTree with_sizes(LoopTree tree, const std::vector<int64_t>& sizes) {
  std::unordered_map<std::string, Expr> values;
  for (size_t i = 0; i < tree.symbols.size(); ++i)
    values.emplace(tree.symbols[i].symbol_name(), sizes[i]);
  for (Expr* e : exprs_of(tree)) *e = e->substitute(values);
  for (LoopTensor& tensor : tree.tensors) {
    std::vector<Expr> dims;
    for (const Expr& extent : tensor.type.shape.dims()) dims.push_back(extent.substitute(values));
    tensor.type.shape = Shape(dims);
  }
  tree.symbols.clear();
  return tree;
}

}  // namespace braze
