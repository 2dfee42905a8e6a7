// print.cpp — writes a loop tree as text.
#include <algorithm>

#include "compiler/loops/text.h"
#include "compiler/loops/text_p.h"
#include "ir/graph/constant_text.h"
#include "ir/graph/text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int kNothingAround = 0;

std::string literal_text(DType dtype, uint64_t bits) {
  HostTensor literal(dtype, std::vector<int64_t>{});
  literal.set_bits(0, bits);
  return constant_text(literal);
}

class TreePrinter {
 public:
  explicit TreePrinter(const LoopTree& tree) : tree_(tree) {}

  std::string file() {
    out_ = "braze 1 loops\n";
    for (const Expr& symbol : tree_.symbols) out_ += symbol_text(symbol) + "\n";
    out_ +=
        fmt::format("\ntree @{}({})", tree_.name,
                    join(tree_.tensors, ", ", [this](const LoopTensor& t) { return text_of(t); }));
    if (!tree_.target.empty()) out_ += fmt::format(" target {}", quote(tree_.target));
    if (tree_.roles) out_ += fmt::format(" roles({}, {})", tree_.roles->stages, tree_.roles->rest);
    if (tree_.registers > 0) out_ += fmt::format(" registers {}", tree_.registers);
    out_ += " {\n";
    depth_ = 1;
    for (const LoopAxis& axis : tree_.axes)
      line(fmt::format("axis {}: {}", axis.name, axis.extent.to_string()));
    for (size_t p = 0; p < tree_.phases.size(); ++p) {
      line(p == 0 ? "phase {" : "then phase {");
      region(tree_.phases[p]);
    }
    return out_ + "}\n";
  }

  // The text of a task with its `let`s.
  std::string task(const LoopTask& t) {
    print(t);
    out_.pop_back();
    return out_;
  }

  std::string head(const Loop& loop) {
    std::string out = loop.parallel ? "parallel " : "stream ";
    out += join(loop.levels, ", ", [&](const LoopLevel& level) {
      const std::string& name = tree_.axes[level.axis].name;
      return level.turn == 1 ? name : fmt::format("{}:{}", name, level.turn);
    });
    if (loop.on != Machine::None)
      out += fmt::format(" on {}", kMachineNames[static_cast<size_t>(loop.on)]);
    if (loop.bounds)
      out += fmt::format(" in {}..{}", loop.bounds->first.to_string(),
                         loop.bounds->second.to_string());
    if (loop.limit)
      out += " limit " + join(loop.limit->results, ", ", [&](uint32_t result) {
               return step(*loop.limit, result, kNothingAround);
             });
    if (loop.picks)
      out += fmt::format(" picks %{}{}", tree_.values[loop.picks->value].name,
                         indices(loop.picks->at));
    if (loop.down) out += " down";
    if (!loop.deal.empty())
      out += " deal " + join(loop.deal, ", ", [&](const Deal& d) { return text_of(d); });
    if (loop.ring > 0) out += fmt::format(" ring {}", loop.ring);
    if (loop.seek) out += " seek";
    if (loop.unroll > 0) out += fmt::format(" unroll {}", loop.unroll);
    if (loop.partial > 0) out += fmt::format(" partial {}", loop.partial);
    if (loop.turns) out += " turns";
    if (!loop.parts.empty())
      out += " parts(" +
             join(loop.parts, ", ",
                  [](const IndexComparison& c) {
                    return fmt::format("{} {} {}", c.left.to_string(),
                                       kComparisonSigns[static_cast<size_t>(c.kind)],
                                       c.right.to_string());
                  }) +
             ")";
    return out;
  }

