// code.h — structured code: the statements, values and regions that Tile IR and Kernel IR share.
//
// Both languages are lists of phases over SSA values with structured control flow, index
// expressions that are stated for each element, and the elementwise table. They differ in what a
// value is (a tile, or lanes and a register array) and in a few operations. They therefore share
// this representation, its text, its common checks and the engine of its interpreter; ir/tile and
// ir/kernel add the rest. docs/ir/languages.md defines the meaning of everything here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "braze/error.h"
#include "ir/code/instruction.h"
#include "ir/code/layout.h"
#include "ir/index/expr.h"
#include "ir/ops/combiner.h"
#include "ir/ops/elementwise.h"
#include "ir/ops/monoid.h"
#include "ir/support/box.h"
#include "ir/support/ids.h"

namespace braze {

using ValueId = Id<struct ValueTag>;
using MemoryId = Id<struct MemoryTag>;
using TensorMapId = Id<struct TensorMapTag>;
using ChannelId = Id<struct ChannelTag>;
using TokenId = Id<struct TokenTag>;

/// The type of a value: dtype, lanes and extents. In Tile IR there is always 1 lane, and the
/// extents are those of the tile. In Kernel IR the extents are those of the register array. Without
/// extents it is a scalar, or a single vector.
struct ValueType {
  DType dtype = DType::F32;
  int32_t lanes = 1;
  std::vector<int64_t> extents;

  size_t rank() const { return extents.size(); }
  /// The number of elements of the register array or tile. Lanes are not counted.
  int64_t count() const;
  /// "f32[14, 32]", "f32x16[4]", "boolx8".
  std::string to_string() const;
  friend bool operator==(const ValueType&, const ValueType&) = default;
};

struct Value {
  std::string name;  ///< without %; unique in the kernel
  ValueType type;
  /// In pipelined Tile IR, the layout as it is written. A name alone means the layout with that
  /// name.
  std::optional<NamedLayout> layout = {};
};

/// A value, or a literal whose dtype follows from another operand.
struct ValueOperand {
  ValueId value;
  DType dtype = DType::F32;  ///< the dtype of the literal; a value has its own
  uint64_t bits = 0;

  ValueOperand() = default;
  ValueOperand(ValueId v) : value(v) {}  // NOLINT: implicit on purpose
  static ValueOperand literal(DType dtype, uint64_t bits);
  bool is_literal() const { return !value; }
  friend bool operator==(const ValueOperand&, const ValueOperand&) = default;
};

/// One comparison of two index expressions.
struct IndexComparison {
  enum class Kind : uint8_t { Lt, Le, Gt, Ge, Eq, Ne };
  Expr left;
  Kind kind = Kind::Lt;
  Expr right;
  friend bool operator==(const IndexComparison&, const IndexComparison&) = default;
};
bool holds(IndexComparison::Kind kind, int64_t left, int64_t right);
/// Whether the ranges of the symbols prove an ordering. For == and != nothing is proved.
bool holds_always(const IndexComparison& comparison);
/// A condition holds if all of these comparisons hold.
using Condition = std::vector<IndexComparison>;

/// Says which elements of an access are read or written: those for which a condition holds, those
/// for which a bool value is true, those inside the tensor (others read 0), or all.
struct Guard {
  Condition condition;
  ValueId mask;
  bool clip = false;  ///< pipelined Tile IR

