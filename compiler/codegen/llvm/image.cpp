// image.cpp — makes an Artifact from Kernel IR: target machine, object in memory, and our own
// linking.
//
// LLVM writes a relocatable ELF object. An image is its code and constants, one after the other,
// with every relocation resolved. All relocations are relative and have targets inside the image,
// so the bytes run wherever they are mapped. A symbol that the object does not define is a bug in
// Braze: nothing that the translator emits may be lowered to a library call.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braze/trace.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/llvm/llvm_p.h"
#include "ir/support/clocks.h"
#include "ir/support/text.h"

namespace braze {

namespace codegen {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

using llvm::BasicBlock;
using llvm::Value;

// The entry function is  void(void* const* buffers, const int64_t* scalars, void* scratch,
// int64_t begin, int64_t end).
class X86 : public Machine {
 public:
  X86(bool has_avx512, int width) {
    avx512 = has_avx512;
    vector_bytes = width;
  }

  Entry enter(const Kernel& kernel, size_t number, llvm::Module& module,
              llvm::IRBuilderBase& b) const override {
    llvm::LLVMContext& context = module.getContext();
    llvm::Type* pointer = b.getPtrTy();
    auto* type = llvm::FunctionType::get(
        b.getVoidTy(), {pointer, pointer, pointer, b.getInt64Ty(), b.getInt64Ty()}, false);
    Entry entry;
    entry.function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage,
                                            "phase" + std::to_string(number), module);
    const char* names[] = {"buffers", "scalars", "scratch", "begin", "end"};
    for (unsigned i = 0; i < 5; ++i) entry.function->getArg(i)->setName(names[i]);
    for (unsigned i = 0; i < 3; ++i) entry.function->addParamAttr(i, llvm::Attribute::NoAlias);
    entry.function->addParamAttr(2, llvm::Attribute::getWithAlignment(context, llvm::Align(64)));
    b.SetInsertPoint(BasicBlock::Create(context, "entry", entry.function));
    read_parameters(kernel, entry, b);
    BasicBlock* body = BasicBlock::Create(context, "work", entry.function);
    b.CreateBr(body);
    b.SetInsertPoint(body);
    return entry;
  }

  // Runs the instances [begin, end). A division finds the grid position of the first instance. The
  // positions of the others follow by counting up with a carry.
  void instances(const Phase& phase, const Entry& entry, llvm::IRBuilderBase& b, const Index& index,
                 const Body& body) const override {
    const auto block = [&](const char* name) {
      return BasicBlock::Create(b.getContext(), name, entry.function);
    };
    Value *begin = entry.function->getArg(3), *end = entry.function->getArg(4);
    BasicBlock *start = block("start"), *loop = block("instance"), *done = block("done");
    b.CreateCondBr(b.CreateICmpSLT(begin, end), start, done);
    b.SetInsertPoint(start);
    const size_t rank = phase.grid.size();
    std::vector<Value*> extents(rank), first(rank);
    for (size_t i = 0; i < rank; ++i) extents[i] = index(phase.grid[i].extent);
    Value* number = begin;
    for (size_t i = rank; i-- > 0;) {
      first[i] = i == 0 ? number : b.CreateURem(number, extents[i]);
      if (i > 0) number = b.CreateUDiv(number, extents[i]);
    }
    BasicBlock* from = b.GetInsertBlock();
    b.CreateBr(loop);
    b.SetInsertPoint(loop);
    auto* p = b.CreatePHI(b.getInt64Ty(), 2, "p");
    p->addIncoming(begin, from);
    std::vector<llvm::PHINode*> axes;
    Names names;
    for (size_t i = 0; i < rank; ++i) {
      axes.push_back(b.CreatePHI(b.getInt64Ty(), 2, phase.grid[i].symbol));
      axes[i]->addIncoming(first[i], from);
      names.emplace_back(phase.grid[i].symbol, axes[i]);
    }
    body(names);
    BasicBlock* latch = b.GetInsertBlock();
    Value* carry = nullptr;
    for (size_t i = rank; i-- > 0;) {
      Value* next = carry ? b.CreateAdd(axes[i], b.CreateZExt(carry, b.getInt64Ty()))
                          : b.CreateAdd(axes[i], b.getInt64(1));
      if (i > 0) {
        carry = b.CreateICmpEQ(next, extents[i]);
        next = b.CreateSelect(carry, b.getInt64(0), next);
      }
      axes[i]->addIncoming(next, latch);
    }
    Value* next = b.CreateNSWAdd(p, b.getInt64(1));
    p->addIncoming(next, latch);
    b.CreateCondBr(b.CreateICmpSLT(next, end), loop, done);
    b.SetInsertPoint(done);
  }

