// Accesses, guards, loops, folds, phases and local memory in images, against plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ir/values/half.h"
#include "tests/compiler/guarded.h"
#include "tests/compiler/kernel_runner.h"

namespace braze::test {
namespace {

using Kind = IndexComparison::Kind;

// A kernel under construction, with one phase.
struct Draft {
  Kernel kernel;
  CodeBuilder b{kernel};
  Region body;
  Expr n = Expr::symbol("n", {0, 1 << 30});

  Draft() {
    kernel.name = "test";
    kernel.symbols = {n};
    b.enter(body);
  }
  MemoryId in(DType dtype) { return b.add_memory({.name = "x", .dtype = dtype, .shape = {n}}); }
  MemoryId out(DType dtype, Mode mode = Mode::Out) {
    return b.add_memory({.name = "y", .mode = mode, .dtype = dtype, .shape = {n}});
  }
  ValueId one(StatementOp op, ValueType type) {
    return b.append(std::move(op), {std::move(type)})[0];
  }
  void finish(std::vector<GridAxis> grid = {}) {
    b.leave();
    kernel.phases.push_back({std::move(grid), std::move(body)});
    body = {};
  }
  void next_phase(std::vector<GridAxis> grid = {}) {
    finish(std::move(grid));
    b.enter(body);
  }
};

Guard below(const Expr& a, const Expr& b) { return {{{a, Kind::Lt, b}}, {}}; }

std::vector<float> ramp(size_t n, float from = 1) {
  std::vector<float> out(n);
  std::iota(out.begin(), out.end(), from);
  return out;
}

class Images : public ::testing::TestWithParam<std::string_view> {};

// y = x where j < n, with bytes behind both ends that must stay.
TEST_P(Images, TailsOfEveryLength) {
  for (DType dtype : {DType::F32, DType::BF16, DType::Bool, DType::F64})
    for (int32_t lanes : {1, 4, 8, 16}) {
      Draft d;
      const MemoryId x = d.in(dtype), y = d.out(dtype);
      const ValueType type{dtype, lanes, {2}};
      const Expr e = position_symbol('e', 0, 2), lane = lanes == 1 ? Expr(0) : lane_symbol(lanes);
      d.b.for_loop("j", 0, d.n, 2 * lanes, {}, [&](Expr j, const std::vector<ValueId>&) {
        const Expr at = j + e * Expr(lanes) + lane;
        d.b.store(d.b.load(x, {at}, type, below(at, d.n), 0), y, {at}, below(at, d.n));
        return std::vector<ValueOperand>{};
      });
      d.finish();
      KernelRunner runner(d.kernel, GetParam());
      const size_t bytes = size_of(dtype);
      for (int64_t n = 0; n <= 130; ++n) {
        const size_t used = static_cast<size_t>(n) * bytes;
        std::vector<uint8_t> from(used), to(used + 128, 0xcd);
        for (size_t i = 0; i < used; ++i)
          from[i] = static_cast<uint8_t>(dtype == DType::Bool ? i % 3 == 0 : i * 7 + 1);
        runner.run({from.data(), to.data() + 64}, {n});
        for (size_t i = 0; i < to.size(); ++i) {
          const bool inside = i >= 64 && i < 64 + used;
          ASSERT_EQ(to[i], inside ? from[i - 64] : 0xcd)
              << name(dtype) << " lanes " << lanes << " n " << n << " byte " << i;
        }
      }
    }
}

// Rows that lie along the elements of a tile are loaded as vectors and transposed: whole, with
// fewer rows than lanes, and with fewer elements. Nothing is read behind the last row.
TEST_P(Images, TransposedLoads) {
  constexpr int64_t kRowElements = 37, kElements = 32;
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::I8, DType::Bool})
    for (int32_t lanes : {4, 8, 16})
      for (const std::string guarded : {"", "lanes", "elements", "both"}) {
        Draft d;
        const MemoryId x = d.in(dtype), y = d.out(dtype);
        const Expr e = position_symbol('e', 0, kElements), lane = lane_symbol(lanes);
        Guard guard;
        if (guarded == "lanes" || guarded == "both")
          guard.condition.push_back({lane, Kind::Lt, d.n});
        if (guarded == "elements" || guarded == "both")
          guard.condition.push_back({e, Kind::Lt, d.n * Expr(2)});
        d.b.store(
            d.b.load(x, {lane * Expr(kRowElements) + e}, {dtype, lanes, {kElements}}, guard, 1), y,
            {e * Expr(lanes) + lane});
        d.finish();
        KernelRunner runner(d.kernel, GetParam());
        const size_t bytes = size_of(dtype);
        uint64_t fill = 1;
        for (int64_t n = 0; n <= 20; ++n) {
          const int64_t rows =
              guarded == "lanes" || guarded == "both" ? std::min<int64_t>(n, lanes) : lanes;
          const int64_t columns = guarded == "elements" || guarded == "both"
                                      ? std::min<int64_t>(2 * n, kElements)
                                      : kElements;
          std::vector<uint8_t> values(static_cast<size_t>(lanes * kRowElements) * bytes);
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<uint8_t>(dtype == DType::Bool ? i % 3 == 0 : i * 7 + i / 256);
          // The last element that exists ends at a page that cannot be read.
          const int64_t used = rows > 0 && columns > 0 ? (rows - 1) * kRowElements + columns : 0;
          const size_t used_bytes = static_cast<size_t>(used) * bytes;
          const testing::GuardedMemory memory(used_bytes, testing::Guard::Behind);
          std::byte* const from = memory.data() + (64 - used_bytes % 64) % 64;
          std::memcpy(from, values.data(), used_bytes);
          std::vector<uint8_t> to(static_cast<size_t>(lanes * kElements) * bytes);
          runner.run({from, to.data()}, {n});
          for (int64_t k = 0; k < kElements; ++k)
            for (int64_t l = 0; l < lanes; ++l) {
              const auto at = static_cast<size_t>(l * kRowElements + k) * bytes;
              const uint8_t* const want =
                  l < rows && k < columns ? &values[at] : reinterpret_cast<const uint8_t*>(&fill);
              ASSERT_EQ(0,
                        std::memcmp(&to[static_cast<size_t>(k * lanes + l) * bytes], want, bytes))
                  << name(dtype) << " lanes " << lanes << " guard " << guarded << " n " << n
                  << " element " << k << " lane " << l;
            }
        }
      }
}

