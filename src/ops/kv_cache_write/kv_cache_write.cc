#include "ops/kv_cache_write/kv_cache_write.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "ops/kv_cache_write/kv_cache_write_kernels.h"
#include "ops/kv_cache_write/kv_cache_write_variants.h"
#include "ops/variant.h"
#include "tensor/dispatch.h"
#include "tensor/element_of.h"
#include "tensor/float8.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// Enough copying to be worth a parallel region.
constexpr int64_t kTaskSize = 64 << 10;  // bytes

KvCacheWriteArgs::Source source_of(const Tensor& x, const Tensor& cache, float scale) {
  const int64_t element_size = dtype_size(x.dtype());
  return {x.raw_data(),
          x.stride(0) * element_size,
          x.stride(1) * element_size,
          cache.raw_data(),
          scale};
}

KvCacheWriteArgs checked_args(const Tensor& k,
                              const Tensor& v,
                              const Tensor& slot_mapping,
                              const Tensor& k_cache,
                              const Tensor& v_cache,
                              float k_scale,
                              float v_scale) {
  const bool float8_cache = k_cache.dtype() == DType::kFloat8E4M3;
  const DType cache_dtype = float8_cache ? k_cache.dtype() : k.dtype();
  CHECK((float8_cache || (k_scale == 1.0f && v_scale == 1.0f)));
  TensorCheck check("kv_cache_write");
  check.tensor("k", k, {"T", "NKV", "D"}, k.dtype())
      .contiguous("slot_mapping", slot_mapping, {"T"}, DType::kInt32)
      .contiguous("k_cache", k_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype);
  const bool has_values = v.defined() || v_cache.defined();
  if (has_values) {
    check.tensor("v", v, {"T", "NKV", "D"}, k.dtype())
        .contiguous("v_cache", v_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype);
  }
  return {
      .sources = {source_of(k, k_cache, k_scale),
                  has_values ? source_of(v, v_cache, v_scale) : KvCacheWriteArgs::Source{}},
      .num_sources = has_values ? 2 : 1,
      .slots = static_cast<const int32_t*>(slot_mapping.raw_data()),
      .num_tokens = k.size(0),
      .num_slots = k_cache.size(0) * k_cache.size(1),
      .num_heads = k.size(1),
      .head_size = k.size(2) * dtype_size(k.dtype()),
      .element = element_of(k.dtype()),
      .float8_cache = float8_cache,
  };
}

void copy_token(const KvCacheWriteArgs& args,
                const KvCacheWriteArgs::Source& source,
                int64_t token,
                int64_t slot) {
  const int64_t size = args.num_heads * args.head_size;
  const char* from = static_cast<const char*>(source.data) + token * source.token_stride;
  char* to = static_cast<char*>(source.cache) + slot * size;
  if (source.head_stride == args.head_size) {
    std::memcpy(to, from, size);
    return;
  }
  for (int64_t head = 0; head < args.num_heads; ++head) {
    std::memcpy(to + head * args.head_size, from + head * source.head_stride, args.head_size);
  }
}

// One head's row; k and v are few beside what a step multiplies.
template <typename T>
void quantize_row(const T* from, int64_t size, float scale, Float8E4M3* to) {
  for (int64_t i = 0; i < size; ++i) to[i] = from_float<Float8E4M3>(to_float(from[i]) / scale);
}

void quantize_token(const KvCacheWriteArgs& args,
                    const KvCacheWriteArgs::Source& source,
                    int64_t token,
                    int64_t slot) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    const int64_t head_dim = args.head_size / static_cast<int64_t>(sizeof(T));
    const char* from = static_cast<const char*>(source.data) + token * source.token_stride;
    Float8E4M3* to = static_cast<Float8E4M3*>(source.cache) + slot * args.num_heads * head_dim;
    for (int64_t head = 0; head < args.num_heads; ++head) {
      quantize_row(reinterpret_cast<const T*>(from + head * source.head_stride),
                   head_dim,
                   source.scale,
                   to + head * head_dim);
    }
  });
}

void kv_cache_write_reference(const Stream& stream, const KvCacheWriteArgs& args) {
  const int64_t token_size = args.num_sources * args.num_heads * args.head_size;
  const int64_t grain = std::max<int64_t>(1, kTaskSize / std::max<int64_t>(1, token_size));
  stream.pool().parallel_for(args.num_tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = args.slots[t];
      if (slot == -1) continue;
      CHECK(slot >= 0);
      CHECK(slot < args.num_slots);
      for (const KvCacheWriteArgs::Source& source : std::span(args.sources, args.num_sources)) {
        if (args.float8_cache) {
          quantize_token(args, source, t, slot);
        } else {
          copy_token(args, source, t, slot);
        }
      }
    }
  });
}

template <void (*kernel)(const KvCacheWriteArgs&, void* queue)>
void on_queue(const Stream& stream, const KvCacheWriteArgs& args) {
  if (args.num_tokens > 0) kernel(args, stream.queue().handle());
}

using Launch = void(const Stream&, const KvCacheWriteArgs&);

constexpr Variant<KvCacheWriteArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<kv_cache_write_cuda>, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, kv_cache_write_reference},
};

}  // namespace

void kv_cache_write(const Stream& stream,
                    const Tensor& k,
                    const Tensor& v,
                    const Tensor& slot_mapping,
                    const Tensor& k_cache,
                    const Tensor& v_cache,
                    float k_scale,
                    float v_scale) {
  const KvCacheWriteArgs args =
      checked_args(k, v, slot_mapping, k_cache, v_cache, k_scale, v_scale);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("kv_cache_write", kVariants, stream, args, [&] {
    const int64_t num_values = v.defined() ? v.num_elements() : 0;
    const int64_t written = (k.num_elements() + num_values) * dtype_size(k_cache.dtype());
    return OperatorWork{.bytes = moves(k, v, slot_mapping).bytes + written};
  });
  variant.launch(stream, args);
}

bool kv_cache_write_by(std::string_view variant_name,
                       const Stream& stream,
                       const Tensor& k,
                       const Tensor& v,
                       const Tensor& slot_mapping,
                       const Tensor& k_cache,
                       const Tensor& v_cache,
                       float k_scale,
                       float v_scale) {
  const KvCacheWriteArgs args =
      checked_args(k, v, slot_mapping, k_cache, v_cache, k_scale, v_scale);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args);
  return true;
}

}  // namespace atom::ops
