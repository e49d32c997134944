// Inside fused_moe for one token by experts in MXFP4 as images on Hopper: the thread that copies.
#pragma once

#include "ops/fused_moe/moe_one_images_stage.cuh"

namespace atom::ops::device::moe_one_images {

class Copier {
 public:
  __device__ Copier(const MoeOneImagesArgs& args, uint8_t* memory, Shared& shared)
      : args_(args),
        layout_(args),
        base_(shared_address(memory)),
        shared_(shared),
        policy_(read_once_policy()) {}

  __device__ void run(const Plan& plan) {
    copy<false>(args_.call.gate_up, plan.gates, plan.gate_part, 0);
    wait_for_gates(plan.gate_part.num_quads - 1 - min(kQuadsAhead, args_.num_stages - kGroups));
    copy<true>(args_.call.down, plan.downs, plan.down_part, args_.most_gate_tiles);
  }

 private:
  // Until a quad of the first matrix has been read: what comes of the second one before would only
  // make those wait that still wait for the first.
  __device__ void wait_for_gates(int quad) const {
    if (quad < 0) return;
    wait_for(shared_address(&shared_.empty[quad % args_.num_stages]), quad / args_.num_stages & 1);
  }

  // Which of an expert's tiles.
  struct Place {
    int choice, tile;

    // The next one in the matrix's order.
    template <bool kDown>
    __device__ void advance(int num_choices, int num_tiles) {
      int &inner = kDown ? choice : tile, &outer = kDown ? tile : choice;
      if (++inner < (kDown ? num_choices : num_tiles)) return;
      inner = 0;
      ++outer;
    }
  };

  template <bool kDown>
  __device__ void copy(const ExpertMatrices& matrices,
                       const Images& images,
                       const Part& part,
                       int own_tile) {
    if (part.count == 0) return;
    const int num_tiles =
        (kDown ? args_.call.hidden_size : 2 * args_.call.intermediate_size) / kImageRows;
    Place place;
    if (kDown) {
      place = {part.first_tile - part.first_slot * images.slot_tiles, part.first_slot};
    } else {
      place.choice = part.first_tile / num_tiles;
      place.tile = part.first_tile - place.choice * num_tiles;
    }
    int column = part.first_column, rest = part.count;
    const uint8_t* codes = begin_tile(matrices, images, place, num_tiles, own_tile, column == 0);
#pragma unroll 1
    while (true) {
      const int begin = column % kQuadImages;
      const int run = min(min(kQuadImages - begin, images.tile_images - column), rest);
      const uint32_t full = shared_address(&shared_.full[stage_.index]);
      wait_for(shared_address(&shared_.empty[stage_.index]), stage_.parity ^ 1);
      arrive_expecting(full, run * kImageSize);
      copy_bulk(base_ + stage_.index * kStageSize + begin * kImageSize,
                codes + column * kImageSize,
                run * kImageSize,
                full,
                policy_);
      stage_.advance(args_.num_stages);
      rest -= run;
      if (rest == 0) return;
      column += run;
      if (column < images.tile_images) continue;
      column = 0;
      place.advance<kDown>(shared_.num_choices, num_tiles);
      codes = begin_tile(matrices, images, place, num_tiles, ++own_tile, true);
    }
  }

  // Copies a tile's exponents, and its biases if it begins here; returns where its codes are.
  __device__ const uint8_t* begin_tile(const ExpertMatrices& matrices,
                                       const Images& images,
                                       const Place& place,
                                       int num_tiles,
                                       int own_tile,
                                       bool begins) {
    const int64_t expert = shared_.choices[place.choice].expert, tile = place.tile;
    const int size = kImageRows * kImageBlocks * images.tile_images;
    const bool has_bias = begins && matrices.bias != nullptr;
    const int bias_size =
        kImageRows * (matrices.bias_element == Element::kFloat32 ? sizeof(float) : 2);
    const uint32_t full = shared_address(&shared_.tile_full[tile_.slot]);
    wait_for(shared_address(&shared_.tile_empty[tile_.slot]), tile_.parity ^ 1);
    arrive_expecting(full, size + (has_bias ? bias_size : 0));
    copy_bulk(base_ + layout_.exponents + tile_.slot * layout_.exponents_size,
              matrices.exponents + expert * matrices.exponent_stride + tile * size,
              size,
              full,
              policy_);
    if (has_bias) {
      copy_bulk(
          base_ + layout_.biases + own_tile * Layout::kBiasesSize,
          static_cast<const uint8_t*>(matrices.bias) + (expert * num_tiles + tile) * bias_size,
          bias_size,
          full,
          policy_);
    }
    tile_.advance(args_.num_tile_slots);
    return static_cast<const uint8_t*>(matrices.data) + expert * matrices.expert_stride +
           tile * images.tile_images * kImageSize;
  }

  const MoeOneImagesArgs& args_;
  const Layout layout_;
  const uint32_t base_;
  Shared& shared_;
  const uint64_t policy_;
  StageCursor stage_;
  TileCursor tile_;
};

}  // namespace atom::ops::device::moe_one_images
