// Few tokens in packets (comm/device/): choices in one each, rows in two for each vector. A block
// has every so many of the places of each rank; a token's packets go from a block to the one of its
// number.
#include "comm/device/kernels.h"
#include "comm/device/vectors.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/token_dispatch/token_dispatch.cuh"

namespace atom::ops {
namespace {

using namespace device;
using namespace device_exchange;

constexpr int kThreads = 256;

// The packets of a token in its block's turn `turn`: choices, then the lower halves of the row's
// vectors, then the upper ones.
struct TokenPackets {
  int choices, vectors;

  __host__ __device__ int count() const { return choices + 2 * vectors; }
  __device__ int64_t choice(int turn, int j) const { return int64_t{turn} * count() + j; }
  __device__ int64_t half(int turn, int vector, int upper) const {
    return int64_t{turn} * count() + choices + upper * vectors + vector;
  }

  __device__ void send(Packet* to, int turn, int vector, const uint4& bits, uint64_t epoch) const {
    store_packet(to + half(turn, vector, 0), uint64_t{bits.x} | uint64_t{bits.y} << 32, epoch);
    store_packet(to + half(turn, vector, 1), uint64_t{bits.z} | uint64_t{bits.w} << 32, epoch);
  }
  __device__ uint4 await(const Packet* from,
                         int turn,
                         int vector,
                         uint64_t epoch,
                         int peer,
                         Patience& patience) const {
    const Packet* const low = from + half(turn, vector, 0);
    const Packet* const high = from + half(turn, vector, 1);
    while (true) {
      const Packet a = load_packet(low), b = load_packet(high);
      if ((a.epoch == epoch && b.epoch == epoch) || patience.has_ended(peer)) {
        return {static_cast<uint32_t>(a.data),
                static_cast<uint32_t>(a.data >> 32),
                static_cast<uint32_t>(b.data),
                static_cast<uint32_t>(b.data >> 32)};
      }
    }
  }
};

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % kWarpSize;
}

struct Dispatcher {
  const PeerView& view;
  const DispatchLaunch& p;
  TokenPackets packets;
  uint64_t epoch;

  __device__ Packet* way(int to, int from) const {
    return packets_at(view, to, from, static_cast<int>(blockIdx.x), epoch);
  }
  __device__ int64_t place(int from, int64_t token) const {
    return int64_t{from} * p.places + token;
  }
  __device__ void keep_choice(int64_t at, int j, int32_t id, float weight) const {
    part_of<int32_t>(p.memory, p.at.ids)[at * p.k + j] = id;
    part_of<float>(p.memory, p.at.weights)[at * p.k + j] = weight;
  }
  __device__ uint4* row(int64_t at) const {
    return part_of<uint4>(p.memory, p.at.rows) + at * packets.vectors;
  }

  __device__ void send(int64_t token, int turn) const {
    const bool exists = token < p.num_tokens;
    for (int j = threadIdx.x; j < p.k; j += kThreads) {
      const int32_t id = exists ? gpu_load_from_l2(p.ids + token * p.k + j) : -1;
      const float weight = exists ? gpu_load_from_l2(p.weights + token * p.k + j) : 0.0f;
      const int owner = id < 0 ? -1 : rank_of(p.experts, view, id);
      for (int i = 1; i < view.size; ++i) {
        const int peer = (view.rank + i) % view.size;
        const auto of_peer = static_cast<uint32_t>(owner == peer ? id : -1);
        store_packet(way(peer, view.rank) + packets.choice(turn, j),
                     of_peer | uint64_t{__float_as_uint(weight)} << 32,
                     epoch);
      }
      keep_choice(place(view.rank, token), j, owner == view.rank ? id : -1, weight);
    }
    const uint32_t ranks = exists ? ranks_of(p.experts, view, p.ids + token * p.k, p.k) : 0;
    if (ranks == 0) return;
    const auto* x = static_cast<const uint4*>(p.x) + token * packets.vectors;
    for (int v = threadIdx.x; v < packets.vectors; v += kThreads) {
      const uint4 bits = gpu_load_from_l2(x + v);
      for (int i = 1; i < view.size; ++i) {
        const int peer = (view.rank + i) % view.size;
        if (ranks >> peer & 1) packets.send(way(peer, view.rank), turn, v, bits, epoch);
      }
      if (ranks >> view.rank & 1) row(place(view.rank, token))[v] = bits;
    }
  }

