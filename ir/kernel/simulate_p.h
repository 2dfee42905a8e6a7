// simulate_p.h — the state of a simulated GPU and the engine that runs kernels on it. Private to
// the simulator.
//
// A kernel becomes a list of steps for each phase, and structured control flow becomes jumps. A
// warp has a place in that list, a mask of the threads that are active there, and all values of its
// threads. A step that has to wait returns Blocked, and is tried again when other warps have run.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/code/row_loops.h"
#include "ir/kernel/ordering.h"
#include "ir/kernel/simulate.h"
#include "ir/kernel/warp_index.h"

namespace braze {

constexpr size_t kGroupWarps = 4;
constexpr size_t kNamedBarriers = 16;

enum class Status : uint8_t {
  Next,     ///< continue after this step
  Jumped,   ///< the step has set Warp::at
  Blocked,  ///< try this step again later
};

struct Warp;
struct Step {
  const Statement* statement = nullptr;
  std::function<Status(Warp&)> run;
  mutable bool was_run = false;
};

/// A control structure that a warp is in.
struct Frame {
  uint32_t outside = 0;  ///< the mask before it
  uint32_t other = 0;    ///< if: threads of the other branch
  Lanes k{}, high{}, step{};
};

/// The last accesses to each granule of a memory.
class AccessLog {
 public:
  enum class Clash : uint8_t { None, Store, Load };
  static constexpr size_t kReaders = 3;

  void resize(size_t places) {
    writers_.resize(places);
    readers_.resize(places);
  }
  void clear() {
    std::fill(writers_.begin(), writers_.end(), Stamp());
    std::fill(readers_.begin(), readers_.end(), std::array<Stamp, kReaders>());
  }
  size_t size() const { return writers_.size(); }
  const Stamp& writer(size_t place) const { return writers_[place]; }
  const std::array<Stamp, kReaders>& readers(size_t place) const { return readers_[place]; }
  void set_writer(size_t place, const Stamp& stamp) { writers_[place] = stamp; }

  /// `knows(stamp)` says whether that access is known to come before this one.
  template <class Knows>
  Clash read(size_t place, const Stamp& me, const Knows& knows) {
    bool kept = false;
    for (Stamp& reader : readers_[place]) {
      if (reader.run != 0 && reader != me && !knows(reader)) continue;
      reader = me;
      kept = true;
      break;
    }
    static_cast<void>(kept);  // if there are too many readers at once, the first ones are kept
    const Stamp& writer = writers_[place];
    const bool safe =
        writer.run == 0 || writer == me || (writer.atomic && me.atomic) || knows(writer);
    return safe ? Clash::None : Clash::Store;
  }
  template <class Knows>
  Clash write(size_t place, const Stamp& me, const Knows& knows) {
    Clash clash = Clash::None;
    for (Stamp& reader : readers_[place]) {
      if (reader.run != 0 && !(reader.atomic && me.atomic) && !knows(reader)) clash = Clash::Load;
      reader = Stamp();
    }
    Stamp& writer = writers_[place];
    if (writer.run != 0 && !(writer.atomic && me.atomic) && !knows(writer)) clash = Clash::Store;
    writer = me;
    return clash;
  }

 private:
  std::vector<Stamp> writers_;
  std::vector<std::array<Stamp, kReaders>> readers_;
};

struct DeviceMemory {
  std::byte* data = nullptr;
  DType dtype = DType::F32;
  int64_t length = 0;
  std::vector<uint64_t> own;  // storage of workspaces
  bool tracked = false;
  std::vector<uint8_t> initialised;
  AccessLog log;
};

/// An `alloc local` for all threads of a warp: all threads of element 0, then of element 1, ..
struct LocalMemory {
  std::vector<uint64_t> bits;
  std::vector<uint8_t> initialised;
};

struct Block;
struct Mbarrier {
  Block* home = nullptr;
  std::string name;
  uint16_t agent = 0;  // of the copies that complete on it
  Stamp init;
  bool fenced = false;
  int64_t count = 0, pending = 0, bytes = 0;
  uint32_t phase = 0;
  uint32_t copied = 0, waited = 0;  // the last phases, from 1, with a copy and with a wait
  Knowledge arriving, told;
};

struct NamedBarrier {
  int64_t threads = 0, arrived = 0;  // `threads` is 0 while no thread has arrived
  Knowledge told;
  std::vector<Warp*> waiting;
};

/// Four warps that run wgmma together.
struct WarpGroup {
  const Step* at = nullptr;
  uint32_t arrived = 0;
  uint64_t meetings = 0;
  uint16_t agent = 0;  // its wgmma, numbered by committed groups
  uint32_t committed = 0;
  uint32_t waited = 0;  // the last group known to be done
  bool open = false;    // a wgmma that is not committed
};

/// The asynchronous copies of one thread that are under way.
struct ThreadCopies {
  struct Place {
    size_t begin, end;  // granules of shared memory
  };
  uint16_t agent = 0;                             // cp.async, by group
  std::vector<std::vector<Place>> groups = {{}};  // cp.async that may run; the last group is open
  uint32_t first = 1;                             // the number of groups[0]
  uint16_t bulk_agent = 0;                        // tma.store
  uint32_t bulk_committed = 0, bulk_read = 0;
  bool bulk_open = false;
};

struct Warp {
  Block* block = nullptr;
  size_t index = 0;      // in the block
  uint32_t threads = 0;  // that exist
  uint32_t mask = 0;     // that are active
  size_t at = 0;
  bool done = false;
  std::vector<Frame> frames;
  std::vector<Lanes> symbols;
  std::vector<WarpValue> values;
  std::vector<uint8_t> undefined;         // by value
  std::vector<uint32_t> flight;           // by value: the wgmma group that makes it, or 0
  std::vector<LocalMemory> locals;        // by memory
  std::map<size_t, ThreadCopies> copies;  // by lane
  WarpClock clock;
  // While a step waits: how far it has got.
  int stage = 0;
  uint32_t left = 0;        // lanes that still wait
  uint64_t meeting = 0;     // of the group
  bool at_cluster = false;  // between cluster.arrive and cluster.wait
  uint64_t cluster_meeting = 0;
  std::array<uint32_t, kWarpLanes> phases{};  // of mbarriers, when the wait began
  uint64_t statements = 0;

