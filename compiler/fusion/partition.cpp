#include "compiler/fusion/partition.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <span>

#include "compiler/fusion/inlined_size.h"
#include "compiler/fusion/kernel_graph.h"
#include "compiler/fusion/prices.h"
#include "compiler/fusion/reasons.h"
#include "compiler/fusion/recompute.h"
#include "compiler/passes/pack_factors.h"
#include "ir/graph/reordered.h"
#include "ir/graph/rewrite.h"
#include "ir/support/parallel.h"
#include "ir/support/text.h"
#include "ir/target/features.h"

namespace braze {

namespace {

// A value is looked up at a looked-up place, and so on, at most so many times one after the other.
// Each time is a random access that waits for the one before. What lies behind is stored.
constexpr int kMostLookUps = 2;
// A value that several kernels need is computed in each of them if an element takes at most this
// many operations.
constexpr double kCheapFlops = 4;
// It is also computed in each of them if one reads all of it, and all together less than so many
// times its elements.
constexpr double kFewAgain = 1.125;
// On GPUs, operations on indices and constants alone, as masks and positions are made of, do not
// count among these up to this number, which is less than a math row. Nothing is loaded for them,
// and a kernel that stores the value would take a launch. On CPUs they count, and prices decide: a
// stored mask is a byte of a cache for each element, where indices are four or eight bytes of
// vectors (a causal softmax of 4x512x512 takes 354 us with a stored mask, and 436 us without).
constexpr double kCheapOfIndices = 16;
// The greatest number of tensors that one kernel reads and writes. Each needs a pointer, and memory
// serves only so many streams at once.
constexpr size_t kMostTensors = 128;
// A node that chooses one of so many values for each element would compute the others for nothing.
// If such values cost something, they have kernels of their own.
constexpr double kFewChoices = 4;
// The greatest number of kernels that are tried as one cascade.
constexpr size_t kMostOfCascade = 16;
// How much a saving of siblings counts, compared with one of producer and consumer. It only orders
// the merges, and neither order is better for all graphs. What siblings read together, each of them
// could still read together with other readers. A value that is stored between two kernels
// disappears only if these two become one.
constexpr double kSiblingsFirst = 1, kSiblingsLater = 0.25;
// Equal siblings are one launch as they are. As one kernel for a GPU they must save this share of a
// launch, because then others that are equal up to their sizes are launched without them.
constexpr double kLeastOfSiblings = 0.1;
// Short kernels that follow each other take less time on a GPU than their estimates add up to. If
// one kernel with all their dots would leave all but one of so many multiprocessors idle, it must
// save this share of their estimates.
constexpr double kIdle = 16, kLeastOfIdle = 0.5;
// Two kernels are tried together with at most this many kernels between them.
constexpr size_t kMostBetween = 4;
// Pairs whose prices are found together: enough for many cores, few enough to be kept meanwhile.
constexpr size_t kPairsAtOnce = 256;
// The number of searches that run at the same time.
constexpr unsigned kSearches = 2;

struct Merge {
  std::optional<Candidate> merged;
  const Code* refusal = nullptr;
  std::string detail;
  double saving = 0;  ///< seconds
  Price price = {};   ///< of `merged`, once it was asked
};

using Pair = std::pair<size_t, size_t>;  // of kernels, in the order of their numbers

// Kernels that are worth merging: a pair, and what must be merged with it.
struct Found {
  Pair pair;
  double saving = 0;
  std::vector<size_t> kernels;
  std::optional<Candidate> merged;  // none: not priced yet, and saves at most as much
};

class Search {
 public:
  Search(const LoopForms& forms, const Target& target, const PartitionOptions& options,
         const InlinedSizes& sizes, Prices& prices)
      : forms_(forms),
        graph_(forms.graph()),
        target_(target),
        options_(options),
        sizes_(sizes),
        live_(needed_nodes(graph_)),
        prices_(prices),
        kernels_(forms, live_, roots_with_remade()) {
    for (const GraphOutput& output : graph_.outputs())
      if (output.updates) updated_by_.emplace(output.node, graph_.inputs()[*output.updates]);
    std::vector<const Fusion*> asked;
    for (size_t k = 0; k < kernels_.size(); ++k)
      if (has_price(kernels_[k])) asked.push_back(&kernels_[k].fusion);
    const std::vector<Price> found = prices_.of(asked);
    auto price = found.begin();
    for (size_t k = 0; k < kernels_.size(); ++k)
      set_price(kernels_[k], has_price(kernels_[k]) ? *price++ : Price());
    note_exchanges();
    if (options_.fuse) consider_all();
  }

  /// Merges as long as that saves time. Merges of what does not read each other count `siblings`
  /// times what they save.
  void merge_all(double siblings) {
    Waiting waiting;
    while (!found_.empty() || !waiting.empty()) {
      for (Found& found : found_) {
        const auto [first, second] = found.pair;
        const bool related = kernels_.reads(second, first) || kernels_.reads(first, second);
        const double saving = found.saving / static_cast<double>(found.kernels.size() - 1);
        waiting.emplace(Rank{related ? -saving : -saving * siblings, std::move(found.kernels)},
                        std::move(found.merged));
      }
      found_.clear();
      expect_prices(waiting);
      auto best = waiting.extract(waiting.begin());
      const std::vector<size_t>& kernels = best.key().second;
      // Since this was tried, other merges may have taken one of them or closed a path.
      if (!std::ranges::all_of(kernels, [&](size_t k) { return kernels_.alive(k); })) continue;
      if (!best.mapped() || !kernels_.between(kernels, 0)) {
        if (kernels.size() == 2) consider(std::array{Pair(kernels[0], kernels[1])});
        continue;
      }
      const size_t k = kernels_.replace(kernels, *std::move(best.mapped()));
      std::vector<Pair> pairs;
      size_t expected = 0;
      for (size_t other : kernels_.neighbours(k)) {
        const Pair pair(other, k);
        if (!has_bound(pair, kernels))
          pairs.push_back(pair);
        else if (savings_.contains(pair) && expected++ < Prices::worth_expecting(kSearches))
          expect_price(pair);
      }
      consider(pairs);
    }
  }

