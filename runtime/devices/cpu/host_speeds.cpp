#include "runtime/devices/cpu/host_speeds.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ir/support/clocks.h"
#include "runtime/devices/cpu/thread_pool.h"
#include "runtime/memory/allocator.h"

namespace braze {

namespace {

// In a try, work is repeated for so long that its start does not matter. There are so many tries
// that one of them is likely to be undisturbed.
constexpr double kSecondsOfATry = 1e-3, kSecondsOfAll = 20e-3;
constexpr double kMostWait = 5e-3;  // of a thread for the others
// The bytes of a thread in a try that moves bytes outside of all caches: they take some
// milliseconds.
constexpr double kFarSample = 16 << 20;

/// The time in seconds of `work` on all threads at once: the least of several tries. The time of a
/// try is the processor time of its slowest thread, because other processes may use the same
/// processors. `prepare` comes before each try and does not count.
template <class Work, class Prepare>
double seconds_on_all(ThreadPool& pool, const Work& work, const Prepare& prepare) {
  const int threads = pool.threads();
  double best = 1e9, all = 0;
  for (int i = 0; i < 3 || (all < kSecondsOfAll && i < 1000); ++i) {
    std::atomic<int> arrived{0};
    std::atomic<double> slowest{0};
    pool.run(threads, true, [&](int64_t begin, int64_t end, int) {
      for (int64_t piece = begin; piece < end; ++piece) {
        prepare(piece);
        // All threads begin at the same time, unless the system delays one.
        ++arrived;
        WallClock waiting;
        for (double waited = 0; arrived < threads && waited < kMostWait;) waited += waiting.lap();
        ThreadClock clock;
        work(piece);
        const double taken = clock.lap();
        for (double most = slowest; taken > most && !slowest.compare_exchange_weak(most, taken);) {
        }
      }
    });
    best = std::min(best, slowest.load());
    all += slowest;
  }
  return best;
}

#if defined(__x86_64__)

// Ten independent chains keep two units with a latency of four or five busy. They are written in
// assembly, so that they stay in registers however this file is compiled.
#define BRAZE_MULTIPLY_ADDS                                                                      \
  asm volatile(                                                                                  \
      "vfmadd213ps %10, %10, %0\n\tvfmadd213ps %10, %10, %1\n\t"                                 \
      "vfmadd213ps %10, %10, %2\n\tvfmadd213ps %10, %10, %3\n\t"                                 \
      "vfmadd213ps %10, %10, %4\n\tvfmadd213ps %10, %10, %5\n\t"                                 \
      "vfmadd213ps %10, %10, %6\n\tvfmadd213ps %10, %10, %7\n\t"                                 \
      "vfmadd213ps %10, %10, %8\n\tvfmadd213ps %10, %10, %9"                                     \
      : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j) \
      : "v"(half))
constexpr int kChains = 10;

__attribute__((target("avx2,fma"))) void multiply_add_256(int64_t rounds) {
  const __m256 half = _mm256_set1_ps(0.5f);
  __m256 a = half, b = half, c = half, d = half, e = half;
  __m256 f = half, g = half, h = half, i = half, j = half;
  for (int64_t round = 0; round < rounds; ++round) BRAZE_MULTIPLY_ADDS;
}

__attribute__((target("avx512f"))) void multiply_add_512(int64_t rounds) {
  const __m512 half = _mm512_set1_ps(0.5f);
  __m512 a = half, b = half, c = half, d = half, e = half;
  __m512 f = half, g = half, h = half, i = half, j = half;
  for (int64_t round = 0; round < rounds; ++round) BRAZE_MULTIPLY_ADDS;
}

#undef BRAZE_MULTIPLY_ADDS

constexpr size_t kStep = 128;  // bytes that `move` moves at once

/// Copies as many bytes as both ranges have, and then reads or writes the rest, in multiples of
/// kStep. With `past_caches`, it writes to memory without allocating cache lines.
__attribute__((target("avx2"))) void move(std::byte* to, size_t written, const std::byte* from,
                                          size_t read, bool past_caches) {
  const size_t both = std::min(read, written);
  const auto* in = reinterpret_cast<const __m256i*>(from);
  const __m256i* const in_both = in + both / sizeof *in;
  const __m256i* const in_end = in + read / sizeof *in;
  auto* out = reinterpret_cast<__m256i*>(to);
  const __m256i* const out_end = out + written / sizeof *out;
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  if (past_caches) {
    for (; in != in_both; in += 4, out += 4) {
      a = in[0], b = in[1], c = in[2], d = in[3];
      _mm256_stream_si256(out, a);
      _mm256_stream_si256(out + 1, b);
      _mm256_stream_si256(out + 2, c);
      _mm256_stream_si256(out + 3, d);
    }
    for (; out != out_end; out += 4)
      for (int i = 0; i < 4; ++i) _mm256_stream_si256(out + i, a);
    _mm_sfence();
  } else {
    for (; in != in_both; in += 4, out += 4) {
      a = in[0], b = in[1], c = in[2], d = in[3];
      out[0] = a, out[1] = b, out[2] = c, out[3] = d;
    }
    for (; out != out_end; out += 4) out[0] = a, out[1] = a, out[2] = a, out[3] = a;
  }
  for (; in != in_end; in += 4) a |= in[0], b |= in[1], c |= in[2], d |= in[3];
  a |= b | c | d;
  asm volatile("" : : "x"(a) : "memory");  // keeps the compiler from removing the reads
}

/// Takes these bytes out of all caches. Their memory keeps its content.
void flush(const std::byte* data, size_t size) {
  constexpr size_t kLine = 64;
  for (size_t at = 0; at < size; at += kLine) _mm_clflush(data + at);
  _mm_mfence();
}

size_t share_of(double bytes, int threads) {
  const auto steps = static_cast<size_t>(bytes / threads / static_cast<double>(kStep));
  return bytes > 0 ? std::max<size_t>(1, steps) * kStep : 0;
}

#endif

}  // namespace

