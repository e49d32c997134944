// From a loaded parameter to the layout that the kernels of this machine read.
#pragma once

#include <algorithm>

#include "nn/parameter.h"
#include "ops/linear/linear.h"
#include "tensor/stream.h"

namespace atom {

// Weights cut at multiples of this many rows take as much memory as the whole.
constexpr int64_t kPackedRowMultiple = 64;

// Packs `weight` [out_features, in_features] and releases it. The two share what is resident: each
// piece of the parameter is given back once it is packed. On a device the memory changes hands.
ops::LinearWeight pack_parameter(const Stream& stream, Parameter* weight);

// Packs contiguous `rows` [out_features, in_features] in the same way: on the CPU their content is
// lost, on a device they become the weight.
ops::LinearWeight pack_consumed_rows(const Stream& stream, const Tensor& rows);

// Quantizes contiguous `rows` [out_features, in_features] of floats in the way of online
// quantization, a scale for each row or for each of its groups. All is on the CPU, where the
// content of `rows` is lost.
ops::LinearWeight quantize_consumed_rows(const Stream& host,
                                         const Tensor& rows,
                                         const ops::QuantFormat& format,
                                         ops::WeightLayout layout);

// Calls visit(part, first row) for pieces of `rows` that are whole panels of every packed layout,
// and gives the memory of each back: their content is lost.
template <typename Visit>
void consume_in_pieces(const Tensor& rows, const Visit& visit) {
  constexpr int64_t kPieceSize = int64_t{32} << 20;  // bytes
  const int64_t num_rows = rows.size(0);
  const int64_t row_size = std::max<int64_t>(1, rows.size(1) * dtype_size(rows.dtype()));
  const int64_t piece =
      std::max(kPackedRowMultiple, kPieceSize / row_size / kPackedRowMultiple * kPackedRowMultiple);
  for (int64_t first = 0; first < num_rows; first += piece) {
    const Tensor part = rows.narrow(0, first, std::min(piece, num_rows - first));
    visit(part, first);
    discard_content(part);
  }
}

}  // namespace atom
