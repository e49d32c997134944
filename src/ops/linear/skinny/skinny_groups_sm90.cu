#include "ops/linear/skinny/skinny_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_skinny_groups(const SkinnyArgs& args, gpuStream_t stream) {
  return launch_skinny<GroupedFloat8>(args, stream);
}

}  // namespace atom::ops::device
