#include "ops/kv_cache_write/kv_cache_write.h"

#include <algorithm>
#include <cstring>

#include "tensor/dispatch.h"
#include "tensor/float8.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// Enough copying to be worth a parallel region.
constexpr int64_t kTaskSize = 64 << 10;  // bytes

void copy_token(const Tensor& source, int64_t token, const Tensor& cache, int64_t slot) {
  const int64_t element_size = dtype_size(source.dtype());
  const int64_t num_heads = source.size(1);
  const int64_t head_size = source.size(2) * element_size;
  const int64_t head_step = source.stride(1) * element_size;
  const char* from =
      static_cast<const char*>(source.raw_data()) + token * source.stride(0) * element_size;
  char* to = static_cast<char*>(cache.raw_data()) + slot * num_heads * head_size;
  if (head_step == head_size) {
    std::memcpy(to, from, num_heads * head_size);
    return;
  }
  for (int64_t head = 0; head < num_heads; ++head) {
    std::memcpy(to + head * head_size, from + head * head_step, head_size);
  }
}

// One head's row; k and v are few beside what a step multiplies.
template <typename T>
void quantise_row(const T* from, int64_t size, float scale, Float8E4M3* to) {
  for (int64_t i = 0; i < size; ++i) to[i] = from_float<Float8E4M3>(to_float(from[i]) / scale);
}

void quantise_token(
    const Tensor& source, int64_t token, float scale, const Tensor& cache, int64_t slot) {
  const int64_t num_heads = source.size(1);
  const int64_t head_dim = source.size(2);
  Float8E4M3* to = cache.data<Float8E4M3>() + slot * num_heads * head_dim;
  dispatch_float(source.dtype(), [&]<typename T>(TypeTag<T>) {
    const T* from = source.data<T>() + token * source.stride(0);
    for (int64_t head = 0; head < num_heads; ++head) {
      quantise_row(from + head * source.stride(1), head_dim, scale, to + head * head_dim);
    }
  });
}

}  // namespace

void kv_cache_write(const Stream& stream,
                    const Tensor& k,
                    const Tensor& v,
                    const Tensor& slot_mapping,
                    const Tensor& k_cache,
                    const Tensor& v_cache,
                    float k_scale,
                    float v_scale) {
  const bool quantised = k_cache.dtype() == DType::kFloat8E4M3;
  const DType cache_dtype = quantised ? k_cache.dtype() : k.dtype();
  CHECK((quantised || (k_scale == 1.0f && v_scale == 1.0f)));
  TensorCheck("kv_cache_write")
      .tensor("k", k, {"T", "NKV", "D"}, k.dtype())
      .tensor("v", v, {"T", "NKV", "D"}, k.dtype())
      .contiguous("slot_mapping", slot_mapping, {"T"}, DType::kInt32)
      .contiguous("k_cache", k_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype)
      .contiguous("v_cache", v_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype);
  if (stream.is_dry_run()) return;

  const int32_t* slots = slot_mapping.data<int32_t>();
  const int64_t num_slots = k_cache.size(0) * k_cache.size(1);
  const int64_t token_size = 2 * k.size(1) * k.size(2) * dtype_size(k.dtype());
  const int64_t grain = std::max<int64_t>(1, kTaskSize / std::max<int64_t>(1, token_size));
  stream.pool().parallel_for(k.size(0), grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (slots[t] == -1) continue;
      CHECK(slots[t] >= 0);
      CHECK(slots[t] < num_slots);
      if (quantised) {
        quantise_token(k, t, k_scale, k_cache, slots[t]);
        quantise_token(v, t, v_scale, v_cache, slots[t]);
      } else {
        copy_token(k, t, k_cache, slots[t]);
        copy_token(v, t, v_cache, slots[t]);
      }
    }
  });
}

}  // namespace atom::ops
