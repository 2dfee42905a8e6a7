#include "ir/kernel/gpu_rules.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ir/code/check.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"
#include "ir/target/occupancy.h"
#include "ir/target/target.h"

namespace braze {

namespace {

constexpr int64_t kMostVectorBytes = 16;
constexpr int64_t kWarp = 32, kGroup = 128;    // threads
constexpr int64_t kMostBytes = (1 << 20) - 1;  // of an mbarrier's phase

int64_t bytes_of(const Memory& memory) {
  return memory.shape.at(0).as_constant().value_or(0) * static_cast<int64_t>(size_of(memory.dtype));
}
int64_t align_of_swizzle(int64_t swizzle) { return swizzle == 0 ? 128 : 8 * swizzle; }
bool is_swizzle(int64_t bytes) { return bytes == 0 || bytes == 32 || bytes == 64 || bytes == 128; }

bool is_mma(Instruction i) {
  switch (i) {
    case Instruction::mma_bf16:
    case Instruction::mma_f16:
    case Instruction::mma_tf32:
    case Instruction::mma_f64:
    case Instruction::mma_f64_wide:
      return true;
    default:
      return false;
  }
}
DType matrix_dtype(Instruction i) {
  switch (i) {
    case Instruction::mma_bf16:
    case Instruction::wgmma_bf16:
      return DType::BF16;
    case Instruction::mma_f16:
    case Instruction::wgmma_f16:
      return DType::F16;
    case Instruction::mma_f64:
    case Instruction::mma_f64_wide:
      return DType::F64;
    default:
      return DType::F32;
  }
}
// The type of a fragment of a matrix, in which 16-bit elements are stored in pairs.
ValueType fragment(DType dtype, int64_t registers) {
  return {dtype, is_half(dtype) ? 2 : 1, {registers}};
}

bool waits_at_top(const Region& region) {
  return std::ranges::any_of(region.statements, [](const Statement& s) {
    const auto* special = s.as<InstructionOp>();
    return special && special->instruction == Instruction::griddep_wait;
  });
}

class GpuRules {
 public:
  GpuRules(const KernelCode& code, std::vector<Diagnostic>& notes) : code_(code), notes_(notes) {
    if (const auto target = find_target(code.target)) target_ = *target;
  }

  std::vector<Diagnostic> run() {
    for (const TensorMap& map : code_.tensor_maps) check_map(map);
    if (!findings_.empty()) return std::move(findings_);  // instructions rely on sound maps
    for (const Phase& phase : code_.phases) check_phase(phase);
    return std::move(findings_);
  }

 private:
  using Lets = std::unordered_map<std::string, Expr>;

  void expect(bool right, const char* rule, const std::string& message) {
    if (!right) findings_.push_back(broken_rule(code_, statement_, rule, message));
  }
  const ValueType& type_of(ValueId id) const { return code_[id].type; }

  // --- G7

  void check_map(const TensorMap& map) {
    statement_ = nullptr;
    const auto wrong = [&](const std::string& what) {
      return fmt::format("the tensor map %{}: {}", map.name, what);
    };
    const Memory& memory = code_[map.memory];
    const auto size = static_cast<int64_t>(size_of(map.dtype));
    expect(memory.space == MemorySpace::Parameter && memory.dtype == map.dtype, "G7",
           wrong(fmt::format("%{} is not a parameter of the map's dtype", memory.name)));
    expect(!map.box.empty() && map.box.size() == map.extents.size() && map.box.size() <= 5, "G7",
           wrong("it needs a box of 1 to 5 axes, and as many extents"));
    if (map.box.empty() || map.box.size() != map.extents.size()) return;
    for (const int64_t extent : map.box)
      expect(extent >= 1 && extent <= 256, "G7",
             wrong(fmt::format("the box extent {} is not from 1 to 256", extent)));
    if (!findings_.empty()) return;
    const int64_t inner = map.box.back() * size;
    expect(is_swizzle(map.swizzle), "G7",
           wrong(fmt::format("the swizzle {} is not 0, 32, 64 or 128", map.swizzle)));
    expect(inner % 16 == 0 && (map.swizzle == 0 || inner <= map.swizzle), "G7",
           wrong(fmt::format("the innermost box extent has {} bytes, which must be a multiple of "
                             "16 and not more than the swizzle",
                             inner)));
    Expr stride = size;
    for (size_t axis = map.extents.size(); axis-- > 1;) {
      stride *= map.extents[axis];
      expect(stride.is_multiple_of(16), "G7",
             wrong(fmt::format("the byte stride {} cannot be proven to be a multiple of 16",
                               stride.to_string())));
    }
  }

