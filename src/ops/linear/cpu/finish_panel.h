// Inside linear on the CPU: from the sums of a panel to y.
#pragma once

#include "ops/linear/linear_variants.h"

namespace atom::ops {

struct PanelSums {
  const linear_kernels::StoreTable& stores;
  float unit;        // what sums are still to be multiplied by: a power of 2
  bool is_integers;  // 32-bit ones in the place of floats
};

struct RowRange {
  int64_t begin, end;
};

// Writes `rows` of y in the columns of `panel`: their sums [rows][64], which change meanwhile,
// times all scales that groups do not have, plus the bias.
void finish_panel(
    const LinearCall& call, const PanelSums& kind, int64_t panel, RowRange rows, float* sums);

}  // namespace atom::ops
