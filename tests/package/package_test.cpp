// Packages from the graph to the result, and everything that can be wrong with one.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "braze/braze.h"
#include "braze/c_compile.h"
#include "braze/io.h"
#include "ir/graph/text.h"
#include "ir/target/target.h"
#include "runtime/io/signature.h"
#include "runtime/package/c_api.h"
#include "tests/runtime/programs.h"
#include "tests/temporary_folder.h"

namespace braze {
namespace {

using test::error_of;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A folder of its own that nobody else writes.
class Packages : public ::testing::Test {
 protected:
  std::string path(std::string_view name) const { return folder_ / name; }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path;
};

const std::string kLinear = R"(braze 1 graph
symbol n: 1..64
graph @linear(%x: f32[n, 3], %w "layer.weight": f32[3, 2]) {
  %y = dot %x, %w {contract: [1]x[0]} : f32[n, 2]
  return %y as "y"
})";
const std::string kScale = R"(braze 1 graph
graph @scale(%x: f32[4]) {
  %two = constant 2.0 : f32[]
  %y = mul %x, %two : f32[4]
  return %y as "y"
})";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

Array filled(std::vector<int64_t> shape, float first) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return Array::from(values, std::move(shape), Device("cpu"));
}

// x [2, 3] = 1 .. 6 times w [3, 2] = first ...
std::vector<float> product(float w) {
  std::vector<float> out;
  for (int row = 0; row < 2; ++row)
    for (int column = 0; column < 2; ++column) {
      float sum = 0;
      for (int k = 0; k < 3; ++k)
        sum += static_cast<float>(1 + 3 * row + k) * (w + static_cast<float>(2 * k + column));
      out.push_back(sum);
    }
  return out;
}

TEST_F(Packages, RunWhereTheyWereCompiledFor) {
  const std::string file = path("scale.bzp");
  const PackSummary summary = save_package(
      file, {{kScale}}, {.targets = {"x86-64-v3", "sim:sm_90a", "interpreter", "sm_80"}});
  const PackagedFunction scale = Package::load(file).function("scale");
  const auto variants = scale.variants();
  EXPECT_EQ(static_cast<size_t>(summary.programs), variants.size());
  // Portable PTX, once, also where nothing is assembled.
  EXPECT_EQ(std::ranges::count_if(
                variants,
                [](const PackagedVariant& v) { return v.target == "sm_80" && v.format == "ptx"; }),
            1);
  EXPECT_EQ(summary.bytes, std::filesystem::file_size(file));
  for (const char* device : {"cpu", "sim:sm_90", "interpreter"}) {
    const LoadedFunction f = scale.load(device);
    const Array x = filled({4}, 1).to(device);
    EXPECT_THAT(f(x)[0].to_vector<float>(), ElementsAre(2, 4, 6, 8)) << device;
    EXPECT_EQ(f.device(), Device(device));
    const Array given[] = {x};
    EXPECT_GE(f.memory_plan(given).peak_bytes, 16u);
  }
  EXPECT_EQ(scale.load("cpu").variant().target, "x86-64-v3");
  EXPECT_THAT(error_of([&] { scale.load("sim:sm_80"); }),
              AllOf(HasSubstr("no-variant"), HasSubstr("x86-64-v3 (image)"), HasSubstr("fix:")));
}

TEST_F(Packages, TheBestCodeForAProcessorIsTaken) {
  const std::string file = path("scale.bzp");
  save_package(file, {{kScale}}, {.targets = {"x86-64-v3", "x86-64-v4"}});
  const bool wide = Device("cpu").target().name == "x86-64-v4";
  EXPECT_EQ(Package::load(file).function().load("cpu").variant().target,
            wide ? "x86-64-v4" : "x86-64-v3");
}

