// The timeline: what is in it, and that it is sound JSON whatever happens to the process.
#include "braze/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "braze/compile.h"
#include "ir/graph/text.h"
#include "ir/support/json_string.h"
#include "ir/support/trace.h"
#include "tests/runtime/programs.h"
#include "tests/runtime/trace_reader.h"

namespace braze::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Trace : public testing::Test {
 protected:
  void TearDown() override {
    stop_trace();
    std::filesystem::remove(path_);
  }
  std::vector<TraceEvent> stop_and_read() {
    stop_trace();
    std::vector<TraceEvent> events = read_trace(path_);
    check_nesting(events);
    return events;
  }
  const std::string path_ = testing::TempDir() + "trace-" + std::to_string(getpid()) + ".json";
};

TEST(JsonString, EscapesAndReplaces) {
  EXPECT_EQ(json_string("a\"b\\c\n\x01"), R"("a\"b\\c\u000a\u0001")");
  EXPECT_EQ(json_string("\xc3\xa4\xe2\x82\xac"), "\"\xc3\xa4\xe2\x82\xac\"");
  EXPECT_EQ(json_string("\xff.\xc3"), "\"\xef\xbf\xbd.\xef\xbf\xbd\"");
}

TEST_F(Trace, UserSpansNestAndKeepTheirNames) {
  const std::string odd = "odd \"\\\n\t name \xff";
  {
    const TraceSpan early("before the timeline");
    EXPECT_FALSE(early);
  }
  ASSERT_TRUE(start_trace(path_));
  {
    TraceSpan outer("outer");
    EXPECT_TRUE(outer);
    outer.add("text", odd);
    outer.add("count", size_t{3});
    outer.add("ratio", 0.5);
    outer.add("nothing", NAN);
    const TraceSpan inner(odd);
    const TraceSpan of_category(odd, "innermost");
  }
  const std::vector<TraceEvent> events = stop_and_read();
  EXPECT_FALSE(TraceSpan("after the timeline"));
  const std::vector<TraceEvent> spans = in_category(events, "user");
  ASSERT_THAT(spans, SizeIs(2));
  EXPECT_EQ(spans[0].name, "outer");
  EXPECT_TRUE(spans[0].has(R"("count":3,"ratio":0.5,"nothing":"nan"})")) << spans[0].text;
  EXPECT_EQ(spans[1].name, "odd \"\\\n\t name \xef\xbf\xbd");
  EXPECT_EQ(spans[0].pid, getpid());
  EXPECT_EQ(spans[0].tid, gettid());
  EXPECT_THAT(in_category(events, "odd \"\\\n\t name \xef\xbf\xbd"), SizeIs(1));
}

TEST_F(Trace, EveryLaunchIsOnItsDevice) {
  const Executable triple = triple_program().load();
  const Executable sum = add_program().load();
  const Array x = filled(1000, 1);
  triple.run({{x}})[0].wait();
  ASSERT_TRUE(start_trace(path_));
  std::vector<Array> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(triple.run({{x}})[0]);
  kept.push_back(sum.run({{x, x}})[0]);
  for (const Array& array : kept) array.wait();
  const uint64_t live = memory_stats("cpu").live_bytes;
  const std::vector<TraceEvent> events = stop_and_read();
  const std::vector<TraceEvent> kernels = in_category(events, "kernel", "cpu");
  EXPECT_THAT(names_of(kernels),
              ElementsAre("double", "triple", "double", "triple", "double", "triple", "add"));
  EXPECT_TRUE(kernels[6].has(R"("bytes":12000,"GB/s":)")) << kernels[6].text;
  EXPECT_TRUE(kernels[6].has(R"("program":"sum")")) << kernels[6].text;
  EXPECT_TRUE(kernels[6].has(R"("instances":[16])")) << kernels[6].text;
  EXPECT_THAT(names_of(in_category(events, "launch")), SizeIs(7));
  EXPECT_THAT(names_of(in_category(events, "call")), Contains("execute sum"));

  std::vector<std::string> counts;
  for (const TraceEvent& event : in_category(events, "memory", "cpu"))
    if (event.phase == 'C') counts.emplace_back(trace_value(event.text, "bytes"));
  ASSERT_FALSE(counts.empty());
  for (const std::string& count : counts) EXPECT_GE(std::stoll(count), 0);
  EXPECT_EQ(counts.back(), std::to_string(live));
}

