// Tile and kernel text that somebody typed, for every machine: compile() makes code of it or
// refuses it as the text's fault, whatever it says. Changed texts are compiled in this process, so
// that a crash of a code generator ends the test.
//
// Other changes than the test makes: --gtest_filter='TypedCode.*' --gtest_random_seed=<any>. A text
// that ends the process is the last that was written to braze-typed-<process>.braze in the folder
// for temporary files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "braze/compile.h"
#include "braze/error.h"
#include "compiler/codegen/ptx_assembler.h"
#include "ir/code/check.h"
#include "ir/code/text.h"
#include "ir/graph/text.h"
#include "ir/kernel/verify.h"
#include "ir/ops/elementwise.h"
#include "ir/program/program.h"
#include "ir/support/text.h"
#include "ir/target/target.h"
#include "tests/fuzz/parsers/mutate.h"

namespace braze {
namespace {

namespace fs = std::filesystem;
using fuzz::Random;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The cases of all texts below a folder of the tests.
std::vector<std::string> cases(std::string_view folder, std::string_view language) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(BRAZE_SOURCE_DIR) / "tests" / folder))
    if (entry.path().extension() == ".braze") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> out;
  for (const fs::path& path : files) {
    const std::string text = read(path);
    for (size_t begin = 0; begin != std::string::npos;) {
      const size_t end = text.find("// ----", begin);
      const std::string one = text.substr(begin, end - begin);
      if (one.find(fmt::format("braze 1 {}", language)) != std::string::npos) out.push_back(one);
      begin = end == std::string::npos ? end : end + 7;
    }
  }
  return out;
}

constexpr const char* kTargets[] = {"x86-64-v3", "x86-64-v4", "sm_80", "sm_90a"};

// What compile() shows of a language on the way of `code` to every machine.
template <class Code>
void add_phases(const Code& code, std::string_view language, std::vector<std::string>& out) {
  CompileOptions options;
  options.assemble = false;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage == language) out.push_back(phase.text());
  };
  for (const char* target : kTargets) {
    try {
      compile(code, find_target(target).value(), options);
    } catch (const Error&) {  // what was shown before is a text too
    }
  }
}

// Texts of a language: those of the tests, and what the compiler makes of graphs and tile programs.
std::vector<std::string> seeds(std::string_view language) {
  std::vector<std::string> out = cases(language, language);
  for (std::string& text : cases(fmt::format("fuzz/corpus/{}", language), language))
    out.push_back(std::move(text));
  for (const char* folder : {"tile/graphs", "tools", "ir/graph"})
    for (const std::string& text : cases(folder, "graph")) {
      try {
        add_phases(parse_graph(text, "seed"), language, out);
      } catch (const Error&) {  // some are wrong on purpose
      }
    }
  if (language == "tile") return out;
  for (const std::string& text : cases("tile", "tile")) {
    try {
      add_phases(parse_tile(text, "seed"), language, out);
    } catch (const Error&) {
    }
  }
  return out;
}

// --- Changes -------------------------------------------------------------------------------------

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Where `word` stands by itself.
std::vector<size_t> places(std::string_view text, std::string_view word) {
  std::vector<size_t> out;
  for (size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; at += word.size()) {
    const bool begins = at == 0 || !is_word(text[at - 1]);
    const bool ends = at + word.size() == text.size() || !is_word(text[at + word.size()]);
    if (begins && ends) out.push_back(at);
  }
  return out;
}

// Words of one kind, of which one takes the place of another.
std::vector<std::vector<std::string>> kinds() {
  std::vector<std::vector<std::string>> out = {
      {"x86-64-v3", "x86-64-v4", "sm_80", "sm_90a", "interpreter"},
      {"bool", "i32", "i64", "u32", "f16", "bf16", "f32", "f64"},
      {"sum", "prod", "min", "max", "and", "or"},
      {"stream", "keep"},
      {"in", "out", "inout", "work"},
      {"grid", "block"},
      {"local", "shared"},
      {"reshape", "transpose", "slice", "broadcast", "splat", "regroup"},
      {"relaxed", "acq_rel"},
      {"add", "max"},
      {"static", "unroll"},
      {"lane", "e0", "e1", "tid", "rtid", "0"}};
  std::vector<std::string>& rows = out.emplace_back();
  for (const ElementwiseInfo& row : elementwise_table()) rows.emplace_back(row.name);
  std::vector<std::string>& instructions = out.emplace_back();
#define INSTRUCTION(id, text, ...) instructions.emplace_back(text);
#include "ir/code/instructions.def"
#undef INSTRUCTION
  std::vector<std::string>& lanes = out.emplace_back();
  for (const char* dtype : {"bool", "i32", "i64", "f16", "bf16", "f32", "f64"})
    for (const char* count : {"", "x2", "x4", "x8", "x16", "x32", "x64"})
      lanes.push_back(std::string(dtype) + count);
  return out;
}

