#include "ops/roofs/roofs_kernels.h"
#include "ops/simd/amx.h"

namespace atom::ops::roofs_kernels {
namespace {

// Numbers between 1 and 2, all different: a processor takes less power, and clocks higher, for
// zeros, which nobody multiplies.
struct Factors {
  uint16_t values[16 * 32] = {};

  constexpr Factors() {
    uint32_t state = 1;
    for (uint16_t& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<uint16_t>(0x3f80 | state >> 25);
    }
  }
};

alignas(64) constexpr Factors kFactors;

}  // namespace

// Four sums, as many as hide a product's latency.
int64_t bf16_flops_amx(int64_t iterations) {
  constexpr int64_t kProducts = 4, kFlops = 2 * 16 * 16 * 32;
  const int64_t rounds = iterations / kProducts;
  AmxTiles::configure(16);
  AmxTiles::load<4>(kFactors.values, 64);
  AmxTiles::load<5>(kFactors.values, 64);
  AmxTiles::load<6>(kFactors.values, 64);
  AmxTiles::load<7>(kFactors.values, 64);
  for (int64_t i = 0; i < rounds; ++i) {
    AmxTiles::multiply_bfloat16<0, 4, 6>();
    AmxTiles::multiply_bfloat16<1, 4, 7>();
    AmxTiles::multiply_bfloat16<2, 5, 6>();
    AmxTiles::multiply_bfloat16<3, 5, 7>();
  }
  AmxTiles::release();
  return rounds * kProducts * kFlops;
}

}  // namespace atom::ops::roofs_kernels
