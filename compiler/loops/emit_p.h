// emit_p.h — the walk over a loop tree that makes a tile program, by the rules E1 to E18 of 0003,
// section 5. Its files:
//
//   emit.cpp         the walk: phases, grids, roles and loops (E1 - E5)
//   emit_decided.cpp turns in which the conditions of a loop's parts are decided (E13)
//   emit_states.cpp  the states that loops carry (E3, E7)
//   emit_bodies.cpp  bodies as rows over tiles (E6, E15, E17)
//   emit_tasks.cpp   folds, dots on vector units, stores (E7 - E9, E16, E18)
//   emit_boxes.cpp   results that leave by boxes, values that roles keep on chip (E16)
//   emit_args.cpp    arg-reductions, whose states are pairs
//   emit_kept.cpp    values that plain programs keep on chip or in workspaces (E18)
//   emit_scans.cpp   scans, digit by digit (E18)
//   emit_ring.cpp    streams of plain programs that fetch ahead, and the dots in them
//   emit_ahead.cpp   streams whose first dots run a turn early (E12)
//   emit_places.cpp  placed reductions, whose terms say where they are added
//   emit_slabs.cpp   sums of dots that loops take part by part, in buffers
//   emit_roles.cpp   channels, what is copied and released when, asynchronous dots (E4, E10)
//
// A tile has one dimension for each axis of its task that has more than one index there. The
// dimensions come in the order in which the tree declares the axes, so tiles of different tasks
// broadcast to each other. A dimension that was folded remains, with extent 1.
#pragma once

#include <array>
#include <map>
#include <set>
#include <span>

#include "compiler/loops/emit.h"
#include "compiler/loops/guards.h"

namespace braze {

class TreeEmitter {
 public:
  explicit TreeEmitter(const LoopTree& tree)
      : tree_(tree), builder_(code_), guards_(guarded_values(tree)) {}
  TileProgram emit();

 private:
  static constexpr size_t kNone = SIZE_MAX;    // a dimension of extent 1
  static constexpr int64_t kAccessBytes = 16;  // that a thread of a GPU accesses at once

  /// The part of a program for which the walk makes statements. For a program without roles, one
  /// walk makes everything.
  enum class Part : uint8_t { All, Stages, Rest };

  /// The beginning of the present turn of an axis, and how many indices the turn takes. `turn` is 0
  /// if no loop runs over the axis.
  struct AxisNow {
    Expr begin;
    int64_t turn = 0;
    bool early = false;   ///< whether it may begin before index 0
    bool beyond = false;  ///< whether it may begin after the end of the axis
    bool whole = false;   ///< whether it surely ends at the end of the axis or before
    /// The end of its indices, if that is before the end of the axis.
    std::optional<Expr> end = {};
  };
  using AxesNow = std::vector<AxisNow>;

  /// The value of a step at the present place. If tasks of one region ask for the same value, it is
  /// computed once.
  struct Question {
    LoopStep step;  // with coordinates over symbols of the program
    std::vector<ValueOperand> operands;
    std::vector<int64_t> extents;  // of the tile
    Condition ends;                // the conditions under which something is loaded
    ValueOperand answer;
    bool is_like(const Question& other) const {
      return step == other.step && operands == other.operands && extents == other.extents &&
             ends == other.ends;
    }
  };