void exchange_word(std::string& text, Random& random) {
  static const auto all = kinds();
  for (int tries = 0; tries < 20; ++tries) {
    const std::vector<std::string>& kind = random.pick(all);
    const std::string& from = random.pick(kind);
    const std::vector<size_t> found = places(text, from);
    if (found.empty()) continue;
    const std::string& to = random.pick(kind);
    if (random.one_in(3)) {  // everywhere, so that types agree again
      for (auto at = found.rbegin(); at != found.rend(); ++at) text.replace(*at, from.size(), to);
    } else {
      text.replace(random.pick(found), from.size(), to);
    }
    return;
  }
}

void change_number(std::string& text, Random& random) {
  std::vector<std::pair<size_t, size_t>> numbers;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) continue;
    const size_t begin = i;
    while (i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]))) ++i;
    if (begin == 0 || !is_word(text[begin - 1]) || text[begin - 1] == 'x')
      numbers.emplace_back(begin, i - begin);
  }
  if (numbers.empty()) return;
  const auto [at, size] = random.pick(numbers);
  static const std::vector<std::string> edges = {"0",
                                                 "1",
                                                 "2",
                                                 "3",
                                                 "7",
                                                 "8",
                                                 "16",
                                                 "31",
                                                 "32",
                                                 "33",
                                                 "64",
                                                 "100",
                                                 "128",
                                                 "255",
                                                 "256",
                                                 "1024",
                                                 "4096",
                                                 "65536",
                                                 "1048576",
                                                 "16777216",
                                                 "-1",
                                                 "-16",
                                                 "2147483647",
                                                 "4294967296",
                                                 "1099511627776",
                                                 "12345",
                                                 "65535",
                                                 "140737488355327",
                                                 "9223372036854775807"};
  const std::string number = text.substr(at, size);
  // One number of a text often says the same in many places.
  if (random.one_in(3)) {
    const std::string to = random.pick(edges);
    const std::vector<size_t> found = places(text, number);
    for (auto place = found.rbegin(); place != found.rend(); ++place)
      text.replace(*place, number.size(), to);
    return;
  }
  text.replace(at, size, random.pick(edges));
}

struct Line {
  size_t begin, size;
};
std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    out.push_back({begin, end - begin});
    begin = end;
  }
  return out;
}

void change_line(std::string& text, std::string_view other, Random& random) {
  const std::vector<Line> lines = lines_of(text);
  if (lines.size() < 4) return;
  const Line a = random.pick(lines), b = random.pick(lines);
  const std::string line = text.substr(a.begin, a.size);
  switch (random.below(4)) {
    case 0:
      text.erase(a.begin, a.size);
      break;
    case 1:
      text.insert(b.begin, line);
      break;
    case 2: {
      const std::string theirs(other);
      const std::vector<Line> from = lines_of(theirs);
      const Line one = random.pick(from);
      text.insert(b.begin, theirs.substr(one.begin, one.size));
      break;
    }
    default:
      if (a.begin < b.begin && a.begin + a.size <= b.begin) {
        text.insert(b.begin + b.size, line);
        text.erase(a.begin, a.size);
      }
  }
}

// What stands behind the place of an access: align, cache, mask; of a loop: step, unroll.
void change_attribute(std::string& text, Random& random) {
  static const std::vector<std::string> attributes = {
      " cache stream",    " cache keep",   " align 16",   " align 32",    " align 64",
      " align 1024",      " unroll 4",     " unroll 0",   " unroll 999",  " static",
      " mask (lane < 3)", " step 3",       " tf32",       " clip",        " lanes",
      " axes(0)",         " registers 24", " scratch 64", " shared 1024", " cluster(c: 2)"};
  const std::vector<std::string_view> words = fuzz::split_words(text);
  if (words.empty()) return;
  const std::string_view word = random.pick(words);
  text.insert(static_cast<size_t>(word.data() + word.size() - text.data()),
              random.pick(attributes));
}

