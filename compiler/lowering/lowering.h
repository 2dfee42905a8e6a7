// lowering.h — what the lowerings of tile programs share: memory, addresses, guards, rows and
// control flow. cpu.cpp and gpu.cpp, for plain programs, decide how a tile becomes lanes and
// arrays, and how the elements of one tile are combined. pipelined.h lowers pipelined programs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/code/code.h"
#include "ir/target/target.h"

namespace braze {

using Positions = std::unordered_map<std::string, Expr>;

/// The parts that all lowerings share: signature, names, addresses.
class ProgramLowering {
 public:
  virtual ~ProgramLowering() = default;
  ProgramLowering(const ProgramLowering&) = delete;
  ProgramLowering& operator=(const ProgramLowering&) = delete;

 protected:
  ProgramLowering(const TileProgram& program, const Target& target);

  /// Chooses the space and the offset of a buffer of the tile program: L16, D2.
  virtual void place_buffer(Memory& lowered, int64_t bytes) = 0;

  /// Lowers the name, symbols, parameters and workspaces.
  void lower_signature();
  void add_memory(MemoryId id);
  Expr uniform(const Expr& e) const { return e.substitute(renamed_); }
  Condition uniform(const Condition& c) const { return substitute(c, renamed_); }
  static Condition substitute(const Condition& condition, const Positions& map);

  void define(ValueId tile, ValueOperand kernel);
  ValueOperand mapped(const ValueOperand& operand) const {
    return operand.is_literal() ? operand : values_[operand.value.index];
  }
  /// Returns a copy, because appending to the kernel moves its values.
  ValueType type_of(const ValueOperand& operand) const { return kernel_[operand.value].type; }
  const ValueType& result_type(const Statement& statement, size_t i = 0) const {
    return tile_[statement.results[i]].type;
  }
  std::string_view hint(const Statement& statement, size_t i = 0) const;
  ValueId emit(StatementOp op, const ValueType& type, const Statement& from);
  ValueOperand row(ElementwiseOp op, std::vector<ValueOperand> operands) {
    return builder_.row(op, std::move(operands));
  }
  Expr offset(MemoryId memory, const std::vector<Expr>& at, const Positions& map) const;
  int64_t alignment(MemoryId memory, const Expr& at) const;
  /// The value of the lane whose number differs by `distance` (a power of two).
  ValueOperand swapped(const ValueOperand& value, int64_t distance) {
    return shuffled(Instruction::shfl_bfly, value, distance);
  }
  /// The value that one of the shfl rows reads from another lane.
  ValueOperand shuffled(Instruction shuffle, const ValueOperand& value, const Expr& lane);
  static bool needs_word(DType dtype);
  ValueOperand as_word(const ValueOperand& value);
  ValueOperand from_word(const ValueOperand& word, DType dtype);
  /// D28, on a GPU: lets the kernels after this one begin, and waits for those before it.
  void await_predecessors();
  [[noreturn]] void not_lowered(std::string_view what, const Statement& s = {}) const;

  const TileProgram& tile_;
  const Target& target_;
  Kernel kernel_;
  CodeBuilder builder_;
  std::vector<MemoryId> memories_;
  std::vector<std::vector<Expr>> strides_;
  std::vector<ValueOperand> values_;
  Positions renamed_;  // "%name" of a tile value -> its value in the kernel
};

/// The lowering of plain programs.
class Lowering : public ProgramLowering {
 public:
  Kernel run();

 protected:
  using ProgramLowering::ProgramLowering;

  // --- A machine's part -------------------------------------------------------------------------

