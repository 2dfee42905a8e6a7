// inliner.h — evaluates nodes of a Fusion at index expressions, through their loop forms.
//
// The inliner walks from a node at given coordinates down to what the kernel reads from memory, and
// to reductions that were computed before. It composes the index maps on the way, so movement ops
// vanish. A Sink decides what the steps become: a tracer counts and records them, and the builder
// of loop trees makes bodies of them.
//
//   struct Sink {
//     using Value = ...;
//     Value load(NodeId node, std::vector<Expr> at, const Conditions&);   // memory
//     Value reduced(NodeId node, std::vector<Expr> at, const Conditions&);  // an inner reduction
//     Value index(const Expr&, DType);
//     Value constant(DType, uint64_t bits);
//     Value inside(const Conditions&);
//     Value apply(ElementwiseOp, std::span<const Value>, DType result);
//     Expr as_index(const Value&, const Expr& extent);  // a symbol for a loaded index, clamped
//     NodeId origin;  // optional: the node whose row `apply` is
//     // A value that exists already. Asked only for values that are needed without conditions.
//     std::optional<Value> cached(NodeId node, const std::vector<Expr>& at);
//   };
#pragma once

#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/fusion/fusion.h"
#include "ir/graph/loop_form.h"
#include "ir/graph/text.h"
#include "ir/support/hash.h"

namespace braze {

using Conditions = std::vector<RangeCondition>;

/// The loop forms of a graph, which are made on demand, and other facts of the whole graph that
/// every kernel needs.
class LoopForms {
 public:
  explicit LoopForms(const Graph& graph)
      : graph_(graph),
        printer_(graph),
        symbols_(graph.symbols()),
        forms_(graph.size()),
        known_(graph.size()) {}

  const Graph& graph() const { return graph_; }
  /// Prints the names of values.
  const GraphPrinter& printer() const { return printer_; }
  /// The symbols of the graph.
  const std::vector<Expr>& symbols() const { return symbols_; }
  /// Null if the node has no loop form.
  const LoopForm* find(NodeId node) const {
    if (!known_[node.index]) {
      forms_[node.index] = loop_form(graph_, node);
      known_[node.index] = true;
    }
    return forms_[node.index] ? &*forms_[node.index] : nullptr;
  }

 private:
  const Graph& graph_;
  const GraphPrinter printer_;
  const std::vector<Expr> symbols_;
  mutable std::vector<std::optional<LoopForm>> forms_;
  mutable std::vector<bool> known_;
};

template <class Sink>
class Inliner {
 public:
  using Value = typename Sink::Value;

  /// `inside[i]` says whether this kernel computes node i; other nodes are loaded.
  Inliner(const LoopForms& forms, const std::vector<bool>& inside, Sink& sink)
      : forms_(forms), inside_(inside), sink_(sink) {}

  /// The value of `node` at `at`. It matters only where `conditions` hold.
  Value value(NodeId node, const std::vector<Expr>& at, const Conditions& conditions = {}) {
    const LoopForm* form = inside_[node.index] ? forms_.find(node) : nullptr;
    if (form && form->reduces()) return sink_.reduced(node, at, conditions);
    Question question{node, at, conditions};
    if (const auto found = memo_.find(question); found != memo_.end()) return found->second;
    if (form && conditions.empty()) {
      if (auto cached = sink_.cached(node, at))
        return memo_.emplace(std::move(question), *cached).first->second;
    }
    const Value result =
        form ? body(node, *form, at, {}, conditions) : sink_.load(node, at, conditions);
    return memo_.emplace(std::move(question), result).first->second;
  }

  /// The body of a reduction at the coordinates `at` of its result and `reduction` of the reduced
  /// axes.
  Value reduction_body(NodeId node, const std::vector<Expr>& at,
                       const std::vector<Expr>& reduction) {
    return body(node, *forms_.find(node), at, reduction, {});
  }

  /// The parts of the term of a scan at the coordinates `at`, of which the one along the axis of
  /// the scan is `reduction`.
  std::vector<Value> scanned_parts(NodeId node, const std::vector<Expr>& at,
                                   const std::vector<Expr>& reduction) {
    const LoopForm& form = *forms_.find(node);
    const std::vector<Value> all = steps(node, form, at, reduction, {});
    std::vector<Value> out;
    for (const uint32_t part : form.running->parts) out.push_back(all[part]);
    return out;
  }

  /// For a placed reduction: `place` is the index, not clamped, at which the term at `reduction` is
  /// added. `start` is the value at `at` to which the terms are added.
  Value place(NodeId node, const std::vector<Expr>& reduction) {
    const Placement& placement = *forms_.find(node)->placement;
    std::unordered_map<std::string, Expr> bindings;
    for (size_t i = 0; i < reduction.size(); ++i)
      bindings.emplace("r" + std::to_string(i), reduction[i]);
    std::vector<Expr> at;
    for (const Expr& e : placement.at) at.push_back(e.substitute(bindings));
    return value(forms_.graph()[node].operands[placement.indices], at);
  }
  Value start(NodeId node, const std::vector<Expr>& at) {
    return value(forms_.graph()[node].operands[forms_.find(node)->placement->start], at);
  }

  /// Forgets all values. Must be called when earlier values are no longer in scope.
  void forget() { memo_.clear(); }

