// crew.h — threads that do the parts of one thing at the same time.
//
// Calls over several GPUs follow one another at intervals of microseconds, and to wake a thread
// takes as long as such a call. So a thread of a crew looks out for its next part for some time
// before it sleeps, and so does the thread that waits for the others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace braze {

class Crew {
 public:
  Crew() = default;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();

  /// Makes sure that so many parts can be done at the same time. Throws std::system_error if a
  /// thread cannot be started.
  void grow(size_t parts);

  /// Calls body(0) in this thread and body(1) ... body(parts - 1) in threads of their own, and
  /// returns when all have returned. This thread also does what others have not begun when it has
  /// done its own part, so that nobody waits for a thread that has no processor. `body` must not
  /// throw. `grow` was called with so many parts. Calls must not overlap.
  template <class Body>
  void run(size_t parts, const Body& body) {
    run_all(parts, {[](const void* given, size_t part) noexcept {
                      (*static_cast<const Body*>(given))(part);
                    },
                    &body});
  }

 private:
  struct Job {
    void (*call)(const void* body, size_t part) noexcept = nullptr;
    const void* body = nullptr;
  };
  struct alignas(64) Member {
    std::atomic<uint32_t> given{0};  // the number of parts that it got so far
    std::atomic<uint32_t> taken{0};  // how many of those were begun, by it or by who gave them
    std::atomic<uint32_t> done{0};   // how many of those are done
    std::thread thread;

    /// Whether the caller is the one who does the part that was given last, its `number`-th.
    bool take(uint32_t number) {
      uint32_t before = number - 1;
      return taken.compare_exchange_strong(before, number);
    }
  };

  void run_all(size_t parts, Job job);
  void serve(Member& member, size_t part) const;
  void await_change(const std::atomic<uint32_t>& number, uint32_t from) const;

  Job job_;  // of the present call
  std::atomic<bool> stops_{false};
  std::atomic<size_t> size_{1};  // threads, with the one that calls
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace braze
