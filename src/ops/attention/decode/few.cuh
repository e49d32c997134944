// Inside decode attention: few rows that are not long, without a plan and without joins through
// global memory. A cluster has a head item of a row, each of its warps tiles as far apart as it has
// warps, and its blocks send each other what they have of the result.
//
// Such a launch takes as long as what follows one upon the other, and its code is read from far
// away the first time: so all that needs no query is under way before the kernel before has ended,
// and every part of the code is in one place. Blocks without a tile end at once, which makes room
// for the kernel after this one.
#pragma once

#include "ops/attention/decode/join.cuh"
#include "ops/device/cluster.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"

namespace atom::ops::attention_device {

constexpr int kMaxFewRows = 32;  // a lane each

// The keys of row `lane`.
template <int kKeys>
__device__ RowKeys keys_of_lane(const AttentionArgs& params) {
  const int lane = threadIdx.x & 31;
  return lane < params.num_sequences ? keys_of_row<kKeys>(params, lane) : RowKeys{};
}

template <typename T, typename KV, int kHeadDim, int kRows>
class FewRows {
  using Warp = WarpAttention<T, KV, kHeadDim, kRows>;
  using Tile = typename Warp::Tile;
  static constexpr int kStages = 3;  // tiles of a warp that are copied ahead
  static constexpr int kEntryBytes = 2 * Tile::kBytes;
  static constexpr int kWarpBytes = kStages * kEntryBytes + Tile::kQueryBytes;
  static constexpr int kVectors = kHeadDim / 4;  // of a head
  static constexpr int kItemVectors = kRows * kVectors;
  static constexpr int kMaxTiles = 32 / Tile::kSubtiles;  // of a warp: a lane for each subtile
  static constexpr int kBytesOfVector = sizeof(float4) + sizeof(float2);

  // A warp's results, where its tiles were.
  struct Result {
    float out[kRows][Tile::kExchangeStride];
    float2 softmax[kRows];
  };
  static_assert(sizeof(Result) <= kStages * kEntryBytes);

  // From each block of the cluster its results of those vectors that this block joins.
  struct Received {
    float4 out[kItemVectors];
    float2 softmax[kItemVectors];
    uint64_t arrived;  // counts their bytes
  };

 public:
  static constexpr int kSharedBytes = Tile::kWarps * kWarpBytes + sizeof(Received);

  // By all threads of all blocks.
  __device__ FewRows(const DecodeArgs& args, char* shared)
      : args_(args),
        shared_(shared),
        received_(*reinterpret_cast<Received*>(shared + Tile::kWarps * kWarpBytes)),
        rank_(device::cluster_rank()) {}

  // False, and nothing is done, for rows that are long or of very different lengths.
  __device__ bool run() {
    const RowKeys of_lane = keys_of_lane<Tile::kKeys>(args_.params);
    const int place = blockIdx.x >> args_.cluster_log2;
    item_.row = place / args_.head_items();
    ranks_log2_ = args_.cluster_log2;
    look_up(args_.params.max_seq_len);
    if (!are_few(of_lane.num_tiles)) {
      return false;
    }
    if (threadIdx.x == 0) {
      device::init_barrier(arrived(), 1);
      device::publish_barriers();
    }
    __syncwarp();
    device::arrive_at_cluster();
    find_tiles(of_lane);
    if (num_tiles_ == 0 || rank_ >= 1 << ranks_log2_) {
      // A launch without rows must not end before the one before it.
      if (blockIdx.x == 0) {
        device::wait_for_previous_grid();
      }
      return true;
    }
    set_heads(args_, item_, place - item_.row * args_.head_items());
    attend();
    join();
    return true;
  }

 private:
  __device__ static int warp() { return threadIdx.x / 32; }
  __device__ static int lane() { return threadIdx.x & 31; }

  // Whether a warp has hardly more tiles than with shares, whose plan and joins take as long as
  // some tiles.
  __device__ bool are_few(int tiles_of_lane) const {
    constexpr int kMoreTiles = 4;
    const int most = __reduce_max_sync(kAllLanes, tiles_of_lane);
    const int longest =
        ((most + Tile::kWarps - 1) / Tile::kWarps + (1 << args_.cluster_log2) - 1) >>
        args_.cluster_log2;
    const int64_t total = __reduce_add_sync(kAllLanes, tiles_of_lane);
    const int64_t warps = int64_t{Tile::kWarps} * gridDim.x;
    return longest <= kMaxTiles && (longest - kMoreTiles) * warps <= total * args_.head_items();
  }

