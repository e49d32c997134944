// Inside fused_moe: experts' codes from rows to images on a GPU.
#pragma once

#include <cstdint>

namespace atom::ops {

// Tiles of 64 rows that follow each other, where they are. On a GPU's queue.
void turn_tiles_into_images(void* codes, int64_t num_tiles, int num_columns, void* queue);

}  // namespace atom::ops
