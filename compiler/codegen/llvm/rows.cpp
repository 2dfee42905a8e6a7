// rows.cpp — machine rows as LLVM instructions, one table entry each.
//
//   r.x r.y r.z   operands in registers: <lanes x T>, or T for one lane
//   r.type        their dtype (of y and z for select); bool is i1, short floats are integers of
//                 their bits
//   r.result      the result's dtype
//   b             r.b, the builder
//
// Nothing here may be poison or undefined for any operand: divisors are replaced before they can
// trap, counts before they leave the width. No instruction carries a fast-math flag, and none may
// lower to a library call, since images import nothing.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PatternMatch.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/codegen/constant_division.h"
#include "compiler/codegen/llvm/llvm_p.h"
#include "ir/ops/approximate_power.h"

namespace braze::codegen {

namespace {

using llvm::Value;
using llvm::Intrinsic::ID;
using Op = ElementwiseOp;

struct Row {
  llvm::IRBuilderBase& b;
  const Machine& machine;
  DType type;
  DType result;
  int32_t lanes;
  Value* x;
  Value* y;
  Value* z;

  bool is_float() const { return is_floating(type); }
  bool is_bool() const { return type == DType::Bool; }
  bool is_signed() const { return is_signed_integer(type); }
  int width() const { return static_cast<int>(8 * size_of(type)); }

