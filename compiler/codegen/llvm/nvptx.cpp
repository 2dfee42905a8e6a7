// nvptx.cpp — Kernel IR for NVIDIA GPUs: entry functions and LLVM's target machine.
//
// The function of phase i is  <kernel>_p<i>.  Its parameters are those of
// docs/ir/languages.md, section 9.1: pointers to device memory, symbols and scalars of 8
// bytes, tensor maps. Block (b, m) runs instance  b div cluster  of member m as rank  b mod
// cluster.  If members have sizes of their own, the blocks of all members are in one row, and a
// block finds its member in a table of first blocks. All shared memory is one dynamic array.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/llvm/llvm_p.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/support/text.h"

namespace braze::codegen {

namespace {

using llvm::BasicBlock;
using llvm::Value;

constexpr const char* kTriple = "nvptx64-nvidia-cuda";
constexpr unsigned kGlobal = 1, kShared = 3, kConstant = 4;  // address spaces

// A target, and the first PTX version that has everything that its kernels use, so that older
// drivers can read it too.
struct GpuRow {
  std::string_view name;
  const char* ptx;
};
constexpr GpuRow kGpus[] = {{"sm_80", "+ptx74"}, {"sm_90a", "+ptx81"}};

class Nvptx : public Machine {
 public:
  Nvptx() {
    simt = true;
    vector_bytes = 16;
  }

  Entry enter(const Kernel& kernel, size_t number, llvm::Module& module,
              llvm::IRBuilderBase& b) const override {
    const Phase& phase = kernel.phases[number];
    Entry entry;
    entry.function = declare(kernel, number, module, b);
    set_launch_bounds(phase, *entry.function);
    b.SetInsertPoint(BasicBlock::Create(b.getContext(), "entry", entry.function));
    auto argument = entry.function->arg_begin();
    const auto one_each = [&](size_t count, std::vector<Value*>& out) {
      for (size_t i = 0; i < count; ++i) out.push_back(&*argument++);
    };
    std::vector<Value*> pointers;
    const size_t memories = count_memories(kernel), maps = kernel.tensor_maps.size(),
                 words = kernel.passed_symbols().size() + kernel.scalar_parameters.size();
    if (kernel.members == 1) {
      one_each(memories, pointers);
      one_each(words, entry.words);
      one_each(maps, entry.maps);
    } else {
      Value* member = kernel.member_sizes.empty()
                          ? special(b, llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y, kernel.members)
                          : find_member(kernel, number, module, b, entry);
      const auto of_member = [&](llvm::Type* type, Value* array, size_t count, size_t i) {
        Value* first = b.CreateMul(member, b.getInt32(static_cast<uint32_t>(count)));
        return b.CreateGEP(type, array, b.CreateAdd(first, b.getInt32(static_cast<uint32_t>(i))));
      };
      llvm::Type* pointer = b.getPtrTy(kGlobal);
      Value* all_pointers = memories > 0 ? &*argument++ : nullptr;
      for (size_t i = 0; i < memories; ++i)
        pointers.push_back(b.CreateLoad(pointer, of_member(pointer, all_pointers, memories, i)));
      one_each(words, entry.words);
      Value* all_maps = maps > 0 ? &*argument++ : nullptr;
      for (size_t i = 0; i < maps; ++i)
        entry.maps.push_back(of_member(map_type(b), all_maps, maps, i));
    }
    auto next = pointers.begin();
    for (const Memory& memory : kernel.memories)
      entry.pointers.push_back(is_device_memory(memory) ? *next++ : nullptr);
    return entry;
  }

  void instances(const Phase& phase, const Entry& entry, llvm::IRBuilderBase& b, const Index& index,
                 const Body& body) const override {
    Names names;
    names.emplace_back("tid", special(b, llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, phase.block));
    // At most this many blocks are launched, so that 32 bits are enough for every number and
    // extent.
    Value* number = entry.block
                        ? entry.block
                        : special(b, llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, INT32_MAX);
    if (phase.cluster_size > 1) {
      Value* size = b.getInt32(static_cast<uint32_t>(phase.cluster_size));
      number = split_off(b, number, size, phase.cluster, names);
    }
    for (size_t i = phase.grid.size(); i-- > 0;) {
      Value* extent = b.CreateTrunc(index(phase.grid[i].extent), b.getInt32Ty());
      if (i > 0)
        number = split_off(b, number, extent, phase.grid[i].symbol, names);
      else
        names.emplace_back(phase.grid[i].symbol, number);
    }
    body(names);
  }

  Value* place(const Memory& memory, int64_t bytes, int64_t offset, const Entry& entry,
               llvm::IRBuilderBase& b) const override {
    if (memory.space == MemorySpace::Shared)
      return b.CreateConstGEP1_64(b.getInt8Ty(), shared_memory(*entry.function->getParent()),
                                  static_cast<uint64_t>(offset), memory.name);
    BasicBlock& first = entry.function->getEntryBlock();
    llvm::IRBuilder<> at(&first, first.begin());
    auto* made = at.CreateAlloca(llvm::ArrayType::get(at.getInt8Ty(), static_cast<uint64_t>(bytes)),
                                 nullptr, memory.name);
    made->setAlignment(llvm::Align(16));
    return made;
  }

