// cache_support.h — folders, entries and processes for tests of the disk cache.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/cache/disk_cache.h"
#include "tests/temporary_folder.h"

namespace braze::test {

inline CacheKey key_of(int number) {
  CacheKey key;
  key.add("format", "test");
  key.add("number", std::to_string(number));
  return key;
}

/// What belongs under that key: every byte depends on the number and its place. From 1 B to ~190
/// KiB, so that some writers are caught in the middle.
inline std::string payload_of(int number) {
  auto state = static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15ull + 1;
  std::string bytes(1 + static_cast<size_t>(number) * 7919 % 190'000, '\0');
  for (char& byte : bytes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  std::filesystem::permissions(path, std::filesystem::perms(0600));
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    names.push_back(file.path().filename());
  return names;
}

/// Starts a process that does `work` and exits with what it returns; 99 stands for an exception.
template <class Work>
pid_t start_process(Work&& work) {
  const pid_t process = fork();
  if (process != 0) return process;
  try {
    _exit(work());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(99);
  }
}

/// Its exit status; minus the signal that ended it.
inline int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// What `check` returns where it runs as a user who is not root, to whom `folder` is given.
template <class Check>
int as_other_user(const std::filesystem::path& folder, Check&& check) {
  constexpr uid_t kOther = 12345;
  if (geteuid() != 0) return check();
  if (chown(folder.c_str(), kOther, kOther) != 0) return -1;
  return wait_for(start_process([&] { return setuid(kOther) == 0 ? check() : -1; }));
}

}  // namespace braze::test
