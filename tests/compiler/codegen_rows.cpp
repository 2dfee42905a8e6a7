// Every machine row on every dtype against its definition, bit for bit, on values where rows go
// wrong.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ir/ops/machine_semantics.h"
#include "ir/values/half.h"
#include "tests/compiler/kernel_runner.h"

namespace braze::test {
namespace {

std::vector<uint64_t> special_values(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return {0, 1};
    case DType::I8:
    case DType::U8:
    case DType::F8E4M3:
    case DType::F8E5M2:
      return {0,  1,    2,    3,    5,    7,    8,    9,    10,   63,   64,   100,
              16, 0x7f, 0x7e, 0x80, 0x81, 0xff, 0xfe, 0x55, 0xaa, 0x7c, 0x7b, 0xfc};
    case DType::I16:
    case DType::U16:
      return {0,   1,   2,      3,      7,      15,     16,     17,     100,    255,
              256, 257, 0x7fff, 0x7ffe, 0x8000, 0x8001, 0xffff, 0xfffe, 0x5555, 0xaaaa};
    case DType::I32:
    case DType::U32:
      return {0,          1,          2,          3,          7,          31,
              32,         33,         64,         100,        0x7fffffff, 0x7ffffffe,
              0x80000000, 0x80000001, 0xffffffff, 0xfffffffe, 65,         0x00ffffff,
              0x01000001, 0x7fffff80, 0xffffff7f, 0x55555555, 0xaaaaaaaa, 16777217};
    case DType::I64:
    case DType::U64:
      return {0,
              1,
              2,
              3,
              7,
              31,
              32,
              63,
              64,
              65,
              100,
              0x7fffffffffffffff,
              0x8000000000000000,
              0x8000000000000001,
              0xffffffffffffffff,
              0xfffffffffffffffe,
              0x7fffffff,
              0x80000000,
              0x100000000,
              0x20000000000001,
              0x7ffffffffffffc00,
              0x7ffffffffffffe01,
              0x400000800000001,
              0xfffffffff0000001,
              0x0000004000001001,
              0xffdfffffffffffff,
              0x7fefffffffffffff,
              0x8080000000000001,
              0x8080000000000000,
              0xfffffffffffffc00,
              0x8000008000000001,
              2049,
              65520};
    case DType::F16:
    case DType::BF16: {
      std::vector<uint64_t> out = {0, 0x8000, 1, 0x8001, 0x7fff, 0xffff};
      for (double v : {1.0, -1.0, 1.5, 2.0, 0.5, -2.5, 3.0, 100.0, 65504.0, -65504.0, HUGE_VAL,
                       -HUGE_VAL, 0.1})
        out.push_back(dtype == DType::F16 ? double_to_f16(v) : double_to_bf16(v));
      return out;
    }
    case DType::F32: {
      std::vector<uint64_t> out = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                   0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                   0x7fc00000, 0xffc00001, 0x4effffff, 0x4f000000, 0x4f7fffff,
                                   0x4f800000, 0x5effffff, 0x5f000000, 0xcf000000, 0xcf000001,
                                   0xdf000000, 0x477ff000, 0x477fefff, 0x33000000, 0x33000001,
                                   0x387fc000, 0x3f808000, 0x3f818000, 0x3f808001, 0x7f7f8000};
      for (float v : {1.0f, -1.0f, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, 3.0f, 1e10f, 0.1f, 4194304.5f})
        out.push_back(std::bit_cast<uint32_t>(v));
      return out;
    }
    case DType::F64: {
      std::vector<uint64_t> out;
      for (double v : {0.0,
                       -0.0,
                       1.0,
                       -1.0,
                       0.5,
                       -0.5,
                       1.5,
                       2.5,
                       -2.5,
                       3.0,
                       1e10,
                       0.1,
                       1e300,
                       -1e300,
                       5e-324,
                       2.2250738585072014e-308,
                       1.7976931348623157e308,
                       2147483647.5,
                       -2147483648.5,
                       2147483648.0,
                       4294967295.5,
                       4294967296.0,
                       9223372036854775807.0,
                       -9223372036854775808.0,
                       9223372036854774784.0,
                       65519.99999999999,
                       65520.0,
                       65504.00000001,
                       5.960464477539063e-08,
                       2.9802322387695312e-08,
                       2.980232238769532e-08,
                       1.00048828125,
                       1.000488281250001,
                       1.00390625,
                       1.0039062500000002,
                       3.3895313892515355e+38,
                       3.4e38,
                       3.4028235677973366e38,
                       9.183549615799121e-41,
                       4.591774807899561e-41,
                       4.5917748078995606e-41,
                       1e-45,
                       7e-46,
                       double(INFINITY),
                       -double(INFINITY),
                       double(NAN)})
        out.push_back(std::bit_cast<uint64_t>(v));
      out.push_back(0xfff8000000000001);
      return out;
    }
  }
  return {};
}

bool is_nan_bits(DType dtype, uint64_t bits) {
  return is_floating(dtype) && std::isnan(bits_to_double(dtype, bits));
}

