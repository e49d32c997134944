#include "ops/device/elements.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/latent_norm_rope_cache/latent_norm_rope_cache_kernels.h"
#include "ops/rms_norm/rms_norm_team.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kNumThreads = 128;
constexpr int kLength = 8;   // elements of a latent that a lane has side by side
constexpr int kVectors = 4;  // of them, a warp's length apart

// The cosine and sine of each pair at a token's position.
struct Angles {
  const float* cosines;
  int half;

  __device__ Angles(const LatentNormRopeCacheArgs& args, int64_t token) : half(args.rope_dim / 2) {
    const int64_t position = args.positions[token];
    if (position < 0 || position >= args.max_position) gpu_trap();
    cosines = args.cos_sin + position * args.cos_sin_stride;
  }
  // As ops/rotary_embedding does it.
  __device__ float first(int pair, float a, float b) const {
    return a * cosines[pair] - b * cosines[half + pair];
  }
  __device__ float second(int pair, float a, float b) const {
    return b * cosines[pair] + a * cosines[half + pair];
  }
};

__device__ inline int first_of_pair(const LatentNormRopeCacheArgs& args, int pair) {
  return args.interleaved ? 2 * pair : pair;
}
__device__ inline int second_of_pair(const LatentNormRopeCacheArgs& args, int pair) {
  return args.interleaved ? 2 * pair + 1 : pair + args.rope_dim / 2;
}

// A row of the cache, in x's type or FP8.
template <typename T>
class CacheRow {
 public:
  __device__ CacheRow(const LatentNormRopeCacheArgs& args, int64_t slot)
      : data_(args.cache), first_(slot * (args.rank + args.rope_dim)), float8_(args.float8_cache) {}

  __device__ void store(int index, const uint4& bits) const {
    if (!float8_) return store_bits(static_cast<T*>(data_) + first_ + index, bits);
    float values[kLength];
    to_floats<T>(bits, values);
    Pack<Float8, kLength> codes;
#pragma unroll
    for (int i = 0; i < kLength; ++i) codes.element[i] = from_float<Float8>(values[i]);
    *reinterpret_cast<Pack<Float8, kLength>*>(static_cast<Float8*>(data_) + first_ + index) = codes;
  }
  __device__ void store(int index, float value) const {
    const T rounded = from_float<T>(value);
    if (float8_) {
      static_cast<Float8*>(data_)[first_ + index] = from_float<Float8>(to_float(rounded));
    } else {
      static_cast<T*>(data_)[first_ + index] = rounded;
    }
  }

 private:
  void* data_;
  int64_t first_;
  bool float8_;
};

// By a warp; sums are those of ops/rms_norm.
template <typename T>
__device__ void store_latent(const LatentNormRopeCacheArgs& args,
                             int64_t token,
                             const CacheRow<T>& row) {
  const int lane = threadIdx.x % kWarpSize;
  const T* x = static_cast<const T*>(args.kv) + token * args.kv_stride;
  const auto first = [&](int v) { return (v * kWarpSize + lane) * kLength; };
  uint4 value[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    value[v] = first(v) < args.rank ? load_bits(x + first(v)) : uint4{};
  }
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    float elements[kLength];
    to_floats<T>(value[v], elements);
#pragma unroll
    for (int i = 0; i < kLength; ++i) sum = fmaf(elements[i], elements[i], sum);
  }
  const float mean = reduce_lanes(sum, kWarpSize, Sum()) / static_cast<float>(args.rank);
  const float scale = 1.0f / sqrtf(mean + args.eps);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (first(v) >= args.rank) break;
    const auto& weight =
        *reinterpret_cast<const Pack<T, kLength>*>(static_cast<const T*>(args.weight) + first(v));
    row.store(first(v), rms_norm::normalized<T, T>(value[v], scale, weight));
  }
}