  /// A value in registers.
  struct Tile {
    ValueId value;
    std::vector<size_t> dims;        // the axis of each dimension
    std::vector<Expr> begin;         // the index of the first element along each dimension
    std::vector<Digit> digits = {};  // the digit of the axis that each dimension is
  };
  /// A value in a buffer, or in a slot of a channel.
  struct OnChip {
    MemoryId memory;
    std::optional<Expr> item;  // if it is a field of a channel: the number of the item
    std::vector<Expr> begin;   // the index of the first element along each axis of the value
    std::vector<int64_t> extents;
    std::optional<Expr> slot = {};  // if it is in a ring of a plain program: the slot
    // The number of the value's axis that is each dimension of the buffer; empty if they are in the
    // order of the axes.
    std::vector<size_t> order = {};
    int64_t panel = 0;  // as that of the value
  };
  /// The tile over which a task works.
  struct TaskTile {
    std::vector<size_t> dims;
    std::vector<int64_t> extents;
    // Those digits of the axes that each dimension has.
    std::vector<Digit> digits;
    // By name of an axis: the index of an element, over position symbols.
    std::unordered_map<std::string, Expr> index;
    std::optional<Layout> layout = {};  // the layout of values that have all dimensions
    bool looks_after_tails = false;     // whether elements beyond the ends of axes may be anything
  };
  /// A result that is stored as a box after several turns have each made a part of it.
  struct Gathered {
    OnChip chip;
    TaskTile tile;  // the whole box
  };
  /// A load that stands before the loops that need it.
  struct RaisedLoad {
    LoopStep step;
    std::vector<int64_t> extents;  // of the tile
    ValueId value;
  };
  /// In a role, a stream that remains a loop at run time, and whose tasks keep parts of tiles on
  /// chip.
  struct RuntimeTurn {
    LoopLevel level;
    Expr index, low;
    int64_t count;
  };
  /// A loop around the present place: its index, and how many turns it has.
  struct Counter {
    Expr index, count;
  };
  /// The stages of one region that share one channel.
  struct Pipe {
    ChannelId channel;
    const LoopRegion* region;
    std::vector<const LoopTask*> stages;
    bool once = false;          // copied once, before the turns of the grid
    std::optional<Expr> held;   // the number of the item that the consumer holds
    size_t depth = 0;           // number of counters when it was got
    std::set<int64_t> readers;  // numbers of the dots in flight that read it
  };

  [[noreturn]] void refuse(const SourceLocation& where, const std::string& message) const;
  const std::string& name_of(size_t axis) const { return tree_.axes[axis].name; }

  /// The name of the symbol that counts the turns of an axis. The lowering keeps a program's names
  /// and makes no such names itself.
  std::string turn_name(size_t axis) const { return name_of(axis) + "_turn"; }

  // --- The walk (emit.cpp)
  void declare_parameters();
  void phase(const LoopRegion& region);
  const Loop* ranks_of(const Loop* grid) const;
  int64_t count_ranks() const;
  void roles();
  void instance();
  void deal(const Expr& number);
  void region(const LoopRegion& items);
  void loop(const Loop& loop);
  void group(const Loop& loop);
  void stream(const Loop& loop);
  /// A stream that is being walked. Its loop either counts turns or, if no channel needs them
  /// (`by_axis`), runs over the index of the axis from `low` to `high`.
  struct Stream {
    const Loop& loop;
    Expr low, high, turns;
    bool nonempty;  // whether it surely has a turn
    bool by_axis;
    std::vector<const LoopTask*> carried;
    bool fills = false;  // whether it only fills buffers, which it fills to their ends
    /// If turns in the middle are kept whole: the number of the turn behind them, which comes
    /// first. The turns before them follow, and those that are kept come last.
    std::optional<Expr> behind = {};
    Expr masked = 0;  // the number of turns that are not kept
    Expr first() const { return by_axis ? low : Expr(0); }
    Expr last() const { return by_axis ? high : turns; }
    Expr begin(const Expr& index) const;
  };
  Expr begin_of(const Stream& stream, const Expr& index);
  void stand(const Stream& stream, const Expr& index);
  void turn(const Stream& stream, const Expr& index);
  void turns(const Stream& stream, const Expr& first, const Expr& last);
  void turns_in_one(const Stream& stream, const Expr& first, const Expr& last);
  void end_turn(const Loop& loop, const Expr& index, int64_t started);
  void end_stream(const Stream& stream, int64_t started);
  void grid_parts(size_t n);
  bool is_tail(const IndexComparison& part, size_t axis) const;
  std::vector<int64_t> boundaries_of(const Stream& stream) const;
  bool is_decided(const IndexComparison& part) const;
  bool keeps_comparisons() const;
  bool is_implied(size_t axis) const;
  bool begins_in_middle(const Loop& loop) const;
  void keep_middle(Stream& stream);
  Expr above(const Stream& stream, const IndexComparison& part) const;
  Expr undecided(const Stream& stream, const IndexComparison& part) const;
  Expr undecided(const Stream& stream) const;
  void in_decided(const Stream& stream, bool decided, const std::function<void()>& body);
  bool is_static(const Loop& loop) const;
  bool is_kept_on_chip(const LoopTask& task) const;
  bool reads_registers(const LoopTask& task, size_t axis) const;
  void for_static(std::string_view hint, int64_t count,
                  const std::function<void(const Expr&)>& body);
  Expr turns_of(const Loop& loop, size_t level);
  bool surely_has_turn(const Loop& loop) const;
  std::pair<Expr, Expr> bounds_of(const Loop& loop) const;
  std::unordered_map<std::string, Expr> now_around(const Loop& loop) const;
  std::vector<Expr> limits_of(const Loop& loop);
  int64_t extent_of(size_t axis, const AxesNow& axes) const;
  /// Runs `body` in the turn of `level` that begins at `begin`.
  void in_turn(const LoopLevel& level, const Expr& begin, bool shared,
               const std::function<void()>& body);
  Expr item() const;
  std::vector<const LoopTask*> states_of(const Loop& loop) const;
  std::vector<ValueId*> carried(const Stream& stream);
  bool read_in(std::span<const LoopItem> items, size_t value) const;
  void begin_state(const LoopTask& task, const Loop& loop);
  ValueId nothing_combined(const LoopTask& task);
  void end_states(const std::vector<const LoopTask*>& tasks);
  void end_state(const LoopTask& task);
  bool keeps_parts(const LoopTask& task, const Loop& loop) const;

