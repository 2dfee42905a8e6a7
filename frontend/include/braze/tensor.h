// tensor.h — Tensor: a value of the graph under construction, and the functions that build graphs.
//
// A function for `jit` receives Tensors and returns Tensors. Every call below adds nodes to the
// graph under construction and remembers the caller's line, which errors, reports and profiles
// name. Nothing is computed here.
//
// Rules that hold everywhere:
//   - Shapes broadcast as in NumPy: axes align at the end, and an extent of 1 fits any extent.
//   - Dtypes are never promoted. Operands of two dtypes are an error that names the cast. A C++
//     number takes the dtype of the Tensor that it meets, which must be able to represent it.
//   - A number that is an argument of a compiled function, as in `f(x, 0.1)`, is a Tensor of rank 0
//     inside the function: f64, i64 (u64 from 2^63 on) or bool. It also takes the dtype of the
//     Tensor that it meets, rounded once. The same holds for results that are computed from such
//     numbers only. An integer can become any numeric dtype, a real number any floating dtype. A
//     call with a number that is not a value of the dtype, such as 300 for i8, throws
//     InvalidArgument. Results of integers wrap.
//   - Axes are counted from 0, and negative axes from the end.
//   - If arguments do not fit, an Error (InvalidArgument) names the types, the op and your line.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "braze/array.h"
#include "braze/dtype.h"
#include "braze/error.h"

/// Tensors of graphs, Arrays on devices, and the functions between them.
namespace braze {

class Expr;

inline constexpr DType f16 = DType::F16;        ///< IEEE binary16
inline constexpr DType bf16 = DType::BF16;      ///< the upper half of an f32
inline constexpr DType f32 = DType::F32;        ///< IEEE binary32
inline constexpr DType f64 = DType::F64;        ///< IEEE binary64
inline constexpr DType i8 = DType::I8;          ///< signed, two's complement
inline constexpr DType i16 = DType::I16;        ///< signed, two's complement
inline constexpr DType i32 = DType::I32;        ///< signed, two's complement
inline constexpr DType i64 = DType::I64;        ///< signed, two's complement
inline constexpr DType u8 = DType::U8;          ///< unsigned
inline constexpr DType u16 = DType::U16;        ///< unsigned
inline constexpr DType u32 = DType::U32;        ///< unsigned
inline constexpr DType u64 = DType::U64;        ///< unsigned
inline constexpr DType f8e4m3 = DType::F8E4M3;  ///< at most 448, no infinities; for storage only
inline constexpr DType f8e5m2 = DType::F8E5M2;  ///< the upper half of an f16; for storage only
inline constexpr DType boolean = DType::Bool;   ///< one byte, 0 or 1

namespace detail {
struct Builder;
struct Handle;

template <class T>
constexpr bool fits_int64(T value) {
  if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(int64_t))
    return value <= static_cast<uint64_t>(INT64_MAX);
  return true;
}
[[noreturn]] void fail_extent(uint64_t extent);
}  // namespace detail

/// A C++ number.
template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;

/// An extent: a number, or an expression over symbols such as n or 4*n. Arithmetic is exact.
class Dim {
 public:
  /// A number. It throws InvalidArgument if the number is 2^63 or more.
  template <class T>
  requires std::is_integral_v<T> Dim(T value)  // NOLINT: implicit on purpose
      : value_(static_cast<int64_t>(value)) {
    if (!detail::fits_int64(value)) detail::fail_extent(static_cast<uint64_t>(value));
  }
  /// A symbol with its range: "n:1..64", "n:8..1024%8" (multiples of 8). Both ends are included. It
  /// throws InvalidArgument if the text is malformed or the range is empty.
  Dim(const char* declaration,  // NOLINT
      std::source_location where = std::source_location::current());
  explicit Dim(std::shared_ptr<const Expr> expr);  ///< for Braze itself

  bool is_constant() const { return expr_ == nullptr; }  ///< whether it is a number
  /// The number. It throws InvalidArgument if the extent is symbolic.
  int64_t value() const;
  /// "64", "n", "4 * n".
  std::string to_string() const;
  /// The expression, for the builder. It is null for a constant.
  const std::shared_ptr<const Expr>& expr() const { return expr_; }

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  /// The quotient, rounded towards minus infinity. `b` must be positive.
  friend Dim operator/(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b);

 private:
  int64_t value_ = 0;
  std::shared_ptr<const Expr> expr_;
};

