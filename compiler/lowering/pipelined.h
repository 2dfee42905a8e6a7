// pipelined.h — the lowering of pipelined tile programs to kernels for a GPU. It follows section 10
// of docs/ir/languages.md, and the code names the rules by their numbers.
//
// pipelined.cpp lowers phases, roles, channels and barriers. pipelined_values.cpp lowers operations
// on registers, and loads and stores of tiles; pipelined_copies.cpp bulk copies; pipelined_dots.cpp
// matrix instructions; pipelined_meetings.cpp reductions over a cluster, and tickets.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/lowering/threads.h"
#include "ir/code/boxes.h"
#include "ir/code/layout.h"
#include "ir/tile/layouts.h"

namespace braze {

class PipelinedLowering : public ThreadLowering {
 public:
  PipelinedLowering(const TileProgram& program, const Target& target);

 private:
  // --- Phases, roles, channels: pipelined.cpp ---------------------------------------------------

  // An object in shared memory. Objects are placed when all of them are known.
  struct SharedObject {
    MemoryId memory;
    int64_t bytes = 0, align = 128;
  };
  struct LoweredChannel {
    MemoryId full, empty;
    int64_t bytes = 0;     // bytes of an item
    int64_t writers = 1;   // number of blocks that write into a slot of this block
    int64_t releases = 0;  // arrivals that empty a slot
    // Arrivals that fill a slot: one of thread 0, or one of each thread that copies.
    int64_t fills = 1;
  };
  // The role whose copies execute the current statements.
  struct Role {
    const TileRoleOp* op = nullptr;
    int64_t first_warp = 0;
    int64_t first_barrier = 0;  // the id of the barrier of copy 0
    Expr copy, thread, warp, lane;
    bool one_thread = false;  // whether all statements stand under the condition "thread 0"
    bool stores_start = false;
    bool puts = false;
    bool copies = false;  // whether all of its threads copy
    int64_t threads() const { return op->warps * kWarpThreads; }
  };
  void place_buffer(Memory& lowered, int64_t bytes) override;
  void lower_phase(const Phase& phase) override;
  void note_roles(const Phase& phase);
  void note_copies(const Region& region);
  void declare_channel(ChannelId id);
  void place_shared(Phase& lowered);
  void begin_block(const Phase& lowered);
  void init_slot(const LoweredChannel& channel, const Expr& slot);
  void lower_role(const Role& role);
  void role_symbols(const Expr& rtid);
  void pass_first_turns();
  int64_t passer(const TurnToken& token, TokenId id) const;
  void end_role();
  bool only_puts(const Region& region) const;
  int64_t receivers(const Channel& channel) const;
  const Role& role_named(const std::string& name) const;
  MemoryId shared(std::string_view name, DType dtype, int64_t count, int64_t align,
                  std::vector<SharedObject>& list);
  MemoryId mbarriers(std::string_view name, int64_t count);
  Expr slot(const Channel& channel, const Expr& item) const { return mod(item, channel.depth); }
  Expr round(const Channel& channel, const Expr& item) const {
    return floordiv(item, channel.depth);
  }
  void by_first_thread(const std::function<void()>& then) override;
  void barrier() override;

  void lower_in_role(const Statement& s) override;
  void lower_op(const PutOp& op, const Statement& s);
  void lower_op(const GetItemOp& op, const Statement& s);
  void lower_op(const ReleaseOp& op, const Statement& s);
  void lower_op(const PassOp& op, const Statement& s);
  void lower_op(const TakeOp& op, const Statement& s);
  Expr turn_barrier(TokenId token, const Expr& element) const;

  // --- Registers: pipelined_values.cpp ----------------------------------------------------------