// Lanes that lie near each other in another order than memory's: strided, backwards, in pairs, and
// some of them masked. Nothing is read outside the places of the lanes that are loaded.
TEST_P(Images, LanesInAnyOrder) {
  struct Order {
    const char* text;
    Expr (*place)(const Expr& lane);
    std::function<bool(int64_t)> loads = [](int64_t) { return true; };
    std::optional<IndexComparison> mask = std::nullopt;
  };
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::I8, DType::Bool})
    for (int32_t lanes : {4, 8, 16}) {
      const Expr lane = lane_symbol(lanes), parity = mod(lane, 2);
      const Order orders[] = {
          {"every second", [](const Expr& l) { return l * Expr(2); }},
          {"every third", [](const Expr& l) { return l * Expr(3); }},
          {"far apart", [](const Expr& l) { return l * Expr(29); }},
          {"backwards", [](const Expr& l) { return Expr(40) - l; }},
          {"twice", [](const Expr& l) { return floordiv(l, 2); }},
          {"in turns", [](const Expr& l) { return mod(l, 4); }},
          {"crossed", [](const Expr& l) { return l + Expr(1) - mod(l, 2) * Expr(2); }},
          {"even", [](const Expr& l) { return floordiv(l, 2) * Expr(2); },
           [](int64_t l) { return l % 2 == 0; }, IndexComparison{parity, Kind::Lt, 1}},
          {"odd", [](const Expr& l) { return floordiv(l, 2) * Expr(2) + Expr(1); },
           [](int64_t l) { return l % 2 == 1; }, IndexComparison{parity, Kind::Ge, 1}},
          {"the middle", [](const Expr& l) { return l * Expr(2); },
           [](int64_t l) { return l == 1 || l == 2; },
           IndexComparison{mod(floordiv(lane + Expr(1), 2), 8), Kind::Eq, 1}},
          {"one place", [](const Expr& l) { return mod(l, 2); },
           [](int64_t l) { return l % 2 == 0; }, IndexComparison{parity, Kind::Lt, 1}},
          {"none", [](const Expr& l) { return l * Expr(2); }, [](int64_t) { return false; },
           IndexComparison{parity, Kind::Gt, 1}},
      };
      for (const Order& order : orders)
        for (const bool guarded : {false, true}) {
          Draft d;
          const MemoryId x = d.in(dtype), y = d.out(dtype);
          const Expr e = position_symbol('e', 0, 2);
          const int64_t row = 29 * lanes;
          Guard guard;
          if (order.mask) guard.condition.push_back(*order.mask);
          if (guarded) guard.condition.push_back({e, Kind::Lt, d.n});
          d.b.store(d.b.load(x, {order.place(lane) + e * Expr(row)}, {dtype, lanes, {2}}, guard, 1),
                    y, {e * Expr(lanes) + lane});
          d.finish();
          KernelRunner runner(d.kernel, GetParam());
          const size_t bytes = size_of(dtype);
          const uint64_t fill = 1;
          const auto place = [&](int64_t k, int64_t l) {
            return *order.place(lane).substitute("lane", Expr(l)).as_constant() + k * row;
          };
          for (int64_t n = guarded ? 0 : 2; n <= 2; ++n) {
            int64_t least = std::numeric_limits<int64_t>::max(), end = 0;
            for (int64_t k = 0; k < n; ++k)
              for (int64_t l = 0; l < lanes; ++l)
                if (order.loads(l)) {
                  least = std::min(least, place(k, l));
                  end = std::max(end, place(k, l) + 1);
                }
            if (end == 0) least = 0;
            for (const auto where : {testing::Guard::Before, testing::Guard::Behind}) {
              const size_t used = static_cast<size_t>(end - least) * bytes;
              const testing::GuardedMemory memory(used, where);
              std::byte* const first =
                  memory.data() + (where == testing::Guard::Behind ? (64 - used % 64) % 64 : 0);
              for (size_t i = 0; i < used; ++i)
                first[i] = std::byte(dtype == DType::Bool ? i % 3 == 0 : (i * 7 + i / 256) % 251);
              std::vector<uint8_t> to(static_cast<size_t>(2 * lanes) * bytes);
              runner.run({first - static_cast<size_t>(least) * bytes, to.data()}, {n});
              for (int64_t k = 0; k < 2; ++k)
                for (int64_t l = 0; l < lanes; ++l) {
                  const void* want = &fill;
                  if (k < n && order.loads(l))
                    want = first + static_cast<size_t>(place(k, l) - least) * bytes;
                  ASSERT_EQ(
                      0, std::memcmp(&to[static_cast<size_t>(k * lanes + l) * bytes], want, bytes))
                      << name(dtype) << " lanes " << lanes << " " << order.text << " n " << n
                      << " element " << k << " lane " << l;
                }
            }
          }
        }
    }
}

