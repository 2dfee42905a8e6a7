// translate_values.cpp — elements of values, index expressions.
//
// Index expressions are computed in 64 bits, and on a GPU in 32 bits where their interval fits. The
// width of a value is index_type() of its expression; fit() changes it.
#include <llvm/IR/Constants.h>

#include "compiler/codegen/constant_division.h"
#include "compiler/codegen/llvm/translator_p.h"

namespace braze::codegen {

namespace {

// Sums of more sizes are computed once.
constexpr size_t kFewSizes = 4;

std::optional<size_t> axis_symbol(const std::string& name) {
  if (name.size() < 2 || name[0] != 'e') return {};
  size_t axis = 0;
  for (char c : std::string_view(name).substr(1)) {
    if (c < '0' || c > '9') return {};
    axis = axis * 10 + static_cast<size_t>(c - '0');
  }
  return axis;
}

// Whether the ranges of threads and loops prove a comparison at an element of an array.
bool holds_always(const IndexComparison& comparison, const Position& position) {
  std::unordered_map<std::string, Expr> at;
  for (size_t i = 0; i < position.at.size(); ++i)
    at.emplace("e" + std::to_string(i), Expr(position.at[i]));
  return braze::holds_always(
      {comparison.left.substitute(at), comparison.kind, comparison.right.substitute(at)});
}

}  // namespace

Value* Translator::row(ElementwiseOp op, DType operand, DType result, int32_t lanes,
                       std::initializer_list<Value*> operands) {
  return emit_row(b_, machine_, op, operand, result, lanes,
                  std::span<Value* const>(operands.begin(), operands.size()));
}

// bool is a byte in memory; every byte except 0 reads as true.
Value* Translator::from_memory(Value* value, DType dtype) {
  if (dtype != DType::Bool) return value;
  return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
}

Value* Translator::to_memory(Value* value, DType dtype, int32_t lanes) {
  return dtype == DType::Bool ? b_.CreateZExt(value, memory_type(context_, dtype, lanes)) : value;
}

llvm::Constant* Translator::memory_literal(DType dtype, uint64_t bits, int32_t lanes) {
  if (dtype != DType::Bool) return literal(context_, dtype, bits, lanes);
  return llvm::ConstantInt::get(memory_type(context_, dtype, lanes), bits ? 1 : 0);
}

// --- Elements ------------------------------------------------------------------------------------

Value* Translator::element(ValueId id, int64_t i) {
  Slot& slot = slots_[id.index];
  if (Value* value = slot.elements[static_cast<size_t>(i)]) return value;
  BRAZE_CHECK(slot.statement, "%" + kernel_[id].name + " is used where it is not defined");
  Value* value = emit_element(*slot.statement, type_of(id), i, slot.access);
  return slots_[id.index].elements[static_cast<size_t>(i)] = value;
}

Value* Translator::element(const ValueOperand& o, int64_t i, int32_t lanes) {
  return o.is_literal() ? literal(context_, o.dtype, o.bits, lanes) : element(o.value, i);
}

// The element of `o` that stands for position `i` of an array of `extents`.
Value* Translator::broadcast_element(const ValueOperand& o, int64_t i,
                                     const std::vector<int64_t>& extents, int32_t lanes) {
  if (o.is_literal()) return literal(context_, o.dtype, o.bits, lanes);
  return element(o.value, broadcast_index(type_of(o.value).extents, i, extents));
}

int64_t Translator::broadcast_index(const std::vector<int64_t>& from, int64_t i,
                                    const std::vector<int64_t>& extents) {
  if (from == extents) return i;
  return braze::broadcast_index(from, unflatten(i, extents));
}

std::vector<Value*> Translator::elements_of(const ValueOperand& o, const ValueType& type) {
  std::vector<Value*> out;
  for (int64_t i = 0; i < type.count(); ++i) out.push_back(element(o, i, type.lanes));
  return out;
}

void Translator::bind(ValueId id, std::vector<Value*> elements) {
  slots_[id.index] = {nullptr, std::move(elements), 0, nullptr};
}

Value* Translator::emit_element(const Statement& s, const ValueType& type, int64_t i,
                                std::shared_ptr<Access>& access) {
  if (const auto* op = s.as<RowOp>()) {
    std::vector<Value*> operands;
    for (const ValueOperand& o : op->operands)
      operands.push_back(broadcast_element(o, i, type.extents, type.lanes));
    return emit_row(b_, machine_, op->op, dtype_of(op->operands.back()), type.dtype, type.lanes,
                    operands);
  }
  if (const auto* op = s.as<LoadOp>()) return emit_load(*op, type, i, access);
  if (const auto* op = s.as<ConstOp>()) return literal(context_, type.dtype, op->bits, type.lanes);
  if (const auto* op = s.as<IndexOp>()) return emit_iota(op->value, type, i);
  if (const auto* op = s.as<TestOp>()) {
    const Position position = position_of(type, i);
    Value* all = nullptr;
    for (const IndexComparison& comparison : op->condition) {
      Value* holds = compare(comparison, position);
      if (!holds->getType()->isVectorTy()) holds = splat(holds, type.lanes);
      all = all ? b_.CreateAnd(all, holds) : holds;
    }
    return all ? all : literal(context_, DType::Bool, 1, type.lanes);
  }
  if (const auto* op = s.as<SplatOp>()) {
    if (op->operand.is_literal()) return element(op->operand, i, type.lanes);
    return splat(broadcast_element(op->operand, i, type.extents, 1), type.lanes);
  }
  if (const auto* op = s.as<FoldOp>()) return emit_fold(*op, type, i);
  if (const auto* op = s.as<LaneOp>()) {
    const int32_t lanes = lanes_of(op->operand);
    return lane_of(element(op->operand, i, lanes), lanes, static_cast<int32_t>(op->lane));
  }
  if (const auto* op = s.as<ShuffleOp>()) return emit_shuffle(*op, i);
  if (const auto* op = s.as<GetElementOp>())
    return element(op->operand, flatten(op->at, type_of(op->operand.value).extents), type.lanes);
  if (const auto* op = s.as<PackOp>())
    return element(op->operands[static_cast<size_t>(i)], 0, type.lanes);
  if (const auto* op = s.as<MovementOp>()) return emit_view(*op, type, i);
  if (s.as<UndefOp>()) return llvm::UndefValue::get(register_type(type));
  if (const auto* op = s.as<RegroupOp>()) return emit_regroup(op->operand, type, i);
  not_kernel_ir(kernel_, s, "this operation has no translation to LLVM");
}

Value* Translator::emit_view(const MovementOp& op, const ValueType& type, int64_t i) {
  const std::vector<int64_t>& from = type_of(op.operand.value).extents;
  std::vector<int64_t> at = unflatten(i, type.extents);
  switch (op.kind) {
    case MovementKind::Reshape:
      return element(op.operand.value, i);
    case MovementKind::Broadcast:
      return broadcast_element(op.operand, i, type.extents, type.lanes);
    case MovementKind::Slice:
      for (size_t d = 0; d < at.size(); ++d) at[d] += op.arguments[d];
      return element(op.operand.value, flatten(at, from));
    case MovementKind::Transpose: {
      // Result axis d is operand axis arguments[d].
      std::vector<int64_t> source(at.size());
      for (size_t d = 0; d < at.size(); ++d) source[static_cast<size_t>(op.arguments[d])] = at[d];
      return element(op.operand.value, flatten(source, from));
    }
  }
  return nullptr;
}

Value* Translator::emit_regroup(const ValueOperand& operand, const ValueType& type, int64_t i) {
  const int32_t from = lanes_of(operand), to = type.lanes;
  if (from == to) return element(operand, i, to);
  if (Value* packed = emit_packed(operand, type, i)) return packed;
  Value* out = llvm::PoisonValue::get(register_type(type));
  for (int32_t l = 0; l < to; ++l) {
    const int64_t at = i * to + l;
    Value* lane = lane_of(element(operand, at / from, from), from, static_cast<int32_t>(at % from));
    out = with_lane(out, to, l, lane);
  }
  return out;
}

// Narrows scalars to 16 bits together, because the machine converts pairs. Null if the operand is
// no such narrowing.
Value* Translator::emit_packed(const ValueOperand& operand, const ValueType& type, int64_t i) {
  if (operand.is_literal() || !is_half(type.dtype) || lanes_of(operand) != 1) return nullptr;
  const Slot& slot = slots_[operand.value.index];
  const auto* row = slot.statement ? slot.statement->as<RowOp>() : nullptr;
  if (!row || row->op != ElementwiseOp::convert) return nullptr;
  const ValueOperand wide = row->operands[0];
  if (dtype_of(wide) != DType::F32) return nullptr;
  const std::vector<int64_t>& extents = type_of(operand.value).extents;
  Value* values = llvm::PoisonValue::get(codegen::register_type(context_, DType::F32, type.lanes));
  for (int32_t l = 0; l < type.lanes; ++l)
    values =
        with_lane(values, type.lanes, l, broadcast_element(wide, i * type.lanes + l, extents, 1));
  return this->row(ElementwiseOp::convert, DType::F32, type.dtype, type.lanes, {values});
}

Value* Translator::emit_shuffle(const ShuffleOp& op, int64_t i) {
  const int32_t lanes = lanes_of(op.a.is_literal() ? op.b : op.a);
  Value *a = element(op.a, i, lanes), *b = element(op.b, i, lanes);
  if (op.lanes.size() == 1) {
    const int64_t lane = op.lanes[0];
    return lane_of(lane < lanes ? a : b, lanes, static_cast<int32_t>(lane % lanes));
  }
  if (lanes == 1) {
    Value* out =
        llvm::PoisonValue::get(shaped(a->getType(), static_cast<int32_t>(op.lanes.size())));
    for (size_t l = 0; l < op.lanes.size(); ++l)
      out = b_.CreateInsertElement(out, op.lanes[l] ? b : a, l);
    return out;
  }
  llvm::SmallVector<int, 64> mask(op.lanes.begin(), op.lanes.end());
  return b_.CreateShuffleVector(a, b, mask);
}

// The fold of section 2.6: while N > 1, x[i] = op(x[i], x[i + N/2]); pairs beyond the end are
// left out.
Value* Translator::fold(Monoid monoid, DType dtype, int32_t lanes, std::vector<Value*> x) {
  size_t n = 1;
  while (n < x.size()) n *= 2;
  for (size_t h = n / 2; h > 0; h /= 2)
    for (size_t i = 0; i < h && i + h < x.size(); ++i)
      x[i] = row(info(monoid).combine, dtype, dtype, lanes, {x[i], x[i + h]});
  return x[0];
}

Value* Translator::emit_fold(const FoldOp& op, const ValueType& type, int64_t i) {
  if (op.lanes) {
    int32_t lanes = lanes_of(op.operand);
    Value* value = element(op.operand, i, lanes);
    while (lanes > 1) {
      lanes /= 2;
      llvm::SmallVector<int, 32> low, high;
      for (int32_t l = 0; l < lanes; ++l) low.push_back(l), high.push_back(l + lanes);
      Value* a = lanes == 1 ? lane_of(value, 2, 0) : b_.CreateShuffleVector(value, low);
      Value* b = lanes == 1 ? lane_of(value, 2, 1) : b_.CreateShuffleVector(value, high);
      value = row(info(op.monoid).combine, type.dtype, type.dtype, lanes, {a, b});
    }
    return value;
  }
  return fold_axes(op, type, unflatten(i, type.extents), op.axes.size());
}

// The element at `at` after the first `count` axes were folded.
Value* Translator::fold_axes(const FoldOp& op, const ValueType& type, std::vector<int64_t> at,
                             size_t count) {
  const std::vector<int64_t>& extents = type_of(op.operand.value).extents;
  if (count == 0) return element(op.operand.value, flatten(at, extents));
  const auto axis = static_cast<size_t>(op.axes[count - 1]);
  std::vector<Value*> x;
  for (int64_t k = 0; k < extents[axis]; ++k) {
    at[axis] = k;
    x.push_back(fold_axes(op, type, at, count - 1));
  }
  return fold(op.monoid, type.dtype, type.lanes, std::move(x));
}

Value* Translator::emit_iota(const Expr& e, const ValueType& type, int64_t i) {
  Value* value = index(e, position_of(type, i));
  if (!value->getType()->isVectorTy()) value = splat(value, type.lanes);
  return b_.CreateSExtOrTrunc(value, register_type(type));
}

// --- Index expressions ---------------------------------------------------------------------------

// Whether the expression differs between elements or lanes of one access.
bool Translator::is_positional(const Expr& e) const {
  if (e.kind() != Expr::Kind::Symbol) {
    for (const Expr& operand : e.operands())
      if (is_positional(operand)) return true;
    return false;
  }
  const std::string& name = e.symbol_name();
  if (name == "lane") return true;
  if (name[0] == '%') {
    const ValueType& type = type_of(uses_.value_named(name));
    return type.lanes > 1 || type.count() > 1;
  }
  return axis_symbol(name).has_value() && !symbols_.contains(name);
}

bool Translator::varies_by_lane(const Expr& e) const {
  if (e.kind() != Expr::Kind::Symbol) {
    for (const Expr& operand : e.operands())
      if (varies_by_lane(operand)) return true;
    return false;
  }
  const std::string& name = e.symbol_name();
  return name == "lane" || (name[0] == '%' && type_of(uses_.value_named(name)).lanes > 1);
}

// A type that holds the values of all the expressions.
llvm::IntegerType* Translator::common_type(std::span<const Expr> expressions) {
  for (const Expr& e : expressions)
    if (index_type(e)->getBitWidth() == 64) return b_.getInt64Ty();
  return b_.getInt32Ty();
}

Value* Translator::fit(Value* value, llvm::IntegerType* type) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  llvm::Type* shape = vector ? shaped(type, static_cast<int32_t>(vector->getNumElements())) : type;
  return b_.CreateSExtOrTrunc(value, shape);
}

