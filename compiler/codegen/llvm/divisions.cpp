// divisions.cpp — division of 32-bit integers by constants, for GPUs (see constant_division.h).
#include <llvm/IR/IRBuilder.h>

#include <bit>

#include "compiler/codegen/constant_division.h"
#include "compiler/codegen/llvm/llvm_p.h"

namespace braze::codegen {
namespace {

llvm::Value* high_half(llvm::IRBuilderBase& b, llvm::Value* x, uint32_t factor) {
  llvm::Value* wide = b.CreateZExt(x, b.getInt64Ty());
  llvm::Value* product = b.CreateMul(wide, b.getInt64(factor), "", /*HasNUW=*/true);
  return b.CreateTrunc(b.CreateLShr(product, 32), b.getInt32Ty());
}

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

}  // namespace braze::codegen
