#include "compiler/fusion/prices.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "compiler/fusion/reasons.h"
#include "compiler/fusion/shared_axes.h"
#include "compiler/loops/emit.h"
#include "compiler/loops/rules/crossed_gpu.h"
#include "compiler/loops/tile_loops.h"
#include "ir/support/hash.h"
#include "ir/support/parallel.h"
#include "ir/tile/verify.h"

namespace braze {

namespace {

constexpr uint32_t kNowhere = UINT32_MAX - 1;   // an input that no node has read yet
constexpr uint64_t kMade = 0x9e3779b97f4a7c15;  // separates what is made from what is loaded

// Whether the two are computed in the same way. The values of constants do not change a cost.
bool same_form(const Node& a, const Node& b) {
  return a.type == b.type && ((a.as<ConstantOp>() && b.as<ConstantOp>()) || a.op == b.op);
}

// Gives numbers from 0 on. Equal things have the same number.
template <class Equal>
class Numbers {
 public:
  explicit Numbers(Equal equal) : equal_(std::move(equal)) {}
  uint32_t of(uint64_t hash, NodeId node) {
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto it = first; it != last; ++it)
      if (equal_(it->second.first, node)) return it->second.second;
    const auto next = static_cast<uint32_t>(by_hash_.size());
    by_hash_.emplace(hash, std::pair(node, next));
    return next;
  }

 private:
  Equal equal_;
  std::unordered_multimap<uint64_t, std::pair<NodeId, uint32_t>> by_hash_;
};

// Whether the loops of a product are those of its result, and each store runs through whole sectors
// of memory along one of them, however the others lie.
bool stores_sectors(const LoopTree& tree, const Shape& result) {
  constexpr int64_t kSectorBytes = 32;
  bool out = true;
  const auto check = [&](const LoopTask& task) {
    if (task.kind == LoopTask::Kind::Dot) {
      const auto ones =
          std::ranges::count_if(result, [](const Expr& e) { return e.is_constant(1); });
      const auto axes = std::ssize(tree.values[task.target].axes);
      out = out && axes == static_cast<int64_t>(result.rank()) - ones;
    }
    if (task.makes_value()) return;
    const auto sector =
        kSectorBytes / static_cast<int64_t>(size_of(tree.tensors[task.target].type.dtype));
    out = out && !task.at.empty() && std::ranges::any_of(tree.axes, [&](const LoopAxis& axis) {
            const auto slope = task.at.back().coefficient_of(axis.name);
            return slope && slope->is_constant(1) && axis.extent.is_multiple_of(sector) &&
                   task.at.back().substitute(axis.name, 0).is_multiple_of(sector);
          });
  };
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) { check(task); });
  return out;
}

}  // namespace

Prices::Prices(const LoopForms& forms, const Target& target, const std::vector<bool>& relaxed)
    : forms_(forms),
      graph_(forms.graph()),
      target_(target),
      relaxed_(relaxed),
      computed_(graph_.size()),
      loaded_(graph_.size()),
      made_(graph_.size()),
      place_(graph_.size()) {
  number_nodes();
}

void Prices::number_nodes() {
  Numbers forms([&](NodeId a, NodeId b) {
    return same_form(graph_[a], graph_[b]) && relaxed_[a.index] == relaxed_[b.index];
  });
  Numbers types([&](NodeId a, NodeId b) { return graph_[a].type == graph_[b].type; });
  for (size_t i = 0; i < graph_.size(); ++i) {
    const NodeId node(i);
    const uint64_t type = graph_[node].type.hash();
    computed_[i] = forms.of(hash_combine(type, graph_[node].op.index()), node);
    loaded_[i] = types.of(type, node);
  }
}

// The nodes in an order that depends on how they are made and not on their numbers, so that kernels
// whose elementwise ops stand in another order have one price.
std::vector<NodeId> Prices::ordered(const Fusion& fusion) {
  for (NodeId input : fusion.inputs) made_[input.index] = loaded_[input.index];
  for (NodeId node : fusion.after) made_[node.index] = 0;
  std::vector<NodeId> out = fusion.nodes;
  for (NodeId node : out) {
    uint64_t hash = hash_combine(kMade, computed_[node.index]);
    for (NodeId operand : graph_[node].operands) hash = hash_combine(hash, made_[operand.index]);
    made_[node.index] = hash;
  }
  std::ranges::stable_sort(out, {}, [&](NodeId node) { return made_[node.index]; });
  return out;
}

