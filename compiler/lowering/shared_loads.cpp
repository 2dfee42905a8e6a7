// shared_loads.cpp — neighbours that read the same elements through windows load them once: D31.
#include "compiler/lowering/shared_loads.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ir/code/index_program.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The element of an array, or the value itself if it has no array.
struct Element {
  ValueId value;
  std::vector<int64_t> at;
};

// What one element of a load reads, and the condition under which it does.
struct Place {
  Expr at;
  Condition guard;
  friend bool operator==(const Place&, const Place&) = default;
};

// A load that stands before in the region.
struct Known {
  LoadOp load;
  ValueType type;
  ValueId value;
  std::vector<std::pair<Place, Element>> elements = {};  // made when they are first asked for
};

// Comparisons as "left <= right", or "==", with everything on the left. Equal conditions of
// neighbours are written with other constants on both sides.
IndexComparison canonical(const IndexComparison& c) {
  using Kind = IndexComparison::Kind;
  switch (c.kind) {
    case Kind::Lt:
      return {c.left - c.right + 1, Kind::Le, 0};
    case Kind::Le:
      return {c.left - c.right, Kind::Le, 0};
    case Kind::Gt:
      return {c.right - c.left + 1, Kind::Le, 0};
    case Kind::Ge:
      return {c.right - c.left, Kind::Le, 0};
    default:
      return {c.left - c.right, c.kind, 0};
  }
}

class LoadSharer {
 public:
  explicit LoadSharer(Kernel& kernel) : kernel_(kernel) {
    for (const Value& value : kernel.values) names_.insert(value.name);
    for (const Memory& memory : kernel.memories) names_.insert(memory.name);
  }

  void run() {
    for (Phase& phase : kernel_.phases) share(phase.body);
  }

 private:
  void share(Region& region) {
    std::vector<Known> known;
    std::vector<Statement> out;
    for (Statement& s : region.statements) {
      const std::vector<Region*> inner = regions_of(s);
      for (Region* region_inside : inner) share(*region_inside);
      // Nothing is kept in registers during a loop, a wait or a barrier that was not before.
      if (!inner.empty() || (s.as<InstructionOp>() && has_effect(s))) known.clear();
      const auto* load = s.as<LoadOp>();
      if (!load || !may_share(*load, kernel_[s.results[0]].type) || !replace(s, known, out))
        out.push_back(std::move(s));
    }
    region.statements = std::move(out);
  }

  // Nobody writes the memory, and places depend on no computed integers.
  bool may_share(const LoadOp& load, const ValueType& type) const {
    constexpr int64_t kMostElements = 128;
    const Memory& memory = kernel_[load.memory];
    if (memory.space != MemorySpace::Parameter || memory.mode != Mode::In || load.guard.mask ||
        load.rank || type.rank() == 0 || type.count() > kMostElements)
      return false;
    const auto computed = [](const Expr& e) {
      return std::ranges::any_of(e.symbols(), [](const std::string& s) { return s[0] == '%'; });
    };
    return !computed(load.at[0]) &&
           std::ranges::none_of(load.guard.condition, [&](const IndexComparison& c) {
             return computed(c.left) || computed(c.right);
           });
  }

  // The load of one element of an array.
  static LoadOp load_of(const LoadOp& load, const std::vector<int64_t>& at) {
    std::unordered_map<std::string, Expr> position;
    for (size_t d = 0; d < at.size(); ++d) position.emplace(fmt::format("e{}", d), Expr(at[d]));
    LoadOp out = load;
    out.at = {load.at[0].substitute(position)};
    out.guard = {};
    for (const IndexComparison& c : load.guard.condition) {
      const IndexComparison own{c.left.substitute(position), c.kind, c.right.substitute(position)};
      if (!holds_always(own)) out.guard.condition.push_back(own);
    }
    if (!out.guard) out.fill = 0;
    return out;
  }

  static Place place_of(const LoadOp& load) {
    Place out{load.at[0], {}};
    for (const IndexComparison& c : load.guard.condition) out.guard.push_back(canonical(c));
    std::ranges::sort(out.guard, [](const IndexComparison& a, const IndexComparison& b) {
      return a.kind != b.kind ? a.kind < b.kind : a.left < b.left;
    });
    return out;
  }

