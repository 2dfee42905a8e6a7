#include "compiler/loops/alike.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <vector>

#include "braze/error.h"
#include "compiler/loops/steps/own_names.h"
#include "compiler/loops/text.h"

namespace braze {

namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Steps make names from others by adding letters and digits, but no dot. So one name, followed by
// something else than a dot, must not be another name.
bool are_apart(std::string_view shorter, std::string_view longer) {
  return !longer.starts_with(shorter) || longer.size() == shorter.size() ||
         longer[shorter.size()] == '.';
}

// Whether the steps may give this name, or one that begins with it, to a value that is made from
// nothing that has a name.
bool is_like_own_name(std::string_view name) {
  return std::ranges::any_of(kOwnNames, [&](std::string_view own) {
    return own.starts_with(name) ||
           (name.starts_with(own) && std::ranges::all_of(name.substr(own.size()), is_digit));
  });
}

// The names that the graph gives, by their numbers: first those of tensors, then those of values.
std::vector<std::string*> names_of(LoopTree& tree) {
  std::vector<std::string*> out;
  for (LoopTensor& tensor : tree.tensors) out.push_back(&tensor.name);
  for (LoopValue& value : tree.values) out.push_back(&value.name);
  return out;
}

// Replaces names in the fields of a step.
class Renamer {
 public:
  explicit Renamer(std::map<std::string, std::string, std::less<>> names)
      : names_(std::move(names)) {}

  template <class Field>
  void operator()(Field&) {}
  void operator()(MadeName& made) { rename(made.name); }
  void count(int64_t&) {}
  void axis(std::string&) {}
  void new_axis(std::string&) {}
  void tensor(std::string& name) { rename(name); }
  void value(std::string& name) { rename(name); }
  void flag(bool&, std::string_view) {}
  void number_if_any(int64_t&, std::string_view) {}

 private:
  // A name that steps have made begins with the longest name with which it begins.
  void rename(std::string& name) const {
    for (size_t length = name.size(); length > 0; --length) {
      const auto found = names_.find(std::string_view(name).substr(0, length));
      if (found == names_.end()) continue;
      name = found->second + name.substr(length);
      return;
    }
  }
  const std::map<std::string, std::string, std::less<>> names_;
};

}  // namespace

std::optional<std::string> text_without_names(LoopTree first) {
  const std::vector<std::string*> names = names_of(first);
  std::vector<std::string_view> sorted;
  for (const std::string* name : names) sorted.emplace_back(*name);
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (is_like_own_name(sorted[i])) return std::nullopt;
    // All names that begin with this one come after it.
    for (size_t k = i + 1; k < sorted.size() && sorted[k].starts_with(sorted[i]); ++k)
      if (!are_apart(sorted[i], sorted[k])) return std::nullopt;
  }
  // A tensor and a value with one name keep one name.
  std::map<std::string, size_t> numbers;
  for (std::string* name : names)
    *name = "n" + std::to_string(numbers.emplace(*name, numbers.size()).first->second);
  first.name = "alike";
  return to_text(first);
}

LoopTreeSteps renamed(LoopTreeSteps steps, const LoopTree& from, const LoopTree& to) {
  BRAZE_CHECK(from.tensors.size() == to.tensors.size() && from.values.size() == to.values.size(),
              "steps are renamed for a tree that is not like their own");
  std::map<std::string, std::string, std::less<>> names;
  for (size_t i = 0; i < from.tensors.size(); ++i)
    names.emplace(from.tensors[i].name, to.tensors[i].name);
  for (size_t i = 0; i < from.values.size(); ++i)
    names.emplace(from.values[i].name, to.values[i].name);
  Renamer renamer(std::move(names));
  for (LoopTreeStep& step : steps) std::visit([&](auto& kind) { kind.fields(renamer); }, step.kind);
  return steps;
}

}  // namespace braze
