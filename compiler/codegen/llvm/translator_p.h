// translator_p.h — the state of one kernel while it becomes LLVM IR. Private to translate*.cpp:
//
//   translate.cpp           phases, regions, control; when a value is emitted
//   translate_values.cpp    elements of values, index expressions
//   translate_accesses.cpp  loads and stores of a CPU's vectors; addresses and guards of all
//   translate_threads.cpp   loads and stores of one GPU thread, its instructions, its roles
//
// Notation
//   element    one vector (or scalar) of a register array, by its row-major number. All code here
//              works on elements
//   position   the values of e0, e1 .. and `lane` in one element
//   slot       the state of a Kernel value: its statement, and the elements emitted so far
//
// Values are emitted at their first use, element by element. A chain of operations on an array thus
// runs depth first and needs few registers. Three rules keep this correct. A store first emits the
// pending loads of its memory. Everything that a nested region uses from outside is emitted before
// the region starts. Elements that are emitted in a region are forgotten when the region ends.
#pragma once

#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/codegen/instruction_text.h"
#include "compiler/codegen/llvm/llvm_p.h"
#include "compiler/codegen/llvm/region_uses.h"
#include "ir/code/index_program.h"
#include "ir/ops/monoid.h"

namespace braze {
namespace [[gnu::visibility("hidden")]] codegen {

using llvm::BasicBlock;
using llvm::Value;

[[noreturn]] void not_kernel_ir(const KernelCode& kernel, const Statement& statement,
                                const std::string& what);

// rest + sum((axes[i] + strides[i]) * e_i) + lane * lane. `strides` holds the non-constant parts.
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

// The values of the position symbols while an index expression is evaluated.
struct Position {
  std::vector<int64_t> at;  // e0, e1 ..
  std::vector<int64_t> extents;
  int32_t lanes = 1;
  std::optional<int32_t> lane;  // one lane, or all of them as a vector
};

class Translator {
 public:
  Translator(const Kernel& kernel, const Machine& machine, llvm::LLVMContext& context);
  std::unique_ptr<llvm::Module> run();

 private:
  // An access whose guard is one count. Its elements form groups: the positions in a group differ
  // only along axes on which the count depends. A group has `span` consecutive places, of which
  // those below `count` exist. If some do not exist, a copy on the stack replaces them all.
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

  // Places in memory that vectors can load, and where in them the lanes of an element lie.
  struct Window {
    int32_t first = 0;  // a lane that is loaded
    int64_t least = 0;  // the first place, counted from that lane
    int64_t places = 0;
    std::vector<int> of_lane;  // its place; -1 for a lane that is not loaded
  };

  // One load or store, with everything that its elements share.
  struct Access {
    MemoryId memory;
    ValueType type;
    Expr at;
    std::optional<Affine> address;                // in elements
    Value* base = nullptr;                        // address.rest, as a pointer
    std::map<std::vector<int64_t>, Value*> rows;  // base plus the strides' part, by position
    std::map<std::vector<int64_t>, std::vector<Value*>> squares;  // transposed, by first position
    struct Part {                                                 // of the guard: diff > 0
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

  // The part that one instruction moves: an element, or one lane of it if the lanes are not
  // adjacent or some do not exist.
  struct Piece {
    Value* at = nullptr;
    Value* condition = nullptr;  // null: always
    int64_t element = 0;
    int32_t lane = 0;
    int32_t lanes = 1;
    int64_t align = 0;              // bytes, if more is known than of all elements
    std::vector<Piece> apart = {};  // the lanes to move one by one if only a part exists
  };

  // The registers of an instruction: the values of its operands, one after the other.
  struct Registers {
    std::vector<AsmOperand> operands;
    std::vector<Value*> values;

    void add(AsmOperand operand, std::vector<Value*> registers) {
      operand.registers = registers.size();
      operands.push_back(operand);
      values.insert(values.end(), registers.begin(), registers.end());
    }
  };

  using Carried = std::vector<std::vector<Value*>>;       // per carried value, its elements
  using Phis = std::vector<std::vector<llvm::PHINode*>>;  // the same at the head of a loop