TEST_F(Trace, CompilationShowsPassesAndKernels) {
  constexpr std::string_view kGraph = R"(braze 1 graph
graph @soft(%x: f32[6, 40]) {
  %0 = reduce max %x {axes: [1]} : f32[6]
  %1 = broadcast %0 {axes: [0]} : f32[6, 40]
  %2 = sub %x, %1 : f32[6, 40]
  %3 = silu %2 : f32[6, 40]
  %4 = transpose %3 {permutation: [1, 0]} : f32[40, 6]
  %5 = dot %4, %3 {contract: [1] x [0]} : f32[40, 40]
  return %5 as "y"
}
)";
  const Graph graph = parse_graph(kGraph, "soft.braze");
  const Array x = filled(6 * 40, 0.5);
  for (const char* name : {"cpu", "sim:sm_90"}) {
    ASSERT_TRUE(start_trace(path_));
    const Device device(name);
    const auto program = std::make_shared<const Program>(compile(graph, device.target()));
    const Array input = Array::from_host(HostTensor(DType::F32, {6, 40}), device);
    Executable::load(program, device).run({{input}})[0].wait();
    const std::vector<TraceEvent> events = stop_and_read();
    const std::vector<TraceEvent> compiles = in_category(events, "compile");
    ASSERT_THAT(names_of(compiles), ElementsAre("compile soft"));
    const std::vector<TraceEvent> passes = in_category(events, "pass");
    for (const char* pass : {"expand", "fold", "simplify", "fusion", "plan"})
      EXPECT_THAT(names_of(passes), Contains(pass)) << name;
    const std::vector<std::string> steps = names_of(in_category(events, "lowering"));
    for (const Launch& launch : program->launches) {
      for (const char* step : {"tile ", "lower ", "generate "})
        EXPECT_THAT(steps, Contains(step + launch.name)) << name;
    }
    for (const char* category : {"pass", "lowering", "codegen"}) {
      for (const TraceEvent& event : in_category(events, category)) {
        EXPECT_GE(event.begin, compiles[0].begin) << event.text;
        EXPECT_LE(event.end, compiles[0].end) << event.text;
      }
    }
    EXPECT_EQ(in_category(events, "codegen").empty(), device.kind() == DeviceKind::Simulator);
    const std::vector<TraceEvent> kernels = in_category(events, "kernel", name);
    ASSERT_EQ(kernels.size(), program->launches.size());
    for (size_t i = 0; i < kernels.size(); ++i) {
      EXPECT_EQ(kernels[i].name, program->launches[i].name);
      for (const std::string& op : op_texts(*program, program->launches[i]))
        EXPECT_TRUE(kernels[i].has(json_string(op))) << kernels[i].text;
    }
    EXPECT_TRUE(kernels[0].has("soft.braze:")) << kernels[0].text;
    EXPECT_THAT(names_of(in_category(events, "load")), Contains("load soft"));
  }
}

