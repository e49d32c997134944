#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include "ops/embedding/embedding_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

void check_rows(const char* variant) {
  ThreadPool pool(2);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const int64_t num_tokens : {0, 1, 7, 3000}) {
      const int64_t vocab_size = 50, hidden_size = 24;
      Tensor table = Tensor::zeros({vocab_size, hidden_size}, dtype);
      Tensor values = Tensor::zeros({vocab_size, hidden_size}, DType::kFloat32);
      for (int64_t i = 0; i < values.num_elements(); ++i) {
        values.data<float>()[i] = static_cast<float>(i % 251);
      }
      copy_convert(values, table);
      Tensor ids = Tensor::zeros({num_tokens}, DType::kInt32);
      for (int64_t t = 0; t < num_tokens; ++t) {
        ids.data<int32_t>()[t] = static_cast<int32_t>((t * 31 + 49) % vocab_size);
      }
      // The output is a slice of wider rows: the rest stays untouched.
      Tensor wide = Tensor::zeros({num_tokens, hidden_size + 8}, dtype);
      const Tensor out = wide.narrow(1, 4, hidden_size);
      const bool ran = run_variant(variant, pool, {ids, table, out}, [&](const Placed& at) {
        return embedding_by(variant, at.stream(), at(ids), at(table), at(out));
      });
      if (!ran) return;
      Tensor got = Tensor::zeros({num_tokens, hidden_size + 8}, DType::kFloat32);
      copy_convert(wide, got);
      for (int64_t t = 0; t < num_tokens; ++t) {
        const float* row = got.data<float>() + t * (hidden_size + 8);
        const float* expected = values.data<float>() + ids.data<int32_t>()[t] * hidden_size;
        for (int64_t i = 0; i < hidden_size; ++i) ASSERT_EQ(row[4 + i], expected[i]);
        ASSERT_EQ(row[3], 0.0f);
        ASSERT_EQ(row[4 + hidden_size], 0.0f);
      }
    }
  }
}

TEST(Embedding, EveryVariantCopiesTheRowsOfItsIds) {
  for (const char* variant : kAllVariants) {
    SCOPED_TRACE(variant);
    check_rows(variant);
  }
}

TEST(Embedding, APartOfATableGivesZerosForTheIdsOfOthers) {
  ThreadPool pool(2);
  const Tensor table = Tensor::zeros({3, 4}, DType::kFloat32);
  for (int64_t i = 0; i < 12; ++i) table.data<float>()[i] = static_cast<float>(i + 1);
  const Tensor ids = Tensor::zeros({6}, DType::kInt32);
  const int32_t values[] = {10, 12, 9, 13, -1, 11};
  std::copy(values, values + 6, ids.data<int32_t>());
  const float expected[] = {1, 9, 0, 0, 0, 5};  // of each row's first element
  for (const char* variant : kAllVariants) {
    SCOPED_TRACE(variant);
    const Tensor out = Tensor::empty({6, 4}, DType::kFloat32);
    std::fill_n(out.data<float>(), 24, -1.0f);
    const bool ran = run_variant(variant, pool, {ids, table, out}, [&](const Placed& at) {
      return embedding_by(variant, at.stream(), at(ids), at(table), at(out), 10);
    });
    if (!ran) continue;
    for (int64_t t = 0; t < 6; ++t) {
      EXPECT_EQ(out.data<float>()[4 * t], expected[t]) << t;
      EXPECT_EQ(out.data<float>()[4 * t + 3], expected[t] == 0 ? 0 : expected[t] + 3) << t;
    }
  }
}

TEST(Embedding, DryRunTouchesNothing) {
  embedding(Stream::dry_run(),
            Tensor::meta({3}, DType::kInt32),
            Tensor::meta({10, 8}, DType::kBFloat16),
            Tensor::meta({3, 8}, DType::kBFloat16));
}

TEST(EmbeddingDeathTest, RefusesIdsOutsideTheTable) {
  ThreadPool pool(1);
  const Tensor table = Tensor::zeros({10, 8}, DType::kFloat32);
  const Tensor out = Tensor::zeros({1, 8}, DType::kFloat32);
  const Tensor ids = Tensor::zeros({1}, DType::kInt32);
  for (const int32_t id : {-1, 10}) {
    ids.data<int32_t>()[0] = id;
    EXPECT_DEATH(embedding(Stream(&pool), ids, table, out), "does not hold");
  }
  EXPECT_DEATH(embedding(Stream(&pool), ids, table, Tensor::zeros({1, 9}, DType::kFloat32)),
               "\\[embedding\\] out");
}

}  // namespace
}  // namespace atom::ops
