// An NCCL of host memory, in the library of the fake driver, whose streams it shares. A collective
// happens when the first of its devices comes to it, and then for all of them, which are brought
// there: as late as it may. That a device waits for one that another never called, that two devices
// call different ones, and that a stream is not the communicator's are counted as misuse.
//
// Processes meet in a folder, whose name is the group's id. What a device brings along stands there
// in a file TURN.RANK, from when the operation is issued; the others wait for it when they come to
// theirs. A failure that is planned for an "exchange" is found only while that one is under way, as
// when another host is out of reach.
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/devices/cuda/nccl_api.h"
#include "tests/runtime/cuda/fake_streams.h"

namespace braze::cuda {

namespace {

using namespace braze::test;

struct Operation {
  std::string kind;
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  ncclDataType_t dtype{};
  ncclRedOp_t op{};
  int root = 0;
  CUstream stream = nullptr;
  uint64_t position = 0;
};

/// What all communicators of one group share.
struct World {
  int size = 0;
  std::atomic<bool> aborted = false;
  // What NCCL finds while an exchange is under way, which then goes on until it is aborted.
  std::atomic<ncclResult_t> broken = ncclSuccess;
  int inside = 0;      // threads in calls
  std::string folder;  // empty: all are in this process
  struct Turn {
    std::map<int, Operation> parts;  // by rank
    bool done = false;
  };
  std::map<uint64_t, Turn> turns;
};

struct Message {
  bool is_send = false;
  const void* from = nullptr;
  void* to = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

}  // namespace
}  // namespace braze::cuda

struct braze::cuda::ncclComm {
  std::shared_ptr<World> world;
  int rank = 0, device = 0;
  uint64_t calls = 0;
  int splits = 0;
};

namespace braze::cuda {
namespace {

// A group of calls begins when it ends, and not at all if one of them has failed. Its messages are
// one operation. What this thread's group has so far:
thread_local std::vector<std::pair<ncclComm_t, Message>> group;
thread_local CUstream group_stream = nullptr;
thread_local std::vector<std::pair<ncclComm_t, Operation>> group_operations;
thread_local ncclResult_t group_failure = ncclSuccess;
thread_local int group_depth = 0;

/// How the next call of this kind shall fail, if it shall. Its group, if there is one, fails then.
std::optional<ncclResult_t> planned_failure(const std::string& kind) {
  const auto failure = fake_nccl_failure(kind);
  if (failure && group_depth > 0) group_failure = *failure;
  return failure;
}

// The messages of operation `kind` "messages": by (world, turn, rank).
std::map<std::pair<World*, uint64_t>, std::map<int, std::vector<Message>>> messages;

size_t size_of_type(ncclDataType_t type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[static_cast<size_t>(type)];
}

/// As float, whose upper half it is.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    uint32_t all = 0;
    std::memcpy(&all, &value, sizeof all);
    const bool is_nan = value != value;
    bits = static_cast<uint16_t>(is_nan ? (all >> 16) | 0x40
                                        : (all + 0x7fff + ((all >> 16) & 1)) >> 16);
  }
  explicit operator float() const {
    const uint32_t all = uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &all, sizeof value);
    return value;
  }
};

// NCCL's answer where it has a choice: a number and not a NaN.
template <class T>
bool is_greater(T a, T b) {
  return b != b || a > b;
}
template <class T>
bool is_less(T a, T b) {
  return b != b || a < b;
}

// As in NCCL's rings, each block begins with another device, and every partial result is rounded.
// The operands are computed with as `Wide`: 16-bit floats as f32, signed numbers so that they wrap.
template <class T, class Wide = T>
void combine(const std::vector<Operation>& parts, size_t begin, size_t count,
             std::vector<char>& to) {
  constexpr size_t kBlock = 8;
  const size_t n = parts.size();
  to.resize(count * sizeof(T));
  for (size_t block = 0, end = 0; block < count; block = end) {
    end = std::min(count, block + kBlock - (begin + block) % kBlock);
    const size_t first = (begin + block) / kBlock % n;
    for (size_t i = block; i < end; ++i) {
      T total{};
      for (size_t k = 0; k < n; ++k) {
        const size_t part = first + k < n ? first + k : first + k - n;
        const T element = static_cast<const T*>(parts[part].from)[begin + i];
        const auto x = static_cast<Wide>(element), so_far = static_cast<Wide>(total);
        if (k == 0)
          total = element;
        else if (parts[0].op == ncclSum)
          total = static_cast<T>(so_far + x);
        else if (parts[0].op == ncclProd)
          total = static_cast<T>(so_far * x);
        else if (parts[0].op == ncclMax ? is_greater(x, so_far) : is_less(x, so_far))
          total = element;
      }
      std::memcpy(to.data() + i * sizeof(T), &total, sizeof(T));
    }
  }
}

