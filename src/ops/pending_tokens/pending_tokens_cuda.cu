#include "ops/pending_tokens/pending_tokens_kernels.h"
#include "tensor/gpu_api.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;

__global__ void fill_pending(PendingTokensArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.num_tokens) return;
  const int32_t token_id = args.token_ids[i];
  if (token_id >= 0) return;
  const int32_t chosen = args.chosen[~token_id];
  args.token_ids[i] = chosen > 0 ? chosen : 0;
}

}  // namespace

void fill_pending_tokens_cuda(const PendingTokensArgs& args, void* queue) {
  const auto blocks = static_cast<unsigned>((args.num_tokens + kThreads - 1) / kThreads);
  fill_pending<<<blocks, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  check_gpu_launch("fill_pending_tokens");
}

}  // namespace atom::ops