  // --- Phases, roles, regions

  void check_phase(const Phase& phase) {
    statement_ = nullptr;
    phase_ = &phase;
    registers_ = phase.registers > 0 ? phase.registers : launch_registers(phase.block);
    expect(phase.block % kWarp == 0, "G5",
           fmt::format("{} threads are not a multiple of the 32 of a warp", phase.block));
    expect(phase.cluster.empty() || target_.cluster_blocks > 1, "G1",
           fmt::format("{} has no clusters", code_.target));
    expect(phase.cluster_size <= target_.cluster_blocks || target_.cluster_blocks == 1, "G1",
           fmt::format("a cluster of {} has at most {} blocks, not {}", code_.target,
                       target_.cluster_blocks, phase.cluster_size));
    expect(phase.shared_bytes >= 0 && phase.shared_bytes <= target_.l1_bytes, "G2",
           fmt::format("the phase uses {} bytes of shared memory, but a block of {} has only {}",
                       phase.shared_bytes, code_.target, target_.l1_bytes));
    expect(phase.registers <= kMostThreadRegisters &&
               phase.registers * phase.block <= kMultiprocessorRegisters,
           "G3",
           fmt::format("{} registers for each of {} threads are more than the machine has",
                       phase.registers, phase.block));
    active_.assign(static_cast<size_t>(phase.block), 1);
    barrier_threads_.clear();
    initialised_.clear();
    shared_.clear();
    roles_.clear();
    role_begin_ = 0;
    accesses_ = false;
    check_region(phase.body, 0);
    check_roles(phase.body);
    note_registers(phase.body);
  }

  void check_region(const Region& region, size_t depth) {
    const Lets lets = lets_;
    for (size_t i = 0; i < region.statements.size(); ++i) {
      const Statement& s = region.statements[i];
      statement_ = &s;
      if (s.as<RoleOp>())
        expect(depth == 0, "G3", "a role must stand at the top of a phase");
      else
        expect(depth > 0 || roles_.empty(), "G3", "no statement can follow the roles of a phase");
      check(s, depth);
    }
    lets_ = lets;
    while (!shared_.empty() && shared_.back().depth > depth) shared_.pop_back();
  }

  void check(const Statement& s, size_t depth) {
    check_flight(s);
    accesses_ |= accesses_device(s);
    if (const auto* let = s.as<LetOp>()) {
      lets_.insert_or_assign(let->symbol,
                             lets_.empty() ? let->value : let->value.substitute(lets_));
    } else if (const auto* buffer = s.as<BufferOp>()) {
      check_shared(buffer->memory, depth);
    } else if (const auto* role = s.as<RoleOp>()) {
      check_role(*role, depth);
    } else if (const auto* branch = s.as<IfOp>()) {
      const auto before = active_;
      narrow(branch->condition, false);
      check_region(*branch->then, depth + 1);
      active_ = before;
      if (branch->otherwise) {
        narrow(branch->condition, true);
        check_region(*branch->otherwise, depth + 1);
        active_ = before;
      }
    } else if (const auto* loop = s.as<ForOp>()) {
      const auto before = active_;
      narrow({{loop->low, IndexComparison::Kind::Lt, loop->high}}, false);
      if (loop->is_static) statics_.insert(loop->symbol);
      check_region(*loop->body, depth + 1);
      statics_.erase(loop->symbol);
      active_ = before;
    } else if (const auto* special = s.as<InstructionOp>()) {
      check_instruction(*special, s);
      if (special->instruction == Instruction::griddep_wait) check_wait(depth);
    } else if (const auto* load = s.as<LoadOp>()) {
      check_access(load->memory, load->rank);
      check_vector(type_of(s.results[0]));
    } else if (const auto* store = s.as<StoreOp>()) {
      check_access(store->memory, store->rank);
      if (!store->value.is_literal()) check_vector(type_of(store->value.value));
    }
  }

