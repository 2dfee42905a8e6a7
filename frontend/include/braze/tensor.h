// tensor.h — Tensor: a value of the graph that is being built, and the functions that build.
//
// A function given to `jit` receives Tensors and returns Tensors. Every call below adds nodes to
// the graph under construction and remembers the caller's line, so that errors, reports and
// profiles speak of it. Nothing is computed here.
//
// Rules that hold everywhere:
//   - Shapes broadcast as in NumPy: axes align at the end, an extent of 1 meets any extent.
//   - Dtypes are never promoted. Operands of two dtypes are an error that names the cast. A C++
//     number takes the dtype of the Tensor it meets, and must be a value of it.
//   - A number that is an argument of a compiled function, as in `f(x, 0.1)`, is a Tensor of rank 0
//     inside of it: f64, or i64 for an integer, or bool. It takes the dtype of the Tensor that it
//     meets, too, rounded once, and so does what is computed from such numbers alone. An integer
//     becomes any numeric dtype, a real number floating ones.
//   - Axes are 0-based; negative ones count from the end.
//   - Whatever does not fit throws Error (InvalidArgument) with the types, the op and your line.
#pragma once

#include <cstdint>
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
inline constexpr DType f8e4m3 = DType::F8E4M3;  ///< 448 at most, no infinities; for storage alone
inline constexpr DType f8e5m2 = DType::F8E5M2;  ///< the upper half of an f16; for storage alone
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

/// An extent: a number, or an expression of symbols such as n or 4*n. Arithmetic is exact.
class Dim {
 public:
  /// InvalidArgument from 2^63.
  template <class T>
  requires std::is_integral_v<T> Dim(T value)  // NOLINT: implicit on purpose
      : value_(static_cast<int64_t>(value)) {
    if (!detail::fits_int64(value)) detail::fail_extent(static_cast<uint64_t>(value));
  }
  /// A symbol with its range: "n:1..64", "n:8..1024%8" (multiples of 8). Both ends are included.
  /// InvalidArgument if the text is malformed or the range is empty.
  Dim(const char* declaration,  // NOLINT
      std::source_location where = std::source_location::current());
  explicit Dim(std::shared_ptr<const Expr> expr);  ///< for Braze itself

  bool is_constant() const { return expr_ == nullptr; }  ///< a number, no symbol
  /// The number; InvalidArgument if the extent is symbolic.
  int64_t value() const;
  /// "64", "n", "4 * n".
  std::string to_string() const;
  /// For the builder; null for a constant.
  const std::shared_ptr<const Expr>& expr() const { return expr_; }

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  /// Rounds towards minus infinity; `b` is positive.
  friend Dim operator/(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b);

 private:
  int64_t value_ = 0;
  std::shared_ptr<const Expr> expr_;
};

using Dims = std::vector<Dim>;  ///< extents, outermost axis first

class Operand;
class Index;

/// A value of the graph under construction. A cheap handle, valid while its function is traced.
class Tensor {
 public:
  /// An empty handle; using it is an error.
  Tensor() = default;
  explicit Tensor(const detail::Handle& handle);

  DType dtype() const;  ///< of the elements
  size_t rank() const;  ///< number of axes
  Dims shape() const;   ///< extents, outermost first
  /// The extent of `axis`.
  Dim dim(int64_t axis) const;
  /// The number of elements.
  Dim numel() const;
  /// "f32[n, 64]".
  std::string to_string() const;
  bool valid() const { return builder_ != nullptr; }  ///< not default-constructed
  /// Whether it is computed from numbers alone, so that it takes the dtype of what it meets.
  bool is_number() const { return is_number_; }
  /// Parts of a tensor as in NumPy, with the keywords below: x[{0, Slice(1, -1), ellipsis}].
  /// Axes without an index stay whole. InvalidArgument, besides what `slice` says, for more indices
  /// than axes and for two ellipses.
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
  /// These make the handle mean the new value.
  friend Tensor& operator+=(Tensor& x, const Operand& y);
  friend Tensor& operator-=(Tensor& x, const Operand& y);
  friend Tensor& operator*=(Tensor& x, const Operand& y);
  friend Tensor& operator/=(Tensor& x, const Operand& y);

  const std::shared_ptr<detail::Builder>& builder() const { return builder_; }
  uint32_t id() const { return id_; }  ///< of its node, for Braze itself