  llvm::Type* type_of(DType dtype) const { return register_type(b.getContext(), dtype, lanes); }
  llvm::Type* shaped(llvm::Type* element) const {
    return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
  }
  Value* integer(DType dtype, uint64_t value) const {
    return literal(b.getContext(), dtype, value, lanes);
  }
  Value* real(DType dtype, double value) const {
    return llvm::ConstantFP::get(type_of(dtype), value);
  }
  Value* call(ID id, std::initializer_list<Value*> arguments) const {
    return b.CreateIntrinsic(id, {arguments.begin()[0]->getType()},
                             llvm::ArrayRef<Value*>(arguments.begin(), arguments.size()));
  }
};

const llvm::APFloat* constant_float(Value* value) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (!constant) return nullptr;
  if (constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  return number ? &number->getValueAPF() : nullptr;
}

bool is_constant_integer(Value* value) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (!constant) return false;
  if (constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  return constant && llvm::isa<llvm::ConstantInt>(constant);
}

// --- Minimum and maximum ------------------------------------------------------------------------

// x86 has `x < y ? x : y`, which gives y if either is NaN or both are zero.
Value* first_if(Row& r, llvm::CmpInst::Predicate predicate, Value* x, Value* y) {
  return r.b.CreateSelect(r.b.CreateFCmp(predicate, x, y), x, y);
}

Value* extreme_float(Row& r, bool is_max) {
  auto& b = r.b;
  const auto wins = is_max ? llvm::CmpInst::FCMP_OGT : llvm::CmpInst::FCMP_OLT;
  Value *x = r.x, *y = r.y;
  if (constant_float(x)) std::swap(x, y);
  if (const llvm::APFloat* c = constant_float(y); c && !c->isNaN()) {
    // With the constant first, a NaN in x comes through, and only a zero can still be wrong.
    Value* chosen = first_if(r, wins, y, x);
    if (!c->isZero() || c->isNegative() == is_max) return chosen;
    if (is_max) return b.CreateFAdd(chosen, y);  // max(-0, +0): -0 + +0 is +0, NaN stays
  }
  // The two orders differ only if an operand is NaN or both are zero. Joining the bits of both
  // results gives -0 for zeros (or), or +0 (and); `or` keeps a NaN, and `and` does not.
  llvm::Type* bits = r.type_of(r.type == DType::F64 ? DType::I64 : DType::I32);
  llvm::Type* type = r.type_of(r.type);
  Value* one = b.CreateBitCast(first_if(r, wins, x, y), bits);
  Value* other = b.CreateBitCast(first_if(r, wins, y, x), bits);
  if (!is_max) return b.CreateBitCast(b.CreateOr(one, other), type);
  Value* both = b.CreateAnd(one, other);
  Value* unordered = b.CreateFCmpUNO(x, y);
  if (r.machine.avx512)
    return b.CreateSelect(unordered, llvm::ConstantFP::getNaN(type), b.CreateBitCast(both, type));
  return b.CreateBitCast(b.CreateOr(both, b.CreateSExt(unordered, bits)), type);
}

Value* extreme(Row& r, bool is_max) {
  if (r.is_float() && r.machine.simt)
    return r.call(is_max ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, {r.x, r.y});
  if (r.is_float()) return extreme_float(r, is_max);
  if (r.is_bool()) return is_max ? r.b.CreateOr(r.x, r.y) : r.b.CreateAnd(r.x, r.y);
  const ID id = r.is_signed() ? (is_max ? llvm::Intrinsic::smax : llvm::Intrinsic::smin)
                              : (is_max ? llvm::Intrinsic::umax : llvm::Intrinsic::umin);
  return r.call(id, {r.x, r.y});
}

// --- Division ------------------------------------------------------------------------------------

// The upper 32 bits of a product.
Value* high_half(llvm::IRBuilderBase& b, Value* x, uint32_t factor) {
  Value* wide = b.CreateZExt(x, b.getInt64Ty());
  Value* product = b.CreateMul(wide, b.getInt64(factor), "", /*HasNUW=*/true);
  return b.CreateTrunc(b.CreateLShr(product, 32), b.getInt32Ty());
}

// The quotient of an integer of at most 32 bits and a constant, by the quotient of their absolute
// values.
Value* quotient_by_constant(Row& r, uint32_t divisor) {
  auto& b = r.b;
  llvm::Type* word = b.getInt32Ty();
  const auto negate_if = [&](Value* x, Value* sign) {
    return b.CreateSub(b.CreateXor(x, sign), sign);
  };
  Value* x = r.is_signed() ? b.CreateSExt(r.x, word) : b.CreateZExt(r.x, word);
  Value* result = nullptr;
  if (r.is_signed()) {
    Value* sign = b.CreateAShr(x, 31);
    result = negate_if(divide_by_constant(b, negate_if(x, sign), divisor, /*is_small=*/true), sign);
  } else {
    result = divide_by_constant(b, x, divisor, /*is_small=*/r.width() < 32);
  }
  return b.CreateTrunc(result, r.x->getType());
}

// The quotient of integers whose divisor is neither 0, nor -1 for the least x.
Value* quotient(Row& r, Value* divisor) {
  auto& b = r.b;
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(divisor);
  const bool is_positive =
      constant && !constant->isZero() && !(r.is_signed() && constant->isNegative());
  if (r.machine.simt && is_positive && r.width() <= 32)
    return quotient_by_constant(r, static_cast<uint32_t>(constant->getZExtValue()));
  const bool short_vector = r.lanes > 1 && size_of(r.type) < 8 && !r.machine.simt;
  if (!short_vector || is_constant_integer(divisor))
    return r.is_signed() ? b.CreateSDiv(r.x, divisor) : b.CreateUDiv(r.x, divisor);
  // There is no vector division of integers, so floats divide. A float whose significand has at
  // least one bit more than the integers holds the operands exactly. It also holds enough of the
  // quotient, because a quotient of n bits that is no integer differs from the next integer by at
  // least 2^-n of itself.
  llvm::Type* real = r.type_of(size_of(r.type) < 4 ? DType::F32 : DType::F64);
  llvm::Type* type = r.type_of(r.type);
  if (r.is_signed())
    return b.CreateFPToSI(b.CreateFDiv(b.CreateSIToFP(r.x, real), b.CreateSIToFP(divisor, real)),
                          type);
  return b.CreateFPToUI(b.CreateFDiv(b.CreateUIToFP(r.x, real), b.CreateUIToFP(divisor, real)),
                        type);
}

// The divisor, with 1 in place of every divisor that would trap; `is_zero` says where it was 0.
Value* safe_divisor(Row& r, Value*& is_zero) {
  auto& b = r.b;
  Value* one = r.integer(r.type, 1);
  is_zero = b.CreateICmpEQ(r.y, r.integer(r.type, 0));
  Value* unsafe = is_zero;
  if (r.is_signed()) {
    Value* least = r.integer(r.type, uint64_t{1} << (r.width() - 1));
    Value* overflows = b.CreateAnd(b.CreateICmpEQ(r.y, r.integer(r.type, ~uint64_t{0})),
                                   b.CreateICmpEQ(r.x, least));
    unsafe = b.CreateOr(unsafe, overflows);
  }
  return b.CreateSelect(unsafe, one, r.y);
}

Value* divide(Row& r) {
  if (r.is_float()) return r.b.CreateFDiv(r.x, r.y);
  Value* is_zero = nullptr;
  Value* divisor = safe_divisor(r, is_zero);
  return r.b.CreateSelect(is_zero, r.integer(r.type, 0), quotient(r, divisor));
}

// --- Rows for bodies -----------------------------------------------------------------------------

// Emits an approximate instruction of the machine, which takes one scalar, lane by lane.
Value* by_lanes(Row& r, ID id, llvm::ArrayRef<llvm::Type*> types) {
  auto& b = r.b;
  if (r.lanes == 1) return b.CreateIntrinsic(id, types, {r.x});
  Value* out = llvm::PoisonValue::get(r.x->getType());
  for (int32_t l = 0; l < r.lanes; ++l)
    out = b.CreateInsertElement(out, b.CreateIntrinsic(id, types, {b.CreateExtractElement(r.x, l)}),
                                l);
  return out;
}

Value* approx_inverse(Row& r) {
  if (!r.machine.simt) return r.b.CreateFDiv(r.real(r.type, 1.0), r.x);
  return by_lanes(r, llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {});
}

// One Newton step from the machine's approximation gives the correctly rounded inverse, because the
// remainder is computed exactly.
Value* inverse(Row& r) {
  Value* y = approx_inverse(r);
  if (!r.machine.simt) return y;
  Value* remainder = r.call(llvm::Intrinsic::fma, {r.b.CreateFNeg(r.x), y, r.real(r.type, 1.0)});
  return r.call(llvm::Intrinsic::fma, {y, remainder, y});
}

// The rows of `math::approximate_power`, as bodies for bf16 use them. Where a tile program has the
// row itself, lowering for a CPU writes them out.
Value* approx_exp2(Row& r) {
  auto& b = r.b;
  if (r.machine.simt) return by_lanes(r, llvm::Intrinsic::nvvm_ex2_approx_ftz, {b.getFloatTy()});
  const auto fused = [&](Value* x, Value* y, Value* z) {
    return r.call(llvm::Intrinsic::fma, {x, y, z});
  };
  const auto real = [&](double value) { return r.real(r.type, value); };
  Value* low = first_if(r, llvm::CmpInst::FCMP_OGT, real(-127.0), r.x);
  Value* x = first_if(r, llvm::CmpInst::FCMP_OLT, real(128.0), low);
  Value* rounded = b.CreateFAdd(x, real(0x1.8p23));
  Value* t = b.CreateFSub(x, b.CreateFSub(rounded, real(0x1.8p23)));
  const double* coefficient = math::kApproximatePower.begin();
  Value* p = real(*coefficient);
  while (++coefficient != math::kApproximatePower.end()) p = fused(p, t, real(*coefficient));
  const auto word = [&](uint64_t value) { return r.integer(DType::I32, value); };
  Value* n = b.CreateBitCast(rounded, r.type_of(DType::I32));
  Value* power = b.CreateAdd(b.CreateShl(n, word(23)), word(0x3f800000));
  return b.CreateFMul(p, b.CreateBitCast(power, r.type_of(DType::F32)));
}

// fmod of scalars by long division of the significands, as a function of its own in the image.
//
//   m e   significand and exponent of |x| and |y|;  r   the remainder so far;  d   exponents to go
llvm::Function* fmod_function(llvm::Module& module, DType type) {
  const bool wide = type == DType::F64;
  const char* symbol = wide ? "fmod.f64" : "fmod.f32";
  if (llvm::Function* made = module.getFunction(symbol)) return made;
  auto& context = module.getContext();
  llvm::Type* real = register_type(context, type, 1);
  auto* function = llvm::Function::Create(llvm::FunctionType::get(real, {real, real}, false),
                                          llvm::GlobalValue::InternalLinkage, symbol, module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr(llvm::Attribute::NoInline);
  const auto block = [&](const char* name) {
    return llvm::BasicBlock::Create(context, name, function);
  };
  auto *entry = block("entry"), *invalid = block("invalid"), *valid = block("valid"),
       *small = block("small"), *reduce = block("reduce"), *loop = block("loop"),
       *done = block("done");
  llvm::IRBuilder<> b(entry);
  llvm::IntegerType* word = wide ? b.getInt64Ty() : b.getInt32Ty();
  const unsigned fraction = wide ? 52 : 23, width = wide ? 64 : 32;
  const auto number = [&](uint64_t value) { return llvm::ConstantInt::get(word, value); };
  const auto wide_number = [&](uint64_t value) { return b.getInt64(value); };
  Value *x = function->getArg(0), *y = function->getArg(1);
  Value* x_bits = b.CreateBitCast(x, word);
  Value* magnitude = number(~uint64_t{0} >> (65 - width));
  Value* ax = b.CreateAnd(x_bits, magnitude);
  Value* ay = b.CreateAnd(b.CreateBitCast(y, word), magnitude);
  Value* infinity = number(wide ? 0x7ffull << 52 : 0xffull << 23);
  Value* bad = b.CreateOr(b.CreateICmpEQ(ay, number(0)),
                          b.CreateOr(b.CreateICmpUGE(ax, infinity), b.CreateICmpUGT(ay, infinity)));
  b.CreateCondBr(bad, invalid, valid);
  b.SetInsertPoint(invalid);
  b.CreateRet(llvm::ConstantFP::getNaN(real));
  b.SetInsertPoint(valid);
  b.CreateCondBr(b.CreateICmpULT(ax, ay), small, reduce);
  b.SetInsertPoint(small);
  b.CreateRet(x);

  b.SetInsertPoint(reduce);
  Value* implicit = number(uint64_t{1} << fraction);
  const auto split = [&](Value* bits, Value*& exponent) {
    Value* raw = b.CreateLShr(bits, number(fraction));
    Value* normal = b.CreateICmpNE(raw, number(0));
    exponent = b.CreateSelect(normal, raw, number(1));
    Value* low = b.CreateAnd(bits, number((uint64_t{1} << fraction) - 1));
    return b.CreateZExt(b.CreateSelect(normal, b.CreateOr(low, implicit), low), b.getInt64Ty());
  };
  Value *ex = nullptr, *ey = nullptr;
  Value* mx = split(ax, ex);
  Value* my = split(ay, ey);
  Value* first = b.CreateURem(mx, my);
  Value* distance = b.CreateZExt(b.CreateSub(ex, ey), b.getInt64Ty());
  b.CreateCondBr(b.CreateICmpEQ(distance, wide_number(0)), done, loop);

  b.SetInsertPoint(loop);
  auto* r = b.CreatePHI(b.getInt64Ty(), 2);
  auto* d = b.CreatePHI(b.getInt64Ty(), 2);
  Value* step = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, d, wide_number(63 - fraction));
  Value* next = b.CreateURem(b.CreateShl(r, step), my);
  Value* left = b.CreateSub(d, step);
  r->addIncoming(first, reduce);
  r->addIncoming(next, loop);
  d->addIncoming(distance, reduce);
  d->addIncoming(left, loop);
  b.CreateCondBr(b.CreateICmpEQ(left, wide_number(0)), done, loop);

  // r * 2^(ey - bias - fraction) is exact, since it is a multiple of y's last place and below y.
  b.SetInsertPoint(done);
  auto* rest = b.CreatePHI(b.getInt64Ty(), 2);
  rest->addIncoming(first, reduce);
  rest->addIncoming(next, loop);
  Value* normal = b.CreateShl(b.CreateSub(ey, number(fraction)), number(fraction));
  Value* subnormal =
      b.CreateShl(number(1), b.CreateAnd(b.CreateSub(ey, number(1)), number(width - 1)));
  Value* scale = b.CreateSelect(b.CreateICmpUGT(ey, number(fraction)), normal, subnormal);
  Value* result = b.CreateFMul(b.CreateUIToFP(rest, real), b.CreateBitCast(scale, real));
  Value* sign = b.CreateAnd(x_bits, number(uint64_t{1} << (width - 1)));
  b.CreateRet(b.CreateBitCast(b.CreateOr(b.CreateBitCast(result, word), sign), real));
  return function;
}

Value* remainder(Row& r) {
  auto& b = r.b;
  if (!r.is_float()) {
    Value* is_zero = nullptr;
    Value* divisor = safe_divisor(r, is_zero);
    Value* rest = b.CreateSub(r.x, b.CreateMul(quotient(r, divisor), divisor));
    return b.CreateSelect(is_zero, r.x, rest);
  }
  llvm::Function* fmod = fmod_function(*b.GetInsertBlock()->getModule(), r.type);
  if (r.lanes == 1) return b.CreateCall(fmod, {r.x, r.y});
  Value* out = llvm::PoisonValue::get(r.x->getType());
  for (int32_t l = 0; l < r.lanes; ++l) {
    Value* lane =
        b.CreateCall(fmod, {b.CreateExtractElement(r.x, l), b.CreateExtractElement(r.y, l)});
    out = b.CreateInsertElement(out, lane, l);
  }
  return out;
}

// --- Shifts --------------------------------------------------------------------------------------

Value* shift_left(Row& r) {
  Value* within = r.b.CreateICmpULT(r.y, r.integer(r.type, r.width()));
  Value* zero = r.integer(r.type, 0);
  // A machine may ignore the upper half of a 64-bit count.
  Value* const own = r.width() == 64 ? r.b.CreateAnd(r.y, r.integer(r.type, 63)) : r.y;
  if (!is_constant_integer(r.y)) return r.b.CreateSelect(within, r.b.CreateShl(r.x, own), zero);
  Value* count = r.b.CreateSelect(within, r.y, zero);
  return r.b.CreateSelect(within, r.b.CreateShl(r.x, count), zero);
}

Value* shift_right(Row& r) {
  Value* last = r.integer(r.type, r.width() - 1);
  if (r.is_signed()) return r.b.CreateAShr(r.x, r.call(llvm::Intrinsic::umin, {r.y, last}));
  Value* within = r.b.CreateICmpULE(r.y, last);
  Value* zero = r.integer(r.type, 0);
  // A machine may ignore the upper half of a 64-bit count here too.
  Value* const own = r.width() == 64 ? r.b.CreateAnd(r.y, last) : r.y;
  Value* count = is_constant_integer(r.y) ? r.b.CreateSelect(within, r.y, zero) : own;
  return r.b.CreateSelect(within, r.b.CreateLShr(r.x, count), zero);
}

// --- Comparison ----------------------------------------------------------------------------------

Value* compare(Row& r, llvm::CmpInst::Predicate real, llvm::CmpInst::Predicate with_sign,
               llvm::CmpInst::Predicate without_sign) {
  if (r.is_float()) return r.b.CreateFCmp(real, r.x, r.y);
  return r.b.CreateICmp(r.is_signed() ? with_sign : without_sign, r.x, r.y);
}

// --- Conversion ----------------------------------------------------------------------------------

// Widens bf16 values in pairs: two are one word, and one instruction widens each of them.
Value* widen_pairs(Row& r, Value* bits) {
  auto& b = r.b;
  const int32_t pairs = r.lanes / 2;
  llvm::Type* type = llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(pairs));
  Value* words = b.CreateBitCast(bits, type);
  Value* low = b.CreateShl(words, llvm::ConstantInt::get(type, 16));
  Value* high = b.CreateAnd(words, llvm::ConstantInt::get(type, 0xffff0000u));
  llvm::SmallVector<int, 32> order;
  for (int32_t i = 0; i < pairs; ++i) order.append({i, pairs + i});
  return b.CreateBitCast(b.CreateShuffleVector(low, high, order), r.type_of(DType::F32));
}

Value* widen_half(Row& r, Value* bits, DType from) {
  auto& b = r.b;
  if (from == DType::F16)
    return b.CreateFPExt(b.CreateBitCast(bits, r.shaped(b.getHalfTy())), r.type_of(DType::F32));
  if (r.machine.simt && r.lanes % 2 == 0) return widen_pairs(r, bits);
  Value* word = b.CreateZExt(bits, r.type_of(DType::I32));
  return b.CreateBitCast(b.CreateShl(word, r.integer(DType::I32, 16)), r.type_of(DType::F32));
}

// A short float whose exponents do not reach the top is read as the bits of an f32. It is then too
// small by a fixed power of two, whether it is normal or not. The other short floats are the upper
// half of an f16.
Value* widen_stored(Row& r, Value* bits, DType from) {
  auto& b = r.b;
  const DTypeInfo& format = info(from);
  if (format.infinities) {
    llvm::Type* shorts = r.type_of(DType::I16);
    return widen_half(r, b.CreateShl(b.CreateZExt(bits, shorts), r.integer(DType::I16, 8)),
                      DType::F16);
  }
  const auto word = [&](uint64_t value) { return r.integer(DType::I32, value); };
  llvm::Type* real = r.type_of(DType::F32);
  Value* all = b.CreateZExt(bits, r.type_of(DType::I32));
  Value* magnitude = b.CreateAnd(all, word(0x7f));
  Value* tiny = b.CreateBitCast(b.CreateShl(magnitude, word(23 - format.fraction)), real);
  const int bias = (1 << (format.exponent - 1)) - 1;
  Value* value = b.CreateFMul(tiny, r.real(DType::F32, std::ldexp(1.0, 127 - bias)));
  value =
      b.CreateSelect(b.CreateICmpEQ(magnitude, word(0x7f)), llvm::ConstantFP::getNaN(real), value);
  Value* sign = b.CreateShl(b.CreateAnd(all, word(0x80)), word(24));
  return b.CreateBitCast(b.CreateOr(b.CreateBitCast(value, r.type_of(DType::I32)), sign), real);
}

Value* widen_short(Row& r, Value* bits, DType from) {
  return is_half(from) ? widen_half(r, bits, from) : widen_stored(r, bits, from);
}

// The 16-bit floats that `wide` holds in f32: the vector that was widened, or a literal that loses
// nothing. Null for other values.
Value* narrowed_exactly(Row& r, Value* wide, DType to) {
  auto& b = r.b;
  llvm::Type* type = r.shaped(to == DType::F16 ? b.getHalfTy() : b.getBFloatTy());
  if (const llvm::APFloat* literal = constant_float(wide)) {
    llvm::APFloat number = *literal;
    bool loses = false;
    number.convert(type->getScalarType()->getFltSemantics(), llvm::APFloat::rmNearestTiesToEven,
                   &loses);
    return loses || number.isNaN() ? nullptr : llvm::ConstantFP::get(type, number);
  }
  using namespace llvm::PatternMatch;
  Value *low = nullptr, *high = nullptr, *bits = nullptr;
  if (to == DType::F16) {
    const bool widened = match(wide, m_FPExt(m_Value(bits))) && bits->getType() == type;
    return widened ? bits : nullptr;
  }
  if (!match(wide, m_BitCast(m_Shuffle(m_Value(low), m_Value(high))))) return nullptr;
  const auto words = m_BitCast(m_Value(bits));
  if (!match(low, m_Shl(words, m_SpecificInt(16)))) return nullptr;
  return b.CreateBitCast(bits, type);
}

// Whether a bf16 times this literal is exact in f32, down to the least subnormal number.
bool is_short_factor(Value* x) {
  const llvm::APFloat* literal = constant_float(x);
  if (!literal) return false;
  return literal->isFiniteNonZero() &&
         std::fmod(std::ldexp(literal->convertToDouble(), 16), 1.0) == 0;
}

// `x` may be a sum, difference or product of 16-bit floats that was computed in f32 and is to be
// rounded to `to`. This computes it in pairs of 16-bit floats instead. The result is the same: f32
// has more than twice the bits of a 16-bit float plus one, so the first rounding never changes the
// second. Products of bf16 below the normal numbers of f32 are an exception. Null for other values.
Value* arithmetic_in_pairs(Row& r, Value* x, DType to) {
  auto* operation = llvm::dyn_cast<llvm::BinaryOperator>(x);
  if (!operation || r.lanes % 2 != 0) return nullptr;
  const auto code = operation->getOpcode();
  Value *left = operation->getOperand(0), *right = operation->getOperand(1);
  const bool product = code == llvm::Instruction::FMul;
  if (!product && code != llvm::Instruction::FAdd && code != llvm::Instruction::FSub)
    return nullptr;
  if (product && to == DType::BF16 && !is_short_factor(left) && !is_short_factor(right))
    return nullptr;
  left = narrowed_exactly(r, left, to);
  right = narrowed_exactly(r, right, to);
  if (!left || !right) return nullptr;
  return r.b.CreateBitCast(r.b.CreateBinOp(code, left, right), r.type_of(to));
}

// Rounds to nearest even by integer operations on the bits. Subnormal results come from a sum with
// a number whose last place is that of the subnormal numbers. A value beyond the greatest number
// becomes infinity, or NaN if the dtype has no infinity.
Value* narrow_stored(Row& r, Value* x, DType to) {
  auto& b = r.b;
  const DTypeInfo& format = info(to);
  const auto fraction = static_cast<uint64_t>(format.fraction);
  const uint64_t bias = (uint64_t{1} << (format.exponent - 1)) - 1, shift = 23 - fraction;
  const uint64_t beyond = format.infinities ? 0x80 - (uint64_t{1} << fraction) : 0x7f;
  const auto word = [&](uint64_t value) { return r.integer(DType::I32, value); };
  llvm::Type* words = r.type_of(DType::I32);
  Value* bits = b.CreateBitCast(x, words);
  Value* magnitude = b.CreateAnd(bits, word(0x7fffffff));
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude, word(shift)), word(1));
  Value* up = b.CreateAdd(odd, word((uint64_t{1} << (shift - 1)) - 1));
  Value* normal = b.CreateSub(b.CreateLShr(b.CreateAdd(magnitude, up), word(shift)),
                              word((127 - bias) << fraction));
  const uint64_t magic = (151 - bias - fraction) << 23;
  Value* sum = b.CreateFAdd(b.CreateBitCast(magnitude, x->getType()),
                            b.CreateBitCast(word(magic), x->getType()));
  Value* subnormal = b.CreateSub(b.CreateBitCast(sum, words), word(magic));
  Value* code =
      b.CreateSelect(b.CreateICmpULT(magnitude, word((128 - bias) << 23)), subnormal, normal);
  code = r.call(llvm::Intrinsic::umin, {code, word(beyond)});
  if (format.infinities) code = b.CreateSelect(b.CreateFCmpUNO(x, x), word(beyond | 2), code);
  Value* sign = b.CreateAnd(b.CreateLShr(bits, word(24)), word(0x80));
  return b.CreateTrunc(b.CreateOr(code, sign), r.type_of(to));
}

