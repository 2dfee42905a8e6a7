#include "runtime/ranks/ranks.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>

#include "braze/ranks.h"
#include "ir/support/config.h"
#include "ir/support/env.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "ir/support/trace.h"
#include "runtime/ranks/launch.h"
#include "runtime/ranks/mpi.h"

namespace braze {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// How often the board is read. A dead rank has to be found within five seconds.
constexpr auto kLook = milliseconds(200);
// A call that takes longer than this may be waiting for others, so this rank then tells them which
// call it has reached.
constexpr auto kLong = milliseconds(500);
constexpr auto kStale = seconds(5);
// Each rank tells the others this often that its process runs. A rank of which nothing is heard for
// longer than `kSilent` counts as missing where others wait for it.
constexpr auto kBeat = seconds(2), kSilent = seconds(6);
// The time that a rank which has failed gives the others to report why they fail, before it ends.
// Launchers that wait for all ranks to end give them more.
constexpr auto kGrace = seconds(1), kLongGrace = seconds(5);

constexpr std::string_view kPosition = "position", kFailure = "failure", kBye = "bye",
                           kAlive = "alive", kCall = "call-";

seconds setting(const EnvVariable& variable, int64_t otherwise) {
  return seconds(read_env_int(variable, 1, int64_t{1} << 31).value_or(otherwise));
}
seconds late() {
  static const seconds value = setting(kEnvRankLate, 30);
  return value;
}
seconds limit() {
  static const seconds value = setting(kEnvRankLimit, 600);
  return value;
}

/// A rank and its program, for messages: "rank 1 runs @step at main.cpp:12".
std::string with_place(int rank, std::string_view place) {
  return fmt::format("rank {} runs {}", rank, place);
}

std::string lines(std::initializer_list<std::string_view> all) {
  return join(all, "\n", [](std::string_view line) { return line; });
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == '\n')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

}  // namespace

std::string ranks_text(std::span<const int> ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  constexpr size_t kMost = 8;
  for (size_t i = 0; i < ranks.size() && i < kMost; ++i) {
    if (i > 0) out += i + 1 == ranks.size() ? " and " : ", ";
    out += std::to_string(ranks[i]);
  }
  if (ranks.size() > kMost) out += fmt::format(" and {} more", ranks.size() - kMost);
  return out;
}

void Patience::note(std::span<const int> missing) {
  const auto waited = Clock::now() - start_;
  if (!named_ && waited >= late()) {
    named_ = true;
    write_log(
        LogLevel::Warning,
        fmt::format("{} {} late: others have waited at {} for {} seconds", ranks_text(missing),
                    missing.size() == 1 ? "is" : "are", what_, late().count()));
  }
  if (waited >= limit())
    fail(codes::kRankLost,
         fmt::format("{} {} given up, {} seconds late at {}", ranks_text(missing),
                     missing.size() == 1 ? "is" : "are", limit().count(), what_),
         {.location = {},
          .node = "",
          .fix = fmt::format("set {} to a longer time", kEnvRankLimit.name)});
}

void Patience::spend(std::span<const int> missing) {
  note(missing);
  std::this_thread::sleep_for(nap_);
  nap_ = std::min<std::chrono::microseconds>(2 * nap_, milliseconds(20));
}

// ---- Beginning and end --------------------------------------------------------------------------

namespace {

std::atomic<Ranks*> the_ranks{nullptr};

Ranks* meet() {
  const Launched& how = launched();
  if (how.meeting != Launched::Meeting::Alone)
    late(), limit();  // a wrong setting is reported now, not when somebody is late
  std::unique_ptr<Board> board;
  switch (how.meeting) {
    case Launched::Meeting::Alone:
      return nullptr;
    case Launched::Meeting::Folder:
      board = meet_in_folder(how.folder, how.rank, how.count);
      break;
    case Launched::Meeting::Mpi:
      board = meet_by_mpi();
      break;
  }
  if (board->count() == 1) {
    board->close(/*all_end=*/true);
    return nullptr;
  }
  // It is never destroyed, like devices.
  auto* const ranks = new Ranks(std::move(board));
  std::atexit([] { the_ranks.load()->leave(); });
  the_ranks = ranks;
  return ranks;
}

}  // namespace

Ranks* Ranks::get() {
  if (Ranks* const ranks = the_ranks.load(std::memory_order_acquire)) {
    refuse_if_forked();
    return ranks;
  }
  // A rank that could not meet the others reports this at each attempt.
  static auto* const mutex = new std::mutex;
  static bool is_alone = false;
  const std::lock_guard lock(*mutex);
  if (Ranks* const ranks = the_ranks) return ranks;
  if (is_alone) return nullptr;
  Ranks* const ranks = meet();
  is_alone = !ranks;
  return ranks;
}

