// importing.h — what the importers of all formats have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "braze/error.h"
#include "ir/graph/custom_calls.h"
#include "ir/graph/graph.h"
#include "ir/support/text.h"
#include "ir/support/words.h"
#include "ir/values/host_tensor.h"
#include "ir/values/value_of.h"

namespace braze {

/// Tensors of a file with at most this many elements are constants of the graph. Others are
/// weights.
inline constexpr int64_t kMostConstant = 64;
/// How many nodes a graph may have, and how many nodes of the file may be built, with those of
/// functions and loops once for each call and turn. A node of a file takes at least 16 bytes, so
/// only what is built several times reaches the limit.
inline size_t most_nodes(size_t file_bytes) { return (size_t{1} << 15) + file_bytes / 16; }
/// How deeply calls of functions may be nested.
inline constexpr int kMostCalls = 64;

/// Gives a variable another value for a scope.
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

/// Collects everything in a file that cannot be imported, for one error.
class Problems {
 public:
  void add(std::string text) {
    ++count_;
    bytes_ += text.size();
    if (bytes_ <= kMostBytes) texts_.push_back(std::move(text));
  }
  /// One of an input, which is there before all nodes.
  void add_input(std::string text) {
    add(std::move(text));
    ++inputs_;
  }
  size_t count() const { return count_; }

  /// Throws `code` if there are problems. The file has `inputs` inputs and `total` other things,
  /// one of which is called `one`.
  void fail_if_any(const Code& code, const std::string& file, size_t inputs, std::string_view one,
                   size_t total) const {
    if (count_ == 0) return;
    const size_t others = count_ - inputs_;
    std::string text = fmt::format("{}: ", file);
    if (inputs_ == 0)
      text += fmt::format("{} cannot be imported, of {}", count_text(others, one), total);
    else if (others == 0)
      text += fmt::format("{} cannot be imported, of {}", count_text(inputs_, "input"), inputs);
    else
      text +=
          fmt::format("{} and {} cannot be imported, of {} and {}", count_text(inputs_, "input"),
                      count_text(others, one), count_text(inputs, "input"), count_text(total, one));
    for (const std::string& problem : texts_) text += "\n  " + problem;
    if (count_ > texts_.size()) text += fmt::format("\n  and {} more", count_ - texts_.size());
    fail(code, std::move(text));
  }

 private:
  // A node with a long name that many calls build would fill the memory.
  static constexpr size_t kMostBytes = size_t{1} << 20;

  std::vector<std::string> texts_;
  size_t count_ = 0, bytes_ = 0;  // of all
  size_t inputs_ = 0;             // how many of them are about inputs
};

/// The text of an error about one node.
inline std::string text_of(const Error& error) {
  return error.message() + (error.fix().empty() ? "" : "; fix: " + error.fix());
}

/// The value of an input that is given as numbers: a scalar (rank 0) or a list (rank 1). It is
/// nullopt if the numbers do not fit.
inline std::optional<HostTensor> value_of_numbers(const std::vector<int64_t>& numbers, DType dtype,
                                                  size_t rank) {
  if (rank > 1 || (rank == 0 && numbers.size() != 1)) return std::nullopt;
  const auto count = static_cast<int64_t>(numbers.size());
  HostTensor out(dtype, rank == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{count});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t number = numbers[static_cast<size_t>(i)];
    if (dtype != DType::I64 && !is_value(static_cast<double>(number), dtype)) return std::nullopt;
    is_floating(dtype) ? out.set_double(i, static_cast<double>(number)) : out.set_int(i, number);
  }
  return out;
}

/// Whether the host program has registered a function of this name, for any memory.
inline bool is_custom_function(std::string_view name) {
  return find_custom_function(name, CustomMemory::Host) ||
         find_custom_function(name, CustomMemory::Cuda);
}

/// `name`, with a number behind it if there already is an input of that name.
inline std::string unused_input(const Graph& graph, const std::string& name) {
  std::string out = name;
  for (int i = 2; graph.find_input(out); ++i) out = fmt::format("{}-{}", name, i);
  return out;
}

}  // namespace braze
