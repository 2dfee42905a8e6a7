// The page of results that a suite of models writes.
#include "tests/models/suite.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

// The same refusal of two files is one reason, wherever the files are.
TEST(Suite, ReasonsAreCountedWithoutThePathsOfFiles) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b", "c"}) std::ofstream(folder.path / name) << "";
  const auto judge = [](const std::filesystem::path& path, const Device&) {
    const bool is_list = path.filename() == "c";
    const std::string message =
        path.string() + (is_list ? ": 2 nodes cannot be imported, of 3\n  \"n\": no such operator"
                                 : " is of opset 1; those from 7 to 28 are read");
    return Judged{{.verdict = Verdict::Refused, .why = without_path(message, path)},
                  path.filename().string(),
                  "Not"};
  };
  const Suite suite{
      .program = "suite",
      .title = "A suite",
      .script = "nothing",
      .items = "cases",
      .apart = "apart",
      .floor = "of all",
      .in_group = "about",
      .subject = "operator",
      .is_case = [](const std::filesystem::path& path) { return path.extension().empty(); },
      .judge = judge,
      .reason = [](const std::string& line) { return line.substr(5); },
      .print_ops = [] {}};
  const std::string page = folder.path / "page.md", cases = folder.path;
  std::string arguments[] = {"suite", cases, "--results", page};
  char* argv[4];
  for (size_t i = 0; i < 4; ++i) argv[i] = arguments[i].data();
  EXPECT_EQ(run_suite(suite, 4, argv), 0);
  std::ifstream file(page);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(text.find("| Not | 3 | 0 | 3 | 2: is of opset 1; 1: no such operator |"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace braze::test