 private:
  std::shared_ptr<detail::Builder> builder_;
  uint32_t id_ = 0;
  bool is_number_ = false;
};

namespace detail {
/// The same value as a number, if it is f64 or i64.
Tensor as_number(const Tensor& tensor);
}  // namespace detail

/// The type, for messages.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
/// "f32", "bool" ...
std::ostream& operator<<(std::ostream& out, DType dtype);

/// What elementwise functions take: a Tensor, a number, or an Array (a constant of the graph).
/// Being made from any of them, it is also what remembers the line of an operator.
class Operand {
 public:
  enum class Kind : uint8_t {
    Tensor,
    Array,
    Real,
    Integer,
    Unsigned,
    Boolean
  };  ///< what was given

  Operand(const Tensor& tensor,  // NOLINT: implicit on purpose
          std::source_location where = std::source_location::current())
      : kind_(Kind::Tensor), tensor_(tensor), where_(where) {}
  Operand(const Array& array,  // NOLINT
          std::source_location where = std::source_location::current())
      : kind_(Kind::Array), array_(array), where_(where) {}
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
  double real() const { return real_; }             ///< if Kind::Real, or Unsigned: rounded
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

/// Elements start, start + step ... before `stop` of an axis. What is left out is the first or the
/// last element: Slice() is all, Slice(2) all from 2 on, Slice({}, -1) all but the last, and
/// Slice({}, {}, -1) all of them backwards. Negative numbers count from the end; places out of
/// range are an error.
struct Slice {
  std::optional<Dim> start, stop;  ///< expressions of symbols mean what they say
  int64_t step = 1;                ///< not 0; negative: from high to low

  explicit Slice(std::optional<Dim> first = {}, std::optional<Dim> end = {}, int64_t stride = 1)
      : start(std::move(first)), stop(std::move(end)), step(stride) {}
};

/// What stands for axes without being a place on one.
enum class IndexKeyword : uint8_t {
  Ellipsis,  ///< all axes that have no other index, whole
  NewAxis,   ///< an axis of extent 1 that x does not have
};
inline constexpr IndexKeyword ellipsis = IndexKeyword::Ellipsis;
inline constexpr IndexKeyword new_axis = IndexKeyword::NewAxis;

/// One index of x[{...}]: a place, whose axis disappears, a Slice, or a keyword.
class Index {
 public:
  enum class Kind : uint8_t { Place, Slice, Ellipsis, NewAxis };  ///< what was given

  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Index(  // NOLINT: implicit on purpose
      T place, std::source_location where = std::source_location::current())
      : kind_(Kind::Place), slice_(Dim(place)), where_(where) {}
  Index(const Dim& place,  // NOLINT
        std::source_location where = std::source_location::current())
      : kind_(Kind::Place), slice_(place), where_(where) {}
  Index(Slice slice,  // NOLINT
        std::source_location where = std::source_location::current())
      : kind_(Kind::Slice), slice_(std::move(slice)), where_(where) {}
  Index(IndexKeyword keyword,  // NOLINT
        std::source_location where = std::source_location::current())
      : kind_(keyword == IndexKeyword::Ellipsis ? Kind::Ellipsis : Kind::NewAxis), where_(where) {}

  Kind kind() const { return kind_; }                           ///< what was given
  const Slice& slice() const { return slice_; }                 ///< of a place: its start
  const std::source_location& where() const { return where_; }  ///< the user's line

 private:
  Kind kind_;
  Slice slice_;
  std::source_location where_;
};

/// The axes a function works on: one, several ({0, 1}), or all of them (none given).
class Axes {
 public:
  Axes() = default;
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Axes(T axis)
      : values_{static_cast<int64_t>(axis)} {}                   // NOLINT: implicit on purpose
  Axes(std::initializer_list<int64_t> axes) : values_(axes) {}   ///< negative: from the end
  Axes(std::vector<int64_t> axes) : values_(std::move(axes)) {}  // NOLINT

  bool all() const { return values_.empty(); }                    ///< every axis
  const std::vector<int64_t>& values() const { return values_; }  ///< as given

