#include "braze/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <functional>
#include <optional>
#include <set>

#include "ir/graph/shards.h"
#include "ir/support/text.h"
#include "ir/values/host_tensor.h"
#include "runtime/execution/captured_error.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/unknown_tensor.h"
#include "runtime/memory/array_state.h"
#include "runtime/mesh/mesh_state.h"
#include "runtime/ranks/ranks.h"

namespace braze {

namespace codes {
inline constexpr Code kCheckpointBlocks{"checkpoint-blocks", ErrorKind::DataLoss,
                                        "The blocks of a checkpoint do not make up its arrays."};
inline constexpr Code kCheckpointRank{"checkpoint-rank", ErrorKind::Device,
                                      "Another process could not write its part of a checkpoint."};
inline constexpr Code kCheckpointArrays{"checkpoint-arrays", ErrorKind::InvalidArgument,
                                        "A checkpoint does not have the arrays asked for, or "
                                        "cannot hold those that are given."};
}  // namespace codes

namespace {

/// A block of an array: along each axis, its first index and the index after its last one.
struct Block {
  std::vector<int64_t> begin, end;
};

std::string block_name(const std::string& name, const Block& block) {
  std::vector<std::string> ranges;
  for (size_t axis = 0; axis < block.begin.size(); ++axis)
    ranges.push_back(fmt::format("{}:{}", block.begin[axis], block.end[axis]));
  return fmt::format("{}[{}]", name, fmt::join(ranges, ", "));
}

/// The name of the array, and the block, if the text is the name of a block.
std::pair<std::string, std::optional<Block>> parse_name(const std::string& text) {
  const size_t open = text.rfind('[');
  if (open == std::string::npos || !text.ends_with(']')) return {text, std::nullopt};
  Block block;
  const char* at = text.data() + open + 1;
  const char* const last = text.data() + text.size() - 1;
  const auto number = [&](char behind, int64_t& value) {
    const auto [end, error] = std::from_chars(at, last, value);
    if (error != std::errc() || value < 0) return false;
    at = end;
    if (behind == ',' && at == last) return true;
    if (at == last || *at != behind) return false;
    for (++at; behind == ',' && at != last && *at == ' ';) ++at;
    return true;
  };
  while (at != last) {
    int64_t begin = 0, end = 0;
    if (!number(':', begin) || !number(',', end) || end < begin) return {text, std::nullopt};
    block.begin.push_back(begin);
    block.end.push_back(end);
  }
  return {text.substr(0, open), std::move(block)};
}

/// The block of the device at `place`.
Block block_of(const Array::Spread& spread, size_t place) {
  const std::vector<MeshAxis>& axes = spread.mesh.axes();
  const std::vector<int64_t> places = places_of(axes, static_cast<int64_t>(place));
  Block block{std::vector<int64_t>(spread.shape.size(), 0), spread.shape};
  for (size_t axis = 0; axis < spread.sharding.axes().size(); ++axis)
    for (size_t k = 0; k < axes.size(); ++k)
      if (axes[k].name == spread.sharding.axes()[axis]) {
        const int64_t size = spread.shape[axis] / axes[k].size;
        block.begin[axis] = places[k] * size;
        block.end[axis] = block.begin[axis] + size;
      }
  return block;
}

/// An array of a checkpoint, and where its blocks are.
struct Stored {
  std::optional<DType> dtype;
  std::vector<int64_t> shape;
  std::vector<std::pair<Block, const StoredTensor*>> blocks;
};

std::map<std::string, Stored> arrays_of(const SafetensorsFile& file) {
  std::map<std::string, Stored> out;
  for (const auto& [text, tensor] : file.tensors()) {
    auto [name, block] = parse_name(text);
    if (!block) block = Block{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
    Stored& stored = out[name];
    bool fits = block->begin.size() == tensor.shape.size();
    for (size_t axis = 0; fits && axis < tensor.shape.size(); ++axis)
      fits = block->end[axis] - block->begin[axis] == tensor.shape[axis];
    if (stored.blocks.empty()) {
      stored.dtype = tensor.dtype;
      stored.shape = block->end;
    }
    fits = fits && stored.dtype == tensor.dtype && stored.shape.size() == tensor.shape.size();
    if (!fits)
      fail(codes::kCheckpointBlocks, fmt::format("{}: the tensor {} is no block of the array {}",
                                                 file.path(), quote(text), quote(name)));
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis)
      stored.shape[axis] = std::max(stored.shape[axis], block->end[axis]);
    stored.blocks.emplace_back(std::move(*block), &tensor);
  }
  return out;
}

/// Copies a block to its place in the whole array.
void copy_block(const HostTensor& from, const Block& block, HostTensor& whole) {
  const size_t rank = whole.shape().size();
  if (from.numel() == 0) return;
  const size_t element = size_of(whole.dtype());
  const int64_t row = rank == 0 ? 1 : from.shape()[rank - 1];
  for (int64_t i = 0; i < from.numel(); i += row) {
    int64_t rest = rank == 0 ? 0 : i / row, place = 0, stride = 1;
    for (size_t axis = rank; axis-- > 0;) {
      int64_t at = block.begin[axis];
      if (axis + 1 < rank) {
        at += rest % from.shape()[axis];
        rest /= from.shape()[axis];
      }
      place += at * stride;
      stride *= whole.shape()[axis];
    }
    std::memcpy(whole.data() + static_cast<size_t>(place) * element,
                from.data() + static_cast<size_t>(i) * element, static_cast<size_t>(row) * element);
  }
}

bool meet(const Block& a, const Block& b) {
  for (size_t axis = 0; axis < a.begin.size(); ++axis)
    if (std::max(a.begin[axis], b.begin[axis]) >= std::min(a.end[axis], b.end[axis])) return false;
  return true;
}

HostTensor whole(const SafetensorsFile& file, const std::string& name, const Stored& stored) {
  const auto refuse = [&](const char* why) {
    fail(codes::kCheckpointBlocks,
         fmt::format("{}: the array {} {}", file.path(), quote(name), why),
         {.location = {}, .node = "", .fix = "look for files that are missing, or of another run"});
  };
  // Blocks that do not overlap, and have as many elements as the array, cover the array.
  int64_t elements = 1, held = 0;
  for (const int64_t extent : stored.shape)
    if (__builtin_mul_overflow(elements, extent, &elements)) refuse("is too large");
  std::vector<HostTensor> values;
  for (size_t i = 0; i < stored.blocks.size(); ++i) {
    values.push_back(to_array(*stored.blocks[i].second, "cpu").to_host());
    held += values.back().numel();
    for (size_t j = 0; j < i; ++j)
      if (meet(stored.blocks[i].first, stored.blocks[j].first))
        refuse("has blocks that lie across each other");
  }
  if (held != elements) refuse("lacks a block");
  HostTensor out(values[0].dtype(), stored.shape);
  for (size_t i = 0; i < values.size(); ++i) copy_block(values[i], stored.blocks[i].first, out);
  return out;
}

/// Does this rank's part of something that all ranks do, and then waits for the others. If one of
/// them could not do its part, all of them throw; nothing is lost, and they may try again.
void agree(Ranks* ranks, const std::function<void()>& part) {
  if (!ranks) return part();
  CapturedError own;
  std::string failure;
  try {
    part();
  } catch (const std::exception& error) {
    own = CapturedError::current();
    failure = error.what();
    // The text must fit in one small message.
    failure.resize(std::min<size_t>(failure.size(), 1000));
  }
  static std::atomic<uint64_t> steps{0};
  const std::vector<std::string> failures =
      ranks->gather(fmt::format("checkpoint-{}", ++steps), failure);
  own.rethrow();
  for (size_t rank = 0; rank < failures.size(); ++rank)
    if (!failures[rank].empty())
      fail(codes::kCheckpointRank,
           fmt::format("rank {} could not write its part of the checkpoint: {}", rank,
                       failures[rank]),
           {.location = {}, .node = "", .fix = "all ranks can try again, with another path"});
}

}  // namespace

void save_checkpoint(const std::string& index_path, const std::map<std::string, Array>& arrays) {
  const Array::Spread* any = nullptr;
  for (const auto& [name, array] : arrays) {
    const auto refuse = [&, &name = name](const std::string& why, std::string fix) {
      fail(codes::kCheckpointArrays, fmt::format("the array {} {}", quote(name), why),
           {.location = {}, .node = "", .fix = std::move(fix)});
    };
    if (name.ends_with(']')) refuse("has a name that ends in ']', as those of blocks do", "");
    if (!array.valid()) refuse("is an empty Array", "");
    if (!array.is_spread()) continue;
    if (any && !(any->mesh == array.spread()->mesh))
      refuse("is over another mesh than those before it", "save what each mesh has on its own");
    any = array.spread().get();
  }
  std::vector<std::vector<NamedArray>> files(any ? any->mesh.size() : 1);
  for (const auto& [name, array] : arrays) {
    if (!array.is_spread()) {
      files[0].push_back({name, array, array.size_bytes()});
      continue;
    }
    const Array::Spread& spread = *array.spread();
    std::set<std::string> written;
    uint64_t bytes = size_of(spread.dtype);
    for (const int64_t extent :
         shard_shape(spread.shape, spread.sharding, spread.mesh, quote(name)))
      bytes *= static_cast<uint64_t>(extent);
    for (size_t place = 0; place < spread.shards.size(); ++place) {
      const std::string block =
          spread.sharding.is_replicated() ? name : block_name(name, block_of(spread, place));
      if (written.insert(block).second)
        files[place].push_back({block, spread.shards[place], bytes});
    }
  }
  Ranks* const ranks = any ? any->mesh.state()->ranks : nullptr;
  // The index is written when all files are complete, and processes return when it is written.
  agree(ranks, [&] { save_parts(index_path, files, {}); });
  agree(ranks, [&] {
    if (!ranks || ranks->rank() == any->mesh.state()->rank_of(0)) save_index(index_path, files);
  });
}

std::map<std::string, Array> load_checkpoint(const std::string& index_path,
                                             const std::map<std::string, Array>& like) {
  const SafetensorsFile file = SafetensorsFile::open(index_path);
  const std::map<std::string, Stored> stored = arrays_of(file);
  std::map<std::string, Array> out;
  for (const auto& [name, wanted] : like) {
    const auto found = stored.find(name);
    if (found == stored.end()) fail_unknown_tensor(index_path, name, stored);
    const HostTensor value = whole(file, name, found->second);
    if (value.dtype() != wanted.dtype() || value.shape() != wanted.shape())
      fail(codes::kCheckpointArrays,
           fmt::format("{}: the array {} is {}, not {}", index_path, quote(name),
                       type_text(value.dtype(), value.shape()),
                       type_text(wanted.dtype(), wanted.shape())));
    if (!wanted.is_spread()) {
      out.emplace(name, Array::from_host(value, wanted.device()));
      continue;
    }
    const Array::Spread& spread = *wanted.spread();
    out.emplace(name, Array::from_host(value, "cpu").to(spread.mesh, spread.sharding));
  }
  return out;
}

std::map<std::string, Array> load_checkpoint(const std::string& index_path, const Device& device) {
  const SafetensorsFile file = SafetensorsFile::open(index_path);
  std::map<std::string, Array> out;
  for (const auto& [name, stored] : arrays_of(file))
    out.emplace(name, Array::from_host(whole(file, name, stored), device));
  return out;
}

}  // namespace braze