  explicit operator bool() const { return !condition.empty() || mask || clip; }
  friend bool operator==(const Guard&, const Guard&) = default;
};

enum class MemorySpace : uint8_t {
  Parameter,  ///< device memory of a caller
  Workspace,  ///< device memory private to the launch
  Local,      ///< `buffer` of Tile IR, `alloc local` of Kernel IR
  Shared,     ///< `alloc shared`: one object of a thread block
  Field,      ///< a field of a channel, `%channel.field`, of which each slot has one
  Window,     ///< a `view` of a buffer or field
};
enum class Mode : uint8_t { In, Out, InOut };

/// A tensor parameter, workspace or buffer. In Kernel IR every one has rank 1.
struct Memory {
  std::string name;
  MemorySpace space = MemorySpace::Parameter;
  Mode mode = Mode::In;  ///< Parameter
  DType dtype = DType::F32;
  std::vector<Expr> shape = {};
  std::vector<Expr> strides = {};  ///< in elements; empty: row-major
  int64_t align = 0;               ///< bytes; 0: the dtype's size
  bool zeroed = false;             ///< Workspace
  /// Bytes into the worker's scratch, if placed (Local in Kernel IR), or the block's shared memory.
  int64_t scratch_offset = -1;
  bool mbarrier = false;  ///< Shared: mbarriers, 8 bytes (I64) each
  int64_t swizzle = 0;    ///< bytes, of Local in pipelined Tile IR and Field: 0 (none), 32, 64, 128
};

inline bool is_device_memory(const Memory& memory) {
  return memory.space == MemorySpace::Parameter || memory.space == MemorySpace::Workspace;
}

/// A tensor map, which the host encodes. It sees a parameter as a row-major tensor, with zeros
/// outside.
struct TensorMap {
  std::string name;
  MemoryId memory = {};
  DType dtype = DType::F32;
  std::vector<Expr> extents = {};  ///< outermost first
  std::vector<int64_t> box = {};   ///< extents of one copy
  int64_t swizzle = 0;             ///< bytes: 0 (none), 32, 64, 128
};

/// A ring of slots through which one copy of a role passes items to the copies of another role.
struct Channel {
  std::string name;
  int64_t depth = 1;
  std::string producer, receiver;     ///< roles
  std::optional<Expr> only = {};      ///< the copy that receives an item, over the symbol `item`
  std::vector<MemoryId> fields = {};  ///< named "channel.field"
};

/// Counters of turns. Element `first` counts as passed once when the roles begin.
struct TurnToken {
  std::string name;
  int64_t count = 1;
  std::string among;  ///< the role
  int64_t first = 0;
};

enum class CacheHint : uint8_t { None, Stream, Keep };

struct Statement;
struct Region {
  std::vector<Statement> statements;
  std::vector<ValueOperand> yields;
};

// The operations. The results and the location of an operation are members of Statement, and the
// types of its results are in the kernel.

struct LetOp {
  std::string symbol;
  Expr value;
};
struct ConstOp {
  uint64_t bits = 0;
};
struct IndexOp {
  Expr value;
};  ///< `iota`
struct TestOp {
  Condition condition;
};
struct LoadOp {
  MemoryId memory;
  std::vector<Expr> at;
  Guard guard;
  uint64_t fill = 0;  ///< with a guard
  int64_t align = 0;  ///< Kernel IR
  CacheHint cache = CacheHint::None;
  std::optional<Expr> rank = {};  ///< Shared: of the block of the cluster whose memory it is
};
struct StoreOp {
  ValueOperand value;
  MemoryId memory;
  std::vector<Expr> at;
  Guard guard;
  int64_t align = 0;
  CacheHint cache = CacheHint::None;
  std::optional<Expr> rank = {};
};
struct RowOp {
  ElementwiseOp op{};
  std::vector<ValueOperand> operands;
};
/// A fold over `axes` in order, over the lanes (Kernel IR), or over the blocks of the cluster
/// (pipelined Tile IR).
struct FoldOp {
  Monoid monoid{};
  ValueOperand operand;
  std::vector<int64_t> axes;
  bool lanes = false;
  bool cluster = false;
};
/// An arg-reduction, whose two results are the winning values and their indices.
struct ArgFoldOp {
  bool is_max = true;
  ValueOperand values, indices;
  std::vector<int64_t> axes;
};
/// A scan of tuples, with an operand and a result for each part. With `totals` there is one more
/// result for each part: the combination of all elements along the axis, whose extent becomes 1.
struct TileScanOp {
  Combiner combiner;
  std::vector<ValueOperand> operands;
  int64_t axis = 0;
  bool reverse = false, exclusive = false, totals = false;
};
struct TileDotOp {
  // a and b are tiles or, if the memory ids are set, whole buffers.
  ValueOperand a, b, c;
  MemoryId a_buffer, b_buffer;
  int64_t contract_a = 1, contract_b = 0;
  bool tf32 = false;
};
enum class MovementKind : uint8_t { Reshape, Broadcast, Transpose, Slice };
struct MovementOp {
  MovementKind kind{};
  ValueOperand operand;
  std::vector<int64_t> arguments;  ///< permutation or offsets
  std::vector<Expr> offsets = {};  ///< of a slice over `static` symbols, instead of `arguments`
};
struct BufferOp {
  MemoryId memory;
};
struct ForOp {
  std::string symbol;
  Expr low, high, step = 1;
  int64_t unroll = 1;
  std::vector<std::pair<ValueId, ValueOperand>> carried =
      {};  ///< a value in the body, and its first value
  Box<Region> body = {};
  bool is_static = false;  ///< expanded by expand_static_loops: its symbol counts as a constant
};
struct IfOp {
  Condition condition;
  ValueId flag;                 ///< instead of the condition
  Box<Region> then, otherwise;  ///< `otherwise` may be null
};
struct TicketOp {
  MemoryId memory;
  std::vector<Expr> at;
  Expr count;
};
struct AwaitOp {};
// Kernel IR only.
struct SplatOp {
  ValueOperand operand;
};
struct LaneOp {
  ValueOperand operand;
  int64_t lane = 0;
};  ///< extract
struct ShuffleOp {
  ValueOperand a, b;
  std::vector<int64_t> lanes;
};
struct GetElementOp {
  ValueOperand operand;
  std::vector<int64_t> at;
  std::vector<Expr> positions = {};  ///< over `static` symbols, instead of `at`
};
struct PackOp {
  std::vector<ValueOperand> operands;
};
/// Adds to an element, and orders all other accesses. Its result is what was there before.
struct AtomicOp {
  MemoryId memory;
  Expr at;
  ValueOperand value;
};

// Kernel IR on a GPU only.

/// The warps [begin, end) of the block run the region.
struct RoleOp {
  std::string name;
  int64_t begin = 0, end = 0;
  int64_t registers = 0;  ///< registers of a thread; 0: as many as at launch
  Box<Region> body = {};  ///< may use the symbol rtid
};
struct UndefOp {};
/// The same elements in row-major order, first over the array, then over the lanes.
struct RegroupOp {
  ValueOperand operand;
};
/// How a matrix operand lies in shared memory, in the terms of a wgmma descriptor.
struct MatrixLayout {
  bool k_major = true;              ///< the contracted axis is innermost (`k`), or the other (`mn`)
  int64_t leading = 0, stride = 0;  ///< bytes: `lbo`, `sbo`
  int64_t swizzle = 0;              ///< bytes
  friend bool operator==(const MatrixLayout&, const MatrixLayout&) = default;
};
/// An element of a memory object that an instruction addresses.
struct Place {
  MemoryId memory;
  Expr at;
  std::optional<Expr> rank = {};  ///< of a block of the cluster
  std::optional<MatrixLayout> matrix = {};
  friend bool operator==(const Place&, const Place&) = default;
};
/// A tensor map, with coordinates (outermost first) unless the instruction takes none.
struct MapPlace {
  TensorMapId map;
  std::vector<Expr> at = {};
  friend bool operator==(const MapPlace&, const MapPlace&) = default;
};
using InstructionOperand = std::variant<ValueOperand, Expr, Place, MapPlace>;
/// A row of instructions.def. Its operand letters say which alternative each operand is.
struct InstructionOp {
  Instruction instruction{};
  std::vector<InstructionOperand> operands = {};
  int64_t columns = 0;  ///< the N of a wgmma
};

// Pipelined Tile IR only: section 7 of the language page.

struct ChannelOp {
  ChannelId channel;
};
struct TurnsOp {
  TokenId token;
};  ///< `token`
/// `copies` sequential programs of `warps` warps each, which all run at the same time.
struct TileRoleOp {
  std::string name;
  std::string symbol;  ///< of the copy's number; empty: there is one copy
  int64_t copies = 1;
  int64_t warps = 4;
  int64_t registers = 0;  ///< registers of a thread; 0: as many as at launch
  Box<Region> body = {};
};  ///< `role`
struct PutOp {
  ChannelId channel;
  Expr item;
  Box<Region> body = {};
};
struct GetItemOp {
  ChannelId channel;
  Expr item;
};  ///< `get`
struct ReleaseOp {
  ChannelId channel;
  Expr item;
};
/// Fills a field, in a put. Position symbols run over the field's extents.
struct CopyOp {
  MemoryId memory;
  std::vector<Expr> at;
  Guard guard = {};
  CacheHint cache = CacheHint::None;
  MemoryId field = {};
};
struct PassOp {
  TokenId token;
  Expr element, item;
};
struct TakeOp {
  TokenId token;
  Expr element, item;
};
/// `view`: the memory `window` is a part of a buffer, or of the field of an item.
struct MemoryViewOp {
  MemoryId window, source;
  std::optional<Expr> item = {};  ///< of a field
  std::vector<Expr> offsets = {};
};
struct StartDotOp {
  ValueOperand a;  ///< a tile in registers, unless `a_window` is set
  MemoryId a_window = {};
  MemoryId b_window = {};
  ValueOperand c = {};
  int64_t contract_a = 1, contract_b = 0;
  bool tf32 = false;
  bool fresh = false;  ///< the accumulator is taken as zero if `fresh_when` holds
  Condition fresh_when = {};
};
/// Its results are its operands. At most the `pending` youngest dots may still run after it.
struct WaitDotOp {
  int64_t pending = 0;
  std::vector<ValueOperand> operands = {};
};
struct StartStoreOp {
  MemoryId window, memory;
  std::vector<Expr> at;
  Guard guard = {};
};
struct WaitStoreOp {
  int64_t pending = 0;
};

using StatementOp =
    std::variant<LetOp, ConstOp, IndexOp, TestOp, LoadOp, StoreOp, RowOp, FoldOp, ArgFoldOp,
                 TileScanOp, TileDotOp, MovementOp, BufferOp, ForOp, IfOp, TicketOp, AwaitOp,
                 SplatOp, LaneOp, ShuffleOp, GetElementOp, PackOp, AtomicOp, RoleOp, UndefOp,
                 RegroupOp, InstructionOp, ChannelOp, TurnsOp, TileRoleOp, PutOp, GetItemOp,
                 ReleaseOp, CopyOp, PassOp, TakeOp, MemoryViewOp, StartDotOp, WaitDotOp,
                 StartStoreOp, WaitStoreOp>;

struct Statement {
  StatementOp op;
  std::vector<ValueId> results;
  SourceLocation location;

