// The figures of `atom bench serve` for people.
#pragma once

#include <string>
#include <vector>

#include "bench_serve/benchmark.h"

namespace atom::cli {

// `metrics`: those that get a row of the second table.
std::string bench_serve_tables(const bench_serve::BenchmarkReport& report,
                               const std::vector<std::string>& metrics);

// What makes the figures doubtful, one line each: failures, a generator that came late or had no
// time, tokens that were counted by events.
std::vector<std::string> bench_serve_doubts(const bench_serve::BenchmarkReport& report);

}  // namespace atom::cli