  // The time of all kernels together.
  double seconds() const {
    double out = 0;
    for (size_t k = 0; k < kernels_.size(); ++k)
      if (kernels_.alive(k)) out += kernels_[k].cost.seconds;
    return out;
  }

  Partition result() const {
    Partition result;
    for (size_t k : kernels_.order()) {
      if (kernels_[k].fusion.outputs.empty()) continue;  // nothing to compute
      result.fusions.push_back(kernels_[k].fusion);
      result.costs.push_back(kernels_[k].cost);
    }
    result.edges = explain_edges();
    result.tried = tried_;
    return result;
  }

 private:
  // What the merge costs for each kernel that there is less, and of whom it is: of equal ones, the
  // oldest kernels come first.
  using Rank = std::pair<double, std::vector<size_t>>;
  using Waiting = std::map<Rank, std::optional<Candidate>>;

  bool is_source(NodeId node) const { return braze::is_source(forms_, node); }

  // --- First kernels --------------------------------------------------------------------------

  std::vector<bool> roots() const {
    std::vector<bool> root = reread_values();
    for (size_t i = 0; i < graph_.size(); ++i)
      for (const NodeId operand : graph_[NodeId(i)].operands)
        if (const auto factor = packed(operand, NodeId(i))) root[factor->index] = true;
    for (size_t i = 0; i < graph_.size(); ++i)
      if (const LoopForm* form = live_[i] ? forms_.find(NodeId(i)) : nullptr)
        for (const uint32_t operand : form->waits_for)
          root[graph_[NodeId(i)].operands[operand].index] = true;
    for (size_t i = 0; i < graph_.size(); ++i)
      if (live_[i] && is_whole_launch(forms_, NodeId(i)))
        for (const NodeId operand : graph_[NodeId(i)].operands) root[operand.index] = true;
    for (const GraphOutput& output : graph_.outputs()) root[output.node.index] = true;
    sizes_.add_roots_by_places(live_, root);
    const std::vector<bool> repeated = repeated_values();
    // The nodes through which a body continues, up to roots, so that a chain is counted once.
    std::vector<bool> inlined(graph_.size());
    std::vector<double> lengths(graph_.size());
    std::vector<InlinedSizes::Most> sizes(graph_.size());
    std::vector<int> look_ups(graph_.size());
    for (size_t i = 0; i < graph_.size(); ++i) {
      const NodeId node(i);
      const LoopForm* form = forms_.find(node);
      if (!live_[i] || is_source(node)) {
        root[i] = false;
        continue;
      }
      if (!form || form->reduces() || (!options_.fuse && computes(*form))) root[i] = true;
      inlined[i] = !root[i];
      if (!root[i] && repeated[i] && !is_cheap(recomputation(forms_, inlined, node))) {
        // What is moved is stored before it is moved, unless that is more.
        NodeId stored = node;
        while (is_movement(graph_[stored]) && inlined[graph_[stored].operands[0].index] &&
               elements(graph_[stored].operands[0]) <= elements(stored))
          stored = graph_[stored].operands[0];
        root[stored.index] = true;
        inlined[stored.index] = false;
        lengths[stored.index] = 0;
        sizes[stored.index] = {};
      }
      if (!root[i]) {
        lengths[i] = sizes_.length(lengths, node);
        if (lengths[i] > kLongestBody) root[i] = true;
      }
      if (root[i]) lengths[i] = 0;
      inlined[i] = !root[i];
      if (!form) continue;
      const auto cut = [&](NodeId part) {
        root[part.index] = true;
        inlined[part.index] = false;
        lengths[part.index] = 0;
        sizes[part.index] = {};
      };
      look_ups[i] = count_look_ups(look_ups, node);
      if (look_ups[i] > kMostLookUps) {
        cut(graph_[node].operands[0]);
        look_ups[i] = 1;
      }
      if (root[i]) look_ups[i] = 0;
      sizes[i] = sizes_.most(sizes, node);
      while (sizes[i].size > kLargestBody) {
        sizes[i].size = sizes_.size(inlined, node);
        if (sizes[i].size <= kLargestBody) break;
        const std::optional<NodeId> part = largest_part(node, inlined, sizes);
        if (!part) break;
        cut(*part);
      }
      if (root[i]) sizes[i] = {};
    }
    return root;
  }

  // How many look-ups in a row an element of an inlined value takes. `before` has those of its
  // operands.
  int count_look_ups(const std::vector<int>& before, NodeId id) const {
    const Node& node = graph_[id];
    const auto* gather = node.as<GatherOp>();
    if (!gather) {
      int most = 0;
      for (const NodeId operand : node.operands) most = std::max(most, before[operand.index]);
      return most;
    }
    // A row of neighbours with one place is read as any row.
    const size_t indices = graph_[node.operands[1]].type.shape.rank();
    const bool of_each =
        indices > 0 && static_cast<size_t>(gather->axis) + indices == node.type.shape.rank();
    return before[node.operands[0].index] + (of_each ? 1 : 0);
  }

  double elements(NodeId node) const {
    return static_cast<double>(graph_[node].type.shape.numel().range().max);
  }

  bool is_cheap(const Recomputation& again) const {
    if (target_.kind != TargetKind::Gpu) return again.of_loaded + again.of_indices <= kCheapFlops;
    return again.of_loaded <= kCheapFlops && again.of_indices <= kCheapOfIndices;
  }

  // --- Values that are computed again ---------------------------------------------------------

  // A dot that is much larger than its factors, and values that are made from it, need not be in
  // memory: each kernel that reads them can compute them again. Such kernels share as much of this
  // work as they can. All kernels that are connected by such values are judged at once.
  std::vector<bool> roots_with_remade() {
    std::vector<bool> root = roots();
    if (!options_.fuse || options_.precision == Precision::Strict) return root;
    const KernelGraph first(forms_, live_, root);
    const std::vector<bool> remade = find_remade(first, root);
    for (const Remaking& remaking : connected(first, remade)) {
      std::vector<bool> again_of = root;
      for (const NodeId node : remaking.values) again_of[node.index] = false;
      KernelGraph trial(forms_, live_, again_of);
      auto groups = group(trial, remaking.readers);
      double apart = 0, again = 0;
      for (const NodeId node : remaking.values)
        if (is_dot(node)) apart += cost_of(first, node);
      for (const NodeId node : remaking.readers) apart += cost_of(first, node);
      for (const auto& nodes : groups) again += cost_of(trial, nodes.front());
      if (again < apart || (!options_.by_cost && std::isfinite(again))) {
        root = std::move(again_of);
        std::ranges::move(groups, std::back_inserter(groups_));
      }
    }
    return root;
  }

