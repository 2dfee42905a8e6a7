#include "runtime/devices/cpu/image.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "ir/support/text.h"
#include "runtime/devices/driver.h"

namespace braze {

CodeImage::CodeImage(std::string_view bytes) {
  if (bytes.empty()) return;
  void* address =
      mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    fail(codes::kOutOfMemory, fmt::format("no memory is left for {} of code: {}",
                                          bytes_text(bytes.size()), std::strerror(errno)));
  }
  base_ = static_cast<std::byte*>(address);
  size_ = bytes.size();
  std::memcpy(base_, bytes.data(), bytes.size());
  if (mprotect(base_, size_, PROT_READ | PROT_EXEC) != 0) {
    const int error = errno;
    munmap(base_, size_);  // no destructor runs
    fail(codes::kUnsupportedProgram,
         fmt::format("this system does not let a process make code executable: {}",
                     std::strerror(error)),
         {.location = {}, .node = "", .fix = "use the device \"interpreter\""});
  }
}

CodeImage::~CodeImage() {
  if (base_) munmap(base_, size_);
}

}  // namespace braze
