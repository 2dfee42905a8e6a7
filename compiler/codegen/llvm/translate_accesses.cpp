// translate_accesses.cpp — loads and stores of a CPU's vectors, and the addresses and guards of all
// machines.
//
// An index is split into  rest + sum(c_i * e_i) + c * lane  if that is possible; `rest` is
// evaluated once. The part of a guard that does not depend on `lane` selects the address: that of
// the element, or that of a dummy which holds the fill value. The part that depends on `lane` is a
// mask. AVX2 has no masks for small elements, and its masked stores are slow. At the tail of a
// tensor, where the guard is a count of elements, the access therefore goes through a copy on the
// stack. Full accesses then cost one branch and no mask.
#include <llvm/IR/Constants.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "compiler/codegen/llvm/translator_p.h"
#include "ir/code/vectors.h"

namespace braze::codegen {

namespace {

// Lanes are compared in 32 bits. Counts beyond this limit act like infinite ones.
constexpr int64_t kManyLanes = 1 << 20;
// Longer tails use masks: the copy has to stay in the first-level cache, and its loop has to be
// short.
constexpr int64_t kMaxTailBytes = 4096;
constexpr int64_t kMaxTailGroups = 16;

bool has_one_lane(Value* mask) {
  auto* known = llvm::dyn_cast<llvm::Constant>(mask);
  if (!known) return false;
  const auto lanes = llvm::cast<llvm::FixedVectorType>(mask->getType())->getNumElements();
  unsigned set = 0;
  for (unsigned l = 0; l < lanes; ++l) set += known->getAggregateElement(l)->isOneValue();
  return set == 1;
}

}  // namespace

// `op` is a LoadOp or a StoreOp.
template <class Op>
Translator::Access Translator::make_access(const Op& op, const ValueType& type) {
  BRAZE_CHECK(op.at.size() == 1, "memory in Kernel IR must have one coordinate");
  Access access;
  access.memory = op.memory;
  access.type = type;
  access.at = op.at[0];
  access.mask = op.guard.mask;
  access.align = std::max<int64_t>(op.align, static_cast<int64_t>(size_of(type.dtype)));
  access.cache = op.cache;
  access.rank = op.rank;
  if (!access.rank) access.address = affine(op.at[0], type.rank());
  if (access.address) access.base = address_of(op.memory, index(access.address->rest));
  for (const IndexComparison& comparison : op.guard.condition) {
    Access::Part part;
    part.comparison = comparison;
    part.by_lane =
        type.lanes > 1 && (varies_by_lane(comparison.left) || varies_by_lane(comparison.right));
    using Kind = IndexComparison::Kind;
    if (comparison.kind != Kind::Eq && comparison.kind != Kind::Ne) {
      // a < b is b - a > 0; a <= b is b - a + 1 > 0.
      const bool swap = comparison.kind == Kind::Gt || comparison.kind == Kind::Ge;
      const bool equal = comparison.kind == Kind::Le || comparison.kind == Kind::Ge;
      const Expr& low = swap ? comparison.right : comparison.left;
      const Expr& high = swap ? comparison.left : comparison.right;
      const Expr diff = high - low + Expr(equal ? 1 : 0);
      if (diff.range().min >= 1) continue;
      part.diff = affine(diff, type.rank());
      if (part.diff && !part.diff->is_constant()) part.diff.reset();
      if (part.diff) {
        part.count = part.by_lane && part.diff->lane == -1;
        if (machine_.simt && is_cut_whole(comparison, type.lanes))
          part.by_lane = part.count = false;
        if (!part.by_lane || part.count || machine_.simt) part.rest = index(part.diff->rest);
      }
    }
    access.parts.push_back(std::move(part));
  }
  return access;
}

template Translator::Access Translator::make_access(const LoadOp& op, const ValueType& type);
template Translator::Access Translator::make_access(const StoreOp& op, const ValueType& type);

Value* Translator::address_of(MemoryId memory, Value* index) {
  return address_from(memory, phase_.pointers[memory.index], index);
}

Value* Translator::address_from(MemoryId memory, Value* base, Value* index) {
  return b_.CreateGEP(memory_type(context_, kernel_[memory].dtype, 1), base, index);
}

// The address of lane 0 of an element (or of `lane`, if given).
Value* Translator::address(Access& access, int64_t i, std::optional<int32_t> lane) {
  llvm::Type* unit = memory_type(context_, kernel_[access.memory].dtype, 1);
  if (access.tail) {
    const std::vector<int64_t> at = unflatten(i, access.type.extents);
    const int64_t offset = inner_offset(access, at) + lane.value_or(0);
    Value* base = access.tail->base[static_cast<size_t>(group_of(*access.tail, at))];
    return offset == 0 ? base : b_.CreateGEP(unit, base, i64(offset));
  }
  if (access.address) {
    const int64_t offset = access.address->offset(unflatten(i, access.type.extents)) +
                           access.address->lane * lane.value_or(0);
    Value* row = row_address(access, unflatten(i, access.type.extents));
    return offset == 0 ? row : b_.CreateGEP(unit, row, i64(offset));
  }
  Position position = position_of(access.type, i);
  position.lane = lane.value_or(0);
  if (access.rank)
    return address_from(access.memory,
                        of_block(phase_.pointers[access.memory.index], *access.rank, position),
                        index(access.at, position));
  return address_of(access.memory, index(access.at, position));
}

// The base, moved along the axes whose strides are not constant.
Value* Translator::row_address(Access& access, std::vector<int64_t> at) {
  const Affine& address = *access.address;
  for (size_t d = 0; d < at.size(); ++d)
    if (address.strides[d].is_constant(0)) at[d] = 0;
  Value*& row = access.rows[at];
  if (row) return row;
  row = access.base;
  for (size_t d = 0; d < at.size(); ++d)
    if (at[d] != 0) row = address_from(access.memory, row, index(address.strides[d] * Expr(at[d])));
  return row;
}

// How the lanes of an access lie in memory, if that is the same for all elements.
std::optional<int64_t> Translator::lane_stride(const Access& access) const {
  if (access.type.lanes == 1) return 1;
  if (access.address) return access.address->lane;
  if (!varies_by_lane(access.at)) return 0;
  std::vector<ValueId> named;
  uses_.values_in(access.at, named);
  for (ValueId id : named)
    if (type_of(id).lanes > 1) return {};
  const auto coefficient = access.at.coefficient_of("lane");
  return coefficient ? coefficient->as_constant() : std::nullopt;
}

// The indices of all lanes as a vector, if a vector value determines them.
Value* Translator::gathered_index(Access& access, int64_t i) {
  if (access.address || access.type.lanes == 1) return nullptr;
  std::vector<ValueId> named;
  uses_.values_in(access.at, named);
  const bool gathers =
      std::any_of(named.begin(), named.end(), [&](ValueId id) { return type_of(id).lanes > 1; });
  if (!gathers) return nullptr;
  return index(access.at, position_of(access.type, i));
}

// --- Guards --------------------------------------------------------------------------------------

Value* Translator::exceeds(Value* value, int64_t limit) {
  if (!is_narrow(Interval::point(limit))) value = fit(value, b_.getInt64Ty());
  return b_.CreateICmpSGT(value, number(value->getType(), limit));
}

// The part of the guard that is the same for all lanes of an element; null if there is none.
Value* Translator::element_condition(Access& access, int64_t i) {
  Value* all = nullptr;
  for (Access::Part& part : access.parts) {
    if (part.by_lane) continue;
    Value* holds = nullptr;
    if (part.rest) {
      const int64_t offset = part.diff->offset(unflatten(i, access.type.extents));
      holds = exceeds(part.rest, -offset);
    } else {
      holds = compare(part.comparison, position_of(access.type, i));
    }
    all = all ? b_.CreateAnd(all, holds) : holds;
  }
  if (access.mask && type_of(access.mask).lanes == 1) {
    Value* holds = mask_element(access, i);
    all = all ? b_.CreateAnd(all, holds) : holds;
  }
  if (auto* known = llvm::dyn_cast_or_null<llvm::ConstantInt>(all); known && known->isOne())
    return nullptr;
  return all;
}

Value* Translator::mask_element(Access& access, int64_t i) {
  return element(access.mask,
                 broadcast_index(type_of(access.mask).extents, i, access.type.extents));
}

// The part of the guard that differs between lanes; null if there is none.
Value* Translator::lane_mask(Access& access, int64_t i) {
  const int32_t lanes = access.type.lanes;
  Value* all = nullptr;
  for (Access::Part& part : access.parts) {
    if (!part.by_lane) continue;
    Value* holds = nullptr;
    if (part.count) {
      holds = count_mask(part, part.diff->offset(unflatten(i, access.type.extents)), lanes);
    } else {
      holds = compare(part.comparison, position_of(access.type, i));
    }
    all = all ? b_.CreateAnd(all, holds) : holds;
  }
  if (access.mask && type_of(access.mask).lanes > 1) {
    Value* holds = mask_element(access, i);
    all = all ? b_.CreateAnd(all, holds) : holds;
  }
  if (auto* known = llvm::dyn_cast_or_null<llvm::Constant>(all); known && known->isAllOnesValue())
    return nullptr;
  return all;
}

// lane < count + offset
Value* Translator::count_mask(Access::Part& part, int64_t offset, int32_t lanes) {
  if (auto* count = llvm::dyn_cast<llvm::ConstantInt>(part.rest)) {
    llvm::SmallVector<llvm::Constant*, 64> flags;
    for (int32_t l = 0; l < lanes; ++l)
      flags.push_back(b_.getInt1(l < count->getSExtValue() + offset));
    return llvm::ConstantVector::get(flags);
  }
  if (!part.many) {
    Value* few = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, part.rest, i64(kManyLanes));
    few = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, few, i64(-kManyLanes));
    part.many = splat(b_.CreateTrunc(few, b_.getInt32Ty()), lanes);
  }
  // An offset beyond all counts is treated as if it were exact.
  const int64_t from = std::clamp<int64_t>(-offset, -4 * kManyLanes, 4 * kManyLanes);
  return b_.CreateICmpSGT(part.many, lane_numbers(b_.getInt32Ty(), lanes, from));
}