// By a warp.
template <typename T>
__device__ void store_key(const LatentNormRopeCacheArgs& args,
                          int64_t token,
                          const CacheRow<T>& row) {
  const Angles angles(args, token);
  const T* key = static_cast<const T*>(args.kv) + token * args.kv_stride + args.rank;
  for (int pair = threadIdx.x % kWarpSize; pair < angles.half; pair += kWarpSize) {
    const int first = first_of_pair(args, pair), second = second_of_pair(args, pair);
    const float a = to_float(key[first]), b = to_float(key[second]);
    row.store(args.rank + first, angles.first(pair, a, b));
    row.store(args.rank + second, angles.second(pair, a, b));
  }
}

// By `num_blocks` blocks.
template <typename T>
__device__ void rotate_queries(const LatentNormRopeCacheArgs& args,
                               int64_t token,
                               int block,
                               int num_blocks) {
  const Angles angles(args, token);
  const int num_pairs = static_cast<int>(args.num_heads) * angles.half;
  for (int i = block * kNumThreads + threadIdx.x; i < num_pairs; i += num_blocks * kNumThreads) {
    const int head = i / angles.half, pair = i % angles.half;
    T* q = static_cast<T*>(args.q) + token * args.q_token_stride + head * args.q_head_stride;
    T &first = q[first_of_pair(args, pair)], &second = q[second_of_pair(args, pair)];
    const float a = to_float(first), b = to_float(second);
    first = from_float<T>(angles.first(pair, a, b));
    second = from_float<T>(angles.second(pair, a, b));
  }
}

// grid: tokens; a token's row, then slices of the pairs of its queries.
template <typename T>
__global__ void __launch_bounds__(kNumThreads)
    latent_norm_rope_cache_kernel(const __grid_constant__ LatentNormRopeCacheArgs args) {
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t token = blockIdx.x;
  if (blockIdx.y > 0) {
    return rotate_queries<T>(
        args, token, static_cast<int>(blockIdx.y) - 1, static_cast<int>(gridDim.y) - 1);
  }
  const int64_t slot = args.slots[token];
  if (slot < -1 || slot >= args.num_slots) gpu_trap();
  if (slot < 0) return;
  const CacheRow<T> row(args, slot);
  const int warp = threadIdx.x / kWarpSize;
  if (warp == 0) store_latent<T>(args, token, row);
  if (warp == 1) store_key<T>(args, token, row);
}

// Few tokens have a thread for each pair, so that no load waits for another.
int64_t num_slices(const LatentNormRopeCacheArgs& args) {
  constexpr int64_t kFewTokens = 64, kMostPairs = 4;  // of a thread
  const int64_t pairs = args.num_heads * (args.rope_dim / 2);
  const int64_t of_slice = kNumThreads * (args.num_tokens <= kFewTokens ? 1 : kMostPairs);
  return (pairs + of_slice - 1) / of_slice;
}

template <typename T>
void launch_typed(const LatentNormRopeCacheArgs& args, gpuStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.num_tokens),
                  static_cast<unsigned>(1 + num_slices(args)));
  (void)launch(latent_norm_rope_cache_kernel<T>,
               grid,
               dim3(kNumThreads),
               0,
               stream,
               args.num_tokens < kManyRows,
               args);
}

bool is_aligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0 && stride % kLength == 0;
}

}  // namespace

bool fits_latent_norm_rope_cache_cuda(const LatentNormRopeCacheArgs& args) {
  const bool is_short = args.element == Element::kBFloat16 || args.element == Element::kFloat16;
  return is_short && args.rank % kLength == 0 && args.rank <= kVectors * kWarpSize * kLength &&
         is_aligned(args.kv, args.kv_stride) && is_aligned(args.weight, 0) &&
         is_aligned(args.cache, args.rank + args.rope_dim);
}

void latent_norm_rope_cache_cuda(const LatentNormRopeCacheArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.element == Element::kBFloat16) {
    launch_typed<BFloat16>(args, stream);
  } else {
    launch_typed<Half>(args, stream);
  }
  check_gpu_launch("latent_norm_rope_cache");
}

}  // namespace atom::ops
