#include <algorithm>

#include "ops/device/elements.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kMaxThreads = 512;
constexpr int kWarpsPerBlock = 4;  // of short rows, one each
// Of many rows a block has this many times fewer threads, with as many times more of the row each:
// what each thread does once for its row counts less, and fewer wait for each other.
constexpr int kManyFold = 2;
constexpr int kManyThreads = 896;  // of a multiprocessor, when each has few vectors

// The value of an element before any quantisation, as ops::rms_norm rounds it.
template <typename T, typename W>
__device__ float normalised(float x, float scale, float weight) {
  float y = x * scale;
  if constexpr (sizeof(W) == sizeof(T)) y = round_to<T>(y);
  return round_to<T>(weight * y);
}

// The same of a vector.
template <typename T, typename W>
__device__ uint4 normalised(const uint4& bits,
                            float scale,
                            const Pack<W, Vector<T>::kLength>& weight) {
  constexpr int kLength = Vector<T>::kLength;
  float y[kLength];
  to_floats<T>(bits, y);
#pragma unroll
  for (int i = 0; i < kLength; ++i) y[i] *= scale;
  if constexpr (sizeof(W) == 2) {
    uint4 weight_bits;
    memcpy(&weight_bits, &weight, sizeof weight);
    return multiply_pairs<T>(bits_of<T>(y), weight_bits);
  } else {
#pragma unroll
    for (int i = 0; i < kLength; ++i) y[i] *= weight.element[i];
    return bits_of<T>(y);
  }
}

// The threads of one row: one of a block's warps, or a block, which has kLanes threads unless that
// is kAnyLanes. Vector v of lane l of n lanes holds the elements from (v * n + l) * kLength on.
// Sums are those of kFold * n lanes.
constexpr int kOneWarp = 0, kAnyLanes = -1;
template <typename T, int kFold, int kLanes>
struct Team {
  static constexpr int kLength = Vector<T>::kLength;
  static constexpr bool kBlock = kLanes != kOneWarp;
  const int size;

  __device__ int lane() const { return kBlock ? threadIdx.x : threadIdx.x % kWarpSize; }
  __device__ int lanes() const {
    return kLanes == kAnyLanes ? blockDim.x : kLanes == kOneWarp ? kWarpSize : kLanes;
  }
  __device__ int first_of(int v) const { return (v * lanes() + lane()) * kLength; }
  __device__ bool has(int v) const { return first_of(v) < size; }
  __device__ int64_t row() const {
    return kBlock ? blockIdx.x : int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarpSize;
  }
  __device__ float sum(float (&values)[kFold], float* scratch) const {
    return kBlock ? reduce_block(values, scratch, Sum())
                  : reduce_lanes(values[0], kWarpSize, Sum());
  }
  __device__ float largest(float value, float* scratch) const {
    return kBlock ? reduce_block(value, scratch, Largest())
                  : reduce_lanes(value, kWarpSize, Largest());
  }
};

template <typename T>
__device__ uint4 sum_of(const uint4& x, const uint4& residual) {
  constexpr int kLength = Vector<T>::kLength;
  float sum[kLength], other[kLength];
  to_floats<T>(x, sum);
  to_floats<T>(residual, other);
#pragma unroll
  for (int i = 0; i < kLength; ++i) sum[i] += other[i];
  return bits_of<T>(sum);
}

// A team's row, in registers: x, then what it gives.
template <typename T, typename W, int kVectors, int kFold, int kLanes>
class RowNorm {
 public:
  static constexpr int kLength = Vector<T>::kLength;
  using Weight = Pack<W, kLength>;

  __device__ explicit RowNorm(const RmsNormLaunch& p)
      : p_(p), team_{static_cast<int>(p.size)}, row_(team_.row()) {}

  __device__ bool exists() const { return row_ < p_.num_tokens * p_.num_heads; }