// The value of a uniform expression, which is evaluated once for each scope in which it is visible.
Value* Translator::index(const Expr& e) {
  if (auto constant = e.as_constant()) return number(index_type(e), *constant);
  if (e.kind() != Expr::Kind::Symbol)
    for (size_t s = scopes_.size(); s-- > 0;)
      if (auto it = scopes_[s].find(e); it != scopes_[s].end()) return it->second;
  Value* value = fit(compute(e, nullptr), index_type(e));
  if (e.kind() != Expr::Kind::Symbol) scopes_.back().emplace(e, value);
  return value;
}

// An expression at a position: a number, or a vector of them if it varies by lane.
Value* Translator::index(const Expr& e, const Position& position) {
  return is_positional(e) ? fit(compute(e, &position), index_type(e)) : index(e);
}

// Whether a term of a sum depends on sizes only.
bool Translator::is_of_sizes(const Expr& term) const {
  const auto is_size = [&](const Expr& e) {
    return e.kind() == Expr::Kind::Symbol && sizes_.contains(e.symbol_name());
  };
  return is_size(term) || (term.kind() == Expr::Kind::Product &&
                           std::ranges::all_of(term.operands(), [&](const Expr& factor) {
                             return factor.as_constant() || is_size(factor);
                           }));
}

// A sum of many sizes, as where a part of a long concatenation begins. It is computed at the entry
// of the function, as one number for all lanes. LLVM's reduction of strength would take it apart at
// every use in a loop, in a time that grows with the square of the number of terms; it does not
// look through `freeze`.
Value* Translator::sum_of_sizes(const std::vector<Expr>& terms) {
  const auto [known, added] = size_sums_.try_emplace(terms);
  if (!added) return known->second;
  const llvm::IRBuilderBase::InsertPointGuard guard(b_);
  if (llvm::Instruction* end = entry_->getTerminator())
    b_.SetInsertPoint(end);
  else
    b_.SetInsertPoint(entry_);
  b_.SetCurrentDebugLocation({});
  const auto size = [&](const Expr& factor) -> Value* {
    const auto constant = factor.as_constant();
    return constant ? i64(*constant) : fit(symbols_.at(factor.symbol_name()), b_.getInt64Ty());
  };
  Value* sum = nullptr;
  for (const Expr& term : terms) {
    Value* next = nullptr;
    if (term.kind() == Expr::Kind::Symbol)
      next = size(term);
    else
      for (const Expr& factor : term.operands())
        next = next ? b_.CreateNSWMul(next, size(factor)) : size(factor);
    sum = sum ? b_.CreateNSWAdd(sum, next) : next;
  }
  return known->second = b_.CreateFreeze(sum);
}

