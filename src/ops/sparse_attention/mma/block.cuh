// Inside sparse_attention's products: a block's share of the keys of one query and some of its
// heads, and the join of a cluster.
//
// All query heads of a KV head are the columns of one product, so that each selected row is read
// once. Which block and warp has which of the selected positions follows from top_k alone.
#pragma once

#include "ops/attention/decode/join.cuh"
#include "ops/device/cluster.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/sparse_attention/mma/selected_keys.cuh"

namespace atom::ops::sparse_device {

using attention_device::Partial;
using attention_device::shared_address;

struct BlockArgs {
  SparseAttentionArgs params;
  int ranks_log2;  // blocks of a cluster, which share a query's keys
  int items_per_kv_head;
};

template <typename T, typename KV, int kHeadDim, int kRows>
class SparseBlock {
  using Warp = attention_device::WarpAttention<T, KV, kHeadDim, kRows>;
  using Tile = typename Warp::Tile;
  static constexpr int kStages = 3;  // tiles of a warp that are on their way
  static constexpr int kEntryBytes = 2 * Tile::kBytes;
  static constexpr int kVectors = kHeadDim / 4;  // of a head
  static constexpr int kItemVectors = kRows * kVectors;
  static constexpr int kUnitTiles = kUnitKeys / Tile::kKeys;
  static constexpr int kBytesOfVector = sizeof(float4) + sizeof(float2);
  static_assert(Tile::kKeys <= kUnitKeys);

 public:
  // So that two blocks fit a multiprocessor: one computes while the other begins or ends.
  static constexpr int kWarps = (32 << 10) / kEntryBytes;
  static constexpr int kThreads = kWarps * 32;

 private:
  static constexpr int kWarpBytes = kStages * kEntryBytes;

  // A warp's results, where its tiles were.
  struct Result {
    float out[kRows][Tile::kExchangeStride];
    float2 softmax[kRows];
  };
  static_assert(sizeof(Result) <= kWarpBytes);

  // From each block of the cluster its results of those vectors that this block joins.
  struct Received {
    float4 out[kItemVectors];
    float2 softmax[kItemVectors];
  };

  // The queries are in registers before a block sends results.
  union Place {
    char queries[kWarps][Tile::kQueryBytes];
    Received received;
  };

 public:
  static constexpr int kSharedBytes = kWarps * kWarpBytes + sizeof(Place) + 16;

  __device__ SparseBlock(const BlockArgs& args, char* shared)
      : args_(args),
        params_(args.params),
        shared_(shared),
        place_(*reinterpret_cast<Place*>(shared + kWarps * kWarpBytes)),
        arrived_(shared_address(&place_ + 1)),
        rank_(static_cast<int>(blockIdx.x) & ((1 << args.ranks_log2) - 1)) {
    const int items = static_cast<int>(params_.num_kv_heads) * args.items_per_kv_head;
    const int place = static_cast<int>(blockIdx.x >> args.ranks_log2);
    token_ = place / items;
    const int item = place - token_ * items;
    kv_head_ = item / args.items_per_kv_head;
    const int group = static_cast<int>(params_.num_heads / params_.num_kv_heads);
    const int first = (item - kv_head_ * args.items_per_kv_head) * kRows;
    first_head_ = kv_head_ * group + first;
    num_heads_ = min(group - first, kRows);
  }

  // By all threads of all blocks.
  __device__ void run() {
#if __CUDA_ARCH__ >= 900
    if (args_.ranks_log2 > 0 && threadIdx.x == 0) {
      device::init_barrier(arrived_, 1);
      device::publish_barriers();
    }
    __syncwarp();
#endif
    const PagedRow row = find_row_by_warp(params_.batch, token_);
    device::wait_for_previous_grid();
    device::allow_next_grid();
    attend(row);
    __syncthreads();
    if (args_.ranks_log2 == 0) {
      store_all();
    } else {
      join();
    }
  }

 private:
  __device__ static int warp() {
    return threadIdx.x / 32;
  }
  __device__ static int lane() {
    return threadIdx.x & 31;
  }

  __device__ void copy_query(uint32_t target) const {
    constexpr int kChunks = Tile::kQueryRowBytes / 16;
    const char* from = static_cast<const char*>(params_.q) +
                       (token_ * params_.q_strides[0] + first_head_ * params_.q_strides[1]) * 2;
#pragma unroll
    for (int i = 0; i < kRows * kChunks; i += 32) {
      const int head = (i + lane()) / kChunks, chunk = (i + lane()) % kChunks;
      const bool exists = head < num_heads_;
      const int64_t offset = (exists ? head : 0) * params_.q_strides[1] * 2 + chunk * 16;
      attention_device::copy_async(
          target + attention_device::tile_offset<Tile::kQueryRowBytes>(head, chunk),
          from + offset,
          exists);
    }
  }

  // From key `first` of the unit on. Rows that do not exist become zeros.
  __device__ void copy_tile(const SelectedKeys& keys, int first, uint32_t entry) const {
    constexpr int kLanes = Tile::kLanesPerRow;
    const int64_t slot_bytes = params_.num_kv_heads * Tile::kRowBytes;
    const int64_t part = kv_head_ * Tile::kRowBytes + lane() % kLanes * 16;
#pragma unroll
    for (int i = 0; i < Tile::kKeys; i += 32 / kLanes) {
      const int row = i + lane() / kLanes;
      const int slot = keys.slot(first + row);
      const int64_t offset = max(slot, 0) * slot_bytes + part;
      const uint32_t target =
          entry + attention_device::tile_offset<Tile::kRowBytes>(row, lane() % kLanes);
      attention_device::copy_async(
          target, static_cast<const char*>(params_.k_cache) + offset, slot >= 0);
      attention_device::copy_async(
          target + Tile::kBytes, static_cast<const char*>(params_.v_cache) + offset, slot >= 0);
    }
  }

