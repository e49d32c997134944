#include "ops/linear/cpu/finish_panel.h"

#include <algorithm>
#include <bit>

#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

using linear_kernels::kPanelColumns;
using linear_kernels::StoreRows;
using linear_kernels::StoreTable;

StoreRows* store_for(const StoreTable& stores, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return stores.float32;
    case DType::kFloat16:
      return stores.float16;
    default:
      return stores.bfloat16;
  }
}

// The bias of a panel's columns as floats, or null.
const float* panel_bias(const Tensor& bias, int64_t column, int columns, float* out) {
  if (!bias.defined()) return nullptr;
  dispatch_float(bias.dtype(), [&]<typename B>(TypeTag<B>) {
    const B* values = bias.data<B>() + column;
    for (int c = 0; c < columns; ++c) out[c] = to_float(values[c]);
  });
  return out;
}

void scale_sums(const LinearCall& call,
                const PanelSums& kind,
                RowRange rows,
                int64_t column,
                int columns,
                float* sums) {
  const Tensor& x_scales = call.x_scales;
  const bool scales_rows = x_scales.defined() && x_scales.rank() == 1;
  float column_scales[kPanelColumns];
  std::fill_n(column_scales, kPanelColumns, kind.unit);
  if (call.weight.scales.defined() && !call.weight.has_groups()) {
    for (int c = 0; c < columns; ++c)
      column_scales[c] *= row_scale_at(call.weight.scales, column + c);
  }
  for (int64_t row = rows.begin; row < rows.end; ++row, sums += kPanelColumns) {
    if (kind.is_integers) {
      for (int c = 0; c < kPanelColumns; ++c) {
        sums[c] = static_cast<float>(std::bit_cast<int32_t>(sums[c]));
      }
    }
    for (int c = 0; c < kPanelColumns; ++c) sums[c] *= column_scales[c];
    if (!scales_rows) continue;
    const float x_scale = row_scale_at(x_scales, row);
    for (int c = 0; c < kPanelColumns; ++c) sums[c] *= x_scale;
  }
}

}  // namespace

void finish_panel(
    const LinearCall& call, const PanelSums& kind, int64_t panel, RowRange rows, float* sums) {
  const Tensor& y = call.y;
  const int64_t column = panel * kPanelColumns;
  const int columns =
      static_cast<int>(std::min<int64_t>(kPanelColumns, call.weight.out_features - column));
  const int64_t element_size = dtype_size(y.dtype());
  if (call.weight.is_quantized()) scale_sums(call, kind, rows, column, columns, sums);
  float bias[kPanelColumns];
  store_for(kind.stores, y.dtype())(
      sums,
      static_cast<int>(rows.end - rows.begin),
      columns,
      panel_bias(call.bias, column, columns, bias),
      static_cast<char*>(y.raw_data()) + (rows.begin * y.stride(0) + column) * element_size,
      y.stride(0) * element_size);
}

}  // namespace atom::ops
