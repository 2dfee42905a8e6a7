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
  /// The first devices of the kind of `default_device()`, as many as the axes have places: of this
  /// process, or where several run the program (ranks.h), of each the same number, those of rank 0
  /// first. InvalidArgument, with the way to more, if there are too few, or if an axis has no name,
  /// no device, or the name of another.
  explicit Mesh(std::vector<MeshAxis> axes);
  /// These devices of this process; InvalidArgument also for another number of them, for one twice,
  /// and for devices that do not run the same code.
  Mesh(std::vector<MeshAxis> axes, std::vector<Device> devices);

  const std::vector<MeshAxis>& axes() const;  ///< as they were given
  /// One for each place. Of a place of another process: the one of this process at the same place
  /// among its own.
  const std::vector<Device>& devices() const;
  bool is_local(size_t place) const;                ///< whether this process has the device there
  bool is_local() const;                            ///< whether it has all of them
  size_t size() const { return devices().size(); }  ///< of all places
  /// The number of devices along an axis. InvalidArgument, with the axes there are, for no axis.
  int64_t size(std::string_view axis) const;
  std::string to_string() const;  ///< "data: 2, model: 2"

  friend bool operator==(const Mesh&, const Mesh&);  ///< the same axes and devices

  struct State;                                                   // runtime/mesh/mesh_state.h
  const std::shared_ptr<State>& state() const { return state_; }  ///< for Braze itself

 private:
  std::shared_ptr<State> state_;
};

/// Where a tensor is whole.
inline constexpr const char* none = "";

inline const Sharding replicated;  ///< every device has the whole
/// The first axis is cut.
Sharding sharded(std::string axis);
/// Several are.
Sharding sharded(std::initializer_list<std::string> axes);

/// The type of one shard. InvalidArgument, with the fix, if the sharding names an axis that the
/// mesh has not, one twice, or more than the tensor has; or if an extent does not divide. `what`
/// names the array in messages.
std::vector<int64_t> shard_shape(const std::vector<int64_t>& shape, const Sharding& sharding,
                                 const Mesh& mesh, std::string_view what = "the array");

}  // namespace braze