std::vector<char> combined(const std::vector<Operation>& parts, size_t begin, size_t count) {
  std::vector<char> out;
  switch (parts[0].dtype) {
    case ncclFloat32:
      combine<float>(parts, begin, count, out);
      break;
    case ncclFloat64:
      combine<double>(parts, begin, count, out);
      break;
    case ncclFloat16:
      combine<_Float16, float>(parts, begin, count, out);
      break;
    case ncclBfloat16:
      combine<BFloat16, float>(parts, begin, count, out);
      break;
    case ncclInt8:
      combine<int8_t>(parts, begin, count, out);
      break;
    case ncclUint8:
      combine<uint8_t>(parts, begin, count, out);
      break;
    case ncclInt32:
      combine<int32_t, int64_t>(parts, begin, count, out);
      break;
    case ncclUint32:
      combine<uint32_t>(parts, begin, count, out);
      break;
    case ncclInt64:
      combine<int64_t>(parts, begin, count, out);
      break;
    case ncclUint64:
      combine<uint64_t>(parts, begin, count, out);
      break;
    default:
      fake_misuse("a dtype that the fake NCCL does not combine");
  }
  return out;
}

void do_all(World& world, uint64_t turn) {
  std::vector<Operation> parts;
  for (const auto& [rank, part] : world.turns[turn].parts) parts.push_back(part);
  const std::string& kind = parts[0].kind;
  for (const Operation& part : parts)
    if (part.kind != kind || part.count != parts[0].count || part.dtype != parts[0].dtype ||
        part.op != parts[0].op || part.root != parts[0].root)
      return fake_misuse("devices that do different things together: " + kind + ", " + part.kind);
  const size_t bytes = parts[0].count * size_of_type(parts[0].dtype);
  const auto write = [](void* to, const void* from, size_t size) {
    if (!fake_is_device(to, size)) return fake_misuse("a collective into memory that is not there");
    std::memcpy(to, from, size);
  };
  for (const Operation& part : parts)
    if (part.from && !fake_is_device(part.from, 1))
      return fake_misuse("a collective of memory that is not there");
  const size_t n = parts.size();
  if (kind == "all_reduce") {
    const std::vector<char> result = combined(parts, 0, parts[0].count);
    for (const Operation& part : parts) write(part.to, result.data(), bytes);
  } else if (kind == "reduce_scatter") {
    std::vector<std::vector<char>> results;
    for (size_t i = 0; i < n; ++i)
      results.push_back(combined(parts, i * parts[0].count, parts[0].count));
    for (size_t i = 0; i < n; ++i) write(parts[i].to, results[i].data(), bytes);
  } else if (kind == "all_gather") {
    for (const Operation& part : parts)
      for (size_t k = 0; k < n; ++k)
        write(static_cast<char*>(part.to) + k * bytes, parts[k].from, bytes);
  } else if (kind == "broadcast") {
    for (const Operation& part : parts)
      write(part.to, parts[static_cast<size_t>(part.root)].from, bytes);
  } else {
    auto& all = messages[{&world, turn}];
    for (size_t receiver = 0; receiver < n; ++receiver) {
      std::map<int, size_t> next;  // message of each sender
      for (const Message& m : all[static_cast<int>(receiver)]) {
        if (m.is_send) continue;
        size_t skip = next[m.peer]++;
        bool found = false;
        for (const Message& s : all[m.peer]) {
          if (!s.is_send || s.peer != static_cast<int>(receiver) || skip-- > 0) continue;
          found = s.bytes == m.bytes;
          if (found) write(m.to, s.from, m.bytes);
          break;
        }
        if (!found) fake_misuse("a message that nobody sends");
      }
    }
    messages.erase({&world, turn});
  }
}

// ---- Several processes ------------------------------------------------------------------------

/// What a device brings to a turn, as bytes.
struct Brought {
  char kind[16] = {};
  size_t count = 0;
  ncclDataType_t dtype{};
  ncclRedOp_t op{};
  int root = 0;
};

std::string file_of(const World& world, uint64_t turn, int rank) {
  return world.folder + "/" + std::to_string(turn) + "." + std::to_string(rank);
}

