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

// What a line of hexadecimal numbers holds.
std::vector<uint64_t> numbers_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<uint64_t> out;
  for (uint64_t number = 0; in >> std::hex >> number;) out.push_back(number);
  return out;
}

// Floats for storage alone, which golden_stored.txt has of ml_dtypes.
TEST(Golden, StoredFloatsAreMlDtypes) {
  std::ifstream file(test::source_path("tests/ops/golden_stored.txt"));
  std::set<DType> seen;
  const auto converted = [](DType from, DType to, uint64_t bits) {
    return evaluate_machine(ElementwiseOp::convert, from, to, bits);
  };
  const auto is_nan = [](DType dtype, uint64_t bits) {
    return std::isnan(bits_to_double(dtype, bits));
  };
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("//")) continue;
    const size_t colon = line.find(':');
    const DType dtype = parse_dtype(line.substr(0, colon)).value();
    const std::vector<uint64_t> values = numbers_of(line.substr(colon + 1));
    ASSERT_EQ(values.size(), 256u);
    for (uint64_t bits = 0; bits < 256; ++bits) {
      const uint64_t value = values[bits];
      if (is_nan(DType::F32, value)) {
        EXPECT_TRUE(is_nan(dtype, bits)) << name(dtype) << " " << bits;
      } else {
        EXPECT_EQ(converted(dtype, DType::F32, bits), value) << name(dtype) << " " << bits;
      }
    }
    std::string given, expected;
    std::getline(file, given);
    std::getline(file, expected);
    const std::vector<uint64_t> from = numbers_of(given), to = numbers_of(expected);
    ASSERT_EQ(from.size(), to.size());
    ASSERT_GT(from.size(), 500u);
    for (size_t i = 0; i < from.size(); ++i) {
      const uint64_t got = converted(DType::F32, dtype, from[i]);
      EXPECT_TRUE(got == to[i] || (is_nan(dtype, got) && is_nan(dtype, to[i])))
          << name(dtype) << " of " << bits_to_double(DType::F32, from[i]) << " is " << got
          << ", expected " << to[i];
      // By way of f64 it is the same number.
      const uint64_t wide = converted(DType::F32, DType::F64, from[i]);
      EXPECT_EQ(converted(DType::F64, dtype, wide), got);
    }
    seen.insert(dtype);
  }
  for (const DType dtype : kAllDTypes)
    EXPECT_EQ(seen.contains(dtype), is_stored_float(dtype)) << name(dtype);
}

}  // namespace
}  // namespace braze
