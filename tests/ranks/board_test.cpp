// A rank whose board fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "runtime/ranks/ranks.h"
#include "tests/error_of.h"

namespace braze::test {
namespace {

using testing::HasSubstr;

/// What the first of two ranks posts, but for texts of the kind "full", for which there is no room.
struct Posted {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> texts;

  std::string of(std::string_view name) {
    const std::lock_guard lock(mutex);
    const auto found = texts.find(name);
    return found == texts.end() ? "" : found->second;
  }
};

class FullBoard : public Board {
 public:
  explicit FullBoard(Posted& posted) : posted_(posted) {}
  int rank() const override { return 0; }
  int count() const override { return 2; }
  int local_rank() const override { return 0; }
  int local_count() const override { return 2; }
  void post(std::string_view name, std::string_view text) override {
    if (name.starts_with("full")) fail(codes::kInternal, "no room on the board");
    const std::lock_guard lock(posted_.mutex);
    posted_.texts.insert_or_assign(std::string(name), std::string(text));
  }
  std::optional<std::string> look(std::string_view, int) override { return std::nullopt; }
  void forget(std::string_view) override {}
  std::optional<int> dead() override { return std::nullopt; }

 private:
  Posted& posted_;
};

// The others would wait for it until their patience ends.
TEST(Ranks, WhoCannotPostTellsTheOthersAndDoesNotGoOn) {
  Posted posted;
  Ranks ranks(std::make_unique<FullBoard>(posted));
  EXPECT_THAT(error_of([&] { ranks.gather("full-1", ""); }), HasSubstr("no room on the board"));
  EXPECT_THAT(posted.of("failure"), HasSubstr("no room on the board"));
  EXPECT_THAT(error_of([&] { ranks.check(); }), HasSubstr("no room on the board"));
}

}  // namespace
}  // namespace braze::test
