// The variants of linear that stream the weight for a decode step's few rows.
#include <algorithm>

#include "ops/linear/linear_skinny_cuda.h"
#include "ops/linear/linear_stream_cuda.h"
#include "ops/linear/linear_variants.h"
#include "tensor/gpu_check.h"

namespace atom::ops {
namespace {

constexpr int kHopper = 9;  // compute capability

GpuElement gpu_element(DType dtype) {
  return static_cast<GpuElement>(dtype);
}

const float* scale_data(const Tensor& scales) {
  return scales.defined() ? static_cast<const float*>(scales.raw_data()) : nullptr;
}

bool is_per_row(const Tensor& scales) {
  return scales.defined() && scales.num_elements() > 1;
}

LinearStreamParams stream_params(const LinearCall& call) {
  LinearStreamParams params;
  params.x = call.x.raw_data();
  params.weight = call.weight.data.raw_data();
  params.x_scale = scale_data(call.x_scales);
  params.weight_scale = scale_data(call.weight.scales);
  params.x_scale_per_row = is_per_row(call.x_scales);
  params.weight_scale_per_row = is_per_row(call.weight.scales);
  params.y = call.y.raw_data();
  params.x_stride = call.x.stride(0);
  params.y_stride = call.y.stride(0);
  params.num_rows = static_cast<int32_t>(std::min<int64_t>(call.x.size(0), INT32_MAX));
  params.out_features = static_cast<int32_t>(call.weight.out_features);
  params.in_features = static_cast<int32_t>(call.weight.in_features);
  params.x_element = gpu_element(call.x.dtype());
  params.weight_element = gpu_element(call.weight.dtype());
  params.y_element = gpu_element(call.y.dtype());
  if (call.bias.defined()) {
    params.bias = call.bias.raw_data();
    params.bias_element = gpu_element(call.bias.dtype());
  }
  return params;
}

bool on_hopper() {
  const Result<DeviceRuntime*> runtime = device_runtime(DeviceType::kCuda);
  return runtime.ok() && (*runtime)->facts().capability_major == kHopper;
}

// The rows up to which each is used, measured on an H200 on the linears of an 8B layer, chained
// with overlap (percent of the read bandwidth; "library" is cuBLASLt, in FP8 without the pass over
// its sums that one scale per row needs):
//                   rows       1     8    16    32    48    64
//   bfloat16   stream         96    91    73    64
//              skinny         93    92    91    86    81    76
//              library        81    81    80    78    76    77
//   FP8        stream         78    74    51    47
//              skinny         85    84    81    73    63    61
//              library        70    71    69    68    66    64
// At 64 rows the library and its pass take 81 us a layer in FP8, skinny 78.
int64_t max_stream_rows(const LinearCall& call) {
  // An FP8 weight with wider activations is nothing that the others take.
  if (call.weight.dtype() != call.x.dtype()) return 16;
  if (call.weight.dtype() != DType::kFloat8E4M3) return 4;
  return call.y.dtype() == DType::kFloat32 ? 8 : 0;
}

int64_t max_skinny_rows(const LinearCall& call) {
  constexpr int64_t kManyFeatures = 32768;
  if (call.weight.dtype() != DType::kFloat8E4M3) return 64;
  const bool needs_pass = is_per_row(call.x_scales) || is_per_row(call.weight.scales);
  return needs_pass && call.weight.out_features <= kManyFeatures ? 64 : 32;
}

}  // namespace

bool fits_linear_stream(const LinearCall& call) {
  static const bool hopper = on_hopper();
  return hopper && call.x.size(0) <= max_stream_rows(call) && call.x.dtype() != DType::kFloat32 &&
         call.weight.layout == WeightLayout::kRowMajor &&
         supports_linear_stream_sm90(stream_params(call));
}

void linear_stream(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_linear_stream_sm90(stream_params(call),
                                      static_cast<gpuStream_t>(stream.queue().handle())));
}

bool fits_linear_skinny(const LinearCall& call) {
  static const bool hopper = on_hopper();
  return hopper && call.x.size(0) <= max_skinny_rows(call) &&
         call.weight.layout == WeightLayout::kRowMajor &&
         supports_linear_skinny(stream_params(call));
}

void linear_skinny(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_linear_skinny(
      stream_params(call), nullptr, static_cast<gpuStream_t>(stream.queue().handle())));
}

}  // namespace atom::ops
