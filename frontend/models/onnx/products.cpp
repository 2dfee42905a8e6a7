// products.cpp — operators that compute sums of products.
#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

// x times `factor`. A factor of 1 is left out, because it changes nothing.
Tensor scaled(const Tensor& x, double factor) {
  if (factor == 1) return x;
  return is_floating(x.dtype()) ? x * factor : cast(cast(x, f64) * factor, x.dtype());
}

Tensor gemm(OnnxNode& n) {
  if (n[0].rank() != 2 || n[1].rank() != 2)
    n.refuse(fmt::format("A is {} and B is {}", n[0].to_string(), n[1].to_string()),
             "Gemm multiplies matrices; MatMul takes more axes");
  if (n.has(2) && n[2].rank() > 2)
    n.refuse(fmt::format("C is {}", n[2].to_string()), "C has two axes at most");
  const Tensor a = n.integer("transA", 0) ? transpose(n[0]) : n[0];
  const Tensor b = n.integer("transB", 0) ? transpose(n[1]) : n[1];
  n.ignore("broadcast");  // it comes from version 6
  const Tensor product = scaled(dot(a, b), n.real("alpha", 1.0));
  // If beta is 0, the third operand is left out. Multiplied by 0, its infinities would become NaN.
  const double beta = n.real("beta", 1.0);
  return n.has(2) && beta != 0 ? product + scaled(n[2], beta) : product;
}

Tensor summed(OnnxNode& n) {
  std::string equation = n.text("equation");
  std::erase(equation, ' ');
  return einsum(equation, n.all());
}

Tensor determinant(OnnxNode& n) {
  const Tensor& x = n[0];
  if (x.rank() < 2 || !x.dim(-1).is_constant() || !(x.dim(-1) == x.dim(-2)))
    n.refuse("the last two axes are no square of a known extent");
  const int64_t size = x.dim(-1).value();
  if (size > 3) n.refuse(fmt::format("determinants of {} rows: 3 at most", size));
  const auto e = [&](int64_t i, int64_t j) {
    const Tensor row = slice(x, -2, Dim(i % size), Dim(i % size + 1));
    return squeeze(slice(row, -1, Dim(j % size), Dim(j % size + 1)), Axes({-2, -1}));
  };
  if (size == 0) return full(x.dtype(), Dims(x.shape().begin(), x.shape().end() - 2), 1);
  if (size == 1) return e(0, 0);
  if (size == 2) return e(0, 0) * e(1, 1) - e(0, 1) * e(1, 0);
  Tensor out;
  for (int64_t j = 0; j < 3; ++j) {
    const Tensor term = e(0, j) * (e(1, j + 1) * e(2, j + 2) - e(1, j + 2) * e(2, j + 1));
    out = out.valid() ? out + term : term;
  }
  return out;
}

}  // namespace

const Rows& product_rows() {
  static const Rows kRows = {
      {"Det", determinant, 11},
      {"Einsum", summed, 12},
      {"Gemm", gemm},
      {"MatMul", [](OnnxNode& n) { return dot(n[0], n[1]); }},
  };
  return kRows;
}

}  // namespace braze::onnx
