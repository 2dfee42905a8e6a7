// translate.cpp — phases, regions and control, and when a value is emitted.
#include <llvm/IR/MDBuilder.h>

#include <algorithm>

#include "braze/trace.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/llvm/translator_p.h"
#include "ir/code/walk.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/support/text.h"

namespace braze::codegen {

namespace {

// Values are emitted at their first use, by recursion. Longer chains of values than this are
// emitted where they stand, which limits the depth of the recursion.
constexpr int kMaxPendingDepth = 64;

}  // namespace

void not_kernel_ir(const KernelCode& kernel, const Statement& statement, const std::string& what) {
  fail(codes::kCodegenKernel, fmt::format("kernel @{}: {}", kernel.name, what),
       {.location = statement.location, .node = "", .fix = ""});
}

Translator::Translator(const Kernel& kernel, const Machine& machine, llvm::LLVMContext& context)
    : kernel_(kernel),
      machine_(machine),
      context_(context),
      module_(std::make_unique<llvm::Module>(kernel.name, context)),
      b_(context),
      debug_(*module_),
      uses_(kernel) {
  make_alias_scopes();
  waits_for_others_ = std::ranges::any_of(kernel.phases, awaits_predecessors);
}

std::unique_ptr<llvm::Module> Translator::run() {
  for (size_t i = 0; i < kernel_.phases.size(); ++i) phase(i);
  debug_.finalize();
  return std::move(module_);
}

void Translator::phase(size_t number) {
  const Phase& phase = kernel_.phases[number];
  code_ = &phase;
  slots_.assign(kernel_.values.size(), {});
  symbols_.clear();
  size_sums_.clear();
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

void Translator::bind_parameters() {
  size_t word = 0;
  for (const Expr& symbol : kernel_.symbols) {
    symbols_[symbol.symbol_name()] = phase_.words[word++];
    sizes_.insert(symbol.symbol_name());
  }
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

// --- Memory --------------------------------------------------------------------------------------

// Distinct memories do not overlap: every access names its own scope and excludes all others.
void Translator::make_alias_scopes() {
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

void Translator::annotate(Value* access, MemoryId memory, bool may_be_copy) {
  auto* instruction = llvm::dyn_cast<llvm::Instruction>(access);
  if (!instruction) return;
  instruction->setMetadata(llvm::LLVMContext::MD_alias_scope, alias_scope_[memory.index]);
  instruction->setMetadata(llvm::LLVMContext::MD_noalias, no_alias_[memory.index]);
  if (is_constant(memory) && !may_be_copy && llvm::isa<llvm::LoadInst>(instruction))
    instruction->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
}

bool Translator::is_constant(MemoryId id) const {
  return kernel_[id].space == MemorySpace::Parameter && kernel_[id].mode == Mode::In &&
         !waits_for_others_;
}

int64_t Translator::bytes_of(const Memory& memory) const {
  int64_t bytes = static_cast<int64_t>(size_of(memory.dtype));
  for (const Expr& extent : memory.shape) bytes *= extent.as_constant().value_or(0);
  return bytes;
}

void Translator::place(MemoryId id) {
  const Memory& memory = kernel_[id];
  int64_t offset = memory.scratch_offset;
  if (offset < 0) offset = scratch_used_;
  if (memory.space == MemorySpace::Local)
    scratch_used_ = std::max(scratch_used_, (offset + bytes_of(memory) + 63) / 64 * 64);
  phase_.pointers[id.index] = machine_.place(memory, bytes_of(memory), offset, phase_, b_);
}

// --- Line information ----------------------------------------------------------------------------

// Profilers show the user's lines beside a GPU's instructions. Nothing reads the lines of an image.
void Translator::describe(const Region& body) {
  scope_ = nullptr;
  if (!machine_.simt || body.statements.empty()) return;
  const auto first = std::find_if(body.statements.begin(), body.statements.end(),
                                  [](const Statement& s) { return bool(s.location); });
  if (first == body.statements.end()) return;
  llvm::DIFile* file = file_of(first->location);
  if (!unit_) {
    unit_ =
        debug_.createCompileUnit(llvm::DISourceLanguageName(llvm::dwarf::DW_LANG_C), file, "braze",
                                 true, "", 0, "", llvm::DICompileUnit::DebugDirectivesOnly);
    module_->addModuleFlag(llvm::Module::Warning, "Debug Info Version",
                           llvm::DEBUG_METADATA_VERSION);
  }
  auto* type = debug_.createSubroutineType(debug_.getOrCreateTypeArray({}));
  scope_ = debug_.createFunction(unit_, phase_.function->getName(), "", file, first->location.line,
                                 type, first->location.line, llvm::DINode::FlagZero,
                                 llvm::DISubprogram::SPFlagDefinition);
  phase_.function->setSubprogram(scope_);
  locate(*first);
}

llvm::DIFile* Translator::file_of(const SourceLocation& location) {
  const llvm::StringRef path(location.file);
  const auto [folder, name] = path.contains('/') ? path.rsplit('/') : std::pair(path, path);
  return debug_.createFile(name, folder == name ? "." : folder);
}

void Translator::locate(const Statement& s) {
  if (!scope_ || !s.location) return;
  llvm::DIScope* scope = scope_;
  llvm::DIFile* file = file_of(s.location);
  if (file != scope_->getFile()) scope = debug_.createLexicalBlockFile(scope_, file);
  b_.SetCurrentDebugLocation(
      llvm::DILocation::get(context_, s.location.line, s.location.column, scope));
}

void Translator::locate_assembly(llvm::CallInst& call) {
  if (!statement_) return;
  auto* place = b_.getInt64(reinterpret_cast<uint64_t>(statement_));
  call.setMetadata("srcloc", llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(place)));
}

// --- Regions and statements ----------------------------------------------------------------------

// Emits the statements; the caller reads the yields before leave_region.
void Translator::enter_region() {
  scopes_.emplace_back();
  pending_marks_.push_back(pending_loads_.size());
  scratch_marks_.push_back(scratch_used_);
}

void Translator::leave_region() {
  scopes_.pop_back();
  pending_loads_.resize(std::min(pending_loads_.size(), pending_marks_.back()));
  pending_marks_.pop_back();
  scratch_used_ = scratch_marks_.back();
  scratch_marks_.pop_back();
}

void Translator::run_region(const Region& region) {
  enter_region();
  const std::span<const Statement> statements(region.statements);
  for (size_t i = 0; i < statements.size();) {
    const size_t chained = chain_length(statements.subspan(i));
    if (chained > 1)
      emit_chain(statements.subspan(i, chained));
    else
      emit(statements[i]);
    i += chained;
  }
  leave_region();
}

void Translator::emit(const Statement& s) {
  statement_ = &s;
  locate(s);
  if (const auto* let = s.as<LetOp>()) {
    symbols_[let->symbol] = index(let->value);
  } else if (const auto* store = s.as<StoreOp>()) {
    emit_store(*store);
  } else if (const auto* loop = s.as<ForOp>()) {
    emit_for(*loop, s);
  } else if (const auto* branch = s.as<IfOp>()) {
    emit_if(*branch, s);
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
    not_kernel_ir(kernel_, s, "this statement has no translation to LLVM");
  }
}

// Notes the statement that makes a value. Its elements are emitted at their first use.
void Translator::defer(const Statement& s) {
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

// Before control enters a nested region, emits the values that it uses, and loads that its stores
// could change.
void Translator::prepare(const Region& region) {
  const RegionUses::Uses& uses = uses_.of(region);
  for (ValueId id : uses.values) force(id);
  force_loads([&](MemoryId memory) {
    return uses.stores_all ? !is_constant(memory) : uses.stored.contains(memory.index);
  });
}

void Translator::force_loads(const std::function<bool(MemoryId)>& concerns) {
  for (size_t i = 0; i < pending_loads_.size(); ++i) {
    const ValueId id = pending_loads_[i];
    const Statement* s = slots_[id.index].statement;
    if (s && concerns(s->as<LoadOp>()->memory)) force(id);
  }
}

void Translator::force(ValueId id) {
  Slot& slot = slots_[id.index];
  if (!slot.statement) return;
  if (slot.statement->as<ConstOp>()) return;  // it costs nothing on any machine
  for (size_t i = 0; i < slots_[id.index].elements.size(); ++i)
    element(id, static_cast<int64_t>(i));
  slots_[id.index].statement = nullptr;
}

// --- Control -------------------------------------------------------------------------------------

Translator::Carried Translator::initial_values(
    const std::vector<std::pair<ValueId, ValueOperand>>& carried) {
  Carried out;
  for (const auto& [id, first] : carried) out.push_back(elements_of(first, type_of(id)));
  return out;
}

// Makes a phi for every element, with its first incoming value.
Translator::Phis Translator::make_phis(const Carried& values, BasicBlock* from) {
  Phis out;
  for (const auto& elements : values) {
    out.emplace_back();
    for (Value* value : elements) {
      out.back().push_back(b_.CreatePHI(value->getType(), 2));
      out.back().back()->addIncoming(value, from);
    }
  }
  return out;
}

Translator::Carried Translator::as_values(const Phis& phis) {
  Carried out;
  for (const auto& list : phis) out.emplace_back(list.begin(), list.end());
  return out;
}

void Translator::add_incoming(const Phis& phis, const Carried& values, BasicBlock* from) {
  for (size_t i = 0; i < phis.size(); ++i)
    for (size_t j = 0; j < phis[i].size(); ++j) phis[i][j]->addIncoming(values[i][j], from);
}

// Emits one turn of a loop: binds the symbol and the carried values, and returns what the body
// yields.
Translator::Carried Translator::turn(const ForOp& loop, Value* symbol, const Carried& carried) {
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

void Translator::emit_for(const ForOp& loop, const Statement& s) {
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
      // A turn of the long loop requires all its copies to be in range: k + (copies - 1) * step <
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

// An integer type that holds every k, and the first k that is not run.
llvm::IntegerType* Translator::loop_type(const ForOp& loop, int64_t copies) {
  const Interval low = loop.low.range(), high = loop.high.range(), step = loop.step.range();
  if (!is_narrow(low) || !is_narrow(high) || !is_narrow(step) || !is_narrow({0, copies}))
    return b_.getInt64Ty();
  const int64_t reach = step.max * copies;
  return index_type(
      Interval{std::min(low.min, high.min - reach), std::max(low.max, high.max) + reach});
}

// for (k = from; k < to; k += copies * by), tested at the end of each turn. Updates `values` to
// their values after it, and returns the first k that was not run.
Value* Translator::rotated_loop(const ForOp& loop, Value* from, Value* to, Value* by,
                                int64_t copies, Carried& values, int64_t turns) {
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
  if (!loop.carried.empty()) sums_.push_back(&loop);
  for (int64_t c = 0; c < copies; ++c) {
    inside = turn(loop, next, inside);
    next = b_.CreateNSWAdd(next, by);
  }
  if (!loop.carried.empty()) sums_.pop_back();
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

void Translator::emit_if(const IfOp& op, const Statement& s) {
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

std::unique_ptr<llvm::Module> translate(const Kernel& kernel, const Machine& machine,
                                        llvm::LLVMContext& context) {
  const TraceSpan span("codegen", "translate");
  return Translator(kernel, machine, context).run();
}

}  // namespace braze::codegen