 private:
  std::vector<int64_t> values_;
};

using Where = std::source_location;  ///< the user's line, for errors, reports and profiles

// ---- Values that do not come from an argument -----------------------------------------------

/// The Array as a constant of the graph; `x + array` does the same.
Tensor constant(const Array& value, Where where = Where::current());
/// Every element is `value`, rounded once to a floating `dtype`; InvalidArgument if another one
/// does not have it.
Tensor full(DType dtype, const Dims& shape, double value, Where where = Where::current());
/// A tensor of x's type whose elements are all `value`.
Tensor full_like(const Tensor& x, double value, Where where = Where::current());
/// Zeros of x's type.
Tensor zeros_like(const Tensor& x, Where where = Where::current());
/// Ones of x's type.
Tensor ones_like(const Tensor& x, Where where = Where::current());
/// The index along `axis`, in a numeric `dtype`.
Tensor arange(DType dtype, const Dims& shape, int64_t axis, Where where = Where::current());
/// [0, 1, ... size - 1]: rank 1.
Tensor arange(DType dtype, const Dim& size, Where where = Where::current());
/// The product of these extents of x as a rank-0 tensor of `dtype`, also where they are symbolic.
Tensor count(const Tensor& x, const Axes& axes, DType dtype, Where where = Where::current());

// ---- Elementwise: exp, tanh, silu, clamp ... are declared in braze/elementwise.h -------------

/// `condition` (bool) chooses between the elements of x and y, which have one dtype; all three
/// broadcast.
Tensor where(const Operand& condition, const Operand& x, const Operand& y,
             Where where = Where::current());
/// The values in another dtype: floats round to nearest even, float to integer truncates and
/// saturates, integers wrap, to bool is x != 0.
Tensor cast(const Tensor& x, DType dtype, Where where = Where::current());
/// The same bits as another dtype of the same size; InvalidArgument if the sizes differ.
Tensor bitcast(const Tensor& x, DType dtype, Where where = Where::current());
namespace detail {
Tensor integer_power(const Tensor& x, int64_t exponent, Where where);
}
/// x (numeric) to a constant integer power; powers of Tensors and of real numbers are declared in
/// braze/elementwise.h. Integers are multiplied and wrap; a negative power of them is
/// InvalidArgument. Floating x: powers up to 4 are products (in f32 for 16-bit types), -1 is the
/// reciprocal, the others are those of the elementwise pow, computed in a dtype that has the
/// exponent. InvalidArgument beyond +-2^53.
template <class Integer>
requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>) Tensor
    pow(const Tensor& x, Integer exponent, Where where = Where::current()) {
  const bool fits = detail::fits_int64(exponent);
  return detail::integer_power(x, fits ? static_cast<int64_t>(exponent) : INT64_MAX, where);
}
/// x, through which no gradient flows.
Tensor stop_gradient(const Tensor& x, Where where = Where::current());

// ---- Movement --------------------------------------------------------------------------------

/// The same elements in row-major order, as many as x has. One extent may be -1: what remains.
Tensor reshape(const Tensor& x, Dims shape, Where where = Where::current());
/// Result axis i is axis `permutation[i]` of x.
Tensor permute(const Tensor& x, std::vector<int64_t> permutation, Where where = Where::current());
/// Reverses the order of all axes.
Tensor transpose(const Tensor& x, Where where = Where::current());
/// Exchanges two axes.
Tensor transpose(const Tensor& x, int64_t axis1, int64_t axis2, Where where = Where::current());
/// x with each element repeated along axes of extent 1 and axes before the first, as NumPy does:
/// the extents of x meet the last ones of `shape`.
Tensor broadcast_to(const Tensor& x, const Dims& shape, Where where = Where::current());
/// Inserts an axis of extent 1 at `axis` of the result.
Tensor expand_dims(const Tensor& x, int64_t axis, Where where = Where::current());
/// Removes axes of extent 1; without `axes` all of them. InvalidArgument for another extent.
Tensor squeeze(const Tensor& x, const Axes& axes = {}, Where where = Where::current());
/// Elements start, start + stride ... below `limit` along one axis, whose extent becomes
/// ceil((limit - start) / stride). Negative numbers count from the end, as in NumPy; out of range
/// is an error, as is a stride below 1.
Tensor slice(const Tensor& x, int64_t axis, const Dim& start, const Dim& limit, int64_t stride = 1,
             Where where = Where::current());
/// The same on every axis at once.
Tensor slice(const Tensor& x, const Dims& starts, const Dims& limits,
             std::vector<int64_t> strides = {}, Where where = Where::current());
/// `low` places of `value` before, `high` after and `interior` between the elements of each axis:
/// one number an axis, none negative. `value` is of x's dtype.
Tensor pad(const Tensor& x, const Dims& low, const Dims& high, const Operand& value = 0,
           std::vector<int64_t> interior = {}, Where where = Where::current());
