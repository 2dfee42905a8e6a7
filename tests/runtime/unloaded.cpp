// unloaded.cpp — a plug-in that uses Braze and is unloaded while threads of the library live.
#include "braze/braze.h"

extern "C" __attribute__((visibility("default"))) int use_braze() {
  using namespace braze;
  const auto f = jit([](Tensor x) { return exp(x) + x; });
  Array x = zeros({1 << 20}, f32, "cpu");
  for (int i = 0; i < 10; ++i) x = f(x);
  return x.to_vector<float>()[5] > 0 ? 0 : 1;
}
