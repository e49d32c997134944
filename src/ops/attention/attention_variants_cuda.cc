// The variants of attention that compute single queries and chunks by kernels of their own.
#include <algorithm>

#include "ops/attention/attention_variants.h"
#include "ops/attention/decode/decode_cuda.h"
#include "ops/attention/fixed/fixed_cuda.h"
#include "ops/attention/fixed/fixed_decode_cuda.h"
#include "ops/attention/fixed/fixed_sm90.h"
#include "ops/attention/prefill/prefill_cuda.h"
#include "ops/attention/prefill/prefill_sm90.h"
#include "tensor/gpu_check.h"

namespace atom::ops {
namespace {

constexpr int64_t kAlignment = 8;  // elements, of every row

constexpr int32_t kChunk = 2;  // queries at least: the kernels leave single ones to the other

bool is_aligned(const void* data, int64_t token_stride, int64_t head_stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && token_stride % kAlignment == 0 &&
         head_stride % kAlignment == 0;
}

bool is_aligned(const AttentionArgs& args) {
  return is_aligned(args.q, args.q_token_stride, args.q_head_stride) &&
         is_aligned(args.out, args.out_token_stride, args.out_head_stride);
}

bool fits_decode(const AttentionArgs& args) {
  return is_aligned(args) && supports_attention_decode_cuda(args) &&
         attention_decode_num_counters(args) <= size_t{Workspace::kNumCounters};
}

bool has_chunks(const AttentionArgs& args) {
  return args.max_queries != 1;
}

// Calls prefill(counter, queue) for what launch_attention_decode_cuda leaves.
template <typename Prefill>
void launch(const Stream& stream,
            const AttentionArgs& args,
            Workspace& scratch,
            const Prefill& prefill) {
  const auto partial_size = static_cast<int64_t>(attention_decode_workspace_size(args));
  const Tensor partial = scratch.tensor({partial_size}, DType::kUInt8);
  if (stream.is_dry_run() || args.num_tokens == 0) return;
  const auto queue = static_cast<gpuStream_t>(stream.queue().handle());
  const bool has_singles = args.min_queries <= 1;
  int32_t* counters = scratch.counters().data<int32_t>();
  if (has_singles) {
    GPU_CHECK(launch_attention_decode_cuda(args, partial.raw_data(), counters, queue));
  }
  if (has_chunks(args)) GPU_CHECK(prefill(counters, queue));
}

}  // namespace

bool fits_attention_mma(const AttentionArgs& args) {
  return fits_decode(args) && supports_attention_prefill_cuda(args);
}

bool fits_attention_sm90(const AttentionArgs& args) {
  return fits_decode(args) && supports_attention_prefill_sm90(args);
}

void attention_mma(const Stream& stream,
                   const AttentionArgs& args,
                   const AttentionParams&,
                   Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  launch(stream, args, scratch, [&](int32_t* counter, gpuStream_t queue) {
    return launch_attention_prefill_cuda(args, kChunk, counter, queue);
  });
}

void attention_sm90(const Stream& stream,
                    const AttentionArgs& args,
                    const AttentionParams&,
                    Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const size_t size = has_chunks(args) ? attention_prefill_sm90_workspace_size(args) : 0;
  const Tensor workspace = scratch.tensor({static_cast<int64_t>(size)}, DType::kUInt8);
  launch(stream, args, scratch, [&](int32_t* counter, gpuStream_t queue) {
    return launch_attention_prefill_sm90(args, kChunk, workspace.raw_data(), size, counter, queue);
  });
}

bool fits_attention_fixed(const AttentionArgs& args) {
  const size_t num_counters =
      std::max(attention_fixed_num_counters(args), attention_fixed_decode_num_counters(args));
  return is_aligned(args) && supports_attention_fixed_cuda(args) &&
         num_counters <= size_t{Workspace::kNumCounters};
}

void attention_fixed(const Stream& stream,
                     const AttentionArgs& args,
                     const AttentionParams&,
                     Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const bool by_decode = supports_attention_fixed_decode_cuda(args);
  const bool by_sm90 = by_decode && has_chunks(args) && supports_attention_fixed_sm90(args);
  const size_t partial_size = by_decode ? attention_fixed_decode_workspace_size(args)
                                        : attention_fixed_workspace_size(args);
  const size_t copies_size = by_sm90 ? attention_fixed_sm90_workspace_size(args) : 0;
  const Tensor partial = scratch.tensor({static_cast<int64_t>(partial_size)}, DType::kUInt8);
  const Tensor copies = scratch.tensor({static_cast<int64_t>(copies_size)}, DType::kUInt8);
  if (stream.is_dry_run() || args.num_tokens == 0) return;
  const auto queue = static_cast<gpuStream_t>(stream.queue().handle());
  int32_t* counters = scratch.counters().data<int32_t>();
  if (by_decode && args.min_queries <= 1) {
    GPU_CHECK(launch_attention_fixed_decode_cuda(args, partial.raw_data(), counters, queue));
  }
  if (by_decode && !has_chunks(args)) return;
  if (by_sm90) {
    GPU_CHECK(launch_attention_fixed_sm90(args, kChunk, copies.raw_data(), counters, queue));
  } else {
    const int min_queries = by_decode ? kChunk : 1;
    GPU_CHECK(launch_attention_fixed_cuda(args, min_queries, partial.raw_data(), counters, queue));
  }
}

}  // namespace atom::ops
