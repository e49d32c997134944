// Packing of weights into panels, and reading rows back.
#include <algorithm>
#include <cstring>

#include "base/cpu_info.h"
#include "ops/linear/linear_variants.h"
#include "tensor/dispatch.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

using linear_kernels::kPanelColumns;

int64_t ceil_div(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Values of k in one step of a panel: vdpbf16ps takes pairs.
int64_t step_size_of(DType dtype) {
  return dtype == DType::kBFloat16 ? 2 : 1;
}

Shape data_shape(int64_t out_features, int64_t in_features, DType dtype, WeightLayout layout) {
  if (layout == WeightLayout::kRowMajor) return {out_features, in_features};
  const int64_t step_size = step_size_of(dtype);
  return {ceil_div(out_features, kPanelColumns),
          ceil_div(in_features, step_size),
          kPanelColumns * step_size};
}

// Writes columns of one panel in units of a step of one column: bfloat16 pairs and float32 values
// are both 4 bytes, float16 values 2. `column_begin` and `num_rows` stay inside the panel.
template <typename Unit>
void fill_panel(const char* rows,
                int64_t row_stride,
                int64_t num_rows,
                int64_t in_features_size,
                int64_t column_begin,
                char* panel) {
  // Long enough for a row's run to span several cache lines, short enough for the block to stay in
  // the first-level cache.
  constexpr int64_t kBlockSteps = 64;
  constexpr int64_t kUnitSize = sizeof(Unit);
  const int64_t whole_steps = in_features_size / kUnitSize;
  for (int64_t begin = 0; begin < whole_steps; begin += kBlockSteps) {
    const int64_t end = std::min(begin + kBlockSteps, whole_steps);
    for (int64_t r = 0; r < num_rows; ++r) {
      const char* from = rows + r * row_stride;
      Unit* to = reinterpret_cast<Unit*>(panel) + column_begin + r;
      for (int64_t step = begin; step < end; ++step) {
        Unit unit;
        std::memcpy(&unit, from + step * kUnitSize, kUnitSize);
        to[step * kPanelColumns] = unit;
      }
    }
  }
  const int64_t tail_size = in_features_size - whole_steps * kUnitSize;
  if (tail_size == 0) return;
  for (int64_t r = 0; r < num_rows; ++r) {
    Unit unit = 0;
    std::memcpy(&unit, rows + r * row_stride + whole_steps * kUnitSize, tail_size);
    reinterpret_cast<Unit*>(panel)[whole_steps * kPanelColumns + column_begin + r] = unit;
  }
}

template <typename Unit>
void clear_columns(int64_t column_begin, int64_t num_steps, char* panel) {
  Unit* units = reinterpret_cast<Unit*>(panel);
  for (int64_t step = 0; step < num_steps; ++step) {
    std::fill(
        units + step * kPanelColumns + column_begin, units + (step + 1) * kPanelColumns, Unit{0});
  }
}

template <typename Unit>
void pack_into_panels(const Stream& stream,
                      const Tensor& rows,
                      int64_t first_row,
                      const LinearWeight& weight) {
  const int64_t element_size = dtype_size(weight.dtype());
  const int64_t row_stride = rows.stride(0) * element_size;
  const int64_t panel_size = weight.data.stride(0) * element_size;
  const int64_t num_steps = weight.data.size(1);
  const int64_t last_row = first_row + rows.size(0);
  const int64_t first_panel = first_row / kPanelColumns;
  const int64_t num_panels = ceil_div(last_row, kPanelColumns) - first_panel;
  stream.pool().parallel_for(num_panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = first_panel + begin; p < first_panel + end; ++p) {
      const int64_t row_begin = std::max(first_row, p * kPanelColumns);
      const int64_t row_end = std::min(last_row, (p + 1) * kPanelColumns);
      char* panel = static_cast<char*>(weight.data.raw_data()) + p * panel_size;
      fill_panel<Unit>(
          static_cast<const char*>(rows.raw_data()) + (row_begin - first_row) * row_stride,
          row_stride,
          row_end - row_begin,
          weight.in_features * element_size,
          row_begin - p * kPanelColumns,
          panel);
      if (row_end == weight.out_features) {
        clear_columns<Unit>(row_end - p * kPanelColumns, num_steps, panel);
      }
    }
  });
}

}  // namespace

