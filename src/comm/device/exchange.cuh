// What kernels do with mailboxes: leave packets, wait for them, tell addresses.
#pragma once

#include <stdint.h>

#include "comm/device/access.cuh"
#include "comm/device/mailbox.h"
#include "tensor/gpu_api.h"

namespace atom::device_exchange {

// Reads all of a kernel's parameters, which lie in memory that no cache has yet: while the grid
// before this one ends that costs nothing, and later each part would be waited for.
template <typename Parameters>
__device__ inline void touch(const Parameters& parameters) {
  static_assert(sizeof(Parameters) % sizeof(uint32_t) == 0);
  const auto* words = reinterpret_cast<const uint32_t*>(&parameters);
  uint32_t bits = 0;
#pragma unroll
  for (size_t i = 0; i < sizeof(Parameters) / sizeof(uint32_t); i += 8) bits |= words[i];
  // Something has to depend on them.
  asm volatile(
      "{\n"
      ".reg .pred is_zero;\n"
      "setp.eq.u32 is_zero, %0, 0;\n"
      "@is_zero nanosleep.u32 0;\n"
      "}" ::"r"(bits)
      : "memory");
}

// A thread's patience with another rank.
class Patience {
 public:
  // `grace` in nanoseconds: for so long it waits also when the group is over.
  __device__ explicit Patience(const PeerView& view, uint64_t grace = 0)
      : view_(view), grace_(grace) {}

  // Called again and again while `peer` is waited for. Once it has ended it stays so.
  __device__ bool has_ended(int peer) {
    if (has_ended_ || ++num_polls_ % kPollsPerLook != 0) return has_ended_;
    const uint64_t now = gpu_ticks();
    if (begin_ == 0) begin_ = now;
    const uint64_t waited = now - begin_;
    if (load_flag(&view_.flags->is_over) != 0) {
      has_ended_ = waited >= grace_;
    } else if (waited > view_.timeout) {
      store_flag(&view_.flags->missing[view_.rank], peer + 1);
      fence_all_cards();
      store_flag(&view_.flags->is_over, 1);
      has_ended_ = true;
    }
    return has_ended_;
  }
  __device__ bool has_ended() const { return has_ended_; }

 private:
  // The host's memory is far away.
  static constexpr uint32_t kPollsPerLook = 2048;

  const PeerView& view_;
  uint64_t grace_;
  uint64_t begin_ = 0;
  uint32_t num_polls_ = 0;
  bool has_ended_ = false;
};

// Of a packet of this epoch from `peer`, its data; anything when patience has ended.
__device__ inline uint64_t await_packet(const Packet* from,
                                        uint64_t epoch,
                                        int peer,
                                        Patience& patience) {
  while (true) {
    const Packet packet = load_packet(from);
    if (packet.epoch == epoch || patience.has_ended(peer)) return packet.data;
  }
}

// Where packets of an operation from `from` arrive at `to`.
__device__ inline Packet* packets_at(
    const PeerView& view, int to, int from, int block, uint64_t epoch) {
  Packet* all = reinterpret_cast<Packet*>(view.mailboxes[to] + 1);
  const int64_t slot = (int64_t(epoch % 2) * kPacketBlocks + block) * view.size + from;
  return all + slot * kPacketsPerBlock;
}

// Where those of messages do.
__device__ inline Packet* message_packets_at(const PeerView& view, int to, int from, int lane) {
  Packet* all = reinterpret_cast<Packet*>(view.mailboxes[to] + 1);
  const int64_t slot = int64_t{from} * kMessageLanes + lane;
  return all + num_collective_packets(view.size) + slot * kPacketsPerLane;
}

// The block's operations: of every thread, before it exchanges anything, and when it is done. What
// the grid before this one has counted a first-level cache may have as it was earlier.
__device__ inline uint64_t begin_epoch(const PeerView& view) {
  return load_word(&view.mailboxes[view.rank]->epochs[blockIdx.x]) + 1;
}
// After a barrier of the block.
__device__ inline void end_epoch(const PeerView& view, uint64_t epoch) {
  if (threadIdx.x == 0) view.mailboxes[view.rank]->epochs[blockIdx.x] = epoch;
}

// Tells all ranks `mine` and learns their addresses, when their kernels of this operation have
// begun: what ran before on their cards is done and can be read. False for all threads of a block
// that has waited in vain. At least kMaxPeers threads.
__device__ inline bool say_hello(const PeerView& view,
                                 uint64_t epoch,
                                 const void* mine,
                                 void* (&addresses)[kMaxPeers]) {  // shared memory
  const int peer = threadIdx.x, block = blockIdx.x;
  bool missed = false;
  if (peer == view.rank) {
    addresses[peer] = const_cast<void*>(mine);
  } else if (peer < view.size) {
    fence_all_cards();
    store_packet(&view.mailboxes[peer]->hellos[epoch % 2][block][view.rank],
                 reinterpret_cast<uint64_t>(mine),
                 epoch);
    Patience patience(view);
    addresses[peer] = reinterpret_cast<void*>(await_packet(
        &view.mailboxes[view.rank]->hellos[epoch % 2][block][peer], epoch, peer, patience));
    missed = patience.has_ended();
    fence_all_cards();
  }
  if (__syncthreads_or(missed) == 0) return true;
  // What comes late is not to be taken for that of a later operation.
  end_epoch(view, epoch);
  return false;
}

// Returns when all ranks have left the operation: what they wrote here is there, and they read and
// write nothing any more.
__device__ inline void say_goodbye(const PeerView& view, uint64_t epoch) {
  // Others may be in the middle of this rank's memory when the group ends, which is freed then.
  constexpr uint64_t kGrace = 20'000'000;
  __syncthreads();
  const int peer = threadIdx.x, block = blockIdx.x;
  if (peer < view.size && peer != view.rank) {
    fence_all_cards();
    store_word(&view.mailboxes[peer]->goodbyes[block][view.rank], epoch);
    Patience patience(view, kGrace);
    const uint64_t* theirs = &view.mailboxes[view.rank]->goodbyes[block][peer];
    while (load_word(theirs) < epoch && !patience.has_ended(peer)) {
    }
    fence_all_cards();
  }
  end_epoch(view, epoch);
}

}  // namespace atom::device_exchange
