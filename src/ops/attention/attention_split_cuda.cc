// The variants of attention that compute single queries and chunks by kernels of their own.
#include "ops/attention/attention_decode_cuda.h"
#include "ops/attention/attention_prefill_cuda.h"
#include "ops/attention/attention_prefill_sm90.h"
#include "ops/attention/attention_variants.h"
#include "tensor/gpu_check.h"

namespace atom::ops {
namespace {

constexpr int64_t kAlignment = 8;  // elements, of every row

// A step's lengths and tables are there before the first kernel of the step, which is launched
// after everything else has ended.
constexpr AttentionDecodeTuning kDecodeTuning = {.by_splits = true, .overlaps_previous = true};

// With `min_queries` 2 the kernel leaves single queries to the other one.
using PrefillLaunch = gpuError_t(const AttentionGpuParams&,
                                 int32_t min_queries,
                                 int32_t* counter,
                                 gpuStream_t);

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

bool fits_decode(const AttentionArgs& args, const AttentionGpuParams& params) {
  return args.element != Element::kFloat32 && is_aligned(args.q, args.q_strides) &&
         is_aligned(args.out, args.out_strides) && supports_attention_decode_cuda(params) &&
         attention_decode_num_counters(params) <= size_t{Workspace::kNumCounters};
}

template <PrefillLaunch* prefill>
void launch(const Stream& stream, const AttentionArgs& args, Workspace& scratch) {
  const AttentionGpuParams params = gpu_params(args);
  const Workspace::Scope scope(scratch);
  const auto partial_size =
      static_cast<int64_t>(attention_decode_workspace_size(params, kDecodeTuning));
  const Tensor partial = scratch.tensor({partial_size}, DType::kUInt8);
  if (stream.is_dry_run() || args.num_tokens == 0) return;
  const auto queue = static_cast<gpuStream_t>(stream.queue().handle());
  const bool has_singles = args.min_queries <= 1;
  const bool has_chunks = args.max_queries != 1;
  int32_t* counters = scratch.counters().data<int32_t>();
  if (has_singles) {
    GPU_CHECK(
        launch_attention_decode_cuda(params, partial.raw_data(), counters, queue, kDecodeTuning));
  }
  if (has_chunks) GPU_CHECK(prefill(params, 2, counters, queue));
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
  launch<launch_attention_prefill_cuda>(stream, args, scratch);
}

void attention_sm90(const Stream& stream,
                    const AttentionArgs& args,
                    const AttentionParams&,
                    Workspace& scratch) {
  launch<launch_attention_prefill_sm90>(stream, args, scratch);
}

}  // namespace atom::ops
