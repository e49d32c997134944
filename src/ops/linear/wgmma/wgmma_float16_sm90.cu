#include "ops/linear/wgmma/wgmma_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_wgmma_float16(const WgmmaArgs& args, gpuStream_t stream) {
  return wgmma::launch_wgmma<Half>(args, stream);
}

}  // namespace atom::ops::device