// The value of an expression, in some width that can hold it. Sums and products may be computed in
// the width of the result: if an intermediate value wraps around, the result is still right.
Value* Translator::compute(const Expr& e, const Position* position) {
  const auto operands = e.operands();
  const auto operand = [&](size_t i, llvm::IntegerType* type) {
    return fit(position ? index(operands[i], *position) : index(operands[i]), type);
  };
  switch (e.kind()) {
    case Expr::Kind::Constant:
      return number(index_type(e), *e.as_constant());
    case Expr::Kind::Symbol:
      return symbol(e, position);
    case Expr::Kind::Sum: {
      llvm::IntegerType* type = index_type(e);
      std::vector<Expr> sizes;
      if (operands.size() > kFewSizes)
        std::ranges::copy_if(operands, std::back_inserter(sizes),
                             [&](const Expr& term) { return is_of_sizes(term); });
      const bool apart = sizes.size() > kFewSizes;
      Value* sum = apart ? fit(sum_of_sizes(sizes), type) : nullptr;
      // What all elements have in common comes first, so that it is added once for all of them.
      for (const bool positional : {false, true})
        for (size_t i = 0; i < operands.size(); ++i) {
          if (apart && is_of_sizes(operands[i])) continue;
          if ((position && is_positional(operands[i])) != positional) continue;
          Value* b = operand(i, type);
          if (!sum) {
            sum = b;
            continue;
          }
          match(sum, b);
          sum = b_.CreateAdd(sum, b, "", /*HasNUW=*/false, /*HasNSW=*/type->getBitWidth() == 64);
        }
      return sum;
    }
    case Expr::Kind::Product: {
      llvm::IntegerType* type = index_type(e);
      Value* product = operand(operands.size() - 1, type);
      for (size_t i = operands.size() - 1; i-- > 0;) {
        Value *a = product, *b = operand(i, type);
        match(a, b);
        product = b_.CreateMul(a, b, "", /*HasNUW=*/false, /*HasNSW=*/type->getBitWidth() == 64);
      }
      return product;
    }
    case Expr::Kind::FloorDiv:
    case Expr::Kind::Mod: {
      llvm::IntegerType* type = common_type(operands);
      Value *a = operand(0, type), *b = operand(1, type);
      match(a, b);
      return floor_division(e.kind() == Expr::Kind::Mod, operands[0], operands[1], a, b);
    }
    case Expr::Kind::Min:
    case Expr::Kind::Max: {
      llvm::IntegerType* type = common_type(operands);
      Value* best = operand(0, type);
      for (size_t i = 1; i < operands.size(); ++i) {
        Value *a = best, *b = operand(i, type);
        match(a, b);
        best = b_.CreateBinaryIntrinsic(
            e.kind() == Expr::Kind::Min ? llvm::Intrinsic::smin : llvm::Intrinsic::smax, a, b);
      }
      return best;
    }
  }
  return nullptr;
}

