// Inside latent attention for Hopper: the warpgroup that loads.
//
// Rows are gathered 16 bytes a thread, wherever they lie in the cache: by asynchronous copies, or
// from FP8 through registers, in which they become bfloat16.
#pragma once

#include "ops/device/copy_ahead.cuh"
#include "ops/mla_attention/sm90/items.cuh"
#include "ops/mla_attention/sm90/tile.cuh"

namespace atom::ops::mla_device {

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
      const int last = item.last_tile;
      int tile = item.first_tile;
      begin_slots(item, tile);
      load_queries(item);
      Codes codes;
      if constexpr (kFloat8) load_codes<kLeft0>(slots(0), codes);
      for (; tile < last; tile += 2) {
        find_slots(item, tile + 2);
        const bool has_second = tile + 1 < last;
        // Codes are asked for a group ahead.
        if (has_second) {
          load_group<kLeft0, kRight0>(0, codes);
          load_group<kRight0, kRight1>(0, codes);
          load_group<kRight1, kLeft1>(0, codes);
          load_group<kLeft1, kLeft0>(1, codes);
        } else {
          load_group<kLeft0, kRight0>(0, codes);
          load_group<kRight0, kLeft0>(1, codes);
        }
        parity0_ ^= 1;
        if (has_second) parity1_ ^= 1;
      }
    }
  }

 private:
  static constexpr int kPasses = kKeys / 8, kRopePasses = kKeys / 32;

  // Of a group: 16 codes each of 256 columns, and of the rotated part.
  struct Codes {
    uint4 latent[kFloat8 ? kPasses : 1];
    uint4 rope[kFloat8 ? kRopePasses : 1];
  };

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

  // The slots of the current pair, or of the one behind it, of each tile's keys.
  __device__ const int32_t* slots(int pairs_ahead) const {
    const int buffer = slots_buffer_ + pairs_ahead;
    return buffers_.slots(buffer < Shared::kSlotBuffers ? buffer : buffer - Shared::kSlotBuffers);
  }

  __device__ void put_slot(int pairs_ahead, int32_t slot) const {
    const_cast<int32_t*>(slots(pairs_ahead))[thread_] = slot;
  }

  // Those of the first pair are there, those of the second one on their way.
  __device__ void begin_slots(const Item& item, int tile) {
    slots_buffer_ = next_buffer();  // of the item before; others may still read it
    put_slot(1, find_slot(item, tile));
    next_slot_ = find_slot(item, tile + 2);
    attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
    slots_buffer_ = next_buffer();
    is_first_ = true;
  }

  // Makes those of the pair `tile` known, behind the current one.
  __device__ void find_slots(const Item& item, int tile) {
    if (!is_first_) slots_buffer_ = next_buffer();
    is_first_ = false;
    put_slot(1, next_slot_);
    next_slot_ = find_slot(item, tile + 2);
    attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
  }

  __device__ int next_buffer() const {
    return slots_buffer_ + 1 < Shared::kSlotBuffers ? slots_buffer_ + 1 : 0;
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
    device::arrive_after_copies(buffers_.queries_full());
  }

  static constexpr int tile_of(int group) {
    return group == kLeft0 || group == kRight0 ? 0 : 1;
  }

  // kNext: the group that comes then, of a pair `pairs_ahead`.
  template <int kGroup, int kNext>
  __device__ void load_group(int pairs_ahead, Codes& codes) const {
    constexpr int kTile = tile_of(kGroup);
    const uint32_t target = buffers_.tile(kTile);
    device::wait_for(buffers_.empty(kGroup), (kTile == 0 ? parity0_ : parity1_) ^ 1);
    if constexpr (kFloat8) {
      expand_group<kGroup, kNext>(target, slots(pairs_ahead) + tile_of(kNext) * kKeys, codes);
      device::arrive(buffers_.full(kGroup));
    } else {
      copy_group<kGroup>(slots(0) + kTile * kKeys, target);
      device::arrive_after_copies(buffers_.full(kGroup));
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

  // ---- FP8 -------------------------------------------------------------------------------------

  __device__ uint4 load_code(int32_t slot, int byte) const {
    const char* source =
        static_cast<const char*>(work_.params.cache) + int64_t{max(slot, 0)} * kWidth + byte;
    return slot >= 0 ? __ldg(reinterpret_cast<const uint4*>(source)) : uint4{0, 0, 0, 0};
  }
  template <int kGroup>
  __device__ uint4 load_latent(const int32_t* slots, int pass) const {
    constexpr int kFirstByte = has_panel<kGroup>(0) ? 0 : kRank / 2;
    return load_code(slots[pass * 8 + thread_ / 16], kFirstByte + thread_ % 16 * 16);
  }
  __device__ uint4 load_rope(const int32_t* slots, int pass) const {
    return load_code(slots[pass * 32 + thread_ / 4], kRank + thread_ % 4 * 16);
  }
  template <int kGroup>
  __device__ void load_codes(const int32_t* slots, Codes& codes) const {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      codes.latent[pass] = load_latent<kGroup>(slots, pass);
    if constexpr (has_panel<kGroup>(kRopePanel)) {
#pragma unroll
      for (int pass = 0; pass < kRopePasses; ++pass) codes.rope[pass] = load_rope(slots, pass);
    }
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

  // Codes that are stored make room for the next group's. No fence, which would wait for these to
  // come: who computes has one.
  template <int kGroup, int kNext>
  __device__ void expand_group(uint32_t tile, const int32_t* next, Codes& codes) const {
    const int part = thread_ % 16;  // 16 bytes of 256
    const uint32_t panel =
        tile + ((has_panel<kGroup>(0) ? 0 : kHalfPanels) + part / 4) * kPanelBytes;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      store_expanded(
          panel, pass * 8 + thread_ / 16, part % 4 * 2, part / 4 % 2 == 1, codes.latent[pass]);
      codes.latent[pass] = load_latent<kNext>(next, pass);
    }
#pragma unroll
    for (int pass = 0; pass < kRopePasses; ++pass) {
      if constexpr (has_panel<kGroup>(kRopePanel)) {
        store_expanded(tile + kRopePanel * kPanelBytes,
                       pass * 32 + thread_ / 4,
                       thread_ % 4 * 2,
                       false,
                       codes.rope[pass]);
      }
      if constexpr (has_panel<kNext>(kRopePanel)) codes.rope[pass] = load_rope(next, pass);
    }
  }

  const Work& work_;
  const Buffers& buffers_;
  const int thread_;
  uint32_t parity0_ = 0;
  uint32_t parity1_ = 0;
  uint32_t queries_parity_ = 0;
  int slots_buffer_ = 0;
  int32_t next_slot_ = -1;
  bool is_first_ = false;
};

}  // namespace atom::ops::mla_device
