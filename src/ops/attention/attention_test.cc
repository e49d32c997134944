#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/attention/attention_test_expected.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

void check_against_double(const Model& model,
                          DType dtype,
                          int64_t block_size,
                          const std::vector<Chunk>& chunks) {
  ThreadPool pool(2);
  const std::vector<double> expected = expected_attention(model, chunks);
  for (const char* variant : kAllVariants) {
    Batch batch(model, dtype, block_size, chunks);
    if (!batch.run(variant, pool)) continue;
    // Values are below 2. In bfloat16 each weight is off by half a unit, at most 2 * 2^-9 in all.
    const double absolute = dtype == DType::kFloat32 ? 1e-5 : 2 * half_ulp(dtype);
    const std::string what = std::string(variant) + " " + batch.params.q.to_string() +
                             " blocks of " + std::to_string(block_size);
    expect_close(batch.params.out, expected, 1.1 * half_ulp(dtype), absolute, what);
  }
}

TEST(Attention, MixedBatchesMatchDoubleArithmetic) {
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t block_size : {1, 8, 16, 32}) {
      for (const Model& model : {Model{4, 4, 64}, Model{4, 2, 128}, Model{8, 2, 64}}) {
        const Sequence a = make_sequence(model, dtype, 150, 1);
        const Sequence b = make_sequence(model, dtype, 70, 2);
        const Sequence c = make_sequence(model, dtype, 1, 3);
        check_against_double(model, dtype, block_size, {{&a, 0, 150}});
        check_against_double(model, dtype, block_size, {{&c, 0, 1}});
        check_against_double(
            model,
            dtype,
            block_size,
            {{&a, 130, 150}, {&b, 69, 70}, {&c, 0, 1}, {&b, 5, 5}, {&a, 63, 64}, {&b, 0, 70}});
      }
    }
  }
}

TEST(Attention, HeadShapesMatchDoubleArithmetic) {
  for (const DType dtype : kFloatDTypes) {
    for (const Model& model : {Model{8, 1, 64},
                               Model{16, 2, 32},
                               Model{5, 5, 8},
                               Model{3, 1, 72},
                               Model{4, 2, 200},
                               Model{4, 2, 256},
                               Model{2, 1, 20},
                               Model{2, 1, 320},
                               Model{100, 1, 16}}) {
      const Sequence a = make_sequence(model, dtype, 100, 1);
      check_against_double(model, dtype, 16, {{&a, 0, 40}, {&a, 99, 100}, {&a, 37, 90}});
    }
  }
}

TEST(Attention, WindowsAndSinksMatchDoubleArithmetic) {
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t block_size : {1, 16}) {
      for (const int64_t window : {0, 1, 5, 64, 100, 128}) {
        for (const bool has_sinks : {false, true}) {
          const Model model{8, 2, 64, window, has_sinks};
          const Sequence a = make_sequence(model, dtype, 300, 1);
          check_against_double(
              model, dtype, block_size, {{&a, 0, 90}, {&a, 299, 300}, {&a, 200, 280}});
        }
      }
    }
  }
}

TEST(Attention, LongContextsMatchDoubleArithmetic) {
  for (const DType dtype : kFloatDTypes) {
    const Model model{4, 2, 128};
    const Sequence a = make_sequence(model, dtype, 5000, 1);
    check_against_double(model, dtype, 16, {{&a, 4999, 5000}, {&a, 4000, 4010}});
  }
}

// Few rows, which the blocks of a GPU's cluster share: alone, of about a length and of very
// different ones, of as many heads as one warp takes or not.
TEST(Attention, FewSingleQueriesMatchDoubleArithmetic) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const Model& model : {Model{8, 1, 128},
                               Model{10, 2, 64},
                               Model{16, 2, 64, 128, true},
                               Model{16, 2, 256},
                               Model{24, 2, 128, 900, true}}) {
      const Sequence a = make_sequence(model, dtype, 1300, 1);
      const Sequence b = make_sequence(model, dtype, 400, 2);
      for (const int64_t length : {1, 16, 17, 129, 1025, 1300}) {
        check_against_double(model, dtype, 16, {{&a, length - 1, length}});
      }
      check_against_double(
          model, dtype, 32, {{&a, 1299, 1300}, {&a, 1200, 1201}, {&b, 5, 5}, {&a, 1023, 1024}});
      check_against_double(
          model, dtype, 16, {{&b, 399, 400}, {&a, 1299, 1300}, {&b, 2, 9}, {&b, 0, 1}});
    }
  }
}

