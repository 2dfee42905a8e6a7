// workloads.h — the workloads of the sweep: the rows of workloads.txt, and the kinds that build
// them.
//
// A row names a kind and its settings. The kind defines the inputs and, if Braze has the ops for
// it, builds the result with the public builder. The peers (peers_torch.py, peers_jax.py) have a
// function of the same name, and learn rows and inputs from `bench-sweep list`, so that each fact
// stands once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braze/braze.h"

namespace braze::sweep {

/// What determines the sizes: the kind of device, or a quick check of every row.
enum class Scale : uint8_t { Gpu, Cpu, Check };

/// The settings of a row, `key=value`.
class Settings {
 public:
  /// Adds "rows=64"; a later value of a key replaces an earlier one.
  void set(std::string_view assignment);
  bool has(std::string_view key) const { return values_.contains(key); }
  /// Numbers and lists of them, "16x64". InvalidArgument names a key that is missing.
  int64_t operator[](std::string_view key) const;
  int64_t get(std::string_view key, int64_t fallback) const;
  std::vector<int64_t> list(std::string_view key) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  DType dtype() const;  ///< of the key "dtype"; without it f32
  /// The same with extents that a reference in doubles computes in little time. Greater extents
  /// stay greater, and their remainder modulo 8 stays the same.
  Settings shrunk() const;
  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  const std::string& at(std::string_view key) const;
  std::map<std::string, std::string, std::less<>> values_;
};

/// An input, and the range of the numbers that fill it: [low, high).
struct Input {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  double low = 0, high = 1;
  /// Whether element i of each row of n is the integer floor(high*i*i/(n*n)), whatever the position
  /// of the input is: runs of equal numbers, each shorter than those before it.
  bool runs = false;
};
using Inputs = std::vector<Input>;

/// How to make the inputs of a row, and its results from them.
struct Kind {
  std::function<Inputs(const Settings&)> inputs;
  /// Empty for kinds that Braze cannot build. It may also return nothing, for rows that need an op
  /// that Braze does not have.
  std::function<std::optional<std::vector<Tensor>>(const Settings&, const Weights&)> build;
};
/// All kinds by name.
const std::map<std::string, Kind, std::less<>>& kinds();

/// A row. Its family is its name up to the first slash.
struct Workload {
  std::string name, kind;
  Settings gpu, cpu;

  std::string family() const { return name.substr(0, name.find('/')); }
  /// "fit" or "judge": rules are fitted on one half and reported on both. The name alone decides.
  std::string_view half() const;
  Settings settings(Scale scale) const;
};

/// Reads workloads.txt. InvalidArgument names the line that is wrong.
std::vector<Workload> read_workloads(const std::string& path);

/// A workload at its size: its inputs, and its graph, which is empty if Braze lacks an op.
struct Instance {
  Inputs inputs;
  std::string graph;
};
/// With the setting `gradient=x,scale` (`*`: every floating input) the results are the gradients of
/// the first result by these inputs, in the direction of one more input, "direction". If the first
/// result is a scalar, the results are that scalar and its gradients.
Instance make_instance(const Workload& workload, Scale scale);

/// Values for an input: a fixed function of the index and of `position`, the same on every machine,
/// and different for each input.
Array make_values(const Input& input, size_t position, const Device& device);

/// Bits without a pattern; the place of sample `index` is this modulo the number of elements.
constexpr uint32_t scramble(uint32_t index) {
  uint32_t h = index * 0x9E3779B1u;
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

}  // namespace braze::sweep
