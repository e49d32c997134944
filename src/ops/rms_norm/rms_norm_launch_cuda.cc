// From an operator's call to the GPU kernel's launch.
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/rms_norm/rms_norm_kernels.h"
#include "tensor/gpu_check.h"

namespace atom::ops {

RmsNormLaunch rms_norm_launch(const RmsNormArgs& args, int64_t num_rows) {
  RmsNormLaunch launch;
  launch.x = args.x;
  launch.residual = args.residual;
  launch.weight = args.weight;
  launch.out = args.out;
  launch.x_strides[0] = args.x_strides[0];
  launch.x_strides[1] = args.x_strides[1];
  launch.out_strides[0] = args.out_strides[0];
  launch.out_strides[1] = args.out_strides[1];
  launch.residual_stride = args.residual_stride;
  launch.num_tokens = num_rows / args.num_heads;
  launch.num_heads = args.num_heads;
  launch.size = args.size;
  launch.eps = args.eps;
  launch.element = args.element;
  launch.rounds_once = args.rounds_once;
  return launch;
}

void rms_norm_cuda(const RmsNormCall& call, int64_t num_rows, void* queue) {
  RmsNormLaunch launch = rms_norm_launch(call.norm, num_rows);
  if (call.quantizes()) {
    launch.rows = call.norm.out;
    launch.rows_stride = call.norm.out_strides[0];
    launch.out = call.codes.values;
    launch.out_strides[0] = call.codes.values_stride;
    launch.scales = call.codes.scales;
    launch.static_scale = call.codes.static_scale;
    const bool has_groups = call.codes.group_size < call.codes.size;
    launch.group_size = has_groups ? static_cast<int32_t>(call.codes.group_size) : 0;
  }
  GPU_CHECK(launch_rms_norm(launch, static_cast<gpuStream_t>(queue)));
}

}  // namespace atom::ops
