// protocol.h — checks the rules between the copies of the roles of one instance. It keeps the state
// of channels, tokens, dots and stores of a pipelined phase, and checks the rules P4, P7, P9 to
// P14, P16, P17 and P19 of docs/ir/languages.md. The interpreter uses it when it runs a program
// with values, and the verifier when it runs the skeletons of the roles.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/code/code.h"

namespace braze {

/// The copies that are equal in all blocks of a cluster, because their place does not depend on the
/// rank. They are multicast (10.3 of the language page). Control flow around them is not
/// considered.
std::set<const CopyOp*> replicated_copies(const Phase& phase);

/// One of the sequential programs of an instance.
struct RoleCopy {
  const TileRoleOp* role = nullptr;
  int64_t number = 0;
  int64_t block = 0;  ///< rank in the cluster
  size_t blocks = 1;
  std::string to_string() const;
};

/// A part of a buffer, in its coordinates.
struct ChipRange {
  MemoryId buffer;
  std::vector<int64_t> begin, end;
};

class Protocol {
 public:
  using Report =
      std::function<void(const Statement*, const char* rule, const std::string& message)>;
  /// The copy that receives an item of a channel with `only`.
  using Only = std::function<int64_t(int64_t block, ChannelId channel, int64_t item)>;
  /// `code` and `phase` must outlive this.
  Protocol(const KernelCode& code, const Phase& phase, std::vector<RoleCopy> copies, Report report,
           Only only);

  /// The statement to which the following calls belong.
  void at(const Statement* statement) { statement_ = statement; }

  // Functions that return a bool return false if the copy has to wait. They are called again then.
  bool put(size_t copy, ChannelId channel, int64_t item);
  void fill(size_t copy, ChannelId channel, int64_t item);  ///< the put has made all its copies
  bool get(size_t copy, ChannelId channel, int64_t item);
  void release(size_t copy, ChannelId channel, int64_t item);
  void expect_held(size_t copy, ChannelId channel, int64_t item);
  void pass(size_t copy, TokenId token, int64_t element, int64_t item);
  bool take(size_t copy, TokenId token, int64_t element, int64_t item);

  using Item = std::pair<ChannelId, int64_t>;
  /// Starts a dot, and returns its number, which is counted from 1 in its copy.
  int64_t start_dot(size_t copy, std::vector<Item> reads);
  void wait_dots(size_t copy, int64_t pending);
  bool in_flight(size_t copy, int64_t dot) const { return dot > copies_[copy].settled; }
  /// `value` is about to be read. The dot with the number `dot` makes it; 0: no dot does.
  void expect_settled(size_t copy, int64_t dot, ValueId value);

  void start_store(size_t copy, ChipRange range);
  void wait_stores(size_t copy, int64_t pending);
  void expect_free(size_t copy, const ChipRange& range);  ///< the range is about to be stored to

  /// All blocks of the cluster meet at a reduction; `arrive` gets its number at the first call.
  bool meet(size_t copy, const std::function<void(int64_t)>& arrive);

  void end_role(size_t copy);
  void end();    ///< all roles have ended
  void stuck();  ///< no copy can move

 private:
  // For each copy, the number of its events that are known.
  using Clock = std::vector<int64_t>;
  struct Receipt {
    const Statement* by = nullptr;
    int64_t event = 0;
    bool released = false;
    Clock at_release;
  };
  struct ItemState {
    const Statement* by = nullptr;
    bool full = false;
    Clock at_put;
    std::map<size_t, Receipt> receipts;  // by copy
  };
  struct ChannelState {
    /// The item that was in the slot before `item`. The text may have chosen any number for `item`.
    auto before(int64_t item, int64_t depth) const {
      const bool is_first = item < std::numeric_limits<int64_t>::min() + depth;
      return is_first ? items.end() : items.find(item - depth);
    }

    std::map<int64_t, ItemState> items;
    std::vector<std::pair<const Statement*, int64_t>> puts;  // in order
  };
  struct TurnState {
    const Statement* by = nullptr;
    int64_t passed = -1, taken = -1;  // the items that were passed and taken last
    std::optional<size_t> passer, taker;
    int64_t take_event = 0;
    Clock knows, turns;  // of the passer
  };
  struct Dot {
    int64_t number = 0;
    const Statement* by = nullptr;
    std::vector<Item> reads;
  };
  struct CopyState {
    int64_t events = 0;
    Clock knows;
    Clock turns;  // the events that chains of its own gets, passes and takes put before it (P19)
    std::map<ChannelId, int64_t> got, released;  // the items that it got and released last
    std::deque<Dot> dots;                        // dots that may still run
    int64_t started = 0, settled = 0;
    std::deque<ChipRange> stores;  // stores that may still read
    int64_t meetings = 0;
    bool meets = false, ended = false;
    const Statement* waits_at = nullptr;
    std::optional<Item> waits_for;  // the item of a get that waits
  };
  struct Meeting {
    Clock knows;
    size_t arrived = 0;
  };
  using MeetingKey = std::pair<std::pair<const TileRoleOp*, int64_t>, int64_t>;

  /// Reports a broken rule unless `holds`. The message is made only in that case.
  template <class Message>
  void expect(bool holds, const char* rule, const Message& message) {
    if (!holds) report_(statement_, rule, message());
  }
  bool waits(size_t copy);
  void event(size_t copy);
  static void join(Clock& into, const Clock& from);
  bool receives(size_t copy, ChannelId channel, int64_t item) const;
  ChannelState& state(size_t copy, ChannelId channel) {
    return channels_[{copies_of_[copy].block, channel}];
  }
  std::string item_text(ChannelId channel, int64_t item) const;

  const KernelCode& code_;
  const std::vector<RoleCopy> copies_of_;
  const Report report_;
  const Only only_;
  std::set<ChannelId> multicast_;
  std::vector<CopyState> copies_;
  std::map<std::pair<int64_t, ChannelId>, ChannelState> channels_;  // by block
  std::map<std::pair<int64_t, std::pair<TokenId, int64_t>>, TurnState> turns_;
  std::map<MeetingKey, Meeting> meetings_;
  const Statement* statement_ = nullptr;
};

}  // namespace braze
