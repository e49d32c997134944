// From an operator's call to the GPU kernel's launch.
#include "ops/silu_and_mul/silu_and_mul_cuda.h"
#include "ops/silu_and_mul_quant_fp8/silu_and_mul_quant_fp8_kernels.h"
#include "tensor/gpu_check.h"

namespace atom::ops {

void silu_and_mul_quant_fp8_cuda(const SiluAndMulQuantFp8Args& args,
                                 int64_t num_rows,
                                 void* queue) {
  SiluAndMulLaunch launch = silu_and_mul_launch(args.product, num_rows);
  launch.scales = args.scales;
  launch.static_scale = args.static_scale;
  GPU_CHECK(launch_silu_and_mul(launch, static_cast<gpuStream_t>(queue)));
}

}  // namespace atom::ops
