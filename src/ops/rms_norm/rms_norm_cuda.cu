#include <algorithm>

#include "ops/device/elements.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quant_fp8/quant_fp8_device.cuh"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kMaxThreads = 512;
constexpr int kWarpsPerBlock = 4;  // of short rows, one each

template <typename T>
__device__ const T* row_of(const void* data, const int64_t (&strides)[2], int64_t row, int heads) {
  return static_cast<const T*>(data) + row / heads * strides[0] + row % heads * strides[1];
}

// The value of an element before any quantisation, as ops::rms_norm rounds it.
template <typename T, typename W>
__device__ float normalised(float x, float scale, float weight) {
  float y = x * scale;
  if constexpr (sizeof(W) == sizeof(T)) y = round_to<T>(y);
  return round_to<T>(weight * y);
}

// A row in the registers of a team: a warp for short rows, a block for long ones. Vector v of lane
// l of n lanes holds the elements from (v * n + l) * kLength on.
template <typename T, int kVectors>
struct RowVectors {
  Vector<T> vector[kVectors];

  __device__ void load(const T* source, int64_t size, int lane, int lanes) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t first = int64_t{v * lanes + lane} * Vector<T>::kLength;
      if (first < size) vector[v] = load_vector(source + first);
    }
  }
};

template <typename T, typename W, int kVectors, bool kBlockTeam>
__device__ void normalise_row(const RmsNormLaunch& p,
                              int64_t row,
                              const RowVectors<T, kVectors>& x,
                              const RowVectors<T, kVectors>& residual,
                              const Pack<W, Vector<T>::kLength> (&weight)[kVectors],
                              float (*scratch)[kWarpSize]) {
  constexpr int kLength = Vector<T>::kLength;
  const int lane = kBlockTeam ? threadIdx.x : threadIdx.x % kWarpSize;
  const int lanes = kBlockTeam ? blockDim.x : kWarpSize;
  const auto reduce = [&](float value, float* memory, auto operation) {
    return kBlockTeam ? reduce_block(value, memory, operation)
                      : reduce_lanes(value, kWarpSize, operation);
  };
  const auto first_of = [&](int v) { return int64_t{v * lanes + lane} * kLength; };

  float value[kVectors][kLength];
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (first_of(v) >= p.size) continue;
#pragma unroll
    for (int i = 0; i < kLength; ++i) value[v][i] = to_float(x.vector[v].element[i]);
    if (p.residual != nullptr) {
      Vector<T> added;
#pragma unroll
      for (int i = 0; i < kLength; ++i) {
        added.element[i] = from_float<T>(value[v][i] + to_float(residual.vector[v].element[i]));
        value[v][i] = to_float(added.element[i]);
      }
      store_vector(static_cast<T*>(p.residual) + row * p.residual_stride + first_of(v), added);
    }
#pragma unroll
    for (int i = 0; i < kLength; ++i) sum = fmaf(value[v][i], value[v][i], sum);
  }
  const float mean = reduce(sum, scratch[0], Sum()) / static_cast<float>(p.size);
  const float scale = 1.0f / sqrtf(mean + p.eps);

  float largest = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (first_of(v) >= p.size) continue;
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      value[v][i] = normalised<T, W>(value[v][i], scale, to_float(weight[v].element[i]));
      largest = fmaxf(largest, fabsf(value[v][i]));
    }
  }
  const int64_t offset =
      row / p.num_heads * p.out_strides[0] + row % p.num_heads * p.out_strides[1];
  if (!p.is_float8()) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (first_of(v) >= p.size) continue;
      Vector<T> packed;
#pragma unroll
      for (int i = 0; i < kLength; ++i) packed.element[i] = from_float<T>(value[v][i]);
      store_vector(static_cast<T*>(p.out) + offset + first_of(v), packed);
    }
    return;
  }
  float scale_of_codes = 0;
  if (p.scales != nullptr) {
    scale_of_codes = scale_of_largest(reduce(largest, scratch[1], Largest()));
    if (lane == 0) p.scales[row] = scale_of_codes;
  } else {
    scale_of_codes = *p.static_scale;
  }
  const Fp8Quantiser quantise(scale_of_codes);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (first_of(v) >= p.size) continue;
    Pack<Float8, kLength> packed;
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      packed.element[i] = quantise(value[v][i]);
    }
    *reinterpret_cast<Pack<Float8, kLength>*>(static_cast<Float8*>(p.out) + offset + first_of(v)) =
        packed;
  }
}

