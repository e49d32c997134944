// A row in parts, a block each; then a warp over the parts. A logit and its id travel as one number
// that is larger for a better choice.
#include "ops/argmax/argmax_kernels.h"
#include "ops/device/reductions.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::kWarpSize;

constexpr int kThreads = 256;
// Above every key of a finite logit.
constexpr uint64_t kFault = ~uint64_t{0};

// The key of a logit below infinity. 0 for -inf, which is never chosen.
__device__ uint64_t key_of(float logit, int32_t id) {
  if (logit == -INFINITY) return 0;
  if (logit == 0.0f) logit = 0.0f;  // -0 equals 0
  const uint32_t bits = __float_as_uint(logit);
  const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return uint64_t{ordered} << 32 | static_cast<uint32_t>(~static_cast<uint32_t>(id));
}

__device__ uint64_t warp_max(uint64_t key) {
  return device::reduce_lanes(key, kWarpSize, device::Largest{});
}

// The best of what one thread sees, in ascending order of ids.
struct Best {
  float logit = -INFINITY;
  int32_t id = 0;
  bool has_fault = false;

  __device__ void see(float next, int32_t next_id) {
    has_fault |= !(next < INFINITY);  // NaN too
    if (next > logit) {
      logit = next;
      id = next_id;
    }
  }
  __device__ uint64_t key(int32_t first_id) const {
    return has_fault ? kFault : key_of(logit, first_id + id);
  }
};

__device__ Best best_of_part(const float* row, int32_t begin, int32_t end) {
  Best best;
  int32_t rest = begin;
  if (reinterpret_cast<uintptr_t>(row + begin) % sizeof(float4) == 0) {
    const auto* vectors = reinterpret_cast<const float4*>(row + begin);
    const int32_t count = (end - begin) / 4;
#pragma unroll 4
    for (int32_t i = threadIdx.x; i < count; i += kThreads) {
      const float4 vector = gpu_load_from_l2(vectors + i);
      best.see(vector.x, begin + 4 * i);
      best.see(vector.y, begin + 4 * i + 1);
      best.see(vector.z, begin + 4 * i + 2);
      best.see(vector.w, begin + 4 * i + 3);
    }
    rest = begin + 4 * count;
  }
  for (int32_t id = rest + threadIdx.x; id < end; id += kThreads)
    best.see(gpu_load_from_l2(row + id), id);
  return best;
}

__global__ void argmax_parts(ArgmaxKeysArgs args) {
  __shared__ uint64_t of_warp[kThreads / kWarpSize];
  const float* row = args.logits + blockIdx.y * args.row_stride;
  const auto num_ids = static_cast<int32_t>(args.num_ids);
  const int32_t part_size = (num_ids + kArgmaxParts * 4 - 1) / (kArgmaxParts * 4) * 4;
  const int32_t begin = min(static_cast<int32_t>(blockIdx.x) * part_size, num_ids);
  const int32_t end = min(begin + part_size, num_ids);
  uint64_t best = warp_max(best_of_part(row, begin, end).key(args.first_id));
  if (threadIdx.x % kWarpSize == 0) of_warp[threadIdx.x / kWarpSize] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const uint64_t key : of_warp) best = key > best ? key : best;
  args.keys[int64_t{blockIdx.y} * kArgmaxParts + blockIdx.x] = best;
}

__global__ void argmax_rows(ArgmaxChoiceArgs args) {
  static_assert(kArgmaxParts == kWarpSize);
  const int64_t row = blockIdx.x;
  uint64_t key = 0;
  for (int64_t rank = 0; rank < args.num_ranks; ++rank) {
    const uint64_t next = args.keys[(rank * args.num_rows + row) * kArgmaxParts + threadIdx.x];
    key = next > key ? next : key;
  }
  key = warp_max(key);
  if (threadIdx.x != 0) return;
  const int32_t id = static_cast<int32_t>(~static_cast<uint32_t>(key));
  args.out[row] = key == kFault ? -1 : (key == 0 ? -2 : id);
}

}  // namespace

void argmax_keys_cuda(const ArgmaxKeysArgs& args, void* queue) {
  const auto rows = static_cast<unsigned>(args.num_rows);
  argmax_parts<<<dim3(kArgmaxParts, rows), kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  check_gpu_launch("argmax");
}

void argmax_of_keys_cuda(const ArgmaxChoiceArgs& args, void* queue) {
  const auto rows = static_cast<unsigned>(args.num_rows);
  argmax_rows<<<rows, kWarpSize, 0, static_cast<gpuStream_t>(queue)>>>(args);
  check_gpu_launch("argmax");
}

}  // namespace atom::ops
