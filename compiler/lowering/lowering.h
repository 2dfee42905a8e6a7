// lowering.h — what the lowerings of tile programs share: the walk over the statements, memory,
// addresses, guards, rows and control flow. cpu.cpp, gpu.h (plain programs) and pipelined.h
// (pipelined programs) decide how a tile becomes lanes and arrays, and how the elements of one tile
// are combined. threads.h has what the two for GPUs share.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/code/code.h"
#include "ir/code/layout.h"
#include "ir/target/target.h"

namespace braze {

using Positions = std::unordered_map<std::string, Expr>;

/// Where the elements of a tile lie in an array of the kernel: L1, L2, D3.
struct Form {
  ValueType type;
  /// d0, d1, .. of an element, over the positions in the array and the number of the thread; and
  /// the names that the tile program's values and symbols have in the kernel.
  Positions positions;
  /// L3: the lanes that hold elements of the tile. Empty if all lanes do.
  Condition inside = {};
  /// In a role: the digits of registers that are the axes of the array, before some of them became
  /// lanes.
  std::vector<RegisterDigit> axes = {};
};

/// One walk lowers the statements of a tile program.
class Lowering {
 public:
  virtual ~Lowering() = default;
  Lowering(const Lowering&) = delete;
  Lowering& operator=(const Lowering&) = delete;
  Kernel run();

 protected:
  Lowering(const TileProgram& program, const Target& target);

  // --- A machine's part -------------------------------------------------------------------------

  virtual void lower_phase(const Phase& phase) = 0;

  /// The form of a tile, and the type of the array alone. Scalars stay scalars.
  virtual Form form(ValueId tile) const = 0;
  virtual ValueType array_type(ValueId tile) const = 0;
  /// The forms in which an access loads or stores a tile. Neighbours in memory may be lanes.
  virtual Form load_form(const LoadOp&, ValueId tile) const { return form(tile); }
  virtual Form store_form(const StoreOp&, ValueId tile) const { return form(tile); }
  /// The value of a tile in such a form, and the definition of a tile by one.
  virtual ValueOperand in_form(const ValueOperand& tile, const Form&) { return mapped(tile); }
  virtual void define_in_form(ValueId tile, const ValueOperand& value, const Form&) {
    define(tile, value);
  }
  /// Defines a tile by a value that has the tile's own form.
  virtual void define(ValueId tile, ValueOperand value);
  /// The condition, besides the store's own guard, by which one thread stores an element: D5.
  virtual Condition single_store(ValueId) const { return {}; }

  /// Chooses the space and the offset of a buffer of the tile program: L16, D2.
  virtual void place_buffer(Memory& lowered, int64_t bytes) = 0;
  /// A new buffer of the kernel, which no memory of the tile program is.
  MemoryId new_buffer(std::string name, DType dtype, int64_t count);
  /// The memory object in which a memory of the tile program lies, the address of an element in it,
  /// and the alignment of that address in bytes, or 0 if it is only that of an element.
  virtual MemoryId memory_of(MemoryId tile) const { return memories_[tile.index]; }
  virtual Expr address(MemoryId tile, const std::vector<Expr>& at, const Form& form) {
    return offset(tile, at, form.positions);
  }
  virtual int64_t alignment(MemoryId tile, const Expr& address) const;
  /// Called before accesses to buffers (D16). `slot` is the first coordinate of the access, if it
  /// is the same for all elements. Accesses with different slots do not conflict.
  virtual void before_access(MemoryId, bool, const std::optional<Expr>& = {}) {}

  virtual void enter_loop(const ForOp&) {}
  /// Called after the last statement of a phase or of a loop's body.
  virtual void end_body() {}
  virtual void leave_loop() {}
  /// enter_branches and leave_branches are called before and after the branches of an `if`, and
  /// leave_branch after each of its two branches, even if the second is empty.
  virtual void enter_branches() {}
  virtual void leave_branch() {}
  virtual void leave_branches() {}