  // The elements of a load, of which several may be one.
  void list(Known& known) const {
    if (!known.elements.empty()) return;
    for (int64_t i = 0; i < known.type.count(); ++i) {
      const auto at = unflatten(i, known.type.extents);
      known.elements.emplace_back(place_of(load_of(known.load, at)), Element{known.value, at});
    }
  }

  // Whether two elements of the array have one place.
  static bool repeats(const LoadOp& load, const ValueType& type) {
    std::vector<int64_t> weights;
    for (size_t d = 0; d < type.rank(); ++d) {
      const auto weight = load.at[0].coefficient_of(fmt::format("e{}", d));
      if (!weight || !weight->as_constant()) return false;
      weights.push_back(*weight->as_constant());
    }
    std::unordered_set<int64_t> places;
    for (int64_t i = 0; i < type.count(); ++i) {
      const auto at = unflatten(i, type.extents);
      if (!places.insert(std::inner_product(at.begin(), at.end(), weights.begin(), int64_t{0}))
               .second)
        return true;
    }
    return false;
  }

  // Replaces a load by elements that loads before it have, and loads of the others. Returns false
  // if all are others.
  bool replace(const Statement& s, std::vector<Known>& known, std::vector<Statement>& out) {
    const LoadOp load = *s.as<LoadOp>();
    const ValueType type = kernel_[s.results[0]].type;
    Known own{load, type, s.results[0]};
    std::vector<Known*> alike;
    for (Known& other : known) {
      if (other.load.memory != load.memory || other.load.fill != load.fill ||
          other.load.cache != load.cache || other.type.lanes != type.lanes)
        continue;
      // Tasks that load the same tile twice do so to keep it no longer than they must.
      const auto distance = (other.load.at[0] - load.at[0]).as_constant();
      if (distance && *distance != 0) alike.push_back(&other);
    }
    const bool repeated = repeats(load, type);
    bool found = false;
    if (!alike.empty() || repeated) {
      list(own);
      for (size_t i = 0; i < own.elements.size(); ++i) {
        auto& [place, element] = own.elements[i];
        element.value = {};
        for (Known* other : alike) {
          list(*other);
          const auto same =
              std::ranges::find(other->elements, place, &std::pair<Place, Element>::first);
          if (same == other->elements.end()) continue;
          element = same->second;
          found = true;
          break;
        }
        for (size_t before = 0; repeated && !found && before < i; ++before)
          found = own.elements[before].first == place;
      }
    }
    if (found)
      assemble(s, own, out);
    else
      own.elements.clear();
    known.push_back(std::move(own));
    return found;
  }

  // Makes the array of a load from the elements that are known and loads of the others.
  void assemble(const Statement& s, Known& own, std::vector<Statement>& out) {
    ValueType one = own.type;
    one.extents.clear();
    PackOp pack;
    for (size_t i = 0; i < own.elements.size(); ++i) {
      auto& [place, element] = own.elements[i];
      if (!element.value) {
        const auto same = std::ranges::find(own.elements, place, &std::pair<Place, Element>::first);
        const auto at = unflatten(static_cast<int64_t>(i), own.type.extents);
        if (!same->second.value) element = {append(load_of(own.load, at), one, s, out), {}};
        element = same->second;
      } else if (!element.at.empty()) {
        element = {append(GetElementOp{element.value, element.at}, one, s, out), {}};
      }
      pack.operands.emplace_back(element.value);
    }
    out.push_back({std::move(pack), s.results, s.location});
  }

  ValueId append(StatementOp op, const ValueType& type, const Statement& from,
                 std::vector<Statement>& out) {
    const ValueId made(kernel_.values.size());
    kernel_.values.push_back({fresh_name(kernel_[from.results[0]].name), type});
    out.push_back({std::move(op), {made}, from.location});
    return made;
  }

  std::string fresh_name(const std::string& name) {
    const std::string base = name.substr(0, name.find('.'));
    size_t& used = used_[base];
    std::string made;
    do made = fmt::format("{}.{}", base, ++used);
    while (!names_.insert(made).second);
    return made;
  }

  Kernel& kernel_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, size_t> used_;
};

}  // namespace

void share_loads(Kernel& kernel) { LoadSharer(kernel).run(); }

}  // namespace braze
