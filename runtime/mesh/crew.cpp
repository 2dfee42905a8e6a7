#include "runtime/mesh/crew.h"

#include <chrono>
#include <utility>

#include "ir/support/fork.h"
#include "runtime/execution/relax.h"

namespace braze {

namespace {

// Longer than the time between two calls of a program that makes one after the other.
constexpr auto kLookout = std::chrono::microseconds(50);

size_t processor_count() {
  static const size_t count = std::thread::hardware_concurrency();  // it may read a file
  return count;
}

}  // namespace

Crew::~Crew() {
  const bool forked = is_forked();
  stops_ = true;
  for (const auto& member : members_) {
    if (forked) {
      new std::thread(std::move(member->thread));  // the thread stayed in the parent
      continue;
    }
    ++member->given;
    member->given.notify_one();
    member->thread.join();
  }
}

void Crew::grow(size_t parts) {
  if (members_.size() + 1 >= parts) return;
  note_threads();
  members_.reserve(parts - 1);
  while (members_.size() + 1 < parts) {
    auto member = std::make_unique<Member>();
    member->thread =
        std::thread([this, &one = *member, part = members_.size() + 1] { serve(one, part); });
    members_.push_back(std::move(member));
    size_ = members_.size() + 1;
  }
}

void Crew::run_all(size_t parts, Job job) {
  job_ = job;
  for (size_t part = 1; part < parts; ++part) {
    Member& member = *members_[part - 1];
    member.given.store(member.given.load(std::memory_order_relaxed) + 1);
    member.given.notify_one();
  }
  job.call(job.body, 0);
  for (size_t part = 1; part < parts; ++part) {
    Member& member = *members_[part - 1];
    const uint32_t given = member.given.load(std::memory_order_relaxed);
    if (member.take(given)) {
      job.call(job.body, part);
      member.done.store(given);
    }
  }
  for (size_t part = 1; part < parts; ++part) {
    const Member& member = *members_[part - 1];
    const uint32_t given = member.given.load(std::memory_order_relaxed);
    for (uint32_t done = member.done.load(); done != given; done = member.done.load())
      await_change(member.done, done);
  }
}

void Crew::serve(Member& member, size_t part) const {
  for (uint32_t seen = 0;;) {
    await_change(member.given, seen);
    seen = member.given.load();
    if (stops_) return;
    if (!member.take(seen)) continue;
    job_.call(job_.body, part);
    member.done.store(seen);
    member.done.notify_one();
  }
}

/// Waits until the number is no longer `from`.
void Crew::await_change(const std::atomic<uint32_t>& number, uint32_t from) const {
  // Where not every thread has a processor of its own, looking out would keep others from working.
  if (size_ < processor_count()) {
    const auto end = std::chrono::steady_clock::now() + kLookout;
    do {
      for (int i = 0; i < 32; ++i) {
        if (number.load(std::memory_order_acquire) != from) return;
        relax();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  number.wait(from, std::memory_order_acquire);
}

}  // namespace braze
