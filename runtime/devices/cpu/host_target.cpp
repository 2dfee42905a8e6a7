#include "runtime/devices/cpu/host_target.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "ir/support/env.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The features that each psABI level adds to the level before it, as far as code generators use
// them. The best level comes first.
struct Level {
  std::string_view target;
  std::vector<std::string_view> features;
  double flops_per_core;  // f32, at the clock of a server under load
};

const std::vector<Level>& levels() {
  static const std::vector<std::string_view> v3 = {"avx",  "avx2", "bmi",   "bmi2",
                                                   "f16c", "fma",  "lzcnt", "movbe"};
  static const std::vector<Level> all = [] {
    Level v4{"x86-64-v4", v3, 110e9};
    for (const std::string_view f : {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) {
      v4.features.push_back(f);
    }
    return std::vector<Level>{v4, {"x86-64-v3", v3, 80e9}};
  }();
  return all;
}

constexpr double kCoreMemorySpeed = 20e9;
constexpr double kMostMemorySpeed = 200e9;
constexpr double kCoreCacheSpeed = 80e9;

/// The first line of a file, empty if there is none.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// "512K" or "32M" in bytes; 0 if the text is not a size.
int64_t parse_size(const std::string& text) {
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  return value * (*end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : 1);
}

/// Fills in the cache sizes, as far as the system reports them.
void read_caches(Target& target) {
  int64_t* const sizes[] = {&target.l1_bytes, &target.l2_bytes, &target.l3_bytes};
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const int64_t level = parse_size(first_line(folder + "level"));
    const int64_t size = parse_size(first_line(folder + "size"));
    if (level < 1 || level > 3 || size <= 0 || first_line(folder + "type") == "Instruction")
      continue;
    *sizes[level - 1] = size;
  }
}

}  // namespace

std::vector<std::string_view> host_features() {
  std::vector<std::string_view> features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  // The builtin accepts only literals, so a macro calls it.
#define BRAZE_FEATURE(name) \
  if (__builtin_cpu_supports(name)) features.push_back(name)
  BRAZE_FEATURE("avx");
  BRAZE_FEATURE("avx2");
  BRAZE_FEATURE("bmi");
  BRAZE_FEATURE("bmi2");
  BRAZE_FEATURE("f16c");
  BRAZE_FEATURE("fma");
  BRAZE_FEATURE("lzcnt");
  BRAZE_FEATURE("movbe");
  BRAZE_FEATURE("avx512f");
  BRAZE_FEATURE("avx512bw");
  BRAZE_FEATURE("avx512cd");
  BRAZE_FEATURE("avx512dq");
  BRAZE_FEATURE("avx512vl");
#undef BRAZE_FEATURE
#endif
  return features;
}

std::vector<std::string_view> missing_features(const Target& target,
                                               const std::vector<std::string_view>& features) {
  std::vector<std::string_view> missing;
  for (const Level& level : levels()) {
    if (level.target != target.name) continue;
    for (const std::string_view f : level.features) {
      if (std::find(features.begin(), features.end(), f) == features.end()) missing.push_back(f);
    }
  }
  return missing;
}

Target choose_target(const std::vector<std::string_view>& features,
                     const std::optional<std::string>& wanted) {
  const auto name_of = [](const auto& named) { return std::string(named); };
  std::optional<Target> target;
  if (wanted) {
    const auto is_wanted = [&](const Level& level) { return level.target == *wanted; };
    if (std::none_of(levels().begin(), levels().end(), is_wanted)) {
      fail(codes::kEnvironment,
           fmt::format("{} is {}, but the CPU targets are {}", kEnvTarget.name, quote(*wanted),
                       join(levels(), ", ", [&](const Level& l) { return name_of(l.target); })));
    }
    target = find_target(*wanted);
  } else {
    for (const Level& level : levels()) {
      target = find_target(level.target);
      if (missing_features(*target, features).empty()) break;
    }
  }
  const std::vector<std::string_view> missing = missing_features(*target, features);
  if (missing.empty()) return *target;
  fail(codes::kUnsupportedCpu,
       fmt::format("this processor does not run code for {}: it lacks {}", target->name,
                   join(missing, ", ", name_of)),
       {.location = {},
        .node = "",
        .fix = "use the device \"interpreter\" or \"sim:cpu\", which run on any processor"});
}

int usable_cores() {
  int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  // The file contains "max 100000" or "150000 100000": the allowed time and the period.
  const std::string quota = first_line("/sys/fs/cgroup/cpu.max");
  double time = 0, period = 0;
  if (std::sscanf(quota.c_str(), "%lf %lf", &time, &period) == 2 && time > 0 && period > 0) {
    cores = std::min(cores, static_cast<int>(std::ceil(time / period)));
  }
  return std::max(1, cores);
}

Target host_target(int threads) {
  Target target = choose_target(host_features(), read_env(kEnvTarget));
  read_caches(target);
  target.cores = threads;
  const int cores = std::min(threads, usable_cores());
  target.memory_bytes_per_second = std::min(cores * kCoreMemorySpeed, kMostMemorySpeed);
  target.cache_bytes_per_second = cores * kCoreCacheSpeed;
  for (const Level& level : levels()) {
    if (level.target == target.name) target.flops_per_second = cores * level.flops_per_core;
  }
  return target;
}

}  // namespace braze