// If one of the two is a vector and the other is a scalar, splats the scalar.
void Translator::match(Value*& a, Value*& b) {
  auto* va = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
  auto* vb = llvm::dyn_cast<llvm::FixedVectorType>(b->getType());
  if (va && !vb) b = b_.CreateVectorSplat(va->getNumElements(), b);
  if (vb && !va) a = b_.CreateVectorSplat(vb->getNumElements(), a);
}

Value* Translator::floor_division(bool is_mod, const Expr& left, const Expr& right, Value* a,
                                  Value* b) {
  llvm::Type* type = a->getType();
  const auto constant = right.as_constant();
  if (constant && (*constant & (*constant - 1)) == 0) {
    if (is_mod) return b_.CreateAnd(a, number(type, *constant - 1));
    return b_.CreateAShr(a, number(type, __builtin_ctzll(static_cast<uint64_t>(*constant))));
  }
  if (constant && machine_.simt && type->isIntegerTy(32)) {
    if (const auto added = divisors_until_positive(left.range(), *constant)) {
      Value* positive = b_.CreateAdd(a, number(type, *added * *constant));
      Value* quotient = divide_by_constant(b_, positive, static_cast<uint32_t>(*constant), true);
      if (is_mod) return b_.CreateSub(positive, b_.CreateMul(quotient, b));
      return b_.CreateSub(quotient, number(type, *added));
    }
  }
  if (left.range().min >= 0) return is_mod ? b_.CreateURem(a, b) : b_.CreateUDiv(a, b);
  Value* quotient = b_.CreateSDiv(a, b);
  Value* rest = b_.CreateSub(a, b_.CreateMul(quotient, b));
  Value* below = b_.CreateICmpSLT(rest, number(type, 0));
  if (is_mod) return b_.CreateSelect(below, b_.CreateAdd(rest, b), rest);
  return b_.CreateAdd(quotient, b_.CreateSExt(below, type));
}