Prices::Key Prices::key_of(const Fusion& fusion, const std::vector<NodeId>& nodes) {
  const auto count = static_cast<uint32_t>(nodes.size());
  Key key{count, static_cast<uint32_t>(fusion.inputs.size())};
  for (uint32_t i = 0; i < count; ++i) place_[nodes[i].index] = i;
  for (NodeId input : fusion.inputs) place_[input.index] = kNowhere;
  // Waiting costs nothing.
  for (NodeId node : fusion.after) place_[node.index] = UINT32_MAX;
  uint32_t next = count;  // inputs are numbered in the order in which they are first read
  for (NodeId node : nodes) {
    const std::vector<NodeId>& operands = graph_[node].operands;
    key.push_back(computed_[node.index]);
    key.push_back(static_cast<uint32_t>(operands.size()));
    for (NodeId operand : operands) {
      uint32_t& place = place_[operand.index];
      if (place == kNowhere) {
        place = next++;
        key.push_back(loaded_[operand.index]);
      }
      key.push_back(place);
    }
  }
  // A loop tree keeps the graph's order of reductions and of results, and rules may depend on it.
  for (NodeId node : fusion.nodes)
    if (const LoopForm* form = forms_.find(node); form && form->reduces())
      key.push_back(place_[node.index]);
  for (NodeId output : fusion.outputs) key.push_back(place_[output.index]);
  return key;
}

size_t Prices::KeyHash::operator()(const Key& key) const {
  uint64_t hash = key.size();
  for (const uint32_t number : key) hash = hash_combine(hash, number);
  return hash;
}

// The functions from here on are called under the lock. What takes long runs without it.

Prices::Asked Prices::ask(const Fusion& fusion) {
  std::vector<NodeId> nodes = ordered(fusion);
  const auto [known, added] = known_.try_emplace(key_of(fusion, nodes));
  if (added) known->second.price.kind = known_.size();
  return {&known->second, std::move(nodes)};
}

Price Prices::told(const Asked& asked) {
  if (asked.known->error) std::rethrow_exception(asked.known->error);
  Price price = asked.known->price;
  if (price.refusal) {
    price.first = asked.nodes[price.first.index];
    price.second = asked.nodes[price.second.index];
  }
  return price;
}

void Prices::answer(std::unique_lock<std::mutex>& lock, const Asked& asked, const Fusion& fusion) {
  const auto place = [&](NodeId node) {
    return NodeId(static_cast<size_t>(std::ranges::find(asked.nodes, node) - asked.nodes.begin()));
  };
  asked.known->begun = true;
  lock.unlock();
  Price price;
  std::exception_ptr error;
  try {
    price = find(fusion);
    if (price.refusal) price.first = place(price.first), price.second = place(price.second);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  price.kind = asked.known->price.kind;
  asked.known->price = price;
  asked.known->error = error;
  asked.known->found = true;
  found_.notify_all();
}

// Finds one price of the list. Returns false if nobody needs to.
bool Prices::work_on(std::unique_lock<std::mutex>& lock, std::deque<Work>& list) {
  while (!list.empty()) {
    const Work work = std::move(list.front());
    list.pop_front();
    if (work.asked.known->begun) continue;
    answer(lock, work.asked, work.fusion);
    return true;
  }
  return false;
}

void Prices::help() {
  std::unique_lock lock(mutex_);
  while (!ends_)
    if (!work_on(lock, needed_) && !work_on(lock, expected_)) more_.wait(lock);
}

// Helpers begin when there is work for them.
void Prices::add_helpers() {
  const size_t most = std::min<size_t>(count_cores() - 1, needed_.size() + expected_.size());
  while (helpers_.size() < most) helpers_.emplace_back([this] { help(); });
  more_.notify_all();
}

Prices::~Prices() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    more_.notify_all();
  }
  helpers_.clear();
}

Price Prices::of(const Fusion& fusion) { return of(std::array{&fusion}).front(); }

std::vector<Price> Prices::of(std::span<const Fusion* const> fusions) {
  std::unique_lock lock(mutex_);
  std::vector<Asked> all;
  size_t own = fusions.size();  // what this thread finds first
  for (const Fusion* fusion : fusions) {
    Known& known = *all.emplace_back(ask(*fusion)).known;
    if (std::exchange(known.asked, true)) continue;
    ++asked_;
    if (known.begun) continue;
    if (own == fusions.size())
      own = all.size() - 1;
    else
      needed_.push_back({all.back(), *fusion});
  }
  if (!needed_.empty()) add_helpers();
  if (own < fusions.size() && !all[own].known->begun) answer(lock, all[own], *fusions[own]);
  std::vector<Price> out;
  for (const Asked& asked : all) {
    while (!asked.known->found)
      if (!work_on(lock, needed_)) found_.wait(lock);
    out.push_back(told(asked));
  }
  return out;
}

