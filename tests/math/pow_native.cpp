// pow_native.cpp: measures the bodies of pow on this CPU against MPFR.
//
//   pow_native [--dtype f32] [--pairs 1000000] [--seed 1] [--threads 1]
//
// f32, f64: random bit patterns; pairs whose power is a number and not 0 or infinite; bases near 1;
// small integers; all pairs of special values. f16, bf16: the same, or with --pairs 0 all 2^32
// pairs; the result must be the correctly rounded one. MPFR's rules for special values are those of
// ISO C.
//
// Prints a row of the table in RESULTS.md per dtype; exits 1 if a bound is broken. Build:
//   g++ -std=c++20 -O2 -march=x86-64-v3 -ffp-contract=off -Wno-psabi -I. -Iir/include
//       tests/math/pow_native.cpp -o pow_native -lmpfr -lgmp -pthread
#include <mpfr.h>

#include <atomic>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "ir/ops/math_bodies.h"
#include "tests/math/lanes.h"

namespace braze::test {
namespace {

struct Format {
  int bits, least, top;  // precision; exponents of the least number and beyond the greatest
};

Format format(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return {11, -24, 16};
    case DType::BF16:
      return {8, -133, 128};
    case DType::F32:
      return {24, -149, 128};
    default:
      return {53, -1074, 1024};
  }
}

struct Pair {
  double x, y;
};

struct Outcome {
  double worst = 0;
  Pair worst_pair{};
  uint64_t checked = 0, wrong = 0;
  Pair first_wrong{};

  void error(double ulps, Pair pair) {
    if (ulps > worst) worst = ulps, worst_pair = pair;
  }
  void mismatch(Pair pair) {
    if (wrong++ == 0) first_wrong = pair;
  }
  void join(const Outcome& other) {
    error(other.worst, other.worst_pair);
    if (wrong == 0) first_wrong = other.first_wrong;
    checked += other.checked;
    wrong += other.wrong;
  }
};

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

/// `value` in units of the last place at its own magnitude, and that unit's exponent.
long ulp_of(const mpfr_t value, const Format& f) {
  return std::max<long>(mpfr_get_exp(value) - f.bits, f.least);
}

class Reference {
 public:
  Reference() {
    for (mpfr_ptr v : {x_, y_, small_}) mpfr_init2(v, 64);
    mpfr_init2(exact_, 300);
  }
  ~Reference() {
    for (mpfr_ptr v : {x_, y_, exact_, small_}) mpfr_clear(v);
  }

  void check(Pair p, double got, DType dtype, Outcome& out) {
    const Format f = format(dtype);
    mpfr_set_d(x_, p.x, MPFR_RNDN);
    mpfr_set_d(y_, p.y, MPFR_RNDN);
    mpfr_pow(exact_, x_, y_, MPFR_RNDN);
    if (!mpfr_number_p(exact_) || mpfr_zero_p(exact_)) {
      if (!same(got, mpfr_get_d(exact_, MPFR_RNDN))) out.mismatch(p);
      return;
    }
    const long ulp = ulp_of(exact_, f);
    // The rounded result.
    mpfr_mul_2si(exact_, exact_, -ulp, MPFR_RNDN);
    mpfr_rint(small_, exact_, MPFR_RNDN);
    const double units = mpfr_get_d(small_, MPFR_RNDN);
    const bool infinite =
        std::ldexp(std::abs(units), static_cast<int>(std::max(ulp - f.top, -2000L))) >= 1 ||
        ulp > f.top;
    const double rounded = infinite ? std::copysign(INFINITY, units)
                                    : std::ldexp(units, static_cast<int>(std::max(ulp, -3000L)));
    if (is_half(dtype)) {
      if (!same(got, rounded)) out.mismatch(p);
      return;
    }
    if (std::isnan(got) || std::signbit(got) != std::signbit(rounded)) return out.mismatch(p);
    if (std::isinf(got) || infinite) {
      const double largest = std::ldexp(2 - std::ldexp(2, -f.bits), f.top - 1);
      if (!same(got, rounded) && std::abs(got) < largest) out.mismatch(p);
      return;
    }
    mpfr_set_d(small_, got, MPFR_RNDN);
    mpfr_mul_2si(small_, small_, -ulp, MPFR_RNDN);
    mpfr_sub(exact_, exact_, small_, MPFR_RNDN);
    out.error(std::abs(mpfr_get_d(exact_, MPFR_RNDN)), p);
  }

