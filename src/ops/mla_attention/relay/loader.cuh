// Inside latent attention for Hopper with a thread that relays: which rows the warpgroup that loads
// gathers, and its items' queries. Rows are gathered 16 bytes a thread, wherever they lie in the
// cache; those of the next pair of tiles are brought to the second-level cache meanwhile.
#pragma once

#include "ops/mla_attention/relay/item_reader.cuh"

namespace atom::ops::mla_device::relay {

// The barrier gets this thread's arrival when the copies that it has begun are there.
__device__ inline void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ inline void prefetch_bulk_to_l2(const void* source, int num_bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(num_bytes)
               : "memory");
}

template <bool kFloat8>
class Loader {
 public:
  // Threads that tell those that compute what is there.
  static constexpr int kNumLoaders = kFloat8 ? kWarpgroup : 1;

 protected:
  __device__ Loader(const Work& work, const Buffers& buffers)
      : work_(work), buffers_(buffers), thread_(threadIdx.x % kWarpgroup) {}

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
      relay_to(buffers_.queries_landed(), buffers_.queries_full(), queries_parity_);
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

  // Copies are ordinary writes to the matrix units: a fence stands between their end and their
  // use. One thread does that for all, since it takes longer than those that compute can wait.
  static constexpr int kRelay = kWarpgroup - 32;

  __device__ static void relay_to(uint32_t landed, uint32_t full, uint32_t parity) {
    device::wait_for(landed, parity);
    device::fence_before_copies();
    device::arrive(full);
  }

  const Work& work_;
  const Buffers& buffers_;
  const int thread_;
  uint32_t queries_parity_ = 0;
  uint32_t parity0_ = 0;
  uint32_t parity1_ = 0;
};

}  // namespace atom::ops::mla_device::relay
