// Operations of small tensors, in packets.
#include "comm/device/collectives.h"
#include "comm/device/exchange.cuh"
#include "comm/device/kernels.h"
#include "comm/device/values.cuh"
#include "comm/device/vectors.cuh"

namespace atom {
namespace {

using namespace device_exchange;

constexpr int kMaxThreads = 512;
constexpr int kFewThreads = 128;  // of blocks that have one vector for each
constexpr int64_t kVectorsPerBlock = kPacketsPerBlock / 2;

// What this rank gives each, as vectors, and where it goes.
struct Sender {
  const PeerView& view;
  const void* from;
  int64_t stride;  // bytes from one rank's to the next
  int64_t bytes;
  uint64_t epoch;

  __device__ Span of(int peer) const {
    return {const_cast<char*>(static_cast<const char*>(from)) + peer * stride, bytes};
  }

  __device__ void send(const Share& share) const {
    for (int i = 1; i < view.size; ++i) {
      const int peer = (view.rank + i) % view.size;
      Packet* to = packets_at(view, peer, view.rank, blockIdx.x, epoch);
      const Span span = of(peer);
      int round = 0;
      for (int64_t v = share.begin + threadIdx.x; v < share.end; v += blockDim.x) {
        send_vector(to, round++, span.load(v), epoch);
      }
    }
  }
};

// The sum of what all ranks send; kSize: the most ranks.
template <typename T, int kSize>
__global__ void __launch_bounds__(kMaxThreads)
    reduce_by_packets(const __grid_constant__ PeerView view,
                      const __grid_constant__ ReduceLaunch p) {
  const int64_t bytes = p.count * int64_t{sizeof(T)};
  const Share share = share_of(num_vectors(bytes), blockIdx.x, gridDim.x);
  touch(view);
  touch(p);
  gpu_allow_next_grid();
  gpu_wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  const Sender sender = {view, p.whole, p.part == nullptr ? 0 : bytes, bytes, epoch};
  sender.send(share);
  const Span own = sender.of(view.rank);
  const Span target = {p.part == nullptr ? p.whole : p.part, bytes};
  Patience patience(view);
  int round = 0;
  for (int64_t v = share.begin + threadIdx.x; v < share.end; v += blockDim.x, ++round) {
    target.store(v, sum_of_ranks<T, kSize>(view, p.op, own.load(v), round, epoch, patience));
  }
  __syncthreads();
  end_epoch(view, epoch);
}

__global__ void __launch_bounds__(kMaxThreads)
    move_by_packets(const __grid_constant__ PeerView view, const __grid_constant__ MoveLaunch p) {
  const Share share = share_of(num_vectors(p.bytes), blockIdx.x, gridDim.x);
  touch(view);
  touch(p);
  gpu_allow_next_grid();
  gpu_wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  const Sender sender = {view, p.from, p.from_stride, p.bytes, epoch};
  sender.send(share);
  Patience patience(view);
  for (int r = 0; r < view.size; ++r) {
    const Span target = {static_cast<char*>(p.to) + r * p.to_stride, p.bytes};
    const Span own = sender.of(r);
    if (r == view.rank && own.data == target.data) continue;
    const Packet* packets = packets_at(view, view.rank, r, blockIdx.x, epoch);
    int round = 0;
    for (int64_t v = share.begin + threadIdx.x; v < share.end; v += blockDim.x, ++round) {
      if (r == view.rank) {
        target.store(v, own.load(v));
        continue;
      }
      Arrival arrival;
      arrival.look(packets, round);
      target.store(v, arrival.await(packets, round, epoch, r, patience));
    }
  }
  __syncthreads();
  end_epoch(view, epoch);
}

// The same on every rank. As many blocks as have something to do at once, and more for each only
// when there are no more blocks.
GpuLaunch packet_launch(int64_t bytes, gpuStream_t stream) {
  const int64_t vectors = num_vectors(bytes);
  const int64_t wanted = (vectors + kFewThreads - 1) / kFewThreads;
  const int64_t blocks = wanted < kPacketBlocks ? wanted : kPacketBlocks;
  const int threads = wanted <= kPacketBlocks ? kFewThreads : kMaxThreads;
  return {.grid = dim3(static_cast<unsigned>(blocks)),
          .block = dim3(threads),
          .stream = stream,
          .overlaps_previous = true};
}

template <typename T>
auto* reduce_kernel(int size) {
  return size <= 2   ? &reduce_by_packets<T, 2>
         : size <= 4 ? &reduce_by_packets<T, 4>
                     : &reduce_by_packets<T, kMaxPeers>;
}

template <typename T>
gpuError_t launch_reduce(const PeerView& view, const ReduceLaunch& p, gpuStream_t stream) {
  const int64_t bytes = p.count * int64_t{sizeof(T)};
  return gpu_launch(packet_launch(bytes, stream), reduce_kernel<T>(view.size), view, p);
}

}  // namespace

bool fits_packets(const PeerView& view, int64_t bytes) {
  // Each rank sends all others twice the bytes.
  constexpr int64_t kMostSent = 1 << 20;
  return bytes * (view.size - 1) <= kMostSent &&
         num_vectors(bytes) <= kPacketBlocks * (kVectorsPerBlock - kMaxThreads);
}

gpuError_t launch_reduce_by_packets(const PeerView& view,
                                    const ReduceLaunch& p,
                                    gpuStream_t stream) {
  return with_reduced_type(p.type, [&]<typename T>() { return launch_reduce<T>(view, p, stream); });
}

gpuError_t launch_move_by_packets(const PeerView& view, const MoveLaunch& p, gpuStream_t stream) {
  return gpu_launch(packet_launch(p.bytes, stream), &move_by_packets, view, p);
}

gpuError_t load_packets(int size) {
  return load_kernels(reduce_kernel<float>(size),
                      reduce_kernel<__half>(size),
                      reduce_kernel<gpu_bfloat16>(size),
                      reduce_kernel<int32_t>(size),
                      reduce_kernel<int64_t>(size),
                      &move_by_packets);
}

}  // namespace atom
