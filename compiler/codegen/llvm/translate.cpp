// translate.cpp — Kernel IR to LLVM IR, one function per phase.
//
// Notation
//   element    one vector (or scalar) of a register array, by its row-major number; the unit of
//              everything here
//   position   what e0, e1 .. and `lane` are in one element
//   slot       what is known of a Kernel value: its statement and the elements emitted so far
//
// Values are emitted at their first use, element by element, so that a chain of operations on an
// array runs depth first and holds few registers. Three rules keep that sound. A store first emits
// the loads of its memory that are still pending. A nested region starts after everything that it
// uses from outside. What is emitted in a region is forgotten when it ends.
//
// Accesses. An index is split into  rest + sum(c_i * e_i) + c * lane  where that is possible;
// `rest` is evaluated once. Of a guard, what does not depend on `lane` selects the address: the
// element's, or that of a dummy which holds the fill. What does is a mask. AVX2 has no masks for
// small elements and slow masked stores: where the guard is a count of elements, the tail of a
// tensor, it goes through a copy on the stack instead, so that full accesses pay for one branch and
// no mask. A thread of a GPU branches around what its guard excludes; elements with one guard share
// the branch.
//
// Index expressions take 64 bits, on a GPU 32 where their interval fits. The width of a value is
// index_type() of its expression; fit() changes it.
#include <llvm/IR/Constants.h>
#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "braze/trace.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/instruction_text.h"
#include "compiler/codegen/llvm/llvm_p.h"
#include "ir/code/walk.h"
#include "ir/ops/monoid.h"
#include "ir/support/text.h"

namespace braze::codegen {

namespace {

using llvm::BasicBlock;
using llvm::Value;

// Chains longer than this are emitted where they stand, which bounds the recursion.
constexpr int kMaxPendingDepth = 64;
// Lanes are compared in 32 bits: counts beyond this are as good as infinite.
constexpr int64_t kManyLanes = 1 << 20;
// Tails beyond these go by masks: the copy must stay in the first cache, and its loop short.
constexpr int64_t kMaxTailBytes = 4096;
constexpr int64_t kMaxTailGroups = 16;

[[noreturn]] void not_kernel_ir(const KernelCode& kernel, const Statement& statement,
                                const std::string& what) {
  fail(codes::kCodegenKernel, fmt::format("kernel @{}: {}", kernel.name, what),
       {.location = statement.location, .node = "", .fix = ""});
}

int64_t flatten(const std::vector<int64_t>& at, const std::vector<int64_t>& extents) {
  int64_t index = 0;
  for (size_t i = 0; i < extents.size(); ++i) index = index * extents[i] + at[i];
  return index;
}

std::vector<int64_t> unflatten(int64_t index, const std::vector<int64_t>& extents) {
  std::vector<int64_t> at(extents.size());
  for (size_t i = extents.size(); i-- > 0; index /= extents[i]) at[i] = index % extents[i];
  return at;
}

// rest + sum((axes[i] + strides[i]) * e_i) + lane * lane; strides are what is no constant.
struct Affine {
  Expr rest;
  std::vector<int64_t> axes;
  std::vector<Expr> strides;
  int64_t lane = 0;

  bool is_constant() const {
    return std::all_of(strides.begin(), strides.end(),
                       [](const Expr& e) { return e.is_constant(0); });
  }

  int64_t offset(const std::vector<int64_t>& at) const {
    int64_t sum = 0;
    for (size_t i = 0; i < at.size(); ++i) sum += axes[i] * at[i];
    return sum;
  }
};

// What the position symbols are while an index expression is evaluated.
struct Position {
  std::vector<int64_t> at;  // e0, e1 ..
  std::vector<int64_t> extents;
  int32_t lanes = 1;
  std::optional<int32_t> lane;  // one lane, or all of them as a vector
};

class Translator {
 public:
  Translator(const Kernel& kernel, const Machine& machine, llvm::LLVMContext& context)
      : kernel_(kernel),
        machine_(machine),
        context_(context),
        module_(std::make_unique<llvm::Module>(kernel.name, context)),
        b_(context),
        debug_(*module_) {
    for (size_t i = 0; i < kernel.values.size(); ++i)
      values_by_name_.emplace(kernel.values[i].name, ValueId(i));
    make_alias_scopes();
    for (const Phase& phase : kernel.phases) waits_for_others_ |= waits(phase.body);
  }

  std::unique_ptr<llvm::Module> run() {
    for (size_t i = 0; i < kernel_.phases.size(); ++i) phase(i);
    debug_.finalize();
    return std::move(module_);
  }

 private:
  // An access cut off by one count: elements of a group (equal but for axes that the count sees)
  // are `span` consecutive places, of which those below `count` exist. If that is not all of them,
  // the places are a copy on the stack.
  struct Tail {
    std::vector<bool> inside;     // the axis runs within a group
    std::vector<int64_t> groups;  // extents of the other axes; 1 inside
    int64_t span = 0;
    Value* count = nullptr;
    Value* partial = nullptr;
    Value* copy = nullptr;       // on the stack: a row of `span` for each group
    std::vector<Value*> memory;  // per group: where its places are in memory,
    std::vector<Value*> base;    // and where the access finds them
  };

  // One load or store: everything that its elements share.
  struct Access {
    MemoryId memory;
    ValueType type;
    Expr at;
    std::optional<Affine> address;                // in elements
    Value* base = nullptr;                        // address.rest, as a pointer
    std::map<std::vector<int64_t>, Value*> rows;  // base plus the strides' part, by position
    struct Part {                                 // of the guard: diff > 0
      IndexComparison comparison;
      std::optional<Affine> diff;
      Value* rest = nullptr;
      bool by_lane = false;
      bool count = false;               // lane < diff at lane 0
      Value* many = nullptr;            // count: rest, splat in 32 bits
      std::map<int64_t, Value*> holds;  // by offset, for a GPU thread
    };
    std::vector<Part> parts;
    ValueId mask;
    int64_t align = 0;
    CacheHint cache = CacheHint::None;
    std::optional<Expr> rank;  // of the block whose shared memory it is
    std::shared_ptr<Tail> tail;
  };

  struct Slot {
    const Statement* statement = nullptr;  // where the value is made, while elements are missing
    std::vector<Value*> elements;
    int depth = 0;                   // of pending statements above
    std::shared_ptr<Access> access;  // of a load: what its elements share
  };

  // ---------------------------------------------------------------- types and small helpers

