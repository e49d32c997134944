// Inside the Hopper prefill attention: the warps that bring tiles to shared memory.
#pragma once

#include "ops/attention/prefill/prefill_sm90.cuh"

namespace atom::ops::attention_device {

// Where in the cache this lane's part of a tile begins, or -1: nothing of it is to be loaded.
template <typename Tile>
__device__ int first_slot(const PrefillArgs& args, const Item& item, int tile) {
  const int part = (threadIdx.x & 31) * args.box_tokens;
  const int key = tile * Tile::kKeys + part;
  if (part >= Tile::kKeys || key >= item.seq_len || key + args.box_tokens <= item.first_key) {
    return -1;
  }
  const int page = key / args.params.block_size;
  const int32_t block =
      args.params.block_tables[item.sequence * args.params.block_table_stride + page];
  return block * args.params.block_size + (key - page * args.params.block_size);
}

// One warp calls it. `phase` is that of queries_empty.
template <typename KV, int kHeadDim>
__device__ void load_queries(const PrefillArgs& args,
                             const Buffers<KV, kHeadDim>& buffers,
                             const Item& item,
                             uint32_t phase) {
  using Tile = PrefillTile<KV, kHeadDim>;
  for (int group = 0; group < Tile::kGroups; ++group) {
    wait_for(buffers.queries_empty(group), phase);
    if ((threadIdx.x & 31) == 0) {
      arrive_expecting(buffers.queries_full(group), Tile::kQueryBytes / Tile::kGroups);
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        copy_box(buffers.queries(group) + panel * Tile::kQueryPanelBytes,
                 &args.queries,
                 panel * kPanelElements,
                 item.head,
                 item.first_token + group * kGroupRows,
                 buffers.queries_full(group));
      }
    }
    __syncwarp();
  }
}

__device__ inline int kv_head_of(const PrefillArgs& args, const Item& item) {
  return item.head / (args.params.num_heads / args.params.num_kv_heads);
}

// Copies 16-bit caches: one warp the keys (and queries) and one the values, so that neither
// waits for room for the other. Its copies go straight to the consumers' tiles.
template <typename KV, int kHeadDim, bool kOfKeys, bool kAscending>
class Producer {
 public:
  using Tile = PrefillTile<KV, kHeadDim>;

  __device__ Producer(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers)
      : args_(args), buffers_(buffers) {}

  __device__ void run() {
    constexpr int kTilesAhead = 2;  // of the next item that is asked for
    ItemReader<KV, kHeadDim> items(buffers_);
    Item item;
    uint32_t phase = 1;
    while (items.read(item)) {
      const int kv_head = kv_head_of(args_, item);
      const int num_tiles = item.last_tile - item.first_tile + 1;
      const auto slot_of = [&](int i) {
        const int tile = kAscending ? item.first_tile + i : item.last_tile - i;
        return i < num_tiles ? first_slot<Tile>(args_, item, tile) : -1;
      };
      int slot = slot_of(0);
      for (int i = 0; i < num_tiles; ++i) {
        if (i == max(0, num_tiles - 1 - kTilesAhead)) {
          items.release();
        }
        const int next_slot = slot_of(i + 1);
        load_tile(kv_head, slot);
        slot = next_slot;
        // There is room for the first keys before there is for the queries.
        if (kOfKeys && i == 0) {
          load_queries(args_, buffers_, item, phase);
          phase ^= 1;
        }
      }
    }
  }

 private:
  static constexpr int kStages = kOfKeys ? Tile::kKeyStages : Tile::kValueStages;

  __device__ void load_tile(int kv_head, int slot) {
    const int lane = threadIdx.x & 31;
    const int num_boxes = __popc(__ballot_sync(kAllLanes, slot >= 0));
    const int box_bytes = args_.box_tokens * (kOfKeys ? kHeadDim : Tile::kValueDim) * 2;
    const int stage = ring_.stage;
    const uint32_t full = kOfKeys ? buffers_.keys_full(stage) : buffers_.values_full(stage);
    const uint32_t empty = kOfKeys ? buffers_.keys_empty(stage) : buffers_.values_empty(stage);
    const uint32_t target = kOfKeys ? buffers_.keys(stage) : buffers_.values(stage);
    wait_for(empty, ring_.parity ^ 1);
    if (lane == 0) {
      arrive_expecting(full, num_boxes * box_bytes);
    }
    __syncwarp();
    if (slot >= 0) {
      copy_rows(target + lane * box_bytes,
                kOfKeys ? &args_.keys : &args_.values,
                slot / 8,
                kv_head,
                full);
    }
    ring_.advance();
  }

  const PrefillArgs& args_;
  const Buffers<KV, kHeadDim>& buffers_;
  RingPosition<kStages> ring_;
};

// Copies 8-bit caches, by a warpgroup. Its first warp has tiles copied as they are, ahead of use;
// all expand them into the consumers' tiles. Steps are the keys and values of each tile in turn.
template <typename T, typename KV, int kHeadDim>
class ExpandingProducer {
 public:
  using Tile = PrefillTile<KV, kHeadDim>;

