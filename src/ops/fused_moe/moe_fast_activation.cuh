// Inside fused_moe on Hopper: the activation of a tile's sums, in few instructions. Of a tile's
// sums there are thousands, and the matrix units wait for what becomes of them.
#pragma once

#include "ops/fused_moe/moe_device.cuh"

namespace atom::ops::device {

// silu or the clamped activation.
class FastActivation {
 public:
  __device__ explicit FastActivation(const GatedActivation& activation)
      : is_clamped_(activation.kind == GatedActivationKind::kClampedSwiGlu),
        limit_(activation.limit),
        factor_(-kLog2E * (is_clamped_ ? activation.alpha : 1.0f)) {}

  __device__ bool is_clamped() const { return is_clamped_; }

  // `gates` become results. Two at a time, so that one reciprocal is for both.
  template <bool kClamped>
  __device__ __forceinline__ void apply(float (&gates)[2], const float (&ups)[2]) const {
    float gate[2], up[2], divisor[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      gate[i] = kClamped ? smaller(gates[i], limit_) : gates[i];
      up[i] = kClamped ? larger(smaller(ups[i], limit_), -limit_) + 1.0f : ups[i];
      // The product of two is finite; the quotient by more than that is nothing beside others.
      divisor[i] = 1.0f + power_of_2(fminf(gate[i] * factor_, kMostExponent));
    }
    const float reciprocal = reciprocal_of(divisor[0] * divisor[1]);
#pragma unroll
    for (int i = 0; i < 2; ++i) gates[i] = gate[i] * up[i] * (reciprocal * divisor[1 - i]);
  }

 private:
  static constexpr float kLog2E = 1.44269504f, kMostExponent = 62.0f;

  // NaN of a NaN.
  static __device__ float smaller(float a, float b) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
  static __device__ float larger(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
  static __device__ float power_of_2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }
  static __device__ float reciprocal_of(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  const bool is_clamped_;
  const float limit_, factor_;
};

}  // namespace atom::ops::device
