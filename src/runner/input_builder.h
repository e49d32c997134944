// Turns a SchedulerOutput into the tensors of a ForwardContext. The buffers are sized once for the
// largest step and reused: a context is valid until the next build. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "config/scheduler_config.h"
#include "nn/forward_context.h"
#include "runner/runner_sequence.h"
#include "scheduler/scheduler_output.h"

namespace atom {

struct StepInputs {
  Tensor token_ids;  // [num_tokens] int32
  Tensor positions;  // [num_tokens] int32
  AttentionMetadata attention;
};

class InputBuilder {
 public:
  explicit InputBuilder(const SchedulerConfig& config);

  // Bytes of the buffers.
  static int64_t num_bytes(const SchedulerConfig& config);

  // `sequences` in the order of `step.scheduled`, their tokens and block tables up to date.
  StepInputs build(const SchedulerOutput& step, std::span<RunnerSequence* const> sequences);

 private:
  int32_t block_size_;
  int64_t max_blocks_;   // per sequence
  Tensor token_ids_;     // [max_num_batched_tokens]
  Tensor positions_;     // [max_num_batched_tokens]
  Tensor slot_mapping_;  // [max_num_batched_tokens]
  Tensor query_start_;   // [max_num_seqs + 1]
  Tensor seq_lens_;      // [max_num_seqs]
  Tensor block_tables_;  // [max_num_seqs * max_blocks]
};

}  // namespace atom