TEST_P(Images, MaskedLoadsFill) {
  for (DType dtype : {DType::F32, DType::F16, DType::Bool, DType::I64}) {
    Draft d;
    const MemoryId x = d.in(dtype), y = d.out(dtype);
    const Expr at = position_symbol('e', 0, 3) * Expr(8) + lane_symbol(8);
    d.b.store(d.b.load(x, {at}, {dtype, 8, {3}}, below(at, d.n), 1), y, {at});
    d.finish();
    KernelRunner runner(d.kernel, GetParam());
    for (int64_t n = 0; n <= 24; ++n) {
      const size_t bytes = size_of(dtype);
      std::vector<uint8_t> from(static_cast<size_t>(n) * bytes, 0), to(24 * bytes, 0xcd);
      runner.run({from.data(), to.data()}, {n});
      for (size_t i = 0; i < 24; ++i) {
        uint64_t got = 0;
        std::memcpy(&got, &to[i * bytes], bytes);
        ASSERT_EQ(got, static_cast<int64_t>(i) < n ? 0u : 1u)
            << name(dtype) << " " << n << " " << i;
      }
    }
  }
}

// Rows beyond m are not touched; no lane appears in the guard.
TEST_P(Images, GuardsFreeOfLane) {
  Draft d;
  const MemoryId x = d.in(DType::F32), y = d.out(DType::F32);
  const Expr e = position_symbol('e', 0, 6), at = e * Expr(8) + lane_symbol(8);
  const ValueId v = d.b.load(x, {at}, {DType::F32, 8, {6}}, below(e, d.n), 0x3f800000);
  d.b.store(v, y, {at + Expr(48)});
  d.b.store(v, y, {at}, below(e, d.n));
  d.finish();
  KernelRunner runner(d.kernel, GetParam());
  for (int64_t m = 0; m <= 6; ++m) {
    std::vector<float> from = ramp(static_cast<size_t>(m) * 8, 5), to(96, -1);
    runner.run({from.data(), to.data()}, {m});
    for (size_t i = 0; i < 48; ++i) {
      EXPECT_EQ(to[48 + i], i < from.size() ? from[i] : 1.0f);
      EXPECT_EQ(to[i], i < from.size() ? from[i] : -1.0f);
    }
  }
}

// A tile of a matrix at its corner: rows beyond m and columns beyond n stay.
TEST_P(Images, TailsOfRowsAndColumns) {
  for (DType dtype : {DType::F32, DType::F16}) {
    Draft d;
    const Expr m = Expr::symbol("m", {0, 1 << 20}), pitch = Expr::symbol("pitch", {20, 20000});
    d.kernel.symbols.push_back(m);
    d.kernel.symbols.push_back(pitch);
    const MemoryId x = d.in(dtype), y = d.out(dtype);
    const Expr row = position_symbol('e', 0, 3),
               column = position_symbol('e', 1, 2) * Expr(8) + lane_symbol(8);
    const Guard guard{{{row, Kind::Lt, m}, {column, Kind::Lt, d.n}}, {}};
    const ValueId v = d.b.load(x, {row * pitch + column}, {dtype, 8, {3, 2}}, guard, 7);
    d.b.store(v, y, {row * Expr(20) + column}, guard);
    d.b.store(v, y, {row * Expr(16) + column + Expr(60)});
    d.finish();
    KernelRunner runner(d.kernel, GetParam());
    const size_t bytes = size_of(dtype);
    for (int64_t rows = 0; rows <= 4; ++rows)
      for (int64_t n = 0; n <= 17; ++n) {
        std::vector<uint8_t> from(60 * bytes), to(108 * bytes, 0xcd);
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i + 1);
        runner.run({from.data(), to.data()}, {n, rows, 20});
        const auto at = [&](const std::vector<uint8_t>& data, size_t i) {
          uint64_t bits = 0;
          std::memcpy(&bits, &data[i * bytes], bytes);
          return bits;
        };
        for (size_t r = 0; r < 3; ++r)
          for (size_t c = 0; c < 20; ++c) {
            const bool in = static_cast<int64_t>(r) < rows && static_cast<int64_t>(c) < n && c < 16;
            const uint64_t untouched = bytes == 4 ? 0xcdcdcdcd : 0xcdcd;
            ASSERT_EQ(at(to, r * 20 + c), in ? at(from, r * 20 + c) : untouched)
                << rows << " " << n << " " << r << " " << c;
            if (c < 16) {
              ASSERT_EQ(at(to, 60 + r * 16 + c), in ? at(from, r * 20 + c) : 7);
            }
          }
      }
  }
}