/// Parts of the extents `sizes` along `axis`, one after the other; the sizes add up to its extent.
std::vector<Tensor> split(const Tensor& x, const Dims& sizes, int64_t axis = 0,
                          Where where = Where::current());
/// Parts of the extent `size` (from 1 on), of which the last may be smaller. The axis must not be
/// symbolic.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t axis = 0,
                          Where where = Where::current());
/// At most `count` parts (at least one) of one extent, rounded up, of which the last may be
/// smaller. The axis must not be symbolic.
std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t axis = 0,
                          Where where = Where::current());
/// Each element `count` times in a row (0 or more) along `axis`: [a, b] twice is [a, a, b, b].
Tensor repeat(const Tensor& x, int64_t count, int64_t axis, Where where = Where::current());
/// The whole of x as often along each axis as `counts` (0 or more, one for each axis) says: [a, b]
/// twice is [a, b, a, b].
Tensor tile(const Tensor& x, std::vector<int64_t> counts, Where where = Where::current());
/// Of each matrix in the last two axes what is on and below a diagonal; elsewhere 0 (false).
/// `diagonal` 0 is the main one, 1 the one above it. x has two axes or more.
Tensor tril(const Tensor& x, int64_t diagonal = 0, Where where = Where::current());
/// The same on and above the diagonal.
Tensor triu(const Tensor& x, int64_t diagonal = 0, Where where = Where::current());
/// Joins along an existing axis; the other extents and the dtypes are the same.
Tensor concat(const std::vector<Tensor>& parts, int64_t axis = 0, Where where = Where::current());
/// Joins tensors of one type along a new axis.
Tensor stack(const std::vector<Tensor>& parts, int64_t axis = 0, Where where = Where::current());
/// Reverses the order of elements along `axes`.
Tensor reverse(const Tensor& x, const Axes& axes = {}, Where where = Where::current());
/// x[..., indices[...], ...] at `axis`: the shape is x.shape[:axis] + indices.shape +
/// x.shape[axis+1:]. Indices are i32 or i64; out of range is an error on the interpreter and
/// in checked functions (JitOptions::checked), and clamps elsewhere.
Tensor take(const Tensor& x, const Tensor& indices, int64_t axis = 0,
            Where where = Where::current());
/// For every element of `indices` (i32 or i64) the element of x at that place along `axis`, in the
/// same row of all other axes. Both have the same axes; besides `axis`, their extents are equal or
/// 1 in `indices`. The result has the shape of `indices` broadcast so. An index out of range is an
/// error on the interpreter and in checked functions (JitOptions::checked), and gives some element
/// of x elsewhere. The gradient adds up what several indices took from one place.
Tensor take_along_axis(const Tensor& x, const Tensor& indices, int64_t axis,
                       Where where = Where::current());
/// x (numeric) plus every slice of `updates` (of x's dtype, shaped as `take` gives) added at its
/// index along `axis`. Indices are i32 or i64; out of range is an error on the interpreter and
/// in checked functions (JitOptions::checked), and clamps elsewhere.
Tensor scatter_add(const Tensor& x, const Tensor& indices, const Tensor& updates, int64_t axis = 0,
                   Where where = Where::current());
/// 1 where the index along a new last axis of extent `classes` equals x (an integer tensor), else
/// 0. An x outside of [0, classes) gives zeros.
Tensor one_hot(const Tensor& x, int64_t classes, DType dtype = f32, Where where = Where::current());

// ---- Reductions. `axes`: which; none given means all. `keepdims` leaves extents of 1. ---------
// The result has the dtype of x. f16 and bf16 are accumulated in f32 and rounded once.

/// The sum of numeric elements; integers wrap. Of no elements: 0.
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// The product of numeric elements; integers wrap. Of no elements: 1.
Tensor prod(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
            Where where = Where::current());
