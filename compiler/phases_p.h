// phases_p.h — what every compilation does around its steps: it shows, checks and times them.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "braze/compile.h"
#include "braze/error.h"
#include "braze/trace.h"
#include "ir/graph/graph.h"
#include "ir/program/program.h"
#include "ir/support/clocks.h"
#include "ir/support/text.h"

namespace braze {

/// Shows every step to whoever asked for it: the observer, the log, and files numbered in order.
/// Texts are made only if somebody reads them.
class PhaseViewers {
 public:
  /// `name` is that of the graph or kernel.
  PhaseViewers(const std::string& name, const CompileOptions& options);

  /// Whether somebody observes the compilation. If so, its steps run one after the other.
  bool any() const { return observer_ || debug_ > 0 || !folder_.empty(); }

  void show(const CompilePhase& phase);
  template <class Code>
  void show(std::string_view stage, const Code& code, std::string_view kernel = {}) {
    show({.stage = stage, .kernel = kernel, .text = [&] { return to_text(code); }});
  }

 private:
  void write(const CompilePhase& phase);

  const std::string folder_;
  const std::function<void(const CompilePhase&)>& observer_;
  const int64_t debug_;
  int number_ = 0;
};

/// Calls `make`, and records its time on the timeline.
template <class Make>
auto in_span(std::string_view category, std::string_view name, std::string_view subject,
             Make&& make) {
  const TraceSpan span(category, name, subject);
  return make();
}

/// Runs `make`, which is a whole compilation, and records its time.
template <class Make>
Program timed(const std::string& name, const Target& target, Make&& make) {
  TraceSpan span("compile", "compile", name);
  if (span) span.add("target", target.simulated ? "sim:" + target.name : target.name);
  WallClock clock;
  Program program = make();
  program.compile_seconds = clock.lap();
  return program;
}

/// If a graph breaks a rule of its language, that is a bug of the pass that made it.
void check_after(const Graph& graph, std::string_view pass);

/// If a tile program or kernel breaks a rule of its language, that is a bug of the step that made
/// it.
template <class Code>
void check_after(const Code& code, std::string_view phase) {
  const std::vector<Diagnostic> findings = verify(code);
  if (findings.empty()) return;
  fail(braze::codes::kInternal,
       fmt::format("{} made @{}, which breaks rules of its language, {} in all: {}", phase,
                   code.name, findings.size(), findings.front().to_string()),
       {.location = findings.front().location, .node = code.name, .fix = "please report this"});
}

}  // namespace braze