  struct Remaking {
    std::vector<NodeId> values, readers;  // roots
  };

  std::vector<bool> find_remade(const KernelGraph& first, const std::vector<bool>& root) const {
    std::vector<bool> remade(graph_.size()), made_of(graph_.size()), output(graph_.size());
    for (const GraphOutput& out : graph_.outputs()) output[out.node.index] = true;
    for (size_t i = 0; i < graph_.size(); ++i) {
      const LoopForm* form = root[i] && !output[i] ? forms_.find(NodeId(i)) : nullptr;
      if (!form) continue;
      if (form->is_dot) {
        remade[i] = may_be_cheaper_again(forms_, NodeId(i), target_);
      } else if (!form->reduces()) {
        const auto& inputs = first[first.kernel_of(NodeId(i))].fusion.inputs;
        made_of[i] = std::ranges::any_of(
            inputs, [&](NodeId input) { return remade[input.index] || made_of[input.index]; });
        remade[i] = made_of[i] || inputs.empty();
      }
    }
    // Such a value may be read only by values of the same kind, and by reductions of them.
    for (size_t i = graph_.size(); i-- > 0;) {
      if (!remade[i] || forms_.find(NodeId(i))->is_dot) continue;
      remade[i] = std::ranges::all_of(first.readers(NodeId(i)), [&](NodeId reader) {
        if (remade[reader.index]) return true;
        const auto& inputs = first[first.kernel_of(reader)].fusion.inputs;
        const LoopForm* form = forms_.find(reader);
        return form && form->reduces() && std::ranges::any_of(inputs, [&](NodeId input) {
                 return remade[input.index] && (made_of[input.index] || is_dot(input));
               });
      });
    }
    return remade;
  }
  bool is_dot(NodeId node) const {
    const LoopForm* form = forms_.find(node);
    return form && form->is_dot;
  }

  // Groups of values to compute again, with the roots that read them. Values are in one group if
  // some kernel reads both.
  std::vector<Remaking> connected(const KernelGraph& first, const std::vector<bool>& remade) const {
    std::vector<Remaking> out;
    std::vector<bool> seen(graph_.size());
    for (size_t i = 0; i < graph_.size(); ++i) {
      if (!remade[i] || seen[i] || !is_dot(NodeId(i))) continue;
      Remaking found;
      std::vector<NodeId> open = {NodeId(i)};
      seen[i] = true;
      const auto reach = [&](NodeId node) {
        if (seen[node.index]) return;
        seen[node.index] = true;
        open.push_back(node);
      };
      while (!open.empty()) {
        const NodeId node = open.back();
        open.pop_back();
        (remade[node.index] ? found.values : found.readers).push_back(node);
        for (const NodeId input : first[first.kernel_of(node)].fusion.inputs)
          if (remade[input.index]) reach(input);
        if (remade[node.index]) std::ranges::for_each(first.readers(node), reach);
      }
      std::ranges::sort(found.values);
      std::ranges::sort(found.readers);
      out.push_back(std::move(found));
    }
    return out;
  }

  // Unites kernels, in the order of the graph, as far as the machine can run the results. Returns
  // the roots of each united kernel.
  std::vector<std::vector<NodeId>> group(KernelGraph& kernels, const std::vector<NodeId>& roots) {
    // Unites the kernels of these roots with the kernels between them.
    const auto join = [&](std::vector<NodeId>& nodes) {
      std::vector<size_t> list;
      for (const NodeId node : nodes) list.push_back(kernels.kernel_of(node));
      std::ranges::sort(list);
      list.erase(std::ranges::unique(list).begin(), list.end());
      const auto between = kernels.between(list, kMostBetween);
      if (!between) return false;
      list.insert(list.end(), between->begin(), between->end());
      std::ranges::sort(list);
      Candidate merged = kernels.united(list);
      measure(merged);
      ++tried_;
      if (merged.refusal) return false;
      nodes = merged.roots;
      kernels.replace(list, std::move(merged));
      return true;
    };
    if (std::vector<NodeId> all = roots; join(all)) return {all};
    std::vector<std::vector<NodeId>> out;
    for (const NodeId node : roots) {
      const bool joined = std::ranges::any_of(out, [&](std::vector<NodeId>& nodes) {
        std::vector<NodeId> longer = nodes;
        longer.push_back(node);
        const bool fits = join(longer);
        if (fits) nodes = std::move(longer);
        return fits;
      });
      if (!joined) out.push_back({node});
    }
    return out;
  }
  void unite(KernelGraph& kernels, const std::vector<NodeId>& roots) {
    std::vector<size_t> list;
    for (const NodeId node : roots) list.push_back(kernels.kernel_of(node));
    std::ranges::sort(list);
    if (list.size() < 2) return;
    Candidate merged = kernels.united(list);
    measure(merged);
    kernels.replace(list, std::move(merged));
  }
  // The cost of the kernel that has the root; infinite if there can be no such kernel.
  double cost_of(const KernelGraph& kernels, NodeId root) {
    Candidate kernel = kernels[kernels.kernel_of(root)];
    measure(kernel);
    return kernel.refusal ? std::numeric_limits<double>::infinity() : kernel.cost.seconds;
  }

  // The operand that makes up most of the body of `node` and can be computed elsewhere.
  std::optional<NodeId> largest_part(NodeId node, const std::vector<bool>& inlined,
                                     const std::vector<InlinedSizes::Most>& sizes) const {
    std::optional<NodeId> largest;
    for (NodeId operand : graph_[node].operands)
      if (inlined[operand.index] &&
          (!largest || sizes[operand.index].size > sizes[largest->index].size))
        largest = operand;
    // Walks through index maps to the value that is computed.
    while (largest && !computes(*forms_.find(*largest))) {
      const auto& operands = graph_[*largest].operands;
      if (operands.empty() || !inlined[operands[0].index]) return std::nullopt;
      largest = operands[0];
    }
    return largest;
  }