Value* narrow_f32(Row& r, Value* x, DType to) {
  auto& b = r.b;
  if (is_stored_float(to)) return narrow_stored(r, x, to);
  if (r.machine.simt)
    if (Value* result = arithmetic_in_pairs(r, x, to)) return result;
  llvm::Type* half = r.type_of(to);
  if (to == DType::F16) return b.CreateBitCast(b.CreateFPTrunc(x, r.shaped(b.getHalfTy())), half);
  if (r.machine.simt) return b.CreateBitCast(b.CreateFPTrunc(x, r.shaped(b.getBFloatTy())), half);
  // Rounds to nearest even by integer operations on the bits. A carry into the exponent gives the
  // right number, up to infinity. A NaN could round to a number, so it is truncated and made quiet.
  const auto word = [&](uint64_t value) { return r.integer(DType::I32, value); };
  Value* bits = b.CreateBitCast(x, r.type_of(DType::I32));
  Value* odd = b.CreateAnd(b.CreateLShr(bits, word(16)), word(1));
  Value* rounded = b.CreateAdd(bits, b.CreateAdd(odd, word(0x7fff)));
  Value* quiet = b.CreateOr(bits, word(0x400000));
  Value* chosen = b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, rounded);
  return b.CreateTrunc(b.CreateLShr(chosen, word(16)), half);
}

