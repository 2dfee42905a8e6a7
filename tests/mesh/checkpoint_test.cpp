// Arrays over a mesh in files, and back over the same mesh, others, and one device.
#include "braze/checkpoint.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "braze/creation.h"
#include "ir/support/text.h"
#include "tests/error_of.h"
#include "tests/mesh/run.h"
#include "tests/temporary_folder.h"

namespace braze {
namespace {

using test::error_of;
using testing::cpu_mesh;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class Checkpoint : public ::testing::Test {
 protected:
  std::string index() const { return (folder_.path / "c.safetensors.index.json").string(); }
  std::vector<std::string> names_in(int file, int of) const {
    std::vector<std::string> names;
    const auto path = folder_.path / fmt::format("c-{:05}-of-{:05}.safetensors", file, of);
    for (const auto& item : load_safetensors(path.string(), "cpu")) names.push_back(item.first);
    return names;
  }

  DeviceGuard guard_{"cpu"};
  test::TemporaryFolder folder_;
};

Array ramp(std::vector<int64_t> shape, DType dtype = DType::F32) {
  return Array::from_host(testing::numbers(dtype, std::move(shape), 0), "cpu");
}

std::map<std::string, Array> arrays_over(const Mesh& mesh) {
  return {{"up", ramp({4, 8}).to(mesh, sharded({"data", "model"}))},
          {"down", ramp({8, 4}, DType::BF16).to(mesh, sharded("model"))},
          {"bias", ramp({3}).to(mesh, replicated)},
          {"step", ramp({}, DType::I64).to(mesh, replicated)},
          {"none", ramp({0, 4}).to(mesh, sharded({none, "model"}))},
          {"here", ramp({5})}};
}

void expect_same(const std::map<std::string, Array>& got,
                 const std::map<std::string, Array>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, array] : wanted) {
    const HostTensor a = got.at(name).to_host(), b = array.to_host();
    EXPECT_EQ(got.at(name).sharding(), array.sharding()) << name;
    EXPECT_TRUE(compare(a, b).ok) << name;
  }
}

TEST_F(Checkpoint, OneFileADevice) {
  const std::map<std::string, Array> arrays = arrays_over(cpu_mesh({{"data", 2}, {"model", 2}}));
  save_checkpoint(index(), arrays);
  EXPECT_THAT(names_in(1, 4), UnorderedElementsAre("up[0:2, 0:4]", "down[0:4, 0:4]", "bias", "step",
                                                   "none[0:0, 0:2]", "here"));
  EXPECT_THAT(names_in(2, 4),
              UnorderedElementsAre("up[0:2, 4:8]", "down[4:8, 0:4]", "none[0:0, 2:4]"));
  EXPECT_THAT(names_in(3, 4), UnorderedElementsAre("up[2:4, 0:4]"));
  EXPECT_THAT(names_in(4, 4), UnorderedElementsAre("up[2:4, 4:8]"));
  expect_same(load_checkpoint(index(), arrays), arrays);
}

TEST_F(Checkpoint, OnAnotherMesh) {
  save_checkpoint(index(), arrays_over(cpu_mesh({{"data", 2}, {"model", 2}})));
  for (const Mesh& mesh :
       {cpu_mesh({{"data", 1}, {"model", 4}}), cpu_mesh({{"model", 2}, {"data", 4}}),
        cpu_mesh({{"data", 1}, {"model", 1}})}) {
    const std::map<std::string, Array> like = arrays_over(mesh);
    expect_same(load_checkpoint(index(), like), like);
  }
  for (const auto& [name, array] : load_checkpoint(index())) EXPECT_FALSE(array.is_spread());
  // Some of them, spread in another way.
  const Mesh mesh = cpu_mesh({{"rows", 4}});
  const std::map<std::string, Array> some = {
      {"up", ramp({4, 8}).to(mesh, sharded({none, "rows"}))}};
  expect_same(load_checkpoint(index(), some), some);
}

TEST_F(Checkpoint, RefusesWhatIsNotThere) {
  const Mesh mesh = cpu_mesh({{"data", 2}});
  const std::map<std::string, Array> arrays = {{"w", ramp({4, 2}).to(mesh, sharded("data"))}};
  save_checkpoint(index(), arrays);
  EXPECT_THAT(error_of([&] {
                load_checkpoint(index(), {{"v", ramp({4})}});
              }),
              HasSubstr("has no tensor \"v\""));
  EXPECT_THAT(error_of([&] {
                load_checkpoint(index(), {{"w", ramp({4, 3})}});
              }),
              HasSubstr("the array \"w\" is f32[4, 2], not f32[4, 3]"));
  EXPECT_THAT(error_of([&] {
                save_checkpoint(index(), {{"a[0:1]", ramp({1})}});
              }),
              HasSubstr("ends in ']'"));
  EXPECT_THAT(error_of([&] {
                save_checkpoint(index(), {{"a", ramp({4}).to(mesh, replicated)},
                                          {"b", ramp({4}).to(cpu_mesh({{"x", 2}}), replicated)}});
              }),
              HasSubstr("is over another mesh"));
  EXPECT_THAT(error_of([&] { save_checkpoint("c.json", arrays); }),
              HasSubstr("cannot be the name of an index"));
  // A block of the array is missing, or does not fit.
  const std::string file = (folder_.path / "one.safetensors").string();
  save_safetensors(file, {{"w[0:2]", ramp({2})}, {"w[4:6]", ramp({2})}});
  EXPECT_THAT(error_of([&] { load_checkpoint(file); }), HasSubstr("lacks a block"));
  save_safetensors(file, {{"w[0:2]", ramp({2})}, {"w[1:3]", ramp({2})}, {"w[3:4]", ramp({1})}});
  EXPECT_THAT(error_of([&] { load_checkpoint(file); }), HasSubstr("lie across each other"));
  save_safetensors(file, {{"w[0:2]", ramp({3})}});
  EXPECT_THAT(error_of([&] { load_checkpoint(file); }), HasSubstr("is no block of the array"));
  save_safetensors(file, {{"w[9223372036854775806:9223372036854775807, 0:4]", ramp({1, 4})}});
  EXPECT_THAT(error_of([&] { load_checkpoint(file); }), HasSubstr("is too large"));
  // Other brackets are names like any other.
  save_safetensors(file, {{"w[x]", ramp({2})}, {"v[", ramp({2})}});
  EXPECT_EQ(load_checkpoint(file).size(), 2u);
}

}  // namespace
}  // namespace braze
