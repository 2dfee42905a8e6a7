#include "ir/support/words.h"

#include <algorithm>

namespace braze {

std::string count_text(size_t count, std::string_view one) {
  return std::to_string(count) + ' ' + std::string(one) + (count == 1 ? "" : "s");
}

std::string unused_name(const std::string& name, const std::vector<std::string>& taken) {
  std::string unused = name;
  for (int i = 2; std::find(taken.begin(), taken.end(), unused) != taken.end(); ++i)
    unused = name + "-" + std::to_string(i);
  return unused;
}

}  // namespace braze
