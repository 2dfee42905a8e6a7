// region_uses.h — the values and memory that the statements of a region, and of the regions inside
// it, read and store to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/code/code.h"

namespace braze {
namespace [[gnu::visibility("hidden")]] codegen {

/// The uses of all regions of one kernel, which must outlive this object.
class RegionUses {
 public:
  struct Uses {
    std::vector<ValueId> values;  ///< defined outside of the region
    std::unordered_set<uint32_t> stored;
    bool stores_all = false;  ///< an atomic orders all accesses
  };

  explicit RegionUses(const Kernel& kernel);

  /// The uses of `region`, which are computed once. The reference is valid as long as this object.
  const Uses& of(const Region& region);
  /// Adds the values that an index expression names as %name.
  void values_in(const Expr& e, std::vector<ValueId>& out) const;
  ValueId value_named(const std::string& symbol) const;

 private:
  void collect(const Region& region, Uses& uses, std::unordered_set<uint32_t>& defined);

  std::unordered_map<std::string_view, ValueId> values_by_name_;
  std::unordered_map<const Region*, Uses> uses_;
};

// The formatter would write the attribute into this comment.
// clang-format off
}  // namespace codegen
// clang-format on
}  // namespace braze
