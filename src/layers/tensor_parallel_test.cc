// Layers split over ranks compute what they compute alone.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "comm/local/local_group.h"
#include "layers/linear/merged_column_parallel_linear.h"
#include "layers/linear/qkv_parallel_linear.h"
#include "layers/linear/row_parallel_linear.h"
#include "layers/moe/fused_moe.h"
#include "layers/parallel_lm_head.h"
#include "ops/test_tensors.h"

namespace atom {
namespace {

constexpr int64_t kWidth = 24;
constexpr int64_t kRows = 5;

Tensor rank_test_values(const Shape& shape, uint64_t seed) {
  return ops::random_tensor(shape, DType::kFloat32, seed, 0.5f);
}

// What one rank needs to build and run layers.
struct LayerRank {
  LayerRank(const ModelConfig& config, const ParallelContext& parallel)
      : build{config, DType::kFloat32, 64}, stream(&pool), workspace(1 << 20) {
    build.parallel = parallel;
  }

  void load(Module& module, const std::function<void(const NamedParameter&)>& fill) {
    module.allocate_parameters(stream);
    for (const NamedParameter& named : module.named_parameters()) {
      fill(named);
      EXPECT_TRUE(named.parameter->is_loaded()) << named.name;
    }
    EXPECT_TRUE(module.finish_load(stream).ok());
  }