void write_file(const std::string& file, const std::string& bytes) {
  std::ofstream(file + ".draft", std::ios::binary) << bytes;
  std::rename((file + ".draft").c_str(), file.c_str());
}

std::optional<std::string> read_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// What stands before the bytes of each message that a device brings.
struct Address {
  int to = 0;
  size_t bytes = 0;
};

void publish(World& world, uint64_t turn, int rank, const Operation& part) {
  Brought head{{}, part.count, part.dtype, part.op, part.root};
  part.kind.copy(head.kind, sizeof head.kind - 1);
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  if (part.kind == "messages") {
    for (const Message& m : messages[{&world, turn}][rank]) {
      if (!m.is_send) continue;
      const Address address{m.peer, m.bytes};
      bytes.append(reinterpret_cast<const char*>(&address), sizeof address);
      bytes.append(static_cast<const char*>(m.from), m.bytes);
    }
  } else {
    const bool scatters = part.kind == "reduce_scatter";
    bytes.append(
        static_cast<const char*>(part.from),
        part.count * size_of_type(part.dtype) * static_cast<size_t>(scatters ? world.size : 1));
  }
  write_file(file_of(world, turn, rank), bytes);
}

/// Of the messages from one rank to another, the first that is received is the first that was sent.
bool take_messages(World& world, uint64_t turn, int rank, const std::vector<std::string>& brought) {
  auto& mine = messages[{&world, turn}][rank];
  std::map<int, size_t> read;  // by sender: how much of what it brought
  for (const Message& m : mine) {
    if (m.is_send) continue;
    const std::string& theirs = brought[static_cast<size_t>(m.peer)];
    size_t& at = read.emplace(m.peer, sizeof(Brought)).first->second;
    for (bool found = false; !found;) {
      Address address;
      if (at + sizeof address > theirs.size()) return false;
      std::memcpy(&address, theirs.data() + at, sizeof address);
      at += sizeof address;
      found = address.to == rank;
      if (found && address.bytes != m.bytes) return false;
      if (found) std::memcpy(m.to, theirs.data() + at, m.bytes);
      at += address.bytes;
    }
  }
  messages[{&world, turn}].erase(rank);
  return true;
}

/// A device's part in a group of several processes.
bool do_own(World& world, uint64_t turn, int rank, const Operation& own) {
  while (world.broken != ncclSuccess) {
    if (world.aborted) return true;
    fake_leave(std::chrono::microseconds(200));
  }
  std::vector<std::string> brought;
  for (int other = 0; other < world.size; ++other) {
    std::optional<std::string> bytes;
    while (!(bytes = read_file(file_of(world, turn, other)))) {
      if (world.aborted) return true;
      fake_leave(std::chrono::microseconds(200));
    }
    brought.push_back(std::move(*bytes));
  }
  // All have been at the turn before.
  if (turn > 0) std::remove(file_of(world, turn - 1, rank).c_str());
  std::vector<Operation> parts;
  for (const std::string& bytes : brought) {
    Brought head;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.kind != own.kind || head.count != own.count || head.dtype != own.dtype ||
        head.op != own.op || head.root != own.root) {
      fake_misuse("processes that do different things together: " + own.kind + ", " + head.kind);
      return false;
    }
    parts.push_back(own);
    parts.back().from = bytes.data() + sizeof head;
  }
  const size_t bytes = own.count * size_of_type(own.dtype);
  const auto n = static_cast<size_t>(world.size), me = static_cast<size_t>(rank);
  char* const to = static_cast<char*>(own.to);
  if (own.kind == "messages") return take_messages(world, turn, rank, brought);
  const size_t size = own.kind == "all_gather" ? n * bytes : bytes;
  if (!fake_is_device(to, size)) {
    fake_misuse("a collective into memory that is not there");
    return false;
  }
  if (own.kind == "all_reduce") {
    std::memcpy(to, combined(parts, 0, own.count).data(), bytes);
  } else if (own.kind == "reduce_scatter") {
    std::memcpy(to, combined(parts, me * own.count, own.count).data(), bytes);
  } else if (own.kind == "all_gather") {
    for (size_t k = 0; k < n; ++k) std::memcpy(to + k * bytes, parts[k].from, bytes);
  } else {
    std::memcpy(to, parts[static_cast<size_t>(own.root)].from, bytes);
  }
  return true;
}