using Dims = std::vector<Dim>;  ///< extents, outermost axis first

class Operand;
class Index;

/// A value of the graph under construction. It is a cheap handle, which is valid while its function
/// is traced.
class Tensor {
 public:
  /// An empty handle. It is an error to use it.
  Tensor() = default;
  explicit Tensor(const detail::Handle& handle);  ///< for Braze itself

  DType dtype() const;  ///< the element type
  size_t rank() const;  ///< the number of axes
  Dims shape() const;   ///< extents, outermost first
  /// The extent of `axis`.
  Dim dim(int64_t axis) const;
  /// The number of elements.
  Dim numel() const;
  /// "f32[n, 64]".
  std::string to_string() const;
  bool valid() const { return builder_ != nullptr; }  ///< false if default-constructed
  /// Whether it is computed from numbers only. If so, it takes the dtype of the Tensor that it
  /// meets.
  bool is_number() const { return is_number_; }
  /// A part of the tensor, as in NumPy, with the keywords below: x[{0, Slice(1, -1), ellipsis}].
  /// Axes without an index stay whole. It throws InvalidArgument for more indices than axes, for
  /// two ellipses, and in the cases in which `slice` does.
  Tensor operator[](std::initializer_list<Index> indices) const;
  /// The same with one index.
  Tensor operator[](const Index& index) const;
  /// Names the value in dumps, reports and profiles. The last name given to a value wins.
  Tensor label(std::string name) const;

  friend Tensor operator+(const Operand& x, const Operand& y);
  friend Tensor operator-(const Operand& x, const Operand& y);
  friend Tensor operator*(const Operand& x, const Operand& y);
  friend Tensor operator/(const Operand& x, const Operand& y);
  /// The remainder with the sign of x.
  friend Tensor operator%(const Operand& x, const Operand& y);
  friend Tensor operator-(const Operand& x);
  /// Comparisons are elementwise and give bool.
  friend Tensor operator==(const Operand& x, const Operand& y);
  friend Tensor operator!=(const Operand& x, const Operand& y);
  friend Tensor operator<(const Operand& x, const Operand& y);
  friend Tensor operator<=(const Operand& x, const Operand& y);
  friend Tensor operator>(const Operand& x, const Operand& y);
  friend Tensor operator>=(const Operand& x, const Operand& y);
  /// Bitwise on integers, logical on bool.
  friend Tensor operator&(const Operand& x, const Operand& y);
  friend Tensor operator|(const Operand& x, const Operand& y);
  friend Tensor operator^(const Operand& x, const Operand& y);
  friend Tensor operator~(const Operand& x);
  friend Tensor operator!(const Operand& x);
  /// These assign the new value to the handle.
  friend Tensor& operator+=(Tensor& x, const Operand& y);
  friend Tensor& operator-=(Tensor& x, const Operand& y);
  friend Tensor& operator*=(Tensor& x, const Operand& y);
  friend Tensor& operator/=(Tensor& x, const Operand& y);

  /// For Braze itself.
  const std::shared_ptr<detail::Builder>& builder() const { return builder_; }
  uint32_t id() const { return id_; }  ///< the number of its node, for Braze itself

 private:
  std::shared_ptr<detail::Builder> builder_;
  uint32_t id_ = 0;
  bool is_number_ = false;
};

namespace detail {
/// The same value as a number, if it is f64, i64 or u64.
Tensor as_number(const Tensor& tensor);
}  // namespace detail

/// Prints the type, for messages.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
/// Prints the name: "f32", "bool" ...
std::ostream& operator<<(std::ostream& out, DType dtype);

/// The argument of an elementwise function: a Tensor, a number, or an Array (which becomes a
/// constant of the graph). The conversion to Operand also remembers the line of an operator.
class Operand {
 public:
  /// What was given.
  enum class Kind : uint8_t { Tensor, Array, Real, Integer, Unsigned, Boolean };

