// exhaustive_native.cpp: measures the math bodies on this CPU against references outside them.
//
//   exhaustive_native [--fn exp] [--dtype f32] [--step 1] [--threads 1] [--seed 1]
//   exhaustive_native --coarse yes [--fn erfc] [--step 1] [--threads 1]   (coarse and short ones,
//   f32) exhaustive_native --golden tests/ops/golden_math.txt
//
// f32: every --step-th of the 2^32 inputs against double libm, borderline cases against MPFR.
// f64: random bit patterns, dense ranges and boundaries against MPFR.
// f16, bf16: all 65536 inputs, the approximate rows off by nothing and by all that they may be; the
// result must be the correctly rounded one.
//
// Prints one row of the table in RESULTS.md per function and dtype; exits 1 if a bound is broken.
// Build: g++ -std=c++20 -O2 -march=x86-64-v3 -ffp-contract=off -I. -Iir/include
//            tests/math/exhaustive_native.cpp -o exhaustive_native -lmpfr -lgmp -pthread
#include <mpfr.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "ir/ops/math_bodies.h"
#include "tests/math/lanes.h"

namespace braze::test {
namespace {

struct Row {
  const char* name;
  void (*body)(const Lanes& x, Lanes& result);
  void (*body_16)(const Lanes& x, DType dtype, Lanes& result);
  double (*libm)(double x);
  int (*mpfr)(mpfr_t result, const mpfr_t x, mpfr_rnd_t);
  bool coarse = false;
};

double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

int mpfr_sigmoid(mpfr_t result, const mpfr_t x, mpfr_rnd_t rnd) {
  mpfr_t e;
  mpfr_init2(e, mpfr_get_prec(result) + 20);
  mpfr_neg(e, x, rnd);
  mpfr_exp(e, e, rnd);
  mpfr_add_ui(e, e, 1, rnd);
  const int inexact = mpfr_ui_div(result, 1, e, rnd);
  mpfr_clear(e);
  return inexact;
}

double gelu(double x) { return 0.5 * x * std::erfc(x * -0.70710678118654752440); }

int mpfr_gelu(mpfr_t result, const mpfr_t x, mpfr_rnd_t rnd) {
  mpfr_t p;
  mpfr_init2(p, mpfr_get_prec(result) + 20);
  mpfr_set_ui(p, 2, rnd);
  mpfr_rec_sqrt(p, p, rnd);
  mpfr_mul(p, p, x, rnd);
  mpfr_neg(p, p, rnd);
  mpfr_erfc(p, p, rnd);
  mpfr_div_ui(p, p, 2, rnd);
  const int inexact = mpfr_mul(result, p, x, rnd);
  mpfr_clear(p);
  return inexact;
}

#define BRAZE_TEST_ROW(name, libm, mpfr)                                                \
  Row {                                                                                 \
#name, [](const Lanes& x, Lanes& result) { result = math::name(x); },                 \
      [](const Lanes& x, DType dtype, Lanes& result) { result = math::name##_16(x, dtype); }, \
      [](double x) -> double { return libm(x); }, mpfr \
  }

const Row kRows[] = {
    BRAZE_TEST_ROW(exp, std::exp, mpfr_exp),       BRAZE_TEST_ROW(exp2, std::exp2, mpfr_exp2),
    BRAZE_TEST_ROW(expm1, std::expm1, mpfr_expm1), BRAZE_TEST_ROW(log, std::log, mpfr_log),
    BRAZE_TEST_ROW(log2, std::log2, mpfr_log2),    BRAZE_TEST_ROW(log1p, std::log1p, mpfr_log1p),
    BRAZE_TEST_ROW(tanh, std::tanh, mpfr_tanh),    BRAZE_TEST_ROW(sigmoid, sigmoid, mpfr_sigmoid),
    BRAZE_TEST_ROW(erf, std::erf, mpfr_erf),       BRAZE_TEST_ROW(erfc, std::erfc, mpfr_erfc),
    BRAZE_TEST_ROW(sin, std::sin, mpfr_sin),       BRAZE_TEST_ROW(cos, std::cos, mpfr_cos),
};

// A body whose error may be 2^-21 of the exact value.
#define BRAZE_TEST_COARSE(name, body, libm, mpfr)                                                  \
  Row {                                                                                            \
#name,                                                                                         \
        [](const Lanes& x,                                                                         \
           Lanes& result) { result = math::body(x); }, nullptr,                                    \
                                                    [](double x) -> double { return libm(x); },    \
                                                                                             mpfr, \
                                                                                             true  \
  }

const Row kCoarseRows[] = {
    BRAZE_TEST_COARSE(tanh, tanh_coarse, std::tanh, mpfr_tanh),
    BRAZE_TEST_COARSE(sigmoid, sigmoid_coarse, sigmoid, mpfr_sigmoid),
    BRAZE_TEST_COARSE(erfc, erfc_coarse, std::erfc, mpfr_erfc),
    BRAZE_TEST_COARSE(gelu, gelu_f32, gelu, mpfr_gelu),
};

/// What one function and dtype came to.
struct Outcome {
  double worst = 0;
  uint64_t worst_input = 0;
  uint64_t checked = 0;
  uint64_t mismatches = 0;
  uint64_t first_mismatch = 0;

  void error(double ulps, uint64_t input) {
    if (ulps > worst) worst = ulps, worst_input = input;
  }
  void mismatch(uint64_t input) {
    if (mismatches++ == 0) first_mismatch = input;
  }
  void join(const Outcome& other) {
    error(other.worst, other.worst_input);
    checked += other.checked;
    if (mismatches == 0) first_mismatch = other.first_mismatch;
    mismatches += other.mismatches;
  }
};

/// An MPFR number that frees itself.
struct Number {
  mpfr_t value;
  explicit Number(int precision) { mpfr_init2(value, precision); }
  ~Number() { mpfr_clear(value); }
  Number(const Number&) = delete;
};

/// |got - f(x)| in units of the last place of f(x) rounded to `bits` bits, subnormals kept.
double ulps_by_mpfr(const Row& row, double x, double got, int bits, int min_exponent) {
  thread_local Number argument(64), exact(200), rounded(64);
  mpfr_set_prec(rounded.value, bits);
  mpfr_set_d(argument.value, x, MPFR_RNDN);
  row.mpfr(exact.value, argument.value, MPFR_RNDN);
  mpfr_set(rounded.value, exact.value, MPFR_RNDN);
  const long exponent = mpfr_zero_p(rounded.value) ? min_exponent : mpfr_get_exp(rounded.value);
  mpfr_sub_d(exact.value, exact.value, got, MPFR_RNDN);
  mpfr_mul_2si(exact.value, exact.value, -std::max<long>(exponent - bits, min_exponent), MPFR_RNDN);
  return std::abs(mpfr_get_d(exact.value, MPFR_RNDN));
}

bool same_kind(double got, double expected) {
  if (std::isnan(expected)) return std::isnan(got);
  return got == expected && std::signbit(got) == std::signbit(expected);
}

/// The ulp of `value` rounded to f32, a power of two.
double ulp_f32(double value) {
  const float rounded =
      std::min(std::abs(static_cast<float>(value)), std::numeric_limits<float>::max());
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(rounded) >> 23);
  return std::bit_cast<double>(static_cast<uint64_t>(std::max(exponent, 1) - 150 + 1023) << 52);
}

void check_f32(const Row& row, uint32_t bits, double expected, float got, Outcome& outcome) {
  const double x = std::bit_cast<float>(bits);
  if (!std::isfinite(expected) && !std::isfinite(x)) {
    if (!same_kind(got, expected)) outcome.mismatch(bits);
    return;
  }
  if (expected == 0 || std::isnan(expected) || std::isnan(got) ||
      (std::isinf(expected) && !(expected > 0x1p127))) {
    if (!same_kind(got, expected)) outcome.mismatch(bits);
    return;
  }
  if (std::isinf(got)) {  // right where the exact value rounds to infinity
    if (std::isinf(static_cast<float>(expected)) && (got > 0) == (expected > 0)) return;
    outcome.mismatch(bits);
    return;
  }
  if (std::isinf(static_cast<float>(expected)) ||
      (got != 0 && std::signbit(got) != std::signbit(expected)) ||
      (got == 0 && std::signbit(got) != std::signbit(expected))) {
    outcome.mismatch(bits);
    return;
  }
  // An ulp is at most 2^-23 of the number; the errors of coarse bodies are relative.
  const double unit = row.coarse ? std::max(std::abs(expected) * 0x1p-23, 0x1p-149) : 0;
  double ulps = std::abs(got - expected) / std::max(unit, ulp_f32(expected));
  if (ulps > outcome.worst && std::abs(ulps - 1) < 0.01) ulps = ulps_by_mpfr(row, x, got, 24, -149);
  outcome.error(ulps, bits);
}

/// True if every lane is finite, has the sign of `expected` and is at most `worst` ulp away.
bool surely_within(const F32x8& got, const F64x8& expected, double worst) {
  const F32x8 rounded = __builtin_convertvector(expected, F32x8);
  const I32x8 magnitude = (I32x8)rounded & INT32_MAX;
  const I32x8 exponent = magnitude >> 23;
  const I32x8 normal = exponent < 1 ? 1 - I32x8{} : exponent;
  const F64x8 inverse_ulp = (F64x8)(__builtin_convertvector(1023 + 150 - normal, I64x8) << 52);
  const F64x8 difference = __builtin_convertvector(got, F64x8) - expected;
  const F64x8 ulps = (F64x8)((I64x8)difference & INT64_MAX) * inverse_ulp;
  const I32x8 bad = ((I32x8)got ^ (I32x8)rounded) | (0x7f7fffff - magnitude) |
                    ~__builtin_convertvector(ulps <= worst, I32x8);
  return _mm256_movemask_ps((__m256)bad) == 0;
}

[[gnu::noinline]] Outcome run_f32_part(const Row& row, uint64_t first, uint64_t last,
                                       uint64_t step) {
  Outcome outcome;
  for (uint64_t bits = first; bits < last; bits += kLanes * step) {
    U32x8 in;
    for (int i = 0; i < kLanes; ++i) {
      in[i] = static_cast<uint32_t>(std::min(bits + i * step, last - 1));
    }
    Lanes result;
    row.body(of(DType::F32, (I32x8)in), result);
    F64x8 expected;
    for (int i = 0; i < kLanes; ++i) expected[i] = row.libm(std::bit_cast<float>(in[i]));
    if (!surely_within(f32(result), expected, outcome.worst)) {
      for (int i = 0; i < kLanes; ++i) check_f32(row, in[i], expected[i], f32(result)[i], outcome);
    }
    outcome.checked += kLanes;
  }
  return outcome;
}

Outcome run_f32(const Row& row, uint64_t step, int threads) {
  constexpr uint64_t kEnd = uint64_t{1} << 32, kPart = uint64_t{1} << 24;
  std::atomic<uint64_t> next{0};
  std::vector<Outcome> outcomes(threads);
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      for (uint64_t part; (part = next.fetch_add(kPart)) < kEnd;) {
        outcomes[t].join(run_f32_part(row, part, part + kPart, step));
      }
    });
  }
  for (std::thread& thread : pool) thread.join();
  Outcome sum;
  for (const Outcome& outcome : outcomes) sum.join(outcome);
  return sum;
}

