// Inside fused_moe's kernels for few tokens: the warps that have the copy engine bring rows of
// matrices and of x to shared memory.
#pragma once

#include "ops/fused_moe/moe_stream_groups.cuh"
#include "ops/fused_moe/moe_stream_work.cuh"

namespace atom::ops::device {

template <int kSteps>
constexpr int kSliceSize = kConsumerWarps* kSteps* kStepSize;  // bytes of a row
template <typename W, int kSteps>  // in a stage, before exponents or scales
constexpr int kRowStride = kSliceSize<kSteps> +
                           (kGroupColumns<W> > 0 ? kGroupRowSkew : kStageRowSkew);

// Bytes of the scales of so many bytes of a row.
template <typename W>
__device__ inline int scales_size(int row_bytes) {
  if constexpr (kGroupColumns<W> == 0)
    return 0;
  else
    return row_bytes / (kGroupColumns<W> / 2) * int{sizeof(float)};
}

// Of a slice of a tile's rows, of which this lane has one.
template <typename W>
__device__ inline void copy_scales(const MoeStreamArgs& args,
                                   int expert,
                                   int row,
                                   int offset,
                                   int size,
                                   uint32_t target,
                                   uint32_t barrier,
                                   uint64_t policy) {
  const int lane = threadIdx.x % kWarpSize;
  const float* source = args.matrices.scales + expert * args.matrices.scale_stride +
                        int64_t{row} * args.matrices.scales_across;
  if (args.copies_scales_by_row) {
    copy_bulk(target + lane * args.row_scales,
              source + scales_size<W>(offset) / int{sizeof(float)},
              scales_size<W>(size),
              barrier,
              policy);
  } else if (lane % 8 == 0) {
    copy_bulk(target + lane * args.row_scales, source, 8 * args.row_scales, barrier, policy);
  }
}

template <typename W, int kSteps, bool kGated>
__device__ void copy_matrices(const MoeStreamArgs& args,
                              const UnitRun& run,
                              const StreamBarriers& barriers,
                              uint8_t* shared) {
  const int lane = threadIdx.x % kWarpSize;
  const TokenGroup* groups = groups_of(args, shared);
  const uint32_t ring = shared_address(shared + args.ring);
  const auto* data = static_cast<const uint8_t*>(args.matrices.data);
  const uint64_t policy = read_once_policy();
  StageCursor stage;
  UnitCursor unit(run);
  for (int u = run.begin; u < run.end; ++u, unit.advance(run)) {
    const int row = lane < kTileRows ? matrix_row<kGated>(args, unit.tile, lane) : args.num_rows;
    const bool exists = row < args.num_rows;
    const int num_rows = __popc(gpu_lanes_where(exists));
    const int expert = groups[unit.group].expert;
    const uint8_t* source =
        data + expert * args.matrices.expert_stride + int64_t{exists ? row : 0} * args.row_size;
    for (int offset = 0; offset < args.row_size; offset += kSliceSize<kSteps>) {
      const int size = min(kSliceSize<kSteps>, args.row_size - offset);
      wait_for(barriers.empty(stage.index), stage.parity ^ 1);
      if (lane == 0) {
        arrive_expecting(barriers.full(stage.index),
                         num_rows * (size + args.row_exponents + scales_size<W>(size)));
      }
      __syncwarp();
      const uint32_t behind_rows =
          ring + stage.index * args.stage_size + kTileRows * kRowStride<W, kSteps>;
      if constexpr (kGroupColumns < W >> 0) {
        if (exists) {
          const uint32_t full = barriers.full(stage.index);
          copy_scales<W>(args, expert, row, offset, size, behind_rows, full, policy);
        }
      }
      if constexpr (RowFormat<W>::kHasExponents) {
        // Of eight rows each, which lie side by side.
        if (exists && lane % 8 == 0) {
          copy_bulk(behind_rows + lane * args.row_exponents,
                    args.matrices.exponents + expert * args.matrices.exponent_stride +
                        int64_t{row} * args.row_exponents,
                    8 * args.row_exponents,
                    barriers.full(stage.index),
                    policy);
        }
      }
      if (exists) {
        copy_bulk(ring + stage.index * args.stage_size + lane * kRowStride<W, kSteps>,
                  source + offset,
                  size,
                  barriers.full(stage.index),
                  policy);
      }
      stage.advance(args.num_stages);
    }
  }
}

template <int kTokens, bool kGated>
__device__ void copy_tokens(const MoeStreamArgs& args,
                            const UnitRun& run,
                            const StreamBarriers& barriers,
                            uint8_t* shared) {
  const int lane = threadIdx.x % kWarpSize;
  const TokenGroup* groups = groups_of(args, shared);
  const uint16_t* choices = choices_of(args, shared);
  const uint64_t policy = keep_policy();
  if (!kGated) wait_for_previous_grid();
  if (run.begin == run.end) return;
  const int last_group = (run.end - 1) / run.tiles_per_expert;
  StageCursor buffer;
  for (int g = run.begin / run.tiles_per_expert; g <= last_group; ++g) {
    const TokenGroup group = groups[g];
    wait_for(barriers.x_empty(buffer.index), buffer.parity ^ 1);
    if (lane == 0) arrive_expecting(barriers.x_full(buffer.index), group.num_rows * args.x_size);
    __syncwarp();
    if (lane < group.num_rows) {
      const int row = group.first_row + lane;
      const int x_row = kGated ? choices[row] / args.call.top_k : row;
      copy_bulk(shared_address(shared + args.x_buffers) +
                    (buffer.index * args.num_x_rows + lane) * args.x_row_stride,
                static_cast<const uint8_t*>(args.x) + x_row * args.x_stride,
                args.x_size,
                barriers.x_full(buffer.index),
                policy);
    }
    buffer.advance(args.num_x_buffers);
  }
}

}  // namespace atom::ops::device
