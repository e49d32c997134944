#include "ops/embedding/embedding.h"

#include <algorithm>
#include <cstring>

#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// Enough copying to be worth a parallel region.
constexpr int64_t kTaskSize = 64 << 10;  // bytes

}  // namespace

void embedding(const Stream& stream, const Tensor& ids, const Tensor& table, const Tensor& out) {
  TensorCheck("embedding")
      .contiguous("ids", ids, {"T"}, DType::kInt32)
      .tensor("table", table, {"V", "H"}, table.dtype())
      .tensor("out", out, {"T", "H"}, table.dtype());
  if (stream.is_dry_run()) return;

  const int32_t* id = ids.data<int32_t>();
  const int64_t vocab_size = table.size(0);
  const int64_t element_size = dtype_size(table.dtype());
  const int64_t row_size = table.size(1) * element_size;
  const int64_t table_step = table.stride(0) * element_size;
  const int64_t out_step = out.stride(0) * element_size;
  const char* from = static_cast<const char*>(table.raw_data());
  char* to = static_cast<char*>(out.raw_data());
  const int64_t grain = std::max<int64_t>(1, kTaskSize / std::max<int64_t>(1, row_size));
  stream.pool().parallel_for(ids.size(0), grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      CHECK(id[t] >= 0);
      CHECK(id[t] < vocab_size);
      std::memcpy(to + t * out_step, from + id[t] * table_step, row_size);
    }
  });
}

}  // namespace atom::ops
