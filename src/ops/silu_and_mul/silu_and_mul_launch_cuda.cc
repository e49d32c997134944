// From an operator's call to the GPU kernel's launch.
#include "ops/silu_and_mul/silu_and_mul_cuda.h"
#include "ops/silu_and_mul/silu_and_mul_kernels.h"
#include "tensor/gpu_check.h"

namespace atom::ops {

SiluAndMulLaunch silu_and_mul_launch(const SiluAndMulArgs& args, int64_t num_rows) {
  SiluAndMulLaunch launch;
  launch.gate_up = args.gate_up;
  launch.out = args.out;
  launch.gate_up_stride = args.gate_up_stride;
  launch.out_stride = args.out_stride;
  launch.num_tokens = num_rows;
  launch.size = args.size;
  launch.element = args.element;
  return launch;
}

void silu_and_mul_cuda(const SiluAndMulCall& call, int64_t num_rows, void* queue) {
  if (call.product.size == 0) return;
  SiluAndMulLaunch launch = silu_and_mul_launch(call.product, num_rows);
  if (call.quantizes()) {
    launch.out = call.codes.values;
    launch.out_stride = call.codes.values_stride;
    launch.scales = call.codes.scales;
    launch.static_scale = call.codes.static_scale;
    const bool has_groups = call.codes.group_size < call.codes.size;
    launch.group_size = has_groups ? static_cast<int32_t>(call.codes.group_size) : 0;
  }
  GPU_CHECK(launch_silu_and_mul(launch, static_cast<gpuStream_t>(queue)));
}

}  // namespace atom::ops