  // A tile in the registers of a thread (D3). An axis of extent 1 stands for a digit that the tile
  // does not have.
  struct TileValue {
    ValueOperand value;
    std::vector<RegisterDigit> axes;
    bool flat = false;  // whether one array axis has all digits
  };
  void note_frames(const Region& region);
  Form form(ValueId tile) const override { return form(tile, axes_of(tile), 1); }
  Form form(ValueId tile, const std::vector<RegisterDigit>& axes, int64_t lanes) const;
  Form form(const Layout& layout, DType dtype, const std::vector<RegisterDigit>& axes,
            int64_t lanes) const;
  Form vector_form(ValueId tile, const std::vector<RegisterDigit>& axes, MemoryId memory,
                   const std::vector<Expr>& at, const Guard& guard) const;
  bool divides_vectors(const Guard& guard, MemoryId memory, const std::vector<Expr>& at,
                       const Form& form) const;
  std::vector<RegisterDigit> axes_of(ValueId tile) const { return register_digits(layouts_[tile]); }
  ValueType array_type(ValueId tile) const override {
    return array_type(tile_[tile].type.dtype, axes_of(tile));
  }
  static ValueType array_type(DType dtype, const std::vector<RegisterDigit>& axes);
  Form load_form(const LoadOp& op, ValueId tile) const override;
  Form store_form(const StoreOp& op, ValueId tile) const override;
  ValueOperand in_form(const ValueOperand& tile, const Form& form) override;
  void define_in_form(ValueId tile, const ValueOperand& value, const Form& form) override;
  void define(ValueId tile, ValueOperand value) override { set(tile, value, axes_of(tile)); }
  ValueOperand as_array(const ValueOperand& tile, const std::vector<RegisterDigit>& axes);
  ValueOperand as_flat(ValueId tile);
  ValueOperand reshaped(const ValueOperand& value, const std::vector<int64_t>& extents);
  void set(ValueId tile, ValueOperand value, std::vector<RegisterDigit> axes, bool flat = false);
  Condition single_store(ValueId tile) const override {
    return first_of(thread_digits(layouts_[tile]));
  }
  static std::vector<Digit> thread_digits(const Layout& layout);
  bool carries_flat(const ForOp& op, size_t i) const;
  bool only_zero(const ForOp& op, size_t i) const;
  ValueOperand first_carried(const ForOp& op, size_t i) override;
  void define_carried(const ForOp& op, size_t i, ValueId tile, ValueId value) override;
  ValueOperand yielded_by_turn(const ForOp& op, size_t i, const ValueOperand& yielded) override;
  ValueOperand yielded_by_branch(ValueId result, const ValueOperand& yielded) override;

  void lower_const(const ConstOp& op, const Statement& s) override;
  std::vector<ValueOperand> row_operands(const RowOp& op, const Statement& s) override;
  void lower_fold(const FoldOp& op, const Statement& s) override;
  void lower_arg_fold(const ArgFoldOp&, const Statement& s) override {
    not_lowered("reduce argmin and argmax in a role", s);
  }
  void lower_view(const MovementOp& op, const Statement& s) override;
  void slice(const MovementOp& op, const Statement& s);

  // --- On-chip storage: pipelined_copies.cpp ----------------------------------------------------

  // A part of a buffer or slot: the memory object, the offset of the buffer or slot in it, and the
  // first element of the part in that.
  struct OnChip {
    MemoryId tile;    // the buffer or field
    MemoryId memory;  // of the kernel
    Expr base;
    std::vector<Expr> offsets;
  };
  // The last two axes of a buffer or field, which are divided into panels.
  struct Matrix {
    int64_t rows = 1, columns = 1, panel = 1;  // in elements; a row of a panel has `panel` of them
    int64_t elements() const { return rows * columns; }
    int64_t panel_elements() const { return rows * panel; }
  };
  Matrix matrix(MemoryId tile) const;
  OnChip on_chip(MemoryId tile) const;
  Expr origin(const OnChip& place) const;
  Expr chip_address(const OnChip& place, const std::vector<Expr>& at, const Form& form);
  bool chip_neighbours(const OnChip& place, const std::vector<Expr>& at, const Form& form) const;
  bool is_on_chip(MemoryId tile) const;

  void lower_buffer(const BufferOp& op) override;
  MemoryId memory_of(MemoryId tile) const override;
  Expr address(MemoryId tile, const std::vector<Expr>& at, const Form& form) override;
  int64_t alignment(MemoryId tile, const Expr& address) const override;
  std::optional<Access> shared_access(MemoryId tile, const std::vector<Expr>& at,
                                      bool store) const override;
  void before_access(MemoryId memory, bool store, const Slot& slot = {}) override;
  bool lower_matrix_store(const StoreOp& op) override;
  void lower_op(const MemoryViewOp& op, const Statement& s);
  void lower_op(const CopyOp& op, const Statement& s);
  void lower_op(const StartStoreOp& op, const Statement& s);
  void lower_op(const WaitStoreOp& op, const Statement& s);
  void before_async_read(const OnChip& place);