  /// Called before and after the statements of a phase. `lowered` is the new phase.
  virtual void begin_phase(Phase& lowered) = 0;
  virtual void end_phase(Phase& lowered) = 0;
  /// The type in the kernel of a tile type: L1, D3. Scalars stay scalars.
  virtual ValueType lower_type(const ValueType& tile) const = 0;
  /// The index of a tile's element along an axis, over positions of its lowered type: L2, D3.
  virtual Expr position(size_t axis, const ValueType& tile, const ValueType& lowered) const = 0;
  /// Whether some lanes of the lowered type are beyond the tile's innermost extent: L3.
  virtual bool padded(const ValueType& tile, const ValueType& lowered) const = 0;
  /// The condition, besides the store's own guard, by which one thread stores an element: D5.
  virtual Condition single_store(const ValueType& tile) const = 0;
  /// Called before accesses to buffers (D16). `slot` is the first coordinate of the access, if it
  /// is the same for all elements. Accesses with different slots do not conflict.
  virtual void before_access(MemoryId kernel_memory, bool store,
                             const std::optional<Expr>& slot = {}) = 0;
  virtual void enter_loop(const ForOp& loop) = 0;
  /// Called after the last statement of a phase or of a loop's body.
  virtual void end_body() {}
  virtual void leave_loop() = 0;
  /// enter_branches and leave_branches are called before and after the branches of an `if`, and
  /// leave_branch after each of its two branches, even if the second is empty.
  virtual void enter_branches() {}
  virtual void leave_branch() {}
  virtual void leave_branches() {}
  /// Lowers copies from device memory to buffers that begin at a statement of the region. Returns
  /// the number of statements that this covers, or 0 if each copy is to be lowered as a load and a
  /// store.
  virtual size_t lower_copies(const Region&, size_t) { return 0; }
  /// Lowers a load of what only dots read into the registers that their instructions take. Returns
  /// false if it is to be lowered as other loads are.
  virtual bool lower_fragments(const LoadOp&, const Statement&) { return false; }
  /// The values of the kernel that are one value of the tile program, if they are several:
  /// fragments of matrices. Loops carry all of them.
  virtual const std::vector<ValueOperand>* parts_of(const ValueOperand&) const { return nullptr; }
  virtual void define_parts(ValueId, std::vector<ValueOperand>) {}
  /// A condition on elements in the form that it has for whole vectors, if it never divides one.
  virtual Condition per_vector(Condition condition, int32_t) const { return condition; }
  /// Fails if the operands' elements are not in the same threads and registers as the result's.
  virtual void check_row(const RowOp& op, const Statement& s) const = 0;
  /// Emits a load of `memory` of the tile program. Returns its value, which has this type.
  virtual ValueOperand lower_load(LoadOp load, MemoryId, const ValueType& type,
                                  const Statement& s) {
    return emit(std::move(load), type, s);
  }
  virtual void lower_fold(const FoldOp& op, const Statement& s) = 0;
  virtual void lower_arg_fold(const ArgFoldOp& op, const Statement& s) = 0;
  virtual void lower_scan(const TileScanOp& op, const Statement& s) = 0;
  /// Whether a view only renames registers, and no element moves: L14.
  virtual bool renames(const ViewOp& op, const ValueType& from, const ValueType& to) const = 0;
  virtual ValueOperand rename(const ViewOp& op, const ValueOperand& value, const Statement& s);
  /// The number of unused elements after each row, where a transpose moves a tile through memory.
  virtual int64_t row_padding(const ValueType& tile) const = 0;
  virtual void lower_dot(const TileDotOp&, const Statement& s) { not_lowered("dot", s); }
  virtual void lower_ticket(const TicketOp& op, const Statement& s) = 0;
  /// On a CPU a kernel begins when the kernels before it have ended, so there is nothing to do.
  virtual void lower_await() {}

  // --- Shared by the machines -------------------------------------------------------------------

  /// The loops and branches around the current statement, outermost first.
  const std::vector<const Statement*>& enclosing() const { return enclosing_; }

  Positions positions(const ValueType& tile, const ValueType& lowered) const;
  /// The first coordinate of a place in the kernel's names, if it is the same for all elements.
  std::optional<Expr> uniform_slot(const std::vector<Expr>& at) const;
  void lower_region(const Region& region);
  Region region(const Region& body, const std::function<void()>& at_end = {});

