// Messages between two ranks, through rings of packets in the receiver's memory. A message is cut
// into lanes, a block each. A packet is marked by the round of the ring in which it was sent; the
// receiver says how many it has taken, and the sender stays less than a round ahead of that.
#include "comm/device/collectives.h"
#include "comm/device/exchange.cuh"
#include "comm/device/kernels.h"

namespace atom {
namespace {

using namespace device_exchange;

constexpr int kThreads = 512;
constexpr int64_t kPacketData = sizeof(uint64_t);
constexpr int64_t kPacketsPerRound = kPacketsPerLane;

struct MessageLaunch {
  void* x;
  int64_t bytes;
  int peer;
};

// The lane's packets of a message of so many bytes.
struct LanePart {
  int64_t begin, end;
};
__device__ inline LanePart lane_part(int64_t bytes) {
  const int64_t count = (bytes + kPacketData - 1) / kPacketData;
  return {count * blockIdx.x / gridDim.x, count * (blockIdx.x + 1) / gridDim.x};
}

__device__ inline uint64_t load_data(const MessageLaunch& p, int64_t packet) {
  const char* from = static_cast<const char*>(p.x) + packet * kPacketData;
  const int64_t left = p.bytes - packet * kPacketData;
  if (left >= kPacketData && reinterpret_cast<uintptr_t>(from) % kPacketData == 0) {
    return gpu_load_from_l2(reinterpret_cast<const unsigned long long*>(from));
  }
  uint64_t data = 0;
  for (int i = 0; i < (left < kPacketData ? left : kPacketData); ++i) {
    data |= uint64_t{static_cast<uint8_t>(gpu_load_from_l2(from + i))} << (8 * i);
  }
  return data;
}

__device__ inline void store_data(const MessageLaunch& p, int64_t packet, uint64_t data) {
  char* to = static_cast<char*>(p.x) + packet * kPacketData;
  const int64_t left = p.bytes - packet * kPacketData;
  if (left >= kPacketData && reinterpret_cast<uintptr_t>(to) % kPacketData == 0) {
    *reinterpret_cast<uint64_t*>(to) = data;
    return;
  }
  for (int i = 0; i < (left < kPacketData ? left : kPacketData); ++i) {
    to[i] = static_cast<char>(data >> (8 * i));
  }
}

__global__ void __launch_bounds__(kThreads)
    send(const __grid_constant__ PeerView view, const __grid_constant__ MessageLaunch p) {
  gpu_allow_next_grid();
  gpu_wait_for_previous_grid();
  const int lane = blockIdx.x;
  // Counters of the message before, of which a first-level cache may have what was there earlier:
  // lanes share its lines, and this grid may have begun beside the one that counted.
  MessageLane& state = view.mailboxes[view.rank]->lanes[p.peer][lane];
  Packet* ring = message_packets_at(view, p.peer, view.rank, lane);
  const auto [begin, end] = lane_part(p.bytes);
  const int64_t sent = static_cast<int64_t>(load_word(&state.sent));
  Patience patience(view);
  int64_t taken = 0;  // as far as this thread knows
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const int64_t place = sent + (i - begin);
    while (place - taken >= kPacketsPerRound && !patience.has_ended(p.peer)) {
      taken = static_cast<int64_t>(load_word(&state.taken));
    }
    store_packet(ring + place % kPacketsPerRound, load_data(p, i), place / kPacketsPerRound + 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) state.sent = sent + (end - begin);
}

__global__ void __launch_bounds__(kThreads)
    receive(const __grid_constant__ PeerView view, const __grid_constant__ MessageLaunch p) {
  gpu_allow_next_grid();
  gpu_wait_for_previous_grid();
  const int lane = blockIdx.x;
  MessageLane& state = view.mailboxes[view.rank]->lanes[p.peer][lane];
  uint64_t* taken = &view.mailboxes[p.peer]->lanes[view.rank][lane].taken;
  const Packet* ring = message_packets_at(view, view.rank, p.peer, lane);
  const auto [begin, end] = lane_part(p.bytes);
  const int64_t received = static_cast<int64_t>(load_word(&state.received));
  // Often enough that the sender hears of it before the ring is full.
  constexpr int64_t kPacketsPerWord = kPacketsPerRound / 4;
  Patience patience(view);
  for (int64_t first = begin; first < end; first += kPacketsPerWord) {
    const int64_t last = first + kPacketsPerWord < end ? first + kPacketsPerWord : end;
    for (int64_t i = first + threadIdx.x; i < last; i += kThreads) {
      const int64_t place = received + (i - begin);
      const uint64_t round = place / kPacketsPerRound + 1;
      store_data(p, i, await_packet(ring + place % kPacketsPerRound, round, p.peer, patience));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      fence_all_cards();
      store_word(taken, received + (last - begin));
    }
  }
  if (threadIdx.x == 0) state.received = received + (end - begin);
}

int64_t num_lanes(int64_t bytes) {
  constexpr int64_t kPacketsPerBlock = 4 * kThreads;
  const int64_t wanted = (bytes / kPacketData + kPacketsPerBlock - 1) / kPacketsPerBlock;
  return wanted < 1 ? 1 : wanted < kMessageLanes ? wanted : kMessageLanes;
}

gpuError_t launch_message(void (*kernel)(PeerView, MessageLaunch),
                          const PeerView& view,
                          const MessageLaunch& p,
                          gpuStream_t stream) {
  return gpu_launch({.grid = dim3(static_cast<unsigned>(num_lanes(p.bytes))),
                     .block = dim3(kThreads),
                     .stream = stream,
                     .overlaps_previous = true},
                    kernel,
                    view,
                    p);
}

}  // namespace

int64_t packets_of_lane(int64_t bytes) {
  const int64_t lanes = num_lanes(bytes), packets = (bytes + kPacketData - 1) / kPacketData;
  return (packets + lanes - 1) / lanes;
}

gpuError_t launch_send(
    const PeerView& view, const void* x, int64_t bytes, int to, gpuStream_t stream) {
  return launch_message(&send, view, {const_cast<void*>(x), bytes, to}, stream);
}

gpuError_t launch_receive(
    const PeerView& view, void* x, int64_t bytes, int from, gpuStream_t stream) {
  return launch_message(&receive, view, {x, bytes, from}, stream);
}

gpuError_t load_messages() {
  return load_kernels(&send, &receive);
}

}  // namespace atom
