#include "ops/linear/split_k/split_k_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_split_k_96x1(const SplitKArgs& args, gpuStream_t stream) {
  return split_k::launch_split_k<split_k::Shape<96, 1>>(args, stream);
}

gpuError_t launch_split_k_96x2(const SplitKArgs& args, gpuStream_t stream) {
  return split_k::launch_split_k<split_k::Shape<96, 2>>(args, stream);
}

gpuError_t launch_split_k_96x4(const SplitKArgs& args, gpuStream_t stream) {
  return split_k::launch_split_k<split_k::Shape<96, 4>>(args, stream);
}

}  // namespace atom::ops::device
