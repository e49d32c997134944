#include "ops/kv_cache_write/kv_cache_write.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/kv_cache_write/kv_cache_write_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

// Whole numbers that bfloat16 holds exactly.
float value_of(int64_t index) {
  return static_cast<float>(index % 251 + 1);
}

void check_slots(const char* variant) {
  ThreadPool pool(2);
  const int64_t num_blocks = 9, block_size = 16, num_kv_heads = 3, head_dim = 8;
  const int64_t num_slots = num_blocks * block_size, token_size = num_kv_heads * head_dim;
  // A packed qkv row of two query heads, then keys, then values.
  const int64_t num_heads = 2 + 2 * num_kv_heads;
  for (const int64_t num_tokens : {0, 1, 100}) {
    Tensor qkv = Tensor::zeros({num_tokens, num_heads, head_dim}, DType::kBFloat16);
    for (int64_t i = 0; i < qkv.num_elements(); ++i) {
      qkv.data<BFloat16>()[i] = from_float<BFloat16>(value_of(i));
    }
    Tensor slots = Tensor::zeros({num_tokens}, DType::kInt32);
    std::vector<int64_t> token_of(num_slots, -1);
    for (int64_t t = 0; t < num_tokens; ++t) {
      const int64_t slot = (t * 37 + 5) % num_slots;
      const bool skipped = t % 10 == 9;
      slots.data<int32_t>()[t] = skipped ? -1 : static_cast<int32_t>(slot);
      if (!skipped) token_of[slot] = t;
    }
    const Shape shape{num_blocks, block_size, num_kv_heads, head_dim};
    Tensor k_cache = Tensor::zeros(shape, DType::kBFloat16);
    Tensor v_cache = Tensor::zeros(shape, DType::kBFloat16);
    const Tensor k = qkv.narrow(1, 2, num_kv_heads);
    const Tensor v = qkv.narrow(1, 2 + num_kv_heads, num_kv_heads);
    const std::vector<Tensor> tensors = {k, v, slots, k_cache, v_cache};
    const bool ran = run_variant(variant, pool, tensors, [&](const Placed& at) {
      return kv_cache_write_by(
          variant, at.stream(), at(k), at(v), at(slots), at(k_cache), at(v_cache));
    });
    if (!ran) return;
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      for (int64_t i = 0; i < token_size; ++i) {
        const int64_t t = token_of[slot];
        const int64_t k_index = t * num_heads * head_dim + 2 * head_dim + i;
        const float stored_k = to_float(k_cache.data<BFloat16>()[slot * token_size + i]);
        const float stored_v = to_float(v_cache.data<BFloat16>()[slot * token_size + i]);
        ASSERT_EQ(stored_k, t < 0 ? 0.0f : value_of(k_index)) << slot;
        ASSERT_EQ(stored_v, t < 0 ? 0.0f : value_of(k_index + token_size)) << slot;
      }
    }
  }
}

TEST(KvCacheWrite, EveryVariantStoresEachTokenInItsSlotAndNothingElse) {
  for (const char* variant : kAllVariants) {
    SCOPED_TRACE(variant);
    check_slots(variant);
  }
}

