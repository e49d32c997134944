// Tensors of any size and alignment as vectors of 16 bytes, and how these travel as packets.
#pragma once

#include <stdint.h>

#include "comm/device/exchange.cuh"

namespace atom::device_exchange {

constexpr int64_t kVectorBytes = sizeof(uint4);

__host__ __device__ constexpr int64_t num_vectors(int64_t bytes) {
  return (bytes + kVectorBytes - 1) / kVectorBytes;
}

// Of part `part` of `num_parts` of so many.
struct Share {
  int64_t begin, end;
};
__device__ inline Share share_of(int64_t count, int part, int num_parts) {
  return {count * part / num_parts, count * (part + 1) / num_parts};
}

// Bytes in memory. The grid before may have written them while this one's processor had others of
// their lines in its first-level cache, so they are read past it. Where the last vector ends behind
// them, what is there is 0 and stays unwritten.
struct Span {
  void* data;
  int64_t bytes;

  __device__ bool is_whole(int64_t vector) const {
    return reinterpret_cast<uintptr_t>(data) % kVectorBytes == 0 &&
           (vector + 1) * kVectorBytes <= bytes;
  }
  __device__ int length(int64_t vector) const {
    const int64_t left = bytes - vector * kVectorBytes;
    return static_cast<int>(left < kVectorBytes ? left : kVectorBytes);
  }

  __device__ uint4 load(int64_t vector) const {
    if (is_whole(vector)) return gpu_load_from_l2(static_cast<const uint4*>(data) + vector);
    const auto* from = static_cast<const uint8_t*>(data) + vector * kVectorBytes;
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < kVectorBytes; ++i) {
      if (i < length(vector)) {
        words[i / 4] |= uint32_t{gpu_load_from_l2(from + i)} << (i % 4 * 8);
      }
    }
    return {words[0], words[1], words[2], words[3]};
  }
  __device__ void store(int64_t vector, const uint4& bits) const {
    if (is_whole(vector)) {
      static_cast<uint4*>(data)[vector] = bits;
      return;
    }
    auto* to = static_cast<uint8_t*>(data) + vector * kVectorBytes;
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < kVectorBytes; ++i) {
      if (i < length(vector)) to[i] = static_cast<uint8_t>(words[i / 4] >> (i % 4 * 8));
    }
  }
};

// The two packets of a thread's vector `round`, of a block's rounds: neighbors side by side.
__device__ inline int64_t packet_of(int round, int half) {
  return (int64_t{2} * round + half) * blockDim.x + threadIdx.x;
}

__device__ inline void send_vector(Packet* to, int round, const uint4& bits, uint64_t epoch) {
  store_packet(to + packet_of(round, 0), uint64_t{bits.x} | uint64_t{bits.y} << 32, epoch);
  store_packet(to + packet_of(round, 1), uint64_t{bits.z} | uint64_t{bits.w} << 32, epoch);
}

// A vector on its way from `peer`, whose packets arrive at `from`.
class Arrival {
 public:
  // Looks once, so that several can be looked for at a time.
  __device__ void look(const Packet* from, int round) {
    low_ = load_packet(from + packet_of(round, 0));
    high_ = load_packet(from + packet_of(round, 1));
  }
  __device__ uint4
  await(const Packet* from, int round, uint64_t epoch, int peer, Patience& patience) {
    while ((low_.epoch != epoch || high_.epoch != epoch) && !patience.has_ended(peer)) {
      look(from, round);
    }
    return {static_cast<uint32_t>(low_.data),
            static_cast<uint32_t>(low_.data >> 32),
            static_cast<uint32_t>(high_.data),
            static_cast<uint32_t>(high_.data >> 32)};
  }

 private:
  Packet low_, high_;
};

}  // namespace atom::device_exchange