 private:
  mpfr_t x_, y_, exact_, small_;
};

double rounded(double value, DType dtype) {
  if (is_half(dtype)) return rounded_to_half(value, dtype);
  return dtype == DType::F32 ? static_cast<float>(value) : value;
}

class Pairs {
 public:
  Pairs(DType dtype, uint64_t seed) : dtype_(dtype), random_(seed) {}

  Pair next() {
    const Format f = format(dtype_);
    switch (random_() % 5) {
      case 0:
        return {any(), any()};
      case 1: {  // a result within the finite numbers and a little beyond them
        const double x = std::abs(any()), target = uniform(f.least - 5, f.top + 3);
        return {x, rounded(target / std::log2(x), dtype_)};
      }
      case 2: {  // near 1
        const double x = rounded(1 + uniform(-1, 1) * std::exp2(uniform(-f.bits, 0)), dtype_);
        return {x, rounded(uniform(f.least, f.top) / std::log2(x), dtype_)};
      }
      case 3:
        return {rounded(uniform(-20, 20), dtype_), rounded(std::trunc(uniform(-20, 20)), dtype_)};
      default:
        return {rounded(uniform(0, 40), dtype_), rounded(uniform(-30, 30), dtype_)};
    }
  }

 private:
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  double any() {
    const uint64_t bits = random_();
    switch (dtype_) {
      case DType::F64:
        return std::bit_cast<double>(bits);
      case DType::F32:
        return std::bit_cast<float>(static_cast<uint32_t>(bits));
      case DType::BF16:
        return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
      default: {
        const double magnitude =
            std::ldexp(1024 + bits % 1024, static_cast<int>(bits >> 10 & 31) - 25);
        return bits >> 20 & 1 ? -magnitude : magnitude;
      }
    }
  }