// The lane's bit of all guards; null if there is none.
Value* Translator::lane_condition(const Access& access, Value* condition, Value* mask,
                                  int32_t lane) {
  if (!mask) return condition;
  Value* bit = lane_of(mask, access.type.lanes, lane);
  return condition ? b_.CreateAnd(condition, bit) : bit;
}

// `fill` in memory, for loads that must not happen.
Value* Translator::fill_address(const ValueType& type, uint64_t fill) {
  llvm::Constant* value = literal(context_, type.dtype, fill, type.lanes);
  if (type.dtype == DType::Bool) {
    value = llvm::ConstantInt::get(context_, llvm::APInt(8, fill ? 1 : 0));
    if (type.lanes > 1)
      value = llvm::ConstantVector::getSplat(
          llvm::ElementCount::getFixed(static_cast<unsigned>(type.lanes)), value);
  }
  llvm::GlobalVariable*& global = fills_[value];
  if (!global) {
    global = new llvm::GlobalVariable(*module_, value->getType(), true,
                                      llvm::GlobalValue::PrivateLinkage, value, "fill");
    global->setAlignment(llvm::Align(64));
  }
  return global;
}

llvm::MDNode* Translator::unlikely() {
  return llvm::MDBuilder(context_).createUnlikelyBranchWeights();
}

