#include "runtime/cache/cache_settings.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "ir/support/config.h"
#include "ir/support/env.h"
#include "ir/support/suggest.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr CacheMode kModes[] = {CacheMode::Off, CacheMode::ReadOnly, CacheMode::On};

[[noreturn]] void bad_value(const EnvVariable& variable, std::string_view value,
                            std::string_view wanted) {
  fail(codes::kEnvironment,
       fmt::format("{} is {}, but must be {}", variable.name, quote(value), wanted),
       {.location = {}, .node = "", .fix = fmt::format("{}: {}", variable.name, variable.meaning)});
}

CacheMode mode_of(std::string_view text) {
  for (const CacheMode mode : kModes)
    if (text == name(mode)) return mode;
  bad_value(kEnvCache, text, "off, readonly or on");
}

uint64_t size_of(std::string_view text) {
  if (const auto bytes = parse_bytes(text)) return *bytes;
  bad_value(kEnvCacheSize, text, "a number of bytes, such as 512M or 2G");
}

std::filesystem::path absolute_path(const char* variable) {
  const char* const value = std::getenv(variable);
  const std::filesystem::path path(value ? value : "");
  return path.is_absolute() ? path : std::filesystem::path();  // as the XDG standard defines it
}

// The error of `work` and its fix, in one line; empty if there is none.
template <class Work>
std::string fault_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.message() + (error.fix().empty() ? "" : fmt::format(" ({})", error.fix()));
  }
  return {};
}

std::string default_folder() {
  if (const auto caches = absolute_path("XDG_CACHE_HOME"); !caches.empty()) return caches / "braze";
  // A home folder that does not exist, as for services, is not made.
  std::error_code error;
  const auto home = absolute_path("HOME");
  if (!home.empty() && std::filesystem::is_directory(home, error)) return home / ".cache" / "braze";
  return {};
}

}  // namespace

std::string_view name(CacheMode mode) {
  constexpr std::string_view kNames[] = {"off", "readonly", "on"};
  return kNames[static_cast<size_t>(mode)];
}

CacheSettings CacheSettings::of_process() {
  CacheSettings settings;
  const Config& given = config();
  const auto mode = given.cache ? given.cache : read_env(kEnvCache);
  if (mode) settings.mode = mode_of(*mode);
  if (given.cache_bytes) {
    settings.max_bytes = *given.cache_bytes;
  } else if (const auto bytes = read_env(kEnvCacheSize)) {
    settings.max_bytes = size_of(*bytes);
  }
  settings.sync = read_env_int(kEnvCacheSync, 0, 1).value_or(0) == 1;
  const auto folder = given.cache_folder ? given.cache_folder : read_env(kEnvCacheDir);
  settings.folder = folder ? *folder : default_folder();
  if (settings.mode == CacheMode::Off) return settings;
  settings.refusal = fault_of([&] { settings.trusted = trusted_keys(); });
  if (const auto path = read_env(kEnvCacheSignKey)) {
    const std::string fault = fault_of([&] {
      settings.sign_key = std::make_shared<const SecretKey>(SecretKey::read(*path));
      settings.trusted.push_back(settings.sign_key->public_key());
    });
    // A key that signs is not needed if nothing is written.
    if (!fault.empty() && settings.mode == CacheMode::On)
      settings.sign_fault = fmt::format("{} is {}: {}", kEnvCacheSignKey.name, quote(*path), fault);
  }
  return settings;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (number.ec != std::errc() || !(value >= 0)) return std::nullopt;
  std::string_view unit(number.ptr, static_cast<size_t>(end - number.ptr));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  double factor = 1;
  if (!unit.empty() && unit != "B") {
    const size_t power = std::string_view("KMGT").find(unit[0]);
    const std::string_view rest = unit.substr(1);
    if (power == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "iB"))
      return std::nullopt;
    factor = std::ldexp(1.0, 10 * static_cast<int>(power + 1));
  }
  const double bytes = value * factor;
  if (!(bytes < 0x1p63)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

}  // namespace braze
