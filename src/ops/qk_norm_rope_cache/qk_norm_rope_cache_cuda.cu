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

__device__ inline void load_floats(const float* source, float (&target)[kLength]) {
#pragma unroll
  for (int i = 0; i < kLength; i += 4) {
    *reinterpret_cast<float4*>(target + i) = *reinterpret_cast<const float4*>(source + i);
  }
}

// As ops/rms_norm does it: rounded before a weight of type T, too, but not before one in float32.
template <typename T>
__device__ uint4 normalize(const uint4& bits,
                           const void* weights,  // of the head
                           bool float_weights,
                           int lane,
                           int head_dim,
                           int lanes,
                           float eps) {
  float value[kLength], weight[kLength];
  to_floats<T>(bits, value);
  if (float_weights) {
    load_floats(static_cast<const float*>(weights) + lane * kLength, weight);
  } else {
    to_floats<T>(load_bits(static_cast<const T*>(weights) + lane * kLength), weight);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLength; ++i) sum = fmaf(value[i], value[i], sum);
  sum = reduce_lanes(sum, lanes, Sum());
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(head_dim) + eps);
#pragma unroll
  for (int i = 0; i < kLength; ++i) value[i] *= scale;
  if (!float_weights) round_all<T>(value);
#pragma unroll
  for (int i = 0; i < kLength; ++i) value[i] *= weight[i];
  return bits_of<T>(value);
}

// Of the elements of one lane, which has the elements of a head from lane * kLength on. The
// partners of a NeoX pair are half / kLength lanes apart.
struct Rotation {
  bool rotates;
  bool is_first;  // of a NeoX pair
  int partner;    // lane of the warp
  float cosines[kLength];
  float sines[kLength];

  __device__ Rotation(const float* cos_sin, int half, int lane, bool interleaved) {
    const int distance = half / kLength;
    rotates = lane < 2 * distance;
    is_first = lane < distance;
    const int self = threadIdx.x % kWarpSize;
    partner = !rotates ? self : is_first ? self + distance : self - distance;
    if (interleaved) {
      rotates = lane * kLength < 2 * half;
      if (!rotates) return;
      const float* pair = cos_sin + lane * kLength / 2;
#pragma unroll
      for (int i = 0; i < kLength / 2; ++i) {
        cosines[i] = pair[i];
        sines[i] = pair[half + i];
      }
    } else if (rotates) {
      const float* pair = cos_sin + (is_first ? lane : lane - distance) * kLength;
      load_floats(pair, cosines);
      load_floats(pair + half, sines);
    }
  }

  // All lanes of a warp call it together.
  template <typename T>
  __device__ uint4 rotate_neox(const uint4& bits) const {
    const uint4 partner_bits = {
        of_partner(bits.x), of_partner(bits.y), of_partner(bits.z), of_partner(bits.w)};
    if (!rotates) return bits;
    float value[kLength], other[kLength];
    to_floats<T>(bits, value);
    to_floats<T>(partner_bits, other);
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      value[i] = is_first ? value[i] * cosines[i] - other[i] * sines[i]
                          : value[i] * cosines[i] + other[i] * sines[i];
    }
    return bits_of<T>(value);
  }

  template <typename T>
  __device__ uint4 rotate_interleaved(const uint4& bits) const {
    if (!rotates) return bits;
    float value[kLength];
    to_floats<T>(bits, value);
#pragma unroll
    for (int i = 0; i < kLength / 2; ++i) {
      const float a = value[2 * i], b = value[2 * i + 1];
      value[2 * i] = a * cosines[i] - b * sines[i];
      value[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
    return bits_of<T>(value);
  }

  __device__ uint32_t of_partner(uint32_t word) const {
    return gpu_shuffle(word, partner);
  }
};

template <typename T>
__device__ void store_cached(const QkNormRopeCacheArgs::Cache& cache,
                             int64_t offset,
                             uint4 bits,
                             bool float8) {
  if (!float8) return store_bits(static_cast<T*>(cache.data) + offset, bits);
  float value[kLength];
  to_floats<T>(bits, value);
  const float reciprocal = 1.0f / cache.scale;
  uint32_t words[kLength / 4] = {};
#pragma unroll
  for (int i = 0; i < kLength; i += 2) {
    words[i / 4] |= float8_pair(divide(value[i], cache.scale, reciprocal),
                                divide(value[i + 1], cache.scale, reciprocal))
                    << i % 4 * 8;
  }
  *reinterpret_cast<uint2*>(static_cast<Float8*>(cache.data) + offset) = {words[0], words[1]};
}

template <typename T>
__device__ void rotate(uint4& low,
                       uint4& high,
                       const float (&cosines)[kLength],
                       const float (&sines)[kLength]) {
  float first[kLength], second[kLength];
  to_floats<T>(low, first);
  to_floats<T>(high, second);
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
    const float a = first[i], b = second[i];
    first[i] = a * cosines[i] - b * sines[i];
    second[i] = b * cosines[i] + a * sines[i];
  }
  low = bits_of<T>(first);
  high = bits_of<T>(second);
}

