// FlashInfer's cutlass_utils.cuh, whose place these includes take, would bring CUTLASS's test
// utilities and with them curand, which not every toolkit has.
#define FLASHINFER_CUTLASS_UTILS_CUH_
#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>

#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <stdexcept>

#include "flashinfer_kernels.h"

namespace atom::bench {
namespace {

using Element = cutlass::bfloat16_t;
using PagedParams = flashinfer::BatchPrefillPagedParams<Element, Element, Element, int32_t>;
using RaggedParams = flashinfer::BatchPrefillRaggedParams<Element, Element, Element, int32_t>;
using Variant = flashinfer::DefaultAttention</*use_logits_soft_cap=*/false>;

Element* elements(const void* data) {
  return const_cast<Element*>(static_cast<const Element*>(data));
}

struct Plan {
  FlashInferWorkspace workspace;
  flashinfer::PrefillPlanSM90Info info;
};

// `first_key`: where each sequence's keys begin, in pages of `page_size` tokens.
std::shared_ptr<Plan> make_plan(const FlashInferBatch& batch,
                                std::vector<int32_t> first_key,
                                int page_size) {
  const ops::AttentionArgs& params = batch.params();
  if (params.float8_cache) {
    throw std::invalid_argument("FlashInfer's Hopper prefill: the cache is not in bfloat16");
  }
  std::vector<int32_t> query_start = batch.query_start();
  std::vector<int32_t> seq_lens = batch.seq_lens();
  auto plan = std::make_shared<Plan>();
  const FlashInferWorkspace& workspace = plan->workspace;
  check_gpu(flashinfer::PrefillSM90Plan<int32_t>(workspace.floats.get(),
                                                 workspace.floats.size(),
                                                 workspace.ints.get(),
                                                 workspace.staging,
                                                 workspace.ints.size(),
                                                 plan->info,
                                                 query_start.data(),
                                                 first_key.data(),
                                                 seq_lens.data(),
                                                 params.num_tokens,
                                                 params.num_sequences,
                                                 params.num_heads,
                                                 params.num_kv_heads,
                                                 params.head_dim,
                                                 params.head_dim,
                                                 page_size,
                                                 /*causal=*/true,
                                                 /*enable_cuda_graph=*/false,
                                                 sizeof(Element),
                                                 /*stream=*/nullptr),
            "PrefillSM90Plan");
  check_gpu(cudaDeviceSynchronize(), "PrefillSM90Plan");
  // A schedule that is the same for all heads belongs to another instance of the kernel, which
  // batches of more than half a million tokens need.
  if (plan->info.same_schedule_for_all_heads) {
    throw std::invalid_argument("FlashInfer's Hopper prefill: more tokens than it is built for");
  }
  return plan;
}

// What paged and ragged keys have in common.
template <typename Params>
Params common_params(const FlashInferBatch& batch, const Plan& plan) {
  const ops::AttentionArgs& ours = batch.params();
  const FlashInferWorkspace& workspace = plan.workspace;
  Params params{};
  params.q_ptr = elements(ours.q);
  params.o_ptr = elements(ours.out);
  params.qo_tile_indices = workspace.int_at<int32_t>(plan.info.qo_tile_indices_offset);
  params.qo_indptr = workspace.int_at<int32_t>(plan.info.qo_indptr_offset);
  params.kv_indptr = workspace.int_at<int32_t>(plan.info.kv_indptr_offset);
  params.qo_lens = workspace.int_at<int32_t>(plan.info.qo_len_offset);
  params.kv_lens = workspace.int_at<int32_t>(plan.info.kv_len_offset);
  params.head_indices = workspace.int_at<int32_t>(plan.info.head_indices_offset);
  params.work_indptr = workspace.int_at<int32_t>(plan.info.work_indptr_offset);
  params.batch_indices = workspace.int_at<int32_t>(plan.info.batch_indices_offset);
  params.additional_params.sm_scale = ours.scale;
  params.q_stride_n = ours.q_token_stride;
  params.q_stride_h = ours.q_head_stride;
  params.o_stride_n = ours.out_token_stride;
  params.o_stride_h = ours.out_head_stride;
  params.k_stride_n = params.v_stride_n = int64_t{ours.num_kv_heads} * ours.head_dim;
  params.k_stride_h = params.v_stride_h = ours.head_dim;
  params.nnz_qo = ours.num_tokens;
  params.num_qo_heads = ours.num_heads;
  params.num_kv_heads = ours.num_kv_heads;
  params.group_size = ours.num_heads / ours.num_kv_heads;
  params.window_left = -1;
  params.causal = true;
  return params;
}

void launch_paged(const FlashInferBatch& batch, const Plan& plan, gpuStream_t stream) {
  const ops::AttentionArgs& ours = batch.params();
  PagedParams params = common_params<PagedParams>(batch, plan);
  params.k_ptr = elements(ours.k_cache);
  params.v_ptr = elements(ours.v_cache);
  params.kv_indices = batch.device_pages();
  params.page_size = ours.block_size;
  params.k_page_stride = params.v_page_stride = params.k_stride_n * ours.block_size;
  check_gpu(flashinfer::BatchPrefillWithPagedKVCacheDispatched<kFlashInferHeadDim,
                                                               kFlashInferHeadDim,
                                                               flashinfer::MaskMode::kCausal,
                                                               /*LEFT_SLIDING_WINDOW=*/false,
                                                               /*SAME_SCHEDULE=*/false,
                                                               Variant>(
                params, /*enable_pdl=*/false, stream),
            "FlashInfer's paged Hopper prefill");
}

// Keys and values of all sequences, [tokens, num_kv_heads, head_dim].
struct RaggedKeys {
  explicit RaggedKeys(const FlashInferBatch& batch);

