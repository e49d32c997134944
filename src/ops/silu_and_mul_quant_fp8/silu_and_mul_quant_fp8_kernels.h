// Inside silu_and_mul_quant_fp8: what its kernels take.
#pragma once

#include "ops/silu_and_mul/silu_and_mul_kernels.h"

namespace atom::ops {

struct SiluAndMulQuantFp8Args {
  SiluAndMulArgs product;  // `out` are the codes
  float* scales;           // per token, written; null: static_scale points to the scale
  const float* static_scale;
};

// On a GPU's queue (DeviceQueue::handle()).
void silu_and_mul_quant_fp8_cuda(const SiluAndMulQuantFp8Args& args, int64_t num_rows, void* queue);

}  // namespace atom::ops