TEST_P(Images, GuardsOfOtherForms) {
  // lane >= 3, lane + e0*8 != 5, and a bool value, all at once.
  Draft d;
  const MemoryId x = d.in(DType::F32), y = d.out(DType::F32), m = d.in(DType::Bool);
  const Expr at = position_symbol('e', 0, 2) * Expr(8) + lane_symbol(8);
  const ValueId mask = d.b.load(m, {at}, {DType::Bool, 8, {2}});
  Guard guard{{{lane_symbol(8), Kind::Ge, 3}, {at, Kind::Ne, 5}, {at, Kind::Lt, d.n}}, mask};
  d.b.store(d.b.load(x, {at}, {DType::F32, 8, {2}}, guard, 0), y, {at});
  d.b.store(d.b.load(x, {at}, {DType::F32, 8, {2}}), y, {at + Expr(16)}, guard);
  d.finish();
  KernelRunner runner(d.kernel, GetParam());
  std::vector<float> from = ramp(16), to(32, -1);
  std::vector<uint8_t> bits = {1, 1, 1, 1, 1, 1, 0, 2, 1, 1, 1, 0x80, 0, 1, 1, 1};
  runner.run({from.data(), to.data(), bits.data()}, {15});
  for (size_t i = 0; i < 16; ++i) {
    const bool in = i % 8 >= 3 && i != 5 && i < 15 && bits[i];
    EXPECT_EQ(to[i], in ? from[i] : 0.0f) << i;
    EXPECT_EQ(to[16 + i], in ? from[i] : -1.0f) << i;
  }
}

TEST_P(Images, StridedGatheredAndScattered) {
  for (DType dtype : {DType::I32, DType::I64}) {
    Draft d;
    const MemoryId x = d.in(DType::F32), k = d.in(dtype), y = d.out(DType::F32);
    const Expr e = position_symbol('e', 0, 2), lane = lane_symbol(8), at = e * Expr(8) + lane;
    const ValueType f{DType::F32, 8, {2}};
    const ValueId ids = d.b.load(k, {at}, {dtype, 8, {2}});
    const ValueId one = d.b.load(k, {Expr(3)}, {dtype, 1, {}});
    const Expr index = value_symbol(d.kernel, ids), scalar = value_symbol(d.kernel, one);
    d.b.store(d.b.load(x, {lane * Expr(3) + e * d.n}, f), y, {at});  // strided
    d.b.store(d.b.load(x, {index}, f), y, {at + Expr(16)});          // gather
    d.b.store(d.b.load(x, {index * Expr(2) + e}, f, below(index, 9), 0), y, {at + Expr(32)});
    d.b.store(d.b.load(x, {mod(at, 5) + floordiv(at, 3)}, f), y,
              {at + Expr(48)});                              // lane under mod
    d.b.store(d.b.load(x, {at}, f), y, {index + Expr(64)});  // scatter
    d.b.store(d.b.load(x, {scalar + at}, f), y, {at + Expr(80)});
    d.b.store(d.b.load(x, {e + scalar}, f), y, {at + Expr(96)});                    // one address
    d.b.store(d.b.load(x, {at}, f), y, {at * Expr(2) + Expr(112)}, below(at, 13));  // strided store
    d.finish();
    KernelRunner runner(d.kernel, GetParam());
    std::vector<float> from = ramp(64), to(160, -1);
    std::vector<int64_t> ids64 = {3, 0, 7, 1, 15, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14};
    std::vector<int32_t> ids32(ids64.begin(), ids64.end());
    runner.run({from.data(), dtype == DType::I32 ? static_cast<void*>(ids32.data()) : ids64.data(),
                to.data()},
               {30});
    for (size_t i = 0; i < 16; ++i) {
      const size_t r = i / 8, l = i % 8, id = static_cast<size_t>(ids64[i]);
      EXPECT_EQ(to[i], from[l * 3 + r * 30]);
      EXPECT_EQ(to[16 + i], from[id]);
      EXPECT_EQ(to[32 + i], id < 9 ? from[id * 2 + r] : 0.0f);
      EXPECT_EQ(to[48 + i], from[i % 5 + i / 3]);
      EXPECT_EQ(to[64 + id], from[i]);
      EXPECT_EQ(to[80 + i], from[1 + i]);
      EXPECT_EQ(to[96 + i], from[r + 1]);
      EXPECT_EQ(to[112 + 2 * i], i < 13 ? from[i] : -1.0f);
      EXPECT_EQ(to[113 + 2 * i], -1.0f);
    }
  }
}

// y[i] = y[i + 1] in place: all loads of a store's memory come first.
TEST_P(Images, StoresWaitForEarlierLoads) {
  Draft d;
  const MemoryId y = d.out(DType::F32, Mode::InOut);
  const Expr at = position_symbol('e', 0, 4) * Expr(8) + lane_symbol(8);
  d.b.store(d.b.load(y, {at}, {DType::F32, 8, {4}}), y, {at + Expr(1)});
  d.finish();
  KernelRunner runner(d.kernel, GetParam());
  std::vector<float> data = ramp(33);
  runner.run({data.data()}, {33});
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(data[i + 1], static_cast<float>(i + 1));
}

TEST_P(Images, LoopsWithAnyBoundsAndUnroll) {
  for (int64_t unroll : {1, 2, 3, 4, 8})
    for (bool constant : {false, true})
      for (int64_t step : {1, 3}) {
        for (int64_t n = 0; n <= (constant ? 9 : 0); ++n) {
          Draft d;
          const MemoryId y = d.out(DType::I64);
          const ValueId zero = d.b.constant({DType::I64, 1, {}}, 0),
                        first = d.b.constant({DType::I64, 1, {}}, 1);
          const auto sums = d.b.for_loop(
              "k", 2, constant ? Expr(n) : d.n, step, {zero, first},
              [&](Expr k, const std::vector<ValueId>& c) {
                const ValueId value = d.b.iota(k, {DType::I64, 1, {}});
                const ValueId mixed =
                    d.b.row(ElementwiseOp::mul, {c[1], ValueOperand::literal(DType::I64, 3)});
                return std::vector<ValueOperand>{d.b.row(ElementwiseOp::add, {mixed, value}), c[0]};
              },
              unroll);
          d.b.store(sums[0], y, {0});
          d.b.store(sums[1], y, {1});
          d.finish();
          KernelRunner runner(d.kernel, GetParam());
          for (int64_t m = constant ? n : 0; m <= (constant ? n : 20); ++m) {
            int64_t a = 0, b = 1, got[2];
            for (int64_t k = 2; k < m; k += step) {
              const int64_t next = b * 3 + k;
              b = a, a = next;
            }
            runner.run({got}, {m});
            ASSERT_EQ(got[0], a) << unroll << " " << m;
            ASSERT_EQ(got[1], b);
          }
        }
      }
}

