// Which rows of a step's hidden states go through the head: someone wants their logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runner/runner_sequence.h"
#include "scheduler/scheduler_output.h"

namespace atom {

struct HeadRow {
  size_t sequence = 0;  // index into SchedulerOutput::scheduled
  int32_t hidden_row = 0;
  int32_t scored_token = -1;  // the prompt token that this row predicts; -1: sample from the row
};

// First the rows that score tokens of prompts, then those that sample, of a sequence one after the
// other. `sequences` in the order of `step.scheduled`.
std::vector<HeadRow> select_head_rows(const SchedulerOutput& step,
                                      std::span<RunnerSequence* const> sequences);

// How many of them score.
size_t count_scored(std::span<const HeadRow> rows);

}  // namespace atom
