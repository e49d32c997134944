// Prefill attention on Hopper: which kernel runs a call, and what it needs before.
#include "ops/attention/prefill/prefill_sm90.h"

#include "ops/attention/prefill/copies_cuda.h"
#include "ops/attention/prefill/kernel_sm90.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

// Calls body(Constant<head_dim>{}).
template <typename Body>
gpuError_t dispatch_head_dim(int head_dim, Body&& body) {
  switch (head_dim) {
    case 64:
      return body(Constant<64>{});
    case 128:
      return body(Constant<128>{});
    case 256:
      return body(Constant<256>{});
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename T>
gpuError_t launch_for(const AttentionArgs& params,
                      int min_queries,
                      int32_t* counter,
                      gpuStream_t stream) {
  return dispatch_head_dim(params.head_dim, [&]<int kHeadDim>(Constant<kHeadDim>) {
    if (params.float8_cache) {
      return launch_kernel<T, Float8E4m3, kHeadDim>(params, min_queries, counter, stream);
    }
    return launch_kernel<T, T, kHeadDim>(params, min_queries, counter, stream);
  });
}

gpuError_t launch_for_element(const AttentionArgs& params,
                              int min_queries,
                              int32_t* counter,
                              gpuStream_t stream) {
  return params.element == Element::kBFloat16
             ? launch_for<gpu_bfloat16>(params, min_queries, counter, stream)
             : launch_for<__half>(params, min_queries, counter, stream);
}

}  // namespace

bool supports_attention_prefill_sm90(const AttentionArgs& params) {
  const bool head_dim = params.head_dim == 64 || params.head_dim == 128 || params.head_dim == 256;
  const bool element = params.element == Element::kFloat16 || params.element == Element::kBFloat16;
  const bool block_size = params.block_size == 16 || params.block_size == 32 ||
                          params.block_size == 64 || params.block_size % 128 == 0;
  return head_dim && element && block_size && params.scale > 0 && params.num_kv_heads > 0 &&
         params.num_heads % params.num_kv_heads == 0 &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

size_t attention_prefill_sm90_workspace_size(const AttentionArgs& params) {
  return attention_copies_size(params);
}

gpuError_t launch_attention_prefill_sm90(const AttentionArgs& params,
                                         int32_t min_queries,
                                         void* workspace,
                                         size_t workspace_size,
                                         int32_t* counter,
                                         gpuStream_t stream) {
  if (workspace_size == 0) {
    return launch_for_element(params, min_queries, counter, stream);
  }
  AttentionCopies copies;
  gpuError_t error =
      launch_attention_copies(params, min_queries, workspace, workspace_size, stream, copies);
  if (error == cudaSuccess) {
    error = launch_for_element(copies.copied, min_queries, counter, stream);
  }
  if (error == cudaSuccess && copies.has_direct) {
    error = launch_for_element(copies.direct, min_queries, counter, stream);
  }
  return error;
}

}  // namespace atom::ops
