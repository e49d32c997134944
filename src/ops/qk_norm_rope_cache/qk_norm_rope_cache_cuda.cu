#include "ops/device/elements.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/qk_norm_rope_cache/qk_norm_rope_cache_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kNumThreads = 128;
constexpr int kLength = 8;  // elements of a head per lane

// As ops/rms_norm does it: of the weight's type in between.
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
__device__ void store_cached(const QkNormRopeCacheArgs::Cache& cache,
                             int64_t offset,
                             const float (&value)[kLength],
                             bool float8) {
  if (!float8) return store_head(static_cast<T*>(cache.data) + offset, value);
  const float reciprocal = 1.0f / cache.scale;
  Pack<Float8, kLength> packed;
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
    packed.element[i] = from_float<Float8>(divide(value[i], cache.scale, reciprocal));
  }
  *reinterpret_cast<Pack<Float8, kLength>*>(static_cast<Float8*>(cache.data) + offset) = packed;
}

// head_dim / 8 lanes per head; the heads of one token beside each other: queries, keys, values.
template <typename T>
__global__ void __launch_bounds__(kNumThreads)
    qk_norm_rope_cache_kernel(const QkNormRopeCacheArgs args) {
  const int head_dim = static_cast<int>(args.head_dim),
            half = static_cast<int>(args.rotary_dim) / 2;
  const int lanes = head_dim / kLength, lane = threadIdx.x % lanes;
  const int num_heads = static_cast<int>(args.heads[0].num_heads);
  const int num_kv_heads = static_cast<int>(args.heads[1].num_heads);
  const int index = blockIdx.x * (kNumThreads / lanes) + threadIdx.x / lanes;
  const int kind = index < num_heads ? 0 : index < num_heads + num_kv_heads ? 1 : 2;
  const int head = kind == 0 ? index : index - num_heads - (kind - 1) * num_kv_heads;
  const int64_t token = blockIdx.y + int64_t{blockIdx.z} * gridDim.y;
  const bool exists = index < num_heads + 2 * num_kv_heads && token < args.num_tokens;

  allow_next_grid();
  wait_for_previous_grid();
  float value[kLength] = {};
  const QkNormRopeCacheArgs::Heads& heads = args.heads[kind];
  T* row = static_cast<T*>(heads.data) + token * heads.token_stride + head * heads.head_stride +
           lane * kLength;
  if (exists) {
    const Vector<T> packed = load_vector(row);
#pragma unroll
    for (int i = 0; i < kLength; ++i) value[i] = to_float(packed.element[i]);
  }
  // Whole warps run the exchanges, also for lanes without a head or with one of the values.
  float rotated[kLength];
#pragma unroll
  for (int i = 0; i < kLength; ++i) rotated[i] = value[i];
  if (args.weights[0] != nullptr) {
    const auto* weights = static_cast<const T*>(args.weights[kind == 0 ? 0 : 1]);
    normalise(rotated, load_vector(weights + lane * kLength), head_dim, lanes, args.eps);
  }
  const int64_t position = exists ? args.positions[token] : 0;
  if (position < 0 || position >= args.max_position) __trap();
  const float* cos_sin = args.cos_sin + position * args.cos_sin_stride;
  if (args.interleaved) {
    rotate_interleaved<T>(rotated, cos_sin, half, lane);
  } else {
    rotate_neox<T>(rotated, cos_sin, half, lane);
  }
  if (!exists) return;
  if (kind == 0) return store_head(row, rotated);
  const int64_t slot = args.slots[token];
  if (slot == -1) return;
  if (slot < 0 || slot >= args.num_slots) __trap();
  const int64_t offset = (slot * num_kv_heads + head) * head_dim + lane * kLength;
  if (kind == 1) {
    store_cached<T>(args.caches[0], offset, rotated, args.float8_cache);
  } else {
    store_cached<T>(args.caches[1], offset, value, args.float8_cache);
  }
}

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0;
}

}  // namespace

bool fits_qk_norm_rope_cache_cuda(const QkNormRopeCacheArgs& args) {
  const int64_t size = args.head_dim;
  const bool power_of_two = size >= kLength && (size & (size - 1)) == 0;
  const int64_t rotary_step = args.interleaved ? kLength : 2 * kLength;
  bool aligned = args.cos_sin_stride % 4 == 0 && is_aligned(args.cos_sin) &&
                 is_aligned(args.weights[0]) && is_aligned(args.weights[1]) &&
                 is_aligned(args.caches[0].data) && is_aligned(args.caches[1].data);
  for (const QkNormRopeCacheArgs::Heads& heads : args.heads) {
    aligned = aligned && is_aligned(heads.data) && heads.token_stride % kLength == 0 &&
              heads.head_stride % kLength == 0;
  }
  return args.element != Element::kFloat32 && power_of_two && size <= kLength * kWarpSize &&
         args.rotary_dim >= rotary_step && args.rotary_dim % rotary_step == 0 && aligned;
}

void qk_norm_rope_cache_cuda(const QkNormRopeCacheArgs& args, void* queue) {
  constexpr int64_t kMaxGridY = 32768;
  const int64_t heads_per_block = kNumThreads / (args.head_dim / kLength);
  const int64_t num_heads = args.heads[0].num_heads + 2 * args.heads[1].num_heads;
  const int64_t rows = args.num_tokens < kMaxGridY ? args.num_tokens : kMaxGridY;
  const dim3 grid(static_cast<unsigned>((num_heads + heads_per_block - 1) / heads_per_block),
                  static_cast<unsigned>(rows),
                  static_cast<unsigned>((args.num_tokens + rows - 1) / rows));
  const auto stream = static_cast<gpuStream_t>(queue);
  auto* kernel = args.element == Element::kFloat16 ? &qk_norm_rope_cache_kernel<Half>
                                                   : &qk_norm_rope_cache_kernel<BFloat16>;
  // What went wrong is kept as the last error.
  (void)launch(kernel, grid, dim3(kNumThreads), 0, stream, true, args);
  check_gpu_launch("qk_norm_rope_cache");
}

}  // namespace atom::ops
