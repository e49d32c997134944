// Large sums whose values travel as codes. Every rank adds up a share of the tensor: the others
// write what they have of it into the rank's memory for codes; it adds, and writes codes of the sum
// to all. Its own part of the sum is added as it is, and its own result is what the codes say, so
// all ranks have the same bits.
//
// A block exchanges with those of its number and waits twice. When a grid ends its blocks have
// heard that all others have read what it sent first, and nothing is written to their second half
// before they are in the next operation: one place for each half is enough.
#include "comm/device/codes.cuh"
#include "comm/device/collectives.h"
#include "comm/device/exchange.cuh"
#include "comm/device/kernels.h"
#include "comm/device/vectors.cuh"

namespace atom {
namespace {

using namespace device_exchange;

constexpr int kThreads = 512, kWarps = kThreads / kLanes;
// Of one kernel: what the memory for codes has room for.
constexpr int64_t kMostVectors = int64_t{1} << 21;
constexpr int64_t kTileRoom = CodedTile<Float8Codes>::kBytes;

__host__ __device__ constexpr int64_t tiles_of(int64_t vectors) {
  return (vectors + kTileVectors - 1) / kTileVectors;
}
// Of one rank's share, and so from each rank in each half.
__host__ __device__ constexpr int64_t most_tiles(int size) {
  return tiles_of(kMostVectors) / size + 1;
}

template <typename T, typename Codes>
struct CodedSum {
  using Tile = CodedTile<Codes>;
  const PeerView& view;
  uint4* x;
  int64_t vectors;
  uint64_t epoch;
  int lane, warp;

  // body(tile, number of the tile in the share) for those of the block.
  template <typename Body>
  __device__ void for_tiles(int owner, const Body& body) const {
    const Share share = share_of(tiles_of(vectors), owner, view.size);
    const Share part = share_of(share.end - share.begin, blockIdx.x, gridDim.x);
    for (int64_t i = part.begin + warp; i < part.end; i += kWarps) body(share.begin + i, i);
  }

  __device__ uint8_t* place(int at, int half, int from, int64_t tile) const {
    return view.codes[at] + ((half * view.size + from) * most_tiles(view.size) + tile) * kTileRoom;
  }

  __device__ void load(int64_t tile, LaneValues& values) const {
#pragma unroll
    for (int v = 0; v < kLaneVectors; ++v) {
      const int64_t at = tile * kTileVectors + v * kLanes + lane;
      const uint4 bits = at < vectors ? gpu_load_from_l2(x + at) : uint4{};
      T narrow[kVectorValues];
      memcpy(narrow, &bits, sizeof bits);
#pragma unroll
      for (int i = 0; i < kVectorValues; ++i) values[v][i] = widen(narrow[i]);
    }
  }
  __device__ void store(int64_t tile, const LaneValues& values) const {
#pragma unroll
    for (int v = 0; v < kLaneVectors; ++v) {
      T rounded[kVectorValues];
#pragma unroll
      for (int i = 0; i < kVectorValues; ++i) rounded[i] = narrow<T>(values[v][i]);
      uint4 bits;
      memcpy(&bits, rounded, sizeof bits);
      const int64_t at = tile * kTileVectors + v * kLanes + lane;
      if (at < vectors) x[at] = bits;
    }
  }

  __device__ void send_parts() const {
    for (int i = 1; i < view.size; ++i) {
      const int owner = (view.rank + i) % view.size;
      for_tiles(owner, [&](int64_t tile, int64_t number) {
        LaneValues values;
        load(tile, values);
        Tile coded;
        coded.encode(values, lane);
        coded.store(place(owner, 0, view.rank, number), lane);
      });
    }
  }

  __device__ void add_share() const {
    for_tiles(view.rank, [&](int64_t tile, int64_t number) {
      LaneValues own, sum = {};
      load(tile, own);
      for (int rank = 0; rank < view.size; ++rank) {
        LaneValues theirs;
        if (rank != view.rank) {
          Tile coded;
          coded.load(place(view.rank, 0, rank, number), lane);
          coded.decode(theirs, lane);
        }
#pragma unroll
        for (int v = 0; v < kLaneVectors; ++v) {
#pragma unroll
          for (int i = 0; i < kVectorValues; ++i) {
            sum[v][i] += rank == view.rank ? own[v][i] : theirs[v][i];
          }
        }
      }
      Tile coded;
      coded.encode(sum, lane);
      for (int i = 1; i < view.size; ++i) {
        coded.store(place((view.rank + i) % view.size, 1, view.rank, number), lane);
      }
      coded.decode(sum, lane);
      store(tile, sum);
    });
  }

