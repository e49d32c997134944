// Selections from one row of logits by one block: the token at a rank, or at a share of the mass,
// by radix over the bits of the logits, in integers and so the same every time.
#pragma once

#include "ops/device/reductions.cuh"
#include "sampling/row_math.cuh"
#include "sampling/sample_rows.h"

namespace atom::device {

using ops::device::kWarpSize;

constexpr int kRowThreads = 1024;
constexpr int kNumBins = 256;
constexpr float kInfinity = __builtin_inff();
constexpr float kLowestLogit = -3.402823466e+38f;

// Counts or masses per bin. A column per lane, so that a warp never meets itself.
struct SelectScratch {
  unsigned long long bin[kNumBins][kWarpSize];
  unsigned long long total[kNumBins];
  unsigned long long reduction[kWarpSize];
  uint32_t chosen_bin;
  unsigned long long above;
};

struct RowView {
  const float* logits;
  int32_t vocab_size;
};

// Tokens that take part: logit > logit, or equal and id <= token_id.
struct RowCut {
  float logit;
  int32_t token_id;

  __device__ bool keeps(float value, int32_t id) const {
    return value > logit || (value == logit && id <= token_id);
  }
};

template <typename Body>
__device__ void for_each_token(const RowView& row, Body&& body) {
  for (int32_t id = threadIdx.x; id < row.vocab_size; id += kRowThreads) body(id, row.logits[id]);
}

template <typename T, typename Operation>
__device__ T reduce_row(T value, SelectScratch& scratch, Operation operation) {
  __syncthreads();
  const T result =
      ops::device::reduce_block(value, reinterpret_cast<T*>(scratch.reduction), operation);
  __syncthreads();
  return result;
}

struct Selected {
  uint32_t ordered;          // of the logit
  unsigned long long above;  // what better logits weigh together
};

// The best logit at which the weights of all at least as good reach `target` (> 0), among tokens of
// weight > 0; the worst such logit when all together weigh less. `weight(id, logit)` is a count or
// a mass.
template <typename Weight>
__device__ Selected select_by_weight(const RowView& row,
                                     unsigned long long target,
                                     SelectScratch& scratch,
                                     Weight&& weight) {
  uint32_t prefix = 0;
  unsigned long long above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    for (int i = threadIdx.x; i < kNumBins * kWarpSize; i += kRowThreads) {
      scratch.bin[i / kWarpSize][i % kWarpSize] = 0;
    }
    __syncthreads();
    const uint32_t seen = shift == 24 ? 0 : 0xffffffffu << (shift + 8);
    for_each_token(row, [&](int32_t id, float logit) {
      const uint32_t ordered = ordered_bits(logit);
      if ((ordered & seen) != prefix) return;
      const unsigned long long value = weight(id, logit);
      if (value != 0) {
        atomicAdd(&scratch.bin[ordered >> shift & (kNumBins - 1)][threadIdx.x % kWarpSize], value);
      }
    });
    __syncthreads();
    if (threadIdx.x < kNumBins) {
      unsigned long long total = 0;
      for (int lane = 0; lane < kWarpSize; ++lane) {
        total += scratch.bin[threadIdx.x][(lane + threadIdx.x) % kWarpSize];
      }
      scratch.total[threadIdx.x] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t chosen = 0;
      unsigned long long chosen_above = above, sum = above;
      for (int bin = kNumBins - 1; bin >= 0; --bin) {
        if (scratch.total[bin] == 0) continue;
        chosen = static_cast<uint32_t>(bin);
        chosen_above = sum;
        sum += scratch.total[bin];
        if (sum >= target) break;
      }
      scratch.chosen_bin = chosen;
      scratch.above = chosen_above;
    }
    __syncthreads();
    prefix |= scratch.chosen_bin << shift;
    above = scratch.above;
  }
  return {prefix, above};
}

// The id of the `count`-th token, in id order, of those whose logit has these bits; the largest id
// there is when there are no more than that.
__device__ inline int32_t nth_of_equals(const RowView& row,
                                        uint32_t ordered,
                                        unsigned long long count,
                                        SelectScratch& scratch) {
  const auto count_up_to = [&](int32_t last) {
    unsigned long long mine = 0;
    for_each_token(row, [&](int32_t id, float logit) {
      mine += id <= last && ordered_bits(logit) == ordered ? 1 : 0;
    });
    return reduce_row(mine, scratch, ops::device::Sum());
  };
  if (count_up_to(row.vocab_size) <= count) return 0x7fffffff;
  int32_t low = 0, high = row.vocab_size - 1;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (count_up_to(middle) >= count) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

struct RowMax {
  float max;
  bool has_nan;
};

__device__ inline RowMax scan_row(const RowView& row, SelectScratch& scratch) {
  // NaN ranks above every number.
  uint32_t best = 0;
  for_each_token(row, [&](int32_t, float logit) {
    best = max(best, logit == logit ? ordered_bits(logit) : 0xffffffffu);
  });
  best = reduce_row(best, scratch, ops::device::Largest());
  return {from_ordered_bits(best), best == 0xffffffffu};
}

// 0: the row has a choice; else what stands in place of its token.
__device__ inline int32_t fault_of(const RowMax& scanned) {
  if (scanned.has_nan || scanned.max == kInfinity) return kTokenNotANumber;
  return scanned.max == -kInfinity ? kTokenNoCandidate : 0;
}

// Masses as integers: a mass of 1 is 2^44, so that 2^19 tokens fit 64 bits.
constexpr float kMassUnit = 0x1p44f;

__device__ inline unsigned long long token_mass(float logit, float max, float inverse_temperature) {
  const float weight = exp_nonpositive(tempered(logit, max, inverse_temperature));
  return static_cast<unsigned long long>(__fmul_rn(weight, kMassUnit));
}

// A block for each row.
template <typename Kernel>
void launch_with_scratch(Kernel kernel, const SampleRowsArgs& args, gpuStream_t stream) {
  ATOM_GPU(FuncSetAttribute)
  (reinterpret_cast<const void*>(kernel),
   ATOM_GPU(FuncAttributeMaxDynamicSharedMemorySize),
   sizeof(SelectScratch));
  kernel<<<static_cast<unsigned>(args.num_rows), kRowThreads, sizeof(SelectScratch), stream>>>(
      args);
}

}  // namespace atom::device
