#include "tools/braze/compile_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "ir/support/trace.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

constexpr size_t kMostKernels = 10;

double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// "generate softmax" is the step "generate" of the kernel "softmax". The step "other" is the time
// of the compilation outside of all steps.
std::string step_of(const trace::EndedSpan& span) {
  return span.category == "compile" ? "other" : span.name.substr(0, span.name.find(' '));
}

std::string share_text(double part, double whole) {
  return fmt::format("{:.0f} %", whole > 0 ? 100 * part / whole : 0);
}

}  // namespace

CompileTimes compile_times(const std::function<void()>& compile) {
  trace::SpanRecorder recorder;
  compile();
  std::vector<trace::EndedSpan> spans = recorder.take();
  CompileTimes out;
  if (spans.empty()) return out;
  // Spans of a thread nest: the outer one begins first or, at equal beginnings, ends last.
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.thread, a.begin, -a.end) < std::tuple(b.thread, b.begin, -b.end);
  });
  std::map<std::string, StepTime> steps;
  std::map<std::string, double> kernels;
  std::set<int64_t> threads;
  std::vector<const trace::EndedSpan*> around;
  int64_t first = spans.front().begin, last = spans.front().end;
  for (const trace::EndedSpan& span : spans) {
    const double length = seconds(span.end - span.begin);
    while (!around.empty() &&
           (around.back()->thread != span.thread || around.back()->end <= span.begin))
      around.pop_back();
    StepTime& step = steps[step_of(span)];
    step.seconds += length;
    ++step.times;
    if (!around.empty()) steps[step_of(*around.back())].seconds -= length;
    around.push_back(&span);
    threads.insert(span.thread);
    first = std::min(first, span.begin);
    last = std::max(last, span.end);
    if (span.category == "lowering" && span.name.find(' ') != std::string::npos)
      kernels[span.name.substr(span.name.find(' ') + 1)] += length;
  }
  out.elapsed = seconds(last - first);
  out.threads = static_cast<int>(threads.size());
  for (auto& [name, step] : steps) {
    step.step = name;
    out.work += step.seconds;
    out.steps.push_back(step);
  }
  for (const auto& [name, length] : kernels) out.kernels.push_back({name, length});
  const auto longer = [](const auto& a, const auto& b) { return a.seconds > b.seconds; };
  std::stable_sort(out.steps.begin(), out.steps.end(), longer);
  std::stable_sort(out.kernels.begin(), out.kernels.end(), longer);
  return out;
}

std::string to_text(const CompileTimes& times) {
  std::string out =
      fmt::format("compiled in {}: {} of work on {} thread{}\n", seconds_text(times.elapsed),
                  seconds_text(times.work), times.threads, times.threads == 1 ? "" : "s");
  std::vector<std::vector<std::string>> rows{{"step", "work", "share", "times"}};
  for (const StepTime& step : times.steps)
    rows.push_back({step.step, seconds_text(step.seconds), share_text(step.seconds, times.work),
                    std::to_string(step.times)});
  out += "\n" + table(rows);
  if (times.kernels.empty()) return out;
  rows = {{"kernel", "work", "share"}};
  for (size_t i = 0; i < std::min(times.kernels.size(), kMostKernels); ++i)
    rows.push_back({times.kernels[i].kernel, seconds_text(times.kernels[i].seconds),
                    share_text(times.kernels[i].seconds, times.work)});
  out += "\n" + table(rows);
  if (times.kernels.size() > kMostKernels)
    out += fmt::format("and {} more\n", times.kernels.size() - kMostKernels);
  return out;
}

std::string to_json(const CompileTimes& times) {
  std::vector<std::string> steps, kernels;
  for (const StepTime& step : times.steps)
    steps.push_back(json::object({{"step", json::string(step.step)},
                                  {"work_s", fmt::format("{:.9f}", step.seconds)},
                                  {"times", std::to_string(step.times)}}));
  for (const KernelTime& kernel : times.kernels)
    kernels.push_back(json::object({{"kernel", json::string(kernel.kernel)},
                                    {"work_s", fmt::format("{:.9f}", kernel.seconds)}}));
  return json::object({{"elapsed_s", fmt::format("{:.9f}", times.elapsed)},
                       {"work_s", fmt::format("{:.9f}", times.work)},
                       {"threads", std::to_string(times.threads)},
                       {"steps", json::array(steps)},
                       {"kernels", json::array(kernels)}});
}

}  // namespace braze::tool
