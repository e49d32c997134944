#include "ops/device/copy.cuh"
#include "ops/kv_cache_write/kv_cache_write_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 64;

// A block per token and per head of the keys or values.
__global__ void kv_cache_write_kernel(KvCacheWriteArgs args) {
  const int64_t token = blockIdx.x;
  const int64_t head = blockIdx.y;
  const int64_t slot = args.slots[token];
  if (slot == -1) return;
  if (slot < 0 || slot >= args.num_slots) __trap();
  const KvCacheWriteArgs::Source& source = args.sources[blockIdx.z];
  const char* from = static_cast<const char*>(source.data) + token * source.token_stride +
                     head * source.head_stride;
  char* to = static_cast<char*>(source.cache) + (slot * args.num_heads + head) * args.head_size;
  copy_row(to, from, args.head_size);
}

}  // namespace

void kv_cache_write_cuda(const KvCacheWriteArgs& args, void* queue) {
  const dim3 grid(static_cast<unsigned>(args.num_tokens), static_cast<unsigned>(args.num_heads), 2);
  kv_cache_write_kernel<<<grid, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  check_gpu_launch("kv_cache_write");
}

}  // namespace atom::ops