// On every GPU that is here: machine code, and PTX for what has none.
TEST_F(Packages, RunOnGpus) {
  save_safetensors(path("w.safetensors"), {{"weight", filled({3, 2}, 10)}});
  PackOptions options{.targets = {"sm_80", "sm_90a"}, .weights = path("w.safetensors")};
  save_package(path("cubin.bzp"), {{kLinear}}, options);
  options.compile.assemble = false;
  save_package(path("ptx.bzp"), {{kLinear}}, options);
  for (const PackagedVariant& v : Package::load(path("ptx.bzp")).function().variants())
    EXPECT_EQ(v.format, "ptx");
  int runs = 0;
  for (const Device& device : devices()) {
    if (device.kind() != DeviceKind::Cuda) continue;
    for (const char* file : {"cubin.bzp", "ptx.bzp"}) {
      const LoadedFunction f = Package::load(path(file)).function().load(device);
      const Array x = filled({2, 3}, 1).to(device);
      EXPECT_EQ(f(x)[0].to_vector<float>(), product(10)) << file;
      ++runs;
    }
  }
  if (runs == 0) GTEST_SKIP() << "there is no GPU";
}

// The portable code, for which nobody asked, has the schedule of its own rules.
TEST_F(Packages, HaveSchedulesForTheTargetsThatAreNamed) {
  const std::string text = R"(braze 1 graph
graph @multiply(%x: bf16[512, 512], %w: bf16[512, 512]) {
  %y = dot %x, %w {contract: [1] x [0]} : bf16[512, 512]
  return %y as "y"
})";
  CompileOptions compile{.assemble = false};
  const Program chosen = braze::compile(parse_graph(text, "f"), parse_target("sm_90a"), compile);
  ASSERT_THAT(chosen.launches, SizeIs(1));
  const Launch& launch = chosen.launches[0];
  ASSERT_THAT(launch.schedule, HasSubstr("wgmma"));
  compile.schedules[launch.name] = launch.schedule;
  const auto targets_of = [&](std::vector<std::string> targets) {
    save_package(path("p.bzp"), {{text}}, {.targets = std::move(targets), .compile = compile});
    std::string out;
    for (const PackagedVariant& v : Package::load(path("p.bzp")).function().variants())
      out += v.target + " ";
    return out;
  };
  EXPECT_EQ(targets_of({"sm_90a"}), "sm_90a sm_80 ");
  EXPECT_THAT(error_of([&] { targets_of({"sm_90a", "sm_80"}); }), HasSubstr("bad-schedule"));
}

TEST_F(Packages, OfOneInputHaveOneContent) {
  const PackOptions options{.targets = {"x86-64-v3", "x86-64-v4", "sm_80", "sm_90a"}};
  save_package(path("a.bzp"), {{kLinear}, {kScale}}, options);
  save_package(path("b.bzp"), {{kLinear}, {kScale}}, options);
  EXPECT_EQ(read_file(path("a.bzp")), read_file(path("b.bzp")));
}

TEST_F(Packages, SayWhatTheyTakeAndGive) {
  save_package(path("both.bzp"), {{kLinear}, {kScale}}, {.targets = {"x86-64-v3"}});
  const Package package = Package::load(path("both.bzp"));
  EXPECT_THAT(package.functions(), ElementsAre("linear", "scale"));
  const PackagedFunction linear = package.function("linear");
  ASSERT_THAT(linear.inputs(), SizeIs(2));
  EXPECT_EQ(linear.inputs()[0].name, "x");
  EXPECT_EQ(linear.inputs()[0].type(), "f32[n, 3]");
  EXPECT_EQ(linear.inputs()[1].name, "layer.weight");
  EXPECT_EQ(linear.outputs()[0].type(), "f32[n, 2]");
  EXPECT_THAT(linear.symbols(), ElementsAre("n: 1..64"));
  EXPECT_THAT(error_of([&] { package.function(); }), HasSubstr("several functions"));
  EXPECT_THAT(error_of([&] { package.function("liner"); }),
              AllOf(HasSubstr("no-function"), HasSubstr("linear")));
}

