// Inside the streaming linear on Hopper: the kernel. A block owns some tiles of 16 weight rows. One
// warp keeps a ring of stages full, each 16 rows by row_size bytes, by bulk copies that wait for
// nothing but free stages: with an overlapping launch the ring fills while the kernel before still
// runs. Eight warps multiply: each takes an eighth of the bytes of every stage against its part of
// x, which it reads from the L2 cache straight into registers, a few stages ahead. When a group of
// tiles has seen all of k, the warps' sums are added in the order of the warps.
#pragma once

#include "ops/device/bulk_copy.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/linear_stream_epilogue.cuh"
#include "ops/linear/linear_stream_launch.h"
#include "ops/linear/linear_stream_math.cuh"

namespace atom::ops::device {

constexpr int kTileRows = 16;
constexpr int kStepSize = 64;  // bytes of a row that one step of a warp multiplies
constexpr int kNumWarps = 8;   // that multiply
constexpr int kNumThreads = (kNumWarps + 1) * kWarpSize;
constexpr int kMaxStages = 24;
// Rows are that much further apart than they are long, so that the eight lanes of one phase of a
// shared memory access, which read 64 bytes of two rows, meet all banks.
constexpr int kRowPad = 64;
constexpr int kReductionSize = 16 << 10;

template <int kRowSize>
constexpr int kStageSize = kTileRows*(kRowSize + kRowPad);

// Registers decide: tiles that share a pass over x, and chunks of x that are under way.
template <typename Math, int kTokenTiles>
constexpr int kGroupTiles = Math::kVectors* kTokenTiles == 4 ? 2 : 4;
template <int kXVectors, int kTokenTiles>
constexpr int kXDepth = kTokenTiles == 2 ? 1
                        : kXVectors >= 4 ? 2
                                         : 4;

// A block's tiles, in groups as even as possible, and the chunks of k in which each is read.
struct BlockWork {
  int first_tile;
  int num_tiles;
  int num_groups;
  int row_bytes;  // of a whole weight row
  int num_chunks;

  __device__ BlockWork(const StreamArgs& args, int group_tiles, int row_size, int weight_size) {
    first_tile = blockIdx.x * args.tiles_per_block;
    num_tiles = min(args.tiles_per_block, args.num_tiles - first_tile);
    num_groups = (num_tiles + group_tiles - 1) / group_tiles;
    row_bytes = args.params.in_features * weight_size;
    num_chunks = (row_bytes + row_size - 1) / row_size;
  }
  __device__ int group_begin(int group) const {
    return first_tile + group * num_tiles / num_groups;
  }
};

// The weight row behind row `row` of a tile, or -1: with SiLU eight gate rows, then their up rows.
__device__ inline int weight_row(const LinearStreamParams& p, int tile, int row) {
  if (p.epilogue != StreamEpilogue::kSiluAndMul) {
    const int result = tile * kTileRows + row;
    return result < p.out_features ? result : -1;
  }
  const int half = p.out_features / 2;
  const int result = tile * (kTileRows / 2) + row % (kTileRows / 2);
  if (result >= half) return -1;
  return row < kTileRows / 2 ? result : half + result;
}

// Walks the stages in the order in which both sides use them: groups, chunks of k, tiles.
template <typename Math, int kRowSize, int kTokenTiles>
struct Producer {
  const StreamArgs& args;
  const BlockWork work;
  const int lane = threadIdx.x % kWarpSize;
  int group = 0, chunk = 0, tile = 0, group_end = 0;

  __device__ Producer(const StreamArgs& stream_args)
      : args(stream_args),
        work(stream_args, kGroupTiles<Math, kTokenTiles>, kRowSize, Math::kWeightSize) {
    tile = work.group_begin(0);
    group_end = work.group_begin(1);
  }
  __device__ void next() {
    if (++tile < group_end) return;
    if (++chunk == work.num_chunks) {
      chunk = 0;
      ++group;
      group_end = work.group_begin(group + 1);
    }
    tile = work.group_begin(group);
  }
  __device__ uint32_t num_bytes() const { return min(kRowSize, work.row_bytes - chunk * kRowSize); }
  // This lane's row of the current stage, or null.
  __device__ const uint8_t* source() const {
    const int row = lane < kTileRows ? weight_row(args.params, tile, lane) : -1;
    if (row < 0) return nullptr;
    return static_cast<const uint8_t*>(args.params.weight) +
           static_cast<int64_t>(row) * work.row_bytes + chunk * kRowSize;
  }
};

template <typename Math, int kRowSize, int kTokenTiles>
__device__ void produce(const StreamArgs& args, uint8_t* stages, uint64_t* full, uint64_t* empty) {
  Producer<Math, kRowSize, kTokenTiles> ring(args), ahead(args);
  const uint64_t policy = read_once_policy();
  const int total = ring.work.num_tiles * ring.work.num_chunks;
  const int allow_at = max(0, total - 1 - args.allow_next_before);
  int stage = 0;
  uint32_t parity = 1;
  for (int i = 0; i < min(args.num_stages, total); ++i) ahead.next();
  for (int unit = 0; unit < total; ++unit) {
    wait(&empty[stage], parity);
    const uint8_t* source = ring.source();
    const uint32_t num_bytes = ring.num_bytes();
    const int num_rows = __popc(__ballot_sync(0xffffffffu, source != nullptr));
    if (ring.lane == 0) arrive_expecting(&full[stage], num_rows * num_bytes);
    __syncwarp();
    if (source != nullptr) {
      uint8_t* target = stages + stage * kStageSize<kRowSize> + ring.lane * (kRowSize + kRowPad);
      bulk_copy(target, source, num_bytes, &full[stage], policy);
    }
    if (unit == allow_at && ring.lane == 0) allow_next_grid();
    ring.next();
    if (++stage == args.num_stages) {
      stage = 0;
      parity ^= 1;
    }
    if (unit + 1 != args.num_stages) continue;
    for (int i = 0; i < args.l2_prefetch_stages && unit + 1 + i < total; ++i) {
      if (const uint8_t* next = ahead.source()) bulk_prefetch_to_l2(next, ahead.num_bytes());
      ahead.next();
    }
  }
}

// A warp's part of x of one chunk: the rows of each token tile, zeros past the last row.
template <typename Math, int kSteps, int kTokenTiles>
struct XPart {
  uint4 step[kSteps][kTokenTiles][Math::kVectors];

