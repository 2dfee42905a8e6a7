// collectives.h — what the devices of a mesh do together, inside of functions given to `spmd` and
// `data_parallel`.
//
// `axis` is the name of an axis of the mesh; the devices that differ in their place along it work
// together. Gradients flow through all of these. A value that is the same on all devices along an
// axis, such as a replicated argument, and meets one that is not, counts once for each device: its
// gradient is the sum over them, which is made without a word. docs/guides/many_devices.md has the
// rules. All of them throw InvalidArgument outside of such functions, and for an axis that the mesh
// has not.
#pragma once

#include <cstdint>
#include <string_view>

#include "braze/sharding.h"
#include "braze/tensor.h"

namespace braze {

/// How values of several devices become one.
enum class Reduction : uint8_t {
  Sum,   ///< in the order of the devices
  Mean,  ///< the sum, divided by their number
  Prod,  ///< in the order of the devices
  Min,   ///< as `min`
  Max    ///< as `max`
};

/// On all devices the combination of what each has. x is numeric; for Mean, floating.
/// InvalidArgument if x is the same on all of them already, as gradients of what is replicated are.
Tensor all_reduce(const Tensor& x, std::string_view axis, Reduction how = Reduction::Sum,
                  Where where = Where::current());
/// On all devices what each has, joined along `along`; scalars become a vector.
Tensor all_gather(const Tensor& x, std::string_view axis, int64_t along = 0,
                  Where where = Where::current());
/// The combination of what each has, of which each device gets a part along `along`: the devices
/// divide its extent.
Tensor reduce_scatter(const Tensor& x, std::string_view axis, int64_t along = 0,
                      Reduction how = Reduction::Sum, Where where = Where::current());
/// On all devices what the one at place `root` has.
Tensor broadcast(const Tensor& x, std::string_view axis, int64_t root = 0,
                 Where where = Where::current());
/// What the device `shift` places before has, around the end.
Tensor permute(const Tensor& x, std::string_view axis, int64_t shift,
               Where where = Where::current());
/// Cuts x along `split`, gives each device its part, and joins what comes along `join`.
Tensor all_to_all(const Tensor& x, std::string_view axis, int64_t split, int64_t join,
                  Where where = Where::current());
/// The place of the device along the axis: an i64 scalar that differs between devices. For random
/// numbers of its own a device folds it into the key: random::fold_in(key, axis_index("data")).
Tensor axis_index(std::string_view axis, Where where = Where::current());
/// How many devices there are along the axis.
int64_t axis_size(std::string_view axis, Where where = Where::current());

/// x, spread over the mesh in this way where the function was given to `distribute`; elsewhere x
/// itself. It says nothing of the gradient of x. Unlike those above it is for any function.
Tensor constrain(const Tensor& x, const Sharding& sharding, Where where = Where::current());

/// Inside of `data_parallel` the mean over all devices of a floating x; elsewhere x itself. Losses
/// that are differentiated there are means already.
Tensor device_mean(const Tensor& x, Where where = Where::current());

}  // namespace braze
