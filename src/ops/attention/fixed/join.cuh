// Inside decode attention of a fixed order: the results of a row that was cut, joined by the warp
// that finishes it.
#pragma once

#include "ops/attention/decode/join.cuh"
#include "ops/attention/decode/join_parts.cuh"
#include "ops/attention/fixed/plan.cuh"

namespace atom::ops::attention_device {

// Of a cut row, where the results of a head item are, in ascending order of keys: of 32 shares at a
// time, one to a lane. The first of a share's places is for a row's beginning, whose segments are
// joined already; then come single segments.
class FixedPlaces {
 public:
  __device__ FixedPlaces(const FixedDecodeArgs& args,
                         const FixedPlan& plan,
                         const FixedItem& item,
                         int team)
      : args_(args),
        plan_(plan),
        item_(item),
        team_(team),
        share_(plan.share_of(item.group_begin) - 32),
        last_share_(plan.share_of(item.group_begin + item.keys.num_tiles - 1)) {}

  // The places of the next 32 shares; false when there are none left.
  __device__ bool next() {
    share_ += 32;
    if (share_ > last_share_) return false;
    const int lane = threadIdx.x & 31, share = share_ + lane;
    int count = 0;
    place_ = 0;
    is_begin_ = false;
    if (share <= last_share_) {
      const int first = cut_of(item_.keys, plan_.begin_of(share) - item_.group_begin);
      const int last = cut_of(item_.keys, plan_.begin_of(share + 1) - item_.group_begin);
      place_ = ((share << args_.warps_log2) + team_) * args_.places_per_warp;
      is_begin_ = first == item_.keys.first_tile && first < last;
      if (is_begin_) {
        count = 1;
      } else if (first < last) {
        ++place_;
        count = segment_of_key((last - 1) * kFixedTileKeys) -
                segment_of_key(first * kFixedTileKeys) + 1;
      }
    }
    end_ = count;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int lower = __shfl_up_sync(kAllLanes, end_, offset);
      end_ += lane >= offset ? lower : 0;
    }
    begin_ = end_ - count;
    num_ = __shfl_sync(kAllLanes, end_, 31);
    return true;
  }

  // Places of these shares.
  __device__ int num_places() const {
    return num_;
  }
  __device__ int place(int index) const {
    const int lane = __popc(__ballot_sync(kAllLanes, end_ <= index));
    return __shfl_sync(kAllLanes, place_ - begin_, lane) + index;
  }
  // Whether the first of them is a row's beginning.
  __device__ bool has_begin() const {
    return __any_sync(kAllLanes, is_begin_);
  }

 private:
  const FixedDecodeArgs& args_;
  const FixedPlan& plan_;
  const FixedItem& item_;
  const int team_;
  int share_;  // of lane 0
  const int last_share_;
  int place_ = 0;
  int begin_ = 0, end_ = 0;  // of the lane's places among those of all lanes
  int num_ = 0;
  bool is_begin_ = false;
};

// A thread has four vectors of the results at once, and loads those of several places at once,
// since each load waits long.
template <typename T, int kHeadDim>
__device__ void join_row(const FixedDecodeArgs& args,
                         const FixedPlan& plan,
                         const FixedItem& item,
                         int team) {
  constexpr int kVectors = kHeadDim / 4, kVectorsAtOnce = 4, kPlacesAtOnce = 4;
  const AttentionArgs& params = args.params;
  const int num_vectors = item.num_heads * kVectors;
  for (int begin = 0; begin < num_vectors; begin += kVectorsAtOnce * 32) {
    const int first_vector = begin + static_cast<int>(threadIdx.x & 31);
    JoinedSoftmax joined[kVectorsAtOnce];
    float4 out[kVectorsAtOnce] = {};
    FixedPlaces places(args, plan, item, team);
    while (places.next()) {
      bool is_begin = places.has_begin();
      for (int index = 0; index < places.num_places(); index += kPlacesAtOnce) {
        float2 softmax[kVectorsAtOnce][kPlacesAtOnce];
        float4 values[kVectorsAtOnce][kPlacesAtOnce];
#pragma unroll
        for (int p = 0; p < kPlacesAtOnce; ++p) {
          const bool exists = index + p < places.num_places();
          const int place = places.place(exists ? index + p : index);
          const int64_t heads = int64_t{place} * args.heads_per_item;
          const auto* from = reinterpret_cast<const float4*>(args.out + heads * kHeadDim);
#pragma unroll
          for (int v = 0; v < kVectorsAtOnce; ++v) {
            const int i = first_vector + v * 32;
            softmax[v][p] = {-INFINITY, 0};
            values[v][p] = {};
            if (exists && i < num_vectors) {
              softmax[v][p] = __ldcg(args.softmax + heads + i / kVectors);
              values[v][p] = __ldcg(from + i);
            }
          }
        }
#pragma unroll
        for (int p = 0; p < kPlacesAtOnce; ++p) {
#pragma unroll
          for (int v = 0; v < kVectorsAtOnce; ++v) {
            const float2 added = softmax[v][p];
            const float4 value = values[v][p];
            if (is_begin) {
              joined[v] = {added.x, added.y};
              out[v] = value;
            } else if (added.x != -INFINITY) {
              const auto factors = joined[v].add(added.x, added.y);
              out[v] = {factors.join(out[v].x, value.x),
                        factors.join(out[v].y, value.y),
                        factors.join(out[v].z, value.z),
                        factors.join(out[v].w, value.w)};
            }
          }
          is_begin = false;
        }
      }
    }
#pragma unroll
    for (int v = 0; v < kVectorsAtOnce; ++v) {
      const int i = first_vector + v * 32;
      if (i >= num_vectors) continue;
      const int64_t head = item.first_head + i / kVectors;
      const float factor = normalizer(params, head, joined[v].maximum, joined[v].sum);
      T* row = static_cast<T*>(params.out) + item.keys.token * params.out_token_stride +
               head * params.out_head_stride;
      *reinterpret_cast<uint2*>(row + i % kVectors * 4) = {
          pack<T>(out[v].x * factor, out[v].y * factor),
          pack<T>(out[v].z * factor, out[v].w * factor)};
    }
  }
}

// Whether this warp finished the last tiles of the item's row. The counter is then zero again.
__device__ inline bool finishes_row(const FixedDecodeArgs& args, const FixedItem& item) {
  __syncwarp();
  bool is_last = false;
  if (threadIdx.x % 32 == 0) {
    // The release orders the whole warp's results before the count.
    const int own = item.last_tile - item.first_tile;
    int32_t* counter = args.counters + int64_t{item.row} * args.head_items() + item.head_item;
    is_last = count_parts(counter, own) + own == item.keys.num_tiles;
    if (is_last) *counter = 0;
  }
  return __shfl_sync(kAllLanes, static_cast<int>(is_last), 0) != 0;
}

}  // namespace atom::ops::attention_device
