// Attention in bfloat16 by the tiles of AMX, between vectors of AVX-512. Tiles 0 to 3 hold sums, 4
// rows of queries or of weights, 5 to 7 16 columns of keys or values each. Every sum is a chain
// over ascending steps of 32, whatever tile its row lies in.
#include "ops/attention/cpu/bfloat16_avx512.h"
#include "ops/simd/amx.h"

#include "ops/attention/cpu/attention_simd.h"

namespace atom::ops {
namespace {

struct TileMath : BFloat16Math {
  static constexpr int kRows = 16;
  // Keys that a product of weights and values takes at a time.
  static constexpr int kKeyMultiple = 32;

  static void begin(int64_t num_rows) {
    AmxTiles::configure(num_rows < kRows ? static_cast<int>(num_rows) : kRows);
  }
  static void end() { AmxTiles::release(); }

  // c[rows][64 or less, in 16s] (+)= a . b over `steps` of 32 operands, for as many rows as the
  // tiles have; strides in bytes.
  static inline void multiply(const uint16_t* a,
                              int64_t a_stride,
                              const uint16_t* b,
                              int64_t b_stride,
                              int64_t steps,
                              int64_t vectors,
                              bool adds,
                              float* c,
                              int64_t c_stride) {
    for (; vectors >= 4; vectors -= 4, b += 4 * 32, c += 4 * 16) {
      columns<4>(a, a_stride, b, b_stride, steps, adds, c, c_stride);
    }
    if (vectors == 3) return columns<3>(a, a_stride, b, b_stride, steps, adds, c, c_stride);
    if (vectors == 2) return columns<2>(a, a_stride, b, b_stride, steps, adds, c, c_stride);
    if (vectors == 1) return columns<1>(a, a_stride, b, b_stride, steps, adds, c, c_stride);
  }

 private:
  template <int kSum>
  static inline __attribute__((always_inline)) void begin_sum(bool adds,
                                                              const float* c,
                                                              int64_t stride) {
    if (adds) {
      AmxTiles::load<kSum>(c + kSum * 16, stride);
    } else {
      AmxTiles::zero<kSum>();
    }
  }

  template <int kSum>
  static inline __attribute__((always_inline)) void add(const uint16_t* b, int64_t b_stride) {
    constexpr int kTile = 5 + kSum % 3;
    AmxTiles::load<kTile>(b + kSum * 32, b_stride);
    AmxTiles::multiply_bfloat16<kSum, 4, kTile>();
  }

  template <int kVectors>
  static inline __attribute__((always_inline)) void columns(const uint16_t* a,
                                                            int64_t a_stride,
                                                            const uint16_t* b,
                                                            int64_t b_stride,
                                                            int64_t steps,
                                                            bool adds,
                                                            float* c,
                                                            int64_t c_stride) {
    begin_sum<0>(adds, c, c_stride);
    if (kVectors > 1) begin_sum<1>(adds, c, c_stride);
    if (kVectors > 2) begin_sum<2>(adds, c, c_stride);
    if (kVectors > 3) begin_sum<3>(adds, c, c_stride);
    for (int64_t step = 0; step < steps; ++step) {
      AmxTiles::load<4>(a + step * 32, a_stride);
      add<0>(b, b_stride);
      if (kVectors > 1) add<1>(b, b_stride);
      if (kVectors > 2) add<2>(b, b_stride);
      if (kVectors > 3) add<3>(b, b_stride);
      b += 16 * b_stride / static_cast<int64_t>(sizeof(uint16_t));
    }
    AmxTiles::store<0>(c, c_stride);
    if (kVectors > 1) AmxTiles::store<1>(c + 16, c_stride);
    if (kVectors > 2) AmxTiles::store<2>(c + 32, c_stride);
    if (kVectors > 3) AmxTiles::store<3>(c + 48, c_stride);
  }
};

}  // namespace

void attention_amx(const AttentionArgs& args, const AttentionTask& task) {
  attend<TileMath, BFloat16Bits>(args, task);
}

}  // namespace atom::ops