// f64 to f32 rounded to odd: rounding that once more to a shorter format equals rounding x once.
Value* round_to_odd(Row& r, Value* x) {
  auto& b = r.b;
  Value* nearest = b.CreateFPTrunc(x, r.type_of(DType::F32));
  Value* back = b.CreateFPExt(nearest, x->getType());
  Value* inexact = b.CreateFCmpONE(back, x);
  Value* above = b.CreateFCmpOGT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                 b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x));
  llvm::Type* word = r.type_of(DType::I32);
  Value* bits = b.CreateBitCast(nearest, word);
  bits = b.CreateSub(bits, b.CreateZExt(above, word));
  bits = b.CreateOr(bits, b.CreateZExt(inexact, word));
  return b.CreateBitCast(bits, nearest->getType());
}

// Converts a 64-bit integer to a double that rounds to 16 bits in the same way as the integer: if
// any bit is set that the double cannot hold, the double's last place is set.
Value* sticky_double(Row& r, Value* x, DType from) {
  auto& b = r.b;
  const bool with_sign = is_signed_integer(from);
  const auto number = [&](uint64_t value) { return r.integer(DType::I64, value); };
  // `some` says whether any of the low 11 bits is set. This is right in two's complement as well.
  Value* low = b.CreateAnd(x, number(0x7ff));
  Value* some = b.CreateICmpNE(low, number(0));
  Value* cut = b.CreateAnd(x, number(~uint64_t{0x7ff}));
  // Between 2^53 and 2^63, the last place of a double is 2 to 2^10, and up to 2^64 it is 2^11. The
  // value is exact only from that bit up.
  Value* sticky = b.CreateSelect(some, b.CreateOr(cut, number(with_sign ? 0x400 : 0x800)), cut);
  Value* magnitude = with_sign ? b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b.getFalse()) : x;
  Value* exact = b.CreateICmpULT(magnitude, number(uint64_t{1} << 53));
  Value* chosen = b.CreateSelect(exact, x, sticky);
  llvm::Type* type = r.type_of(DType::F64);
  return with_sign ? b.CreateSIToFP(chosen, type) : b.CreateUIToFP(chosen, type);
}

