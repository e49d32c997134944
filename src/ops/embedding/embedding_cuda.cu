#include <algorithm>

#include "ops/device/programmatic_launch.cuh"
#include "ops/embedding/embedding_cuda.h"

namespace atom::ops {
namespace {

constexpr int kNumThreads = 256;

// Part is as wide as the alignment of all rows allows.
template <typename Part>
__global__ void __launch_bounds__(kNumThreads) gather_rows_kernel(const EmbeddingLaunch p) {
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const int64_t token = blockIdx.x;
  const int64_t id = p.ids[token];
  const bool known = id >= 0 && id < p.vocab_size;
  const auto* source = reinterpret_cast<const Part*>(static_cast<const char*>(p.table) +
                                                     (known ? id : 0) * p.table_stride);
  auto* target = reinterpret_cast<Part*>(static_cast<char*>(p.out) + token * p.out_stride);
  const int64_t count = p.row_size / static_cast<int64_t>(sizeof(Part));
  for (int64_t i = int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.y} * blockDim.x) {
    target[i] = known ? source[i] : Part{};
  }
}

template <typename Part>
gpuError_t launch_parts(const EmbeddingLaunch& p, gpuStream_t stream) {
  constexpr int64_t kPartsPerThread = 4;
  const int64_t parts = p.row_size / static_cast<int64_t>(sizeof(Part));
  const int64_t blocks = std::clamp<int64_t>(parts / (kNumThreads * kPartsPerThread), 1, 64);
  return device::launch(&gather_rows_kernel<Part>,
                        dim3(static_cast<unsigned>(p.num_tokens), static_cast<unsigned>(blocks)),
                        dim3(kNumThreads),
                        0,
                        stream,
                        p.overlaps_previous,
                        p);
}

}  // namespace

gpuError_t launch_embedding(const EmbeddingLaunch& p, gpuStream_t stream) {
  if (p.num_tokens == 0) return ATOM_GPU(Success);
  const uint64_t alignment = reinterpret_cast<uintptr_t>(p.table) |
                             reinterpret_cast<uintptr_t>(p.out) |
                             static_cast<uint64_t>(p.table_stride | p.out_stride | p.row_size);
  if (alignment % sizeof(uint4) == 0) return launch_parts<uint4>(p, stream);
  if (alignment % sizeof(uint32_t) == 0) return launch_parts<uint32_t>(p, stream);
  return launch_parts<uint8_t>(p, stream);
}

}  // namespace atom::ops
