// Inside fused_moe for one token by experts in MXFP4 as images on Hopper: the products of a
// warpgroup. Codes of 64 rows and 32 columns, expanded to E4M3, are one product with the token's
// terms, of eight columns, of which those of the high and of the low terms are not zero. They are
// other two for each of four images, so that products of four add up in the same registers and each
// lane has those of one.
#pragma once

#include "ops/device/matrix_loads.cuh"
#include "ops/fused_moe/moe_one_images_stage.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"
#include "ops/fused_moe/moe_terms_numbers.cuh"
#include "ops/fused_moe/moe_terms_product.cuh"

namespace atom::ops::device::moe_one_images {

// The descriptor of terms, eight columns of which each has 16 bytes, without swizzling: what has
// the next 16 columns of the matrix is behind that.
class TermsDescriptor {
 public:
  __device__ explicit TermsDescriptor(uint32_t address) : low_(kStride << 16 | address >> 4) {}
  // So many vectors further.
  __device__ uint64_t at(int vectors) const {
    return uint64_t{kStride} << 32 | (low_ + static_cast<uint32_t>(vectors));
  }

 private:
  static constexpr uint32_t kStride = kHalfTermsSize >> 4;
  const uint32_t low_;
};

// Of a warp.
template <Tokens kTokens>
class Multiplier {
 public:
  __device__ Multiplier(const MoeOneImagesArgs& args, uint8_t* memory, Shared& shared)
      : args_(args),
        layout_(args),
        base_(shared_address(memory)),
        shared_(shared),
        slots_{memory + layout_.sums},
        group_(uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize)) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int first = static_cast<int>(threadIdx.x) % kWarpgroupSize / kWarpSize * 16;
    row_ = first + lane / 4;
    image_ = lane % 4;
    // The row and block whose address this lane gives.
    const int matrix = lane / 8, row = first + matrix % 2 * 8 + lane % 8;
    codes_offsets_[0] = image_offset(row, matrix / 2);
    codes_offsets_[1] = image_offset(row, kImageBlocks + matrix / 2);
    // Not to be computed again for every image.
    asm volatile("" : "+r"(codes_offsets_[0]), "+r"(codes_offsets_[1]), "+r"(row_), "+r"(image_));
  }

  // Leaves the warpgroup's sums of the part in the slots that have some. `first_stage`: of the
  // part's first quad among all that the block copies. Of the second matrix, kDown, products are of
  // what is activated, whose blocks of 32 columns have scales.
  template <bool kDown>
  __device__ void run(const Images& images,
                      const Part& part,
                      const Columns& columns,
                      int first_stage) {
    const int tile_images = uniform(images.tile_images), tile_quads = uniform(images.tile_quads);
    const int slot_tiles = uniform(images.slot_tiles), period = uniform(columns.period);
    const int num_quads = uniform(part.num_quads), last_end = uniform(part.last_end);
    const int num_tiles = uniform(part.num_tiles);
    const int first_begin = uniform(part.first_column % kQuadImages);
    const TermsDescriptor x(base_ + layout_.terms);
    // A stage is always the same warpgroup's, so that it cannot take one fill for the next one.
    const int first_own = uniform((group_ + kGroups - first_stage % kGroups) % kGroups);
    int stage = uniform((first_stage + first_own) % args_.num_stages);
    uint32_t parity = uniform((first_stage + first_own) / args_.num_stages & 1);
    int tile = 0, quad = uniform(part.first_quad) + first_own;
    int slot = 0, slot_end = uniform((part.first_slot + 1) * slot_tiles - part.first_tile);
    int column = kDown ? -uniform(columns.first) : 0;  // of the tile, where its terms are
    float sums[2] = {};
#pragma unroll 1
    for (int own = first_own; own < num_quads; own += kGroups) {
      while (quad >= tile_quads) {
        quad -= tile_quads;
        ++tile;
        leave_tile();
        if constexpr (kDown) {
          column += tile_images;
          if (column == period) column = 0;
        }
      }
      while (tile >= slot_end) {
        keep(slot, sums);
        ++slot;
        slot_end += slot_tiles;
      }
      have_tile();
      const int first = quad * kQuadImages;
      const int end = own + 1 == num_quads ? last_end : min(kQuadImages, tile_images - first);
      const int begin = own == 0 ? first_begin : 0;
      const uint32_t exponents = base_ + layout_.exponents + tile_.slot * layout_.exponents_size +
                                 (row_ * tile_images + first + image_) * kImageBlocks;
      wait_for(shared_address(&shared_.full[stage]), parity);
      add<kDown>(Quad{stage, begin, end, column + first, exponents, tile_images}, x, sums);
      quad += kGroups;
      stage += kGroups;
      if (stage >= args_.num_stages) {
        stage -= args_.num_stages;
        parity ^= 1;
      }
    }
    keep(slot, sums);
    for (; tile < num_tiles; ++tile) leave_tile();
  }

 private:
  // The compiler knows that a warp has one.
  static __device__ int uniform(int value) {
    return __shfl_sync(0xffffffffu, value, 0);
  }

  struct Quad {
    int stage;
    int begin, end;      // of its images that the block has
    int column;          // in images, of the terms that they meet
    uint32_t exponents;  // of this lane's first row and image
    int tile_images;
  };

  template <bool kDown>
  __device__ __forceinline__ void add(const Quad& quad,
                                      const TermsDescriptor& x,
                                      float (&sums)[2]) const {
    const uint32_t stage = base_ + quad.stage * kStageSize;
    uint32_t words[kQuadImages][4];
#pragma unroll
    for (int i = 0; i < kQuadImages; ++i) {
      load_matrices(words[i], stage + codes_offsets_[i % 2] + i * kImageSize);
    }
    release(quad.stage);
    const Factors<kDown> factors = load_factors<kDown>(quad);
    float products[kImageBlocks][4];
    uint32_t codes[kQuadImages][kImageBlocks][4];
#pragma unroll
    for (int i = 0; i < kQuadImages; ++i) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        uint32_t(&target)[4] = codes[i][w / 2];
        terms::expand_image(words[i][w], target[w % 2], target[2 + w % 2]);
      }
      begin_products();