Ranks* Ranks::known() noexcept { return the_ranks.load(std::memory_order_acquire); }

Ranks::Ranks(std::unique_ptr<Board> board)
    : board_(std::move(board)),
      compares_always_(read_env_int(kEnvCheckRanks, 0, 1).value_or(0) == 1),
      heard_(static_cast<size_t>(board_->count())) {
  note_threads();
  trace::label_process(fmt::format("rank {}", rank()));
  thread_ = std::thread([this] { serve(); });
}

Ranks::~Ranks() { leave(); }

void Ranks::leave() noexcept {
  if (is_forked()) {
    if (thread_.joinable()) new std::thread(std::move(thread_));
    return;
  }
  try {
    finish_calls();
  } catch (const std::exception&) {
    fail_all(CapturedError::current());
  }
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
    leaving_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  bool all_end = false;
  try {
    tell_position();
    board_->post(kBye, "");
    all_end = await_ends();
  } catch (const std::exception& error) {
    // The others will wait for this rank.
    write_log(LogLevel::Warning, error.what());
  }
  board_->close(all_end);
}

void Ranks::finish_calls() {
  // A program may end without reading its last results. Other ranks need its part of these calls.
  // If this thread is one that should do a part, or if the program cannot go on for another reason,
  // the calls never end.
  auto since = Clock::now();
  size_t left = 0;
  while (!failed_) {
    const std::vector<Call> calls = busy_calls();
    if (calls.empty()) return;
    if (calls.size() != left) {
      left = calls.size();
      since = Clock::now();
    }
    const Call& oldest = calls.front();
    if (Clock::now() - since > limit())
      fail(codes::kRankLost, fmt::format("rank {} ends in call {}, {}, which has not ended", rank(),
                                         oldest.number, oldest.place));
    std::this_thread::sleep_for(milliseconds(1));
  }
}

