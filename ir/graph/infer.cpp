#include "ir/graph/infer.h"

#include <algorithm>
#include <type_traits>

#include "ir/ops/machine_semantics.h"
#include "ir/support/text.h"

namespace braze {
namespace {

using fmt::format;
using Axes = std::vector<int64_t>;

std::string axes_text(const Axes& axes) {
  return format("[{}]", join(axes, ", ", [](int64_t axis) { return std::to_string(axis); }));
}

// The type rules, applied to one op on its operands. Each rule checks what it needs, and returns
// the type of the result.
struct Inference {
  const Op& op;
  std::span<const TensorType* const> operands;
  const TensorType& wanted;
  SourceLocation where;

  // "add(f32[n, 4], f16[n, 4]): the dtypes differ".
  [[noreturn]] void reject(const Code& code, std::string_view message, std::string fix = "") const {
    const auto type_text = [](const TensorType* type) { return type->to_string(); };
    fail(code, format("{}({}): {}", op_name(op), join(operands, ", ", type_text), message),
         {.location = where, .node = std::string(op_name(op)), .fix = std::move(fix)});
  }
  // `message` and `fix` are texts, or functions that make them. Nearly all that is required holds,
  // and no text is made for it.
  template <class Message, class Fix = std::string_view>
  void require(bool holds, const Code& code, const Message& message, const Fix& fix = {}) const {
    if (!holds) reject(code, text_of(message), text_of(fix));
  }
  template <class Text>
  static std::string text_of(const Text& text) {
    if constexpr (std::is_invocable_v<Text>)
      return std::string(text());
    else
      return std::string(text);
  }

  const TensorType& type(size_t i) const { return *operands[i]; }
  const Shape& shape(size_t i) const { return operands[i]->shape; }
  DType dtype(size_t i) const { return operands[i]->dtype; }

  void require_operands(size_t count) const {
    require(operands.size() == count, codes::kBadAttribute, [&] {
      return format("the op takes {} operand{}, not {}", count, count == 1 ? "" : "s",
                    operands.size());
    });
  }
  void require_dtype(size_t i, TypeSet types) const {
    if (types.contains(dtype(i))) return;
    std::string known;
    for (const DType candidate : kAllDTypes)
      if (types.contains(candidate))
        known += format("{}{}", known.empty() ? "" : ", ", name(candidate));
    reject(codes::kDTypeMismatch,
           format("operand {} is {}; the op takes {}", i, name(dtype(i)), known),
           is_stored_float(dtype(i)) ? format("insert convert(operand {}, f32)", i) : "");
  }
  void require_same_dtype(size_t i, size_t j) const {
    if (dtype(i) == dtype(j)) return;
    reject(codes::kDTypeMismatch,
           format("operand {} is {} and operand {} is {}", i, name(dtype(i)), j, name(dtype(j))),
           format("insert convert(operand {}, {})", j, name(dtype(i))));
  }
  void require_axis(int64_t axis, size_t rank) const {
    require(0 <= axis && axis < static_cast<int64_t>(rank), codes::kBadAttribute,
            [&] { return format("axis {} does not exist, because the rank is {}", axis, rank); });
  }
  void require_increasing(const Axes& axes, size_t rank) const {
    for (const int64_t axis : axes) require_axis(axis, rank);
    require(std::is_sorted(axes.begin(), axes.end(), std::less_equal<>()), codes::kBadAttribute,
            [&] { return format("the axes {} are not increasing", axes_text(axes)); });
  }
  void require_length(size_t length, std::string_view what) const {
    require(length == shape(0).rank(), codes::kBadAttribute, [&] {
      return format("{} has {} entries, but the operand has rank {}", what, length,
                    shape(0).rank());
    });
  }

  TensorType operator()(const InputOp& input) const {
    require_operands(0);
    for (const MeshAxis& axis : input.varying) require_mesh_axis(axis);
    return wanted;
  }

  TensorType operator()(const ConstantOp& constant) const {
    require_operands(0);
    return {constant.value->dtype(), Shape::of(constant.value->shape())};
  }

