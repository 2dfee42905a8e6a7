// model_tool.h — what the programs around a model have in common: how their options are read, and
// how their numbers are judged.
#pragma once

#include <braze/braze.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace model_tool {

/// Options that are followed by a value each, and words that are none.
class Options {
 public:
  explicit Options(std::string usage) : usage_("usage: " + std::move(usage)) {}

  template <class T>
  void add(const std::string& name, T& value) {
    readers_[name] = [&value, name](const std::string& text) {
      if constexpr (std::is_arithmetic_v<T>) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || value < 0)
          throw std::runtime_error(name + " must be a number and at least 0, not " + text);
      } else {
        value = T(text);
      }
    };
  }

  /// The words.
  std::vector<std::string> read(int argc, char** argv) const {
    std::vector<std::string> words;
    for (int i = 1; i < argc; ++i) {
      const auto reader = readers_.find(argv[i]);
      if (reader == readers_.end()) {
        words.emplace_back(argv[i]);
        if (words.back().starts_with("--")) fail();
        continue;
      }
      if (i + 1 == argc) throw std::runtime_error(std::string(argv[i]) + " needs a value");
      reader->second(argv[++i]);
    }
    return words;
  }

  [[noreturn]] void fail() const { throw std::runtime_error(usage_); }

 private:
  std::string usage_;
  std::map<std::string, std::function<void(const std::string&)>> readers_;
};

/// Texts, and the numbers that are expected for each, in f64.
struct Checks {
  double greatest = 0, root = 0;  ///< errors of another program's f32: the greatest, the root mean
                                  ///< square
  std::string other;              ///< that program
  std::vector<std::pair<std::string, std::vector<double>>> rows;
};

/// A line with both errors and the program; then two lines for each text: it, and its numbers.
inline Checks read_checks(const std::string& path) {
  std::ifstream file(path);
  Checks checks;
  std::string text, line;
  if (!(file >> checks.greatest >> checks.root >> std::ws) || !std::getline(file, checks.other))
    throw std::runtime_error(path + " cannot be read");
  while (std::getline(file, text) && std::getline(file, line)) {
    std::istringstream numbers(line);
    checks.rows.push_back({text, {std::istream_iterator<double>(numbers), {}}});
  }
  if (checks.rows.empty()) throw std::runtime_error(path + " has no texts");
  return checks;
}

/// Writes a page of results.
inline void write_page(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text) || !file.flush()) throw std::runtime_error(path + " cannot be written");
}

/// Whether the errors of `got`, the numbers of all texts, are at most four times those of the other
/// program. Prints them. If there is a path `page`, it also writes them there, below `head`.
inline bool judge(const Checks& checks, std::span<const float> got, const std::string& page,
                  const std::string& head) {
  double greatest = 0, squares = 0;
  size_t count = 0;
  for (const auto& [text, numbers] : checks.rows)
    for (const double number : numbers) {
      if (count == got.size()) throw std::runtime_error("fewer numbers than are expected");
      const double error = std::abs(static_cast<double>(got[count++]) - number);
      // What is no number has an infinite error.
      greatest = std::max(greatest, std::isnan(error) ? HUGE_VAL : error);
      squares += error * error;
    }
  if (count != got.size()) throw std::runtime_error("more numbers than are expected");
  const double root = std::sqrt(squares / static_cast<double>(std::max<size_t>(count, 1)));
  std::printf("%zu texts; error at most %.3g (%s %.3g), root mean square %.3g (%.3g)\n",
              checks.rows.size(), greatest, checks.other.c_str(), checks.greatest, root,
              checks.root);
  const bool is_right = greatest <= 4 * checks.greatest && root <= 4 * checks.root;
  if (!page.empty()) {
    std::ostringstream text;
    text.precision(3);
    text << head << "\n\nErrors are those against f64. They may be four times those of the f32 of "
         << checks.other << ".\n\n| texts | numbers | greatest error | that of " << checks.other
         << " | root mean square error | that of " << checks.other
         << " | |\n| ---: | ---: | ---: | ---: | ---: | ---: | --- |\n| " << checks.rows.size()
         << " | " << count << " | " << greatest << " | " << checks.greatest << " | " << root
         << " | " << checks.root << " | " << (is_right ? "right" : "wrong") << " |\n";
    write_page(page, text.str());
  }
  return is_right;
}

}  // namespace model_tool
