#include "ops/linear/blocks/blocks_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_blocks_128x96_2x1_free(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<1, 96, 2, 1, 1, false>>(args, stream);
}

}  // namespace atom::ops::device
