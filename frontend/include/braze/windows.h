// windows.h — windows over axes, and functions made of them: convolution and pooling.
//
// All of these are ordinary functions over one movement op, `windows`. A convolution multiplies the
// windows by the filters and sums over the taps. Pooling reduces over the taps. The compiler knows
// none of them. `grad` derives gradients of any order. If arguments do not fit, the functions throw
// InvalidArgument.
#pragma once

#include <cstdint>
#include <vector>

#include "braze/tensor.h"

namespace braze {

/// A window along one axis of x. Tap k of the window at place o is element
/// (o * stride + k * dilation - low) / gap of the axis, if that is an integer and within the axis.
struct Window {
  int64_t axis = 0;      ///< an axis of x; negative axes count from the end
  int64_t size = 1;      ///< the number of taps, 0 or more
  int64_t stride = 1;    ///< places from one window to the next, 1 or more
  int64_t dilation = 1;  ///< places from one tap to the next; negative: in reverse order
  int64_t gap = 1;       ///< places from one element of x to the next, 1 or more
  Dim low = 0;           ///< places before the first element; negative: elements are left out
  /// Places after the last element; negative: elements are left out. Only windows that fit count.
  Dim high = 0;
};

/// The elements of x under each window. The extent of an axis with a window becomes the number of
/// its windows, max(floor((places - span) / stride) + 1, 0), where places = (extent - 1) * gap + 1
/// + low + high (for an empty axis low + high) and span = (size - 1) * |dilation| + 1. The taps
/// become new axes at the end, in the order of `windows`. Taps without an element are `fill`, of
/// x's dtype. x [n, 8, 8, c] with windows of 3 over axes 1 and 2 gives [n, 6, 6, c, 3, 3].
Tensor windows(const Tensor& x, const std::vector<Window>& windows, const Operand& fill = 0,
               Where where = Where::current());

/// The order of the axes of an image.
enum class Channels : uint8_t {
  Last,   ///< x [n, spatial.., c], filters [taps.., c / groups, f]: NHWC and HWIO
  First,  ///< x [n, c, spatial..], filters [f, c / groups, taps..]: NCHW and OIHW
};

/// Options of a convolution. A list has one number for each spatial axis. An empty list means the
/// default for all axes.
struct ConvOptions {
  std::vector<int64_t> strides = {};    ///< places from one window to the next; default 1
  std::vector<int64_t> dilations = {};  ///< places from one tap to the next; default 1
  std::vector<int64_t> gaps = {};       ///< places from one element of x to the next; default 1
  Dims low = {};       ///< padding before the first element, negative to crop; default 0
  Dims high = {};      ///< padding after the last element, negative to crop; default 0
  int64_t groups = 1;  ///< groups of neighbouring channels, each with its own part of the filters
  Channels channels = Channels::Last;  ///< the order of the axes of x and of the filters
  bool tf32 = false;                   ///< as in DotAxes
};

/// `options` with the padding that TensorFlow, JAX and ONNX call SAME, for x and windows of these
/// sizes: with stride s there are ceil(extent / s) windows. An odd place of padding goes after the
/// last element. An extent may be symbolic if the stride is 1.
ConvOptions same_padding(const Tensor& x, const std::vector<int64_t>& sizes,
                         ConvOptions options = {}, Where where = Where::current());

/// Convolution over one or more spatial axes. The result at o is the sum, over the taps and the
/// channels of a group, of x under the window at o times the filters. Taps are not reversed (a
/// cross-correlation). Channels gives the axes of x and `filters`, which have one floating dtype.
/// The result is [n, places.., f] or [n, f, places..], of that dtype. f and c are multiples of
/// `groups`; with groups = c each channel has filters of its own. 16-bit floats are summed in f32.
Tensor conv(const Tensor& x, const Tensor& filters, const ConvOptions& options = {},
            Where where = Where::current());

/// The transposed convolution, which is the gradient of `conv`: element i of x is added to places
/// i * stride + k * dilation - low. Extents are (extent - 1) * stride + (taps - 1) * dilation + 1 -
/// low - high + output_padding. Filters are [taps.., c / groups, f] with channels last and
/// [c, f / groups, taps..] with channels first, as in PyTorch. `options.gaps` must be empty.
Tensor conv_transpose(const Tensor& x, const Tensor& filters, const ConvOptions& options = {},
                      std::vector<int64_t> output_padding = {}, Where where = Where::current());

/// Options of pooling. A list has one number for each spatial axis, or is empty for the default.
struct PoolOptions {
  std::vector<int64_t> strides = {};    ///< places from one window to the next; default: its size
  std::vector<int64_t> dilations = {};  ///< places from one tap to the next; default 1
  Dims low = {};   ///< padding before the first element, not negative; default 0
  Dims high = {};  ///< padding after the last element, not negative; default 0
  /// Whether a last window may exceed the padding at the end, if it begins before that padding.
  bool ceil_mode = false;
  /// Whether the padding under a window counts in the number that an average divides by.
  bool count_include_pad = true;
  Channels channels = Channels::Last;  ///< the order of the axes of x
};

/// The greatest element under each window. `sizes` has one number for each spatial axis. Padding is
/// never the greatest element, and a NaN always is. x is [n, spatial.., c] or [n, c, spatial..], of
/// an ordered dtype. Elements that are equally great share the gradient.
Tensor max_pool(const Tensor& x, const std::vector<int64_t>& sizes, const PoolOptions& options = {},
                Where where = Where::current());
/// The mean of the elements under each window. x is floating. 16-bit floats are summed in f32.
Tensor avg_pool(const Tensor& x, const std::vector<int64_t>& sizes, const PoolOptions& options = {},
                Where where = Where::current());

}  // namespace braze