  /// A Tensor.
  Operand(const Tensor& tensor,  // NOLINT: implicit on purpose
          std::source_location where = std::source_location::current())
      : kind_(Kind::Tensor), tensor_(tensor), where_(where) {}
  /// An Array, which is copied into the graph as a constant.
  Operand(const Array& array,  // NOLINT
          std::source_location where = std::source_location::current())
      : kind_(Kind::Array), array_(array), where_(where) {}
  /// A number, which takes the dtype of the other operand and is a constant of the graph.
  template <Arithmetic T>
  Operand(T value,  // NOLINT
          std::source_location where = std::source_location::current())
      : where_(where) {
    if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::Real;
      real_ = static_cast<double>(value);
    } else if (!detail::fits_int64(value)) {
      kind_ = Kind::Unsigned;
      real_ = static_cast<double>(value);
      integer_ = static_cast<int64_t>(value);
    } else {
      kind_ = std::is_same_v<T, bool> ? Kind::Boolean : Kind::Integer;
      integer_ = static_cast<int64_t>(value);
    }
  }

  Kind kind() const { return kind_; }               ///< what was given
  const Tensor& tensor() const { return tensor_; }  ///< if Kind::Tensor
  const Array& array() const { return array_; }     ///< if Kind::Array
  double real() const { return real_; }             ///< if Kind::Real; if Unsigned, rounded
  int64_t integer() const { return integer_; }  ///< if Kind::Integer, Boolean or Unsigned: its bits
  const std::source_location& where() const { return where_; }  ///< the user's line

 private:
  Kind kind_ = Kind::Tensor;
  Tensor tensor_;
  Array array_;
  double real_ = 0;
  int64_t integer_ = 0;
  std::source_location where_;
};

/// The elements start, start + step ... before `stop` of an axis. A missing start or stop means the
/// first or last element: Slice() is all elements, Slice(2) all from 2 on, Slice({}, -1) all except
/// the last, and Slice({}, {}, -1) all in reverse order. Negative numbers count from the end. An
/// index out of range is an error.
struct Slice {
  std::optional<Dim> start;  ///< symbolic expressions never count from the end
  std::optional<Dim> stop;   ///< the same
  int64_t step = 1;          ///< not 0; if negative, from high to low

  /// From `first` to before `end`, by steps of `stride`.
  explicit Slice(std::optional<Dim> first = {}, std::optional<Dim> end = {}, int64_t stride = 1)
      : start(std::move(first)), stop(std::move(end)), step(stride) {}
};

/// A part of an index that is not a position on an axis.
enum class IndexKeyword : uint8_t {
  Ellipsis,  ///< all axes without another index, as they are
  NewAxis,   ///< a new axis of extent 1
};
/// All axes without another index: x[{0, ellipsis}].
inline constexpr IndexKeyword ellipsis = IndexKeyword::Ellipsis;
/// A new axis of extent 1: x[{new_axis, 0}].
inline constexpr IndexKeyword new_axis = IndexKeyword::NewAxis;

/// One index of x[{...}]: a position (its axis disappears), a Slice, or a keyword.
class Index {
 public:
  /// What was given.
  enum class Kind : uint8_t { Place, Slice, Ellipsis, NewAxis };

  /// A position, counted from 0. A negative one counts from the end.
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Index(  // NOLINT: implicit on purpose
      T place, std::source_location where = std::source_location::current())
      : kind_(Kind::Place), slice_(Dim(place)), where_(where) {}
  /// A position that may be symbolic.
  Index(const Dim& place,  // NOLINT
        std::source_location where = std::source_location::current())
      : kind_(Kind::Place), slice_(place), where_(where) {}
  /// A range of positions.
  Index(Slice slice,  // NOLINT
        std::source_location where = std::source_location::current())
      : kind_(Kind::Slice), slice_(std::move(slice)), where_(where) {}
  /// `ellipsis` or `new_axis`.
  Index(IndexKeyword keyword,  // NOLINT
        std::source_location where = std::source_location::current())
      : kind_(keyword == IndexKeyword::Ellipsis ? Kind::Ellipsis : Kind::NewAxis), where_(where) {}

  Kind kind() const { return kind_; }            ///< what was given
  const Slice& slice() const { return slice_; }  ///< the Slice; a position is its start
  const std::source_location& where() const { return where_; }  ///< the user's line

 private:
  Kind kind_;
  Slice slice_;
  std::source_location where_;
};

/// The axes that a function works on: one, several ({0, 1}), or all if none is given.
class Axes {
 public:
  Axes() = default;
  /// One axis. A negative one counts from the end.
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Axes(T axis)
      : values_{static_cast<int64_t>(axis)} {}  // NOLINT: implicit on purpose
  Axes(std::initializer_list<int64_t> axes)
      : values_(axes) {}  ///< negative axes count from the end
  /// The same for a vector.
  Axes(std::vector<int64_t> axes) : values_(std::move(axes)) {}  // NOLINT

  bool all() const { return values_.empty(); }                    ///< every axis
  const std::vector<int64_t>& values() const { return values_; }  ///< as given

