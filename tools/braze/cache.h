// cache.h — the cache on disk, as the tool sees it.
#pragma once

#include <optional>
#include <string>

#include "runtime/cache/cache_folder.h"
#include "runtime/cache/cache_settings.h"

namespace braze::tool {

/// The cache that the environment describes.
struct CacheView {
  CacheSettings settings;
  std::optional<CacheFolder> folder = {};  ///< none where there is none yet, or it is refused
  std::string refusal = {};                ///< why it is
  std::string state = {};  ///< "on", "readonly", "off", "on, nothing is kept yet", "off: ..."
};

CacheView view_cache();

/// "on, /home/someone/.cache/braze, 12 programs, 1.2 MiB of 1 GiB".
std::string summary(const CacheView& cache);

}  // namespace braze::tool
