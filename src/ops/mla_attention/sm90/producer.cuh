// Inside latent attention for Hopper: the warpgroup that loads.
//
// Rows are gathered 16 bytes a thread, wherever they lie in the cache: by asynchronous copies, or
// from FP8 through registers, in which they become bfloat16. The rows of the next pair of tiles are
// brought to the second-level cache meanwhile.
#pragma once

#include "ops/mla_attention/sm90/items.cuh"

namespace atom::ops::mla_device {

// The barrier gets this thread's arrival when the copies that it has begun are there.
__device__ inline void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ inline void prefetch_bulk_to_l2(const void* source, int num_bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(num_bytes)
               : "memory");
}

template <bool kFloat8>
class Producer {
 public:
  // Threads that tell those that compute what is there.
  static constexpr int kNumLoaders = kFloat8 ? kWarpgroup : 1;

  __device__ Producer(const Work& work, const Buffers& buffers)
      : work_(work), buffers_(buffers), thread_(threadIdx.x % kWarpgroup) {}

  __device__ void run(const Share& share) {
    ItemReader reader(work_, share, buffers_, 0, kProducerBarrier);
    const Item& item = reader.item();
    while (reader.next()) {
      if (item.first_tile == item.last_tile) continue;
      int32_t slot = find_slot(item, item.first_tile);
      int32_t next_slot = find_slot(item, item.first_tile + 2);
      load_queries(item);
      put_slots(0, slot);
      int parity = 0;
      for (int tile = item.first_tile; tile < item.last_tile; tile += 2) {
        // All have read the slots of the pair before.
        attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
        put_slots(parity ^ 1, next_slot);
        prefetch_row(next_slot);
        next_slot = find_slot(item, tile + 4);
        const bool has_second = tile + 1 < item.last_tile;
        if constexpr (kFloat8) {
          attention_device::named_barrier_wait<kWarpgroup>(kProducerBarrier);
          if (tile == item.first_tile) load_codes<kLeft0>(buffers_.slots(parity));
          expand_pair(buffers_.slots(parity), buffers_.slots(parity ^ 1), has_second);
        } else {
          copy_pair(buffers_.slots(parity), has_second);
        }
        parity0_ ^= 1;
        if (has_second) parity1_ ^= 1;
        parity ^= 1;
      }
    }
  }

