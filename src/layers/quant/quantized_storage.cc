#include "layers/quant/quantized_storage.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/rounding.h"
#include "layers/quant/pack_parameter.h"

namespace atom {
namespace {

struct StorageRow {
  QuantDType dtype;
  QuantType granularity;
  QuantizedStorage storage;
};

// A quantization that differs in how it is stored is one row here.
constexpr StorageRow kStorageRows[] = {
    {QuantDType::kFloat8E4M3, QuantType::kPerTensor, {DType::kFloat8E4M3, 1}},
    {QuantDType::kFloat8E4M3, QuantType::kPerToken, {DType::kFloat8E4M3, 1}},
    {QuantDType::kFloat8E4M3, QuantType::kPer128x128, {DType::kFloat8E4M3, 1}},
    {QuantDType::kInt8, QuantType::kPerTensor, {DType::kInt8, 1}},
    {QuantDType::kInt8, QuantType::kPerToken, {DType::kInt8, 1}},
    {QuantDType::kFloat4E2M1, QuantType::kPer1x32, {DType::kUInt8, 2}},
    {QuantDType::kInt4, QuantType::kPer1x32, {DType::kInt32, 8}},
    {QuantDType::kInt4, QuantType::kPer1x128, {DType::kInt32, 8}},
};

// Activations with scales of groups meet the same groups of a weight's rows.
bool scales_meet(const QuantScheme& scheme) {
  const auto group_size = [](QuantType granularity) {
    return ops::QuantFormat{.granularity = granularity}.group_size();
  };
  const int64_t of_activations = group_size(scheme.activations);
  return of_activations == 0 || of_activations == group_size(scheme.weights);
}

int64_t shared_rows(std::span<const int64_t> part_rows) {
  int64_t row = 0, shared = kQuantBlockRows;
  for (const int64_t rows : part_rows) {
    while (row % shared != 0) shared /= 2;
    row += rows;
  }
  return shared >= kPackedRowMultiple ? shared : 1;
}

}  // namespace

const QuantizedStorage* find_storage(const QuantScheme& scheme) {
  if (!scales_meet(scheme)) return nullptr;
  for (const StorageRow& row : kStorageRows) {
    if (row.dtype == scheme.weight_dtype && row.granularity == scheme.weights) return &row.storage;
  }
  return nullptr;
}

DType code_dtype(QuantDType dtype) {
  switch (dtype) {
    case QuantDType::kFloat8E4M3:
      return DType::kFloat8E4M3;
    case QuantDType::kInt8:
      return DType::kInt8;
    default:
      return DType::kUInt8;
  }
}

ops::QuantFormat packed_format(const QuantScheme& scheme, std::span<const int64_t> part_rows) {
  ops::QuantFormat format = {scheme.weight_dtype, scheme.weights, 1};
  if (scheme.weights == QuantType::kPer128x128) format.scale_rows = shared_rows(part_rows);
  return format;
}

Tensor scales_of_blocks(const Tensor& scales,
                        std::span<const int64_t> part_rows,
                        int64_t scale_rows) {
  const int64_t groups = scales.size(1);
  int64_t num_rows = 0;
  for (const int64_t rows : part_rows) num_rows += rows;
  const Tensor expanded = Tensor::empty({ceil_div(num_rows, scale_rows), groups}, DType::kFloat32);
  float* out = expanded.data<float>();
  int64_t first_block = 0;
  for (const int64_t rows : part_rows) {
    for (int64_t row = 0; row < rows; row += scale_rows, out += groups) {
      const int64_t block = first_block + row / kQuantBlockRows;
      std::copy_n(scales.data<float>() + block * groups, groups, out);
    }
    first_block += ceil_div(rows, kQuantBlockRows);
  }
  return expanded;
}

Tensor as_bytes(const Tensor& words) {
  if (words.dtype() != DType::kInt32) return words;
  return Tensor(words.raw_data(),
                DType::kUInt8,
                {words.size(0), words.size(1) * 4},
                std::make_shared<const Tensor>(words),
                words.device());
}

bool are_scales(const Tensor& scales, bool of_groups) {
  if (scales.dtype() == DType::kUInt8) {
    const uint8_t* data = scales.data<uint8_t>();
    return std::find(data, data + scales.num_elements(), 0xff) == data + scales.num_elements();
  }
  const float* data = scales.data<float>();
  return std::all_of(data, data + scales.num_elements(), [of_groups](float scale) {
    return std::isfinite(scale) && (scale > 0 || (of_groups && scale == 0));
  });
}

}  // namespace atom