  // --- States in buffers (emit_slabs.cpp)
  std::vector<LoopLevel> slabs_of(const LoopTask& task,
                                  const std::vector<const Loop*>& around) const;
  void each_slab(std::span<const LoopLevel> slabs, const std::function<void()>& body);
  void with_slab(const LoopTask& task, bool loads, const std::function<void()>& body);
  void begin_slabs(const LoopTask& task);
  void add_to_slab(const LoopTask& task);
  void end_slabs(const LoopTask& task);
  void in_raised(const Loop& loop, const std::function<void()>& body);
  std::vector<int64_t> folded_in_turn(const LoopTask& task, const TaskTile& tile) const;

  // --- Tasks (emit_tasks.cpp)
  void task(const LoopTask& task);
  void buffered_stage(const LoopTask& task);
  int64_t row_padding(size_t value) const;
  TaskTile tile_of(std::vector<size_t> axes, const AxesNow& axes_now) const;
  std::vector<size_t> axes_of(const LoopTask& task) const;
  /// A store whose value is computed already.
  struct Stored {
    const LoopTask& task;
    ValueId value;
    TaskTile tile;
  };
  void stores(std::span<const LoopItem> run);
  void stores_here(std::span<const LoopItem> run);
  bool share_memory(std::span<const LoopItem> run) const;
  void store(const Stored& stored);
  bool ends_with_tiles(size_t axis) const;
  ValueOperand body(const LoopBody& body, uint32_t result, const TaskTile& tile);
  ValueOperand step(const LoopBody& body, const LoopStep& s, const TaskTile& tile);
  ValueOperand made(const LoopBody& body, const LoopStep& s, const TaskTile& tile);
  void forget();
  void forget_reads(size_t value);
  TaskTile with_rows_that_exist(TaskTile tile) const;
  ValueOperand load(const LoopStep& s, const TaskTile& tile);
  std::optional<ValueOperand> compared_with_index(const LoopBody& body, const LoopStep& s,
                                                  const TaskTile& tile);
  ValueOperand apply(const LoopBody& body, const LoopStep& s, const TaskTile& tile);
  ValueOperand widened(const ValueOperand& operand, DType dtype);
  ValueOperand converted(const ValueOperand& operand, DType from, DType to);
  ValueOperand read(const LoopStep& s, const TaskTile& tile);
  Tile tile_now(ValueId value, const TaskTile& own) const;
  /// A bool: whether a running value has seen no element yet. Null if bodies need not know, because
  /// the value has no identity, or has the identity 0.
  ValueId seen_nothing(size_t value, ValueId running);
  ValueId guarded(size_t value, ValueId running);
  ValueId read_tile(const Tile& from, const LoopStep& s, const TaskTile& tile);
  std::vector<Expr> substituted(const std::vector<Expr>& at, const TaskTile& tile);
  ValueType type_along(const std::vector<Expr>& at, const TaskTile& tile, DType dtype) const;
  /// The value of an operand, broadcast to all dimensions of the tile.
  ValueId full(const ValueOperand& operand, const TaskTile& tile, DType dtype);
  void lay_out(ValueId value, const TaskTile& tile);
  void lay_as_accumulator(TaskTile& tile) const;
  Condition inside(const std::vector<Expr>& original, const std::vector<Expr>& at,
                   const Shape& shape) const;
  Guard clipped(const std::vector<Expr>& original, const std::vector<Expr>& at,
                const Shape& shape) const;
  Condition conditions(const std::vector<RangeCondition>& list, const TaskTile& tile);
  bool exists(const LoopStep& load) const;
  Condition ends_of(const LoopStep& load, bool has_conditions, const ValueType& type,
                    const TaskTile& tile) const;
  /// Whether the program is a plain one for the threads of a GPU.
  bool is_of_threads() const { return !tree_.roles && code_.warps > 0; }
  /// The axes along which a value of a tile has more than one element.
  static std::vector<size_t> axes_along(const ValueType& type, const TaskTile& tile);
  /// The condition that an element lies before the ends of these axes, where that is not certain.
  Condition before_ends(const std::vector<size_t>& axes, const TaskTile& tile) const;
  /// The value with the bits `nothing` in place of the elements beyond the ends of the axes.
  ValueId without_tail(ValueId value, const std::vector<size_t>& axes, const TaskTile& tile,
                       uint64_t nothing);
  /// The dtype in which a state is computed: that of the body, or f32 for 16-bit floats.
  static DType state_dtype(const LoopTask& task) { return compute_type(body_dtype(task)); }
  ValueOperand factor_of(const LoopTask& task, size_t n, const TaskTile& tile);
  std::vector<ValueOperand> factors_of(const LoopTask& task, const TaskTile& tile);
  void fold(const LoopTask& task);
  std::optional<int64_t> multiplied_in_registers(const LoopTask& task, const TaskTile& tile,
                                                 const std::vector<int64_t>& folded) const;
  ValueId added_products(const std::vector<ValueOperand>& factors, const TaskTile& tile,
                         int64_t dim, std::optional<ValueOperand> sum);
  std::vector<ValueOperand> factors_made(const LoopTask& task) const;
  void drop_constant(const LoopTask& task, TaskTile& tile) const;
  AxesNow axes_at(const LoopTask& task, const Loop& loop) const;
  void note_digits(const LoopRegion& phase);
  /// The dtype in which a part of a scan is combined.
  static DType part_dtype(const LoopTask& task, size_t part);
  bool keeps_axis(const LoopTask& scan) const;
  std::vector<ValueId> combined(const LoopTask& task, const std::vector<ValueId>& left,
                                const std::vector<ValueId>& right);
  std::vector<ValueId> first_parts(const LoopTask& task, const TaskTile& tile);
  void scan(const LoopTask& task);