  const ValueType& type_of(ValueId id) const { return kernel_[id].type; }
  DType dtype_of(const ValueOperand& o) const {
    return o.is_literal() ? o.dtype : type_of(o.value).dtype;
  }
  llvm::Type* register_type(const ValueType& type) {
    return codegen::register_type(context_, type.dtype, type.lanes);
  }
  llvm::Type* shaped(llvm::Type* element, int32_t lanes) {
    return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
  }
  Value* i64(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  BasicBlock* block(const char* name) {
    return BasicBlock::Create(context_, name, phase_.function);
  }
  Value* splat(Value* value, int32_t lanes) {
    return lanes == 1 ? value : b_.CreateVectorSplat(static_cast<unsigned>(lanes), value);
  }
  Value* lane_of(Value* value, int32_t lanes, int32_t lane) {
    return lanes == 1 ? value : b_.CreateExtractElement(value, static_cast<uint64_t>(lane));
  }
  Value* with_lane(Value* value, int32_t lanes, int32_t lane, Value* element) {
    return lanes == 1 ? element
                      : b_.CreateInsertElement(value, element, static_cast<uint64_t>(lane));
  }
  Value* row(ElementwiseOp op, DType operand, DType result, int32_t lanes,
             std::initializer_list<Value*> operands) {
    return emit_row(b_, machine_, op, operand, result, lanes,
                    std::span<Value* const>(operands.begin(), operands.size()));
  }

  // bool is a byte in memory; any that is not 0 reads as true.
  Value* from_memory(Value* value, DType dtype) {
    if (dtype != DType::Bool) return value;
    return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
  }
  Value* to_memory(Value* value, DType dtype, int32_t lanes) {
    return dtype == DType::Bool ? b_.CreateZExt(value, memory_type(context_, dtype, lanes)) : value;
  }

  // ---------------------------------------------------------------- memory

  // Distinct memories do not overlap: every access names its own scope and all the others.
  void make_alias_scopes() {
    llvm::MDBuilder md(context_);
    llvm::MDNode* domain = md.createAnonymousAliasScopeDomain(kernel_.name);
    std::vector<llvm::Metadata*> scopes;
    for (const Memory& memory : kernel_.memories)
      scopes.push_back(md.createAnonymousAliasScope(domain, memory.name));
    for (size_t i = 0; i < scopes.size(); ++i) {
      std::vector<llvm::Metadata*> others;
      for (size_t j = 0; j < scopes.size(); ++j)
        if (j != i) others.push_back(scopes[j]);
      alias_scope_.push_back(llvm::MDNode::get(context_, {scopes[i]}));
      no_alias_.push_back(llvm::MDNode::get(context_, others));
    }
  }

  void annotate(Value* access, MemoryId memory, bool may_be_copy = false) {
    auto* instruction = llvm::dyn_cast<llvm::Instruction>(access);
    if (!instruction) return;
    instruction->setMetadata(llvm::LLVMContext::MD_alias_scope, alias_scope_[memory.index]);
    instruction->setMetadata(llvm::LLVMContext::MD_noalias, no_alias_[memory.index]);
    if (is_constant(memory) && !may_be_copy && llvm::isa<llvm::LoadInst>(instruction))
      instruction->setMetadata(llvm::LLVMContext::MD_invariant_load,
                               llvm::MDNode::get(context_, {}));
  }

  bool is_constant(MemoryId id) const {
    return kernel_[id].space == MemorySpace::Parameter && kernel_[id].mode == Mode::In &&
           !waits_for_others_;
  }

  static bool waits(const Region& region) {
    return std::any_of(region.statements.begin(), region.statements.end(), [](const Statement& s) {
      const auto* op = s.as<InstructionOp>();
      if (op && op->instruction == Instruction::griddep_wait) return true;
      const auto nested = regions_of(s);
      return std::any_of(nested.begin(), nested.end(), [](const Region* r) { return waits(*r); });
    });
  }

  int64_t bytes_of(const Memory& memory) const {
    int64_t bytes = static_cast<int64_t>(size_of(memory.dtype));
    for (const Expr& extent : memory.shape) bytes *= extent.as_constant().value_or(0);
    return bytes;
  }

  // ---------------------------------------------------------------- phases

  void phase(size_t number) {
    const Phase& phase = kernel_.phases[number];
    code_ = &phase;
    slots_.assign(kernel_.values.size(), {});
    symbols_.clear();
    scopes_.assign(1, {});
    pending_loads_.clear();
    dummy_ = nullptr;
    streams_ = false;
    scratch_used_ = 0;

    phase_ = machine_.enter(kernel_, number, *module_, b_);
    entry_ = &phase_.function->getEntryBlock();
    bind_parameters();
    describe(phase.body);
    const auto evaluate = [this](const Expr& e) { return index(e); };
    machine_.instances(phase, phase_, b_, evaluate, [&](const Machine::Names& names) {
      for (const auto& [name, value] : names) symbols_[name] = value;
      run_region(phase.body);
    });
    machine_.leave(streams_, b_);
    b_.SetCurrentDebugLocation({});
  }

  // ---------------------------------------------------------------- line information

  // Profilers show the user's lines beside a GPU's instructions; nothing reads those of an image.
  void describe(const Region& body) {
    scope_ = nullptr;
    if (!machine_.simt || body.statements.empty()) return;
    const auto first = std::find_if(body.statements.begin(), body.statements.end(),
                                    [](const Statement& s) { return bool(s.location); });
    if (first == body.statements.end()) return;
    llvm::DIFile* file = file_of(first->location);
    if (!unit_) {
      unit_ = debug_.createCompileUnit(llvm::DISourceLanguageName(llvm::dwarf::DW_LANG_C), file,
                                       "braze", true, "", 0, "",
                                       llvm::DICompileUnit::DebugDirectivesOnly);
      module_->addModuleFlag(llvm::Module::Warning, "Debug Info Version",
                             llvm::DEBUG_METADATA_VERSION);
    }
    auto* type = debug_.createSubroutineType(debug_.getOrCreateTypeArray({}));
    scope_ = debug_.createFunction(unit_, phase_.function->getName(), "", file,
                                   first->location.line, type, first->location.line,
                                   llvm::DINode::FlagZero, llvm::DISubprogram::SPFlagDefinition);
    phase_.function->setSubprogram(scope_);
    locate(*first);
  }

  llvm::DIFile* file_of(const SourceLocation& location) {
    const llvm::StringRef path(location.file);
    const auto [folder, name] = path.contains('/') ? path.rsplit('/') : std::pair(path, path);
    return debug_.createFile(name, folder == name ? "." : folder);
  }

  void locate(const Statement& s) {
    if (!scope_ || !s.location) return;
    llvm::DIScope* scope = scope_;
    llvm::DIFile* file = file_of(s.location);
    if (file != scope_->getFile()) scope = debug_.createLexicalBlockFile(scope_, file);
    b_.SetCurrentDebugLocation(
        llvm::DILocation::get(context_, s.location.line, s.location.column, scope));
  }

  void bind_parameters() {
    size_t word = 0;
    for (const Expr& symbol : kernel_.symbols)
      symbols_[symbol.symbol_name()] = phase_.words[word++];
    for (ValueId id : kernel_.scalar_parameters) {
      const DType dtype = type_of(id).dtype;
      Value* bits = b_.CreateTrunc(phase_.words[word++],
                                   b_.getIntNTy(static_cast<unsigned>(8 * size_of(dtype))));
      Value* value = dtype == DType::Bool
                         ? b_.CreateICmpNE(bits, b_.getInt8(0))
                         : b_.CreateBitCast(bits, codegen::register_type(context_, dtype, 1));
      bind(id, {value});
    }
  }

  // ---------------------------------------------------------------- regions and statements

  // Emits the statements; the caller reads the yields before leave_region.
  void enter_region() {
    scopes_.emplace_back();
    pending_marks_.push_back(pending_loads_.size());
    scratch_marks_.push_back(scratch_used_);
  }
  void leave_region() {
    scopes_.pop_back();
    pending_loads_.resize(std::min(pending_loads_.size(), pending_marks_.back()));
    pending_marks_.pop_back();
    scratch_used_ = scratch_marks_.back();
    scratch_marks_.pop_back();
  }
  void run_region(const Region& region) {
    enter_region();
    for (const Statement& statement : region.statements) emit(statement);
    leave_region();
  }

  void emit(const Statement& s) {
    locate(s);
    if (const auto* let = s.as<LetOp>()) {
      symbols_[let->symbol] = index(let->value);
    } else if (const auto* store = s.as<StoreOp>()) {
      emit_store(*store);
    } else if (const auto* loop = s.as<ForOp>()) {
      emit_for(*loop, s);
    } else if (const auto* branch = s.as<IfOp>()) {
      emit_if(*branch, s);
    } else if (const auto* repeated = s.as<WhileOp>()) {
      emit_while(*repeated, s);
    } else if (const auto* buffer = s.as<BufferOp>()) {
      place(buffer->memory);
    } else if (const auto* atomic = s.as<AtomicOp>()) {
      emit_atomic(*atomic, s);
    } else if (const auto* role = s.as<RoleOp>()) {
      emit_role(*role);
    } else if (const auto* instruction = s.as<InstructionOp>()) {
      emit_instruction(*instruction, s);
    } else if (!s.results.empty()) {
      defer(s);
    } else if (!s.as<AwaitOp>()) {
      not_kernel_ir(kernel_, s, "a statement that no code generator knows");
    }
  }

  void place(MemoryId id) {
    const Memory& memory = kernel_[id];
    int64_t offset = memory.scratch_offset;
    if (offset < 0) offset = scratch_used_;
    if (memory.space == MemorySpace::Local)
      scratch_used_ = std::max(scratch_used_, (offset + bytes_of(memory) + 63) / 64 * 64);
    phase_.pointers[id.index] = machine_.place(memory, bytes_of(memory), offset, phase_, b_);
  }

  // Notes where a value is made; its elements follow at their first use.
  void defer(const Statement& s) {
    const ValueId id = s.results[0];
    int depth = 1;
    for_each_value(s, [&](ValueId used) {
      if (slots_[used.index].statement) depth = std::max(depth, slots_[used.index].depth + 1);
    });
    slots_[id.index] = {&s, std::vector<Value*>(static_cast<size_t>(type_of(id).count())), depth,
                        nullptr};
    if (const auto* load = s.as<LoadOp>(); load && machine_.simt)
      return bind(id, load_elements(*load, type_of(id)));
    if (s.as<LoadOp>()) pending_loads_.push_back(id);
    if (depth >= kMaxPendingDepth) force(id);
  }

  // What a region reads from outside and what it stores to.
  struct Uses {
    std::vector<ValueId> values;
    std::unordered_set<uint32_t> stored;
    bool stores_all = false;  // an atomic orders everything
  };

  const Uses& uses_of(const Region& region) {
    auto [it, fresh] = uses_.try_emplace(&region);
    if (fresh) {
      Uses uses;
      std::unordered_set<uint32_t> defined;
      collect(region, uses, defined);
      std::erase_if(uses.values, [&](ValueId id) { return defined.contains(id.index); });
      std::sort(uses.values.begin(), uses.values.end());
      uses.values.erase(std::unique(uses.values.begin(), uses.values.end()), uses.values.end());
      uses_[&region] = std::move(uses);
    }
    return uses_[&region];
  }

  void collect(const Region& region, Uses& uses, std::unordered_set<uint32_t>& defined) {
    for (const Statement& s : region.statements) {
      for (ValueId id : s.results) defined.insert(id.index);
      for_each_value(s, [&](ValueId id) { uses.values.push_back(id); });
      for_each_expr(s, [&](const Expr& e) { values_in(e, uses.values); });
      if (const auto* store = s.as<StoreOp>()) uses.stored.insert(store->memory.index);
      if (s.as<AtomicOp>()) uses.stores_all = true;
      if (const auto* counted = s.as<ForOp>())
        for (const auto& [id, first] : counted->carried) defined.insert(id.index);
      if (const auto* repeated = s.as<WhileOp>())
        for (const auto& [id, first] : repeated->carried) defined.insert(id.index);
      for (const Region* nested : regions_of(s)) {
        const Uses inner = uses_of(*nested);
        uses.values.insert(uses.values.end(), inner.values.begin(), inner.values.end());
        uses.stored.insert(inner.stored.begin(), inner.stored.end());
        uses.stores_all |= inner.stores_all;
      }
    }
    for (const ValueOperand& o : region.yields)
      if (!o.is_literal()) uses.values.push_back(o.value);
  }

  // The values that an index expression reads by %name.
  void values_in(const Expr& e, std::vector<ValueId>& out) const {
    if (e.kind() == Expr::Kind::Symbol) {
      if (e.symbol_name().front() == '%') out.push_back(value_named(e.symbol_name()));
      return;
    }
    for (const Expr& operand : e.operands()) values_in(operand, out);
  }

  ValueId value_named(const std::string& symbol) const {
    const auto it = values_by_name_.find(std::string_view(symbol).substr(1));
    BRAZE_CHECK(it != values_by_name_.end(), "no value " + symbol);
    return it->second;
  }

  // Before control enters a nested region: what it uses, and loads that its stores could change.
  void prepare(const Region& region) {
    const Uses& uses = uses_of(region);
    for (ValueId id : uses.values) force(id);
    force_loads([&](MemoryId memory) {
      return uses.stores_all ? !is_constant(memory) : uses.stored.contains(memory.index);
    });
  }

  template <class F>
  void force_loads(const F& concerns) {
    for (size_t i = 0; i < pending_loads_.size(); ++i) {
      const ValueId id = pending_loads_[i];
      const Statement* s = slots_[id.index].statement;
      if (s && concerns(s->as<LoadOp>()->memory)) force(id);
    }
  }

  void force(ValueId id) {
    Slot& slot = slots_[id.index];
    if (!slot.statement) return;
    if (slot.statement->as<ConstOp>()) return;  // costs nothing anywhere
    for (size_t i = 0; i < slots_[id.index].elements.size(); ++i)
      element(id, static_cast<int64_t>(i));
    slots_[id.index].statement = nullptr;
  }

  // ---------------------------------------------------------------- values

  Value* element(ValueId id, int64_t i) {
    Slot& slot = slots_[id.index];
    if (Value* value = slot.elements[static_cast<size_t>(i)]) return value;
    BRAZE_CHECK(slot.statement, "%" + kernel_[id].name + " is used where it is not defined");
    Value* value = emit_element(*slot.statement, type_of(id), i, slot.access);
    return slots_[id.index].elements[static_cast<size_t>(i)] = value;
  }

  Value* element(const ValueOperand& o, int64_t i, int32_t lanes) {
    return o.is_literal() ? literal(context_, o.dtype, o.bits, lanes) : element(o.value, i);
  }

  // The element of `o` that stands for position `i` of an array of `extents`.
  Value* broadcast_element(const ValueOperand& o, int64_t i, const std::vector<int64_t>& extents,
                           int32_t lanes) {
    if (o.is_literal()) return literal(context_, o.dtype, o.bits, lanes);
    return element(o.value, broadcast_index(type_of(o.value).extents, i, extents));
  }

  static int64_t broadcast_index(const std::vector<int64_t>& from, int64_t i,
                                 const std::vector<int64_t>& extents) {
    if (from.empty()) return 0;
    if (from == extents) return i;
    std::vector<int64_t> at = unflatten(i, extents);
    for (size_t d = 0; d < at.size(); ++d)
      if (from[d] == 1) at[d] = 0;
    return flatten(at, from);
  }

  Value* emit_element(const Statement& s, const ValueType& type, int64_t i,
                      std::shared_ptr<Access>& access) {
    if (const auto* op = s.as<RowOp>()) {
      std::vector<Value*> operands;
      for (const ValueOperand& o : op->operands)
        operands.push_back(broadcast_element(o, i, type.extents, type.lanes));
      return emit_row(b_, machine_, op->op, dtype_of(op->operands.back()), type.dtype, type.lanes,
                      operands);
    }
    if (const auto* op = s.as<LoadOp>()) return emit_load(*op, type, i, access);
    if (const auto* op = s.as<ConstOp>())
      return literal(context_, type.dtype, op->bits, type.lanes);
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
      const int32_t lanes = op->insert ? type.lanes : lanes_of(op->operand);
      Value* whole = element(op->operand, i, lanes);
      if (!op->insert) return lane_of(whole, lanes, static_cast<int32_t>(op->lane));
      Value* one = broadcast_element(op->element, i, type.extents, 1);
      return with_lane(whole, lanes, static_cast<int32_t>(op->lane), one);
    }
    if (const auto* op = s.as<ShuffleOp>()) return emit_shuffle(*op, i);
    if (const auto* op = s.as<GetOp>())
      return element(op->operand, flatten(op->at, type_of(op->operand.value).extents), type.lanes);
    if (const auto* op = s.as<PackOp>())
      return element(op->operands[static_cast<size_t>(i)], 0, type.lanes);
    if (const auto* op = s.as<ViewOp>()) return emit_view(*op, type, i);
    if (s.as<UndefOp>()) return llvm::UndefValue::get(register_type(type));
    if (const auto* op = s.as<RegroupOp>()) return emit_regroup(op->operand, type, i);
    not_kernel_ir(kernel_, s, "an operation that no code generator knows");
  }

