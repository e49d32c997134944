#include "layers/quant/make_weight.h"

namespace atom {

Parameter make_weight(DType dtype, const LinearPartition& partition) {
  if (partition.is_packed()) {
    return Parameter(dtype, partition.out_slices, {partition.in_features});
  }
  const RowSlice& rows = partition.out_slices.front();
  const Shape full_shape = {rows.rows, partition.in_features};
  if (partition.in_part.world > 1) return Parameter(dtype, full_shape, 1, partition.in_part);
  return Parameter(dtype, full_shape, 0, rows.part);
}

}  // namespace atom
