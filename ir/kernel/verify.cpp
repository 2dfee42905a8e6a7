#include "ir/kernel/verify.h"

#include <algorithm>
#include <bit>

#include "ir/code/limits.h"
#include "ir/code/statements.h"
#include "ir/code/walk.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/support/text.h"
#include "ir/target/target.h"

namespace braze {

namespace {

constexpr int64_t kMostScratch = int64_t{1} << 40;
constexpr int64_t kMostLocal = 512 << 10;  // of a thread of a GPU

bool is_power_of_two(int64_t n) { return n > 0 && std::has_single_bit(static_cast<uint64_t>(n)); }

class KernelChecker : public CodeChecker {
 public:
  explicit KernelChecker(const Kernel& kernel)
      : CodeChecker(kernel, kRules, 'e', is_gpu(kernel) ? Level::Gpu : Level::Cpu),
        gpu_(is_gpu(kernel)) {}
  bool is_for_gpu() const { return gpu_; }

 private:
  static constexpr Rules kRules = {.names = "K1",
                                   .symbols = "K2",
                                   .index = "K2",
                                   .extents = "K2",
                                   .type = "K3",
                                   .positions = "K1",
                                   .operands = "K4",
                                   .literals = "K5",
                                   .places = "K6",
                                   .guards = "K4",
                                   .bounds = "K7",
                                   .axes = "K10",
                                   .loops = "K11",
                                   .level = "K14"};

  void check_type(const ValueType& type) override {
    expect(is_power_of_two(type.lanes) && type.lanes <= 64, "K3",
           fmt::format("the number of lanes, {}, is not a power of two from 1 to 64", type.lanes));
    expect(type.rank() <= kMostAxesOfValue, "K3",
           fmt::format("{} has a rank above {}", type.to_string(), kMostAxesOfValue));
    int64_t count = 1;
    for (const int64_t extent : type.extents) {
      expect(extent >= 1, "K3", fmt::format("an extent of {} is less than 1", type.to_string()));
      count = std::min<int64_t>(count * std::clamp<int64_t>(extent, 1, 257), 257);
    }
    expect(count <= 256, "K3", fmt::format("{} has more than 256 elements", type.to_string()));
  }

  void check_row(const RowOp& op) override {
    expect(is_machine(op.op), "K4",
           fmt::format("{} is not a machine row; kernels have only those", name(op.op)));
    for (const ValueOperand& o : op.operands)
      expect(o.is_literal() || type_of(o).lanes == result_type().lanes, "K4",
             fmt::format("{} has a result of {} lanes, but an operand of {}", name(op.op),
                         result_type().lanes, o.is_literal() ? 1 : type_of(o).lanes));
  }

  void check_own(const Statement& s) override {
    if (const auto* splat = s.as<SplatOp>()) {
      ValueType type = type_of(splat->operand);
      expect(type.lanes == 1, "K4", "the operand of splat must have one lane");
      type.lanes = result_type().lanes;
      expect_type(type);
    } else if (const auto* lane = s.as<LaneOp>()) {
      check_lane(*lane);
    } else if (const auto* shuffle = s.as<ShuffleOp>()) {
      check_shuffle(*shuffle);
    } else if (const auto* get = s.as<GetElementOp>()) {
      check_get(*get);
    } else if (const auto* pack = s.as<PackOp>()) {
      const ValueType& type = result_type();
      expect(static_cast<int64_t>(pack->operands.size()) == type.count(), "K10",
             fmt::format("{} operands are given for the elements of {}", pack->operands.size(),
                         type.to_string()));
      for (const ValueOperand& o : pack->operands)
        expect(o.is_literal() ? o.dtype == type.dtype
                              : type_of(o) == ValueType{type.dtype, type.lanes, {}},
               "K4", "an operand of pack does not have the type of an element");
    } else if (const auto* atomic = s.as<AtomicOp>()) {
      check_atomic(*atomic);
    } else if (const auto* role = s.as<RoleOp>()) {
      static const std::string kSymbol = "rtid";
      const Expr range[2] = {0, 32 * (role->end - role->begin) - 1};
      check_region(*role->body, {}, &kSymbol, range);
    } else if (const auto* regroup = s.as<RegroupOp>()) {
      const ValueType &from = type_of(regroup->operand), &to = result_type();
      expect(from.dtype == to.dtype && from.count() * from.lanes == to.count() * to.lanes, "K4",
             fmt::format("{} cannot be regrouped to {}", from.to_string(), to.to_string()));
    }
  }

  void check_lane(const LaneOp& op) {
    ValueType type = type_of(op.operand);
    expect(op.lane >= 0 && op.lane < type.lanes, "K10",
           fmt::format("{} has no lane {}", type.to_string(), op.lane));
    type.lanes = 1;
    expect_type(type);
  }

  void check_shuffle(const ShuffleOp& op) {
    ValueType type = type_of(op.a);
    expect(type_of(op.b) == type, "K4", "the operands of shuffle must have one type");
    for (const int64_t lane : op.lanes)
      expect(lane >= 0 && lane < 2 * type.lanes, "K10",
             fmt::format("the operands have no lane {}", lane));
    type.lanes = static_cast<int32_t>(op.lanes.size());
    expect_type(type);
  }

