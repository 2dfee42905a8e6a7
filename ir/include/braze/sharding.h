// sharding.h — Sharding: how a tensor is spread over the named axes of a mesh. mesh.h has functions
// that make Shardings.
#pragma once

#include <string>
#include <vector>

namespace braze {

/// Says which axis of a mesh cuts which axis of a tensor. Devices that differ only along mesh axes
/// that it does not name have the same shard.
class Sharding {
 public:
  Sharding() = default;  ///< replicated
  /// For each axis of the tensor the axis of the mesh that cuts it, or "". Axes of the tensor
  /// beyond the list are not cut.
  explicit Sharding(std::vector<std::string> axes);

  const std::vector<std::string>& axes() const { return axes_; }  ///< without "" at the end
  bool is_replicated() const { return axes_.empty(); }            ///< nothing is cut
  std::string to_string() const;  ///< "replicated", "sharded(data, none, model)"

  friend bool operator==(const Sharding&, const Sharding&) = default;

 private:
  std::vector<std::string> axes_;
};

}  // namespace braze