  WarpScope scope() const { return {&symbols, &values}; }
};

struct Block {
  size_t rank = 0;
  std::vector<Warp> warps;
  std::vector<std::byte> shared;
  AccessLog log;
  std::map<int64_t, Mbarrier> mbarriers;  // by byte
  std::array<NamedBarrier, kNamedBarriers> barriers;
  std::vector<WarpGroup> groups;
  size_t running = 0;  // warps
};

struct ClusterBarrier {
  size_t arrived = 0;
  uint64_t generation = 0;
  Knowledge arriving, told;
};

/// For whom memory is accessed, and who must know about earlier accesses.
struct Actor {
  Stamp stamp;
  const Warp* const* viewers = nullptr;
  size_t viewer_count = 1;
  size_t lane = 0;
  bool async = false;
};

class Simulator::Engine {
 public:
  explicit Engine(const KernelCode& kernel);
  std::vector<Diagnostic> run(std::span<const std::span<std::byte>> memories,
                              std::span<const int64_t> scalars);
  const KernelCode& code() const { return code_; }
  uint64_t thread_statements = 0;
  std::set<uint32_t> lines_run() const;

 private:
  using Run = std::function<Status(Warp&)>;
  struct CompiledPhase {
    std::vector<WarpIndex> extents;
    std::vector<size_t> slots;
    size_t cluster_slot = 0, thread_slot = 0;
    size_t slots_end = 0;
    std::vector<Step> steps;
  };
  struct TensorMapLayout {
    std::vector<WarpIndex> extents;
  };

  // --- Findings
  void report(const Code& cause, const std::string& message, const Warp* warp = nullptr,
              int lane = -1);
  bool full() const;

  // --- Launch (simulate.cpp)
  bool bind(std::span<const std::span<std::byte>> memories, std::span<const int64_t> scalars);
  void run_phase(size_t p);
  void start_cluster(size_t p);
  void run_cluster(size_t p);
  bool run_warp(Warp& warp, const std::vector<Step>& steps);
  void report_deadlock(const std::vector<Step>& steps);
  void finish_cluster();
  void check_remote_accesses(const Block& block);
  void check_outputs();

  // --- Compilation (simulate.cpp)
  size_t new_slot(const std::string& name, bool uniform);
  WarpIndex::Names names();
  WarpIndex index(const Expr& e, const ValueType& type = {DType::I64, 1, {}});
  bool varies(const Expr& e) const;
  struct Comparison {
    WarpIndex left, right;
    IndexComparison::Kind kind;
  };
  std::vector<Comparison> comparisons(const Condition& condition, const ValueType& type);
  /// Clears `active` for elements for which the condition does not hold.
  static void narrow(const std::vector<Comparison>& condition, const WarpScope& scope,
                     std::vector<uint8_t>& active);
  static uint32_t threads_where(const std::vector<Comparison>& condition, const Warp& warp);

  /// An operand seen as an array of another type.
  struct Source {
    ValueId value;
    std::vector<uint32_t> map;
    WarpValue copy;
    const uint64_t* get(const Warp& warp);
  };
  Source source(const ValueOperand& operand, const ValueType& as) const;
  ValueType type_of(const ValueOperand& operand) const;
  const ValueType& type_of(ValueId id) const { return code_[id].type; }