// Groups that this thread enters.
thread_local std::vector<std::shared_ptr<World>> joining;

ncclResult_t await_joined() {
  constexpr int kNaps = 20000;
  int naps = 0;
  for (const auto& world : std::exchange(joining, {}))
    for (int rank = 0; rank < world->size; ++rank)
      while (!read_file(world->folder + "/joined." + std::to_string(rank))) {
        if (++naps > kNaps) return ncclSystemError;
        fake_leave(std::chrono::milliseconds(1));
      }
  return ncclSuccess;
}

ncclResult_t issue(ncclComm_t comm, Operation part) {
  const FakeLock lock;
  const std::shared_ptr<World> world = comm->world;
  if (world->aborted) return ncclInvalidUsage;
  if (fake_device_of(part.stream) != comm->device) fake_misuse("a communicator of another device");
  const uint64_t turn = comm->calls++;
  part.position = fake_issued(part.stream);
  if (!world->folder.empty()) {
    // What others wait for is there as soon as may be: nobody waits here for their sake.
    const int rank = comm->rank;
    if (const auto found = fake_nccl_failure("exchange")) world->broken = *found;
    fake_run(part.stream, part.position);
    publish(*world, turn, rank, part);
    fake_push(part.stream, [world, turn, rank, part] { return do_own(*world, turn, rank, part); });
    return ncclSuccess;
  }
  world->turns[turn].parts[comm->rank] = part;
  fake_push(part.stream, [world, turn]() -> bool {
    World::Turn& now = world->turns[turn];
    if (now.done || world->aborted) return true;
    if (static_cast<int>(now.parts.size()) < world->size) {
      fake_misuse("a device that waits for one that was never called");
      return false;
    }
    now.done = true;
    // Nobody is here before what stands in front of it.
    const auto parts = now.parts;
    for (const auto& [rank, other] : parts) fake_run(other.stream, other.position);
    do_all(*world, turn);
    return true;
  });
  return ncclSuccess;
}

/// A call of one collective.
ncclResult_t collective(ncclComm_t comm, Operation part) {
  {
    const FakeLock lock;
    if (const auto failure = planned_failure(part.kind)) return *failure;
    const std::shared_ptr<World> world = comm->world;
    ++world->inside;
    while (fake_nccl_stays(part.kind, world->aborted)) fake_leave(std::chrono::milliseconds(1));
    --world->inside;
  }
  if (group_depth == 0) return issue(comm, std::move(part));
  group_operations.emplace_back(comm, std::move(part));
  return ncclSuccess;
}

ncclResult_t message(ncclComm_t comm, CUstream stream, const Message& sent_or_received) {
  {
    const FakeLock lock;
    if (const auto failure = planned_failure(sent_or_received.is_send ? "send" : "recv"))
      return *failure;
  }
  if (group_depth == 0) return ncclInvalidUsage;
  group.emplace_back(comm, sent_or_received);
  group_stream = stream;
  return ncclSuccess;
}

}  // namespace
}  // namespace braze::cuda

using namespace braze::cuda;

#define EXPORTED extern "C" __attribute__((visibility("default"))) ncclResult_t

EXPORTED ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

EXPORTED ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  const FakeLock lock;
  if (const auto failure = fake_nccl_failure("init")) return *failure;
  const auto world = std::make_shared<World>();
  world->size = count;
  for (int i = 0; i < count; ++i) comms[i] = new ncclComm{world, i, devices[i]};
  return ncclSuccess;
}

EXPORTED ncclGetUniqueId(ncclUniqueId* id) {
  char folder[] = "/tmp/fake-nccl-XXXXXX";
  if (!mkdtemp(folder)) return ncclSystemError;
  *id = {};
  std::memcpy(id->internal, folder, sizeof folder);
  return ncclSuccess;
}

// Blocks, as NCCL does outside of a group; in one the group's end does.
EXPORTED ncclCommInitRank(ncclComm_t* comm, int count, ncclUniqueId id, int rank) {
  const FakeLock lock;
  if (const auto failure = planned_failure("init")) return *failure;
  static auto& worlds = *new std::map<std::string, std::shared_ptr<World>>();
  std::shared_ptr<World>& world = worlds[id.internal];
  if (!world) world = std::make_shared<World>();
  world->size = count;
  world->folder = id.internal;
  *comm = new ncclComm{world, rank, fake_current_device()};
  write_file(world->folder + "/joined." + std::to_string(rank), "");
  joining.push_back(world);
  return group_depth > 0 ? ncclSuccess : await_joined();
}

