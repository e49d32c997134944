// Inside the streaming linear on Hopper: the kernel. A block owns some tiles of 16 weight rows and
// its warps divide k among them: in every chunk of k each warp has a slice of its own. A warp
// copies its slices of its tiles into a ring in shared memory that no other warp touches, so that
// nothing but its own copies holds it up, and multiplies them by its part of x, which it reads from
// the L2 cache straight into registers, a chunk ahead. When a group of tiles has seen all of k, the
// warps' sums are added in the order of the warps.
//
// The ring is filled before the kernel before has ended. It takes most of a multiprocessor's shared
// memory, for two reasons: it is what is read while the short kernels between two linears run, and
// two blocks of a grid that starts early never meet on one multiprocessor while another has none.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/linear_epilogue.cuh"
#include "ops/linear/stream/launch.h"
#include "ops/linear/stream/math.cuh"

namespace atom::ops::device {

constexpr int kTileRows = 16;
constexpr int kStepSize = 64;  // bytes of a row that one step of a warp multiplies
constexpr int kNumWarps = 8;
constexpr int kNumThreads = kNumWarps * kWarpSize;
constexpr int kSlotSums = kTileRows * 8;  // of one tile and eight rows of x

// For each number of tiles of eight rows of x.
template <int kTokenTiles>
struct StreamShape {
  static constexpr int kGroupTiles = kTokenTiles == 2 ? 2 : 4;  // that share a pass over x
  static constexpr int kRingSize = 192 << 10;                   // bytes, of all warps
  // Sums that a warp builds side by side, over steps in turn: for the tensor cores' latency.
  static constexpr int kChains = 2;
  // A block leaves the registers of so many more threads to the short kernels between two linears.
  static constexpr int kSpareThreads = 128;
  static constexpr int kGroupSums = kGroupTiles * kTokenTiles * kSlotSums;  // of one warp
  static constexpr int kSharedSize = kRingSize + kNumWarps * kGroupSums * int{sizeof(float)};
};

// A block's tiles, in groups as even as possible, and the chunks of k in which each is read. Blocks
// take turns, so that all of them together read the weight from its beginning to its end.
struct BlockWork {
  int num_tiles;
  int num_groups;
  int num_chunks;

  __device__ BlockWork(const StreamArgs& args, int group_tiles, int chunk_size) {
    num_tiles = (args.num_tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    num_groups = (num_tiles + group_tiles - 1) / group_tiles;
    num_chunks = (args.row_size + chunk_size - 1) / chunk_size;
  }
  // The first of a group's tiles, as the block counts them.
  __device__ int group_begin(int group) const { return group * num_tiles / num_groups; }
  __device__ static int weight_tile(int tile) { return blockIdx.x + tile * gridDim.x; }
};

// One warp's ring: units of one slice of one tile, in the order in which they are used: groups,
// chunks of k, tiles. The slot that was read last is the next to be filled.
template <int kSliceSize, int kRingSize>
class Ring {
 public:
  static constexpr int kUnitSize = kTileRows * kSliceSize;
  static constexpr int kDepth = kRingSize / kNumWarps / kUnitSize;
  static constexpr int kSteps = kSliceSize / kStepSize;
  static constexpr int kChunkSize = kNumWarps * kSliceSize;

  __device__ Ring(const StreamArgs& args, const BlockWork& work, uint8_t* memory)
      : args_(args),
        work_(work),
        policy_(read_once_policy()),
        row_offset_(warp() * kSliceSize + lane() % kRowLanes * kVectorSize),
        begin_(shared_address(memory) + warp() * kDepth * kUnitSize),
        slot_(begin_),
        write_offset_(place(lane() / kRowLanes, lane() % kRowLanes)),
        read_offset_(place(lane() / 4, lane() % 4)) {
    const LinearGpuCall& p = args.params;
    const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
    tile_rows_ = gated ? kTileRows / 2 : kTileRows;
    num_rows_ = gated ? p.out_features / 2 : p.out_features;
    tile_step_ = int64_t{gridDim.x} * tile_rows_ * args.row_size;
    upper_half_ = int64_t{gated ? num_rows_ : kTileRows / 2} * args.row_size;
    begin_group();
  }

