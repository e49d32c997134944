// Choices of many tokens sorted by expert on Hopper, by the blocks of a cluster.
#include "ops/device/cluster.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_groups.cuh"
#include "ops/fused_moe/moe_sort.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kBlocks = 8, kWarps = 16;
constexpr int kAtOnce = 16;  // choices of a lane: all of them, up to the most that there are

// Each block's counts are in its shared memory, where the others read them.
class SortingCluster {
 public:
  __device__ explicit SortingCluster(uint32_t* counts)
      : counts_(counts),
        address_(static_cast<uint32_t>(__cvta_generic_to_shared(counts))),
        rank_(cluster_rank()) {}

  __device__ int rank() const { return rank_; }
  __device__ int count() const { return kBlocks; }
  __device__ void tell(int expert, uint32_t own) const { counts_[expert] = own; }
  __device__ void finish() const { synchronize_cluster(); }
  __device__ OneSortingBlock::Counts at(int expert, uint32_t) const {
    uint32_t counts[kBlocks];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) counts[block] = count_of(block, expert);
    OneSortingBlock::Counts sums = {0, 0};
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      sums.all += counts[block];
      if (block < rank_) sums.before += counts[block];
    }
    return sums;
  }

 private:
  __device__ uint32_t count_of(int block, int expert) const {
    return load_uint32_in_cluster(address_in(block, address_ + expert * int{sizeof(uint32_t)}));
  }

  uint32_t* const counts_;
  const uint32_t address_;
  const int rank_;
};

__global__ void __launch_bounds__(kWarps* kWarpSize, 1)
    sort_many_choices(const __grid_constant__ FusedMoeGpuCall call,
                      FusedMoeGpuScratch scratch,
                      int tile_rows) {
  extern __shared__ uint32_t counts[];
  __shared__ int begins[kMaxGpuExperts + 1], tile_begins[kMaxGpuExperts + 1];
  __shared__ uint32_t own[kMaxGpuExperts];
  allow_next_grid();
  wait_for_previous_grid();
  const SortingCluster blocks(own);
  ChoiceSorter<kWarps, kAtOnce> sorter(call, counts, begins, blocks);
  sorter.for_rows([&](int row, int choice) {
    scratch.choices[row] = choice;
    if (scratch.rows != nullptr) scratch.rows[choice] = row;
  });
  __syncwarp();
  // Nobody reads this block's counts any more.
  synchronize_cluster();
  if (blocks.rank() != 0) return;
  for (int e = threadIdx.x; e < call.num_experts; e += kWarps * kWarpSize) {
    tile_begins[e + 1] = (begins[e + 1] - begins[e] + tile_rows - 1) / tile_rows;
  }
  __syncthreads();
  if (threadIdx.x < kWarpSize) add_up(tile_begins, call.num_experts);
  __syncthreads();
  for (int e = threadIdx.x; e <= call.num_experts; e += kWarps * kWarpSize) {
    scratch.row_begins[e] = begins[e];
    scratch.tile_begins[e] = tile_begins[e];
  }
}

}  // namespace

gpuError_t sort_many_moe_choices(const FusedMoeGpuCall& call,
                                 const FusedMoeGpuScratch& scratch,
                                 int tile_rows,
                                 gpuStream_t stream) {
  const size_t counts_size =
      ChoiceSorter<kWarps, kAtOnce>::counts_size(call.num_experts) * sizeof(uint32_t);
  return launch_clusters(sort_many_choices,
                         kBlocks,
                         kBlocks,
                         kWarps * kWarpSize,
                         counts_size,
                         stream,
                         true,
                         call,
                         scratch,
                         tile_rows);
}

}  // namespace atom::ops
