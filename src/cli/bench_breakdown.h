// Where the time of a step goes, operator by operator. The model runs on this thread without an
// engine: each operator is launched and timed on its own. Decode steps are recorded besides, as an
// engine has them, for their time and the number of their launches.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cli/bench_session.h"
#include "cli/bench_work.h"
#include "config/engine_config.h"
#include "ops/roofs/roofs.h"
#include "runner/expert_counter.h"
#include "tensor/operator_trace.h"

namespace atom::cli {

// All calls of an operator that are alike: the same variant and the same work.
struct OperatorTotal {
  std::string op;
  std::string variant;
  int num_calls = 0;
  double seconds = 0;
  OperatorWork work = {};  // of all calls
};

struct StepBreakdown {
  std::string name;                      // "decode of 8, 1024 tokens each"
  double seconds = 0;                    // of all operators, launched one by one
  double recorded_seconds = 0;           // of the recorded step; 0: none is recorded
  StepWork work;                         // of a recorded step, by the experts that it reads
  ExpertLoad experts;                    // what its tokens chose
  double evenly_chosen = 0;              // experts of a layer that even routing would choose
  int64_t num_launches = 0;              // of kernels, copies and fills, recorded; 0: not counted
  std::vector<OperatorTotal> operators;  // the longest first
  std::vector<OperatorRun> runs;         // in order
};

struct BreakdownReport {
  std::string model;  // architecture and dtypes
  std::string machine;
  DType dtype = DType::kFloat32;
  int32_t num_layers = 0;
  int64_t num_experts = 0;  // of a layer
  ops::Roofs roofs;
  std::vector<StepBreakdown> steps;
};

// A decode step of each batch, whose sequences have input_len tokens, and a prefill of input_len
// tokens for each shape with answers of one token. Of `num_iters` steps the fastest counts.
Result<BreakdownReport> break_down(const EngineConfig& engine,
                                   const std::vector<BatchShape>& shapes,
                                   int32_t num_iters);

// `runs` of one step, alike calls together, the longest first.
std::vector<OperatorTotal> total_operators(const std::vector<OperatorRun>& runs);

// The least time that the work takes over its time; 0 where nothing bounds it.
double share_of_roof(const OperatorTotal& total, const ops::Roofs& roofs, DType dtype);

std::string breakdown_text(const BreakdownReport& report);
OrderedJson breakdown_json(const BreakdownReport& report);
// What chrome://tracing and ui.perfetto.dev read.
OrderedJson chrome_trace(const BreakdownReport& report);

}  // namespace atom::cli