  // Whether a node pads a value so that its rows become multiples of so many bytes.
  bool aligns_rows(NodeId node, int64_t bytes) const {
    const auto is_whole = [&](NodeId value) {
      const TensorType& type = graph_[value].type;
      return type.shape.rank() > 0 &&
             (type.shape.dims().back() * static_cast<int64_t>(size_of(type.dtype)))
                 .is_multiple_of(bytes);
    };
    return graph_[node].as<PadOp>() && is_whole(node) && !is_whole(graph_[node].operands[0]);
  }
  // The value that a product on matrix units should read from memory, because its factor was
  // written in another form for this. These units read rows of neighbours along one axis, tf32 only
  // along the contracted axis, and rows of multiples of 16 bytes. An index map in place of the
  // value would prevent the product from using them.
  std::optional<NodeId> packed(NodeId factor, NodeId user) const {
    const auto* dot = graph_[user].as<DotOp>();
    if (!live_[user.index] || !dot || target_.matrix_speed == 0) return std::nullopt;
    if (forms_.find(user)->largest_elements() < kLeastAsynchronousDot) return std::nullopt;
    if (const auto stored = reordered_source(graph_, factor)) return stored;
    if (dot->tf32) {
      if (!target_.asynchronous_dots) return std::nullopt;
      const auto* transpose = graph_[factor].as<TransposeOp>();
      const auto last = transpose ? std::ssize(transpose->permutation) - 1 : -1;
      if (last < 0 || transpose->permutation.back() == last) return std::nullopt;
      return factor;
    }
    while (graph_[factor].as<TransposeOp>() || graph_[factor].as<SliceOp>())
      factor = graph_[factor].operands[0];
    const double uses = forms_.find(user)->largest_elements() / elements(factor);
    const bool aligns = aligns_rows(factor, kCopiedRowBytes) ||
                        (uses >= kLeastUsesOfLines && aligns_rows(factor, kRowLineBytes));
    return aligns ? std::optional(factor) : std::nullopt;
  }
  // Whether one kernel makes a factor that a product in the other kernel should read from memory.
  bool packs(const Candidate& producer, const Candidate& consumer) const {
    return std::ranges::any_of(consumer.fusion.nodes, [&](NodeId user) {
      return std::ranges::any_of(graph_[user].operands, [&](NodeId operand) {
        const std::optional<NodeId> factor = packed(operand, user);
        return factor && std::ranges::find(producer.roots, *factor) != producer.roots.end();
      });
    });
  }

  // Values that would be computed again inside their users: those of several users, unless one
  // reads all elements and the others few; broadcast or gathered values, factors of contractions,
  // parts of a concatenation of many, and the indices that place terms.
  std::vector<bool> repeated_values() const {
    const auto most = [](const std::vector<Expr>& extents) {
      double product = 1;
      for (const Expr& extent : extents) product *= static_cast<double>(extent.range().max);
      return product;
    };
    struct Reads {
      size_t users = 0;
      double all = 0, of_one = 0;  // elements that all users read, and the one that reads most

      void add(double more) {
        ++users;
        all += more;
        of_one = std::max(of_one, more);
      }
    };
    std::vector<bool> repeated(graph_.size());
    std::vector<Reads> reads(graph_.size());
    for (const GraphOutput& output : graph_.outputs())
      reads[output.node.index].add(elements(output.node));
    for (size_t i = graph_.size(); i-- > 0;) {
      if (!live_[i]) continue;
      const Node& node = graph_[NodeId(i)];
      const LoopForm* form = forms_.find(NodeId(i));
      const double own = elements(NodeId(i));
      const bool few_again = reads[i].of_one >= own && reads[i].all < kFewAgain * own;
      if (reads[i].users > 1 && !few_again) repeated[i] = true;
      if (!form) {
        for (const NodeId operand : node.operands) reads[operand.index].add(elements(operand));
        continue;
      }
      if (form->placement) repeated[node.operands[form->placement->indices].index] = true;
      double of_each = most(form->domain) * most(form->reduction);
      // Each term of a placed reduction has one place.
      if (form->placement) of_each /= std::max(most({form->domain[form->placement->axis]}), 1.0);
      // A scan reads each element once.
      if (form->running) of_each /= std::max(most(form->reduction), 1.0);
      for (const BodyStep& step : form->body) {
        if (step.kind != BodyStep::Kind::Load) continue;
        const NodeId operand = node.operands[step.operand];
        const double times = step.conditions.empty() ? 1 : kFewChoices;
        if (of_each > times * elements(operand)) repeated[operand.index] = true;
      }
      // Of what is only moved, no more is computed than is read.
      const bool has_fewer = is_movement(node) && reads[i].users > 0;
      const double computed = has_fewer ? std::min(of_each, reads[i].all) : of_each;
      for (const NodeId operand : std::set<NodeId>(node.operands.begin(), node.operands.end()))
        reads[operand.index].add(computed);
    }
    return repeated;
  }

  static bool computes(const LoopForm& form) {
    return std::any_of(form.body.begin(), form.body.end(),
                       [](const BodyStep& s) { return s.kind == BodyStep::Kind::Apply; });
  }

  // Values that a contraction reads several times. Inside the contraction they would be computed as
  // often. As kernels of their own they can join the kernel that makes their operands.
  std::vector<bool> reread_values() const {
    std::vector<bool> reread(graph_.size());
    for (size_t i = 0; i < graph_.size(); ++i) {
      const LoopForm* form = live_[i] ? forms_.find(NodeId(i)) : nullptr;
      if (!form || !form->reduces()) continue;
      for (const BodyStep& step : form->body) {
        if (step.kind != BodyStep::Kind::Load || !leaves_axis_out(*form, step)) continue;
        NodeId operand = graph_[NodeId(i)].operands[step.operand];
        // Walks through index maps to the value that is computed. What windows show may be stored,
        // or the value of which they are windows.
        const auto is_map = [&](NodeId value) {
          return forms_.find(value) && !forms_.find(value)->reduces() &&
                 !graph_[value].operands.empty() &&
                 (is_movement(graph_[value]) || !computes(*forms_.find(value)));
        };
        const auto mark = [&](NodeId value) {
          const LoopForm* body = is_source(value) ? nullptr : forms_.find(value);
          if (body && !body->reduces() && computes(*body)) reread[value.index] = true;
        };
        for (; !is_source(operand) && is_map(operand); operand = graph_[operand].operands[0])
          mark(operand);
        mark(operand);
      }
    }
    return reread;
  }

