// Warps stream tiles of keys and values through queues of their own, across the borders of items,
// and meet only where a row is cut: there the last one joins what all have stored.
#include "ops/attention/fixed/fixed_decode_cuda.h"

#include <algorithm>

#include "ops/attention/fixed/join.cuh"
#include "ops/attention/fixed/warp.cuh"
#include "ops/device/programmatic_launch.cuh"

namespace atom::ops {
namespace {

using namespace attention_device;

template <typename T, typename KV, int kHeadDim>
__global__ void __launch_bounds__(kFixedWarps * 32, 1)
    attention_fixed_decode_kernel(const __grid_constant__ FixedDecodeArgs args) {
  using Warp = FixedWarp<T, KV, kHeadDim>;
  using Queue = typename Warp::Queue;
  using Part = typename Queue::Part;
  extern __shared__ __align__(512) char shared[];
  __shared__ FixedItem items[kFixedWarps][Queue::kItems];
  // Cut rows that are to be joined when the registers are free: of a share's first item and last.
  __shared__ FixedItem finished[kFixedWarps][2];
  const int warp = threadIdx.x / 32;
  const uint32_t queue = shared_address(shared) + warp * Queue::kWarpBytes;
  const AttentionArgs& params = args.params;

  const FixedPlan& plan = make_fixed_plan(args);
  FixedLoader<Queue> loader(args, plan, queue, items[warp]);
  const int share = loader.walk().share(), team = loader.walk().team();
  const int first_place = ((share << args.warps_log2) + team) * args.places_per_warp;
  const float scale_log2 = params.scale * params.k_scale * kLog2E;
  Warp state;
  int stage = 0, item_place = -1, query = 0;
  int entry = 0;  // of the tile
  int tile = 0, last_tile = 0;
  int segment = 0, segment_end = 0;  // the end in tiles
  int num_finished = 0;
  // The first steps only fill the queue: one place in the code for all loads keeps it short.
#pragma unroll 1
  for (int step = -Queue::kStages;; ++step) {
    const bool filled = step >= 0;
    if (filled) {
      const uint32_t from = queue + stage * Part::kBytes;
      wait_for_copies<Queue::kStages - 1>();
      __syncwarp();
      if (entry == 0 && tile == last_tile) {
        item_place = item_place + 1 == Queue::kItems ? 0 : item_place + 1;
        const FixedItem& item = items[warp][item_place];
        if (item.is_end()) break;
        tile = item.first_tile;
        last_tile = item.last_tile;
        segment = segment_of_key(tile * kFixedTileKeys);
        segment_end = first_key_of_segment(segment + 1) / kFixedTileKeys;
        state.take_query(queue + Queue::kQueriesBegin + query * Part::kQueryBytes);
        query = query + 1 == Queue::kQueries ? 0 : query + 1;
        state.clear_joined();
      }
      if (entry < Queue::kParts) {
        state.take_part(entry, from);
      } else {
        state.add_part(entry - Queue::kParts, from);
      }
      __syncwarp();
    }
    loader.advance();
    if (step == -Queue::kStages) device::wait_for_previous_grid();
    loader.load();
    if (!filled) {
      if (step == -1) device::allow_next_grid();
      continue;
    }
    stage = stage + 1 == Queue::kStages ? 0 : stage + 1;
    const FixedItem& item = items[warp][item_place];
    if (entry == Queue::kParts - 1) {
      state.weigh(tile * kFixedTileKeys, item.keys.first_key, item.keys.seq_len, scale_log2);
    }
    if (++entry < Queue::kEntries) continue;
    entry = 0;
    ++tile;
    if (tile < segment_end && tile < last_tile) continue;
    // ---- the end of a segment
    state.finish_segment();
    const auto write = [&]<bool kJoined>(int index) {
      const int64_t heads = int64_t{first_place + index} * args.heads_per_item;
      state.template write<kJoined>(
          args.softmax + heads, args.out + heads * kHeadDim, item.num_heads);
    };
    if (item.has_begin()) {
      state.join_segment();
    } else {
      write.template operator()<false>(1 + segment -
                                       segment_of_key(item.first_tile * kFixedTileKeys));
    }
    state.clear_segment();
    ++segment;
    segment_end = first_key_of_segment(segment + 1) / kFixedTileKeys;
    if (tile < last_tile) continue;
    // ---- the end of an item
    if (item.is_whole()) {
      state.store(params, item);
      continue;
    }
    if (item.has_begin()) write.template operator()<true>(0);
    if (finishes_row(args, item)) {
      if (threadIdx.x % 32 == 0) finished[warp][num_finished] = item;
      ++num_finished;
    }
  }
  __syncwarp();
  for (int i = 0; i < num_finished; ++i) join_row<T, kHeadDim>(args, plan, finished[warp][i], team);
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

int num_blocks() {
  return device_attribute(cudaDevAttrMultiProcessorCount);
}

template <typename T, typename KV, int kHeadDim>
gpuError_t launch_kernel(const FixedDecodeArgs& args, bool overlaps, gpuStream_t stream) {
  const auto kernel = attention_fixed_decode_kernel<T, KV, kHeadDim>;
  constexpr int kSharedBytes = FixedQueue<T, KV, kHeadDim>::kSharedBytes;
  static_assert(kSharedBytes + 8192 <= kMaxSharedBytes);
  const gpuError_t error =
      ATOM_GPU(FuncSetAttribute)(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != ATOM_GPU(Success)) return error;
  return device::launch(
      kernel, dim3(num_blocks()), dim3(kFixedWarps * 32), kSharedBytes, stream, overlaps, args);
}

template <typename T, typename KV>
gpuError_t launch_for_head_dim(const FixedDecodeArgs& args, bool overlaps, gpuStream_t stream) {
  return args.params.head_dim == 64 ? launch_kernel<T, KV, 64>(args, overlaps, stream)
                                    : launch_kernel<T, KV, 128>(args, overlaps, stream);
}

template <typename T>
gpuError_t launch_for_cache(const FixedDecodeArgs& args, bool overlaps, gpuStream_t stream) {
  return args.params.float8_cache ? launch_for_head_dim<T, Float8E4m3>(args, overlaps, stream)
                                  : launch_for_head_dim<T, T>(args, overlaps, stream);
}

// Segments and tiles that a single query may see.
int64_t max_tiles(const AttentionArgs& params) {
  int64_t keys = params.max_seq_len;
  if (params.sliding_window > 0) keys = std::min<int64_t>(keys, params.sliding_window);
  return keys / kFixedTileKeys + 2;
}

int64_t max_segments(const AttentionArgs& params) {
  const int most = params.max_seq_len > 0 ? segment_of_key(params.max_seq_len - 1) + 1 : 0;
  return std::min<int64_t>(most, max_tiles(params));
}

FixedDecodeArgs make_args(const AttentionArgs& params) {
  FixedDecodeArgs args = {};
  args.params = params;
  const int group = params.num_heads / params.num_kv_heads;
  args.heads_per_kv_head = group;
  args.items_per_kv_head = (group + kFixedHeads - 1) / kFixedHeads;
  args.heads_per_item = std::min(group, kFixedHeads);
  while (2 << args.warps_log2 <= kFixedWarps && args.head_items() % (2 << args.warps_log2) == 0) {
    ++args.warps_log2;
  }
  // A share begins with the rest of one row: no more segments than it has tiles, and those that
  // the cut at a segment's beginning adds.
  const int64_t groups = args.head_items() >> args.warps_log2;
  const int64_t shares = std::max(1, num_blocks()) * (kFixedWarps >> args.warps_log2);
  const int64_t units = params.num_sequences * max_tiles(params) * groups;
  args.places_per_warp = static_cast<int>(1 + std::min(units / shares + 3, max_segments(params)));
  return args;
}

// Places of all warps.
int64_t num_places(const FixedDecodeArgs& args) {
  return int64_t{num_blocks()} * kFixedWarps * args.places_per_warp;
}

}  // namespace

bool supports_attention_fixed_decode_cuda(const AttentionArgs& params) {
  const bool head_dim = params.head_dim == 64 || params.head_dim == 128;
  const bool element = params.element == Element::kFloat16 || params.element == Element::kBFloat16;
  const bool memory = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= kMaxSharedBytes;
  return head_dim && element && memory && params.block_size % kSubtileKeys == 0 &&
         params.scale > 0 && params.num_kv_heads > 0 && params.num_heads % params.num_kv_heads == 0;
}

size_t attention_fixed_decode_workspace_size(const AttentionArgs& params) {
  const FixedDecodeArgs args = make_args(params);
  return num_places(args) * args.heads_per_item *
         (sizeof(float2) + params.head_dim * sizeof(float));
}

size_t attention_fixed_decode_num_counters(const AttentionArgs& params) {
  return size_t{1} * params.num_sequences * make_args(params).head_items();
}

gpuError_t launch_attention_fixed_decode_cuda(const AttentionArgs& params,
                                              void* workspace,
                                              int32_t* counters,
                                              gpuStream_t stream,
                                              bool overlaps_previous) {
  FixedDecodeArgs args = make_args(params);
  args.out = static_cast<float*>(workspace);
  args.softmax = reinterpret_cast<float2*>(args.out + num_places(args) * args.heads_per_item *
                                                          params.head_dim);
  args.counters = counters;
  if (params.num_sequences == 0) return ATOM_GPU(Success);
  return params.element == Element::kBFloat16
             ? launch_for_cache<gpu_bfloat16>(args, overlaps_previous, stream)
             : launch_for_cache<__half>(args, overlaps_previous, stream);
}

}  // namespace atom::ops