  void check_access(MemoryId memory, const std::optional<Expr>& rank) {
    expect(!code_[memory].mbarrier, "G1", "an mbarrier cannot be loaded or stored");
    if (rank) check_rank(memory, *rank);
  }
  // Checks the size of a vector access. In kernels of plain programs, which have no roles, code
  // generators divide larger accesses.
  void check_vector(const ValueType& type) {
    const int64_t bytes = type.lanes * static_cast<int64_t>(size_of(type.dtype));
    expect(roles_.empty() || bytes <= kMostVectorBytes, "G1",
           fmt::format("the access has {} bytes, but a thread moves at most {} at once", bytes,
                       kMostVectorBytes));
  }
  void check_rank(MemoryId memory, const Expr& rank) {
    expect(code_[memory].space == MemorySpace::Shared, "G1",
           fmt::format("%{} is not shared memory, so no other block has it", code_[memory].name));
    expect(!phase_->cluster.empty(), "G1", "the phase has no cluster, so there is no other block");
    const Interval range = plain(rank).range();
    expect(range.max >= 0 && range.min < phase_->cluster_size, "G1",
           fmt::format("the cluster has no block {}", rank.to_string()));
  }
  Expr plain(const Expr& e) const { return lets_.empty() ? e : e.substitute(lets_); }

  // --- G10

  // Whether the statement itself accesses device memory that other kernels may write. What a phase
  // loads from `in` parameters before it waits is promised to be no such memory.
  bool accesses_device(const Statement& s) const {
    bool out = false;
    if (const auto* load = s.as<LoadOp>(); load && code_[load->memory].mode == Mode::In) return out;
    for_each_memory(s, [&](MemoryId id) { out |= is_device_memory(code_[id]); });
    const auto* special = s.as<InstructionOp>();
    if (!special || special->instruction == Instruction::tma_prefetch) return out;
    const bool loads = special->instruction == Instruction::tma_load ||
                       special->instruction == Instruction::tma_load_multicast;
    return out || std::ranges::any_of(special->operands, [&](const InstructionOperand& operand) {
             const auto* map = std::get_if<MapPlace>(&operand);
             return map &&
                    !(loads && code_[code_.tensor_maps[map->map.index].memory].mode == Mode::In);
           });
  }
  void check_wait(size_t depth) {
    const bool at_top = depth == 0 || (in_role_ && depth == 1);
    expect(at_top && !code_.resident, "G10",
           "griddep.wait must stand at the top of a phase or role, and the instances of the phase "
           "must not wait for each other");
    expect(!accesses_, "G10",
           "device memory is accessed before griddep.wait, which is only allowed in loads of `in` "
           "parameters");
  }

  // --- G2

  struct SharedRange {
    size_t depth;
    int64_t begin, end;
    std::string name;
  };
  void check_shared(MemoryId id, size_t depth) {
    const Memory& memory = code_[id];
    if (memory.space != MemorySpace::Shared) return;
    const int64_t begin = memory.scratch_offset, end = begin + bytes_of(memory);
    expect(begin >= 0 && end <= phase_->shared_bytes, "G2",
           fmt::format("%{} ends at byte {}, but the block has only {} bytes", memory.name, end,
                       phase_->shared_bytes));
    expect(begin % static_cast<int64_t>(size_of(memory.dtype)) == 0, "G2",
           fmt::format("%{} at byte {} is not aligned to its dtype", memory.name, begin));
    for (const SharedRange& other : shared_)
      expect(end <= other.begin || other.end <= begin, "G2",
             fmt::format("%{} overlaps %{}", memory.name, other.name));
    shared_.push_back({depth, begin, end, memory.name});
  }
  // Reports a place whose address is known not to have the alignment.
  void check_aligned(const Place& place, int64_t align) {
    const Memory& memory = code_[place.memory];
    const Expr inside = plain(place.at) * static_cast<int64_t>(size_of(memory.dtype));
    const auto constant = inside.as_constant();
    const bool known = constant || inside.is_multiple_of(align);
    const bool wrong = known && (memory.scratch_offset + constant.value_or(0)) % align != 0;
    expect(!wrong, "G2",
           fmt::format("%{}[{}] is not aligned to {} bytes", memory.name, place.at.to_string(),
                       align));
  }

  // --- G3