TEST_F(Packages, FindTheirWeightsBesideThem) {
  save_safetensors(path("w.safetensors"), {{"weight", filled({3, 2}, 10)}});
  const PackSummary summary =
      save_package(path("linear.bzp"), {{kLinear}},
                   {.targets = {"x86-64-v3", "sim:sm_90a"}, .weights = path("w.safetensors")});
  EXPECT_EQ(summary.bound_weights, 1);
  // Both are moved, and found again.
  const std::filesystem::path moved = folder_ / "moved";
  std::filesystem::create_directory(moved);
  for (const char* name : {"linear.bzp", "w.safetensors"})
    std::filesystem::rename(folder_ / name, moved / name);
  const PackagedFunction linear = Package::load(moved / "linear.bzp").function();
  EXPECT_THAT(linear.inputs(), SizeIs(1));
  for (const char* device : {"cpu", "sim:sm_90"}) {
    const LoadedFunction f = linear.load(device);
    const Array x = filled({2, 3}, 1).to(device);
    EXPECT_EQ(f(x)[0].to_vector<float>(), product(10)) << device;
    EXPECT_EQ(f(x)[0].to_vector<float>(), product(10)) << "again, " << device;
  }
  // Another size of the same program, and one outside its range.
  EXPECT_EQ(linear.load("cpu")(filled({64, 3}, 0))[0].shape()[0], 64);
  EXPECT_THAT(error_of([&] {
                linear.load("cpu")(filled({65, 3}, 0));
              }),
              HasSubstr("n = 65, but n must be in 1..64"));
  EXPECT_THAT(
      error_of([&] { linear.load("cpu")(); }),
      AllOf(HasSubstr("takes 1 argument, 0 given"), HasSubstr("give, in this order, x: f32[")));
}