  // The warp's share of the keys.
  __device__ void attend(const PagedRow& row) {
    const float scale_log2 = params_.scale * attention_device::kLog2E;
    const uint32_t queue = shared_address(shared_) + warp() * kWarpBytes;
    const uint32_t query = shared_address(place_.queries[warp()]);
    const int first_unit = rank_ * kWarps + warp(), unit_step = kWarps << args_.ranks_log2;
    copy_query(query);
    SelectedKeys keys(params_, row, token_, first_unit, unit_step);
    Warp state;
    int unit_keys = 0;      // of the unit that is copied
    int count = INT32_MAX;  // of the warp's tiles, once it is known
    int last_keys = 0;      // of the last tile
    int stage = 0;
    // The first steps only fill the queue: one place in the code for all copies keeps it short.
#pragma unroll 1
    for (int step = -kStages; step < count; ++step) {
      const uint32_t entry = queue + stage * kEntryBytes;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (step >= 0) {
        attention_device::wait_for_copies<kStages - 1>();
        __syncwarp();
        if (step == 0) {
          state.take_query(query);
          release_query();
        }
        state.take_keys(entry);
        state.take_values(entry + Tile::kBytes);
        __syncwarp();
      }
      const int next = step + kStages;
      if (next < count) {
        const int first = next % kUnitTiles * Tile::kKeys;
        if (first == 0) unit_keys = keys.advance();
        if (first < unit_keys) {
          copy_tile(keys, first, entry);
          last_keys = min(unit_keys - first, Tile::kKeys);
        } else {
          count = next;
        }
      }
      attention_device::commit_copies();
      if (step >= 0) {
        state.soften(0, 0, step + 1 < count ? Tile::kKeys : last_keys, scale_log2);
        state.add_values();
      }
    }
    attention_device::wait_for_copies<0>();
    __syncwarp();
    if (count == 0) release_query();
    Result& result = result_of(warp());
    state.for_each_head([&](int head, float maximum, float sum, int r, int j) {
      if (lane() < 4) result.softmax[head] = {maximum, sum};
      state.write_out(r, j, result.out[head]);
    });
  }

  // Lets the others send to where this warp's query was.
  __device__ void release_query() const {
#if __CUDA_ARCH__ >= 900
    if (args_.ranks_log2 > 0) device::release_to_cluster();
#endif
  }

  __device__ Result& result_of(int warp) const {
    return *reinterpret_cast<Result*>(shared_ + warp * kWarpBytes);
  }

  // Of the block's warps.
  __device__ Partial joined(int vector) const {
    const int head = vector / kVectors, d = vector % kVectors * 4;
    float2 softmax[kWarps];
    float4 out[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      softmax[w] = result_of(w).softmax[head];
      out[w] = *reinterpret_cast<const float4*>(&result_of(w).out[head][d]);
    }
    Partial all;
    all.add(softmax, out);
    return all;
  }

  __device__ void store(int vector, const Partial& all) const {
    const int head = vector / kVectors, d = vector % kVectors * 4;
    const float factor = all.sum == 0 ? 0.0f : __fdiv_rn(params_.v_scale, all.sum);
    T* out = static_cast<T*>(params_.out) + token_ * params_.out_strides[0] +
             (first_head_ + head) * params_.out_strides[1] + d;
    *reinterpret_cast<uint2*>(out) = {
        attention_device::pack<T>(all.out.x * factor, all.out.y * factor),
        attention_device::pack<T>(all.out.z * factor, all.out.w * factor)};
  }

  __device__ void store_all() const {
    for (int i = threadIdx.x; i < num_heads_ * kVectors; i += kThreads) store(i, joined(i));
  }

  // Each block sends what its warps have to the blocks that join it.
  __device__ void join() const {
#if __CUDA_ARCH__ >= 900
    Received& received = place_.received;
    const int ranks_log2 = args_.ranks_log2, num_vectors = num_heads_ * kVectors;
    const int share = kItemVectors >> ranks_log2;  // vectors that a block joins
    device::wait_for_cluster();
    for (int i = threadIdx.x; i < num_vectors; i += kThreads) {
      const Partial all = joined(i);
      const int owner = i / share, target = rank_ * share + i % share;
      const uint32_t barrier = device::address_in(owner, arrived_);
      device::send_in_cluster(
          device::address_in(owner, shared_address(&received.out[target])), all.out, barrier);
      device::send_in_cluster(device::address_in(owner, shared_address(&received.softmax[target])),
                              make_float2(all.maximum, all.sum),
                              barrier);
    }
    const int own = min(max(num_vectors - rank_ * share, 0), share);
    if (threadIdx.x == 0) device::arrive_expecting(arrived_, (own << ranks_log2) * kBytesOfVector);
    device::wait_for(arrived_, 0);
    for (int i = threadIdx.x; i < own; i += kThreads) {
      Partial all;
#pragma unroll 4
      for (int rank = 0; rank < 1 << ranks_log2; ++rank) {
        const float2 softmax[] = {received.softmax[rank * share + i]};
        const float4 out[] = {received.out[rank * share + i]};
        all.add(softmax, out);
      }
      store(rank_ * share + i, all);
    }
#endif
  }

  const BlockArgs& args_;
  const SparseAttentionArgs& params_;
  char* const shared_;
  Place& place_;
  const uint32_t arrived_;  // a barrier that counts the bytes received
  const int rank_;          // of the block in its cluster
  int64_t token_;
  int kv_head_;
  int first_head_;  // of the query heads
  int num_heads_;
};

}  // namespace atom::ops::sparse_device
