// FlashInfer's decode on tensor cores is its FlashAttention-2 prefill with one query per sequence:
// the query heads of a group are the rows of a tile.
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <stdexcept>

#include "flashinfer_decode.cuh"

namespace atom::bench {
namespace {

using Element = __nv_bfloat16;
using Variant = flashinfer::DefaultAttention</*use_custom_mask=*/false,
                                             /*use_sliding_window=*/false,
                                             /*use_logits_soft_cap=*/false,
                                             /*use_alibi=*/false>;
constexpr int kRowsPerTile = 16;

struct Plan {
  FlashInferWorkspace workspace;
  flashinfer::PrefillPlanInfo info;
};

template <typename CacheElement>
using Params = flashinfer::BatchPrefillPagedParams<Element, CacheElement, Element, int32_t>;

std::shared_ptr<Plan> make_plan(const FlashInferBatch& batch) {
  const ops::AttentionArgs& params = batch.params();
  std::vector<int32_t> query_start = batch.query_start();
  std::vector<int32_t> first_page = batch.pages().first_page;
  auto plan = std::make_shared<Plan>();
  const FlashInferWorkspace& workspace = plan->workspace;
  check_gpu(flashinfer::PrefillPlan<int32_t>(workspace.floats.get(),
                                             workspace.floats.size(),
                                             workspace.ints.get(),
                                             workspace.staging,
                                             workspace.ints.size(),
                                             plan->info,
                                             query_start.data(),
                                             first_page.data(),
                                             params.num_tokens,
                                             params.num_sequences,
                                             params.num_heads,
                                             params.num_kv_heads,
                                             params.head_dim,
                                             params.head_dim,
                                             params.block_size,
                                             /*enable_cuda_graph=*/false,
                                             sizeof(Element),
                                             /*window_left=*/-1,
                                             /*fixed_split_size=*/-1,
                                             /*disable_split_kv=*/false,
                                             /*num_colocated_ctas=*/0,
                                             /*stream=*/nullptr),
            "PrefillPlan");
  check_gpu(cudaDeviceSynchronize(), "PrefillPlan");
  if (plan->info.cta_tile_q != kRowsPerTile) {
    throw std::invalid_argument("FlashInfer's decode on tensor cores: planned for other tiles");
  }
  return plan;
}

template <typename CacheElement>
void launch(const FlashInferBatch& batch, const Plan& plan, gpuStream_t stream) {
  const FlashInferWorkspace& workspace = plan.workspace;
  auto params = flashinfer_decode_params<Params<CacheElement>>(batch, workspace, plan.info);
  params.q_indptr = batch.device_query_start();
  params.group_size = flashinfer::uint_fastdiv(kFlashInferGroupSize);
  params.qo_tile_indices = workspace.int_at<int32_t>(plan.info.qo_tile_indices_offset);
  params.max_total_num_rows = plan.info.total_num_rows;
  const bool splits = plan.info.split_kv;
  if (splits) {
    params.merge_indptr = workspace.int_at<int32_t>(plan.info.merge_indptr_offset);
  }
  check_gpu(flashinfer::BatchPrefillWithPagedKVCacheDispatched<kRowsPerTile,
                                                               kFlashInferHeadDim,
                                                               kFlashInferHeadDim,
                                                               flashinfer::PosEncodingMode::kNone,
                                                               /*USE_FP16_QK_REDUCTION=*/false,
                                                               flashinfer::MaskMode::kNone,
                                                               Variant,
                                                               Params<CacheElement>>(
                params,
                splits ? workspace.float_at<Element>(plan.info.v_offset) : nullptr,
                splits ? workspace.float_at<float>(plan.info.s_offset) : nullptr,
                /*enable_pdl=*/true,
                stream),
            "FlashInfer's decode on tensor cores");
}

template <typename CacheElement>
FlashInferKernel plan_decode(const FlashInferBatch& batch) {
  const auto plan = make_plan(batch);
  return {[plan](const FlashInferBatch& launched, gpuStream_t stream) {
            launch<CacheElement>(launched, *plan, stream);
          },
          static_cast<int>(plan->info.padded_batch_size)};
}

}  // namespace

FlashInferKernel plan_flashinfer_tensor_core_decode(const FlashInferBatch& batch) {
  return plan_flashinfer_decode_of(
      batch, [&]<typename CacheElement>() { return plan_decode<CacheElement>(batch); });
}

}  // namespace atom::bench
