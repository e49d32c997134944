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

// The value of an element before any quantisation, as ops::rms_norm rounds it.
template <typename T, typename W>
__device__ float normalised(float x, float scale, float weight) {
  float y = x * scale;
  if constexpr (sizeof(W) == sizeof(T)) y = round_to<T>(y);
  return round_to<T>(weight * y);
}

// The threads of one row, a warp for short rows and a block for long ones. Vector v of lane l of n
// lanes holds the elements from (v * n + l) * kLength on.
template <typename T, bool kBlock>
struct Team {
  static constexpr int kLength = Vector<T>::kLength;
  const int size;

  __device__ int lane() const { return kBlock ? threadIdx.x : threadIdx.x % kWarpSize; }
  __device__ int lanes() const { return kBlock ? blockDim.x : kWarpSize; }
  __device__ int first_of(int v) const { return (v * lanes() + lane()) * kLength; }
  __device__ bool has(int v) const { return first_of(v) < size; }
  __device__ int64_t row() const {
    return kBlock ? blockIdx.x : int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarpSize;
  }
  template <typename Operation>
  __device__ float reduce(float value, float* scratch, Operation operation) const {
    return kBlock ? reduce_block(value, scratch, operation)
                  : reduce_lanes(value, kWarpSize, operation);
  }
};

// x + residual, rounded; residual becomes it.
template <typename T>
__device__ uint4 add_to(T* residual, const uint4& x, const uint4& before) {
  constexpr int kLength = Vector<T>::kLength;
  float sum[kLength], other[kLength];
  to_floats<T>(x, sum);
  to_floats<T>(before, other);
#pragma unroll
  for (int i = 0; i < kLength; ++i) sum[i] += other[i];
  const uint4 bits = bits_of<T>(sum);
  store_bits(residual, bits);
  return bits;
}

// A team's row, in registers: x, then what it gives.
template <typename T, typename W, int kVectors, bool kBlock>
class RowNorm {
 public:
  static constexpr int kLength = Vector<T>::kLength;

  __device__ explicit RowNorm(const RmsNormLaunch& p)
      : p_(p), team_{static_cast<int>(p.size)}, row_(team_.row()) {}

  __device__ bool exists() const { return row_ < p_.num_tokens * p_.num_heads; }

  __device__ void load_weight() {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!team_.has(v)) continue;
      weight_[v] = *reinterpret_cast<const Pack<W, kLength>*>(static_cast<const W*>(p_.weight) +
                                                              team_.first_of(v));
    }
  }

  // With the residual added.
  __device__ void load() {
    const auto [token, head] = place();
    const T* x = static_cast<const T*>(p_.x) + token * p_.x_strides[0] + head * p_.x_strides[1];
    T* residual = static_cast<T*>(p_.residual) + row_ * p_.residual_stride;
    uint4 before[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!team_.has(v)) continue;
      value_[v] = load_bits(x + team_.first_of(v));
      if (p_.residual != nullptr) before[v] = load_bits(residual + team_.first_of(v));
    }
    if (p_.residual == nullptr) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!team_.has(v)) continue;
      value_[v] = add_to(residual + team_.first_of(v), value_[v], before[v]);
    }
  }

  __device__ void normalise(float (&scratch)[2][kWarpSize]) {
    float sum = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!team_.has(v)) continue;
      float x[kLength];
      to_floats<T>(value_[v], x);
#pragma unroll
      for (int i = 0; i < kLength; ++i) sum = fmaf(x[i], x[i], sum);
    }
    const float mean = team_.reduce(sum, scratch[0], Sum()) / static_cast<float>(p_.size);
    const float scale = 1.0f / sqrtf(mean + p_.eps);
    float largest = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!team_.has(v)) continue;
      float y[kLength];
      to_floats<T>(value_[v], y);
#pragma unroll
      for (int i = 0; i < kLength; ++i) y[i] *= scale;
      if constexpr (sizeof(W) == sizeof(T)) round_all<T>(y);