 private:
  std::string text_of(const LoopTensor& t) const {
    std::string out = fmt::format("{}: {} {}", t.name, kModeNames[static_cast<size_t>(t.mode)],
                                  t.type.to_string());
    if (!t.strides.empty()) out += " strides " + indices(t.strides);
    if (t.align > 0) out += fmt::format(" align {}", t.align);
    if (t.finite) out += " finite";
    if (t.same) out += " same " + tree_.tensors[*t.same].name;
    return out;
  }
  std::string text_of(const Deal& d) const {
    const std::string word(kOrderNames[static_cast<size_t>(d.order)]);
    switch (d.order) {
      case Deal::Order::Band:
      case Deal::Order::Persistent:
        return fmt::format("{} {}", word, d.number);
      case Deal::Order::Grouped:
        return fmt::format("{} {} {}", word, tree_.axes[d.axis].name, d.number);
      default:
        return word;
    }
  }

  void line(const std::string& text) {
    out_ += std::string(2 * static_cast<size_t>(depth_), ' ') + text + "\n";
  }

  void region(const LoopRegion& items) {
    ++depth_;
    for (const LoopItem& item : items) {
      if (const auto* loop = std::get_if<Box<Loop>>(&item)) {
        line(head(**loop) + " {");
        region((*loop)->body);
      } else {
        print(std::get<LoopTask>(item));
      }
    }
    --depth_;
    line("}");
  }

  static std::string indices(const std::vector<Expr>& at) {
    return "[" + join(at, ", ", [](const Expr& e) { return e.to_string(); }) + "]";
  }
  std::string axes(const std::vector<size_t>& list) const {
    return join(list, ", ", [&](size_t axis) { return tree_.axes[axis].name; });
  }

  // --- Bodies -------------------------------------------------------------------------------

  // Replaces the symbols of steps by the names that these steps have in the text.
  Expr renamed(const Expr& e) const { return e.substitute(lets_); }
  std::string coordinates(const std::vector<Expr>& at) const {
    std::vector<Expr> out;
    for (const Expr& e : at) out.push_back(renamed(e));
    return indices(out);
  }
  std::string conditions(const std::vector<RangeCondition>& list) const {
    return "(" +
           join(list, " and ",
                [&](const RangeCondition& c) {
                  return fmt::format("{} <= {} < {}", renamed(c.min).to_string(),
                                     renamed(c.value).to_string(), renamed(c.limit).to_string());
                }) +
           ")";
  }
  std::string load(const LoopStep& s) const {
    std::string out = tree_.tensors[s.source].name + coordinates(s.at);
    if (!s.conditions.empty()) out += " if " + conditions(s.conditions);
    if (s.otherwise) out += " else " + literal_text(s.dtype, *s.otherwise);
    return out;
  }
  std::string read(const LoopStep& s) const {
    const LoopValue& value = tree_.values[s.source];
    std::string out = "%" + value.name + (s.before ? "'" : "");
    bool own = s.at.size() == value.axes.size();
    for (size_t i = 0; own && i < s.at.size(); ++i)
      own = s.at[i] == tree_.axes[value.axes[i]].index();
    return own ? out : out + coordinates(s.at);
  }

  // The text of a step where it is used. `around` is how tightly the operator around it binds.
  std::string step(const LoopBody& body, uint32_t number, int around) {
    if (number < named_.size() && !named_[number].empty()) return named_[number];
    const LoopStep& s = body.steps[number];
    switch (s.kind) {
      case LoopStep::Kind::Load:
        return load(s);
      case LoopStep::Kind::Read:
        return read(s);
      case LoopStep::Kind::Index: {
        const Expr e = renamed(s.at[0]);
        if (s.dtype != DType::I32) return fmt::format("index.{}({})", name(s.dtype), e.to_string());
        // A name alone means an index only if it is that of an axis.
        const bool axis =
            std::ranges::any_of(tree_.axes, [&](const LoopAxis& a) { return e == a.index(); });
        return axis ? e.to_string() : fmt::format("index({})", e.to_string());
      }
      case LoopStep::Kind::Constant:
        return fmt::format("{}({})", name(s.dtype), literal_text(s.dtype, s.bits));
      case LoopStep::Kind::Inside:
        return "inside" + conditions(s.conditions);
      case LoopStep::Kind::Apply:
        break;
    }
    return apply(body, s, around);
  }

