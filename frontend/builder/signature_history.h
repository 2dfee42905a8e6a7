// signature_history.h — what differed between the arguments for which a function was compiled.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

namespace braze::detail {

/// Values of things that a compilation depends on ("axis 0 of arg0"), over several compilations.
class SignatureHistory {
 public:
  void add(const std::string& what, const std::string& value);

  /// What took more than one value, the most variable first: "axis 0 of arg0 was 1, 2, 3". It names
  /// only a few, and no long ones; empty if nothing changed.
  std::string changes() const;

 private:
  struct Thing {
    std::string name;
    std::vector<std::string> values;  // each once, in the order in which they came
  };

  std::vector<Thing> things_;  // in the order in which they came
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace braze::detail
