// Inside the indexer for Hopper: the best of a row's scores.
//
// A cluster of blocks has a row in its shared memory, as integers that ascend as the scores do, and
// finds the last one selected by its bits, 11 at a time from the highest: how many of those that
// share the bits found so far have which next ones. Then each block writes its own in order. Of
// equal scores the first ones are selected.
#pragma once

#include "ops/device/matrix_units.cuh"
#include "ops/device/paged_row.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/indexer_top_k/indexer_top_k_kernels.h"

namespace atom::ops::indexer_device {

constexpr int kSelectThreads = 1024;
constexpr int kSelectWarps = kSelectThreads / 32;
constexpr int kMaxCluster = 8;
constexpr int kDigits = 2048;
constexpr int kPasses = 3;
// Of the first pass, in which many scores have the same bits: by lane.
constexpr int kCopies = 8;

struct SelectMemory {
  uint32_t copies[kDigits * kCopies];
  uint32_t counts[kPasses][kDigits];  // of the block
  uint32_t sums[kSelectWarps];
  uint32_t digit;   // of the last one selected
  uint32_t before;  // how many with larger digits
  uint32_t above;   // in this block: larger than the last one selected ...
  uint32_t equal;   // ... and equal to it
  uint32_t warp_above[kSelectWarps];
  uint32_t warp_equal[kSelectWarps];
};

struct SelectArgs {
  IndexerTopKArgs params;
  int first_token;
  int most_keys;  // of a block
  const float* scores;
  int64_t score_stride;
};

// -0 is 0, and NaN is less than all else.
__device__ inline uint32_t rank_of_score(float score) {
  if (score != score) return 0;
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// What block `rank` of the cluster has in the place of `value`.
__device__ inline uint32_t read_of(int rank, const uint32_t& value) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(&value));
  return device::load_uint32_in_cluster(device::address_in(rank, address));
}

// Inclusive, over the block; ends with a barrier before `sums` may be used again.
__device__ inline uint32_t sum_to(uint32_t value, uint32_t* sums) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  uint32_t before = lane < warp ? sums[lane] : 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    before += __shfl_xor_sync(0xffffffffu, before, distance);
  }
  __syncthreads();
  return before + sum;
}

// From the counts of all blocks: the digit of the `wanted`th largest, and how many are before it.
__device__ inline void find_digit(SelectMemory& memory,
                                  const uint32_t* counts,
                                  int num_blocks,
                                  uint32_t wanted) {
  const int high = kDigits - 1 - static_cast<int>(threadIdx.x) * 2;
  uint32_t of_high = 0, of_low = 0;
  for (int rank = 0; rank < num_blocks; ++rank) {
    of_high += read_of(rank, counts[high]);
    of_low += read_of(rank, counts[high - 1]);
  }
  const uint32_t to_low = sum_to(of_high + of_low, memory.sums);
  const uint32_t to_high = to_low - of_low, before = to_high - of_high;
  if (before < wanted && wanted <= to_low) {
    const bool is_high = wanted <= to_high;
    memory.digit = is_high ? high : high - 1;
    memory.before = is_high ? before : to_high;
  }
  __syncthreads();
}

struct Threshold {
  uint32_t rank;       // of the last one selected
  uint32_t num_equal;  // of that rank that are
};

__device__ inline Threshold find_threshold(
    SelectMemory& memory, const uint32_t* ranks, int count, int num_blocks, uint32_t top_k) {
  constexpr int kShifts[kPasses] = {21, 10, 0};
  Threshold found = {0, top_k};
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    uint32_t* counts = memory.counts[pass];
    const int shift = kShifts[pass];
    const int known = pass == 0 ? 0 : kShifts[pass - 1];  // the bits from here on are found
    const uint32_t mask = pass == 2 ? 1023 : kDigits - 1;
    if (pass > 0) {
      for (int i = threadIdx.x; i < count; i += kSelectThreads) {
        const uint32_t rank = ranks[i];
        if (rank >> known == found.rank >> known) atomicAdd(&counts[rank >> shift & mask], 1u);
      }
    } else {
      for (int i = threadIdx.x; i < kDigits; i += kSelectThreads) {
        uint32_t sum = 0;
        for (int copy = 0; copy < kCopies; ++copy) {
          sum += memory.copies[i * kCopies + (copy + i) % kCopies];
        }
        counts[i] = sum;
      }
    }
    device::synchronize_cluster();
    find_digit(memory, counts, num_blocks, found.num_equal);
    found.rank |= memory.digit << shift;
    found.num_equal -= memory.before;
    __syncthreads();
  }
  return found;
}

__device__ inline void clear_counts(SelectMemory& memory) {
  for (int i = threadIdx.x; i < kDigits * kCopies; i += kSelectThreads) memory.copies[i] = 0;
  for (int i = threadIdx.x; i < kPasses * kDigits; i += kSelectThreads) {
    memory.counts[i / kDigits][i % kDigits] = 0;
  }
  __syncthreads();
}

