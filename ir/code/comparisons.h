// comparisons.h — what stands for each comparison of two numbers: its sign, its row, its opposite.
#pragma once

#include <string_view>

#include "ir/code/code.h"

namespace braze {

/// By the number of the kind.
inline constexpr std::string_view kComparisonSigns[] = {"<", "<=", ">", ">=", "==", "!="};

struct ComparisonRow {
  IndexComparison::Kind kind;
  ElementwiseOp op;        ///< compares values so
  ElementwiseOp opposite;  ///< holds where this one does not, for all numbers but NaN
  ElementwiseOp swapped;   ///< holds for b and a where this one holds for a and b
};
/// By the number of the kind.
inline constexpr ComparisonRow kComparisonRows[] = {
    {IndexComparison::Kind::Lt, ElementwiseOp::lt, ElementwiseOp::ge, ElementwiseOp::gt},
    {IndexComparison::Kind::Le, ElementwiseOp::le, ElementwiseOp::gt, ElementwiseOp::ge},
    {IndexComparison::Kind::Gt, ElementwiseOp::gt, ElementwiseOp::le, ElementwiseOp::lt},
    {IndexComparison::Kind::Ge, ElementwiseOp::ge, ElementwiseOp::lt, ElementwiseOp::le},
    {IndexComparison::Kind::Eq, ElementwiseOp::eq, ElementwiseOp::ne, ElementwiseOp::eq},
    {IndexComparison::Kind::Ne, ElementwiseOp::ne, ElementwiseOp::eq, ElementwiseOp::ne}};

constexpr const ComparisonRow& comparison_row(IndexComparison::Kind kind) {
  return kComparisonRows[static_cast<size_t>(kind)];
}
/// Null if the op is no comparison.
constexpr const ComparisonRow* comparison_row(ElementwiseOp op) {
  for (const ComparisonRow& row : kComparisonRows)
    if (row.op == op) return &row;
  return nullptr;
}

}  // namespace braze