TEST_P(Images, NestedControl) {
  // n steps of Collatz from n on, by an `if` in a `for`; results through both.
  Draft d;
  const MemoryId y = d.out(DType::I64);
  const ValueType i64{DType::I64, 1, {}};
  const ValueId start = d.b.iota(d.n, i64);
  const auto results =
      d.b.for_loop("j", 0, d.n, 1, {start}, [&](const Expr&, const std::vector<ValueId>& in) {
        const ValueId x = in[0];
        const ValueId bit =
            d.b.row(ElementwiseOp::logical_and, {x, ValueOperand::literal(DType::I64, 1)});
        const ValueId odd = d.b.row(ElementwiseOp::eq, {bit, ValueOperand::literal(DType::I64, 1)});
        Region then, otherwise;
        d.b.enter(then);
        const ValueId tripled =
            d.b.row(ElementwiseOp::mul, {x, ValueOperand::literal(DType::I64, 3)});
        then.yields = {
            d.b.row(ElementwiseOp::add, {tripled, ValueOperand::literal(DType::I64, 1)})};
        d.b.leave();
        d.b.enter(otherwise);
        otherwise.yields = {d.b.row(ElementwiseOp::shr, {x, ValueOperand::literal(DType::I64, 1)})};
        d.b.leave();
        return std::vector<ValueOperand>{d.one(IfOp{{}, odd, then, otherwise}, i64)};
      });
  d.b.store(results[0], y, {0});
  d.finish();
  KernelRunner runner(d.kernel, GetParam());
  for (int64_t n : {2, 6, 27}) {
    int64_t want = n, got = 0;
    for (int64_t k = 0; k < n; ++k) want = want % 2 ? 3 * want + 1 : want / 2;
    runner.run({&got}, {n});
    EXPECT_EQ(got, want);
  }
}

float fold_sum(std::vector<float> x) {
  size_t n = 1;
  while (n < x.size()) n *= 2;
  x.resize(n, -0.0f);
  for (size_t h = n / 2; h > 0; h /= 2)
    for (size_t i = 0; i < h; ++i) x[i] += x[i + h];
  return x[0];
}

TEST_P(Images, FoldsInTheirOrder) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-1e4f, 1e4f);
  for (int64_t rows : {1, 2, 3, 5, 6, 7, 16})
    for (int32_t lanes : {2, 4, 8, 16, 64}) {
      Draft d;
      const MemoryId x = d.in(DType::F32), y = d.out(DType::F32);
      const Expr at = position_symbol('e', 0, rows) * Expr(lanes) + lane_symbol(lanes);
      const ValueId v = d.b.load(x, {at}, {DType::F32, lanes, {rows}});
      const ValueId over_rows = d.b.fold(Monoid::Sum, v, {0});
      const ValueId all = d.one(FoldOp{Monoid::Sum, over_rows, {}, true}, {DType::F32, 1, {1}});
      d.b.store(over_rows, y, {lane_symbol(lanes)});
      d.b.store(all, y, {Expr(lanes)});
      d.finish();
      const auto count = static_cast<size_t>(rows * lanes), width = static_cast<size_t>(lanes);
      std::vector<float> data(count), got(width + 1);
      for (float& f : data) f = uniform(random);
      KernelRunner(d.kernel, GetParam()).run({data.data(), got.data()}, {rows * lanes});
      std::vector<float> columns;
      for (size_t l = 0; l < width; ++l) {
        std::vector<float> column;
        for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
          column.push_back(data[r * width + l]);
        columns.push_back(fold_sum(column));
        EXPECT_EQ(got[l], columns.back());
      }
      EXPECT_EQ(got[width], fold_sum(columns));
    }
}

TEST_P(Images, TwoAxesInTheGivenOrder) {
  Draft d;
  const MemoryId x = d.in(DType::F32), y = d.out(DType::F32);
  const Expr e0 = position_symbol('e', 0, 3), e1 = position_symbol('e', 1, 5);
  const ValueId v = d.b.load(x, {e0 * Expr(5) + e1}, {DType::F32, 1, {3, 5}});
  d.b.store(d.b.fold(Monoid::Sum, v, {1, 0}), y, {0});
  d.b.store(d.b.fold(Monoid::Sum, v, {0, 1}), y, {1});
  d.finish();
  std::vector<float> data(15), got(2);
  for (size_t i = 0; i < 15; ++i)
    data[i] = std::ldexp(1.0f + 0.01f * static_cast<float>(i), static_cast<int>(i * 5 % 24));
  KernelRunner(d.kernel, GetParam()).run({data.data(), got.data()}, {15});
  std::vector<float> by_row, by_column;
  for (size_t r = 0; r < 3; ++r)
    by_row.push_back(fold_sum(
        {data.begin() + static_cast<long>(r * 5), data.begin() + static_cast<long>(r * 5 + 5)}));
  for (size_t c = 0; c < 5; ++c)
    by_column.push_back(fold_sum({data[c], data[5 + c], data[10 + c]}));
  EXPECT_EQ(got[0], fold_sum(by_row));
  EXPECT_EQ(got[1], fold_sum(by_column));
}

