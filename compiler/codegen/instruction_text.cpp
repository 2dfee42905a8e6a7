#include "compiler/codegen/instruction_text.h"

#include <algorithm>
#include <iterator>

#include "ir/support/text.h"

namespace braze::codegen {

namespace {

// An instruction under construction, with the placeholders of its operands and results.
class Writer {
 public:
  Writer(const InstructionOp& instruction, const std::vector<AsmOperand>& given,
         const std::vector<AsmOperand>& results)
      : op(instruction), operands(given) {
    size_t next = 0;
    for (const AsmOperand& result : results) {
      for (size_t r = 0; r < result.registers; ++r) results_.push_back(next++);
      text.results += std::string(result.registers, result.letter);
    }
    const std::string_view letters = info(op.instruction).operands;
    for (size_t i = 0; i < operands.size(); ++i) {
      const char letter = letters[std::min(i, letters.size() - 1)];
      std::vector<size_t>& holes = inputs_.emplace_back();
      for (size_t r = 0; r < operands[i].registers; ++r) {
        holes.push_back(next++);
        text.inputs += input_letter(letter, operands[i], r);
        // PTX takes tf32 operands in registers without a type.
        if (is_tf32(op.instruction) && i < 2 && text.inputs.back() == 'f') text.inputs.back() = 'r';
      }
    }
    tie(letters);
    text.converges = info(op.instruction).meeting != Meeting::Thread;
  }

  const InstructionOp& op;
  const std::vector<AsmOperand>& operands;
  AsmText text;

  static std::string hole(size_t number) { return "$" + std::to_string(number); }
  std::string result(size_t i = 0) const { return hole(results_[i]); }
  /// Register r of operand i, or its number.
  std::string in(size_t i, size_t r = 0) const {
    if (operands[i].registers == 0) return std::to_string(operands[i].constant.value_or(0));
    return hole(inputs_[i][r]);
  }
  /// "[a + 16]"
  std::string address(size_t i) const {
    const int64_t behind = operands[i].behind;
    return behind == 0 ? "[" + in(i) + "]" : fmt::format("[{}+{}]", in(i), behind);
  }
  /// "{a, b, c}"
  std::string list(size_t i) const { return "{" + join(inputs_[i], ", ", hole) + "}"; }
  std::string result_list() const { return "{" + join(results_, ", ", hole) + "}"; }
  /// The map and its coordinates, innermost first: "[m, {x, y}]".
  std::string map(size_t i) const {
    std::string out = "[" + in(i) + ", {";
    for (size_t r = operands[i].registers; r-- > 1;) out += in(i, r) + (r > 1 ? ", " : "");
    return out + "}]";
  }

 private:
  // A fence or wait returns its values, and a wgmma its accumulator, in the registers in which they
  // came.
  void tie(std::string_view letters) {
    const bool values = info(op.instruction).result == InstructionResult::Tied;
    text.ties.assign(text.inputs.size(), -1);
    int next = 0;
    for (size_t i = 0; i < operands.size(); ++i)
      if ((values && letters[std::min(i, letters.size() - 1)] == 'V') ||
          (letters == "MBvi" && i == 2))
        for (size_t hole : inputs_[i]) text.ties[hole - results_.size()] = next++;
  }
  static bool is_tf32(Instruction i) {
    return i == Instruction::mma_tf32 || i == Instruction::wgmma_tf32;
  }
  static char input_letter(char operand, const AsmOperand& given, size_t r) {
    switch (operand) {
      case 'P':
      case 'T':
        return 'l';
      case 't':
        return r == 0 ? 'l' : 'r';
      case 'M':
      case 'B':
        return given.matrix ? 'l' : given.letter;
      case 'v':
      case 'V':
        return given.letter;
      default:
        return 'r';
    }
  }

