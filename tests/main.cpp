// main.cpp — where every test by GoogleTest starts. Also by hand it runs without the user's own
// cache.
//
// GoogleTest calls a run successful in which every test was skipped, and so would CTest. Here such
// a run ends with kSkipped, which CTest shows as skipped; one in which no test ran at all, as when
// a filter fits none, has failed. What was skipped is said in lines that tools/test.sh gathers:
//
//   skipped: Suite.Test, Suite.Other: the reason
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of the entries (cmake/BrazeTargets.cmake)

[[maybe_unused]] const int kNoCache = setenv("BRAZE_CACHE", "off", /*replace=*/0);

// The names of skipped tests by their reason.
class Skips : public testing::EmptyTestEventListener {
 public:
  // A reason stands on one line, so that it can be gathered.
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Skipped()) return;
    std::string reason;
    for (int i = 0; i < test.result()->total_part_count(); ++i) {
      const testing::TestPartResult& part = test.result()->GetTestPartResult(i);
      if (part.skipped()) reason = part.message();
    }
    for (char& c : reason)
      if (c == '\n') c = ' ';
    std::string& names = names_[reason];
    if (!names.empty()) names += ", ";
    names += std::string(test.test_suite_name()) + "." + test.name();
  }

  void OnTestProgramEnd(const testing::UnitTest& run) override {
    const bool is_all = names_.size() == 1 && run.skipped_test_count() == run.test_to_run_count();
    for (const auto& [reason, names] : names_)
      std::printf("skipped: %s: %s\n", is_all ? "all of it" : names.c_str(), reason.c_str());
    std::fflush(stdout);
  }

 private:
  std::map<std::string, std::string> names_;
};

}  // namespace

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  testing::UnitTest& run = *testing::UnitTest::GetInstance();
  run.listeners().Append(new Skips);
  const int result = RUN_ALL_TESTS();
  if (result != 0 || GTEST_FLAG_GET(list_tests)) return result;
  if (run.test_to_run_count() == 0) {
    std::puts("no test ran");
    return 1;
  }
  return run.skipped_test_count() == run.test_to_run_count() ? kSkipped : 0;
}
