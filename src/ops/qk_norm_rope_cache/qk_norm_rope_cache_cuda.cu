#include "ops/device/elements.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/qk_norm_rope_cache/qk_norm_rope_cache_cuda.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kNumThreads = 128;
constexpr int kLength = 8;  // elements of a head per lane

template <typename T>
__device__ void normalise(
    float (&value)[kLength], const Vector<T>& weight, int head_dim, int lanes, float eps) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLength; ++i) sum = fmaf(value[i], value[i], sum);
  sum = reduce_lanes(sum, lanes, Sum());
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(head_dim) + eps);
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
    value[i] = round_to<T>(to_float(weight.element[i]) * round_to<T>(value[i] * scale));
  }
}

__device__ inline void load_floats(const float* source, float (&target)[kLength]) {
#pragma unroll
  for (int i = 0; i < kLength; i += 4) {
    *reinterpret_cast<float4*>(target + i) = *reinterpret_cast<const float4*>(source + i);
  }
}

// Lane `lane` of a head holds the elements from lane * kLength on. The partners of a NeoX pair are
// half / kLength lanes apart.
template <typename T>
__device__ void rotate_neox(float (&value)[kLength], const float* cos_sin, int half, int lane) {
  const int distance = half / kLength;
  const bool rotates = lane < 2 * distance, is_first = lane < distance;
  const int partner = !rotates ? 0 : is_first ? distance : -distance;
  float other[kLength];
  const int self = threadIdx.x % kWarpSize;
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
#if defined(__HIP_PLATFORM_AMD__)
    other[i] = __shfl(value[i], self + partner, kWarpSize);
#else
    other[i] = __shfl_sync(0xffffffffu, value[i], self + partner);
#endif
  }
  if (!rotates) return;
  float cosines[kLength], sines[kLength];
  const int pair = (is_first ? lane : lane - distance) * kLength;
  load_floats(cos_sin + pair, cosines);
  load_floats(cos_sin + half + pair, sines);
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
    value[i] = is_first ? value[i] * cosines[i] - other[i] * sines[i]
                        : value[i] * cosines[i] + other[i] * sines[i];
    value[i] = round_to<T>(value[i]);
  }
}

template <typename T>
__device__ void rotate_interleaved(float (&value)[kLength],
                                   const float* cos_sin,
                                   int half,
                                   int lane) {
  if (lane * kLength >= 2 * half) return;
#pragma unroll
  for (int i = 0; i < kLength / 2; ++i) {
    const float c = cos_sin[lane * kLength / 2 + i], s = cos_sin[half + lane * kLength / 2 + i];
    const float a = value[2 * i], b = value[2 * i + 1];
    value[2 * i] = round_to<T>(a * c - b * s);
    value[2 * i + 1] = round_to<T>(b * c + a * s);
  }
}

template <typename T>
__device__ void store_head(T* target, const float (&value)[kLength]) {
  Vector<T> packed;
#pragma unroll
  for (int i = 0; i < kLength; ++i) packed.element[i] = from_float<T>(value[i]);
  store_vector(target, packed);
}

template <typename T>
__device__ void store_cached(
    void* cache, int64_t offset, const float (&value)[kLength], const float* scale, bool float8) {
  if (!float8) return store_head(static_cast<T*>(cache) + offset, value);
  const float reciprocal = 1.0f / *scale;
  Pack<Float8, kLength> packed;
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
    packed.element[i] = from_float<Float8>(divide(value[i], *scale, reciprocal));
  }
  *reinterpret_cast<Pack<Float8, kLength>*>(static_cast<Float8*>(cache) + offset) = packed;
}