// Data that others can write may be wrong, but must not end the process.
TEST_F(Packages, KeepWeightsThatOthersCutOff) {
  const std::string weights = path("w.safetensors");
  save_safetensors(weights, {{"weight", filled({64, 3200}, 0)}});
  save_package(path("big.bzp"), {{R"(braze 1 graph
graph @first(%w "weight": f32[64, 3200]) {
  %y = reduce max %w {axes: [0, 1]} : f32[]
  return %y as "y"
})"}},
               {.targets = {"x86-64-v3"}, .weights = weights});
  ASSERT_EQ(chmod(weights.c_str(), 0666), 0);
  const LoadedFunction first = Package::load(path("big.bzp")).function().load("cpu");
  std::filesystem::resize_file(weights, 0);
  EXPECT_EQ(first()[0].to_vector<float>(), std::vector<float>{64 * 3200 - 1});
  std::filesystem::remove(weights);
  EXPECT_THAT(error_of([&] { Package::load(path("big.bzp")).function().load("cpu"); }),
              AllOf(HasSubstr("file-missing"), HasSubstr("--weights FILE")));
}

TEST_F(Packages, HoldWeightsAndChangeThem) {
  save_safetensors(path("w.safetensors"), {{"weight", filled({3, 2}, 10)}});
  save_package(path("linear.bzp"), {{kLinear}},
               {.targets = {"x86-64-v3"}, .weights = path("w.safetensors"), .embed_weights = true});
  std::filesystem::remove(path("w.safetensors"));
  const Array x = filled({2, 3}, 1);
  const Package package = Package::load(path("linear.bzp"));
  EXPECT_EQ(package.function().load("cpu")(x)[0].to_vector<float>(), product(10));
  save_safetensors(path("other.safetensors"), {{"weight", filled({3, 2}, -5)}});
  const Package other = Package::load(path("linear.bzp"), {.weights = path("other.safetensors")});
  EXPECT_EQ(other.function().load("cpu")(x)[0].to_vector<float>(), product(-5));
  const LoadedFunction given = package.function().load("cpu", {{"weight", filled({3, 2}, 7)}});
  EXPECT_EQ(given(x)[0].to_vector<float>(), product(7));
  // A weight outlives the package it came from.
  const LoadedFunction kept = Package::load(path("linear.bzp")).function().load("cpu");
  EXPECT_EQ(kept(x)[0].to_vector<float>(), product(10));
}

TEST_F(Packages, RefuseWeightsThatDoNotFit) {
  const std::string w = path("w.safetensors");
  const auto pack = [&](const std::map<std::string, Array>& weights,
                        std::map<std::string, std::string> bind = {}) {
    save_safetensors(w, weights);
    save_package(path("linear.bzp"), {{kLinear}},
                 {.targets = {"x86-64-v3"}, .weights = w, .bind = std::move(bind)});
  };
  EXPECT_THAT(error_of([&] {
                pack({{"weight", filled({2, 3}, 0)}});
              }),
              AllOf(HasSubstr("weight-type"), HasSubstr("f32[2, 3]"), HasSubstr("f32[3, 2]")));
  EXPECT_THAT(error_of([&] {
                pack({{"k", filled({3, 2}, 0)}}, {{"layer.weight", "kernel"}});
              }),
              HasSubstr("kernel"));
  EXPECT_THAT(error_of([&] {
                pack({{"k", filled({3, 2}, 0)}}, {{"layer.wait", "k"}});
              }),
              AllOf(HasSubstr("layer.wait"), HasSubstr("layer.weight")));
  EXPECT_THAT(error_of([&] {
                pack({{"k", filled({3, 2}, 0)}});
              }),
              AllOf(HasSubstr("pack-weights"), HasSubstr("layer.weight"), HasSubstr("holds k")));
  pack({{"k", filled({3, 2}, 3)}}, {{"layer.weight", "k"}});
  const PackagedFunction linear = Package::load(path("linear.bzp")).function();
  EXPECT_EQ(linear.load("cpu")(filled({2, 3}, 1))[0].to_vector<float>(), product(3));
  save_safetensors(w, {{"k", filled({3, 3}, 3)}});
  EXPECT_THAT(error_of([&] { Package::load(path("linear.bzp")).function().load("cpu"); }),
              AllOf(HasSubstr("weight-type"), HasSubstr("f32[3, 3]")));
  save_safetensors(w, {{"other", filled({3, 2}, 3)}});
  EXPECT_THAT(error_of([&] { Package::load(path("linear.bzp")).function().load("cpu"); }),
              HasSubstr("unknown-tensor"));
  std::filesystem::remove(w);
  EXPECT_THAT(error_of([&] { Package::load(path("linear.bzp")).function().load("cpu"); }),
              HasSubstr("w.safetensors"));
  EXPECT_THAT(error_of([&] { linear.load("cpu", {}); }), HasSubstr("missing-weight"));
  EXPECT_THAT(error_of([&] {
                linear.load("cpu", {{"kk", filled({3, 2}, 3)}});
              }),
              AllOf(HasSubstr("unknown-tensor"), HasSubstr("it has k")));
}

TEST_F(Packages, DoNotBindWhatACallUpdates) {
  const std::string step = R"(braze 1 graph
graph @step(%w: f32[4], %g: f32[4]) {
  %next = sub %w, %g : f32[4]
  return %next as "w" updates %w
})";
  save_safetensors(path("w.safetensors"), {{"w", filled({4}, 0)}});
  EXPECT_THAT(error_of([&] {
                save_package(path("step.bzp"), {{step}}, {.weights = path("w.safetensors")});
              }),
              AllOf(HasSubstr("pack-weights"), HasSubstr("updates the input")));
}

TEST_F(Packages, DoNotReplaceTheirWeights) {
  const std::string weights = path("w.safetensors");
  save_safetensors(weights, {{"w", filled({4}, 0)}});
  EXPECT_THAT(error_of([&] { save_package(weights, {{kScale}}, {.weights = weights}); }),
              AllOf(HasSubstr("pack-weights"), HasSubstr("would replace")));
  EXPECT_EQ(load_safetensors(weights).size(), 1);
}