 private:
  // Of this thread's key among those of a pair of tiles; -1: there is none.
  __device__ int32_t find_slot(const Item& item, int tile) const {
    const int key = tile * kKeys + thread_;
    if (key >= min(item.num_keys, item.last_tile * kKeys)) return -1;
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

  __device__ void put_slots(int parity, int32_t slot) const {
    buffers_.slots(parity)[thread_] = slot;
  }

  static constexpr int kRowBytes = kWidth * (kFloat8 ? 1 : 2);

  __device__ const char* row_at(int32_t slot) const {
    return static_cast<const char*>(work_.params.cache) + int64_t{max(slot, 0)} * kRowBytes;
  }

  __device__ void prefetch_row(int32_t slot) const {
    if (slot >= 0) prefetch_bulk_to_l2(row_at(slot), kRowBytes);
  }

  __device__ void load_queries(const Item& item) {
    device::wait_for(buffers_.queries_empty(), queries_parity_ ^ 1);
    if constexpr (kFloat8) {
      copy_queries<kWarpgroup>(item);
      device::commit_copies();
      device::wait_for_copies<0>();
      device::fence_before_copies();
      device::arrive(buffers_.queries_full());
    } else if (thread_ < kCopyThreads) {
      copy_queries<kCopyThreads>(item);
      arrive_after_copies(buffers_.queries_landed());
    } else if (thread_ == kRelay) {
      relay(buffers_.queries_landed(), buffers_.queries_full(), queries_parity_);
    }
    __syncwarp();
    queries_parity_ ^= 1;
  }

  template <int kNumThreads>
  __device__ void copy_queries(const Item& item) const {
    constexpr int kRowsAtOnce = kNumThreads / 8;
    const MlaAttentionArgs& params = work_.params;
    const int chunk = thread_ % 8;
#pragma unroll 2
    for (int row = thread_ / 8; row < kRows; row += kRowsAtOnce) {
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

  __device__ uint32_t parity_of(Group group) const {
    return tile_of(group) == 0 ? parity0_ : parity1_;
  }

  // ---- bfloat16 --------------------------------------------------------------------------------

  // Copies are ordinary writes to the matrix units: a fence stands between their end and their
  // use. One thread does that for all, since it takes longer than those that compute can wait.
  static constexpr int kRelay = kWarpgroup - 32;

  __device__ static void relay(uint32_t landed, uint32_t full, uint32_t parity) {
    device::wait_for(landed, parity);
    device::fence_before_copies();
    device::arrive(full);
  }

  template <Group kPart>
  __device__ void copy_group(const int32_t* slots) const {
    constexpr int kRowsAtOnce = kCopyThreads / 8, kPasses = kKeys / kRowsAtOnce;
    int32_t own_slots[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      own_slots[pass] = slots[tile_of(kPart) * kKeys + pass * kRowsAtOnce + thread_ / 8];
    }
    device::wait_for(buffers_.empty(kPart), parity_of(kPart) ^ 1);
    const int chunk = thread_ % 8, first_row = thread_ / 8;
    const uint32_t target = buffers_.tile(tile_of(kPart)) + panel_offset(first_row, chunk);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const char* source = row_at(own_slots[pass]) + chunk * 16;
#pragma unroll
      for (int i = 0; i < num_panels(kPart); ++i) {
        const int panel = panel_of(kPart, i);
        attention_device::copy_async(target + panel * kPanelBytes + pass * kRowsAtOnce * 128,
                                     source + panel * 128,
                                     own_slots[pass] >= 0);
      }
    }
    arrive_after_copies(buffers_.landed(kPart));
  }

  template <Group kPart>
  __device__ void relay_group() const {
    relay(buffers_.landed(kPart), buffers_.full(kPart), parity_of(kPart));
  }

  __device__ void copy_pair(const int32_t* slots, bool has_second) const {
    if (thread_ < kCopyThreads) {
      copy_group<kLeft0>(slots);
      if (has_second) copy_group<kRight1>(slots);
      copy_group<kRight0>(slots);
      if (has_second) copy_group<kLeft1>(slots);
    } else if (thread_ == kRelay) {
      relay_group<kLeft0>();
      if (has_second) relay_group<kRight1>();
      relay_group<kRight0>();
      if (has_second) relay_group<kLeft1>();
    }
    __syncwarp();
  }

  // ---- FP8 -------------------------------------------------------------------------------------

  static constexpr int kCodePasses = kKeys / 32;  // of a panel: a thread has 16 codes of each

  template <Group kPart>
  __device__ void load_codes(const int32_t* slots) {
#pragma unroll
    for (int pass = 0; pass < kCodePasses; ++pass) {
      const int32_t slot = slots[tile_of(kPart) * kKeys + pass * 32 + thread_ / 4];
      const char* source = row_at(slot) + thread_ % 4 * 16;
#pragma unroll
      for (int i = 0; i < num_panels(kPart); ++i) {
        codes_[i][pass] =
            slot >= 0
                ? __ldg(reinterpret_cast<const uint4*>(source + panel_of(kPart, i) * kPanelColumns))
                : uint4{0, 0, 0, 0};
      }
    }
  }

  static __device__ void store_chunk(uint32_t address, uint32_t low, uint32_t high) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(attention_device::expand_to<gpu_bfloat16>(low & 0xffffu)),
                 "r"(attention_device::expand_to<gpu_bfloat16>(low >> 16)),
                 "r"(attention_device::expand_to<gpu_bfloat16>(high & 0xffffu)),
                 "r"(attention_device::expand_to<gpu_bfloat16>(high >> 16))
                 : "memory");
  }

  // Stores a group's codes, expanded, and has those of the next one on their way. A place is free
  // for a panel's codes once they are stored.
  template <Group kPart, Group kNext>
  __device__ void expand_group(const int32_t* next_slots) {
    device::wait_for(buffers_.empty(kPart), parity_of(kPart) ^ 1);
#pragma unroll
    for (int i = 0; i < num_panels(kPart); ++i) {
      const uint32_t panel = buffers_.tile(tile_of(kPart)) + panel_of(kPart, i) * kPanelBytes;
#pragma unroll
      for (int pass = 0; pass < kCodePasses; ++pass) {
        const int row = pass * 32 + thread_ / 4, chunk = thread_ % 4 * 2;
        const uint4& codes = codes_[i][pass];
        store_chunk(panel + panel_offset(row, chunk), codes.x, codes.y);
        store_chunk(panel + panel_offset(row, chunk + 1), codes.z, codes.w);
      }
    }
    load_codes<kNext>(next_slots);
    device::fence_before_copies();
    device::arrive(buffers_.full(kPart));
  }

  __device__ void expand_pair(const int32_t* slots, const int32_t* next_slots, bool has_second) {
    if (has_second) {
      expand_group<kLeft0, kRight1>(slots);
      expand_group<kRight1, kRight0>(slots);
      expand_group<kRight0, kLeft1>(slots);
      expand_group<kLeft1, kLeft0>(next_slots);
    } else {
      expand_group<kLeft0, kRight0>(slots);
      expand_group<kRight0, kLeft0>(next_slots);
    }
  }

  const Work& work_;
  const Buffers& buffers_;
  const int thread_;
  uint32_t queries_parity_ = 0;
  uint32_t parity0_ = 0;
  uint32_t parity1_ = 0;
  uint4 codes_[kFloat8 ? kHalfPanels + 1 : 1][kCodePasses];
};

}  // namespace atom::ops::mla_device
