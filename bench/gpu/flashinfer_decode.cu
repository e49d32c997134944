#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <stdexcept>

#include "flashinfer_kernels.h"

namespace atom::bench {
namespace {

using Element = __nv_bfloat16;
using Variant = flashinfer::DefaultAttention</*use_custom_mask=*/false,
                                             /*use_sliding_window=*/false,
                                             /*use_logits_soft_cap=*/false,
                                             /*use_alibi=*/false>;
constexpr auto kNoRope = flashinfer::PosEncodingMode::kNone;

struct Plan {
  FlashInferWorkspace workspace;
  flashinfer::DecodePlanInfo info;
};

template <typename CacheElement>
using Params = flashinfer::BatchDecodeParams<Element, CacheElement, Element, int32_t>;

template <typename CacheElement>
std::shared_ptr<Plan> make_plan(const FlashInferBatch& batch) {
  const ops::AttentionGpuParams& params = batch.params();
  std::vector<int32_t> first_page = batch.pages().first_page;
  auto plan = std::make_shared<Plan>();
  const FlashInferWorkspace& workspace = plan->workspace;
  const auto estimate =
      flashinfer::BatchDecodeWithPagedKVCacheWorkEstimationDispatched<kFlashInferGroupSize,
                                                                      kFlashInferHeadDim,
                                                                      kNoRope,
                                                                      Variant,
                                                                      Params<CacheElement>>;
  check_gpu(flashinfer::DecodePlan<kFlashInferHeadDim, kNoRope, Variant, Params<CacheElement>>(
                workspace.floats.get(),
                workspace.floats.size(),
                workspace.ints.get(),
                workspace.staging,
                workspace.ints.size(),
                plan->info,
                first_page.data(),
                params.num_sequences,
                params.num_heads,
                params.block_size,
                /*enable_cuda_graph=*/false,
                /*stream=*/nullptr,
                estimate),
            "DecodePlan");
  check_gpu(cudaDeviceSynchronize(), "DecodePlan");
  return plan;
}

template <typename CacheElement>
void launch(const FlashInferBatch& batch, const Plan& plan, gpuStream_t stream) {
  const ops::AttentionGpuParams& ours = batch.params();
  const FlashInferWorkspace& workspace = plan.workspace;
  const auto cache = [](const void* data) {
    return const_cast<CacheElement*>(static_cast<const CacheElement*>(data));
  };
  Params<CacheElement> params;
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
  params.padded_batch_size = plan.info.padded_batch_size;
  params.num_qo_heads = ours.num_heads;
  params.q_stride_n = static_cast<int32_t>(ours.q_token_stride);
  params.q_stride_h = static_cast<int32_t>(ours.q_head_stride);
  params.window_left = -1;
  params.sm_scale = ours.scale * ours.k_scale;
  params.request_indices = workspace.int_at<int32_t>(plan.info.request_indices_offset);
  params.kv_tile_indices = workspace.int_at<int32_t>(plan.info.kv_tile_indices_offset);
  params.o_indptr = workspace.int_at<int32_t>(plan.info.o_indptr_offset);
  params.kv_chunk_size_ptr = workspace.int_at<int32_t>(plan.info.kv_chunk_size_ptr_offset);
  const bool splits = plan.info.split_kv;
  check_gpu(flashinfer::BatchDecodeWithPagedKVCacheDispatched<kFlashInferHeadDim, kNoRope, Variant>(
                params,
                splits ? workspace.float_at<Element>(plan.info.v_offset) : nullptr,
                splits ? workspace.float_at<float>(plan.info.s_offset) : nullptr,
                /*enable_pdl=*/true,
                stream),
            "FlashInfer's decode");
}

template <typename CacheElement>
FlashInferKernel plan_decode(const FlashInferBatch& batch) {
  const auto plan = make_plan<CacheElement>(batch);
  return {[plan](const FlashInferBatch& launched, gpuStream_t stream) {
            launch<CacheElement>(launched, *plan, stream);
          },
          static_cast<int>(plan->info.padded_batch_size)};
}

}  // namespace

FlashInferKernel plan_flashinfer_decode(const FlashInferBatch& batch) {
  if (batch.params().num_tokens != batch.params().num_sequences) {
    throw std::invalid_argument("FlashInfer's decode: a sequence has more than one query");
  }
  return batch.params().kv_element == ops::AttentionElement::kBfloat16
             ? plan_decode<Element>(batch)
             : plan_decode<__nv_fp8_e4m3>(batch);
}

}  // namespace atom::bench
