// Inside quantize: the code of one value on the device, bit for bit what the CPU computes.
#pragma once

#include <cstring>

#include "ops/device/elements.cuh"
#include "ops/device/reductions.cuh"

namespace atom::ops {

// max / 448, or 1 where that is 0.
__device__ inline float scale_of_largest(float largest) {
  const float scale = largest / device::kFloat8Max;
  return scale > 0.0f ? scale : 1.0f;
}

// Codes of x / scale, rounded to float32 first; the sign is x's even of zero and NaN. With kBounded
// no finite value is larger than 512 * scale.
template <bool kBounded>
class Float8Quantizer {
 public:
  __device__ explicit Float8Quantizer(float scale)
      : scale_(scale), reciprocal_(1.0f / scale), limit_(512.0f * scale) {}

  // Whether the steps from a reciprocal to a quotient stay within float32's range.
  __device__ static bool is_ordinary(float scale) { return scale >= 0x1p-60f && scale <= 0x1p60f; }

  // Of a vector of elements of type T; `signs` has the same signs.
  template <typename T>
  __device__ device::Pack<device::Float8, device::Vector<T>::kLength> codes(
      const uint4& bits, const uint4& signs) const {
    constexpr int kLength = device::Vector<T>::kLength;
    float x[kLength];
    device::to_floats<T>(bits, x);
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      if constexpr (!kBounded) x[i] = limited(x[i]);
      x[i] = sizeof(T) == 2 ? device::divide(x[i], scale_, reciprocal_) : divide(x[i]);
    }
    uint32_t words[kLength / 4];
#pragma unroll
    for (int i = 0; i < kLength; i += 4) {
      words[i / 4] = device::float8_pair(x[i], x[i + 1]) | device::float8_pair(x[i + 2], x[i + 3])
                                                               << 16;
    }
    if constexpr (kLength == 8) {
      words[0] |= signs_of(signs.x, signs.y);
      words[1] |= signs_of(signs.z, signs.w);
    } else {
      words[0] |=
          signs_of(__byte_perm(signs.x, signs.y, 0x7632), __byte_perm(signs.z, signs.w, 0x7632));
    }
    device::Pack<device::Float8, kLength> codes;
    memcpy(&codes, words, sizeof codes);
    return codes;
  }

 private:
  // Of the four elements of 16 bits in two words.
  __device__ static uint32_t signs_of(uint32_t low, uint32_t high) {
    return __byte_perm(low, high, 0x7531) & 0x80808080u;
  }

  // Beyond the limit codes do not differ; NaN stays.
  __device__ float limited(float x) const {
    return fabsf(x) > limit_ ? copysignf(limit_, x) : x;
  }

  // Correctly rounded: two steps of Newton's method from a correctly rounded reciprocal, none of
  // which overflows.
  __device__ float divide(float x) const {
    const float first = device::divide(x, scale_, reciprocal_);
    return fmaf(fmaf(-scale_, first, x), reciprocal_, first);
  }

  float scale_;
  float reciprocal_;
  float limit_;
};

template <typename T>
__device__ inline uint4 multiplied(const uint4& bits, float factor) {
  float x[device::Vector<T>::kLength];
  device::to_floats<T>(bits, x);
#pragma unroll
  for (int i = 0; i < device::Vector<T>::kLength; ++i) x[i] *= factor;
  return device::bits_of<T>(x);
}

// store(v, codes) for each of kCount vectors of elements of type T.
template <typename T, bool kBounded, int kCount, typename Store>
__device__ inline void quantize_vectors(const uint4 (&vectors)[kCount],
                                        float scale,
                                        Store&& store) {
  if (Float8Quantizer<kBounded>::is_ordinary(scale)) {
    const Float8Quantizer<kBounded> quantizer(scale);
#pragma unroll
    for (int v = 0; v < kCount; ++v) {
      store(v, quantizer.template codes<T>(vectors[v], vectors[v]));
    }
    return;
  }
  // Powers of two change no quotient: what leaves T's range has the code of 0 or of the largest
  // anyway. 0, infinity and NaN act on x as divisors do.
  const bool is_number = scale > 0 && scale < INFINITY;
  const float factor = !is_number ? 1.0f / scale : scale < 1 ? 0x1p100f : 0x1p-100f;
  const Float8Quantizer<false> quantizer(is_number ? scale * factor : 1.0f);
#pragma unroll
  for (int v = 0; v < kCount; ++v) {
    store(v, quantizer.template codes<T>(multiplied<T>(vectors[v], factor), vectors[v]));
  }
}

// One value at a time.
__device__ inline device::Float8 float8_code(float x, float scale) {
  const uint8_t sign = __float_as_uint(x) >> 24 & 0x80u;
  return {static_cast<uint8_t>(device::from_float<device::Float8>(x / scale).bits | sign)};
}

constexpr int kQuantGroupSize = 128;

// Groups of 128 elements, each in as many neighboring lanes of a warp as it has vectors: calls
// store_scale(v, scale) in the first lane of vector v's group, then store(v, codes). All lanes of
// the warp take part.
template <typename T, int kCount, typename StoreScale, typename Store>
__device__ inline void quantize_groups(const uint4 (&vectors)[kCount],
                                       StoreScale&& store_scale,
                                       Store&& store) {
  constexpr int kLanes = kQuantGroupSize / device::Vector<T>::kLength;
#pragma unroll
  for (int v = 0; v < kCount; ++v) {
    device::LargestMagnitude<T> largest;
    largest.see(vectors[v]);
    const float scale =
        scale_of_largest(device::reduce_lanes(largest.value(), kLanes, device::Largest()));
    if (threadIdx.x % kLanes == 0) store_scale(v, scale);
    const uint4 one[1] = {vectors[v]};
    quantize_vectors<T, true>(one, scale, [&](int, const auto& codes) { store(v, codes); });
  }
}

// The groups of a row of `size` elements, value_of(i) each, by the warps of a block.
template <typename ValueOf>
__device__ inline void quantize_groups_of_row(int64_t size,
                                              float* scales,
                                              device::Float8* codes,
                                              ValueOf&& value_of) {
  constexpr int kValues = kQuantGroupSize / device::kWarpSize;
  const int warp = threadIdx.x / device::kWarpSize, lane = threadIdx.x % device::kWarpSize;
  const int num_warps = blockDim.x / device::kWarpSize;
  for (int64_t begin = int64_t{warp} * kQuantGroupSize; begin < size;
       begin += int64_t{num_warps} * kQuantGroupSize) {
    float values[kValues], largest = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int64_t k = begin + i * device::kWarpSize + lane;
      values[i] = k < size ? value_of(k) : 0;
      largest = fmaxf(largest, fabsf(values[i]));  // drops NaN
    }
    const float scale =
        scale_of_largest(device::reduce_lanes(largest, device::kWarpSize, device::Largest()));
    if (lane == 0) scales[begin / kQuantGroupSize] = scale;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int64_t k = begin + i * device::kWarpSize + lane;
      if (k < size) codes[k] = float8_code(values[i], scale);
    }
  }
}

}  // namespace atom::ops