// Scores far beyond what exp can take.
TEST(Attention, LargeScoresDoNotOverflow) {
  for (const DType dtype : kFloatDTypes) {
    Model model{2, 1, 64};
    model.scale = 30.0f;
    const Sequence a = make_sequence(model, dtype, 200, 1);
    ThreadPool pool(1);
    for (const char* variant : kAllVariants) {
      Batch batch(model, dtype, 16, {{&a, 0, 200}});
      if (!batch.run(variant, pool)) continue;
      for (const double value : values_of(batch.params.out)) ASSERT_LE(std::abs(value), 2.0);
    }
  }
}

// Bytes of the outputs of a chunk's positions, position by position.
std::vector<std::string> output_rows(const Tensor& out) {
  std::vector<std::string> rows;
  const int64_t row_size = out.num_bytes() / out.size(0);
  for (int64_t t = 0; t < out.size(0); ++t) {
    rows.emplace_back(static_cast<const char*>(out.raw_data()) + t * row_size, row_size);
  }
  return rows;
}

// Computes single queries in another way than chunks.
bool splits_singles(const std::string& variant) {
  return variant == "mma" || variant == "sm90";
}

TEST(Attention, ResultsDoNotDependOnChunksBatchOrBlockSize) {
  ThreadPool one(1), two(2);
  const int64_t length = 210;
  for (const char* variant : kAllVariants) {
    if (splits_singles(variant)) continue;
    for (const DType dtype : kFloatDTypes) {
      for (const Model& model : {Model{4, 4, 64},
                                 Model{4, 2, 128},
                                 Model{7, 1, 72},
                                 Model{8, 1, 64, 70, true},
                                 Model{16, 2, 64, 128, false}}) {
        const Sequence a = make_sequence(model, dtype, length, 1);
        const Sequence b = make_sequence(model, dtype, 100, 2);
        Batch whole(model, dtype, 16, {{&a, 0, length}});
        if (!whole.run(variant, one)) continue;
        const std::vector<std::string> expected = output_rows(whole.params.out);

        for (const std::vector<int64_t>& cuts :
             {std::vector<int64_t>{0, 64, 113, length}, {0, 1, 2, 77, 208, 209, length}}) {
          for (size_t i = 0; i + 1 < cuts.size(); ++i) {
            Batch part(model, dtype, 8, {{&b, 30, 100}, {&a, cuts[i], cuts[i + 1]}, {&b, 99, 100}});
            part.run(variant, two);
            const auto rows = output_rows(part.params.out);
            for (int64_t t = cuts[i]; t < cuts[i + 1]; ++t) {
              ASSERT_TRUE(rows[70 + t - cuts[i]] == expected[t])
                  << variant << " " << part.params.q.to_string() << " position " << t;
            }
          }
        }
        for (int64_t t = 0; t < length; t += 13) {
          Batch decode(model, dtype, 1, {{&a, t, t + 1}});
          decode.run(variant, one);
          ASSERT_TRUE(output_rows(decode.params.out)[0] == expected[t])
              << variant << " " << decode.params.q.to_string() << " position " << t;
        }
      }
    }
  }
}

// The keys of long sequences are cut into parts, which one block computes or several.
TEST(Attention, FixedOrderHoldsWhereKeysAreCut) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  ThreadPool pool(1);
  const int64_t length = 1700;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const Model& model :
         {Model{8, 2, 128}, Model{4, 4, 64}, Model{16, 1, 64, 700, true}, Model{32, 1, 128}}) {
      const Sequence a = make_sequence(model, dtype, length, 1);
      const Sequence b = make_sequence(model, dtype, 600, 2);
      Batch whole(model, dtype, 16, {{&a, 0, length}});
      ASSERT_TRUE(whole.run("fixed", pool));
      const std::vector<std::string> expected = output_rows(whole.params.out);
      for (const int64_t t : {0, 63, 64, 510, 511, 512, 513, 700, 1023, 1024, 1199, 1535, 1699}) {
        const std::string where = fmt::format("{} {}", whole.params.q.to_string(), t);
        Batch alone(model, dtype, 16, {{&a, t, t + 1}});
        alone.run("fixed", pool);
        ASSERT_TRUE(output_rows(alone.params.out)[0] == expected[t]) << where;
        Batch few(model, dtype, 8, {{&b, 598, 600}, {&a, t, t + 1}, {&b, 599, 600}});
        few.run("fixed", pool);
        ASSERT_TRUE(output_rows(few.params.out)[2] == expected[t]) << where;
        std::vector<Chunk> crowd(150, {&b, 39, 40});
        crowd[70] = {&a, t, t + 1};
        Batch many(model, dtype, 16, crowd);
        many.run("fixed", pool);
        ASSERT_TRUE(output_rows(many.params.out)[70] == expected[t]) << where;
      }
    }
  }
}