double measure_host_flops(int threads, int vector_bytes) {
#if defined(__x86_64__)
  ThreadPool pool;
  pool.set_threads(threads);
  const auto multiply_add = vector_bytes == 64 ? multiply_add_512 : multiply_add_256;
  constexpr int64_t kRounds = 200'000;
  const double seconds = seconds_on_all(
      pool, [&](int64_t) { multiply_add(kRounds); }, [](int64_t) {});
  const double flops_of_a_round = 2.0 * kChains * vector_bytes / sizeof(float);
  return static_cast<double>(pool.threads() * kRounds) * flops_of_a_round / seconds;
#else
  return 0;
#endif
}

double measure_host_moves(int threads, double read, double written, double far_bytes) {
#if defined(__x86_64__)
  const double bytes = read + written;
  if (bytes <= 0) return 0;
  ThreadPool pool;
  pool.set_threads(threads);
  // Of what exceeds all caches a part is enough, if it is taken out of the caches before each try.
  const bool is_far = bytes >= far_bytes;
  const double part = is_far ? std::min(1.0, kFarSample * threads / bytes) : 1.0;
  const size_t in = share_of(part * read, threads), out = share_of(part * written, threads);
  const size_t total = static_cast<size_t>(threads) * (in + out);
  HostMemory memory;
  std::byte* const data = memory.allocate(total);
  if (!data) return 0;
  const auto of_thread = [&](int64_t i) { return data + static_cast<size_t>(i) * (in + out); };
  pool.run(threads, true, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) std::memset(of_thread(i), 1, in + out);
  });
  const auto seconds = [&](int turns, bool past_caches) {
    return seconds_on_all(
        pool,
        [&](int64_t i) {
          std::byte* const from = of_thread(i);
          for (int turn = 0; turn < turns; ++turn) move(from + in, out, from, in, past_caches);
        },
        [&](int64_t i) {
          if (is_far) flush(of_thread(i), in + out);
        });
  };
  double best = 0;
  if (is_far) {
    // What is written into caches would not be in memory at the end of a try.
    best = seconds(1, out > 0);
  } else {
    const double once = std::max(seconds(1, false), 1e-9);
    const int turns = static_cast<int>(std::clamp(kSecondsOfATry / once, 1.0, 10'000.0));
    best = turns > 1 ? seconds(turns, false) / turns : once;
    if (out > 0) best = std::min(best, seconds(turns, true) / turns);
  }
  memory.free(data, total);
  return best * bytes / static_cast<double>(total);
#else
  return 0;
#endif
}

}  // namespace braze
