// unload.cpp — a program that does not know Braze loads a plug-in that does, and unloads it.
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>

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

// Some compilers emit symbols that keep a library loaded by chance; the flag says so on purpose.
bool is_flagged_to_stay(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return false;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_FLAGS_1) return (entry->d_un.d_val & DF_1_NODELETE) != 0;
  return false;
}

TEST(Unload, ThreadsOfTheLibraryOutliveThePlugin) {
  for (int i = 0; i < 2; ++i) {
    use_once();
    // Its threads wake up now and then, in code that has to be there.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (const char* library : {BRAZE_RUNTIME_LIBRARY, BRAZE_LIBRARY}) {
      void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
      ASSERT_NE(handle, nullptr) << library << " was unloaded";
      EXPECT_TRUE(is_flagged_to_stay(handle)) << library;
      dlclose(handle);
    }
  }
}

}  // namespace