  std::vector<int32_t> first_token = {0};  // [num_sequences + 1]
  DeviceBuffer keys;
  DeviceBuffer values;
};

RaggedKeys::RaggedKeys(const FlashInferBatch& batch) {
  const ops::AttentionArgs& params = batch.params();
  for (const int32_t len : batch.seq_lens()) {
    first_token.push_back(first_token.back() + len);
  }
  const size_t token_size = size_t{sizeof(Element)} * params.num_kv_heads * params.head_dim;
  keys = DeviceBuffer(first_token.back() * token_size);
  values = DeviceBuffer(first_token.back() * token_size);
  const FlashInferPages& pages = batch.pages();
  const auto copy = [&](const DeviceBuffer& to, const void* cache, int token, int page, int count) {
    const size_t from = size_t{1} * pages.pages[page] * params.block_size * token_size;
    check_gpu(cudaMemcpyAsync(static_cast<char*>(to.get()) + token * token_size,
                              static_cast<const char*>(cache) + from,
                              count * token_size,
                              cudaMemcpyDeviceToDevice,
                              nullptr),
              "copy keys and values");
  };
  for (int s = 0; s < params.num_sequences; ++s) {
    int token = first_token[s];
    for (int page = pages.first_page[s]; page < pages.first_page[s + 1]; ++page) {
      const int count = std::min(params.block_size, first_token[s + 1] - token);
      copy(keys, params.k_cache, token, page, count);
      copy(values, params.v_cache, token, page, count);
      token += count;
    }
  }
  check_gpu(cudaDeviceSynchronize(), "copy keys and values");
}

void launch_ragged(const FlashInferBatch& batch,
                   const Plan& plan,
                   const RaggedKeys& ragged,
                   gpuStream_t stream) {
  RaggedParams params = common_params<RaggedParams>(batch, plan);
  params.k_ptr = elements(ragged.keys.get());
  params.v_ptr = elements(ragged.values.get());
  params.nnz_kv = ragged.first_token.back();
  check_gpu(flashinfer::BatchPrefillWithRaggedKVCacheDispatched<kFlashInferHeadDim,
                                                                kFlashInferHeadDim,
                                                                flashinfer::MaskMode::kCausal,
                                                                /*LEFT_SLIDING_WINDOW=*/false,
                                                                /*SAME_SCHEDULE=*/false,
                                                                Variant>(
                params, /*enable_pdl=*/false, stream),
            "FlashInfer's ragged Hopper prefill");
}

}  // namespace

FlashInferKernel plan_flashinfer_paged_prefill(const FlashInferBatch& batch) {
  const auto plan = make_plan(batch, batch.pages().first_page, batch.params().block_size);
  return {[plan](const FlashInferBatch& launched, gpuStream_t stream) {
    launch_paged(launched, *plan, stream);
  }};
}

FlashInferKernel plan_flashinfer_ragged_prefill(const FlashInferBatch& batch) {
  const auto ragged = std::make_shared<RaggedKeys>(batch);
  const auto plan = make_plan(batch, ragged->first_token, 1);
  return {[plan, ragged](const FlashInferBatch& launched, gpuStream_t stream) {
    launch_ragged(launched, *plan, *ragged, stream);
  }};
}

}  // namespace atom::bench