// Memory for stores that must not happen: 512 bytes of stack hold the widest vector.
Value* Translator::dummy() {
  if (!dummy_) {
    llvm::IRBuilder<> at(entry_, entry_->begin());
    llvm::AllocaInst* made =
        at.CreateAlloca(llvm::ArrayType::get(at.getInt8Ty(), 512), nullptr, "dummy");
    made->setAlignment(llvm::Align(64));
    dummy_ = made;
  }
  return dummy_;
}

// --- Tails ---------------------------------------------------------------------------------------

int64_t Translator::group_of(const Tail& tail, std::vector<int64_t> at) {
  for (size_t d = 0; d < at.size(); ++d)
    if (tail.inside[d]) at[d] = 0;
  return flatten(at, tail.groups);
}

int64_t Translator::inner_offset(const Access& access, std::vector<int64_t> at) {
  for (size_t d = 0; d < at.size(); ++d)
    if (!access.tail->inside[d]) at[d] = 0;
  return access.address->offset(at);
}

int64_t Translator::first_of_group(const Access& access, const Tail& tail, int64_t g) {
  return flatten(unflatten(g, tail.groups), access.type.extents);
}

// The tail of an access whose guard is one count, in the order of its places in memory; null if it
// has none.
std::shared_ptr<Translator::Tail> Translator::find_tail(const Access& access) const {
  if (machine_.avx512 || machine_.simt || !access.address || access.address->lane != 1 ||
      access.mask)
    return nullptr;
  if (access.type.lanes == 1) return nullptr;
  const std::vector<int64_t>& extents = access.type.extents;
  auto tail = std::make_shared<Tail>();
  tail->groups = extents;
  tail->inside.resize(extents.size());
  const Access::Part* count = nullptr;
  for (const Access::Part& part : access.parts) {
    if (!part.by_lane) continue;
    if (count || !part.count || llvm::isa<llvm::Constant>(part.rest)) return nullptr;
    count = &part;
  }
  if (!count) return nullptr;
  tail->span = access.type.lanes;
  for (size_t d = 0; d < extents.size(); ++d) {
    const int64_t c = access.address->axes[d];
    if (extents[d] == 1 || count->diff->axes[d] == 0) continue;
    if (c < 0 || count->diff->axes[d] != -c || !access.address->strides[d].is_constant(0))
      return nullptr;
    tail->inside[d] = true;
    tail->groups[d] = 1;
    tail->span += c * (extents[d] - 1);
  }
  for (const Access::Part& part : access.parts) {
    if (part.by_lane) continue;
    if (!part.diff) return nullptr;
    for (size_t d = 0; d < extents.size(); ++d)
      if (tail->inside[d] && part.diff->axes[d] != 0) return nullptr;
  }
  const int64_t rows =
      std::accumulate(tail->groups.begin(), tail->groups.end(), int64_t{1}, std::multiplies<>());
  const auto bytes = static_cast<int64_t>(size_of(access.type.dtype));
  if (rows * tail->span * bytes > kMaxTailBytes || rows > kMaxTailGroups) return nullptr;
  tail->count = count->rest;
  return tail;
}

