#include <algorithm>

#include "ops/device/elements.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/rms_norm/rms_norm_row.cuh"

namespace atom::ops {
namespace {

using namespace device;
using namespace device::rms_norm;

constexpr int kMaxThreads = 512;
// With many rows a block has this many times fewer threads, each with as many times more elements,
// which amortizes what a thread does once per row and shortens the block reduction.
constexpr int kManyFold = 2;
constexpr int kManyThreads = 896;  // of a multiprocessor, when each has few vectors

constexpr int most_threads(int lanes) {
  return lanes == kOneWarp ? kWarpsPerBlock * kWarpSize : lanes == kAnyLanes ? kMaxThreads : lanes;
}
constexpr int least_blocks(int lanes, int vectors) {
  return lanes > 0 && vectors <= 4 ? kManyThreads / lanes : 1;
}

template <typename T, typename W, int kVectors, int kFold, int kLanes>
__global__ void ATOM_LAUNCH_BOUNDS(most_threads(kLanes), least_blocks(kLanes, kVectors))
    rms_norm_vectors(const RmsNormLaunch p) {
  __shared__ float scratch[2][kWarpSize];
  RowNorm<T, W, kVectors, kFold, kLanes> norm(p);
  norm.load_weight();  // no kernel of a step writes weights
  allow_next_grid();
  wait_for_previous_grid();
  if (!norm.exists()) return;
  norm.load();
  norm.normalize(scratch);
}

// The result of a block's row, value_of(i) each, in the format that the launch asks for.
template <typename T, typename ValueOf>
__device__ void store_any(const RmsNormLaunch& p,
                          int64_t offset,
                          const ValueOf& value_of,
                          float (&scratch)[kWarpSize]) {
  const int64_t row = blockIdx.x;
  if (p.group_size > 0) {
    quantize_groups_of_row(p.size,
                           p.scales + row * (p.size / kQuantGroupSize),
                           static_cast<Float8*>(p.out) + offset,
                           value_of);
    return;
  }
  float code_scale = 1;
  if (p.scales != nullptr) {
    float largest = 0;
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
      largest = fmaxf(largest, fabsf(value_of(i)));
    }
    code_scale = scale_of_largest(reduce_block(largest, scratch, Largest()));
    if (threadIdx.x == 0) p.scales[row] = code_scale;
  } else if (p.static_scale != nullptr) {
    code_scale = *p.static_scale;
  }
  for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
    if (p.is_float8()) {
      static_cast<Float8*>(p.out)[offset + i] = float8_code(value_of(i), code_scale);
    } else {
      static_cast<T*>(p.out)[offset + i] = from_float<T>(value_of(i));
    }
  }
}

// The registers of a thread of a few rows: beside blocks of experts, which have about three
// quarters of a multiprocessor's, its block is there when they end.
constexpr int kFewRowsRegisters = 48, kRegisters = 1 << 16;

// Rows of one head; with few of them a launch's latencies count.
template <typename T, typename W, int kVectors, int kThreads, RowResult kResult>
__global__ void ATOM_LAUNCH_BOUNDS(kThreads,
                                   kVectors <= 2 ? kRegisters / (kFewRowsRegisters * kThreads) : 1)
    rms_norm_few(const RmsNormLaunch p) {
  __shared__ float scratch[2][2][kWarpSize];
  RowNorm<T, W, kVectors, 1, kThreads, kResult> norm(p);
  allow_next_grid();
  // First without elements: what else ran has driven the instructions out of the caches, and they
  // come back while the kernel before this one ends.
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    norm.set_empty(pass == 0);
    norm.load_weight();  // no kernel of a step writes weights
    if (pass == 1) wait_for_previous_grid();
    norm.load();
    norm.normalize(scratch[pass]);
  }
}

// Rows of any length and alignment: a block per row, which it reads again for each pass.
template <typename T, typename W>
__global__ void __launch_bounds__(kMaxThreads) rms_norm_any(const RmsNormLaunch p) {
  __shared__ float scratch[2][kWarpSize];
  const int64_t row = blockIdx.x;
  const int64_t token = row / p.num_heads, head = row % p.num_heads;
  const T* x = static_cast<const T*>(p.x) + token * p.x_strides[0] + head * p.x_strides[1];
  const int64_t offset = token * p.out_strides[0] + head * p.out_strides[1];
  const W* weight = static_cast<const W*>(p.weight);
  allow_next_grid();
  wait_for_previous_grid();

  float sum = 0;
  T* residual = static_cast<T*>(p.residual);
  if (residual != nullptr) residual += row * p.residual_stride;
  for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
    float value = to_float(x[i]);
    if (residual != nullptr) {
      residual[i] = from_float<T>(value + to_float(residual[i]));
      value = to_float(residual[i]);
    }
    sum = fmaf(value, value, sum);
  }
  const float mean = reduce_block(sum, scratch[0], Sum()) / static_cast<float>(p.size);
  const float scale = 1.0f / sqrtf(mean + p.eps);

  const T* source = residual != nullptr ? residual : x;
  const auto value_of = [&](int64_t i) {
    return normalized<T, W>(to_float(source[i]), scale, to_float(weight[i]));
  };
  store_any<T>(p, offset, value_of, scratch[1]);
  if (p.rows == nullptr) return;
  __syncthreads();  // they may be x
  T* rows = static_cast<T*>(p.rows) + row * p.rows_stride;
  for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) rows[i] = from_float<T>(value_of(i));
}

