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

// A column per lane, so that a warp never meets itself, where there is room for so many.
constexpr int kColumns =
    kNumBins * kWarpSize * sizeof(uint64_t) < kGpuMaxSharedSize ? kWarpSize : kWarpSize / 2;

// Counts or masses per bin.
struct SelectScratch {
  unsigned long long bin[kNumBins][kColumns];
  unsigned long long total[kNumBins];
  unsigned long long reduction[kWarpSize];
  uint32_t chosen_bin;
  unsigned long long above;
};
static_assert(sizeof(SelectScratch) <= kGpuMaxSharedSize);

struct RowView {
  const float* logits;
  int32_t vocab_size;
  const uint32_t* allowed = nullptr;  // as SampleRowsArgs::masks; null: every token may come

  __device__ float at(int32_t id) const {
    return allowed == nullptr || (allowed[id / 32] >> (id % 32) & 1u) != 0 ? logits[id]
                                                                           : -kInfinity;
  }
  // What the mask leaves of tokens [first, first + 4), `first` being a multiple of 4.
  __device__ float4 masked(float4 quad, int32_t first) const {
    if (allowed == nullptr) return quad;
    const uint32_t bits = allowed[first / 32] >> (first % 32);
    return {(bits & 1u) != 0 ? quad.x : -kInfinity,
            (bits & 2u) != 0 ? quad.y : -kInfinity,
            (bits & 4u) != 0 ? quad.z : -kInfinity,
            (bits & 8u) != 0 ? quad.w : -kInfinity};
  }
};

// Tokens that take part: logit > logit, or equal and id <= token_id.
struct RowCut {
  float logit;
  int32_t token_id;

  __device__ bool keeps(float value, int32_t id) const {
    return value > logit || (value == logit && id <= token_id);
  }
};

// Calls body(id, logit) for every token, in no order. Reads ahead: one block has to hide the
// latency of the memory by itself.
template <typename Body>
__device__ void for_each_token(const RowView& row, Body&& body) {
  constexpr int kAhead = 2;
  int32_t first_single = 0;
  if (reinterpret_cast<uintptr_t>(row.logits) % sizeof(float4) == 0) {
    const auto* quads = reinterpret_cast<const float4*>(row.logits);
    const int32_t num_quads = row.vocab_size / 4;
    for (int32_t begin = threadIdx.x; begin < num_quads; begin += kAhead * kRowThreads) {
      float4 quad[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int32_t at = begin + i * kRowThreads;
        if (at < num_quads) quad[i] = quads[at];
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int32_t at = begin + i * kRowThreads;
        if (at < num_quads) {
          const float4 logits = row.masked(quad[i], 4 * at);
          body(4 * at, logits.x);
          body(4 * at + 1, logits.y);
          body(4 * at + 2, logits.z);
          body(4 * at + 3, logits.w);
        }
      }
    }
    first_single = num_quads * 4;
  }
  for (int32_t id = first_single + threadIdx.x; id < row.vocab_size; id += kRowThreads) {
    body(id, row.at(id));
  }
}

template <typename T, typename Operation>
__device__ T reduce_row(T value, SelectScratch& scratch, Operation operation) {
  __syncthreads();
  const T result =
      ops::device::reduce_block(value, reinterpret_cast<T*>(scratch.reduction), operation);
  __syncthreads();
  return result;
}

// The place of the n-th set bit, n from 1.
__device__ inline int nth_set_bit(uint32_t mask, int n) {
  for (; n > 1; --n) mask &= mask - 1;
  return __ffs(static_cast<int>(mask)) - 1;
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
    for (int i = threadIdx.x; i < kNumBins * kColumns; i += kRowThreads) {
      scratch.bin[i / kColumns][i % kColumns] = 0;
    }
    __syncthreads();
    const uint32_t seen = shift == 24 ? 0 : 0xffffffffu << (shift + 8);
    for_each_token(row, [&](int32_t id, float logit) {
      const uint32_t ordered = ordered_bits(logit);
      if ((ordered & seen) != prefix) return;
      const unsigned long long value = weight(id, logit);
      if (value != 0) {
        atomicAdd(&scratch.bin[ordered >> shift & (kNumBins - 1)][threadIdx.x % kColumns], value);
      }
    });
    __syncthreads();
    if (threadIdx.x < kNumBins) {
      unsigned long long total = 0;
      for (int i = 0; i < kColumns; ++i) {
        total += scratch.bin[threadIdx.x][(i + threadIdx.x) % kColumns];
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

// The id of the `count`-th token (from 1), in id order, of those whose logit has these bits; the
// largest id there is when there are no more than that.
__device__ inline int32_t nth_of_equals(const RowView& row,
                                        uint32_t ordered,
                                        unsigned long long count,
                                        SelectScratch& scratch) {
  // How many there are in each of kNumBins ranges of ids.
  const int32_t range = (row.vocab_size + kNumBins - 1) / kNumBins;
  __syncthreads();
  if (threadIdx.x < kNumBins) scratch.total[threadIdx.x] = 0;
  __syncthreads();
  for_each_token(row, [&](int32_t id, float logit) {
    if (ordered_bits(logit) == ordered) atomicAdd(&scratch.total[id / range], 1ull);
  });
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned long long sum = 0;
    int bin = 0;
    while (bin < kNumBins && sum + scratch.total[bin] < count) sum += scratch.total[bin++];
    scratch.chosen_bin = bin;
    scratch.above = sum;
  }
  __syncthreads();
  const auto bin = static_cast<int32_t>(scratch.chosen_bin);
  if (bin == kNumBins) return 0x7fffffff;
  // Every warp walks the range and finds the same.
  unsigned long long seen = scratch.above;
  int32_t result = 0x7fffffff;
  const int32_t end = min((bin + 1) * range, row.vocab_size);
  for (int32_t base = bin * range; base < end; base += kWarpSize) {
    const int32_t id = base + static_cast<int32_t>(threadIdx.x % kWarpSize);
    const bool equal = id < end && ordered_bits(row.at(id)) == ordered;
    const uint32_t mask = gpu_lanes_where(equal);
    const auto found = static_cast<unsigned long long>(__popc(mask));
    if (seen + found >= count) {
      result = base + nth_set_bit(mask, static_cast<int>(count - seen));
      break;
    }
    seen += found;
  }
  return result;
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
  return static_cast<unsigned long long>(gpu_multiply(weight, kMassUnit));
}

// A block for each row.
template <typename Kernel>
void launch_with_scratch(Kernel kernel, const SampleRowsArgs& args, gpuStream_t stream) {
  // What it reports, the launch reports again.
  static_cast<void>(ATOM_GPU(FuncSetAttribute)(reinterpret_cast<const void*>(kernel),
                                               ATOM_GPU(FuncAttributeMaxDynamicSharedMemorySize),
                                               sizeof(SelectScratch)));
  kernel<<<static_cast<unsigned>(args.num_rows), kRowThreads, sizeof(SelectScratch), stream>>>(
      args);
}

}  // namespace atom::device