  void check_get(const GetElementOp& op) {
    const ValueType& type = type_of(op.operand);
    if (!op.positions.empty()) {
      ValueType one{type.dtype, type.lanes, std::vector<int64_t>(type.rank(), 1)};
      check_offsets(op.positions, type, one);
      return expect_type({type.dtype, type.lanes, {}});
    }
    expect(
        op.at.size() == type.rank(), "K10",
        fmt::format("{} positions are given for the axes of {}", op.at.size(), type.to_string()));
    for (size_t i = 0; i < std::min(op.at.size(), type.rank()); ++i)
      expect(op.at[i] >= 0 && op.at[i] < type.extents[i], "K10",
             fmt::format("position {} is outside of {}", op.at[i], type.to_string()));
    expect_type({type.dtype, type.lanes, {}});
  }

  void check_atomic(const AtomicOp& op) {
    const Memory& memory = code_[op.memory];
    const bool shared = memory.space == MemorySpace::Workspace ||
                        (memory.space == MemorySpace::Parameter && memory.mode == Mode::InOut);
    expect(shared, "K13",
           fmt::format("%{} is neither a `work` nor an `inout` parameter, so it cannot be the "
                       "memory of an atomic",
                       memory.name));
    expect(is_integer(memory.dtype) && size_of(memory.dtype) >= 4, "K13",
           "an atomic needs integers of 32 or 64 bits");
    const ValueType type{memory.dtype, 1, {}};
    expect(result_type() == type && (op.value.is_literal() || type_of(op.value) == type), "K13",
           fmt::format("the operand and the result must have the type {}", type.to_string()));
  }

  void check_access(MemoryId id, const std::vector<Expr>& at, const Guard& guard,
                    const ValueType& type, bool store) override {
    const auto align = store ? statement_->as<StoreOp>()->align : statement_->as<LoadOp>()->align;
    const auto& rank = store ? statement_->as<StoreOp>()->rank : statement_->as<LoadOp>()->rank;
    expect(gpu_ || !rank, "K14", "only a kernel for a GPU can access another block's memory");
    check_align(align, "K9", "an access");
    if (at.size() != 1) return;
    if (store && type.lanes > 1)
      expect(guard || at[0].uses("lane") || gathers(at[0]), "K8",
             "all lanes of this store have one address");
    // If the distance from an aligned base is constant, but no multiple of the alignment, it
    // contradicts the promise.
    const Memory& memory = code_[id];
    const auto bytes = static_cast<int64_t>(size_of(memory.dtype));
    const Expr first = at[0].substitute("lane", 0);
    if (const auto offset = first.as_constant();
        offset && is_power_of_two(align) && base_align(memory) >= align)
      expect(*offset * bytes % align == 0, "K9",
             fmt::format("the offset of {} bytes contradicts the alignment {}", *offset * bytes,
                         align));
  }
  static bool gathers(const Expr& e) {
    const auto symbols = e.symbols();
    return std::any_of(symbols.begin(), symbols.end(),
                       [](const std::string& s) { return s[0] == '%'; });
  }
  static int64_t base_align(const Memory& memory) {
    if (memory.space == MemorySpace::Parameter)
      return std::max<int64_t>(memory.align, static_cast<int64_t>(size_of(memory.dtype)));
    return 64;
  }

  // Notes the range of scratch that an alloc occupies, up to the end of its region.
  void check_alloc(const BufferOp& op) override {
    const Memory& memory = code_[op.memory];
    check_align(memory.align, "K12", fmt::format("%{}", memory.name));
    const bool near = memory.scratch_offset <= kMostScratch;
    expect(near, "K12",
           fmt::format("the place of %{} in scratch, {}, is too large", memory.name,
                       memory.scratch_offset));
    if (!near) return;
    if (memory.space == MemorySpace::Shared)
      return expect(gpu_, "K14", "only a kernel for a GPU can have shared memory");
    if (memory.shape.size() != 1) return;  // check_kernel reports it
    const int64_t bytes =
        memory.shape.at(0).as_constant().value_or(0) * static_cast<int64_t>(size_of(memory.dtype));
    const Range range{depth_, memory.scratch_offset, memory.scratch_offset + bytes};
    live_bytes_ += bytes;
    live_.push_back(range);
    if (gpu_)
      return expect(
          live_bytes_ <= kMostLocal, "G2",
          fmt::format("the kernel uses {} bytes of local memory, but a thread has only {}",
                      live_bytes_, kMostLocal));
    const int64_t scratch = code_.phases[phase_].scratch_bytes;
    expect(range.begin < 0 ? live_bytes_ <= scratch || scratch == 0 : range.end <= scratch, "K12",
           fmt::format("the scratch of {} bytes is too small for its buffers", scratch));
    if (range.begin < 0) return;
    expect(range.begin % std::max<int64_t>(64, memory.align) == 0, "K12",
           fmt::format("%{} at byte {} of scratch is not aligned", memory.name, range.begin));
    for (size_t i = 0; i + 1 < live_.size(); ++i)
      expect(live_[i].begin < 0 || range.end <= live_[i].begin || live_[i].end <= range.begin,
             "K12", fmt::format("%{} overlaps another alloc", memory.name));
  }
  void leave_region(const Region&) override {
    while (!live_.empty() && live_.back().depth > depth_) {
      live_bytes_ -= live_.back().end - live_.back().begin;
      live_.pop_back();
    }
  }