// for (t = 0; t < count; ++t): each(group, t, place t of the group in the copy) for all groups.
template <class F>
void Translator::copy_tail(const Access& access, const Tail& tail, Value* count, const F& each) {
  llvm::Type* unit = memory_type(context_, access.type.dtype, 1);
  BasicBlock *before = b_.GetInsertBlock(), *loop = block("copy"), *after = block("copied");
  b_.CreateCondBr(b_.CreateICmpSGT(count, i64(0)), loop, after);
  b_.SetInsertPoint(loop);
  auto* t = b_.CreatePHI(b_.getInt64Ty(), 2, "t");
  t->addIncoming(i64(0), before);
  for (size_t g = 0; g < tail.memory.size(); ++g) {
    Value* place =
        b_.CreateGEP(unit, tail.copy, b_.CreateNSWAdd(t, i64(static_cast<int64_t>(g) * tail.span)));
    each(static_cast<int64_t>(g), t, place);
  }
  Value* next = b_.CreateNSWAdd(t, i64(1));
  t->addIncoming(next, loop);
  b_.CreateCondBr(b_.CreateICmpSLT(next, count), loop, after);
  b_.SetInsertPoint(after);
}

// Chooses where the access finds its places and, for a load, fills the copy.
void Translator::open_tail(Access& access, std::optional<uint64_t> fill) {
  const std::shared_ptr<Tail> tail = find_tail(access);
  if (!tail) return;
  const DType dtype = access.type.dtype;
  llvm::Type* unit = memory_type(context_, dtype, 1);
  const int64_t rows =
      std::accumulate(tail->groups.begin(), tail->groups.end(), int64_t{1}, std::multiplies<>());
  {
    llvm::IRBuilder<> at(entry_, entry_->begin());
    llvm::AllocaInst* made = at.CreateAlloca(
        llvm::ArrayType::get(unit, static_cast<uint64_t>(rows * tail->span)), nullptr, "copy");
    made->setAlignment(llvm::Align(64));
    tail->copy = made;
  }
  // The guards that do not depend on a lane choose the address of each group, as elsewhere.
  for (int64_t g = 0; g < rows; ++g) {
    const int64_t offset = access.address->offset(unflatten(g, tail->groups));
    Value* row = row_address(access, unflatten(g, tail->groups));
    tail->memory.push_back(offset == 0 ? row : b_.CreateGEP(unit, row, i64(offset)));
  }
  tail->partial = b_.CreateICmpSLT(tail->count, i64(tail->span));
  if (fill) {
    BasicBlock *before = b_.GetInsertBlock(), *cut = block("cut"), *joined = block("joined");
    b_.CreateCondBr(tail->partial, cut, joined, unlikely());
    b_.SetInsertPoint(cut);
    Value* blank = to_memory(literal(context_, dtype, *fill, 1), dtype, 1);
    copy_tail(access, *tail, i64(tail->span),
              [&](int64_t, Value*, Value* place) { b_.CreateStore(blank, place); });
    copy_tail(access, *tail, tail->count, [&](int64_t g, Value* t, Value* place) {
      Value* from = b_.CreateGEP(unit, tail->memory[static_cast<size_t>(g)], t);
      if (Value* holds = element_condition(access, first_of_group(access, *tail, g)))
        from = b_.CreateSelect(holds, from, fill_address({dtype, 1, {}}, *fill));
      b_.CreateStore(b_.CreateLoad(unit, from), place);
    });
    std::vector<Value*> rows_of_copy;
    for (int64_t g = 0; g < rows; ++g)
      rows_of_copy.push_back(b_.CreateGEP(unit, tail->copy, i64(g * tail->span)));
    BasicBlock* end = b_.GetInsertBlock();
    b_.CreateBr(joined);
    b_.SetInsertPoint(joined);
    for (size_t g = 0; g < rows_of_copy.size(); ++g) {
      auto* base = b_.CreatePHI(b_.getPtrTy(), 2);
      base->addIncoming(tail->memory[g], before);
      base->addIncoming(rows_of_copy[g], end);
      tail->base.push_back(base);
    }
  } else {
    for (int64_t g = 0; g < rows; ++g) {
      Value* row = b_.CreateGEP(unit, tail->copy, i64(g * tail->span));
      tail->base.push_back(
          b_.CreateSelect(tail->partial, row, tail->memory[static_cast<size_t>(g)]));
    }
  }
  std::erase_if(access.parts, [](const Access::Part& part) { return part.by_lane; });
  // Only the first place of the copy on the stack has a known alignment.
  access.align = static_cast<int64_t>(size_of(dtype));
  access.tail = tail;
}

// After the stores, the contents of the copy go to memory.
void Translator::close_tail(Access& access) {
  const Tail& tail = *access.tail;
  BasicBlock *cut = block("cut"), *joined = block("joined");
  b_.CreateCondBr(tail.partial, cut, joined, unlikely());
  b_.SetInsertPoint(cut);
  llvm::Type* unit = memory_type(context_, access.type.dtype, 1);
  copy_tail(access, tail, tail.count, [&](int64_t g, Value* t, Value* place) {
    Value* to = b_.CreateGEP(unit, tail.memory[static_cast<size_t>(g)], t);
    if (Value* holds = element_condition(access, first_of_group(access, tail, g)))
      to = b_.CreateSelect(holds, to, dummy());
    b_.CreateStore(b_.CreateLoad(unit, place), to);
  });
  b_.CreateBr(joined);
  b_.SetInsertPoint(joined);
}