 private:
  std::vector<int64_t> values_;
};

using Where = std::source_location;  ///< the user's line, for errors, reports and profiles

// ---- Values that do not depend on an argument -----------------------------------------------

/// The Array as a constant of the graph. `x + array` makes such a constant too.
Tensor constant(const Array& value, Where where = Where::current());
/// Every element is `value`, rounded once if `dtype` is floating. If another dtype cannot represent
/// it, it throws InvalidArgument.
Tensor full(DType dtype, const Dims& shape, double value, Where where = Where::current());
/// A tensor with the type of x whose elements are all `value`.
Tensor full_like(const Tensor& x, double value, Where where = Where::current());
/// Zeros with the type of x.
Tensor zeros_like(const Tensor& x, Where where = Where::current());
/// Ones with the type of x.
Tensor ones_like(const Tensor& x, Where where = Where::current());
/// Each element is its index along `axis`, in a numeric `dtype`.
Tensor arange(DType dtype, const Dims& shape, int64_t axis, Where where = Where::current());
/// [0, 1, ... size - 1], of rank 1.
Tensor arange(DType dtype, const Dim& size, Where where = Where::current());
/// The product of these extents of x as a tensor of rank 0. The extents may be symbolic.
Tensor count(const Tensor& x, const Axes& axes, DType dtype, Where where = Where::current());

// ---- Elementwise: exp, tanh, silu, clamp ... are declared in braze/elementwise.h -------------

/// Takes each element from x if `condition` (bool) is true, and from y otherwise. x and y have one
/// dtype, and all three are broadcast.
Tensor where(const Operand& condition, const Operand& x, const Operand& y,
             Where where = Where::current());
/// The values in another dtype. Floats are rounded to nearest even. A float becomes an integer by
/// truncation, and saturates. Integers wrap. To bool, the result is x != 0.
Tensor cast(const Tensor& x, DType dtype, Where where = Where::current());
/// The same bits, read as another dtype. It throws InvalidArgument if the sizes of the dtypes
/// differ.
Tensor bitcast(const Tensor& x, DType dtype, Where where = Where::current());
namespace detail {
Tensor integer_power(const Tensor& x, int64_t exponent, Where where);
}
/// x (numeric) to a constant integer power. braze/elementwise.h declares powers of Tensors and of
/// real numbers. Integers are multiplied and wrap, and a negative power of an integer throws
/// InvalidArgument. For floating x, powers up to 4 are products (in f32 for 16-bit types), and the
/// power -1 is the reciprocal. The others are those of the elementwise pow, computed in a dtype
/// that can represent the exponent. Exponents beyond +-2^53 throw InvalidArgument.
template <class Integer>
requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>) Tensor
    pow(const Tensor& x, Integer exponent, Where where = Where::current()) {
  const bool fits = detail::fits_int64(exponent);
  return detail::integer_power(x, fits ? static_cast<int64_t>(exponent) : INT64_MAX, where);
}
/// Whether each element of x (floating, f8 too) is neither infinite nor NaN.
Tensor is_finite(const Tensor& x, Where where = Where::current());
/// Whether each element of x (floating, f8 too) is infinite.
Tensor is_inf(const Tensor& x, Where where = Where::current());
/// The number after x in the direction of y, as `nextafter` of ISO C: y if they are equal, NaN if
/// either is NaN. Both have one dtype (f16, bf16, f32 or f64), and their shapes broadcast. No
/// gradient flows through it.
Tensor next_after(const Operand& x, const Operand& y, Where where = Where::current());
/// x, but no gradient flows through it.
Tensor stop_gradient(const Tensor& x, Where where = Where::current());

// ---- Movement --------------------------------------------------------------------------------