TEST_F(Packages, RefuseWhatCannotBePacked) {
  const auto pack = [&](const std::vector<PackedGraph>& graphs, const PackOptions& options) {
    return error_of([&] { save_package(path("p.bzp"), graphs, options); });
  };
  EXPECT_THAT(pack({}, {}), HasSubstr("pack-function"));
  EXPECT_THAT(pack({{kScale}, {kScale}}, {}), HasSubstr("@scale"));
  EXPECT_THAT(pack({{kScale}}, {.targets = {"sm_70"}}), HasSubstr("sm_70"));
  EXPECT_THAT(pack({{kScale}}, {.targets = {"sm_90", "sm_90a"}}), HasSubstr("twice"));
  EXPECT_THAT(pack({{"nonsense", "f.braze"}}, {}), HasSubstr("f.braze:1"));
  const std::string count =
      "braze 1 graph\nsymbol n: 1..8\ngraph @count() {\n"
      "%y = iota {axis: 0} : i64[n]\nreturn %y\n}";
  EXPECT_THAT(pack({{count}}, {}), AllOf(HasSubstr("undetermined-size"), HasSubstr("extent n")));
  EXPECT_FALSE(std::filesystem::exists(path("p.bzp")));
}

TEST_F(Packages, AreLoadedFromTrustedFilesOnly) {
  const std::string file = path("scale.bzp");
  save_package(file, {{kScale}}, {.targets = {"x86-64-v3"}});
  ASSERT_EQ(chmod(file.c_str(), 0666), 0);
  EXPECT_THAT(error_of([&] { Package::load(file); }),
              AllOf(HasSubstr("file-untrusted"), HasSubstr("fix:")));
  EXPECT_EQ(Package::load(file, {.trust_any_owner = true}).functions()[0], "scale");
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  Package::load(file);
  std::filesystem::create_symlink(file, path("link.bzp"));
  EXPECT_THAT(error_of([&] { Package::load(path("link.bzp")); }), HasSubstr("file-untrusted"));
  EXPECT_THAT(error_of([&] { Package::load(path("none.bzp")); }), HasSubstr("file-missing"));
  EXPECT_THAT(error_of([&] { Package::load(folder_); }), HasSubstr("file-kind"));
}

// Two pairs of keys, and the package of a function signed by the first.
class SignedPackages : public Packages {
 protected:
  void SetUp() override {
    if (!has_signatures()) GTEST_SKIP() << "built without libsodium";
    for (const char* name : {"ours", "theirs"}) SecretKey::generate().write(path(name));
    pack(file_, path("ours"));
  }
  void TearDown() override { unsetenv("BRAZE_TRUST_KEYS"); }

  void pack(const std::string& to, const std::string& key, const std::string& graph = kScale) {
    save_package(to, {{graph}}, {.targets = {"x86-64-v3"}, .sign_key = key});
  }
  // The error of loading all of it, by those who trust these keys.
  std::string load(std::vector<std::string> keys, bool trust_any_owner = false) {
    return error_of([&] {
      Package::load(file_, {.trust_any_owner = trust_any_owner, .trust_keys = std::move(keys)})
          .function()
          .load("cpu");
    });
  }

  const std::string file_ = path("scale.bzp");
  const std::string ours_ = path("ours.pub"), theirs_ = path("theirs.pub");
};

TEST_F(SignedPackages, AreLoadedWhoeverCanWriteThem) {
  for (const mode_t mode : {0644, 0666}) {
    ASSERT_EQ(chmod(file_.c_str(), mode), 0);
    EXPECT_EQ(load({ours_}), "");
    EXPECT_EQ(load({theirs_, ours_}), "");
    EXPECT_EQ(load({folder_}), "");
    EXPECT_THAT(load({theirs_}), AllOf(HasSubstr("file-signature"), HasSubstr("not trusted")));
    EXPECT_THAT(load({theirs_}, true), HasSubstr("file-signature")) << "a key is a demand";
    EXPECT_THAT(load({theirs_}), HasSubstr("as trust_keys (--trust-key) demands"))
        << "says who demands it";
    setenv("BRAZE_TRUST_KEYS", theirs_.c_str(), 1);
    EXPECT_THAT(load({}), AllOf(HasSubstr("file-signature"), HasSubstr("BRAZE_TRUST_KEYS")));
    EXPECT_THAT(load({}, true), HasSubstr("--trust and trust_any_owner do not lift"));
    EXPECT_EQ(load({ours_}), "");
    setenv("BRAZE_TRUST_KEYS", ours_.c_str(), 1);
    EXPECT_EQ(load({}), "");
    unsetenv("BRAZE_TRUST_KEYS");
  }
  EXPECT_THAT(load({}), HasSubstr("file-untrusted")) << "without a key the owner counts";
  ASSERT_EQ(chmod(file_.c_str(), 0644), 0);
  EXPECT_EQ(load({}), "");
}

