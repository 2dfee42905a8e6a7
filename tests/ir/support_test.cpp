#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <unordered_set>

#include "braze/error.h"
#include "ir/support/env.h"
#include "ir/support/hash.h"
#include "ir/support/ids.h"
#include "ir/support/parallel.h"
#include "ir/support/shell.h"
#include "ir/support/text.h"

namespace braze {
namespace {

constexpr Code kTestCode{"test-code", ErrorKind::Unsupported, "Only tests raise this."};

template <class Function>
Error error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return Error(kTestCode, "no error", {});
}

TEST(Error, TellsEverything) {
  const Error error = error_of([] {
    fail(kTestCode, "cannot do that",
         {.location = {"model.cpp", 12, 0}, .node = "%3 = add", .fix = "do this"});
  });
  EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
  EXPECT_EQ(error.message(), "cannot do that");
  EXPECT_STREQ(error.what(),
               "unsupported [test-code]: cannot do that\n  at model.cpp:12\n  in %3 = add\n"
               "  fix: do this");
}

TEST(Error, InternalOnesNamePlaceAndAskForReport) {
  const Error error = error_of([] { BRAZE_CHECK(1 + 1 == 3, std::string("numbers are off")); });
  EXPECT_EQ(error.kind(), ErrorKind::Internal);
  const std::string text = error.what();
  EXPECT_NE(text.find("numbers are off"), std::string::npos);
  EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos);
  EXPECT_NE(text.find("support_test.cpp:"), std::string::npos);
  EXPECT_NE(text.find("please report"), std::string::npos);
  EXPECT_NO_THROW(BRAZE_CHECK(true, std::string("fine")));
}

TEST(Error, Diagnostics) {
  EXPECT_NO_THROW(fail_if_any({}, "the graph"));
  const Diagnostic one{&kTestCode, {"a.braze", 3, 7}, "%1 = add %0", "operand 1 is missing"};
  EXPECT_EQ(one.to_string(), "a.braze:3:7: operand 1 is missing [test-code]\n    %1 = add %0");
  const Error single = error_of([&] { fail_if_any({one}, "the graph"); });
  EXPECT_EQ(single.message(), "the graph: operand 1 is missing");
  EXPECT_EQ(single.location().to_string(), "a.braze:3:7");
  EXPECT_EQ(single.node(), "%1 = add %0");
  const Error many = error_of([&] { fail_if_any(std::vector<Diagnostic>(50, one), "the graph"); });
  EXPECT_EQ(many.message().find("the graph: 50 findings"), 0u);
  EXPECT_NE(many.message().find("and 30 more"), std::string::npos);
}

TEST(SourceLocation, Text) {
  EXPECT_EQ(SourceLocation().to_string(), "");
  EXPECT_FALSE(SourceLocation());
  const SourceLocation here = std::source_location::current();
  EXPECT_EQ(here.column, 0u);
  EXPECT_NE(here.to_string().find("support_test.cpp:"), std::string::npos);
  // The name outlives what it was made from.
  SourceLocation kept;
  {
    const std::string name = "a file name longer than a small string";
    kept = SourceLocation(name, 1, 2);
  }
  EXPECT_EQ(kept.to_string(), "a file name longer than a small string:1:2");
}

TEST(Hash, KnownValues) {
  // From the reference implementation of XXH3: names in caches depend on them.
  EXPECT_EQ(hash64(""), 0x2d06800538d394c2u);
  EXPECT_EQ(hash128("").to_string(), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(hash128("a"), hash128("b"));
  EXPECT_EQ(hash128("braze").to_string().size(), 32u);
  EXPECT_NE(hash_combine(1, 2), hash_combine(2, 1));
}

TEST(Text, Numbers) {
  EXPECT_EQ(number_text(1), "1");
  EXPECT_EQ(number_text(-0.0), "-0");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(1e300), "1e+300");
  EXPECT_EQ(number_text(INFINITY), "inf");
  EXPECT_EQ(number_text(-INFINITY), "-inf");
  EXPECT_EQ(number_text(-NAN), "nan");
  EXPECT_EQ(float_text(0.1f), "0.1");
}

TEST(Text, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(bytes_text(UINT64_MAX), "16.0 EiB");
}

TEST(Text, Join) {
  const auto text = [](int i) { return std::to_string(i); };
  EXPECT_EQ(join(std::vector<int>{}, ", ", text), "");
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}, ", ", text), "1, 2, 3");
}

TEST(Text, PathsAsWordsOfAShell) {
  EXPECT_EQ(shell_path("/tmp/a-b_c.d+e"), "/tmp/a-b_c.d+e");
  EXPECT_EQ(shell_path("a b"), "'a b'");
  EXPECT_EQ(shell_path("$(id);*~"), "'$(id);*~'");
  EXPECT_EQ(shell_path("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_path("-f"), "./-f");
  EXPECT_EQ(shell_path("- f"), "'./- f'");
  EXPECT_EQ(shell_path("~"), "'~'");
  EXPECT_EQ(shell_path("\xc3\xa4"), "'\xc3\xa4'");
  EXPECT_EQ(shell_path("a\n\x1b[31m'\\"), "$'a\\012\\033[31m\\'\\\\'");
  EXPECT_EQ(shell_path(""), "''");
}

TEST(Env, IntegersAreChecked) {
  const EnvVariable variable{"BRAZE_TEST_VARIABLE", "only for this test"};
  unsetenv(variable.name);
  EXPECT_EQ(read_env_int(variable, 0, 5), std::nullopt);
  setenv(variable.name, "", 1);
  EXPECT_EQ(read_env(variable), std::nullopt);
  setenv(variable.name, "5", 1);
  EXPECT_EQ(read_env_int(variable, 0, 5), 5);
  for (const char* wrong : {"6", "-1", "x", "5x", " 5", "5 ", "99999999999999999999"}) {
    setenv(variable.name, wrong, 1);
    const Error error = error_of([&] { read_env_int(variable, 0, 5); });
    EXPECT_EQ(error.code().name, "environment") << wrong;
  }
  unsetenv(variable.name);
}

TEST(Env, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const EnvVariable& variable : env_variables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_FALSE(variable.meaning.empty());
  }
}

TEST(Parallel, DoesEverythingOnce) {
  for (const unsigned threads : {1u, 2u, 16u}) {
    std::vector<int> done(1000);
    parallel_for(done.size(), threads, [&](size_t i) { ++done[i]; });
    EXPECT_EQ(done, std::vector<int>(1000, 1)) << threads;
  }
  parallel_for(0, [](size_t) { FAIL(); });
}

TEST(Parallel, TheErrorIsThatOfTheFirst) {
  for (int attempt = 0; attempt < 50; ++attempt) {
    const Error error = error_of([] {
      parallel_for(64, 8, [](size_t i) {
        if (i % 7 == 5) fail(kTestCode, std::to_string(i));
      });
    });
    EXPECT_EQ(error.message(), "5");
  }
}

TEST(Id, DistinguishesNone) {
  using TestId = Id<struct TestTag>;
  EXPECT_FALSE(TestId());
  EXPECT_TRUE(TestId(0));
  EXPECT_LT(TestId(1), TestId(2));
  EXPECT_EQ(std::unordered_set<TestId>({TestId(1), TestId(1), TestId(2)}).size(), 2u);
}

}  // namespace
}  // namespace braze
