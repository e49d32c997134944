// Inside fused_moe on Hopper: the launches that the file of each weight type defines.
#pragma once

#include "ops/fused_moe/moe_stream_plan.h"

namespace atom::ops::device {

// What selects an instance of the kernel.
struct MoeStreamInstance {
  int num_tokens;  // of a group: 8 or 16
  int num_steps;   // of a slice: 2 or 3
  bool is_gated;
};

gpuError_t launch_moe_stream_bfloat16(const MoeStreamArgs& args,
                                      const MoeStreamInstance& instance,
                                      bool overlaps_previous,
                                      int num_blocks,
                                      gpuStream_t stream);
gpuError_t launch_moe_stream_float8(const MoeStreamArgs& args,
                                    const MoeStreamInstance& instance,
                                    bool overlaps_previous,
                                    int num_blocks,
                                    gpuStream_t stream);

gpuError_t launch_moe_stream_int8(const MoeStreamArgs& args,
                                  const MoeStreamInstance& instance,
                                  bool overlaps_previous,
                                  int num_blocks,
                                  gpuStream_t stream);

// With a scale for each 32 or 128 columns.
gpuError_t launch_moe_stream_int4(const MoeStreamArgs& args,
                                  const MoeStreamInstance& instance,
                                  bool overlaps_previous,
                                  int num_blocks,
                                  gpuStream_t stream);

gpuError_t launch_moe_stream_float4(const MoeStreamArgs& args,
                                    const MoeStreamInstance& instance,
                                    bool overlaps_previous,
                                    int num_blocks,
                                    gpuStream_t stream);

}  // namespace atom::ops::device
