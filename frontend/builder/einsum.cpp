// einsum.cpp — Einstein's summation, made of sums, diagonals and contractions of two operands.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "frontend/builder/builder.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The label of an axis is its letter. The axes of "..." have negative labels, and the last one is
// -1. Thus the axes of several operands' "..." meet as they do when they are broadcast.
using Label = int;
using Labels = std::vector<Label>;

bool contains(const Labels& labels, Label label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}
int64_t position(const Labels& labels, Label label) {
  return std::find(labels.begin(), labels.end(), label) - labels.begin();
}

struct Term {
  Tensor tensor;
  Labels labels;  // of its axes
};

class Einsum {
 public:
  Einsum(std::string_view equation, const std::vector<Tensor>& operands, SourceLocation where)
      : equation_(equation), where_(where) {
    std::string text;
    std::copy_if(equation.begin(), equation.end(), std::back_inserter(text),
                 [](char c) { return c != ' '; });
    const size_t arrow = text.find("->");
    const std::string inputs = text.substr(0, arrow);
    size_t begin = 0;
    for (size_t i = 0; i < operands.size(); ++i) {
      const size_t end = std::min(inputs.find(',', begin), inputs.size());
      if (i > 0 && begin > inputs.size()) refuse("there are more operands than terms");
      terms_.push_back({operands[i], labels_of(inputs.substr(begin, end - begin), operands[i])});
      begin = end + 1;
    }
    if (begin <= inputs.size()) refuse("there are fewer operands than terms");
    if (arrow == std::string::npos)
      imply_result();
    else
      read_result(text.substr(arrow + 2));
  }