TEST_P(Images, VectorsAndArraysRename) {
  Draft d;
  const MemoryId x = d.in(DType::F32), y = d.out(DType::F32);
  const Expr e0 = position_symbol('e', 0, 2), e1 = position_symbol('e', 1, 3),
             lane = lane_symbol(4);
  const ValueType f4{DType::F32, 4, {}}, array{DType::F32, 4, {2, 3}},
      turned{DType::F32, 4, {3, 2}};
  const Expr at = e0 * Expr(12) + e1 * Expr(4) + lane;
  const ValueId v = d.b.load(x, {at}, array);
  const ValueId t = d.b.view(MovementKind::Transpose, v, turned, {1, 0});
  d.b.store(t, y,
            {position_symbol('e', 0, 3) * Expr(8) + position_symbol('e', 1, 2) * Expr(4) + lane});
  const ValueId s = d.b.view(MovementKind::Slice, v, {DType::F32, 4, {1, 2}}, {1, 1});
  d.b.store(s, y, {Expr(24) + position_symbol('e', 1, 2) * Expr(4) + lane});
  const ValueId a = d.one(GetElementOp{v, {0, 0}}, f4), b = d.one(GetElementOp{v, {1, 2}}, f4);
  const ValueId mixed = d.one(ShuffleOp{a, b, {7, 0, 4, 3}}, f4);
  const ValueId element = d.one(LaneOp{mixed, 2}, {DType::F32, 1, {}});
  const ValueId packed = d.one(PackOp{{mixed, a}}, {DType::F32, 4, {2}});
  d.b.store(packed, y, {Expr(32) + e0 * Expr(4) + lane});
  const ValueId broad =
      d.b.view(MovementKind::Broadcast,
               d.b.view(MovementKind::Reshape, packed, {DType::F32, 4, {2, 1}}), array);
  d.b.store(d.b.row(ElementwiseOp::add, {broad, v}), y, {Expr(40) + at});
  const ValueId wide = d.one(SplatOp{element}, f4);
  d.b.store(wide, y, {Expr(64) + lane});
  d.finish();
  std::vector<float> from = ramp(24, 0), to(68, -1);
  KernelRunner(d.kernel, GetParam()).run({from.data(), to.data()}, {24});
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 2; ++j)
      for (size_t l = 0; l < 4; ++l) EXPECT_EQ(to[i * 8 + j * 4 + l], from[j * 12 + i * 4 + l]);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(to[24 + i], from[16 + i]);
  const std::vector<float> want = {23, 0, 20, 3, 0, 1, 2, 3};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(to[32 + i], want[i]);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(to[40 + i], want[i / 12 * 4 + i % 4] + from[i]);
  for (size_t l = 0; l < 4; ++l) EXPECT_EQ(to[64 + l], 20);
}

// A permutation that is not its own inverse.
TEST_P(Images, ArraysOfThreeAxesTurn) {
  Draft d;
  const MemoryId x = d.in(DType::F32), y = d.out(DType::F32);
  const auto offset = [](int64_t a, int64_t b, int64_t c) {
    return position_symbol('e', 0, a) * Expr(b * c) + position_symbol('e', 1, b) * Expr(c) +
           position_symbol('e', 2, c);
  };
  const ValueId v = d.b.load(x, {offset(2, 3, 4)}, {DType::F32, 1, {2, 3, 4}});
  const ValueId t = d.b.view(MovementKind::Transpose, v, {DType::F32, 1, {4, 2, 3}}, {2, 0, 1});
  d.b.store(t, y, {offset(4, 2, 3)});
  d.finish();
  std::vector<float> from = ramp(24, 0), to(24, -1);
  KernelRunner(d.kernel, GetParam()).run({from.data(), to.data()}, {24});
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 2; ++j)
      for (size_t k = 0; k < 3; ++k) EXPECT_EQ(to[i * 6 + j * 3 + k], from[j * 12 + k * 4 + i]);
}

TEST_P(Images, IndicesBelowZeroAndBeyond32Bits) {
  Draft d;
  const MemoryId x = d.in(DType::F32), k = d.in(DType::I32), y = d.out(DType::I64),
                 z = d.out(DType::F32);
  const ValueType i64{DType::I64, 1, {}};
  d.b.for_loop("j", -5, 5, 1, {}, [&](Expr j, const std::vector<ValueId>&) {
    const Expr far = j * Expr(int64_t{1} << 33);
    d.b.store(d.b.iota(floordiv(j, 3), i64), y, {j + Expr(5)});
    d.b.store(d.b.iota(mod(j, 3), i64), y, {j + Expr(15)});
    d.b.store(d.b.iota(floordiv(far, 3), i64), y, {j + Expr(25)});
    return std::vector<ValueOperand>{};
  });
  const Expr e = position_symbol('e', 0, 10);
  const ValueId ids = d.b.load(k, {e}, {DType::I32, 1, {10}});
  const Expr index = value_symbol(d.kernel, ids) + Expr(5);
  d.b.store(d.b.load(x, {index}, {DType::F32, 1, {10}}), z, {e});
  d.finish();
  std::vector<float> from = ramp(10), gathered(10);
  std::vector<int32_t> below_zero = {-5, 4, -4, 3, -3, 2, -2, 1, -1, 0};
  std::vector<int64_t> to(30);
  KernelRunner(d.kernel, GetParam())
      .run({from.data(), below_zero.data(), to.data(), gathered.data()}, {30});
  const auto divided = [](int64_t n) { return n >= 0 ? n / 3 : -((2 - n) / 3); };
  for (int64_t j = -5; j < 5; ++j) {
    const auto i = static_cast<size_t>(j + 5);
    EXPECT_EQ(to[i], divided(j));
    EXPECT_EQ(to[10 + i], j - 3 * divided(j));
    EXPECT_EQ(to[20 + i], divided(j * (int64_t{1} << 33)));
    EXPECT_EQ(gathered[i], from[static_cast<size_t>(below_zero[i] + 5)]);
  }
}

