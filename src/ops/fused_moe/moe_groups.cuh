// Inside fused_moe on a GPU: choices sorted by expert, stably, by one block or several. Every warp
// counts a run of the choices for itself, so that their order does not depend on who is first.
#pragma once

#include "ops/fused_moe/moe_device.cuh"

namespace atom::ops::device {

// sums[0] = 0, sums[i + 1] += sums[i] for i < n, by one warp.
__device__ inline void add_up(int* sums, int n) {
  const int lane = threadIdx.x % kWarpSize;
  int total = 0;
  for (int first = 0; first < n; first += kWarpSize) {
    const int i = first + lane;
    int value = i < n ? sums[i + 1] : 0;
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const int other = gpu_shuffle(value, max(lane - distance, 0));
      if (lane >= distance) value += other;
    }
    if (i < n) sums[i + 1] = total + value;
    total += gpu_shuffle(value, kWarpSize - 1);
  }
  if (lane == 0) sums[0] = 0;
}

// The block of several that sort together, and how many of an expert's choices all of them have and
// those before this one: at(expert, own) after finish(), in which each has said how many it has.
struct OneSortingBlock {
  struct Counts {
    uint32_t all, before;
  };
  __device__ int rank() const { return 0; }
  __device__ int count() const { return 1; }
  __device__ void tell(int, uint32_t) const {}
  __device__ void finish() const {}
  __device__ Counts at(int, uint32_t own) const { return {own, 0}; }
};

// kWarps warps, all threads of a block. A lane loads the experts of kAtOnce choices at a time.
template <int kWarps, int kAtOnce>
class ChoiceSorter {
 public:
  // uint32 of shared memory.
  static __host__ __device__ int counts_size(int num_experts) { return kWarps * num_experts; }

  // begins[e] = the rows before expert e, for e <= num_experts. `counts` is shared memory.
  __device__ ChoiceSorter(const FusedMoeGpuCall& call, uint32_t* counts, int* begins)
      : ChoiceSorter(call, counts, begins, OneSortingBlock()) {}

  // The same by all of `blocks`, in each of which rows are those of its own choices.
  template <typename Blocks>
  __device__ ChoiceSorter(const FusedMoeGpuCall& call,
                          uint32_t* counts,
                          int* begins,
                          const Blocks& blocks)
      : call_(call), counts_(counts + warp() * call.num_experts), num_keys_(call.num_experts + 1) {
    const int num_experts = call.num_experts;
    const int num_choices = call.num_tokens * call.top_k;
    const int num_lanes = blocks.count() * kWarps * kWarpSize;
    const int per_warp = (num_choices + num_lanes - 1) / num_lanes * kWarpSize;
    begin_ = min(num_choices, (blocks.rank() * kWarps + warp()) * per_warp);
    end_ = min(num_choices, begin_ + per_warp);
    load_places(begin_);
    for (int e = lane(); e < num_experts; e += kWarpSize) counts_[e] = 0;
    __syncwarp();
    visit([](int, int, uint32_t) {});
    __syncthreads();
    // Of each expert the counts become where each warp's rows begin among them.
    for (int e = threadIdx.x; e < num_experts; e += kWarps * kWarpSize) {
      uint32_t sum = 0;
      for (int w = 0; w < kWarps; ++w) {
        uint32_t& count = counts[w * num_experts + e];
        const uint32_t own = count;
        count = sum;
        sum += own;
      }
      begins[e + 1] = static_cast<int>(sum);
      blocks.tell(e, sum);
    }
    blocks.finish();
    for (int e = threadIdx.x; e < num_experts; e += kWarps * kWarpSize) {
      const auto [all, before] = blocks.at(e, begins[e + 1]);
      begins[e + 1] = static_cast<int>(all);
      for (int w = 0; before > 0 && w < kWarps; ++w) counts[w * num_experts + e] += before;
    }
    __syncthreads();
    if (warp() == 0) add_up(begins, num_experts);
    __syncthreads();
    for (int e = lane(); e < num_experts; e += kWarpSize) counts_[e] += begins[e];
    __syncwarp();
  }

  // take(row, choice) for every choice whose expert is here, by one thread each.
  template <typename Take>
  __device__ void for_rows(Take&& take) {
    visit([&](int choice, int, uint32_t row) { take(static_cast<int>(row), choice); });
  }

 private:
  static __device__ int lane() { return threadIdx.x % kWarpSize; }
  static __device__ int warp() { return threadIdx.x / kWarpSize; }

  // take(choice, expert, the expert's count so far), and counts.
  template <typename Take>
  __device__ void visit(Take&& take) {
    for (int first = begin_; first < end_; first += kAtOnce * kWarpSize) {
      if (first != loaded_) load_places(first);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int choice = first + i * kWarpSize + lane();
        if (choice - lane() >= end_) break;
        const int place = places_[i];
        const uint32_t peers = lanes_with(place + 1, num_keys_);
        const uint32_t before = peers & ((1u << lane()) - 1);
        const uint32_t count = place < 0 ? 0 : counts_[place];
        __syncwarp();
        if (place >= 0) {
          take(choice, place, count + __popc(before));
          if (before == 0) counts_[place] = count + __popc(peers);
        }
        __syncwarp();
      }
    }
  }

  // Of choices from `first` on.
  __device__ void load_places(int first) {
    loaded_ = first;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int choice = first + i * kWarpSize + lane();
      places_[i] = choice < end_ ? place_of(call_, choice) : -1;
    }
  }

  const FusedMoeGpuCall& call_;
  uint32_t* const counts_;  // of this warp
  const int num_keys_;
  int begin_, end_;  // the warp's choices
  int loaded_;       // the first of those whose places this is
  int places_[kAtOnce];
};

}  // namespace atom::ops::device