  TensorType operator()(const MapOp& map) const {
    const ElementwiseInfo& row = info(map.op);
    require(!row.inner, codes::kBadAttribute, [&] {
      return format("{} is a row for the bodies of other rows, not an op of graphs", row.name);
    });
    require_operands(row.arity);
    size_t first = 0;
    if (map.op == ElementwiseOp::select) {
      require(
          dtype(0) == DType::Bool, codes::kDTypeMismatch,
          [&] { return format("the condition is {}, not bool", name(dtype(0))); },
          "compare with ne(x, 0)");
      first = 1;
    }
    require_dtype(first, row.types);
    for (size_t i = first + 1; i < operands.size(); ++i) require_same_dtype(first, i);
    for (size_t i = 1; i < operands.size(); ++i)
      require(
          shape(0) == shape(i), codes::kShapeMismatch,
          [&] { return format("the shapes of operands 0 and {} differ", i); },
          "insert broadcast_to(x, shape)");
    DType result = dtype(first);
    if (row.result == ResultRule::Boolean) result = DType::Bool;
    if (row.result == ResultRule::Chosen) result = wanted.dtype;
    if (map.op == ElementwiseOp::bitcast)
      require(
          have_same_bits(result, dtype(0)), codes::kDTypeMismatch,
          [&] {
            return size_of(result) == size_of(dtype(0))
                       ? "bool cannot be bitcast"
                       : format("{} has a different size", name(result));
          },
          "use convert, which keeps the value");
    return {result, shape(0)};
  }

  TensorType operator()(const BroadcastOp& broadcast) const {
    require_operands(1);
    require_length(broadcast.axes.size(), "axes");
    require_increasing(broadcast.axes, wanted.shape.rank());
    for (size_t i = 0; i < broadcast.axes.size(); ++i) {
      const Expr& from = shape(0)[i];
      const Expr& to = wanted.shape[static_cast<size_t>(broadcast.axes[i])];
      require(from == to || from.is_constant(1), codes::kShapeMismatch, [&] {
        return format("axis {} has extent {}, which cannot be broadcast to {} of {}", i,
                      from.to_string(), to.to_string(), wanted.shape.to_string());
      });
    }
    return {dtype(0), wanted.shape};
  }

  TensorType operator()(const ReshapeOp&) const {
    require_operands(1);
    check_size(wanted);  // so that the product cannot overflow
    const Expr from = shape(0).numel(), to = wanted.shape.numel();
    require(from == to, codes::kShapeMismatch, [&] {
      return format("{} elements cannot be reshaped to the {} of {}", from.to_string(),
                    to.to_string(), wanted.shape.to_string());
    });
    return {dtype(0), wanted.shape};
  }

  TensorType operator()(const TransposeOp& transpose) const {
    require_operands(1);
    require_length(transpose.permutation.size(), "the permutation");
    Axes sorted = transpose.permutation;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); ++i)
      require(sorted[i] == static_cast<int64_t>(i), codes::kBadAttribute,
              [&] { return format("{} is not a permutation", axes_text(transpose.permutation)); });
    std::vector<Expr> dims;
    for (const int64_t axis : transpose.permutation)
      dims.push_back(shape(0)[static_cast<size_t>(axis)]);
    return {dtype(0), Shape(std::move(dims))};
  }

  TensorType operator()(const SliceOp& slice) const {
    require_operands(1);
    require_length(slice.starts.size(), "starts");
    require_length(slice.limits.size(), "limits");
    require_length(slice.strides.size(), "strides");
    std::vector<Expr> dims;
    for (size_t i = 0; i < slice.starts.size(); ++i) {
      const Expr &start = slice.starts[i], &limit = slice.limits[i], &extent = shape(0)[i];
      require(
          slice.strides[i] >= 1, codes::kBadAttribute,
          [&] { return format("the stride {} is below 1", slice.strides[i]); }, "use reverse");
      const bool is_symbolic =
          !start.as_constant() || !limit.as_constant() || !extent.as_constant();
      const auto check = [&](bool holds, std::string_view demand) {
        if (holds) return;  // so that no message is made in vain
        require(false, codes::kBadAttribute, [&] {
          return format("axis {}: a slice from {} to {} of {} elements must {}{}", i,
                        start.to_string(), limit.to_string(), extent.to_string(), demand,
                        is_symbolic ? ", for every size" : "");
        });
      };
      check(proves_at_most(0, start), "begin at 0 or later");
      check(proves_at_most(limit, extent), "not end after the last element");
      check(proves_at_most(start, limit), "not end before it begins");
      dims.push_back(ceildiv(limit - start, slice.strides[i]));
    }
    return {dtype(0), Shape(std::move(dims))};
  }

