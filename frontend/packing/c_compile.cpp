#include "braze/c_compile.h"

#include "braze/compile.h"
#include "frontend/builder/compiled.h"
#include "ir/graph/text.h"
#include "ir/support/config.h"
#include "runtime/package/c_api.h"

namespace braze {

namespace {

Precision precision_of(std::string_view text) {
  for (const Precision precision : {Precision::Standard, Precision::Strict, Precision::Fast})
    if (text == name(precision)) return precision;
  fail(codes::kBadSetting,
       fmt::format("the precision is standard, strict or fast, not {}", quote(text)));
}

CompileOptions options_of(const braze_compile_options* pointer) {
  CompileOptions options;
  if (!pointer) return options;
  const auto given = c_options(*pointer, "braze_compile_options");
  if (given.precision) options.precision = precision_of(given.precision);
  if (given.dump_folder) options.dump_folder = given.dump_folder;
  options.fuse = given.do_not_fuse == 0;
  return options;
}

}  // namespace

extern "C" {

braze_status braze_function_compile(const char* text, const char* name,
                                    const braze_compile_options* options, const char* device,
                                    braze_function** out) {
  return c_guarded([&] {
    c_need(out, "out") = nullptr;
    const CompileOptions chosen = options_of(options);
    const Graph graph = parse_graph(&c_need(text, "text"), name ? name : "graph");
    *out = c_function(compiled_executable(graph, Device(&c_need(device, "device")), chosen));
  });
}

const char* braze_function_explain(const braze_function* function) {
  const char* answer = nullptr;
  c_guarded([&] { answer = c_need(function, "function").report.c_str(); });
  return answer;
}

}  // extern "C"
}  // namespace braze