  void leave(bool, llvm::IRBuilderBase& b) const override { b.CreateRetVoid(); }

  void set_attributes(llvm::Function& function) const override {
    function.addFnAttr(llvm::Attribute::Convergent);
  }

 private:
  // The member of this block. Sets the number of the block in its member, and the member's sizes,
  // which are the first words.
  static Value* find_member(const Kernel& kernel, size_t number, llvm::Module& module,
                            llvm::IRBuilderBase& b, Entry& entry) {
    const std::vector<uint32_t> firsts = first_blocks(kernel, kernel.phases[number]);
    std::vector<uint64_t> sizes;
    for (const std::vector<int64_t>& of_member : kernel.member_sizes)
      for (const int64_t size : of_member) sizes.push_back(static_cast<uint64_t>(size));
    auto& context = b.getContext();
    const std::string name = gpu_entry_name(kernel, number);
    auto* all_firsts = constant(module, name + "_firsts",
                                llvm::ConstantDataArray::get(context, llvm::ArrayRef(firsts)));
    auto* all_sizes = constant(module, name + "_sizes",
                               llvm::ConstantDataArray::get(context, llvm::ArrayRef(sizes)));
    const auto load = [&](llvm::Type* type, Value* array, Value* i) {
      return b.CreateLoad(type, b.CreateGEP(type, array, i));
    };
    Value* block = special(b, llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, INT32_MAX);
    Value* member = b.getInt32(0);
    for (size_t step = firsts.size() / 2; step > 0; step /= 2) {
      Value* later = b.CreateAdd(member, b.getInt32(static_cast<uint32_t>(step)));
      Value* first = load(b.getInt32Ty(), all_firsts, later);
      member = b.CreateSelect(b.CreateICmpULE(first, block), later, member);
    }
    entry.block = b.CreateSub(block, load(b.getInt32Ty(), all_firsts, member));
    const size_t symbols = kernel.symbols.size();
    Value* of_member = b.CreateMul(member, b.getInt32(static_cast<uint32_t>(symbols)));
    for (size_t i = 0; i < symbols; ++i)
      entry.words.push_back(load(b.getInt64Ty(), all_sizes,
                                 b.CreateAdd(of_member, b.getInt32(static_cast<uint32_t>(i)))));
    return member;
  }
  static llvm::GlobalVariable* constant(llvm::Module& module, const std::string& name,
                                        llvm::Constant* value) {
    auto* out = new llvm::GlobalVariable(module, value->getType(), true,
                                         llvm::GlobalValue::InternalLinkage, value, name, nullptr,
                                         llvm::GlobalValue::NotThreadLocal, kConstant);
    out->setAlignment(llvm::Align(8));
    return out;
  }

  // Names `number` mod `extent`, and returns the quotient.
  static Value* split_off(llvm::IRBuilderBase& b, Value* number, Value* extent,
                          const std::string& name, Names& names) {
    const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(extent);
    Value* quotient =
        constant ? divide_by_constant(b, number, static_cast<uint32_t>(constant->getZExtValue()),
                                      /*is_small=*/true)
                 : b.CreateUDiv(number, extent);
    names.emplace_back(name, b.CreateSub(number, b.CreateMul(quotient, extent)));
    return quotient;
  }

  static size_t count_memories(const Kernel& kernel) {
    return static_cast<size_t>(std::ranges::count_if(kernel.memories, is_device_memory));
  }
  static llvm::Type* map_type(llvm::IRBuilderBase& b) {
    return llvm::ArrayType::get(b.getInt8Ty(), 128);
  }

