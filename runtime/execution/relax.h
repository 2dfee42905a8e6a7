// relax.h — an instruction for loops in which a thread waits for another one.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace braze {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace braze