  /// Lowers copies from device memory to buffers that begin at a statement of the region. Returns
  /// the number of statements that this covers, or 0 if each copy is to be lowered as a load and a
  /// store.
  virtual size_t lower_copies(const Region&, size_t) { return 0; }
  /// Lowers a load of what only dots read into the registers that their instructions take, or a
  /// store of what they made. Returns false if it is to be lowered as others are.
  virtual bool lower_fragments(const LoadOp&, const Statement&) { return false; }
  virtual bool lower_matrix_store(const StoreOp&) { return false; }
  /// The values of the kernel that are one value of the tile program, if they are several:
  /// fragments of matrices. Loops carry all of them.
  virtual const std::vector<ValueOperand>* parts_of(const ValueOperand&) const { return nullptr; }
  virtual void define_parts(ValueId, std::vector<ValueOperand>) {}
  /// A condition on elements in the form that it has for whole vectors, if it never divides one.
  virtual Condition per_vector(Condition condition, int32_t) const { return condition; }
  /// The operands of a row in the form of its result. Fails if their elements are not in the same
  /// threads and registers.
  virtual std::vector<ValueOperand> row_operands(const RowOp& op, const Statement& s);
  virtual void lower_const(const ConstOp& op, const Statement& s);
  virtual void lower_buffer(const BufferOp& op);
  virtual void lower_fold(const FoldOp& op, const Statement& s) = 0;
  virtual void lower_arg_fold(const ArgFoldOp& op, const Statement& s) = 0;
  virtual void lower_scan(const TileScanOp& op, const Statement& s) = 0;
  virtual void lower_view(const MovementOp& op, const Statement& s);
  /// Whether a view only renames registers, and no element moves: L14.
  virtual bool renames(const MovementOp&, ValueId, ValueId) const { return false; }
  virtual ValueOperand rename(const MovementOp& op, const ValueOperand& value, const Statement& s);
  /// The number of unused elements after each row, where a transpose moves a tile through memory.
  virtual int64_t row_padding(const ValueType&) const { return 0; }
  virtual void lower_dot(const TileDotOp&, const Statement& s) { not_lowered("dot", s); }
  virtual void lower_ticket(const TicketOp& op, const Statement& s) = 0;
  /// On a CPU a kernel begins when the kernels before it have ended, so there is nothing to do.
  virtual void lower_await() {}
  /// Lowers a statement that only roles have.
  virtual void lower_in_role(const Statement& s) { not_lowered("a statement of another level", s); }

  /// The first value of what a loop carries, the definition of a carried tile or of a result by a
  /// value in the form in which the loop carries it, and the value that a turn yields.
  virtual ValueOperand first_carried(const ForOp& op, size_t i) {
    return mapped(op.carried[i].second);
  }
  virtual void define_carried(const ForOp&, size_t, ValueId tile, ValueId value) {
    define(tile, value);
  }
  virtual ValueOperand yielded_by_turn(const ForOp&, size_t, const ValueOperand& yielded) {
    return mapped(yielded);
  }
  virtual ValueOperand yielded_by_branch(ValueId, const ValueOperand& yielded) {
    return mapped(yielded);
  }
  /// A number that loops and branches with this region carry beside their tiles, because statements
  /// in it change the number. Null if there is none.
  virtual ValueOperand* counter(const Region&) { return nullptr; }

  // --- Shared by the machines -------------------------------------------------------------------

  /// Lowers the name, symbols, parameters and workspaces.
  void lower_signature();
  void add_memory(MemoryId id);
  /// The loops and branches around the current statement, outermost first.
  const std::vector<const Statement*>& enclosing() const { return enclosing_; }
  void lower_region(const Region& region);