  template <class T>
  const T* as() const {
    return std::get_if<T>(&op);
  }
  template <class T>
  T* as() {
    return std::get_if<T>(&op);
  }
};

struct GridAxis {
  std::string symbol;
  Expr extent;
};

struct Phase {
  std::vector<GridAxis> grid;
  Region body;
  int64_t scratch_bytes = 0;  ///< Kernel IR on a CPU
  // Kernel IR on a GPU.
  int64_t block = 0;         ///< threads of a block; 0: not for a GPU
  int64_t shared_bytes = 0;  ///< of a block
  int64_t registers = 0;     ///< registers of a thread at launch; 0: as many as the block leaves
  // Pipelined Tile IR has these too.
  std::string cluster;       ///< the symbol of the rank; empty: no cluster
  int64_t cluster_size = 1;  ///< blocks; an instance of the grid is a cluster
};

/// One kernel of either language.
struct KernelCode {
  std::string name;
  std::vector<Expr> symbols;  ///< size symbols, in order of declaration
  /// Parameters first, in order, then workspaces, then buffers.
  std::vector<Memory> memories;
  std::vector<ValueId> scalar_parameters;  ///< in order
  /// The parameters in the order in which they are declared: memories, scalars and tensor maps.
  std::vector<std::variant<MemoryId, ValueId, TensorMapId>> parameters;
  std::vector<TensorMap> tensor_maps;  ///< Kernel IR on a GPU
  std::vector<Value> values;
  std::vector<Phase> phases;
  std::string schedule;
  std::string target;     ///< Kernel IR, pipelined Tile IR
  bool resident = false;  ///< instances may wait for each other
  /// Kernel IR: the sets of memories for each of which a launch runs the whole kernel. No set
  /// depends on another one.
  int64_t members = 1;
  /// The values of `symbols` for each member, if members differ in their sizes. Empty: the launch
  /// passes the symbols, which are the same for all members.
  std::vector<std::vector<int64_t>> member_sizes;
  // Tile IR for a GPU: sections 7 and 7.5.
  bool pipelined = false;
  int64_t warps = 0;      ///< of a block; 0: not given
  int64_t cluster = 1;    ///< blocks of an instance of a plain program
  int64_t registers = 0;  ///< the most registers of a thread; 0: as many as the block leaves
  std::vector<NamedLayout> layouts;  ///< of the program's tiles
  std::vector<Channel> channels;
  std::vector<TurnToken> tokens;

