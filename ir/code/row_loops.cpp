#include "ir/code/row_loops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "braze/error.h"
#include "ir/ops/scalar.h"

namespace braze {

namespace {

float load(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
uint64_t store(float value) {
  return std::bit_cast<uint32_t>(value != value ? std::numeric_limits<float>::quiet_NaN() : value);
}

using Bits = uint64_t;
void add_loop(Bits* out, const Bits* x, const Bits* y, const Bits*, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = store(load(x[i]) + load(y[i]));
}
void sub_loop(Bits* out, const Bits* x, const Bits* y, const Bits*, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = store(load(x[i]) - load(y[i]));
}
void mul_loop(Bits* out, const Bits* x, const Bits* y, const Bits*, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = store(load(x[i]) * load(y[i]));
}
void div_loop(Bits* out, const Bits* x, const Bits* y, const Bits*, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = store(load(x[i]) / load(y[i]));
}
void fma_loop(Bits* out, const Bits* x, const Bits* y, const Bits* z, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = store(std::fma(load(x[i]), load(y[i]), load(z[i])));
}
void select_loop(Bits* out, const Bits* x, const Bits* y, const Bits* z, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = x[i] ? y[i] : z[i];
}

}  // namespace

RowLoop::RowLoop(ElementwiseOp op, DType operand, DType result)
    : function_(machine_function(op, operand, result)) {
  BRAZE_CHECK(function_, "a row is applied to a dtype on which it is not defined");
  if (op == ElementwiseOp::select) loop_ = select_loop;
  if (operand != DType::F32) return;
  switch (op) {
    case ElementwiseOp::add:
      loop_ = add_loop;
      break;
    case ElementwiseOp::sub:
      loop_ = sub_loop;
      break;
    case ElementwiseOp::mul:
      loop_ = mul_loop;
      break;
    case ElementwiseOp::div:
      loop_ = div_loop;
      break;
    case ElementwiseOp::fma:
      loop_ = fma_loop;
      break;
    default:
      break;
  }
}

void RowLoop::run(uint64_t* out, const uint64_t* x, const uint64_t* y, const uint64_t* z,
                  size_t n) const {
  if (loop_) return loop_(out, x, y, z, n);
  for (size_t i = 0; i < n; ++i) out[i] = function_(x[i], y ? y[i] : 0, z ? z[i] : 0);
}

void fold_middle(std::vector<uint64_t>& x, size_t outer, size_t n, size_t inner,
                 const RowLoop& combine) {
  for (size_t o = 0; o < outer; ++o) {
    uint64_t* const row = x.data() + o * n * inner;
    for (size_t left = n, half = std::bit_ceil(n) / 2; half >= 1; left = half, half /= 2)
      combine.run(row, row, row + half * inner, nullptr, (left - half) * inner);
    std::copy_n(row, inner, x.data() + o * inner);
  }
  x.resize(outer * inner);
}

// Records the rows that a body applies. Operations on constants are computed here, as in the
// lowering.
class BodyRecorder : public ScalarEmitter {
 public:
  explicit BodyRecorder(RowProgram& program) : program_(program) {}

  Scalar operand(int i, DType dtype) { return add({i, {}}, dtype); }

  Scalar constant(DType dtype, uint64_t bits) override {
    return add({-1, std::vector<uint64_t>(RowProgram::kChunk, bits)}, dtype, true);
  }

  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    const auto nth = [&](size_t i) { return i < operands.size() ? operands[i] : Scalar(); };
    if (!is_machine(op)) return info(op).body(nth(0), nth(1), nth(2));
    const DType from = operands.back().dtype();
    if (std::all_of(operands.begin(), operands.end(),
                    [&](const Scalar& s) { return is_constant_[s.id()]; })) {
      uint64_t bits[3] = {};
      for (size_t i = 0; i < operands.size(); ++i)
        bits[i] = program_.slots_[operands[i].id()].bits[0];
      return constant(result, evaluate_machine(op, from, result, bits[0], bits[1], bits[2]));
    }
    const Scalar out = add({-1, std::vector<uint64_t>(RowProgram::kChunk)}, result);
    RowProgram::Step step{RowLoop(op, from, result), {}, operands.size(), out.id()};
    for (size_t i = 0; i < operands.size(); ++i) step.operands[i] = operands[i].id();
    program_.steps_.push_back(step);
    return out;
  }

 private:
  Scalar add(RowProgram::Slot slot, DType dtype, bool constant = false) {
    program_.slots_.push_back(std::move(slot));
    is_constant_.push_back(constant);
    return Scalar(this, static_cast<uint32_t>(program_.slots_.size() - 1), dtype);
  }

  RowProgram& program_;
  std::vector<bool> is_constant_;
};

RowProgram::RowProgram(ElementwiseOp op, const std::vector<DType>& operands, DType result) {
  BodyRecorder recorder(*this);
  Scalar inputs[3];
  for (size_t i = 0; i < operands.size(); ++i)
    inputs[i] = recorder.operand(static_cast<int>(i), operands[i]);
  result_ = recorder.apply(op, {inputs, operands.size()}, result).id();
}

void RowProgram::run(uint64_t* out, const uint64_t* const* operands, size_t n) {
  if (steps_.size() == 1 && steps_[0].result == result_ &&
      steps_[0].operands[steps_[0].arity - 1] < 3) {
    const Step& step = steps_[0];
    const uint64_t* from[3] = {};
    bool plain = true;
    for (size_t i = 0; i < step.arity; ++i) {
      const Slot& slot = slots_[step.operands[i]];
      plain &= slot.operand >= 0;
      if (slot.operand >= 0) from[i] = operands[slot.operand];
    }
    if (plain) return step.loop.run(out, from[0], from[1], from[2], n);
  }
  for (size_t begin = 0; begin < n; begin += kChunk) {
    const size_t count = std::min(kChunk, n - begin);
    const auto data = [&](size_t slot) -> const uint64_t* {
      const Slot& s = slots_[slot];
      return s.operand >= 0 ? operands[s.operand] + begin : s.bits.data();
    };
    for (const Step& step : steps_) {
      const uint64_t* from[3] = {};
      for (size_t i = 0; i < step.arity; ++i) from[i] = data(step.operands[i]);
      step.loop.run(slots_[step.result].bits.data(), from[0], from[1], from[2], count);
    }
    std::copy_n(data(result_), count, out + begin);
  }
}

}  // namespace braze