// A crowd of single queries at positions all over a sequence, with chunks of it and single queries
// of another one among them, gives what the whole sequence gives.
void check_crowd(const Model& model, DType dtype, bool float8, int64_t length, int64_t step) {
  ThreadPool pool(1);
  const Sequence a = make_sequence(model, dtype, length, 1);
  const Sequence b = make_sequence(model, dtype, 300, 2);
  const auto run = [&](Batch& batch) {
    if (float8) {
      batch.params.k_cache = float8_codes(batch.params.k_cache);
      batch.params.v_cache = float8_codes(batch.params.v_cache);
    }
    ASSERT_TRUE(batch.run("fixed", pool));
  };
  Batch whole(model, dtype, 16, {{&a, 0, length}});
  run(whole);
  const std::vector<std::string> expected = output_rows(whole.params.out);
  std::vector<Chunk> crowd;
  for (int64_t t = length - 1; t >= 0; t -= step) {
    crowd.push_back({&a, t, t + 1});
    if (crowd.size() % 5 == 0) crowd.push_back({&b, t % 300, t % 300 + 1});
    if (crowd.size() % 16 == 0) crowd.push_back({&a, t, std::min(length, t + 3)});
  }
  Batch many(model, dtype, 32, crowd);
  run(many);
  const std::vector<std::string> rows = output_rows(many.params.out);
  size_t row = 0;
  for (const Chunk& chunk : crowd) {
    for (int64_t t = chunk.begin; t < chunk.end; ++t, ++row) {
      if (chunk.sequence != &a) continue;
      ASSERT_TRUE(rows[row] == expected[t])
          << whole.params.q.to_string() << (float8 ? " FP8" : "") << " position " << t;
    }
  }
}

TEST(Attention, FixedOrderHoldsInCrowds) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  for (const bool float8 : {false, true}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      check_crowd({8, 2, 128}, dtype, float8, 700, 23);
      check_crowd({32, 8, 128}, dtype, float8, 500, 7);
      check_crowd({9, 3, 64}, dtype, float8, 600, 17);
      check_crowd({24, 1, 128, 150, true}, dtype, float8, 400, 5);
      check_crowd({4, 4, 64, 700}, dtype, float8, 900, 3);
    }
    check_crowd({2, 1, 64}, DType::kBFloat16, float8, 9000, 650);
  }
}

TEST(Attention, PublicCallPicksAVariant) {
  const Model model{4, 2, 64};
  const Sequence a = make_sequence(model, DType::kBFloat16, 50, 1);
  Batch batch(model, DType::kBFloat16, 16, {{&a, 0, 50}});
  ThreadPool pool(2);
  Workspace scratch(1 << 20);
  attention(Stream(&pool), batch.params, scratch);
  expect_close(
      batch.params.out, expected_attention(model, {{&a, 0, 50}}), 0x1p-8, 0x1p-7, "attention");
}

TEST(AttentionDeathTest, RefusesWhatTheContractExcludes) {
  const Model model{4, 2, 64};
  const Sequence a = make_sequence(model, DType::kFloat32, 50, 1);
  ThreadPool pool(1);
  Workspace scratch(1 << 20);
  const auto run = [&](const Batch& batch) { attention(Stream(&pool), batch.params, scratch); };
  Batch missing(model, DType::kFloat32, 16, {{&a, 40, 50}});
  missing.params.batch.block_tables.data<int32_t>()[1] = -1;
  EXPECT_DEATH(run(missing), "missing_block");
  Batch beyond(model, DType::kFloat32, 16, {{&a, 40, 50}});
  beyond.params.batch.seq_lens.data<int32_t>()[0] = 65;
  EXPECT_DEATH(run(beyond), "max_keys");
  Batch sinks(model, DType::kFloat32, 16, {{&a, 40, 50}});
  sinks.params.sinks = Tensor::zeros({3}, DType::kFloat32);
  EXPECT_DEATH(run(sinks), "\\[attention\\] sinks");
}

}  // namespace
}  // namespace atom::ops