  void check_kernel() override {
    const auto target = find_target(code_.target);
    expect(target && !target->simulated && target->kind != TargetKind::Interpreter, "K14",
           fmt::format("the target {} is not a machine with code of its own", quote(code_.target)));
    for (const Phase& phase : code_.phases) {
      expect((phase.block > 0) == gpu_, "K14",
             gpu_ ? "a phase of a kernel for a GPU must state its block"
                  : "a phase of a kernel for a CPU cannot have a block");
      expect(phase.scratch_bytes >= 0 && phase.scratch_bytes <= kMostScratch, "K12",
             fmt::format("the scratch of {} bytes is negative or too large", phase.scratch_bytes));
    }
    expect(
        code_.members >= 1 && code_.members <= kMostMembers, "K16",
        fmt::format("the number of members, {}, is not from 1 to {}", code_.members, kMostMembers));
    expect(code_.members == 1 || !code_.resident, "K16",
           "instances of a kernel with several members cannot wait for each other");
    check_member_sizes();
    if (const int64_t bytes = parameter_bytes(code_, code_.members); gpu_ && code_.members > 1)
      expect(bytes <= kMostParameterBytes, "K16",
             fmt::format("the parameters of all members have {} bytes, more than {}", bytes,
                         kMostParameterBytes));
    for (const TensorMap& map : code_.tensor_maps)
      expect(gpu_, "K14",
             fmt::format("only a kernel for a GPU can have a tensor map such as %{}", map.name));
    for (const Memory& memory : code_.memories)
      expect(memory.shape.size() == 1, "K2",
             fmt::format("%{} must have one dimension", memory.name));
  }

  void check_member_sizes() {
    if (code_.member_sizes.empty()) return;
    expect(gpu_, "K16", "members of a kernel for a CPU cannot have sizes of their own");
    expect(code_.members > 1 && std::cmp_equal(code_.member_sizes.size(), code_.members), "K16",
           fmt::format("there are sizes for {} members, but the kernel has {}",
                       code_.member_sizes.size(), code_.members));
    for (size_t m = 0; m < code_.member_sizes.size(); ++m) {
      const std::vector<int64_t>& sizes = code_.member_sizes[m];
      expect(sizes.size() == code_.symbols.size(), "K16",
             fmt::format("member {} has {} sizes, but the kernel has {} symbols", m, sizes.size(),
                         code_.symbols.size()));
      for (size_t i = 0; i < std::min(sizes.size(), code_.symbols.size()); ++i) {
        const Expr& symbol = code_.symbols[i];
        expect(symbol.range().contains(sizes[i]) && sizes[i] % symbol.divisor() == 0, "K16",
               fmt::format("member {} has the size {}, which {} cannot be", m, sizes[i],
                           symbol.symbol_name()));
      }
      if (sizes.size() != code_.symbols.size()) return;
    }
    for (const Phase& phase : code_.phases)
      expect(first_instances(code_, phase).back() <= INT32_MAX / phase.cluster_size, "K16",
             "the members together have more than 2^31 - 1 blocks");
  }

  static bool is_gpu(const Kernel& kernel) {
    const auto target = find_target(kernel.target);
    return target && target->kind == TargetKind::Gpu;
  }
  const bool gpu_;

  struct Range {
    size_t depth;
    int64_t begin, end;
  };
  std::vector<Range> live_;
  int64_t live_bytes_ = 0;
};

}  // namespace

int64_t parameter_bytes(const KernelCode& kernel, int64_t members) {
  constexpr int64_t kWord = 8, kMap = 128;
  const int64_t pointers = std::ranges::count_if(kernel.memories, is_device_memory);
  const auto scalars =
      static_cast<int64_t>(kernel.passed_symbols().size() + kernel.scalar_parameters.size());
  const int64_t words = kWord * (members * pointers + scalars);
  if (kernel.tensor_maps.empty()) return words;
  return (words + kMap - 1) / kMap * kMap +
         members * static_cast<int64_t>(kernel.tensor_maps.size()) * kMap;
}

std::vector<Diagnostic> verify(const Kernel& kernel, std::vector<Diagnostic>* notes) {
  KernelChecker checker(kernel);
  checker.run();
  // The rules for GPUs read types and names, which must be sound.
  if (checker.is_for_gpu() && checker.findings.empty())
    checker.findings = check_gpu_rules(kernel, checker.notes);
  if (notes) *notes = std::move(checker.notes);
  return std::move(checker.findings);
}

}  // namespace braze
