// For operators whose result is quantized at once on the CPU: the kernel of the operator and that
// of quantize take turns, and between them a row stays in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/quantize/quantize_kernels.h"
#include "tensor/stream.h"

namespace atom::ops {

// `compute(row, memory)` writes one row of codes.size elements of codes.element to `memory`: a row
// of codes.x, or, where that is null, memory that nobody reads afterwards.
template <QuantizeKernel* quantize, typename Compute>
void quantize_row_by_row(const Stream& stream,
                         const QuantizeArgs& codes,
                         int64_t num_rows,
                         const Compute& compute) {
  // A few microseconds of work, several times what a parallel region costs.
  constexpr int64_t kElementsPerTask = 8192;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, codes.size));
  stream.pool().parallel_for(num_rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> memory(codes.x == nullptr ? codes.size : 0);  // for any element
    for (int64_t row = begin; row < end; ++row) {
      QuantizeArgs one = row_of(codes, row);
      if (codes.x == nullptr) one.x = memory.data();
      compute(row, const_cast<void*>(one.x));
      quantize(one, 0, 1);
    }
  });
}

}  // namespace atom::ops