// The heads of all kinds in a row: queries, keys, values.
struct HeadPlace {
  int kind;
  int head;  // of its kind

  __device__ HeadPlace(int index, int num_heads, int num_kv_heads) {
    kind = index < num_heads ? 0 : index < num_heads + num_kv_heads ? 1 : 2;
    head = kind == 0 ? index : index - num_heads - (kind - 1) * num_kv_heads;
  }
};

template <typename T>
__device__ float sum_of_squares(const uint4& bits) {
  float value[kLength], sum = 0;
  to_floats<T>(bits, value);
#pragma unroll
  for (int i = 0; i < kLength; ++i) sum = fmaf(value[i], value[i], sum);
  return sum;
}

template <typename T>
__device__ uint4 scaled(const uint4& bits, float scale, const uint4& weight) {
  float value[kLength];
  to_floats<T>(bits, value);
#pragma unroll
  for (int i = 0; i < kLength; ++i) value[i] *= scale;
  return multiply_pairs<T>(bits_of<T>(value), weight);
}

// NeoX pairs over the whole head: a lane has 8 elements and their 8 partners, so that nothing is
// exchanged; head_dim / 16 lanes per head. A lane has kHeads of them, as far apart as there are
// heads in a block.
template <typename T, int kHeads>
__global__ void ATOM_LAUNCH_BOUNDS(kNumThreads, kHeads == 1 ? 8 : 6)
    whole_heads_kernel(const QkNormRopeCacheArgs args) {
  const int half = static_cast<int>(args.head_dim) / 2;
  const int lanes = half / kLength;
  const int lane = threadIdx.x & (lanes - 1);  // a power of two
  const int num_heads = static_cast<int>(args.heads[0].num_heads);
  const int num_kv_heads = static_cast<int>(args.heads[1].num_heads);
  const int total = num_heads + 2 * num_kv_heads;
  const int token = blockIdx.y + blockIdx.z * gridDim.y;
  const int heads_per_block = kNumThreads / lanes;
  const int first_index = static_cast<int>(blockIdx.x) * kHeads * heads_per_block +
                          static_cast<int>(threadIdx.x) / lanes;

  allow_next_grid();
  int position = 0, slot = -1;
  float cosines[kLength], sines[kLength];
  if (token < args.num_tokens) {  // no kernel of a step writes these
    position = args.positions[token];
    slot = args.slots[token];
    if (position < 0 || position >= args.max_position) gpu_trap();
    if (slot < -1 || slot >= args.num_slots) gpu_trap();
    const float* angles = args.cos_sin + position * args.cos_sin_stride + lane * kLength;
    load_floats(angles, cosines);
    load_floats(angles + half, sines);
  }
  wait_for_previous_grid();
  if (token >= args.num_tokens) return;
  uint4 low[kHeads], high[kHeads];
  T* rows[kHeads];
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const HeadPlace place(first_index + i * heads_per_block, num_heads, num_kv_heads);
    const QkNormRopeCacheArgs::Heads& heads = args.heads[place.kind];
    rows[i] = static_cast<T*>(heads.data) + token * heads.token_stride +
              place.head * heads.head_stride + lane * kLength;
    const bool exists = first_index + i * heads_per_block < total;
    low[i] = exists ? load_bits(rows[i]) : uint4{};
    high[i] = exists ? load_bits(rows[i] + half) : uint4{};
  }
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int index = first_index + i * heads_per_block;
    const HeadPlace place(index, num_heads, num_kv_heads);
    const bool is_value = place.kind == 2;
    float scale = 0;
    if (args.weights[0] != nullptr) {  // whole warps run the exchanges
      const float sum = sum_of_squares<T>(low[i]) + sum_of_squares<T>(high[i]);
      const float mean = reduce_lanes(sum, lanes, Sum()) / static_cast<float>(args.head_dim);
      scale = 1.0f / sqrtf(mean + args.eps);
    }
    if (!is_value && args.weights[0] != nullptr) {
      const T* weight = static_cast<const T*>(args.weights[place.kind]) + lane * kLength;
      low[i] = scaled<T>(low[i], scale, load_bits(weight));
      high[i] = scaled<T>(high[i], scale, load_bits(weight + half));
    }
    if (!is_value) rotate<T>(low[i], high[i], cosines, sines);
    if (index >= total) continue;
    if (place.kind == 0) {
      store_bits(rows[i], low[i]);
      store_bits(rows[i] + half, high[i]);
    } else if (slot >= 0) {
      const int64_t offset =
          (int64_t{slot} * num_kv_heads + place.head) * args.head_dim + lane * kLength;
      const QkNormRopeCacheArgs::Cache& cache = args.caches[place.kind - 1];
      store_cached<T>(cache, offset, low[i], args.float8_cache);
      store_cached<T>(cache, offset + half, high[i], args.float8_cache);
    }
  }
}

