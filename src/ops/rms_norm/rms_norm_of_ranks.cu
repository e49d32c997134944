#include "ops/rms_norm/rms_norm_of_ranks.h"

#include "comm/device/exchange.cuh"
#include "comm/device/kernels.h"
#include "comm/device/values.cuh"
#include "comm/device/vectors.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/rms_norm/rms_norm_row.cuh"

namespace atom::ops {
namespace {

using namespace device;
using namespace device::rms_norm;
using namespace device_exchange;

// What a thread has of a row before ranks exchange: all on its way at once, before it waits for
// anything.
template <int kVectors>
struct Held {
  uint4 before[kVectors], mine[kVectors];

  template <typename Norm>
  __device__ void load(const Norm& norm) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      mine[v] = norm.x_at(v);
      before[v] = norm.residual_at(v);
    }
  }
};

// The sums of the row's vectors; the packets of both are looked for at once where there are two.
template <typename T, int kSize, int kVectors, typename Norm>
__device__ inline void add_up(const PeerView& view,
                              const uint4 (&mine)[kVectors],
                              int round,
                              uint64_t epoch,
                              Patience& patience,
                              Norm& norm) {
  if constexpr (kSize > 2) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      norm.set(v, uint4{});
      if (!norm.has(v)) continue;
      norm.set(v,
               sum_of_ranks<T, kSize>(view, ReduceOp::kSum, mine[v], round + v, epoch, patience));
    }
  } else {
    const int peer = 1 - view.rank;
    const Packet* from = packets_at(view, view.rank, peer, static_cast<int>(blockIdx.x), epoch);
    Arrival arrivals[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (norm.has(v)) arrivals[v].look(from, round + v);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      norm.set(v, uint4{});
      if (!norm.has(v)) continue;
      const uint4 theirs = arrivals[v].await(from, round + v, epoch, peer, patience);
      Sums<T> sums;
      sums.set(mine[v]);  // two numbers have one sum
      sums.add(ReduceOp::kSum, theirs);
      norm.set(v, sums.rounded());
    }
  }
}

// A block for each row, or for every so many rows. kSize: the most ranks.
template <typename T, typename W, int kThreads, int kVectors, int kSize>
__global__ void __launch_bounds__(kThreads)
    rms_norm_of_ranks(const __grid_constant__ PeerView view,
                      const __grid_constant__ RmsNormLaunch p) {
  __shared__ float scratch[2][kWarpSize];
  RowNorm<T, W, kVectors, 1, kAnyLanes> norm(p);  // of the block's first row
  norm.load_weight();
  allow_next_grid();
  wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  Held<kVectors> held;
  held.load(norm);

  int round = 0;
  for (int64_t row = blockIdx.x; row < p.num_tokens; row += gridDim.x) {
    norm.move_to(row);
#pragma unroll
    for (int v = 0; v < kVectors; ++v, ++round) {
      if (!norm.has(v)) continue;
      const uint4 bits = row == blockIdx.x ? held.mine[v] : norm.x_at(v);
      for (int i = 1; i < view.size; ++i) {
        const int peer = (view.rank + i) % view.size;
        send_vector(packets_at(view, peer, view.rank, blockIdx.x, epoch), round, bits, epoch);
      }
    }
  }

  Patience patience(view);
  round = 0;
  for (int64_t row = blockIdx.x; row < p.num_tokens; row += gridDim.x, round += kVectors) {
    norm.move_to(row);
    if (row != blockIdx.x) held.load(norm);
    add_up<T, kSize>(view, held.mine, round, epoch, patience, norm);
    norm.add(held.before);
    norm.normalise(scratch);
    __syncthreads();  // the next row uses the scratch
  }
  end_epoch(view, epoch);
}

// How rows are cut, as launch_rms_norm() cuts them: sums have the same order.
struct Cut {
  int threads, vectors;
  bool fits;
};
Cut cut_of(int64_t size) {
  const int64_t vectors = size / 8;
  if (vectors <= 4 * kWarpSize) return {0, 0, false};  // rows of a warp each
  if (vectors <= 512) return {256, 2, true};
  if (vectors <= 1024) return {512, 2, true};
  return {512, 4, vectors <= 2048};
}

int64_t num_row_blocks(const RmsNormLaunch& p) {
  return p.num_tokens < kPacketBlocks ? p.num_tokens : kPacketBlocks;
}

template <typename T, typename W, int kSize>
auto* kernel_of(const Cut& cut) {
  return cut.threads == 256 ? &rms_norm_of_ranks<T, W, 256, 2, kSize>
         : cut.vectors == 2 ? &rms_norm_of_ranks<T, W, 512, 2, kSize>
                            : &rms_norm_of_ranks<T, W, 512, 4, kSize>;
}

template <typename T, typename W>
gpuError_t launch_typed(const PeerView& view, const RmsNormLaunch& p, gpuStream_t stream) {
  const Cut cut = cut_of(p.size);
  return launch(view.size == 2 ? kernel_of<T, W, 2>(cut) : kernel_of<T, W, kMaxPeers>(cut),
                dim3(static_cast<unsigned>(num_row_blocks(p))),
                dim3(cut.threads),
                0,
                stream,
                p.overlaps_previous,
                view,
                p);
}

template <typename T, typename W>
gpuError_t load_typed() {
  for (const Cut& cut : {Cut{256, 2, true}, Cut{512, 2, true}, Cut{512, 4, true}}) {
    const gpuError_t error = load_kernels(kernel_of<T, W, 2>(cut), kernel_of<T, W, kMaxPeers>(cut));
    if (error != ATOM_GPU(Success)) return error;
  }
  return ATOM_GPU(Success);
}

}  // namespace

bool supports_rms_norm_of_ranks(const PeerView& view, const RmsNormLaunch& p) {
  if (p.element != Element::kBFloat16) return false;
  if (p.num_tokens < 1 || p.num_heads != 1 || p.size % 8 != 0) return false;
  const Cut cut = cut_of(p.size);
  if (!cut.fits || !supports_rms_norm_gpu(p)) return false;
  // Each rank sends all others twice the bytes.
  constexpr int64_t kMostSent = 1 << 20;
  const int64_t rows = (p.num_tokens + num_row_blocks(p) - 1) / num_row_blocks(p);
  return p.num_tokens * p.size * 2 * (view.size - 1) <= kMostSent &&
         rows * cut.vectors * cut.threads * 2 <= kPacketsPerBlock;
}

gpuError_t launch_rms_norm_of_ranks(const PeerView& view,
                                    const RmsNormLaunch& p,
                                    gpuStream_t stream) {
  if (!supports_rms_norm_of_ranks(view, p) || p.residual == nullptr) {
    return ATOM_GPU(ErrorInvalidValue);
  }
  return p.rounds_once ? launch_typed<BFloat16, float>(view, p, stream)
                       : launch_typed<BFloat16, BFloat16>(view, p, stream);
}

gpuError_t load_rms_norm_of_ranks() {
  const gpuError_t error = load_typed<BFloat16, float>();
  return error != ATOM_GPU(Success) ? error : load_typed<BFloat16, BFloat16>();
}

}  // namespace atom::ops
