// ranks.h — this process as one of several that run a program together.
//
// All ranks make the same calls over meshes in the same order. They communicate over a Board. A
// thread watches for ranks that died or failed, that run something else, or that are late. A
// failure is final: it is not known how much of the failed call each rank has done, so from then on
// every call over several processes throws this failure. Devices, and meshes within the process,
// continue to work.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "braze/error.h"
#include "ir/support/condition_variable.h"
#include "runtime/execution/captured_error.h"
#include "runtime/execution/work_queue.h"
#include "runtime/ranks/board.h"

namespace braze {

namespace codes {
inline constexpr Code kRankLost{"rank-lost", ErrorKind::Device,
                                "One of the processes that run a program together is gone."};
inline constexpr Code kRankFailed{"rank-failed", ErrorKind::Device,
                                  "A call failed in another of the processes that run a program "
                                  "together."};
inline constexpr Code kRanksDiffer{"ranks-differ", ErrorKind::InvalidArgument,
                                   "The processes that run a program together make different "
                                   "calls."};
}  // namespace codes

/// The text of a list of ranks: "rank 2", "ranks 1 and 3".
std::string ranks_text(std::span<const int> ranks);

/// A wait for other ranks. After BRAZE_RANK_LATE seconds, ranks that are late are named in a
/// warning. After BRAZE_RANK_LIMIT seconds they count as lost.
class Patience {
 public:
  explicit Patience(std::string what) : what_(std::move(what)) {}
  /// Notes that these ranks are missing. Throws kRankLost if they count as lost.
  void note(std::span<const int> missing);
  /// Does the same, and sleeps a little.
  void spend(std::span<const int> missing);

 private:
  const std::string what_;  // what it waits for
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::microseconds nap_{50};
  bool named_ = false;
};

class Ranks {
 public:
  /// The ranks of this process's run, which it meets at the first call; null if the process is
  /// alone. Throws if they cannot be met.
  static Ranks* get();
  /// The same, but null if this process has not met them yet.
  static Ranks* known() noexcept;

  explicit Ranks(std::unique_ptr<Board> board);
  ~Ranks();

  int rank() const { return board_->rank(); }
  int count() const { return board_->count(); }
  int local_rank() const { return board_->local_rank(); }
  int local_count() const { return board_->local_count(); }
  Board& board() { return *board_; }

  /// The texts of all ranks. Each rank calls this with the same `name`, which consists of a kind,
  /// "-" and a number that is new each time. Calls of one kind follow one another.
  std::vector<std::string> gather(std::string_view name, std::string_view text);
  /// The text that the rank `owner` makes. All ranks that need it call this.
  std::string share(std::string_view name, int owner, const std::function<std::string()>& make);

  /// Begins a call on a mesh of all ranks, before anything of it is submitted. Calls begin one
  /// after the other. `identity` is equal on ranks that run the same program; `place` tells a
  /// person what the program is and where. At the `first` call of a program, all ranks compare
  /// their identities. Returns the number of the call.
  uint64_t begin_call(std::string_view identity, std::string_view place, bool first);
  /// Notes the work that has to be done before that call is complete.
  void note_work(uint64_t call, std::vector<std::shared_ptr<Work>> works);

  /// Throws if the ranks have failed.
  void check();
  /// Tells all ranks that this one has failed.
  void fail_all(const CapturedError& why) noexcept;
  /// Sleeps while this thread waits for others. Throws if the ranks have failed.
  void pause(std::chrono::microseconds nap);

  /// Something that must end when the ranks fail, by `end`. It may also find a failure first, which
  /// `look` throws. The thread that watches calls both.
  struct Watched {
    std::function<void(const CapturedError& why)> end;
    std::function<void()> look;
  };
  using Handle = std::list<Watched>::iterator;
  Handle watch(Watched watched);
  void forget(Handle handle);

  /// Tells the others, at the end of the process, that this rank ends.
  void leave() noexcept;

 private:
  struct Call {
    uint64_t number;
    std::string identity, place;
    std::chrono::steady_clock::time_point start;
    bool submitted = false;
    std::vector<std::shared_ptr<Work>> works;
    bool done() const;
  };
  /// The call that a rank has reached, in the form in which it tells others.
  struct Position {
    uint64_t call = 0;
    std::string identity, place;
  };

  /// What was heard of another rank.
  struct Heard {
    std::string beat;  // the last
    std::chrono::steady_clock::time_point since;
  };

  void serve();
  void settle();
  /// The calls of this rank that are under way.
  std::vector<Call> busy_calls() noexcept;
  /// Waits until the calls of this rank are complete. Throws kRankLost if none of them ends for
  /// BRAZE_RANK_LIMIT seconds.
  void finish_calls();
  /// Waits for the other ranks at the end of the process, if the board asks for that or if the
  /// ranks have failed. Returns whether all of them end.
  bool await_ends();
  /// Tells the others, from time to time, that the process of this rank runs.
  void tell_alive();
  /// Whether nothing has been heard of a rank for some time, although it has not ended: its process
  /// is stopped, or its host cannot be reached.
  bool is_silent(int rank);
  void look_around();
  /// Whether another rank has posted why it failed, which is then this group's failure. A rank
  /// posts that before it ends, so it is asked again before an end is reported as one without a
  /// reason.
  bool heard_failure();
  void tell_position();
  void compare_positions();
  std::optional<Position> position_of(int rank);
  void fail_here(const CapturedError& why) noexcept;
  [[noreturn]] void fail_different(uint64_t call, const std::string& mine, int other,
                                   const std::string& theirs) const;

  const std::unique_ptr<Board> board_;
  const bool compares_always_;
  std::mutex mutex_;
  ConditionVariable changed_;
  CapturedError failure_;
  std::atomic<bool> failed_{false};
  bool leaving_ = false;
  Position position_;       // the last call that began
  uint64_t told_ = 0;       // the last call about which others were told
  std::deque<Call> calls_;  // calls that are not complete, the oldest first
  std::map<std::string, std::string, std::less<>> gathered_;  // the last name of each kind
  std::string gathering_;  // what this rank waits for in `gather`
  std::chrono::steady_clock::time_point gathering_since_;
  std::optional<Patience> patience_;  // for the oldest call, `patient_with_`
  uint64_t patient_with_ = 0;
  // Of the thread that watches, and of the one that leaves after it.
  uint64_t beats_ = 0;
  std::chrono::steady_clock::time_point beaten_;
  std::vector<Heard> heard_;  // of each rank
  std::mutex watched_mutex_;
  std::list<Watched> watched_;
  std::thread thread_;
};

}  // namespace braze