/// The same elements in row-major order, in another shape with as many elements. One extent may be
/// -1, and is then computed from the others.
Tensor reshape(const Tensor& x, Dims shape, Where where = Where::current());
/// Result axis i is axis `permutation[i]` of x.
Tensor permute(const Tensor& x, std::vector<int64_t> permutation, Where where = Where::current());
/// Reverses the order of all axes.
Tensor transpose(const Tensor& x, Where where = Where::current());
/// Exchanges two axes.
Tensor transpose(const Tensor& x, int64_t axis1, int64_t axis2, Where where = Where::current());
/// Repeats x along axes of extent 1 and along new axes before the first, as NumPy does. The extents
/// of x must fit the last extents of `shape`.
Tensor broadcast_to(const Tensor& x, const Dims& shape, Where where = Where::current());
/// Inserts an axis of extent 1 at position `axis` of the result.
Tensor expand_dims(const Tensor& x, int64_t axis, Where where = Where::current());
/// Removes axes of extent 1. If `axes` is empty, it removes all of them. Another extent throws
/// InvalidArgument.
Tensor squeeze(const Tensor& x, const Axes& axes = {}, Where where = Where::current());
/// The elements start, start + stride ... below `limit` along one axis. Its extent becomes
/// ceil((limit - start) / stride). Negative numbers count from the end, as in NumPy. A start or
/// limit out of range is an error, and so is a stride below 1.
Tensor slice(const Tensor& x, int64_t axis, const Dim& start, const Dim& limit, int64_t stride = 1,
             Where where = Where::current());
/// The same on every axis at once.
Tensor slice(const Tensor& x, const Dims& starts, const Dims& limits,
             std::vector<int64_t> strides = {}, Where where = Where::current());
/// Puts `low` elements `value` before, `high` after and `interior` between the elements of each
/// axis. Each list has one number for each axis, and none is negative. `value` has the dtype of x.
Tensor pad(const Tensor& x, const Dims& low, const Dims& high, const Operand& value = 0,
           std::vector<int64_t> interior = {}, Where where = Where::current());
/// Consecutive parts along `axis` with the extents `sizes`, whose sum is the extent of the axis.
std::vector<Tensor> split(const Tensor& x, const Dims& sizes, int64_t axis = 0,
                          Where where = Where::current());
/// Consecutive parts with the extent `size` (at least 1). The last part may be smaller. The axis
/// must not be symbolic.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t axis = 0,
                          Where where = Where::current());
/// At most `count` parts (at least one) of equal extent, which is rounded up. The last part may be
/// smaller. The axis must not be symbolic.
std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t axis = 0,
                          Where where = Where::current());
/// Repeats each element `count` times (0 or more) along `axis`: [a, b] twice is [a, a, b, b].
Tensor repeat(const Tensor& x, int64_t count, int64_t axis, Where where = Where::current());
/// Repeats all of x along each axis. `counts` (0 or more) has one number for each axis: [a, b]
/// twice is [a, b, a, b].
Tensor tile(const Tensor& x, std::vector<int64_t> counts, Where where = Where::current());
/// The elements on and below a diagonal of each matrix in the last two axes. The others become 0
/// (false). `diagonal` 0 is the main diagonal, and 1 is the one above it. x has at least two axes.
Tensor tril(const Tensor& x, int64_t diagonal = 0, Where where = Where::current());
/// The same for the elements on and above the diagonal.
Tensor triu(const Tensor& x, int64_t diagonal = 0, Where where = Where::current());
/// Joins tensors along an existing axis. The other extents and the dtypes must be equal.
Tensor concat(const std::vector<Tensor>& parts, int64_t axis = 0, Where where = Where::current());
/// Joins tensors of one type along a new axis.
Tensor stack(const std::vector<Tensor>& parts, int64_t axis = 0, Where where = Where::current());
/// Reverses the order of elements along `axes`.
Tensor reverse(const Tensor& x, const Axes& axes = {}, Where where = Where::current());
/// x[..., indices[...], ...] at `axis`. The shape is x.shape[:axis] + indices.shape +
/// x.shape[axis+1:]. Indices are i32 or i64. An index out of range is an error on the interpreter
/// and in checked functions (JitOptions::checked), and is clamped elsewhere.
Tensor take(const Tensor& x, const Tensor& indices, int64_t axis = 0,
            Where where = Where::current());
/// For every element of `indices` (i32 or i64), the element of x at that position along `axis` and
/// at the same position on all other axes. Both have the same axes. On axes other than `axis`, the
/// extents are equal, or 1 in `indices`. The result has the shape of `indices` after that
/// broadcast. An index out of range is an error on the interpreter and in checked functions
/// (JitOptions::checked), and is clamped elsewhere. The gradient of an element is the sum over all
/// indices that took it.
Tensor take_along_axis(const Tensor& x, const Tensor& indices, int64_t axis,
                       Where where = Where::current());
/// x (numeric) with every slice of `updates` added at its index along `axis`. `updates` has the
/// dtype of x and the shape that `take` would return. Indices are i32 or i64. An index out of range
/// is an error on the interpreter and in checked functions (JitOptions::checked), and is clamped
/// elsewhere.
Tensor scatter_add(const Tensor& x, const Tensor& indices, const Tensor& updates, int64_t axis = 0,
                   Where where = Where::current());
