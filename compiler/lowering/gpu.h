// gpu.h — the lowering of plain tile programs for a GPU: sections 7.3, 7.5 and 10 of
// docs/ir/languages.md. The code names the rules by their numbers.
//
// An instance is a thread block or a cluster of blocks. A layout says which thread of which block
// holds each element of a tile, and in which register. A tile keeps its axes. The outermost
// register digit of an axis becomes an extent of the array, and the innermost register digit of the
// last axis becomes the lanes of vector accesses.
//
// gpu.cpp lowers phases, and inserts barriers; gpu_layouts.cpp says where elements lie;
// gpu_copies.cpp has asynchronous copies; gpu_folds.cpp reductions and scans; gpu_clusters.cpp
// exchanges between blocks; gpu_views.cpp views; gpu_dots.cpp matrix instructions.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/lowering/threads.h"
#include "ir/code/layout.h"

namespace braze {

inline constexpr Code kLayouts{
    "layouts-disagree", ErrorKind::InvalidArgument,
    "The layouts of a tile program put tiles that are combined in different threads."};

class GpuLowering : public ThreadLowering {
 public:
  GpuLowering(const TileProgram& program, const Target& target);

 private:
  // --- Phases, memory and barriers: gpu.cpp -----------------------------------------------------

  void lower_phase(const Phase& phase) override;
  void check_shared() const;
  void count_uses(const Region& phase);
  void by_first_thread(const std::function<void()>& then) override;

  void place_buffer(Memory& lowered, int64_t bytes) override;
  void claim_shared(int64_t bytes);
  Exchange exchange(DType dtype, int64_t count) override;
  static bool passes_values(const Memory& memory);
  void note_private_buffers(const Region& phase);
  bool same_for_all(const Expr& e) const;
  bool is_private(MemoryId memory) const;

  std::optional<Access> shared_access(MemoryId tile, const std::vector<Expr>& at,
                                      bool store) const override;
  void before_access(MemoryId memory, bool store, const Slot& slot) override;
  void wait_for(const Access& access) override;
  void wait_for_threads(const Access& access);
  void barrier() override;

  // A place to which asynchronous copies may still write. A thread waits for its groups of copies
  // in the order in which it started them. A barrier then makes them visible to the other threads.
  struct Copied {
    MemoryId memory;  // a memory of the tile program
    Slot slot;
    friend bool operator==(const Copied&, const Copied&) = default;
  };
  using Group = std::vector<Copied>;

  // The copies of a loop whose body is being lowered.
  struct Turns {
    std::set<std::string> symbols;      // symbols that differ between turns
    std::optional<size_t> copies = {};  // the greatest number of groups under way between turns
    Group targets = {};                 // where these copies write
  };
  void enter_turns(const ForOp& loop, const std::vector<Access>& turn) override;
  void enter_loop(const ForOp& loop) override;
  Expr turn_symbol(const ForOp& loop) const;
  std::optional<Accesses::State> left_by_turn(const ForOp& loop);
  void end_body() override;
  void leave_loop() override;
  void enter_branches() override;
  void leave_branch() override;
  void leave_branches() override;

  // --- Layouts and forms: gpu_layouts.cpp -------------------------------------------------------

  // The digits of an axis: an array in registers, threads and blocks, and lanes of a vector access.
  // `inner` neighbours of each thread along the axis are the innermost part of the array.
  struct AxisDigits {
    int64_t array = 1, inner = 1;
    std::vector<Digit> spread;  // the most significant first
    int64_t lanes = 1;
    friend bool operator==(const AxisDigits&, const AxisDigits&) = default;
  };
  const Layout& layout(const ValueType& tile) const;
  static std::optional<AxisDigits> digits(const std::vector<Digit>& list, bool last_axis);
  AxisDigits digits(const ValueType& tile, size_t axis) const;
  std::vector<Digit> spread_digits(const ValueType& tile) const;
  static ValueType folded(ValueType tile, size_t axis);
  void check_agrees(const ValueType& part, const ValueType& whole, const Statement& s) const;
  std::vector<ValueOperand> row_operands(const RowOp& op, const Statement& s) override;

  ValueType lower_type(const ValueType& tile) const;
  ValueType array_type(ValueId tile) const override { return lower_type(tile_[tile].type); }
  Form form(ValueId tile) const override;
  Positions positions(const ValueType& tile) const;
  Expr position(size_t axis, const ValueType& tile) const;
  Condition single_store(ValueId tile) const override { return single_store(tile_[tile].type); }
  Condition single_store(const ValueType& tile) const;
  Condition per_vector(Condition condition, int32_t lanes) const override;
  Form load_form(const LoadOp& op, ValueId tile) const override;
  void define_in_form(ValueId tile, const ValueOperand& value, const Form& form) override;

  // --- Asynchronous copies: gpu_copies.cpp ------------------------------------------------------

  void wait_for_copies_to(MemoryId memory, const Slot& slot);
  void wait_for_copies(size_t left);
  void end_copies(size_t left = 0);
  void enter_copies(const ForOp& loop, Turns& turns);
  std::vector<Group> copies_of(const Region& region);
  bool has_copies(const Region& region);
  bool has_copies_inside(const Statement& s);
  bool joins(const Group& group, const Region& region, size_t at);
  bool is_copy(const Region& region, size_t at);
  bool passes(const LoadOp& load, const StoreOp& store, const ValueType& tile) const;
  size_t lower_copies(const Region& region, size_t first) override;
  void copy(const LoadOp& load, const StoreOp& store, const ValueType& tile);

