// The figures of `atom bench`, as a table and as JSON.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench_session.h"

namespace atom::cli {

struct BenchSample {
  BatchFigures figures;
  ops::Roofs roofs;  // mean of what was measured just before and just after
};

// One shape, run several times.
struct BenchMeasurement {
  std::string name;
  BatchShape shape;
  bool runs_at_once = true;  // the whole batch is one step, so that steps have a known bound
  // The time between tokens is the difference to a run with answers of one token.
  bool by_difference = false;
  std::vector<BenchSample> samples = {};
};

struct BenchReport {
  std::string mode;
  std::string checkpoint;
  std::string architecture;
  ModelWork work;
  std::string machine;
  int32_t num_threads = 0;
  std::vector<ops::Roofs> roofs;  // all, in the order they were measured
  std::vector<BenchMeasurement> measurements;
};

// One line of medians.
std::string roofs_text(std::span<const ops::Roofs> measured);
OrderedJson roofs_json(const ops::Roofs& roofs);

std::string bench_table(const BenchReport& report);
OrderedJson bench_json(const BenchReport& report);

}  // namespace atom::cli
