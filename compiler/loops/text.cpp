// text.cpp — a loop tree as text: 0003, section 1.1.
#include "ir/graph/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/loops/tree.h"
#include "ir/graph/constant_text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// Rows that are written between their operands; others are written as calls.
std::string_view infix(ElementwiseOp op) {
  switch (op) {
    case ElementwiseOp::add:
      return "+";
    case ElementwiseOp::sub:
      return "-";
    case ElementwiseOp::mul:
      return "*";
    case ElementwiseOp::div:
      return "/";
    case ElementwiseOp::lt:
      return "<";
    case ElementwiseOp::le:
      return "<=";
    case ElementwiseOp::gt:
      return ">";
    case ElementwiseOp::ge:
      return ">=";
    case ElementwiseOp::eq:
      return "==";
    case ElementwiseOp::ne:
      return "!=";
    default:
      return {};
  }
}

class TreePrinter {
 public:
  TreePrinter(const LoopTree& tree, const Graph& graph)
      : tree_(tree), graph_(graph), names_(graph) {}

  std::string print(std::string_view name) {
    out_ = "braze 1 loops\n";
    for (const Expr& symbol : graph_.symbols()) out_ += symbol_text(symbol) + "\n";
    out_ += fmt::format("\ntree @{} {{\n", name);
    depth_ = 1;
    for (const LoopAxis& axis : tree_.axes)
      line(fmt::format("axis {}: {}", axis.name, axis.extent.to_string()));
    line("phase {");
    print(tree_.body);
    line("}");
    return out_ + "}\n";
  }

 private:
  void line(const std::string& text) {
    out_ += std::string(2 * static_cast<size_t>(depth_), ' ') + text + "\n";
    depth_ += text.ends_with('{');
  }

  void print(const LoopRegion& region) {
    for (const LoopItem& item : region) {
      if (const auto* loop = std::get_if<std::unique_ptr<Loop>>(&item))
        print(**loop);
      else
        print(std::get<LoopTask>(item));
    }
    --depth_;
  }

  // Loops with nothing between them are one line.
  void print(const Loop& loop) {
    std::string axes = tree_.axes[loop.axis].name;
    const Loop* inner = &loop;
    while (inner->body.size() == 1) {
      const auto* next = std::get_if<std::unique_ptr<Loop>>(&inner->body[0]);
      if (!next || (*next)->parallel != loop.parallel) break;
      inner = next->get();
      axes += ", " + tree_.axes[inner->axis].name;
    }
    line(fmt::format("{} {} {{", loop.parallel ? "parallel" : "stream", axes));
    print(inner->body);
    line("}");
  }

  std::string indices(const std::vector<Expr>& at) const {
    return "[" + join(at, ", ", [](const Expr& e) { return e.to_string(); }) + "]";
  }
  std::string axes(const std::vector<size_t>& list) const {
    return join(list, ", ", [&](size_t axis) { return tree_.axes[axis].name; });
  }
  std::string conditions(const Conditions& list) const {
    return join(list, " and ", [](const RangeCondition& c) {
      return fmt::format("{} <= {} < {}", c.min.to_string(), c.value.to_string(),
                         c.limit.to_string());
    });
  }
  // A tensor in memory has no percent sign.
  std::string tensor(NodeId node) const { return names_.value(node).substr(1); }

  // --- Bodies -------------------------------------------------------------------------------