Value* Translator::symbol(const Expr& e, const Position* position) {
  const std::string& name = e.symbol_name();
  if (auto it = symbols_.find(name); it != symbols_.end()) return it->second;
  if (name[0] == '%') {
    const ValueId id = uses_.value_named(name);
    const ValueType& type = type_of(id);
    const int64_t at = position
                           ? broadcast_index(type.extents, flatten(position->at, position->extents),
                                             position->extents)
                           : 0;
    Value* value = element(id, at);
    if (position && position->lane) value = lane_of(value, type.lanes, *position->lane);
    const bool vector = value->getType()->isVectorTy();
    llvm::Type* wide = shaped(b_.getInt64Ty(), vector ? type.lanes : 1);
    return is_signed_integer(type.dtype) ? b_.CreateSExt(value, wide) : b_.CreateZExt(value, wide);
  }
  BRAZE_CHECK(position, "index symbol " + name + " has no value here");
  if (name == "lane") {
    if (position->lane) return i64(*position->lane);
    if (position->lanes == 1) return i64(0);
    return lane_numbers(b_.getInt64Ty(), position->lanes, 0);
  }
  const auto axis = axis_symbol(name);
  BRAZE_CHECK(axis && *axis < position->at.size(), "index symbol " + name + " has no value here");
  return i64(position->at[*axis]);
}

