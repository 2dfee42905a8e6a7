// tokenizer_cases.cpp — token ids compared with those of the package `tokenizers`.
//
//   tokenizer-cases FOLDER [--results FILE.md]
//
// FOLDER has tokenizers, strings.json and, for NAME.json and NAME.gguf, the ids that are expected
// (NAME.ids, a line for each string): tokenizers/make.py. The exit status is 1 if an id differs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "braze/tokenizer.h"
#include "tests/frontend/tokenizer_strings.h"

namespace braze {
namespace {

namespace fs = std::filesystem;

struct Result {
  std::string file;
  size_t tokens = 0, strings = 0, numbers = 0;
  std::vector<std::string> different = {};  // strings
};

Result compare(const fs::path& path, const std::vector<std::string>& strings) {
  const Tokenizer tokenizer = Tokenizer::open(path.string());
  Result out{path.filename().string(), tokenizer.size(), strings.size()};
  std::ifstream expected(fs::path(path).replace_extension("ids"));
  for (const std::string& text : strings) {
    std::string line;
    if (!std::getline(expected, line))
      throw std::runtime_error(
          fmt::format("{} has no ids for each of {} strings", out.file, strings.size()));
    std::istringstream numbers(line);
    const std::vector<int32_t> want{std::istream_iterator<int32_t>(numbers), {}};
    out.numbers += want.size();
    if (tokenizer.encode(text) != want) out.different.push_back(text);
  }
  return out;
}

std::string page(const std::vector<Result>& results, const std::string& about) {
  std::string text =
      "# Token ids beside those of the package tokenizers\n\n"
      "Made by `tests/frontend/tokenizers/run.sh`: small tokenizers of every kind, trained on this "
      "tree's own texts, and those of the models that the examples fetch.\n\n" +
      about + "\n| tokenizer | tokens | strings | ids | strings with other ids |\n" +
      "| --- | ---: | ---: | ---: | ---: |\n";
  for (const Result& r : results)
    text += fmt::format("| {} | {} | {} | {} | {} |\n", r.file, r.tokens, r.strings, r.numbers,
                        r.different.size());
  return text;
}

int run(const std::string& folder, const std::string& results_file) {
  const std::vector<std::string> strings = test::read_strings(folder + "/strings.json");
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (fs::exists(fs::path(entry.path()).replace_extension("ids")) &&
        entry.path().extension() != ".ids")
      files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<Result> results;
  for (const fs::path& file : files) {
    const Result& r = results.emplace_back(compare(file, strings));
    fmt::print("{}: {} of {} strings have the ids that are expected\n", r.file,
               r.strings - r.different.size(), r.strings);
    for (size_t i = 0; i < std::min<size_t>(r.different.size(), 3); ++i)
      fmt::print("  encoded otherwise: {}\n", r.different[i]);
  }
  if (!results_file.empty()) {
    std::ifstream about(folder + "/about.txt");
    std::ofstream(results_file) << page(results, {std::istreambuf_iterator<char>(about), {}});
  }
  const bool all_equal =
      std::ranges::all_of(results, &std::vector<std::string>::empty, &Result::different);
  return all_equal && !results.empty() && !strings.empty() ? 0 : 1;
}

}  // namespace
}  // namespace braze

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool has_results = arguments.size() == 3 && arguments[1] == "--results";
  if (arguments.size() != 1 && !has_results) {
    fmt::print(stderr, "usage: tokenizer-cases FOLDER [--results FILE.md]\n");
    return 2;
  }
  try {
    return braze::run(arguments[0], has_results ? arguments[2] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "tokenizer-cases: {}\n", error.what());
    return 1;
  }
}