  // Types and small helpers.
  const ValueType& type_of(ValueId id) const { return kernel_[id].type; }
  DType dtype_of(const ValueOperand& o) const {
    return o.is_literal() ? o.dtype : type_of(o.value).dtype;
  }
  int32_t lanes_of(const ValueOperand& o) const {
    return o.is_literal() ? 1 : type_of(o.value).lanes;
  }
  llvm::Type* register_type(const ValueType& type) {
    return codegen::register_type(context_, type.dtype, type.lanes);
  }
  llvm::Type* shaped(llvm::Type* element, int32_t lanes) {
    return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
  }
  Value* i64(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  Value* number(llvm::Type* type, int64_t value) {
    return llvm::ConstantInt::getSigned(type, value);
  }
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
             std::initializer_list<Value*> operands);
  Value* from_memory(Value* value, DType dtype);
  Value* to_memory(Value* value, DType dtype, int32_t lanes);
  llvm::Constant* memory_literal(DType dtype, uint64_t bits, int32_t lanes);

  // Memory.
  void make_alias_scopes();
  void annotate(Value* access, MemoryId memory, bool may_be_copy = false);
  bool is_constant(MemoryId id) const;
  int64_t bytes_of(const Memory& memory) const;
  void place(MemoryId id);

  // Phases.
  void phase(size_t number);
  void bind_parameters();

  // Lines of the user's source.
  void describe(const Region& body);
  llvm::DIFile* file_of(const SourceLocation& location);
  void locate(const Statement& s);
  void locate_assembly(llvm::CallInst& call);

  // Regions and statements.
  void enter_region();
  void leave_region();
  void run_region(const Region& region);
  void emit(const Statement& s);
  void defer(const Statement& s);
  void prepare(const Region& region);
  void force_loads(const std::function<bool(MemoryId)>& concerns);
  void force(ValueId id);

  // Values: their elements, which are emitted at the first use.
  Value* element(ValueId id, int64_t i);
  Value* element(const ValueOperand& o, int64_t i, int32_t lanes);
  Value* broadcast_element(const ValueOperand& o, int64_t i, const std::vector<int64_t>& extents,
                           int32_t lanes);
  static int64_t broadcast_index(const std::vector<int64_t>& from, int64_t i,
                                 const std::vector<int64_t>& extents);
  std::vector<Value*> elements_of(const ValueOperand& o, const ValueType& type);
  void bind(ValueId id, std::vector<Value*> elements);
  Value* emit_element(const Statement& s, const ValueType& type, int64_t i,
                      std::shared_ptr<Access>& access);
  Value* emit_view(const MovementOp& op, const ValueType& type, int64_t i);
  Value* emit_regroup(const ValueOperand& operand, const ValueType& type, int64_t i);
  Value* emit_packed(const ValueOperand& operand, const ValueType& type, int64_t i);
  Value* emit_shuffle(const ShuffleOp& op, int64_t i);
  Value* fold(Monoid monoid, DType dtype, int32_t lanes, std::vector<Value*> x);
  Value* emit_fold(const FoldOp& op, const ValueType& type, int64_t i);
  Value* fold_axes(const FoldOp& op, const ValueType& type, std::vector<int64_t> at, size_t count);
  Value* emit_iota(const Expr& e, const ValueType& type, int64_t i);

  // Index expressions, uniform or at a position.
  Position position_of(const ValueType& type, int64_t i) const {
    return {unflatten(i, type.extents), type.extents, type.lanes, {}};
  }
  bool is_positional(const Expr& e) const;
  bool varies_by_lane(const Expr& e) const;
  static bool is_narrow(Interval range) { return range.min >= INT32_MIN && range.max <= INT32_MAX; }
  // The type in which index values of a range are computed.
  llvm::IntegerType* index_type(Interval range) {
    return machine_.simt && is_narrow(range) ? b_.getInt32Ty() : b_.getInt64Ty();
  }
  llvm::IntegerType* index_type(const Expr& e) { return index_type(e.range()); }
  llvm::IntegerType* common_type(std::span<const Expr> expressions);
  Value* fit(Value* value, llvm::IntegerType* type);
  Value* index(const Expr& e);
  Value* index(const Expr& e, const Position& position);
  Value* compute(const Expr& e, const Position* position);
  bool is_of_sizes(const Expr& term) const;
  Value* sum_of_sizes(const std::vector<Expr>& terms);
  void match(Value*& a, Value*& b);
  Value* floor_division(bool is_mod, const Expr& left, const Expr& right, Value* a, Value* b);
  Value* symbol(const Expr& e, const Position* position);
  Value* lane_numbers(llvm::Type* type, int32_t lanes, int64_t from);
  Value* compare(const IndexComparison& comparison, const Position& position);
  std::optional<Affine> affine(const Expr& e, size_t rank) const;

