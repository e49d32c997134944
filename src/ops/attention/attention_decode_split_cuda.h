// Decode attention with every row cut by its length alone, into splits that blocks take in turn;
// see attention_decode_cuda.h, which chooses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/attention_gpu.h"

namespace atom::ops {

size_t attention_decode_split_workspace_size(const AttentionGpuParams& params);

size_t attention_decode_split_num_counters(const AttentionGpuParams& params);

gpuError_t launch_attention_decode_split_cuda(const AttentionGpuParams& params,
                                              void* workspace,
                                              int32_t* counters,
                                              gpuStream_t stream);

}  // namespace atom::ops
