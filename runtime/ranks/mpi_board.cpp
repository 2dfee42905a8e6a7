// mpi_board.cpp — ranks that communicate by MPI, through a plugin (mpi/braze_mpi.h), which is
// opened here.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "ir/support/env.h"
#include "ir/support/text.h"
#include "runtime/ranks/mpi.h"
#include "runtime/ranks/mpi/braze_mpi.h"
#include "runtime/ranks/ranks.h"

namespace braze {

namespace {

namespace fs = std::filesystem;

/// The names of the plugins by implementation. The last name is for a plugin that a user built for
/// another implementation.
constexpr const char* kOpenMpi = "libbraze-mpi-openmpi.so";
constexpr const char* kMpich = "libbraze-mpi-mpich.so";
constexpr const char* kAny = "libbraze-mpi.so";

/// The folder of this library, or of the tool that it is linked into, and the folder of libraries
/// beside that.
std::vector<fs::path> plugin_folders() {
  Dl_info here{};
  if (!dladdr(reinterpret_cast<void*>(&is_mpi_up), &here) || !here.dli_fname) return {};
  std::error_code error;
  const fs::path folder = fs::absolute(here.dli_fname, error).parent_path().lexically_normal();
  const fs::path libraries = (folder / "../lib").lexically_normal();
  if (libraries == folder) return {folder};
  return {folder, libraries};
}

/// The plugins that fit the way in which this process was started, the best one first.
std::vector<std::string> candidates() {
  if (const auto given = read_env(kEnvMpi)) return {*given};
  // Only Open MPI has this name, and its mpirun sets these variables. Most other implementations
  // have the interface of MPICH.
  const bool open_mpi = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") ||
                        std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK");
  std::vector<std::string> files;
  for (const char* name : {open_mpi ? kOpenMpi : kMpich, kAny})
    for (const fs::path& folder : plugin_folders()) files.push_back((folder / name).string());
  return files;
}

/// The number of processes that the launcher names; 0 if it names none.
int launched_count() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

[[noreturn]] void refuse(const std::string& why, std::string fix) {
  fail(codes::kNoMpi, fmt::format("the processes that MPI started cannot work together: {}", why),
       {.location = {}, .node = "", .fix = std::move(fix)});
}

class MpiBoard : public Board {
 public:
  explicit MpiBoard(const braze_mpi& mpi) : mpi_(mpi), texts_(static_cast<size_t>(mpi.size)) {}

  int rank() const override { return mpi_.rank; }
  int count() const override { return mpi_.size; }
  int local_rank() const override { return mpi_.local_rank; }
  int local_count() const override { return mpi_.local_size; }

  void post(std::string_view name, std::string_view text) override {
    const auto note =
        std::make_shared<const std::string>(std::string(name) + '\0' + std::string(text));
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    for (int other = 0; other < count(); ++other) {
      if (other == rank()) continue;
      notes_.push_back({note, nullptr});
      check(mpi_.send_note(other, note->data(), note->size(), &notes_.back().request));
    }
    get_on();
  }

  std::optional<std::string> look(std::string_view name, int rank) override {
    const std::lock_guard lock(mutex_);
    get_on();
    const auto& texts = texts_[static_cast<size_t>(rank)];
    const auto found = texts.find(name);
    if (found == texts.end()) return std::nullopt;
    return found->second;
  }

  void forget(std::string_view name) override {
    const std::lock_guard lock(mutex_);
    for (auto& texts : texts_)
      if (const auto found = texts.find(name); found != texts.end()) texts.erase(found);
  }

  // MPI's launcher ends all processes when one dies.
  std::optional<int> dead() override { return std::nullopt; }

  // MPI ends together: a rank that finishes it waits for all others, for ever if one is stopped.
  bool ends_together() const override { return true; }

  void close(bool all_end) noexcept override {
    constexpr auto kPatience = std::chrono::seconds(2);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (bool sent = false; !sent && std::chrono::steady_clock::now() < end;) {
      const std::lock_guard lock(mutex_);
      try {
        get_on();
      } catch (const std::exception&) {
        break;
      }
      sent = notes_.empty();
    }
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    // If parcels are still being sent, or if another rank does not end, finishing MPI may wait for
    // ever. The launcher ends what is left.
    if (under_way_ == 0 && all_end) mpi_.finish();
  }

  bool carries() const override { return true; }
  std::unique_ptr<Exchange> exchange(std::span<const Parcel> sent,
                                     std::span<const Parcel> received) override {
    return std::make_unique<Parcels>(*this, sent, received);
  }

 private:
  struct Note {
    std::shared_ptr<const std::string> text;
    void* request;
  };

  class Parcels : public Exchange {
   public:
    // If it throws, the other constructor has made the object, so the destructor cancels what has
    // begun.
    Parcels(MpiBoard& board, std::span<const Parcel> sent, std::span<const Parcel> received)
        : Parcels(board) {
      const std::lock_guard lock(board_.mutex_);
      for (const Parcel& parcel : received) start(parcel, board_.mpi_.receive, true);
      for (const Parcel& parcel : sent) start(parcel, board_.mpi_.send, false);
    }