  void emit(const Region& region, std::vector<Step>& steps);
  void emit(const Statement& s, std::vector<Step>& steps);
  void emit_if(const IfOp& op, const Statement& s, std::vector<Step>& steps);
  void emit_for(const ForOp& op, const Statement& s, std::vector<Step>& steps);
  void emit_role(const RoleOp& op, const Statement& s, std::vector<Step>& steps);
  std::function<void(Warp&)> assign(const std::vector<ValueOperand>& from,
                                    const std::vector<ValueId>& to);
  Run pure(const Statement& s);
  Run moved(const ValueOperand& operand, const Statement& s, std::vector<uint32_t> map);
  void check_operands(const std::vector<ValueId>& reads, const std::vector<ValueId>& passes_on,
                      Warp& warp);

  // --- Memory (simulate_memory.cpp)
  struct Access {
    MemoryId memory;
    WarpIndex at;
    std::vector<Comparison> condition;
    std::optional<Source> mask;
    std::optional<WarpIndex> rank;
    int64_t align = 0;
    int32_t lanes = 1;
    std::vector<int64_t> places;  // -1 for elements that are not accessed
    std::vector<uint8_t> active;
  };
  template <class Op>
  std::shared_ptr<Access> access(const Op& op, const ValueType& type);
  const std::vector<int64_t>& locate(Access& access, Warp& warp);
  Run load(const LoadOp& op, const Statement& s);
  Run store(const StoreOp& op, const Statement& s);
  Run atomic(const AtomicOp& op, const Statement& s);
  int64_t length_of(MemoryId id) const;
  Actor thread_actor(const Warp& warp, const Warp* const* self, size_t lane) const;
  bool knows(const Actor& actor, const Stamp& stamp) const;
  Block* block_of_rank(int64_t rank, Warp& warp, int lane);
  /// Notes and checks an access of `bytes` bytes of shared memory.
  void touch_shared(Block& block, int64_t byte, int64_t bytes, const Actor& actor, bool write,
                    Warp& warp, int lane);
  void touch_device(MemoryId id, int64_t place, const Actor& actor, bool write, Warp& warp,
                    int lane);
  const Warp* warp_of(uint16_t agent) const;
  std::string shared_text(int64_t byte) const;
  std::string place_text(MemoryId id, int64_t place) const;

  // --- Instructions (simulate_instructions.cpp)
  friend struct InstructionTable;
  struct Operands;  // of one instruction, compiled
  Run instruction(const InstructionOp& op, const Statement& s);
  std::shared_ptr<Operands> operands(const InstructionOp& op, const Statement& s);
  /// `by_others` says that the asynchronous proxy or another block uses it.
  Mbarrier* mbarrier_at(Operands& operands, size_t operand, Warp& warp, size_t lane,
                        bool by_others);
  void advance(Mbarrier& barrier);
  void complete_bytes(Mbarrier& barrier, int64_t bytes, Warp& warp, int lane);
  void arrive(Mbarrier& barrier, Warp& warp, uint32_t lanes);
  void copy_box(const TensorMap& map, const std::vector<int64_t>& corner, Block& block,
                int64_t byte, const Actor& device, const Actor& shared, bool load, Warp& warp,
                int lane);
  ThreadCopies& copies_of(Warp& warp, size_t lane);
  uint16_t new_agent() { return next_agent_++; }
  /// Blocks until the four warps of the group have arrived. The last one runs `run` for all.
  Status group_meets(Warp& warp, const std::function<void(std::span<Warp* const>)>& run);

  KernelCode code_;
  std::unordered_map<std::string, std::pair<size_t, bool>> slots_;  // while compiling
  std::unordered_map<std::string, ValueId> value_of_;
  std::vector<bool> slot_uniform_;
  std::vector<WarpIndex> lengths_;  // by memory
  std::vector<TensorMapLayout> maps_;
  std::vector<CompiledPhase> phases_;
  std::vector<Lanes> symbols_;  // the sizes, for all warps
  std::vector<uint64_t> scalar_bits_;
  std::vector<DeviceMemory> memories_;
  size_t granule_ = 1;  // bytes of shared memory that are tracked together
  // The present cluster.
  size_t phase_ = 0;
  uint32_t run_ = 0, base_ = 0;
  std::vector<Block> blocks_;
  ClusterBarrier cluster_;
  uint16_t next_agent_ = 0;
  std::map<std::pair<MemoryId, int64_t>, std::map<uint32_t, std::shared_ptr<const Knowledge>>>
      atomics_;  // the knowledge that was released at each place with atomics
  std::vector<int64_t> grid_;
  const Step* step_ = nullptr;
  bool stopped_ = false;
  std::vector<Diagnostic> findings_;
  std::set<std::pair<const Statement*, std::string_view>> seen_;
};

}  // namespace braze
