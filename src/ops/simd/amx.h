// The tile registers of AMX, for files compiled for it: eight of 16 rows of 64 bytes. Assembly
// instead of the compilers' intrinsics, which take the number of a register as text only.
// Everything has internal linkage, so that nothing of it is merged into code for lesser processors.
#pragma once

#include <stdint.h>

namespace atom::ops {
namespace {

struct AmxTiles {
  // Rows that tiles 0 to 4 have from now on, 1 to 16; tiles 5 to 7 have 16. All become zero.
  static inline void configure(int rows) {
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_size[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t num_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    static_assert(sizeof(config) == 64);
    for (int tile = 0; tile < 5; ++tile) config.num_rows[tile] = static_cast<uint8_t>(rows);
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }

  // Without it a thread that is interrupted would have its tiles saved.
  static inline void release() { asm volatile("tilerelease" : : : "memory"); }

  // Rows `stride` bytes apart.
  template <int kTile>
  static inline __attribute__((always_inline)) void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static inline __attribute__((always_inline)) void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static inline __attribute__((always_inline)) void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  // Float32 += pairs of bfloat16 in a row of kA by those in a column of kB. Of a call's pairs the
  // first and the second halves are summed up apart, then both are added; denormals are zeros.
  template <int kSum, int kA, int kB>
  static inline __attribute__((always_inline)) void multiply_bfloat16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  // 32-bit integers += four INT8 in a row of kA by those in a column of kB.
  template <int kSum, int kA, int kB>
  static inline __attribute__((always_inline)) void multiply_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace atom::ops