  DType dtype_;
  std::mt19937_64 random_;
};

void evaluate(const Pair* pairs, DType dtype, double* got) {
  if (dtype == DType::F64) {
    F64x8 x, y;
    for (int i = 0; i < kLanes; ++i) x[i] = pairs[i].x, y[i] = pairs[i].y;
    const F64x8 r = f64(math::pow(of(x), of(y)));
    for (int i = 0; i < kLanes; ++i) got[i] = r[i];
    return;
  }
  F32x8 x, y;
  for (int i = 0; i < kLanes; ++i)
    x[i] = static_cast<float>(pairs[i].x), y[i] = static_cast<float>(pairs[i].y);
  const F32x8 r =
      f32(dtype == DType::F32 ? math::pow(of(x), of(y)) : math::pow_16(of(x), of(y), dtype));
  for (int i = 0; i < kLanes; ++i) got[i] = r[i];
}

Outcome check(const std::vector<Pair>& pairs, DType dtype, Reference& reference) {
  Outcome out;
  double got[kLanes];
  for (size_t i = 0; i < pairs.size(); i += kLanes) {
    evaluate(&pairs[i], dtype, got);
    for (int k = 0; k < kLanes; ++k) reference.check(pairs[i + k], got[k], dtype, out);
    out.checked += kLanes;
  }
  return out;
}

std::vector<Pair> special_pairs(DType dtype) {
  const Format f = format(dtype);
  std::vector<double> values;
  const double greatest = std::ldexp(2 - std::ldexp(2, -f.bits), f.top - 1);
  for (const double v : {0.0,
                         1.0,
                         0.5,
                         2.0,
                         3.0,
                         1.5,
                         4.0,
                         5.0,
                         0.25,
                         7.0,
                         10.0,
                         1 / 3.0,
                         std::ldexp(1.0, f.least),
                         std::ldexp(1.0, f.least + f.bits),
                         greatest,
                         double(INFINITY),
                         std::ldexp(1.0, f.bits),
                         std::ldexp(1.0, f.bits) - 1,
                         std::ldexp(1.0, f.bits) + 2,
                         1 - std::ldexp(1.0, -f.bits),
                         1 + std::ldexp(2.0, -f.bits),
                         100.0,
                         101.0,
                         149.0,
                         150.0,
                         1074.0,
                         1075.0})
    for (const double s : {v, -v}) values.push_back(rounded(s, dtype));
  values.push_back(NAN);
  std::vector<Pair> pairs;
  for (const double x : values)
    for (const double y : values) pairs.push_back({x, y});
  while (pairs.size() % kLanes) pairs.push_back({1, 1});
  return pairs;
}

double number(uint32_t bits, DType dtype) {
  if (dtype == DType::BF16) return std::bit_cast<float>(bits << 16);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                                          : std::ldexp(exponent ? fraction + 1024 : fraction,
                                                       std::max(exponent, 1) - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

/// All exponents whose power of this base is near a tie between two numbers, where alone the error
/// of the power in f64 might count.
Outcome check_base(uint32_t base, DType dtype, Reference& reference) {
  Outcome out;
  const double x = number(base, dtype);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double y = number(bits, dtype), power = std::pow(x, y);
    const double above = power * (1 + 0x1p-40), below = power * (1 - 0x1p-40);
    if (rounded_to_half(above, dtype) == rounded_to_half(below, dtype)) continue;
    const std::vector<Pair> pairs(kLanes, {x, y});
    double got[kLanes];
    evaluate(pairs.data(), dtype, got);
    reference.check(pairs[0], got[0], dtype, out);
    ++out.checked;
  }
  return out;
}

constexpr uint32_t kPositive = 32768;  // of the numbers of a 16-bit type

Outcome run(DType dtype, uint64_t count, uint64_t seed, int threads) {
  Outcome total;
  std::mutex mutex;
  std::atomic<uint32_t> next{0};
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      Reference reference;
      Outcome out;
      if (t == 0) out = check(special_pairs(dtype), dtype, reference);
      if (count == 0 && is_half(dtype)) {
        for (uint32_t base; (base = next.fetch_add(1)) < kPositive;)
          out.join(check_base(base, dtype, reference));
      } else {
        Pairs source(dtype, seed + static_cast<uint64_t>(t));
        std::vector<Pair> pairs(count / static_cast<uint64_t>(threads) / kLanes * kLanes);
        for (Pair& pair : pairs) pair = source.next();
        out.join(check(pairs, dtype, reference));
      }
      const std::lock_guard lock(mutex);
      total.join(out);
      mpfr_free_cache();
    });
  for (std::thread& thread : pool) thread.join();
  return total;
}

int main(int argc, char** argv) {
  std::string_view wanted;
  uint64_t count = 1000000, seed = 1;
  int threads = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--dtype") wanted = argv[i + 1];
    if (option == "--pairs") count = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
  }
  bool good = true;
  for (const DType dtype : {DType::F32, DType::F64, DType::F16, DType::BF16}) {
    if (!wanted.empty() && wanted != name(dtype)) continue;
    const Outcome out = run(dtype, count, seed, threads);
    std::printf("| pow | %s | %.4f | %a, %a | %" PRIu64 " | %" PRIu64 " |", name(dtype).data(),
                out.worst, out.worst_pair.x, out.worst_pair.y, out.checked, out.wrong);
    if (out.wrong) std::printf(" first at %a, %a", out.first_wrong.x, out.first_wrong.y);
    std::printf("\n");
    good &= out.wrong == 0 && out.worst <= (dtype == DType::F64 ? 4 : 1);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace braze::test

int main(int argc, char** argv) { return braze::test::main(argc, argv); }