  // --- Placed reductions (emit_places.cpp)
  /// The places of a placed reduction that belong to this instance: the numbers `lowest` to
  /// `highest`.
  struct Places {
    Expr count;          ///< the number of all places
    bool dealt = false;  ///< whether other instances have places too
    DType dtype = DType::I64;
    ValueOperand lowest, highest;
  };
  int64_t turn_of_reader(size_t value, size_t axis) const;
  const LoopTask& store_of(size_t value) const;
  bool is_there(const LoopTask& store) const;
  void note_places(const LoopTask& task);
  void begin_placed(const LoopItem& item, const LoopRegion& items);
  void begin_sums(const LoopTask& task);
  std::vector<Expr> place_of_sums(const LoopTask& task, const TaskTile& tile);
  ValueOperand loaded_places(const LoopTask& task, const TaskTile& tile);
  ValueId among(const LoopTask& task, const ValueOperand& loaded);
  void place(const LoopTask& task);
  Expr clamped(const LoopTask& task, const ValueOperand& loaded);
  void add_term(const LoopTask& task, Expr place);
  void seek(const Stream& stream);

  // --- Arg-reductions (emit_args.cpp)
  /// The best values of a tile, and the numbers of their elements along the reduced axes.
  struct Best {
    ValueId value, number;
  };
  DType number_dtype(const LoopTask& task) const;
  uint64_t no_number(const LoopTask& task) const;
  Best nothing_found(const LoopTask& task, const TaskTile& tile);
  Best better(const LoopTask& task, const Best& a, const Best& b);
  Best best_along(const LoopTask& task, Best best, TaskTile& tile);
  void arg_reduce(const LoopTask& task);
  ValueId rescaled(const LoopTask& task, ValueId state, const TaskTile& tile);
  void rescale(const LoopTask& task);
  static void drop(TaskTile& tile, const std::vector<int64_t>& dims);
  bool is_guarded(const LoopTask& task) const;
  ValueId last_rescale(const LoopTask& task, ValueId state, const TaskTile& tile);
  void dot(const LoopTask& task);
  void note_layout(const Layout& layout);
  void note_layouts();
  void order_layouts();
  void turned(const LoopTask& task, const Layout& layout);
  ValueId rounded(ValueId value, DType dtype);
  void define(const LoopTask& task, ValueId value, const TaskTile& tile);
  static std::vector<int64_t> positions(const std::vector<size_t>& axes, const TaskTile& tile);

