// threads.h — what the two lowerings to the code of a GPU thread share: the numbers of threads
// (D5), values that pass between the threads of a block (D6) or the blocks of a cluster (D20), and
// tickets (D26). gpu.h lowers plain programs, whose statements all threads of a block execute,
// and pipelined.h lowers roles, whose statements the threads of each copy of a role execute.
#pragma once

#include <functional>
#include <vector>

#include "compiler/lowering/accesses.h"
#include "compiler/lowering/lowering.h"

namespace braze {

class ThreadLowering : public Lowering {
 protected:
  ThreadLowering(const TileProgram& program, const Target& target);

  // --- Numbers of threads: D5 -------------------------------------------------------------------

  /// A number of threads or blocks, of which digits of layouts are parts.
  struct Number {
    Expr value;
    int64_t count = 1;
  };
  /// The number of the thread in its block or, in a role, those of the warp in its copy and of the
  /// lane in its warp.
  std::vector<Number> threads_;
  /// The number of the block in its cluster.
  Number block_;

  static bool of_block(const Digit& digit) { return digit.resource == Resource::Block; }
  const Number& number_of(const Digit& digit) const;
  int64_t stride_of(const Digit& digit) const;
  /// The value that a digit has in this thread.
  Expr digit_value(const Digit& digit) const;
  static Expr part_of(const Number& number, int64_t stride, int64_t extent);
  /// The digits that are parts of this number, sorted by stride.
  std::vector<Digit> numbered(const std::vector<Digit>& digits, const Number& number) const;
  /// The condition that, of the threads (or blocks) that agree in the digits `used`, this is the
  /// first one by this number, or by all numbers of threads.
  Condition first_of(const std::vector<Digit>& used, const Number& number) const;
  Condition first_of(const std::vector<Digit>& used) const;
  /// The number of this thread among those that differ in the digits, and how many such threads
  /// are. Blocks are not counted, because each has its own memory.
  Number number_among(const std::vector<Digit>& digits) const;

  virtual void by_first_thread(const std::function<void()>& then) = 0;

  // --- Barriers: D16 ----------------------------------------------------------------------------

  /// A barrier for all threads that execute the statements. It clears the accesses.
  virtual void barrier() = 0;
  /// The access of a statement to memory through which values pass between the threads. None for
  /// other memory, and for memory that a loop has not declared yet.
  virtual std::optional<Access> shared_access(MemoryId tile, const std::vector<Expr>& at,
                                              bool store) const = 0;
  /// Inserts the barrier that an access needs, and notes the access.
  virtual void wait_for(const Access& access);
  /// Called between the barrier in front of a loop and its first turn.
  virtual void enter_turns(const ForOp&, const std::vector<Access>&) {}
  void enter_loop(const ForOp& loop) override;
  void leave_loop() override { accesses_.leave_loop(); }
  void enter_branches() override { accesses_.enter_branches(); }
  void leave_branch() override { accesses_.leave_branch(); }
  void leave_branches() override { accesses_.leave_branches(); }

  Accesses accesses_;

  // --- Between the threads of a block: D6, D16 --------------------------------------------------

  /// A place in on-chip memory through which values pass. Each copy of a role has its own part,
  /// which begins at `base`.
  struct Exchange {
    MemoryId memory;
    Expr base = 0;
  };
  virtual Exchange exchange(DType dtype, int64_t count) = 0;

  /// What a fold combines: values, or the values and the indices of an arg-fold.
  using Values = std::vector<ValueOperand>;
  struct Folder {
    std::function<Values(const Values&, const Values&)> combine;
    std::function<Values(const Values&, size_t)> fold_array;  // along an axis of the arrays
  };
  Folder folder(Monoid monoid);
  Folder arg_folder(bool is_max);
  /// Folds along a digit of lanes, warps or blocks. `others` are the digits of the threads that
  /// hold other elements.
  Values fold_digit(const Folder& folder, Values values, const Digit& digit,
                    const std::vector<Digit>& others, const Statement& s);
  /// The values of all warps along `digit`, as one more array axis.
  ValueOperand gathered(const ValueOperand& value, const Digit& digit,
                        const std::vector<Digit>& others);
  /// The value without its last array axis, which has extent 1.
  ValueOperand dropped(const ValueOperand& value);

  /// The row-major number of an element of a tile.
  static Expr element_number(const ValueType& tile, const Positions& positions);
  /// Stores a tile's elements by their numbers, for all threads to load behind a barrier.
  void store_to_exchange(const Exchange& place, const ValueOperand& value, ValueId tile);
  /// Step s of the scan combines each element with the one `s` places before it.
  Scanned scan_through_memory(const TileScanOp& op, Tuple parts, const Statement& s);

  /// The value of the lane whose number differs by `distance` (a power of two).
  ValueOperand swapped(const ValueOperand& value, int64_t distance) {
    return shuffled(Instruction::shfl_bfly, value, distance);
  }
  /// The value that one of the shfl rows reads from another lane.
  ValueOperand shuffled(Instruction shuffle, const ValueOperand& value, const Expr& lane);

  // --- Between the blocks of a cluster: D20 -----------------------------------------------------

  /// How the blocks of a cluster exchange values once: the place for the values of all blocks, the
  /// mbarrier that counts their bytes, and the parity of its phase.
  struct Meeting {
    Exchange parts;
    MemoryId mbarriers;
    Expr mbarrier, parity;
  };
  /// `size` is the number of elements that arrive at each block.
  virtual Meeting begin_meeting(DType dtype, int64_t size, const Statement& s) = 0;
  /// The values of all blocks along `digit`, as scalars of an array [blocks, elements].
  ValueOperand gathered_from_blocks(const ValueOperand& value, const Digit& digit,
                                    std::vector<Digit> others, const Statement& s);

  // --- Tickets, and kernels that begin early ----------------------------------------------------

  /// Called before and after all threads meet at a ticket.
  virtual void begin_ticket(const Statement&) {}
  virtual void end_ticket() {}
  void lower_ticket(const TicketOp& op, const Statement& s) override;
  /// D28: lets the kernels after this one begin, and waits for those before it.
  void lower_await() override;

 private:
  std::vector<Access> accesses_of_turn(const ForOp& loop) const;
  static bool needs_word(DType dtype);
  ValueOperand as_word(const ValueOperand& value);
  ValueOperand from_word(const ValueOperand& word, DType dtype);
};

}  // namespace braze
