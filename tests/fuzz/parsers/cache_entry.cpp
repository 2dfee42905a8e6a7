// cache_entry.cpp — files of the cache on disk. Every input is tried as it is, and with the
// checksum that it should have. The programs in them are the target `program`.
#include "runtime/cache/cache_entry.h"

#include <cstring>

#include "tests/fuzz/parsers/target.h"

const bool braze::fuzz::kIsText = false;

namespace {

using namespace braze;

void check(std::string_view file) {
  const EntryView entry = parse_entry(file);
  if (!entry.fault.empty()) return;
  if (entry_file(entry.key, entry.payload) != file)
    fuzz::stop("an entry does not read back as it was written", "");
  if (!differences(entry.key, entry.key).empty()) fuzz::stop("a key differs from itself", "");
  differences(entry.key, entry.payload);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  check(file);
  if (size < sizeof(Hash128)) return 0;
  const size_t end = size - sizeof(Hash128);
  const Hash128 hash = hash128(std::string_view(file).substr(0, end));
  std::memcpy(file.data() + end, &hash, sizeof(hash));
  check(file);
  return 0;
}