  Value* place(const Memory& memory, int64_t, int64_t offset, const Entry& entry,
               llvm::IRBuilderBase& b) const override {
    return b.CreateConstGEP1_64(b.getInt8Ty(), entry.function->getArg(2),
                                static_cast<uint64_t>(offset), memory.name);
  }

  void leave(bool streams, llvm::IRBuilderBase& b) const override {
    if (streams) b.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, llvm::ArrayRef<Value*>());
    b.CreateRetVoid();
  }

  void set_attributes(llvm::Function& function) const override {
    function.addFnAttr("frame-pointer", "none");
    const std::string width = std::to_string(8 * vector_bytes);
    function.addFnAttr("prefer-vector-width", width);
    function.addFnAttr("min-legal-vector-width", width);
  }

 private:
  // Buffers and scalars do not change during a call.
  static void read_parameters(const Kernel& kernel, Entry& entry, llvm::IRBuilderBase& b) {
    const auto read = [&](unsigned argument, llvm::Type* type, uint64_t index,
                          const std::string& name) {
      Value* at = b.CreateConstGEP1_64(type, entry.function->getArg(argument), index);
      auto* load = b.CreateLoad(type, at, name);
      load->setMetadata(llvm::LLVMContext::MD_invariant_load,
                        llvm::MDNode::get(b.getContext(), {}));
      return load;
    };
    uint64_t buffers = 0;
    for (const Memory& memory : kernel.memories) {
      const bool is_local = memory.space == MemorySpace::Local;
      entry.pointers.push_back(is_local ? nullptr : read(0, b.getPtrTy(), buffers++, memory.name));
    }
    const auto word = [&](const std::string& name) {
      entry.words.push_back(read(1, b.getInt64Ty(), entry.words.size(), name));
    };
    for (const Expr& symbol : kernel.symbols) word(symbol.symbol_name());
    for (ValueId id : kernel.scalar_parameters) word(kernel[id].name);
  }
};

const X86& machine_of(const Target& target) {
  static const X86 avx2(false, 32), avx512(true, 64);
  if (target.kind == TargetKind::Cpu && target.vector_bytes == avx2.vector_bytes) return avx2;
  if (target.kind == TargetKind::Cpu && target.vector_bytes == avx512.vector_bytes) return avx512;
  fail(codes::kCodegenTarget, "machine code cannot be made for target " + target.name +
                                  ", only for CPUs with vectors of 32 or 64 bytes");
}

const llvm::Target& x86() {
  static const llvm::Target* target = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    std::string error;
    const llvm::Target* found = llvm::TargetRegistry::lookupTarget(llvm::Triple(kTriple), error);
    BRAZE_CHECK(found, error);
    return found;
  }();
  return *target;
}

// There is one for each thread and target, because making it takes as long as compiling a small
// kernel, and because it serves one kernel at a time.
llvm::TargetMachine& target_machine(const Target& target) {
  thread_local std::map<std::string, std::unique_ptr<llvm::TargetMachine>, std::less<>> machines;
  std::unique_ptr<llvm::TargetMachine>& machine = machines[target.name];
  if (!machine) {
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    machine.reset(x86().createTargetMachine(llvm::Triple(kTriple), target.name, "-prefer-256-bit",
                                            options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                            llvm::CodeGenOptLevel::Default));
  }
  return *machine;
}

// --- Linking -------------------------------------------------------------------------------------

using ElfObject = llvm::object::ELFObjectFile<llvm::object::ELF64LE>;

template <class T>
T value_of(llvm::Expected<T> expected) {
  if (expected) return std::move(*expected);
  check_failed("object", llvm::toString(expected.takeError()), std::source_location::current());
}

