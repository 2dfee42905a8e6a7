// Runs the transcripts (*.cli) of this folder. A transcript is what a terminal would show:
//
//   # a comment
//   $ braze run softmax.braze --device interpreter
//   y: f32[6, 40]
//   ...                                  any lines of output, or none
//   [exit 7]                             where it is not 0
//
// Commands run by the shell, each file in a folder of its own that holds a copy of the samples;
// stdout and stderr are shown together. BRAZE_BLESS=1 rewrites all output but that of commands
// with "...".
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/io/signature.h"
#include "tests/source_path.h"

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

constexpr std::string_view kPrompt = "$ ", kAnything = "...", kKilled = "[killed]";

struct Step {
  Lines comments;
  std::string command;
  Lines output;
};

struct Transcript {
  std::vector<Step> steps;
  Lines end;  // comments
};

Transcript read(const fs::path& path) {
  Transcript transcript;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("# ") || line.empty()) {
      transcript.end.push_back(line);
    } else if (line.starts_with(kPrompt)) {
      transcript.steps.push_back({std::move(transcript.end), line.substr(kPrompt.size()), {}});
      transcript.end = {};
    } else if (!transcript.steps.empty()) {
      transcript.steps.back().output.push_back(line);
    }
  }
  return transcript;
}

// What the command prints, empty lines left out, and how it ends.
Lines run(const std::string& command, const fs::path& folder) {
  const std::string line = "cd '" + folder.string() + "' && { " + command + "\n} 2>&1";
  Lines lines;
  FILE* pipe = popen(line.c_str(), "r");
  if (!pipe) return {"[cannot start a shell]"};
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  const int status = pclose(pipe);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!WIFEXITED(status))
    lines.emplace_back(kKilled);
  else if (WEXITSTATUS(status))
    lines.push_back("[exit " + std::to_string(WEXITSTATUS(status)) + "]");
  return lines;
}

// How a command ended, other than well.
bool is_end(const std::string& line) { return line.starts_with("[exit ") || line == kKilled; }

bool matches(const Lines& wanted, size_t w, const Lines& got, size_t g) {
  if (w == wanted.size()) return g == got.size();
  if (wanted[w] == kAnything) {
    for (size_t skip = g; skip <= got.size(); ++skip) {
      if (matches(wanted, w + 1, got, skip)) return true;
      if (skip < got.size() && is_end(got[skip])) return false;
    }
    return false;
  }
  return g < got.size() && wanted[w] == got[g] && matches(wanted, w + 1, got, g + 1);
}

bool has_wildcard(const Lines& lines) {
  return std::find(lines.begin(), lines.end(), kAnything) != lines.end();
}

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

void write(const fs::path& path, const Transcript& transcript) {
  std::ofstream file(path);
  for (const Step& step : transcript.steps)
    file << joined(step.comments) << kPrompt << step.command << "\n" << joined(step.output);
  file << joined(transcript.end);
}

class Transcripts : public testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              ("braze-cli-" + GetParam().stem().string() + "-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    for (const auto& entry : fs::directory_iterator(braze::test::source_path("tests/tools")))
      if (const fs::path kind = entry.path().extension();
          kind == ".braze" || kind == ".onnx" || kind == ".json")
        fs::copy(entry.path(), folder_);
    fs::copy(braze::test::source_path("tests/stablehlo/cases/mlp.mlir"), folder_);
    // Some samples are code, which is not taken where others can write it.
    umask(022);
    for (const auto& entry : fs::directory_iterator(folder_))
      fs::permissions(entry, fs::perms::group_write | fs::perms::others_write,
                      fs::perm_options::remove);
    // The environment of the tester must not show; `braze` is the tool just built.
    for (const char* name : {"BRAZE_DUMP", "BRAZE_DEBUG", "BRAZE_CPU_DEVICES", "BRAZE_CPU_TARGET",
                             "BRAZE_MEMORY_LIMIT", "BRAZE_SYNC_LAUNCHES", "BRAZE_TRACE",
                             "BRAZE_CACHE_SIGN_KEY", "BRAZE_TRUST_KEYS"})
      unsetenv(name);
    setenv("BRAZE_CUDA_DRIVER", "none", 1);
    setenv("FAKE_CUDA", BRAZE_FAKE_CUDA, 1);  // a driver of two GPUs, and an NCCL
    const std::string path = fs::path(BRAZE_TOOL).parent_path().string();
    setenv("PATH", (path + ":" + std::getenv("PATH")).c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_P(Transcripts, ShowWhatTheToolDoes) {
  const char* bless = std::getenv("BRAZE_BLESS");
  Transcript transcript = read(GetParam());
  ASSERT_FALSE(transcript.steps.empty());
  for (Step& step : transcript.steps) {
    const Lines got = run(step.command, folder_);
    if (matches(step.output, 0, got, 0)) continue;
    if (bless && std::string_view(bless) == "1" && !has_wildcard(step.output)) {
      step.output = got;
      continue;
    }
    ADD_FAILURE() << GetParam().string() << ": $ " << step.command << "\nexpected:\n"
                  << joined(step.output) << "found:\n"
                  << joined(got);
  }
  if (bless) write(GetParam(), transcript);
}

std::vector<fs::path> transcripts() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(braze::test::source_path("tests/tools")))
    if (entry.path().extension() == ".cli" &&
        (braze::has_signatures() || entry.path().stem() != "sign"))
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Tools, Transcripts, testing::ValuesIn(transcripts()),
                         [](const auto& entry) { return entry.param.stem().string(); });

}  // namespace
