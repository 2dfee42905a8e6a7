// child.h — children that tests fork.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace braze::test {

// What the threads of its parent would have freed is no leak of a child.
inline bool is_forked_child = false;
extern "C" __attribute__((used)) inline int __lsan_is_turned_off() { return is_forked_child; }

/// Has a forked child run `body`, with expectations of its own, and exit as programs do, through
/// static destructors. "" if it did so in time without a failure, else what became of it.
template <class Body>
std::string fate_of_child(const Body& body) {
  constexpr auto kDeadline = std::chrono::seconds(60);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return "no child was made";
  if (child == 0) {
    is_forked_child = true;
    body();
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  }
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return "it hung";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "exit " + std::to_string(WEXITSTATUS(status));
}

}  // namespace braze::test