  // Accesses: the parts that all elements of an access share, addresses and guards.
  template <class Op>
  Access make_access(const Op& op, const ValueType& type);
  Value* address_of(MemoryId memory, Value* index);
  Value* address_from(MemoryId memory, Value* base, Value* index);
  Value* address(Access& access, int64_t i, std::optional<int32_t> lane = {});
  Value* row_address(Access& access, std::vector<int64_t> at);
  std::optional<int64_t> lane_stride(const Access& access) const;
  Value* exceeds(Value* value, int64_t limit);
  Value* element_condition(Access& access, int64_t i);
  Value* mask_element(Access& access, int64_t i);
  Value* lane_mask(Access& access, int64_t i);
  Value* count_mask(Access::Part& part, int64_t offset, int32_t lanes);
  Value* gathered_index(Access& access, int64_t i);
  bool has_masked_access(DType dtype) const { return machine_.avx512 || size_of(dtype) >= 4; }
  llvm::Align alignment(const Access& access) const {
    return llvm::Align(std::min<uint64_t>(static_cast<uint64_t>(access.align), 64));
  }
  llvm::Align element_alignment(const Access& access) const {
    return llvm::Align(size_of(access.type.dtype));
  }
  void place_lanes(const Access& access, std::vector<Piece>& lanes);
  Value* fill_address(const ValueType& type, uint64_t fill);
  Value* dummy();
  llvm::MDNode* unlikely();

  // Tails: accesses that a count limits, by a copy on the stack.
  std::shared_ptr<Tail> find_tail(const Access& access) const;
  void open_tail(Access& access, std::optional<uint64_t> fill);
  void close_tail(Access& access);
  template <class F>
  void copy_tail(const Access& access, const Tail& tail, Value* count, const F& each);
  static int64_t group_of(const Tail& tail, std::vector<int64_t> at);
  static int64_t inner_offset(const Access& access, std::vector<int64_t> at);
  static int64_t first_of_group(const Access& access, const Tail& tail, int64_t g);

  // Loads and stores of vectors.
  Value* emit_load(const LoadOp& op, const ValueType& type, int64_t i,
                   std::shared_ptr<Access>& access);
  Value* load_element(Access& access, uint64_t fill, int64_t i);
  Value* load_scalar(Access& access, uint64_t fill, Value* at, Value* condition);
  bool computes_long(const ForOp& loop) const;
  void fetch_ahead(const Access& access, Value* at);
  Value* load_vector(Access& access, uint64_t fill, int64_t i);
  Value* lane_condition(const Access& access, Value* condition, Value* mask, int32_t lane);
  std::optional<Window> find_window(const Access& access, Value* mask, int64_t i) const;
  Value* load_window(Access& access, const Window& window, uint64_t fill, Value* mask, int64_t i);
  Value* load_lanes(Access& access, uint64_t fill, int64_t i);
  std::optional<size_t> transposed_axis(const Access& access) const;
  Value* load_transposed(Access& access, uint64_t fill, size_t axis, int64_t i);
  Value* load_row(Access& access, uint64_t fill, size_t axis, const std::vector<int64_t>& first,
                  int32_t lane);
  void transpose(std::vector<Value*>& square);
  void emit_store(const StoreOp& op);
  void store_element(Access& access, Value* value, int64_t i);
  void store_past_caches(const Access& access, Value* bits, Value* at);
  Value* opaque(Value* value);
  void store_lanes(Access& access, Value* value, int64_t i, Value* condition, Value* mask);
  void emit_atomic(const AtomicOp& op, const Statement& s);