  /// The symbols that are parameters of a launch.
  std::span<const Expr> passed_symbols() const {
    return member_sizes.empty() ? std::span<const Expr>(symbols) : std::span<const Expr>();
  }

  const Value& operator[](ValueId id) const { return values[id.index]; }
  const Memory& operator[](MemoryId id) const { return memories[id.index]; }
  const TensorMap& operator[](TensorMapId id) const { return tensor_maps[id.index]; }
  const Channel& operator[](ChannelId id) const { return channels[id.index]; }
  const TurnToken& operator[](TokenId id) const { return tokens[id.index]; }
};

/// A program in Tile IR: docs/ir/languages.md, section 3.
struct TileProgram : KernelCode {};
/// A kernel in Kernel IR: docs/ir/languages.md, sections 4 and 9.
struct Kernel : KernelCode {};

/// The symbol that stands for a value in index expressions: "%name", over its dtype's range.
Expr value_symbol(const KernelCode& code, ValueId value);
/// Position symbols "d<axis>", "e<axis>" and "lane", with the range of the type they index.
Expr position_symbol(char letter, size_t axis, int64_t extent);
Expr lane_symbol(int32_t lanes);
/// The symbol of a loop, a grid axis or a `let`, with the range that follows from the bounds.
Expr loop_symbol(std::string_view name, const Expr& low, const Expr& high, const Expr& step);
Expr grid_symbol(std::string_view name, const Expr& extent);
Expr let_symbol(std::string_view name, const Expr& value);
/// The symbols "tid" of a block with this number of threads, and "rtid" of a role with this number
/// of warps.
Expr thread_symbol(int64_t block);
Expr role_thread_symbol(int64_t warps);
/// The symbol "item" of a channel's `only`.
Expr item_symbol();
/// The type of all elements of a buffer, field or window, whose extents are constant.
ValueType memory_type(const Memory& memory);

/// The type of a row's result: operands broadcast; `result` only for convert and bitcast.
ValueType row_type(const KernelCode& code, ElementwiseOp op,
                   const std::vector<ValueOperand>& operands, std::optional<DType> result = {});

/// The types of an instruction's results; `dtype` chooses that of a fragment of matrices.
std::vector<ValueType> instruction_types(const KernelCode& code, const InstructionOp& op,
                                         DType dtype = DType::BF16);

/// Removes operations whose results nobody uses, including loads.
void remove_dead_code(KernelCode& code);

/// Appends statements to code under construction, with new names and derived types. The compiler
/// makes all Tile IR and Kernel IR in this way.
class CodeBuilder {
 public:
  explicit CodeBuilder(KernelCode& code) : code_(code) {}