// --- Loads ---------------------------------------------------------------------------------------

Value* Translator::emit_load(const LoadOp& op, const ValueType& type, int64_t i,
                             std::shared_ptr<Access>& access) {
  if (!access) {
    access = std::make_shared<Access>(make_access(op, type));
    open_tail(*access, op.fill);
  }
  return load_element(*access, op.fill, i);
}

Value* Translator::load_element(Access& access, uint64_t fill, int64_t i) {
  const ValueType& type = access.type;
  const auto stride = lane_stride(access);
  if (stride == 0 && type.lanes > 1) {
    // All lanes have one address, so a scalar is loaded and splat. If a mask differs between lanes,
    // a select applies it afterwards.
    Value* mask = lane_mask(access, i);
    Value* condition = element_condition(access, i);
    if (mask) {
      Value* any = b_.CreateOrReduce(mask);
      condition = condition ? b_.CreateAnd(condition, any) : any;
    }
    Value* value = splat(load_scalar(access, fill, address(access, i), condition), type.lanes);
    return mask ? b_.CreateSelect(mask, value, literal(context_, type.dtype, fill, type.lanes))
                : value;
  }
  if (stride == 1) return load_vector(access, fill, i);
  if (const auto axis = transposed_axis(access)) return load_transposed(access, fill, *axis, i);
  return load_lanes(access, fill, i);
}

// The axis of a load whose elements lie together in memory where lanes do not, so that vectors can
// be loaded along it and transposed.
std::optional<size_t> Translator::transposed_axis(const Access& access) const {
  constexpr int32_t kLeastLanes = 4;
  const int32_t lanes = access.type.lanes;
  if (!access.address || access.tail || access.mask || lanes < kLeastLanes ||
      !llvm::isPowerOf2_32(static_cast<uint32_t>(lanes)))
    return {};
  // Guards say how many rows or how many elements of a row there are.
  const auto fits = [&](const Access::Part& part, size_t d) {
    if (!part.rest || part.diff->lane < -1 || part.diff->lane > 0) return false;
    const int64_t along = part.diff->axes[d];
    return along == 0 || (along == -1 && has_masked_access(access.type.dtype));
  };
  for (size_t d = 0; d < access.type.extents.size(); ++d)
    if (access.address->axes[d] == 1 && access.address->strides[d].is_constant(0) &&
        access.type.extents[d] % lanes == 0 &&
        std::ranges::all_of(access.parts, [&](const auto& part) { return fits(part, d); }))
      return d;
  return {};
}

// Element i, from a square: as many elements as there are lanes, along the axis.
Value* Translator::load_transposed(Access& access, uint64_t fill, size_t axis, int64_t i) {
  const ValueType& type = access.type;
  std::vector<int64_t> first = unflatten(i, type.extents);
  const int64_t number = first[axis] % type.lanes;
  first[axis] -= number;
  std::vector<Value*>& square = access.squares[first];
  if (square.empty()) {
    for (int32_t l = 0; l < type.lanes; ++l)
      square.push_back(load_row(access, fill, axis, first, l));
    transpose(square);
  }
  return square[static_cast<size_t>(number)];
}

// One lane of the elements from `first` along the axis, as a vector.
Value* Translator::load_row(Access& access, uint64_t fill, size_t axis,
                            const std::vector<int64_t>& first, int32_t lane) {
  const ValueType& type = access.type;
  Value *condition = nullptr, *mask = nullptr;
  const auto add = [&](Value*& all, Value* holds) { all = all ? b_.CreateAnd(all, holds) : holds; };
  for (const Access::Part& part : access.parts) {
    const int64_t offset = part.diff->offset(first) + part.diff->lane * lane;
    if (part.diff->axes[axis] == 0) {
      add(condition, exceeds(part.rest, -offset));
    } else {
      Value* count = splat(b_.CreateAdd(fit(part.rest, b_.getInt64Ty()), i64(offset)), type.lanes);
      add(mask, b_.CreateICmpSGT(count, lane_numbers(b_.getInt64Ty(), type.lanes, 0)));
    }
  }
  Value* at = address(access, flatten(first, type.extents), lane);
  if (condition) at = b_.CreateSelect(condition, at, fill_address(type, fill));
  llvm::Type* memory = memory_type(context_, type.dtype, type.lanes);
  llvm::Instruction* load;
  if (mask)
    load = b_.CreateMaskedLoad(
        memory, at, element_alignment(access), mask,
        to_memory(literal(context_, type.dtype, fill, type.lanes), type.dtype, type.lanes));
  else
    load = b_.CreateAlignedLoad(memory, at, element_alignment(access));
  annotate(load, access.memory);
  return from_memory(load, type.dtype);
}

