// Inside latent attention for Hopper: the warpgroup that loads.
//
// Rows are gathered 16 bytes a thread, wherever they lie in the cache: by asynchronous copies, or
// from FP8 through registers, in which they become float16.
#pragma once

#include "ops/device/copy_ahead.cuh"
#include "ops/mla_attention/sm90/expander.cuh"
#include "ops/mla_attention/sm90/items.cuh"
#include "ops/mla_attention/sm90/queries.cuh"
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
      begin_slots(item, item.first_tile);
      if constexpr (kFloat8) {
        expand_item(item);
      } else {
        copy_item(item);
      }
    }
  }

 private:
  static __device__ constexpr int tile_of(int group) {
    return group == kLeft0 || group == kRight0 ? 0 : 1;
  }

  __device__ void copy_item(const Item& item) {
    copy_queries(item);
    device::arrive_after_copies(buffers_.queries_full());
    for (int tile = item.first_tile; tile < item.last_tile; tile += 2) {
      find_slots(item, tile + 2);
      copy_group<kLeft0>();
      copy_group<kRight0>();
      if (tile + 1 < item.last_tile) {
        copy_group<kRight1>();
        copy_group<kLeft1>();
        parity1_ ^= 1;
      }
      parity0_ ^= 1;
    }
  }

  // Codes are asked for a tile ahead. One loop for both tiles of a pair: their code unrolled is not
  // faster.
  __device__ void expand_item(const Item& item) {
    Expander expander(work_.params.cache, thread_);
    expander.load_first(0, slots(0));
    copy_queries(item);
    scale_queries(buffers_, thread_);
    device::arrive(buffers_.queries_full());
    expander.load_second(0, slots(0));
#pragma unroll 1
    for (int tile = item.first_tile; tile < item.last_tile; ++tile) {
      const int own = (tile - item.first_tile) & 1, next = own ^ 1;
      if (own == 0) find_slots(item, tile + 2);
      uint32_t& parity = own == 0 ? parity0_ : parity1_;
      const uint32_t target = buffers_.tile(own);
      const int32_t* next_slots =
          slots(own) + next * kKeys;  // behind tile 1 those of the next pair
      device::wait_for(buffers_.empty(own * 2), parity ^ 1);
      expander.expand_first(own, target);
      device::arrive(buffers_.full(own * 2));
      expander.load_first(next, next_slots);
      device::wait_for(buffers_.empty(own * 2 + 1), parity ^ 1);
      expander.expand_second(own, target);
      device::arrive(buffers_.full(own * 2 + 1));
      expander.load_second(next, next_slots);
      parity ^= 1;
    }
  }

  // Where this thread's key among those of a pair of tiles is, as the block table says.
  struct Place {
    int32_t block;
    int32_t offset;  // in it; -1: there is no key
  };

  __device__ Place find_place(const Item& item, int tile) const {
    const int key = tile * kKeys + thread_;
    if (key >= item.num_keys || tile >= item.last_tile) return {0, -1};
    const MlaAttentionArgs& params = work_.params;
    int64_t position = key;
    if (work_.has_indices()) {
      position = params.indices[item.first_token * params.top_k + key];
      if (position < 0) return {0, -1};
      if (position > item.first_position) gpu_trap();
    }
    const auto block_size = static_cast<uint32_t>(params.batch.block_size);
    const auto at = static_cast<uint32_t>(position);
    return {item.block_table[at / block_size], static_cast<int32_t>(at % block_size)};
  }

  // -1: there is no key.
  __device__ int32_t slot_of(const Place& place) const {
    if (place.offset < 0) return -1;
    const PagedBatchArgs& batch = work_.params.batch;
    if (place.block < 0 || place.block >= batch.num_blocks) gpu_trap();
    return place.block * static_cast<int32_t>(batch.block_size) + place.offset;
  }

  // The slots of the current pair, or of the one behind it, of each tile's keys.
  __device__ const int32_t* slots(int pairs_ahead) const {
    const int buffer = slots_buffer_ + pairs_ahead;
    return buffers_.slots(buffer < Shared::kSlotBuffers ? buffer : buffer - Shared::kSlotBuffers);
  }

  // Makes the slot known, behind the current pair.
  __device__ void put_slot(const Place& place) const {
    const int32_t slot = slot_of(place);
    const_cast<int32_t*>(slots(1))[thread_] = slot;
    if constexpr (kFloat8) ask_for_row(slot);
  }

  // In the second-level cache: registers have room for a tile of codes, and more of them have to be
  // on their way from memory.
  __device__ void ask_for_row(int32_t slot) const {
    if (slot < 0) return;
    const char* row = static_cast<const char*>(work_.params.cache) + int64_t{slot} * kWidth;
#pragma unroll
    for (int byte = 0; byte < kWidth; byte += 128) device::prefetch_to_l2(row + byte);
  }

  // Those of the first pair are there, those of the second one on their way.
  __device__ void begin_slots(const Item& item, int tile) {
    slots_buffer_ = next_buffer();  // of the item before; others may still read it
    put_slot(find_place(item, tile));
    next_place_ = find_place(item, tile + 2);
    attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
    slots_buffer_ = next_buffer();
    is_first_ = true;
  }

  // Makes those of the pair `tile` known, behind the current one.
  __device__ void find_slots(const Item& item, int tile) {
    if (!is_first_) slots_buffer_ = next_buffer();
    is_first_ = false;
    put_slot(next_place_);
    next_place_ = find_place(item, tile + 2);
    attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
  }

  __device__ int next_buffer() const {
    return slots_buffer_ + 1 < Shared::kSlotBuffers ? slots_buffer_ + 1 : 0;
  }

  __device__ void copy_queries(const Item& item) {
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
  }

  template <int kGroup>
  __device__ void copy_group() const {
    constexpr int kTile = tile_of(kGroup);
    device::wait_for(buffers_.empty(kGroup), (kTile == 0 ? parity0_ : parity1_) ^ 1);
    const int32_t* rows = slots(0) + kTile * kKeys;
    const uint32_t tile = buffers_.tile(kTile);
    const int chunk = thread_ % 8;
#pragma unroll
    for (int pass = 0; pass < kKeys / 16; ++pass) {
      const int row = pass * 16 + thread_ / 8;
      const int32_t slot = rows[row];
      const char* source = static_cast<const char*>(work_.params.cache) +
                           int64_t{max(slot, 0)} * (kWidth * 2) + chunk * 16;
      const uint32_t target = tile + panel_offset(row, chunk);
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        if (!has_panel<kGroup>(panel)) continue;
        attention_device::copy_async(target + panel * kPanelBytes, source + panel * 128, slot >= 0);
      }
    }
    device::arrive_after_copies(buffers_.full(kGroup));
  }

  const Work& work_;
  const Buffers& buffers_;
  const int thread_;
  uint32_t parity0_ = 0;
  uint32_t parity1_ = 0;
  uint32_t queries_parity_ = 0;
  int slots_buffer_ = 0;
  Place next_place_ = {0, -1};
  bool is_first_ = false;
};

}  // namespace atom::ops::mla_device
