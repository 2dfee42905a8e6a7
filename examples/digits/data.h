// data.h — the handwritten digits of digits.csv.gz.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace digits {

inline constexpr int64_t kPixels = 64;

/// Images as rows of 64 pixels within [0, 1], and what they show.
struct Data {
  std::vector<float> pixels;
  std::vector<int64_t> labels;

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

/// The images of `order` from `begin` on, at most `count`.
inline Data take(const Data& data, const std::vector<int64_t>& order, int64_t begin,
                 int64_t count) {
  Data out;
  const auto end = std::min(begin + count, static_cast<int64_t>(order.size()));
  for (int64_t i = begin; i < end; ++i) {
    const int64_t image = order[static_cast<size_t>(i)];
    const auto first = data.pixels.begin() + image * kPixels;
    out.pixels.insert(out.pixels.end(), first, first + kPixels);
    out.labels.push_back(data.labels[static_cast<size_t>(image)]);
  }
  return out;
}

/// Throws std::runtime_error if the file cannot be read or a line is not 65 numbers in range.
inline Data load(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file)
    throw std::runtime_error("cannot open " + path + "; --data names the file digits.csv.gz");
  std::string text;
  std::array<char, 1 << 14> chunk;
  int count = 0;
  while ((count = gzread(file.get(), chunk.data(), chunk.size())) > 0)
    text.append(chunk.data(), static_cast<size_t>(count));
  if (count < 0) throw std::runtime_error(path + " is damaged");

  Data data;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::vector<int> numbers;
    for (std::string field; std::getline(fields, field, ',');) {
      numbers.push_back(-1);  // and so it stays if the field is no number
      std::from_chars(field.data(), field.data() + field.size(), numbers.back());
    }
    if (numbers.size() != kPixels + 1 || numbers.back() > 9 || std::ranges::min(numbers) < 0)
      throw std::runtime_error(path + ": a line is not 64 pixels and a digit");
    data.labels.push_back(numbers.back());
    numbers.pop_back();
    for (const int pixel : numbers) data.pixels.push_back(static_cast<float>(pixel) / 16);
  }
  return data;
}

}  // namespace digits
