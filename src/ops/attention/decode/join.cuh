// Inside decode attention: from the results of warps to those of an item.
#pragma once

#include "ops/attention/decode/warp.cuh"
#include "ops/attention/device/softmax.cuh"

namespace atom::ops::attention_device {

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

  __device__ void sync() const {
    if (warps_log2 == 0) {
      __syncwarp();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "r"(threads) : "memory");
    }
  }
};

// A softmax over some of the keys: their largest score, the sum of the weights against it, and
// four elements of the weighted sum of the values.
struct Partial {
  float maximum = -INFINITY;
  float sum = 0;
  float4 out = {0, 0, 0, 0};

  template <int kCount>
  __device__ void add(const float2 (&softmax)[kCount], const float4 (&values)[kCount]) {
    float top = maximum;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      top = fmaxf(top, softmax[i].x);
    }
    const float base = top == -INFINITY ? 0.f : top;
    const float keep = exp2_fast(maximum - base);
    maximum = top;
    sum *= keep;
    out = {out.x * keep, out.y * keep, out.z * keep, out.w * keep};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float weight = exp2_fast(softmax[i].x - base);
      sum += softmax[i].y * weight;
      out.x += values[i].x * weight;
      out.y += values[i].y * weight;
      out.z += values[i].z * weight;
      out.w += values[i].w * weight;
    }
  }
};

template <typename T>
__device__ void store_out(
    const AttentionArgs& params, const Item& item, int head, int d, const Partial& all) {
  const int q_head = item.first_head + head;
  const float factor = normalizer(params, q_head, all.maximum, all.sum);
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

// Joins the team's warps, kAtOnce at a time, into the result or into the item's part of it.
template <typename T, int kHeadDim, int kAtOnce, typename Tile, int kRows>
__device__ void join_warps(const DecodeArgs& args,
                           const Item& item,
                           const Team& team,
                           const Exchange<Tile, kRows>& exchange) {
  constexpr int kVectors = kHeadDim / 4;
  const int num_warps = 1 << team.warps_log2;
  for (int i = team.thread; i < item.num_heads * kVectors; i += team.threads) {
    const int head = i / kVectors;
    const int d = i % kVectors * 4;
    Partial all;
    for (int first = 0; first < num_warps; first += kAtOnce) {
      float2 softmax[kAtOnce];
      float4 values[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const bool exists = first + j < num_warps;
        const int warp = team.index * num_warps + first + (exists ? j : 0);
        softmax[j] = exchange.softmax[warp][head];
        softmax[j].x = exists ? softmax[j].x : -INFINITY;
        values[j] = *reinterpret_cast<const float4*>(&exchange.out[warp][head][d]);
      }
      all.add(softmax, values);
    }
    if (item.parts.count == 1) {
      store_out<T>(args.params, item, head, d, all);
      continue;
    }
    const int64_t place = int64_t{item.parts.own} * args.heads_per_item + head;
    __stcg(reinterpret_cast<float4*>(args.partial_out + place * kHeadDim + d), all.out);
    if (d == 0) {
      __stcg(args.partial_softmax + place, make_float2(all.maximum, all.sum));
    }
  }
}

}  // namespace atom::ops::attention_device