  __device__ ExpandingProducer(const PrefillArgs& args, const Buffers<KV, kHeadDim>& buffers)
      : args_(args), buffers_(buffers), finder_(args, buffers) {}

  __device__ void run() {
    const bool is_loader = threadIdx.x < 32;
    if (is_loader) {
      start_item();
      for (int i = 0; i < Tile::kRawStages - 1; ++i) {
        load_raw();
      }
    }
    ItemReader<KV, kHeadDim> items(buffers_);
    Item item;
    uint32_t phase = 1;
    while (items.next(item)) {
      if (is_loader) {
        load_queries(args_, buffers_, item, phase);
        phase ^= 1;
      }
      for (int tile = item.last_tile; tile >= item.first_tile; --tile) {
        expand_step(keys_, buffers_.keys_full(0), buffers_.keys(0), is_loader);
        expand_step(values_, buffers_.values_full(0), buffers_.values(0), is_loader);
      }
    }
  }

 private:
  __device__ void start_item() {
    load_item_ = finder_.put_next();
    load_tile_ = load_item_.last_tile;
    loads_values_ = false;
    if (load_item_.sequence >= 0) {
      load_slot_ = first_slot<Tile>(args_, load_item_, load_tile_);
    }
  }

  // Begins the copy of one more step, if there is one. By the first warp.
  __device__ void load_raw() {
    if (load_item_.sequence < 0) {
      return;
    }
    const int lane = threadIdx.x & 31;
    const int num_boxes = __popc(__ballot_sync(kAllLanes, load_slot_ >= 0));
    const int box_bytes = args_.box_tokens * kHeadDim;
    const uint32_t full = buffers_.raw_full(loads_.stage);
    if (lane == 0) {
      arrive_expecting(full, num_boxes * box_bytes);
    }
    __syncwarp();
    if (load_slot_ >= 0) {
      copy_box(buffers_.raw(loads_.stage) + lane * box_bytes,
               loads_values_ ? &args_.values : &args_.keys,
               0,
               kv_head_of(args_, load_item_),
               load_slot_,
               full);
    }
    loads_.advance();
    loads_values_ = !loads_values_;
    if (loads_values_) {
      return;
    }
    if (load_tile_ == load_item_.first_tile) {
      start_item();
    } else {
      --load_tile_;
      load_slot_ = first_slot<Tile>(args_, load_item_, load_tile_);
    }
  }

  // `full` and `target` are those of stage 0.
  template <int kStages>
  __device__ void expand_step(RingPosition<kStages>& ring,
                              uint32_t full,
                              uint32_t target,
                              bool is_loader) {
    if (is_loader) {
      load_raw();  // into the stage of the step before
    }
    full += ring.stage * 8;
    wait_for(buffers_.raw_full(raw_.stage), raw_.parity);
    wait_for(full + kStages * 8, ring.parity ^ 1);  // empty
    expand(buffers_.raw(raw_.stage), target + ring.stage * Tile::kBytes);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    arrive(full);
    named_barrier_wait<kGroupThreads>(kProducerBarrier);
    raw_.advance();
    ring.advance();
  }

  // Rows that were not loaded hold anything: the consumers hide them.
  static __device__ void expand(uint32_t raw, uint32_t target) {
    constexpr int kChunks = kHeadDim / 16;
#pragma unroll 4
    for (int i = threadIdx.x; i < Tile::kKeys * kChunks; i += kGroupThreads) {
      const int key = i / kChunks;
      const int chunk = i % kChunks;
      uint32_t words[4];
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                   : "r"(raw + i * 16)
                   : "memory");
      const uint32_t row =
          target + key / 8 * Tile::kRowsBytes + chunk / 4 * kPieceBytes + key % 8 * kPanelRowBytes;
      // Neighbors that write to different panels begin with different halves, so that they do not
      // meet in one bank.
      const int swap = (chunk / 4) & 1;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int half = j ^ swap;
        const uint32_t low = half == 0 ? words[0] : words[2];
        const uint32_t high = half == 0 ? words[1] : words[3];
        const uint32_t place = row + (((chunk % 4 * 2 + half) ^ (key & 7)) << 4);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(place),
                     "r"(expand_to<T>(low & 0xffff)),
                     "r"(expand_to<T>(low >> 16)),
                     "r"(expand_to<T>(high & 0xffff)),
                     "r"(expand_to<T>(high >> 16))
                     : "memory");
      }
    }
  }

  const PrefillArgs& args_;
  const Buffers<KV, kHeadDim>& buffers_;
  RingPosition<Tile::kKeyStages> keys_;
  RingPosition<Tile::kValueStages> values_;
  RingPosition<Tile::kRawStages> raw_;
  // The next step that the first warp copies.
  RingPosition<Tile::kRawStages> loads_;
  ItemFinder<KV, kHeadDim> finder_;
  Item load_item_;
  int load_tile_;
  int load_slot_ = -1;
  bool loads_values_;
};

}  // namespace atom::ops::attention_device
