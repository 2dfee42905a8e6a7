// text_p.h — the words that the printer and the parser of loop trees share.
#pragma once

#include <string_view>

#include "compiler/loops/tree.h"
#include "ir/code/comparisons.h"

namespace braze {

// Indexed by the numbers of the enumerations.
inline constexpr std::string_view kModeNames[] = {"in", "out", "inout"};
inline constexpr std::string_view kStorageNames[] = {"registers", "chip", "workspace", "result"};
inline constexpr std::string_view kCombineNames[] = {"", "rank", "phase"};
inline constexpr std::string_view kUnitNames[] = {"", "fma", "mma", "wgmma"};
inline constexpr std::string_view kMachineNames[] = {"", "grid", "rank", "group"};
inline constexpr std::string_view kOrderNames[] = {"rows",    "columns", "band",
                                                   "grouped", "longest", "persistent"};
inline constexpr std::string_view kCacheNames[] = {"", "stream", "keep"};

/// A row that is written between its operands.
struct InfixRow {
  ElementwiseOp op;
  std::string_view sign;
  int binds;  ///< how tightly it binds its operands
};
inline constexpr int kComparisonBinds = 1, kTermBinds = 2, kFactorBinds = 3;
inline constexpr InfixRow kInfixRows[] = {
    {ElementwiseOp::lt, "<", kComparisonBinds},  {ElementwiseOp::le, "<=", kComparisonBinds},
    {ElementwiseOp::gt, ">", kComparisonBinds},  {ElementwiseOp::ge, ">=", kComparisonBinds},
    {ElementwiseOp::eq, "==", kComparisonBinds}, {ElementwiseOp::ne, "!=", kComparisonBinds},
    {ElementwiseOp::add, "+", kTermBinds},       {ElementwiseOp::sub, "-", kTermBinds},
    {ElementwiseOp::mul, "*", kFactorBinds},     {ElementwiseOp::div, "/", kFactorBinds}};
const InfixRow* infix_row(ElementwiseOp op);

/// The number of the first operand of `op` from which on all operands have one dtype.
constexpr size_t first_of_one_dtype(ElementwiseOp op) { return op == ElementwiseOp::select; }

/// The dtype of the value that `task` makes, if the text states none.
DType default_dtype(const LoopTask& task);

}  // namespace braze
