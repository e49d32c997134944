// Inside attention: how sums of weights become a softmax. Rounded step by step, so that no two
// kernels do it in two ways.
#pragma once

#include "ops/attention/device/mma.cuh"
#include "ops/attention/device/visible_keys.h"

namespace atom::ops::attention_device {

constexpr float kLog2E = 1.4426950408889634f;

// 2^(score * scale_log2 - base)
__device__ inline float weight_of(float score, float scale_log2, float base) {
  return exp2_fast(__fmaf_rn(score, scale_log2, -base));
}

// The factor that turns sums weighted against `maximum` (of scores times log2(e)) into the softmax
// of query head `head`, the sink included.
__device__ inline float normalizer(const AttentionArgs& params,
                                   int64_t head,
                                   float maximum,
                                   float sum) {
  if (params.sinks == nullptr) {
    return __fdiv_rn(params.v_scale, sum);
  }
  const float sink = __fmul_rn(params.sinks[head], kLog2E);
  const float top = fmaxf(maximum, sink);
  const float shift = exp2_fast(__fsub_rn(maximum, top));
  const float all = __fmaf_rn(sum, shift, exp2_fast(__fsub_rn(sink, top)));
  return __fdiv_rn(__fmul_rn(params.v_scale, shift), all);
}

}  // namespace atom::ops::attention_device
