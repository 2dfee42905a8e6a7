#include "tools/braze/timing.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "braze/executable.h"

namespace braze::tool {

namespace {

std::vector<Timing> measure_calls(const std::function<double()>& call, const Program& program,
                                  const Sizes& sizes, int64_t repeat) {
  std::vector<Timing> timings = {{"call", {}}};
  for (int64_t i = 0; i < repeat; ++i) timings[0].seconds.push_back(call());
  // Kernels apart, for watching them costs time.
  record_launches(true);
  clear_launch_history();
  for (int64_t i = 0; i < std::min<int64_t>(repeat, 100); ++i) call();
  record_launches(false);
  std::map<std::string, size_t> index;
  for (const LaunchRecord& record : launch_history()) {
    const auto [at, is_new] = index.emplace(record.kernel, timings.size());
    if (is_new) timings.push_back({record.kernel, {}});
    timings[at->second].seconds.push_back(record.seconds);
  }
  for (const Launch& launch : program.launches) {
    const auto found = index.find(launch.name);
    std::vector<size_t> of = {0};
    if (found != index.end()) of.push_back(found->second);
    for (const size_t i : of) {
      timings[i].read += static_cast<double>(sizes(launch.bytes_read));
      timings[i].written += static_cast<double>(sizes(launch.bytes_written));
      timings[i].flops += static_cast<double>(sizes(launch.flops));
    }
  }
  for (Timing& timing : timings) std::sort(timing.seconds.begin(), timing.seconds.end());
  return timings;
}

// Samples of some milliseconds, so that the clock and the wait at the end do not count.
std::vector<double> measure_in_a_row(const std::function<void()>& next, const Device& device,
                                     double seconds_of_call) {
  constexpr int kSamples = 9;
  constexpr double kSampleSeconds = 0.005, kMostCalls = 200;
  const auto calls =
      static_cast<int>(std::clamp(kSampleSeconds / seconds_of_call, 1.0, kMostCalls));
  std::vector<double> out;
  for (int sample = 0; sample <= kSamples; ++sample) {  // the first one does not count
    const double seconds = seconds_of([&] {
      for (int i = 0; i < calls; ++i) next();
      synchronize(device);
      return std::vector<Array>();
    });
    if (sample > 0) out.push_back(seconds / calls);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The better of two measurements, before and after, for others may be using the machine.
Speeds faster(Speeds a, const Speeds& b) {
  a.copy_bytes_per_second = std::max(a.copy_bytes_per_second, b.copy_bytes_per_second);
  a.flops_per_second = std::max(a.flops_per_second, b.flops_per_second);
  return a;
}

// A call moves what its kernels move, one after the other.
void measure_least(std::vector<Timing>& timings, const Device& device) {
  std::map<std::pair<double, double>, double> known;  // kernels may move as much as others
  for (size_t i = 1; i < timings.size(); ++i) {
    Timing& kernel = timings[i];
    const auto [at, is_new] = known.emplace(std::pair(kernel.read, kernel.written), 0);
    if (is_new) at->second = least_seconds(device, kernel.read, kernel.written);
    kernel.least = at->second;
    timings[0].least += kernel.least;
  }
}

}  // namespace

double Timing::quantile(double q) const {
  return seconds[std::min(seconds.size() - 1,
                          static_cast<size_t>(q * static_cast<double>(seconds.size())))];
}

double seconds_of(const std::function<std::vector<Array>()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (const Array& output : call()) output.wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool uses_up_arguments(const Program& program) {
  return std::ranges::any_of(
      program.outputs, [](const ProgramOutput& output) { return output.updates.has_value(); });
}

Timings measure(const std::function<double()>& call, const std::function<void()>& next,
                const Program& program, const Sizes& sizes, const Device& device, int64_t repeat) {
  Timings out;
  out.has_machine = device.kind() == DeviceKind::Cpu || device.kind() == DeviceKind::Cuda;
  if (out.has_machine) out.machine = measure_speeds(device);
  out.of = measure_calls(call, program, sizes, repeat);
  if (next && device.kind() == DeviceKind::Cuda)
    out.in_a_row = measure_in_a_row(next, device, out.of[0].quantile(0.5));
  if (!out.has_machine) return out;
  out.machine = faster(out.machine, measure_speeds(device));
  measure_least(out.of, device);
  return out;
}

}  // namespace braze::tool
