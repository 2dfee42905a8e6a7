// whole.h — judges what `distribute` makes: all devices together return what the graph of whole
// tensors says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "compiler/passes/distribute.h"
#include "ir/graph/interpret.h"
#include "ir/graph/reference.h"
#include "ir/graph/shards.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"

namespace braze::testing {

/// The shard of a device.
inline HostTensor shard_of(const HostTensor& whole, const Sharding& sharding,
                           std::span<const MeshAxis> mesh, size_t device) {
  const std::vector<int64_t> places = places_of(mesh, static_cast<int64_t>(device));
  std::vector<int64_t> shape = whole.shape(), first(shape.size(), 0);
  for (size_t axis = 0; axis < sharding.axes().size(); ++axis)
    for (size_t k = 0; k < mesh.size(); ++k)
      if (mesh[k].name == sharding.axes()[axis]) {
        shape[axis] /= mesh[k].size;
        first[axis] = places[k] * shape[axis];
      }
  HostTensor shard(whole.dtype(), shape);
  for (int64_t i = 0; i < shard.numel(); ++i) {
    int64_t rest = i, from = 0, stride = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      from += (rest % shape[axis] + first[axis]) * stride;
      rest /= shape[axis];
      stride *= whole.shape()[axis];
    }
    shard.set_bits(i, whole.get_bits(from));
  }
  return shard;
}

/// The inputs of every device.
inline std::vector<std::vector<HostTensor>> shards_of(std::span<const HostTensor> whole,
                                                      std::span<const Sharding> shardings,
                                                      std::span<const MeshAxis> mesh) {
  std::vector<std::vector<HostTensor>> out(static_cast<size_t>(device_count(mesh)));
  for (size_t device = 0; device < out.size(); ++device)
    for (size_t i = 0; i < whole.size(); ++i)
      out[device].push_back(shard_of(whole[i], shardings[i], mesh, device));
  return out;
}

/// Whether what each device may return lies where the graph of whole tensors allows it.
inline ::testing::AssertionResult is_as_whole(const Graph& graph, const Distributed& distributed,
                                              std::span<const MeshAxis> mesh,
                                              std::span<const HostTensor> inputs) {
  const auto wrong = [&] {
    return ::testing::AssertionFailure() << to_text(graph) << "\nbecomes\n"
                                         << to_text(distributed.graph) << "\n";
  };
  if (const auto findings = verify(distributed.graph); !findings.empty())
    return wrong() << findings[0].to_string();
  const std::vector<AxisSet> varying = varying_axes(distributed.graph);
  const std::vector<Bounded> expected = reference(graph, inputs);
  const auto shards = shards_of(inputs, distributed.inputs, mesh);
  const AllShards all = all_shards(distributed.graph, mesh);
  const std::vector<Bounded> got = reference(all.graph, inputs_of(all, shards));
  size_t next = 0;
  for (size_t device = 0; device < shards.size(); ++device) {
    for (size_t o = 0; o < expected.size(); ++o, ++next) {
      const std::vector<std::string>& axes = distributed.outputs[o].axes();
      for (const MeshAxis& axis : varying[distributed.graph.outputs()[o].node.index])
        if (std::ranges::find(axes, axis.name) == axes.end() && axis.size > 1)
          return wrong() << "output " << o << " differs along " << axis.name;
      const HostTensor wanted = shard_of(expected[o].value, distributed.outputs[o], mesh, device);
      HostTensor bounds(DType::F64, expected[o].value.shape());
      for (int64_t i = 0; i < bounds.numel(); ++i)
        bounds.set_double(i, expected[o].bound[static_cast<size_t>(i)]);
      const HostTensor bound = shard_of(bounds, distributed.outputs[o], mesh, device);
      if (got[next].value.shape() != wanted.shape())
        return wrong() << "output " << o << " on device " << device << " has another shape";
      for (int64_t i = 0; i < wanted.numel(); ++i) {
        const double leeway = bound.get_double(i) + got[next].bound[static_cast<size_t>(i)];
        if (std::isinf(leeway) || std::isnan(leeway)) continue;
        const HostTensor& value = got[next].value;
        if (value.get_bits(i) == wanted.get_bits(i)) continue;
        if (!is_floating(value.dtype())) {
          if (leeway > 0) continue;
        } else {
          const double a = value.get_double(i), b = wanted.get_double(i);
          if ((std::isnan(a) && std::isnan(b)) || a == b || std::abs(a - b) <= leeway) continue;
        }
        return wrong() << "output " << o << " on device " << device << " at " << i << ": "
                       << value.get_double(i) << ", expected " << wanted.get_double(i) << " +- "
                       << leeway;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace braze::testing