  void check_role(const RoleOp& role, size_t depth) {
    const int64_t warps = phase_->block / kWarp;
    expect(role.end <= warps, "G3",
           fmt::format("the role takes warps {} to {}, but the block has only {}", role.begin,
                       role.end, warps));
    for (const RoleOp* other : roles_)
      expect(role.end <= other->begin || other->end <= role.begin, "G3",
             fmt::format("the role {} shares warps with the role {}", role.name, other->name));
    if (role.registers > 0) {
      expect(target_.capability >= 90, "G1",
             fmt::format("{} cannot move registers between roles", code_.target));
      expect(role.begin % 4 == 0 && role.end % 4 == 0, "G3",
             "a role that states its registers must take whole groups of 4 warps");
      expect(role.registers % 8 == 0 && role.registers >= 24 && role.registers <= 256, "G3",
             fmt::format("{} registers are not a multiple of 8 from 24 to 256", role.registers));
    }
    roles_.push_back(&role);
    const auto before = active_;
    for (size_t t = 0; t < active_.size(); ++t) {
      const auto warp = static_cast<int64_t>(t) / kWarp;
      if (warp < role.begin || warp >= role.end) active_[t] = 0;
    }
    in_role_ = true;
    role_begin_ = role.begin * kWarp;
    const bool accesses = accesses_;  // roles wait each for itself
    check_region(*role.body, depth + 1);
    accesses_ = accesses;
    in_role_ = false;
    role_begin_ = 0;
    active_ = before;
  }
  void check_roles(const Region& body) {
    const auto waiting =
        std::ranges::count_if(roles_, [](const RoleOp* role) { return waits_at_top(*role->body); });
    if (waiting > 0 && waiting < std::ssize(roles_)) {
      statement_ = &body.statements.back();
      expect(false, "G10", "if one role has a griddep.wait, all roles of the phase must have one");
    }
    int64_t asked = 0, threads = 0;
    bool any = false;
    for (const RoleOp* role : roles_) {
      any |= role->registers > 0;
      asked +=
          (role->registers > 0 ? role->registers : registers_) * kWarp * (role->end - role->begin);
      threads += kWarp * (role->end - role->begin);
    }
    if (!any) return;
    statement_ = &body.statements.back();
    asked += registers_ * (phase_->block - threads);
    const int64_t given = registers_ * phase_->block;
    expect(asked <= given, "G3",
           fmt::format("the roles ask for {} registers, but the launch has only {}", asked, given));
  }

  // --- G4

  // Excludes the threads for which a condition over thread numbers alone does not hold. Other
  // conditions may also differ between threads; the simulator finds that.
  void narrow(const Condition& condition, bool negated) {
    if (condition.empty()) return;
    std::vector<std::pair<Expr, Expr>> sides;
    for (const IndexComparison& c : condition) {
      sides.emplace_back(plain(c.left), plain(c.right));
      for (const Expr* e : {&sides.back().first, &sides.back().second})
        for (const std::string& symbol : e->symbols())
          if (symbol != "tid" && symbol != "rtid") return;
    }
    for (size_t t = 0; t < active_.size(); ++t) {
      if (!active_[t]) continue;
      const auto thread = static_cast<int64_t>(t);
      const auto value = [&](std::string_view symbol) {
        return symbol == "tid" ? thread : thread - role_begin_;
      };
      bool yes = true;
      for (size_t i = 0; i < condition.size(); ++i)
        yes = yes && holds(condition[i].kind, sides[i].first.evaluate(value),
                           sides[i].second.evaluate(value));
      active_[t] = yes != negated;
    }
  }
  void check_meeting(Meeting meeting) {
    const int64_t together = meeting == Meeting::Warp ? kWarp : kGroup;
    if (meeting == Meeting::Thread) return;
    for (int64_t first = 0; first < phase_->block; first += together) {
      const auto begin = active_.begin() + first,
                 end = active_.begin() + std::min(first + together, phase_->block);
      const auto here = std::count(begin, end, 1);
      if (here == 0 || (here == end - begin && here == together)) continue;
      expect(
          false, "G4",
          fmt::format(
              "only {} threads of the {} that begins at thread {} reach this statement; all must",
              here, meeting == Meeting::Warp ? "warp" : "group", first));
      return;
    }
  }

  // --- G1, G5, G8

  struct Letters {
    std::string_view letters;
    char operator[](size_t i) const { return letters[std::min(i, letters.size() - 1)]; }
  };

  void check_instruction(const InstructionOp& op, const Statement& s) {
    const InstructionInfo& row = info(op.instruction);
    expect(has_instruction(target_, op.instruction), "G1",
           fmt::format("{} does not have the instruction {}", code_.target, row.text));
    check_meeting(row.meeting);
    const Letters letters{row.operands};
    const bool many = row.operands.ends_with('V');
    const bool complete = many ? op.operands.size() >= row.operands.size()
                               : op.operands.size() == row.operands.size();
    expect(complete, "G1", fmt::format("{} takes {} operands", row.text, row.operands.size()));
    if (!complete) return;
    const size_t before = findings_.size();
    for (size_t i = 0; i < op.operands.size(); ++i) check_operand(letters[i], op.operands[i]);
    if (findings_.size() != before) return;
    check_types(op, s);
    check_numbers(op);
    for (const ValueId result : s.results) makers_[result] = &op;
  }