  // Starts the copies of the next unit into the current slot; past the last an empty group.
  __device__ void start_next() {
    if (group_ < work_.num_groups) {
      if ((BlockWork::weight_tile(tile_) + 1) * tile_rows_ <= num_rows_) {
        copy<false>();
      } else {
        copy<true>();
      }
      advance();
    }
    commit_copies();
    slot_ += kUnitSize;
    if (slot_ == begin_ + kDepth * kUnitSize) slot_ = begin_;
  }

  // Waits for the current slot's unit and reads this lane's part: rows lane / 4 and 8 below.
  __device__ void read(uint4 (&low)[kSteps], uint4 (&high)[kSteps]) const {
    wait_for_copies<kDepth - 1>();
    __syncwarp();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      // Steps two by two are the halves of 128 bytes.
      const uint32_t source = slot_ + (read_offset_ ^ s % 2 * kStepSize) + s / 2 * 2 * kStepSize;
      low[s] = load_shared(source);
      high[s] = load_shared(source + 8 * kSliceSize);
    }
    __syncwarp();
  }

  // Brings the units after those under way into the L2 cache.
  __device__ void prefetch(int num_units) const {
    constexpr int kLineLanes = 128 / kVectorSize;
    Ring ahead = *this;
    for (int i = 0; i < num_units && ahead.group_ < work_.num_groups; ++i) {
      ahead.for_rows([&](int row, const uint8_t* source) {
        if (ahead.has_row(row) && ahead.has_vector() && lane() % kLineLanes == 0)
          prefetch_to_l2(source);
      });
      ahead.advance();
    }
  }

 private:
  static constexpr int kRowLanes = kSliceSize / kVectorSize;  // lanes that copy one row
  static constexpr int kRows = kWarpSize / kRowLanes;         // rows that a warp copies at a time

  static __device__ int lane() {
    return threadIdx.x % kWarpSize;
  }
  static __device__ int warp() {
    return threadIdx.x / kWarpSize;
  }

  // Where a vector of a row lies in its unit: the halves of 128 bytes change places in odd rows, so
  // that the eight lanes of one phase of a read, which take 64 bytes of two rows, meet all banks.
  static __device__ uint32_t place(int row, int vector) {
    return row * kSliceSize + (vector ^ (row & 1) << 2) * kVectorSize;
  }

  // Whether this lane's vector of the current chunk lies within the weight's rows.
  __device__ bool has_vector() const {
    return chunk_ * kChunkSize + row_offset_ < args_.row_size;
  }

  // Whether the weight has this row of the current tile.
  __device__ bool has_row(int row) const {
    return BlockWork::weight_tile(tile_) * tile_rows_ + row % tile_rows_ < num_rows_;
  }

  // visit(row of the tile, this lane's vector of it) for the rows that this lane copies.
  template <typename Visit>
  __device__ void for_rows(Visit&& visit) const {
    const int64_t step = int64_t{kRows} * args_.row_size;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint8_t* source = source_ + half * upper_half_;
#pragma unroll
      for (int row = 0; row < kTileRows / 2; row += kRows) {
        visit(half * kTileRows / 2 + row + lane() / kRowLanes, source);
        source += step;
      }
    }
  }

  // kPartial: the weight ends within the tile.
  template <bool kPartial>
  __device__ void copy() const {
    const bool exists = has_vector();
    uint32_t target = slot_ + write_offset_;
    for_rows([&](int row, const uint8_t* source) {
      copy_16(target, source, exists && (!kPartial || has_row(row)), policy_);
      target += kRows * kSliceSize;
    });
  }

  __device__ void begin_group() {
    tile_ = work_.group_begin(group_);
    group_end_ = work_.group_begin(group_ + 1);
    group_source_ =
        static_cast<const uint8_t*>(args_.params.weight) +
        int64_t{BlockWork::weight_tile(tile_) * tile_rows_ + lane() / kRowLanes} * args_.row_size +
        row_offset_;
    source_ = group_source_;
  }

  __device__ void advance() {
    source_ += tile_step_;
    if (++tile_ < group_end_) return;
    if (++chunk_ == work_.num_chunks) {
      chunk_ = 0;
      ++group_;
      if (group_ < work_.num_groups) begin_group();
      return;
    }
    tile_ = work_.group_begin(group_);
    group_source_ += kChunkSize;
    source_ = group_source_;
  }