template <typename T, typename W, int kVectors, bool kBlockTeam>
__global__ void __launch_bounds__(kBlockTeam ? kMaxThreads : kWarpsPerBlock* kWarpSize,
                                  kBlockTeam ? 1 : 4) rms_norm_vectors(const RmsNormLaunch p) {
  constexpr int kLength = Vector<T>::kLength;
  __shared__ float scratch[2][kWarpSize];
  const int lane = kBlockTeam ? threadIdx.x : threadIdx.x % kWarpSize;
  const int lanes = kBlockTeam ? blockDim.x : kWarpSize;
  int64_t row = blockIdx.x, num_teams = gridDim.x;
  if (!kBlockTeam) {
    row = row * kWarpsPerBlock + threadIdx.x / kWarpSize;
    num_teams *= kWarpsPerBlock;
  }
  const int64_t num_rows = p.num_tokens * p.num_heads;
  const int num_heads = static_cast<int>(p.num_heads);

  // No kernel of a step writes weights.
  Pack<W, kLength> weight[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t first = int64_t{v * lanes + lane} * kLength;
    if (first < p.size) {
      weight[v] =
          *reinterpret_cast<const Pack<W, kLength>*>(static_cast<const W*>(p.weight) + first);
    }
  }
  allow_next_grid();
  wait_for_previous_grid();

  // The next row is under way while this one is reduced.
  RowVectors<T, kVectors> x, residual, next_x, next_residual;
  const auto load = [&](int64_t r, RowVectors<T, kVectors>& to_x, RowVectors<T, kVectors>& to_res) {
    if (r >= num_rows) return;
    to_x.load(row_of<T>(p.x, p.x_strides, r, num_heads), p.size, lane, lanes);
    if (p.residual == nullptr) return;
    to_res.load(static_cast<const T*>(p.residual) + r * p.residual_stride, p.size, lane, lanes);
  };
  load(row, x, residual);
  for (; row < num_rows; row += num_teams) {
    load(row + num_teams, next_x, next_residual);
    normalise_row<T, W, kVectors, kBlockTeam>(p, row, x, residual, weight, scratch);
    if (kBlockTeam) __syncthreads();
    x = next_x;
    residual = next_residual;
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
    return normalised<T, W>(to_float(source[i]), scale, to_float(weight[i]));
  };
  float scale_of_codes = 1;
  if (p.scales != nullptr) {
    float largest = 0;
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
      largest = fmaxf(largest, fabsf(value_of(i)));
    }
    scale_of_codes = scale_of_largest(reduce_block(largest, scratch[1], Largest()));
    if (threadIdx.x == 0) p.scales[row] = scale_of_codes;
  } else if (p.static_scale != nullptr) {
    scale_of_codes = *p.static_scale;
  }
  const Fp8Quantiser quantise(scale_of_codes);
  for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
    if (p.is_float8()) {
      static_cast<Float8*>(p.out)[offset + i] = quantise(value_of(i));
    } else {
      static_cast<T*>(p.out)[offset + i] = from_float<T>(value_of(i));
    }
  }
}

bool is_vector_aligned(const RmsNormLaunch& p) {
  const int64_t size = gpu_element_size(p.element), length = kVectorSize / size;
  const int64_t out_size = p.is_float8() ? 1 : size;
  const auto aligned = [](const void* data, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(data) % bytes == 0;
  };
  return p.size % length == 0 && p.x_strides[0] % length == 0 && p.x_strides[1] % length == 0 &&
         p.out_strides[0] % length == 0 && p.out_strides[1] % length == 0 &&
         p.residual_stride % length == 0 && aligned(p.x, kVectorSize) &&
         aligned(p.residual, kVectorSize) && aligned(p.weight, kVectorSize) &&
         aligned(p.out, length * out_size);
}

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