  __device__ void find_tiles(const RowKeys& of_lane) {
    const int row = item_.row;
    if (row >= args_.params.num_sequences) {
      return;
    }
    num_tiles_ = __shfl_sync(kAllLanes, of_lane.num_tiles, row);
    item_.token = __shfl_sync(kAllLanes, of_lane.token, row);
    item_.seq_len = __shfl_sync(kAllLanes, of_lane.seq_len, row);
    item_.settled_len = __shfl_sync(kAllLanes, of_lane.settled_len, row);
    item_.first_key = __shfl_sync(kAllLanes, of_lane.first_key, row);
    item_.first_tile = __shfl_sync(kAllLanes, of_lane.first_tile, row);
    item_.last_tile = item_.first_tile + num_tiles_;
    // As many blocks as have a tile for each warp, in powers of two.
    ranks_log2_ = min(args_.cluster_log2, 32 - __clz((num_tiles_ - 1) / Tile::kWarps));
    if (ranks_log2_ != args_.cluster_log2 || item_.first_tile != 0) {
      look_up(item_.seq_len);
    }
    const int key = key_of_lane();
    if (key >= item_.seq_len || key + kSubtileKeys <= item_.first_key) {
      slot_ = 0;
    }
  }

  // The first key of subtile `lane` of the warp's tiles.
  __device__ int key_of_lane() const {
    return tile(lane() / Tile::kSubtiles) * Tile::kKeys + lane() % Tile::kSubtiles * kSubtileKeys;
  }

  // Where it is in the cache, of a row whose tiles begin at item_.first_tile: first as if that were
  // its first one and all of the cluster's blocks had some, so that the row's length, which most
  // often says so too, is not waited for.
  __device__ void look_up(int num_keys) {
    const AttentionArgs& params = args_.params;
    const int key = key_of_lane();
    if (item_.row < params.num_sequences && key < num_keys) {
      const int block = key / params.block_size;
      const int64_t row = item_.row * params.block_table_stride;
      slot_ =
          params.block_tables[row + block] * params.block_size + key - block * params.block_size;
    }
  }

  __device__ uint32_t arrived() const { return shared_address(&received_.arrived); }

  // The warp's tile i, which may lie behind the last one.
  __device__ int tile(int i) const {
    return item_.first_tile + rank_ * Tile::kWarps + warp() + ((i * Tile::kWarps) << ranks_log2_);
  }

  // Of tile i the keys in [begin, end). Those that the query does not see become zeros: values may
  // be anything there.
  __device__ void copy_tile(int i, uint32_t entry, int begin, int end) const {
    const int slot_bytes = args_.params.num_kv_heads * Tile::kRowBytes;
    const int64_t part = int64_t{lane() / Tile::kLanesPerRow} * slot_bytes +
                         item_.kv_head * Tile::kRowBytes + lane() % Tile::kLanesPerRow * 16;
#pragma unroll
    for (int m = 0; m < Tile::kSubtiles; ++m) {
      const int64_t slot = __shfl_sync(kAllLanes, slot_, i * Tile::kSubtiles + m);
      const int first = tile(i) * Tile::kKeys + m * kSubtileKeys;
      const auto copy = [&](const void* cache, uint32_t target) {
        copy_rows<Tile>(
            static_cast<const char*>(cache) + slot * slot_bytes + part,
            slot_bytes,
            target + m * Tile::kSubtileBytes,
            [&](int row) { return first + row >= item_.first_key && first + row < item_.seq_len; },
            [&](int row) { return first + row >= begin && first + row < end; });
      };
      copy(args_.params.k_cache, entry);
      copy(args_.params.v_cache, entry + Tile::kBytes);
    }
  }