  int32_t lanes_of(const ValueOperand& o) const {
    return o.is_literal() ? 1 : type_of(o.value).lanes;
  }

  Value* emit_view(const ViewOp& op, const ValueType& type, int64_t i) {
    const std::vector<int64_t>& from = type_of(op.operand.value).extents;
    std::vector<int64_t> at = unflatten(i, type.extents);
    switch (op.kind) {
      case ViewKind::Reshape:
        return element(op.operand.value, i);
      case ViewKind::Broadcast:
        return broadcast_element(op.operand, i, type.extents, type.lanes);
      case ViewKind::Slice:
        for (size_t d = 0; d < at.size(); ++d) at[d] += op.arguments[d];
        return element(op.operand.value, flatten(at, from));
      case ViewKind::Transpose: {
        // Result axis d is operand axis arguments[d].
        std::vector<int64_t> source(at.size());
        for (size_t d = 0; d < at.size(); ++d) source[static_cast<size_t>(op.arguments[d])] = at[d];
        return element(op.operand.value, flatten(source, from));
      }
    }
    return nullptr;
  }

  Value* emit_regroup(const ValueOperand& operand, const ValueType& type, int64_t i) {
    const int32_t from = lanes_of(operand), to = type.lanes;
    if (from == to) return element(operand, i, to);
    if (Value* packed = emit_packed(operand, type, i)) return packed;
    Value* out = llvm::PoisonValue::get(register_type(type));
    for (int32_t l = 0; l < to; ++l) {
      const int64_t at = i * to + l;
      Value* lane =
          lane_of(element(operand, at / from, from), from, static_cast<int32_t>(at % from));
      out = with_lane(out, to, l, lane);
    }
    return out;
  }

  // Scalars that are about to be narrowed to 16 bits, narrowed together: the machine converts
  // pairs. Null if the operand is something else.
  Value* emit_packed(const ValueOperand& operand, const ValueType& type, int64_t i) {
    if (operand.is_literal() || !is_half(type.dtype) || lanes_of(operand) != 1) return nullptr;
    const Slot& slot = slots_[operand.value.index];
    const auto* row = slot.statement ? slot.statement->as<RowOp>() : nullptr;
    if (!row || row->op != ElementwiseOp::convert) return nullptr;
    const ValueOperand wide = row->operands[0];
    if (dtype_of(wide) != DType::F32) return nullptr;
    const std::vector<int64_t>& extents = type_of(operand.value).extents;
    Value* values =
        llvm::PoisonValue::get(codegen::register_type(context_, DType::F32, type.lanes));
    for (int32_t l = 0; l < type.lanes; ++l)
      values =
          with_lane(values, type.lanes, l, broadcast_element(wide, i * type.lanes + l, extents, 1));
    return this->row(ElementwiseOp::convert, DType::F32, type.dtype, type.lanes, {values});
  }

