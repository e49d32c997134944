#include "ops/linear/blocks/blocks_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_blocks_256x128_2x1(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<2, 128, 2>>(args, stream);
}

}  // namespace atom::ops::device
