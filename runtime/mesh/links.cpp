#include "runtime/mesh/links.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>

#include "ir/support/text.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/io/file_writer.h"
#include "runtime/io/trust.h"
#include "runtime/mesh/mesh_state.h"
#include "runtime/ranks/ranks.h"

namespace braze {

namespace {

constexpr size_t kMostBytes = 4096;

// The figures as the text of a Target. Fields that it does not name have the table's values.
std::string text_of(const Target& target) {
  // A measurement has no more correct digits.
  return fmt::format("{} link={:.3g} links={:.3g}", target.name, target.link_seconds,
                     target.link_bytes_per_second);
}

void take_links(Target& target, std::string_view text) {
  const Target measured = parse_target(text);
  if (measured.name != target.name)
    fail(codes::kLinkFigures,
         fmt::format("they are for {}, not for {}", measured.name, target.name));
  target.link_seconds = measured.link_seconds;
  target.link_bytes_per_second = measured.link_bytes_per_second;
}

std::string read(const std::string& path) {
  const Descriptor file = open_trusted_file(path);
  std::string text(kMostBytes, '\0');
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got < 0) fail_open(path, errno);
  text.resize(static_cast<size_t>(got));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::string links_file(const Target& target) {
  const CacheSettings& settings = DiskCache::of_process().settings();
  if (settings.mode == CacheMode::Off || settings.folder.empty() || target.simulated) return {};
  return std::filesystem::path(settings.folder) / ("links-" + target.name);
}

Target with_links(Target target) {
  const std::string path = links_file(target);
  if (path.empty()) return target;
  try {
    take_links(target, read(path));
  } catch (const Error& error) {
    if (&error.code() == &codes::kFileMissing) return target;
    fail(codes::kLinkFigures,
         fmt::format("the figures of links in {} cannot be used: {}", quote(path), error.message()),
         {.location = {},
          .node = "",
          .fix = "run `braze doctor --calibrate` again, or remove the file"});
  }
  return target;
}

void keep_links(const Target& target) {
  const std::string path = links_file(target);
  if (path.empty() || DiskCache::of_process().settings().mode != CacheMode::On)
    fail(codes::kLinkFigures, "there is no cache folder that may be changed to keep the figures in",
         {.location = {}, .node = "", .fix = "set BRAZE_CACHE=on and BRAZE_CACHE_DIR"});
  CacheFolder::open(DiskCache::of_process().settings().folder, /*make=*/true);
  FileWriter file(path, FileWriter::kCode);
  file.append(text_of(target) + "\n");
  file.publish();
}

Target target_of(const Mesh& mesh) {
  Target target = mesh.devices()[0].target();
  Ranks* const ranks = mesh.state()->ranks;
  if (!ranks) return with_links(std::move(target));
  // The figures are shared once for each kind of machine. If they are measured again meanwhile, the
  // processes still agree.
  static std::mutex mutex;
  static std::map<std::string, std::string> shared;
  const std::lock_guard lock(mutex);
  auto known = shared.find(target.name);
  if (known == shared.end()) {
    const auto make = [&] { return text_of(with_links(target)); };
    known = shared.emplace(target.name, ranks->share("links-" + target.name, 0, make)).first;
  }
  take_links(target, known->second);
  return target;
}

}  // namespace braze
