// Which part of a [out_features, in_features] weight this rank holds, independent of how the weight
// is quantized.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/parameter.h"

namespace atom {

struct LinearPartition {
  // Rows: one slice per tensor of the checkpoint, each split on its own; a single slice with id ""
  // when nothing is packed.
  std::vector<RowSlice> out_slices;
  int64_t in_features = 0;  // of the whole weight
  ShardPart in_part;        // columns: split by row-parallel layers

  // Rows are put together, from several tensors or from runs of one.
  bool is_packed() const { return out_slices.size() > 1 || !out_slices.front().runs.empty(); }
  // Rows of this rank's part.
  int64_t local_out_features() const {
    int64_t rows = 0;
    for (const RowSlice& slice : out_slices) rows += slice.rows_of_rank();
    return rows;
  }
  int64_t local_in_features() const { return in_features / in_part.world; }
};

}  // namespace atom