  /// The box that is copied to a matrix of a field. If the blocks of a cluster divide its rows,
  /// `row` is the axis of the tensor along which they run.
  struct FieldBox : TileBox {
    std::optional<size_t> row = {};
  };
  std::optional<TileBox> box(MemoryId memory, const std::vector<Expr>& at, const Guard& guard,
                             const ValueType& part) const;
  std::optional<FieldBox> field_box(const CopyOp& op, int64_t number) const;
  void copy_by_threads(const CopyOp& op);
  int64_t bulk_bytes(const PutOp& op) const;
  TensorMapId tensor_map(MemoryId memory, std::vector<int64_t> extents, int64_t swizzle);
  void each_panel(int64_t panels, const std::function<void(const Expr&)>& visit);
  bool stores_matrices(const StoreOp& op, const OnChip& place) const;
  void store_matrices(const StoreOp& op, const OnChip& place);

  // --- Between threads: exchanges and scans ----------------------------------------------------

  Exchange exchange(DType dtype, int64_t count) override;
  void lower_scan(const TileScanOp& op, const Statement& s) override;

  // --- Clusters and tickets: pipelined_meetings.cpp ----------------------------------------------

  static bool has_meeting(const Region& region);
  void begin_meetings(const Region& role);
  void fold_cluster(const FoldOp& op, const Statement& s);
  Meeting begin_meeting(DType dtype, int64_t size, const Statement& s) override;
  ValueOperand* counter(const Region& region) override;
  void begin_ticket(const Statement& s) override;
  void end_ticket() override;

  // --- Matrix instructions: pipelined_dots.cpp --------------------------------------------------

  void lower_op(const StartDotOp& op, const Statement& s);
  void lower_op(const WaitDotOp& op, const Statement& s);
  void lower_dot(const TileDotOp& op, const Statement& s) override;
  ValueOperand accumulator(const StartDotOp& op);
  std::vector<ValueOperand> fragments(const ValueOperand& tile, int64_t steps);
  Place matrix_operand(MemoryId window, int64_t contracted, int64_t step, int64_t depth) const;
  InstructionOperand first_scale(const StartDotOp& op);

  // The statements at the head of a phase were handled before. The verifier excludes statements of
  // another level.
  template <class Other>
  void lower_op(const Other&, const Statement& s) {
    not_lowered("an operation of another level", s);
  }

  const TileLayouts layouts_;
  std::vector<TileValue> tiles_;
  std::map<ValueId, uint64_t> constants_;  // tiles that are one literal
  // The axes that rows want from a loaded value.
  std::map<ValueId, std::vector<RegisterDigit>> frames_;
  std::map<ValueId, std::vector<ValueOperand>> in_flight_;  // register operands of a dot
  std::map<std::pair<ValueId, std::vector<int64_t>>, std::pair<ValueOperand, uint64_t>> shapes_;

  const Phase* phase_ = nullptr;
  std::vector<Role> roles_;
  Role role_;
  std::map<ChannelId, LoweredChannel> channels_;
  std::map<TokenId, int64_t> turn_barriers_;  // the id of element 0
  std::set<const CopyOp*> replicated_, by_threads_;
  std::set<ChannelId> multicast_;
  std::vector<SharedObject> fields_, buffers_, exchanges_, barriers_;
  std::map<MemoryId, OnChip> windows_;
  std::map<std::string, TensorMapId> maps_;
  // Those with one arrival, and how many there are.
  std::vector<std::pair<MemoryId, int64_t>> plain_barriers_;
  // The number of reductions over the cluster that the current role has done, if it has some in
  // loops; null otherwise.
  ValueOperand meetings_;
  // The number of reductions that were lowered, and that of mbarriers for them.
  int64_t meeting_ = 0, meeting_slots_ = 0;
  MemoryId meeting_barriers_;
  // The put whose copies are being lowered.
  const PutOp* put_ = nullptr;
};

}  // namespace braze