  // A literal needs no dtype beside an operand that has one.
  std::string argument(const LoopBody& body, const LoopStep& s, size_t i, int around) {
    const auto is_literal = [&](uint32_t k) {
      return body.steps[k].kind == LoopStep::Kind::Constant;
    };
    const LoopStep& own = body.steps[s.arguments[i]];
    bool fixed = false;
    for (size_t k = first_of_one_dtype(s.op); k < s.arguments.size(); ++k)
      fixed |= i >= first_of_one_dtype(s.op) && !is_literal(s.arguments[k]);
    if (is_literal(s.arguments[i]) && fixed) return literal_text(own.dtype, own.bits);
    return step(body, s.arguments[i], around);
  }

  std::string apply(const LoopBody& body, const LoopStep& s, int around) {
    if (s.op == ElementwiseOp::convert)
      return fmt::format("{}({})", name(s.dtype), step(body, s.arguments[0], kNothingAround));
    if (const InfixRow* row = infix_row(s.op); row && !is_kept(s)) {
      const bool compares = row->binds == kComparisonBinds;
      const std::string text =
          fmt::format("{} {} {}", argument(body, s, 0, compares ? row->binds : row->binds - 1),
                      row->sign, argument(body, s, 1, row->binds));
      return row->binds > around ? text : "(" + text + ")";
    }
    if (s.op == ElementwiseOp::neg) return "-" + step(body, s.arguments[0], kFactorBinds);
    std::string word(name(s.op));
    if (s.op == ElementwiseOp::select) word = "where";
    if (s.op == ElementwiseOp::bitcast) word = fmt::format("bitcast.{}", name(s.dtype));
    if (s.coarse) word = "coarse." + word;
    if (is_kept(s)) word = "kept." + word;
    std::string list;
    for (size_t i = 0; i < s.arguments.size(); ++i)
      list += (i == 0 ? "" : ", ") + argument(body, s, i, kNothingAround);
    return fmt::format("{}({})", word, list);
  }

  // A step gets its own `let` before the task if it is an operation that is used more than once, or
  // if a coordinate uses it.
  void print_lets(const LoopTask& task) {
    const LoopBody& body = task.body;
    std::vector<int> uses(body.steps.size());
    std::vector<bool> in_coordinates(body.steps.size());
    const auto note = [&](const Expr& e) {
      for (const std::string& symbol : e.symbols())
        if (const auto k = loaded_step(symbol); k && *k < in_coordinates.size())
          in_coordinates[*k] = true;
    };
    for (const Expr& e : task.at) note(e);
    for (const uint32_t result : body.results) ++uses[result];
    // Steps use those before them. What nothing uses is not written, and uses nothing.
    for (size_t i = body.steps.size(); i-- > 0;) {
      const LoopStep& s = body.steps[i];
      if (uses[i] == 0 && !in_coordinates[i]) continue;
      for (const uint32_t argument : s.arguments) ++uses[argument];
      for_each_expr(s, note);
    }
    named_.assign(body.steps.size(), {});
    lets_.clear();
    for (uint32_t i = 0; i < body.steps.size(); ++i) {
      if (!in_coordinates[i] && (uses[i] < 2 || body.steps[i].kind != LoopStep::Kind::Apply))
        continue;
      const auto count = static_cast<uint32_t>(lets_.size());
      const std::string text = step(body, i, kNothingAround);
      named_[i] = loaded_symbol(count).symbol_name();
      line(fmt::format("let {} = {}", named_[i], text));
      lets_.insert_or_assign(loaded_symbol(i).symbol_name(), loaded_symbol(count));
    }
  }

  std::string made(const LoopTask& task) const {
    const LoopValue& value = tree_.values[task.target];
    std::string out = fmt::format("%{}[{}]", value.name, axes(value.axes));
    if (value.dtype != default_dtype(task)) out += fmt::format(": {}", name(value.dtype));
    if (value.storage != Storage::Registers)
      out += fmt::format(" in {}", kStorageNames[static_cast<size_t>(value.storage)]);
    if (value.panel > 0) out += fmt::format(" panels {}", value.panel);
    if (value.layout) out += " " + value.layout->layout.to_string();
    return out + " = ";
  }