  TensorType operator()(const PadOp& pad) const {
    require_operands(2);
    require_same_dtype(0, 1);
    require(shape(1).rank() == 0, codes::kShapeMismatch,
            "the fill value, operand 1, must be a scalar");
    require_length(pad.low.size(), "low");
    require_length(pad.high.size(), "high");
    require_length(pad.interior.size(), "interior");
    std::vector<Expr> dims;
    for (size_t i = 0; i < pad.low.size(); ++i) {
      const Expr& extent = shape(0)[i];
      require(
          proves_at_most(0, pad.low[i]) && proves_at_most(0, pad.high[i]) && pad.interior[i] >= 0 &&
              pad.interior[i] <= kMaxElements,
          codes::kBadAttribute,
          [&] {
            return format(
                "axis {}: the padding {}, {} and {} (low, high, interior) may be negative or "
                "is too large",
                i, pad.low[i].to_string(), pad.high[i].to_string(), pad.interior[i]);
          },
          "use slice");
      const Expr gaps = pad.interior[i] == 0 ? Expr(0) : max(extent - 1, 0) * pad.interior[i];
      dims.push_back(pad.low[i] + extent + gaps + pad.high[i]);
    }
    return {dtype(0), Shape(std::move(dims))};
  }

  TensorType operator()(const WindowsOp& window) const {
    require_operands(2);
    require_same_dtype(0, 1);
    require(shape(1).rank() == 0, codes::kShapeMismatch,
            "the fill value, operand 1, must be a scalar");
    const size_t rank = shape(0).rank(), count = window.axes.size();
    require_increasing(window.axes, rank);
    for (const Axes* list : {&window.taps, &window.strides, &window.dilations, &window.gaps})
      require(list->size() == count, codes::kBadAttribute, [&] {
        return format("there are {} axes, but {} taps, strides, dilations or gaps", count,
                      list->size());
      });
    require(window.low.size() == count, codes::kBadAttribute, [&] {
      return format("there are {} axes, but {} entries of low", count, window.low.size());
    });
    require(wanted.shape.rank() == rank, codes::kShapeMismatch, [&] {
      return format("the result {} does not have the rank of the operand",
                    wanted.shape.to_string());
    });
    Shape result = shape(0);
    for (size_t i = 0; i < count; ++i) {
      const auto axis = static_cast<size_t>(window.axes[i]);
      const int64_t tap = window.taps[i];
      require_axis(tap, rank);
      require(!std::binary_search(window.axes.begin(), window.axes.end(), tap),
              codes::kBadAttribute,
              [&] { return format("axis {} is a tap, so it cannot have a window itself", tap); });
      require(
          window.strides[i] >= 1 && window.gaps[i] >= 1, codes::kBadAttribute,
          [&] {
            return format("axis {}: the stride {} or the gap {} is below 1", axis,
                          window.strides[i], window.gaps[i]);
          },
          "use reverse");
      result[axis] = wanted.shape[axis];
      // This keeps positions, and those of the transposed op, far from overflow.
      constexpr int64_t kReach = int64_t{1} << 60;
      const Expr& low = window.low[i];
      const auto fits = [&](const Expr& extent, int64_t factor) {
        const int64_t size = std::max<int64_t>(extent.range().max, 1);
        return -kReach / size <= factor && factor <= kReach / size;
      };
      require(fits(result[axis], window.strides[i]) && fits(shape(0)[axis], window.gaps[i]) &&
                  fits(shape(0)[static_cast<size_t>(tap)], window.dilations[i]) &&
                  proves_at_most(low, kReach) && proves_at_most(-kReach, low),
              codes::kBadAttribute,
              [&] { return format("axis {}: the positions of the window are too large", axis); });
    }
    require(result == wanted.shape, codes::kShapeMismatch, [&] {
      return format("the result {} differs from the operand in an axis without a window",
                    wanted.shape.to_string());
    });
    return {dtype(0), result};
  }

  TensorType operator()(const ConcatOp& concat) const {
    require(!operands.empty(), codes::kBadAttribute, "the op takes at least one operand");
    require_axis(concat.axis, shape(0).rank());
    const auto axis = static_cast<size_t>(concat.axis);
    Shape result = shape(0);
    for (size_t i = 1; i < operands.size(); ++i) {
      require_same_dtype(0, i);
      require(shape(i).rank() == result.rank(), codes::kShapeMismatch,
              [&] { return format("operands 0 and {} have different ranks", i); });
      for (size_t k = 0; k < result.rank(); ++k)
        require(k == axis || shape(i)[k] == result[k], codes::kShapeMismatch, [&] {
          return format("operands 0 and {} have different extents along axis {}", i, k);
        });
      result[axis] += shape(i)[axis];
    }
    return {dtype(0), result};
  }

