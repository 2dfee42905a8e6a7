// cache.h — the cache on disk, for the commands of the tool.
#pragma once

#include <optional>
#include <string>

#include "runtime/cache/cache_folder.h"
#include "runtime/cache/cache_settings.h"

namespace braze::tool {

/// The cache that the environment describes.
struct CacheView {
  CacheSettings settings;
  std::optional<CacheFolder> folder = {};  ///< none if it does not exist yet, or is refused
  std::string refusal = {};                ///< the reason why it is refused
  std::string state = {};                  ///< "on", "readonly", "off", "on, empty", "off: ..."
};

CacheView view_cache();

/// "on, /home/someone/.cache/braze, 12 programs, 1.2 MiB of 1 GiB".
std::string summary(const CacheView& cache);

}  // namespace braze::tool