  bool is_constant(const Expr& e) const {
    const auto symbols = e.symbols();
    return std::all_of(symbols.begin(), symbols.end(),
                       [&](const std::string& symbol) { return statics_.contains(symbol); });
  }

  void check_operand(char letter, const InstructionOperand& operand) {
    const auto* place = std::get_if<Place>(&operand);
    const auto* value = std::get_if<ValueOperand>(&operand);
    const auto* e = std::get_if<Expr>(&operand);
    const auto* map = std::get_if<MapPlace>(&operand);
    if (value && value->is_literal())
      return expect(false, "G1", "an operand must be a value, not a literal");
    switch (letter) {
      case 'i':
        return expect(e, "G1", "an operand must be an integer expression");
      case '#':
        return expect(e && is_constant(*e), "G1", "an operand must be a constant");
      case 'v':
      case 'V':
        return expect(value, "G1", "an operand must be a value");
      case 't':
      case 'T': {
        expect(map, "G1", "an operand must be a tensor map");
        if (!map || letter == 'T') return;
        return expect(map->at.size() == code_[map->map].box.size(), "G1",
                      "the tensor map needs one coordinate for each axis");
      }
      case 'M':
        if (value) return;
        break;
      default:
        break;
    }
    expect(place, "G1", "an operand must be a place in memory");
    if (place) check_place(letter, *place);
  }

  void check_place(char letter, const Place& place) {
    const Memory& memory = code_[place.memory];
    const bool remote = letter == 'q' || letter == 'n';
    const bool matrix = letter == 'M' || letter == 'B';
    expect(!place.rank || remote, "G1", "this operand must be in the block's own memory");
    if (place.rank && remote) check_rank(place.memory, *place.rank);
    if (letter == 'P')
      return expect(is_device_memory(memory), "G1",
                    fmt::format("%{} is not in device memory", memory.name));
    const bool barrier = letter == 'm' || letter == 'n';
    expect(memory.space == MemorySpace::Shared && memory.mbarrier == barrier, "G1",
           fmt::format("%{} is not {}", memory.name, barrier ? "an mbarrier" : "shared memory"));
    const Interval range = plain(place.at).range();
    expect(range.max >= 0 && range.min < std::max<int64_t>(memory.shape[0].range().max, 1), "K7",
           fmt::format("element {} of %{} is outside; the length is {}", place.at.to_string(),
                       memory.name, memory.shape[0].to_string()));
    expect(place.matrix.has_value() == matrix, "G1",
           "an operand of wgmma, and no other, needs the layout of a matrix");
    const auto bytes = static_cast<int64_t>(size_of(memory.dtype));
    expect(!matrix || (place.at * bytes).is_multiple_of(16), "G2",
           fmt::format("%{}[{}] cannot be proven to be aligned to 16 bytes, which a matrix needs",
                       memory.name, place.at.to_string()));
    if (matrix && place.matrix)
      expect(is_swizzle(place.matrix->swizzle) &&
                 (place.matrix->k_major || place.matrix->swizzle != 0),
             "G1", fmt::format("the swizzle {} is not 0, 32, 64 or 128", place.matrix->swizzle));
  }

  template <class T>
  const T& operand(const InstructionOp& op, size_t i) const {
    return std::get<T>(op.operands[i]);
  }
  ValueId value(const InstructionOp& op, size_t i) const {
    return operand<ValueOperand>(op, i).value;
  }

  void expect_value(ValueId v, const ValueType& type) {
    expect(type_of(v) == type, "G1",
           fmt::format("%{} has the type {}, but {} is needed", code_[v].name,
                       type_of(v).to_string(), type.to_string()));
  }

