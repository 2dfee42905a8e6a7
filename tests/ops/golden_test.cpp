// Every elementwise op at the points of golden.txt, whose values come from elsewhere. Interpreter
// and code generators read the same row of elementwise.def; this is what a wrong row fails.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ir/graph/constant_text.h"
#include "ir/graph/interpret.h"
#include "ir/ops/elementwise.h"
#include "ir/support/scanner.h"
#include "tests/source_path.h"

namespace braze {
namespace {

uint64_t parse_element(Scanner& scanner, DType dtype) {
  return parse_constant(scanner, {dtype, {}}).get_bits(0);
}

HostTensor tensor_of(DType dtype, uint64_t bits) {
  HostTensor tensor(dtype, {});
  tensor.set_bits(0, bits);
  return tensor;
}

// Finite floats of one sign are ordered as their bits are.
int64_t ulps_between(DType dtype, uint64_t a, uint64_t b) {
  if (a == b) return 0;
  const uint64_t sign = uint64_t{1} << (8 * size_of(dtype) - 1);
  if ((a ^ b) & sign) return INT64_MAX;
  return std::abs(static_cast<int64_t>(a) - static_cast<int64_t>(b));
}

// Machine rows are exact; the others may lose what their rounded steps lose.
int64_t allowed_ulps(ElementwiseOp op, DType dtype) {
  if (is_machine(op) || !is_floating(dtype)) return 0;
  return is_half(dtype) ? 1 : 8;
}

TEST(Golden, EveryOpAgrees) {
  std::ifstream file(test::source_path("tests/ops/golden.txt"));
  std::stringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  Scanner scanner(text, "golden.txt");

  std::map<ElementwiseOp, std::set<DType>> seen;
  while (!scanner.at_end()) {
    const uint32_t line = scanner.peek().line;
    const std::string_view name = scanner.expect_identifier("an op");
    const ElementwiseOp op = parse_elementwise(name).value();
    const ElementwiseInfo& row = info(op);
    const DType operand = parse_dtype(scanner.expect_identifier("a dtype")).value();
    DType result = row.result == ResultRule::Boolean ? DType::Bool : operand;
    if (scanner.accept("to")) result = parse_dtype(scanner.expect_identifier("a dtype")).value();
    scanner.expect(":");
    do {
      scanner.expect("(");
      std::vector<HostTensor> operands;
      for (int i = 0; i < row.arity; ++i) {
        if (i) scanner.expect(",");
        const bool condition = op == ElementwiseOp::select && i == 0;
        const DType dtype = condition ? DType::Bool : operand;
        operands.push_back(tensor_of(dtype, parse_element(scanner, dtype)));
      }
      scanner.expect(")");
      scanner.expect("=");
      const HostTensor expected = tensor_of(result, parse_element(scanner, result));
      std::vector<const HostTensor*> pointers;
      for (const HostTensor& tensor : operands) pointers.push_back(&tensor);
      const HostTensor got = evaluate_map(op, pointers, result);
      if (!identical(got, expected)) {
        EXPECT_LE(ulps_between(result, got.get_bits(0), expected.get_bits(0)),
                  allowed_ulps(op, result))
            << "line " << line << ": " << name << " of " << operands[0].to_string() << " is "
            << got.to_string() << ", expected " << expected.to_string();
      }
    } while (scanner.accept(","));
    seen[op].insert(operand);
  }
  for (size_t i = 0; i < elementwise_table().size(); ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    if (op == ElementwiseOp::bitcast) continue;
    for (const DType dtype : kAllDTypes)
      EXPECT_EQ(seen[op].contains(dtype), info(op).types.contains(dtype))
          << info(op).name << " " << name(dtype);
  }
}

}  // namespace
}  // namespace braze
