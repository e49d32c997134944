// Inside latent attention for Hopper: the warpgroup that loads.
//
// Rows are gathered 16 bytes a thread, wherever they lie in the cache: by asynchronous copies, or
// from FP8 through registers, in which they become bfloat16.
#pragma once

#include "ops/mla_attention/sm90/items.cuh"
#include "ops/mla_attention/sm90/tile.cuh"

namespace atom::ops::mla_device {

// The barrier gets this thread's arrival when the copies that it has begun are there.
__device__ inline void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

template <bool kFloat8>
class Producer {
 public:
  __device__ Producer(const Work& work, const Buffers& buffers)
      : work_(work), buffers_(buffers), thread_(threadIdx.x % kWarpgroup) {}

  __device__ void run(const Share& share) {
    ItemWalk walk(work_, share);
    Item item;
    while (walk.next(item)) {
      if (item.first_tile == item.last_tile) continue;
      int32_t slot = find_slot(item, item.first_tile);
      load_queries(item);
      for (int tile = item.first_tile; tile < item.last_tile; tile += 2) {
        int32_t* slots = buffers_.slots(slots_parity_);
        slots[thread_] = slot;
        attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
        slot = find_slot(item, tile + 2);
        const bool has_second = tile + 1 < item.last_tile;
        load_group<kLeft0>(slots, parity0_);
        if (has_second) load_group<kRight1>(slots, parity1_);
        load_group<kRight0>(slots, parity0_);
        if (has_second) load_group<kLeft1>(slots, parity1_);
        parity0_ ^= 1;
        if (has_second) parity1_ ^= 1;
        slots_parity_ ^= 1;
      }
    }
  }

 private:
  // Of this thread's key among those of a pair of tiles; -1: there is none.
  __device__ int32_t find_slot(const Item& item, int tile) const {
    const int key = tile * kKeys + thread_;
    if (key >= item.num_keys || tile >= item.last_tile) return -1;
    const MlaAttentionArgs& params = work_.params;
    int64_t position = key;
    if (work_.has_indices()) {
      position = params.indices[item.first_token * params.top_k + key];
      if (position < 0) return -1;
      if (position > item.first_position) gpu_trap();
    }
    const auto block_size = static_cast<uint32_t>(params.batch.block_size);
    const auto at = static_cast<uint32_t>(position);
    const int32_t block = item.block_table[at / block_size];
    if (block < 0 || block >= params.batch.num_blocks) gpu_trap();
    return static_cast<int32_t>(block * block_size + at % block_size);
  }

  __device__ void load_queries(const Item& item) {
    const MlaAttentionArgs& params = work_.params;
    device::wait_for(buffers_.queries_empty(), queries_parity_ ^ 1);
    queries_parity_ ^= 1;
    const int chunk = thread_ % 8;
#pragma unroll
    for (int pass = 0; pass < kRows / 16; ++pass) {
      const int row = pass * 16 + thread_ / 8;
      const bool exists = row < item.num_rows;
      const int64_t token = exists ? item.token_of(work_, row) : item.first_token;
      const int64_t head = exists ? item.head_of(work_, row) : 0;
      const auto* latent = static_cast<const gpu_bfloat16*>(params.q_latent) +
                           token * params.q_latent_strides[0] + head * params.q_latent_strides[1];
      const auto* rope = static_cast<const gpu_bfloat16*>(params.q_rope) +
                         token * params.q_rope_strides[0] + head * params.q_rope_strides[1];
      const uint32_t target = buffers_.queries() + panel_offset(row, chunk);
#pragma unroll
      for (int panel = 0; panel < kRopePanel; ++panel) {
        attention_device::copy_async(
            target + panel * kPanelBytes, latent + panel * kPanelColumns + chunk * 8, exists);
      }
      attention_device::copy_async(target + kRopePanel * kPanelBytes, rope + chunk * 8, exists);
    }
    arrive_after_copies(buffers_.queries_full());
  }

  // The panels of a group.
  template <int kGroup>
  static constexpr bool has_panel(int panel) {
    const bool left = kGroup == kLeft0 || kGroup == kLeft1;
    return panel == kRopePanel ? left : (panel < kHalfPanels) == left;
  }

  template <int kGroup>
  __device__ void load_group(const int32_t* slots, uint32_t parity) const {
    constexpr int kTile = kGroup == kLeft0 || kGroup == kRight0 ? 0 : 1;
    const uint32_t target = buffers_.tile(kTile);
    if constexpr (kFloat8) {
      expand_group<kGroup>(slots + kTile * kKeys, target, parity);
    } else {
      device::wait_for(buffers_.empty(kGroup), parity ^ 1);
      copy_group<kGroup>(slots + kTile * kKeys, target);
      arrive_after_copies(buffers_.full(kGroup));
    }
  }

