// A projection of its own for every head of a packed row: y[t, h] = W_h x[t, h]. On the CPU each
// element is what ops::linear gives; on a GPU a row's elements do not depend on the other rows.
#pragma once

#include <span>

#include "ops/linear/linear.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

// x and y consist of equal parts for the weights.size() heads, of which the first K and N elements
// are read and written; what is behind them in y stays as it is.
void head_linear(const Stream& stream,
                 const Tensor& x,                        // [T, NH * (K + any)]
                 std::span<const LinearWeight> weights,  // [N, K] each, of one format
                 const Tensor& y,                        // [T, NH * (N + any)]
                 Workspace& scratch);

}  // namespace atom::ops
