#include "ops/linear/blocks/blocks_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_blocks_128x128_2x1(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<1, 128, 2>>(args, stream);
}

gpuError_t launch_blocks_128x128_1x1(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<1, 128, 1>>(args, stream);
}

}  // namespace atom::ops::device
