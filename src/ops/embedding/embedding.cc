#include "ops/embedding/embedding.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "ops/embedding/embedding_kernels.h"
#include "ops/embedding/embedding_variants.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// Enough copying to be worth a parallel region.
constexpr int64_t kTaskSize = 64 << 10;  // bytes

EmbeddingArgs checked_args(const Tensor& ids,
                           const Tensor& table,
                           std::optional<int64_t> first_id,
                           const Tensor& out) {
  TensorCheck("embedding")
      .contiguous("ids", ids, {"T"}, DType::kInt32)
      .tensor("table", table, {"V", "H"}, table.dtype())
      .tensor("out", out, {"T", "H"}, table.dtype());
  const int64_t element_size = dtype_size(table.dtype());
  return {
      .ids = static_cast<const int32_t*>(ids.raw_data()),
      .table = table.raw_data(),
      .out = out.raw_data(),
      .num_tokens = ids.size(0),
      .vocab_size = table.size(0),
      .row_size = table.size(1) * element_size,
      .table_stride = table.stride(0) * element_size,
      .out_stride = out.stride(0) * element_size,
      .first_id = first_id.value_or(0),
      .is_part = first_id.has_value(),
  };
}

void embedding_reference(const Stream& stream, const EmbeddingArgs& args) {
  const char* from = static_cast<const char*>(args.table);
  char* to = static_cast<char*>(args.out);
  const int64_t grain = std::max<int64_t>(1, kTaskSize / std::max<int64_t>(1, args.row_size));
  stream.pool().parallel_for(args.num_tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = args.ids[t] - args.first_id;
      if (args.is_part && (row < 0 || row >= args.vocab_size)) {
        std::memset(to + t * args.out_stride, 0, args.row_size);
        continue;
      }
      CHECK(row >= 0);
      CHECK(row < args.vocab_size);
      std::memcpy(to + t * args.out_stride, from + row * args.table_stride, args.row_size);
    }
  });
}

template <void (*kernel)(const EmbeddingArgs&, void* queue)>
void on_queue(const Stream& stream, const EmbeddingArgs& args) {
  if (args.num_tokens > 0) kernel(args, stream.queue().handle());
}

using Launch = void(const Stream&, const EmbeddingArgs&);

constexpr Variant<EmbeddingArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<embedding_cuda>, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, embedding_reference},
};

void run(const Stream& stream, const EmbeddingArgs& args, const Tensor& ids, const Tensor& out) {
  if (stream.is_dry_run()) return;
  const auto& variant =
      pick_variant("embedding", kVariants, stream, args, [&] { return moves(ids, out, out); });
  variant.launch(stream, args);
}

}  // namespace

void embedding(const Stream& stream, const Tensor& ids, const Tensor& table, const Tensor& out) {
  run(stream, checked_args(ids, table, {}, out), ids, out);
}

void embedding_of_part(const Stream& stream,
                       const Tensor& ids,
                       const Tensor& table,
                       int64_t first_id,
                       const Tensor& out) {
  run(stream, checked_args(ids, table, first_id, out), ids, out);
}

bool embedding_by(std::string_view variant_name,
                  const Stream& stream,
                  const Tensor& ids,
                  const Tensor& table,
                  const Tensor& out,
                  std::optional<int64_t> first_id) {
  const EmbeddingArgs args = checked_args(ids, table, first_id, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args);
  return true;
}

}  // namespace atom::ops
