#include "ir/target/target.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "braze/error.h"
#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kTargetText{"target-text", ErrorKind::InvalidArgument,
                                  "The text does not describe a known target."};
}  // namespace codes

namespace {

constexpr std::string_view kSimulatedPrefix = "sim:";

// The sizes and speeds of CPU rows are those of two cores of a server. The runtime replaces them by
// those of the host.
const std::vector<Target>& rows() {
  static const std::vector<Target> table = [] {
    Target v3;
    v3.name = "x86-64-v3";
    v3.kind = TargetKind::Cpu;
    v3.vector_bytes = 32;
    v3.vector_registers = 16;
    v3.cores = 2;
    v3.flops_per_second = 160e9;

    Target v4 = v3;
    v4.name = "x86-64-v4";
    v4.vector_bytes = 64;
    v4.vector_registers = 32;
    v4.l2_bytes = 1 << 20;
    v4.flops_per_second = 220e9;

    Target interpreter;
    interpreter.name = "interpreter";
    interpreter.kind = TargetKind::Interpreter;
    interpreter.flops_per_second = 100e6;

    // Speeds: NVIDIA's data sheets of the A100 80GB SXM and the H100 SXM. Links: four fifths of
    // what the data sheets say of NVLink. NCCL by itself reaches 357 GB/s between four H100, which
    // is four fifths of the data sheet.
    Target sm_80;
    sm_80.name = "sm_80";
    sm_80.kind = TargetKind::Gpu;
    sm_80.capability = 80;
    sm_80.vector_bytes = 128;
    sm_80.vector_registers = 255;
    sm_80.cores = 108;
    sm_80.l1_bytes = 163 << 10;
    sm_80.l2_bytes = 192 << 10;
    sm_80.l3_bytes = 40 << 20;
    sm_80.memory_bytes_per_second = 2.0e12;
    sm_80.cache_bytes_per_second = 5e12;
    sm_80.flops_per_second = 19.5e12;
    sm_80.matrix_speed = 16;
    sm_80.launch_seconds = 3e-6;
    sm_80.link_bytes_per_second = 240e9;

    Target sm_90a = sm_80;
    sm_90a.name = "sm_90a";
    sm_90a.capability = 90;
    sm_90a.cores = 132;
    sm_90a.l1_bytes = 227 << 10;
    sm_90a.l2_bytes = 256 << 10;
    sm_90a.l3_bytes = 50 << 20;
    sm_90a.cluster_blocks = 8;  // a limit of the GPU allows no more
    sm_90a.memory_bytes_per_second = 3.35e12;
    sm_90a.cache_bytes_per_second = 7e12;
    sm_90a.flops_per_second = 67e12;
    sm_90a.matrix_speed = 14.8;
    sm_90a.asynchronous_dots = true;
    sm_90a.link_bytes_per_second = 360e9;
    return std::vector<Target>{v3, v4, sm_80, sm_90a, interpreter};
  }();
  return table;
}

/// One number of a Target: its name in text, and how to print and read it.
struct Field {
  std::string_view name;
  std::string (*print)(const Target&);
  bool (*read)(Target&, std::string_view);
};

template <class T>
bool read_number(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end && value > 0;
}

template <auto Member>
constexpr Field integer(std::string_view name) {
  return {name, [](const Target& t) { return std::to_string(t.*Member); },
          [](Target& t, std::string_view text) { return read_number(text, t.*Member); }};
}

template <auto Member>
constexpr Field speed(std::string_view name) {
  return {name, [](const Target& t) { return number_text(t.*Member); },
          [](Target& t, std::string_view text) { return read_number(text, t.*Member); }};
}

constexpr Field kFields[] = {
    integer<&Target::vector_bytes>("vector_bytes"),
    integer<&Target::vector_registers>("vector_registers"),
    integer<&Target::cores>("cores"),
    integer<&Target::l1_bytes>("l1"),
    integer<&Target::l2_bytes>("l2"),
    integer<&Target::l3_bytes>("l3"),
    integer<&Target::cluster_blocks>("cluster"),
    speed<&Target::memory_bytes_per_second>("memory"),
    speed<&Target::cache_bytes_per_second>("cache"),
    speed<&Target::flops_per_second>("flops"),
    speed<&Target::launch_seconds>("launch"),
    speed<&Target::link_seconds>("link"),
    speed<&Target::link_bytes_per_second>("links"),
};

}  // namespace

std::string Target::to_string() const {
  std::string out = simulated ? std::string(kSimulatedPrefix) + name : name;
  for (const Field& field : kFields) out += fmt::format(" {}={}", field.name, field.print(*this));
  return out;
}

std::span<const Target> target_table() { return rows(); }

std::optional<Target> find_target(std::string_view name) {
  const bool simulated = name.starts_with(kSimulatedPrefix);
  if (simulated) name.remove_prefix(kSimulatedPrefix.size());
  if (name == "sm_90") name = "sm_90a";
  for (const Target& row : rows()) {
    if (row.name != name || (simulated && row.kind == TargetKind::Interpreter)) continue;
    Target target = row;
    target.simulated = simulated;
    return target;
  }
  return std::nullopt;
}

Target parse_target(std::string_view text) {
  const auto next_word = [&text] {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return word;
  };
  const std::string_view name = next_word();
  std::optional<Target> target = find_target(name);
  if (!target) {
    fail(
        codes::kTargetText,
        fmt::format("{} is not a target; the targets are {}, and each of these with sim: before it",
                    quote(name), join(rows(), ", ", [](const Target& row) { return row.name; })));
  }
  while (!text.empty()) {
    const std::string_view word = next_word();
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    bool read = false;
    for (const Field& field : kFields) read |= field.name == key && field.read(*target, value);
    if (!read)
      fail(codes::kTargetText,
           fmt::format("{} is not a field of a target with its value, such as cores=8",
                       quote(word)));
  }
  return *target;
}

}  // namespace braze
