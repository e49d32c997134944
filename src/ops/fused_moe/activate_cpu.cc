#include <algorithm>
#include <cmath>

#include "ops/fused_moe/fused_moe_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

float gelu_tanh(float x) {
  constexpr float kSqrt2OverPi = 0.797884561f;
  return 0.5f * x * (1.0f + std::tanh(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
}

float activated(const GatedActivation& activation, float gate, float up) {
  switch (activation.kind) {
    case GatedActivationKind::kSilu:
      return gate / (1.0f + std::exp(-gate)) * up;
    case GatedActivationKind::kGelu:
      return 0.5f * gate * (1.0f + std::erf(gate * 0.707106781f)) * up;
    case GatedActivationKind::kGeluTanh:
      return gelu_tanh(gate) * up;
    case GatedActivationKind::kClampedSwiGlu:
      break;
  }
  const float limit = activation.limit;
  if (gate > limit) gate = limit;
  if (up > limit) up = limit;
  if (up < -limit) up = -limit;
  return gate / (1.0f + std::exp(-activation.alpha * gate)) * (up + 1.0f);
}

}  // namespace

void activate_reference(const ActivateArgs& args, int64_t begin, int64_t end) {
  const GatedActivation& activation = args.activation;
  const int64_t step = activation.is_interleaved ? 2 : 1;
  const int64_t to_up = activation.is_interleaved ? 1 : args.size;
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t row = begin; row < end; ++row) {
      const float* sums = args.sums + row * 2 * args.size;
      T* out = static_cast<T*>(args.out) + row * args.size;
      for (int64_t i = 0; i < args.size; ++i) {
        out[i] = from_float<T>(activated(activation, sums[i * step], sums[i * step + to_up]));
      }
    }
  });
}

}  // namespace atom::ops