  // --- Reductions and scans: gpu_folds.cpp ------------------------------------------------------

  void lower_fold(const FoldOp& op, const Statement& s) override;
  void lower_arg_fold(const ArgFoldOp& op, const Statement& s) override;
  void lower_scan(const TileScanOp& op, const Statement& s) override;
  Scanned scan_registers(const TileScanOp& op, const Tuple& parts, size_t axis);
  Scanned scan_lanes(const TileScanOp& op, Tuple parts, const Digit& digit);
  Scanned scan_warps(const TileScanOp& op, const Tuple& parts, const Digit& digit,
                     const std::vector<Digit>& others);
  ValueOperand at_least(const TileScanOp& op, const Digit& digit, int64_t n);
  ValueOperand flag(const ValueOperand& condition, const ValueOperand& like);

  // --- Clusters: gpu_clusters.cpp ---------------------------------------------------------------

  // The exchanges between blocks in a phase. Each has its own place and mbarrier, which are made
  // before the blocks of the cluster first meet.
  struct ClusterExchange {
    Region prologue;
    MemoryId mbarriers;
    int64_t count = 0;         // number of mbarriers
    bool waits = false;        // whether the first meeting is over
    bool waits_first = false;  // whether that meeting stands in the prologue
  };
  Meeting begin_meeting(DType dtype, int64_t size, const Statement& s) override;
  Expr turn_number(const Statement& s) const;
  MemoryId add_meeting(DType dtype, int64_t count);
  void wait_for_cluster();
  void cluster_barrier();
  void begin_cluster(Region& body);
  void init_mbarriers();
  void check_buffers(const Region& phase) const;
  bool lies_in_blocks(const ValueType& tile) const;

  // --- Views: gpu_views.cpp ---------------------------------------------------------------------

  // A digit of the flattened tile. Neighbouring digits that continue each other are joined.
  struct FlatDigit {
    bool spread = false, block = false;
    int64_t stride = 0;  // in threads or blocks
    int64_t extent = 1;
    friend bool operator==(const FlatDigit&, const FlatDigit&) = default;
  };
  std::vector<FlatDigit> flattened(const ValueType& tile) const;
  bool renames(const MovementOp& op, ValueId source, ValueId result) const override;
  bool slices_registers(const MovementOp& op, const ValueType& from, const ValueType& to) const;
  ValueOperand rename(const MovementOp& op, const ValueOperand& value, const Statement& s) override;
  int64_t row_padding(const ValueType& tile) const override;

  // --- Matrix instructions of warps: gpu_dots.cpp -----------------------------------------------

  void lower_dot(const TileDotOp& op, const Statement& s) override;
  ValueId multiply_matrices(DType dtype, const ValueOperand& a, const ValueOperand& b,
                            const ValueOperand& c);
  bool lies_as(const ValueType& tile, const Layout& wanted) const;
  std::vector<ValueOperand> left_fragments(const ValueOperand& tile, int64_t count);
  std::vector<ValueOperand> right_fragments(const ValueOperand& tile, int64_t count);
  ValueOperand fragment(const ValueOperand& x, const std::vector<int64_t>& first,
                        int64_t apart = 1);
  ValueOperand scalars(const ValueOperand& value);
  ValueOperand element(const ValueOperand& value, int64_t at);
  using Lowering::packed;
  ValueOperand packed(std::vector<ValueOperand> elements);

  // The rows of matrices that the lanes of a warp give to ldmatrix, for every two blocks of rows or
  // columns.
  struct FragmentRows {
    bool along = false;      // whether they lie along the contracted axis
    int64_t blocks = 0;      // of 8 rows or columns
    std::vector<Expr> rows;  // offsets
  };
  void find_dot_roles(const Region& phase);
  std::optional<FragmentRows> rows_of_fragments(const Statement& s, int role) const;
  bool lower_fragments(const LoadOp& op, const Statement& s) override;
  const std::vector<ValueOperand>* parts_of(const ValueOperand& value) const override;
  void define_parts(ValueId value, std::vector<ValueOperand> parts) override;

  const int64_t block_threads_;
  const Expr thread_;
  const int64_t cluster_;  // blocks of an instance
  ClusterExchange cluster_exchange_;
  mutable std::map<std::vector<int64_t>, Layout> layouts_;  // by extents of tiles
  int64_t shared_ = 0;                                      // bytes of on-chip memory
  std::set<std::string> scalars_;             // scalars of the tile program, as "%name"
  std::vector<MemoryId> private_;             // memory of the tile program that needs no barriers
  std::vector<Turns> loops_;                  // the innermost last
  bool rehearses_ = false;                    // whether waits and barriers are noted, not emitted
  std::vector<std::vector<Group>> branches_;  // what was under way before the branches around
  std::vector<Group> under_way_;              // groups of copies, the oldest first
  std::map<const Statement*, bool> decided_;  // whether the load begins an asynchronous copy
  std::vector<int64_t> uses_;                 // how often each value of the phase is used
  // Values that only dots use: 0 as their left factors, 1 as their right ones. Of those that were
  // loaded as fragments, the registers.
  std::map<ValueId, int> dot_roles_;
  std::map<ValueId, std::vector<ValueOperand>> fragments_;
};

}  // namespace braze