#pragma unroll
      for (int i = 0; i < kLength; ++i) {
        y[i] *= to_float(weight_[v].element[i]);
        largest = fmaxf(largest, fabsf(y[i]));
      }
      value_[v] = bits_of<T>(y);
    }
    largest = round_to<T>(largest);  // rounding keeps the order
    const auto [token, head] = place();
    const int64_t offset = token * p_.out_strides[0] + head * p_.out_strides[1];
    if (p_.is_float8()) {
      store_codes(offset, largest, scratch[1]);
      return;
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!team_.has(v)) continue;
      store_bits(static_cast<T*>(p_.out) + offset + team_.first_of(v), value_[v]);
    }
  }

 private:
  struct Place {
    int64_t token, head;
  };

  __device__ Place place() const {
    if (p_.num_heads == 1) return {row_, 0};
    return {row_ / p_.num_heads, row_ % p_.num_heads};
  }

  __device__ void store_codes(int64_t offset, float largest, float* scratch) const {
    float code_scale = 0;
    if (p_.scales != nullptr) {
      code_scale = scale_of_largest(team_.reduce(largest, scratch, Largest()));
      if (team_.lane() == 0) p_.scales[row_] = code_scale;
    } else {
      code_scale = *p_.static_scale;
    }
    const Fp8Quantiser quantise(code_scale, p_.scales != nullptr);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!team_.has(v)) continue;
      float y[kLength];
      to_floats<T>(value_[v], y);
      *reinterpret_cast<Pack<Float8, kLength>*>(static_cast<Float8*>(p_.out) + offset +
                                                team_.first_of(v)) = quantise(y);
    }
  }

  const RmsNormLaunch p_;
  const Team<T, kBlock> team_;
  const int64_t row_;
  Pack<W, kLength> weight_[kVectors];
  uint4 value_[kVectors];
};

template <typename T, typename W, int kVectors, bool kBlock>
__global__ void __launch_bounds__(kBlock ? kMaxThreads : kWarpsPerBlock* kWarpSize)
    rms_norm_vectors(const RmsNormLaunch p) {
  __shared__ float scratch[2][kWarpSize];
  RowNorm<T, W, kVectors, kBlock> norm(p);
  norm.load_weight();  // no kernel of a step writes weights
  allow_next_grid();
  wait_for_previous_grid();
  if (!norm.exists()) return;
  norm.load();
  norm.normalise(scratch);
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
  float code_scale = 1;
  if (p.scales != nullptr) {
    float largest = 0;
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
      largest = fmaxf(largest, fabsf(value_of(i)));
    }
    code_scale = scale_of_largest(reduce_block(largest, scratch[1], Largest()));
    if (threadIdx.x == 0) p.scales[row] = code_scale;
  } else if (p.static_scale != nullptr) {
    code_scale = *p.static_scale;
  }
  const Fp8Quantiser quantise(code_scale, p.scales != nullptr);
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
                  p.overlaps_previous && num_rows < kManyRows,
                  p);
  };
  if (!is_vector_aligned(p) || vectors > 4 * kScale * kMaxThreads) {
    const int64_t threads = std::min<int64_t>(kMaxThreads, round_up(p.size, kWarpSize));
    return start(&rms_norm_any<T, W>, num_rows, threads);
  }
  if (vectors <= 4 * kScale * kWarpSize) {
    const int64_t blocks = (num_rows + kWarpsPerBlock - 1) / kWarpsPerBlock;
    auto* kernel = vectors <= kScale * kWarpSize ? &rms_norm_vectors<T, W, kScale, false>
                                                 : &rms_norm_vectors<T, W, 4 * kScale, false>;
    return start(kernel, blocks, kWarpsPerBlock * kWarpSize);
  }
  const int per_thread = vectors <= 2 * kScale * kMaxThreads ? 2 * kScale : 4 * kScale;
  auto* kernel = per_thread == 2 * kScale ? &rms_norm_vectors<T, W, 2 * kScale, true>
                                          : &rms_norm_vectors<T, W, 4 * kScale, true>;
  return start(kernel, num_rows, round_up((vectors + per_thread - 1) / per_thread, kWarpSize));
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