  void check_types(const InstructionOp& op, const Statement& s) {
    const DType fragment_dtype = s.results.empty() ? DType::BF16 : type_of(s.results[0]).dtype;
    const auto types = instruction_types(code_, op, fragment_dtype);
    expect(types.size() == s.results.size(), "G1",
           fmt::format("the instruction has {} results, but {} names are given", types.size(),
                       s.results.size()));
    for (size_t i = 0; i < std::min(types.size(), s.results.size()); ++i)
      expect_value(s.results[i], types[i]);
    switch (op.instruction) {
      case Instruction::ldmatrix_x4:
      case Instruction::ldmatrix_x4_trans:
        expect(is_half(fragment_dtype), "G1", "ldmatrix loads 16-bit floats only");
        return;
      case Instruction::stmatrix_x4: {
        const DType dtype = type_of(value(op, 1)).dtype;
        expect(is_half(dtype), "G1", "stmatrix stores 16-bit floats only");
        return expect_value(value(op, 1), fragment(dtype, 4));
      }
      case Instruction::tma_load:
      case Instruction::tma_load_multicast:
        return check_box(operand<MapPlace>(op, 1), operand<Place>(op, 0));
      case Instruction::tma_store:
        return check_box(operand<MapPlace>(op, 0), operand<Place>(op, 1));
      case Instruction::cp_async:
        return expect(
            code_[operand<Place>(op, 0).memory].dtype == code_[operand<Place>(op, 1).memory].dtype,
            "G1", "the source and the target of the copy have different dtypes");
      case Instruction::st_async: {
        const ValueType& type = type_of(value(op, 1));
        const int64_t bytes = type.count() * type.lanes * static_cast<int64_t>(size_of(type.dtype));
        expect(type.dtype == code_[operand<Place>(op, 0).memory].dtype, "G1",
               "the dtype of st.async's value is not that of its memory");
        return expect(bytes == 4 || bytes == 8 || bytes == 16, "G1",
                      fmt::format("st.async stores 4, 8 or 16 bytes, not {}", bytes));
      }
      default:
        break;
    }
    if (is_mma(op.instruction)) {
      const DType dtype = matrix_dtype(op.instruction);
      // The smallest matrices have a quarter of the others' elements of the left factor, and half
      // of the rest.
      const int64_t part = op.instruction == Instruction::mma_f64 ? 2 : 1;
      expect_value(value(op, 0), fragment(dtype, 4 / (part * part)));
      expect_value(value(op, 1), fragment(dtype, 2 / part));
      expect_value(value(op, 2), {dtype == DType::F64 ? dtype : DType::F32, 1, {4 / part}});
    }
    if (is_wgmma(op.instruction)) check_wgmma(op);
  }

  void check_box(const MapPlace& map, const Place& place) {
    const TensorMap& box = code_[map.map];
    expect(code_[place.memory].dtype == box.dtype, "G1",
           "the dtype of the tensor map is not that of the memory");
    check_aligned(place, align_of_swizzle(box.swizzle));
  }

  void check_wgmma(const InstructionOp& op) {
    const DType dtype = matrix_dtype(op.instruction);
    expect(op.columns >= 8 && op.columns <= 256 && op.columns % 8 == 0, "G1",
           fmt::format("n = {} is not a multiple of 8 from 8 to 256", op.columns));
    expect_value(value(op, 2), {DType::F32, 1, {op.columns / 2}});
    for (size_t i = 0; i < 2; ++i) {
      const auto* place = std::get_if<Place>(&op.operands[i]);
      if (!place) continue;
      expect(code_[place->memory].dtype == dtype, "G1",
             fmt::format("the dtype of %{} is not {}", code_[place->memory].name, name(dtype)));
      expect(place->matrix->k_major || dtype != DType::F32, "G1",
             "tf32 operands must have the contracted axis innermost");
    }
    // G6: a fence must order registers that other instructions wrote.
    const auto made_by = [&](ValueId v) {
      const auto found = makers_.find(v);
      return found == makers_.end() ? nullptr : found->second;
    };
    const InstructionOp* sum = made_by(value(op, 2));
    expect(
        sum && (sum->instruction == Instruction::wgmma_fence || is_wgmma(sum->instruction)), "G6",
        fmt::format("the accumulator %{} must come from a wgmma.fence", code_[value(op, 2)].name));
    if (const auto* a = std::get_if<ValueOperand>(&op.operands[0])) {
      expect_value(a->value, fragment(dtype, 4));
      const InstructionOp* maker = made_by(a->value);
      expect(maker && maker->instruction == Instruction::wgmma_fence, "G6",
             fmt::format("the operand %{} must come from a wgmma.fence", code_[a->value].name));
    }
  }