// head_dim / 8 lanes per head; the heads of one token beside each other.
template <typename T>
__global__ void __launch_bounds__(kNumThreads)
    qk_norm_rope_cache_kernel(const QkNormRopeCacheLaunch p) {
  const int lanes = p.head_dim / kLength, lane = threadIdx.x % lanes;
  const int heads_per_block = kNumThreads / lanes;
  const int num_all_heads = p.num_heads + 2 * p.num_kv_heads;
  const int head = blockIdx.x * heads_per_block + threadIdx.x / lanes;
  const int64_t token = blockIdx.y + int64_t{blockIdx.z} * gridDim.y;
  const bool is_q = head < p.num_heads, is_k = !is_q && head < p.num_heads + p.num_kv_heads;
  const bool exists = head < num_all_heads && token < p.num_tokens;

  Vector<T> weight{};
  if (p.q_weight != nullptr && (is_q || is_k)) {
    weight = load_vector(static_cast<const T*>(is_q ? p.q_weight : p.k_weight) + lane * kLength);
  }
  allow_next_grid();
  wait_for_previous_grid();
  Vector<T> packed{};
  T* source =
      static_cast<T*>(p.qkv) + token * p.qkv_stride + int64_t{head} * p.head_dim + lane * kLength;
  if (exists) packed = load_vector(source);
  float value[kLength];
#pragma unroll
  for (int i = 0; i < kLength; ++i) value[i] = to_float(packed.element[i]);

  // Whole warps run the exchanges, also for lanes without a head or with one of the values.
  float rotated[kLength];
#pragma unroll
  for (int i = 0; i < kLength; ++i) rotated[i] = value[i];
  if (p.q_weight != nullptr) normalise(rotated, weight, p.head_dim, lanes, p.eps);
  const float* cos_sin = p.cos_sin + (exists ? p.positions[token] : 0) * p.cos_sin_stride;
  if (p.interleaved) {
    rotate_interleaved<T>(rotated, cos_sin, p.rotary_dim / 2, lane);
  } else {
    rotate_neox<T>(rotated, cos_sin, p.rotary_dim / 2, lane);
  }
  if (!exists) return;
  if (is_q) {
    store_head(static_cast<T*>(p.q_out) + token * p.q_out_stride + int64_t{head} * p.head_dim +
                   lane * kLength,
               rotated);
    return;
  }
  const int64_t slot = p.slot_mapping[token];
  if (slot < 0) return;
  const int kv_head = head - p.num_heads - (is_k ? 0 : p.num_kv_heads);
  const int64_t offset = (slot * p.num_kv_heads + kv_head) * p.head_dim + lane * kLength;
  if (is_k) {
    store_cached<T>(p.k_cache, offset, rotated, p.k_scale, p.float8_cache);
  } else {
    store_cached<T>(p.v_cache, offset, value, p.v_scale, p.float8_cache);
  }
}

template <typename T>
gpuError_t launch_typed(const QkNormRopeCacheLaunch& p, gpuStream_t stream) {
  constexpr int kMaxGridY = 32768;
  const int heads_per_block = kNumThreads / (p.head_dim / kLength);
  const int blocks = (p.num_heads + 2 * p.num_kv_heads + heads_per_block - 1) / heads_per_block;
  const int rows = p.num_tokens < kMaxGridY ? p.num_tokens : kMaxGridY;
  const int layers = (p.num_tokens + rows - 1) / rows;
  return launch(&qk_norm_rope_cache_kernel<T>,
                dim3(blocks, rows, layers),
                dim3(kNumThreads),
                0,
                stream,
                p.overlaps_previous,
                p);
}

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0;
}

}  // namespace

bool supports_qk_norm_rope_cache(const QkNormRopeCacheLaunch& p) {
  const bool power_of_two = p.head_dim >= kLength && (p.head_dim & (p.head_dim - 1)) == 0;
  const int rotary_step = p.interleaved ? kLength : 2 * kLength;
  return (p.element == GpuElement::kBFloat16 || p.element == GpuElement::kFloat16) &&
         power_of_two && p.head_dim <= kLength * kWarpSize && p.rotary_dim >= rotary_step &&
         p.rotary_dim <= p.head_dim && p.rotary_dim % rotary_step == 0 &&
         p.qkv_stride % kLength == 0 && p.q_out_stride % kLength == 0 &&
         p.cos_sin_stride % 4 == 0 && is_aligned(p.qkv) && is_aligned(p.q_out) &&
         is_aligned(p.k_cache) && is_aligned(p.v_cache) && is_aligned(p.cos_sin) &&
         is_aligned(p.q_weight) && is_aligned(p.k_weight) &&
         (p.q_weight == nullptr) == (p.k_weight == nullptr) &&
         (!p.float8_cache || (p.k_scale != nullptr && p.v_scale != nullptr));
}

gpuError_t launch_qk_norm_rope_cache(const QkNormRopeCacheLaunch& p, gpuStream_t stream) {
  if (!supports_qk_norm_rope_cache(p)) return ATOM_GPU(ErrorInvalidValue);
  if (p.num_tokens == 0) return ATOM_GPU(Success);
  return p.element == GpuElement::kFloat16 ? launch_typed<Half>(p, stream)
                                           : launch_typed<BFloat16>(p, stream);
}

}  // namespace atom::ops