  const StreamArgs& args_;
  const BlockWork& work_;
  const uint64_t policy_;
  const int row_offset_;  // of this lane's vector in the first chunk of a weight row
  // In shared memory.
  const uint32_t begin_;
  uint32_t slot_;
  const uint32_t write_offset_, read_offset_;  // of this lane in a unit
  // The next unit to be copied. With SiLU a tile is eight gate rows and their up rows.
  int tile_rows_;       // from tile to tile
  int num_rows_;        // of all tiles
  int64_t tile_step_;   // bytes from tile to tile
  int64_t upper_half_;  // bytes from a tile's row to the eighth after it
  int group_ = 0, chunk_ = 0, tile_, group_end_;
  const uint8_t *group_source_, *source_;  // of this lane: at the group's first tile, at this one
};

// A warp's slices of x: the rows of each token tile, zeros past the last row.
template <typename Math, int kSteps, int kTokenTiles>
class XReader {
 public:
  struct Part {
    uint4 step[kSteps][kTokenTiles][Math::kVectors];
  };

  __device__ XReader(const StreamArgs& args, int num_chunks)
      : row_size_(args.row_size), num_chunks_(num_chunks) {
    const LinearGpuCall& p = args.params;
    const int lane = threadIdx.x % kWarpSize, row = lane / 4;
    offset_ = threadIdx.x / kWarpSize * kSliceSize;
    second_rows_ = 8 * p.x_stride * Math::kXSize;
    source_ = static_cast<const uint8_t*>(p.x) + row * p.x_stride * Math::kXSize +
              lane % 4 * kVectorSize * kRatio;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) has_row_[n] = row + n * 8 < p.num_rows;
  }

  // The next chunk's; after the last the first again.
  __device__ void load(Part& part) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int offset = offset_ + s * kStepSize;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const bool present = has_row_[n] && offset < row_size_;
        const auto* source =
            reinterpret_cast<const uint4*>(source_ + offset * kRatio + n * second_rows_);
#pragma unroll
        for (int v = 0; v < Math::kVectors; ++v) {
          part.step[s][n][v] = present ? __ldcg(source + v) : make_uint4(0, 0, 0, 0);
        }
      }
    }
    offset_ += kNumWarps * kSliceSize;
    if (++chunk_ < num_chunks_) return;
    chunk_ = 0;
    offset_ = threadIdx.x / kWarpSize * kSliceSize;
  }

 private:
  static constexpr int kSliceSize = kSteps * kStepSize;
  static constexpr int kRatio = Math::kXSize / Math::kWeightSize;

  const int row_size_, num_chunks_;
  int offset_;  // of the next slice within a weight row
  int chunk_ = 0;
  int64_t second_rows_;  // bytes to the second token tile
  const uint8_t* source_;
  bool has_row_[kTokenTiles];
};

// Adds the warps' sums of a group and stores the outputs. `reduction`, for each warp, tile and
// token tile: [16 weight rows, 8 rows of x].
template <int kTokenTiles, int kTiles, int kChains>
__device__ void finish_group(const LinearGpuCall& p,
                             int first_tile,
                             int num_tiles,
                             const float (&sums)[kTiles][kChains][kTokenTiles][4],
                             float* reduction) {
  constexpr int kWarpSums = kTiles * kTokenTiles * kSlotSums;
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      float* slot = reduction + warp * kWarpSums + (i * kTokenTiles + n) * kSlotSums;
      float c[4] = {};
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
        for (int j = 0; j < 4; ++j) c[j] += sums[i][chain][n][j];
      }
      reinterpret_cast<float2*>(slot)[lane] = make_float2(c[0], c[1]);
      reinterpret_cast<float2*>(slot)[kWarpSize + lane] = make_float2(c[2], c[3]);
    }
  }
  const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
  const int tile_features = gated ? kTileRows / 2 : kTileRows;
  const int num_features = gated ? p.out_features / 2 : p.out_features;
  const int num_outputs = num_tiles * p.num_rows * tile_features;
  const auto total = [&](int index) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kNumWarps; ++w) sum += reduction[w * kWarpSums + index];
    return sum;
  };
  bool synchronized = false;
  for (int first = 0; first < num_outputs || !synchronized; first += kNumThreads) {
    const int index = first + threadIdx.x, tile_row = index % tile_features;
    const int tile = index / tile_features / p.num_rows;
    const int row = index / tile_features % p.num_rows;
    const int feature = BlockWork::weight_tile(first_tile + tile) * tile_features + tile_row;
    const bool exists = index < num_outputs && feature < num_features;
    const Output output(p, exists ? row : 0, exists ? feature : 0);
    if (!synchronized) __syncthreads();
    synchronized = true;
    if (!exists) continue;
    const int slot = (tile * kTokenTiles + row / 8) * kSlotSums + tile_row * 8 + row % 8;
    output.store(p, total(slot), gated ? total(slot + kSlotSums / 2) : 0.0f);
  }
}

