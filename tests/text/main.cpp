// braze-text-test FOLDER...: runs the text tests (*.braze) directly in these folders.
//
// A file holds cases, separated by lines "// ----". A case is one text with directives in comments:
//
//   // run: a, b           apply these functions (functions.cpp), one after the other
//   // expect:             the result is what follows, line for line, in comments up to the case's
//   // braze 1 graph ...   end. Without `run` it is the text as the printer writes it.
//   // eval: %x = [1, 2]   interpret on these inputs
//   // expect: [2, 4]      an output of the `eval` above; one line for each
//   // target: sm_90a      the machine that the reasons are for, x86-64-v3 if not said
//   // reason: text        a decision of the compiler; all of them, one line for each
//   %a = ... // error: m   reading or running fails on this line with a message that contains m
//
// Every sound case is also read, printed, read and printed again: the texts must be equal.
//
// The runner works out what the file should be and compares. BRAZE_BLESS=1 writes it instead.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <vector>

#include "braze/error.h"
#include "ir/support/text.h"
#include "tests/text/functions.h"

namespace braze::text_test {
namespace {

using Lines = std::vector<std::string>;

constexpr std::string_view kSeparator = "// ----", kRun = "// run:", kEval = "// eval:",
                           kExpect = "// expect:", kReason = "// reason:", kError = "// error:";

Lines split(std::string_view text, char separator) {
  Lines lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line, separator);) lines.push_back(line);
  return lines;
}

std::string unsplit(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') + 1 - begin));
}

[[noreturn]] void misuse(const std::string& message) { throw std::runtime_error(message); }

// By the first header: what is expected may be a text of another language.
const Language& language_of(std::string_view text) {
  const Language* found = &languages().front();
  size_t first = text.npos;
  for (const Language& language : languages()) {
    const size_t at = text.find(fmt::format("braze 1 {}", language.header));
    if (at >= first) continue;
    found = &language;
    first = at;
  }
  return *found;
}

std::string apply(std::string_view name, std::string_view text, std::string_view file) {
  for (const Function& function : functions())
    if (function.name == name) return function.run(text, file);
  misuse(fmt::format("unknown function in `run`: {}", name));
}

// One case, taken apart: what stays in every version of the file, and what was expected.
struct Case {
  size_t first_line;                // of the file, from 0
  Lines lines;                      // as in the file
  Lines kept;                       // without expectations
  std::vector<size_t> kept_number;  // of each kept line: its line in the file, from 0
  Lines runs;
  std::vector<std::pair<size_t, std::string>> evals;  // index in `kept` and arguments
  bool expects_text = false;
  bool expects_reasons = false;
  std::optional<std::pair<size_t, std::string>> error;  // index in `kept` and message

  Case(size_t first, Lines all) : first_line(first), lines(std::move(all)) {
    for (size_t i = 0; i < lines.size() && !expects_text; ++i) read_line(lines[i], first_line + i);
  }

  void read_line(std::string line, size_t number) {
    const auto rest = [&](std::string_view directive) {
      return trim(line.substr(directive.size()));
    };
    if (line.starts_with(kExpect)) {
      expects_text = rest(kExpect).empty();
      return;
    }
    if (line.starts_with(kReason)) {
      expects_reasons = true;
      return;
    }
    if (line.starts_with(kRun))
      for (const std::string& name : split(rest(kRun), ',')) runs.push_back(trim(name));
    if (line.starts_with(kEval)) evals.emplace_back(kept.size(), rest(kEval));
    if (const size_t at = line.find(kError); at != std::string::npos) {
      error.emplace(kept.size(), trim(line.substr(at + kError.size())));
      line.erase(line.find_last_not_of(' ', at - 1) + 1);
    }
    kept.push_back(line);
    kept_number.push_back(number);
  }

