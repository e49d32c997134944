// Inside fused_moe on Hopper: the choice among the kernel's instances of one weight type.
#pragma once

#include "ops/fused_moe/moe_stream_launch_sm90.h"
#include "ops/fused_moe/moe_stream_sm90.cuh"
#include "tensor/per_card.h"

namespace atom::ops::device {

template <typename W, int kTokens, int kSteps, bool kGated>
gpuError_t launch_instance(const MoeStreamArgs& args,
                           bool overlaps_previous,
                           int num_blocks,
                           gpuStream_t stream) {
  constexpr int kMaxSharedSize = 227 << 10;
  const auto kernel = moe_stream<W, kTokens, kSteps, kGated>;
  static PerCard<gpuError_t> allowed;
  const gpuError_t prepared = allowed.get([&] {
    return cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxSharedSize);
  });
  if (prepared != cudaSuccess) return prepared;
  return launch(kernel,
                dim3(num_blocks),
                dim3(kStreamThreads),
                args.shared_size,
                stream,
                overlaps_previous,
                args);
}

template <typename W, int kTokens, bool kGated, typename... Arguments>
gpuError_t launch_by_steps(int num_steps, const Arguments&... arguments) {
  if constexpr (kGroupColumns < W >> 0) return launch_instance<W, kTokens, 2, kGated>(arguments...);
  return num_steps == 2 ? launch_instance<W, kTokens, 2, kGated>(arguments...)
                        : launch_instance<W, kTokens, 3, kGated>(arguments...);
}

template <typename W>
gpuError_t launch_moe_stream_of(const MoeStreamArgs& args,
                                const MoeStreamInstance& instance,
                                bool overlaps_previous,
                                int num_blocks,
                                gpuStream_t stream) {
  const int steps = instance.num_steps;
  if (instance.is_gated) {
    return instance.num_tokens == 8
               ? launch_by_steps<W, 8, true>(steps, args, overlaps_previous, num_blocks, stream)
               : launch_by_steps<W, 16, true>(steps, args, overlaps_previous, num_blocks, stream);
  }
  return instance.num_tokens == 8
             ? launch_by_steps<W, 8, false>(steps, args, overlaps_previous, num_blocks, stream)
             : launch_by_steps<W, 16, false>(steps, args, overlaps_previous, num_blocks, stream);
}

}  // namespace atom::ops::device