// Transposes a square of vectors. Each of log2(n) rounds interleaves the vectors of the first half
// with those of the second half, which moves the highest bit of a vector's number behind the lowest
// bit of the lane's.
void Translator::transpose(std::vector<Value*>& square) {
  const size_t n = square.size();
  std::vector<int> low(n), high(n);
  for (size_t l = 0; l < n; ++l) {
    low[l] = static_cast<int>(l / 2 + l % 2 * n);
    high[l] = static_cast<int>(low[l] + n / 2);
  }
  for (size_t round = 1; round < n; round *= 2) {
    std::vector<Value*> next;
    for (size_t k = 0; k < n / 2; ++k)
      for (const auto& lanes : {low, high})
        next.push_back(b_.CreateShuffleVector(square[k], square[k + n / 2], lanes));
    square = std::move(next);
  }
}

Value* Translator::load_scalar(Access& access, uint64_t fill, Value* at, Value* condition) {
  const DType dtype = access.type.dtype;
  if (condition) at = b_.CreateSelect(condition, at, fill_address({dtype, 1, {}}, fill));
  auto* load = b_.CreateAlignedLoad(memory_type(context_, dtype, 1), at, element_alignment(access));
  annotate(load, access.memory, access.tail != nullptr);
  return from_memory(load, dtype);
}

Value* Translator::load_vector(Access& access, uint64_t fill, int64_t i) {
  const ValueType& type = access.type;
  Value* condition = element_condition(access, i);
  Value* mask = lane_mask(access, i);
  if (mask && !has_masked_access(type.dtype)) return load_lanes(access, fill, i);
  Value* at = address(access, i);
  if (condition) at = b_.CreateSelect(condition, at, fill_address(type, fill));
  llvm::Type* memory = memory_type(context_, type.dtype, type.lanes);
  if (!mask) {
    auto* load = b_.CreateAlignedLoad(memory, at, alignment(access));
    annotate(load, access.memory, access.tail != nullptr);
    if (!condition && !access.tail) fetch_ahead(access, at);
    return from_memory(load, type.dtype);
  }
  Value* other = to_memory(literal(context_, type.dtype, fill, type.lanes), type.dtype, type.lanes);
  auto* load = b_.CreateMaskedLoad(memory, at, alignment(access), mask, other);
  annotate(load, access.memory, access.tail != nullptr);
  return from_memory(load, type.dtype);
}

// Whether a turn of the loop computes so much with what it loads that prefetches cost no time.
bool Translator::computes_long(const ForOp& loop) const {
  constexpr int64_t kOperations = 4;  // for each element that is loaded
  int64_t loaded = 0, computed = 0;
  for (const Statement& statement : loop.body->statements)
    for (const ValueId result : statement.results) {
      const ValueType& type = type_of(result);
      const bool loads = std::holds_alternative<LoadOp>(statement.op);
      if (type.lanes > 1) (loads ? loaded : computed) += type.count() * type.lanes;
    }
  return computed >= kOperations * loaded;
}

// Asks for the memory lines that the same load reads a few turns later, if each turn of a loop that
// sums reads new lines. The processor's own prefetcher follows such loads too late, and not beyond
// a page. It does not matter if the lines lie outside the array. Lines that are far from each other
// share a few sets of the first-level cache, so they are fetched only to the second.
void Translator::fetch_ahead(const Access& access, Value* at) {
  constexpr int64_t kLineBytes = 64, kFarBytes = 1024;
  constexpr int64_t kTurnsOfInnermost = 16, kTurnsOfOther = 2;
  if (machine_.simt || sums_.empty() || !computes_long(*sums_.back())) return;
  const auto bytes = static_cast<int64_t>(size_of(access.type.dtype));
  int64_t turns = kTurnsOfInnermost;
  for (size_t i = sums_.size(); i-- > 0; turns = kTurnsOfOther) {
    const ForOp& loop = *sums_[i];
    if (!access.at.uses(loop.symbol)) continue;
    const Expr later = Expr::index(loop.symbol, loop.high) + loop.step * Expr(turns);
    const auto elements = (access.at.substitute(loop.symbol, later) - access.at).as_constant();
    if (!elements) return;
    const int64_t distance = *elements * bytes, turn = distance / turns;
    if (turn < kLineBytes) return;
    for (int64_t line = 0; line < access.type.lanes * bytes; line += kLineBytes) {
      Value* ahead =
          b_.CreateConstGEP1_64(b_.getInt8Ty(), at, static_cast<uint64_t>(distance + line));
      b_.CreateIntrinsic(
          b_.getVoidTy(), llvm::Intrinsic::prefetch,
          {ahead, b_.getInt32(0), b_.getInt32(turn < kFarBytes ? 3 : 2), b_.getInt32(1)});
    }
    return;
  }
}