  ThreadPool pool{1};
  BuildContext build;
  Stream stream;
  Workspace workspace;
  LayerStorage storage;
  Tensor token_ids;
  ForwardContext context{.stream = stream,
                         .workspace = workspace,
                         .token_ids = token_ids,
                         .positions = {},
                         .batch = {},
                         .storage = storage};
};

// Runs `compute` on each of `world` ranks; all give the same bits, which are returned.
Tensor on_ranks(int world,
                const ModelConfig& config,
                const std::function<Tensor(LayerRank&)>& compute,
                bool expert_parallel = false) {
  const auto group = make_local_group(world, std::chrono::seconds(20));
  std::vector<Tensor> results(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      LayerRank one(config,
                    {.tensor_parallel_rank = rank,
                     .tensor_parallel_size = world,
                     .expert_parallel = expert_parallel,
                     .tensor_parallel = world > 1 ? group[rank].get() : nullptr,
                     .token_counts = {}});
      const Tensor result = compute(one);
      EXPECT_TRUE(one.build.status.ok()) << one.build.status.message();
      results[rank] = Tensor::empty(result.shape(), result.dtype());
      copy_convert(result, results[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& result : results) {
    EXPECT_EQ(std::memcmp(result.raw_data(), results[0].raw_data(), results[0].num_bytes()), 0);
  }
  return results[0];
}

void expect_near(const Tensor& a, const Tensor& b) {
  ASSERT_TRUE(a.shape() == b.shape());
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 2e-5f) << i;
  }
}

ModelConfig small_config(int64_t vocab_size = 10) {
  ModelConfig config;
  config.hidden_size = kWidth;
  config.vocab_size = vocab_size;
  return config;
}

// A column-parallel layer, then a row-parallel one; both with biases, of which the second counts
// once.
Tensor column_then_row(LayerRank& rank) {
  MergedColumnParallelLinear up(rank.build, kWidth, {{"a", 16}, {"b", 16}}, /*has_bias=*/true);
  RowParallelLinear down(rank.build, 32, kWidth, /*has_bias=*/true);
  rank.load(up, [](const NamedParameter& named) {
    const bool is_bias = named.name == "bias";
    for (const char* id : {"a", "b"}) {
      const Shape shape = is_bias ? Shape{16} : Shape{16, kWidth};
      EXPECT_TRUE(named.parameter->load(rank_test_values(shape, id[0] + is_bias), id).ok());
    }
  });
  // Inputs of the second layer stand as ranks have them: [a of rank 0 | b of rank 0 | a of ...].
  rank.load(down, [&](const NamedParameter& named) {
    if (named.name == "bias") {
      EXPECT_TRUE(named.parameter->load(rank_test_values({kWidth}, 9)).ok());
      return;
    }
    const Tensor whole = rank_test_values({kWidth, 32}, 7);
    const Tensor ordered = Tensor::empty({kWidth, 32}, DType::kFloat32);
    const int64_t world = rank.build.parallel.tensor_parallel_size, part = 16 / world;
    for (int64_t column = 0; column < 32; ++column) {
      const int64_t from_half = column / 16, in_half = column % 16;
      const int64_t to = in_half / part * 2 * part + from_half * part + in_half % part;
      for (int64_t row = 0; row < kWidth; ++row) {
        ordered.data<float>()[row * 32 + to] = whole.data<float>()[row * 32 + column];
      }
    }
    EXPECT_TRUE(named.parameter->load(ordered).ok());
  });
  const Tensor y = rank.workspace.tensor({kRows, kWidth}, DType::kFloat32);
  const Activation hidden = up.forward(rank_test_values({kRows, kWidth}, 3), rank.context);
  down.forward(hidden, y, rank.context);
  rank.build.parallel.all_reduce(rank.context.stream, y);
  return y;
}

TEST(TensorParallel, ColumnsThenRowsWithBiasesGiveTheSameSum) {
  const ModelConfig config = small_config();
  const Tensor alone = on_ranks(1, config, column_then_row);
  for (const int world : {2, 4, 8}) expect_near(on_ranks(world, config, column_then_row), alone);
}

TEST(TensorParallel, KeyValueHeadsAreRepeatedWhereThereAreFewer) {
  const ModelConfig config = small_config();
  constexpr int64_t kHeads = 8, kKvHeads = 2, kDim = 3;
  const Tensor k = rank_test_values({kKvHeads * kDim, kWidth}, 2);
  for (const int world : {1, 2, 4, 8}) {
    for (int r = 0; r < world; ++r) {
      LayerRank rank(
          config, {.tensor_parallel_rank = r, .tensor_parallel_size = world, .token_counts = {}});
      QKVParallelLinear qkv(rank.build, kWidth, kHeads, kKvHeads, kDim, false);
      EXPECT_EQ(qkv.num_heads(), kHeads / world);
      EXPECT_EQ(qkv.num_kv_heads(), world == 1 ? 2 : 1);
      rank.load(qkv, [&](const NamedParameter& named) {
        EXPECT_TRUE(named.parameter->load(rank_test_values({kHeads * kDim, kWidth}, 1), "q").ok());
        EXPECT_TRUE(named.parameter->load(k, "k").ok());
        EXPECT_TRUE(named.parameter->load(k, "v").ok());
      });
      const Tensor one = Tensor::zeros({1, kWidth}, DType::kFloat32);
      one.data<float>()[0] = 1;
      const auto output = qkv.forward(one, rank.context);
      // The first key head of the rank is that of its first query head.
      const int64_t head = r * (kHeads / world) / (kHeads / kKvHeads);
      EXPECT_EQ(output.k.data<float>()[0], k.data<float>()[head * kDim * kWidth]);
    }
  }
}

TEST(TensorParallel, WhatCannotBeSplitIsRefusedByName) {
  const ModelConfig config = small_config(3);
  const auto refusal = [&](int world, const std::function<void(BuildContext&)>& make) {
    LayerRank rank(config, {.tensor_parallel_size = world, .token_counts = {}});
    rank.build.module_name = "layers.0.x";
    make(rank.build);
    EXPECT_EQ(rank.build.status.code(), StatusCode::kUnimplemented);
    return rank.build.status.message();
  };
  EXPECT_EQ(
      refusal(4, [](BuildContext& build) { RowParallelLinear(build, 30, 8, false); }),
      "--tensor-parallel-size 4: layers.0.x has 30 inputs, which 4 ranks cannot share evenly");
  EXPECT_EQ(
      refusal(4, [](BuildContext& build) { QKVParallelLinear(build, kWidth, 6, 2, 4, false); }),
      "--tensor-parallel-size 4: layers.0.x has 6 attention heads, which 4 ranks cannot share "
      "evenly");
  EXPECT_NE(
      refusal(4, [](BuildContext& build) { QKVParallelLinear(build, kWidth, 12, 3, 4, false); })
          .find("3 key-value heads"),
      std::string::npos);
  EXPECT_NE(refusal(4, [](BuildContext& build) { VocabParallelEmbedding(build, false); })
                .find("the vocabulary has 3 tokens"),
            std::string::npos);
}

// Embedding of ids on borders, then the head, of one weight or of two.
Tensor embed_and_score(LayerRank& rank, bool tied) {
  const int64_t vocab_size = rank.build.config.vocab_size;
  VocabParallelEmbedding embedding(rank.build, tied);
  ParallelLMHead head(rank.build, tied ? &embedding : nullptr);
  const auto fill = [&](const NamedParameter& named) {
    EXPECT_TRUE(named.parameter->load(rank_test_values({vocab_size, kWidth}, 4)).ok());
  };
  rank.load(embedding, fill);
  rank.load(head, fill);
  const Tensor ids = Tensor::empty({vocab_size}, DType::kInt32);
  for (int64_t i = 0; i < vocab_size; ++i) ids.data<int32_t>()[i] = static_cast<int32_t>(i);
  const Tensor rows = rank.workspace.tensor({vocab_size, kWidth}, DType::kFloat32);
  embedding.forward(ids, rows, rank.context);
  // The same into a part of wider rows, as the layers of drafts have it.
  const Tensor wide = Tensor::zeros({vocab_size, 2 * kWidth}, DType::kFloat32);
  embedding.forward(ids, wide.narrow(1, kWidth, kWidth), rank.context);
  for (int64_t row = 0; row < vocab_size; ++row) {
    const float* values = wide.data<float>() + row * 2 * kWidth;
    EXPECT_EQ(values[kWidth - 1], 0);
    EXPECT_TRUE(
        std::equal(values + kWidth, values + 2 * kWidth, rows.data<float>() + row * kWidth));
  }
  const Tensor logits = rank.workspace.tensor({vocab_size, vocab_size}, DType::kFloat32);
  head.forward(rows, logits, rank.context);
  return logits;
}

TEST(TensorParallel, VocabulariesThatDoNotDivideAreSharedAllTheSame) {
  for (const int64_t vocab_size : {4, 10, 67}) {
    const ModelConfig config = small_config(vocab_size);
    for (const bool tied : {false, true}) {
      const auto compute = [tied](LayerRank& rank) { return embed_and_score(rank, tied); };
      const Tensor alone = on_ranks(1, config, compute);
      for (const int world : {2, 3, 4}) expect_near(on_ranks(world, config, compute), alone);
    }
  }
}

// A router and experts with shared ones.
Tensor route_and_compute(LayerRank& rank) {
  constexpr int64_t kExperts = 6, kShared = 2, kSize = 8;
  MoeRouterOptions router_options;
  router_options.num_experts = kExperts;
  router_options.routing = {.top_k = 3, .normalizes = true, .num_shared = kShared};
  FusedMoEOptions options;
  options.num_experts = kExperts;
  options.num_shared = kShared;
  options.intermediate_size = kSize;
  MoeRouter router(rank.build, router_options);
  FusedMoE experts(rank.build, options);
  rank.load(router, [](const NamedParameter& named) {
    EXPECT_TRUE(named.parameter->load(rank_test_values({kExperts, kWidth}, 5)).ok());
  });
  rank.load(experts, [&](const NamedParameter& named) {
    const bool is_down = named.name.starts_with("down");
    const std::vector<std::string> halves =
        is_down ? std::vector<std::string>{"down"} : std::vector<std::string>{"gate", "up"};
    for (size_t h = 0; h < halves.size(); ++h) {
      for (int64_t e = 0; e <= kExperts; ++e) {
        const int64_t size = e < kExperts ? kSize : kShared * kSize;
        const Shape shape = is_down ? Shape{kWidth, size} : Shape{size, kWidth};
        const std::string id = (e < kExperts ? std::to_string(e) : "shared") + "." + halves[h];
        const uint64_t seed = 10 * e + h + (is_down ? 100 : 0);
        EXPECT_TRUE(named.parameter->load(rank_test_values(shape, seed), id).ok()) << id;
      }
    }
  });
  const Tensor x = rank_test_values({kRows, kWidth}, 6);
  const Tensor y = rank.workspace.tensor({kRows, kWidth}, DType::kFloat32);
  experts.forward(x, router.forward(x, rank.context), y, rank.context);
  rank.build.parallel.all_reduce(rank.stream, y);
  return y;
}

TEST(TensorParallel, ExpertsInPartsAndSpreadGiveTheSameSum) {
  const ModelConfig config = small_config();
  const Tensor alone = on_ranks(1, config, route_and_compute);
  for (const int world : {2, 4}) {
    expect_near(on_ranks(world, config, route_and_compute), alone);
    expect_near(on_ranks(world, config, route_and_compute, /*expert_parallel=*/true), alone);
  }
}

}  // namespace
}  // namespace atom