  std::vector<size_t> results_;
  std::vector<std::vector<size_t>> inputs_;
};

using Emit = std::string (*)(Writer&);

std::string pure(Writer& w, std::string text) {
  w.text.effects = false;
  return text;
}

std::string shuffle(Writer& w, std::string_view kind, std::string_view clamp) {
  return pure(w, fmt::format("shfl.sync.{}.b32 {}, {}, {}, {}, -1;", kind, w.result(), w.in(0),
                             w.in(1), clamp));
}

// Operand `i` as an address in the memory of the block that it names, in register `name`.
std::string map_rank(Writer& w, std::string_view name, size_t i) {
  if (!w.operands[i].has_rank)
    return fmt::format(".reg .b32 {0}; mov.b32 {0}, {1}; ", name, w.in(i));
  return fmt::format(".reg .b32 {0}; mapa.shared::cluster.u32 {0}, {1}, {2}; ", name, w.in(i),
                     w.in(i, 1));
}

std::string arrive(Writer& w) {
  if (!w.operands[0].has_rank)
    return fmt::format("mbarrier.arrive.shared::cta.b64 _, [{}];", w.in(0));
  return fmt::format("{{ {}mbarrier.arrive.shared::cluster.b64 _, [a]; }}", map_rank(w, "a", 0));
}

std::string remote_store(Writer& w) {
  const size_t count = w.operands[1].registers;
  const int bits = w.operands[1].letter == 'l' || w.operands[1].letter == 'd' ? 64 : 32;
  return fmt::format(
      "{{ {}{}st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{}.b{} [a], {}, [b]; }}",
      map_rank(w, "a", 0), map_rank(w, "b", 2), count > 1 ? fmt::format(".v{}", count) : "", bits,
      count > 1 ? w.list(1) : w.in(1));
}

std::string tensor_load(Writer& w, bool multicast) {
  const size_t rank = w.operands[1].registers - 1;
  const std::string copy = fmt::format(
      "cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{} {}, "
      "{}, [{}]",
      rank, multicast ? ".multicast::cluster" : "", w.address(0), w.map(1), w.in(2));
  if (!multicast) return copy + ";";
  return fmt::format("{{ .reg .b16 mask; cvt.u16.u32 mask, {}; {}, mask; }}", w.in(3), copy);
}

std::string tensor_store(Writer& w) {
  return fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group {}, {};",
                     w.operands[0].registers - 1, w.map(0), w.address(1));
}

std::string copy_async(Writer& w) {
  const int64_t bytes = w.operands[2].constant.value_or(16);
  // Only copies of 16 bytes may bypass the first cache.
  return fmt::format("cp.async.{}.shared.global {}, {}, {}, {};", bytes == 16 ? "cg" : "ca",
                     w.address(0), w.address(1), bytes, w.in(3));
}

std::string load_matrix(Writer& w, std::string_view kind) {
  return fmt::format("ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {}, {};", kind, w.result_list(),
                     w.address(0));
}
std::string store_matrix(Writer& w) {
  return fmt::format("stmatrix.sync.aligned.m8n8.x4.shared.b16 {}, {};", w.address(0), w.list(1));
}

std::string multiply(Writer& w, std::string_view shape, std::string_view type) {
  const std::string_view sums = type == "f64" ? "f64" : "f32";
  return pure(w, fmt::format("mma.sync.aligned.{}.row.col.{}.{}.{}.{} {}, {}, {}, {};", shape, sums,
                             type, type, sums, w.result_list(), w.list(0), w.list(1), w.list(2)));
}

// The accumulator is in the registers of the results. 16-bit operands may be transposed when they
// are read.
std::string multiply_group(Writer& w, int k, std::string_view type) {
  const auto transposed = [&](size_t i) {
    return k != 16 || !w.operands[i].matrix ? "" : w.operands[i].matrix->k_major ? ", 0" : ", 1";
  };
  return fmt::format(
      "{{ .reg .pred s; setp.ne.b32 s, {}, 0; "
      "wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{}.{} {}, {}, {}, s, 1, 1{}{}; }}",
      w.in(3), w.op.columns, k, type, type, w.result_list(),
      w.operands[0].matrix ? w.in(0) : w.list(0), w.in(1), transposed(0), transposed(1));
}

// The rows of the table, in the order of instructions.def.
struct Row {
  Instruction instruction;
  Emit emit;
};
using I = Instruction;
constexpr Row kRows[] = {
    {I::bar_sync, [](Writer& w) { return fmt::format("bar.sync {}, {};", w.in(0), w.in(1)); }},
    {I::bar_warp, [](Writer&) { return std::string("bar.warp.sync -1;"); }},
    {I::bar_arrive, [](Writer& w) { return fmt::format("bar.arrive {}, {};", w.in(0), w.in(1)); }},
    {I::shfl_idx, [](Writer& w) { return shuffle(w, "idx", "31"); }},
    {I::shfl_bfly, [](Writer& w) { return shuffle(w, "bfly", "31"); }},
    {I::shfl_up, [](Writer& w) { return shuffle(w, "up", "0"); }},
    {I::shfl_down, [](Writer& w) { return shuffle(w, "down", "31"); }},
    {I::cp_async, copy_async},
    {I::cp_async_commit, [](Writer&) { return std::string("cp.async.commit_group;"); }},
    {I::cp_async_wait, [](Writer& w) { return fmt::format("cp.async.wait_group {};", w.in(0)); }},
    {I::tma_load, [](Writer& w) { return tensor_load(w, false); }},
    {I::tma_load_multicast, [](Writer& w) { return tensor_load(w, true); }},
    {I::tma_store, tensor_store},
    {I::bulk_commit, [](Writer&) { return std::string("cp.async.bulk.commit_group;"); }},
    {I::bulk_wait_read,
     [](Writer& w) { return fmt::format("cp.async.bulk.wait_group.read {};", w.in(0)); }},
    {I::bulk_wait, [](Writer& w) { return fmt::format("cp.async.bulk.wait_group {};", w.in(0)); }},
    {I::tma_prefetch, [](Writer& w) { return fmt::format("prefetch.tensormap [{}];", w.in(0)); }},
    {I::mbarrier_init,
     [](Writer& w) {
       return fmt::format("mbarrier.init.shared::cta.b64 [{}], {};", w.in(0), w.in(1));
     }},
    {I::fence_mbarrier_init,
     [](Writer&) { return std::string("fence.mbarrier_init.release.cluster;"); }},
    {I::mbarrier_arrive, arrive},
    {I::mbarrier_expect,
     [](Writer& w) {
       return fmt::format("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};", w.in(0),
                          w.in(1));
     }},
    // The braces make the label local, so that the text can occur several times.
    {I::mbarrier_wait,
     [](Writer& w) {
       return fmt::format(
           "{{ .reg .pred q; again: mbarrier.try_wait.parity.shared::cta.b64 q, [{}], {}; "
           "@!q bra again; }}",
           w.in(0), w.in(1));
     }},
    {I::cluster_arrive,
     [](Writer&) { return std::string("barrier.cluster.arrive.release.aligned;"); }},
    {I::cluster_wait, [](Writer&) { return std::string("barrier.cluster.wait.acquire.aligned;"); }},
    {I::st_async, remote_store},
    {I::fence_proxy_async, [](Writer&) { return std::string("fence.proxy.async.shared::cta;"); }},
    {I::ldmatrix_x4, [](Writer& w) { return load_matrix(w, ""); }},
    {I::ldmatrix_x4_trans, [](Writer& w) { return load_matrix(w, ".trans"); }},
    {I::stmatrix_x4, store_matrix},
    {I::mma_bf16, [](Writer& w) { return multiply(w, "m16n8k16", "bf16"); }},
    {I::mma_f16, [](Writer& w) { return multiply(w, "m16n8k16", "f16"); }},
    {I::mma_tf32, [](Writer& w) { return multiply(w, "m16n8k8", "tf32"); }},
    {I::mma_f64, [](Writer& w) { return multiply(w, "m8n8k4", "f64"); }},
    {I::mma_f64_wide, [](Writer& w) { return multiply(w, "m16n8k8", "f64"); }},
    {I::wgmma_fence, [](Writer&) { return std::string("wgmma.fence.sync.aligned;"); }},
    {I::wgmma_bf16, [](Writer& w) { return multiply_group(w, 16, "bf16"); }},
    {I::wgmma_f16, [](Writer& w) { return multiply_group(w, 16, "f16"); }},
    {I::wgmma_tf32, [](Writer& w) { return multiply_group(w, 8, "tf32"); }},
    {I::wgmma_commit, [](Writer&) { return std::string("wgmma.commit_group.sync.aligned;"); }},
    {I::wgmma_wait,
     [](Writer& w) { return fmt::format("wgmma.wait_group.sync.aligned {};", w.in(0)); }},
    {I::griddep_wait, [](Writer&) { return std::string("griddepcontrol.wait;"); }},
    {I::griddep_launch, [](Writer&) { return std::string("griddepcontrol.launch_dependents;"); }},
};

constexpr size_t kInstructions = 0
#define INSTRUCTION(...) +1
#include "ir/code/instructions.def"
#undef INSTRUCTION
    ;
constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (kRows[i].instruction != static_cast<Instruction>(i)) return false;
  return std::size(kRows) == kInstructions;
}
static_assert(in_order(), "every instruction has its row, in the order of instructions.def");

}  // namespace