Value* from_integer(Row& r, Value* x, DType from, DType to) {
  llvm::Type* type = r.type_of(to);
  return is_signed_integer(from) ? r.b.CreateSIToFP(x, type) : r.b.CreateUIToFP(x, type);
}

// f32 to i32 with the machine's own result for values out of range: the least integer.
Value* truncate_f32(Row& r, Value* x) {
  auto& b = r.b;
  const int32_t native = r.machine.avx512 ? 16 : 8;
  const int32_t part = r.lanes < 4 ? 4 : std::min(r.lanes, native);
  const auto convert = [&](Value* v) -> Value* {
    if (part == 4) return b.CreateIntrinsic(llvm::Intrinsic::x86_sse2_cvttps2dq, {}, {v});
    if (part == 8) return b.CreateIntrinsic(llvm::Intrinsic::x86_avx_cvtt_ps2dq_256, {}, {v});
    llvm::Type* type = llvm::FixedVectorType::get(b.getInt32Ty(), 16);
    return b.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512_mask_cvttps2dq_512, {},
        {v, llvm::Constant::getNullValue(type), b.getInt16(0xffff), b.getInt32(4)});
  };
  const auto lanes_of = [&](int32_t from, int32_t count) {
    llvm::SmallVector<int, 64> mask;
    for (int32_t l = 0; l < count; ++l) mask.push_back(from + l);
    return mask;
  };
  if (r.lanes < 4) {
    llvm::SmallVector<int, 4> grow(4, -1), shrink;
    for (int32_t l = 0; l < r.lanes; ++l) grow[l] = l, shrink.push_back(l);
    return b.CreateShuffleVector(convert(b.CreateShuffleVector(x, grow)), shrink);
  }
  if (part == r.lanes) return convert(x);
  llvm::SmallVector<Value*, 8> parts;
  for (int32_t l = 0; l < r.lanes; l += part)
    parts.push_back(convert(b.CreateShuffleVector(x, lanes_of(l, part))));
  for (int32_t size = part; parts.size() > 1; size *= 2) {
    llvm::SmallVector<Value*, 8> joined;
    for (size_t i = 0; i < parts.size(); i += 2)
      joined.push_back(b.CreateShuffleVector(parts[i], parts[i + 1], lanes_of(0, 2 * size)));
    parts = joined;
  }
  return parts[0];
}

