// What lies between the two matrices of an expert. Plain declarations, for device code too.
#pragma once

#include <stdint.h>

namespace atom::ops {

enum class GatedActivationKind {
  kSilu,      // silu(gate) * up
  kGelu,      // gelu(gate) * up, by the error function
  kGeluTanh,  // the same by tanh
  // (up + 1) * gate * sigmoid(alpha * gate) of a gate of at most `limit` and an up within +-limit.
  kClampedSwiGlu,
};

struct GatedActivation {
  GatedActivationKind kind = GatedActivationKind::kSilu;
  // Gate and up are rows 2 i and 2 i + 1 of the matrix; else all gates are before all ups.
  bool is_interleaved = false;
  float alpha = 1.702f;
  float limit = 7.0f;
};

}  // namespace atom::ops
