#include "runtime/cache/disk_cache.h"

#include <algorithm>
#include <new>

#include "braze/error.h"
#include "ir/support/text.h"
#include "ir/support/warning.h"

namespace braze {

namespace {

// The accuracy of "least recently used": changing a file at every use would cost too much.
constexpr auto kTouchAfter = std::chrono::hours(24);
// No writer takes this long for one file.
constexpr auto kOrphanAge = std::chrono::hours(1);

// Whether the folder takes no files now, and will not take any soon.
bool is_lasting(std::error_code error) {
  constexpr int kLasting[] = {ENOSPC, EDQUOT, EROFS, EACCES, EPERM, EFBIG};
  return std::find(std::begin(kLasting), std::end(kLasting), error.value()) != std::end(kLasting);
}

}  // namespace

EntryView view_entry(const CacheFolder::Reading& file, std::string_view name,
                     const PublicKeys& trusted) {
  if (!file.fault.empty()) return {.fault = file.fault};
  if (file.untrusted && file.bytes.empty()) return {.fault = "it is empty or not a regular file"};
  const SignedBytes parts = split_signature(std::as_bytes(std::span(file.bytes)));
  EntryView entry =
      parse_entry({reinterpret_cast<const char*>(parts.content.data()), parts.content.size()});
  if (!entry.fault.empty()) return entry;
  // If it stayed, it would block the entry that belongs there.
  if (entry.name() != name) return {.fault = "it is the entry of another name"};
  if (trusted.empty()) {
    if (file.untrusted) entry.fault = "others could have written it";
  } else if (file.untrusted || parts.signer) {
    entry.fault = signature_fault(parts, trusted);
  }
  return entry;
}

DiskCache::DiskCache(CacheSettings settings, Warn warn)
    : settings_(std::move(settings)), warn_(warn ? std::move(warn) : Warn(braze::warn)) {}

DiskCache& DiskCache::of_process() {
  static auto* const cache = new DiskCache(CacheSettings::of_process());  // never destroyed
  return *cache;
}

bool DiskCache::enabled() { return folder() != nullptr; }

const CacheFolder* DiskCache::folder() {
  if (settings_.mode == CacheMode::Off) return nullptr;
  std::call_once(opened_, [this] { open_folder(); });
  return folder_ ? &*folder_ : nullptr;
}

void DiskCache::open_folder() {
  if (!settings_.sign_fault.empty())
    warn_once("new entries are not signed: " + settings_.sign_fault);
  try {
    if (!settings_.refusal.empty())
      return warn_once("the cache of compiled programs is off: " + settings_.refusal);
    if (settings_.folder.empty())
      return warn_once(
          "the cache of compiled programs is off: neither HOME nor BRAZE_CACHE_DIR "
          "names a folder");
    folder_ = CacheFolder::open(settings_.folder, settings_.mode == CacheMode::On,
                                !settings_.trusted.empty());
  } catch (const Error& error) {
    // If nothing may be made, there may be nothing.
    if (settings_.mode == CacheMode::ReadOnly && error.kind() == ErrorKind::NotFound) return;
    const std::string fix = error.fix().empty() ? "" : fmt::format(" ({})", error.fix());
    warn_once(fmt::format("the cache of compiled programs is off: {}{}", error.message(), fix));
  }
}

void DiskCache::warn_once(const std::string& text) {
  std::call_once(warned_, [&] { warn_(text + "; BRAZE_CACHE=off silences this"); });
}

// A file that only others can remove would keep a program out of the cache for ever.
void DiskCache::note_blocked(const CacheFolder::Reading& file, const std::string& name,
                             std::string_view fault) {
  if (folder_->shared())
    warn_once(
        fmt::format("{}/{}, a file of user {}, cannot be used and cannot be replaced: {} (that "
                    "user, or the owner of the folder, can remove it)",
                    folder_->path(), name, file.owner, fault));
}

std::optional<std::string> DiskCache::miss() {
  const std::lock_guard lock(mutex_);
  ++stats_.misses;
  return std::nullopt;
}

std::optional<std::string> DiskCache::load(const CacheKey& key) try {
  const CacheFolder* const folder = this->folder();
  if (!folder) return std::nullopt;
  const std::string name = key.name();
  CacheFolder::Reading file = folder->read(name);
  if (file.error == std::errc::no_such_file_or_directory) return miss();
  // A file that could not be read today may be readable tomorrow.
  if (file.error && !file.untrusted) {
    if (file.error == std::errc::permission_denied) note_blocked(file, name, "it cannot be read");
    const std::lock_guard lock(mutex_);
    ++stats_.unread;
    ++stats_.misses;
    return std::nullopt;
  }
  const EntryView entry = view_entry(file, name, settings_.trusted);
  if (!entry.fault.empty()) {
    // A complete and signed file in a shared folder may be useful to others.
    const bool is_signed = split_signature(std::as_bytes(std::span(file.bytes))).signer.has_value();
    const bool stays = folder->shared() && is_signed && !entry.key.empty();
    const bool removed = !stays && writable() && !folder->remove(name);
    if (!stays && !removed) note_blocked(file, name, entry.fault);
    const std::lock_guard lock(mutex_);
    ++stats_.faulty;
    ++stats_.misses;
    return std::nullopt;
  }
  if (entry.key != key.text()) return miss();
  if (writable() && CacheClock::now() - file.used > kTouchAfter) folder->touch(name);
  const std::lock_guard lock(mutex_);
  ++stats_.hits;
  const size_t at = static_cast<size_t>(entry.payload.data() - file.bytes.data());
  file.bytes.resize(at + entry.payload.size());
  file.bytes.erase(0, at);
  return std::move(file.bytes);
} catch (const std::bad_alloc&) {
  return miss();
}

void DiskCache::store(const CacheKey& key, std::string_view payload) try {
  const CacheFolder* const folder = this->folder();
  if (!folder || !writable()) return;
  std::string file = entry_file(key.text(), payload);
  if (settings_.sign_key) {
    Signer signer(*settings_.sign_key);
    signer.append(std::as_bytes(std::span(file)));
    file += signer.finish();
  }
  if (file.size() > std::min(settings_.max_bytes, kMostEntryBytes)) return;
  const std::error_code error =
      folder->publish(key.name(), file, settings_.sync, /*for_all=*/settings_.sign_key != nullptr);
  if (error) return note_write_error(error);
  bool look = false;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.stored;
    // One process may fill a sixteenth more than the others know.
    look = unaccounted_bytes_ > settings_.max_bytes / 16;
    unaccounted_bytes_ = look ? 0 : unaccounted_bytes_ + file.size();
  }
  if (look) make_room();
} catch (const std::bad_alloc&) {
  // not cached
}