// Conversions of PTX saturate. They give 0 for NaN if neither side has 64 bits.
Value* saturate(Row& r, Value* x, DType from, DType to) {
  auto& b = r.b;
  using namespace llvm::Intrinsic;
  const bool wide = from == DType::F64;
  const bool with_sign = is_signed_integer(to), is_long = size_of(to) == 8;
  const ID id = is_long     ? with_sign ? (wide ? nvvm_d2ll_rz : nvvm_f2ll_rz)
                                        : (wide ? nvvm_d2ull_rz : nvvm_f2ull_rz)
                : with_sign ? (wide ? nvvm_d2i_rz : nvvm_f2i_rz)
                            : (wide ? nvvm_d2ui_rz : nvvm_f2ui_rz);
  Value* out = nullptr;
  if (r.lanes == 1) {
    out = b.CreateIntrinsic(id, {}, {x});
  } else {
    out = llvm::PoisonValue::get(r.type_of(to));
    for (int32_t l = 0; l < r.lanes; ++l)
      out =
          b.CreateInsertElement(out, b.CreateIntrinsic(id, {}, {b.CreateExtractElement(x, l)}), l);
  }
  if (!wide && !is_long) return out;
  return b.CreateSelect(b.CreateFCmpORD(x, x), out, r.integer(to, 0));
}