template <typename Math, int kSliceSize, int kTokenTiles>
__global__ void __launch_bounds__(kNumThreads + StreamShape<kTokenTiles>::kSpareThreads)
    stream_linear(const __grid_constant__ StreamArgs args) {
  using Shape = StreamShape<kTokenTiles>;
  constexpr int kTiles = Shape::kGroupTiles, kChains = Shape::kChains;
  using WarpRing = Ring<kSliceSize, Shape::kRingSize>;
  constexpr int kSteps = WarpRing::kSteps;
  extern __shared__ __align__(128) uint8_t shared[];
  auto* reduction = reinterpret_cast<float*>(shared + Shape::kRingSize);
  const LinearGpuCall& p = args.params;
  const BlockWork work(args, kTiles, WarpRing::kChunkSize);
  WarpRing ring(args, work, shared);
#pragma unroll 1
  for (int i = 0; i < WarpRing::kDepth; ++i) ring.start_next();
  if (args.l2_prefetch_units > 0) ring.prefetch(args.l2_prefetch_units);
  allow_next_grid();
  wait_for_previous_grid();

  using Reader = XReader<Math, kSteps, kTokenTiles>;
  Reader reader(args, work.num_chunks);
  typename Reader::Part x, next_x;
  reader.load(x);
  for (int group = 0; group < work.num_groups; ++group) {
    const int group_begin = work.group_begin(group);
    const int num_tiles = work.group_begin(group + 1) - group_begin;
    float sums[kTiles][kChains][kTokenTiles][4] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < work.num_chunks; ++chunk) {
      reader.load(next_x);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i >= num_tiles) break;
        uint4 low[kSteps], high[kSteps];
        ring.read(low, high);
        ring.start_next();
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          Math::accumulate(low[s], high[s], x.step[s], sums[i][s % kChains]);
        }
      }
      x = next_x;
    }
    if (group > 0) __syncthreads();
    finish_group(p, group_begin, num_tiles, sums, reduction);
  }
}

template <typename Math, int kSliceSize, int kTokenTiles>
gpuError_t launch_stream_shape(const StreamArgs& args, int num_blocks, gpuStream_t stream) {
  auto* kernel = &stream_linear<Math, kSliceSize, kTokenTiles>;
  constexpr int kSharedSize = StreamShape<kTokenTiles>::kSharedSize;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedSize);
  if (error != cudaSuccess) return error;
  return launch(kernel,
                dim3(num_blocks),
                dim3(kNumThreads),
                kSharedSize,
                stream,
                args.params.overlaps_previous,
                args);
}

// `launch_stream` of one type of multiplication, in a file of its own.
template <typename Math>
gpuError_t launch_stream(const StreamArgs& args,
                         int slice_size,
                         int num_blocks,
                         gpuStream_t stream) {
  const int num_rows = args.params.num_rows;
  switch (slice_size) {
    case 128:
      return num_rows > 8 ? launch_stream_shape<Math, 128, 2>(args, num_blocks, stream)
                          : launch_stream_shape<Math, 128, 1>(args, num_blocks, stream);
    case 256:
      return num_rows > 8 ? launch_stream_shape<Math, 256, 2>(args, num_blocks, stream)
                          : launch_stream_shape<Math, 256, 1>(args, num_blocks, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace atom::ops::device
