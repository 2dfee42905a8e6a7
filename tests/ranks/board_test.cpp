// A rank whose board fails, or hears what the test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "braze/device.h"
#include "runtime/mesh/together.h"
#include "runtime/ranks/ranks.h"
#include "tests/error_of.h"

namespace braze::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// What the first of two ranks posts, but for texts of the kind "full", for which there is no room.
struct Posted {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> texts;
  std::vector<std::string> forgotten;

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
  // The other one is at the same barriers.
  std::optional<std::string> look(std::string_view name, int) override {
    return name.starts_with("barrier") ? std::optional<std::string>("") : std::nullopt;
  }
  void forget(std::string_view name) override { posted_.forgotten.emplace_back(name); }
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

// Else a long run would fill the board.
TEST(Ranks, TextsThatAllHaveReadAreForgotten) {
  Posted posted;
  Ranks ranks(std::make_unique<FullBoard>(posted));
  for (const char* name : {"barrier-1", "barrier-2", "barrier-3"}) ranks.gather(name, "");
  EXPECT_THAT(posted.forgotten, ElementsAre("barrier-1", "barrier-2"));
}

/// It carries what all devices but the first of this rank exchange. That of the first one fails
/// when the second one has got all it needs from the other rank.
class BrokenBoard : public FullBoard {
 public:
  using FullBoard::FullBoard;
  bool carries() const override { return true; }
  std::unique_ptr<Exchange> exchange(std::span<const Parcel> sent,
                                     std::span<const Parcel>) override {
    struct Carried : Exchange {
      bool done() override { return true; }
    };
    struct Broken : Exchange {
      explicit Broken(const std::atomic<int>& carried) : carried_(carried) {}
      bool done() override {
        if (carried_ < 2) return false;
        fail(codes::kInternal, "the wire is cut");
      }
      const std::atomic<int>& carried_;
    };
    // The tag begins with the device that sends.
    if (sent[0].tag < 64) return std::make_unique<Broken>(carried_);
    ++carried_;
    return std::make_unique<Carried>();
  }

 private:
  std::atomic<int> carried_ = 0;
};

// The second device has done its part, and learns only when it leaves that the first one has not.
TEST(Ranks, ADeviceThatCannotExchangeFailsThoseOfItsProcess) {
  set_cpu_device_count(2);
  Posted posted;
  Ranks ranks(std::make_unique<BrokenBoard>(posted));
  const std::vector<MeshAxis> axes = {{"data", 4}};
  const std::vector<Device> devices = {"cpu:0", "cpu:1", "cpu:0", "cpu:1"};
  const auto parts = meet_on_host(axes, devices, &ranks, axes);
  std::vector<float> from(8, 1);
  std::vector<std::string> errors(2);
  std::vector<std::jthread> threads;
  for (size_t place = 0; place < 2; ++place)
    threads.emplace_back([&, place] {
      std::vector<float> to(from.size());
      const CollectiveArguments sum{.what = {CollectiveKind::AllReduce},
                                    .from = reinterpret_cast<const std::byte*>(from.data()),
                                    .to = reinterpret_cast<std::byte*>(to.data()),
                                    .count = from.size()};
      errors[place] = error_of([&] { parts[place]->run({&sum, 1}); });
    });
  threads.clear();
  EXPECT_THAT(errors[0], HasSubstr("the wire is cut"));
  EXPECT_THAT(errors[1], HasSubstr("the call failed on cpu: "));
  EXPECT_THAT(posted.of("failure"), HasSubstr("the wire is cut"));
}

}  // namespace
}  // namespace braze::test
