// What a step of a dense model has to do at least, counted from its configuration: the bytes that
// must be read and the floating point operations. Measured times are judged against these.
#pragma once

#include <cstdint>

#include "config/resolve.h"
#include "ops/roofs/roofs.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace atom::cli {

// What a model is stored and computed in.
struct WorkTypes {
  DType dtype = DType::kFloat32;    // of activations, embedding, norms and head
  DType linears = DType::kFloat32;  // of the weights of linear layers, as they are stored
  DType kv_cache = DType::kFloat32;
  bool multiplies_fp8 = false;  // linear layers multiply in FP8

  static WorkTypes all(DType dtype) { return {dtype, dtype, dtype, false}; }
};

WorkTypes work_types(const ResolvedConfig& config, Device device);

struct StepWork {
  int64_t weight_bytes = 0;     // each weight once; of the embedding only the rows looked up
  int64_t kv_bytes = 0;         // keys and values read and written
  int64_t flops = 0;            // a multiply-add is two
  int64_t fp8_flops = 0;        // how many of them are FP8
  int64_t attention_flops = 0;  // how many of them are attention's

  int64_t bytes() const { return weight_bytes + kv_bytes; }
};

// One new token for each of `batch` sequences, which then have `context_len` tokens.
StepWork decode_work(const ModelConfig& config,
                     const WorkTypes& types,
                     int64_t batch,
                     int64_t context_len);

// `batch` whole prompts of `prompt_len` tokens, of which the last row of each gets logits.
StepWork prefill_work(const ModelConfig& config,
                      const WorkTypes& types,
                      int64_t batch,
                      int64_t prompt_len);

// Seconds that the arithmetic takes at least; 0 where that roof was not measured.
double least_compute_seconds(const StepWork& work, const ops::Roofs& roofs, DType dtype);

// Seconds that the work takes at least, reading and arithmetic overlapped.
double least_seconds(const StepWork& work, const ops::Roofs& roofs, DType dtype);

}  // namespace atom::cli