WeightLayout preferred_weight_layout() {
  return cpu_isa() >= CpuIsa::kAvx2 ? WeightLayout::kPanels : WeightLayout::kRowMajor;
}

int64_t packed_size(int64_t out_features, int64_t in_features, DType dtype, WeightLayout layout) {
  return data_shape(out_features, in_features, dtype, layout).num_elements() * dtype_size(dtype);
}

LinearWeight linear_weight_meta(int64_t out_features,
                                int64_t in_features,
                                DType dtype,
                                WeightLayout layout) {
  const Shape shape = data_shape(out_features, in_features, dtype, layout);
  return {Tensor::meta(shape, dtype), out_features, in_features, layout};
}

LinearWeight make_linear_weight(int64_t out_features,
                                int64_t in_features,
                                DType dtype,
                                WeightLayout layout) {
  const Shape shape = data_shape(out_features, in_features, dtype, layout);
  return {Tensor::empty(shape, dtype), out_features, in_features, layout};
}

void pack_rows(const Stream& stream,
               const Tensor& rows,
               int64_t first_row,
               const LinearWeight& weight) {
  TensorCheck check("pack_rows");
  check.tensor("rows", rows, {"R", "K"}, weight.dtype());
  CHECK(check.size("K") == weight.in_features);
  CHECK(first_row >= 0);
  CHECK(first_row + rows.size(0) <= weight.out_features);
  if (stream.is_dry_run() || rows.num_elements() == 0) return;
  if (weight.layout == WeightLayout::kRowMajor) {
    copy_convert(rows, weight.data.narrow(0, first_row, rows.size(0)));
  } else if (weight.dtype() == DType::kFloat16) {
    pack_into_panels<uint16_t>(stream, rows, first_row, weight);
  } else {
    pack_into_panels<uint32_t>(stream, rows, first_row, weight);
  }
}

LinearWeight pack_linear_weight(const Stream& stream, const Tensor& rows, WeightLayout layout) {
  CHECK(rows.rank() == 2);
  LinearWeight weight = make_linear_weight(rows.size(0), rows.size(1), rows.dtype(), layout);
  pack_rows(stream, rows, 0, weight);
  return weight;
}

WeightRow weight_row(const LinearWeight& weight, int64_t row) {
  if (weight.layout == WeightLayout::kRowMajor) return {row * weight.in_features, 1, 1};
  const int64_t step_size = step_size_of(weight.dtype());
  const int64_t panel = row / kPanelColumns * weight.data.stride(0);
  return {panel + row % kPanelColumns * step_size, kPanelColumns * step_size, step_size};
}

void gather_rows(const Stream& stream,
                 const Tensor& ids,
                 const LinearWeight& weight,
                 const Tensor& out) {
  TensorCheck check("gather_rows");
  check.tensor("ids", ids, {"T"}, DType::kInt32);
  check.tensor("out", out, {"T", "K"}, weight.dtype());
  CHECK(check.size("K") == weight.in_features);
  if (stream.is_dry_run()) return;
  const int64_t element_size = dtype_size(weight.dtype());
  const char* data = static_cast<const char*>(weight.data.raw_data());
  stream.pool().parallel_for(ids.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t id = ids.data<int32_t>()[t];
      CHECK(id >= 0);
      CHECK(id < weight.out_features);
      const WeightRow at = weight_row(weight, id);
      const char* from = data + at.begin * element_size;
      char* to = static_cast<char*>(out.raw_data()) + t * out.stride(0) * element_size;
      if (at.step_size == at.step_stride) {
        std::memcpy(to, from, weight.in_features * element_size);
        continue;
      }
      const int64_t unit_size = at.step_size * element_size;
      const int64_t row_size = weight.in_features * element_size;
      for (int64_t offset = 0; offset < row_size; offset += unit_size) {
        std::memcpy(to + offset, from, std::min(unit_size, row_size - offset));
        from += at.step_stride * element_size;
      }
    }
  });
}

}  // namespace atom::ops
