// board.h — the board on which the processes of a program post short texts under names. A text
// stays until it is forgotten. Some boards also transfer bytes between processes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braze {

/// A range of bytes for another rank, or from another rank. Parcels between two ranks with the same
/// tag arrive in the order in which they were sent.
struct Parcel {
  int rank = 0, tag = 0;
  std::byte* data = nullptr;  ///< if the parcel is sent, the bytes are only read
  size_t size = 0;
};

/// One rank's view of the texts of all ranks. Thread-safe.
class Board {
 public:
  virtual ~Board() = default;
  virtual int rank() const = 0;
  virtual int count() const = 0;
  /// The place among the ranks of this host, and the number of ranks of this host.
  virtual int local_rank() const = 0;
  virtual int local_count() const = 0;

  /// Posts this rank's text under `name`. It replaces the previous text.
  virtual void post(std::string_view name, std::string_view text) = 0;
  /// The text of a rank under `name`, if it has arrived.
  virtual std::optional<std::string> look(std::string_view name, int rank) = 0;
  /// Says that all ranks have posted and read this text, so it may be removed.
  virtual void forget(std::string_view name) = 0;

  /// A rank whose process died without having posted "bye"; nullopt if none is known.
  virtual std::optional<int> dead() = 0;
  /// Whether a rank that ends should wait until all have posted "bye".
  virtual bool ends_together() const { return false; }
  /// This rank posts nothing more. `all_end`: all ranks have posted "bye".
  virtual void close(bool /*all_end*/) noexcept {}

  /// Whether `exchange` works.
  virtual bool carries() const { return false; }
  /// Parcels that are being sent and received.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    /// Makes progress, and returns true when all parcels have been sent and received.
    virtual bool done() = 0;
  };
  virtual std::unique_ptr<Exchange> exchange(std::span<const Parcel> /*sent*/,
                                             std::span<const Parcel> /*received*/) {
    return nullptr;
  }
};

/// Meets the other processes in `folder`, which all of them see. Blocks until all have arrived.
std::unique_ptr<Board> meet_in_folder(const std::string& folder, int rank, int count);

}  // namespace braze