  // Loads and stores of one GPU thread.
  std::vector<Piece> pieces(Access& access, bool is_load);
  std::vector<Value*> guard_terms(Access& access, int64_t i, int32_t lane);
  template <class Body, class Absent, class Apart, class Joined>
  void guarded(const std::vector<Piece>& pieces, const Body& body, const Absent& absent,
               const Apart& apart, const Joined& joined);
  std::vector<Value*> load_elements(const LoadOp& op, const ValueType& type);
  std::vector<Value*> load_pieces(const Access& access, const std::vector<Piece>& parts,
                                  uint64_t fill);
  size_t streamed_words(const Access& access, const Piece& piece) const;
  llvm::Type* words_type(size_t words);
  Value* load_streamed(const Piece& piece, DType dtype, size_t words);
  void store_streamed(const Piece& piece, Value* value, size_t words);
  Value* load_piece(const Access& access, const Piece& piece);
  void store_elements(Access& access, const ValueOperand& operand);
  void store_pieces(const Access& access, const std::vector<Piece>& parts,
                    const std::vector<Value*>& values);

  // Instructions of a GPU.
  Value* of_block(Value* pointer, const Expr& rank, const Position& position);
  void emit_instruction(const InstructionOp& op, const Statement& s);
  static size_t chain_length(std::span<const Statement> statements);
  void emit_chain(std::span<const Statement> chain);
  void emit_by_element(const InstructionOp& op, const Statement& s);
  char letter_of(const ValueType& type, const Statement& s) const;
  void add_operand(char letter, const InstructionOperand& operand, Registers& out,
                   const Statement& s);
  Value* descriptor(const Place& place);
  llvm::Type* asm_type(char letter);
  Value* to_register(Value* value, char letter);
  Value* from_register(Value* value, const ValueType& type);
  std::vector<Value*> inline_asm(const AsmText& text, const std::vector<Value*>& inputs);
  void emit_role(const RoleOp& role);
  void set_registers(int64_t registers);

  // Control.
  Carried initial_values(const std::vector<std::pair<ValueId, ValueOperand>>& carried);
  Phis make_phis(const Carried& values, BasicBlock* from);
  static Carried as_values(const Phis& phis);
  static void add_incoming(const Phis& phis, const Carried& values, BasicBlock* from);
  Carried turn(const ForOp& loop, Value* symbol, const Carried& carried);
  void emit_for(const ForOp& loop, const Statement& s);
  llvm::IntegerType* loop_type(const ForOp& loop, int64_t copies);
  Value* rotated_loop(const ForOp& loop, Value* from, Value* to, Value* by, int64_t copies,
                      Carried& values, int64_t turns);
  void emit_if(const IfOp& op, const Statement& s);

  const Kernel& kernel_;
  const Machine& machine_;
  llvm::LLVMContext& context_;
  std::unique_ptr<llvm::Module> module_;
  llvm::IRBuilder<> b_;
  llvm::DIBuilder debug_;
  llvm::DICompileUnit* unit_ = nullptr;
  std::vector<llvm::MDNode*> alias_scope_, no_alias_;
  RegionUses uses_;
  bool waits_for_others_ = false;  // kernels before this one may still write its parameters
  std::unordered_map<llvm::Constant*, llvm::GlobalVariable*> fills_;

  // The state of the current phase.
  Entry phase_;
  const Phase* code_ = nullptr;
  const Statement* statement_ = nullptr;  // the one that is being emitted
  llvm::DISubprogram* scope_ = nullptr;
  BasicBlock* entry_ = nullptr;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, Value*> symbols_;
  std::set<std::string> sizes_;                           // symbols of the kernel
  std::map<std::vector<Expr>, Value*> size_sums_;         // sums of many of them, at the entry
  std::vector<std::unordered_map<Expr, Value*>> scopes_;  // index expressions by region
  std::vector<ValueId> pending_loads_;
  std::vector<size_t> pending_marks_;
  std::vector<int64_t> scratch_marks_;
  int64_t scratch_used_ = 0;
  Value* dummy_ = nullptr;
  bool stream_ = false;             // the store at hand bypasses the caches
  bool streams_ = false;            // some store did
  std::vector<const ForOp*> sums_;  // the loops at hand that carry values
};

// The formatter would write the attribute into this comment.
// clang-format off
}  // namespace codegen
// clang-format on
}  // namespace braze