// ------------------------------------------------------------------------------------------ f64

void check_f64(const Row& row, double x, double got, Outcome& outcome) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const double expected = row.libm(x);
  const bool zero_or_end = expected == 0 || !std::isfinite(expected) || !std::isfinite(got);
  if (zero_or_end || (got == 0 && std::signbit(got) != std::signbit(expected))) {
    // libm and the body may stand on different sides of the last number before the end.
    const bool near_end =
        std::isfinite(x) && !std::isnan(got) && !std::isnan(expected) && x != 0 &&
        ((std::abs(expected) < 0x1p-1070 && std::abs(got) < 0x1p-1070) ||
         (std::abs(expected) > 0x1.ffffffffffff0p1023 && std::abs(got) > 0x1.ffffffffffff0p1023));
    if (!same_kind(got, expected) && !near_end) outcome.mismatch(bits);
    return;
  }
  outcome.error(ulps_by_mpfr(row, x, got, 53, -1074), bits);
}

/// Random bit patterns, then the ranges in which the functions do something, then the neighbours of
/// the numbers at which bodies change their way.
std::vector<double> samples_f64(uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> xs;
  for (uint64_t i = 0; i < count; ++i) xs.push_back(std::bit_cast<double>(random()));
  const double ranges[][2] = {{-1, 1},     {-1e-3, 1e-3},  {0.5, 2},   {-10, 10},      {-30, 30},
                              {-800, 800}, {-745.2, -708}, {709, 710}, {-1080, -1020}, {1023, 1025},
                              {26, 27.5},  {0, 1e6},       {0.9, 1.1}, {-0.9999, -0.5}};
  for (const auto& [low, high] : ranges) {
    std::uniform_real_distribution<double> uniform(low, high);
    for (uint64_t i = 0; i < count / 10; ++i) xs.push_back(uniform(random));
  }
  std::uniform_real_distribution<double> exponent(-60, 60);
  for (uint64_t i = 0; i < count / 5; ++i) {
    xs.push_back(std::exp2(exponent(random)));
    xs.push_back(-std::exp2(exponent(random) / 6));
  }
  for (uint64_t i = 0; i < count / 10; ++i) {  // near multiples of pi/2
    xs.push_back(static_cast<double>(i) * 1.57079632679489661923);
    xs.push_back(static_cast<double>(random() >> 20) * 1.57079632679489661923);
  }
  const double edges[] = {0,
                          0x1p-1074,
                          0x1p-1022,
                          0x1p-54,
                          0x1p-53,
                          0x1p-30,
                          0.25,
                          1 / 3.0,
                          0.5,
                          2 / 3.0,
                          0.6931471805599453,
                          0.75,
                          0.84375,
                          0.95,
                          1,
                          1.25,
                          4 / 3.0,
                          1.5,
                          2,
                          3,
                          4,
                          5.9,
                          6,
                          19.06,
                          22,
                          26.5,
                          27.2,
                          36.7,
                          37.5,
                          64,
                          708.4,
                          709.78271289338397,
                          745.13321910194122,
                          1022,
                          1023,
                          1024,
                          1074,
                          1075,
                          0x1p31,
                          0x1p52,
                          0x1p53,
                          0x1p1023,
                          0x1.6ac5b262ca1ffp+849,  // closest of all to a multiple of pi/2
                          std::numeric_limits<double>::max(),
                          std::numeric_limits<double>::infinity()};
  for (double edge : edges) {
    double up = edge, down = edge;
    for (int i = 0; i < 40; ++i) {
      for (double x : {up, down, -up, -down}) xs.push_back(x);
      up = std::nextafter(up, std::numeric_limits<double>::infinity());
      down = std::nextafter(down, 0);
    }
  }
  xs.push_back(std::numeric_limits<double>::quiet_NaN());
  while (xs.size() % kLanes) xs.push_back(1);
  return xs;
}

