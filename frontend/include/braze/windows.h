// windows.h — windows over axes, and what is made of them: convolution and pooling.
//
// Ordinary functions over one movement op, `windows`: a convolution is a product with it that is
// summed over the taps, pooling a reduction over the taps. Nothing here is known to the compiler.
// Gradients of any order follow from `grad`. What does not fit is InvalidArgument, with your line.
#pragma once

#include <cstdint>
#include <vector>

#include "braze/tensor.h"

namespace braze {

/// How a window goes along one axis of x. Its tap k at place o is element
/// (o * stride + k * dilation - low) / gap of the axis, if that is a whole number and inside.
struct Window {
  int64_t axis = 0;      ///< negative: from the end
  int64_t size = 1;      ///< taps, 0 or more
  int64_t stride = 1;    ///< places from one window to the next, 1 or more
  int64_t dilation = 1;  ///< places from one tap to the next; negative: taps go backwards
  int64_t gap = 1;       ///< places from one element of x to the next, 1 or more
  Dim low = 0;           ///< places in front of the first element; negative: elements left out
  /// Places behind the last element; the windows are those that fit. Negative: left out.
  Dim high = 0;
};

/// The elements of x under each window. Each axis with a window has the number of its windows as
/// extent, max(floor((places - span) / stride) + 1, 0) where places = (extent - 1) * gap + 1 + low
/// + high (low + high of an empty axis) and span = (size - 1) * |dilation| + 1; the taps are new
/// axes at the end, in the order of `windows`. `fill` (of x's dtype) is where no element is. x
/// [n, 8, 8, c] with windows of 3 over axes 1 and 2 gives [n, 6, 6, c, 3, 3].
Tensor windows(const Tensor& x, const std::vector<Window>& windows, const Operand& fill = 0,
               Where where = Where::current());

/// Where the channels of an image stand.
enum class Channels : uint8_t {
  Last,   ///< x [n, spatial.., c], filters [taps.., c / groups, f]: NHWC and HWIO
  First,  ///< x [n, c, spatial..], filters [f, c / groups, taps..]: NCHW and OIHW
};

/// Of a convolution. Lists have a number for each spatial axis; empty ones mean the default for
/// all.
struct ConvOptions {
  std::vector<int64_t> strides = {};    ///< places from one window to the next; 1
  std::vector<int64_t> dilations = {};  ///< places from one tap to the next; 1
  std::vector<int64_t> gaps = {};       ///< places from one element of x to the next; 1
  Dims low = {};                        ///< padding before the first element; negative crops; 0
  Dims high = {};                       ///< padding after the last element; negative crops; 0
  int64_t groups = 1;  ///< of neighbouring channels, each with its share of the filters
  Channels channels = Channels::Last;  ///< where they stand in x and in the filters
  bool tf32 = false;                   ///< as in DotAxes
};

/// Padding such that with stride s there are ceil(extent / s) windows, the odd place behind: what
/// TensorFlow, JAX and ONNX call SAME. For x and windows of these sizes; extents may be symbolic
/// where the stride is 1.
ConvOptions same_padding(const Tensor& x, const std::vector<int64_t>& sizes,
                         ConvOptions options = {}, Where where = Where::current());

/// Convolution over one spatial axis or more: y at o sums x under the window at o times the
/// filters, over taps and the channels of a group (a cross-correlation: taps are not reversed). x
/// and `filters` as Channels says, of one floating dtype, which the result has: [n, places.., f] or
/// [n, f, places..]. f and c are multiples of `groups`; with groups = c each channel has filters of
/// its own. 16-bit floats are summed in f32.
Tensor conv(const Tensor& x, const Tensor& filters, const ConvOptions& options = {},
            Where where = Where::current());

/// The transposed convolution, what `conv` does to gradients: element i of x goes to places
/// i * stride + k * dilation - low. Extents are (extent - 1) * stride + (taps - 1) * dilation + 1 -
/// low - high + output_padding. Filters are [taps.., c / groups, f] with channels last and
/// [c, f / groups, taps..] with channels first, as in PyTorch. `options.gaps` must be empty.
Tensor conv_transpose(const Tensor& x, const Tensor& filters, const ConvOptions& options = {},
                      std::vector<int64_t> output_padding = {}, Where where = Where::current());

/// Of pooling. Lists have a number for each spatial axis; empty ones mean the default for all.
struct PoolOptions {
  std::vector<int64_t> strides = {};    ///< the sizes of the windows
  std::vector<int64_t> dilations = {};  ///< 1
  Dims low = {};                        ///< padding before the first element, not negative; 0
  Dims high = {};                       ///< padding after the last element, not negative; 0
  /// Also a last window that reaches beyond the padding, if it begins before it.
  bool ceil_mode = false;
  /// Whether an average divides by the padding under its window, too.
  bool count_include_pad = true;
  Channels channels = Channels::Last;  ///< where they stand in x
};

/// The greatest element under each window of `sizes` (one for each spatial axis): padding is never
/// the greatest, and a NaN always. x [n, spatial.., c] or [n, c, spatial..], of an ordered dtype.
/// Equal greatest elements share the gradient.
Tensor max_pool(const Tensor& x, const std::vector<int64_t>& sizes, const PoolOptions& options = {},
                Where where = Where::current());
/// The mean of the elements under each window; x floating. 16-bit floats are summed in f32.
Tensor avg_pool(const Tensor& x, const std::vector<int64_t>& sizes, const PoolOptions& options = {},
                Where where = Where::current());

}  // namespace braze
