// What a step of a dense model has to do at least, counted from its configuration: the bytes that
// must be read and the floating point operations. Measured times are judged against these.
#pragma once

#include <cstdint>

#include "config/model_config.h"
#include "ops/roofs/roofs.h"
#include "tensor/dtype.h"

namespace atom::cli {

struct StepWork {
  int64_t weight_bytes = 0;  // each weight once; of the embedding only the rows looked up
  int64_t kv_bytes = 0;      // keys and values read and written
  int64_t flops = 0;         // a multiply-add is two

  int64_t bytes() const { return weight_bytes + kv_bytes; }
};

// One new token for each of `batch` sequences, which then have `context_len` tokens.
StepWork decode_work(const ModelConfig& config, DType dtype, int64_t batch, int64_t context_len);

// `batch` whole prompts of `prompt_len` tokens, of which the last row of each gets logits.
StepWork prefill_work(const ModelConfig& config, DType dtype, int64_t batch, int64_t prompt_len);

// Floating point operations per second that `dtype` can have at most.
double peak_flops(const ops::CpuRoofs& roofs, DType dtype);

// Seconds that the work takes at least.
double least_seconds(const StepWork& work, const ops::CpuRoofs& roofs, DType dtype);

}  // namespace atom::cli