TEST_F(SignedPackages, OfOneInputHaveOneContent) {
  const std::string signed_bytes = read_file(file_);
  pack(file_, path("ours"));
  EXPECT_EQ(read_file(file_), signed_bytes);
  pack(file_, "");
  EXPECT_EQ(read_file(file_), signed_bytes.substr(0, signed_bytes.size() - 104));
}

TEST_F(SignedPackages, AreRefusedIfAByteIsAnother) {
  const std::string bytes = read_file(file_);
  const auto load_changed = [&](const std::string& changed) {
    write_file(file_, changed);
    return load({ours_});
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    EXPECT_THAT(load_changed(changed), HasSubstr("file-signature")) << i;
  }
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 50)
    EXPECT_THAT(load_changed(bytes.substr(0, size)), HasSubstr("file-signature")) << size;
  EXPECT_THAT(load_changed(bytes + "x"), HasSubstr("not signed"));
  EXPECT_THAT(load_changed("x" + bytes), HasSubstr("altered"));
  EXPECT_EQ(load_changed(bytes), "");
}

TEST_F(SignedPackages, KeepTheirSignatureToThemselves) {
  const std::string bytes = read_file(file_);
  const std::string content = bytes.substr(0, bytes.size() - 104);
  const std::string signature = bytes.substr(content.size());
  pack(file_, "", kLinear);
  const std::string other = read_file(file_);
  const auto load_bytes = [&](const std::string& made) {
    write_file(file_, made);
    return load({ours_});
  };
  EXPECT_THAT(load_bytes(content), HasSubstr("not signed")) << "removed";
  EXPECT_EQ(load({}), "") << "which is an unsigned package";
  EXPECT_THAT(load_bytes(other + signature), HasSubstr("altered")) << "under another package";
  EXPECT_THAT(load_bytes(signature + content), HasSubstr("not signed")) << "in front";
  EXPECT_THAT(load_bytes(bytes + signature), HasSubstr("altered")) << "twice";
  // Without a key nobody looks at the signature, but it is no part of the package.
  EXPECT_THAT(load_bytes(content + signature.substr(1)), HasSubstr("not signed"));
  EXPECT_THAT(load({}), HasSubstr("package-damaged"));
}

TEST_F(SignedPackages, StayWhatTheyWereWhenLoaded) {
  save_safetensors(path("w.safetensors"), {{"weight", filled({3, 2}, 10)}});
  save_package(file_, {{kLinear}},
               {.targets = {"x86-64-v3"},
                .weights = path("w.safetensors"),
                .embed_weights = true,
                .sign_key = path("ours")});
  ASSERT_EQ(chmod(file_.c_str(), 0666), 0);
  const Package package = Package::load(file_, {.trust_keys = {ours_}});
  const auto size = std::filesystem::file_size(file_);
  std::fstream(file_, std::ios::in | std::ios::out) << std::string(size, 'x');
  const LoadedFunction linear = package.function().load("cpu");
  EXPECT_EQ(linear(filled({2, 3}, 1))[0].to_vector<float>(), product(10));
}