#pragma unroll
      for (int b = 0; b < kImageBlocks; ++b) {
        constexpr int kColumns = 2 * kRunSize;  // back to where those of the image are the terms
        const int offset = i * kImageTermsSize + b * kBlockTermsSize + kZerosSize - i * kColumns;
        terms::multiply<8>(
            products[b],
            codes[i][b],
            x.at(quad.column * (kImageTermsSize / kVectorSize) + offset / kVectorSize),
            i > 0);
      }
      commit_products();
    }
    wait_for_products<0>();
#pragma unroll
    for (auto& some : products) pin(some);
    // What is no image of the block's may be no number.
    if (image_ < quad.begin || image_ >= quad.end) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int b = 0; b < kImageBlocks; ++b) {
        sums[r] += (products[b][2 * r] + products[b][2 * r + 1]) * factors.of[r][b];
      }
    }
  }

  __device__ void have_tile() {
    if (has_tile_) return;
    wait_for(shared_address(&shared_.tile_full[tile_.slot]), tile_.parity);
    has_tile_ = true;
  }

  // To the next one. A warp that has nothing of it waits too, and so leaves no tile of the slot
  // before all have left the one before.
  __device__ void leave_tile() {
    if (kTokens == Tokens::kAny && args_.fills_slots_again) {
      have_tile();
      __syncwarp();
      if (threadIdx.x % kWarpSize == 0) arrive(shared_address(&shared_.tile_empty[tile_.slot]));
    }
    tile_.advance(args_.num_tile_slots);
    has_tile_ = false;
  }

  // What the current stage has for this warp is in registers.
  __device__ void release(int stage) const {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(shared_address(&shared_.empty[stage]));
  }

  // What products are to be multiplied by, of this lane's rows and image.
  template <bool kDown>
  struct Factors {
    float of[2][kImageBlocks];
  };

  template <bool kDown>
  __device__ __forceinline__ Factors<kDown> load_factors(const Quad& quad) const {
    Factors<kDown> factors;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t row = quad.exponents + r * 8 * quad.tile_images * kImageBlocks;
#pragma unroll
      for (int b = 0; b < kImageBlocks; ++b) {
        factors.of[r][b] = terms::power_of(load_shared_byte(row + b));
      }
    }
    if constexpr (kDown) {
      float scales[kImageBlocks];
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(scales[0]), "=f"(scales[1])
                   : "r"(base_ + layout_.scales + (quad.column + image_) * kImageBlocks * 4)
                   : "memory");
#pragma unroll
      for (auto& of_row : factors.of) {
        for (int b = 0; b < kImageBlocks; ++b) of_row[b] *= scales[b];
      }
    }
    return factors;
  }

  // Of all four images of quads.
  __device__ __forceinline__ void keep(int slot, float (&sums)[2]) const {
#pragma unroll
    for (float& sum : sums) {
      sum += gpu_shuffle_xor(sum, 1);
      sum += gpu_shuffle_xor(sum, 2);
    }
    if (image_ == 0) {
      float* const own = slots_.of(slot, group_) + row_;
      own[0] = sums[0];
      own[8] = sums[1];
    }
    sums[0] = sums[1] = 0;
  }

  const MoeOneImagesArgs& args_;
  const Layout layout_;
  const uint32_t base_;
  Shared& shared_;
  const Slots slots_;
  const int group_;
  int row_, image_, codes_offsets_[2];
  TileCursor tile_;
  bool has_tile_ = false;
};

}  // namespace atom::ops::device::moe_one_images
