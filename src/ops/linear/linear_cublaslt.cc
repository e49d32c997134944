// linear() by cuBLASLt.
#include "base/check.h"
#include "ops/linear/gemm_plans.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_variants.h"

namespace atom::ops {
namespace {

bool is_aligned(const void* data, int64_t stride, DType dtype) {
  return reinterpret_cast<uintptr_t>(data) % kGemmAlignment == 0 &&
         stride * dtype_size(dtype) % kGemmAlignment == 0;
}

bool is_vector(const Tensor& scales) {
  return scales.defined() && scales.num_elements() > 1;
}

GemmKey key_of(const LinearCall& call) {
  GemmKey key{.num_rows = call.x.size(0),
              .out_features = call.weight.out_features,
              .in_features = call.weight.in_features,
              .x_stride = call.x.stride(0),
              .y_stride = call.y.stride(0),
              .dtype = call.weight.dtype(),
              .y_dtype = call.y.dtype(),
              .has_bias = call.bias.defined()};
  if (key.dtype == DType::kFloat8E4M3) {
    // The library wants both or none to be vectors.
    key.scales = is_vector(call.x_scales) || is_vector(call.weight.scales) ? GemmScales::kVectors
                                                                           : GemmScales::kScalars;
  }
  return key;
}

// `scales`, as many as the library wants: one for all is repeated. Null: 1.
const float* scales_of(const Stream& stream,
                       GemmScales wanted,
                       const Tensor& scales,
                       int64_t count,
                       Workspace& scratch) {
  const auto* given = scales.defined() ? static_cast<const float*>(scales.raw_data()) : nullptr;
  if (wanted != GemmScales::kVectors || is_vector(scales)) return given;
  const Tensor repeated = scratch.tensor({count}, DType::kFloat32);
  auto* data = static_cast<float*>(repeated.raw_data());
  if (!stream.is_dry_run()) repeat_scale_cuda(given, data, count, stream.queue().handle());
  return data;
}

}  // namespace

bool fits_cublaslt(const LinearCall& call) {
  const LinearWeight& weight = call.weight;
  return cublaslt().ok() && weight.layout == WeightLayout::kRowMajor &&
         call.x.dtype() == weight.dtype() &&
         is_aligned(weight.data.raw_data(), weight.in_features, weight.dtype()) &&
         is_aligned(call.x.raw_data(), call.x.stride(0), call.x.dtype()) &&
         is_aligned(call.y.raw_data(), call.y.stride(0), call.y.dtype()) &&
         is_aligned(weight.scales.raw_data(), 0, DType::kFloat32) &&
         is_aligned(call.x_scales.raw_data(), 0, DType::kFloat32) && weight.out_features % 8 == 0 &&
         (!call.bias.defined() || (call.bias.dtype() == call.y.dtype() &&
                                   is_aligned(call.bias.raw_data(), 0, call.bias.dtype()))) &&
         GemmPlans::shared().supports(key_of(call));
}

void linear_cublaslt(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const Tensor memory = scratch.tensor({kGemmScratchSize + kGemmScratchAlignment}, DType::kUInt8);
  const GemmKey key = key_of(call);
  GemmOperands operands;
  operands.x_scales = scales_of(stream, key.scales, call.x_scales, key.num_rows, scratch);
  operands.weight_scales =
      scales_of(stream, key.scales, call.weight.scales, key.out_features, scratch);
  if (stream.is_dry_run()) return;
  operands.x = call.x.raw_data();
  operands.weight = call.weight.data.raw_data();
  operands.y = call.y.raw_data();
  if (call.bias.defined()) operands.bias = call.bias.raw_data();
  const auto begin = reinterpret_cast<uintptr_t>(memory.raw_data());
  const uintptr_t aligned =
      (begin + kGemmScratchAlignment - 1) / kGemmScratchAlignment * kGemmScratchAlignment;
  GemmPlans::shared().multiply(
      key, operands, reinterpret_cast<void*>(aligned), stream.queue().handle());
}

}  // namespace atom::ops