TEST_F(SignedPackages, NeedAKeyThatIsKeptSecret) {
  ASSERT_EQ(chmod(path("ours").c_str(), 0640), 0);
  EXPECT_THAT(error_of([&] { pack(path("new.bzp"), path("ours")); }), HasSubstr("key-exposed"));
  EXPECT_THAT(error_of([&] { pack(path("new.bzp"), ours_); }),
              HasSubstr("is a public key, not a secret one"));
  EXPECT_FALSE(std::filesystem::exists(path("new.bzp")));
}

TEST_F(Packages, ThatAreDamagedAreNotLoaded) {
  const std::string file = path("scale.bzp");
  save_package(file, {{kScale}}, {.targets = {"x86-64-v3"}});
  const std::string bytes = read_file(file);
  const auto load = [&](const std::string& changed) {
    write_file(file, changed);
    return error_of([&] { Package::load(file).function().load("cpu"); });
  };
  for (size_t i = 0; i < bytes.size(); i += 7) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    EXPECT_THAT(load(changed), HasSubstr("package")) << i;
  }
  EXPECT_THAT(load(bytes.substr(0, bytes.size() / 2)), HasSubstr("package-damaged"));
  EXPECT_THAT(load("some text"), HasSubstr("not-a-package"));
  std::string newer = bytes;
  newer[8] = 9;
  EXPECT_THAT(load(newer), AllOf(HasSubstr("package-version"), HasSubstr("version 9")));
  EXPECT_EQ(load(bytes), "");
}

TEST_F(Packages, AreSharedByThreads) {
  save_safetensors(path("w.safetensors"), {{"weight", filled({3, 2}, 10)}});
  save_package(path("linear.bzp"), {{kLinear}},
               {.targets = {"x86-64-v3"}, .weights = path("w.safetensors")});
  const PackagedFunction linear = Package::load(path("linear.bzp")).function();
  const LoadedFunction shared = linear.load("cpu");
  const Array x = filled({2, 3}, 1);
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        right += shared(x)[0].to_vector<float>() == product(10);
        right += linear.load("cpu")(x)[0].to_vector<float>() == product(10);
      }
    });
  threads.clear();
  EXPECT_EQ(right, 8 * 20 * 2);
}

// From the C++ builder: the same numbers as the compiled function gives.
TEST_F(Packages, HoldFunctionsOfTheBuilder) {
  const Parameters parameters = nn::mlp_parameters({6, 8, 3}, random::Key(3));
  const auto predict = jit([](Weights w, Tensor x) { return nn::softmax(nn::mlp(w, x)); },
                           {as_given, spec(f32, {"n:1..32", 6})},
                           {.name = "predict", .inputs = {"parameters", "x"}});
  const Array x = random::normal({5, 6}, random::Key(4));
  std::map<std::string, Array> weights;
  for (const auto& [name, value] : parameters) weights.emplace(name, value);
  save_safetensors(path("w.safetensors"), weights);
  save_package(path("p.bzp"), {{predict.graph(parameters, x)}}, {.weights = path("w.safetensors")});
  const LoadedFunction packed = Package::load(path("p.bzp")).function("predict").load("cpu");
  const Device cpu("cpu");
  EXPECT_EQ(packed(x.to(cpu))[0].to_vector<float>(),
            predict(parameters.map([&](const Array& a) { return a.to(cpu); }), x.to(cpu))
                .to_vector<float>());
}

// A structure of options that grew, and needs what it had at first, 16 bytes.
struct Grown {
  size_t size;
  int32_t old_member;
  int32_t reserved;
  int64_t new_member;
};

TEST(COptions, OlderCallersAreTakenAndOthersRefused) {
  Grown given{16, 7, 0, 99};
  const Grown taken = c_options(given, "grown", 16);
  EXPECT_EQ(taken.old_member, 7);
  EXPECT_EQ(taken.new_member, 0) << "what an older caller does not have";
  given.size = sizeof(Grown);
  EXPECT_EQ(c_options(given, "grown", 16).new_member, 99);
  for (const size_t size : {size_t{0}, size_t{15}, size_t{20}, sizeof(Grown) + 1}) {
    given.size = size;
    EXPECT_THAT(error_of([&] { c_options(given, "grown", 16); }),
                AllOf(HasSubstr("options-size"), HasSubstr("from 16 to 24")));
  }
  given.size = sizeof(size_t);
  EXPECT_EQ(c_options(given, "grown").old_member, 0) << "nothing is needed unless somebody says so";
}