 private:
  // Keys are compared as a whole. If two questions with one hash shared a value, nothing would
  // reveal the error.
  struct Question {
    NodeId node;
    std::vector<Expr> at;
    Conditions conditions;
    friend bool operator==(const Question&, const Question&) = default;
  };
  struct QuestionHash {
    size_t operator()(const Question& question) const {
      uint64_t hash = hash_combine(question.node.index, question.at.size());
      for (const Expr& e : question.at) hash = hash_combine(hash, e.hash());
      for (const RangeCondition& c : question.conditions)
        for (const Expr* e : {&c.value, &c.min, &c.limit}) hash = hash_combine(hash, e->hash());
      return hash;
    }
  };

  // What the symbols of a loop form stand for: "d<i>" for a coordinate of the result, "r<i>" for
  // one of the reduced axes, and others that are added. Most expressions are a constant or one of
  // these symbols, so the map by names is made only for one that is neither.
  class Bindings {
   public:
    Bindings(const std::vector<Expr>& at, const std::vector<Expr>& reduction)
        : at_(at), reduction_(reduction) {}

    void add(const std::string& symbol, Expr value) { added_.emplace(symbol, std::move(value)); }

    Expr of(const Expr& e) {
      if (e.kind() == Expr::Kind::Constant) return e;
      if (e.kind() == Expr::Kind::Symbol) {
        const std::string& name = e.symbol_name();
        if (const Expr* bound = coordinate(name)) return *bound;
        if (const auto found = added_.find(name); found != added_.end()) return found->second;
      }
      std::unordered_map<std::string, Expr> all = added_;
      for (size_t i = 0; i < at_.size(); ++i) all.emplace("d" + std::to_string(i), at_[i]);
      for (size_t i = 0; i < reduction_.size(); ++i)
        all.emplace("r" + std::to_string(i), reduction_[i]);
      return e.substitute(all);
    }

   private:
    const Expr* coordinate(std::string_view symbol) const {
      if (!symbol.starts_with('d') && !symbol.starts_with('r')) return nullptr;
      const std::vector<Expr>& list = symbol[0] == 'd' ? at_ : reduction_;
      const char* const end = symbol.data() + symbol.size();
      size_t number = 0;
      const auto [rest, error] = std::from_chars(symbol.data() + 1, end, number);
      const bool is_number = error == std::errc() && rest == end &&
                             (symbol[1] != '0' || symbol.size() == 2);  // no other name for it
      return is_number && number < list.size() ? &list[number] : nullptr;
    }

    const std::vector<Expr>&at_, &reduction_;
    std::unordered_map<std::string, Expr> added_;
  };

  Value body(NodeId node, const LoopForm& form, const std::vector<Expr>& at,
             const std::vector<Expr>& reduction, const Conditions& conditions) {
    return steps(node, form, at, reduction, conditions).back();
  }

  // The values of all steps of the body.
  std::vector<Value> steps(NodeId node, const LoopForm& form, const std::vector<Expr>& at,
                           const std::vector<Expr>& reduction, const Conditions& conditions) {
    Bindings bindings(at, reduction);
    const auto bind = [&](const Expr& e) { return bindings.of(e); };
    const auto bind_all = [&](const Conditions& list) {
      Conditions out;
      for (const RangeCondition& c : list)
        out.push_back({bind(c.value), bind(c.min), bind(c.limit)});
      return out;
    };

    const Node& graph_node = forms_.graph()[node];
    std::vector<Value> values;
    const auto note_node = [&] {
      if constexpr (requires { sink_.origin; }) sink_.origin = node;
    };
    values.reserve(form.body.size());
    for (const BodyStep& step : form.body) {
      switch (step.kind) {
        case BodyStep::Kind::Load: {
          const NodeId operand = graph_node.operands[step.operand];
          std::vector<Expr> index;
          for (size_t axis = 0; axis < step.index.size(); ++axis) {
            bind_loaded_index(step.index[axis], values, forms_.graph()[operand].type.shape[axis],
                              bindings);
            index.push_back(bind(step.index[axis]));
          }
          Conditions all = conditions;
          for (RangeCondition& c : bind_all(step.conditions)) all.push_back(std::move(c));
          values.push_back(value(operand, index, all));
          break;
        }
        case BodyStep::Kind::Index:
          values.push_back(sink_.index(bind(step.expr), step.dtype));
          break;
        case BodyStep::Kind::Constant:
          values.push_back(sink_.constant(step.dtype, step.bits));
          break;
        case BodyStep::Kind::Inside:
          values.push_back(sink_.inside(bind_all(step.conditions)));
          break;
        case BodyStep::Kind::Apply: {
          std::vector<Value> arguments;
          for (uint32_t a : step.arguments) arguments.push_back(values[a]);
          note_node();
          values.push_back(sink_.apply(step.op, arguments, step.dtype));
          break;
        }
      }
    }
    return values;
  }

  // A coordinate "v<k>" is the value of step k, which is loaded at run time.
  void bind_loaded_index(const Expr& coordinate, const std::vector<Value>& values,
                         const Expr& extent, Bindings& bindings) {
    if (coordinate.kind() != Expr::Kind::Symbol || coordinate.symbol_name()[0] != 'v') return;
    const size_t step = std::stoul(coordinate.symbol_name().substr(1));
    bindings.add(coordinate.symbol_name(), sink_.as_index(values[step], extent));
  }

  const LoopForms& forms_;
  const std::vector<bool>& inside_;
  Sink& sink_;
  std::unordered_map<Question, Value, QuestionHash> memo_;
};

}  // namespace braze
