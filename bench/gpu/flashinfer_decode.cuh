// What FlashInfer's two decode kernels share.
#pragma once

#include <flashinfer/page.cuh>
#include <stdexcept>
#include <utility>

#include "flashinfer_kernels.h"

namespace atom::bench {

// `Info` is of the plan that lies in `workspace`. What is the kernel's own is left to the caller.
template <typename Params, typename Info>
Params flashinfer_decode_params(const FlashInferBatch& batch,
                                const FlashInferWorkspace& workspace,
                                const Info& info) {
  using Element = typename Params::DTypeQ;
  using CacheElement = typename Params::DTypeKV;
  const ops::AttentionArgs& ours = batch.params();
  const auto cache = [](const void* data) {
    return const_cast<CacheElement*>(static_cast<const CacheElement*>(data));
  };
  Params params;
  params.q = const_cast<Element*>(static_cast<const Element*>(ours.q));
  params.paged_kv = flashinfer::paged_kv_t<CacheElement, int32_t>(ours.num_kv_heads,
                                                                  ours.block_size,
                                                                  ours.head_dim,
                                                                  ours.num_sequences,
                                                                  flashinfer::QKVLayout::kNHD,
                                                                  cache(ours.k_cache),
                                                                  cache(ours.v_cache),
                                                                  batch.device_pages(),
                                                                  batch.device_first_page(),
                                                                  batch.device_last_page_len());
  params.o = static_cast<Element*>(ours.out);
  params.padded_batch_size = info.padded_batch_size;
  params.num_qo_heads = ours.num_heads;
  params.q_stride_n = static_cast<int32_t>(ours.q_token_stride);
  params.q_stride_h = static_cast<int32_t>(ours.q_head_stride);
  params.window_left = -1;
  params.sm_scale = ours.scale * ours.k_scale;
  params.request_indices = workspace.int_at<int32_t>(info.request_indices_offset);
  params.kv_tile_indices = workspace.int_at<int32_t>(info.kv_tile_indices_offset);
  params.o_indptr = workspace.int_at<int32_t>(info.o_indptr_offset);
  params.kv_chunk_size_ptr = workspace.int_at<int32_t>(info.kv_chunk_size_ptr_offset);
  return params;
}

// plan.operator()<CacheElement>() for the batch's cache, whose sequences have one query each.
template <typename Plan>
FlashInferKernel plan_flashinfer_decode_of(const FlashInferBatch& batch, Plan&& plan) {
  if (batch.params().num_tokens != batch.params().num_sequences) {
    throw std::invalid_argument("FlashInfer's decode: a sequence has more than one query");
  }
  return batch.params().float8_cache ? plan.template operator()<__nv_fp8_e4m3>()
                                     : plan.template operator()<__nv_bfloat16>();
}

}  // namespace atom::bench