Outcome run_f64(const Row& row, uint64_t step, uint64_t seed, int threads) {
  const std::vector<double> xs = samples_f64(1000000 / step, seed);
  std::vector<Outcome> outcomes(threads);
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      for (size_t i = t * kLanes; i < xs.size(); i += threads * kLanes) {
        F64x8 in;
        std::memcpy(&in, &xs[i], sizeof in);
        Lanes result;
        row.body(of(in), result);
        for (int lane = 0; lane < kLanes; ++lane) {
          check_f64(row, in[lane], f64(result)[lane], outcomes[t]);
        }
        outcomes[t].checked += kLanes;
      }
      mpfr_free_cache();
    });
  }
  for (std::thread& thread : pool) thread.join();
  Outcome sum;
  for (const Outcome& outcome : outcomes) sum.join(outcome);
  return sum;
}

// ------------------------------------------------------------------------------------- 16 bits

/// A binary float format of 16 bits.
struct Format {
  int bits, min_exponent, max_exponent;  // precision, exponents of the ulp of 0 and beyond the top
};
constexpr Format kF16{11, -24, 16}, kBF16{8, -133, 128};

double widen(uint16_t bits, DType dtype) {
  if (dtype == DType::BF16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 31 ? (fraction ? std::numeric_limits<double>::quiet_NaN()
                                                      : std::numeric_limits<double>::infinity())
                                          : std::ldexp(exponent ? fraction + 1024 : fraction,
                                                       std::max(exponent, 1) - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

/// `value` rounded once to the format, ties to even.
double round_to(const mpfr_t value, const Format& format) {
  if (!mpfr_number_p(value) || mpfr_zero_p(value)) return mpfr_get_d(value, MPFR_RNDN);
  Number scaled(mpfr_get_prec(value));
  const long ulp = std::max<long>(mpfr_get_exp(value) - format.bits, format.min_exponent);
  mpfr_mul_2si(scaled.value, value, -ulp, MPFR_RNDN);
  mpfr_rint(scaled.value, scaled.value, MPFR_RNDN);
  const double rounded = std::ldexp(mpfr_get_d(scaled.value, MPFR_RNDN), static_cast<int>(ulp));
  const double top = std::ldexp(1.0, format.max_exponent);
  return std::abs(rounded) < top ? rounded
                                 : std::copysign(std::numeric_limits<double>::infinity(), rounded);
}

/// With the approximate rows off by the given relative errors.
Outcome run_16(const Row& row, DType dtype, double exp2_error, double inverse_error) {
  approx_exp2_error = exp2_error;
  approx_inverse_error = inverse_error;
  const Format& format = dtype == DType::F16 ? kF16 : kBF16;
  Number argument(64), exact(160), got_value(64);
  Outcome outcome;
  for (uint32_t bits = 0; bits < 65536; bits += kLanes) {
    F32x8 in;
    for (int i = 0; i < kLanes; ++i)
      in[i] = static_cast<float>(widen(static_cast<uint16_t>(bits + i), dtype));
    Lanes result;
    row.body_16(of(in), dtype, result);
    for (int i = 0; i < kLanes; ++i) {
      mpfr_set_d(argument.value, in[i], MPFR_RNDN);
      row.mpfr(exact.value, argument.value, MPFR_RNDN);
      mpfr_set_d(got_value.value, f32(result)[i], MPFR_RNDN);
      const double got = round_to(got_value.value, format),
                   expected = round_to(exact.value, format);
      if (!same_kind(got, expected)) {
        outcome.mismatch(bits + i);
        if (std::getenv("BRAZE_MATH_VERBOSE")) {
          std::printf("%s %s(%a): %a, expected %a, exact %.10f ulp of f32 away\n",
                      name(dtype).data(), row.name, in[i], f32(result)[i], expected,
                      ulps_by_mpfr(row, in[i], f32(result)[i], 24, -149));
        }
      }
    }
    outcome.checked += kLanes;
  }
  return outcome;
}

// ---------------------------------------------------------------------------- golden values

/// The distance of two numbers of a format in its own steps; signed zeros and NaNs must agree.
uint64_t steps_between(uint64_t a, uint64_t b, int width) {
  const uint64_t sign = uint64_t{1} << (width - 1);
  if ((a ^ b) & sign) return std::numeric_limits<uint64_t>::max();
  return a > b ? a - b : b - a;
}

/// What the body makes of these bits, in bits.
uint64_t evaluate(const Row& row, DType dtype, uint64_t bits) {
  Lanes result;
  if (dtype == DType::F64) {
    row.body(of(std::bit_cast<double>(bits) - F64x8{}), result);
    return std::bit_cast<uint64_t>(f64(result)[0]);
  }
  if (dtype == DType::F32) {
    row.body(of(std::bit_cast<float>(static_cast<uint32_t>(bits)) - F32x8{}), result);
    return std::bit_cast<uint32_t>(f32(result)[0]);
  }
  const float x = static_cast<float>(widen(static_cast<uint16_t>(bits), dtype));
  row.body_16(of(x - F32x8{}), dtype, result);
  Number value(64);
  mpfr_set_d(value.value, f32(result)[0], MPFR_RNDN);
  const double rounded = round_to(value.value, dtype == DType::F16 ? kF16 : kBF16);
  for (uint32_t candidate = 0; candidate < 65536; ++candidate) {
    if (same_kind(rounded, widen(static_cast<uint16_t>(candidate), dtype))) return candidate;
  }
  return 0;
}

/// Compares the bodies with a file of `name dtype input_bits -> result_bits` lines.
bool run_golden(const char* path) {
  std::FILE* file = std::fopen(path, "r");
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path);
    return false;
  }
  char line[256], function[32], type[32];
  uint64_t input = 0, expected = 0;
  int checked = 0, wrong = 0;
  while (std::fgets(line, sizeof line, file)) {
    if (std::sscanf(line, "%31s %31s 0x%" SCNx64 " -> 0x%" SCNx64, function, type, &input,
                    &expected) != 4) {
      continue;
    }
    const Row* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) {
      return function == std::string_view(r.name);
    });
    const DType* dtype = std::find_if(std::begin(kAllDTypes), std::end(kAllDTypes),
                                      [&](DType d) { return name(d) == type; });
    if (row == std::end(kRows) || dtype == std::end(kAllDTypes)) continue;
    const uint64_t got = evaluate(*row, *dtype, input);
    const int width = static_cast<int>(8 * size_of(*dtype));
    const uint64_t exponent = *dtype == DType::F64    ? 0x7ff0000000000000u
                              : *dtype == DType::F32  ? 0x7f800000u
                              : *dtype == DType::BF16 ? 0x7f80u
                                                      : 0x7c00u;
    const uint64_t sign = uint64_t{1} << (width - 1);
    const auto is_nan = [&](uint64_t bits) { return (bits & ~sign) > exponent; };
    const uint64_t allowed = *dtype == DType::F64 ? 4 : *dtype == DType::F32 ? 1 : 0;
    const bool good =
        is_nan(expected) ? is_nan(got) : steps_between(got, expected, width) <= allowed;
    ++checked;
    if (!good) {
      ++wrong;
      std::printf("got 0x%" PRIx64 " for %s", got, line);
    }
  }
  std::fclose(file);
  std::printf("%d golden values, %d wrong\n", checked, wrong);
  return checked > 0 && wrong == 0;
}