size_t Prices::worth_expecting(unsigned searches) {
  constexpr size_t kForEachCore = 2;
  const unsigned cores = count_cores();
  return cores > searches ? kForEachCore * (cores - searches) / searches : 0;
}

void Prices::expect(const Fusion& fusion) {
  const std::lock_guard lock(mutex_);
  Asked asked = ask(fusion);
  if (asked.known->asked || asked.known->begun) return;
  // What was expected last is asked first.
  expected_.push_front({std::move(asked), fusion});
  add_helpers();
}

// Whether a factor of a dot, or the operand of a reduction, is made from another dot's sums.
bool Prices::is_cascade(const Fusion& fusion) const {
  std::set<NodeId> made_of_dots;
  for (NodeId node : fusion.nodes) {
    const auto& operands = graph_[node].operands;
    const LoopForm* form = forms_.find(node);
    const bool dot = form && form->is_dot;
    const bool reads = std::ranges::any_of(
        operands, [&](NodeId operand) { return made_of_dots.contains(operand); });
    if (form && form->reduces() && reads) return true;
    if (dot || reads) made_of_dots.insert(node);
  }
  return false;
}

// The product, if there is no other reduction.
std::optional<NodeId> Prices::only_product(const Fusion& fusion) const {
  std::optional<NodeId> out;
  for (NodeId node : fusion.nodes) {
    const LoopForm* form = forms_.find(node);
    if (!form || !form->reduces()) continue;
    if (out || !form->is_dot) return std::nullopt;
    out = node;
  }
  return out;
}

Price Prices::find(const Fusion& fusion) const {
  const TilingRequest request{forms_, fusion, target_, "price", {}, &relaxed_};
  // On GPUs, kernels are joined at whole axes, and where a product's results are stored in whole
  // sectors of memory: no measurement says yet where narrower runs of digits pay.
  const auto refused = [&]() -> std::optional<NotShared> {
    if (target_.kind == TargetKind::Cpu) return refuse_shared_axes(forms_, fusion, true);
    auto none = refuse_shared_axes(forms_, fusion, false);
    if (!none || none->code != &reasons::kIndexMap || refuse_shared_axes(forms_, fusion, true))
      return none;
    const auto product = only_product(fusion);
    const bool merged = product && stores_sectors(first_tree(request), graph_[*product].type.shape);
    return merged ? std::nullopt : none;
  };
  if (const auto none = refused()) {
    Price price{.refusal = none->code, .first = none->first, .second = none->second};
    // Axes that cross each other may still be those of one walk.
    const bool cascade = is_cascade(fusion);
    const bool nested = none->code == &reasons::kNestedReduction;
    if (!cascade && (!nested || target_.kind != TargetKind::Gpu)) return price;
    LoopTree first = first_tree(request);
    if (!cascade && !crosses(first)) return price;
    const auto made = tile_loops(std::move(first), target_);
    const auto* tiling = std::get_if<TreeTiling>(&made);
    // The target must have what the tile program needs.
    const bool sound = tiling && verify(tiling->tiled.program).empty();
    if (sound) return {.cost = cost_of(tiling->tree, target_)};
    const std::string why =
        tiling ? std::string(codes::kNoEmission.summary) : std::get<Refusal>(made).why;
    price.by_tree = why.substr(0, why.find('\n'));  // a task may take several lines
    return price;
  }
  LoopTree tree = first_tree(request);
  // If one loop cannot walk the axes of all scans, these are not one kernel.
  const bool scans = std::ranges::any_of(fusion.nodes, [&](NodeId node) {
    const LoopForm* form = forms_.find(node);
    return form && form->running;
  });
  if (scans && !serves_scans(tree))
    return {.refusal = &reasons::kRunning,
            .first = fusion.nodes.front(),
            .second = fusion.nodes.back()};
  const auto made = schedule(std::move(tree), target_);
  if (const auto* scheduled = std::get_if<Scheduled>(&made))
    return {.cost = cost_of(scheduled->tree, target_)};
  return {.refusal = &reasons::kDifferentDomain,
          .first = fusion.outputs.front(),
          .second = fusion.outputs.back()};
}

}  // namespace braze
