// emit.cpp — the steps of one generation: translation, passes over LLVM IR, text or object.
//
// The translator emits SSA form, vectors, unrolled copies and few repeated expressions. LLVM's
// passes therefore have little to do: they join common subexpressions of separate accesses, and
// move what is invariant out of loops. None of them vectorises, unrolls, reassociates floats or
// recognises library calls.
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "braze/trace.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/llvm/llvm_p.h"
#include "ir/code/static_loops.h"
#include "ir/support/clocks.h"
#include "ir/support/config.h"
#include "ir/support/text.h"

namespace braze {

namespace codegen {
namespace {

// --- What LLVM reports ---------------------------------------------------------------------------

// The kernel for which this thread generates code.
thread_local const Kernel* generated = nullptr;

// LLVM cannot continue after this error, and its state is lost, so the process ends. It ends by a
// signal, as after other bugs, and not by exit(), which would run the code that others left for the
// end of their process.
void stop_at_fatal_error(void*, const char* reason, bool) {
  write_log(LogLevel::Error, fmt::format("LLVM failed on kernel @{}: {}",
                                         generated ? generated->name : "?", reason));
  std::abort();
}

// Collects LLVM's messages about a kernel. Without it, LLVM would print them and end the process at
// an error.
class Reports : public llvm::DiagnosticHandler {
 public:
  explicit Reports(const Kernel& kernel) {
    static const bool installed = [] {
      llvm::install_fatal_error_handler(stop_at_fatal_error);
      return true;
    }();
    static_cast<void>(installed);
    generated = &kernel;
  }
  ~Reports() override { generated = nullptr; }

  // Warnings and remarks are about speed only.
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error || error_) return true;
    error_.emplace();
    // LLVM's printed form would show the location only as a number in the text.
    if (const auto* assembly = llvm::dyn_cast<llvm::DiagnosticInfoInlineAsm>(&info)) {
      error_->message = assembly->getMsgStr().str();
      if (const uint64_t place = assembly->getLocCookie())
        error_->location = reinterpret_cast<const Statement*>(place)->location;
      return true;
    }
    llvm::raw_string_ostream stream(error_->message);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    return true;
  }

  void fail_if_any() const {
    if (!error_) return;
    fail(codes::kLlvmRefused,
         fmt::format("LLVM refused kernel @{}: {}", generated->name, error_->message),
         {.location = error_->location, .node = "", .fix = "please report this"});
  }

 private:
  struct Report {
    std::string message;
    SourceLocation location = {};
  };
  std::optional<Report> error_;
};

// --- The steps -----------------------------------------------------------------------------------

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  const TraceSpan span("codegen", "optimize");
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);

  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/false));
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()),
                                                       /*UseMemorySSA=*/true));
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function, functions);
}

// Attributes that every function needs, whichever file made it.
void set_attributes(llvm::Module& module, const Machine& machine) {
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.addFnAttr("no-builtins");
    machine.set_attributes(function);
  }
}

#ifndef NDEBUG
void verify(const llvm::Module& module, const Kernel& kernel) {
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  BRAZE_CHECK(!llvm::verifyModule(module, &stream), "kernel @" + kernel.name + ": " + problems);
}
#endif

std::string print(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

std::string generate(llvm::Module& module, llvm::TargetMachine& target, Emission emission) {
  const TraceSpan span("codegen", "emit");
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  const auto type = emission == Emission::Object ? llvm::CodeGenFileType::ObjectFile
                                                 : llvm::CodeGenFileType::AssemblyFile;
  BRAZE_CHECK(!target.addPassesToEmitFile(passes, stream, nullptr, type, /*DisableVerify=*/true),
              "LLVM cannot write such a file for this target");
  passes.run(module);
  return std::string(bytes.data(), bytes.size());
}

Backend backend_of(const Target& target) {
  return target.kind == TargetKind::Gpu ? nvptx_backend(target) : x86_backend(target);
}

}  // namespace

std::string emit(const Kernel& kernel, const Backend& backend, Emission emission,
                 CodegenTimes& times) {
  ThreadClock clock;
  llvm::LLVMContext context;
  auto handler = std::make_unique<Reports>(kernel);
  const Reports& reports = *handler;
  context.setDiagnosticHandler(std::move(handler));
  context.setDiscardValueNames(emission != Emission::LlvmText);
  Kernel expanded = kernel;
  expand_static_loops(expanded);
  const auto module = translate(expanded, backend.machine, context);
  module->setTargetTriple(llvm::Triple(backend.triple));
  module->setDataLayout(backend.target.createDataLayout());
  set_attributes(*module, backend.machine);
#ifndef NDEBUG
  verify(*module, kernel);
#endif
  times.translate = clock.lap();
  optimize(*module, backend.target);
  times.optimize = clock.lap();
  std::string out =
      emission == Emission::LlvmText ? print(*module) : generate(*module, backend.target, emission);
  times.emit = clock.lap();
  reports.fail_if_any();
  return out;
}

}  // namespace codegen

std::string llvm_text(const Kernel& kernel, const Target& target) {
  CodegenTimes times;
  return codegen::emit(kernel, codegen::backend_of(target), codegen::Emission::LlvmText, times);
}

std::string assembly_text(const Kernel& kernel, const Target& target, CodegenTimes* times) {
  CodegenTimes spent;
  std::string text =
      codegen::emit(kernel, codegen::backend_of(target), codegen::Emission::Assembly, spent);
  if (times) *times = spent;
  return text;
}

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace braze
