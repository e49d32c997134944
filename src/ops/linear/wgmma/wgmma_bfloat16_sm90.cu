#include "ops/linear/wgmma/wgmma_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_wgmma_bfloat16(const WgmmaArgs& args, gpuStream_t stream) {
  return wgmma::launch_wgmma<BFloat16>(args, stream);
}

}  // namespace atom::ops::device
