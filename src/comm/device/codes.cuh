// Values of a sum as codes of fewer bits, by whole warps. A tile is 1024 neighboring values; a
// group of 32 neighbors has a scale of its own, in bfloat16, so that what a row becomes depends on
// nothing but itself. A group with a value that is no finite number becomes NaN, all of it.
#pragma once

#include <stdint.h>

#include <cstring>

#include "comm/device/values.cuh"
#include "tensor/gpu_api.h"

namespace atom::device_exchange {

constexpr int kTileVectors = 128;  // of 16 bytes
constexpr int kLaneVectors = 4;    // of a tile: lane + 32 v
constexpr int kVectorValues = 8;   // of 16 bits each
constexpr int kLanes = 32;

// A tile's values that a lane has, of 16 bits in memory.
using LaneValues = float[kLaneVectors][kVectorValues];

struct Float8Codes {
  static constexpr int kWords = 8;  // of 32 bits, of a lane and tile
  static constexpr float kLargest = 448;

  __device__ static void encode(const float (&x)[kVectorValues], float inverse, uint32_t* words) {
#pragma unroll
    for (int i = 0; i < kVectorValues; i += 4) {
      words[i / 4] = gpu_float8_pair_of(x[i] * inverse, x[i + 1] * inverse) |
                     gpu_float8_pair_of(x[i + 2] * inverse, x[i + 3] * inverse) << 16;
    }
  }
  __device__ static void decode(const uint32_t* words, float scale, float (&x)[kVectorValues]) {
#pragma unroll
    for (int i = 0; i < kVectorValues; ++i) {
      x[i] = gpu_float_of_float8(static_cast<uint8_t>(words[i / 4] >> (i % 4 * 8))) * scale;
    }
  }
};

// -7 to 7, as 1 to 15.
struct Int4Codes {
  static constexpr int kWords = 4;
  static constexpr float kLargest = 7;
  static constexpr int kZero = 8;

  __device__ static void encode(const float (&x)[kVectorValues], float inverse, uint32_t* words) {
    words[0] = 0;
#pragma unroll
    for (int i = 0; i < kVectorValues; ++i) {
      const int code = __float2int_rn(fminf(fmaxf(x[i] * inverse, -kLargest), kLargest));
      words[0] |= static_cast<uint32_t>(code + kZero) << (4 * i);
    }
  }
  __device__ static void decode(const uint32_t* words, float scale, float (&x)[kVectorValues]) {
#pragma unroll
    for (int i = 0; i < kVectorValues; ++i) {
      x[i] = static_cast<float>(static_cast<int>(words[0] >> (4 * i) & 15) - kZero) * scale;
    }
  }
};

// A tile as it travels: the lanes' words in vectors of 16 bytes, side by side, then a scale of each
// lane's: that of its group in vector lane % 4.
template <typename Codes>
struct CodedTile {
  static constexpr int kParts = Codes::kWords / 4;
  static constexpr int64_t kBytes = kLanes * (4 * Codes::kWords + int64_t{sizeof(uint16_t)});
  uint32_t words[Codes::kWords];
  uint16_t scale;

  __device__ void store(uint8_t* tile, int lane) const {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      reinterpret_cast<uint4*>(tile)[i * kLanes + lane] = {
          words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
    }
    scales_of(tile)[lane] = scale;
  }
  // Another card has written it since the kernel began.
  __device__ void load(const uint8_t* tile, int lane) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const uint4 bits = gpu_load_from_l2(reinterpret_cast<const uint4*>(tile) + i * kLanes + lane);
      words[4 * i] = bits.x;
      words[4 * i + 1] = bits.y;
      words[4 * i + 2] = bits.z;
      words[4 * i + 3] = bits.w;
    }
    scale = gpu_load_from_l2(scales_of(const_cast<uint8_t*>(tile)) + lane);
  }

  __device__ void encode(const LaneValues& x, int lane) {
#pragma unroll
    for (int v = 0; v < kLaneVectors; ++v) {
      // Bits of magnitudes are in the order of these, with infinity and NaN behind all others.
      uint32_t largest = 0;
#pragma unroll
      for (int i = 0; i < kVectorValues; ++i) {
        largest = max(largest, __float_as_uint(x[v][i]) & 0x7fffffffu);
      }
      largest = max(largest, gpu_shuffle_xor(largest, 1));
      largest = max(largest, gpu_shuffle_xor(largest, 2));
      const uint16_t bits = scale_of(__uint_as_float(largest));
      const float wide = widened(bits);
      Codes::encode(x[v], wide == 0 ? 0.0f : 1.0f / wide, words + v * Codes::kWords / kLaneVectors);
      if (lane % kLaneVectors == v) scale = bits;
    }
  }
  __device__ void decode(LaneValues& x, int lane) const {
#pragma unroll
    for (int v = 0; v < kLaneVectors; ++v) {
      const auto bits = static_cast<uint16_t>(
          gpu_shuffle(static_cast<uint32_t>(scale), lane / kLaneVectors * kLaneVectors + v));
      Codes::decode(words + v * Codes::kWords / kLaneVectors, widened(bits), x[v]);
    }
  }

 private:
  static __device__ uint16_t* scales_of(uint8_t* tile) {
    return reinterpret_cast<uint16_t*>(tile + kLanes * 4 * Codes::kWords);
  }
  static __device__ float widened(uint16_t bits) {
    return __uint_as_float(uint32_t{bits} << 16);
  }
  // Rounded up, so that no code is beyond the largest; 0 where a reciprocal would be none.
  static __device__ uint16_t scale_of(float largest) {
    if (!(largest < INFINITY)) return 0x7fc0;  // NaN
    const float scale = largest * (1.0f / Codes::kLargest);
    if (scale < 0x1p-120f) return 0;
    return static_cast<uint16_t>((__float_as_uint(scale) + 0xffffu) >> 16);
  }
};

}  // namespace atom::device_exchange