// Each of these is a program that was built when the structure ended there.
TEST(COptions, EveryPrefixOfAStructureIsAnOlderProgram) {
  const char* const text =
      "braze 1 graph\ngraph @twice(%x: f32[3]) {\n  %y = add %x, %x : f32[3]\n  return %y as "
      "\"y\"\n}\n";
  for (size_t size = sizeof(size_t); size <= sizeof(braze_compile_options); size += 8) {
    braze_compile_options options{size, "none such", nullptr, 0};
    const bool says_precision = size > offsetof(braze_compile_options, precision);
    if (!says_precision || size == sizeof(options)) options.precision = "strict";
    braze_function* function = nullptr;
    EXPECT_EQ(braze_function_compile(text, "twice.braze", &options, "cpu", &function),
              options.precision[0] == 'n' ? BRAZE_INVALID_ARGUMENT : BRAZE_OK)
        << size << ": " << braze_last_error();
    braze_function_release(function);
  }
  alignas(64) static const float values[2] = {3, 4};
  const int64_t shape = 2;
  for (size_t size = offsetof(braze_memory, release); size <= sizeof(braze_memory); size += 8) {
    int released = 0;
    const braze_memory memory{size,
                              values,
                              BRAZE_F32,
                              1,
                              &shape,
                              nullptr,
                              "cpu",
                              [](void* user) {
                                if (user) ++*static_cast<int*>(user);
                              },
                              &released,
                              1};
    braze_array* array = nullptr;
    ASSERT_EQ(braze_array_borrow(&memory, &array), BRAZE_OK) << braze_last_error();
    braze_array_release(array);
    EXPECT_EQ(released, size > offsetof(braze_memory, user) ? 1 : 0) << size;
  }
}

TEST(CCompile, CompilesTextsAndSaysWhatIsWrong) {
  const char* const text =
      "braze 1 graph\ngraph @twice(%x: f32[3]) {\n  %y = add %x, %x : f32[3]\n  return %y as "
      "\"y\"\n}\n";
  braze_function* function = nullptr;
  ASSERT_EQ(braze_function_compile(text, "twice.braze", nullptr, "cpu", &function), BRAZE_OK)
      << braze_last_error();
  EXPECT_STREQ(braze_function_name(function), "twice");
  EXPECT_STREQ(braze_function_output_type(function, 0), "f32[3]");
  EXPECT_THAT(braze_function_explain(function), HasSubstr("twice.braze:3"));
  braze_function_release(function);

  braze_compile_options options{sizeof(options)};
  options.precision = "exact";
  EXPECT_EQ(braze_function_compile(text, nullptr, &options, "cpu", &function),
            BRAZE_INVALID_ARGUMENT);
  EXPECT_STREQ(braze_last_error_code(), "bad-setting");
  EXPECT_EQ(function, nullptr);
  options.precision = "strict";
  EXPECT_EQ(braze_function_compile(text, nullptr, &options, "interpreter", &function), BRAZE_OK);
  braze_function_release(function);
  EXPECT_EQ(braze_function_compile("no graph", "a.braze", nullptr, "cpu", &function),
            BRAZE_INVALID_ARGUMENT);
  EXPECT_THAT(braze_last_error(), HasSubstr("a.braze:1"));
  EXPECT_EQ(braze_function_compile(nullptr, nullptr, nullptr, "cpu", &function),
            BRAZE_INVALID_ARGUMENT);
  EXPECT_STREQ(braze_last_error_code(), "null-handle");
  EXPECT_EQ(braze_function_compile(text, nullptr, nullptr, "nowhere", &function),
            BRAZE_INVALID_ARGUMENT);
  EXPECT_STREQ(braze_last_error_code(), "no-such-device");
}

}  // namespace
}  // namespace braze