// Of the same devices: whoever splits a communicator of a group as the nth time comes into the nth
// group that is made of it.
EXPORTED ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                       ncclConfig_t* config) {
  const FakeLock lock;
  if (const auto failure = planned_failure("split")) return *failure;
  if (color != 0 || key != comm->rank) fake_misuse("a split into other groups");
  for (const auto& [number, turn] : comm->world->turns)
    if (!turn.done) fake_misuse("a split of a group whose collectives are under way");
  if (config->size < sizeof(ncclConfig_t) || config->magic != 0xcafebeef || config->maxCTAs < 1)
    fake_misuse("a configuration that is none");
  static auto& worlds = *new std::map<std::pair<World*, int>, std::shared_ptr<World>>();
  const int number = comm->splits++;
  std::shared_ptr<World>& world = worlds[{comm->world.get(), number}];
  if (!world) {
    world = std::make_shared<World>();
    world->size = comm->world->size;
    if (!comm->world->folder.empty()) {
      world->folder = comm->world->folder + "-" + std::to_string(number);
      mkdir(world->folder.c_str(), 0700);
    }
  }
  *made = new ncclComm{world, comm->rank, comm->device};
  if (world->folder.empty()) return ncclSuccess;
  write_file(world->folder + "/joined." + std::to_string(comm->rank), "");
  joining.push_back(world);
  return group_depth > 0 ? ncclSuccess : await_joined();
}

// A thread may be about to enter a call of it, which then fails: it stays to the end of the
// process.
EXPORTED ncclCommAbort(ncclComm_t comm) {
  const FakeLock lock;
  static auto& kept = *new std::vector<ncclComm_t>();
  kept.push_back(comm);
  if (comm->world->inside > 0) fake_nccl_failure("abort within a call");  // counts it
  comm->world->aborted = true;
  return ncclSuccess;
}

// Between processes, what others have done is not known here.
EXPORTED ncclCommDestroy(ncclComm_t comm) {
  const FakeLock lock;
  if (const auto failure = fake_nccl_failure("destroy")) return *failure;
  for (const auto& [number, turn] : comm->world->turns)
    if (!turn.done && turn.parts.contains(comm->rank))
      fake_misuse("a communicator that is destroyed before its collectives end");
  delete comm;
  return ncclSuccess;
}

EXPORTED ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->world->aborted ? ncclRemoteError : comm->world->broken.load();
  return ncclSuccess;
}

EXPORTED ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

EXPORTED ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  const auto operations = std::exchange(group_operations, {});
  const auto all = std::exchange(group, {});
  if (const ncclResult_t failure = std::exchange(group_failure, ncclSuccess)) {
    joining.clear();
    return failure;
  }
  {
    const FakeLock lock;
    if (const auto failure = fake_nccl_failure("group")) return *failure;
  }
  if (!joining.empty()) {
    const FakeLock lock;
    return await_joined();
  }
  for (const auto& [comm, operation] : operations)
    if (const ncclResult_t result = issue(comm, operation)) return result;
  if (all.empty()) return ncclSuccess;
  ncclComm_t const comm = all[0].first;
  {
    const FakeLock lock;
    if (const auto failure = fake_nccl_failure("messages")) return *failure;
    std::vector<Message>& mine = messages[{comm->world.get(), comm->calls}][comm->rank];
    for (const auto& [of, message] : all) mine.push_back(message);
  }
  return issue(comm, {.kind = "messages", .stream = group_stream});
}

EXPORTED ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t dtype,
                       ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return collective(comm, {"all_reduce", from, to, count, dtype, op, 0, stream});
}
EXPORTED ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t dtype,
                       ncclComm_t comm, CUstream stream) {
  return collective(comm, {"all_gather", from, to, count, dtype, {}, 0, stream});
}
EXPORTED ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return collective(comm, {"reduce_scatter", from, to, count, dtype, op, 0, stream});
}
EXPORTED ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t dtype, int root,
                       ncclComm_t comm, CUstream stream) {
  return collective(comm, {"broadcast", from, to, count, dtype, {}, root, stream});
}
EXPORTED ncclSend(const void* from, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                  CUstream stream) {
  return message(comm, stream, {true, from, nullptr, count * size_of_type(dtype), peer});
}
EXPORTED ncclRecv(void* to, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                  CUstream stream) {
  return message(comm, stream, {false, nullptr, to, count * size_of_type(dtype), peer});
}
