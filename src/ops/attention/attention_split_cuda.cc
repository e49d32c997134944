// The variants of attention that compute single queries and chunks by kernels of their own.
#include <algorithm>

#include "ops/attention/attention_decode_cuda.h"
#include "ops/attention/attention_fixed_cuda.h"
#include "ops/attention/attention_fixed_decode_cuda.h"
#include "ops/attention/attention_fixed_sm90.h"
#include "ops/attention/attention_prefill_cuda.h"
#include "ops/attention/attention_prefill_sm90.h"
#include "ops/attention/attention_variants.h"
#include "tensor/gpu_check.h"

namespace atom::ops {
namespace {

constexpr int64_t kAlignment = 8;  // elements, of every row

constexpr int32_t kChunk = 2;  // queries at least: the kernels leave single ones to the other

AttentionGpuParams gpu_params(const AttentionArgs& args) {
  const AttentionElement element =
      args.element == Element::kBFloat16 ? AttentionElement::kBfloat16 : AttentionElement::kFloat16;
  return {
      .q = args.q,
      .k_cache = args.k_cache,
      .v_cache = args.v_cache,
      .block_tables = args.block_tables,
      .query_start = args.query_start,
      .seq_lens = args.seq_lens,
      .settled_lens = args.settled_lens,
      .sinks = args.sinks,
      .out = args.out,
      .q_token_stride = args.q_strides[0],
      .q_head_stride = args.q_strides[1],
      .out_token_stride = args.out_strides[0],
      .out_head_stride = args.out_strides[1],
      .block_table_stride = args.block_table_stride,
      .num_sequences = static_cast<int32_t>(args.num_sequences),
      .num_tokens = static_cast<int32_t>(args.num_tokens),
      .num_blocks = static_cast<int32_t>(args.num_blocks),
      .block_size = static_cast<int32_t>(args.block_size),
      .num_heads = static_cast<int32_t>(args.num_heads),
      .num_kv_heads = static_cast<int32_t>(args.num_kv_heads),
      .head_dim = static_cast<int32_t>(args.head_dim),
      .sliding_window = static_cast<int32_t>(args.sliding_window),
      .max_queries = static_cast<int32_t>(args.max_queries),
      .max_seq_len = static_cast<int32_t>(args.max_blocks * args.block_size),
      .scale = args.scale,
      .k_scale = 1,  // `scale` has it
      .v_scale = args.v_scale,
      .element = element,
      .kv_element = args.float8_cache ? AttentionElement::kFloat8E4m3 : element,
  };
}

bool is_aligned(const void* data, const int64_t (&strides)[2]) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && strides[0] % kAlignment == 0 &&
         strides[1] % kAlignment == 0;
}

bool is_aligned(const AttentionArgs& args) {
  return is_aligned(args.q, args.q_strides) && is_aligned(args.out, args.out_strides);
}

bool fits_decode(const AttentionArgs& args, const AttentionGpuParams& params) {
  return args.element != Element::kFloat32 && is_aligned(args) &&
         supports_attention_decode_cuda(params) &&
         attention_decode_num_counters(params) <= size_t{Workspace::kNumCounters};
}

bool has_chunks(const AttentionArgs& args) {
  return args.max_queries != 1;
}

// Calls prefill(params, counter, queue) for what launch_attention_decode_cuda leaves.
template <typename Prefill>
void launch(const Stream& stream,
            const AttentionArgs& args,
            Workspace& scratch,
            const Prefill& prefill) {
  const AttentionGpuParams params = gpu_params(args);
  const auto partial_size = static_cast<int64_t>(attention_decode_workspace_size(params));
  const Tensor partial = scratch.tensor({partial_size}, DType::kUInt8);
  if (stream.is_dry_run() || args.num_tokens == 0) return;
  const auto queue = static_cast<gpuStream_t>(stream.queue().handle());
  const bool has_singles = args.min_queries <= 1;
  int32_t* counters = scratch.counters().data<int32_t>();
  if (has_singles) {
    GPU_CHECK(launch_attention_decode_cuda(params, partial.raw_data(), counters, queue));
  }
  if (has_chunks(args)) GPU_CHECK(prefill(params, counters, queue));
}

}  // namespace

bool fits_attention_mma(const AttentionArgs& args) {
  const AttentionGpuParams params = gpu_params(args);
  return fits_decode(args, params) && supports_attention_prefill_cuda(params);
}

bool fits_attention_sm90(const AttentionArgs& args) {
  const AttentionGpuParams params = gpu_params(args);
  return fits_decode(args, params) && supports_attention_prefill_sm90(params);
}

void attention_mma(const Stream& stream,
                   const AttentionArgs& args,
                   const AttentionParams&,
                   Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  launch(stream, args, scratch, [](const auto& params, int32_t* counter, gpuStream_t queue) {
    return launch_attention_prefill_cuda(params, kChunk, counter, queue);
  });
}

void attention_sm90(const Stream& stream,
                    const AttentionArgs& args,
                    const AttentionParams&,
                    Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const size_t size =
      has_chunks(args) ? attention_prefill_sm90_workspace_size(gpu_params(args)) : 0;
  const Tensor workspace = scratch.tensor({static_cast<int64_t>(size)}, DType::kUInt8);
  launch(stream, args, scratch, [&](const auto& params, int32_t* counter, gpuStream_t queue) {
    return launch_attention_prefill_sm90(
        params, kChunk, workspace.raw_data(), size, counter, queue);
  });
}

bool fits_attention_fixed(const AttentionArgs& args) {
  const AttentionGpuParams params = gpu_params(args);
  const size_t num_counters =
      std::max(attention_fixed_num_counters(params), attention_fixed_decode_num_counters(params));
  return args.element != Element::kFloat32 && is_aligned(args) &&
         supports_attention_fixed_cuda(params) && num_counters <= size_t{Workspace::kNumCounters};
}

void attention_fixed(const Stream& stream,
                     const AttentionArgs& args,
                     const AttentionParams&,
                     Workspace& scratch) {
  const AttentionGpuParams params = gpu_params(args);
  const Workspace::Scope scope(scratch);
  const bool by_decode = supports_attention_fixed_decode_cuda(params);
  const bool by_sm90 = by_decode && has_chunks(args) && supports_attention_fixed_sm90(params);
  const size_t partial_size = by_decode ? attention_fixed_decode_workspace_size(params)
                                        : attention_fixed_workspace_size(params);
  const size_t copies_size = by_sm90 ? attention_fixed_sm90_workspace_size(params) : 0;
  const Tensor partial = scratch.tensor({static_cast<int64_t>(partial_size)}, DType::kUInt8);
  const Tensor copies = scratch.tensor({static_cast<int64_t>(copies_size)}, DType::kUInt8);
  if (stream.is_dry_run() || args.num_tokens == 0) return;
  const auto queue = static_cast<gpuStream_t>(stream.queue().handle());
  int32_t* counters = scratch.counters().data<int32_t>();
  if (by_decode && args.min_queries <= 1) {
    GPU_CHECK(launch_attention_fixed_decode_cuda(params, partial.raw_data(), counters, queue));
  }
  if (by_decode && !has_chunks(args)) return;
  if (by_sm90) {
    GPU_CHECK(launch_attention_fixed_sm90(params, kChunk, copies.raw_data(), counters, queue));
  } else {
    const int min_queries = by_decode ? kChunk : 1;
    GPU_CHECK(
        launch_attention_fixed_cuda(params, min_queries, partial.raw_data(), counters, queue));
  }
}

}  // namespace atom::ops