void DiskCache::remove(const CacheKey& key) {
  const CacheFolder* const folder = this->folder();
  if (folder && writable()) folder->remove(key.name());
}

void DiskCache::note_write_error(std::error_code error) {
  {
    const std::lock_guard lock(mutex_);
    ++stats_.unstored;
  }
  if (is_lasting(error)) read_only_ = true;
  warn_once(fmt::format("new entries are not stored in {}: {}", settings_.folder, error.message()));
}

// Other processes may do the same at the same time. They see the same order, and a file that is
// already gone counts as removed.
void DiskCache::make_room() {
  for (const CacheFolder::File& file : folder_->orphans(kOrphanAge)) folder_->remove(file.name);
  uint64_t evicted = 0;
  // Removes a little more than needed, so that the next store need not look again. Files of others,
  // which only they can remove, do not count against this user.
  std::vector<CacheFolder::File> entries = folder_->entries();
  std::erase_if(entries, [](const CacheFolder::File& file) { return !file.removable; });
  if (superfluous(entries, settings_.max_bytes).empty()) return;
  for (const CacheFolder::File& file :
       superfluous(entries, settings_.max_bytes - settings_.max_bytes / 8))
    evicted += !folder_->remove(file.name);
  const std::lock_guard lock(mutex_);
  stats_.evicted += evicted;
}

DiskCache::Stats DiskCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace braze
