// A program that uses an installed Braze: one function, compiled at its first call.
#include <braze/braze.h>

#include <iostream>

using namespace braze;

int main() {
  auto f = jit([](Tensor x, Tensor w, Tensor b) { return gelu(dot(x, w) + b); });
  Array x = random::normal({128, 768}), w = random::normal({768, 3072}), b = zeros({3072});
  Array y = f(x, w, b);                   // compiled at the first call, cached after it
  std::cout << y << "\n" << f.explain();  // values; one kernel, and why
}
