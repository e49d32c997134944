#include "ops/kv_cache_write/kv_cache_write.h"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/numeric.h"

namespace atom::ops {
namespace {

// Whole numbers that bfloat16 holds exactly.
float value_of(int64_t index) {
  return static_cast<float>(index % 251 + 1);
}

TEST(KvCacheWrite, StoresEachTokenInItsSlotAndNothingElse) {
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
    kv_cache_write(Stream(&pool),
                   qkv.narrow(1, 2, num_kv_heads),
                   qkv.narrow(1, 2 + num_kv_heads, num_kv_heads),
                   slots,
                   k_cache,
                   v_cache);
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      for (int64_t i = 0; i < token_size; ++i) {
        const int64_t t = token_of[slot];
        const int64_t k_index = t * num_heads * head_dim + 2 * head_dim + i;
        const float k = to_float(k_cache.data<BFloat16>()[slot * token_size + i]);
        const float v = to_float(v_cache.data<BFloat16>()[slot * token_size + i]);
        ASSERT_EQ(k, t < 0 ? 0.0f : value_of(k_index)) << slot;
        ASSERT_EQ(v, t < 0 ? 0.0f : value_of(k_index + token_size)) << slot;
      }
    }
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