  // The warp's tiles. Keys of earlier steps are copied before the kernel before has ended.
  __device__ void attend() {
    const float scale_log2 = args_.params.scale * args_.params.k_scale * kLog2E;
    const int count =
        (item_.last_tile - tile(0) + (Tile::kWarps << ranks_log2_) - 1) / Tile::kWarps >>
        ranks_log2_;
    const uint32_t queue = shared_address(shared_) + warp() * kWarpBytes;
    const uint32_t query = queue + kStages * kEntryBytes;
    Warp state;
    int stage = 0;
    // The first steps only fill the queue: one place in the code for all copies keeps it short.
#pragma unroll 1
    for (int step = -2 * kStages; step < count; ++step) {
      const uint32_t entry = queue + stage * kEntryBytes;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (step == -kStages) {
        device::wait_for_previous_grid();
        device::allow_next_grid();
        copy_query<Tile>(args_.params, item_, query);
      }
      if (step >= 0) {
        wait_for_copies<kStages - 1>();
        __syncwarp();
        if (step == 0) {
          state.take_query(query);
        }
        state.take_keys(entry);
        state.take_values(entry + Tile::kBytes);
        __syncwarp();
      }
      const bool is_early = step < -kStages;
      const int next = step + (is_early ? 2 * kStages : kStages);
      const int begin = step >= -kStages && step < 0 ? item_.settled_len : 0;
      const int end = is_early ? item_.settled_len : INT32_MAX;
      const int first = tile(next) * Tile::kKeys;
      if (next < count && first + Tile::kKeys > begin && first < end) {
        copy_tile(next, entry, begin, end);
      }
      if (!is_early) {
        commit_copies();
      }
      if (step >= 0) {
        state.soften(tile(step) * Tile::kKeys, item_.first_key, item_.seq_len, scale_log2);
        state.add_values();
      }
    }
    wait_for_copies<0>();
    __syncwarp();
    Result& result = result_of(warp());
    state.for_each_head([&](int head, float maximum, float sum, int r, int j) {
      if (lane() < 4) {
        result.softmax[head] = {maximum, sum};
      }
      state.write_out(r, j, result.out[head]);
    });
  }

  __device__ Result& result_of(int warp) const {
    return *reinterpret_cast<Result*>(shared_ + warp * kWarpBytes);
  }

  // First the warps of each block, whose results it sends to the blocks that join them, then the
  // blocks.
  __device__ void join() const {
    const int share = kItemVectors >> ranks_log2_;  // vectors that a block joins
    const int num_vectors = item_.num_heads * kVectors;
    __syncthreads();
    device::wait_for_cluster();  // until all blocks have started
    for (int i = threadIdx.x; i < num_vectors; i += Tile::kThreads) {
      const Result& first = result_of(0);
      const Partial all = join_results(&first.softmax[i / kVectors],
                                       &first.out[i / kVectors][i % kVectors * 4],
                                       Tile::kWarps,
                                       kWarpBytes,
                                       kWarpBytes);
      if (ranks_log2_ == 0) {
        store(i, all);
        continue;
      }
      const int owner = (i << ranks_log2_) / kItemVectors;
      const int target = rank_ * share + (i & (share - 1));
      const uint32_t barrier = device::address_in(owner, arrived());
      device::send_in_cluster(
          device::address_in(owner, shared_address(&received_.out[target])), all.out, barrier);
      device::send_in_cluster(device::address_in(owner, shared_address(&received_.softmax[target])),
                              make_float2(all.maximum, all.sum),
                              barrier);
    }
    if (ranks_log2_ == 0) {
      return;
    }
    if (threadIdx.x == 0) {
      const int own = min(max(num_vectors - rank_ * share, 0), share);
      device::arrive_expecting(arrived(), (own << ranks_log2_) * kBytesOfVector);
    }
    device::wait_for(arrived(), 0);
    for (int i = threadIdx.x; i < share; i += Tile::kThreads) {
      const int vector = rank_ * share + i;
      if (vector < num_vectors) {
        store(vector,
              join_results(&received_.softmax[i],
                           &received_.out[i].x,
                           1 << ranks_log2_,
                           share * static_cast<int>(sizeof(float2)),
                           share * static_cast<int>(sizeof(float4))));
      }
    }
  }

  // Of `count` results that are so many bytes apart.
  __device__ static Partial join_results(
      const float2* softmax, const float* out, int count, int softmax_step, int out_step) {
    constexpr int kAtOnce = 4;
    Partial all;
    for (int first = 0; first < count; first += kAtOnce) {
      float2 softmaxes[kAtOnce];
      float4 values[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const bool exists = first + j < count;
        const int i = exists ? first + j : 0;
        softmaxes[j] = *reinterpret_cast<const float2*>(reinterpret_cast<const char*>(softmax) +
                                                        i * softmax_step);
        values[j] =
            *reinterpret_cast<const float4*>(reinterpret_cast<const char*>(out) + i * out_step);
        softmaxes[j].x = exists ? softmaxes[j].x : -INFINITY;
      }
      all.add(softmaxes, values);
    }
    return all;
  }

  __device__ void store(int vector, const Partial& all) const {
    store_out<T>(args_.params, item_, vector / kVectors, vector % kVectors * 4, all);
  }

  const DecodeArgs& args_;
  char* const shared_;
  Received& received_;
  const int rank_;  // of the block in its cluster
  Item item_ = {};
  int num_tiles_ = 0;
  int ranks_log2_ = 0;  // of the blocks that have tiles
  int slot_ = 0;        // in the cache, of subtile `lane` of the warp's tiles
};

}  // namespace atom::ops::attention_device
