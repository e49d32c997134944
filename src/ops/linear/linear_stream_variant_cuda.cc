// The variant of linear that streams the weight for a decode step's few rows.
#include <algorithm>

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

// The rows up to which streaming is faster than the library, measured on an H200 on the linears of
// an 8B layer, chained (percent of the read bandwidth; the library's in brackets):
//   bfloat16     1 row 95 (80), 8 rows 89 (78), 16 rows 78 (78)
//   FP8, scales by row and token   1 row 79, 8 rows 71, 16 rows 59 (about 50 at any number)
// An FP8 weight with wider activations is nothing that the library takes.
int64_t max_rows(const LinearCall& call) {
  return call.weight.dtype() == DType::kFloat8E4M3 ? 16 : 8;
}

}  // namespace

bool fits_linear_stream(const LinearCall& call) {
  static const bool hopper = on_hopper();
  return hopper && call.x.size(0) <= max_rows(call) && call.x.dtype() != DType::kFloat32 &&
         call.weight.layout == WeightLayout::kRowMajor &&
         supports_linear_stream_sm90(stream_params(call));
}

void linear_stream(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_linear_stream_sm90(stream_params(call),
                                      static_cast<gpuStream_t>(stream.queue().handle())));
}

}  // namespace atom::ops