Value* to_integer(Row& r, Value* x, DType from, DType to) {
  auto& b = r.b;
  llvm::Type* type = r.type_of(to);
  const int width = static_cast<int>(8 * size_of(to));
  const bool with_sign = is_signed_integer(to);
  if (width < 32) {  // converts to i32 first, which saturates too
    const int64_t most = (int64_t{1} << (width - with_sign)) - 1, least = with_sign ? -most - 1 : 0;
    Value* word = to_integer(r, x, from, DType::I32);
    word =
        r.call(llvm::Intrinsic::smin, {word, r.integer(DType::I32, static_cast<uint64_t>(most))});
    word =
        r.call(llvm::Intrinsic::smax, {word, r.integer(DType::I32, static_cast<uint64_t>(least))});
    return b.CreateTrunc(word, type);
  }
  if (r.machine.simt) return saturate(r, x, from, to);
  const double above = std::ldexp(1.0, with_sign ? width - 1 : width);
  Value* limit = r.real(from, above);
  Value* zero = r.real(from, 0.0);
  Value* too_big = b.CreateFCmpOGE(x, limit);
  Value* most = r.integer(to, with_sign ? (uint64_t{1} << (width - 1)) - 1 : ~uint64_t{0});
  if (from == DType::F32 && to == DType::I32 && r.lanes > 1) {
    // If the value is too big, the least integer is the complement of the greatest. For NaN the
    // result is 0.
    Value* raw = b.CreateXor(truncate_f32(r, x), b.CreateSExt(too_big, type));
    return b.CreateSelect(b.CreateFCmpORD(x, x), raw, r.integer(to, 0));
  }
  // Values out of range are replaced before the conversion, which would be poison for them.
  if (!with_sign) {
    Value* within = b.CreateAnd(b.CreateFCmpOGT(x, zero), b.CreateFCmpOLT(x, limit));
    Value* raw = b.CreateFPToUI(b.CreateSelect(within, x, zero), type);
    return b.CreateSelect(too_big, most, raw);
  }
  Value* too_small = b.CreateFCmpOLE(x, r.real(from, -above));
  Value* within = b.CreateAnd(b.CreateFCmpOGT(x, r.real(from, -above)), b.CreateFCmpOLT(x, limit));
  Value* raw = b.CreateFPToSI(b.CreateSelect(within, x, zero), type);
  raw = b.CreateSelect(too_big, most, raw);
  return b.CreateSelect(too_small, r.integer(to, uint64_t{1} << (width - 1)), raw);
}

Value* convert(Row& r) {
  auto& b = r.b;
  const DType from = r.type, to = r.result;
  Value* x = r.x;
  if (from == to) return x;
  if (from == DType::Bool) {
    const uint64_t one = evaluate_machine(Op::convert, DType::Bool, to, 1);
    return b.CreateSelect(x, r.integer(to, one), r.integer(to, 0));
  }
  if (to == DType::Bool) {
    if (is_short_float(from)) {
      const uint64_t magnitude = (uint64_t{1} << (r.width() - 1)) - 1;
      return b.CreateICmpNE(b.CreateAnd(x, r.integer(from, magnitude)), r.integer(from, 0));
    }
    if (is_floating(from)) return b.CreateFCmpUNE(x, r.real(from, 0.0));
    return b.CreateICmpNE(x, r.integer(from, 0));
  }
  if (is_integer(from)) {
    if (is_integer(to))
      return is_signed_integer(from) ? b.CreateSExtOrTrunc(x, r.type_of(to))
                                     : b.CreateZExtOrTrunc(x, r.type_of(to));
    if (!is_short_float(to)) return from_integer(r, x, from, to);
    Value* exact =
        size_of(from) == 8 ? sticky_double(r, x, from) : from_integer(r, x, from, DType::F64);
    return narrow_f32(r, round_to_odd(r, exact), to);
  }
  if (is_short_float(from)) {
    Value* wide = widen_short(r, x, from);
    if (to == DType::F32) return wide;
    if (to == DType::F64) return b.CreateFPExt(wide, r.type_of(to));
    return is_short_float(to) ? narrow_f32(r, wide, to) : to_integer(r, wide, DType::F32, to);
  }
  if (is_integer(to)) return to_integer(r, x, from, to);
  if (to == DType::F64) return b.CreateFPExt(x, r.type_of(to));
  if (to == DType::F32) return b.CreateFPTrunc(x, r.type_of(to));
  return narrow_f32(r, from == DType::F64 ? round_to_odd(r, x) : x, to);
}

// Strength reduction in straight lines compares all sums of one constant with each other, which
// took half of LLVM's time for many hyperbolic tangents. It leaves differences alone, and these
// become the same instructions.
Value* add(Row& r) {
  if (r.is_float()) return r.b.CreateFAdd(r.x, r.y);
  return is_constant_integer(r.y) ? r.b.CreateSub(r.x, r.b.CreateNeg(r.y))
                                  : r.b.CreateAdd(r.x, r.y);
}

Value* bitcast(Row& r) { return r.b.CreateBitCast(r.x, r.type_of(r.result)); }

// --- Choice --------------------------------------------------------------------------------------

// A condition that is the same for all lanes chooses words of several narrow lanes.
Value* choose(Row& r) {
  auto& b = r.b;
  const int bits = r.lanes * r.width();
  Value* alike = r.machine.simt && !r.is_bool() && r.width() < 32 && r.lanes > 1 && bits % 32 == 0
                     ? llvm::getSplatValue(r.x)
                     : nullptr;
  if (!alike) return b.CreateSelect(r.x, r.y, r.z);
  llvm::Type* words = llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(bits / 32));
  return b.CreateBitCast(
      b.CreateSelect(alike, b.CreateBitCast(r.y, words), b.CreateBitCast(r.z, words)),
      r.y->getType());
}

// --- The table -----------------------------------------------------------------------------------

using P = llvm::CmpInst::Predicate;
using Emitter = Value* (*)(Row&);