  template <int kGroup>
  __device__ void copy_group(const int32_t* slots, uint32_t tile) const {
    const int chunk = thread_ % 8;
#pragma unroll
    for (int pass = 0; pass < kKeys / 16; ++pass) {
      const int row = pass * 16 + thread_ / 8;
      const int32_t slot = slots[row];
      const char* source = static_cast<const char*>(work_.params.cache) +
                           int64_t{max(slot, 0)} * (kWidth * 2) + chunk * 16;
      const uint32_t target = tile + panel_offset(row, chunk);
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        if (!has_panel<kGroup>(panel)) continue;
        attention_device::copy_async(target + panel * kPanelBytes, source + panel * 128, slot >= 0);
      }
    }
  }

  static __device__ uint4 load_codes(const char* source, bool exists) {
    return exists ? __ldg(reinterpret_cast<const uint4*>(source)) : uint4{0, 0, 0, 0};
  }

  // 16 codes to two chunks of a row. Lanes of other panels begin with the other chunk, so that a
  // quarter of a warp meets all banks.
  static __device__ void store_expanded(uint32_t panel, int row, int chunk, bool odd, uint4 codes) {
    uint32_t halves[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = i == 0 ? codes.x : i == 1 ? codes.y : i == 2 ? codes.z : codes.w;
      halves[i * 2] = attention_device::expand_to<gpu_bfloat16>(word & 0xffffu);
      halves[i * 2 + 1] = attention_device::expand_to<gpu_bfloat16>(word >> 16);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const bool high = odd != (n == 1);
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(
                       panel + panel_offset(row, chunk + (high ? 1 : 0))),
                   "r"(high ? halves[4] : halves[0]),
                   "r"(high ? halves[5] : halves[1]),
                   "r"(high ? halves[6] : halves[2]),
                   "r"(high ? halves[7] : halves[3])
                   : "memory");
    }
  }

  __device__ void load_rope(const int32_t* slots, uint4 (&codes)[kKeys / 32]) const {
    const char* cache = static_cast<const char*>(work_.params.cache);
#pragma unroll
    for (int pass = 0; pass < kKeys / 32; ++pass) {
      const int32_t slot = slots[pass * 32 + thread_ / 4];
      const char* source = cache + int64_t{max(slot, 0)} * kWidth + kRank + thread_ % 4 * 16;
      codes[pass] = load_codes(source, slot >= 0);
    }
  }

  // The codes are on their way while their place is waited for.
  template <int kGroup>
  __device__ void expand_group(const int32_t* slots, uint32_t tile, uint32_t parity) const {
    constexpr bool kHasLeft = has_panel<kGroup>(0), kHasRope = has_panel<kGroup>(kRopePanel);
    constexpr int kFirstByte = kHasLeft ? 0 : kRank / 2;
    constexpr int kPasses = kKeys / 8, kRopePasses = kKeys / 32;
    const char* cache = static_cast<const char*>(work_.params.cache);
    const int part = thread_ % 16, row = thread_ / 16;  // 16 bytes of 256
    uint4 codes[kPasses], rope_codes[kRopePasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int32_t slot = slots[pass * 8 + row];
      const char* source = cache + int64_t{max(slot, 0)} * kWidth + kFirstByte + part * 16;
      codes[pass] = load_codes(source, slot >= 0);
    }
    device::wait_for(buffers_.empty(kGroup), parity ^ 1);
    const uint32_t panel = tile + ((kHasLeft ? 0 : kHalfPanels) + part / 4) * kPanelBytes;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      // Here registers are free for the rest.
      if (kHasRope && pass == kPasses / 2) load_rope(slots, rope_codes);
      store_expanded(panel, pass * 8 + row, part % 4 * 2, part / 4 % 2 == 1, codes[pass]);
    }
    if constexpr (kHasRope) {
#pragma unroll
      for (int pass = 0; pass < kRopePasses; ++pass) {
        store_expanded(tile + kRopePanel * kPanelBytes,
                       pass * 32 + thread_ / 4,
                       thread_ % 4 * 2,
                       false,
                       rope_codes[pass]);
      }
    }
    device::fence_before_copies();
    device::arrive(buffers_.full(kGroup));
  }

  const Work& work_;
  const Buffers& buffers_;
  const int thread_;
  uint32_t queries_parity_ = 0;
  uint32_t parity0_ = 0;
  uint32_t parity1_ = 0;
  int slots_parity_ = 0;
};

}  // namespace atom::ops::mla_device