std::string changed(const std::string& text, const std::string& other, Random& random) {
  std::string out = text;
  for (int64_t changes = random.within(1, 3); changes > 0; --changes) {
    const int64_t kind = random.below(16);
    if (kind < 6)
      exchange_word(out, random);
    else if (kind < 11)
      change_number(out, random);
    else if (kind < 13)
      change_line(out, other, random);
    else if (kind < 15)
      change_attribute(out, random);
    else
      out = fuzz::mutate_text(out, other, random);
  }
  return out;
}

// --- The campaign --------------------------------------------------------------------------------

class TypedCode : public testing::Test {
 protected:
  TypedCode() : path_(fs::temp_directory_path() / fmt::format("braze-typed-{}.braze", getpid())) {}
  ~TypedCode() override {
    std::error_code ignored;
    if (!HasFailure()) fs::remove(path_, ignored);
  }

  void write(const std::string& text) const { std::ofstream(path_) << text; }

  // Counts what becomes code; anything but a refusal is a failure.
  template <class Code>
  void compile_for_all(const std::string& text, Code (*parse)(std::string_view, std::string_view),
                       const CompileOptions& options) {
    write(text);
    Code code;
    try {
      code = parse(text, "typed.braze");
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::Internal) << error.what() << "\n" << text;
      return;
    }
    ++parsed_;
    for (const char* name : kTargets) {
      const Target target = find_target(name).value();
      if (target.kind == TargetKind::Gpu && is_large(code)) continue;
      try {
        compile(code, target, options);
        ++compiled_[name];
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::Internal) << name << ": " << error.what() << "\n"
                                                     << text;
        if (error.kind() == ErrorKind::InvalidArgument) return;  // for every machine
      }
    }
  }

  // Values far beyond the registers of a thread are right, and take minutes to be spilled.
  static bool is_large(const Kernel& kernel) {
    std::vector<Diagnostic> notes;
    verify(kernel, &notes);
    return std::any_of(notes.begin(), notes.end(),
                       [](const Diagnostic& note) { return note.code == &codes::kRegisterBudget; });
  }
  static bool is_large(const TileProgram& tile) {
    return std::any_of(tile.values.begin(), tile.values.end(),
                       [](const Value& value) { return value.type.count() > 1 << 15; });
  }

  // Both ways to code for GPUs, and now and then an assembler, which takes most of the time.
  static CompileOptions options(size_t i) {
    CompileOptions out;
    if (i % 8 == 0) out.gpu_code = GpuCode::Nvrtc;
    out.assemble = i % 4 == 1;
    return out;
  }

  template <class Code>
  void campaign(std::string_view language, size_t count,
                Code (*parse)(std::string_view, std::string_view)) {
    const std::vector<std::string> texts = seeds(language);
    ASSERT_GE(texts.size(), 20u);
    const int seed = GTEST_FLAG_GET(random_seed);
    Random random(static_cast<uint64_t>(seed));
    for (size_t i = 0; i < count && !HasFailure(); ++i)
      compile_for_all(changed(random.pick(texts), random.pick(texts), random), parse, options(i));
    std::printf("seed %d: %zu of %zu texts could be read; code for", seed, parsed_, count);
    for (const auto& [target, made] : compiled_) std::printf(" %s %zu", target.c_str(), made);
    std::printf("\n");
    // Else the changes are such that nothing reaches the code generators.
    EXPECT_GE(parsed_, count / 8);
    for (const auto& [target, made] : compiled_) EXPECT_GE(made, count / 200) << target;
  }

  const fs::path path_;
  size_t parsed_ = 0;
  std::map<std::string, size_t> compiled_;
};

TEST_F(TypedCode, ChangedKernels) { campaign<Kernel>("kernel", 400, parse_kernel); }
TEST_F(TypedCode, ChangedTilePrograms) { campaign<TileProgram>("tile", 200, parse_tile); }

// What no verifier knows, the assembler refuses: shuffles of 64 bits.
TEST(TypedCodeErrors, TheAssemblersHaveTheLine) {
  if (!ptx_assembler()) GTEST_SKIP() << "no PTX assembler here";
  const Kernel kernel = parse_kernel(R"(braze 1 kernel
kernel @wide(%y: out global f32[32]) target "sm_80" {
  phase grid() block 32 {
    %a = const 0 : i64
    %b = shfl.bfly %a, 1 : i64
    %c = convert %b : f32
    store %c, %y[tid]
  }
}
)",
                                     "wide.braze");
  try {
    compile(kernel, find_target("sm_80").value());
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported) << error.what();
    EXPECT_EQ(error.code().name, "no-machine-code");
    EXPECT_EQ(error.location().to_string(), "wide.braze:5:5");
  }
}

}  // namespace
}  // namespace braze