// Where the lanes that are loaded lie, counted from the first place in memory; nothing if that is
// not known here, or if there are too few lanes for the places between them.
std::optional<Translator::Window> Translator::find_window(const Access& access, Value* mask,
                                                          int64_t i) const {
  const int32_t lanes = access.type.lanes;
  if (lanes == 1 || access.rank || access.tail || (mask && !llvm::isa<llvm::Constant>(mask)))
    return {};
  std::vector<ValueId> named;
  uses_.values_in(access.at, named);
  if (std::ranges::any_of(named, [&](ValueId id) { return type_of(id).lanes > 1; })) return {};
  Window out;
  std::optional<Expr> origin;
  std::vector<std::optional<int64_t>> offsets(static_cast<size_t>(lanes));
  int64_t least = 0, greatest = 0, loaded = 0;
  std::unordered_map<std::string, Expr> position;
  const std::vector<int64_t> numbers = unflatten(i, access.type.extents);
  for (size_t d = 0; d < numbers.size(); ++d)
    position.emplace("e" + std::to_string(d), Expr(numbers[d]));
  for (int32_t l = 0; l < lanes; ++l) {
    if (mask && llvm::cast<llvm::Constant>(mask)->getAggregateElement(unsigned(l))->isNullValue())
      continue;
    position.insert_or_assign("lane", Expr(l));
    const Expr at = access.at.substitute(position);
    ++loaded;
    if (!origin) {
      origin = at;
      out.first = l;
    }
    const auto offset = (at - *origin).as_constant();
    if (!offset) return {};
    offsets[static_cast<size_t>(l)] = offset;
    least = std::min(least, *offset);
    greatest = std::max(greatest, *offset);
  }
  out.places = greatest - least + 1;
  // A vector takes a load and up to two shuffles. One place makes no vector.
  if (out.places < 2 || (out.places + lanes - 1) / lanes * 2 > loaded) return {};
  out.least = least;
  for (const auto& offset : offsets)
    out.of_lane.push_back(offset ? static_cast<int>(*offset - least) : -1);
  return out;
}

// Loads everything between the lanes as vectors, which a shuffle puts in order. Both ends of the
// window are lanes that are loaded, so nothing outside the tensor is read.
Value* Translator::load_window(Access& access, const Window& window, uint64_t fill, Value* mask,
                               int64_t i) {
  const ValueType& type = access.type;
  Value* condition = element_condition(access, i);
  llvm::Type* unit = memory_type(context_, type.dtype, 1);
  Value* first = address(access, i, window.first);
  const auto width = static_cast<int32_t>(
      std::min<int64_t>(type.lanes, int64_t(std::bit_floor(uint64_t(window.places)))));
  const auto load_at = [&](int64_t place) {
    Value* at = b_.CreateGEP(unit, first, i64(window.least + place));
    if (condition) at = b_.CreateSelect(condition, at, fill_address(type, fill));
    auto* load = b_.CreateAlignedLoad(memory_type(context_, type.dtype, width), at,
                                      element_alignment(access));
    annotate(load, access.memory);
    return load;
  };
  Value* out = nullptr;
  for (int64_t place = 0; place < window.places; place += width) {
    // The last vector ends where the window does.
    const int64_t from = std::min(place, window.places - width);
    Value* part = load_at(from);
    // The lanes of `out` stay, and those in this part join them.
    std::vector<int> numbers;
    for (int32_t l = 0; l < type.lanes; ++l) {
      const int at = window.of_lane[static_cast<size_t>(l)];
      const bool is_here = at >= place && at < place + width;
      const int number = static_cast<int>(at - from);
      if (!out)
        numbers.push_back(is_here ? number : -1);
      else
        numbers.push_back(is_here ? type.lanes + number : at >= 0 && at < place ? l : -1);
    }
    if (out && width < type.lanes) {
      std::vector<int> all(static_cast<size_t>(type.lanes), -1);
      std::iota(all.begin(), all.begin() + width, 0);
      part = b_.CreateShuffleVector(part, all);
    }
    out = out ? b_.CreateShuffleVector(out, part, numbers) : b_.CreateShuffleVector(part, numbers);
  }
  out = from_memory(out, type.dtype);
  return mask ? b_.CreateSelect(mask, out, literal(context_, type.dtype, fill, type.lanes)) : out;
}

// Scalar loads, lane by lane: far apart, gathered, or masked if the machine has no masks.
Value* Translator::load_lanes(Access& access, uint64_t fill, int64_t i) {
  const ValueType& type = access.type;
  Value* mask = lane_mask(access, i);
  if (const auto window = find_window(access, mask, i))
    return load_window(access, *window, fill, mask, i);
  Value* condition = element_condition(access, i);
  Value* indices = gathered_index(access, i);
  Value* out = llvm::PoisonValue::get(codegen::register_type(context_, type.dtype, type.lanes));
  for (int32_t l = 0; l < type.lanes; ++l) {
    Value* at = indices ? address_of(access.memory, lane_of(indices, type.lanes, l))
                        : address(access, i, l);
    Value* value = load_scalar(access, fill, at, lane_condition(access, condition, mask, l));
    out = with_lane(out, type.lanes, l, value);
  }
  return out;
}

// --- Stores --------------------------------------------------------------------------------------

