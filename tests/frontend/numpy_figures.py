#!/usr/bin/env python3
"""Writes numpy_figures.h: indexing and contractions as NumPy computes them, group_norm as PyTorch does.

    pip install numpy torch; python3 tests/frontend/numpy_figures.py > tests/frontend/numpy_figures.h
"""
import numpy as np
import torch


def array(name, values):
    """The elements, after the shape."""
    values = np.asarray(values, dtype=np.float64)
    lines, line = [], "   "
    for value in values.flatten().tolist():
        item = f" {value!r},"
        if len(line) + len(item) > 100:
            lines.append(line)
            line = "   "
        line += item
    shape = ", ".join(str(extent) for extent in values.shape)
    print(f"inline const Figure {name} = {{{{{shape}}}, {{")
    print("\n".join(lines + [line]) + "\n}};")


def numbers(*shape):
    """Whole numbers without order, as `numbers` in words_test.cpp makes them."""
    count = int(np.prod(shape))
    return (np.arange(count) * 7 % 11 - 5.0).reshape(shape)


print(f"// numpy_figures.h: made by numpy_figures.py with NumPy {np.__version__} and "
      f"PyTorch {torch.__version__.split('+')[0]}.")
print("""#pragma once

#include <cstdint>
#include <vector>

namespace braze::numpy {

struct Figure {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
""")

x = numbers(3, 4, 5)
array("kPlace", x[1])
array("kPlaces", x[-1, 2])
array("kRange", x[:, 1:-1])
array("kSteps", x[::2, 1::2, 4:0:-2])
array("kBackwards", x[::-1, ..., ::-1])
array("kNewAxes", x[np.newaxis, ..., 0, np.newaxis])
array("kRepeat", np.repeat(x, 2, axis=1))
array("kTile", np.tile(x, (1, 2, 2)))
array("kTril", np.tril(x))
array("kTrilAbove", np.tril(x, 1))
array("kTriu", np.triu(x))
array("kTriuBelow", np.triu(x, -1))
array("kChunk", np.concatenate([c.reshape(-1) for c in torch.tensor(x).chunk(3, dim=2)]))
indices = np.array([[[2], [0], [1], [2]]])
array("kTakeFirst", np.take_along_axis(x, np.broadcast_to(indices, (1, 4, 5)), axis=0))
array("kTakeLast", np.take_along_axis(x, np.broadcast_to(np.array([4, 0]), (3, 4, 2)), axis=2))

a, b, c = numbers(3, 4), numbers(4, 5), numbers(5, 2)
s, t = numbers(4, 4), numbers(2, 3, 4, 4)
for name, equation, operands in [
    ("kProduct", "ij,jk->ik", (a, b)),
    ("kImplied", "ij,jk", (a, b)),
    ("kSorted", "ba", (a,)),
    ("kTransposed", "ij,jk->ki", (a, b)),
    ("kDiagonal", "ii->i", (s,)),
    ("kTrace", "ii", (s,)),
    ("kTraces", "...ii->...", (t,)),
    ("kSum", "ijk->j", (x,)),
    ("kOuter", "i,j->ij", (a[0], b[0])),
    ("kElementwise", "ij,ij->ij", (a, a + 1)),
    ("kThree", "ij,jk,kl->il", (a, b, c)),
    ("kBatched", "bij,bkj->bik", (x, x + 1)),
    ("kRest", "...ij,jk->...ik", (t, s)),
    ("kBroadcast", "...ij,...jk->...ik", (t, numbers(3, 4, 2))),
    ("kDiagonalOfProduct", "ij,ji->i", (a, a.T + 1)),
    ("kWeighted", "bij,j,b->i", (x, b[0], a[:, 0])),
    ("kOne", "ij,ij->i", (a, a[:, :1])),
]:
    array(name, np.einsum(equation, *operands))

image = torch.tensor(numbers(2, 6, 2, 3) / 4)
scale, shift = torch.tensor(numbers(6) / 2), torch.tensor(numbers(6))
array("kGroupNorm", torch.nn.functional.group_norm(image, 3, scale, shift, 1e-5))
print("\n}  // namespace braze::numpy")