  /// From now on, statements are appended to `region`. The builder keeps a stack of regions.
  void enter(Region& region) {
    regions_.push_back(&region);
    scopes_.push_back(++scopes_made_);
  }
  void leave() {
    regions_.pop_back();
    scopes_.pop_back();
  }
  /// A number that no other region of this builder has.
  uint64_t scope() const { return scopes_.back(); }

  /// A name that begins with `hint` and that no value, memory or symbol of the kernel has yet.
  std::string fresh_name(std::string_view hint);

  MemoryId add_memory(Memory memory);
  ValueId add_scalar_parameter(std::string name, DType dtype);

  Expr let(std::string_view hint, const Expr& value);  ///< the expression itself if it is trivial
  ValueId constant(ValueType type, uint64_t bits);
  ValueId iota(const Expr& value, ValueType type);
  ValueId test(Condition condition, ValueType type);
  ValueId load(MemoryId memory, std::vector<Expr> at, ValueType type, Guard guard = {},
               uint64_t fill = 0, CacheHint cache = CacheHint::None);
  void store(ValueOperand value, MemoryId memory, std::vector<Expr> at, Guard guard = {},
             CacheHint cache = CacheHint::None);
  /// `result` only for convert and bitcast.
  ValueId row(ElementwiseOp op, std::vector<ValueOperand> operands,
              std::optional<DType> result = {});
  ValueId fold(Monoid monoid, ValueOperand operand, std::vector<int64_t> axes);
  std::pair<ValueId, ValueId> arg_fold(bool is_max, ValueOperand values, ValueOperand indices,
                                       std::vector<int64_t> axes);
  ValueId view(MovementKind kind, ValueOperand operand, ValueType type,
               std::vector<int64_t> arguments = {});
  MemoryId buffer(std::string_view hint, DType dtype, std::vector<int64_t> extents);

