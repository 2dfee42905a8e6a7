// links.h — what the devices of this machine do together by, in words.
#pragma once

#include <string>

namespace braze::tool {

/// Which GPUs reach the memory of which others; empty with fewer than two.
std::string gpu_links_text();
/// NCCL's version and file, or what is missing and where it can be had.
std::string nccl_text();

}  // namespace braze::tool
