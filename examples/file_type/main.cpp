// Tells what files are by magika, a network of Google's over the first and last bytes of a file,
// which is an .onnx file beside its config.min.json. tools/file_type.sh fetches both. Usage:
// file_type FOLDER [--device NAME] [--check FILE [--results PAGE]] [FILE...]
//
// --check compares the shares of all types with those that stand in a file; --results writes what
// comes of it.
#include <braze/braze.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "model_tool.h"

using namespace braze;

namespace {

struct Options {
  std::string folder, check, results;
  Device device = default_device();
  std::vector<std::string> files;
};

Options parse(int argc, char** argv) {
  Options options;
  model_tool::Options reader(
      "file_type FOLDER [--device NAME] [--check FILE [--results PAGE]] [FILE...]");
  reader.add("--device", options.device);
  reader.add("--check", options.check);
  reader.add("--results", options.results);
  options.files = reader.read(argc, argv);
  if (options.files.empty()) reader.fail();
  options.folder = options.files.front();
  options.files.erase(options.files.begin());
  if (options.files.empty() && options.check.empty()) reader.fail();
  return options;
}

std::string read(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw std::runtime_error(path + " is a folder");
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

// False if a file cannot be read; the others are of interest all the same.
bool print_types(const Model& model, const Options& options,
                 const std::vector<std::string>& labels) {
  std::vector<std::string> files, contents;
  for (const std::string& path : options.files) {
    try {
      contents.push_back(read(path));
      files.push_back(path);
    } catch (const std::exception& error) {
      std::cerr << "file_type: " << error.what() << "\n";
    }
  }
  if (files.empty()) return false;
  const std::vector<float> shares = shares_of(model, contents, options.device);
  for (size_t i = 0; i < contents.size(); ++i) {
    const auto row = shares.begin() + static_cast<std::ptrdiff_t>(i * labels.size());
    const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(labels.size()));
    std::printf("%s: %s (%.1f %%)\n", files[i].c_str(),
                contents[i].empty() ? "empty" : labels[static_cast<size_t>(best - row)].c_str(),
                contents[i].empty() ? 100.0 : 100 * static_cast<double>(*best));
  }
  return files.size() == options.files.size();
}

// The errors are compared with those of the program that the file is from. "\n" stands for a new
// line in a text.
bool check(const Model& model, const Options& options) {
  const model_tool::Checks checks = model_tool::read_checks(options.check);
  std::vector<std::string> contents;
  for (const auto& [text, shares] : checks.rows) {
    contents.push_back(text);
    for (size_t at = 0; (at = contents.back().find("\\n", at)) != std::string::npos;)
      contents.back().replace(at, 2, "\n");
  }
  return model_tool::judge(
      checks, shares_of(model, contents, options.device), options.results,
      "# Types of files on " + options.device.name() +
          "\n\nMade by `tools/file_type.sh --check --results PAGE` with magika's network. What is "
          "expected was computed by Braze's interpreter in f64.");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    const Model model = load_onnx(options.folder + "/model.onnx");
    if (!options.check.empty()) return check(model, options) ? 0 : 1;
    return print_types(model, options, read_labels(options.folder + "/config.min.json")) ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "file_type: " << error.what() << "\n";
    return 1;
  }
}
