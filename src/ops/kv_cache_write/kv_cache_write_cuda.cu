#include "ops/device/copy.cuh"
#include "ops/device/dispatch.cuh"
#include "ops/kv_cache_write/kv_cache_write_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 64;

template <typename T>
__device__ void quantize_row(const T* from, int64_t size, float scale, device::Float8* to) {
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    to[i] = device::from_float<device::Float8>(device::to_float(from[i]) / scale);
  }
}

// A block per token and per head of the keys or values, which are of type T.
template <typename T>
__global__ void kv_cache_write_kernel(KvCacheWriteArgs args) {
  const int64_t token = blockIdx.x;
  const int64_t head = blockIdx.y;
  const int64_t slot = args.slots[token];
  if (slot == -1) return;
  if (slot < 0 || slot >= args.num_slots) gpu_trap();
  const KvCacheWriteArgs::Source& source = args.sources[blockIdx.z];
  const char* from = static_cast<const char*>(source.data) + token * source.token_stride +
                     head * source.head_stride;
  const int64_t row = slot * args.num_heads + head;
  if (args.float8_cache) {
    const int64_t head_dim = args.head_size / static_cast<int64_t>(sizeof(T));
    quantize_row(reinterpret_cast<const T*>(from),
                 head_dim,
                 source.scale,
                 static_cast<device::Float8*>(source.cache) + row * head_dim);
  } else {
    copy_row(static_cast<char*>(source.cache) + row * args.head_size, from, args.head_size);
  }
}

}  // namespace

void kv_cache_write_cuda(const KvCacheWriteArgs& args, void* queue) {
  const dim3 grid(static_cast<unsigned>(args.num_tokens),
                  static_cast<unsigned>(args.num_heads),
                  static_cast<unsigned>(args.num_sources));
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    kv_cache_write_kernel<T><<<grid, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("kv_cache_write");
}

}  // namespace atom::ops