  static bool leaves_axis_out(const LoopForm& form, const BodyStep& load) {
    const auto unused = [&](char letter, const std::vector<Expr>& extents) {
      for (size_t axis = 0; axis < extents.size(); ++axis) {
        if (letter == 'd' && form.placement && form.placement->axis == axis) continue;
        if (letter == 'd' && form.running && form.running->axis == axis) continue;
        const std::string symbol = letter + std::to_string(axis);
        const bool used = std::any_of(load.index.begin(), load.index.end(),
                                      [&](const Expr& e) { return e.uses(symbol); });
        if (!used && !extents[axis].is_constant(1)) return true;
      }
      return false;
    };
    return unused('d', form.domain) || unused('r', form.reduction);
  }

  bool has_price(const Candidate& kernel) const {
    return !kernel.fusion.outputs.empty() && !is_whole_launch(forms_, kernel.roots.front());
  }
  // The cost of a kernel, or the reason why it cannot be one.
  void measure(Candidate& kernel) {
    set_price(kernel, has_price(kernel) ? prices_.of(kernel.fusion) : Price());
  }
  void set_price(Candidate& kernel, const Price& price, std::string* detail = nullptr) const {
    if (kernel.fusion.outputs.empty()) {
      kernel.refusal = &reasons::kEmpty;
      return;
    }
    if (const NodeId root = kernel.roots.front(); is_whole_launch(forms_, root)) {
      kernel.refusal =
          graph_[root].as<CollectiveOp>() ? &reasons::kCollective : &reasons::kCustomCall;
      return;
    }
    if (price.refusal && detail)
      *detail = !price.by_tree.empty()
                    ? price.by_tree
                    : fmt::format("%{} and %{}", price.first.index, price.second.index);
    kernel.refusal = price.refusal;
    kernel.cost = price.cost;
    kernel.cost.seconds += copying_seconds(kernel.fusion);
    kernel.kind = price.kind;
  }

  // The time of copies behind a kernel that cannot write an output into the input that it updates,
  // because it combines elements of this input.
  double copying_seconds(const Fusion& fusion) const {
    double out = 0;
    for (const NodeId output : fusion.outputs) {
      const auto [first, last] = updated_by_.equal_range(output);
      for (auto it = first; it != last; ++it) {
        const NodeId input = it->second;
        if (!std::ranges::binary_search(fusion.inputs, input) || !combines(fusion, input)) continue;
        const double bytes =
            elements(input) * static_cast<double>(size_of(graph_[input].type.dtype));
        out += target_.launch_seconds + 2 * bytes / target_.memory_bytes_per_second;
      }
    }
    return out;
  }
  // Whether a dot or a reduction of the kernel, other than a placed one, combines elements of an
  // input, or what is made of them.
  bool combines(const Fusion& fusion, NodeId input) const {
    std::set<NodeId> made = {input};
    for (const NodeId node : fusion.nodes) {
      const bool reads = std::ranges::any_of(
          graph_[node].operands, [&](NodeId operand) { return made.contains(operand); });
      if (!reads) continue;
      const LoopForm* form = forms_.find(node);
      if (form && form->reduces() && !form->placement) return true;
      made.insert(node);
    }
    return false;
  }

  // --- Merging --------------------------------------------------------------------------------

  // These kernels as one whose price is not asked yet, or why there is none.
  Merge propose(std::span<const size_t> kernels) const {
    for (const size_t k : kernels) {
      const Candidate& kernel = kernels_[k];
      if (kernel.refusal) return {{}, kernel.refusal, {}, 0};
      for (const size_t other : kernels)
        if (packs(kernel, kernels_[other])) return {{}, &reasons::kPacked, {}, 0};
    }
    if (!kernels_.between(kernels, 0)) return {{}, &reasons::kCycle, {}, 0};
    Candidate merged = kernels_.united(kernels);
    if (merged.fusion.inputs.size() + merged.fusion.outputs.size() > kMostTensors)
      return {{}, &reasons::kManyTensors, {}, 0};
    if (!sizes_.within_bounds(merged.fusion.nodes)) return {{}, &reasons::kInlinedSize, {}, 0};
    Merge out;
    out.merged = std::move(merged);
    return out;
  }

  // Asks the prices of what is proposed; all cores find them together.
  void ask_prices(std::span<Merge* const> proposed) {
    std::vector<const Fusion*> asked;
    std::vector<Merge*> with_price;
    for (Merge* merge : proposed) {
      if (!merge->merged || !has_price(*merge->merged)) continue;
      asked.push_back(&merge->merged->fusion);
      with_price.push_back(merge);
    }
    const std::vector<Price> prices = prices_.of(asked);
    for (size_t i = 0; i < prices.size(); ++i) with_price[i]->price = prices[i];
  }

  Merge try_merge(std::span<const size_t> kernels) {
    Merge proposed = propose(kernels);
    ask_prices(std::array{&proposed});
    return judge(kernels, std::move(proposed));
  }

