#include "frontend/builder/signature_history.h"

#include <algorithm>

#include "ir/support/text.h"

namespace braze::detail {

void SignatureHistory::add(const std::string& what, const std::string& value) {
  const auto [found, is_new] = index_.emplace(what, things_.size());
  if (is_new) things_.push_back({what, {}});
  std::vector<std::string>& values = things_[found->second].values;
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

std::string SignatureHistory::changes() const {
  constexpr size_t kMostThings = 3, kMostValues = 8, kLongest = 60;
  std::vector<const Thing*> changed;
  for (const Thing& thing : things_)
    if (thing.values.size() > 1) changed.push_back(&thing);
  std::ranges::stable_sort(
      changed, [](const Thing* a, const Thing* b) { return a->values.size() > b->values.size(); });
  if (changed.size() > kMostThings) changed.resize(kMostThings);
  return join(changed, "; ", [](const Thing* thing) {
    std::vector<std::string> values = thing->values;
    if (values.size() > kMostValues) {
      values.resize(kMostValues);
      values.emplace_back("...");
    }
    return fmt::format("{} was {}", thing->name, join(values, ", ", [](const std::string& value) {
                         return value.size() > kLongest ? value.substr(0, kLongest) + "..." : value;
                       }));
  });
}

}  // namespace braze::detail
