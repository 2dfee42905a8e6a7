#include "tools/braze/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>

#include "braze/io.h"
#include "ir/support/text.h"
#include "ir/support/words.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

struct Statistics {
  double min = NAN, mean = NAN, max = NAN;  // of what is no NaN
  int64_t nans = 0;
};

Statistics statistics_of(const HostTensor& value) {
  Statistics s;
  double sum = 0;
  for (int64_t i = 0; i < value.numel(); ++i) {
    const double x = value.get_double(i);
    if (std::isnan(x)) {
      ++s.nans;
      continue;
    }
    s.min = std::fmin(s.min, x);
    s.max = std::fmax(s.max, x);
    sum += x;
  }
  if (value.numel() > s.nans) s.mean = sum / static_cast<double>(value.numel() - s.nans);
  return s;
}

std::vector<std::string> first_values(const HostTensor& value) {
  constexpr int64_t kShown = 8;
  std::vector<std::string> texts;
  for (int64_t i = 0; i < std::min(kShown, value.numel()); ++i)
    texts.push_back(value.element_text(i));
  return texts;
}

std::string type_text(const HostTensor& value) {
  return fmt::format("{}[{}]", name(value.dtype()), fmt::join(value.shape(), ", "));
}

std::string statistics_text(const Statistics& s) {
  return fmt::format("min {:.6g}  mean {:.6g}  max {:.6g}  NaN {}", s.min, s.mean, s.max, s.nans);
}

// Output names come from the source file, which must not choose where we write.
std::string file_name(const std::string& output) {
  std::string name = output;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.') c = '_';
  if (name.empty() || name[0] == '.') name.insert(0, "_");
  return name;
}

// A file of its own for every output, even where two names differ only in what files do not take.
std::vector<std::string> file_names(const std::vector<std::string>& outputs) {
  std::vector<std::string> files;
  for (const std::string& output : outputs) files.push_back(unused_name(file_name(output), files));
  return files;
}

bool is_archive(std::string_view path) {
  return path.ends_with(".npz") || path.ends_with(".safetensors");
}

void save_archive(const std::string& path, const std::map<std::string, Array>& arrays) {
  path.ends_with(".npz") ? save_npz(path, arrays) : save_safetensors(path, arrays);
}

bool is_npy(std::string_view path) { return path.ends_with(".npy"); }

// What is no kind of file: no ending, a slash there, or a folder of that name.
bool is_folder(const std::string& path) {
  std::error_code is_missing;
  return path.ends_with('/') || std::filesystem::is_directory(path, is_missing) ||
         std::filesystem::path(path).extension().empty();
}

void write_folder(const std::string& folder, const std::vector<std::string>& names,
                  const std::vector<Array>& values) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail_usage(fmt::format("the folder {} cannot be made: {}", folder, error.message()));
  const std::vector<std::string> files = file_names(names);
  for (size_t i = 0; i < names.size(); ++i)
    save_npy((std::filesystem::path(folder) / (files[i] + ".npy")).string(), values[i]);
}

}  // namespace

void print_output(const std::string& name, const HostTensor& value) {
  fmt::print("{}: {}\n", printable(name), type_text(value));
  if (value.numel() == 0) return;
  const std::vector<std::string> first = first_values(value);
  const bool all = static_cast<int64_t>(first.size()) == value.numel();
  fmt::print("  {}\n  {}{}\n", statistics_text(statistics_of(value)), fmt::join(first, ", "),
             all ? "" : ", ...");
}

std::string output_json(const std::string& name, const HostTensor& value) {
  const Statistics s = statistics_of(value);
  std::vector<std::string> first;
  for (const std::string& text : first_values(value)) first.push_back(json::string(text));
  return json::object({{"name", json::string(name)},
                       {"type", json::string(type_text(value))},
                       {"min", json::number(s.min)},
                       {"mean", json::number(s.mean)},
                       {"max", json::number(s.max)},
                       {"nan", std::to_string(s.nans)},
                       {"first", json::array(first)}});
}

void OutputFlags::add_to(Arguments& arguments) {
  arguments
      .add_option("--output", outputs,
                  "DIR, o.npz or o.safetensors for all outputs, NAME=o.npy for one, o.npy for the "
                  "only one")
      .several();
}

std::vector<std::string> OutputFlags::paths() const {
  std::vector<std::string> paths;
  for (const std::string& flag : outputs) paths.push_back(flag.substr(flag.find('=') + 1));
  return paths;
}

OutputFiles::OutputFiles(const OutputFlags& flags, std::vector<std::string> names)
    : names_(std::move(names)) {
  for (const std::string& flag : flags.outputs) {
    const size_t equals = flag.find('=');
    files_.push_back(equals == std::string::npos
                         ? all_of(flag)
                         : one_of(flag.substr(equals + 1), flag.substr(0, equals)));
  }
}

size_t OutputFiles::find_output(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end())
    fail_usage(fmt::format("{} is not an output; the outputs are {}{}", name,
                           fmt::join(names_, ", "), did_you_mean(name, names_)));
  return static_cast<size_t>(found - names_.begin());
}

OutputFiles::File OutputFiles::all_of(const std::string& path) const {
  if (is_archive(path) || is_folder(path)) return {path, {}};
  if (!is_npy(path))
    fail_usage(
        fmt::format("--output {} is not a kind of file that holds arrays; the name must end in "
                    ".npz, .safetensors or .npy, or in / for a folder",
                    path));
  if (names_.size() != 1)
    fail_usage(
        fmt::format("--output {} can hold one array only; write NAME={} with one of the names {}",
                    path, path, fmt::join(names_, ", ")));
  return {path, 0};
}

OutputFiles::File OutputFiles::one_of(const std::string& path, const std::string& name) const {
  const size_t output = find_output(name);
  if (!is_archive(path) && !is_npy(path))
    fail_usage(
        fmt::format("--output {}={} is not a kind of file that holds arrays; the name must end in "
                    ".npy, .npz or .safetensors",
                    name, path));
  return {path, output};
}

void OutputFiles::write(const std::vector<Array>& values) const {
  for (const auto& [path, output] : files_) {
    if (output && is_npy(path)) {
      save_npy(path, values[*output]);
    } else if (is_archive(path)) {
      std::map<std::string, Array> arrays;
      for (size_t i = 0; i < names_.size(); ++i)
        if (!output || output == i) arrays.emplace(names_[i], values[i]);
      save_archive(path, arrays);
    } else {
      write_folder(path, names_, values);
    }
  }
}

}  // namespace braze::tool
