// Warps stream tiles of keys and values through queues of their own, across the borders of items,
// and meet only where an item ends; see decode/plan.cuh for who computes what.
#include "ops/attention/decode/decode_cuda.h"

#include <algorithm>
#include <array>

#include "ops/attention/decode/few.cuh"
#include "ops/attention/decode/join_parts.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "tensor/per_card.h"

namespace atom::ops {
namespace {

using namespace attention_device;

template <typename T, typename KV, int kHeadDim, int kRows>
__global__ void __launch_bounds__(DecodeTile<T, KV, kHeadDim, kRows>::kThreads, 1)
    attention_decode_kernel(const __grid_constant__ DecodeArgs args) {
  using Warp = WarpAttention<T, KV, kHeadDim, kRows>;
  using Tile = typename Warp::Tile;
  extern __shared__ __align__(512) char shared[];
  __shared__ Item items[Tile::kWarps][Tile::kNumItems];
  __shared__ int flags[Tile::kWarps];
#if __CUDA_ARCH__ >= 900
  if (args.cluster_log2 > 0 && FewRows<T, KV, kHeadDim, kRows>(args, shared).run()) {
    return;
  }
#endif
  auto& exchange = *reinterpret_cast<Exchange<Tile, kRows>*>(shared + Tile::kQueueBytes);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const uint32_t queue = shared_address(shared) + warp * (Tile::kStages * Tile::kEntryBytes);

  const Plan& plan = make_plan<Tile::kKeys, Tile::kWarps>(args);
  TileLoader<Tile> loader(args, plan, queue, items[warp]);
  const Team team(plan);
  const int slice = warp & ((1 << plan.slices_log2) - 1);
  const int tile_step = 1 << plan.slices_log2;
  const float scale_log2 = args.params.scale * args.params.k_scale * kLog2E;
  Warp state;
  int stage = 0;
  int item_place = -1;
  bool starts = true;  // an item, with the next entry of the queue
  // What the loop needs of the item.
  int tile = 0;
  int last_tile = 0;
  int first_key = 0;
  int seq_len = 0;
  bool early = true;  // the kernel before may still run: only keys of earlier steps are read
  const auto end_early = [&] {
    device::wait_for_previous_grid();
    loader.end_early();
    early = false;
  };
  // The first steps only fill the queue: one place in the code for all loads keeps it short.
#pragma unroll 1
  for (int step = -Tile::kStages;; ++step) {
    const bool filled = step >= 0;
    if (filled) {
      const uint32_t entry = queue + stage * Tile::kEntryBytes;
      wait_for_copies<Tile::kStages - 1>();
      __syncwarp();
      if (starts) {
        item_place = item_place + 1 == Tile::kNumItems ? 0 : item_place + 1;
        const Item& item = items[warp][item_place];
        if (item.is_end()) {
          break;
        }
        tile = item.first_tile + slice;
        last_tile = item.last_tile;
        first_key = item.first_key;
        seq_len = item.seq_len;
        state.take_query(entry + 2 * Tile::kBytes);
      }
      state.take_keys(entry);
      state.take_values(entry + Tile::kBytes);
      __syncwarp();
    }
    loader.advance();
    if (early && !loader.is_settled()) {
      loader.prefetch();
      end_early();
    }
    loader.load();
    if (!filled) {
      if (step == -1) {
        if (early) {
          end_early();
        }
        device::allow_next_grid();
      }
      continue;
    }
    state.soften(tile * Tile::kKeys, first_key, seq_len, scale_log2);
    state.add_values();
    stage = stage + 1 == Tile::kStages ? 0 : stage + 1;
    tile += tile_step;
    starts = tile >= last_tile;
    if (!starts) {
      continue;
    }
    const Item& item = items[warp][item_place];
    // All have read what the exchange held of the item before.
    team.sync();
    state.for_each_head([&](int head, float maximum, float sum, int r, int j) {
      if (head < item.num_heads) {
        if (lane < 4) {
          exchange.softmax[warp][head] = {maximum, sum};
        }
        state.write_out(r, j, exchange.out[warp][head]);
      }
    });
    team.sync();
    if (team.warps_log2 == 0) {
      join_warps<T, kHeadDim, 1>(args, item, team, exchange);
    } else {
      join_warps<T, kHeadDim, 4>(args, item, team, exchange);
    }
    if (item.parts.count > 1) {
      PartJoin<T, Tile, kHeadDim>(args, item, team, &flags[team.index]).run(plan.even_splits > 0);
    }
    state.clear();
  }
}

// 0 without a device.
int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (ATOM_GPU(GetDevice)(&device) != ATOM_GPU(Success) ||
      ATOM_GPU(DeviceGetAttribute)(&value, attribute, device) != ATOM_GPU(Success)) {
    return 0;
  }
  return value;
}

// Blocks of any launch on this device.
int max_blocks(const AttentionDecodeTuning& tuning) {
  return tuning.max_blocks > 0 ? tuning.max_blocks
                               : device_attribute(cudaDevAttrMultiProcessorCount);
}

// Clusters of 2^i blocks that this card runs at once, at i; 0 where it has no clusters.
using ClusterRoom = std::array<int, 4>;

ClusterRoom cluster_room(void (*kernel)(DecodeArgs), int threads, int shared_bytes) {
  ClusterRoom room{};
  if (device_attribute(cudaDevAttrClusterLaunch) == 0) {
    return room;
  }
  for (size_t i = 1; i < room.size(); ++i) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {1u << i, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1u << i);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&room[i], kernel, &config) != cudaSuccess) {
      (void)cudaGetLastError();
      room[i] = 0;
    }
  }
  return room;
}

