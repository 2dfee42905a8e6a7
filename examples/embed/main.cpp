// A program that uses an installed Braze: one function, compiled at its first call.
#include <braze/braze.h>

#include <iostream>

using namespace braze;

int main() {
  auto f = jit([](Tensor x, Tensor w, Tensor b) { return gelu(dot(x, w) + b); });
  const random::Key key(1);
  Array x = random::normal({128, 768}, key.fold_in(0)),
        w = random::normal({768, 3072}, key.fold_in(1));
  Array b = zeros({3072});
  Array y = f(x, w, b);                   // compiled at the first call, cached after it
  std::cout << y << "\n" << f.explain();  // values; one kernel, and why
}
