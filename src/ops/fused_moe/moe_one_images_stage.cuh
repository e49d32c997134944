// Inside fused_moe for one token by experts in MXFP4 as images on Hopper: shared memory.
#pragma once

#include "ops/fused_moe/moe_one_blocks.cuh"
#include "ops/fused_moe/moe_one_images_share.cuh"

namespace atom::ops::device::moe_one_images {

using moe_one::Choice;
using moe_one::kNumConsumers;
using moe_one::kWarps;

constexpr int kWarpgroupSize = 128, kGroups = kNumConsumers / kWarpgroupSize;
constexpr int kGroupWarps = kWarpgroupSize / kWarpSize;
// A stage has a quad, each image at its place. Stages are the warpgroups' by turns.
constexpr int kStageSize = kQuadImages * kImageSize;
// More of them are no faster.
constexpr int kMaxStages = 12;
static_assert(kMaxStages % kGroups == 0);
// Copies of the second matrix begin when no more quads of the first one are on their way.
constexpr int kQuadsAhead = 8;
constexpr int kMaxTileSlots = 8;  // of exponents
constexpr int kMostChoices = 8;
// Terms of 16 columns, the even or the odd ones of 32, are a run of high ones and one of low ones,
// 16 bytes each, behind six such runs of zeros. So 128 bytes are what a product takes as eight
// columns, of which it has two, and which two they are depends on where the 128 bytes begin.
constexpr int kRunSize = 16, kZerosSize = 6 * kRunSize, kHalfTermsSize = kZerosSize + 2 * kRunSize;
constexpr int kBlockTermsSize = 2 * kHalfTermsSize;
constexpr int kImageTermsSize = kImageBlocks * kBlockTermsSize;
// Images of zeros before and behind those that have terms, for those of a quad that are none.
constexpr int kNoTerms = kQuadImages - 1;
constexpr int kGateTilesSize = 5 * sizeof(int);  // GateTiles of an image
constexpr int kSlotSize = kGroups * kImageRows * sizeof(float);

struct MoeOneImagesArgs {
  FusedMoeGpuCall call;
  MoeOneImagesScratch scratch;
  int num_stages, num_tile_slots;
  bool fills_slots_again;                // with other tiles
  int most_gate_tiles, most_down_tiles;  // of a block
  int most_slots;
  int most_activated;  // images of columns
};

// Behind everything else.
struct Shared {
  Choice choices[moe_one::kMaxChoices];
  int num_choices;
  uint32_t maxima[kWarps];
  uint64_t full[kMaxStages], empty[kMaxStages];
  uint64_t tile_full[kMaxTileSlots], tile_empty[kMaxTileSlots];
};

// Where things are, in bytes from the beginning. When there are terms of what is activated, nobody
// needs those of x.
struct Layout {
  static constexpr int kBiasesSize = kImageRows * sizeof(float);  // of a tile

  int exponents_size;  // of a tile
  int exponents, biases, no_terms, terms, scales, gate_tiles, sums, shared, size;

  __host__ __device__ explicit Layout(const MoeOneImagesArgs& args) {
    const int hidden = args.call.hidden_size, intermediate = args.call.intermediate_size;
    const int columns = hidden > intermediate ? hidden : intermediate;
    const int x_images = hidden / kImageColumns;
    const int images = x_images > args.most_activated ? x_images : args.most_activated;
    exponents_size = kImageRows * (columns / kExponentColumns);
    exponents = args.num_stages * kStageSize;
    biases = exponents + args.num_tile_slots * exponents_size;
    no_terms = biases + (args.most_gate_tiles + args.most_down_tiles) * kBiasesSize;
    terms = no_terms + kNoTerms * kImageTermsSize;
    scales = terms + (images + kNoTerms) * kImageTermsSize + kZerosSize;
    gate_tiles = scales + args.most_activated * kImageBlocks * 4;
    sums = (gate_tiles + args.most_activated * kGateTilesSize + 127) / 128 * 128;
    shared = sums + args.most_slots * kSlotSize;
    size = shared + sizeof(Shared);
  }
};

// What the kernel is made for: what several tokens take more is not free for one.
enum class Tokens {
  kOne,  // whose blocks have no more tiles than slots of exponents
  kAny,
};

// The block's.
template <Tokens kTokens>
__device__ inline int own_token() {
  return kTokens == Tokens::kOne ? 0 : moe_one::own_token();
}

// Of a token, in scratch.gates.
__device__ inline int first_gate_of(const FusedMoeGpuCall& call, int token) {
  return token * static_cast<int>(moe_one_gate_parts_size(call.top_k, call.intermediate_size));
}
__device__ inline float* downs_of(const MoeOneImagesArgs& args, int token) {
  return args.scratch.downs + token * moe_one_down_parts_size(args.call.hidden_size);
}
__device__ inline int32_t* counters_of(const MoeOneImagesArgs& args, int token) {
  return args.scratch.counters + token * num_moe_one_images_counters(args.call.hidden_size);
}

// The tiles of both matrices one after the other, in slots of exponents by turns.
struct TileCursor {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void advance(int num_slots) {
    if (++slot < num_slots) return;
    slot = 0;
    parity ^= 1;
  }
};

// What warpgroups have of the rows of a slot, and then zeros.
struct Slots {
  uint8_t* memory;

  __device__ float* of(int slot, int group) const {
    return reinterpret_cast<float*>(memory + slot * kSlotSize) + group * kImageRows;
  }
  // Leaves zeros.
  __device__ float take(int slot, int row) const {
    float parts[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      float& part = of(slot, g)[row];
      parts[g] = part;
      part = 0;
    }
    static_assert(kGroups == 4);
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }
};

}  // namespace atom::ops::device::moe_one_images