  Guard lower_guard(const Guard& guard, const ValueType& tile, const ValueType& lowered,
                    const Positions& map, Condition more = {});
  ValueOperand splat_to(const ValueOperand& operand, const ValueType& result);
  ValueOperand select_inside(const ValueOperand& value, const ValueType& tile,
                             const ValueType& type, uint64_t identity);
  /// Folds pairs (value, index) along one axis of the register arrays: L11.
  std::pair<ValueOperand, ValueOperand> arg_fold_array(bool is_max, ValueOperand values,
                                                       ValueOperand indices, size_t axis);
  /// The same over the lanes of vectors.
  std::pair<ValueOperand, ValueOperand> arg_fold_lanes(bool is_max, ValueOperand values,
                                                       ValueOperand indices);
  /// Combines (v, i) and (w, j): see `reduce argmax` in docs/ir/languages.md.
  std::pair<ValueOperand, ValueOperand> better(bool is_max, const ValueOperand& v,
                                               const ValueOperand& i, const ValueOperand& w,
                                               const ValueOperand& j);
  /// The parts of a scan's tuples.
  using Tuple = std::vector<ValueOperand>;
  using ProgramLowering::mapped;
  Tuple mapped(const Tuple& parts) const;
  /// The tuple that the combiner makes of two.
  Tuple combined(const Combiner& combiner, const Tuple& left, const Tuple& right);
  /// A scan's results, and its totals if it has some.
  struct Scanned {
    Tuple each, total = {};
  };
  void define_scan(const Statement& s, const Scanned& scanned);
  /// Scans along one axis of the register arrays: L12.
  Scanned scan_array(const TileScanOp& op, const Tuple& parts, size_t axis);
  /// The same for a list of tuples in the order of the scan. It is inclusive, even if `op` is
  /// exclusive.
  void scan_list(const TileScanOp& op, std::vector<Tuple>& list);
  /// The elements of a register array in row-major order, and (`packed`) the array of such
  /// elements.
  std::vector<ValueOperand> array_elements(const ValueOperand& value);
  ValueOperand packed(std::vector<ValueOperand> elements, const ValueType& type);
  ValueOperand fold_lanes(Monoid monoid, const ValueOperand& value);
  /// `count` lanes of each vector, from `first` on.
  ValueOperand some_lanes(const ValueOperand& value, int32_t first, int32_t count);
  ValueOperand move_through_memory(const ViewOp& op, const ValueOperand& value,
                                   const ValueType& from, const ValueType& to, const Statement& s);

 private:
  void lower_op(const LetOp& op, const Statement& s);
  void lower_op(const ConstOp& op, const Statement& s);
  void lower_op(const IndexOp& op, const Statement& s);
  void lower_op(const TestOp& op, const Statement& s);
  void lower_op(const LoadOp& op, const Statement& s);
  void lower_op(const StoreOp& op, const Statement& s);
  void lower_op(const RowOp& op, const Statement& s);
  void lower_op(const FoldOp& op, const Statement& s) { lower_fold(op, s); }
  void lower_op(const ArgFoldOp& op, const Statement& s) { lower_arg_fold(op, s); }
  void lower_op(const ViewOp& op, const Statement& s);
  void lower_op(const BufferOp& op, const Statement& s);
  void lower_op(const ForOp& op, const Statement& s);
  void lower_op(const IfOp& op, const Statement& s);
  void lower_op(const TicketOp& op, const Statement& s) { lower_ticket(op, s); }
  void lower_op(const AwaitOp&, const Statement&) { lower_await(); }
  void lower_op(const TileScanOp& op, const Statement& s) { lower_scan(op, s); }
  void lower_op(const TileDotOp& op, const Statement& s) { lower_dot(op, s); }
  template <class KernelOnly>
  void lower_op(const KernelOnly&, const Statement& s) {
    not_lowered("an operation of the Kernel IR", s);
  }

  ValueOperand part(const ValueOperand& value, size_t axis, int64_t from, int64_t count);
  ValueOperand joined(const ValueOperand& a, const ValueOperand& b, size_t axis);

  // By value and number of lanes: the splat, and the number of the region in which it stands.
  std::map<std::pair<ValueId, int32_t>, std::pair<ValueOperand, uint64_t>> splats_;
  std::vector<const Statement*> enclosing_;
};

int64_t power_of_two_at_least(int64_t n);
/// The strides of the elements of a tile in row-major order.
std::vector<int64_t> dense_strides(const ValueType& tile);

Kernel lower_for_cpu(const TileProgram& program, const Target& target);
Kernel lower_for_gpu(const TileProgram& program, const Target& target);
Kernel lower_pipelined(const TileProgram& program, const Target& target);

}  // namespace braze