  Value* emit_shuffle(const ShuffleOp& op, int64_t i) {
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
  Value* fold(Monoid monoid, DType dtype, int32_t lanes, std::vector<Value*> x) {
    size_t n = 1;
    while (n < x.size()) n *= 2;
    for (size_t h = n / 2; h > 0; h /= 2)
      for (size_t i = 0; i < h && i + h < x.size(); ++i)
        x[i] = row(info(monoid).combine, dtype, dtype, lanes, {x[i], x[i + h]});
    return x[0];
  }

  Value* emit_fold(const FoldOp& op, const ValueType& type, int64_t i) {
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
  Value* fold_axes(const FoldOp& op, const ValueType& type, std::vector<int64_t> at, size_t count) {
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

  Value* emit_iota(const Expr& e, const ValueType& type, int64_t i) {
    Value* value = index(e, position_of(type, i));
    if (!value->getType()->isVectorTy()) value = splat(value, type.lanes);
    return b_.CreateSExtOrTrunc(value, register_type(type));
  }

  // ---------------------------------------------------------------- index expressions

  Position position_of(const ValueType& type, int64_t i) const {
    return {unflatten(i, type.extents), type.extents, type.lanes, {}};
  }

  static std::optional<size_t> axis_symbol(const std::string& name) {
    if (name.size() < 2 || name[0] != 'e') return {};
    size_t axis = 0;
    for (char c : std::string_view(name).substr(1)) {
      if (c < '0' || c > '9') return {};
      axis = axis * 10 + static_cast<size_t>(c - '0');
    }
    return axis;
  }

  // Whether the expression differs between elements or lanes of one access.
  bool is_positional(const Expr& e) const {
    if (e.kind() != Expr::Kind::Symbol) {
      for (const Expr& operand : e.operands())
        if (is_positional(operand)) return true;
      return false;
    }
    const std::string& name = e.symbol_name();
    if (name == "lane") return true;
    if (name[0] == '%') {
      const ValueType& type = type_of(value_named(name));
      return type.lanes > 1 || type.count() > 1;
    }
    return axis_symbol(name).has_value() && !symbols_.contains(name);
  }

  bool varies_by_lane(const Expr& e) const {
    if (e.kind() != Expr::Kind::Symbol) {
      for (const Expr& operand : e.operands())
        if (varies_by_lane(operand)) return true;
      return false;
    }
    const std::string& name = e.symbol_name();
    return name == "lane" || (name[0] == '%' && type_of(value_named(name)).lanes > 1);
  }

  static bool is_narrow(Interval range) { return range.min >= INT32_MIN && range.max <= INT32_MAX; }
  // The type in which a range of index values is computed.
  llvm::IntegerType* index_type(Interval range) {
    return machine_.simt && is_narrow(range) ? b_.getInt32Ty() : b_.getInt64Ty();
  }
  llvm::IntegerType* index_type(const Expr& e) { return index_type(e.range()); }
  // One type for the values of several expressions.
  llvm::IntegerType* common_type(std::span<const Expr> expressions) {
    for (const Expr& e : expressions)
      if (index_type(e)->getBitWidth() == 64) return b_.getInt64Ty();
    return b_.getInt32Ty();
  }
  Value* fit(Value* value, llvm::IntegerType* type) {
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
    llvm::Type* shape =
        vector ? shaped(type, static_cast<int32_t>(vector->getNumElements())) : type;
    return b_.CreateSExtOrTrunc(value, shape);
  }
  Value* number(llvm::Type* type, int64_t value) {
    return llvm::ConstantInt::getSigned(type, value);
  }

  // A uniform expression, evaluated once in the scopes that see it.
  Value* index(const Expr& e) {
    if (auto constant = e.as_constant()) return number(index_type(e), *constant);
    if (e.kind() != Expr::Kind::Symbol)
      for (size_t s = scopes_.size(); s-- > 0;)
        if (auto it = scopes_[s].find(e); it != scopes_[s].end()) return it->second;
    Value* value = fit(compute(e, nullptr), index_type(e));
    if (e.kind() != Expr::Kind::Symbol) scopes_.back().emplace(e, value);
    return value;
  }

  // An expression at a position: a number, or a vector of them if it varies by lane.
  Value* index(const Expr& e, const Position& position) {
    return is_positional(e) ? fit(compute(e, &position), index_type(e)) : index(e);
  }

  // The value of an expression, of some width that holds it. Sums and products may be computed in
  // the width of the result, since what wraps around on the way comes back.
  Value* compute(const Expr& e, const Position* position) {
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
        Value* sum = operand(0, type);
        for (size_t i = 1; i < operands.size(); ++i) {
          Value *a = sum, *b = operand(i, type);
          match(a, b);
          sum = b_.CreateAdd(a, b, "", /*HasNUW=*/false, /*HasNSW=*/type->getBitWidth() == 64);
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

  // A scalar beside a vector is splat.
  void match(Value*& a, Value*& b) {
    auto* va = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
    auto* vb = llvm::dyn_cast<llvm::FixedVectorType>(b->getType());
    if (va && !vb) b = b_.CreateVectorSplat(va->getNumElements(), b);
    if (vb && !va) a = b_.CreateVectorSplat(vb->getNumElements(), a);
  }

  Value* floor_division(bool is_mod, const Expr& left, const Expr& right, Value* a, Value* b) {
    llvm::Type* type = a->getType();
    const auto constant = right.as_constant();
    if (constant && (*constant & (*constant - 1)) == 0) {
      if (is_mod) return b_.CreateAnd(a, number(type, *constant - 1));
      return b_.CreateAShr(a, number(type, __builtin_ctzll(static_cast<uint64_t>(*constant))));
    }
    if (left.range().min >= 0) return is_mod ? b_.CreateURem(a, b) : b_.CreateUDiv(a, b);
    Value* quotient = b_.CreateSDiv(a, b);
    Value* rest = b_.CreateSub(a, b_.CreateMul(quotient, b));
    Value* below = b_.CreateICmpSLT(rest, number(type, 0));
    if (is_mod) return b_.CreateSelect(below, b_.CreateAdd(rest, b), rest);
    return b_.CreateAdd(quotient, b_.CreateSExt(below, type));
  }

  Value* symbol(const Expr& e, const Position* position) {
    const std::string& name = e.symbol_name();
    if (auto it = symbols_.find(name); it != symbols_.end()) return it->second;
    if (name[0] == '%') {
      const ValueId id = value_named(name);
      const ValueType& type = type_of(id);
      const int64_t at =
          position ? broadcast_index(type.extents, flatten(position->at, position->extents),
                                     position->extents)
                   : 0;
      Value* value = element(id, at);
      if (position && position->lane) value = lane_of(value, type.lanes, *position->lane);
      const bool vector = value->getType()->isVectorTy();
      llvm::Type* wide = shaped(b_.getInt64Ty(), vector ? type.lanes : 1);
      return is_signed_integer(type.dtype) ? b_.CreateSExt(value, wide)
                                           : b_.CreateZExt(value, wide);
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
  Value* lane_numbers(llvm::Type* type, int32_t lanes, int64_t from) {
    llvm::SmallVector<llvm::Constant*, 64> numbers;
    for (int32_t l = 0; l < lanes; ++l)
      numbers.push_back(llvm::ConstantInt::getSigned(type, from + l));
    return llvm::ConstantVector::get(numbers);
  }

  Value* compare(const IndexComparison& comparison, const Position& position) {
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

  // Whether the ranges of threads and loops prove a comparison at an element of an array.
  static bool holds_always(const IndexComparison& comparison, const Position& position) {
    std::unordered_map<std::string, Expr> at;
    for (size_t i = 0; i < position.at.size(); ++i)
      at.emplace("e" + std::to_string(i), Expr(position.at[i]));
    return braze::holds_always(
        {comparison.left.substitute(at), comparison.kind, comparison.right.substitute(at)});
  }

  std::optional<Affine> affine(const Expr& e, size_t rank) const {
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

  // ---------------------------------------------------------------- accesses

  // `op` is a LoadOp or a StoreOp.
  template <class Op>
  Access make_access(const Op& op, const ValueType& type) {
    BRAZE_CHECK(op.at.size() == 1, "memory in Kernel IR has one coordinate");
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
          if (machine_.simt && part.count && cuts_whole_vectors(diff, type.lanes))
            part.by_lane = part.count = false;
          if (!part.by_lane || part.count || machine_.simt) part.rest = index(part.diff->rest);
        }
      }
      access.parts.push_back(std::move(part));
    }
    return access;
  }

  // Whether `diff` lanes, as many as are left at lane 0, are always none or all of a vector.
  static bool cuts_whole_vectors(const Expr& diff, int32_t lanes) {
    return diff.substitute({{"lane", Expr(0)}}).is_multiple_of(lanes);
  }

  Value* address_of(MemoryId memory, Value* index) {
    return address_from(memory, phase_.pointers[memory.index], index);
  }
  Value* address_from(MemoryId memory, Value* base, Value* index) {
    return b_.CreateGEP(memory_type(context_, kernel_[memory].dtype, 1), base, index);
  }

  // The address of lane 0 of an element (of `lane`, where given).
  Value* address(Access& access, int64_t i, std::optional<int32_t> lane = {}) {
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

  // The base moved along the axes whose strides are no constants.
  Value* row_address(Access& access, std::vector<int64_t> at) {
    const Affine& address = *access.address;
    for (size_t d = 0; d < at.size(); ++d)
      if (address.strides[d].is_constant(0)) at[d] = 0;
    Value*& row = access.rows[at];
    if (row) return row;
    row = access.base;
    for (size_t d = 0; d < at.size(); ++d)
      if (at[d] != 0)
        row = address_from(access.memory, row, index(address.strides[d] * Expr(at[d])));
    return row;
  }

  static int64_t group_of(const Tail& tail, std::vector<int64_t> at) {
    for (size_t d = 0; d < at.size(); ++d)
      if (tail.inside[d]) at[d] = 0;
    return flatten(at, tail.groups);
  }
  static int64_t inner_offset(const Access& access, std::vector<int64_t> at) {
    for (size_t d = 0; d < at.size(); ++d)
      if (!access.tail->inside[d]) at[d] = 0;
    return access.address->offset(at);
  }

  // Whether an access is cut off by one count that runs as its places in memory do.
  std::shared_ptr<Tail> find_tail(const Access& access) const {
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

  // Chooses where the access finds its places, and for a load fills the copy.
  void open_tail(Access& access, std::optional<uint64_t> fill) {
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
    // Guards that see no lane still choose the address, group by group.
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
    // Places on the stack are aligned as the first of them is only.
    access.align = static_cast<int64_t>(size_of(dtype));
    access.tail = tail;
  }

  // After the stores: what went to the copy goes to memory.
  void close_tail(Access& access) {
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

  static int64_t first_of_group(const Access& access, const Tail& tail, int64_t g) {
    return flatten(unflatten(g, tail.groups), access.type.extents);
  }

  // for (t = 0; t < count; ++t): each(group, t, place t of the group in the copy) for all groups.
  template <class F>
  void copy_tail(const Access& access, const Tail& tail, Value* count, const F& each) {
    llvm::Type* unit = memory_type(context_, access.type.dtype, 1);
    BasicBlock *before = b_.GetInsertBlock(), *loop = block("copy"), *after = block("copied");
    b_.CreateCondBr(b_.CreateICmpSGT(count, i64(0)), loop, after);
    b_.SetInsertPoint(loop);
    auto* t = b_.CreatePHI(b_.getInt64Ty(), 2, "t");
    t->addIncoming(i64(0), before);
    for (size_t g = 0; g < tail.memory.size(); ++g) {
      Value* place = b_.CreateGEP(unit, tail.copy,
                                  b_.CreateNSWAdd(t, i64(static_cast<int64_t>(g) * tail.span)));
      each(static_cast<int64_t>(g), t, place);
    }
    Value* next = b_.CreateNSWAdd(t, i64(1));
    t->addIncoming(next, loop);
    b_.CreateCondBr(b_.CreateICmpSLT(next, count), loop, after);
    b_.SetInsertPoint(after);
  }

  llvm::MDNode* unlikely() { return llvm::MDBuilder(context_).createUnlikelyBranchWeights(); }

  // How the lanes of an access lie in memory, if it is the same for all elements.
  std::optional<int64_t> lane_stride(const Access& access) const {
    if (access.type.lanes == 1) return 1;
    if (access.address) return access.address->lane;
    if (!varies_by_lane(access.at)) return 0;
    if (varies_by_lane(access.at)) {
      std::vector<ValueId> named;
      values_in(access.at, named);
      for (ValueId id : named)
        if (type_of(id).lanes > 1) return {};
    }
    const auto coefficient = access.at.coefficient_of("lane");
    return coefficient ? coefficient->as_constant() : std::nullopt;
  }

  Value* exceeds(Value* value, int64_t limit) {
    if (!is_narrow(Interval::point(limit))) value = fit(value, b_.getInt64Ty());
    return b_.CreateICmpSGT(value, number(value->getType(), limit));
  }

  // The part of the guard that is one bit per element; null if there is none.
  Value* element_condition(Access& access, int64_t i) {
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

  Value* mask_element(Access& access, int64_t i) {
    return element(access.mask,
                   broadcast_index(type_of(access.mask).extents, i, access.type.extents));
  }

  // The part of the guard that differs between lanes; null if there is none.
  Value* lane_mask(Access& access, int64_t i) {
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
  Value* count_mask(Access::Part& part, int64_t offset, int32_t lanes) {
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
    // An offset beyond all counts is met as if it were exact.
    const int64_t from = std::clamp<int64_t>(-offset, -4 * kManyLanes, 4 * kManyLanes);
    return b_.CreateICmpSGT(part.many, lane_numbers(b_.getInt32Ty(), lanes, from));
  }

  bool has_masked_access(DType dtype) const { return machine_.avx512 || size_of(dtype) >= 4; }

  llvm::Align alignment(const Access& access) const {
    return llvm::Align(std::min<uint64_t>(static_cast<uint64_t>(access.align), 64));
  }
  llvm::Align element_alignment(const Access& access) const {
    return llvm::Align(size_of(access.type.dtype));
  }

  // `fill` in memory, for loads that must not happen.
  Value* fill_address(const ValueType& type, uint64_t fill) {
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

  // Where stores go that must not happen: 512 bytes of stack hold the widest vector.
  Value* dummy() {
    if (!dummy_) {
      llvm::IRBuilder<> at(entry_, entry_->begin());
      llvm::AllocaInst* made =
          at.CreateAlloca(llvm::ArrayType::get(at.getInt8Ty(), 512), nullptr, "dummy");
      made->setAlignment(llvm::Align(64));
      dummy_ = made;
    }
    return dummy_;
  }

  Value* emit_load(const LoadOp& op, const ValueType& type, int64_t i,
                   std::shared_ptr<Access>& access) {
    if (!access) {
      access = std::make_shared<Access>(make_access(op, type));
      open_tail(*access, op.fill);
    }
    return load_element(*access, op.fill, i);
  }

  Value* load_element(Access& access, uint64_t fill, int64_t i) {
    const ValueType& type = access.type;
    const auto stride = lane_stride(access);
    if (stride == 0 && type.lanes > 1) {
      // One address for all lanes: a scalar, splat; a mask that differs by lane chooses after.
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
    return load_lanes(access, fill, i);
  }

  Value* load_scalar(Access& access, uint64_t fill, Value* at, Value* condition) {
    const DType dtype = access.type.dtype;
    if (condition) at = b_.CreateSelect(condition, at, fill_address({dtype, 1, {}}, fill));
    auto* load =
        b_.CreateAlignedLoad(memory_type(context_, dtype, 1), at, element_alignment(access));
    annotate(load, access.memory, access.tail != nullptr);
    return from_memory(load, dtype);
  }

  Value* load_vector(Access& access, uint64_t fill, int64_t i) {
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
      return from_memory(load, type.dtype);
    }
    Value* other =
        to_memory(literal(context_, type.dtype, fill, type.lanes), type.dtype, type.lanes);
    auto* load = b_.CreateMaskedLoad(memory, at, alignment(access), mask, other);
    annotate(load, access.memory, access.tail != nullptr);
    return from_memory(load, type.dtype);
  }

  // The lane's bit of all guards; null if there is none.
  Value* lane_condition(Access& access, int64_t i, Value* condition, Value* mask, int32_t lane) {
    (void)access, (void)i;
    if (!mask) return condition;
    Value* bit = lane_of(mask, access.type.lanes, lane);
    return condition ? b_.CreateAnd(condition, bit) : bit;
  }

  // Scalar loads, lane by lane: strided, gathered, or masked where the machine has no masks.
  Value* load_lanes(Access& access, uint64_t fill, int64_t i) {
    const ValueType& type = access.type;
    Value* condition = element_condition(access, i);
    Value* mask = lane_mask(access, i);
    Value* indices = gathered_index(access, i);
    Value* out = llvm::PoisonValue::get(codegen::register_type(context_, type.dtype, type.lanes));
    for (int32_t l = 0; l < type.lanes; ++l) {
      Value* at = indices ? address_of(access.memory, lane_of(indices, type.lanes, l))
                          : address(access, i, l);
      Value* value = load_scalar(access, fill, at, lane_condition(access, i, condition, mask, l));
      out = with_lane(out, type.lanes, l, value);
    }
    return out;
  }

  // All lanes' indices as a vector, where a vector value steers them.
  Value* gathered_index(Access& access, int64_t i) {
    if (access.address || access.type.lanes == 1) return nullptr;
    std::vector<ValueId> named;
    values_in(access.at, named);
    const bool gathers =
        std::any_of(named.begin(), named.end(), [&](ValueId id) { return type_of(id).lanes > 1; });
    if (!gathers) return nullptr;
    return index(access.at, position_of(access.type, i));
  }

  void emit_store(const StoreOp& op) {
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

  void store_element(Access& access, Value* value, int64_t i) {
    const ValueType& type = access.type;
    const auto stride = lane_stride(access);
    Value* condition = element_condition(access, i);
    Value* mask = lane_mask(access, i);
    // A mask of one lane is a scalar store. (Where it meets a narrowing, LLVM 22 makes of it a
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
    // Merged, it would go through the caches.
    const auto width = bits->getType()->getPrimitiveSizeInBits().getFixedValue();
    if (stream_ && size_of(type.dtype) < 8 && width >= 128 && width <= 512) bits = opaque(bits);
    auto* store = b_.CreateAlignedStore(bits, at, alignment(access));
    annotate(store, access.memory);
    if (stream_)
      store->setMetadata(
          llvm::LLVMContext::MD_nontemporal,
          llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(b_.getInt32(1))));
  }

  static bool has_one_lane(Value* mask) {
    auto* known = llvm::dyn_cast<llvm::Constant>(mask);
    if (!known) return false;
    const auto lanes = llvm::cast<llvm::FixedVectorType>(mask->getType())->getNumElements();
    unsigned set = 0;
    for (unsigned l = 0; l < lanes; ++l) set += known->getAggregateElement(l)->isOneValue();
    return set == 1;
  }

  // The value, from where nothing is known of it: a store would else merge with a narrowing before
  // it.
  Value* opaque(Value* value) {
    auto* type = llvm::FunctionType::get(value->getType(), {value->getType()}, false);
    return b_.CreateCall(llvm::InlineAsm::get(type, "", "=v,0", /*hasSideEffects=*/false), value);
  }

  void store_lanes(Access& access, Value* value, int64_t i, Value* condition, Value* mask) {
    const ValueType& type = access.type;
    Value* indices = gathered_index(access, i);
    for (int32_t l = 0; l < type.lanes; ++l) {
      Value* at = indices ? address_of(access.memory, lane_of(indices, type.lanes, l))
                          : address(access, i, l);
      Value* holds = lane_condition(access, i, condition, mask, l);
      if (auto* known = llvm::dyn_cast_or_null<llvm::Constant>(holds);
          known && known->isNullValue())
        continue;
      if (holds) at = b_.CreateSelect(holds, at, dummy());
      Value* bits = to_memory(lane_of(value, type.lanes, l), type.dtype, 1);
      annotate(b_.CreateAlignedStore(bits, at, element_alignment(access)), access.memory);
    }
  }

  // ---------------------------------------------------------------- accesses of one GPU thread

  // What one instruction moves: an element, or a lane of it where they lie apart or some are cut.
  struct Piece {
    Value* at = nullptr;
    Value* condition = nullptr;  // null: always
    int64_t element = 0;
    int32_t lane = 0;
    int32_t lanes = 1;
    std::vector<Piece> apart = {};  // what to move of a vector that is not there as a whole
  };

  // All addresses and conditions of an access, so that its instructions stand close together.
  // Equal conditions are one value.
  std::vector<Piece> pieces(Access& access, bool is_load) {
    const ValueType& type = access.type;
    const auto stride = lane_stride(access);
    const bool lanes_differ = (access.mask && type_of(access.mask).lanes > 1) ||
                              std::any_of(access.parts.begin(), access.parts.end(),
                                          [](const Access::Part& part) { return part.by_lane; });
    const bool one_scalar = type.lanes > 1 && stride == 0 && is_load && !lanes_differ;
    const bool whole = one_scalar || (stride == 1 && !lanes_differ);
    const auto bytes = static_cast<int64_t>(size_of(type.dtype)) * type.lanes;
    const bool at_edges = stride == 1 && lanes_differ && type.lanes > 1 && access.align >= bytes;
    std::map<std::vector<Value*>, Value*> conditions;
    const auto all_of = [&](const std::vector<Value*>& terms) {
      Value*& condition = conditions[terms];
      if (!condition && !terms.empty()) condition = b_.CreateAnd(terms);
      return condition;
    };
    std::vector<Piece> out;
    for (int64_t i = 0; i < type.count(); ++i) {
      Value* indices = gathered_index(access, i);
      std::vector<Piece> lanes;
      std::vector<Value*> terms;  // of all lanes
      bool alike = true;
      for (int32_t l = 0; l < (whole ? 1 : type.lanes); ++l) {
        const auto own = guard_terms(access, i, l);
        alike = alike && (l == 0 || all_of(own) == lanes.back().condition);
        for (Value* term : own)
          if (std::find(terms.begin(), terms.end(), term) == terms.end()) terms.push_back(term);
        Value* at = indices ? address_of(access.memory, lane_of(indices, type.lanes, l))
                            : address(access, i, l);
        lanes.push_back({at, all_of(own), i, l, whole && !one_scalar ? type.lanes : 1});
      }
      if (at_edges) {
        Piece vector{lanes[0].at, all_of(terms), i, 0, type.lanes};
        if (!alike) vector.apart = std::move(lanes);
        out.push_back(std::move(vector));
      } else {
        out.insert(out.end(), lanes.begin(), lanes.end());
      }
    }
    return out;
  }

  // What must hold for a lane of an element.
  std::vector<Value*> guard_terms(Access& access, int64_t i, int32_t lane) {
    std::vector<Value*> terms;
    const auto add = [&](Value* term) {
      auto* known = llvm::dyn_cast<llvm::ConstantInt>(term);
      if (!known || known->isZero()) terms.push_back(term);
    };
    Position position = position_of(access.type, i);
    position.lane = lane;
    for (Access::Part& part : access.parts) {
      if (!part.diff) {
        add(compare(part.comparison, position));
        continue;
      }
      const int64_t offset = part.diff->offset(position.at) + part.diff->lane * lane;
      if (part.diff->rest.range().min > -offset) continue;
      Value*& holds = part.holds[offset];
      if (!holds) holds = exceeds(part.rest, -offset);
      add(holds);
    }
    if (access.mask) add(lane_of(mask_element(access, i), type_of(access.mask).lanes, lane));
    return terms;
  }

  // Emits body(from, to) for each run of pieces with one condition, under a branch if they have
  // one, then joined(from, to, block before the branch, block at the end of its body). Where a
  // vector is not there as a whole, apart(piece) is emitted before that join.
  template <class Body, class Apart, class Joined>
  void guarded(const std::vector<Piece>& pieces, const Body& body, const Apart& apart,
               const Joined& joined) {
    for (size_t from = 0, to = 0; from < pieces.size(); from = to) {
      Value* condition = pieces[from].condition;
      const bool parts = !pieces[from].apart.empty();
      do ++to;
      while (!parts && to < pieces.size() && pieces[to].condition == condition);
      if (!condition) {
        body(from, to);
        continue;
      }
      BasicBlock *before = b_.GetInsertBlock(), *inside = block("inside"), *after = block("after");
      BasicBlock* outside = parts ? block("outside") : after;
      b_.CreateCondBr(condition, inside, outside);
      b_.SetInsertPoint(inside);
      body(from, to);
      BasicBlock* end = b_.GetInsertBlock();
      b_.CreateBr(after);
      if (parts) {
        b_.SetInsertPoint(outside);
        apart(from);
        before = b_.GetInsertBlock();
        b_.CreateBr(after);
      }
      b_.SetInsertPoint(after);
      joined(from, to, before, end);
    }
  }

  std::vector<Value*> load_elements(const LoadOp& op, const ValueType& type) {
    Access access = make_access(op, type);
    const std::vector<Piece> parts = pieces(access, /*is_load=*/true);
    const std::vector<Value*> loaded = load_pieces(access, parts, op.fill);
    std::vector<Value*> out(static_cast<size_t>(type.count()));
    for (size_t p = 0; p < parts.size(); ++p) {
      Value*& element = out[static_cast<size_t>(parts[p].element)];
      Value* value = from_memory(loaded[p], type.dtype);
      if (parts[p].lanes == type.lanes) {
        element = value;
      } else if (p + 1 == parts.size() || parts[p + 1].element != parts[p].element) {
        element = parts[p].lane == 0 ? splat(value, type.lanes)
                                     : with_lane(element, type.lanes, parts[p].lane, value);
      } else {
        if (!element) element = llvm::PoisonValue::get(register_type(type));
        element = with_lane(element, type.lanes, parts[p].lane, value);
      }
    }
    return out;
  }

  // What each piece moves, as it is in memory; `fill` where its condition does not hold.
  std::vector<Value*> load_pieces(const Access& access, const std::vector<Piece>& parts,
                                  uint64_t fill) {
    const DType dtype = access.type.dtype;
    std::vector<Value*> loaded(parts.size()), others(parts.size());
    const auto body = [&](size_t from, size_t to) {
      for (size_t p = from; p < to; ++p) {
        others[p] = memory_literal(dtype, fill, parts[p].lanes);
        loaded[p] = load_piece(access, parts[p]);
      }
    };
    const auto apart = [&](size_t p) {
      const std::vector<Value*> lanes = load_pieces(access, parts[p].apart, fill);
      others[p] = llvm::PoisonValue::get(memory_type(context_, dtype, parts[p].lanes));
      for (size_t l = 0; l < lanes.size(); ++l)
        others[p] = b_.CreateInsertElement(others[p], lanes[l], l);
    };
    guarded(parts, body, apart, [&](size_t from, size_t to, BasicBlock* before, BasicBlock* end) {
      for (size_t p = from; p < to; ++p) {
        auto* phi = b_.CreatePHI(loaded[p]->getType(), 2);
        phi->addIncoming(others[p], before);
        phi->addIncoming(loaded[p], end);
        loaded[p] = phi;
      }
    });
    return loaded;
  }

  // Data that is used once should not push other data out of the caches, which LLVM cannot say.
  // The words of such an access, or 0 if it is an ordinary one.
  size_t streamed_words(const Access& access, const Piece& piece) const {
    const bool on_device = kernel_[access.memory].space == MemorySpace::Parameter ||
                           kernel_[access.memory].space == MemorySpace::Workspace;
    const auto bytes = static_cast<int64_t>(size_of(access.type.dtype)) * piece.lanes;
    const bool one_instruction =
        (bytes == 4 || bytes == 8 || bytes == 16) && (bytes == 4 || access.align >= bytes);
    return access.cache == CacheHint::Stream && on_device && one_instruction
               ? static_cast<size_t>(bytes / 4)
               : 0;
  }
  llvm::Type* words_type(size_t words) {
    return shaped(b_.getInt32Ty(), static_cast<int32_t>(words));
  }
  // "$1" or "{$1, $2}", for the registers from `first` on.
  static std::string word_list(size_t first, size_t words) {
    std::string out;
    for (size_t i = 0; i < words; ++i) out += fmt::format("{}${}", i ? ", " : "", first + i);
    return words == 1 ? out : "{" + out + "}";
  }
  static std::string vector_suffix(size_t words) {
    return words == 1 ? ".b32" : fmt::format(".v{}.b32", words);
  }

  Value* load_streamed(const Piece& piece, DType dtype, size_t words) {
    AsmText text;
    text.text = fmt::format("ld.global.nc.L1::no_allocate{} {}, [${}];", vector_suffix(words),
                            word_list(0, words), words);
    text.results = std::string(words, 'r');
    text.inputs = "l";
    text.ties = {-1};
    text.effects = false;
    const auto parts = inline_asm(text, {b_.CreatePtrToInt(piece.at, b_.getInt64Ty())});
    Value* value = words == 1 ? parts[0] : llvm::PoisonValue::get(words_type(words));
    for (size_t i = 0; words > 1 && i < words; ++i)
      value = b_.CreateInsertElement(value, parts[i], i);
    return b_.CreateBitCast(value, memory_type(context_, dtype, piece.lanes));
  }

  void store_streamed(const Piece& piece, Value* value, size_t words) {
    AsmText text;
    text.text = fmt::format("st.global.cs{} [$0], {};", vector_suffix(words), word_list(1, words));
    text.inputs = "l" + std::string(words, 'r');
    text.ties.assign(1 + words, -1);
    Value* parts = b_.CreateBitCast(value, words_type(words));
    std::vector<Value*> inputs = {b_.CreatePtrToInt(piece.at, b_.getInt64Ty())};
    for (size_t i = 0; i < words; ++i)
      inputs.push_back(words == 1 ? parts : b_.CreateExtractElement(parts, i));
    inline_asm(text, inputs);
  }

  Value* load_piece(const Access& access, const Piece& piece) {
    const DType dtype = access.type.dtype;
    if (const size_t words = streamed_words(access, piece); words && is_constant(access.memory))
      return load_streamed(piece, dtype, words);
    const bool whole = piece.lanes == access.type.lanes;
    auto* load = b_.CreateAlignedLoad(memory_type(context_, dtype, piece.lanes), piece.at,
                                      whole ? alignment(access) : element_alignment(access));
    annotate(load, access.memory);
    return load;
  }

  llvm::Constant* memory_literal(DType dtype, uint64_t bits, int32_t lanes) {
    if (dtype != DType::Bool) return literal(context_, dtype, bits, lanes);
    return llvm::ConstantInt::get(memory_type(context_, dtype, lanes), bits ? 1 : 0);
  }

  void store_elements(Access& access, const ValueOperand& operand) {
    const std::vector<Value*> values = elements_of(operand, access.type);
    store_pieces(access, pieces(access, /*is_load=*/false), values);
  }

  void store_pieces(const Access& access, const std::vector<Piece>& parts,
                    const std::vector<Value*>& values) {
    const ValueType& type = access.type;
    const auto body = [&](size_t from, size_t to) {
      for (size_t p = from; p < to; ++p) {
        const bool whole = parts[p].lanes == type.lanes;
        Value* value = values[static_cast<size_t>(parts[p].element)];
        if (!whole) value = lane_of(value, type.lanes, parts[p].lane);
        value = to_memory(value, type.dtype, parts[p].lanes);
        if (const size_t words = streamed_words(access, parts[p])) {
          store_streamed(parts[p], value, words);
          continue;
        }
        auto* store = b_.CreateAlignedStore(value, parts[p].at,
                                            whole ? alignment(access) : element_alignment(access));
        annotate(store, access.memory);
      }
    };
    const auto apart = [&](size_t p) { store_pieces(access, parts[p].apart, values); };
    guarded(parts, body, apart, [](size_t, size_t, BasicBlock*, BasicBlock*) {});
  }

  void emit_atomic(const AtomicOp& op, const Statement& s) {
    force_loads([&](MemoryId memory) { return !is_constant(memory); });
    Value* at = address_of(op.memory, index(op.at));
    const DType dtype = kernel_[op.memory].dtype;
    const auto action = !op.is_max                 ? llvm::AtomicRMWInst::Add
                        : is_signed_integer(dtype) ? llvm::AtomicRMWInst::Max
                                                   : llvm::AtomicRMWInst::UMax;
    const auto order =
        op.acquire_release ? llvm::AtomicOrdering::AcquireRelease : llvm::AtomicOrdering::Monotonic;
    const auto scope = machine_.simt ? context_.getOrInsertSyncScopeID("device")
                                     : llvm::SyncScope::ID{llvm::SyncScope::System};
    Value* old = b_.CreateAtomicRMW(action, at, element(op.value, 0, 1),
                                    llvm::Align(size_of(dtype)), order, scope);
    slots_[s.results[0].index] = {nullptr, {old}, 0, nullptr};
  }

  // ---------------------------------------------------------------- instructions of a GPU

  // Shared memory at the same place in the block of that rank.
  Value* of_block(Value* pointer, const Expr& rank, const Position& position) {
    Value* number = fit(index(rank, position), b_.getInt32Ty());
    return b_.CreateIntrinsic(llvm::Intrinsic::nvvm_mapa_shared_cluster, {pointer, number});
  }

  // Registers of an instruction: its operands' values, one after the other.
  struct Registers {
    std::vector<AsmOperand> operands;
    std::vector<Value*> values;

    void add(AsmOperand operand, std::vector<Value*> registers) {
      operand.registers = registers.size();
      operands.push_back(operand);
      values.insert(values.end(), registers.begin(), registers.end());
    }
  };

  void emit_instruction(const InstructionOp& op, const Statement& s) {
    if (info(op.instruction).result == InstructionResult::First) return emit_by_element(op, s);
    Registers inputs;
    const std::string_view letters = info(op.instruction).operands;
    for (size_t i = 0; i < op.operands.size(); ++i)
      add_operand(letters[std::min(i, letters.size() - 1)], op.operands[i], inputs, s);
    std::vector<AsmOperand> results;
    for (ValueId id : s.results)
      results.push_back({static_cast<size_t>(type_of(id).count()), letter_of(type_of(id), s)});
    const AsmText text = asm_text(op, inputs.operands, results);
    const std::vector<Value*> out = inline_asm(text, inputs.values);
    size_t next = 0;
    for (ValueId id : s.results) {
      std::vector<Value*> elements;
      for (int64_t i = 0; i < type_of(id).count(); ++i)
        elements.push_back(from_register(out[next++], type_of(id)));
      bind(id, std::move(elements));
    }
  }

  // A shuffle moves one register: each element of an array has its own.
  void emit_by_element(const InstructionOp& op, const Statement& s) {
    const auto& value = std::get<ValueOperand>(op.operands[0]);
    const ValueType& type = type_of(s.results[0]);
    const char letter = letter_of(type, s);
    const std::string_view letters = info(op.instruction).operands;
    std::vector<Value*> moved;
    for (Value* element : elements_of(value, type)) {
      Registers inputs;
      inputs.add({.letter = letter}, {element});
      for (size_t i = 1; i < op.operands.size(); ++i)
        add_operand(letters[i], op.operands[i], inputs, s);
      const AsmText text = asm_text(op, inputs.operands, {{1, letter}});
      moved.push_back(from_register(inline_asm(text, inputs.values)[0], type));
    }
    bind(s.results[0], std::move(moved));
  }

  char letter_of(const ValueType& type, const Statement& s) const {
    const auto letter = register_letter(type);
    if (!letter) not_kernel_ir(kernel_, s, "no instruction takes " + type.to_string());
    return *letter;
  }

  void add_operand(char letter, const InstructionOperand& operand, Registers& out,
                   const Statement& s) {
    const Position nowhere{};
    const auto small = [&](const Expr& e) { return fit(index(e), b_.getInt32Ty()); };
    if (const auto* e = std::get_if<Expr>(&operand)) {
      out.add({.constant = e->as_constant()},
              letter == '#' ? std::vector<Value*>{} : std::vector<Value*>{small(*e)});
    } else if (const auto* value = std::get_if<ValueOperand>(&operand)) {
      const ValueType type =
          value->is_literal() ? ValueType{value->dtype, 1, {}} : type_of(value->value);
      out.add({.letter = letter_of(type, s)}, elements_of(*value, type));
    } else if (const auto* map = std::get_if<MapPlace>(&operand)) {
      std::vector<Value*> registers = {
          b_.CreatePtrToInt(phase_.maps[map->map.index], b_.getInt64Ty())};
      for (const Expr& x : map->at) registers.push_back(small(x));
      out.add({}, std::move(registers));
    } else {
      const auto& place = std::get<Place>(operand);
      if (place.matrix) return out.add({.matrix = place.matrix}, {descriptor(place)});
      Value* at = address_of(place.memory, index(place.at));
      std::vector<Value*> registers = {
          b_.CreatePtrToInt(at, letter == 'P' ? b_.getInt64Ty() : b_.getInt32Ty())};
      if (place.rank) registers.push_back(small(*place.rank));
      out.add({.has_rank = place.rank.has_value()}, std::move(registers));
    }
  }

  // Of a matrix in shared memory, in units of 16 bytes; constant steps become one addition.
  Value* descriptor(const Place& place) {
    const MatrixLayout& layout = *place.matrix;
    const Memory& memory = kernel_[place.memory];
    const Expr bytes = place.at * Expr(static_cast<int64_t>(size_of(memory.dtype)));
    BRAZE_CHECK(bytes.is_multiple_of(16), "a matrix operand begins at a multiple of 16 bytes");
    Value* address = b_.CreatePtrToInt(phase_.pointers[place.memory.index], b_.getInt32Ty());
    Value* base = b_.CreateLShr(b_.CreateAnd(address, kDescriptorAddress), 4);
    Value* at =
        fit(index(floordiv(bytes, Expr(16)) + Expr(layout.leading / 16 << 16)), b_.getInt32Ty());
    Value* low = b_.CreateZExt(b_.CreateAdd(base, at), b_.getInt64Ty());
    return b_.CreateOr(low, b_.getInt64(uint64_t{descriptor_high(layout)} << 32));
  }

  llvm::Type* asm_type(char letter) {
    switch (letter) {
      case 'f':
        return b_.getFloatTy();
      case 'd':
        return b_.getDoubleTy();
      case 'l':
        return b_.getInt64Ty();
      default:
        return b_.getInt32Ty();
    }
  }
  // Pairs of 16 bits are one register, bool is 0 or 1.
  Value* to_register(Value* value, char letter) {
    if (value->getType()->isIntegerTy(1)) return b_.CreateZExt(value, b_.getInt32Ty());
    return b_.CreateBitCast(value, asm_type(letter));
  }
  Value* from_register(Value* value, const ValueType& type) {
    if (type.dtype == DType::Bool) return b_.CreateICmpNE(value, b_.getInt32(0));
    return b_.CreateBitCast(value, register_type(type));
  }

  std::vector<Value*> inline_asm(const AsmText& text, const std::vector<Value*>& inputs) {
    std::vector<llvm::Type*> results, types;
    std::vector<Value*> arguments;
    std::string constraints;
    const auto add = [&](const std::string& constraint) {
      constraints += (constraints.empty() ? "" : ",") + constraint;
    };
    for (char letter : text.results) {
      results.push_back(asm_type(letter));
      add(std::string("=") + letter);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      arguments.push_back(to_register(inputs[i], text.inputs[i]));
      types.push_back(arguments.back()->getType());
      add(text.ties[i] < 0 ? std::string(1, text.inputs[i]) : std::to_string(text.ties[i]));
    }
    if (text.effects) add("~{memory}");
    llvm::Type* result = results.empty()       ? b_.getVoidTy()
                         : results.size() == 1 ? results[0]
                                               : llvm::StructType::get(context_, results);
    auto* type = llvm::FunctionType::get(result, types, false);
    auto* call =
        b_.CreateCall(llvm::InlineAsm::get(type, text.text, constraints, text.effects), arguments);
    call->setDoesNotThrow();
    if (!text.effects) call->setDoesNotAccessMemory();
    if (text.converges) call->setConvergent();
    std::vector<Value*> out;
    for (unsigned i = 0; i < results.size(); ++i)
      out.push_back(results.size() == 1 ? call : b_.CreateExtractValue(call, i));
    return out;
  }

  // Roles stand last in a phase: each ends its threads. The number of the warp comes by a shuffle,
  // so that the assembler knows the branch to be uniform.
  void emit_role(const RoleOp& role) {
    prepare(*role.body);
    Value* warp = b_.CreateLShr(fit(symbols_.at("tid"), b_.getInt32Ty()), 5);
    const InstructionOp shuffle{Instruction::shfl_idx, {ValueOperand(), Expr(0)}, 0};
    const AsmText text =
        asm_text(shuffle, {{.registers = 1}, {.registers = 1}}, {{.registers = 1}});
    warp = inline_asm(text, {warp, b_.getInt32(0)})[0];
    Value* within =
        b_.CreateICmpULT(b_.CreateSub(warp, b_.getInt32(static_cast<uint32_t>(role.begin))),
                         b_.getInt32(static_cast<uint32_t>(role.end - role.begin)));
    BasicBlock *body = block(role.name.c_str()), *next = block("next");
    b_.CreateCondBr(within, body, next);
    b_.SetInsertPoint(body);
    set_registers(role.registers);
    symbols_["rtid"] = b_.CreateSub(fit(symbols_.at("tid"), b_.getInt32Ty()),
                                    b_.getInt32(static_cast<uint32_t>(32 * role.begin)));
    run_region(*role.body);
    b_.CreateRetVoid();
    b_.SetInsertPoint(next);
  }

  // Registers per thread from here on, where they differ from those of the launch.
  void set_registers(int64_t registers) {
    if (registers == 0) return;
    const int64_t at_launch = code_->registers > 0
                                  ? code_->registers
                                  : std::min<int64_t>(255, 65536 / code_->block / 8 * 8);
    if (registers == at_launch) return;
    const auto id = registers < at_launch ? llvm::Intrinsic::nvvm_setmaxnreg_dec_sync_aligned_u32
                                          : llvm::Intrinsic::nvvm_setmaxnreg_inc_sync_aligned_u32;
    b_.CreateIntrinsic(id, {b_.getInt32(static_cast<uint32_t>(registers))});
  }

  // ---------------------------------------------------------------- control

  using Carried = std::vector<std::vector<Value*>>;  // per carried value, its elements

  std::vector<Value*> elements_of(const ValueOperand& o, const ValueType& type) {
    std::vector<Value*> out;
    for (int64_t i = 0; i < type.count(); ++i) out.push_back(element(o, i, type.lanes));
    return out;
  }

  Carried initial_values(const std::vector<std::pair<ValueId, ValueOperand>>& carried) {
    Carried out;
    for (const auto& [id, first] : carried) out.push_back(elements_of(first, type_of(id)));
    return out;
  }

  void bind(ValueId id, std::vector<Value*> elements) {
    slots_[id.index] = {nullptr, std::move(elements), 0, nullptr};
  }

  // Phis for every element, with a first incoming value each.
  std::vector<std::vector<llvm::PHINode*>> make_phis(const Carried& values, BasicBlock* from) {
    std::vector<std::vector<llvm::PHINode*>> out;
    for (const auto& elements : values) {
      out.emplace_back();
      for (Value* value : elements) {
        out.back().push_back(b_.CreatePHI(value->getType(), 2));
        out.back().back()->addIncoming(value, from);
      }
    }
    return out;
  }
  static Carried as_values(const std::vector<std::vector<llvm::PHINode*>>& phis) {
    Carried out;
    for (const auto& list : phis) out.emplace_back(list.begin(), list.end());
    return out;
  }
  static void add_incoming(const std::vector<std::vector<llvm::PHINode*>>& phis,
                           const Carried& values, BasicBlock* from) {
    for (size_t i = 0; i < phis.size(); ++i)
      for (size_t j = 0; j < phis[i].size(); ++j) phis[i][j]->addIncoming(values[i][j], from);
  }

  // One turn of a loop: binds the symbol and the carried values, returns what the body yields.
  Carried turn(const ForOp& loop, Value* symbol, const Carried& carried) {
    symbols_[loop.symbol] = symbol;
    for (size_t i = 0; i < carried.size(); ++i) bind(loop.carried[i].first, carried[i]);
    enter_region();
    for (const Statement& statement : loop.body->statements) emit(statement);
    Carried out;
    for (size_t i = 0; i < carried.size(); ++i)
      out.push_back(elements_of(loop.body->yields[i], type_of(loop.carried[i].first)));
    leave_region();
    return out;
  }

  void emit_for(const ForOp& loop, const Statement& s) {
    prepare(*loop.body);
    Carried values = initial_values(loop.carried);
    const auto low = loop.low.as_constant(), high = loop.high.as_constant(),
               step = loop.step.as_constant();
    const bool known = low && high && step;
    const int64_t turns = known ? std::max<int64_t>(0, (*high - *low + *step - 1) / *step) : -1;
    if (known && (loop.unroll <= 0 || turns <= std::max<int64_t>(1, loop.unroll))) {
      for (int64_t t = 0; t < turns; ++t) values = turn(loop, i64(*low + t * *step), values);
    } else {
      const int64_t copies = std::max<int64_t>(1, loop.unroll);
      llvm::IntegerType* type = loop_type(loop, copies);
      Value *from = fit(index(loop.low), type), *to = fit(index(loop.high), type),
            *by = fit(index(loop.step), type);
      Value* next = from;
      if (copies > 1) {
        // A turn of the long loop needs all its copies to be within: k + (copies - 1) * step <
        // high.
        Value* reach = b_.CreateNSWMul(by, number(type, copies - 1));
        Value* last = b_.CreateNSWSub(to, reach);
        next = rotated_loop(loop, from, last, by, copies, values, turns);
      }
      if (copies == 1 || turns < 0 || turns % copies != 0)
        rotated_loop(loop, next, to, by, 1, values, copies == 1 ? turns : -1);
    }
    for (size_t i = 0; i < s.results.size(); ++i) bind(s.results[i], values[i]);
  }

  // Holds every k, and the first that is not run.
  llvm::IntegerType* loop_type(const ForOp& loop, int64_t copies) {
    const Interval low = loop.low.range(), high = loop.high.range(), step = loop.step.range();
    if (!is_narrow(low) || !is_narrow(high) || !is_narrow(step) || !is_narrow({0, copies}))
      return b_.getInt64Ty();
    const int64_t reach = step.max * copies;
    return index_type(
        Interval{std::min(low.min, high.min - reach), std::max(low.max, high.max) + reach});
  }

  // for (k = from; k < to; k += copies * by), tested at the end of each turn. Updates `values` to
  // what they are after it; returns the first k that was not run.
  Value* rotated_loop(const ForOp& loop, Value* from, Value* to, Value* by, int64_t copies,
                      Carried& values, int64_t turns) {
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock *body = block(loop.symbol.c_str()), *after = block("after");
    if (turns >= copies)
      b_.CreateBr(body);
    else
      b_.CreateCondBr(b_.CreateICmpSLT(from, to), body, after);
    b_.SetInsertPoint(body);
    auto* k = b_.CreatePHI(from->getType(), 2, loop.symbol);
    k->addIncoming(from, before);
    const auto phis = make_phis(values, before);
    Carried inside = as_values(phis);
    Value* next = k;
    for (int64_t c = 0; c < copies; ++c) {
      inside = turn(loop, next, inside);
      next = b_.CreateNSWAdd(next, by);
    }
    BasicBlock* latch = b_.GetInsertBlock();
    k->addIncoming(next, latch);
    add_incoming(phis, inside, latch);
    b_.CreateCondBr(b_.CreateICmpSLT(next, to), body, after);
    b_.SetInsertPoint(after);
    if (turns >= copies) {
      values = inside;
      return next;
    }
    auto* end = b_.CreatePHI(from->getType(), 2);
    end->addIncoming(from, before);
    end->addIncoming(next, latch);
    const auto out = make_phis(values, before);
    add_incoming(out, inside, latch);
    values = as_values(out);
    return end;
  }

  void emit_if(const IfOp& op, const Statement& s) {
    prepare(*op.then);
    if (op.otherwise) prepare(*op.otherwise);
    Value* holds = op.flag ? element(op.flag, 0) : nullptr;
    for (const IndexComparison& comparison : op.condition) {
      Value* one = compare(comparison, Position{});
      holds = holds ? b_.CreateAnd(holds, one) : one;
    }
    BasicBlock *then = block("then"), *otherwise = op.otherwise ? block("else") : nullptr,
               *after = block("endif");
    b_.CreateCondBr(holds, then, otherwise ? otherwise : after);
    const auto arm = [&](const Region& region, BasicBlock* at, Carried& out) {
      b_.SetInsertPoint(at);
      enter_region();
      for (const Statement& statement : region.statements) emit(statement);
      for (size_t i = 0; i < s.results.size(); ++i)
        out.push_back(elements_of(region.yields[i], type_of(s.results[i])));
      leave_region();
      BasicBlock* end = b_.GetInsertBlock();
      b_.CreateBr(after);
      return end;
    };
    Carried yes, no;
    BasicBlock* yes_end = arm(*op.then, then, yes);
    BasicBlock* no_end = op.otherwise ? arm(*op.otherwise, otherwise, no) : nullptr;
    b_.SetInsertPoint(after);
    if (s.results.empty()) return;
    const auto phis = make_phis(yes, yes_end);
    add_incoming(phis, no, no_end);
    const Carried out = as_values(phis);
    for (size_t i = 0; i < s.results.size(); ++i) bind(s.results[i], out[i]);
  }

  void emit_while(const WhileOp& loop, const Statement& s) {
    prepare(*loop.body);
    const Carried first = initial_values(loop.carried);
    BasicBlock *before = b_.GetInsertBlock(), *body = block("while"), *after = block("after");
    b_.CreateBr(body);
    b_.SetInsertPoint(body);
    const auto phis = make_phis(first, before);
    const Carried inside = as_values(phis);
    for (size_t i = 0; i < inside.size(); ++i) bind(loop.carried[i].first, inside[i]);
    enter_region();
    for (const Statement& statement : loop.body->statements) emit(statement);
    Value* more = element(loop.body->yields[0], 0, 1);
    Carried next;
    for (size_t i = 0; i < inside.size(); ++i)
      next.push_back(elements_of(loop.body->yields[i + 1], type_of(loop.carried[i].first)));
    leave_region();
    add_incoming(phis, next, b_.GetInsertBlock());
    b_.CreateCondBr(more, body, after);
    b_.SetInsertPoint(after);
    for (size_t i = 0; i < s.results.size(); ++i) bind(s.results[i], next[i]);
  }

  const Kernel& kernel_;
  const Machine& machine_;
  llvm::LLVMContext& context_;
  std::unique_ptr<llvm::Module> module_;
  llvm::IRBuilder<> b_;
  llvm::DIBuilder debug_;
  llvm::DICompileUnit* unit_ = nullptr;
  std::unordered_map<std::string_view, ValueId> values_by_name_;
  std::vector<llvm::MDNode*> alias_scope_, no_alias_;
  std::unordered_map<const Region*, Uses> uses_;
  bool waits_for_others_ = false;  // kernels before this one may still write its parameters
  std::unordered_map<llvm::Constant*, llvm::GlobalVariable*> fills_;

  // Of the phase at hand.
  Entry phase_;
  const Phase* code_ = nullptr;
  llvm::DISubprogram* scope_ = nullptr;
  BasicBlock* entry_ = nullptr;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, Value*> symbols_;
  std::vector<std::unordered_map<Expr, Value*>> scopes_;  // index expressions by region
  std::vector<ValueId> pending_loads_;
  std::vector<size_t> pending_marks_;
  std::vector<int64_t> scratch_marks_;
  int64_t scratch_used_ = 0;
  Value* dummy_ = nullptr;
  bool stream_ = false;   // the store at hand bypasses the caches
  bool streams_ = false;  // some store did
};

}  // namespace

std::unique_ptr<llvm::Module> translate(const Kernel& kernel, const Machine& machine,
                                        llvm::LLVMContext& context) {
  const TraceSpan span("codegen", "translate");
  return Translator(kernel, machine, context).run();
}

}  // namespace braze::codegen