void Translator::emit_store(const StoreOp& op) {
  force_loads([&](MemoryId memory) { return memory == op.memory; });
  ValueType type{kernel_[op.memory].dtype, 1, {}};
  if (!op.value.is_literal()) type = type_of(op.value.value);
  Access access = make_access(op, type);
  if (machine_.simt) return store_elements(access, op.value);
  const int64_t whole = std::min<int64_t>(type.lanes * static_cast<int64_t>(size_of(type.dtype)),
                                          machine_.vector_bytes);
  stream_ = op.cache == CacheHint::Stream && !op.guard && lane_stride(access) == 1 &&
            type.lanes > 1 && op.align >= whole;
  streams_ |= stream_;
  open_tail(access, {});
  for (int64_t i = 0; i < type.count(); ++i)
    store_element(access, element(op.value, i, type.lanes), i);
  if (access.tail) close_tail(access);
}

void Translator::store_element(Access& access, Value* value, int64_t i) {
  const ValueType& type = access.type;
  const auto stride = lane_stride(access);
  Value* condition = element_condition(access, i);
  Value* mask = lane_mask(access, i);
  // A masked store of one lane is a scalar store. (If it follows a narrowing, LLVM 22 makes it a
  // store of the whole wide element.)
  if (stride != 1 || (mask && (!has_masked_access(type.dtype) || has_one_lane(mask))))
    return store_lanes(access, value, i, condition, mask);
  Value* at = address(access, i);
  if (condition) at = b_.CreateSelect(condition, at, dummy());
  Value* bits = to_memory(value, type.dtype, type.lanes);
  if (mask) {
    annotate(b_.CreateMaskedStore(bits, at, alignment(access), mask), access.memory);
    return;
  }
  if (stream_) return store_past_caches(access, bits, at);
  annotate(b_.CreateAlignedStore(bits, at, alignment(access)), access.memory);
}

// Emits one store for each register of the machine. A register may be narrower than the vector.
void Translator::store_past_caches(const Access& access, Value* bits, Value* at) {
  const auto bytes = static_cast<int64_t>(size_of(access.type.dtype));
  const auto lanes =
      static_cast<int32_t>(std::min<int64_t>(access.type.lanes, machine_.vector_bytes / bytes));
  const llvm::Align align = std::min(alignment(access), llvm::Align(machine_.vector_bytes));
  for (int32_t first = 0; first < access.type.lanes; first += lanes) {
    Value* part = bits;
    if (lanes < access.type.lanes) {
      llvm::SmallVector<int, 64> numbers(static_cast<size_t>(lanes));
      std::iota(numbers.begin(), numbers.end(), first);
      part = b_.CreateShuffleVector(bits, numbers);
    }
    // LLVM could merge the store with the instruction that makes the value. The merged store would
    // go through the caches.
    if (bytes < 8 && lanes * bytes >= 16) part = opaque(part);
    auto* store = b_.CreateAlignedStore(
        part, b_.CreateConstGEP1_64(b_.getInt8Ty(), at, static_cast<uint64_t>(first * bytes)),
        align);
    annotate(store, access.memory);
    store->setMetadata(llvm::LLVMContext::MD_nontemporal,
                       llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(b_.getInt32(1))));
  }
}

// Hides from LLVM how the value was made, by inline assembly that returns it in a register. A store
// would otherwise merge with a narrowing before it.
Value* Translator::opaque(Value* value) {
  auto* type = llvm::FunctionType::get(value->getType(), {value->getType()}, false);
  auto* call =
      b_.CreateCall(llvm::InlineAsm::get(type, "", "=v,0", /*hasSideEffects=*/false), value);
  locate_assembly(*call);
  return call;
}

void Translator::store_lanes(Access& access, Value* value, int64_t i, Value* condition,
                             Value* mask) {
  const ValueType& type = access.type;
  Value* indices = gathered_index(access, i);
  for (int32_t l = 0; l < type.lanes; ++l) {
    Value* at = indices ? address_of(access.memory, lane_of(indices, type.lanes, l))
                        : address(access, i, l);
    Value* holds = lane_condition(access, condition, mask, l);
    if (auto* known = llvm::dyn_cast_or_null<llvm::Constant>(holds); known && known->isNullValue())
      continue;
    if (holds) at = b_.CreateSelect(holds, at, dummy());
    Value* bits = to_memory(lane_of(value, type.lanes, l), type.dtype, 1);
    annotate(b_.CreateAlignedStore(bits, at, element_alignment(access)), access.memory);
  }
}

void Translator::emit_atomic(const AtomicOp& op, const Statement& s) {
  force_loads([&](MemoryId memory) { return !is_constant(memory); });
  Value* at = address_of(op.memory, index(op.at));
  const auto scope = machine_.simt ? context_.getOrInsertSyncScopeID("device")
                                   : llvm::SyncScope::ID{llvm::SyncScope::System};
  Value* old = b_.CreateAtomicRMW(llvm::AtomicRMWInst::Add, at, element(op.value, 0, 1),
                                  llvm::Align(size_of(kernel_[op.memory].dtype)),
                                  llvm::AtomicOrdering::AcquireRelease, scope);
  slots_[s.results[0].index] = {nullptr, {old}, 0, nullptr};
}

}  // namespace braze::codegen
