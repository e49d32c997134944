#include "tensor/fill_cuda.h"
#include "tensor/random_value.h"

namespace atom {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 4096;

__device__ void store(float* to, float value) {
  *to = value;
}
__device__ void store(__half* to, float value) {
  *to = __float2half_rn(value);
}
__device__ void store(gpu_bfloat16* to, float value) {
  *to = __float2bfloat16(value);
}

template <typename T>
__global__ void fill_floats(T* data, int64_t count, uint64_t key, float center, float scale) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t num_hashes = (count + kRandomElementsPerHash - 1) / kRandomElementsPerHash;
  for (int64_t hash = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; hash < num_hashes;
       hash += step) {
    const uint64_t bits = random_bits(key, hash);
    for (int i = 0; i < kRandomElementsPerHash; ++i) {
      const int64_t index = hash * kRandomElementsPerHash + i;
      // Not one fused operation: the host rounds twice.
      const float value = gpu_add(center, gpu_multiply(random_step(bits, i), scale));
      if (index < count) store(data + index, value);
    }
  }
}

__global__ void fill_bytes(uint8_t* data, int64_t count, uint64_t key, uint8_t mask) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    data[i] = static_cast<uint8_t>(random_bits(key, i)) & mask;
  }
}

}  // namespace

void fill_random_cuda(void* data,
                      FillKind kind,
                      int64_t count,
                      uint64_t key,
                      float center,
                      float half_width,
                      uint8_t byte_mask,
                      gpuStream_t stream) {
  if (count == 0) return;
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  const int grid = static_cast<int>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
  const float scale = half_width / 32767.5f;
  switch (kind) {
    case FillKind::kFloat32:
      fill_floats<<<grid, kThreads, 0, stream>>>(
          static_cast<float*>(data), count, key, center, scale);
      break;
    case FillKind::kFloat16:
      fill_floats<<<grid, kThreads, 0, stream>>>(
          static_cast<__half*>(data), count, key, center, scale);
      break;
    case FillKind::kBFloat16:
      fill_floats<<<grid, kThreads, 0, stream>>>(
          static_cast<gpu_bfloat16*>(data), count, key, center, scale);
      break;
    case FillKind::kBytes:
      fill_bytes<<<grid, kThreads, 0, stream>>>(static_cast<uint8_t*>(data), count, key, byte_mask);
      break;
  }
}

}  // namespace atom