  // What `proposed` saves against these kernels.
  Merge judge(std::span<const size_t> kernels, Merge proposed) {
    ++tried_;
    if (!proposed.merged) return proposed;
    Candidate& merged = *proposed.merged;
    Cost apart;  // the sums of all
    double most_instances = 0;
    for (const size_t k : kernels) {
      const Candidate& kernel = kernels_[k];
      apart.seconds += kernel.cost.seconds;
      apart.flops += kernel.cost.flops;
      most_instances = std::max(most_instances, kernel.cost.instances);
    }
    // Equal kernels that do not wait for each other are one launch as they are.
    const bool equal_siblings = are_equal_siblings(kernels);
    if (equal_siblings)
      for (const size_t k : kernels.subspan(1)) apart.seconds -= kernels_[k].cost.start_seconds;
    std::string detail;
    set_price(merged, proposed.price, &detail);
    if (merged.refusal) return {{}, merged.refusal, detail, 0};
    const double saving = apart.seconds - merged.cost.seconds;
    if (saving < target_.link_seconds && delays_collective(merged.fusion)) {
      detail =
          fmt::format("saves {:.3g} us, waits {:.3g} us", saving * 1e6, target_.link_seconds * 1e6);
      return {{}, &reasons::kDelaysCollective, detail, 0};
    }
    const bool in_lists = equal_siblings && target_.kind == TargetKind::Gpu;
    const double usable = std::min<double>(target_.cores, most_instances);
    const bool dots =
        std::ranges::count_if(merged.fusion.nodes, [&](NodeId node) { return is_dot(node); }) > 1;
    const bool idle =
        target_.kind == TargetKind::Gpu && dots && kIdle * merged.cost.instances < usable;
    const double least = in_lists ? kLeastOfSiblings * target_.launch_seconds
                         : idle   ? kLeastOfIdle * apart.seconds
                                  : 0;
    if (saving > least || !options_.by_cost) return {std::move(merged), nullptr, {}, saving};
    detail = fmt::format("apart {:.3g} us, fused {:.3g} us", apart.seconds * 1e6,
                         merged.cost.seconds * 1e6);
    const bool starved = merged.cost.instances < usable;
    const bool recomputes = merged.cost.flops > 1.25 * apart.flops;
    return {{},
            starved      ? &reasons::kParallelism
            : recomputes ? &reasons::kRecomputeCost
                         : &reasons::kCost,
            detail,
            saving};
  }

  bool are_equal_siblings(std::span<const size_t> kernels) const {
    return std::ranges::all_of(kernels, [&](size_t k) {
      return kernels_[k].kind == kernels_[kernels[0]].kind &&
             std::ranges::none_of(kernels, [&](size_t other) { return kernels_.reads(k, other); });
    });
  }

  // Whether some result of the kernel is needed by a collective before all that the kernel reads is
  // there, or by another kernel although it comes from fewer collectives than the others. Such a
  // result may be what all updates read, which then wait for one of the last collectives.
  bool delays_collective(const Fusion& fusion) const {
    if (exchanges_.empty()) return false;
    uint32_t most = 0;
    for (const NodeId input : fusion.inputs) most = std::max(most, exchanges_[input.index]);
    return std::ranges::any_of(fusion.outputs, [&](NodeId output) {
      if (needed_at_[output.index] < most) return true;
      return exchanges_[output.index] < most &&
             std::ranges::any_of(kernels_.readers(output), [&](NodeId reader) {
               return !std::ranges::binary_search(fusion.nodes, reader);
             });
    });
  }
  void note_exchanges() {
    if (graph_.mesh_axes().empty()) return;
    exchanges_.assign(graph_.size(), 0);
    needed_at_.assign(graph_.size(), UINT32_MAX);
    const auto sends = [&](size_t i) { return live_[i] && graph_[NodeId(i)].as<CollectiveOp>(); };
    for (size_t i = 0; i < graph_.size(); ++i)
      for (const NodeId operand : graph_[NodeId(i)].operands)
        exchanges_[i] = std::max(exchanges_[i], exchanges_[operand.index] + sends(i));
    for (size_t i = graph_.size(); i-- > 0;) {
      if (!live_[i]) continue;
      for (const NodeId operand : graph_[NodeId(i)].operands) {
        uint32_t& needed = needed_at_[operand.index];
        needed = std::min(needed, sends(i) ? exchanges_[operand.index] : needed_at_[i]);
      }
    }
  }

  // The kernel that computes a dot. The dot need not be its root: another form of the result, such
  // as a reshape, may be what is in memory.
  size_t kernel_with(NodeId dot) const {
    if (const size_t k = kernels_.kernel_of(dot); k != KernelGraph::kNone) return k;
    const std::vector<size_t> homes = kernels_.homes(dot);
    return homes.size() == 1 ? homes[0] : KernelGraph::kNone;
  }

  // The kernels between a factor of a dot and the dots from which it is made, through nothing that
  // is placed; those of these dots, and those that reduce the same values.
  struct FactorSource {
    std::set<size_t> kernels;
    bool reduces = false;
  };
  FactorSource source_of(NodeId factor) const {
    const auto is_dot = [&](NodeId node) {
      const LoopForm* form = forms_.find(node);
      return form && form->is_dot;
    };
    const auto reduces = [&](NodeId node) {
      const LoopForm* form = forms_.find(node);
      return form && form->reduces() && !form->is_dot;
    };
    std::set<NodeId> upstream;  // in the order of the graph
    std::vector<NodeId> open = {factor};
    while (!open.empty()) {
      const NodeId node = open.back();
      open.pop_back();
      const LoopForm* form = forms_.find(node);
      if (is_source(node) || (form && form->placement) || !upstream.insert(node).second) continue;
      if (!is_dot(node))
        open.insert(open.end(), graph_[node].operands.begin(), graph_[node].operands.end());
    }
    FactorSource out;
    std::set<NodeId> made;  // from dots
    for (const NodeId node : upstream) {
      const auto from_dot = [&](NodeId operand) { return made.contains(operand); };
      if (!is_dot(node) && std::ranges::none_of(graph_[node].operands, from_dot)) continue;
      made.insert(node);
      out.reduces = out.reduces || reduces(node);
      const size_t k = is_dot(node) ? kernel_with(node) : kernels_.kernel_of(node);
      if (k == KernelGraph::kNone) continue;
      out.kernels.insert(k);
      for (const NodeId reader : kernels_.readers(node))
        if (reduces(reader)) out.kernels.insert(kernels_.kernel_of(reader));
    }
    return out;
  }

  // The kernels of a cascade: those between `dot` and the dots from which its factors are made, the
  // kernels of these dots, and those that reduce the same values. If reductions stand between, only
  // factors that are made by reductions belong to it: the other ones are ordinary inputs. A cascade
  // saves time as a whole or not at all. The list is empty if there is no other dot.
  std::vector<size_t> cascade_of(NodeId dot) const {
    std::vector<FactorSource> sources;
    for (const NodeId factor : graph_[dot].operands) sources.push_back(source_of(factor));
    const bool reduces = std::ranges::any_of(sources, &FactorSource::reduces);
    std::set<size_t> out = {kernel_with(dot)};
    for (const FactorSource& source : sources)
      if (!reduces || source.reduces) out.insert(source.kernels.begin(), source.kernels.end());
    if (out.size() == 1 || out.size() > kMostOfCascade) return {};
    return {out.begin(), out.end()};
  }