TEST_F(Trace, ThreadsWriteAtOnce) {
  constexpr int kThreads = 6, kCalls = 40;
  const Executable sum = add_program().load();
  ASSERT_TRUE(start_trace(path_));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const Array x = filled(100, 1);
      for (int i = 0; i < kCalls; ++i) {
        const TraceSpan span("turn");
        sum.run({{x, x}})[0].wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<TraceEvent> events = stop_and_read();
  EXPECT_THAT(in_category(events, "user"), SizeIs(kThreads * kCalls));
  EXPECT_THAT(in_category(events, "kernel", "cpu"), SizeIs(kThreads * kCalls));
  std::map<int64_t, int> threads_seen;
  for (const TraceEvent& event : in_category(events, "user")) ++threads_seen[event.tid];
  EXPECT_THAT(threads_seen, SizeIs(kThreads));
}

TEST_F(Trace, MayBeginAndEndWhileOthersWork) {
  const Executable sum = add_program().load();
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const Array x = filled(100, 1);
      while (!done) {
        const TraceSpan span("turn");
        sum.run({{x, x}})[0].wait();
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(start_trace(path_));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    stop_and_read();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Trace, WhatDoesNotFitIsCounted) {
  constexpr int kSpans = 1000;
  ASSERT_TRUE(start_trace(path_, {.max_bytes = 20'000}));
  for (int i = 0; i < kSpans; ++i) const TraceSpan span("one of many");
  testing::internal::CaptureStderr();
  const std::vector<TraceEvent> events = stop_and_read();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("events were left out"));
  EXPECT_LT(std::filesystem::file_size(path_), 21'000u);
  const size_t written = in_category(events, "user").size();
  EXPECT_GT(written, 50u);
  EXPECT_EQ(events.back().name,
            std::to_string(kSpans - written) + " events were left out, because the file is full");
}

TEST_F(Trace, FilesThatCannotBeWrittenAreOneWarning) {
  ASSERT_TRUE(start_trace(path_));
  stop_trace();
  EXPECT_TRUE(trace::is_whole());

  testing::internal::CaptureStderr();
  EXPECT_FALSE(start_trace("/nonexistent/t.json"));
  EXPECT_FALSE(trace::is_on());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("No such file or directory"));

  testing::internal::CaptureStderr();
  EXPECT_TRUE(start_trace("/dev/full"));
  for (int i = 0; i < 3000; ++i) const TraceSpan span("lost");
  EXPECT_FALSE(trace::is_on());
  stop_trace();
  EXPECT_FALSE(trace::is_whole());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("No space left"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(Trace, OnlyOneAtATime) {
  ASSERT_TRUE(start_trace(path_));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(start_trace(path_ + ".second"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".second"));
}

TEST_F(Trace, MemoryThatIsShortIsAMoment) {
  const uint64_t live = memory_stats("cpu").live_bytes;
  ASSERT_TRUE(start_trace(path_));
  empty_cache("cpu");
  set_memory_limit("cpu", live + 1024);
  EXPECT_THAT(error_of([] { filled(1 << 16, 1); }), HasSubstr("out-of-memory"));
  set_memory_limit("cpu", std::nullopt);
  const std::vector<TraceEvent> events = stop_and_read();
  EXPECT_THAT(
      names_of(in_category(events, "memory")),
      testing::IsSupersetOf({"memory is short: cache emptied", "memory is short: work awaited"}));
}

// A process that begins a timeline, makes spans and ends.
int ended(const std::string& path, void (*end)()) {
  const pid_t child = fork();
  if (child == 0) {
    start_trace(path);
    for (int i = 0; i < 1000; ++i) const TraceSpan span("of the child");
    end();
    _exit(99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(Trace, IsWholeAfterExit) {
  const int status = ended(path_, [] { std::exit(3); });
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_THAT(in_category(read_trace(path_), "user"), SizeIs(1000));
}

TEST_F(Trace, IsLegibleAfterDeath) {
  const int status = ended(path_, [] { raise(SIGKILL); });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_GT(in_category(read_trace(path_, /*whole=*/false), "user").size(), 300u);
}

TEST_F(Trace, ChildrenDoNotWriteIntoTheFile) {
  ASSERT_TRUE(start_trace(path_));
  { const TraceSpan span("of the parent"); }
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 2000; ++i) const TraceSpan span("of the child");
    stop_trace();
    _exit(trace::is_on());
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  { const TraceSpan span("of the parent"); }
  EXPECT_THAT(names_of(in_category(stop_and_read(), "user")),
              ElementsAre("of the parent", "of the parent"));
}

TEST_F(Trace, NameMayHoldTheProcess) {
  const std::string name = testing::TempDir() + "trace-%p-%p.json";
  const std::string id = std::to_string(getpid());
  ASSERT_TRUE(start_trace(name));
  stop_trace();
  const std::string file = testing::TempDir() + "trace-" + id + "-" + id + ".json";
  EXPECT_FALSE(read_trace(file).empty());
  std::filesystem::remove(file);
}

TEST(SpanRecorder, KeepsTheSpansOfAllThreadsWhileItLives) {
  { const TraceSpan before("before"); }
  std::vector<trace::EndedSpan> spans;
  {
    trace::SpanRecorder recorder;
    const TraceSpan outer("outer");
    { const TraceSpan inner("step", "inner", "of this"); }
    std::thread([] { const TraceSpan other("other"); }).join();
    spans = recorder.take();
    EXPECT_TRUE(recorder.take().empty());
  }
  { const TraceSpan after("after"); }
  ASSERT_THAT(spans, SizeIs(2));  // the outer one has not ended
  EXPECT_EQ(spans[0].category, "step");
  EXPECT_EQ(spans[0].name, "inner of this");
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_EQ(spans[1].name, "other");
  EXPECT_NE(spans[0].thread, spans[1].thread);
  EXPECT_TRUE(trace::SpanRecorder().take().empty());
}

}  // namespace
}  // namespace braze::test