uint64_t read(const std::vector<std::byte>& bytes, DType dtype, size_t i) {
  uint64_t out = 0;
  std::memcpy(&out, bytes.data() + i * size_of(dtype), size_of(dtype));
  return out;
}

std::vector<std::byte> pack(DType dtype, const std::vector<uint64_t>& values) {
  std::vector<std::byte> out(values.size() * size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i)
    std::memcpy(out.data() + i * size_of(dtype), &values[i], size_of(dtype));
  return out;
}

// y[i] = row(x0[i], x1[i], ..) for i < n, `lanes` at a time; n is a multiple of 64.
Kernel row_kernel(ElementwiseOp op, const std::vector<DType>& operands, DType result,
                  int32_t lanes) {
  Kernel kernel;
  kernel.name = "row";
  const Expr n = Expr::symbol("n", {0, 1 << 30}, 64);
  kernel.symbols = {n};
  CodeBuilder builder(kernel);
  std::vector<MemoryId> in;
  for (size_t i = 0; i < operands.size(); ++i)
    in.push_back(
        builder.add_memory({.name = "x" + std::to_string(i), .dtype = operands[i], .shape = {n}}));
  const MemoryId out =
      builder.add_memory({.name = "y", .mode = Mode::Out, .dtype = result, .shape = {n}});
  Region body;
  builder.enter(body);
  builder.for_loop("j", 0, n, lanes, {}, [&](Expr j, const std::vector<ValueId>&) {
    const Expr at = lanes == 1 ? j : j + lane_symbol(lanes);
    std::vector<ValueOperand> values;
    for (size_t i = 0; i < operands.size(); ++i)
      values.emplace_back(builder.load(in[i], {at}, {operands[i], lanes, {}}));
    builder.store(builder.row(op, values, result), out, {at});
    return std::vector<ValueOperand>{};
  });
  builder.leave();
  kernel.phases.push_back({{}, body});
  return kernel;
}

// Rows for bodies alone are defined to within an error, where operand and result are normal numbers
// and not the largest.
bool keeps_inner_promise(double x, double want, double got) {
  const auto outside = [](double v) {
    return !(std::fabs(v) >= 0x1p-126 && std::fabs(v) <= 0x1p126);
  };
  return outside(x) || outside(want) || std::fabs(got - want) <= 0x1p-22 * std::fabs(want);
}

// Checks the row on the given operand columns.
void check_row(ElementwiseOp op, const std::vector<DType>& operands, DType result,
               std::vector<std::vector<uint64_t>> columns, std::string_view target_name,
               int32_t lanes) {
  const size_t count = columns[0].size(), padded = (count + 63) / 64 * 64;
  for (auto& column : columns) column.resize(padded, column[0]);
  std::vector<std::vector<std::byte>> inputs;
  std::vector<void*> buffers;
  for (size_t i = 0; i < columns.size(); ++i) inputs.push_back(pack(operands[i], columns[i]));
  for (auto& input : inputs) buffers.push_back(input.data());
  std::vector<std::byte> output(padded * size_of(result), std::byte{0xcd});
  buffers.push_back(output.data());
  KernelRunner runner(row_kernel(op, operands, result, lanes), target_name);
  runner.run(buffers, {static_cast<int64_t>(padded)});
  int shown = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto column = [&](size_t c) { return c < columns.size() ? columns[c][i] : 0; };
    const uint64_t want =
        evaluate_machine(op, operands.back(), result, column(0), column(1), column(2));
    const uint64_t got = read(output, result, i);
    if (got == want || (is_nan_bits(result, got) && is_nan_bits(result, want))) continue;
    if (info(op).inner &&
        keeps_inner_promise(bits_to_double(result, column(0)), bits_to_double(result, want),
                            bits_to_double(result, got)))
      continue;
    ADD_FAILURE() << name(op) << " " << name(operands.back()) << " -> " << name(result) << " lanes "
                  << lanes << " " << target_name << std::hex << ": (" << column(0) << ", "
                  << column(1) << ", " << column(2) << ") gives " << got << ", not " << want;
    if (++shown == 5) return;
  }
}

std::vector<std::vector<uint64_t>> all_combinations(const std::vector<DType>& operands) {
  std::vector<std::vector<uint64_t>> columns(operands.size());
  std::vector<std::vector<uint64_t>> values;
  for (DType d : operands) values.push_back(special_values(d));
  std::vector<size_t> at(operands.size(), 0);
  while (true) {
    for (size_t i = 0; i < at.size(); ++i) columns[i].push_back(values[i][at[i]]);
    size_t d = 0;
    while (d < at.size() && ++at[d] == values[d].size()) at[d++] = 0;
    if (d == at.size()) break;
  }
  return columns;
}

// Random operands beside the special ones.
void add_random(std::vector<std::vector<uint64_t>>& columns, const std::vector<DType>& operands,
                size_t count) {
  std::mt19937_64 random(7);
  for (size_t i = 0; i < count; ++i)
    for (size_t c = 0; c < operands.size(); ++c) {
      uint64_t bits = random();
      if (operands[c] == DType::Bool)
        bits &= 1;
      else if (is_integer(operands[c]) && random() % 2)
        bits = random() % 70;
      columns[c].push_back(bits & (~uint64_t{0} >> (64 - 8 * size_of(operands[c]))));
    }
}

