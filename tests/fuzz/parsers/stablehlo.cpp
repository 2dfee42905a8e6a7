// stablehlo.cpp — programs of StableHLO: what the text says, and the graph that it becomes.
#include <string_view>

#include "frontend/models/stablehlo/import.h"
#include "ir/graph/verify.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = true;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braze;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::accepts([&] {
    const stablehlo::Module module = stablehlo::parse_module(text, "input");
    const Imported imported = stablehlo::import_model(module, "input", {});
    fail_if_any(verify(imported.graph), "the imported graph");
    if (imported.weights.size() > imported.graph.inputs().size())
      fuzz::stop("more weights than inputs", "");
  });
  return 0;
}