  // --- Results that leave by boxes, values that roles keep on chip (emit_boxes.cpp)
  bool moves_by_boxes(const LoopTask& task, const TaskTile& tile) const;
  void store_through_chip(const LoopTask& task, ValueId value, const TaskTile& tile);
  MemoryId own_buffer(const LoopTask& task, std::string_view name, DType dtype,
                      std::vector<int64_t> extents);
  void send_box(const LoopTask& task, const OnChip& chip, const TaskTile& tile);
  int64_t boxes_beside() const;
  void open_boxes(const Loop& loop);
  void send_boxes(const Loop& loop);
  void raise_loads(const LoopRegion& items);
  void keep_on_chip(const LoopTask& task);

  // --- Values that plain programs keep in memory (emit_kept.cpp)
  void plan_kept(const LoopRegion& phase);
  void declare_kept(const LoopRegion& items);
  std::vector<int64_t> room_of(size_t value, const LoopRegion& items) const;
  std::vector<Expr> place_in_buffer(const OnChip& chip, const std::vector<Expr>& at) const;
  std::vector<Expr> place_in_buffer(size_t value, const TaskTile& tile) const;
  void fill_kept(const Loop& loop);
  void keep_in_buffer(const LoopTask& task, ValueId value, const TaskTile& tile);
  bool has_in_registers(const LoopStep& s) const;
  bool takes_kept_parts(const Loop& loop, size_t axis) const;
  bool fills_buffers(const Loop& loop) const;
  ValueId read_chip(const OnChip& from, const LoopStep& s, const TaskTile& tile);
  TaskTile along_panels(const LoopValue& kept, const TaskTile& tile, ValueId& value);
  static std::vector<Expr> in_panels(std::vector<Expr> at, int64_t panel);
  void keep_in_workspace(const LoopTask& task, ValueId value, const TaskTile& tile);
  ValueId read_workspace(MemoryId memory, const LoopStep& s, const TaskTile& tile);