// from, from + 1, ..
Value* Translator::lane_numbers(llvm::Type* type, int32_t lanes, int64_t from) {
  llvm::SmallVector<llvm::Constant*, 64> numbers;
  for (int32_t l = 0; l < lanes; ++l)
    numbers.push_back(llvm::ConstantInt::getSigned(type, from + l));
  return llvm::ConstantVector::get(numbers);
}

Value* Translator::compare(const IndexComparison& comparison, const Position& position) {
  if (machine_.simt && holds_always(comparison, position)) return b_.getTrue();
  const Expr sides[] = {comparison.left, comparison.right};
  llvm::IntegerType* type = common_type(sides);
  Value *a = fit(index(sides[0], position), type), *b = fit(index(sides[1], position), type);
  match(a, b);
  constexpr llvm::CmpInst::Predicate kPredicates[] = {
      llvm::CmpInst::ICMP_SLT, llvm::CmpInst::ICMP_SLE, llvm::CmpInst::ICMP_SGT,
      llvm::CmpInst::ICMP_SGE, llvm::CmpInst::ICMP_EQ,  llvm::CmpInst::ICMP_NE};
  return b_.CreateICmp(kPredicates[static_cast<size_t>(comparison.kind)], a, b);
}

std::optional<Affine> Translator::affine(const Expr& e, size_t rank) const {
  Affine out;
  std::unordered_map<std::string, Expr> zero;
  const auto split = [&](const std::string& name) {
    const auto coefficient = e.coefficient_of(name);
    if (coefficient && !coefficient->is_constant(0)) zero[name] = Expr(0);
    return coefficient;
  };
  for (size_t i = 0; i < rank; ++i) {
    const auto c = split("e" + std::to_string(i));
    if (!c || is_positional(*c)) return {};
    const auto constant = c->as_constant();
    out.axes.push_back(constant.value_or(0));
    out.strides.push_back(constant ? Expr(0) : *c);
  }
  const auto lane = split("lane");
  if (!lane || !lane->as_constant()) return {};
  out.lane = *lane->as_constant();
  out.rest = zero.empty() ? e : e.substitute(zero);
  if (is_positional(out.rest)) return {};  // a gather
  return out;
}

}  // namespace braze::codegen
