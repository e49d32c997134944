// Inside rms_norm_of_ranks on a GPU: rows whose parts ranks exchange, by teams of a block or of
// several.
#pragma once

#include "comm/device/exchange.cuh"
#include "comm/device/values.cuh"
#include "comm/device/vectors.cuh"
#include "ops/device/reductions.cuh"
#include "ops/rms_norm/rms_norm_of_ranks.h"
#include "ops/rms_norm/rms_norm_row.cuh"

namespace atom::ops::device::rms_norm {

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

__device__ inline int peer_of(const PeerView& view) {
  return 1 - view.rank;
}

// The sums of the row's vectors, whose packets are all looked for at once.
template <typename T, int kVectors, typename Norm>
__device__ inline void add_up(const PeerView& view,
                              const uint4 (&mine)[kVectors],
                              int round,
                              uint64_t epoch,
                              Patience& patience,
                              Norm& norm) {
  const int peer = peer_of(view);
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

// The rows of a team: every so many from its first one on.
struct TeamRows {
  int64_t first, end, step;
};

// The rows' parts of this rank to the other one, of which `held` is that of the first row. Returns
// with nothing awaited.
template <int kVectors, typename Norm>
__device__ inline void send_rows(const PeerView& view,
                                 const TeamRows& rows,
                                 const Held<kVectors>& held,
                                 uint64_t epoch,
                                 Norm& norm) {
  int round = 0;
  for (int64_t row = rows.first; row < rows.end; row += rows.step) {
    norm.move_to(row);
#pragma unroll
    for (int v = 0; v < kVectors; ++v, ++round) {
      if (!norm.has(v)) continue;
      const uint4 bits = row == rows.first ? held.mine[v] : norm.x_at(v);
      send_vector(
          packets_at(view, peer_of(view), view.rank, blockIdx.x, epoch), round, bits, epoch);
    }
  }
}

// What a row's threads tell each other, of two rows in turns: who begins a row has met all others
// in the row before it.
using RowScratch = float[2][2][kWarpSize];  // shared memory

template <typename T, int kVectors, typename Norm>
__device__ inline void finish_rows(const PeerView& view,
                                   const TeamRows& rows,
                                   Held<kVectors>& held,
                                   uint64_t epoch,
                                   RowScratch& scratch,
                                   Norm& norm) {
  Patience patience(view);
  int round = 0, turn = 0;
  for (int64_t row = rows.first; row < rows.end; row += rows.step, round += kVectors, turn ^= 1) {
    norm.move_to(row);
    if (row != rows.first) held.load(norm);
    add_up<T>(view, held.mine, round, epoch, patience, norm);
    norm.add(held.before);
    norm.normalize(scratch[turn]);
  }
}

}  // namespace atom::ops::device::rms_norm