  // --- Rings of plain programs (emit_ring.cpp)
  /// A stream that is being walked while slots on chip are filled for its later turns.
  struct Ring {
    int64_t slots = 2;
    bool zeros = false;  // whether what is multiplied beyond the end is zero
    bool exact = false;  // whether the last turn ends where the axis ends
    bool rest = false;   // whether the whole turns are over, so that nothing is fetched any more
    Expr turns = 0;
    std::vector<size_t> summed = {};
    size_t decided = SIZE_MAX;  // number of conditions that hold around the stream
    std::vector<const LoopTask*> tasks = {};
    std::function<void()> after_step = nullptr;  // copies for a later turn, due in `scope`
    uint64_t scope = 0;
    /// The dot whose factors are loaded one step before they are multiplied, if there is one. The
    /// loop carries the factors of the first step from turn to turn.
    struct Ahead {
      const LoopTask* dot = nullptr;
      const Loop* turns = nullptr;
      int64_t steps = 0;                 // of a turn
      Expr turn = 0;                     // the present one
      int64_t step = 0;                  // the present one
      std::array<ValueId, 2> next = {};  // the factors of the step that comes next
    } ahead = {};
  };
  /// The indices of a summed axis that the present dot takes one after the other in one turn. A
  /// factor's elements for all of them are loaded at once.
  struct Steps {
    struct Level {
      size_t axis;
      Expr begin;
      int64_t count;
    } level;
    std::map<MemoryId, ValueId> loaded = {};
  };
  std::vector<size_t> fetched_axes(size_t value) const;
  TaskTile fetched_tile(const LoopTask& task, size_t number);
  void declare_slots(const LoopTask& task, const Loop& loop);
  void ring(const Stream& stream);
  void ring_turn(const Stream& stream, const Expr& index);
  void after_step();
  void in_turn_of(const Stream& stream, const Ring& ring, const Expr& number,
                  const std::function<void()>& body);
  ValueId fetched(const LoopTask& task, const TaskTile& tile, const Ring& ring);
  std::vector<ValueId> fetch(const Stream& stream, const Ring& ring, const Expr& number);
  void put(const LoopTask& task, ValueId value, const TaskTile& tile, const Expr& slot);
  void put(const Stream& stream, const Ring& ring, const Expr& number,
           const std::vector<ValueId>& values);
  void copy(const Stream& stream, const Ring& ring, const Expr& number);
  Ring::Ahead dot_ahead(const Stream& stream, const Ring& ring) const;
  void load_ahead(Ring& ring, const Expr& turn, int64_t step);
  std::array<ValueId, 2> take_ahead();
  uint32_t result_along(const LoopTask& task, size_t axis) const;
  ValueId matrix_factor(const LoopTask& task, size_t d, int64_t first, int64_t count);
  void multiply_matrices(const LoopTask& task);
  bool makes_of_registers(const LoopTask& task, uint32_t result, size_t summed) const;
  std::set<size_t> axes_of_result(const LoopTask& task, size_t factor) const;
  bool is_outer_product(const LoopTask& task, const AxesNow& axes) const;
  bool is_summed_as_fold(const LoopTask& task, const AxesNow& axes) const;
  bool needs_buffer(const LoopTask& task, size_t n) const;
  OnChip declare_factor(const LoopTask& task, size_t n);
  void declare_factors(const Loop& loop);
  OnChip buffered_factor(const LoopTask& task, size_t n);
  std::map<size_t, OnChip> buffered_factors(const LoopTask& task);
  ValueOperand zero_beyond(const LoopTask& task, size_t n, const ValueOperand& factor,
                           const TaskTile& tile);
  ValueId read_factor(const LoopTask& task, size_t n, const OnChip& from, const TaskTile& tile);
  std::optional<ValueId> part_of_steps(
      const OnChip& from, size_t last,
      const std::function<std::vector<Expr>(const TaskTile&)>& place, const TaskTile& tile);

  // --- Tasks that run ahead (emit_ahead.cpp)
  const LoopTask* late_dot(const LoopRegion& region) const;
  bool is_late(const LoopRegion& region, const LoopTask& stage) const;
  void in_late_turn(const Stream& stream, const Expr& index, const std::function<void()>& body);
  void stream_ahead(const Stream& stream, const LoopTask& late);

  // --- Roles (emit_roles.cpp)
  void plan_pipes(const LoopRegion& region, int64_t ring, bool in_grid);
  bool depends_on_grid(const LoopTask& stage) const;
  MemoryId field(const LoopTask& stage, Channel& channel);
  void put(Pipe& pipe);
  void get(Pipe& pipe);
  void release(Pipe& pipe, const Expr& item);
  void release_read();
  MemoryId window(const OnChip& from, const std::vector<Expr>& offsets,
                  const std::vector<int64_t>& extents);
  TaskTile factor_tile(const LoopTask& task) const;
  ValueId left_factor(const LoopTask& task);
  bool is_zero_beyond(const LoopTask& task, uint32_t result) const;
  void start_dot(const LoopTask& task, ValueId factor = {});
  std::pair<MemoryId, bool> factor_window(const LoopTask& task, size_t factor, size_t& own);
  void wait(int64_t pending);
  void settle(size_t value);
  bool is_asynchronous(const LoopTask& task) const { return task.unit == Unit::Wgmma; }

