// versions.cpp — which attributes and operands the operators of ONNX have in which opsets.
//
// Operators themselves have their versions in their rows. Here is what changed within those, from
// opset 7 on.
#include <algorithm>

#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

// An attribute is there in the opsets `since` to `until`.
struct AttributeRow {
  std::string_view op, attribute;
  int since = 1, until = OpRow::kNewest;
};

constexpr AttributeRow kAttributes[] = {
    {"ArgMax", "select_last_index", 12},
    {"ArgMin", "select_last_index", 12},
    {"Attention", "right_window_size", 25},
    {"Attention", "left_window_size", 25},
    {"AveragePool", "ceil_mode", 10},
    {"AveragePool", "dilations", 19},
    {"BatchNormalization", "spatial", 1, 8},
    {"BatchNormalization", "training_mode", 14},
    {"Cast", "saturate", 19},
    {"Cast", "round_mode", 24},
    {"CastLike", "saturate", 19},
    {"CastLike", "round_mode", 24},
    {"Clip", "max", 1, 10},
    {"Clip", "min", 1, 10},
    {"Constant", "sparse_value", 11},
    {"Constant", "value_strings", 12},
    {"Constant", "value_string", 12},
    {"Constant", "value_floats", 12},
    {"Constant", "value_float", 12},
    {"Constant", "value_ints", 12},
    {"Constant", "value_int", 12},
    {"DepthToSpace", "mode", 11},
    {"DequantizeLinear", "axis", 13},
    {"DequantizeLinear", "block_size", 21},
    {"DequantizeLinear", "output_dtype", 23},
    {"Dropout", "ratio", 1, 11},
    {"Dropout", "seed", 12},
    {"GRU", "layout", 14},
    {"GatherND", "batch_dims", 12},
    {"GroupNormalization", "stash_type", 21},
    {"LSTM", "layout", 14},
    {"LpPool", "ceil_mode", 18},
    {"LpPool", "dilations", 18},
    {"MaxPool", "storage_order", 8},
    {"MaxPool", "dilations", 10},
    {"MaxPool", "ceil_mode", 10},
    {"Pad", "value", 1, 10},
    {"Pad", "pads", 2, 10},
    {"QuantizeLinear", "axis", 13},
    {"QuantizeLinear", "saturate", 19},
    {"QuantizeLinear", "output_dtype", 21},
    {"QuantizeLinear", "block_size", 21},
    {"QuantizeLinear", "precision", 23},
    {"RNN", "layout", 14},
    {"Range", "stash_type", 27},
    {"ReduceL1", "axes", 1, 17},
    {"ReduceL1", "noop_with_empty_axes", 18},
    {"ReduceL2", "axes", 1, 17},
    {"ReduceL2", "noop_with_empty_axes", 18},
    {"ReduceLogSum", "axes", 1, 17},
    {"ReduceLogSum", "noop_with_empty_axes", 18},
    {"ReduceLogSumExp", "axes", 1, 17},
    {"ReduceLogSumExp", "noop_with_empty_axes", 18},
    {"ReduceMax", "axes", 1, 17},
    {"ReduceMax", "noop_with_empty_axes", 18},
    {"ReduceMean", "axes", 1, 17},
    {"ReduceMean", "noop_with_empty_axes", 18},
    {"ReduceMin", "axes", 1, 17},
    {"ReduceMin", "noop_with_empty_axes", 18},
    {"ReduceProd", "axes", 1, 17},
    {"ReduceProd", "noop_with_empty_axes", 18},
    {"ReduceSum", "axes", 1, 12},
    {"ReduceSum", "noop_with_empty_axes", 13},
    {"ReduceSumSquare", "axes", 1, 17},
    {"ReduceSumSquare", "noop_with_empty_axes", 18},
    {"Reshape", "allowzero", 14},
    {"Resize", "extrapolation_value", 11},
    {"Resize", "exclude_outside", 11},
    {"Resize", "nearest_mode", 11},
    {"Resize", "coordinate_transformation_mode", 11},
    {"Resize", "cubic_coeff_a", 11},
    {"Resize", "keep_aspect_ratio_policy", 18},
    {"Resize", "axes", 18},
    {"Resize", "antialias", 18},
    {"ScatterElements", "reduction", 16},
    {"ScatterND", "reduction", 16},
    {"Shape", "end", 15},
    {"Shape", "start", 15},
    {"Slice", "ends", 1, 9},
    {"Slice", "starts", 1, 9},
    {"Slice", "axes", 1, 9},
    {"SpaceToDepth", "mode", 28},
    {"Split", "split", 1, 12},
    {"Split", "num_outputs", 18},
    {"Squeeze", "axes", 1, 12},
    {"TopK", "k", 1, 9},
    {"TopK", "sorted", 11},
    {"TopK", "largest", 11},
    {"Unsqueeze", "axes", 1, 12},
    {"Upsample", "scales", 7, 8},
};

// Up to opset `until`, the operator has at most `most` operands, and later more.
struct OperandRow {
  std::string_view op;
  size_t most;
  int until;
};

constexpr OperandRow kOperands[] = {
    {"Attention", 6, 23},  {"Clip", 1, 10},         {"Dropout", 1, 11},
    {"Pad", 1, 10},        {"Pad", 3, 17},          {"ReduceL1", 1, 17},
    {"ReduceL2", 1, 17},   {"ReduceLogSum", 1, 17}, {"ReduceLogSumExp", 1, 17},
    {"ReduceMax", 1, 17},  {"ReduceMean", 1, 17},   {"ReduceMin", 1, 17},
    {"ReduceProd", 1, 17}, {"ReduceSum", 1, 12},    {"ReduceSumSquare", 1, 17},
    {"Resize", 2, 10},     {"Slice", 1, 9},         {"Split", 1, 12},
    {"Squeeze", 1, 12},    {"TopK", 1, 9},          {"Unsqueeze", 1, 12},
    {"Upsample", 1, 8},
};

}  // namespace

void check_node_version(const OnnxNode& n) {
  const NodeData& node = n.data();
  for (const AttributeRow& row : kAttributes) {
    if (row.op != node.op || (row.since <= n.opset() && n.opset() <= row.until)) continue;
    if (!n.has_attribute(row.attribute)) continue;
    n.refuse(
        n.opset() < row.since
            ? fmt::format("it has the attribute {} only from opset {} on", row.attribute, row.since)
            : fmt::format("it has the attribute {} only up to opset {}", row.attribute, row.until));
  }
  for (const OperandRow& row : kOperands) {
    if (row.op != node.op || n.opset() > row.until) continue;
    for (size_t i = row.most; i < n.count(); ++i)
      if (n.has(i))
        n.refuse(fmt::format("it has operand {} only from opset {} on", i, row.until + 1));
  }
}

}  // namespace braze::onnx
