// A warp has 16 weight rows at a time and all of k: it copies pieces of them, and the same pieces
// of its rows of x, into a ring of its own in shared memory, ahead of what it multiplies. The ring
// is filled with the weight before the kernel before has ended.
#include "ops/linear/ordered/ordered_cuda.h"

#include <algorithm>

#include "ops/device/async_copy.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/linear_epilogue.cuh"
#include "ops/linear/stream/math.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kTileRows = 16;      // of the weight
constexpr int kStepElements = 16;  // of k in one instruction
constexpr int kPieceElements = 128;
constexpr int kSteps = kPieceElements / kStepElements;
constexpr int kPieceRowSize = kPieceElements * 2;  // bytes
constexpr int kWeightSize = kTileRows * kPieceRowSize;
constexpr int kPieceSize = (kTileRows + kOrderedRows) * kPieceRowSize;
constexpr int kRingSize = 192 << 10;  // bytes, of all warps
constexpr int kRowVectors = kPieceRowSize / kVectorSize;

// A thread (g, t) = (lane / 4, lane % 4) takes the adjacent elements 4t .. 4t + 3 of sixteen from
// row g, since the order within an instruction does not count. Vectors of 16 bytes are permuted
// within a row so that the four rows that are read together lie in different banks.
__device__ int place(int row, int vector) {
  return row * kPieceRowSize + (vector ^ ((row & 3) << 1)) * kVectorSize;
}

// Rows of 16-bit elements, a piece after the other; all of k, then the next rows.
struct Source {
  const uint8_t* data;
  int64_t row_stride;  // bytes
  int first_row;
  int row_step;  // from one set of rows to the next
  int num_rows;
  int in_features;
  int k = 0;

  template <int kRows>
  __device__ void copy_next(uint32_t target, uint64_t policy) {
    const int lane = threadIdx.x % kWarpSize;
    const int vector = lane % kRowVectors;
    const int element = k + vector * (kVectorSize / 2);
#pragma unroll
    for (int i = 0; i < kRows * kRowVectors / kWarpSize; ++i) {
      const int row = lane / kRowVectors + i * (kWarpSize / kRowVectors);
      const bool exists = first_row + row < num_rows && element < in_features;
      const uint8_t* source =
          exists ? data + (first_row + row) * row_stride + int64_t{element} * 2 : data;
      copy_16(target + place(row, vector), source, exists, policy);
    }
    k += kPieceElements;
    if (k < in_features) return;
    k = 0;
    first_row += row_step;
  }
};

// The four elements of each sixteen that a thread has of a row in a piece.
__device__ void read_row(const uint8_t* rows, int row, uint2 (&pairs)[kSteps]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    pairs[s] = *reinterpret_cast<const uint2*>(rows + place(row, 2 * s + t / 2) + t % 2 * 8);
  }
}

template <typename T>
__device__ void multiply_piece(float (&sums)[4], const uint8_t* piece) {
  const int g = threadIdx.x % kWarpSize / 4;
  uint2 low[kSteps], high[kSteps], x[kSteps];
  read_row(piece, g, low);
  read_row(piece, g + 8, high);
  read_row(piece + kWeightSize, g, x);
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    multiply_tile<T>(sums, {low[s].x, high[s].x, low[s].y, high[s].y}, {x[s].x, x[s].y});
  }
}

template <typename T, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    linear_ordered_kernel(const __grid_constant__ LinearGpuCall p) {
  constexpr int kDepth = kRingSize / kWarps / kPieceSize;
  extern __shared__ __align__(128) uint8_t shared[];
  uint8_t* ring = shared + threadIdx.x / kWarpSize * (kDepth * kPieceSize);
  const int num_tiles = (p.out_features + kTileRows - 1) / kTileRows;
  const int first_tile = blockIdx.x + threadIdx.x / kWarpSize * gridDim.x;
  const int tile_step = kWarps * gridDim.x;
  const int first_row = blockIdx.y * kOrderedRows;
  const uint64_t once = read_once_policy(), keep = keep_policy();
  Source weight{static_cast<const uint8_t*>(p.weight),
                int64_t{p.in_features} * 2,
                first_tile * kTileRows,
                tile_step * kTileRows,
                p.out_features,
                p.in_features};
  Source x{
      static_cast<const uint8_t*>(p.x), p.x_stride * 2, first_row, 0, p.num_rows, p.in_features};
#pragma unroll 1
  for (int i = 0; i < kDepth; ++i) {
    weight.copy_next<kTileRows>(shared_address(ring) + i * kPieceSize, once);
  }
  allow_next_grid();
  wait_for_previous_grid();
  // Groups in the order in which pieces are used; the first one has all of the weight so far.
#pragma unroll 1
  for (int i = 0; i < kDepth; ++i) {
    x.copy_next<kOrderedRows>(shared_address(ring) + i * kPieceSize + kWeightSize, keep);
    commit_copies();
  }

  const int lane = threadIdx.x % kWarpSize, g = lane / 4, t = lane % 4;
  int slot = 0;
#pragma unroll 1
  for (int tile = first_tile; tile < num_tiles; tile += tile_step) {
    float sums[4] = {};
#pragma unroll 1
    for (int k = 0; k < p.in_features; k += kPieceElements) {
      wait_for_copies<kDepth - 1>();
      __syncwarp();
      multiply_piece<T>(sums, ring + slot * kPieceSize);
      __syncwarp();  // before the piece is overwritten
      const uint32_t target = shared_address(ring) + slot * kPieceSize;
      weight.copy_next<kTileRows>(target, once);
      x.copy_next<kOrderedRows>(target + kWeightSize, keep);
      commit_copies();
      slot = slot + 1 == kDepth ? 0 : slot + 1;
    }
    // Sum i is of weight row g (+ 8 from 2 on) and row 2t (+ 1 if odd) of x.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int feature = tile * kTileRows + g + i / 2 * 8;
      const int of_row = first_row + 2 * t + i % 2;
      if (feature < p.out_features && of_row < p.num_rows) {
        Output(p, of_row, feature).store(p, sums[i], 0);
      }
    }
  }
}