class Rows : public testing::TestWithParam<std::string_view> {};

TEST_P(Rows, MatchTheirDefinition) {
  for (size_t i = 0; i < kMachineOpCount; ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    const ElementwiseInfo& row = info(op);
    if (op == ElementwiseOp::convert || op == ElementwiseOp::bitcast) continue;
    for (DType dtype : kAllDTypes) {
      const DType result = result_dtype(row.result, dtype, dtype);
      if (!machine_function(op, dtype, result)) continue;
      std::vector<DType> operands(row.arity, dtype);
      if (op == ElementwiseOp::select) operands[0] = DType::Bool;
      auto columns = all_combinations(operands);
      add_random(columns, operands, 1000);
      for (int32_t lanes : {1, 8, 16}) check_row(op, operands, result, columns, GetParam(), lanes);
    }
  }
}

TEST_P(Rows, ConversionsMatch) {
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      auto columns = all_combinations({from});
      if (is_half(from) || size_of(from) == 1) {
        columns[0].resize(from == DType::Bool ? 2 : size_t{1} << (8 * size_of(from)));
        std::iota(columns[0].begin(), columns[0].end(), 0);
      }
      add_random(columns, {from}, 2000);
      for (int32_t lanes : {1, 2, 4, 8, 16, 64})
        check_row(ElementwiseOp::convert, {from}, to, columns, GetParam(), lanes);
      if (size_of(from) == size_of(to) && from != DType::Bool && to != DType::Bool)
        check_row(ElementwiseOp::bitcast, {from}, to, columns, GetParam(), 8);
    }
}

// Every short result and both neighbours of every border between two of them.
TEST_P(Rows, NarrowingRoundsEverywhere) {
  for (DType to : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2})
    for (DType from : {DType::F32, DType::F64}) {
      std::vector<uint64_t> column;
      for (uint64_t bits = 0; bits + 1 < uint64_t{1} << (8 * size_of(to) - 1); ++bits) {
        const auto value = [&](uint64_t b) { return bits_to_double(to, b); };
        const double middle = std::isfinite(value(bits + 1))
                                  ? (value(bits) + value(bits + 1)) / 2
                                  : value(bits) * (1 + std::ldexp(1, -info(to).fraction - 2));
        if (std::isnan(middle) || std::isinf(middle)) continue;
        for (double v :
             {value(bits), middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e300),
              double(std::nextafterf(float(middle), 0.0f)),
              double(std::nextafterf(float(middle), INFINITY))}) {
          column.push_back(from == DType::F32 ? std::bit_cast<uint32_t>(float(v))
                                              : std::bit_cast<uint64_t>(v));
          column.push_back(column.back() | (from == DType::F32 ? 0x80000000ull : 1ull << 63));
        }
      }
      check_row(ElementwiseOp::convert, {from}, to, {column}, GetParam(), 8);
      check_row(ElementwiseOp::convert, {from}, to, {column}, GetParam(), 1);
    }
}

// Rows with a constant operand take other paths.
TEST_P(Rows, ConstantOperands) {
  using enum ElementwiseOp;
  for (ElementwiseOp op : {min, max, div, rem, shl, shr})
    for (DType dtype : {DType::I32, DType::U32, DType::I64, DType::U64, DType::I16, DType::U16,
                        DType::F32, DType::F64}) {
      if (!machine_function(op, dtype, dtype)) continue;
      const std::vector<uint64_t> values = special_values(dtype);
      for (size_t v = 0; v < values.size(); ++v) {
        const int32_t lanes = v % 2 ? 8 : 1;
        Kernel kernel = row_kernel(op, {dtype, dtype}, dtype, lanes);
        auto& loop = *kernel.phases[0].body.statements[0].as<ForOp>();
        for (Statement& s : loop.body->statements)
          if (auto* row = s.as<RowOp>()) row->operands[1] = ValueOperand::literal(dtype, values[v]);
        std::vector<uint64_t> column = values;
        const size_t count = column.size();
        column.resize(64, 0);
        auto x = pack(dtype, column), unused = x, y = x;
        KernelRunner runner(kernel, GetParam());
        runner.run({x.data(), unused.data(), y.data()}, {64});
        for (size_t i = 0; i < count; ++i) {
          const uint64_t want = evaluate_machine(op, dtype, dtype, column[i], values[v]),
                         got = read(y, dtype, i);
          EXPECT_TRUE(got == want || (is_nan_bits(dtype, got) && is_nan_bits(dtype, want)))
              << name(op) << " " << name(dtype) << std::hex << " " << column[i] << " " << values[v]
              << ": " << got << " not " << want;
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, Rows, testing::ValuesIn(host_targets()), [](const auto& i) {
  return std::string(i.param.substr(i.param.size() - 2));
});

}  // namespace
}  // namespace braze::test
