// board.h — what the processes of a program tell each other: short texts under a name, which stay
// until they are forgotten; and, where something can carry them, bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braze {

/// A range of bytes for another rank, or from one. Those between two ranks with one tag arrive in
/// the order in which they were sent.
struct Parcel {
  int rank = 0, tag = 0;
  std::byte* data = nullptr;  ///< of what is sent only read
  size_t size = 0;
};

/// Thread-safe. One rank's view.
class Board {
 public:
  virtual ~Board() = default;
  virtual int rank() const = 0;
  virtual int count() const = 0;
  /// The place among the ranks of this host, and how many these are.
  virtual int local_rank() const = 0;
  virtual int local_count() const = 0;

  /// This rank's text under `name`, in place of the one before.
  virtual void post(std::string_view name, std::string_view text) = 0;
  /// A rank's text under `name`, if it is here.
  virtual std::optional<std::string> look(std::string_view name, int rank) = 0;
  /// All have posted and read it: it may go.
  virtual void forget(std::string_view name) = 0;

  /// A rank whose process died, and that had not posted "bye"; nullopt if none is known.
  virtual std::optional<int> dead() = 0;
  /// This rank posts nothing more.
  virtual void close() noexcept {}

  /// Whether `Exchange` is there.
  virtual bool carries() const { return false; }
  /// Parcels under way.
  class Exchange {
   public:
    virtual ~Exchange() = default;
    /// Gets on with it; true once all parcels are through.
    virtual bool done() = 0;
  };
  virtual std::unique_ptr<Exchange> exchange(std::span<const Parcel> /*sent*/,
                                             std::span<const Parcel> /*received*/) {
    return nullptr;
  }
};

/// Meets the others in `folder`, which all of them see; blocks until all are there, calling `poll`
/// with the ranks that are not, which may throw.
std::unique_ptr<Board> meet_in_folder(const std::string& folder, int rank, int count);

}  // namespace braze