void check_float8_cache(const char* variant) {
  ThreadPool pool(2);
  const int64_t num_heads = 4, head_dim = 8, num_tokens = 3;
  const Tensor kv = Tensor::zeros({num_tokens, 2 * num_heads, head_dim}, DType::kBFloat16);
  for (int64_t i = 0; i < kv.num_elements(); ++i) {
    const float value = value_of(i) * (i % 2 == 0 ? 0.37f : -11.0f);
    kv.data<BFloat16>()[i] = from_float<BFloat16>(value);
  }
  const Tensor slots = Tensor::zeros({num_tokens}, DType::kInt32);
  const int32_t slot_of[] = {5, -1, 0};
  std::copy_n(slot_of, num_tokens, slots.data<int32_t>());
  const Tensor k_cache = Tensor::zeros({2, 4, num_heads, head_dim}, DType::kFloat8E4M3);
  const Tensor v_cache = Tensor::zeros({2, 4, num_heads, head_dim}, DType::kFloat8E4M3);
  const float k_scale = 0.75f, v_scale = 3.0f;
  const Tensor k_rows = kv.narrow(1, 0, num_heads);
  const Tensor v_rows = kv.narrow(1, num_heads, num_heads);
  const std::vector<Tensor> tensors = {kv, slots, k_cache, v_cache};
  const bool ran = run_variant(variant, pool, tensors, [&](const Placed& at) {
    return kv_cache_write_by(variant,
                             at.stream(),
                             at(k_rows),
                             at(v_rows),
                             at(slots),
                             at(k_cache),
                             at(v_cache),
                             k_scale,
                             v_scale);
  });
  if (!ran) return;
  const int64_t token_size = num_heads * head_dim;
  for (int64_t slot = 0; slot < 8; ++slot) {
    const int64_t token = slot == 5 ? 0 : slot == 0 ? 2 : -1;
    for (int64_t i = 0; i < token_size; ++i) {
      const BFloat16* row = kv.data<BFloat16>() + token * 2 * token_size;
      const float k = token < 0 ? 0.0f : to_float(row[i]);
      const float v = token < 0 ? 0.0f : to_float(row[token_size + i]);
      ASSERT_EQ(k_cache.data<Float8E4M3>()[slot * token_size + i].bits,
                from_float<Float8E4M3>(k / k_scale).bits);
      ASSERT_EQ(v_cache.data<Float8E4M3>()[slot * token_size + i].bits,
                from_float<Float8E4M3>(v / v_scale).bits);
    }
  }
}

TEST(KvCacheWrite, EveryVariantQuantizesForACacheInFloat8) {
  for (const char* variant : kAllVariants) {
    SCOPED_TRACE(variant);
    check_float8_cache(variant);
  }
}

TEST(KvCacheWrite, StoresOnePlaneAlone) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    const Tensor rows = random_tensor({3, 1, 20}, DType::kFloat32, 1);
    const Tensor cache = Tensor::zeros({2, 2, 1, 20}, DType::kFloat32);
    const Tensor slots = Tensor::zeros({3}, DType::kInt32);
    const int32_t slot_of[] = {3, -1, 0};
    std::copy_n(slot_of, 3, slots.data<int32_t>());
    const bool ran = run_variant(variant, pool, {rows, slots, cache}, [&](const Placed& at) {
      return kv_cache_write_by(
          variant, at.stream(), at(rows), Tensor(), at(slots), at(cache), Tensor());
    });
    if (!ran) continue;
    const std::vector<double> given = values_of(rows), stored = values_of(cache);
    std::vector<double> expected(80, 0.0);
    std::copy_n(given.begin(), 20, expected.begin() + 60);
    std::copy_n(given.begin() + 40, 20, expected.begin());
    EXPECT_EQ(stored, expected) << variant;
  }
}

TEST(KvCacheWriteDeathTest, RefusesSlotsOutsideTheCache) {
  ThreadPool pool(1);
  const Tensor kv = Tensor::zeros({1, 2, 8}, DType::kFloat32);
  const Tensor cache = Tensor::zeros({3, 4, 2, 8}, DType::kFloat32);
  const Tensor slots = Tensor::zeros({1}, DType::kInt32);
  for (const int32_t slot : {-2, 12}) {
    slots.data<int32_t>()[0] = slot;
    EXPECT_DEATH(kv_cache_write(Stream(&pool), kv, kv, slots, cache, cache), "does not hold");
  }
  EXPECT_DEATH(
      kv_cache_write(
          Stream(&pool), kv, kv, slots, cache, Tensor::zeros({3, 8, 2, 8}, DType::kFloat32)),
      "\\[kv_cache_write\\] v_cache");
}

}  // namespace
}  // namespace atom::ops