std::optional<char> register_letter(const ValueType& type) {
  // 0: no instruction can take one operand of this dtype. Pairs of 16-bit floats are served below.
  constexpr DTypeTable<char> kLetters = {
      {DType::Bool, 'r'}, {DType::I8, 0},     {DType::U8, 0},     {DType::I16, 0},
      {DType::U16, 0},    {DType::I32, 'r'},  {DType::U32, 'r'},  {DType::I64, 'l'},
      {DType::U64, 'l'},  {DType::F16, 0},    {DType::BF16, 0},   {DType::F32, 'f'},
      {DType::F64, 'd'},  {DType::F8E4M3, 0}, {DType::F8E5M2, 0},
  };
  if (is_half(type.dtype)) return type.lanes == 2 ? std::optional('r') : std::nullopt;
  const char letter = kLetters[type.dtype];
  return letter != 0 && type.lanes == 1 ? std::optional(letter) : std::nullopt;
}

uint32_t descriptor_high(const MatrixLayout& layout) {
  const uint32_t mode = layout.swizzle == 128  ? 1
                        : layout.swizzle == 64 ? 2
                        : layout.swizzle == 32 ? 3
                                               : 0;
  return static_cast<uint32_t>(layout.stride / 16) | mode << 30;
}

AddressedPlace addressed(char letter, const Place& place, DType dtype) {
  // The text holds a constant of 32 bits.
  constexpr int64_t kMost = int64_t{1} << 30;
  AddressedPlace out{place.at, 0};
  if ((letter != 'p' && letter != 'P') || place.rank || place.matrix ||
      place.at.kind() != Expr::Kind::Sum)
    return out;
  const auto constant = place.at.operands().back().as_constant();
  const int64_t size = static_cast<int64_t>(size_of(dtype));
  if (!constant || *constant > kMost / size || *constant < -kMost / size) return out;
  return {place.at - Expr(*constant), *constant * size};
}

AsmText asm_text(const InstructionOp& op, const std::vector<AsmOperand>& operands,
                 const std::vector<AsmOperand>& results) {
  Writer writer(op, operands, results);
  std::string text = kRows[static_cast<size_t>(op.instruction)].emit(writer);
  writer.text.text = std::move(text);
  return writer.text;
}

}  // namespace braze::codegen