  // The case as it should be.
  Lines blessed(const std::string& file) const {
    // Empty lines in front give every line its number in the file.
    const std::string text = std::string(first_line, '\n') + unsplit(lines);
    Lines result = kept;
    try {
      const Language& language = language_of(text);
      std::string printed = language.print(text, file);
      if (const std::string again = language.print(printed, "printed text"); again != printed)
        misuse("the printed text reads as another one:\n" + printed + "and\n" + again);
      // Backwards, so that what is inserted does not move what comes next.
      for (size_t i = evals.size(); i-- > 0;) {
        Lines values = split(language.eval(text, file, evals[i].second), '\n');
        for (std::string& value : values) value = fmt::format("{} {}", kExpect, value);
        result.insert(result.begin() + static_cast<std::ptrdiff_t>(evals[i].first) + 1,
                      values.begin(), values.end());
      }
      if (expects_reasons) {
        if (!language.reasons) misuse("this language has no reasons");
        for (const std::string& reason : split(language.reasons(text, file), '\n'))
          result.push_back(fmt::format("{} {}", kReason, reason));
      }
      if (expects_text || !runs.empty()) {
        std::string output = runs.empty() ? printed : text;
        for (const std::string& run : runs) output = apply(run, output, file);
        result.emplace_back(kExpect);
        for (const std::string& line : split(output, '\n')) result.push_back(trim("// " + line));
      }
    } catch (const Error& caught) {
      return with_error(caught, file);
    }
    return result;
  }

  Lines with_error(const Error& caught, const std::string& file) const {
    // What the text lacks at its end is missing behind the last line.
    const size_t number = std::min<size_t>(caught.location().line - 1, kept_number.back());
    const auto guilty = std::find(kept_number.begin(), kept_number.end(), number);
    const char* const error_file = caught.location().file;
    if (guilty == kept_number.end() || !error_file || error_file != file)
      misuse(std::string("an error outside of the text: ") + caught.what());
    Lines result = kept;
    const auto index = static_cast<size_t>(guilty - kept_number.begin());
    const bool as_expected =
        error && error->first == index &&
        std::string_view(caught.what()).find(error->second) != std::string_view::npos;
    const std::string message = as_expected ? error->second : split(caught.message(), '\n').front();
    result[index] += fmt::format("{}{} {}", result[index].empty() ? "" : "  ", kError, message);
    return result;
  }
};

Lines blessed_file(const Lines& lines, const std::string& file) {
  Lines result;
  for (size_t begin = 0; begin <= lines.size();) {
    size_t end = begin;
    while (end < lines.size() && !lines[end].starts_with(kSeparator)) ++end;
    const auto at = [&](size_t i) { return lines.begin() + static_cast<std::ptrdiff_t>(i); };
    const Lines part = Case(begin, Lines(at(begin), at(end))).blessed(file);
    result.insert(result.end(), part.begin(), part.end());
    if (end < lines.size()) result.push_back(lines[end]);
    begin = end + 1;
  }
  return result;
}

// Prints what differs, from the first line to the last that does.
void print_difference(const std::string& file, const Lines& there, const Lines& wanted) {
  const size_t shorter = std::min(there.size(), wanted.size());
  size_t front = 0, back = 0;
  while (front < shorter && there[front] == wanted[front]) ++front;
  while (back < shorter - front &&
         there[there.size() - 1 - back] == wanted[wanted.size() - 1 - back])
    ++back;
  std::cout << file << ":" << front + 1 << ": expected (-) and found (+):\n";
  for (size_t i = front; i < there.size() - back; ++i) std::cout << "  - " << there[i] << "\n";
  for (size_t i = front; i < wanted.size() - back; ++i) std::cout << "  + " << wanted[i] << "\n";
}

bool run_file(const std::filesystem::path& path, bool bless) {
  std::ifstream stream(path);
  std::stringstream content;
  content << stream.rdbuf();
  const Lines there = split(content.str(), '\n');
  try {
    const Lines wanted = blessed_file(there, path.string());
    if (there == wanted) return true;
    if (bless) {
      std::ofstream(path) << unsplit(wanted);
      std::cout << path.string() << ": rewritten\n";
      return true;
    }
    print_difference(path.string(), there, wanted);
  } catch (const std::exception& error) {
    std::cout << path.string() << ": " << error.what() << "\n";
  }
  return false;
}

int run(const Lines& folders) {
  const char* setting = std::getenv("BRAZE_BLESS");
  const bool bless = setting && std::string_view(setting) == "1";
  size_t count = 0, failures = 0;
  for (const std::string& folder : folders) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".braze") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      ++count;
      failures += !run_file(file, bless);
    }
  }
  std::cout << count << " files, " << failures << " failed\n";
  if (failures) std::cout << "BRAZE_BLESS=1 rewrites expectations; read the difference first.\n";
  return failures || !count ? 1 : 0;
}

}  // namespace
}  // namespace braze::text_test

int main(int argc, char** argv) { return braze::text_test::run({argv + 1, argv + argc}); }