  void check_numbers(const InstructionOp& op) {
    const auto constant = [&](size_t i) { return plain(operand<Expr>(op, i)).as_constant(); };
    switch (op.instruction) {
      case Instruction::bar_sync:
      case Instruction::bar_arrive:
        return check_barrier(plain(operand<Expr>(op, 0)), constant(1).value_or(0));
      case Instruction::cp_async: {
        const int64_t bytes = constant(2).value_or(0);
        return expect(bytes == 4 || bytes == 8 || bytes == 16, "G1",
                      fmt::format("cp.async copies 4, 8 or 16 bytes, not {}", bytes));
      }
      case Instruction::mbarrier_init:
        initialised_.insert(operand<Place>(op, 0).memory);
        return expect(constant(1).value_or(0) >= 1, "G1",
                      "the count of an mbarrier must be at least 1");
      case Instruction::mbarrier_expect: {
        const Interval range = plain(operand<Expr>(op, 1)).range();
        expect(range.max >= 1 && range.min <= kMostBytes, "G1",
               fmt::format("an mbarrier cannot expect {} bytes", operand<Expr>(op, 1).to_string()));
        break;
      }
      case Instruction::cp_async_wait:
      case Instruction::bulk_wait:
      case Instruction::bulk_wait_read:
      case Instruction::wgmma_wait:
        return expect(constant(0).value_or(0) >= 0, "G1",
                      "the number of groups cannot be negative");
      default:
        break;
    }
    for (const InstructionOperand& o : op.operands)
      if (const auto* place = std::get_if<Place>(&o); place && code_[place->memory].mbarrier)
        expect(initialised_.contains(place->memory), "G8",
               fmt::format("%{} is used before an mbarrier.init", code_[place->memory].name));
  }

  void check_barrier(const Expr& id, int64_t threads) {
    const Interval range = id.range();
    expect(range.min >= 0 && range.max <= 15, "G5",
           fmt::format("barrier {} does not exist; a block has barriers 0 to 15", id.to_string()));
    expect(threads >= kWarp && threads % kWarp == 0 && threads <= phase_->block, "G5",
           fmt::format(
               "a barrier of {} threads is not possible in a block of {}; it takes whole warps",
               threads, phase_->block));
    if (range.min < 0 || range.max > 15) return;
    for (int64_t i = range.min; i <= range.max; ++i) {
      const auto [known, added] = barrier_threads_.try_emplace(i, threads);
      expect(known->second == threads, "G5",
             fmt::format("barrier {} counts {} threads here, but {} elsewhere", i, threads,
                         known->second));
    }
    expect(range.min > 0 || !in_role_, "G3",
           "barrier 0 is for the whole block and cannot be used in a role");
    expect(range.max > 0 || threads == phase_->block, "G5",
           fmt::format("barrier 0 must count the whole block, {} threads", phase_->block));
  }

  // --- G6

  // Checks values that are certainly in flight: the result of a wgmma, and what a fence returns for
  // it.
  void check_flight(const Statement& s) {
    const auto* special = s.as<InstructionOp>();
    if (special && is_wgmma(special->instruction)) {
      if (const auto* a = std::get_if<ValueOperand>(&special->operands[0])) settled(a->value);
      if (!s.results.empty()) flight_.insert(s.results[0]);
      return;
    }
    if (special && special->instruction == Instruction::wgmma_fence) {
      for (size_t i = 0; i < std::min(special->operands.size(), s.results.size()); ++i)
        if (const auto* v = std::get_if<ValueOperand>(&special->operands[i]);
            v && flight_.contains(v->value))
          flight_.insert(s.results[i]);
      return;
    }
    if (special && special->instruction == Instruction::wgmma_wait) return;
    if (s.as<ForOp>()) return;  // a value in flight may be carried
    for_each_value(s, [&](ValueId v) { settled(v); });
  }
  void settled(ValueId v) {
    expect(!flight_.contains(v), "G6",
           fmt::format("%{} is still in flight; use the result of a wgmma.wait instead",
                       code_[v].name));
  }

  // --- G9