// Scores [begin, begin + count) of the row as ranks, and their highest digits counted.
__device__ inline void load_ranks(SelectMemory& memory,
                                  const float* scores,
                                  int count,
                                  uint32_t* ranks) {
  const int copy = threadIdx.x % kCopies;
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += kSelectThreads) {
    const uint32_t rank = rank_of_score(scores[i]);
    ranks[i] = rank;
    atomicAdd(&memory.copies[(rank >> 21) * kCopies + copy], 1u);
  }
  __syncthreads();
}

// A warp's stretch of the block's scores, 32 at a time.
template <typename Body>
__device__ inline void for_stretch(int count, Body&& body) {
  const int per_warp = (count + kSelectThreads - 1) / kSelectThreads * 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int end = min(count, (warp + 1) * per_warp);
  for (int first = warp * per_warp; first < end; first += 32)
    body(first + lane, first + lane < end);
}

__device__ inline void count_selected(SelectMemory& memory,
                                      const uint32_t* ranks,
                                      int count,
                                      const Threshold& threshold) {
  uint32_t above = 0, equal = 0;
  for_stretch(count, [&](int i, bool exists) {
    const uint32_t rank = exists ? ranks[i] : 0;
    above += __popc(__ballot_sync(0xffffffffu, exists && rank > threshold.rank));
    equal += __popc(__ballot_sync(0xffffffffu, exists && rank == threshold.rank));
  });
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) {
    memory.warp_above[warp] = above;
    memory.warp_equal[warp] = equal;
  }
  __syncthreads();
  if (warp == 0) {
    uint32_t all_above = memory.warp_above[lane], all_equal = memory.warp_equal[lane];
    const uint32_t own_above = all_above, own_equal = all_equal;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const uint32_t other_above = __shfl_up_sync(0xffffffffu, all_above, distance);
      const uint32_t other_equal = __shfl_up_sync(0xffffffffu, all_equal, distance);
      if (lane >= distance) {
        all_above += other_above;
        all_equal += other_equal;
      }
    }
    memory.warp_above[lane] = all_above - own_above;
    memory.warp_equal[lane] = all_equal - own_equal;
    if (lane == 31) {
      memory.above = all_above;
      memory.equal = all_equal;
    }
  }
}

// `begin`: of the block's scores in the row.
__device__ inline void write_selected(const SelectMemory& memory,
                                      const uint32_t* ranks,
                                      int count,
                                      int begin,
                                      int block,
                                      const Threshold& threshold,
                                      int32_t* indices) {
  uint32_t above = 0, equal = 0;  // before this warp's
  for (int rank = 0; rank < block; ++rank) {
    above += read_of(rank, memory.above);
    equal += read_of(rank, memory.equal);
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  above += memory.warp_above[warp];
  equal += memory.warp_equal[warp];
  const uint32_t lower_lanes = (1u << lane) - 1;
  for_stretch(count, [&](int i, bool exists) {
    const uint32_t rank = exists ? ranks[i] : 0;
    const bool is_above = exists && rank > threshold.rank;
    const bool is_equal = exists && rank == threshold.rank;
    const uint32_t all_above = __ballot_sync(0xffffffffu, is_above);
    const uint32_t all_equal = __ballot_sync(0xffffffffu, is_equal);
    const uint32_t above_before = above + __popc(all_above & lower_lanes);
    const uint32_t equal_before = equal + __popc(all_equal & lower_lanes);
    if (is_above || (is_equal && equal_before < threshold.num_equal)) {
      indices[above_before + min(equal_before, threshold.num_equal)] = begin + i;
    }
    above += __popc(all_above);
    equal += __popc(all_equal);
  });
}

// A cluster per token.
__global__ void __launch_bounds__(kSelectThreads, 1)
    indexer_select_kernel(const __grid_constant__ SelectArgs args, int num_blocks) {
  extern __shared__ __align__(16) char shared[];
  SelectMemory& memory = *reinterpret_cast<SelectMemory*>(shared);
  uint32_t* ranks = reinterpret_cast<uint32_t*>(shared + sizeof(SelectMemory));
  clear_counts(memory);
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const IndexerTopKArgs& params = args.params;
  const int row_index = blockIdx.x / num_blocks, block = blockIdx.x % num_blocks;
  const int64_t token = args.first_token + row_index;
  const int top_k = static_cast<int>(params.top_k);
  const PagedRow row = device::find_row(params.batch, token);
  const int num_keys = static_cast<int>(row.position + 1);
  int32_t* indices = params.indices + token * top_k;
  if (num_keys <= top_k) {
    if (block > 0) return;
    for (int i = threadIdx.x; i < top_k; i += kSelectThreads) indices[i] = i < num_keys ? i : -1;
    return;
  }
  const int per_block = (num_keys + num_blocks - 1) / num_blocks;
  const int begin = min(num_keys, block * per_block);
  const int count = min(num_keys - begin, per_block);
  if (count > args.most_keys) gpu_trap();
  load_ranks(memory, args.scores + row_index * args.score_stride + begin, count, ranks);
  const Threshold threshold = find_threshold(memory, ranks, count, num_blocks, top_k);
  count_selected(memory, ranks, count, threshold);
  device::synchronize_cluster();
  write_selected(memory, ranks, count, begin, block, threshold, indices);
  device::synchronize_cluster();  // the others have read what is here
}

}  // namespace atom::ops::indexer_device
