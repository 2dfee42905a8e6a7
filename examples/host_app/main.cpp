// Braze inside of an application that has its own threads, its own memory and its own log.
// Usage: host_app
#include <braze/braze.h>
#include <braze/config.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

using namespace braze;

namespace {

/// The application's threads. They do a loop's parts; whoever starts the loop helps.
class Workers {
 public:
  explicit Workers(int count) {
    for (int i = 1; i < count; ++i) threads_.emplace_back([this] { serve(); });
  }
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// What braze::Config::parallel_for asks for.
  void loop(int count, const ParallelTask& task) {
    std::unique_lock lock(mutex_);
    task_ = &task;
    next_ = 0;
    count_ = left_ = count;
    ++loops;
    changed_.notify_all();
    work(lock);
    changed_.wait(lock, [this] { return left_ == 0; });
    task_ = nullptr;
  }

  int loops = 0;

 private:
  void work(std::unique_lock<std::mutex>& lock) {
    while (task_ && next_ < count_) {
      const int index = next_++;
      const ParallelTask& task = *task_;
      lock.unlock();
      task(index);
      lock.lock();
      if (--left_ == 0) changed_.notify_all();
    }
  }
  void serve() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      work(lock);
      changed_.wait(lock, [this] { return stop_ || (task_ && next_ < count_); });
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const ParallelTask* task_ = nullptr;
  int next_ = 0, count_ = 0, left_ = 0;
  bool stop_ = false;
};

/// The application's memory: one block, which is handed out piece by piece, aligned to 64 bytes.
class Arena {
 public:
  explicit Arena(size_t bytes)
      : begin_(static_cast<std::byte*>(std::aligned_alloc(64, bytes))), bytes_(bytes) {}
  ~Arena() { std::free(begin_); }

  float* floats(size_t count) {
    auto* const piece = reinterpret_cast<float*>(begin_ + used_);
    used_ += (count * sizeof(float) + 63) / 64 * 64;
    if (used_ > bytes_) std::abort();
    ++in_use;
    return piece;
  }
  void release() { --in_use; }

  std::atomic<int> in_use{0};

 private:
  std::byte* const begin_;
  const size_t bytes_;
  size_t used_ = 0;
};

/// An array over a piece of the arena; nothing is copied.
Array lend(Arena& arena, float* data, std::vector<int64_t> shape) {
  return Array::borrow(
      {.data = data, .shape = std::move(shape), .device = "cpu", .release = [&arena] {
         arena.release();
       }});
}

}  // namespace

int main() {
  constexpr int64_t kRows = 1000, kColumns = 512;
  constexpr int kThreads = 3;
  Workers workers(kThreads);
  std::atomic<int> lines{0};
  // Before anything else of Braze. What is not said here is as the environment says.
  configure(
      {.cache = "off",
       .threads = kThreads,
       .parallel_for = [&](int count, const ParallelTask& task) { workers.loop(count, task); },
       .log =
           [&](LogLevel level, std::string_view text) {
             ++lines;
             std::cout << "[app] " << name(level) << ": " << text << "\n";
           },
       .default_device = "cpu"});
  try {
    Arena arena(8 << 20);
    float* const x = arena.floats(kRows * kColumns);
    float* const w = arena.floats(kColumns);
    std::iota(x, x + kRows * kColumns, 0.f);
    std::fill_n(w, kColumns, 0.5f);

    const auto scale = jit([](Tensor a, Tensor b) { return a * b + 1; });
    Array y;
    {
      const Array xs = lend(arena, x, {kRows, kColumns}), ws = lend(arena, w, {kColumns});
      y = scale(xs, ws);
    }
    y.wait();  // the call is done with the memory, and has let go of it
    const bool released = arena.in_use == 0;

    // Strided memory is copied, which the log tells.
    float* const square = arena.floats(16);
    std::iota(square, square + 16, 0.f);
    const Array transposed = Array::borrow(
        {.data = square, .shape = {4, 4}, .strides = {1, 4}, .device = "cpu", .release = [&] {
           arena.release();
         }});

    const std::vector<float> values = y.to_vector<float>();
    const bool right =
        values[3] == 2.5f && values[kColumns] == 257 && transposed.to_vector<float>()[1] == 4;
    std::cout << "loops of the application's threads: " << workers.loops
              << ", pieces of its memory in use: " << arena.in_use << "\n";
    return right && released && workers.loops > 0 && lines == 1 && arena.in_use == 0 ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
