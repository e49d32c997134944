// Inside decode attention: from the results of warps to those of an item, and from those of all
// items of a row and head item to the row's.
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

// Joins all parts of a row and head item: a thread so many of its vectors and of the parts at once,
// since each load waits long.
template <typename T, int kHeadDim, int kVectorsAtOnce, int kPartsAtOnce>
__device__ void join_parts(const DecodeArgs& args, const Item& item, const Team& team) {
  constexpr int kVectors = kHeadDim / 4;
  const int num_vectors = item.num_heads * kVectors;
  for (int first = team.thread; first < num_vectors; first += kVectorsAtOnce * team.threads) {
    Partial all[kVectorsAtOnce];
    for (int part = 0; part < item.parts.count; part += kPartsAtOnce) {
      float2 softmax[kVectorsAtOnce][kPartsAtOnce];
      float4 values[kVectorsAtOnce][kPartsAtOnce];
#pragma unroll
      for (int p = 0; p < kPartsAtOnce; ++p) {
        const bool exists = part + p < item.parts.count;
        const int64_t place = int64_t{item.parts.place(part + p)} * args.heads_per_item;
        const auto* out = reinterpret_cast<const float4*>(args.partial_out + place * kHeadDim);
#pragma unroll
        for (int j = 0; j < kVectorsAtOnce; ++j) {
          const int i = first + j * team.threads;
          softmax[j][p] = {-INFINITY, 0};
          values[j][p] = {};
          if (exists && i < num_vectors) {
            softmax[j][p] = __ldcg(args.partial_softmax + place + i / kVectors);
            values[j][p] = __ldcg(out + i);
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kVectorsAtOnce; ++j) {
        all[j].add(softmax[j], values[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kVectorsAtOnce; ++j) {
      const int i = first + j * team.threads;
      if (i < num_vectors) {
        store_out<T>(args.params, item, i / kVectors, i % kVectors * 4, all[j]);
      }
    }
  }
}

// Adds to a counter; releases what this thread knows to be written, and acquires what others
// released. What it was before.
__device__ inline int count_parts(int32_t* counter, int number) {
  int before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(number)
               : "memory");
  return before;
}

// Whether this team finished the last part. The counter is then zero again. `flag`: the team's.
__device__ inline bool is_last_part(const DecodeArgs& args,
                                    const Item& item,
                                    const Team& team,
                                    volatile int* flag) {
  team.sync();
  if (team.thread == 0) {
    // The barrier and the release order the whole team's part before the count.
    int32_t* counter = args.counters + int64_t{item.row} * args.head_items() + item.head_item;
    const bool is_last = count_parts(counter, 1) == item.parts.count - 1;
    if (is_last) {
      *counter = 0;
    }
    *flag = is_last;
  }
  team.sync();
  return *flag != 0;
}

}  // namespace atom::ops::attention_device
