#include "ops/linear/gather_rows.h"

#include <cstring>
#include <optional>

#include "ops/embedding/embedding.h"
#include "ops/linear/linear_variants.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

using linear_kernels::kPanelColumns;

// A column of a panel, from its first unit, as a row.
template <typename Unit>
void read_column(const char* column, int64_t row_size, char* row) {
  constexpr int64_t kUnitSize = sizeof(Unit);
  const int64_t num_whole = row_size / kUnitSize;
  for (int64_t i = 0; i < num_whole; ++i) {
    std::memcpy(row + i * kUnitSize, column + i * kPanelColumns * kUnitSize, kUnitSize);
  }
  std::memcpy(row + num_whole * kUnitSize,
              column + num_whole * kPanelColumns * kUnitSize,
              row_size - num_whole * kUnitSize);
}

// Rows that the weight does not hold are zeros where it is a part, else our own mistake.
void gather(const Stream& stream,
            const Tensor& ids,
            const LinearWeight& weight,
            std::optional<int64_t> first_id,
            const Tensor& out) {
  TensorCheck check("gather_rows");
  check.tensor("ids", ids, {"T"}, DType::kInt32);
  check.tensor("out", out, {"T", "K"}, weight.dtype());
  CHECK(check.size("K") == weight.in_features);
  if (weight.layout == WeightLayout::kRowMajor) {
    return first_id ? embedding_of_part(stream, ids, weight.data, *first_id, out)
                    : embedding(stream, ids, weight.data, out);
  }
  if (stream.is_dry_run()) return;
  const int64_t element_size = dtype_size(weight.dtype());
  const int64_t row_size = weight.in_features * element_size;
  const char* data = static_cast<const char*>(weight.data.raw_data());
  stream.pool().parallel_for(ids.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      char* to = static_cast<char*>(out.raw_data()) + t * out.stride(0) * element_size;
      const int64_t id = ids.data<int32_t>()[t] - first_id.value_or(0);
      if (first_id && (id < 0 || id >= weight.out_features)) {
        std::memset(to, 0, row_size);
        continue;
      }
      CHECK(id >= 0);
      CHECK(id < weight.out_features);
      const WeightRow at = weight_row(weight, id);
      const char* from = data + at.begin * element_size;
      if (at.step_size * element_size == int64_t{sizeof(uint16_t)}) {
        read_column<uint16_t>(from, row_size, to);
      } else {
        read_column<uint32_t>(from, row_size, to);
      }
    }
  });
}

}  // namespace

void gather_rows(const Stream& stream,
                 const Tensor& ids,
                 const LinearWeight& weight,
                 const Tensor& out) {
  gather(stream, ids, weight, {}, out);
}

void gather_rows_of_part(const Stream& stream,
                         const Tensor& ids,
                         const LinearWeight& weight,
                         int64_t first_id,
                         const Tensor& out) {
  gather(stream, ids, weight, first_id, out);
}

}  // namespace atom::ops