// What runs a row depends on its length alone, and so does its result.
template <typename T, typename W>
gpuError_t launch_typed(const RmsNormLaunch& p, gpuStream_t stream) {
  constexpr int kLength = Vector<T>::kLength;
  constexpr int kScale = sizeof(T) / 2;  // float32 takes twice the vectors
  const int64_t num_rows = p.num_tokens * p.num_heads, vectors = p.size / kLength;
  const auto start = [&](auto* kernel, int64_t blocks, int64_t threads) {
    return launch(kernel,
                  dim3(static_cast<unsigned>(blocks)),
                  dim3(static_cast<unsigned>(threads)),
                  0,
                  stream,
                  p.overlaps_previous,
                  p);
  };
  if (!is_vector_aligned(p) || vectors > 4 * kScale * kMaxThreads) {
    const int64_t threads = std::min<int64_t>(kMaxThreads, round_up(p.size, kWarpSize));
    return start(&rms_norm_any<T, W>, num_rows, threads);
  }
  // Blocks that run at once walk over all rows.
  const auto start_resident = [&](auto* kernel, int64_t blocks, int64_t threads) {
    int gpu = 0, num_multiprocessors = 0, per_multiprocessor = 0;
    auto error = ATOM_GPU(GetDevice)(&gpu);
    if (error != ATOM_GPU(Success)) return error;
    error = ATOM_GPU(DeviceGetAttribute)(
        &num_multiprocessors, ATOM_GPU(DevAttrMultiProcessorCount), gpu);
    if (error != ATOM_GPU(Success)) return error;
    error = ATOM_GPU(OccupancyMaxActiveBlocksPerMultiprocessor)(
        &per_multiprocessor, kernel, static_cast<int>(threads), 0);
    if (error != ATOM_GPU(Success)) return error;
    return start(
        kernel, std::min(blocks, int64_t{per_multiprocessor} * num_multiprocessors), threads);
  };
  if (vectors <= 4 * kScale * kWarpSize) {
    const int64_t blocks = (num_rows + kWarpsPerBlock - 1) / kWarpsPerBlock;
    auto* kernel = vectors <= kScale * kWarpSize ? &rms_norm_vectors<T, W, kScale, false>
                                                 : &rms_norm_vectors<T, W, 4 * kScale, false>;
    return start_resident(kernel, blocks, kWarpsPerBlock * kWarpSize);
  }
  const int per_thread = vectors <= 2 * kScale * kMaxThreads ? 2 * kScale : 4 * kScale;
  auto* kernel = per_thread == 2 * kScale ? &rms_norm_vectors<T, W, 2 * kScale, true>
                                          : &rms_norm_vectors<T, W, 4 * kScale, true>;
  return start_resident(
      kernel, num_rows, round_up((vectors + per_thread - 1) / per_thread, kWarpSize));
}

}  // namespace

bool supports_rms_norm_gpu(const RmsNormLaunch& p) {
  if (p.element == GpuElement::kFloat8E4M3 || p.size < 1) return false;
  return p.residual == nullptr || p.num_heads == 1;
}

gpuError_t launch_rms_norm(const RmsNormLaunch& p, gpuStream_t stream) {
  if (!supports_rms_norm_gpu(p)) return ATOM_GPU(ErrorInvalidValue);
  if (p.num_tokens * p.num_heads == 0) return ATOM_GPU(Success);
  switch (p.element) {
    case GpuElement::kFloat32:
      return launch_typed<float, float>(p, stream);
    case GpuElement::kFloat16:
      return p.rounds_once ? launch_typed<Half, float>(p, stream)
                           : launch_typed<Half, Half>(p, stream);
    default:
      return p.rounds_once ? launch_typed<BFloat16, float>(p, stream)
                           : launch_typed<BFloat16, BFloat16>(p, stream);
  }
}

}  // namespace atom::ops
