#include <algorithm>

#include "ops/device/elements.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "sampling/argmax_cuda.h"

namespace atom {
namespace {

using namespace ops::device;
using ops::GpuElement;

constexpr int kNumThreads = 256;
constexpr int kMaxParts = 64;  // of a row, a block each

// The rank of sampling/logits_row.h: a larger key is a better token. NaN ranks above all.
constexpr uint64_t kNotANumber = ~0ull;

__device__ inline uint64_t rank_key(float logit, int32_t token_id) {
  if (!(logit <= 3.402823466e+38f)) return kNotANumber;
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return uint64_t{ordered} << 32 | static_cast<uint32_t>(~token_id);
}

struct LargerKey {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};

template <typename T>
__global__ void __launch_bounds__(kNumThreads) argmax_parts(const ArgmaxLaunch p) {
  constexpr int kLength = Vector<T>::kLength;
  __shared__ uint64_t scratch[kWarpSize];
  allow_next_grid();
  wait_for_previous_grid();
  const T* row = static_cast<const T*>(p.logits) + blockIdx.y * p.logits_stride;
  const bool aligned = reinterpret_cast<uintptr_t>(row) % kVectorSize == 0;
  const int whole = aligned ? p.vocab_size / kLength * kLength : 0;
  const int step = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
  uint64_t best = 0;
#pragma unroll 4
  for (int i = thread * kLength; i < whole; i += step * kLength) {
    const Vector<T> packed = load_vector(row + i);
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      best = max(best, rank_key(to_float(packed.element[j]), i + j));
    }
  }
  for (int i = whole + thread; i < p.vocab_size; i += step) {
    best = max(best, rank_key(to_float(row[i]), i));
  }
  best = reduce_block(best, scratch, LargerKey());
  if (threadIdx.x == 0) p.workspace[blockIdx.y * gridDim.x + blockIdx.x] = best;
}

__global__ void __launch_bounds__(kMaxParts) argmax_rows(const ArgmaxLaunch p, int num_parts) {
  __shared__ uint64_t scratch[kWarpSize];
  allow_next_grid();
  wait_for_previous_grid();
  const int part = threadIdx.x;
  uint64_t best = part < num_parts ? p.workspace[blockIdx.x * num_parts + part] : 0;
  best = reduce_block(best, scratch, LargerKey());
  if (threadIdx.x != 0) return;
  constexpr uint32_t kOrderedMinusInfinity = 0x007fffffu;
  int32_t token_id = static_cast<int32_t>(~static_cast<uint32_t>(best));
  if (best == kNotANumber) token_id = kTokenNotANumber;
  if (static_cast<uint32_t>(best >> 32) <= kOrderedMinusInfinity) token_id = kTokenNoCandidate;
  p.token_ids[blockIdx.x] = token_id;
}

// Enough blocks to fill the GPU with few rows; a row's result does not depend on how it is cut.
int num_parts(int64_t num_rows) {
  return static_cast<int>(std::clamp<int64_t>(512 / std::max<int64_t>(1, num_rows), 1, kMaxParts));
}

template <typename T>
gpuError_t launch_parts(const ArgmaxLaunch& p, gpuStream_t stream) {
  return launch(&argmax_parts<T>,
                dim3(num_parts(p.num_rows), p.num_rows),
                dim3(kNumThreads),
                0,
                stream,
                p.overlaps_previous,
                p);
}

}  // namespace

int64_t argmax_workspace(int64_t num_rows) {
  return num_rows * kMaxParts;
}

gpuError_t launch_argmax(const ArgmaxLaunch& p, gpuStream_t stream) {
  if (p.num_rows == 0) return ATOM_GPU(Success);
  if (p.vocab_size < 1 || p.element == GpuElement::kFloat8E4M3) return ATOM_GPU(ErrorInvalidValue);
  const gpuError_t error = p.element == GpuElement::kFloat32   ? launch_parts<float>(p, stream)
                           : p.element == GpuElement::kFloat16 ? launch_parts<Half>(p, stream)
                                                               : launch_parts<BFloat16>(p, stream);
  if (error != ATOM_GPU(Success)) return error;
  return launch(&argmax_rows,
                dim3(p.num_rows),
                dim3(kMaxParts),
                0,
                stream,
                p.overlaps_previous,
                p,
                num_parts(p.num_rows));
}

}  // namespace atom