// head_dim / 8 lanes per head; the heads of one token beside each other: queries, keys, values. A
// lane has kHeads of them, as far apart as there are heads in a block.
template <typename T, int kHeads>
__global__ void ATOM_LAUNCH_BOUNDS(kNumThreads, kHeads == 1 ? 8 : 6)
    qk_norm_rope_cache_kernel(const QkNormRopeCacheArgs args) {
  const int head_dim = static_cast<int>(args.head_dim),
            half = static_cast<int>(args.rotary_dim) / 2;
  const int lanes = head_dim / kLength, lane = threadIdx.x % lanes;
  const int num_heads = static_cast<int>(args.heads[0].num_heads);
  const int num_kv_heads = static_cast<int>(args.heads[1].num_heads);
  const int64_t token = blockIdx.y + int64_t{blockIdx.z} * gridDim.y;
  const auto index_of = [&](int i) {
    return (static_cast<int>(blockIdx.x) * kHeads + i) * (kNumThreads / lanes) +
           static_cast<int>(threadIdx.x) / lanes;
  };
  const auto kind_of = [&](int index) {
    return index < num_heads ? 0 : index < num_heads + num_kv_heads ? 1 : 2;
  };
  const auto head_of = [&](int index, int kind) {
    return kind == 0 ? index : index - num_heads - (kind - 1) * num_kv_heads;
  };
  const auto row_of = [&](int index) {
    const int kind = kind_of(index);
    const QkNormRopeCacheArgs::Heads& heads = args.heads[kind];
    return static_cast<T*>(heads.data) + token * heads.token_stride +
           head_of(index, kind) * heads.head_stride + lane * kLength;
  };

  allow_next_grid();
  wait_for_previous_grid();
  if (token >= args.num_tokens) return;
  uint4 packed[kHeads] = {};
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    if (index_of(i) < num_heads + 2 * num_kv_heads) packed[i] = load_bits(row_of(index_of(i)));
  }
  const int64_t position = args.positions[token], slot = args.slots[token];
  if (position < 0 || position >= args.max_position) gpu_trap();
  if (slot < -1 || slot >= args.num_slots) gpu_trap();
  const Rotation rotation(
      args.cos_sin + position * args.cos_sin_stride, half, lane, args.interleaved);
  // Whole warps run the exchanges, also for lanes without a head or with one of the values.
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int index = index_of(i), kind = kind_of(index);
    const uint4 bits = packed[i];
    uint4 rotated = bits;
    if (args.weights[0] != nullptr) {
      rotated = normalize<T>(rotated,
                             args.weights[kind == 0 ? 0 : 1],
                             args.float_weights,
                             lane,
                             head_dim,
                             lanes,
                             args.eps);
    }
    rotated = args.interleaved ? rotation.rotate_interleaved<T>(rotated)
                               : rotation.rotate_neox<T>(rotated);
    if (index >= num_heads + 2 * num_kv_heads) continue;
    if (kind == 0) {
      store_bits(row_of(index), rotated);
    } else if (slot >= 0) {
      const int64_t offset =
          (slot * num_kv_heads + head_of(index, kind)) * head_dim + lane * kLength;
      if (kind == 2) rotated = bits;
      store_cached<T>(args.caches[kind - 1], offset, rotated, args.float8_cache);
    }
  }
}

