// collectives.h — collectives: ops in which the devices of a mesh exchange data, for functions that
// are given to `spmd` and `data_parallel`.
//
// `axis` is the name of an axis of the mesh. The devices that differ only in their place along this
// axis work together. All collectives have gradients. If a value that is the same on all devices,
// such as a replicated argument, is combined with a value that differs between devices, the
// gradient of the first is the sum over the devices. Braze inserts this sum. The guide
// docs/guides/many_devices.md has the rules. Every collective throws InvalidArgument outside of
// such a function, and if the mesh does not have the axis.
#pragma once

#include <cstdint>
#include <string_view>

#include "braze/sharding.h"
#include "braze/tensor.h"

namespace braze {

/// How values of several devices become one value.
enum class Reduction : uint8_t {
  Sum,   ///< in the order of the devices
  Mean,  ///< the sum, divided by the number of devices
  Prod,  ///< in the order of the devices
  Min,   ///< as `min`
  Max    ///< as `max`
};

/// The combination of the x of all devices, on all devices. x is numeric, and for Mean it is
/// floating. It throws InvalidArgument if x is already the same on all devices, as the gradient of
/// a replicated value is.
Tensor all_reduce(const Tensor& x, std::string_view axis, Reduction how = Reduction::Sum,
                  Where where = Where::current());
/// The x of all devices, joined along the axis `along` of the tensor, on all devices. Scalars
/// become a vector.
Tensor all_gather(const Tensor& x, std::string_view axis, int64_t along = 0,
                  Where where = Where::current());
/// A part of the combination of the x of all devices. Each device gets its part along the axis
/// `along` of the tensor. The number of devices must divide the extent of that axis.
Tensor reduce_scatter(const Tensor& x, std::string_view axis, int64_t along = 0,
                      Reduction how = Reduction::Sum, Where where = Where::current());
/// The x of the device at place `root`, on all devices.
Tensor broadcast(const Tensor& x, std::string_view axis, int64_t root = 0,
                 Where where = Where::current());
/// The x of the device `shift` places before this one. The last place comes before the first.
Tensor permute(const Tensor& x, std::string_view axis, int64_t shift,
               Where where = Where::current());
/// Cuts x along the axis `split` of the tensor, sends each device its part, and joins the parts
/// that this device receives along the axis `join`.
Tensor all_to_all(const Tensor& x, std::string_view axis, int64_t split, int64_t join,
                  Where where = Where::current());
/// The place of the device along the axis: an i64 scalar that differs between devices. With
/// random::fold_in(key, axis_index("data")), each device makes random numbers of its own.
Tensor axis_index(std::string_view axis, Where where = Where::current());
/// The number of devices along the axis.
int64_t axis_size(std::string_view axis, Where where = Where::current());

/// x with this sharding, if the function was given to `distribute`, and x itself elsewhere. It
/// says nothing about the gradient of x. Unlike the functions above, it can be called in any
/// function.
Tensor constrain(const Tensor& x, const Sharding& sharding, Where where = Where::current());

/// The mean of a floating x over all devices, if the function was given to `data_parallel`, and x
/// itself elsewhere. Losses that are differentiated there are means already.
Tensor device_mean(const Tensor& x, Where where = Where::current());

/// The mean of the elements of x whose `mask` is true, a scalar of the dtype of x. If the function
/// was given to `data_parallel`, these are the elements on all devices, however many of them a
/// device has. x is floating, and `mask` is bool and has the shape of x. What the mask leaves out
/// has no gradient. The result is NaN if it leaves out everything.
Tensor masked_mean(const Tensor& x, const Tensor& mask, Where where = Where::current());

}  // namespace braze
