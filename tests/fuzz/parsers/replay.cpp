// replay.cpp — runs a fuzz target without libFuzzer: every seed as it is, then changed seeds.
//
//   fuzz-replay-graph [--inputs N] [--seed S] FILE|FOLDER...
//
// A text file with several cases (lines "// ----") is several seeds. The input that is being read
// lies in the file fuzz.input of the current folder if the process dies.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

#include "tests/fuzz/parsers/mutate.h"
#include "tests/fuzz/parsers/target.h"

namespace {

using namespace braze::fuzz;

std::string current;

// Only what a signal handler may do.
void save_current(int signal) {
  const int file = open("fuzz.input", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool saved = write(file, current.data(), current.size()) >= 0;
  const char* const words = saved ? "fuzz: the input is in fuzz.input\n" : "fuzz: no file\n";
  if (write(STDERR_FILENO, words, std::strlen(words)) < 0) _exit(2);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(std::string input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
}

void add_seeds(const std::filesystem::path& path, std::vector<std::string>& seeds) {
  std::ifstream file(path, std::ios::binary);
  if (!file) stop("a seed cannot be read", path.string());
  std::ostringstream text;
  text << file.rdbuf();
  std::string rest = std::move(text).str();
  constexpr std::string_view kSeparator = "// ----\n";
  for (size_t at; kIsText && (at = rest.find(kSeparator)) != std::string::npos;) {
    seeds.push_back(rest.substr(0, at));
    rest.erase(0, at + kSeparator.size());
  }
  seeds.push_back(std::move(rest));
}

struct Options {
  int64_t inputs = 0;
  uint64_t seed = 1;
  std::vector<std::string> seeds;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--inputs" && i + 1 < argc) {
      options.inputs = std::stoll(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      options.seed = std::stoull(argv[++i]);
    } else if (std::filesystem::is_directory(argument)) {
      for (const auto& entry : std::filesystem::directory_iterator(argument))
        if (entry.is_regular_file()) add_seeds(entry.path(), options.seeds);
    } else {
      add_seeds(std::filesystem::path(argument), options.seeds);
    }
  }
  std::sort(options.seeds.begin(), options.seeds.end());  // folders are listed in no order
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.seeds.empty()) stop("no seeds", "name files or folders");
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    std::signal(signal, save_current);
  // What a target lets through ends the process by std::terminate.
  for (const std::string& input : options.seeds) run(input);
  Random random(options.seed);
  for (int64_t i = 0; i < options.inputs; ++i) {
    const std::string& from = random.pick(options.seeds);
    run(kIsText ? mutate_text(from, random.pick(options.seeds), random)
                : mutate_bytes(from, random));
  }
  std::cout << options.seeds.size() << " seeds and " << options.inputs
            << " inputs made from them\n";
  return 0;
}
