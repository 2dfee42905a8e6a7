// mesh.h — Mesh: devices in named axes, and how an Array is spread over them.
//
//   Mesh mesh({{"data", 2}, {"model", 2}});             // four devices
//   Array x = batch.to(mesh, sharded("data"));          // its first axis cut in two
//   Array w = weights.to(mesh, sharded({none, "model"}));
//
// docs/guides/many_devices.md begins with ten lines.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "braze/array.h"
#include "braze/device.h"
#include "braze/mesh_axis.h"
#include "braze/sharding.h"

namespace braze {

/// Devices of one kind in a grid with named axes; they are numbered row-major, the last axis
/// fastest. A cheap handle.
class Mesh {
 public:
  /// The first devices of the same kind as `default_device()`, one for each place of the grid. If
  /// several processes run the program (ranks.h), each contributes the same number of devices, and
  /// those of rank 0 come first. InvalidArgument if there are too few devices (the message says how
  /// to get more), or if an axis has no name, no place, or the name of another axis.
  explicit Mesh(std::vector<MeshAxis> axes);
  /// These devices of this process. InvalidArgument also if their number is not that of the places,
  /// if one occurs twice, and if they do not run the same code.
  Mesh(std::vector<MeshAxis> axes, std::vector<Device> devices);

  const std::vector<MeshAxis>& axes() const;  ///< the axes, in the order in which they were given
  /// The device at each place. If the place belongs to another process, it is the device of this
  /// process that has the same number among its own.
  const std::vector<Device>& devices() const;
  bool is_local(size_t place) const;                ///< whether this process has the device there
  bool is_local() const;                            ///< whether it has all of them
  size_t size() const { return devices().size(); }  ///< the number of places
  /// The number of devices along an axis. InvalidArgument lists the axes if there is no such axis.
  int64_t size(std::string_view axis) const;
  std::string to_string() const;  ///< "data: 2, model: 2"

  friend bool operator==(const Mesh&, const Mesh&);  ///< the same axes and devices

  struct State;                                                   // runtime/mesh/mesh_state.h
  const std::shared_ptr<State>& state() const { return state_; }  ///< for Braze itself

 private:
  std::shared_ptr<State> state_;
};

/// Says in a sharding that an axis of the tensor is not cut.
inline constexpr const char* none = "";

inline const Sharding replicated;  ///< every device has the whole tensor
/// The first axis of the tensor is cut along this axis of the mesh.
Sharding sharded(std::string axis);
/// For each axis of the tensor the axis of the mesh that cuts it, or `none`.
Sharding sharded(std::initializer_list<std::string> axes);

/// The shape of one shard. InvalidArgument, with the fix, if the mesh does not have an axis of the
/// sharding, if the sharding names an axis twice or names more axes than the tensor has, or if the
/// number of devices does not divide an extent. `what` names the array in messages.
std::vector<int64_t> shard_shape(const std::vector<int64_t>& shape, const Sharding& sharding,
                                 const Mesh& mesh, std::string_view what = "the array");

}  // namespace braze