  TensorType operator()(const ReverseOp& reverse) const {
    require_operands(1);
    require_increasing(reverse.axes, shape(0).rank());
    return type(0);
  }

  TensorType operator()(const IotaOp& iota) const {
    require_operands(0);
    require(kNumeric.contains(wanted.dtype), codes::kDTypeMismatch,
            [&] { return format("iota cannot count in {}", name(wanted.dtype)); });
    require_axis(iota.axis, wanted.shape.rank());
    return wanted;
  }

  TensorType operator()(const SizeOp&) const {
    require_operands(0);
    return {DType::I64, Shape()};
  }

  // x.shape with `axis` replaced by the shape of the indices.
  Shape gathered(int64_t axis) const {
    require_axis(axis, shape(0).rank());
    require(
        dtype(1) == DType::I32 || dtype(1) == DType::I64, codes::kDTypeMismatch,
        [&] { return format("the indices are {}, not i32 or i64", name(dtype(1))); },
        "insert convert(indices, i64)");
    const Expr& extent = shape(0)[static_cast<size_t>(axis)];
    // Without indices, or if their number is 0 whenever the axis is empty, nothing is looked up.
    const bool looks_up = shape(1).numel().range().max > 0 &&
                          std::find(shape(1).begin(), shape(1).end(), extent) == shape(1).end();
    require(
        !looks_up || proves_at_most(1, extent), codes::kShapeMismatch,
        [&] { return format("axis {} may be empty, and then no index is valid", axis); },
        extent.is_constant(0) ? "" : "declare a size that is at least 1");
    std::vector<Expr> dims(shape(0).begin(), shape(0).begin() + axis);
    dims.insert(dims.end(), shape(1).begin(), shape(1).end());
    dims.insert(dims.end(), shape(0).begin() + axis + 1, shape(0).end());
    return Shape(std::move(dims));
  }

  TensorType operator()(const GatherOp& gather) const {
    require_operands(2);
    return {dtype(0), gathered(gather.axis)};
  }

  TensorType operator()(const ScatterOp& scatter) const {
    require_operands(3);
    if (scatter.monoid) require_dtype(0, info(*scatter.monoid).types);
    require_same_dtype(0, 2);
    const Shape expected = gathered(scatter.axis);
    require(shape(2) == expected, codes::kShapeMismatch, [&] {
      return format("the updates have the shape {}, but the indices need {}", shape(2).to_string(),
                    expected.to_string());
    });
    return type(0);
  }

  TensorType operator()(const ReduceOp& reduce) const {
    require_operands(1);
    require_dtype(0, info(reduce.monoid).types);
    require_increasing(reduce.axes, shape(0).rank());
    std::vector<Expr> dims;
    for (size_t i = 0; i < shape(0).rank(); ++i)
      if (!std::binary_search(reduce.axes.begin(), reduce.axes.end(), static_cast<int64_t>(i)))
        dims.push_back(shape(0)[i]);
    return {dtype(0), Shape(std::move(dims))};
  }

  TensorType operator()(const ArgReduceOp& arg) const {
    require_operands(1);
    require_dtype(0, kOrdered);
    require_axis(arg.axis, shape(0).rank());
    const auto axis = static_cast<size_t>(arg.axis);
    require(proves_at_most(1, shape(0)[axis]), codes::kShapeMismatch, [&] {
      return format("axis {} may be empty, and then there is no element to choose", axis);
    });
    std::vector<Expr> dims = shape(0).dims();
    dims.erase(dims.begin() + arg.axis);
    return {DType::I64, Shape(std::move(dims))};
  }

