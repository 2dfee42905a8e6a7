// random.h — random choices that are the same with every compiler and library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace braze::fuzz {

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) { next(); }

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// An integer in [0, n), n >= 1.
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t within(int64_t min, int64_t max) { return min + below(max - min + 1); }
  bool one_in(int64_t n) { return below(n) == 0; }
  /// In [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// About normal: mean 0, deviation 1, within 6.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += unit();
    return sum;
  }
  template <class Range>
  decltype(auto) pick(const Range& range) {
    return *std::next(std::begin(range), below(static_cast<int64_t>(std::size(range))));
  }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<int64_t>(list.size())));
  }
  template <class Range>
  void shuffle(Range& range) {
    for (size_t i = std::size(range); i > 1; --i)
      std::swap(range[i - 1], range[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
  }

 private:
  uint64_t state_;
};

}  // namespace braze::fuzz