// Places the sections that occupy memory: code first, then constants, those with the greatest
// alignment first.
std::map<uint64_t, uint64_t> lay_out(const ElfObject& object, std::string& image) {
  std::vector<llvm::object::SectionRef> sections;
  for (const llvm::object::SectionRef& section : object.sections()) {
    const uint64_t flags = llvm::object::ELFSectionRef(section).getFlags();
    const uint32_t type = llvm::object::ELFSectionRef(section).getType();
    if (!(flags & llvm::ELF::SHF_ALLOC) || section.getSize() == 0) continue;
    if (type == llvm::ELF::SHT_X86_64_UNWIND || type == llvm::ELF::SHT_NOTE) continue;
    BRAZE_CHECK(!(flags & llvm::ELF::SHF_WRITE), "an image cannot have a writable section");
    sections.push_back(section);
  }
  std::stable_sort(sections.begin(), sections.end(), [](const auto& a, const auto& b) {
    if (a.isText() != b.isText()) return a.isText();
    return a.getAlignment().value() > b.getAlignment().value();
  });
  std::map<uint64_t, uint64_t> offsets;  // by section index
  for (const auto& section : sections) {
    const uint64_t align =
        std::max<uint64_t>(section.isText() ? 64 : 1, section.getAlignment().value());
    image.resize((image.size() + align - 1) / align * align);
    offsets[section.getIndex()] = image.size();
    image += value_of(section.getContents());
  }
  return offsets;
}

void relocate(const ElfObject& object, const std::map<uint64_t, uint64_t>& offsets,
              std::string& image, const std::string& kernel) {
  for (const llvm::object::SectionRef& section : object.sections()) {
    for (const llvm::object::RelocationRef& relocation : section.relocations()) {
      const auto target = value_of(section.getRelocatedSection());
      const auto at = offsets.find(target->getIndex());
      if (at == offsets.end()) continue;
      const llvm::object::symbol_iterator symbol = relocation.getSymbol();
      const auto home = value_of(symbol->getSection());
      if (home == object.section_end())
        check_failed(
            "defined",
            fmt::format("kernel @{} would need the function {}, but an image has no imports",
                        kernel, value_of(symbol->getName()).str()),
            std::source_location::current());
      const auto base = offsets.find(home->getIndex());
      BRAZE_CHECK(base != offsets.end(), "a relocation points outside of the image");
      const uint64_t place = at->second + relocation.getOffset();
      const int64_t addend = value_of(llvm::object::ELFRelocationRef(relocation).getAddend());
      const auto value = static_cast<int64_t>(base->second + value_of(symbol->getValue())) +
                         addend - static_cast<int64_t>(place);
      switch (relocation.getType()) {
        case llvm::ELF::R_X86_64_PC32:
        case llvm::ELF::R_X86_64_PLT32: {
          const auto narrow = static_cast<int32_t>(value);
          BRAZE_CHECK(narrow == value, "an image cannot be larger than 2 GiB");
          std::memcpy(&image[place], &narrow, sizeof narrow);
          break;
        }
        case llvm::ELF::R_X86_64_PC64:
          std::memcpy(&image[place], &value, sizeof value);
          break;
        default:
          check_failed(
              "relative",
              fmt::format("an image cannot have a relocation of type {}", relocation.getType()),
              std::source_location::current());
      }
    }
  }
}

Artifact link(const std::string& bytes, const Kernel& kernel) {
  const TraceSpan span("codegen", "link");
  const llvm::MemoryBufferRef buffer(llvm::StringRef(bytes), kernel.name);
  const ElfObject object = value_of(ElfObject::create(buffer));
  Artifact artifact{"image", kernel.name, {}, std::vector<uint64_t>(kernel.phases.size())};
  const auto offsets = lay_out(object, artifact.code);
  relocate(object, offsets, artifact.code, kernel.name);
  for (const llvm::object::ELFSymbolRef& symbol : object.symbols()) {
    llvm::StringRef name = value_of(symbol.getName());
    if (symbol.getBinding() != llvm::ELF::STB_GLOBAL || !name.consume_front("phase")) continue;
    size_t phase = 0;
    if (name.getAsInteger(10, phase)) continue;
    artifact.entries[phase] =
        offsets.at(value_of(symbol.getSection())->getIndex()) + value_of(symbol.getValue());
  }
  return artifact;
}

}  // namespace

Backend x86_backend(const Target& target) {
  const Machine& machine = machine_of(target);
  return {machine, target_machine(target), kTriple};
}

}  // namespace codegen

Artifact generate_image(const Kernel& kernel, const Target& target, CodegenTimes* times) {
  CodegenTimes spent;
  const std::string object =
      codegen::emit(kernel, codegen::x86_backend(target), codegen::Emission::Object, spent);
  ThreadClock clock;
  Artifact artifact = codegen::link(object, kernel);
  spent.link = clock.lap();
  if (times) *times = spent;
  return artifact;
}

}  // namespace braze