  TensorType operator()(const ArgSortOp& sort) const {
    require_operands(1);
    require_dtype(0, kOrdered);
    require_axis(sort.axis, shape(0).rank());
    const auto axis = static_cast<size_t>(sort.axis);
    const Expr& extent = shape(0)[axis];
    require(
        extent.as_constant().has_value(), codes::kShapeMismatch,
        [&] {
          return format(
              "axis {} has the extent {}, but the extent of an axis that is sorted must be "
              "a number",
              axis, extent.to_string());
        },
        [] { return "give the axis its extent, and fill the rest with the greatest value"; });
    require(wanted.shape.rank() == shape(0).rank(), codes::kShapeMismatch, [&] {
      return format("the result {} does not have the rank of the operand",
                    wanted.shape.to_string());
    });
    const Expr& count = wanted.shape[axis];
    require(count.as_constant() && proves_at_most(count, extent), codes::kShapeMismatch, [&] {
      return format("{} indices are wanted of the {} elements along axis {}", count.to_string(),
                    extent.to_string(), axis);
    });
    Shape result = shape(0);
    result[axis] = count;
    return {DType::I64, std::move(result)};
  }

  TensorType operator()(const ScanOp& scan) const {
    const Combiner& combiner = scan.combiner;
    require_operands(combiner.parts());
    if (const auto monoid = combiner.monoid()) require_dtype(0, info(*monoid).types);
    require_axis(scan.axis, shape(0).rank());
    for (size_t i = 0; combiner.body() && i < operands.size(); ++i) {
      const DType part = combiner.body()->dtypes[i];
      require(
          compute_type(dtype(i)) == part, codes::kDTypeMismatch,
          [&] {
            return format("operand {} is {}, but the part is combined in {}", i, name(dtype(i)),
                          name(part));
          },
          [&] { return format("insert convert(operand {}, {})", i, name(part)); });
      require(shape(0) == shape(i), codes::kShapeMismatch,
              [&] { return format("the shapes of operands 0 and {} differ", i); });
    }
    require(0 <= scan.part && scan.part < static_cast<int64_t>(operands.size()),
            codes::kBadAttribute, [&] {
              return format("there is no part {}, because the tuples have {}", scan.part,
                            operands.size());
            });
    return type(static_cast<size_t>(scan.part));
  }

  TensorType operator()(const DotOp& dot) const {
    require_operands(2);
    require_dtype(0, kNumeric);
    require_same_dtype(0, 1);
    require_pairs(dot.batch_left, dot.batch_right, "batch");
    require_pairs(dot.contract_left, dot.contract_right, "contract");
    std::vector<Expr> dims;
    for (const int64_t axis : dot.batch_left) dims.push_back(shape(0)[static_cast<size_t>(axis)]);
    append_free(dims, shape(0), dot.batch_left, dot.contract_left);
    append_free(dims, shape(1), dot.batch_right, dot.contract_right);
    require(
        accumulates_as(dtype(0), wanted.dtype), codes::kDTypeMismatch,
        [&] { return format("the dtype of the result cannot be {}", name(wanted.dtype)); },
        "give the result the operands' dtype, f32 for 16-bit floats, or a wider integer dtype "
        "that holds them");
    require(!dot.tf32 || dtype(0) == DType::F32, codes::kDTypeMismatch, "tf32 needs f32 operands");
    return {wanted.dtype, Shape(std::move(dims))};
  }
  void require_pairs(const Axes& left, const Axes& right, std::string_view what) const {
    require(left.size() == right.size(), codes::kBadAttribute, [&] {
      return format("the {} axes {} x {} are not pairs", what, axes_text(left), axes_text(right));
    });
    for (size_t i = 0; i < left.size(); ++i) {
      require_axis(left[i], shape(0).rank());
      require_axis(right[i], shape(1).rank());
      require(shape(0)[static_cast<size_t>(left[i])] == shape(1)[static_cast<size_t>(right[i])],
              codes::kShapeMismatch, [&] {
                return format("the {} axes {} and {} have different extents", what, left[i],
                              right[i]);
              });
    }
  }
  // Appends the extents of the axes that are neither batched nor contracted, and checks that no
  // axis is both or is named twice.
  void append_free(std::vector<Expr>& dims, const Shape& from, const Axes& batch,
                   const Axes& contract) const {
    std::vector<bool> taken(from.rank());
    for (const Axes* axes : {&batch, &contract}) {
      for (const int64_t axis : *axes) {
        require(!taken[static_cast<size_t>(axis)], codes::kBadAttribute,
                [&] { return format("axis {} is used twice", axis); });
        taken[static_cast<size_t>(axis)] = true;
      }
    }
    for (size_t i = 0; i < from.rank(); ++i)
      if (!taken[i]) dims.push_back(from[i]);
  }