constexpr MachineTable<Emitter> kRows = {
    {Op::add, add},
    {Op::sub,
     [](Row& r) { return r.is_float() ? r.b.CreateFSub(r.x, r.y) : r.b.CreateSub(r.x, r.y); }},
    {Op::mul,
     [](Row& r) { return r.is_float() ? r.b.CreateFMul(r.x, r.y) : r.b.CreateMul(r.x, r.y); }},
    {Op::div, divide},
    {Op::rem, remainder},
    {Op::fma,
     [](Row& r) {
       return r.call(llvm::Intrinsic::fma, {r.x, r.y, r.z});
     }},
    {Op::neg, [](Row& r) { return r.is_float() ? r.b.CreateFNeg(r.x) : r.b.CreateNeg(r.x); }},
    {Op::abs,
     [](Row& r) -> Value* {
       if (r.is_float()) return r.call(llvm::Intrinsic::fabs, {r.x});
       return r.is_signed() ? r.call(llvm::Intrinsic::abs, {r.x, r.b.getFalse()}) : r.x;
     }},
    {Op::min, [](Row& r) { return extreme(r, false); }},
    {Op::max, [](Row& r) { return extreme(r, true); }},
    {Op::sqrt, [](Row& r) { return r.call(llvm::Intrinsic::sqrt, {r.x}); }},
    {Op::floor, [](Row& r) { return r.call(llvm::Intrinsic::floor, {r.x}); }},
    {Op::ceil, [](Row& r) { return r.call(llvm::Intrinsic::ceil, {r.x}); }},
    {Op::round_even, [](Row& r) { return r.call(llvm::Intrinsic::roundeven, {r.x}); }},
    {Op::trunc, [](Row& r) { return r.call(llvm::Intrinsic::trunc, {r.x}); }},
    {Op::eq, [](Row& r) { return compare(r, P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ); }},
    {Op::ne, [](Row& r) { return compare(r, P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE); }},
    {Op::lt, [](Row& r) { return compare(r, P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT); }},
    {Op::le, [](Row& r) { return compare(r, P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE); }},
    {Op::gt, [](Row& r) { return compare(r, P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT); }},
    {Op::ge, [](Row& r) { return compare(r, P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE); }},
    {Op::logical_and, [](Row& r) { return r.b.CreateAnd(r.x, r.y); }},
    {Op::logical_or, [](Row& r) { return r.b.CreateOr(r.x, r.y); }},
    {Op::logical_xor, [](Row& r) { return r.b.CreateXor(r.x, r.y); }},
    {Op::logical_not, [](Row& r) { return r.b.CreateNot(r.x); }},
    {Op::shl, shift_left},
    {Op::shr, shift_right},
    {Op::select, choose},
    {Op::is_nan, [](Row& r) { return r.b.CreateFCmpUNO(r.x, r.x); }},
    {Op::convert, convert},
    {Op::bitcast, bitcast},
    {Op::inverse, inverse},
    {Op::approx_inverse, approx_inverse},
    {Op::approx_exp2, approx_exp2},
};

}  // namespace

llvm::Value* divide_by_constant(llvm::IRBuilderBase& b, llvm::Value* x, uint32_t d, bool is_small) {
  if (std::has_single_bit(d)) return b.CreateLShr(x, static_cast<uint64_t>(std::countr_zero(d)));
  if (is_small) {
    const auto [multiplier, shift] = constant_division(d);
    return b.CreateLShr(high_half(b, x, multiplier), static_cast<uint64_t>(shift));
  }
  // The multiplier for all x has 33 bits. Its lower 32 are multiplied, and x is added for the upper
  // one, as half of a difference, so that nothing overflows (figure 4.1 of the same source).
  const int log2 = std::bit_width(d);
  const auto factor =
      static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << log2) - d)) / d + 1);
  llvm::Value* high = high_half(b, x, factor);
  llvm::Value* half = b.CreateLShr(b.CreateSub(x, high), 1);
  return b.CreateLShr(b.CreateAdd(half, high), static_cast<uint64_t>(log2 - 1));
}

llvm::Type* register_type(llvm::LLVMContext& context, DType dtype, int32_t lanes) {
  // Floats of 8 and 16 bits are integers in registers.
  llvm::Type* const element =
      dtype == DType::F32 ? llvm::Type::getFloatTy(context)
      : dtype == DType::F64
          ? llvm::Type::getDoubleTy(context)
          : llvm::IntegerType::get(
                context, static_cast<unsigned>(dtype == DType::Bool ? 1 : 8 * size_of(dtype)));
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

llvm::Type* memory_type(llvm::LLVMContext& context, DType dtype, int32_t lanes) {
  if (dtype != DType::Bool) return register_type(context, dtype, lanes);
  llvm::Type* byte = llvm::Type::getInt8Ty(context);
  return lanes == 1 ? byte : llvm::FixedVectorType::get(byte, static_cast<unsigned>(lanes));
}

llvm::Constant* literal(llvm::LLVMContext& context, DType dtype, uint64_t bits, int32_t lanes) {
  const unsigned width = dtype == DType::Bool ? 1 : static_cast<unsigned>(8 * size_of(dtype));
  llvm::Constant* value = nullptr;
  if (dtype == DType::Bool) {
    value = llvm::ConstantInt::getBool(context, bits != 0);
  } else {
    const llvm::APInt number(width, bits, false, /*implicitTrunc=*/true);
    if (dtype == DType::F32)
      value = llvm::ConstantFP::get(context, llvm::APFloat(llvm::APFloat::IEEEsingle(), number));
    else if (dtype == DType::F64)
      value = llvm::ConstantFP::get(context, llvm::APFloat(llvm::APFloat::IEEEdouble(), number));
    else
      value = llvm::ConstantInt::get(context, number);
  }
  if (lanes == 1) return value;
  return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(static_cast<unsigned>(lanes)),
                                        value);
}

Value* emit_row(llvm::IRBuilderBase& builder, const Machine& machine, ElementwiseOp op,
                DType operand, DType result, int32_t lanes, std::span<Value* const> operands) {
  Row row{builder,
          machine,
          operand,
          result,
          lanes,
          operands[0],
          operands.size() > 1 ? operands[1] : nullptr,
          operands.size() > 2 ? operands[2] : nullptr};
  const bool moves = op == Op::select || op == Op::convert || op == Op::bitcast;
  if (!is_half(operand) || moves) return kRows[op](row);
  // 16-bit floats compute in f32 and round once.
  for (Value** value : {&row.x, &row.y, &row.z})
    if (*value) *value = widen_half(row, *value, operand);
  row.type = DType::F32;
  Value* wide = kRows[op](row);
  return info(op).result == ResultRule::Same ? narrow_f32(row, wide, operand) : wide;
}

}  // namespace braze::codegen