template <typename T, int kWarps>
gpuError_t launch_warps(const LinearGpuCall& p, int num_blocks, gpuStream_t stream) {
  const auto kernel = linear_ordered_kernel<T, kWarps>;
  const gpuError_t error =
      ATOM_GPU(FuncSetAttribute)(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRingSize);
  if (error != ATOM_GPU(Success)) return error;
  const dim3 grid(num_blocks, (p.num_rows + kOrderedRows - 1) / kOrderedRows);
  return launch(kernel, grid, dim3(kWarps * kWarpSize), kRingSize, stream, p.overlaps_previous, p);
}

// As few warps as have a tile each, so that each has a deep ring.
template <typename T>
gpuError_t launch_typed(const LinearGpuCall& p, gpuStream_t stream) {
  int gpu = 0, num_multiprocessors = 0;
  if (const gpuError_t error = ATOM_GPU(GetDevice)(&gpu); error != ATOM_GPU(Success)) return error;
  if (const gpuError_t error =
          ATOM_GPU(DeviceGetAttribute)(&num_multiprocessors, cudaDevAttrMultiProcessorCount, gpu);
      error != ATOM_GPU(Success)) {
    return error;
  }
  const int num_tiles = (p.out_features + kTileRows - 1) / kTileRows;
  const int num_blocks = std::min(num_tiles, num_multiprocessors);
  const int tiles_per_block = (num_tiles + num_blocks - 1) / num_blocks;
  if (tiles_per_block <= 2) return launch_warps<T, 2>(p, num_blocks, stream);
  if (tiles_per_block <= 4) return launch_warps<T, 4>(p, num_blocks, stream);
  return launch_warps<T, 8>(p, num_blocks, stream);
}

__global__ void count_differences(const uint16_t* a,
                                  const uint16_t* b,
                                  int64_t size,
                                  int32_t* count) {
  int found = 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < size; i += step) {
    found += a[i] != b[i];
  }
  if (found > 0) atomicAdd(count, found);
}

}  // namespace

bool supports_linear_ordered(const LinearGpuCall& p) {
  const bool elements = p.x_element == p.weight_element &&
                        (p.x_element == Element::kBFloat16 || p.x_element == Element::kFloat16) &&
                        p.y_element != Element::kFloat8E4M3;
  const auto is_aligned = [](const void* data, int64_t unit) {
    return reinterpret_cast<uintptr_t>(data) % unit == 0;
  };
  return elements && p.num_rows >= 1 && p.out_features >= 1 && p.in_features >= 8 &&
         p.in_features % 8 == 0 && p.epilogue == LinearEpilogue::kStore && p.x_scale == nullptr &&
         p.weight_scale == nullptr && is_aligned(p.weight, 16) && is_aligned(p.x, 16) &&
         p.x_stride % 8 == 0;
}

gpuError_t launch_linear_ordered(const LinearGpuCall& p, gpuStream_t stream) {
  if (!supports_linear_ordered(p)) return ATOM_GPU(ErrorInvalidValue);
  return p.x_element == Element::kBFloat16 ? launch_typed<BFloat16>(p, stream)
                                           : launch_typed<Half>(p, stream);
}

gpuError_t launch_count_differences(
    const void* a, const void* b, int64_t num_bytes, int32_t* count, gpuStream_t stream) {
  constexpr int kThreads = 256, kBlocks = 1024;
  count_differences<<<kBlocks, kThreads, 0, stream>>>(
      static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), num_bytes / 2, count);
  return ATOM_GPU(GetLastError)();
}

}  // namespace atom::ops
