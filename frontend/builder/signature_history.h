// signature_history.h — tells in what the compilations of a function differed.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

namespace braze::detail {

/// Collects, over several compilations, the values of the things on which a compilation depends,
/// such as "axis 0 of arg0".
class SignatureHistory {
 public:
  void add(const std::string& what, const std::string& value);

  /// The things that had more than one value, the one with the most values first: "axis 0 of arg0
  /// was 1, 2, 3". It tells only a few values, and no long ones. It is empty if nothing changed.
  std::string changes() const;

 private:
  struct Thing {
    std::string name;
    std::vector<std::string> values;  // without repetition, in the order in which they came
  };

  std::vector<Thing> things_;  // in the order in which they came
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace braze::detail
