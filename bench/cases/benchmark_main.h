// benchmark_main.h — the main function of benchmarks that register their own cases.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdio>

#include "braze/error.h"

namespace braze {

/// Makes a Fixture, which lives as long as the cases that `add_cases` registers with it, and runs
/// those that the command line asks for. Returns the exit status: 2 for arguments that nobody
/// knows, 1 for an error, which is printed.
template <class Fixture>
int benchmark_main(int argc, char** argv, void (*add_cases)(const Fixture&)) {
  try {
    const Fixture fixture;
    add_cases(fixture);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace braze