  // Estimates the registers that the values of a region need at the same time, from their first and
  // last uses. Values that a loop takes from outside live to its end.
  void note_registers(const Region& body) {
    std::map<ValueId, std::pair<int64_t, int64_t>> lives;
    int64_t now = 0;
    number(body, now, lives);
    std::map<int64_t, int64_t> change;
    for (const auto& [v, life] : lives) {
      const ValueType& type = type_of(v);
      const auto bytes = type.count() * type.lanes *
                         std::max<int64_t>(static_cast<int64_t>(size_of(type.dtype)), 2);
      change[life.first] += (bytes + 3) / 4;
      change[life.second + 1] -= (bytes + 3) / 4;
    }
    int64_t live = 0, most = 0;
    for (const auto& [at, by] : change) most = std::max(most, live += by);
    int64_t budget = registers_;
    for (const RoleOp* role : roles_) budget = std::max(budget, role->registers);
    if (most <= budget) return;
    notes_.push_back(
        {&codes::kRegisterBudget,
         {},
         "@" + code_.name,
         fmt::format("G9: the values of a thread take up to {} registers, but it has only {}", most,
                     budget)});
  }
  void number(const Region& region, int64_t& now,
              std::map<ValueId, std::pair<int64_t, int64_t>>& lives) {
    const auto use = [&](ValueId v, int64_t at) {
      const auto found = lives.try_emplace(v, at, at).first;
      found->second.second = std::max(found->second.second, at);
    };
    for (const Statement& s : region.statements) {
      ++now;
      for_each_value(s, [&](ValueId v) { use(v, now); });
      const int64_t begin = now;
      for (const Region* inner : regions_of(s)) number(*inner, now, lives);
      if (s.as<ForOp>())
        for (auto& [v, life] : lives)
          if (life.first <= begin && life.second > begin) life.second = now;
      for (const ValueId result : s.results) use(result, now);
    }
    for (const ValueOperand& yielded : region.yields)
      if (!yielded.is_literal()) use(yielded.value, now);
  }

  const KernelCode& code_;
  std::vector<Diagnostic>& notes_;
  std::vector<Diagnostic> findings_;
  Target target_;
  bool accesses_ = false;  // whether the phase has accessed device memory before this statement
  const Phase* phase_ = nullptr;
  const Statement* statement_ = nullptr;
  int64_t registers_ = 0;  // of a thread at launch
  Lets lets_;
  std::unordered_set<std::string> statics_;
  std::vector<uint8_t> active_;  // threads of the block that may be here
  bool in_role_ = false;
  int64_t role_begin_ = 0;  // thread
  std::vector<const RoleOp*> roles_;
  std::vector<SharedRange> shared_;
  std::map<int64_t, int64_t> barrier_threads_;  // by id
  std::set<MemoryId> initialised_;              // mbarriers
  std::map<ValueId, const InstructionOp*> makers_;
  std::set<ValueId> flight_;
};

}  // namespace

std::vector<Diagnostic> check_gpu_rules(const KernelCode& kernel, std::vector<Diagnostic>& notes) {
  return GpuRules(kernel, notes).run();
}

bool is_wgmma(Instruction i) {
  return i == Instruction::wgmma_bf16 || i == Instruction::wgmma_f16 ||
         i == Instruction::wgmma_tf32;
}

bool has_instruction(const Target& target, Instruction instruction) {
  return info(instruction).capability <= target.capability;
}

std::vector<int64_t> first_instances(const KernelCode& kernel, const Phase& phase) {
  std::vector<int64_t> out{0};
  for (const std::vector<int64_t>& sizes : kernel.member_sizes) {
    const auto size_of_symbol = [&](std::string_view name) {
      const auto found = std::ranges::find_if(
          kernel.symbols, [&](const Expr& symbol) { return symbol.symbol_name() == name; });
      return sizes[static_cast<size_t>(found - kernel.symbols.begin())];
    };
    int64_t count = 1;
    for (const GridAxis& axis : phase.grid) {
      const int64_t extent = std::max<int64_t>(axis.extent.evaluate(size_of_symbol), 0);
      if (__builtin_mul_overflow(count, extent, &count)) count = INT64_MAX;
    }
    int64_t next = 0;
    if (__builtin_add_overflow(out.back(), count, &next)) next = INT64_MAX;
    out.push_back(next);
  }
  return out;
}

Expr count_instances(const KernelCode& kernel, const Phase& phase) {
  if (!kernel.member_sizes.empty()) return first_instances(kernel, phase).back();
  Expr out = 1;
  for (const GridAxis& axis : phase.grid) out *= axis.extent;
  return out;
}

bool awaits_predecessors(const Phase& phase) {
  return waits_at_top(phase.body) ||
         std::ranges::any_of(phase.body.statements, [](const Statement& s) {
           const auto* role = s.as<RoleOp>();
           return role && waits_at_top(*role->body);
         });
}

}  // namespace braze
