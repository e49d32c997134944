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
constexpr int kMaxStages = 32;
static_assert(kMaxStages % kGroups == 0);
// Copies of the second matrix begin when no more quads of the first one are on their way.
constexpr int kQuadsAhead = 8;
constexpr int kMaxTiles = 48;  // of a block's parts of both matrices
constexpr int kMostChoices = 8;
// Terms of 16 columns, the even or the odd ones of 32, are a run of high ones and one of low ones,
// 16 bytes each, behind six such runs of zeros. So 128 bytes are what a product takes as eight
// columns, of which it has two, and which two they are depends on where the 128 bytes begin.
constexpr int kRunSize = 16, kZerosSize = 6 * kRunSize, kHalfTermsSize = kZerosSize + 2 * kRunSize;
constexpr int kBlockTermsSize = 2 * kHalfTermsSize;
constexpr int kImageTermsSize = kImageBlocks * kBlockTermsSize;
// Images of zeros before and behind those that are activated, for those of a quad that are none.
constexpr int kNoTerms = kQuadImages - 1;
constexpr int kGateTilesSize = 5 * sizeof(int);  // GateTiles of an image
constexpr int kSlotSize = kGroups * kImageRows * sizeof(float);

struct MoeOneImagesArgs {
  FusedMoeGpuCall call;
  MoeOneImagesScratch scratch;
  int num_stages;
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
  uint64_t tile_full[kMaxTiles];
};

// Where things are, in bytes from the beginning.
struct Layout {
  int exponents_size, tile_size;  // of a tile, the latter with its biases
  int tiles, x, activated, scales, gate_tiles, sums, shared, size;

  __host__ __device__ explicit Layout(const MoeOneImagesArgs& args) {
    const int hidden = args.call.hidden_size, intermediate = args.call.intermediate_size;
    const int columns = hidden > intermediate ? hidden : intermediate;
    exponents_size = kImageRows * (columns / kExponentColumns);
    tile_size = exponents_size + kImageRows * static_cast<int>(sizeof(float));
    tiles = args.num_stages * kStageSize;
    x = tiles + (args.most_gate_tiles + args.most_down_tiles) * tile_size;
    activated = x + (hidden / kImageColumns + kNoTerms) * kImageTermsSize;
    scales = activated + (args.most_activated + kNoTerms) * kImageTermsSize + kZerosSize;
    gate_tiles = scales + args.most_activated * kImageBlocks * 4;
    sums = (gate_tiles + args.most_activated * kGateTilesSize + 127) / 128 * 128;
    shared = sums + args.most_slots * kSlotSize;
    size = shared + sizeof(Shared);
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