/// How `scatter` combines an element with the updates that go there.
enum class Scatter : uint8_t { Set, Add, Mul, Max, Min, And, Or };
/// The same with other ways to combine an element with updates. They are combined one after the
/// other, in the order of the indices. With Set the last update stays. Set takes any dtype, Max and
/// Min take ordered ones, And and Or (bitwise) take integers and bool. The gradient of Mul divides
/// by the updates, so if it is computed, no update may be 0.
Tensor scatter(const Tensor& x, const Tensor& indices, const Tensor& updates,
               Scatter how = Scatter::Set, int64_t axis = 0, Where where = Where::current());

/// Says which windows of a tensor x the index vectors in `indices` point at, for the general forms
/// of `gather` and `scatter` below. An index vector lies along one axis of `indices`, and holds the
/// first position of its window. All windows together are one tensor: the result of `gather`, or
/// the updates of `scatter`. It has the other axes of `indices`, in their order, and between them
/// the axes of the windows. Negative axes count from the end.
///
/// Rows of a matrix x [n, c] at indices [k, 1]: {.indexed = {0}, .windows = {1}, .collapsed = {0}}.
/// Elements of it at indices [k, 2]: {.indexed = {0, 1}, .collapsed = {0, 1}}.
struct GatherAxes {
  std::vector<int64_t> indexed;    ///< axes of x: element i of an index vector is a position on
                                   ///< the axis indexed[i]
  std::vector<int64_t> windows;    ///< axes of the tensor of all windows that are axes of one
                                   ///< window, in the order of x, ascending
  std::vector<int64_t> collapsed;  ///< axes of x along which a window has one element, and no axis
  std::vector<int64_t> batch;      ///< axes of x that are paired with axes of `indices`: an index
                                   ///< vector points into its own part of x. Windows have one
                                   ///< element and no axis there
  std::vector<int64_t> index_batch;  ///< their partners, whose extents are not greater than theirs
  int64_t vector = -1;  ///< the axis of `indices` along which its index vectors lie. If
                        ///< it is the rank of `indices`, each index is such a vector
};
/// What happens to elements of windows that are outside of x. Negative positions are outside, too.
enum class Outside : uint8_t {
  Clamp,  ///< the window is moved until all of it lies within x
  Drop,   ///< `gather` returns `fill` in their place, and `scatter` leaves these updates out
  Never,  ///< the caller knows that there are none. If there are, the results are wrong: other
          ///< elements of x are read or written
};
/// The windows of x with the extents `sizes` (one for each axis of x, 1 for collapsed and batch
/// axes) at the integer positions `indices`. The result has the dtype of x, which is any. `fill` is
/// for Outside::Drop. The gradient of an element of x is the sum over all windows that read it.
Tensor gather(const Tensor& x, const Tensor& indices, const Dims& sizes, const GatherAxes& axes,
              Outside outside = Outside::Clamp, const Operand& fill = 0,
              Where where = Where::current());
/// x, in whose windows at the integer positions `indices` the `updates` (of its dtype) are set,
/// added and so on. The extents of a window follow from the shape of the updates. If several
/// updates have one place, they are combined one after the other, in the order of the index
/// vectors. Dtypes and gradients are those of `scatter` above.
Tensor scatter(const Tensor& x, const Tensor& indices, const Tensor& updates,
               const GatherAxes& axes, Scatter how = Scatter::Set, Outside outside = Outside::Drop,
               Where where = Where::current());

/// The part of x with the extents `sizes` that begins at `starts`. There is an integer tensor of
/// rank 0 for each axis. A start is moved so that the part lies within x.
Tensor dynamic_slice(const Tensor& x, const std::vector<Tensor>& starts, const Dims& sizes,
                     Where where = Where::current());
/// x with `update` (of its dtype and rank) instead of the part that begins at `starts`. The starts
/// are as for `dynamic_slice`. If x is donated, only the part is written.
Tensor dynamic_update(const Tensor& x, const Tensor& update, const std::vector<Tensor>& starts,
                      Where where = Where::current());
/// Adds a last axis of extent `classes` that is 1 at the index x (an integer tensor), and 0
/// elsewhere. If x is outside [0, classes), all elements are 0.
Tensor one_hot(const Tensor& x, int64_t classes, DType dtype = f32, Where where = Where::current());