  static llvm::Function* declare(const Kernel& kernel, size_t number, llvm::Module& module,
                                 llvm::IRBuilderBase& b) {
    // Each pointer and each map is a parameter. With several members, one array holds all pointers
    // of all members, and another one all maps.
    const bool arrays = kernel.members > 1;
    const bool waits = std::ranges::any_of(kernel.phases, awaits_predecessors);
    const size_t memories = count_memories(kernel), maps = kernel.tensor_maps.size();
    const auto parameters = [&](size_t count) {
      return arrays ? std::min<size_t>(count, 1) : count;
    };
    llvm::SmallVector<llvm::Type*, 16> types;
    llvm::Type* pointer = b.getPtrTy(kGlobal);
    types.append(parameters(memories), arrays ? b.getPtrTy() : pointer);
    types.append(kernel.passed_symbols().size() + kernel.scalar_parameters.size(), b.getInt64Ty());
    const auto first_map = static_cast<unsigned>(types.size());
    types.append(parameters(maps), b.getPtrTy());
    auto* function = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), types, false),
                                            llvm::GlobalValue::ExternalLinkage,
                                            gpu_entry_name(kernel, number), module);
    function->setCallingConv(llvm::CallingConv::PTX_Kernel);
    const auto align = [&](unsigned i, uint64_t bytes) {
      function->addParamAttr(i,
                             llvm::Attribute::getWithAlignment(b.getContext(), llvm::Align(bytes)));
    };
    const auto by_value = [&](unsigned i, llvm::Type* type, size_t count) {
      if (arrays) type = llvm::ArrayType::get(type, count * static_cast<uint64_t>(kernel.members));
      function->addParamAttr(i, llvm::Attribute::getWithByValType(b.getContext(), type));
    };
    if (arrays && memories > 0) {
      by_value(0, pointer, memories);
      align(0, 8);
    } else {
      unsigned i = 0;
      for (const Memory& memory : kernel.memories) {
        if (!is_device_memory(memory)) continue;
        // Of memory that kernels before this one may still write, LLVM would believe that nothing
        // else changes it.
        if (!waits) function->addParamAttr(i, llvm::Attribute::NoAlias);
        align(i++, std::max<uint64_t>(static_cast<uint64_t>(memory.align), size_of(memory.dtype)));
      }
    }
    for (unsigned i = first_map; i < types.size(); ++i) {
      by_value(i, map_type(b), maps);
      align(i, 128);
      // Without this attribute the map would be copied to the stack, where no copy engine can find
      // it.
      function->addParamAttr(i, llvm::Attribute::get(b.getContext(), "nvvm.grid_constant"));
    }
    return function;
  }

  static void set_launch_bounds(const Phase& phase, llvm::Function& function) {
    function.addFnAttr("nvvm.maxntid", std::to_string(phase.block));
    if (phase.registers > 0) function.addFnAttr("nvvm.maxnreg", std::to_string(phase.registers));
    // Registers can move between roles only if the launch gives a block all registers that it may
    // have.
    for (const Statement& s : phase.body.statements)
      if (const auto* role = s.as<RoleOp>(); role && role->registers > 0)
        function.addFnAttr("nvvm.minctasm", "1");
    if (phase.cluster_size > 1)
      function.addFnAttr("nvvm.cluster_dim", std::to_string(phase.cluster_size));
  }

  // A special register whose value is below `end`.
  static Value* special(llvm::IRBuilderBase& b, llvm::Intrinsic::ID id, int64_t end) {
    auto* call = b.CreateIntrinsic(id, llvm::ArrayRef<Value*>());
    call->addRangeRetAttr(
        llvm::ConstantRange(llvm::APInt(32, 0), llvm::APInt(32, static_cast<uint64_t>(end))));
    return call;
  }

  static llvm::GlobalVariable* shared_memory(llvm::Module& module) {
    if (auto* made = module.getNamedGlobal("shared_memory")) return made;
    auto* type = llvm::ArrayType::get(llvm::Type::getInt8Ty(module.getContext()), 0);
    auto* array = new llvm::GlobalVariable(module, type, false, llvm::GlobalValue::ExternalLinkage,
                                           nullptr, "shared_memory", nullptr,
                                           llvm::GlobalValue::NotThreadLocal, kShared);
    array->setAlignment(llvm::Align(1024));
    return array;
  }
};

// Makes pointers to shared memory 32 bits wide. Only an option of LLVM's command line can do this.
void use_short_pointers() {
  auto& options = llvm::cl::getRegisteredOptions();
  const auto found = options.find("nvptx-short-ptr");
  BRAZE_CHECK(found != options.end(), "this LLVM has no option nvptx-short-ptr");
  static_cast<llvm::cl::opt<bool>*>(found->second)->setValue(true);
}

const llvm::Target& nvptx() {
  static const llvm::Target* target = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    use_short_pointers();
    std::string error;
    const llvm::Target* found = llvm::TargetRegistry::lookupTarget(llvm::Triple(kTriple), error);
    BRAZE_CHECK(found, error);
    return found;
  }();
  return *target;
}

const GpuRow& row_of(const Target& target) {
  const auto* row = std::find_if(std::begin(kGpus), std::end(kGpus),
                                 [&](const GpuRow& r) { return r.name == target.name; });
  if (row != std::end(kGpus)) return *row;
  fail(codes::kCodegenTarget,
       fmt::format("PTX cannot be made for target {}, only for {}", target.name,
                   join(kGpus, " and ", [](const GpuRow& r) { return r.name; })));
}

// There is one for each thread and target, because it serves one kernel at a time.
llvm::TargetMachine& target_machine(const GpuRow& row) {
  thread_local std::map<std::string_view, std::unique_ptr<llvm::TargetMachine>> machines;
  std::unique_ptr<llvm::TargetMachine>& machine = machines[row.name];
  if (!machine) {
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    machine.reset(nvptx().createTargetMachine(llvm::Triple(kTriple), row.name, row.ptx, options,
                                              llvm::Reloc::PIC_, std::nullopt,
                                              llvm::CodeGenOptLevel::Default));
  }
  return *machine;
}

}  // namespace

Backend nvptx_backend(const Target& target) {
  static const Nvptx machine;
  return {machine, target_machine(row_of(target)), kTriple};
}

}  // namespace braze::codegen
