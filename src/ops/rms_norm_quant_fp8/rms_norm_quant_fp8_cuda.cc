// From an operator's call to the GPU kernel's launch.
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/rms_norm_quant_fp8/rms_norm_quant_fp8_kernels.h"
#include "tensor/gpu_check.h"

namespace atom::ops {

void rms_norm_quant_fp8_cuda(const RmsNormQuantFp8Args& args, int64_t num_rows, void* queue) {
  RmsNormLaunch launch = rms_norm_launch(args.norm, num_rows);
  launch.scales = args.scales;
  launch.static_scale = args.static_scale;
  GPU_CHECK(launch_rms_norm(launch, static_cast<gpuStream_t>(queue)));
}

}  // namespace atom::ops
