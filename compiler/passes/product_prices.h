// product_prices.h — what the kernels of a product are estimated to take, for passes that choose
// among forms of it.
#pragma once

#include <map>
#include <string>

#include "ir/graph/graph.h"
#include "ir/graph/reference.h"
#include "ir/graph/rewrite.h"
#include "ir/target/target.h"

namespace braze {

/// The kernels of a graph that has one product.
struct ProductKernels {
  size_t count = 0;
  double seconds = 0;
  bool by_copies = false;     ///< whether matrix units get both factors of the product by copies
  bool asynchronous = false;  ///< whether these are the asynchronous ones
};

/// A graph of the product that a pass rewrites alone, with the movements that make its factors.
Graph alone(const Rewriting& step);

/// The estimated time of all kernels of a graph.
double seconds_of(const Graph& graph, const Target& target, Precision precision);

/// Estimates for one GPU. Equal graphs are estimated once, because layers repeat.
class ProductPrices {
 public:
  ProductPrices(const Target& target, Precision precision)
      : target_(target), precision_(precision) {}
  ProductKernels of(const Graph& product);

 private:
  const Target& target_;
  Precision precision_;
  std::map<std::string, ProductKernels> known_;
};

}  // namespace braze
