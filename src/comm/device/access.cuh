// Accesses that all cards see: packets, words, and the order between them.
#pragma once

#include <stdint.h>

#include "comm/device/mailbox.h"

namespace atom::device_exchange {

// One access of 16 bytes each, so that data and epoch arrive together.
__device__ inline void store_packet(Packet* to, uint64_t data, uint64_t epoch) {
  asm volatile(
      "{\n"
      ".reg .b128 packet;\n"
      "mov.b128 packet, {%1, %2};\n"
      "st.relaxed.sys.global.b128 [%0], packet;\n"
      "}" ::"l"(to),
      "l"(data),
      "l"(epoch)
      : "memory");
}
__device__ inline Packet load_packet(const Packet* from) {
  Packet value;
  asm volatile(
      "{\n"
      ".reg .b128 packet;\n"
      "ld.relaxed.sys.global.b128 packet, [%2];\n"
      "mov.b128 {%0, %1}, packet;\n"
      "}"
      : "=l"(value.data), "=l"(value.epoch)
      : "l"(from)
      : "memory");
  return value;
}

__device__ inline void store_word(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ inline uint64_t load_word(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void store_flag(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ inline uint32_t load_flag(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// What was read and written before comes before what is after, for all cards.
__device__ inline void fence_all_cards() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

}  // namespace atom::device_exchange