// `lanes` per head, `heads` per lane.
gpuError_t launch_heads(void (*kernel)(QkNormRopeCacheArgs),
                        int64_t lanes,
                        int64_t heads,
                        const QkNormRopeCacheArgs& args,
                        gpuStream_t stream) {
  constexpr int64_t kMaxGridY = 32768;
  const int64_t heads_per_block = kNumThreads / lanes * heads;
  const int64_t num_heads = args.heads[0].num_heads + 2 * args.heads[1].num_heads;
  const int64_t rows = args.num_tokens < kMaxGridY ? args.num_tokens : kMaxGridY;
  const dim3 grid(static_cast<unsigned>((num_heads + heads_per_block - 1) / heads_per_block),
                  static_cast<unsigned>(rows),
                  static_cast<unsigned>((args.num_tokens + rows - 1) / rows));
  return launch(kernel, grid, dim3(kNumThreads), 0, stream, args.num_tokens < kManyRows, args);
}

template <typename T>
gpuError_t launch_typed(const QkNormRopeCacheArgs& args, gpuStream_t stream) {
  // With few tokens latency counts, with many the bytes that each thread has on their way, and that
  // angles are loaded once for several heads.
  constexpr int64_t kManyTokens = 512;
  const bool many = args.num_tokens >= kManyTokens;
  if (!args.interleaved && args.rotary_dim == args.head_dim && !args.float_weights) {
    constexpr int kMany = 3;
    return launch_heads(many ? &whole_heads_kernel<T, kMany> : &whole_heads_kernel<T, 1>,
                        args.head_dim / (2 * kLength),
                        many ? kMany : 1,
                        args,
                        stream);
  }
  constexpr int kMany = 6;
  return launch_heads(
      many ? &qk_norm_rope_cache_kernel<T, kMany> : &qk_norm_rope_cache_kernel<T, 1>,
      args.head_dim / kLength,
      many ? kMany : 1,
      args,
      stream);
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
  const auto stream = static_cast<gpuStream_t>(queue);
  // What went wrong is kept as the last error.
  (void)(args.element == Element::kFloat16 ? launch_typed<Half>(args, stream)
                                           : launch_typed<BFloat16>(args, stream));
  check_gpu_launch("qk_norm_rope_cache");
}

}  // namespace atom::ops