bool Ranks::await_ends() {
  if (!failed_ && !board_->ends_together()) return false;
  const auto end = Clock::now() + (board_->ends_together() ? kLongGrace : kGrace);
  std::optional<Patience> patience;
  for (;;) {
    bool all_end = true;
    std::vector<int> silent;
    for (int other = 0; other < count(); ++other) {
      if (other == rank() || board_->look(kBye, other)) continue;
      all_end = false;
      if (is_silent(other)) silent.push_back(other);
    }
    if (all_end) return true;
    // Launchers end all processes when one ends after a failure.
    if (failed_ && Clock::now() > end) return false;
    if (failed_ || silent.empty()) {
      patience.reset();
    } else {
      if (!patience) patience.emplace("the end of the program");
      patience->note(silent);
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// ---- Failures -----------------------------------------------------------------------------------

void Ranks::check() {
  if (!failed_.load(std::memory_order_acquire)) return;
  CapturedError why;
  {
    const std::lock_guard lock(mutex_);
    why = failure_;
  }
  why.rethrow();
}

void Ranks::fail_here(const CapturedError& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    failure_ = why;
    failed_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  const std::lock_guard lock(watched_mutex_);
  for (const Watched& watched : watched_) watched.end(why);
}

void Ranks::fail_all(const CapturedError& why) noexcept {
  if (failed_) return;
  try {
    std::string code(codes::kRankFailed.name), text;
    try {
      why.rethrow();
    } catch (const Error& error) {
      code = error.code().name;
      text = error.message();
      if (!error.fix().empty()) text += " (" + error.fix() + ")";
    }
    constexpr size_t kMost = 2000;  // so that it fits into one small message
    board_->post(kFailure, lines({code, text.substr(0, kMost)}));
  } catch (const std::exception&) {
    // Only this rank's own failure counts. The others will wait for this rank.
  }
  fail_here(why);
}

void Ranks::pause(std::chrono::microseconds nap) {
  check();
  std::this_thread::sleep_for(nap);
}

Ranks::Handle Ranks::watch(Watched watched) {
  const std::lock_guard lock(watched_mutex_);
  return watched_.insert(watched_.end(), std::move(watched));
}

void Ranks::forget(Handle handle) {
  const std::lock_guard lock(watched_mutex_);
  watched_.erase(handle);
}

// ---- Agreement ----------------------------------------------------------------------------------

std::vector<std::string> Ranks::gather(std::string_view name, std::string_view text) {
  check();
  {
    const std::lock_guard lock(mutex_);
    gathering_ = name;
    gathering_since_ = Clock::now();
  }
  std::vector<std::optional<std::string>> all(static_cast<size_t>(count()));
  Patience patience(std::string{name});
  try {
    board_->post(name, text);
    for (std::vector<int> missing;; missing.clear()) {
      for (int other = 0; other < count(); ++other) {
        std::optional<std::string>& theirs = all[static_cast<size_t>(other)];
        if (!theirs) theirs = other == rank() ? std::string(text) : board_->look(name, other);
        if (!theirs) missing.push_back(other);
      }
      if (missing.empty()) break;
      check();
      patience.spend(missing);
    }
  } catch (...) {
    fail_all(CapturedError::current());
    throw;
  }
  const std::lock_guard lock(mutex_);
  gathering_.clear();
  // All ranks are here, so none is at an earlier call or barrier any more.
  std::string& before = gathered_[std::string(name.substr(0, name.find('-')))];
  if (!before.empty()) board_->forget(before);
  before = name;
  std::vector<std::string> out;
  for (std::optional<std::string>& theirs : all) out.push_back(std::move(*theirs));
  return out;
}

std::string Ranks::share(std::string_view name, int owner,
                         const std::function<std::string()>& make) {
  check();
  if (owner == rank()) {
    std::string text = make();
    board_->post(name, text);
    return text;
  }
  Patience patience(std::string{name});
  const int missing[] = {owner};
  for (;;) {
    if (auto text = board_->look(name, owner)) return *text;
    check();
    patience.spend(missing);
  }
}

void Ranks::fail_different(uint64_t call, const std::string& mine, int other,
                           const std::string& theirs) const {
  fail(codes::kRanksDiffer,
       fmt::format("call {} over all ranks differs between them: {}, and {}", call,
                   with_place(rank(), mine), with_place(other, theirs)),
       {.location = {},
        .node = "",
        .fix =
            "all ranks make the same calls over a mesh, with the same shapes, in the same order"});
}

uint64_t Ranks::begin_call(std::string_view identity, std::string_view place, bool first) {
  check();
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++position_.call;
    position_.identity = identity;
    position_.place = place;
    calls_.push_back({number, position_.identity, position_.place, Clock::now(), false, {}});
  }
  if (!first && !compares_always_) return number;
  const std::vector<std::string> all =
      gather(fmt::format("{}{}", kCall, number), lines({identity, place}));
  for (int other = 0; other < count(); ++other) {
    const std::vector<std::string> theirs = split_lines(all[static_cast<size_t>(other)]);
    if (theirs[0] == identity) continue;
    try {
      fail_different(number, std::string(place), other, theirs.size() > 1 ? theirs[1] : "");
    } catch (const Error&) {
      // The other ranks find the same difference.
      fail_here(CapturedError::current());
      throw;
    }
  }
  return number;
}

bool Ranks::Call::done() const {
  return submitted && std::ranges::all_of(works, [](const std::shared_ptr<Work>& work) {
           return work->done() && (!work->fence() || work->fence()->done());
         });
}

void Ranks::note_work(uint64_t call, std::vector<std::shared_ptr<Work>> works) {
  const std::lock_guard lock(mutex_);
  for (Call& known : calls_) {
    if (known.number != call) continue;
    known.works = std::move(works);
    known.submitted = true;
  }
}

std::vector<Ranks::Call> Ranks::busy_calls() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    std::vector<Call> out;
    if (leaving_) return out;
    std::ranges::copy_if(calls_, std::back_inserter(out),
                         [](const Call& call) { return call.submitted && !call.done(); });
    return out;
  } catch (const std::exception&) {
    return {};  // a driver that has ended already
  }
}

// ---- The thread that watches
// ----------------------------------------------------------------------

void Ranks::serve() {
  std::unique_lock lock(mutex_);
  while (!leaving_ && !failed_) {
    changed_.wait_for(lock, kLook);
    if (leaving_ || failed_) break;
    lock.unlock();
    try {
      look_around();
    } catch (...) {
      fail_all(CapturedError::current());
    }
    lock.lock();
  }
}

void Ranks::settle() {
  // A call whose results exist remains complete, whatever fails later.
  std::vector<std::shared_ptr<Work>> done;
  {
    const std::lock_guard lock(mutex_);
    while (!calls_.empty() && calls_.front().done()) {
      std::ranges::move(calls_.front().works, std::back_inserter(done));
      calls_.pop_front();
    }
  }
  for (const std::shared_ptr<Work>& work : done) {
    try {
      work->confirm();
    } catch (const Error&) {
      // Readers of its results get the error.
    }
  }
}

bool Ranks::heard_failure() {
  for (int other = 0; other < count(); ++other) {
    if (other == rank()) continue;
    const std::optional<std::string> text = board_->look(kFailure, other);
    if (!text) continue;
    const std::vector<std::string> parts = split_lines(*text);
    const std::string why = text->substr(std::min(text->size(), parts[0].size() + 1));
    try {
      // A reason that concerns all ranks is reported unchanged.
      if (parts[0] == codes::kRankLost.name) fail(codes::kRankLost, why);
      if (parts[0] == codes::kRanksDiffer.name) fail(codes::kRanksDiffer, why);
      fail(codes::kRankFailed, fmt::format("rank {} failed: {}", other, why),
           {.location = {},
            .node = "",
            .fix = "arrays that were donated to running calls are lost: go on from a checkpoint"});
    } catch (const Error&) {
      fail_here(CapturedError::current());
      return true;
    }
  }
  return false;
}

