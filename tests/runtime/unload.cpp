// unload.cpp — a program that does not know Braze loads a plug-in that does, and unloads it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace {

void use_once() {
  void* const plugin = dlopen(BRAZE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(plugin, nullptr) << dlerror();
  const auto use = reinterpret_cast<int (*)()>(dlsym(plugin, "use_braze"));
  ASSERT_NE(use, nullptr) << dlerror();
  EXPECT_EQ(use(), 0);
  ASSERT_EQ(dlclose(plugin), 0) << dlerror();
}

TEST(Unload, ThreadsOfTheLibraryOutliveThePlugin) {
  for (int i = 0; i < 2; ++i) {
    use_once();
    // Its threads wake up now and then, in code that has to be there.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (const char* library : {BRAZE_RUNTIME_LIBRARY, BRAZE_LIBRARY}) {
      void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
      EXPECT_NE(handle, nullptr) << library << " was unloaded";
      if (handle) dlclose(handle);
    }
  }
}

}  // namespace