  // Ahead of the rest with few rows, for latency; with many there are other rows to wait for, and
  // registers count.
  static constexpr bool kWeightFirst = kFold == 1;
  __device__ void load_weight() {
    if constexpr (kWeightFirst) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        weight_[v] = weight_at(v);
      }
    }
  }

  // With the residual added.
  __device__ void load() {
    const auto [token, head] = place();
    const T* x = static_cast<const T*>(p_.x) + token * p_.x_strides[0] + head * p_.x_strides[1];
    T* residual = static_cast<T*>(p_.residual) + row_ * p_.residual_stride;
    // Where the row has ended everything is 0: that changes no sum and needs no branch.
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      value_[v] = team_.has(v) ? load_bits(x + team_.first_of(v)) : uint4{};
    }
    if (p_.residual == nullptr) return;
    uint4 before[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      before[v] = team_.has(v) ? load_bits(residual + team_.first_of(v)) : uint4{};
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      value_[v] = sum_of<T>(value_[v], before[v]);
      if (team_.has(v)) store_bits(residual + team_.first_of(v), value_[v]);
    }
  }

  __device__ void normalise(float (&scratch)[2][kWarpSize]) {
    float sums[kFold] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float x[kLength];
      to_floats<T>(value_[v], x);
      float& sum = sums[v % kFold];
#pragma unroll
      for (int i = 0; i < kLength; ++i) sum = fmaf(x[i], x[i], sum);
    }
    const float mean = team_.sum(sums, scratch[0]) / static_cast<float>(p_.size);
    const float scale = 1.0f / sqrtf(mean + p_.eps);
    const auto [token, head] = place();
    const int64_t offset = token * p_.out_strides[0] + head * p_.out_strides[1];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      value_[v] = normalised<T, W>(value_[v], scale, kWeightFirst ? weight_[v] : weight_at(v));
    }
    if (p_.rows != nullptr) store_rows();
    if (p_.group_size > 0) {
      store_groups(offset);
    } else if (p_.scales != nullptr) {
      LargestMagnitude<T> largest;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) largest.see(value_[v]);
      const float code_scale = scale_of_largest(team_.largest(largest.value(), scratch[1]));
      if (team_.lane() == 0) p_.scales[row_] = code_scale;
      store_codes<true>(offset, code_scale);
    } else if (p_.static_scale != nullptr) {
      store_codes<false>(offset, *p_.static_scale);
    } else {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (!team_.has(v)) continue;
        store_bits(static_cast<T*>(p_.out) + offset + team_.first_of(v), value_[v]);
      }
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

  __device__ Weight weight_at(int v) const {
    if (!team_.has(v)) return {};
    return *reinterpret_cast<const Weight*>(static_cast<const W*>(p_.weight) + team_.first_of(v));
  }

  __device__ void store_rows() const {
    T* rows = static_cast<T*>(p_.rows) + row_ * p_.rows_stride;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (team_.has(v)) store_bits(rows + team_.first_of(v), value_[v]);
    }
  }

  template <bool kBounded>
  __device__ void store_codes(int64_t offset, float scale) const {
    Float8* out = static_cast<Float8*>(p_.out) + offset;
    quantize_vectors<T, kBounded>(value_, scale, [&](int v, const Pack<Float8, kLength>& codes) {
      if (!team_.has(v)) return;
      *reinterpret_cast<Pack<Float8, kLength>*>(out + team_.first_of(v)) = codes;
    });
  }

  __device__ void store_groups(int64_t offset) const {
    float* scales = p_.scales + row_ * (p_.size / kQuantGroupSize);
    Float8* out = static_cast<Float8*>(p_.out) + offset;
    quantize_groups<T>(
        value_,
        [&](int v, float scale) {
          if (team_.has(v)) scales[team_.first_of(v) / kQuantGroupSize] = scale;
        },
        [&](int v, const Pack<Float8, kLength>& codes) {
          if (!team_.has(v)) return;
          *reinterpret_cast<Pack<Float8, kLength>*>(out + team_.first_of(v)) = codes;
        });
  }

  const RmsNormLaunch p_;
  const Team<T, kFold, kLanes> team_;
  const int64_t row_;
  Weight weight_[kWeightFirst ? kVectors : 1];
  uint4 value_[kVectors];
};

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
  norm.normalise(scratch);
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
  static gpuError_t start(bool many, int64_t num_rows, Start&& start) {
    if constexpr (sizeof(T) == 2 && sizeof(W) == 2) {
      if (many) {
        auto* kernel = &rms_norm_vectors<T, W, kVectors * kManyFold, kManyFold, kLanes>;
        return start(kernel, num_rows, kLanes);
      }
    }
    return start(&rms_norm_vectors<T, W, kVectors, 1, kAnyLanes>, num_rows, kThreads);
  }
};

template <typename T, typename W>
gpuError_t launch_typed(const RmsNormLaunch& p, gpuStream_t stream) {
  constexpr int kLength = Vector<T>::kLength;
  constexpr int kScale = sizeof(T) / 2;  // float32 takes twice the vectors
  using Short = Cut<T, W, 256, 2 * kScale>;
  using Middle = Cut<T, W, 512, 2 * kScale>;
  using Long = Cut<T, W, 512, 4 * kScale>;
  const int64_t num_rows = p.num_tokens * p.num_heads, vectors = p.size / kLength;
  const bool many = num_rows >= kManyRows;
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
  if (vectors <= Short::kMaxVectors) return Short::start(many, num_rows, start);
  if (vectors <= Middle::kMaxVectors) return Middle::start(many, num_rows, start);
  return Long::start(many, num_rows, start);
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
