// no_threads.h — a process in which no thread can be started, for tests of what happens then.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>

namespace braze::test {

/// While it lives, a new thread would get a stack that is larger than all address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 48);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
    EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  }
  ~NoThreads() { pthread_setattr_default_np(&before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace braze::test