  // `offset` is the first byte of the warp's part within a weight row.
  __device__ void load(const LinearStreamParams& p, int offset, int row_bytes, bool wanted) {
    const int lane = threadIdx.x % kWarpSize;
    constexpr int kLaneSize = kVectorSize / Math::kWeightSize * Math::kXSize;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int step_offset = offset + s * kStepSize;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const int row = n * 8 + lane / 4;
        const bool present = wanted && step_offset < row_bytes && row < p.num_rows;
        const uint8_t* source =
            static_cast<const uint8_t*>(p.x) + row * p.x_stride * Math::kXSize +
            static_cast<int64_t>(step_offset / Math::kWeightSize * Math::kXSize) +
            lane % 4 * kLaneSize;
#pragma unroll
        for (int v = 0; v < Math::kVectors; ++v) {
          step[s][n][v] =
              present ? __ldcg(reinterpret_cast<const uint4*>(source) + v) : make_uint4(0, 0, 0, 0);
        }
      }
    }
  }
};

__device__ inline void sync_multiplying_warps() {
  asm volatile("bar.sync 1, %0;" ::"n"(kNumWarps * kWarpSize) : "memory");
}

__device__ inline void store_tile(const LinearStreamParams& p,
                                  int tile,
                                  int token_tile,
                                  float4 sum) {
  const int lane = threadIdx.x % kWarpSize;
  const int g = lane / 4, row = token_tile * 8 + lane % 4 * 2;
  const float low[2] = {sum.x, sum.y}, high[2] = {sum.z, sum.w};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row + i >= p.num_rows) continue;
    if (p.epilogue == StreamEpilogue::kSiluAndMul) {
      const int feature = tile * (kTileRows / 2) + g;
      if (feature < p.out_features / 2) store_gated(p, low[i], high[i], row + i, feature);
    } else {
      const int feature = tile * kTileRows + g;
      if (feature < p.out_features) store_sum(p, low[i], row + i, feature);
      if (feature + 8 < p.out_features) store_sum(p, high[i], row + i, feature + 8);
    }
  }
}

// Adds the warps' sums of a group and stores them.
template <int kTokenTiles, int kMaxTiles>
__device__ void finish_group(const LinearStreamParams& p,
                             int first_tile,
                             int num_tiles,
                             const float (&sums)[kMaxTiles][kTokenTiles][4],
                             float4* reduction) {
  constexpr int kRoom = kReductionSize / (kNumWarps * kTokenTiles * kWarpSize * 16);
  constexpr int kBatch = kRoom < kMaxTiles ? kRoom : kMaxTiles;
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int begin = 0; begin < kMaxTiles; begin += kBatch) {
    if (begin >= num_tiles) break;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const float(&c)[4] = sums[begin + i][n];
        reduction[((i * kTokenTiles + n) * kNumWarps + warp) * kWarpSize + lane] =
            make_float4(c[0], c[1], c[2], c[3]);
      }
    }
    sync_multiplying_warps();
    if (warp < kBatch * kTokenTiles && begin + warp / kTokenTiles < num_tiles) {
      float4 total = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int w = 0; w < kNumWarps; ++w) {
        const float4 part = reduction[(warp * kNumWarps + w) * kWarpSize + lane];
        total = make_float4(total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w);
      }
      store_tile(p, first_tile + begin + warp / kTokenTiles, warp % kTokenTiles, total);
    }
    sync_multiplying_warps();
  }
}

