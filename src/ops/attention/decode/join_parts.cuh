// Inside decode attention: from the results of all items of a row and head item to the row's.
#pragma once

#include "ops/attention/decode/join.cuh"

namespace atom::ops::attention_device {

// Vectors of four of an item's results, and parts of them, that a thread of a team as large as the
// block joins at once: all of its vectors, since each load waits long.
template <typename Tile, int kHeadDim>
struct JoinShape {
  static constexpr int kItemVectors = Tile::kMaxHeads * kHeadDim / 4;
  static constexpr int kVectors = kItemVectors > Tile::kThreads ? kItemVectors / Tile::kThreads : 1;
  static constexpr int kParts = kVectors > 2 ? 4 : 8;
  static_assert(kVectors <= 4);
};

// Joins parts of a row and head item, and calls put(which of those at once, vector of the item,
// what the parts are together).
template <int kHeadDim, int kVectorsAtOnce, int kPartsAtOnce, typename Put>
__device__ void join_parts(
    const DecodeArgs& args, const Item& item, const Parts& parts, const Team& team, Put&& put) {
  constexpr int kVectors = kHeadDim / 4;
  const int num_vectors = item.num_heads * kVectors;
  for (int first = team.thread; first < num_vectors; first += kVectorsAtOnce * team.threads) {
    Partial all[kVectorsAtOnce];
    for (int part = 0; part < parts.count; part += kPartsAtOnce) {
      float2 softmax[kVectorsAtOnce][kPartsAtOnce];
      float4 values[kVectorsAtOnce][kPartsAtOnce];
#pragma unroll
      for (int p = 0; p < kPartsAtOnce; ++p) {
        const bool exists = part + p < parts.count;
        const int64_t place = int64_t{parts.place(part + p)} * args.heads_per_item;
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
        put(j, i, all[j]);
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

// Whether this team finished the last of `count` parts. The counter is then zero again. `flag`: the
// team's.
__device__ inline bool is_last_part(int32_t* counter,
                                    int count,
                                    const Team& team,
                                    volatile int* flag) {
  team.sync();
  if (team.thread == 0) {
    // The barrier and the release order the whole team's part before the count.
    const bool is_last = count_parts(counter, 1) == count - 1;
    if (is_last) {
      *counter = 0;
    }
    *flag = is_last;
  }
  team.sync();
  return *flag != 0;
}

// A team calls it that has finished one of an item's parts: who finishes the last one joins them.
// Many parts of a row that is cut alike are joined in groups first, by those that finish the
// groups' last ones.
template <typename T, typename Tile, int kHeadDim>
class PartJoin {
 public:
  __device__ PartJoin(const DecodeArgs& args,
                      const Item& item,
                      const Team& team,
                      volatile int* flag)
      : args_(args),
        item_(item),
        team_(team),
        flag_(flag),
        place_(item.row * args.head_items() + item.head_item) {}

  // `is_even`: the row is cut alike, and the team is the block.
  __device__ void run(bool is_even) const {
    const Parts& parts = item_.parts;
    if (!is_even || parts.count <= 2 * kPartsOfGroup) {
      return finish(parts);
    }
    const int group = (parts.own - parts.base) / (kPartsOfGroup * parts.stride);
    const int first = parts.base + group * kPartsOfGroup * parts.stride;
    const int count = min(kPartsOfGroup, parts.count - group * kPartsOfGroup);
    if (!is_last_part(args_.group_counter(place_, group), count, team_, flag_)) {
      return;
    }
    join_group(
        {.count = count, .first = first, .base = first, .stride = parts.stride, .own = first});
    finish({.count = (parts.count + kPartsOfGroup - 1) / kPartsOfGroup,
            .first = parts.base,
            .base = parts.base,
            .stride = kPartsOfGroup * parts.stride,
            .own = first});
  }

 private:
  using Shape = JoinShape<Tile, kHeadDim>;
  static constexpr int kVectors = kHeadDim / 4;

  // Into the place of its first part: a thread has the same vectors of all parts, but a head's
  // softmax is read by many.
  __device__ void join_group(const Parts& group) const {
    const int64_t place = int64_t{group.own} * args_.heads_per_item;
    float2 softmax[Shape::kVectors];
    join_parts<kHeadDim, Shape::kVectors, Shape::kParts>(
        args_, item_, group, team_, [&](int j, int i, const Partial& all) {
          __stcg(reinterpret_cast<float4*>(args_.partial_out + place * kHeadDim) + i, all.out);
          softmax[j] = {all.maximum, all.sum};
        });
    team_.sync();
#pragma unroll
    for (int j = 0; j < Shape::kVectors; ++j) {
      const int i = team_.thread + j * team_.threads;
      if (i % kVectors == 0 && i < item_.num_heads * kVectors) {
        __stcg(args_.partial_softmax + place + i / kVectors, softmax[j]);
      }
    }
  }

  __device__ void finish(const Parts& parts) const {
    if (!is_last_part(args_.counters + place_, parts.count, team_, flag_)) {
      return;
    }
    const auto store = [&](int, int i, const Partial& all) {
      store_out<T>(args_.params, item_, i / kVectors, i % kVectors * 4, all);
    };
    if (team_.warps_log2 == 0) {
      join_parts<kHeadDim, 4, 2>(args_, item_, parts, team_, store);
    } else {
      join_parts<kHeadDim, Shape::kVectors, Shape::kParts>(args_, item_, parts, team_, store);
    }
  }

  const DecodeArgs& args_;
  const Item& item_;
  const Team& team_;
  volatile int* const flag_;
  const int64_t place_;  // of the row and head item
};

}  // namespace atom::ops::attention_device
