#include "ops/attention/prefill/expanded_sm90.h"

#include "ops/attention/prefill/kernel_sm90.cuh"

namespace atom::ops {

using namespace attention_device;

namespace {

constexpr int kKeyDim = 192;
using Tile = PrefillTile<gpu_bfloat16, kKeyDim>;
static_assert(Tile::kValueDim == 128);
static_assert(Tile::kSharedBytes <= 227 * 1024);

}  // namespace

bool supports_attention_expanded_sm90(const AttentionArgs& params) {
  return params.head_dim == kKeyDim && params.element == Element::kBFloat16 &&
         !params.float8_cache && params.block_size % Tile::kKeys == 0 && params.scale > 0 &&
         params.num_kv_heads > 0 && params.num_heads % params.num_kv_heads == 0 &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

gpuError_t launch_attention_expanded_sm90(const AttentionArgs& params,
                                          int32_t* counter,
                                          gpuStream_t stream) {
  return launch_kernel<gpu_bfloat16, gpu_bfloat16, kKeyDim>(params, 1, counter, stream);
}

}  // namespace atom::ops
