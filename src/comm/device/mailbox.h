// What ranks on several cards leave for each other, in memory of each card that the others write.
// Plain structures, for the host that allocates them and for kernels.
//
// Every block of a kernel exchanges with the blocks of its number on the other cards and with no
// others. Its operations are counted in `epochs`, by which everything it receives is marked, so
// that nothing has to be reset and a recorded kernel can run any number of times. In each of its
// operations it hears from every rank. So when it is in operation e, all ranks have left operation
// e - 2, and two places for everything that arrives are enough.
#pragma once

#include <stdint.h>

namespace atom {

constexpr int kMaxPeers = 8;
constexpr int kMaxExchangeBlocks = 128;
// Of operations in packets: blocks, and packets that a block has room for from each rank.
constexpr int kPacketBlocks = 128;
constexpr int kPacketsPerBlock = 2048;
// Of messages between two ranks: parts that go side by side, and packets on their way in each.
constexpr int kMessageLanes = 64;
constexpr int kPacketsPerLane = 8192;

// Written and read as one.
struct alignas(16) Packet {
  uint64_t data;
  uint64_t epoch;  // from 1 on
};

struct MessageLane {
  uint64_t sent;      // packets so far; of the rank that sends
  uint64_t received;  // of the rank that receives
  // Of what this rank sent, as the receiver says.
  uint64_t taken;
};

struct Mailbox {
  uint64_t epochs[kMaxExchangeBlocks];  // operations that the block has done; its card alone
  Packet hellos[2][kMaxExchangeBlocks][kMaxPeers];   // an address each
  uint64_t goodbyes[kMaxExchangeBlocks][kMaxPeers];  // epochs that a rank has left
  // Of sums by codes: epochs in which a rank has written its parts, and its sums.
  uint64_t halves[2][kMaxExchangeBlocks][kMaxPeers];
  MessageLane lanes[kMaxPeers][kMessageLanes];  // with each other rank
};

// Behind it: Packet[2][kPacketBlocks][size][kPacketsPerBlock], from each rank, then
// Packet[size][kMessageLanes][kPacketsPerLane].
constexpr int64_t num_collective_packets(int size) {
  return int64_t{2} * kPacketBlocks * size * kPacketsPerBlock;
}
constexpr int64_t mailbox_size(int size) {
  return int64_t{sizeof(Mailbox)} +
         int64_t{sizeof(Packet)} *
             (num_collective_packets(size) + int64_t{size} * kMessageLanes * kPacketsPerLane);
}
static_assert(sizeof(Mailbox) % sizeof(Packet) == 0);

// In pinned memory of the host.
struct GroupFlags {
  uint32_t is_over;  // written by host and cards: who waits gives up
  // Of a rank that has waited too long, 1 + the rank that did not come.
  uint32_t missing[kMaxPeers];
};

// The group as a kernel of `rank` sees it.
struct PeerView {
  int rank;
  int size;
  Mailbox* mailboxes[kMaxPeers];
  uint8_t* codes[kMaxPeers];  // memory of coded_sum_memory() each; null where sums are whole
  GroupFlags* flags;
  uint64_t timeout;  // nanoseconds
};

}  // namespace atom