  // What stands for a step where it is used. Steps that take operations and are used more than once
  // are values of their own, in lines before the task.
  std::string step(const LoopTask& task, uint32_t number) {
    if (!named_[number].empty()) return named_[number];
    const LoopValue& value = task.body[number];
    switch (value.kind) {
      case LoopValue::Kind::Load:
      case LoopValue::Kind::Read: {
        std::string out =
            value.kind == LoopValue::Kind::Load ? tensor(value.node) : names_.value(value.node);
        out += indices(value.at);
        if (!value.conditions.empty()) out += " if (" + conditions(value.conditions) + ")";
        return out;
      }
      case LoopValue::Kind::Index:
        return fmt::format("{}({})", name(value.dtype), value.at[0].to_string());
      case LoopValue::Kind::Constant: {
        HostTensor literal(value.dtype, std::vector<int64_t>{});
        literal.set_bits(0, value.bits);
        return constant_text(literal);
      }
      case LoopValue::Kind::Inside:
        return "(" + conditions(value.conditions) + ")";
      case LoopValue::Kind::Apply:
        break;
    }
    const auto argument = [&](size_t i) { return step(task, value.arguments[i]); };
    if (value.op == ElementwiseOp::convert)
      return fmt::format("{}({})", name(value.dtype), argument(0));
    if (value.op == ElementwiseOp::select)
      return fmt::format("where({}, {}, {})", argument(0), argument(1), argument(2));
    if (const auto sign = infix(value.op); !sign.empty())
      return fmt::format("({} {} {})", argument(0), sign, argument(1));
    std::string list = argument(0);
    for (size_t i = 1; i < value.arguments.size(); ++i) list += ", " + argument(i);
    return fmt::format("{}({})", info(value.op).name, list);
  }

  std::string body(const LoopTask& task) {
    const auto count = task.body.size();
    std::vector<int> uses(count);
    for (const LoopValue& value : task.body)
      for (const uint32_t argument : value.arguments) ++uses[argument];
    for (const LoopValue& value : task.body)
      for (const Expr& e : value.at)
        for (const std::string& symbol : e.symbols())
          if (const auto loaded = loaded_step(symbol)) uses[*loaded] += 2;
    named_.assign(count, {});
    for (uint32_t i = 0; i < count; ++i) {
      if (i == task.value) continue;
      const bool by_index = uses[i] > 1 && loaded(task, i);
      if (!by_index && (uses[i] < 2 || task.body[i].kind != LoopValue::Kind::Apply)) continue;
      const std::string text = step(task, i);
      const std::string own =
          by_index ? fmt::format("v{}", i) : fmt::format("{}.{}", names_.value(task.node), i);
      line(fmt::format("{} = compute {}", own, text));
      named_[i] = own;
    }
    return step(task, task.value);
  }
  // The step that the symbol "v<k>" of a coordinate stands for.
  static std::optional<size_t> loaded_step(const std::string& symbol) {
    if (symbol.size() < 2 || symbol[0] != 'v' ||
        symbol.find_first_not_of("0123456789", 1) != std::string::npos)
      return std::nullopt;
    return std::stoul(symbol.substr(1));
  }
  static bool loaded(const LoopTask& task, uint32_t number) {
    return std::any_of(task.body.begin(), task.body.end(), [&](const LoopValue& value) {
      return std::any_of(value.at.begin(), value.at.end(),
                         [&](const Expr& e) { return e.uses("v" + std::to_string(number)); });
    });
  }

  void print(const LoopTask& task) {
    const std::string what = body(task);
    const std::string result = fmt::format("{}[{}]: {}", names_.value(task.node), axes(task.axes),
                                           name(graph_[task.node].type.dtype));
    const std::string over = axes(task.over);
    switch (task.kind) {
      case LoopTask::Kind::Store:
        return line(fmt::format("store {} to {}{}", what, tensor(task.node), indices(task.at)));
      case LoopTask::Kind::Dot: {
        const auto& factors = task.body[task.value].arguments;
        return line(fmt::format("{} = dot {}, {} over {}", result, step(task, factors[0]),
                                step(task, factors[1]), over));
      }
      case LoopTask::Kind::Fold:
        return line(fmt::format("{} = fold {} {} over {}", result, name(task.monoid), what, over));
      case LoopTask::Kind::Arg:
        return line(fmt::format("{} = fold {} {} over {}", result,
                                task.arg_max ? "argmax" : "argmin", what, over));
      case LoopTask::Kind::Place:
        return line(fmt::format("{} = place {} {} at {} from {} over {}", result, name(task.monoid),
                                what, step(task, task.place), step(task, task.start), over));
    }
  }

  const LoopTree& tree_;
  const Graph& graph_;
  const GraphPrinter names_;
  std::vector<std::string> named_;  // steps of the task at hand that have a line of their own
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string to_text(const LoopTree& tree, const Graph& graph, std::string_view name) {
  return TreePrinter(tree, graph).print(name);
}

}  // namespace braze