bool report(const Row& row, DType dtype, const Outcome& outcome, double bound, double seconds) {
  const bool half = is_half(dtype);
  const bool good = outcome.mismatches == 0 && outcome.worst <= bound;
  std::printf("| %s | %s | ", row.name, name(dtype).data());
  if (half) {
    std::printf("correctly rounded | ");
  } else {
    std::printf("%.4f | ", outcome.worst);
    const double x = dtype == DType::F32
                         ? std::bit_cast<float>(static_cast<uint32_t>(outcome.worst_input))
                         : std::bit_cast<double>(outcome.worst_input);
    std::printf("0x%" PRIx64 " = %.9g", outcome.worst_input, x);
  }
  std::printf(" | %" PRIu64 " | %" PRIu64 " | %.1f |", outcome.checked, outcome.mismatches,
              seconds);
  if (outcome.mismatches) std::printf(" first mismatch 0x%" PRIx64, outcome.first_mismatch);
  std::printf("%s\n", good ? "" : " FAILED");
  std::fflush(stdout);
  return good;
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Measures the coarse bodies and the short body of gelu, of which `function` names one if it is
/// not empty.
bool run_coarse(std::string_view function, uint64_t step, int threads) {
  bool good = true;
  for (const Row& row : kCoarseRows) {
    if (!function.empty() && function != row.name) continue;
    const auto start = Clock::now();
    const Outcome outcome = run_f32(row, step, threads);
    good &= report(row, DType::F32, outcome, 4.0, seconds_since(start));
  }
  return good;
}

int usage() {
  std::fprintf(stderr,
               "usage: exhaustive_native [--fn NAME] [--dtype f32|f64|f16|bf16] [--step N] "
               "[--threads N] [--seed N]\n"
               "       exhaustive_native --coarse yes [--fn NAME] [--step N] [--threads N]\n"
               "       exhaustive_native --golden FILE\n");
  return 2;
}

int run(int argc, char** argv) {
  std::string_view function, dtypes;
  uint64_t step = 1, seed = 1;
  int threads = 1;
  bool coarse = false;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return usage();
    const std::string_view option = argv[i];
    if (option == "--golden") return run_golden(argv[i + 1]) ? 0 : 1;
    if (option == "--fn")
      function = argv[i + 1];
    else if (option == "--dtype")
      dtypes = argv[i + 1];
    else if (option == "--step")
      step = std::max<uint64_t>(1, std::strtoull(argv[i + 1], nullptr, 10));
    else if (option == "--threads")
      threads = std::max(1, std::atoi(argv[i + 1]));
    else if (option == "--coarse")
      coarse = true;
    else if (option == "--seed")
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    else
      return usage();
  }

  if (coarse) return run_coarse(function, step, threads) ? 0 : 1;
  bool good = true, any = false;
  for (DType dtype : {DType::F32, DType::F64, DType::F16, DType::BF16}) {
    if (!dtypes.empty() && dtypes != name(dtype)) continue;
    for (const Row& row : kRows) {
      if (!function.empty() && function != row.name) continue;
      any = true;
      const auto start = Clock::now();
      Outcome outcome;
      if (dtype == DType::F32)
        outcome = run_f32(row, step, threads);
      else if (dtype == DType::F64)
        outcome = run_f64(row, step, seed, threads);
      else
        for (const double exp2_error : {0.0, -0x1p-22, 0x1p-22})
          for (const double inverse_error : {0.0, -0x1p-23, 0x1p-23})
            outcome.join(run_16(row, dtype, exp2_error, inverse_error));
      good &= report(row, dtype, outcome, dtype == DType::F64 ? 4.0 : 1.0, seconds_since(start));
    }
  }
  if (!any) return usage();
  return good ? 0 : 1;
}

}  // namespace
}  // namespace braze::test

int main(int argc, char** argv) { return braze::test::run(argc, argv); }
