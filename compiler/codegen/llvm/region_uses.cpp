#include "compiler/codegen/llvm/region_uses.h"

#include <algorithm>

#include "braze/error.h"
#include "ir/code/walk.h"

namespace braze::codegen {

RegionUses::RegionUses(const Kernel& kernel) {
  for (size_t i = 0; i < kernel.values.size(); ++i)
    values_by_name_.emplace(kernel.values[i].name, ValueId(i));
}

const RegionUses::Uses& RegionUses::of(const Region& region) {
  if (const auto known = uses_.find(&region); known != uses_.end()) return known->second;
  Uses uses;
  std::unordered_set<uint32_t> defined;
  collect(region, uses, defined);
  std::erase_if(uses.values, [&](ValueId id) { return defined.contains(id.index); });
  std::sort(uses.values.begin(), uses.values.end());
  uses.values.erase(std::unique(uses.values.begin(), uses.values.end()), uses.values.end());
  return uses_.emplace(&region, std::move(uses)).first->second;
}

void RegionUses::collect(const Region& region, Uses& uses, std::unordered_set<uint32_t>& defined) {
  for (const Statement& s : region.statements) {
    for (ValueId id : s.results) defined.insert(id.index);
    for_each_value(s, [&](ValueId id) { uses.values.push_back(id); });
    for_each_expr(s, [&](const Expr& e) { values_in(e, uses.values); });
    if (const auto* store = s.as<StoreOp>()) uses.stored.insert(store->memory.index);
    if (s.as<AtomicOp>()) uses.stores_all = true;
    if (const auto* counted = s.as<ForOp>())
      for (const auto& [id, first] : counted->carried) defined.insert(id.index);
    for (const Region* nested : regions_of(s)) {
      const Uses& inner = of(*nested);
      uses.values.insert(uses.values.end(), inner.values.begin(), inner.values.end());
      uses.stored.insert(inner.stored.begin(), inner.stored.end());
      uses.stores_all |= inner.stores_all;
    }
  }
  for (const ValueOperand& o : region.yields)
    if (!o.is_literal()) uses.values.push_back(o.value);
}

void RegionUses::values_in(const Expr& e, std::vector<ValueId>& out) const {
  if (e.kind() == Expr::Kind::Symbol) {
    if (e.symbol_name().front() == '%') out.push_back(value_named(e.symbol_name()));
    return;
  }
  for (const Expr& operand : e.operands()) values_in(operand, out);
}

ValueId RegionUses::value_named(const std::string& symbol) const {
  const auto it = values_by_name_.find(std::string_view(symbol).substr(1));
  BRAZE_CHECK(it != values_by_name_.end(), "there is no value " + symbol);
  return it->second;
}

}  // namespace braze::codegen
