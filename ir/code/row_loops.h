// row_loops.h — elementwise rows over arrays of element bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"

namespace braze {

/// A machine row over arrays. Its results are those of machine_function for each element; frequent
/// rows on f32 have their own loops.
class RowLoop {
 public:
  RowLoop() = default;
  RowLoop(ElementwiseOp op, DType operand, DType result);
  /// `out` may be one of the operands. Operands beyond the arity are null.
  void run(uint64_t* out, const uint64_t* x, const uint64_t* y, const uint64_t* z, size_t n) const;

 private:
  using Loop = void (*)(uint64_t*, const uint64_t*, const uint64_t*, const uint64_t*, size_t);
  Loop loop_ = nullptr;
  MachineFunction function_ = nullptr;
};

/// Folds the middle one of three axes in the order of the language page. `x` becomes the result.
void fold_middle(std::vector<uint64_t>& x, size_t outer, size_t n, size_t inner,
                 const RowLoop& combine);

/// Any row as a straight line of machine rows. A math or formula row becomes its body.
class RowProgram {
 public:
  RowProgram(ElementwiseOp op, const std::vector<DType>& operands, DType result);
  void run(uint64_t* out, const uint64_t* const* operands, size_t n);

 private:
  friend class BodyRecorder;
  struct Step {
    RowLoop loop;
    size_t operands[3] = {};
    size_t arity = 0;
    size_t result = 0;
  };
  static constexpr size_t kChunk = 256;
  struct Slot {
    int operand = -1;            // an operand of the row, or
    std::vector<uint64_t> bits;  // a part of a constant or of an intermediate value
  };
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
  size_t result_ = 0;
};

}  // namespace braze