void Ranks::tell_alive() {
  if (Clock::now() - beaten_ < kBeat) return;
  beaten_ = Clock::now();
  board_->post(kAlive, std::to_string(++beats_));
}

bool Ranks::is_silent(int rank) {
  Heard& heard = heard_[static_cast<size_t>(rank)];
  const std::string beat = board_->look(kAlive, rank).value_or("");
  if (beat != heard.beat || heard.since == Clock::time_point()) heard = {beat, Clock::now()};
  return Clock::now() - heard.since > kSilent && !board_->look(kBye, rank);
}

void Ranks::look_around() {
  tell_alive();
  settle();
  if (heard_failure()) return;
  if (const std::optional<int> dead = board_->dead()) {
    if (heard_failure()) return;
    fail(codes::kRankLost, fmt::format("the process of rank {} died", *dead));
  }
  {
    const std::lock_guard lock(watched_mutex_);
    for (const Watched& watched : watched_) watched.look();
  }
  compare_positions();
}

void Ranks::compare_positions() {
  std::optional<Call> oldest;
  std::string gathering, place;
  bool is_call = false;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!gathering_.empty() && Clock::now() - gathering_since_ > kLong) {
      gathering = gathering_;
      // A folder on a network may show a file seconds later than a newer one.
      is_call = gathering.starts_with(kCall) && Clock::now() - gathering_since_ > kStale;
    }
    if (!calls_.empty() && Clock::now() - calls_.front().start > kLong) oldest = calls_.front();
    number = position_.call;
    place = position_.place;
  }
  tell_position();
  if (!oldest && gathering.empty()) return;

  std::vector<int> behind;  // or silent
  for (int other = 0; other < count(); ++other) {
    if (other == rank()) continue;
    const Position theirs = position_of(other).value_or(Position{});
    // What this rank does in the call that the other one is in.
    std::optional<Call> mine;
    {
      const std::lock_guard lock(mutex_);
      for (const Call& call : calls_)
        if (call.number == theirs.call) mine = call;
    }
    if (mine && mine->identity != theirs.identity)
      fail_different(theirs.call, mine->place, other, theirs.place);
    // A rank that has got further was here before, and has therefore posted the gathered text.
    if (is_call && theirs.call > number && !board_->look(gathering, other))
      fail_different(number, place, other, theirs.place);
    const bool waits = oldest && theirs.call < oldest->number;
    if (waits || (oldest && is_silent(other))) behind.push_back(other);
    if ((waits || (!gathering.empty() && !board_->look(gathering, other))) &&
        board_->look(kBye, other)) {
      if (heard_failure()) return;
      fail(codes::kRankLost,
           fmt::format(
               "rank {} has ended, and {} waits for it in {}", other, rank(),
               oldest ? fmt::format("call {}, {}", oldest->number, oldest->place) : gathering));
    }
  }
  if (!oldest || oldest->number != patient_with_ || behind.empty()) {
    patience_.reset();
    patient_with_ = oldest ? oldest->number : 0;
  }
  if (behind.empty() || !gathering.empty()) return;  // `gather` has its own Patience
  if (!patience_) patience_.emplace(fmt::format("call {}, {}", oldest->number, oldest->place));
  patience_->note(behind);
}

void Ranks::tell_position() {
  Position here;
  {
    const std::lock_guard lock(mutex_);
    if (told_ == position_.call) return;
    here = position_;
    told_ = here.call;
  }
  board_->post(kPosition, lines({std::to_string(here.call), here.identity, here.place}));
}

std::optional<Ranks::Position> Ranks::position_of(int rank) {
  const std::optional<std::string> text = board_->look(kPosition, rank);
  if (!text) return std::nullopt;
  const std::vector<std::string> parts = split_lines(*text);
  Position out;
  std::from_chars(parts[0].data(), parts[0].data() + parts[0].size(), out.call);
  if (parts.size() > 1) out.identity = parts[1];
  if (parts.size() > 2) out.place = parts[2];
  return out;
}

// ---- What programs ask
// ----------------------------------------------------------------------------

int this_rank() {
  const Ranks* const ranks = Ranks::get();
  return ranks ? ranks->rank() : 0;
}

int rank_count() {
  const Ranks* const ranks = Ranks::get();
  return ranks ? ranks->count() : 1;
}

void rank_barrier() {
  Ranks* const ranks = Ranks::get();
  if (!ranks) return;
  ranks->check();
  static std::atomic<uint64_t> barriers{0};
  ranks->gather(fmt::format("barrier-{}", ++barriers), "");
}

}  // namespace braze