  TensorType operator()(const RandomBitsOp&) const {
    require_operands(1);
    require(type(0) == TensorType{DType::U32, {2}}, codes::kDTypeMismatch,
            "the key must be u32[2]");
    return {DType::U32, wanted.shape};
  }

  TensorType operator()(const BarrierOp&) const {
    require(!operands.empty(), codes::kBadAttribute, "the op takes at least one operand");
    return type(0);
  }

  TensorType operator()(const CollectiveOp& collective) const {
    require_operands(1);
    require_mesh_axis(collective.axis);
    if (reduces(collective.kind)) require_dtype(0, info(collective.monoid).types);
    const bool has_offset = !offset_word(collective.kind).empty();
    require(has_offset ? collective.offset >= 0 && collective.offset < collective.axis.size
                       : collective.offset == 0,
            codes::kBadAttribute, [&] {
              return format("the {} {} must be below {}, the number of devices along {}",
                            offset_word(collective.kind), collective.offset, collective.axis.size,
                            collective.axis.name);
            });
    const bool has_blocks = collective.kind == CollectiveKind::AllGather ||
                            collective.kind == CollectiveKind::ReduceScatter ||
                            collective.kind == CollectiveKind::AllToAll;
    if (!has_blocks) return type(0);
    require(shape(0).rank() > 0, codes::kShapeMismatch, "a scalar cannot be divided into blocks",
            "reshape it to one element");
    std::vector<Expr> dims = shape(0).dims();
    if (collective.kind == CollectiveKind::AllGather) {
      dims[0] *= Expr(collective.axis.size);
      return {dtype(0), Shape(std::move(dims))};
    }
    require(
        dims[0].is_multiple_of(collective.axis.size), codes::kShapeMismatch,
        [&] {
          return format("the first axis, {}, cannot be divided by the {} devices along {}",
                        dims[0].to_string(), collective.axis.size, collective.axis.name);
        },
        "pad the axis to a multiple");
    if (collective.kind == CollectiveKind::ReduceScatter)
      dims[0] = floordiv(dims[0], collective.axis.size);
    return {dtype(0), Shape(std::move(dims))};
  }
  void require_mesh_axis(const MeshAxis& axis) const {
    require(
        !axis.name.empty() && axis.size >= 1 && axis.size <= kMostDevices, codes::kBadAttribute,
        [&] { return format("an axis of a mesh needs a name and 1 to {} devices", kMostDevices); });
  }

  TensorType operator()(const AxisIndexOp& index) const {
    require_operands(0);
    require_mesh_axis(index.axis);
    return {DType::I64, Shape()};
  }

  TensorType operator()(const ConstrainOp& constrain) const {
    require_operands(1);
    const std::vector<std::string>& axes = constrain.sharding.axes();
    require(axes.size() <= shape(0).rank(), codes::kShapeMismatch, [&] {
      return format("the operand has {} axes, too few to be {}", shape(0).rank(),
                    constrain.sharding.to_string());
    });
    for (const std::string& axis : axes)
      require(axis.empty() || std::count(axes.begin(), axes.end(), axis) == 1, codes::kBadAttribute,
              [&] { return format("the axis {} of the mesh cuts one axis only", axis); });
    return type(0);
  }

  TensorType operator()(const CustomCallOp& call) const {
    require(!call.target.empty(), codes::kBadAttribute,
            "the op needs the name of the function that it calls");
    return wanted;
  }

  void check_size(const TensorType& result) const {
    const auto reject_size = [&](std::string_view why) {
      reject(codes::kBadExtent, format("the type {} {}", result.to_string(), why));
    };
    if (result.shape.rank() > kMaxRank) reject_size(format("has a rank above {}", kMaxRank));
    int64_t elements = 1;
    for (const Expr& extent : result.shape) {
      const Interval range = extent.range();
      if (!proves_at_most(0, extent))
        reject_size(format("has the extent {}, which may be negative", extent.to_string()));
      if (__builtin_mul_overflow(elements, std::max<int64_t>(range.max, 1), &elements) ||
          elements > kMaxElements)
        reject_size(format("may have more elements than a tensor can have, {}", kMaxElements));
    }
  }
};

}  // namespace

TensorType infer_type(const Op& op, std::span<const TensorType* const> operands,
                      const TensorType& wanted, SourceLocation where) {
  const Inference inference{op, operands, wanted, where};
  TensorType result = std::visit(inference, op);
  inference.check_size(result);
  return result;
}

}  // namespace braze
