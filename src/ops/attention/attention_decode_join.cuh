// Inside decode attention: from the results of warps to those of an item, and from those of all
// items of a row and head item to the row's.
#pragma once

#include "ops/attention/attention_decode_warp.cuh"

namespace atom::ops::attention_device {

constexpr float kLog2E = 1.4426950408889634f;

// The warps of one team.
struct Team {
  int index;  // in the block
  int warps_log2;
  int thread;  // in the team
  int threads;

  __device__ explicit Team(const Plan& plan) {
    const int warp = threadIdx.x / 32;
    warps_log2 = plan.slices_log2;
    index = warp >> warps_log2;
    threads = 32 << warps_log2;
    thread = threadIdx.x - index * threads;
  }

  __device__ bool is_first_warp() const { return thread < 32; }

  __device__ void sync() const {
    if (warps_log2 == 0) {
      __syncwarp();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "r"(threads) : "memory");
    }
  }

  // Only the first warp waits for the others.
  __device__ void gather() const {
    constexpr int kMaxTeams = 8;
    if (warps_log2 == 0) {
      __syncwarp();
    } else if (is_first_warp()) {
      asm volatile("bar.sync %0, %1;" ::"r"(index + kMaxTeams), "r"(threads) : "memory");
    } else {
      asm volatile("bar.arrive %0, %1;" ::"r"(index + kMaxTeams), "r"(threads) : "memory");
    }
  }
};

// A softmax over some of the keys: their largest score, the sum of the weights against it, and
// four elements of the weighted sum of the values.
struct Partial {
  float maximum = -INFINITY;
  float sum = 0;
  float4 out = {0, 0, 0, 0};

  __device__ void add(float2 softmax, float4 values) {
    const float top = fmaxf(maximum, softmax.x);
    const float base = top == -INFINITY ? 0.f : top;
    const float keep = exp2_fast(maximum - base);
    const float weight = exp2_fast(softmax.x - base);
    maximum = top;
    sum = sum * keep + softmax.y * weight;
    out.x = out.x * keep + values.x * weight;
    out.y = out.y * keep + values.y * weight;
    out.z = out.z * keep + values.z * weight;
    out.w = out.w * keep + values.w * weight;
  }
};

// The factor that turns weights against `maximum` into the softmax, the sink included.
__device__ inline float normaliser(const AttentionGpuParams& params,
                                   int head,
                                   float maximum,
                                   float sum) {
  if (params.sinks == nullptr) {
    return params.v_scale / sum;
  }
  const float sink = params.sinks[head] * kLog2E;
  const float top = fmaxf(maximum, sink);
  const float shift = exp2_fast(maximum - top);
  return params.v_scale * shift / (sum * shift + exp2_fast(sink - top));
}

template <typename T>
__device__ void store_out(
    const AttentionGpuParams& params, const Item& item, int head, int d, const Partial& all) {
  const int q_head = item.first_head + head;
  const float factor = normaliser(params, q_head, all.maximum, all.sum);
  T* row = static_cast<T*>(params.out) + item.token * params.out_token_stride +
           q_head * params.out_head_stride;
  *reinterpret_cast<uint2*>(row + d) = {pack<T>(all.out.x * factor, all.out.y * factor),
                                        pack<T>(all.out.z * factor, all.out.w * factor)};
}

// In shared memory, for the results of each warp.
template <typename Tile, int kRows>
struct Exchange {
  float out[Tile::kWarps][kRows][Tile::kExchangeStride];
  float2 softmax[Tile::kWarps][kRows];
};

// Joins the team's warps, into the result or into the item's part of it.
template <typename T, int kHeadDim, typename Tile, int kRows>
__device__ void join_warps(const DecodeArgs& args,
                           const Item& item,
                           const Team& team,
                           const Parts& parts,
                           const Exchange<Tile, kRows>& exchange) {
  constexpr int kVectors = kHeadDim / 4;
  const int first_warp = team.index << team.warps_log2;
  const int last_warp = (team.index + 1) << team.warps_log2;
  for (int i = team.thread; i < item.num_heads * kVectors; i += team.threads) {
    const int head = i / kVectors;
    const int d = i % kVectors * 4;
    Partial all;
    for (int warp = first_warp; warp < last_warp; ++warp) {
      all.add(exchange.softmax[warp][head],
              *reinterpret_cast<const float4*>(&exchange.out[warp][head][d]));
    }
    if (parts.count == 1) {
      store_out<T>(args.params, item, head, d, all);
      continue;
    }
    const int64_t place = int64_t{parts.own} * args.heads_per_item + head;
    __stcg(reinterpret_cast<float4*>(args.partial_out + place * kHeadDim + d), all.out);
    if (d == 0) {
      __stcg(args.partial_softmax + place, make_float2(all.maximum, all.sum));
    }
  }
}

// Joins all parts of a row and head item. By one warp.
template <typename T, int kHeadDim>
__device__ void join_parts(const DecodeArgs& args, const Item& item, const Parts& parts) {
  constexpr int kVectors = kHeadDim / 4;
  // Of the head item's vectors so many at once, and of the parts: each load waits long.
  constexpr int kAtOnce = 4;
  const int num_vectors = item.num_heads * kVectors;
  for (int first = threadIdx.x % 32; first < num_vectors; first += kAtOnce * 32) {
    Partial all[kAtOnce];
#pragma unroll 4
    for (int part = 0; part < parts.count; ++part) {
      const int64_t place = int64_t{parts.place(part)} * args.heads_per_item;
      const float2* softmax = args.partial_softmax + place;
      const float* out = args.partial_out + place * kHeadDim;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = min(first + j * 32, num_vectors - 1);
        all[j].add(__ldcg(softmax + i / kVectors),
                   __ldcg(reinterpret_cast<const float4*>(out) + i));
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + j * 32;
      if (i < num_vectors) {
        store_out<T>(args.params, item, i / kVectors, i % kVectors * 4, all[j]);
      }
    }
  }
}

// Adds one; releases what this thread knows to be written, and acquires what others released.
__device__ inline int count_part(int32_t* counter) {
  int before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

// Whether the calling warp's team finished the last part. The counter is then zero again.
__device__ inline bool is_last_part(const DecodeArgs& args, const Item& item, const Parts& parts) {
  bool is_last = false;
  if (threadIdx.x % 32 == 0) {
    int32_t* counter = args.counters + int64_t{item.row} * args.head_items() + item.head_item;
    is_last = count_part(counter) == parts.count - 1;
    if (is_last) {
      *counter = 0;
    }
  }
  return __any_sync(kAllLanes, is_last);
}

}  // namespace atom::ops::attention_device