  // Merges cascades: a dot whose factor is made from the sums of another dot, by reductions along
  // the axis that it sums.
  void merge_cascades() {
    for (size_t i = 0; i < graph_.size(); ++i) {
      const NodeId node(i);
      const LoopForm* form = live_[i] ? forms_.find(node) : nullptr;
      if (!form || !form->is_dot || kernel_with(node) == KernelGraph::kNone) continue;
      const std::vector<size_t> cascade = cascade_of(node);
      if (cascade.size() < 2) continue;
      Merge merge = try_merge(cascade);
      if (merge.merged)
        kernels_.replace(cascade, *std::move(merge.merged));
      else
        for (const size_t k : cascade)
          for (const NodeId root : kernels_[k].roots) refused_cascades_.emplace(root, merge);
    }
  }

  // Two kernels as one, as proposed; where one needs the other through a few more, with these.
  struct Proposal {
    Merge pair;
    std::vector<size_t> with_between;  // empty: nothing stands between, or too much
    Merge all;                         // of these
  };
  Proposal propose_pair(Pair pair) const {
    const std::array both{pair.first, pair.second};
    Proposal out{propose(both), {}, {}};
    if (out.pair.refusal != &reasons::kCycle) return out;
    const auto between = kernels_.between(both, kMostBetween);
    if (!between || between->empty()) return out;
    out.with_between = *between;
    out.with_between.insert(out.with_between.end(), both.begin(), both.end());
    std::ranges::sort(out.with_between);
    out.all = propose(out.with_between);
    return out;
  }
  Merge judge_pair(Pair pair, Proposal proposed, std::vector<size_t>& tried) {
    tried = {pair.first, pair.second};
    Merge merge = judge(tried, std::move(proposed.pair));
    if (proposed.with_between.empty()) return merge;
    tried = std::move(proposed.with_between);
    Merge all = judge(tried, std::move(proposed.all));
    return all.merged ? std::move(all) : std::move(merge);
  }

  // What every order of merges begins with.
  void consider_all() {
    // A cascade rounds its sums in another way than the graph says.
    if (options_.precision != Precision::Strict) {
      for (const std::vector<NodeId>& group : groups_) unite(kernels_, group);
      merge_cascades();
    }
    std::vector<Pair> pairs;
    for (size_t k = 0; k < kernels_.size(); ++k) {
      if (!kernels_.alive(k)) continue;
      for (size_t other : kernels_.neighbours(k))
        if (other < k) pairs.emplace_back(other, k);
      if (pairs.size() < kPairsAtOnce) continue;
      consider(pairs);
      pairs.clear();
    }
    consider(pairs);
  }

  // Their prices are found together, on all cores.
  void consider(std::span<const Pair> pairs) {
    std::vector<Proposal> proposed;
    for (const Pair& pair : pairs) proposed.push_back(propose_pair(pair));
    std::vector<Merge*> asked;
    for (Proposal& proposal : proposed) {
      asked.push_back(&proposal.pair);
      asked.push_back(&proposal.all);
    }
    ask_prices(asked);
    for (size_t i = 0; i < pairs.size(); ++i) {
      std::vector<size_t> tried;
      Merge merge = judge_pair(pairs[i], std::move(proposed[i]), tried);
      if (!merge.merged) {
        refused_.emplace(pairs[i], std::move(merge));
        continue;
      }
      savings_[pairs[i]] = merge.saving;
      found_.push_back({pairs[i], merge.saving, std::move(tried), std::move(merge.merged)});
    }
  }

  // Nearly all that wait without a price are asked sooner or later. Cores that have nothing else to
  // do find the prices of the first ones meanwhile.
  void expect_prices(const Waiting& waiting) {
    const size_t most = Prices::worth_expecting(kSearches);
    for (const auto& [rank, merged] : waiting | std::views::take(most))
      if (const auto& kernels = rank.second; !merged && kernels.size() == 2)
        expect_price({kernels[0], kernels[1]});
  }
  void expect_price(Pair pair) {
    if (!kernels_.alive(pair.first) || !kernels_.alive(pair.second)) return;
    if (!expected_.insert(pair).second) return;
    const Proposal proposal = propose_pair(pair);
    for (const Merge* merge : {&proposal.pair, &proposal.all})
      if (merge->merged && has_price(*merge->merged)) prices_.expect(merge->merged->fusion);
  }

  // What a kernel that was just merged of `parts` saves with another one is at most what these
  // saved with it, so that it is priced only when nothing else saves more: of many kernels that
  // are alike, few are. A part that was refused may fit together with the others, for example if
  // these stood between, but axes that differ still do.
  bool has_bound(Pair pair, std::span<const size_t> parts) {
    const auto [other, merged] = pair;
    const bool siblings = !kernels_.reads(merged, other) && !kernels_.reads(other, merged);
    double most = 0;
    size_t saved = 0, refused = 0;
    const Merge* differs = nullptr;
    for (const size_t part : parts) {
      const Pair before = std::minmax(part, other);
      if (const auto known = savings_.find(before); known != savings_.end()) {
        most += known->second;
        ++saved;
      } else if (const auto verdict = refused_.find(before); verdict != refused_.end()) {
        const bool by_axes = verdict->second.refusal == &reasons::kDifferentDomain;
        if (by_axes) differs = &verdict->second;
        refused += !by_axes;
      }
    }
    if (saved > 0 && (siblings || refused == 0)) {
      savings_[pair] = most;
      found_.push_back({pair, most, {other, merged}, std::nullopt});
      return true;
    }
    if (!siblings || !differs || saved + refused > 0) return false;
    refused_.emplace(pair, *differs);
    return true;
  }

  // --- Reasons --------------------------------------------------------------------------------

  std::vector<EdgeReason> explain_edges() const {
    std::vector<EdgeReason> edges;
    const std::vector<bool> of_indices = made_of_indices();
    for (size_t i = 0; i < graph_.size(); ++i) {
      if (!live_[i]) continue;
      const NodeId consumer(i);
      const auto& operands = graph_[consumer].operands;
      for (NodeId producer : std::set<NodeId>(operands.begin(), operands.end()))
        edges.push_back(explain(producer, consumer, of_indices[producer.index]));
    }
    return edges;
  }

