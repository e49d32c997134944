// What the checks and the timings of the linears in FP8 with scales of groups share.
#pragma once

#include <string>

#include "ops/linear/blocks/blocks_cuda.h"

namespace atom::bench {

constexpr int32_t kScaleRows = 128;  // weight rows that have one scale

struct BlocksLayer {
  const char* name;
  int64_t out_features, in_features;
  ops::LinearEpilogue epilogue = ops::LinearEpilogue::kStore;
};
constexpr BlocksLayer kBlocksLayers[] = {
    {"30B qkv", 5120, 2048},
    {"30B o", 2048, 4096},
    {"Next qkvz", 12288, 2048},
    {"Next qkv", 9216, 2048},
    {"8B qkv", 6144, 4096},
    {"8B o", 4096, 4096},
    {"8B gate_up", 28672, 4096, ops::LinearEpilogue::kSiluAndMul},
    {"8B down", 4096, 14336},
    {"V3 qkv_a", 2112, 7168},
    {"V3 q_b", 24576, 1536},
    {"V3 o", 7168, 16384},
    {"V3 gate_up", 36864, 7168, ops::LinearEpilogue::kSiluAndMul}};

// Whether the tile is one of those for many rows. A multiprocessor that has one of the others has
// hardly more than that.
inline bool is_for_many_rows(const ops::LinearBlocksTuning& t) {
  return t.tile_rows == 256 || (t.takes_turns && t.cluster_columns == 1 && t.tile_columns <= 128);
}

inline std::string name_of(const ops::LinearBlocksTuning& t) {
  std::string name;
  for (const int size : {t.tile_rows, t.tile_columns, t.cluster_rows, t.cluster_columns, t.parts}) {
    if (!name.empty()) name += "x";
    name += std::to_string(size);
  }
  return name + (t.takes_turns ? "" : "free");
}

// Prints what fails, and how many do. `few`: of at most 300 rows, and of blocks alone.
int check_linears_in_blocks(bool few);

}  // namespace atom::bench