/// The greatest element, NaN if there is one; elementwise it is `maximum`. Of no elements: the
/// least of the dtype, -inf for floats.
Tensor max(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// The least element, NaN if there is one; elementwise it is `minimum`. Of no elements: the
/// greatest of the dtype, inf for floats.
Tensor min(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// Whether some element of a bool tensor is true; of integers, their bitwise or. Of no elements:
/// false, 0.
Tensor any(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// Whether every element of a bool tensor is true; of integers, their bitwise and. Of no elements:
/// true, all bits.
Tensor all(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// The sum over the number of elements, of floating dtypes. NaN of no elements.
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
            Where where = Where::current());
/// The mean squared distance from the mean, in two passes, of floating dtypes.
Tensor var(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
           Where where = Where::current());
/// log(sum(exp(x))) without overflow, of floating dtypes.
Tensor logsumexp(const Tensor& x, const Axes& axes = {}, bool keepdims = false,
                 Where where = Where::current());
/// The i64 index of the first greatest element along `axis`, which must not be empty; a NaN counts
/// as greatest.
Tensor argmax(const Tensor& x, int64_t axis = -1, bool keepdims = false,
              Where where = Where::current());
/// The i64 index of the first least element along `axis`, which must not be empty; a NaN counts as
/// least.
Tensor argmin(const Tensor& x, int64_t axis = -1, bool keepdims = false,
              Where where = Where::current());

/// How a running value goes along its axis.
struct Running {
  bool reverse = false;    ///< from the last element to the first
  bool exclusive = false;  ///< an element is no part of its own value: it begins with that of none
};
/// The sum of each numeric element and all before it along `axis`; integers wrap. 16-bit floats are
/// summed in f32, and each sum is rounded once.
Tensor cumsum(const Tensor& x, int64_t axis = -1, Running how = {}, Where where = Where::current());
/// The product of each numeric element and all before it along `axis`; integers wrap.
Tensor cumprod(const Tensor& x, int64_t axis = -1, Running how = {},
               Where where = Where::current());
/// The greatest of each element and all before it along `axis`; NaN from the first NaN on. The
/// gradient goes to the element that it was taken from, of equal ones the latest.
Tensor cummax(const Tensor& x, int64_t axis = -1, Running how = {}, Where where = Where::current());
/// The least of each element and all before it along `axis`; otherwise as `cummax`.
Tensor cummin(const Tensor& x, int64_t axis = -1, Running how = {}, Where where = Where::current());

// ---- Contractions -----------------------------------------------------------------------------

/// The matrix product by NumPy's matmul rule: the last axis of x meets the second to last of y (or
/// its only one), x [..., m, k] and y [..., k, n] to [..., m, n]; axes before the last two
/// broadcast. The two have one numeric dtype, which is that of the result; integers wrap. Sums of
/// 16-bit floats are made in f32 and rounded once to the dtype of x, or stay f32 if `result` says
/// so; those of integers are made in the integer dtype `result`, if it is wider and holds theirs.
Tensor dot(const Tensor& x, const Tensor& y, std::optional<DType> result = {},
           Where where = Where::current());

struct DotAxes {
  std::vector<int64_t> batch_left, batch_right;        ///< axes paired and kept
  std::vector<int64_t> contract_left, contract_right;  ///< axes paired and summed over
  std::optional<DType> result;                         ///< f32 for 16-bit floats, wider integers
  bool tf32 = false;  ///< f32 operands may be rounded to tf32 by devices that multiply it faster
};
/// Any contraction of two tensors of one numeric dtype. Result axes: batch pairs, the free axes of
/// x, the free axes of y. InvalidArgument if paired extents differ, or an axis is named twice.
Tensor dot_general(const Tensor& x, const Tensor& y, const DotAxes& axes,
                   Where where = Where::current());

/// Einstein's summation as in NumPy: "ij,jk->ik" multiplies the operands and sums over the letters
/// that the result does not name. There is one operand or more, all of one numeric dtype, which is
/// that of the result.
///   - A letter twice in one operand is its diagonal: "ii->i", "ii" for the trace.
///   - "..." stands for any axes, which broadcast and are kept: "...ij,...jk->...ik".
///   - Without "->" the result has the axes of "...", then the letters that occur once, sorted.
///   - An extent of 1 broadcasts against another one of its letter.
/// More than two operands are multiplied in pairs, cheapest first; each product is rounded to the
/// dtype, as `dot` does. InvalidArgument for an equation that does not fit the operands;
/// Unsupported for the diagonal of axes that may be empty.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands,
              Where where = Where::current());

/// `value` (of the same type), whose memory shall be that of `argument`, an argument of the
/// function being compiled: the call takes the argument over, and the caller's Array is dead
/// afterwards. `donate` does the same for whole arguments.
Tensor update(const Tensor& argument, const Tensor& value, Where where = Where::current());

}  // namespace braze

#include "braze/elementwise.h"