  // Whether nothing is loaded for a value that is no root. Constants alone are no such values.
  std::vector<bool> made_of_indices() const {
    std::vector<bool> out(graph_.size());
    for (size_t i = 0; i < graph_.size(); ++i) {
      const NodeId node(i);
      const LoopForm* form = live_[i] ? forms_.find(node) : nullptr;
      if (!form || kernels_.kernel_of(node) != KernelGraph::kNone) continue;
      const auto& operands = graph_[node].operands;
      const auto is_constant = [&](NodeId operand) {
        return graph_[operand].as<SizeOp>() ||
               (graph_[operand].as<ConstantOp>() && !is_source(operand));
      };
      out[i] = graph_[node].as<IotaOp>() || (!std::ranges::all_of(operands, is_constant) &&
                                             std::ranges::all_of(operands, [&](NodeId operand) {
                                               return out[operand.index] || is_constant(operand);
                                             }));
    }
    return out;
  }

  bool reads(NodeId consumer, NodeId producer) const {
    const LoopForm* form = forms_.find(consumer);
    if (!form || form->waits_for.empty()) return true;
    const auto& operands = graph_[consumer].operands;
    for (uint32_t i = 0; i < operands.size(); ++i)
      if (operands[i] == producer && std::ranges::find(form->waits_for, i) == form->waits_for.end())
        return true;
    return false;
  }

  EdgeReason explain(NodeId producer, NodeId consumer, bool of_indices) const {
    if (!reads(consumer, producer)) return {producer, consumer, &reasons::kWaits, {}};
    if (is_source(producer)) return {producer, consumer, &reasons::kFromInput, {}};
    const size_t home = kernels_.kernel_of(producer);
    if (home == KernelGraph::kNone) {
      const bool several = kernels_.homes(producer).size() > 1;
      return {producer,
              consumer,
              !several     ? &reasons::kInlined
              : of_indices ? &reasons::kOfIndices
                           : &reasons::kRecomputed,
              {}};
    }
    const std::vector<size_t> readers = kernels_.homes(consumer);
    const auto apart =
        std::find_if(readers.begin(), readers.end(), [&](size_t k) { return k != home; });
    if (apart == readers.end()) return {producer, consumer, &reasons::kFused, {}};
    if (!options_.fuse) return {producer, consumer, &reasons::kNotAsked, {}};
    for (size_t k : {home, *apart})
      if (kernels_[k].refusal) return {producer, consumer, kernels_[k].refusal, {}};
    const auto verdict = refused_.find(std::minmax(home, *apart));
    if (verdict == refused_.end()) return {producer, consumer, &reasons::kCrowded, {}};
    std::string detail = verdict->second.detail;
    const auto cascade = refused_cascades_.find(producer);
    if (cascade != refused_cascades_.end() && !kernels_.homes(consumer).empty())
      detail += fmt::format("{}as a cascade: {}{}", detail.empty() ? "" : "; ",
                            cascade->second.refusal->name,
                            cascade->second.detail.empty() ? "" : ", " + cascade->second.detail);
    return {producer, consumer, verdict->second.refusal, std::move(detail)};
  }

  const LoopForms& forms_;
  const Graph& graph_;
  const Target& target_;
  const PartitionOptions& options_;
  const InlinedSizes& sizes_;
  std::vector<bool> live_;
  Prices& prices_;
  size_t tried_ = 0;
  // Of a node: the most collectives on a way to it, and how many come before the first one that
  // needs it. Both are empty without a mesh.
  std::vector<uint32_t> exchanges_, needed_at_;
  std::multimap<NodeId, NodeId> updated_by_;  // output -> the inputs that it updates
  std::vector<std::vector<NodeId>> groups_;   // roots of each kernel that computes values again
  KernelGraph kernels_;
  std::vector<Found> found_;                  // worth merging, not ranked yet
  std::map<Pair, double> savings_;            // of those that are worth merging, at most
  std::set<Pair> expected_;                   // whose prices were said to be asked soon
  std::map<Pair, Merge> refused_;             // verdicts on neighbours that stay separate
  std::map<NodeId, Merge> refused_cascades_;  // by root: of the first cascade in which it was tried
};

std::string node_text(const Graph& graph, NodeId node) {
  std::string out = fmt::format("%{} {}", node.index, op_name(graph[node].op));
  if (const auto* input = graph[node].as<InputOp>()) out = "%" + input->name;
  if (!graph[node].label.empty()) out += fmt::format(" \"{}\"", graph[node].label);
  return out;
}

}  // namespace

Partition partition(const LoopForms& forms, const Target& target, const PartitionOptions& options) {
  const std::vector<bool> relaxed = relaxed_nodes(forms.graph(), options.precision);
  Prices prices(forms, target, relaxed);
  const InlinedSizes sizes(forms);
  Search first(forms, target, options, sizes, prices);
  Search later = first;
  parallel_for(kSearches, kSearches, [&](size_t i) {
    i == 0 ? first.merge_all(kSiblingsFirst) : later.merge_all(kSiblingsLater);
  });
  Partition out = (first.seconds() < later.seconds() ? first : later).result();
  out.priced = prices.asked();
  return out;
}

std::string to_text(const Graph& graph, const Partition& partition) {
  std::string out;
  for (size_t k = 0; k < partition.fusions.size(); ++k) {
    const Fusion& fusion = partition.fusions[k];
    out += fmt::format("kernel {}: {}\n", k, partition.costs[k].to_string());
    for (NodeId node : fusion.nodes) {
      const std::string where = graph[node].location.to_string();
      out += fmt::format("  {} : {}{}\n", node_text(graph, node), graph[node].type.to_string(),
                         where.empty() ? "" : "  at " + where);
    }
  }
  out += "edges:\n";
  for (const EdgeReason& edge : partition.edges)
    out += fmt::format("  {} -> {}: {}{}\n", node_text(graph, edge.producer),
                       node_text(graph, edge.consumer), edge.code->name,
                       edge.detail.empty() ? "" : " (" + edge.detail + ")");
  return out;
}

}  // namespace braze
