// importing.h — what the importers of all formats do in one way.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "braze/error.h"
#include "ir/graph/graph.h"
#include "ir/support/text.h"
#include "ir/support/words.h"

namespace braze {

/// Tensors of a file with no more elements are constants of the graph, others are weights.
inline constexpr int64_t kMostConstant = 64;
/// Functions within functions.
inline constexpr int kMostCalls = 64;

/// Another value for a while.
template <class T>
class Restored {
 public:
  Restored(T& variable, T value) : variable_(variable), old_(std::exchange(variable, value)) {}
  ~Restored() { variable_ = old_; }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  T& variable_;
  T old_;
};

/// All that cannot be imported of a file, for one error.
class Problems {
 public:
  void add(std::string text) { texts_.push_back(std::move(text)); }
  size_t count() const { return texts_.size(); }

  /// Throws `code` if there is any. `one` is what a file has `total` of.
  void fail_if_any(const Code& code, const std::string& file, std::string_view one,
                   size_t total) const {
    if (texts_.empty()) return;
    std::string text = fmt::format("{}: {} cannot be imported, of {}", file,
                                   count_text(texts_.size(), one), total);
    for (const std::string& problem : texts_) text += "\n  " + problem;
    fail(code, std::move(text));
  }

 private:
  std::vector<std::string> texts_;
};

/// What an error says about one node.
inline std::string text_of(const Error& error) {
  return error.message() + (error.fix().empty() ? "" : "; fix: " + error.fix());
}

/// `name`, or with a number behind it if there is an input of that name.
inline std::string unused_input(const Graph& graph, const std::string& name) {
  std::string out = name;
  for (int i = 2; graph.find_input(out); ++i) out = fmt::format("{}-{}", name, i);
  return out;
}

}  // namespace braze