  Expr uniform(const Expr& e) const { return e.substitute(renamed_); }
  Condition uniform(const Condition& c) const { return substitute(c, renamed_); }
  static Condition substitute(const Condition& condition, const Positions& map);
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
  Expr resolved(const Expr& e) const;
  /// The first coordinate of a place in the kernel's names, if it is the same for all elements.
  std::optional<Expr> uniform_slot(const std::vector<Expr>& at) const;
  /// The guard of an access to elements at `at`, for which `more` must hold too.
  Guard lower_guard(const Guard& guard, MemoryId memory, const std::vector<Expr>& at,
                    const Form& form, Condition more = {});
  /// The conditions of `clip`: that all coordinates are inside the memory.
  Condition clipped(MemoryId memory, const std::vector<Expr>& at, const Form& form) const;
  ValueOperand splat_to(const ValueOperand& operand, const ValueType& result);
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
  /// L18: arrives at the counter, and returns whether this was the last arrival. `tell` receives
  /// this flag before the counter begins anew.
  ValueId arrive(const TicketOp& op, const std::function<void(ValueId)>& tell = {});
  [[noreturn]] void not_lowered(std::string_view what, const Statement& s = {}) const;

  const TileProgram& tile_;
  const Target& target_;
  Kernel kernel_;
  CodeBuilder builder_;
  std::vector<MemoryId> memories_;
  std::vector<std::vector<Expr>> strides_;
  std::vector<ValueOperand> values_;
  Positions renamed_;  // "%name" of a tile value -> its value in the kernel

 private:
  void lower_op(const LetOp& op, const Statement& s);
  void lower_op(const ConstOp& op, const Statement& s) { lower_const(op, s); }
  void lower_op(const IndexOp& op, const Statement& s);
  void lower_op(const TestOp& op, const Statement& s);
  void lower_op(const LoadOp& op, const Statement& s);
  void lower_op(const StoreOp& op, const Statement& s);
  void lower_op(const RowOp& op, const Statement& s);
  void lower_op(const FoldOp& op, const Statement& s) { lower_fold(op, s); }
  void lower_op(const ArgFoldOp& op, const Statement& s) { lower_arg_fold(op, s); }
  void lower_op(const MovementOp& op, const Statement& s) { lower_view(op, s); }
  void lower_op(const BufferOp& op, const Statement&) { lower_buffer(op); }
  void lower_op(const ForOp& op, const Statement& s);
  void lower_op(const IfOp& op, const Statement& s);
  void lower_op(const TicketOp& op, const Statement& s) { lower_ticket(op, s); }
  void lower_op(const AwaitOp&, const Statement&) { lower_await(); }
  void lower_op(const TileScanOp& op, const Statement& s) { lower_scan(op, s); }
  void lower_op(const TileDotOp& op, const Statement& s) { lower_dot(op, s); }
  template <class OfRoles>
  void lower_op(const OfRoles&, const Statement& s) {
    lower_in_role(s);
  }

  ValueOperand move_through_memory(const MovementOp& op, const ValueOperand& value, ValueId from,
                                   ValueId to, const Statement& s);
  ValueOperand part(const ValueOperand& value, size_t axis, int64_t from, int64_t count);
  ValueOperand joined(const ValueOperand& a, const ValueOperand& b, size_t axis);

  // By value and number of lanes: the splat, and the number of the region in which it stands.
  std::map<std::pair<ValueId, int32_t>, std::pair<ValueOperand, uint64_t>> splats_;
  std::vector<const Statement*> enclosing_;
  std::map<std::string, Expr> meanings_;  // of the symbols of lets and loops
};

int64_t power_of_two_at_least(int64_t n);
/// The strides of the elements of a tile in row-major order.
std::vector<int64_t> dense_strides(const ValueType& tile);

Kernel lower_for_cpu(const TileProgram& program, const Target& target);
Kernel lower_for_gpu(const TileProgram& program, const Target& target);
Kernel lower_pipelined(const TileProgram& program, const Target& target);

}  // namespace braze
