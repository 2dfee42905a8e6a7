// sharding.h — Sharding: how a tensor is spread over the named axes of a mesh. mesh.h has words for
// it.
#pragma once

#include <string>
#include <vector>

namespace braze {

/// Which axis of a mesh cuts which axis of a tensor. Along the axes of the mesh that it does not
/// name, the devices have the same.
class Sharding {
 public:
  Sharding() = default;  ///< replicated
  /// For each axis of the tensor an axis of the mesh, or "" where it is whole; beyond the list they
  /// are whole.
  explicit Sharding(std::vector<std::string> axes);

  const std::vector<std::string>& axes() const { return axes_; }  ///< without "" at the end
  bool is_replicated() const { return axes_.empty(); }            ///< nothing is cut
  std::string to_string() const;  ///< "replicated", "sharded(data, none, model)"

  friend bool operator==(const Sharding&, const Sharding&) = default;

 private:
  std::vector<std::string> axes_;
};

}  // namespace braze
