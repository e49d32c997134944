// Inside fused_moe by MXFP4 and FP8: the warps that read a tile's exponents, and say where the
// tables of its blocks are and what its rows' sums are to be multiplied by.
#pragma once

#include "ops/fused_moe/moe_mixed_codes.cuh"

namespace atom::ops::device::mixed {

template <bool kGated>
class ExponentReader {
 public:
  // `thread`: of kExponentWarps warps.
  __device__ ExponentReader(const MoeMixedArgs& args, const Shared<kGated>& shared, int thread)
      : args_(args), shared_(shared), thread_(thread) {}

  __device__ void run() {
    for_tiles(args_, [&](const Tile& tile) {
      ask_for(tile);
      wait_for(shared_.places_empty(buffer_.index), buffer_.parity ^ 1);
      const int count = min(kTileRows, args_.num_rows - tile.first_matrix_row);
      for (int i = thread_; i < count; i += kExponentWarps * kWarpSize) {
        read_row(int64_t{tile.expert} * args_.num_rows + tile.first_matrix_row + i,
                 shared_.places(buffer_.index) + i * kPlacesRowSize,
                 shared_.units(buffer_.index) + i * int{sizeof(float)});
      }
      __syncwarp();
      if (thread_ % kWarpSize == 0) arrive(shared_.places_full(buffer_.index));
      buffer_.advance(kPlaceBuffers);
    });
  }

 private:
  static constexpr uint32_t kLast = kNumTables - 1;  // whose codes are zeros
  static constexpr uint32_t kLastExact = 14;

  // Brings the warp's exponents to the first-level cache, a line by a lane: reading them one by one
  // takes as long as memory does, time and again.
  __device__ void ask_for(const Tile& tile) const {
    constexpr int kLineSize = 128;
    const int lane = thread_ % kWarpSize;
#pragma unroll
    for (int first = 0; first < kTileRows; first += kExponentWarps * kWarpSize) {
      const int row = tile.first_matrix_row + first + thread_ - lane;
      const int count = min(kWarpSize, args_.num_rows - row) * args_.row_exponents;
      for (int i = lane * kLineSize; i < count; i += kWarpSize * kLineSize) {
        const uint8_t* const line =
            args_.own.exponents +
            (int64_t{tile.expert} * args_.num_rows + row) * args_.row_exponents + i;
        uint32_t unused;
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(unused) : "l"(line));
      }
    }
  }

  // Of a row among all experts' rows.
  __device__ void read_row(int64_t row, uint32_t places, uint32_t unit) const {
    const auto* const pairs =
        reinterpret_cast<const uint16_t*>(args_.own.exponents + row * args_.row_exponents);
    uint32_t largest = 0;  // of even blocks and of odd ones
    for_pairs(pairs, [&](int, uint32_t pair) { largest = __vmaxu2(largest, spread(pair)); });
    uint32_t base = max(largest & 0xffff, largest >> 16);
    if (store_places(pairs, base, places) > kLastExact) {
      const uint32_t exact = largest_of_numbers(row, base);
      if (exact != base) store_bounded_places(pairs, base = exact, places);
    }
    store_shared_float(unit, __uint_as_float(base << 23) * kUnit);
  }

  // visit(i, exponents 2 i and 2 i + 1 of the row), which are asked for many at a time.
  template <typename Visit>
  __device__ __forceinline__ void for_pairs(const uint16_t* pairs, Visit&& visit) const {
    constexpr int kAtOnce = 9;
    const int count = args_.row_exponents / 2;
#pragma unroll 1
    for (int first = 0; first < count; first += kAtOnce) {
      uint32_t some[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) some[i] = pairs[min(first + i, count - 1)];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < count) visit(first + i, some[i]);
      }
    }
  }

  // Two bytes in two halves of a word.
  static __device__ uint32_t spread(uint32_t pair) {
    return permute(pair, 0, 0x4140);
  }

  // Of exponents of which none is larger than `base`. Returns the largest difference.
  __device__ uint32_t store_places(const uint16_t* pairs, uint32_t base, uint32_t places) const {
    uint32_t farthest = 0;
    for_pairs(pairs, [&](int i, uint32_t pair) {
      const uint32_t below = __vminu2(base * 0x10001 - spread(pair), kLast * 0x10001);
      farthest = __vmaxu2(farthest, below);
      store_shared_half(places + 2 * i, permute(below, 0, 0x4420) * kTableSize);
    });
    return max(farthest & 0xffff, farthest >> 16);
  }

  // The same where blocks of zeros have larger ones.
  __device__ void store_bounded_places(const uint16_t* pairs,
                                       uint32_t base,
                                       uint32_t places) const {
#pragma unroll 1
    for (int i = 0; i < args_.row_exponents / 2; ++i) {
      const uint32_t low = min(pairs[i] & 0xffu, base), high = min(pairs[i] >> 8 & 0xffu, base);
      const uint32_t first = min(base - low, kLast), second = min(base - high, kLast);
      store_shared_half(places + 2 * i, (first | second << 8) * kTableSize);
    }
  }

  // The largest exponent, from `base` down, of a block that is not all zeros; without any `base`.
  __device__ uint32_t largest_of_numbers(int64_t row, uint32_t base) const {
    const uint8_t* const exponents = args_.own.exponents + row * args_.row_exponents;
    const auto* const blocks =
        static_cast<const uint4*>(args_.own.data) + row * args_.row_exponents;
    for (int candidate = static_cast<int>(base); candidate >= 0;) {
      int next = -1;
#pragma unroll 1
      for (int b = 0; b < args_.row_exponents; ++b) {
        const int exponent = exponents[b];
        if (exponent == candidate) {
          const uint4 codes = blocks[b];
          if (((codes.x | codes.y | codes.z | codes.w) & 0x77777777u) != 0) return candidate;
        } else if (exponent < candidate) {
          next = max(next, exponent);
        }
      }
      candidate = next;
    }
    return base;
  }

  static __device__ void store_shared_half(uint32_t address, uint32_t value) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(static_cast<uint16_t>(value))
                 : "memory");
  }
  static __device__ void store_shared_float(uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
  }

  const MoeMixedArgs& args_;
  const Shared<kGated>& shared_;
  const int thread_;
  StageCursor buffer_;
};

}  // namespace atom::ops::device::mixed