bool is_vector_aligned(const RmsNormLaunch& p) {
  const int64_t size = bytes_of(p.element), length = kVectorSize / size;
  const int64_t out_size = p.is_float8() ? 1 : size;
  const auto aligned = [](const void* data, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(data) % bytes == 0;
  };
  return p.size % length == 0 && p.x_strides[0] % length == 0 && p.x_strides[1] % length == 0 &&
         p.out_strides[0] % length == 0 && p.out_strides[1] % length == 0 &&
         p.residual_stride % length == 0 && p.rows_stride % length == 0 &&
         aligned(p.x, kVectorSize) && aligned(p.residual, kVectorSize) &&
         aligned(p.weight, kVectorSize) && aligned(p.rows, kVectorSize) &&
         aligned(p.out, length * out_size);
}

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

// How rows of a range of lengths are cut. A row's result depends on its length alone, not on how
// many there are: with many, kLanes threads add in the order of the kThreads that it has otherwise.
template <typename T, typename W, int kThreads, int kVectors>
struct Cut {
  static constexpr int64_t kMaxVectors = kThreads * kVectors;
  static constexpr int kLanes = kThreads / kManyFold;

  template <typename Start>
  static gpuError_t start(bool many, RowResult result, int64_t num_rows, Start&& start) {
    if constexpr (sizeof(T) == 2 && sizeof(W) == 2) {
      if (many) {
        auto* kernel = &rms_norm_vectors<T, W, kVectors * kManyFold, kManyFold, kLanes>;
        return start(kernel, num_rows, kLanes);
      }
    }
    if constexpr (sizeof(T) == 2) {
      if (result == RowResult::kRows) {
        auto* kernel = &rms_norm_few<T, W, kVectors, kThreads, RowResult::kRows>;
        return start(kernel, num_rows, kThreads);
      }
      if (result == RowResult::kGroups) {
        auto* kernel = &rms_norm_few<T, W, kVectors, kThreads, RowResult::kGroups>;
        return start(kernel, num_rows, kThreads);
      }
    }
    return start(&rms_norm_vectors<T, W, kVectors, 1, kAnyLanes>, num_rows, kThreads);
  }
};

RowResult result_of(const RmsNormLaunch& p) {
  if (p.num_heads > 1) return RowResult::kAny;
  if (!p.is_float8()) return RowResult::kRows;
  return p.group_size > 0 ? RowResult::kGroups : RowResult::kAny;
}

template <typename T, typename W>
gpuError_t launch_typed(const RmsNormLaunch& p, gpuStream_t stream) {
  constexpr int kLength = Vector<T>::kLength;
  constexpr int kScale = sizeof(T) / 2;  // float32 takes twice the vectors
  using Shortest = Cut<T, W, 256, kScale>;
  using Short = Cut<T, W, 256, 2 * kScale>;
  using Middle = Cut<T, W, 512, 2 * kScale>;
  using Long = Cut<T, W, 512, 4 * kScale>;
  const int64_t num_rows = p.num_tokens * p.num_heads, vectors = p.size / kLength;
  const bool many = num_rows >= kManyRows;
  const RowResult result = result_of(p);
  const auto start = [&](auto* kernel, int64_t blocks, int64_t threads) {
    return launch(kernel,
                  dim3(static_cast<unsigned>(blocks)),
                  dim3(static_cast<unsigned>(threads)),
                  0,
                  stream,
                  p.overlaps_previous && !many,
                  p);
  };
  if (!is_vector_aligned(p) || vectors > Long::kMaxVectors) {
    const int64_t threads = std::min<int64_t>(kMaxThreads, round_up(p.size, kWarpSize));
    return start(&rms_norm_any<T, W>, num_rows, threads);
  }
  if (vectors <= 4 * kScale * kWarpSize) {
    const int64_t blocks = (num_rows + kWarpsPerBlock - 1) / kWarpsPerBlock;
    auto* kernel = vectors <= kScale * kWarpSize ? &rms_norm_vectors<T, W, kScale, 1, kOneWarp>
                                                 : &rms_norm_vectors<T, W, 4 * kScale, 1, kOneWarp>;
    return start(kernel, blocks, kWarpsPerBlock * kWarpSize);
  }
  if (vectors <= Shortest::kMaxVectors) return Shortest::start(many, result, num_rows, start);
  if (vectors <= Short::kMaxVectors) return Short::start(many, result, num_rows, start);
  if (vectors <= Middle::kMaxVectors) return Middle::start(many, result, num_rows, start);
  return Long::start(many, result, num_rows, start);
}

}  // namespace

bool supports_rms_norm_gpu(const RmsNormLaunch& p) {
  if (p.element == Element::kFloat8E4M3 || p.size < 1) return false;
  const bool has_whole_groups = p.group_size == kQuantGroupSize && p.size % kQuantGroupSize == 0;
  if (p.group_size > 0 && (!has_whole_groups || p.scales == nullptr)) return false;
  if (p.rows != nullptr && !p.is_float8()) return false;
  return (p.residual == nullptr && p.rows == nullptr) || p.num_heads == 1;
}

gpuError_t launch_rms_norm(const RmsNormLaunch& p, gpuStream_t stream) {
  if (!supports_rms_norm_gpu(p)) return ATOM_GPU(ErrorInvalidValue);
  if (p.num_tokens * p.num_heads == 0) return ATOM_GPU(Success);
  switch (p.element) {
    case Element::kFloat32:
      return launch_typed<float, float>(p, stream);
    case Element::kFloat16:
      return p.rounds_once ? launch_typed<Half, float>(p, stream)
                           : launch_typed<Half, Half>(p, stream);
    default:
      return p.rounds_once ? launch_typed<BFloat16, float>(p, stream)
                           : launch_typed<BFloat16, BFloat16>(p, stream);
  }
}

}  // namespace atom::ops
