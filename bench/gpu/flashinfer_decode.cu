#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>

#include "flashinfer_decode.cuh"

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
  const ops::AttentionArgs& params = batch.params();
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
  const FlashInferWorkspace& workspace = plan.workspace;
  auto params = flashinfer_decode_params<Params<CacheElement>>(batch, workspace, plan.info);
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
  return plan_flashinfer_decode_of(
      batch, [&]<typename CacheElement>() { return plan_decode<CacheElement>(batch); });
}

}  // namespace atom::bench