// Blocks of a launch of clusters of 2^log2.
int blocks_of_clusters(const AttentionDecodeTuning& tuning, const ClusterRoom& room, int log2) {
  return std::min(max_blocks(tuning) >> log2, room[log2]) << log2;
}

// Of the largest clusters that have room for one for each head item of the rows, and leave hardly a
// multiprocessor idle, since long rows need them all. 0: of none.
int cluster_log2_of(const DecodeArgs& args,
                    const AttentionDecodeTuning& tuning,
                    const ClusterRoom& room) {
  const int items = args.params.num_sequences * args.head_items();
  if (args.even_splits == 0 || args.params.num_sequences > kMaxFewRows) {
    return 0;
  }
  for (int log2 = static_cast<int>(room.size()) - 1; log2 > 0; --log2) {
    const int blocks = blocks_of_clusters(tuning, room, log2);
    if (1 << log2 <= tuning.max_cluster && items << log2 <= blocks &&
        blocks * 8 >= max_blocks(tuning) * 7) {
      return log2;
    }
  }
  return 0;
}

// Cuts each row into as many parts as blocks there are.
void split_evenly(DecodeArgs& args, int blocks) {
  const int items = args.params.num_sequences * args.head_items();
  args.even_splits = items < blocks ? blocks / items : 1;
  args.num_groups = args.even_splits > 2 * kPartsOfGroup
                        ? (args.even_splits + kPartsOfGroup - 1) / kPartsOfGroup
                        : 0;
}

template <typename T, typename KV, int kHeadDim, int kRows>
gpuError_t launch_kernel(DecodeArgs args, const AttentionDecodeTuning& tuning, gpuStream_t stream) {
  using Tile = DecodeTile<T, KV, kHeadDim, kRows>;
  const auto kernel = attention_decode_kernel<T, KV, kHeadDim, kRows>;
  constexpr int kSharedBytes = Tile::kQueueBytes + sizeof(Exchange<Tile, kRows>);
  constexpr int kClusterSharedBytes =
      std::max<int>(kSharedBytes, FewRows<T, KV, kHeadDim, kRows>::kSharedBytes);
  static_assert(kClusterSharedBytes + 4096 <= kMaxSharedBytes);
  const gpuError_t error = ATOM_GPU(FuncSetAttribute)(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kClusterSharedBytes);
  if (error != ATOM_GPU(Success)) {
    return error;
  }
  static PerCard<ClusterRoom> rooms;
  const ClusterRoom& room =
      rooms.get([&] { return cluster_room(kernel, Tile::kThreads, kClusterSharedBytes); });
  args.cluster_log2 = cluster_log2_of(args, tuning, room);
  int blocks = max_blocks(tuning);
  if (args.cluster_log2 > 0) {
    blocks = blocks_of_clusters(tuning, room, args.cluster_log2);
    split_evenly(args, blocks);
  }
  return device::launch_clusters(kernel,
                                 blocks,
                                 1 << args.cluster_log2,
                                 Tile::kThreads,
                                 args.cluster_log2 > 0 ? kClusterSharedBytes : kSharedBytes,
                                 stream,
                                 tuning.overlaps_previous,
                                 args);
}

// Query heads that a warp can take at once: a head of 256 leaves registers for 8.
int max_heads_per_item(const AttentionArgs& params) {
  return params.head_dim > 128 ? 8 : 16;
}

