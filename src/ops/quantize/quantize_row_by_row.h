// For operators whose result is quantized at once on the CPU: the kernel of the operator and that
// of quantize take turns, and between them a row stays in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/quantize/quantize_kernels.h"
#include "tensor/stream.h"

namespace atom::ops {

// `compute(row, memory)` writes one row of result.size elements of result.element to `memory`.
// `result` says where codes and scales go; its x is not used.
template <QuantizeKernel* quantize, typename Compute>
void quantize_row_by_row(const Stream& stream,
                         const QuantizeArgs& result,
                         int64_t num_rows,
                         const Compute& compute) {
  // A few microseconds of work, several times what a parallel region costs.
  constexpr int64_t kElementsPerTask = 8192;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, result.size));
  stream.pool().parallel_for(num_rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> memory(result.size);  // for any element
    QuantizeArgs one = result;
    one.x = memory.data();
    one.x_stride = result.size;
    for (int64_t row = begin; row < end; ++row) {
      compute(row, memory.data());
      one.values = result.values + row * result.values_stride;
      if (result.scales != nullptr) one.scales = result.scales + row;
      quantize(one, 0, 1);
    }
  });
}

}  // namespace atom::ops