  __device__ void take_sums() const {
    for (int i = 1; i < view.size; ++i) {
      const int owner = (view.rank + i) % view.size;
      for_tiles(owner, [&](int64_t tile, int64_t number) {
        Tile coded;
        coded.load(place(view.rank, 1, owner, number), lane);
        LaneValues values;
        coded.decode(values, lane);
        store(tile, values);
      });
    }
  }

  // Tells the others' blocks that a half is written, and waits for theirs. False for all threads of
  // a block that has waited in vain.
  __device__ bool meet(int half) const {
    __syncthreads();
    const int peer = threadIdx.x, block = blockIdx.x;
    bool missed = false;
    if (peer < view.size && peer != view.rank) {
      fence_all_cards();
      store_word(&view.mailboxes[peer]->halves[half][block][view.rank], epoch);
      const uint64_t* theirs = &view.mailboxes[view.rank]->halves[half][block][peer];
      Patience patience(view);
      while (load_word(theirs) < epoch && !patience.has_ended(peer)) {
      }
      missed = patience.has_ended();
      fence_all_cards();
    }
    return __syncthreads_or(missed) == 0;
  }
};

template <typename T, typename Codes>
__global__ void __launch_bounds__(kThreads)
    add_by_codes(const __grid_constant__ PeerView view, uint4* x, int64_t vectors) {
  gpu_allow_next_grid();
  gpu_wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const CodedSum<T, Codes> sum = {view, x, vectors, epoch, lane, warp};
  sum.send_parts();
  if (sum.meet(0)) {
    sum.add_share();
    if (sum.meet(1)) sum.take_sums();
  }
  end_epoch(view, epoch);
}

template <typename T>
auto* kernel_of(SumFormat format) {
  return format == SumFormat::kInt4 ? &add_by_codes<T, Int4Codes> : &add_by_codes<T, Float8Codes>;
}

// The same on every rank: blocks exchange with those of their number.
unsigned num_blocks(int64_t vectors, int size) {
  constexpr int64_t kTilesPerBlock = 4;
  const int64_t wanted = (tiles_of(vectors) / size + kTilesPerBlock - 1) / kTilesPerBlock;
  return static_cast<unsigned>(wanted < 1                    ? 1
                               : wanted < kMaxExchangeBlocks ? wanted
                                                             : kMaxExchangeBlocks);
}

}  // namespace

int64_t coded_sum_memory(int size) {
  return 2 * size * most_tiles(size) * kTileRoom;
}

bool fits_codes(const ReduceLaunch& p) {
  return p.op == ReduceOp::kSum && p.part == nullptr && p.count % kVectorValues == 0 &&
         reinterpret_cast<uintptr_t>(p.whole) % sizeof(uint4) == 0 &&
         (p.type == ReducedType::kFloat16 || p.type == ReducedType::kBFloat16);
}

gpuError_t launch_reduce_by_codes(const PeerView& view,
                                  const ReduceLaunch& p,
                                  SumFormat format,
                                  gpuStream_t stream) {
  auto* kernel =
      p.type == ReducedType::kFloat16 ? kernel_of<__half>(format) : kernel_of<gpu_bfloat16>(format);
  const int64_t all = p.count / kVectorValues;
  for (int64_t done = 0; done < all; done += kMostVectors) {
    const int64_t vectors = all - done < kMostVectors ? all - done : kMostVectors;
    const gpuError_t error = gpu_launch({.grid = dim3(num_blocks(vectors, view.size)),
                                         .block = dim3(kThreads),
                                         .stream = stream,
                                         .overlaps_previous = true},
                                        kernel,
                                        view,
                                        static_cast<uint4*>(p.whole) + done,
                                        vectors);
    if (error != ATOM_GPU(Success)) return error;
  }
  return ATOM_GPU(Success);
}

gpuError_t load_coded_sums() {
  return load_kernels(kernel_of<__half>(SumFormat::kFloat8),
                      kernel_of<__half>(SumFormat::kInt4),
                      kernel_of<gpu_bfloat16>(SumFormat::kFloat8),
                      kernel_of<gpu_bfloat16>(SumFormat::kInt4));
}

}  // namespace atom