// Calls body.operator()<T, KV, kHeadDim, kRows>() for the case that the arguments are of.
template <typename Body>
gpuError_t dispatch_case(const DecodeArgs& args, const Body& body) {
  const auto with_head = [&]<typename T, typename KV>() {
    const bool few = args.heads_per_item <= 8;
    switch (args.params.head_dim) {
      case 64:
        return few ? body.template operator()<T, KV, 64, 8>()
                   : body.template operator()<T, KV, 64, 16>();
      case 128:
        return few ? body.template operator()<T, KV, 128, 8>()
                   : body.template operator()<T, KV, 128, 16>();
      case 256:
        return body.template operator()<T, KV, 256, 8>();
      default:
        return ATOM_GPU(ErrorInvalidValue);
    }
  };
  const auto with_cache = [&]<typename T>() {
    return args.params.float8_cache ? with_head.template operator()<T, Float8E4m3>()
                                    : with_head.template operator()<T, T>();
  };
  return args.params.element == Element::kBFloat16 ? with_cache.template operator()<gpu_bfloat16>()
                                                   : with_cache.template operator()<__half>();
}

DecodeArgs make_args(const AttentionArgs& params, const AttentionDecodeTuning& tuning) {
  DecodeArgs args = {};
  args.params = params;
  args.fixed_splits = tuning.fixed_splits;
  args.max_parts = tuning.max_parts;
  args.max_even_teams = tuning.max_even_teams;
  args.shares_tiles = tuning.shares_tiles;
  const int group = params.num_heads / params.num_kv_heads;
  const int most = max_heads_per_item(params);
  args.heads_per_kv_head = group;
  args.items_per_kv_head = (group + most - 1) / most;
  args.heads_per_item = group < most ? group : most;
  // Keys from an aligned beginning, which are at most a tile more than are visible.
  int64_t keys = params.max_seq_len;
  if (params.sliding_window > 0 && params.sliding_window + 64 < keys) {
    keys = params.sliding_window + 64;
  }
  const int64_t splits = (keys + kFixedSplitKeys - 1) / kFixedSplitKeys;
  args.max_splits = static_cast<int>(splits < kMaxFixedSplits ? splits : kMaxFixedSplits);
  const int items = params.num_sequences * args.head_items();
  if (tuning.even_splits && !args.fixed_splits && items > 0) {
    split_evenly(args, max_blocks(tuning));
  }
  return args;
}

// Places for results that are to be joined.
int64_t num_parts(const DecodeArgs& args, const AttentionDecodeTuning& tuning) {
  constexpr int64_t kMaxTeams = 8;
  return args.fixed_splits
             ? int64_t{args.params.num_sequences} * args.head_items() * args.max_splits
             : int64_t{max_blocks(tuning)} * 2 * kMaxTeams;
}

}  // namespace

bool supports_attention_decode_cuda(const AttentionArgs& params) {
  const bool head_dim = params.head_dim == 64 || params.head_dim == 128 || params.head_dim == 256;
  const bool element = params.element == Element::kFloat16 || params.element == Element::kBFloat16;
  const bool memory = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= kMaxSharedBytes;
  return head_dim && element && memory && params.block_size % kSubtileKeys == 0 &&
         params.num_kv_heads > 0 && params.num_heads % params.num_kv_heads == 0;
}

size_t attention_decode_workspace_size(const AttentionArgs& params,
                                       const AttentionDecodeTuning& tuning) {
  const DecodeArgs args = make_args(params, tuning);
  return num_parts(args, tuning) * args.heads_per_item *
         (sizeof(float2) + params.head_dim * sizeof(float));
}

size_t attention_decode_num_counters(const AttentionArgs& params) {
  const DecodeArgs args = make_args(params, {});
  return size_t{1} * params.num_sequences * args.head_items() * (1 + args.num_groups);
}

gpuError_t launch_attention_decode_cuda(const AttentionArgs& params,
                                        void* workspace,
                                        int32_t* counters,
                                        gpuStream_t stream,
                                        const AttentionDecodeTuning& tuning) {
  DecodeArgs args = make_args(params, tuning);
  const int64_t partials = num_parts(args, tuning) * args.heads_per_item;
  args.partial_out = static_cast<float*>(workspace);
  args.partial_softmax = reinterpret_cast<float2*>(args.partial_out + partials * params.head_dim);
  args.counters = counters;
  if (params.num_sequences == 0) {
    return ATOM_GPU(Success);
  }
  return dispatch_case(args, [&]<typename T, typename KV, int kHeadDim, int kRows>() {
    return launch_kernel<T, KV, kHeadDim, kRows>(args, tuning, stream);
  });
}

}  // namespace atom::ops
