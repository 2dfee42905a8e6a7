#include "braze/sharding.h"

#include "ir/support/text.h"

namespace braze {

Sharding::Sharding(std::vector<std::string> axes) : axes_(std::move(axes)) {
  while (!axes_.empty() && axes_.back().empty()) axes_.pop_back();
}

std::string Sharding::to_string() const {
  if (is_replicated()) return "replicated";
  return fmt::format("sharded({})", join(axes_, ", ", [](const std::string& axis) {
                       return axis.empty() ? std::string("none") : axis;
                     }));
}

}  // namespace braze
