// Inside latent attention for Hopper: codes of FP8, which become float16 in registers on their way
// to shared memory.
#pragma once

#include "ops/mla_attention/sm90/tile.cuh"

namespace atom::ops::mla_device {

// What a thread of the warpgroup that loads has of a tile: codes of the group that comes first, and
// of the second one, to which the rotated part belongs.
class Expander {
 public:
  __device__ __forceinline__ Expander(const void* cache, int thread)
      : latent_row_(thread / 32 * 2 + thread / 4 % 2), rope_row_(thread / 4) {
    // Eight lanes have 64 codes of two rows, whose chunks lie in all banks.
    const int part = thread % 32 / 8 * 4 + thread % 4;  // 16 columns of 256
    const auto* first = static_cast<const char*>(cache);
    latent_column_ = first + part * 16;
    rope_column_ = first + kRank + thread % 4 * 16;
    latent_offset_ = part / 4 * kPanelBytes + panel_offset(latent_row_, part % 4 * 2);
    rope_offset_ = kRopePanel * kPanelBytes + panel_offset(rope_row_, thread % 4 * 2);
  }

  // Does not wait. `tile` is 0 or 1 of a pair, `slots` are its keys'.
  __device__ __forceinline__ void load_first(int tile, const int32_t* slots) {
    load_latent(tile == 0, slots, first_);
  }
  __device__ __forceinline__ void load_second(int tile, const int32_t* slots) {
    load_latent(tile != 0, slots, second_);
#pragma unroll
    for (int pass = 0; pass < kRopePasses; ++pass) {
      rope_[pass] = load_codes(rope_column_, slots[pass * 32 + rope_row_]);
    }
  }

  // Comes before others are asked for, since a wait for some codes may be one for all that are on
  // their way. No fence, which would wait for them too: who computes has one.
  __device__ __forceinline__ void expand_first(int tile, uint32_t target) const {
    expand_latent(tile == 0, target, first_);
  }
  __device__ __forceinline__ void expand_second(int tile, uint32_t target) const {
    expand_latent(tile != 0, target, second_);
    const uint32_t rope = target + rope_offset_;
#pragma unroll
    for (int pass = 0; pass < kRopePasses; ++pass) {
      store(rope, rope ^ 16, pass * 4 * kEightRowsBytes, rope_[pass]);
    }
  }

 private:
  // Of rows, 8 and 32 at a time.
  static constexpr int kPasses = kKeys / 8, kRopePasses = kKeys / 32;

  __device__ __forceinline__ void load_latent(bool is_left,
                                              const int32_t* slots,
                                              uint4 (&codes)[kPasses]) const {
    const char* column = latent_column_ + (is_left ? 0 : kRank / 2);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      codes[pass] = load_codes(column, slots[pass * 8 + latent_row_]);
    }
  }
  __device__ __forceinline__ void expand_latent(bool is_left,
                                                uint32_t tile,
                                                const uint4 (&codes)[kPasses]) const {
    const uint32_t latent = tile + (is_left ? 0 : kHalfPanels * kPanelBytes) + latent_offset_;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      store(latent, latent ^ 16, pass * kEightRowsBytes, codes[pass]);
    }
  }

  // Zeros where there is no key. They pass by the first-level cache, in which nobody would look for
  // them again.
  static __device__ __forceinline__ uint4 load_codes(const char* column, int32_t slot) {
    uint4 codes;
    asm("{\n.reg .pred exists;\nsetp.ge.s32 exists, %5, 0;\n"
        "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@exists ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "=&r"(codes.x), "=&r"(codes.y), "=&r"(codes.z), "=&r"(codes.w)
        : "l"(column + int64_t{slot} * kWidth), "r"(slot));
    return codes;
  }

  // 16 codes, to two chunks.
  static __device__ __forceinline__ void store(uint32_t first,
                                               uint32_t second,
                                               int offset,
                                               uint4 codes) {
    store_chunk(first + offset, codes.x, codes.y);
    store_chunk(second + offset, codes.z, codes.w);
  }
  static __device__ __forceinline__ void store_chunk(uint32_t chunk, uint32_t low, uint32_t high) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(chunk),
                 "r"(attention_device::expand_to<__half>(low & 0xffffu)),
                 "r"(attention_device::expand_to<__half>(low >> 16)),
                 "r"(attention_device::expand_to<__half>(high & 0xffffu)),
                 "r"(attention_device::expand_to<__half>(high >> 16))
                 : "memory");
  }

  const int latent_row_;
  const int rope_row_;
  // This thread's columns in the first row of the cache.
  const char* latent_column_;
  const char* rope_column_;
  // Of its first chunks in a tile.
  uint32_t latent_offset_;
  uint32_t rope_offset_;
  uint4 first_[kPasses];
  uint4 second_[kPasses];
  uint4 rope_[kRopePasses];
};

}  // namespace atom::ops::mla_device
