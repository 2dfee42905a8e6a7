#include "tools/braze/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/support/text.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"

namespace braze::tool {

namespace {

constexpr std::pair<std::string_view, Precision> kPrecisions[] = {
    {name(Precision::Strict), Precision::Strict},
    {name(Precision::Standard), Precision::Standard},
    {name(Precision::Fast), Precision::Fast}};

constexpr std::pair<std::string_view, GpuCode> kCodeGenerators[] = {{"ptx", GpuCode::Ptx},
                                                                    {"nvrtc", GpuCode::Nvrtc}};

template <class Value, size_t N>
std::vector<std::string> names_of(const std::pair<std::string_view, Value> (&choices)[N]) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) names.emplace_back(name);
  return names;
}

// The value called `text` in a table of names.
template <class Value, size_t N>
Value parse_choice(std::string_view option, const std::string& text,
                   const std::pair<std::string_view, Value> (&choices)[N]) {
  for (const auto& [name, value] : choices)
    if (name == text) return value;
  const std::vector<std::string> known = names_of(choices);
  std::string either = known[0];
  for (size_t i = 1; i < known.size(); ++i)
    either += (i + 1 < known.size() ? ", " : " or ") + known[i];
  fail_usage(
      fmt::format("{} must be {}, not {}{}", option, either, text, did_you_mean(text, known)));
}

}  // namespace

void CompileFlags::add_to(Arguments& arguments) {
  arguments.add_option("--precision", precision, "strict, standard (default) or fast")
      .offers(names_of(kPrecisions));
  arguments.add_flag("--no-fuse", no_fuse, "Make one kernel for each op");
  arguments.add_flag("--fuse-all", fuse_all,
                     "Fuse everything that can be one kernel, even if it is slower");
  arguments
      .add_option("--schedule", schedules,
                  "KERNEL=TEXT: the schedule of a kernel, as `braze explain` prints it")
      .repeatable();
  arguments.add_option("--codegen", codegen, "Code for GPUs: ptx (default) or nvrtc")
      .offers(names_of(kCodeGenerators));
  arguments.add_option("--dump", dump, "Folder for the text of every step of the compilation");
}

CompileOptions CompileFlags::options(std::span<const Target> targets) const {
  CompileOptions options;
  options.precision = parse_choice("--precision", precision, kPrecisions);
  options.gpu_code = parse_choice("--codegen", codegen, kCodeGenerators);
  const auto has_gpu_code = [](const Target& target) {
    return target.kind == TargetKind::Gpu && !target.simulated;
  };
  if (options.gpu_code != GpuCode::Ptx && std::ranges::none_of(targets, has_gpu_code))
    fail_usage(
        fmt::format("--codegen chooses how code for GPUs is made, but there is none for {}; leave "
                    "it out, or choose a GPU",
                    join(targets, ", ", [](const Target& target) {
                      return target.simulated ? "sim:" + target.name : target.name;
                    })));
  if (no_fuse && fuse_all)
    fail_usage("--no-fuse and --fuse-all contradict each other; give one of them");
  options.fuse = !no_fuse;
  options.by_cost = !fuse_all;
  options.dump_folder = dump;
  for (const std::string& text : schedules) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      fail_usage(fmt::format("--schedule must be KERNEL=TEXT, not {}", text));
    options.schedules[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return options;
}

void CompileFlags::set(const std::string& option) {
  const size_t equals = option.find('=');
  const std::string name = option.substr(0, equals);
  const std::pair<std::string_view, bool*> flags[] = {{"no-fuse", &no_fuse},
                                                      {"fuse-all", &fuse_all}};
  const std::pair<std::string_view, std::string*> values[] = {
      {"precision", &precision}, {"codegen", &codegen}, {"dump", &dump}};
  std::vector<std::string> known = {"schedule"};
  for (const auto& [flag, is_set] : flags) {
    if (name == flag && equals == std::string::npos) return void(*is_set = true);
    known.emplace_back(flag);
  }
  for (const auto& [key, value] : values) {
    if (name == key && equals != std::string::npos) return void(*value = option.substr(equals + 1));
    known.emplace_back(key);
  }
  if (name == "schedule" && equals != std::string::npos)
    return schedules.push_back(option.substr(equals + 1));
  fail_usage(
      fmt::format("{} is not an option of a device; an example is cpu,precision=fast,no-fuse{}",
                  option, did_you_mean(name, known)));
}

void CompileFlags::refuse_for_package() const {
  const CompileFlags none;
  const std::pair<std::string_view, bool> given[] = {{"--precision", precision != none.precision},
                                                     {"--codegen", codegen != none.codegen},
                                                     {"--no-fuse", no_fuse},
                                                     {"--fuse-all", fuse_all},
                                                     {"--schedule", !schedules.empty()},
                                                     {"--dump", !dump.empty()}};
  for (const auto& [option, is_given] : given)
    if (is_given) fail_usage(fmt::format("{} is for text; a package is already compiled", option));
}

Device find_device(const std::string& text) {
  try {
    return Device(text);
  } catch (const Error& error) {
    std::vector<std::string> known;
    for (const Device& device : devices()) known.push_back(device.name());
    throw Failure{Exit::Usage, error.what() + did_you_mean(text, known)};
  }
}

Target find_target_of(const std::string& text) {
  if (text.empty()) return Device("cpu").target();
  if (const auto row = find_target(text)) return *row;
  if (text.find('=') != std::string::npos)
    return blame(Exit::Usage, [&] { return parse_target(text); });
  std::vector<std::string> known;
  for (const Target& row : target_table()) {
    known.push_back(row.name);
    known.push_back("sim:" + row.name);
  }
  fail_usage(fmt::format("{} is not a target; the targets are {}{}", text, fmt::join(known, ", "),
                         did_you_mean(text, known)));
}

}  // namespace braze::tool
