// onnx.cpp — models in files of ONNX: what the file says, and the graph that it becomes.
#include <span>

#include "frontend/models/onnx/import.h"
#include "frontend/models/onnx/types.h"
#include "ir/graph/verify.h"
#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = false;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braze;
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::accepts([&] {
    const onnx::ModelData model = onnx::parse_model(bytes, "input");
    const Imported imported = onnx::import_model(model, "", {});
    fail_if_any(verify(imported.graph), "the imported graph");
    if (imported.weights.size() > imported.graph.inputs().size())
      fuzz::stop("more weights than inputs", "");
  });
  fuzz::accepts([&] { onnx::TensorReader("").read(onnx::parse_tensor(bytes, "input")); });
  return 0;
}
