#include "layers/attention/kv_scales.h"

#include <cmath>

namespace atom {
namespace {

constexpr float kAbsent = 0.0f;

float value_on_host(const Stream& stream, const Parameter& scale) {
  float value = 0;
  if (scale.data().device().is_cpu()) return scale.data().data<float>()[0];
  stream.queue().copy(&value, scale.data().raw_data(), sizeof(value));
  stream.queue().synchronize();
  return value;
}

// The first of two that is there, or 1.
float first_present(float wanted, float other) {
  if (wanted != kAbsent) return wanted;
  return other != kAbsent ? other : 1.0f;
}

}  // namespace

KVScales::KVScales()
    : k_scale_(DType::kFloat32, Shape{1}),
      v_scale_(DType::kFloat32, Shape{1}),
      kv_scale_(DType::kFloat32, Shape{1}) {
  for (Parameter* scale : {&k_scale_, &v_scale_, &kv_scale_}) {
    scale->set_default(kAbsent);
    scale->keep_on_host();
  }
  register_parameter("k_scale", &k_scale_);
  register_parameter("v_scale", &v_scale_);
  register_parameter("kv_scale", &kv_scale_);
}

Status KVScales::finish_load(const Stream& stream) {
  const float k = value_on_host(stream, k_scale_);
  const float v = value_on_host(stream, v_scale_);
  const float both = value_on_host(stream, kv_scale_);
  for (const float scale : {k, v, both}) {
    if (std::isfinite(scale) && scale >= 0) continue;
    return invalid_argument("a scale of the KV cache is {}; expected a positive number", scale);
  }
  // With one of the two alone it serves for both.
  k_ = first_present(k, both != kAbsent ? both : v);
  v_ = first_present(v, both != kAbsent ? both : k);
  return {};
}

}  // namespace atom
