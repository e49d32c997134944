// The scales of quantized weights: how many there are, of what type, and where.
#include <cstring>

#include "ops/linear/linear_variants.h"
#include "tensor/tensor_check.h"

namespace atom::ops {

using linear_kernels::kPanelColumns;

int64_t QuantFormat::group_size() const {
  switch (granularity) {
    case QuantType::kPer1x32:
      return 32;
    case QuantType::kPer1x128:
    case QuantType::kPer128x128:
      return 128;
    default:
      return 0;
  }
}

DType QuantFormat::scale_dtype() const {
  const bool is_mx = dtype == QuantDType::kFloat4E2M1 && granularity == QuantType::kPer1x32;
  return is_mx ? DType::kUInt8 : DType::kFloat32;
}

float row_scale_at(const Tensor& scales, int64_t row) {
  if (!scales.defined()) return 1.0f;
  return scales.data<float>()[scales.num_elements() == 1 ? 0 : row];
}

int64_t group_scale_index(const LinearWeight& weight, int64_t row, int64_t group) {
  const Tensor& scales = weight.scales;
  const int64_t groups = scales.size(1);
  if (scales.rank() == 2) return row / weight.scale_rows * groups + group;
  const int64_t panel = row / kPanelColumns;
  return (panel * groups + group) * kPanelColumns + row % kPanelColumns;
}

void pack_scales(const Tensor& scales, int64_t first_row, const LinearWeight& weight) {
  CHECK(weight.layout != WeightLayout::kImages);
  CHECK(first_row >= 0);
  CHECK(first_row % weight.scale_rows == 0);
  if (!weight.has_groups()) {
    TensorCheck("pack_scales").tensor("scales", scales, {"R"}, DType::kFloat32);
    CHECK(first_row + scales.size(0) <= weight.scales.size(0));
    return copy_convert(scales, weight.scales.narrow(0, first_row, scales.size(0)));
  }
  TensorCheck("pack_scales").tensor("scales", scales, {"R", "groups"}, weight.scales.dtype());
  CHECK(scales.size(1) == weight.scales.size(1));
  const int64_t size = dtype_size(scales.dtype());
  for (int64_t r = 0; r < scales.size(0); ++r) {
    const int64_t row = first_row + r * weight.scale_rows;
    CHECK(row < weight.out_features);
    for (int64_t g = 0; g < scales.size(1); ++g) {
      std::memcpy(
          static_cast<char*>(weight.scales.raw_data()) + group_scale_index(weight, row, g) * size,
          static_cast<const char*>(scales.raw_data()) + (r * scales.stride(0) + g) * size,
          size);
    }
  }
}

}  // namespace atom::ops