TEST_P(Images, PhasesGridsAndLocalMemory) {
  // Phase 0 writes every instance's number through two local buffers; phase 1 adds up.
  Draft d;
  const MemoryId w = d.b.add_memory({.name = "w",
                                     .space = MemorySpace::Workspace,
                                     .mode = Mode::InOut,
                                     .dtype = DType::I64,
                                     .shape = {60}});
  const MemoryId y = d.out(DType::I64);
  const Expr i = Expr::symbol("i", {0, 2}), j = Expr::symbol("j", {0, 1 << 30}),
             k = Expr::symbol("k", {0, 3});
  const MemoryId first = d.b.buffer("first", DType::I64, {3}),
                 second = d.b.buffer("second", DType::I64, {5});
  const ValueType i64{DType::I64, 1, {}};
  d.b.store(d.b.iota(i * Expr(100) + j * Expr(10), i64), first, {2});
  d.b.store(d.b.iota(k, i64), second, {0});
  const ValueId a = d.b.load(first, {2}, i64), b = d.b.load(second, {0}, i64);
  d.b.store(d.b.row(ElementwiseOp::add, {a, b}), w, {(i * d.n + j) * Expr(4) + k});
  d.next_phase({{"i", 3}, {"j", d.n}, {"k", 4}});
  const ValueId zero = d.b.constant(i64, 0);
  const auto sum =
      d.b.for_loop("t", 0, d.n * Expr(12), 1, {zero}, [&](Expr t, const std::vector<ValueId>& c) {
        return std::vector<ValueOperand>{
            d.b.row(ElementwiseOp::add, {c[0], d.b.load(w, {t}, i64)})};
      });
  d.b.store(sum[0], y, {0});
  d.finish();
  KernelRunner runner(d.kernel, GetParam());
  ASSERT_EQ(runner.artifact.entries.size(), 2u);
  for (int64_t cut = 0; cut <= 60; cut += 7) {
    std::vector<int64_t> work(60, -1);
    int64_t total = 0, want = 0;
    // Buffers of Kernel IR: parameters first, then workspaces, in the order of `memories`.
    std::vector<void*> buffers = {work.data(), &total};
    runner.run(buffers, {5}, 0, cut, 0);
    runner.run(buffers, {5}, cut, 60, 0);
    for (int64_t p = 0; p < 60; ++p) {
      EXPECT_EQ(work[static_cast<size_t>(p)], p / 20 * 100 + p / 4 % 5 * 10 + p % 4);
      want += work[static_cast<size_t>(p)];
    }
    runner.run(buffers, {5}, 0, 1, 1);
    EXPECT_EQ(total, want);
  }
}

TEST_P(Images, ScalarsAndAtomics) {
  Draft d;
  const MemoryId y = d.out(DType::F32), c = d.b.add_memory({.name = "c",
                                                            .space = MemorySpace::Workspace,
                                                            .mode = Mode::InOut,
                                                            .dtype = DType::I32,
                                                            .shape = {2}});
  const ValueId s = d.b.add_scalar_parameter("s", DType::F32),
                flag = d.b.add_scalar_parameter("f", DType::Bool),
                h = d.b.add_scalar_parameter("h", DType::F16);
  const ValueType i32{DType::I32, 1, {}};
  const ValueId step = d.b.constant(i32, 5);
  const ValueId old = d.one(AtomicOp{c, 0, step}, i32);
  d.b.store(d.b.row(ElementwiseOp::convert, {old}, DType::F32), y, {0});
  const ValueId wide = d.b.row(ElementwiseOp::convert, {h}, DType::F32);
  d.b.store(d.b.row(ElementwiseOp::select, {flag, s, wide}), y, {1});
  d.finish({{"i", 4}});
  KernelRunner runner(d.kernel, GetParam());
  std::vector<float> out(2);
  std::vector<int32_t> counters = {1, -7};
  const auto bits = [](float f) { return static_cast<int64_t>(std::bit_cast<uint32_t>(f)); };
  runner.run({out.data(), counters.data()}, {2, bits(2.5f), 1, 0x3e00}, 0, 4);
  EXPECT_EQ(counters, (std::vector<int32_t>{21, -7}));
  EXPECT_EQ(out, (std::vector<float>{16, 2.5f}));
  runner.run({out.data(), counters.data()}, {2, bits(2.5f), 0, 0x3e00}, 0, 1);
  EXPECT_EQ(out[1], 1.5f);
}