// ---- Reductions over `axes`; empty means all axes. `keepdims` leaves axes of extent 1. ---------
// The result has the dtype of x. f16 and bf16 are accumulated in f32 and rounded once.

/// The sum of numeric elements. Integers wrap. The sum of no elements is 0.
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// The product of numeric elements. Integers wrap. The product of no elements is 1.
Tensor prod(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
            Where where = Where::current());
/// The greatest element, or NaN if there is one. The elementwise function is `maximum`. The maximum
/// of no elements is the least value of the dtype, -inf for floats.
Tensor max(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// The least element, or NaN if there is one. The elementwise function is `minimum`. The minimum of
/// no elements is the greatest value of the dtype, inf for floats.
Tensor min(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// Whether some element of a bool tensor is true. For integers, it is their bitwise or. The result
/// for no elements is false or 0.
Tensor any(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// Whether every element of a bool tensor is true. For integers, it is their bitwise and. The
/// result for no elements is true, or an integer with all bits set.
Tensor all(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// The sum divided by the number of elements, for floating dtypes. The mean of no elements is NaN.
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
            Where where = Where::current());
/// The mean squared distance from the mean, computed in two passes, for floating dtypes.
Tensor var(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// log(sum(exp(x))) without overflow, for floating dtypes.
Tensor logsumexp(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
                 Where where = Where::current());
/// The i64 index of the first greatest element along `axis`, which must not be empty. A NaN counts
/// as the greatest.
Tensor argmax(const Tensor& x, int64_t axis = -1, bool keepdims = false,
              Where where = Where::current());
/// The i64 index of the first least element along `axis`, which must not be empty. A NaN counts as
/// the least.
Tensor argmin(const Tensor& x, int64_t axis = -1, bool keepdims = false,
              Where where = Where::current());

/// The i64 indices of the elements along `axis`, whose extent must be a number, in increasing order
/// of the elements, or decreasing with `descending`. Equal elements keep their order, so that the
/// order is the same on every device; -0 equals +0, and a NaN counts as the greatest.
Tensor argsort(const Tensor& x, int64_t axis = -1, bool descending = false,
               Where where = Where::current());
/// The elements along `axis` in the order of argsort. The gradient of each goes where it comes
/// from.
Tensor sort(const Tensor& x, int64_t axis = -1, bool descending = false,
            Where where = Where::current());
/// Elements, and their indices along an axis.
struct Chosen {
  Tensor values;   ///< the elements
  Tensor indices;  ///< their i64 indices
};
/// The `count` greatest elements along `axis`, the greatest first, or the least with `largest`
/// false; and their i64 indices. They are the first elements of sort, so 0 <= count <= the extent.
Chosen top_k(const Tensor& x, int64_t count, int64_t axis = -1, bool largest = true,
             Where where = Where::current());

/// The direction of a running value, and whether it includes its own element.
struct Running {
  bool reverse = false;    ///< goes from the last element to the first
  bool exclusive = false;  ///< leaves out the element itself, so the first value is the identity
};
/// The sum of each numeric element and all elements before it along `axis`. Integers wrap. 16-bit
/// floats are summed in f32, and each result is rounded once.
Tensor cumsum(const Tensor& x, int64_t axis = -1, Running how = {}, Where where = Where::current());
/// The product of each numeric element and all elements before it along `axis`. Integers wrap.
Tensor cumprod(const Tensor& x, int64_t axis = -1, Running how = {},
               Where where = Where::current());
/// The greatest of each element and all elements before it along `axis`. From the first NaN on, it
/// is NaN. The gradient goes to the element that the value comes from, and if several are equal, to
/// the last of them.
Tensor cummax(const Tensor& x, int64_t axis = -1, Running how = {}, Where where = Where::current());
/// The least of each element and all elements before it along `axis`, otherwise like `cummax`.
Tensor cummin(const Tensor& x, int64_t axis = -1, Running how = {}, Where where = Where::current());
/// The combination of two tuples, `left` and `right`, as a tuple of the same dtypes. It may use
/// elementwise functions and numbers, but no other tensors and no casts.
using CombineFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>& left,
                                                          const std::vector<Tensor>& right)>;
/// Running combinations of tuples along `axis`: part i of the result at t is part i of
/// e[0] . e[1] . .. . e[t], where e[t] is the tuple of the elements of all `parts` at t, and `.` is
/// `combine`. `parts` have one shape, and the results have their dtypes; 16-bit floats are combined
/// in f32, and each result is rounded once. The sum of first-order terms is an example:
///
///   scan([](auto& x, auto& y) -> std::vector<Tensor> {
///          return {x[0] * y[0], x[1] * y[0] + y[1]};
///        }, {a, b}, {1, 0});             // h[t] = a[t] * h[t - 1] + b[t] is result 1
///
/// `combine` must be associative, or the results are undefined: the order of the tuples stays, but
/// how they are grouped is not fixed (as in jax.lax.associative_scan). It need not be commutative.
/// `identity` has a number for each part. Combined with it on either side, a tuple must not change.
/// It is the first result of an exclusive scan. Gradients are scans too, of derivatives of
/// `combine`. It throws InvalidArgument if shapes differ, or if `combine` uses something else than
/// its arguments.
std::vector<Tensor> scan(const CombineFunction& combine, const std::vector<Tensor>& parts,
                         const std::vector<double>& identity, int64_t axis = -1, Running how = {},
                         Where where = Where::current());
/// The first-order recurrence h[t] = a[t] * h[t - 1] + b[t] along `axis`, where h before the first
/// element is 0. a and b have one numeric dtype and one shape, which are those of h; 16-bit floats
/// are computed in f32, and each result is rounded once. It is a `scan`, so a device computes all
/// elements of a line together. With `how.exclusive` the result at t is h[t - 1], and with
/// `how.reverse` h[t] depends on h[t + 1]. To begin with another value h0, add a[0] * h0 to b[0].
Tensor recurrence(const Tensor& a, const Tensor& b, int64_t axis = -1, Running how = {},
                  Where where = Where::current());

// ---- Contractions -----------------------------------------------------------------------------

/// The matrix product by NumPy's rule for matmul. The last axis of x is summed with the second to
/// last axis of y (or its only axis): x [..., m, k] and y [..., k, n] give [..., m, n]. Axes before
/// the last two are broadcast. x and y have one numeric dtype, which is that of the result.
/// Integers wrap. Sums of 16-bit floats are computed in f32 and rounded once to the dtype of x, or
/// stay f32 if `result` is f32. Sums of integers are computed in the integer dtype `result` if it
/// is wider and can represent their values.
Tensor dot(const Tensor& x, const Tensor& y, std::optional<DType> result = {},
           Where where = Where::current());

/// The axes of the two factors of a contraction: paired and kept, or paired and summed over.
struct DotAxes {
  std::vector<int64_t> batch_left;      ///< axes of the left factor that are paired and kept
  std::vector<int64_t> batch_right;     ///< their partners in the right factor
  std::vector<int64_t> contract_left;   ///< axes of the left factor that are paired and summed over
  std::vector<int64_t> contract_right;  ///< their partners in the right factor
  std::optional<DType> result;          ///< f32 for 16-bit floats, or a wider integer
  bool tf32 = false;  ///< allows devices to round f32 operands to tf32, which they multiply faster
};
/// Any contraction of two tensors of one numeric dtype. The result has the batch pairs, then the
/// free axes of x, then the free axes of y. It throws InvalidArgument if paired extents differ, or
/// if an axis occurs twice.
Tensor dot_general(const Tensor& x, const Tensor& y, const DotAxes& axes,
                   Where where = Where::current());

/// Einstein's summation as in NumPy: "ij,jk->ik" multiplies the operands and sums over the letters
/// that the result does not have. There is at least one operand. All have one numeric dtype, which
/// is that of the result.
///   - A letter that occurs twice in one operand selects its diagonal: "ii->i"; "ii" is the trace.
///   - "..." stands for any axes, which are broadcast and kept: "...ij,...jk->...ik".
///   - Without "->" the result has the axes of "...", then the letters that occur once, sorted.
///   - An extent of 1 broadcasts to the other extent of its letter.
/// More than two operands are multiplied in pairs, the cheapest pair first. Each product is rounded
/// to the dtype, as by `dot`. It throws InvalidArgument if the equation does not fit the operands,
/// and Unsupported for the diagonal of axes that may be empty.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands,
              Where where = Where::current());

/// `value`, which takes over the memory of `argument`. That is an argument of the function under
/// construction, and it has the same type. It is donated: the caller's Array is dead after the
/// call. `donate` does the same for whole arguments.
Tensor update(const Tensor& argument, const Tensor& value, Where where = Where::current());

}  // namespace braze

#include "braze/elementwise.h"
