// no_cache.cpp — a part of every test: also by hand it runs without the user's own cache.
#include <cstdlib>

namespace {
[[maybe_unused]] const int kNoCache = setenv("BRAZE_CACHE", "off", /*replace=*/0);
}  // namespace