  const LoopTree& tree_;
  TileProgram code_;
  CodeBuilder builder_;
  Part part_ = Part::All;
  const Loop* grid_ = nullptr;
  std::vector<Expr> grid_turns_;  // of each level
  bool by_level_ = false;         // whether each level of the loop on grid is an axis of the grid
  Expr block_, tiles_;            // the grid's symbol, and its number of turns
  int64_t persistent_ = 0;
  const Loop* ranks_ = nullptr;  // the loop over the blocks of a cluster
  Expr rank_;                    // the rank of the present block
  const Loop* group_ = nullptr;
  Expr copy_;              // the index of the present copy of a role, which is a group
  AxesNow axes_, shared_;  // where axes stand; `shared_` ignores loops on group
  // By axis: the limits of the stream over it that is being walked.
  std::map<size_t, std::vector<Expr>> limits_;
  std::vector<Counter> counters_;
  // Regions around, with the number of the next item in each.
  std::vector<std::pair<const LoopRegion*, size_t>> path_;
  std::vector<IndexComparison> decided_;  // conditions that hold in the present parts of loops
  std::map<size_t, Tile> tiles_of_;       // by value
  /// The digits that have their own dimensions, by axis and number of its indices in a tile.
  std::map<std::pair<size_t, int64_t>, std::vector<Digit>> digits_;
  std::map<size_t, MemoryId> workspaces_;  // by value
  std::map<size_t, OnChip> chips_;         // by value
  /// For each region of a plain program: the values that live in its memory (in buffers or the
  /// result).
  std::map<const LoopRegion*, std::vector<size_t>> born_;
  // The buffers of factors that the turns of a ring make, by task and number of the factor; and of
  // those that have been made before the loop over slabs that reads them.
  std::map<std::pair<const LoopTask*, size_t>, OnChip> factors_, raised_factors_;
  std::set<size_t> kept_;  // values that have their buffers now
  // By value: the loops that take parts of a state, which is in a buffer.
  std::map<size_t, std::vector<LoopLevel>> slabs_;
  std::set<size_t> in_slabs_;  // those of them that a loop around carries
  std::vector<size_t> fresh_;  // kept values that this turn has made, and that registers hold too
  std::map<size_t, Places> places_;   // by value
  std::map<size_t, Expr> sought_;     // by value: the place of the term that `seek` has found
  std::map<size_t, ValueId> states_;  // by value: the state that a loop around carries
  std::map<size_t, std::vector<ValueId>> totals_;  // by value: of a scan, the parts of its state
  std::map<size_t, ValueId> numbers_;  // by value: the numbers of an arg-reduction's best values
  std::map<size_t, TaskTile> state_tiles_;
  std::map<size_t, ValueId> before_;    // the states before this turn
  std::map<size_t, uint64_t> nothing_;  // the bits of a reduction without terms
  std::vector<bool> guards_;            // by value
  /// What reading a running value `m`, and `m'`, means at present. InTurn: its values in this turn
  /// and before. ToTotal: the parts of states are brought to the total. Unguarded: guarded totals
  /// are replaced by true ones.
  enum class Rescaling : uint8_t { InTurn, ToTotal, Unguarded };
  Rescaling rescaling_ = Rescaling::InTurn;
  // Of totals: the values that each thread or lane has of its own part.
  std::map<size_t, Tile> parts_;
  std::map<size_t, size_t> state_depth_;  // by value: the number of counters when its state began
  std::set<size_t> parted_;    // running values of which each lane and thread has its own part
  std::set<size_t> unfolded_;  // states that keep digits of the axes which they fold
  Region front_;               // statements at the beginning of the role: its buffers
  std::map<const LoopTask*, Gathered> gathered_;
  std::vector<RaisedLoad> raised_;
  std::vector<RuntimeTurn> runtime_turns_;
  std::map<const LoopTask*, MemoryId> buffers_;
  // The values of the steps of the present body.
  std::vector<ValueOperand> memo_;
  std::map<std::string, std::vector<int64_t>> loaded_extents_;  // by symbol of a loaded index
  std::map<ValueId, ValueId> widened_;                          // 16-bit value -> the value in f32
  // Sum of a dot -> the sum as it is read.
  std::map<std::pair<ValueId, DType>, ValueId> rounded_;
  std::map<ValueId, ValueId> guarded_;  // running values with 0 in place of the identity
  std::unordered_map<uint64_t, std::vector<Question>> asked_;  // values made in this scope, by hash
  uint64_t scope_ = 0;
  Ring* ring_ = nullptr;        // the innermost ring around
  std::optional<Steps> steps_;  // of the present dot
  // Roles.
  std::vector<Pipe> pipes_;
  std::map<size_t, size_t> pipe_of_;  // by value
  std::map<size_t, int64_t> flying_;  // dots in flight, by value, numbered from 1 on
  int64_t started_ = 0;
  std::set<size_t> from_registers_;  // dots in flight whose left factor is a tile in registers
  /// The turn that groups take one after the other.
  struct GroupTurn {
    Expr item;
    bool taken = false, passed = false;
  };
  std::optional<GroupTurn> group_turn_;
  TokenId token_;
};

}  // namespace braze