// y = a * b over k with packed panels, rows x 2 vectors of accumulators: the inner loop of 6.4.
TEST_P(Images, DotOfPackedPanels) {
  const bool wide = GetParam() == "x86-64-v4";
  const int32_t lanes = wide ? 16 : 8;
  const int64_t rows = wide ? 14 : 6, k_extent = 37;
  Draft d;
  const MemoryId a = d.in(DType::F32), b = d.in(DType::F32), y = d.out(DType::F32);
  const Expr e0 = position_symbol('e', 0, rows), e1 = position_symbol('e', 1, 2),
             lane = lane_symbol(lanes);
  const ValueId zero = d.b.constant({DType::F32, lanes, {rows, 2}}, 0);
  const auto acc = d.b.for_loop(
      "k", 0, d.n, 1, {zero},
      [&](Expr k, const std::vector<ValueId>& c) {
        const ValueId a0 = d.b.load(a, {k * Expr(rows) + e0}, {DType::F32, 1, {rows, 1}});
        const ValueId b0 = d.b.load(b, {k * Expr(2 * lanes) + e1 * Expr(lanes) + lane},
                                    {DType::F32, lanes, {1, 2}});
        const ValueId s = d.one(SplatOp{a0}, {DType::F32, lanes, {rows, 1}});
        return std::vector<ValueOperand>{d.b.row(ElementwiseOp::fma, {s, b0, c[0]})};
      },
      4);
  d.b.store(acc[0], y, {e0 * Expr(2 * lanes) + e1 * Expr(lanes) + lane});
  d.finish();
  const auto r = static_cast<size_t>(rows), w = static_cast<size_t>(2 * lanes),
             n = static_cast<size_t>(k_extent);
  std::vector<float> x(r * n), z(w * n), got(r * w);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < z.size(); ++i) z[i] = std::cos(static_cast<float>(i));
  KernelRunner(d.kernel, GetParam()).run({x.data(), z.data(), got.data()}, {k_extent});
  for (size_t i = 0; i < r; ++i)
    for (size_t j = 0; j < w; ++j) {
      float want = 0;
      for (size_t k = 0; k < n; ++k) want = std::fma(x[k * r + i], z[k * w + j], want);
      EXPECT_EQ(got[i * w + j], want);
    }
}

TEST(Codegen, RunsInSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<std::string> codes(4);
  for (size_t t = 0; t < codes.size(); ++t)
    threads.emplace_back([&codes, t] {
      Draft d;
      const MemoryId x = d.in(DType::F32), y = d.out(DType::F32);
      d.b.store(d.b.load(x, {lane_symbol(8)}, {DType::F32, 8, {}}), y, {lane_symbol(8)});
      d.finish();
      for (int i = 0; i < 5; ++i) codes[t] = generate_image(d.kernel, target("x86-64-v3")).code;
    });
  for (auto& thread : threads) thread.join();
  for (const auto& code : codes) EXPECT_EQ(code, codes[0]);
}

// Vectors of any width past the caches, each part in a register of the machine.
TEST_P(Images, StreamsVectorsOfEveryWidth) {
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::Bool})
    for (int32_t lanes : {2, 4, 8, 16, 32, 64}) {
      Draft d;
      const MemoryId x = d.in(dtype), y = d.out(dtype);
      const Expr at = position_symbol('e', 0, 2) * Expr(lanes) + lane_symbol(lanes);
      StoreOp store{d.b.load(x, {at}, {dtype, lanes, {2}}), y, {at}, {}, 64, CacheHint::Stream};
      d.b.append(store, {});
      d.finish();
      KernelRunner runner(d.kernel, GetParam());
      const size_t bytes = 2 * static_cast<size_t>(lanes) * size_of(dtype);
      alignas(64) uint8_t from[1024], to[1024 + 64];
      for (size_t i = 0; i < bytes; ++i)
        from[i] = static_cast<uint8_t>(dtype == DType::Bool ? i % 3 == 0 : i * 7 + 1);
      std::fill(std::begin(to), std::end(to), 0xcd);
      runner.run({from, to}, {2 * lanes});
      for (size_t i = 0; i < bytes + 64; ++i)
        ASSERT_EQ(to[i], i < bytes ? from[i] : 0xcd)
            << name(dtype) << "x" << lanes << " byte " << i;
    }
}

// A vector of 64 bytes is two registers of 32 where there are no wider ones.
TEST(Codegen, StreamsWithTheMachinesRegisters) {
  for (const auto& [machine, stores] : {std::pair("x86-64-v3", 2), std::pair("x86-64-v4", 1)}) {
    Draft d;
    const MemoryId x = d.in(DType::F32), y = d.out(DType::F32);
    const ValueId value = d.b.load(x, {lane_symbol(16)}, {DType::F32, 16, {}});
    d.b.append(StoreOp{value, y, {lane_symbol(16)}, {}, 64, CacheHint::Stream}, {});
    d.finish();
    const std::string text = assembly_text(d.kernel, target(machine));
    int found = 0;
    for (size_t at = 0; (at = text.find("vmovnt", at)) != text.npos; ++at) ++found;
    EXPECT_EQ(found, stores) << machine << text;
  }
}

TEST(Codegen, RefusesOtherTargets) {
  Draft d;
  d.finish();
  EXPECT_THAT([&] { generate_image(d.kernel, target("interpreter")); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("codegen-target")));
}

INSTANTIATE_TEST_SUITE_P(Targets, Images, ::testing::ValuesIn(host_targets()), [](const auto& i) {
  return std::string(i.param.substr(i.param.size() - 2));
});

}  // namespace
}  // namespace braze::test