    ~Parcels() override {
      const std::lock_guard lock(board_.mutex_);
      for (Request& request : requests_)
        if (request.request && request.is_received && !board_.closed_)
          board_.mpi_.cancel(&request.request);
      std::erase_if(requests_, [](const Request& r) { return !r.request; });
      if (requests_.empty()) --board_.under_way_;
    }

    bool done() override {
      const std::lock_guard lock(board_.mutex_);
      board_.refuse_if_closed();
      for (Request& request : requests_) board_.check(board_.mpi_.test(&request.request));
      std::erase_if(requests_, [](const Request& r) { return !r.request; });
      return requests_.empty();
    }

   private:
    struct Request {
      void* request;
      bool is_received;
    };

    explicit Parcels(MpiBoard& board) : board_(board) {
      const std::lock_guard lock(board_.mutex_);
      ++board_.under_way_;
    }

    template <class Function>
    void start(const Parcel& parcel, Function* function, bool is_received) {
      constexpr size_t kMost = size_t{1} << 30;  // MPI counts bytes in an int
      board_.refuse_if_closed();
      for (size_t begin = 0; begin < parcel.size; begin += kMost) {
        requests_.push_back({nullptr, is_received});
        board_.check(function(parcel.rank, parcel.tag, parcel.data + begin,
                              std::min(kMost, parcel.size - begin), &requests_.back().request));
      }
    }

    MpiBoard& board_;
    std::vector<Request> requests_;
  };

  void refuse_if_closed() const {
    if (closed_) fail(codes::kMpi, "MPI has ended in this process");
  }

  void check(int code) const {
    if (code == 0) return;
    char text[512] = "";
    mpi_.explain(code, text, sizeof text);
    fail(codes::kMpi, fmt::format("MPI fails: {}", text));
  }

  /// Receives texts that have arrived, and frees those that have been sent.
  void get_on() {
    if (closed_) return;
    for (;;) {
      int from = 0;
      size_t size = 0;
      check(mpi_.next_note(&from, &size));
      if (size == 0) break;
      std::string note(size, '\0');
      check(mpi_.take_note(from, note.data(), size));
      const size_t end = std::min(note.find('\0'), note.size() - 1);
      texts_[static_cast<size_t>(from)][note.substr(0, end)] = note.substr(end + 1);
    }
    for (Note& note : notes_) check(mpi_.test(&note.request));
    notes_.remove_if([](const Note& note) { return !note.request; });
  }

  const braze_mpi mpi_;
  std::mutex mutex_;  // only one thread at a time may call MPI
  std::vector<std::map<std::string, std::string, std::less<>>> texts_;  // of each rank
  std::list<Note> notes_;                                               // notes that are being sent
  int under_way_ = 0;  // exchanges that are under way
  bool closed_ = false;
};

}  // namespace

bool is_mpi_up() {
  const auto ask = [](const char* name) {
    auto* const function = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, name));
    int yes = 0;
    return function && function(&yes) == 0 && yes != 0;
  };
  return ask("MPI_Initialized") && !ask("MPI_Finalized");
}

std::vector<std::string> mpi_plugins() {
  std::vector<std::string> found;
  for (const char* name : {kOpenMpi, kMpich, kAny})
    for (const fs::path& folder : plugin_folders()) {
      std::error_code error;
      if (fs::exists(folder / name, error)) found.push_back(folder / name);
    }
  return found;
}

std::unique_ptr<Board> meet_by_mpi() {
  const std::string works = fmt::format(
      "build the plugin for your MPI, mpicc -shared -fPIC -o {} braze_mpi.c, and name it in {}; "
      "GPUs can do without, by {}; {}=none makes each process work alone",
      kAny, kEnvMpi.name, kEnvRendezvous.name, kEnvMpi.name);
  std::string missing;
  for (const std::string& file : candidates()) {
    // Libraries that MPI itself loads look for MPI's names.
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!handle) {
      const char* const error = dlerror();
      std::error_code ignored;
      if (missing.empty() || fs::exists(file, ignored)) missing = error ? error : file;
      continue;
    }
    auto* const open = reinterpret_cast<braze_mpi_open_function*>(dlsym(handle, BRAZE_MPI_OPEN));
    if (!open) refuse(fmt::format("{} is no plugin for MPI", file), works);
    braze_mpi mpi{};
    char error[512] = "";
    if (open(&mpi, error, sizeof error) != 0) refuse(error, "");
    if (mpi.version != BRAZE_MPI_VERSION)
      refuse(fmt::format("{} is for another version of Braze", file), works);
    if (mpi.size == 1 && launched_count() > 1)
      refuse(fmt::format("{} processes were started by another MPI than {}, which {} is for",
                         launched_count(), mpi.library, file),
             works);
    // A program that started MPI may end it before the program itself ends.
    mpi.call_at_end([] {
      if (Ranks* const ranks = Ranks::known()) ranks->leave();
    });
    return std::make_unique<MpiBoard>(mpi);
  }
  refuse(fmt::format("the plugin for MPI cannot be opened: {}", missing), works);
}

}  // namespace braze