  Tensor run() {
    for (Term& term : terms_) take_diagonals(term);
    broadcast();
    while (terms_.size() > 1) {
      for (size_t i = 0; i < terms_.size(); ++i) sum_alone(i);
      const auto [a, b] = cheapest_pair();
      Term product = multiply(terms_[a], terms_[b]);
      terms_.erase(terms_.begin() + static_cast<ptrdiff_t>(b));
      terms_[a] = std::move(product);
    }
    sum_alone(0);
    return arranged(terms_[0], result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why, std::string fix = {}) const {
    std::string types;
    for (const Term& term : terms_)
      types += (types.empty() ? " of " : ", ") + term.tensor.to_string();
    fail(codes::kShapeMismatch, fmt::format("einsum {}{}: {}", quote(equation_), types, why),
         {.location = where_, .node = "einsum", .fix = std::move(fix)});
  }

  // ---- Reading the equation -------------------------------------------------------------------

  Label letter(char c) const {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return c;
    refuse(fmt::format("{} is not a letter", quote(std::string(1, c))),
           R"(name axes by letters, as in "ij,jk->ik")");
  }

  /// The labels in `text`, where "..." stands for `rest` axes.
  Labels expand(std::string_view text, size_t rest) const {
    Labels labels;
    const size_t dots = text.find("...");
    for (size_t i = 0; i < text.size(); ++i) {
      if (i == dots) {
        for (size_t k = rest; k > 0; --k) labels.push_back(-static_cast<Label>(k));
        i += 2;
      } else {
        labels.push_back(letter(text[i]));
      }
    }
    return labels;
  }

  Labels labels_of(const std::string& text, const Tensor& tensor) {
    const bool has_rest = text.find("...") != std::string::npos;
    const size_t letters = text.size() - (has_rest ? 3 : 0);
    if (letters > tensor.rank() || (!has_rest && letters != tensor.rank()))
      refuse(
          fmt::format("the term {} does not have the axes of {}", quote(text), tensor.to_string()));
    rest_ = std::max(rest_, tensor.rank() - letters);
    return expand(text, tensor.rank() - letters);
  }

  void imply_result() {
    result_ = expand("...", rest_);
    std::map<Label, int> count;
    for (const Term& term : terms_)
      for (const Label label : term.labels) ++count[label];
    for (const auto& [label, times] : count)
      if (label > 0 && times == 1) result_.push_back(label);
  }

  void read_result(const std::string& text) {
    result_ = expand(text, rest_);
    if (std::set<Label>(result_.begin(), result_.end()).size() != result_.size())
      refuse("the result names an axis twice");
    for (const Label label : result_)
      if (std::none_of(terms_.begin(), terms_.end(),
                       [&](const Term& term) { return contains(term.labels, label); }))
        refuse(fmt::format("no operand has the axis '{}' of the result", static_cast<char>(label)));
    if (rest_ > 0 && text.find("...") == std::string::npos)
      refuse("the result does not name the axes of \"...\"", "write \"...\" in the result too");
  }

  // ---- Bringing operands into form ------------------------------------------------------------

  /// Two axes with the same label become one axis: the diagonal.
  void take_diagonals(Term& term) {
    for (size_t i = 0; i < term.labels.size(); ++i)
      while (true) {
        const auto twin = std::find(term.labels.begin() + static_cast<ptrdiff_t>(i) + 1,
                                    term.labels.end(), term.labels[i]);
        if (twin == term.labels.end()) break;
        take_diagonal(term, static_cast<int64_t>(i), twin - term.labels.begin());
      }
  }
  void take_diagonal(Term& term, int64_t first, int64_t second) {
    const Dim extent = term.tensor.dim(first);
    if (!(extent == term.tensor.dim(second)))
      refuse(fmt::format("the axes '{}' of {} differ in extent",
                         static_cast<char>(term.labels[static_cast<size_t>(first)]),
                         term.tensor.to_string()));
    std::vector<int64_t> order;
    for (int64_t i = 0; i < static_cast<int64_t>(term.tensor.rank()); ++i)
      if (i != first && i != second) order.push_back(i);
    order.push_back(first);
    order.push_back(second);
    const Tensor last = permute(term.tensor, order);
    Dims shape = last.shape();
    shape.pop_back();
    shape.back() = extent * extent;
    // The diagonal is every (n+1)th of the n * n elements.
    const Tensor flat = reshape(last, shape);
    const Tensor diagonal = extent.is_constant()
                                ? slice(flat, -1, 0, extent * extent, extent.value() + 1)
                                : take(flat, arange(i64, extent) * number(extent + 1), -1);
    Labels labels;
    for (size_t i = 0; i + 1 < order.size(); ++i)
      labels.push_back(term.labels[static_cast<size_t>(order[i])]);
    term = {diagonal, std::move(labels)};
  }
  /// The extent as a value of the graph.
  Tensor number(const Dim& extent) const {
    const auto& builder = terms_[0].tensor.builder();
    return detail::wrap(builder, build::size(builder->graph, to_expr(extent), where_));
  }

  /// Removes axes of extent 1 if another axis with their label is longer, and checks that all other
  /// extents of a label are equal.
  void broadcast() {
    std::map<Label, Dim> extents;
    for (const Term& term : terms_)
      for (size_t i = 0; i < term.labels.size(); ++i) {
        const Dim dim = term.tensor.shape()[i];
        const auto [known, added] = extents.emplace(term.labels[i], dim);
        if (added || known->second == dim || dim == Dim(1)) continue;
        if (!(known->second == Dim(1)))
          refuse(fmt::format("{} is not {}", dim.to_string(), known->second.to_string()));
        known->second = dim;
      }
    for (Term& term : terms_) {
      Labels labels;
      std::vector<int64_t> ones;
      for (size_t i = 0; i < term.labels.size(); ++i) {
        const Label label = term.labels[i];
        if (term.tensor.shape()[i] == extents.at(label))
          labels.push_back(label);
        else
          ones.push_back(static_cast<int64_t>(i));
      }
      if (!ones.empty()) term = {squeeze(term.tensor, ones), std::move(labels)};
    }
  }

  bool is_needed(Label label, const Term* a, const Term* b) const {
    return contains(result_, label) ||
           std::any_of(terms_.begin(), terms_.end(), [&](const Term& term) {
             return &term != a && &term != b && contains(term.labels, label);
           });
  }

  /// Sums over the axes that neither the result nor another term has.
  void sum_alone(size_t i) {
    Term& term = terms_[i];
    Labels kept;
    std::vector<int64_t> gone;
    for (size_t k = 0; k < term.labels.size(); ++k) {
      if (is_needed(term.labels[k], &term, nullptr))
        kept.push_back(term.labels[k]);
      else
        gone.push_back(static_cast<int64_t>(k));
    }
    if (!gone.empty()) term = {sum(term.tensor, gone), std::move(kept)};
  }

  /// The tensor with its axes in the order of `labels`, which include all of its axes. The other
  /// labels get extent 1.
  static Tensor arranged(const Term& term, const Labels& labels) {
    std::vector<int64_t> order;
    Dims shape;
    for (const Label label : labels) {
      const int64_t axis = position(term.labels, label);
      const bool has = axis < static_cast<int64_t>(term.labels.size());
      if (has) order.push_back(axis);
      shape.push_back(has ? term.tensor.dim(axis) : Dim(1));
    }
    const Tensor permuted = permute(term.tensor, order);
    return order.size() == labels.size() ? permuted : reshape(permuted, shape);
  }

  // ---- Products of two ------------------------------------------------------------------------

  std::pair<size_t, size_t> cheapest_pair() const {
    std::pair<size_t, size_t> best{0, 1};
    double least = INFINITY;
    for (size_t b = 1; b < terms_.size(); ++b)
      for (size_t a = 0; a < b; ++a) {
        double work = 1;
        std::set<Label> seen;
        for (const Term* term : {&terms_[a], &terms_[b]})
          for (size_t i = 0; i < term->labels.size(); ++i)
            if (seen.insert(term->labels[i]).second)
              work *= static_cast<double>(to_expr(term->tensor.shape()[i]).range().max);
        if (work >= least) continue;
        least = work;
        best = {a, b};
      }
    return best;
  }

  Term multiply(const Term& x, const Term& y) const {
    DotAxes axes;
    Labels batch, free_x, free_y;
    for (const Label label : x.labels) {
      if (!contains(y.labels, label)) {
        free_x.push_back(label);
        continue;
      }
      const bool kept = is_needed(label, &x, &y);
      (kept ? axes.batch_left : axes.contract_left).push_back(position(x.labels, label));
      (kept ? axes.batch_right : axes.contract_right).push_back(position(y.labels, label));
      if (kept) batch.push_back(label);
    }
    for (const Label label : y.labels)
      if (!contains(x.labels, label)) free_y.push_back(label);
    Labels labels = batch;
    labels.insert(labels.end(), free_x.begin(), free_x.end());
    labels.insert(labels.end(), free_y.begin(), free_y.end());
    if (!axes.contract_left.empty()) return {dot_general(x.tensor, y.tensor, axes), labels};
    return {arranged(x, labels) * arranged(y, labels), labels};
  }

  std::string_view equation_;
  SourceLocation where_;
  std::vector<Term> terms_;
  Labels result_;
  size_t rest_ = 0;  // the number of axes of the longest "..."
};

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands, Where call) {
  const detail::Place all(call, "einsum");
  const SourceLocation where = detail::place(call);
  if (operands.empty())
    fail(codes::kBadAttribute, "einsum: there are no operands",
         {.location = where, .node = "einsum"});
  std::vector<const Tensor*> tensors;
  for (const Tensor& operand : operands) tensors.push_back(&operand);
  detail::builder_of(tensors, "einsum", where);
  return Einsum(equation, operands, where).run();
}

}  // namespace braze
