// progress.h — says how far long work is, to whoever listens: the command line tool shows it.
//
// Nothing happens without a listener. Everything here is thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace braze {

/// Work that is under way. It ends where the object does.
class Progress {
 public:
  /// `what` is done, in `total` parts called `part`: "importing model.onnx", "node", 120. A total
  /// of 0 stands for work that is not divided.
  explicit Progress(std::string what, std::string_view part = {}, size_t total = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// One more part is complete.
  void advance();

 private:
  void tell(size_t done) const;

  const bool is_heard_;
  const std::string what_;
  const std::string_view part_;
  const size_t total_;
  std::atomic<size_t> done_ = 0;
};

/// Receives lines such as "importing model.onnx: node 12 of 120", and an empty one when work ends.
/// It is called by any thread, by one at a time. It must not throw.
using ProgressListener = std::function<void(std::string_view line)>;
/// Sets the listener of this process, or removes it with an empty function. No work may be under
/// way.
void set_progress_listener(ProgressListener listener);

}  // namespace braze
