// Inside fused_moe for one token by experts in MXFP4 as images on Hopper: which images a block has.
//
// The images of a matrix of all choices are one sequence, of which every block has an even part
// that is contiguous in memory but for few borders of experts. So a part may begin and end inside
// of a tile of 64 rows, whose sums several blocks have.
#pragma once

#include "ops/fused_moe/expert_image_format.h"
#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops::device::moe_one_images {

// Blocks that have parts of a tile's gates and ups, or of a tile of the result, at most.
constexpr int kMostGateParts = 4, kMostDownParts = 8;
// Images that a warpgroup takes at once, side by side in a tile from a multiple of so many on.
constexpr int kQuadImages = 4;

// A matrix of all choices. Of the first one tiles are in the order of choices and rows, of the
// second one in that of rows and choices.
struct Images {
  int tile_images;  // of 64 columns each, that follow each other
  int tile_quads;
  int num_tiles;
  int slot_tiles;  // that have a sum together: those of all choices of the same rows, or one
  int blocks;      // that have a part

  // `most_parts`: of the tiles of a slot.
  __host__ __device__
  Images(int num_columns, int slots, int tiles_of_slot, int most_parts, int num_blocks)
      : tile_images(num_columns / kImageColumns),
        tile_quads((tile_images + kQuadImages - 1) / kQuadImages),
        num_tiles(slots * tiles_of_slot),
        slot_tiles(tiles_of_slot) {
    blocks = slots * (most_parts - 1);
    if (blocks > num_blocks) blocks = num_blocks;
    if (blocks > count()) blocks = count();
  }

  __host__ __device__ int count() const { return num_tiles * tile_images; }
  __host__ __device__ int begin_of(int block) const {
    return static_cast<int>(static_cast<uint32_t>((block < blocks ? block : blocks) * count()) /
                            static_cast<uint32_t>(blocks));
  }
  __device__ int block_of(int image) const {
    return static_cast<int>(static_cast<uint32_t>((image + 1) * blocks - 1) /
                            static_cast<uint32_t>(count()));
  }

  // Of a slot: its first block, and how many have a part of it.
  __device__ int first_block_of(int slot) const { return block_of(slot * slot_images()); }
  __device__ int num_parts_of(int slot) const {
    return block_of((slot + 1) * slot_images() - 1) - first_block_of(slot) + 1;
  }
  __host__ __device__ int slot_images() const { return slot_tiles * tile_images; }

  // What a block has at most.
  __host__ __device__ int most_images() const { return (count() + blocks - 1) / blocks; }
  __host__ __device__ int most_tiles() const { return most_runs(tile_images); }
  __host__ __device__ int most_slots() const { return most_runs(slot_images()); }

 private:
  __host__ __device__ int most_runs(int size) const {
    return (most_images() + size - 2) / size + 1;
  }
};

// Of so many choices that are here.
__host__ __device__ inline Images gate_images(const FusedMoeGpuCall& call,
                                              int num_choices,
                                              int num_blocks) {
  const int tiles = 2 * call.intermediate_size / kImageRows;
  return {call.hidden_size, num_choices * tiles, 1, kMostGateParts, num_blocks};
}

__host__ __device__ inline Images down_images(const FusedMoeGpuCall& call,
                                              int num_choices,
                                              int num_blocks) {
  const int slots = call.hidden_size / kImageRows;
  return {call.intermediate_size, slots, num_choices, kMostDownParts, num_blocks};
}

// A block's.
struct Part {
  int count;                     // images
  int first_tile, first_column;  // the latter in images
  int num_tiles;
  int first_slot, num_slots;
  int first_quad, num_quads;  // of the first tile; all
  int last_end;               // of the last quad's images

  __device__ Part(const Images& images, int block) {
    const int first = images.begin_of(block), last = images.begin_of(block + 1) - 1;
    count = last + 1 - first;
    first_tile = first / images.tile_images;
    first_column = first - first_tile * images.tile_images;
    first_slot = first_tile / images.slot_tiles;
    first_quad = first_column / kQuadImages;
    const int last_tile = last / images.tile_images;
    const int last_column = last - last_tile * images.tile_images;
    num_tiles = count == 0 ? 0 : last_tile - first_tile + 1;
    num_slots = count == 0 ? 0 : last_tile / images.slot_tiles - first_slot + 1;
    num_quads = count == 0 ? 0
                           : (num_tiles - 1) * images.tile_quads + last_column / kQuadImages -
                                 first_quad + 1;
    last_end = last_column % kQuadImages + 1;
  }

  // Whether the block has the beginning of one of its tiles, and with it the tile's biases.
  __device__ bool begins(int tile) const { return tile > 0 || first_column == 0; }
};

// Of a block, which all of its warps compute for themselves: before choices are known, whose number
// rarely differs from that of all, because divisions take long.
struct Plan {
  Images gates, downs;
  Part gate_part, down_part;

  __device__ Plan(const FusedMoeGpuCall& call, int num_choices)
      : gates(gate_images(call, num_choices, static_cast<int>(gridDim.x))),
        downs(down_images(call, num_choices, static_cast<int>(gridDim.x))),
        gate_part(gates, static_cast<int>(blockIdx.x)),
        down_part(downs, static_cast<int>(blockIdx.x)) {}
};

// Which images of columns the block's part of the second matrix meets, in the order in which they
// are activated: those of its tiles, or of all choices if it has a choice's tile twice.
struct Columns {
  int count, first, period;

  __device__ Columns(const Images& downs, const Part& part) : period(downs.slot_images()) {
    const bool has_all = part.num_tiles > downs.slot_tiles;
    count = has_all ? period : part.count;
    first = has_all ? 0 : part.first_column;
  }
};

}  // namespace atom::ops::device::moe_one_images
