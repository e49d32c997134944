// Inside sparse_attention's products: a warp's selected keys, looked up ahead of their copies.
#pragma once

#include "ops/attention/decode/tile.cuh"
#include "ops/sparse_attention/sparse_attention_kernels.h"

namespace atom::ops::sparse_device {

using attention_device::kAllLanes;

constexpr int kUnitKeys = 32;  // that are looked up at once: a lane each

// What device::find_row() finds, by all lanes of a warp, which read 32 starts at a time.
__device__ inline PagedRow find_row_by_warp(const PagedBatchArgs& args, int64_t token) {
  const int lane = threadIdx.x & 31;
  int64_t sequence = 0, size = args.num_sequences, step;
  do {
    step = (size + 31) / 32;
    const int64_t i = lane * step;
    const bool begins = i < size && args.query_start[sequence + i] <= token;
    const int64_t before = (__popc(__ballot_sync(kAllLanes, begins)) - 1) * step;
    if (before < 0) return {nullptr, -1};
    sequence += before;
    size = min(step, size - before);
  } while (step > 1);
  const int64_t end = args.query_start[sequence + 1];
  if (token >= end) return {nullptr, -1};
  return {args.block_tables + sequence * args.block_table_stride,
          max(args.seq_lens[sequence] - end + token, int64_t{-1})};
}

// Units of 32 keys, `unit_step` apart. The positions of the second unit ahead and the blocks of the
// next one are read while a unit is copied.
class SelectedKeys {
 public:
  __device__ SelectedKeys(const SparseAttentionArgs& args,
                          const PagedRow& row,
                          int64_t token,
                          int first_unit,
                          int unit_step)
      : batch_(args.batch),
        row_(row),
        indices_(args.indices + token * args.top_k),
        top_k_(static_cast<int>(args.top_k)),
        unit_step_(unit_step * kUnitKeys),
        ahead_(first_unit * kUnitKeys + static_cast<int>(threadIdx.x & 31)) {
    const int position = read_position();
    position_ = read_position();
    look_up(position);
  }

  // To the next unit. Returns how many keys it has; behind one with fewer than 32 there are none.
  __device__ int advance() {
    slot_ = -1;
    if (offset_ >= 0) {
      if (block_ < 0 || block_ >= batch_.num_blocks) gpu_trap();
      slot_ = block_ * static_cast<int>(batch_.block_size) + offset_;
    }
    look_up(position_);
    position_ = read_position();
    const uint32_t missing = __ballot_sync(kAllLanes, slot_ < 0);
    return missing == 0 ? kUnitKeys : __ffs(missing) - 1;
  }

  // Where key i of the unit is in the cache, or -1.
  __device__ int slot(int i) const { return __shfl_sync(kAllLanes, slot_, i); }

 private:
  __device__ int read_position() {
    const int position = ahead_ < top_k_ ? indices_[ahead_] : -1;
    ahead_ += unit_step_;
    return position;
  }

  // The block is looked at a unit later, so that nothing waits for it.
  __device__ void look_up(int position) {
    if (position > row_.position || position < -1) gpu_trap();
    offset_ = -1;
    if (position < 0) return;
    const uint32_t size = static_cast<uint32_t>(batch_.block_size);
    const uint32_t block = static_cast<uint32_t>(position) / size;
    block_ = row_.block_table[block];
    offset_ = position - static_cast<int>(block * size);
  }

  const PagedBatchArgs& batch_;
  const PagedRow row_;
  const int32_t* const indices_;
  const int top_k_;
  const int unit_step_;  // in keys
  int ahead_;            // this lane's place in the unit whose position is read next
  int position_;         // in the second unit ahead
  int block_ = 0;        // of the next unit
  int offset_ = -1;      // in that block
  int slot_ = -1;
};

}  // namespace atom::ops::sparse_device
