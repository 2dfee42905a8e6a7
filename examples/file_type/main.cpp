// Tells what files are by magika, a network of Google's over the first and last bytes of a file,
// which is an .onnx file beside its config.min.json. tools/file_type.sh fetches both. Usage:
// file_type FOLDER [--device NAME] [--check FILE] [FILE...]
//
// --check compares the shares of all types with those that stand in a file.
#include <braze/braze.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using namespace braze;

namespace {

struct Options {
  std::string folder, check;
  Device device = default_device();
  std::vector<std::string> files;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw std::runtime_error(option + " needs a value");
      return argv[++i];
    };
    if (option == "--device")
      options.device = Device(value());
    else if (option == "--check")
      options.check = value();
    else if (options.folder.empty())
      options.folder = option;
    else
      options.files.push_back(option);
  }
  if (options.folder.empty() || (options.files.empty() && options.check.empty()))
    throw std::runtime_error("usage: file_type FOLDER [--device NAME] [--check FILE] [FILE...]");
  return options;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The names in the list "target_labels_space" of config.min.json.
std::vector<std::string> read_labels(const std::string& path) {
  const std::string text = read(path);
  size_t at = text.find("\"target_labels_space\"");
  const size_t end = text.find(']', at);
  if (at == std::string::npos || end == std::string::npos)
    throw std::runtime_error(path + " has no target_labels_space");
  std::vector<std::string> labels;
  at = text.find('[', at);
  while ((at = text.find('"', at)) < end) {
    const size_t close = text.find('"', at + 1);
    labels.push_back(text.substr(at + 1, close - at - 1));
    at = close + 1;
  }
  return labels;
}

constexpr size_t kBlock = 4096;  // what is looked at of either end
constexpr size_t kTaken = 1024;  // and taken, without blanks before and after
constexpr int32_t kPadding = 256;
constexpr const char* kBlanks = " \t\n\r\v\f";

// 2048 numbers: the first bytes and padding, padding and the last bytes.
std::vector<int32_t> features(const std::string& content) {
  std::vector<int32_t> out(2 * kTaken, kPadding);
  std::string first = content.substr(0, kBlock);
  first.erase(0, std::min(first.find_first_not_of(kBlanks), first.size()));
  for (size_t i = 0; i < std::min(first.size(), kTaken); ++i)
    out[i] = static_cast<unsigned char>(first[i]);
  std::string last = content.substr(content.size() - std::min(content.size(), kBlock));
  last.erase(last.find_last_not_of(kBlanks) + 1);
  const size_t count = std::min(last.size(), kTaken);
  for (size_t i = 0; i < count; ++i)
    out[2 * kTaken - count + i] = static_cast<unsigned char>(last[last.size() - count + i]);
  return out;
}

// The shares of all types, a row for each file.
std::vector<float> shares_of(const Model& model, const std::vector<std::string>& contents,
                             const Device& device) {
  std::vector<int32_t> all;
  for (const std::string& content : contents) {
    const std::vector<int32_t> one = features(content);
    all.insert(all.end(), one.begin(), one.end());
  }
  const auto count = static_cast<int64_t>(contents.size());
  const auto width = static_cast<int64_t>(2 * kTaken);
  return model(Array::from(all, {count, width}, device)).to_vector<float>();
}

void print_types(const Model& model, const Options& options,
                 const std::vector<std::string>& labels) {
  std::vector<std::string> contents;
  for (const std::string& path : options.files) contents.push_back(read(path));
  const std::vector<float> shares = shares_of(model, contents, options.device);
  for (size_t i = 0; i < contents.size(); ++i) {
    const auto row = shares.begin() + static_cast<std::ptrdiff_t>(i * labels.size());
    const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(labels.size()));
    std::printf("%s: %s (%.1f %%)\n", options.files[i].c_str(),
                contents[i].empty() ? "empty" : labels[static_cast<size_t>(best - row)].c_str(),
                contents[i].empty() ? 100.0 : 100 * static_cast<double>(*best));
  }
}

// The file has a line with the greatest and the root mean square error of ONNX Runtime against f64;
// then two lines for each text, in which "\n" stands for a new line: it, and its shares in f64.
// Ours may have four times those errors.
bool check(const Model& model, const Options& options) {
  std::ifstream file(options.check);
  double greatest = 0, mean_square = 0;
  std::string line, text;
  if (!(file >> greatest >> mean_square) || !std::getline(file, line))
    throw std::runtime_error(options.check + " cannot be read");
  std::vector<std::string> contents;
  std::vector<double> expected;
  while (std::getline(file, text) && std::getline(file, line)) {
    for (size_t at = 0; (at = text.find("\\n", at)) != std::string::npos;)
      text.replace(at, 2, "\n");
    contents.push_back(text);
    std::istringstream numbers(line);
    expected.insert(expected.end(), std::istream_iterator<double>(numbers), {});
  }
  const std::vector<float> got = shares_of(model, contents, options.device);
  if (got.empty() || got.size() != expected.size())
    throw std::runtime_error("as many shares as the file has are expected");
  double worst = 0, squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - expected[i]);
    if (!(error <= 1)) return false;
    worst = std::max(worst, error);
    squares += error * error;
  }
  const double root = std::sqrt(squares / static_cast<double>(got.size()));
  std::printf("%zu texts; error at most %.3g (ONNX Runtime %.3g), root mean square %.3g (%.3g)\n",
              contents.size(), worst, greatest, root, mean_square);
  return worst <= 4 * greatest && root <= 4 * mean_square;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    const Model model = load_onnx(options.folder + "/model.onnx");
    if (!options.check.empty()) return check(model, options) ? 0 : 1;
    print_types(model, options, read_labels(options.folder + "/config.min.json"));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "file_type: " << error.what() << "\n";
    return 1;
  }
}
