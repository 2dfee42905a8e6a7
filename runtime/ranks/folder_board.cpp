// folder_board.cpp — ranks that meet in a folder.
//
// A text is a file NAME.RANK, which appears as a whole, by a rename. The file rank.RANK is locked
// as long as the process lives: the kernel releases the lock when the process ends for any reason.
// It is a lock of fcntl, which a forked child does not have, and which network file systems
// support. A file of this name without a lock belongs to a process that has ended, of this run or
// of an earlier one. Each run therefore needs its own folder.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "braze/error.h"
#include "ir/support/env.h"
#include "ir/support/text.h"
#include "runtime/io/descriptor.h"
#include "runtime/ranks/board.h"
#include "runtime/ranks/launch.h"
#include "runtime/ranks/ranks.h"

namespace braze {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(std::string message, std::string fix = "") {
  fail(codes::kBadRanks, std::move(message), {.location = {}, .node = "", .fix = std::move(fix)});
}

/// A text that identifies this machine since its last restart.
std::string host() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{} {}", name, boot);
}

class FolderBoard : public Board {
 public:
  FolderBoard(const std::string& folder, int rank, int count)
      : folder_(folder), rank_(rank), count_(count), ended_(static_cast<size_t>(count), false) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) refuse(fmt::format("the folder {} cannot be made: {}", folder, error.message()));
    announce();
    meet();
  }

  int rank() const override { return rank_; }
  int count() const override { return count_; }
  int local_rank() const override { return local_rank_; }
  int local_count() const override { return local_count_; }

  void post(std::string_view name, std::string_view text) override {
    const std::string target = path(name, rank_);
    const std::string draft = fmt::format("{}.draft", target);
    const std::lock_guard lock(mutex_);
    write(draft, text);
    if (rename(draft.c_str(), target.c_str()) != 0) fail_write(target);
  }

  std::optional<std::string> look(std::string_view name, int rank) override {
    std::ifstream in(path(name, rank), std::ios::binary);
    if (!in) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  void forget(std::string_view name) override { unlink(path(name, rank_).c_str()); }

  std::optional<int> dead() override {
    // Each rank watches the next one that has not ended. So all ranks are watched, at little cost.
    for (int step = 1; step < count_; ++step) {
      const int next = (rank_ + step) % count_;
      if (ended_[static_cast<size_t>(next)]) continue;
      if (is_alive(next)) return std::nullopt;
      if (!look("bye", next)) return next;
      ended_[static_cast<size_t>(next)] = true;
    }
    return std::nullopt;
  }

 private:
  std::string path(std::string_view name, int rank) const {
    return fmt::format("{}/{}.{}", folder_, name, rank);
  }

  [[noreturn]] void fail_write(const std::string& file) const {
    refuse(fmt::format("the file {} of {} cannot be written: {}", file, kEnvRendezvous.name,
                       std::strerror(errno)));
  }

  void write(const std::string& file, std::string_view text) const {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) fail_write(file);
  }

  /// Makes this rank's own file, which is locked before others see it.
  void announce() {
    const std::string file = path("rank", rank_);
    const std::string draft = fmt::format("{}.{}.draft", file, getpid());
    own_ = Descriptor(open(draft.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (own_.get() < 0) fail_write(draft);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (fcntl(own_.get(), F_SETLK, &lock) != 0)
      refuse(fmt::format("the file system of {} has no locks: {}", folder_, std::strerror(errno)),
             fmt::format("set {} to a folder of another one", kEnvRendezvous.name));
    const std::string text = fmt::format("{}\n{}\n", count_, host());
    if (::write(own_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      fail_write(draft);
    // Unlike a rename, a link does not replace an existing file.
    const bool is_first = link(draft.c_str(), file.c_str()) == 0;
    const int error = errno;
    unlink(draft.c_str());
    if (is_first) return;
    errno = error;
    if (errno != EEXIST) fail_write(file);
    if (is_alive(rank_))
      refuse(
          fmt::format("another process is rank {} of the run in {}", rank_, folder_),
          fmt::format("give each process a {} of its own, and each run a folder", kEnvRank.name));
    fail_stale(rank_);
  }

  [[noreturn]] void fail_stale(int rank) const {
    refuse(fmt::format("in {} is the file of a rank {} that has ended: of this run, or of an "
                       "earlier one",
                       folder_, rank),
           fmt::format("give each run a folder of its own, as in {}=/shared/$RUN_ID",
                       kEnvRendezvous.name));
  }

  /// Waits until all ranks have arrived. This may take long, because a scheduler starts them.
  void meet() {
    Patience patience("the meeting");
    std::vector<std::string> hosts;
    std::vector<int> missing;
    for (;;) {
      missing.clear();
      hosts.clear();
      for (int other = 0; other < count_; ++other) {
        const std::optional<std::string> text =
            other == rank_ ? fmt::format("{}\n{}\n", count_, host()) : look("rank", other);
        if (!text) {
          missing.push_back(other);
          continue;
        }
        const size_t line = text->find('\n');
        if (text->substr(0, line) != std::to_string(count_))
          refuse(
              fmt::format("rank {} takes part in a run of {} processes, and rank {} in one of {}",
                          rank_, count_, other, text->substr(0, line)),
              fmt::format("give all the same {}, and each run a folder of its own",
                          kEnvWorld.name));
        hosts.push_back(text->substr(line + 1));
        if (other != rank_ && !is_alive(other) && !look("bye", other)) fail_stale(other);
      }
      if (missing.empty()) break;
      patience.spend(missing);
    }
    const std::string& here = hosts[static_cast<size_t>(rank_)];
    local_count_ = static_cast<int>(std::ranges::count(hosts, here));
    local_rank_ = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank_, here));
  }

  /// Whether the process that made the file still holds its lock.
  bool is_alive(int rank) {
    const std::string file = path("rank", rank);
    const Descriptor opened(open(file.c_str(), O_RDWR | O_CLOEXEC));
    if (opened.get() < 0) return true;  // the folder cannot be reached for now
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (fcntl(opened.get(), F_GETLK, &lock) != 0) return true;
    return lock.l_type != F_UNLCK;
  }

  const std::string folder_;
  const int rank_, count_;
  int local_rank_ = 0, local_count_ = 1;
  Descriptor own_;
  std::mutex mutex_;
  std::vector<bool>
      ended_;  // ranks that are known to have ended; only the thread that watches uses it
};

}  // namespace

std::unique_ptr<Board> meet_in_folder(const std::string& folder, int rank, int count) {
  return std::make_unique<FolderBoard>(folder, rank, count);
}

}  // namespace braze
