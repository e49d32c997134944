// Inside the streaming linear on Hopper: the launches that the file of each element type defines.
#pragma once

#include "ops/linear/linear_gpu_call.h"

namespace atom::ops::device {

struct StreamArgs {
  LinearGpuCall params;
  int row_size;           // bytes of a weight row
  int num_tiles;          // of 16 weight rows
  int l2_prefetch_units;  // per warp
};

gpuError_t launch_stream_bfloat16(const StreamArgs& args,
                                  int slice_size,
                                  int num_blocks,
                                  gpuStream_t stream);
gpuError_t launch_stream_float16(const StreamArgs& args,
                                 int slice_size,
                                 int num_blocks,
                                 gpuStream_t stream);
// An FP8 weight with FP8 x, or expanded to the 16-bit type of x.
gpuError_t launch_stream_float8(const StreamArgs& args,
                                int slice_size,
                                int num_blocks,
                                gpuStream_t stream);

}  // namespace atom::ops::device