  // Kernel IR on a GPU.
  /// `count` elements at byte `offset` of the block's shared memory.
  MemoryId shared_memory(std::string_view hint, DType dtype, int64_t count, int64_t offset);
  MemoryId mbarriers(std::string_view hint, int64_t count, int64_t offset);
  TensorMapId add_tensor_map(TensorMap map);
  std::vector<ValueId> instruction(Instruction instruction,
                                   std::vector<InstructionOperand> operands = {},
                                   int64_t columns = 0, DType dtype = DType::BF16);
  /// Waits for `threads` threads at barrier `id`. Barrier 0 is that of the whole block.
  void barrier(const Expr& id, int64_t threads);
  /// One of the shfl rows.
  ValueId shuffle(Instruction shuffle, ValueOperand value, const Expr& lane);
  ValueId undefined(ValueType type);
  ValueId regroup(ValueOperand value, ValueType type);
  /// `body` receives the symbol rtid.
  void role(std::string_view name, int64_t begin, int64_t end, int64_t registers,
            const std::function<void(Expr)>& body);

  /// `body` receives the loop symbol and the carried values and returns what to yield.
  std::vector<ValueId> for_loop(
      std::string_view hint, const Expr& low, const Expr& high, const Expr& step,
      std::vector<ValueOperand> initial,
      const std::function<std::vector<ValueOperand>(Expr, std::vector<ValueId>)>& body,
      int64_t unroll = 1);
  void if_then(Condition condition, const std::function<void()>& then,
               const std::function<void()>& otherwise = nullptr);

  /// Appends any statement. Its results get the given types. The functions above use this.
  std::vector<ValueId> append(StatementOp op, const std::vector<ValueType>& result_types,
                              std::string_view hint = "v", SourceLocation where = {});

  /// A value that no statement of its own makes, such as a loop's carried value.
  ValueId declare(std::string_view hint, ValueType type);

  KernelCode& code() { return code_; }

 private:
  KernelCode& code_;
  std::vector<Region*> regions_;
  std::vector<uint64_t> scopes_;
  uint64_t scopes_made_ = 0;
  std::unordered_map<std::string, uint32_t> names_;
};

}  // namespace braze