  void print(const LoopTask& task) {
    print_lets(task);
    const auto result = [&](size_t i) {
      return step(task.body, task.body.results[i], kNothingAround);
    };
    const std::string over = task.over.empty() ? "" : " over " + axes(task.over);
    std::string out;
    switch (task.kind) {
      case LoopTask::Kind::Compute:
        out = fmt::format("{}compute {}", made(task), result(0));
        break;
      case LoopTask::Kind::Fold:
        out = fmt::format("{}fold {} {}{}", made(task), name(task.monoid), result(0), over);
        break;
      case LoopTask::Kind::Arg:
        out = fmt::format("{}fold {} {}{}", made(task), task.arg_max ? "argmax" : "argmin",
                          result(0), over);
        break;
      case LoopTask::Kind::Scan:
        out = fmt::format("{}scan {} ", made(task), task.combiner.to_string());
        for (size_t i = 0; i < task.body.results.size(); ++i) {
          if (i > 0) out += i == task.combiner.parts() ? " after " : ", ";
          out += result(i);
        }
        out += fmt::format("{}{}{}", over, task.reverse ? " reverse" : "",
                           task.exclusive ? " exclusive" : "");
        if (task.part > 0) out += fmt::format(" part {}", task.part);
        break;
      case LoopTask::Kind::Dot:
        out = fmt::format("{}dot {}, {}{}", made(task), result(0), result(1), over);
        break;
      case LoopTask::Kind::Place:
        out = fmt::format("{}place {} {} at {}", made(task),
                          task.replaces ? "set" : name(task.monoid), result(0), result(1));
        if (!task.along.empty()) out += " along " + axes(task.along);
        out += fmt::format(" from {}{}", result(2), over);
        break;
      case LoopTask::Kind::Stage:
        out = made(task) + "stage " + result(0);
        break;
      case LoopTask::Kind::Store:
        out = fmt::format("store {} to {}{}", result(0), tree_.tensors[task.target].name,
                          coordinates(task.at));
        if (task.layout) out += " " + task.layout->to_string();
        if (task.cache != CacheHint::None)
          out += fmt::format(" cache {}", kCacheNames[static_cast<size_t>(task.cache)]);
        break;
    }
    line(out + marks(task));
    named_.clear();
    lets_.clear();
  }

  std::string marks(const LoopTask& task) {
    std::string out;
    if (task.rescale) {
      named_.clear();
      out += task.shifts ? " shift " : " rescale ";
      out += step(*task.rescale, task.rescale->results[0], kNothingAround);
    }
    if (task.combine != Combine::None) out += " combine rank";
    if (task.unit != Unit::None)
      out += fmt::format(" unit {}", kUnitNames[static_cast<size_t>(task.unit)]);
    if (task.swap) out += " swap";
    if (task.tf32) out += " tf32";
    if (task.unrounded) out += " unrounded";
    if (task.ahead > 0) out += fmt::format(" ahead {}", task.ahead);
    return out;
  }

  const LoopTree& tree_;
  std::vector<std::string> named_;  // names of the present task's steps that have a `let`
  std::unordered_map<std::string, Expr> lets_;  // symbols of steps in coordinates -> their names
  std::string out_;
  int depth_ = 0;
};

}  // namespace

const InfixRow* infix_row(ElementwiseOp op) {
  for (const InfixRow& row : kInfixRows)
    if (row.op == op) return &row;
  return nullptr;
}

DType default_dtype(const LoopTask& task) {
  return task.kind == LoopTask::Kind::Arg ? DType::I64 : body_dtype(task);
}

std::string to_text(const LoopTree& tree) { return TreePrinter(tree).file(); }
std::string to_text(const LoopTree& tree, const LoopTask& task) {
  return TreePrinter(tree).task(task);
}
std::string to_text(const LoopTree& tree, const Loop& loop) { return TreePrinter(tree).head(loop); }

}  // namespace braze