template <typename Math, int kRowSize, int kTokenTiles>
__device__ void multiply(const StreamArgs& args,
                         const uint8_t* stages,
                         uint64_t* full,
                         uint64_t* empty,
                         float4* reduction) {
  constexpr int kPartSize = kRowSize / kNumWarps;
  constexpr int kSteps = kPartSize / kStepSize;
  constexpr int kDepth = kXDepth<kSteps * kTokenTiles * Math::kVectors, kTokenTiles>;
  constexpr int kTiles = kGroupTiles<Math, kTokenTiles>;
  const BlockWork work(args, kTiles, kRowSize, Math::kWeightSize);
  const LinearStreamParams& p = args.params;
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int total = work.num_groups * work.num_chunks;
  const int lane_offset =
      lane / 4 * (kRowSize + kRowPad) + warp * kPartSize + lane % 4 * kVectorSize;

  XPart<Math, kSteps, kTokenTiles> x[kDepth];
  float sums[kTiles][kTokenTiles][4] = {};
  int next_chunk = 0;
  const auto load_next = [&](int index, XPart<Math, kSteps, kTokenTiles>& part) {
    part.load(p, next_chunk * kRowSize + warp * kPartSize, work.row_bytes, index < total);
    if (++next_chunk == work.num_chunks) next_chunk = 0;
  };

  wait_for_previous_grid();
#pragma unroll
  for (int d = 0; d < kDepth; ++d) load_next(d, x[d]);

  int stage = 0, chunk = 0, group = 0;
  uint32_t parity = 0;
  for (int first = 0; first < total; first += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (first + d >= total) break;
      const int group_begin = work.group_begin(group);
      const int num_tiles = work.group_begin(group + 1) - group_begin;
      const int part_end = work.row_bytes - chunk * kRowSize - warp * kPartSize;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i >= num_tiles) break;
        const uint8_t* source = stages + stage * kStageSize<kRowSize> + lane_offset;
        wait(&full[stage], parity);
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          if (s * kStepSize >= part_end) break;
          const auto* low = reinterpret_cast<const uint4*>(source + s * kStepSize);
          const auto* high =
              reinterpret_cast<const uint4*>(source + s * kStepSize + 8 * (kRowSize + kRowPad));
          Math::accumulate(*low, *high, x[d].step[s], sums[i]);
        }
        __syncwarp();
        if (lane == 0) arrive(&empty[stage]);
        if (++stage == args.num_stages) {
          stage = 0;
          parity ^= 1;
        }
      }
      load_next(first + d + kDepth, x[d]);
      if (++chunk < work.num_chunks) continue;
      finish_group<kTokenTiles, kTiles>(p, group_begin, num_tiles, sums, reduction);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
          for (int j = 0; j < 4; ++j) sums[i][n][j] = 0;
        }
      }
      chunk = 0;
      ++group;
    }
  }
}

template <typename Math, int kRowSize, int kTokenTiles>
__global__ void __launch_bounds__(kNumThreads, 2)
    stream_linear(const __grid_constant__ StreamArgs args) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ uint64_t full[kMaxStages], empty[kMaxStages];
  auto* reduction = reinterpret_cast<float4*>(shared);
  uint8_t* stages = shared + kReductionSize;
  if (threadIdx.x == 0) {
    for (int i = 0; i < args.num_stages; ++i) {
      init_barrier(&full[i], 1);
      init_barrier(&empty[i], kNumWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x / kWarpSize == kNumWarps) {
    produce<Math, kRowSize, kTokenTiles>(args, stages, full, empty);
  } else {
    multiply<Math, kRowSize, kTokenTiles>(args, stages, full, empty, reduction);
  }
}

// `launch_stream` of one type of multiplication, in a file of its own.
template <typename Math, int kRowSize, int kTokenTiles>
gpuError_t launch_stream_shape(const StreamArgs& args, int num_blocks, gpuStream_t stream) {
  auto* kernel = &stream_linear<Math, kRowSize, kTokenTiles>;
  const int shared_size = kReductionSize + args.num_stages * kStageSize<kRowSize>;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_size);
  if (error != cudaSuccess) return error;
  return launch(kernel,
                dim3(num_blocks),
                dim3(kNumThreads),
                shared_size,
                stream,
                args.params.overlaps_previous,
                args);
}

template <typename Math, int kRowSize>
gpuError_t launch_stream_row_size(const StreamArgs& args, int num_blocks, gpuStream_t stream) {
  return args.params.num_rows > 8
             ? launch_stream_shape<Math, kRowSize, 2>(args, num_blocks, stream)
             : launch_stream_shape<Math, kRowSize, 1>(args, num_blocks, stream);
}

template <typename Math>
gpuError_t launch_stream(const StreamArgs& args, int row_size, int num_blocks, gpuStream_t stream) {
  switch (row_size) {
    case 512:
      return launch_stream_row_size<Math, 512>(args, num_blocks, stream);
    case 1024:
      return launch_stream_row_size<Math, 1024>(args, num_blocks, stream);
    case 2048:
      return launch_stream_row_size<Math, 2048>(args, num_blocks, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace atom::ops::device
