// Inside rms_norm_quant_fp8: what its kernels take.
#pragma once

#include "ops/rms_norm/rms_norm_kernels.h"

namespace atom::ops {

struct RmsNormQuantFp8Args {
  RmsNormArgs norm;  // one head; `out` are the codes
  float* scales;     // per token, written; null: static_scale points to the scale
  const float* static_scale;
};

// On a GPU's queue (DeviceQueue::handle()).
void rms_norm_quant_fp8_cuda(const RmsNormQuantFp8Args& args, int64_t num_rows, void* queue);

}  // namespace atom::ops