  // By whole warps, each of which looks at all choices.
  __device__ void receive(int from, int64_t token, int turn, Patience& patience) const {
    const Packet* const arriving = way(view.rank, from);
    bool comes = false;
    for (int j = lane_of_warp(); j < p.k; j += kWarpSize) {
      const uint64_t data = await_packet(arriving + packets.choice(turn, j), epoch, from, patience);
      const auto id = static_cast<int32_t>(data);
      comes |= id >= 0;
      if (threadIdx.x < kWarpSize) {
        keep_choice(place(from, token), j, id, __uint_as_float(static_cast<uint32_t>(data >> 32)));
      }
    }
    __syncwarp();
    if (gpu_lanes_where(comes) == 0) return;
    for (int v = threadIdx.x; v < packets.vectors; v += kThreads) {
      row(place(from, token))[v] = packets.await(arriving, turn, v, epoch, from, patience);
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    dispatch_by_packets(const __grid_constant__ PeerView view,
                        const __grid_constant__ DispatchLaunch p,
                        TokenPackets packets) {
  touch(view);
  touch(p);
  allow_next_grid();
  wait_for_previous_grid();
  const Dispatcher dispatcher = {view, p, packets, begin_epoch(view)};
  int turn = 0;
  for (int64_t t = blockIdx.x; t < p.places; t += gridDim.x) dispatcher.send(t, turn++);
  Patience patience(view);
  turn = 0;
  for (int64_t t = blockIdx.x; t < p.places; t += gridDim.x, ++turn) {
    for (int i = 1; i < view.size; ++i) {
      dispatcher.receive((view.rank + i) % view.size, t, turn, patience);
    }
  }
  __syncthreads();
  end_epoch(view, dispatcher.epoch);
}

template <typename T>
struct Combiner {
  const PeerView& view;
  const CombineLaunch& p;
  TokenPackets packets;
  uint64_t epoch;
  static constexpr int kLength = Vector<T>::kLength;

  __device__ Packet* way(int to, int from) const {
    return packets_at(view, to, from, static_cast<int>(blockIdx.x), epoch);
  }
  __device__ const uint4* result(int from, int64_t token) const {
    return static_cast<const uint4*>(p.y) + (int64_t{from} * p.places + token) * packets.vectors;
  }

  // Every block hears from every rank in each operation, also where no token went.
  __device__ void greet() const {
    const int peer = threadIdx.x;
    if (peer < view.size && peer != view.rank) {
      store_packet(way(peer, view.rank) + packets.choice(0, 0), 0, epoch);
    }
  }
  __device__ void await_greetings(Patience& patience) const {
    const int peer = threadIdx.x;
    if (peer < view.size && peer != view.rank) {
      await_packet(way(view.rank, peer) + packets.choice(0, 0), epoch, peer, patience);
    }
  }

  // Of a token that came from `origin` what this rank's experts gave.
  __device__ void send(int origin, int64_t token, int turn) const {
    const int32_t* ids = p.came_ids + (int64_t{origin} * p.places + token) * p.k;
    bool came = false;
    for (int j = lane_of_warp(); j < p.k; j += kWarpSize) came |= gpu_load_from_l2(ids + j) >= 0;
    __syncwarp();
    if (gpu_lanes_where(came) == 0) return;
    for (int v = threadIdx.x; v < packets.vectors; v += kThreads) {
      packets.send(
          way(origin, view.rank), turn, v, gpu_load_from_l2(result(origin, token) + v), epoch);
    }
  }

  __device__ void add_up(int64_t token, int turn, Patience& patience) const {
    const uint32_t ranks = ranks_of(p.experts, view, p.ids + token * p.k, p.k);
    uint4* out = static_cast<uint4*>(p.out) + token * packets.vectors;
    for (int v = threadIdx.x; v < packets.vectors; v += kThreads) {
      float sums[kLength] = {};
      for (int rank = 0; rank < view.size; ++rank) {
        if ((ranks >> rank & 1) == 0) continue;
        const uint4 bits =
            rank == view.rank ? gpu_load_from_l2(result(rank, token) + v)
                              : packets.await(way(view.rank, rank), turn, v, epoch, rank, patience);
        float x[kLength];
        to_floats<T>(bits, x);
#pragma unroll
        for (int i = 0; i < kLength; ++i) sums[i] += x[i];
      }
      out[v] = bits_of<T>(sums);
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    combine_by_packets(const __grid_constant__ PeerView view,
                       const __grid_constant__ CombineLaunch p,
                       TokenPackets packets) {
  touch(view);
  touch(p);
  allow_next_grid();
  wait_for_previous_grid();
  const Combiner<T> combiner = {view, p, packets, begin_epoch(view)};
  combiner.greet();
  int turn = 0;
  for (int64_t t = blockIdx.x; t < p.places; t += gridDim.x, ++turn) {
    for (int i = 1; i < view.size; ++i) combiner.send((view.rank + i) % view.size, t, turn);
  }
  Patience patience(view);
  turn = 0;
  for (int64_t t = blockIdx.x; t < p.num_tokens; t += gridDim.x) {
    combiner.add_up(t, turn++, patience);
  }
  combiner.await_greetings(patience);
  __syncthreads();
  end_epoch(view, combiner.epoch);
}

TokenPackets packets_of(const PacketRows& rows) {
  const int64_t bytes = int64_t{rows.size} * bytes_of(rows.element);
  return {rows.k, static_cast<int>(bytes / kVectorBytes)};
}

unsigned num_blocks(int32_t places) {
  return static_cast<unsigned>(places < kPacketBlocks ? places : kPacketBlocks);
}

template <typename Kernel, typename Launch>
gpuError_t start(Kernel* kernel, const PeerView& view, const Launch& p, gpuStream_t stream) {
  const TokenPackets packets = packets_of({p.places, p.k, p.size, p.element});
  return launch(
      kernel, dim3(num_blocks(p.places)), dim3(kThreads), 0, stream, true, view, p, packets);
}

}  // namespace

bool fits_packets(const PacketRows& rows) {
  const int64_t turns = (rows.places + kPacketBlocks - 1) / kPacketBlocks;
  return turns * packets_of(rows).count() <= kPacketsPerBlock;
}

gpuError_t launch_dispatch_by_packets(const PeerView& view,
                                      const DispatchLaunch& p,
                                      gpuStream_t stream) {
  return start(&dispatch_by_packets, view, p, stream);
}

gpuError_t launch_combine_by_packets(const PeerView& view,
                                     const CombineLaunch& p,
                                     gpuStream_t stream) {
  return with_element(p.element,
                      [&]<typename T>() { return start(&combine_by_packets<T>, view, p, stream); });
}

gpuError_t load_token_dispatch_by_packets() {
  return load_kernels(&dispatch_by_packets,
                      &combine_by_packets<float>,
                      &combine_by_packets<Half>,
                      &combine_by_packets<BFloat16>);
}

}  // namespace atom::ops
