// Tokens that ranks have of their own come to experts that they share, and results back, in every
// way with the same sums.
#include "layers/moe/expert_exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "comm/local/local_group.h"
#include "layers/moe/fused_moe.h"
#include "ops/test_tensors.h"

namespace atom {
namespace {

constexpr int64_t kWidth = 160;  // more than one group of 128
constexpr int64_t kExperts = 10;
constexpr int64_t kTopK = 4;
constexpr int64_t kSize = 8;

Tensor values(const Shape& shape, uint64_t seed) {
  return ops::random_tensor(shape, DType::kFloat32, seed, 0.5f);
}

struct World {
  int copies, tensor;
  ExpertDispatch dispatch;
  bool spreads = true;
  int64_t num_shared = 1;
  int first_copy = 0;  // number of it
};

// The tokens of copy `copy`: copy 0 has one alone.
int64_t num_tokens(int copy) {
  return copy == 0 ? 1 : 3 * copy + 2;
}

void load(Module& module, const Stream& stream, int64_t num_shared) {
  module.allocate_parameters(stream);
  for (const NamedParameter& named : module.named_parameters()) {
    const bool is_down = named.name.starts_with("down");
    for (const std::string half : {"gate", "up", "down"}) {
      if (is_down != (half == "down")) continue;
      for (int64_t e = 0; e <= kExperts; ++e) {
        if (e == kExperts && num_shared == 0) continue;
        const int64_t size = e < kExperts ? kSize : num_shared * kSize;
        const Shape shape = is_down ? Shape{kWidth, size} : Shape{size, kWidth};
        const std::string id = (e < kExperts ? std::to_string(e) : "shared") + "." + half;
        const uint64_t seed = 10 * static_cast<uint64_t>(e) + half.size();
        EXPECT_TRUE(named.parameter->load(values(shape, seed), id).ok()) << id;
      }
    }
  }
  EXPECT_TRUE(module.finish_load(stream).ok());
}

std::vector<int32_t> tokens_of_ranks(const World& world) {
  std::vector<int32_t> counts;
  for (int rank = 0; rank < world.copies * world.tensor; ++rank) {
    counts.push_back(static_cast<int32_t>(num_tokens(world.first_copy + rank / world.tensor)));
  }
  return counts;
}

// Experts of each of `count` tokens: neighbors, which one rank has, and others.
MoeRouter::Choice choose(int64_t count, int64_t num_shared) {
  const int64_t k = kTopK + num_shared;
  const MoeRouter::Choice choice = {Tensor::empty({count, k}, DType::kInt32),
                                    Tensor::empty({count, k}, DType::kFloat32)};
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const int64_t expert = (5 * t + (j < 2 ? j : 3 * j)) % kExperts;
      choice.ids.data<int32_t>()[t * k + j] = static_cast<int32_t>(j < kTopK ? expert : kExperts);
      choice.weights.data<float>()[t * k + j] = 0.1f * static_cast<float>(j + 1);
    }
  }
  return choice;
}

// What each copy gets for its tokens, by rank.
std::vector<Tensor> compute(const World& world) {
  const int num_ranks = world.copies * world.tensor;
  const auto experts = make_local_group(num_ranks, std::chrono::seconds(20));
  std::vector<std::vector<std::unique_ptr<Communicator>>> tensor;
  for (int copy = 0; copy < world.copies; ++copy) {
    tensor.push_back(make_local_group(world.tensor, std::chrono::seconds(20)));
  }
  const std::vector<int32_t> counts = tokens_of_ranks(world);
  std::vector<Tensor> results(num_ranks);
  const auto run = [&](int rank) {
    const int copy = rank / world.tensor;
    ModelConfig config;
    config.hidden_size = kWidth;
    BuildContext build{config, DType::kFloat32, 64};
    build.parallel = {.tensor_parallel_rank = rank % world.tensor,
                      .tensor_parallel_size = world.tensor,
                      .expert_parallel = world.spreads && num_ranks > 1,
                      .tensor_parallel = tensor[copy][rank % world.tensor].get(),
                      .data_parallel_rank = copy,
                      .data_parallel_size = world.copies,
                      .dispatch = world.dispatch,
                      .experts = experts[rank].get(),
                      .token_counts = {}};
    FusedMoEOptions options;
    options.num_experts = kExperts;
    options.num_shared = world.num_shared;
    options.intermediate_size = kSize;
    FusedMoE layer(build, options);
    const auto exchange = make_expert_exchange(build, expert_owners(build, options));
    ThreadPool pool(1);
    const Stream stream(&pool);
    load(layer, stream, world.num_shared);
    Workspace workspace(4 << 20);
    const LayerStorage storage;
    const ForwardContext context{.stream = stream,
                                 .workspace = workspace,
                                 .token_ids = {},
                                 .positions = {},
                                 .batch = {},
                                 .storage = storage,
                                 .tokens_of_ranks = counts};
    // Every copy has the first ones of the same tokens.
    const int64_t count = counts[rank];
    const Tensor x = values({64, kWidth}, 6).narrow(0, 0, count);
    const MoeRouter::Choice choice = choose(count, world.num_shared);
    results[rank] = Tensor::empty({count, kWidth}, DType::kFloat32);
    for (int round = 0; round < 2; ++round) {
      const Workspace::Scope scope(workspace);
      const ExpertRows rows = exchange->prepare(x, choice, results[rank], context);
      layer.forward(rows.x, rows.choice, rows.y, context);
      exchange->finalize(rows, results[rank], context);
      if (exchange->leaves_parts()) build.parallel.all_reduce(stream, results[rank]);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (const auto& group : experts) EXPECT_TRUE(group->status().ok());
  return results;
}

// What the last copy gets where it is the only one.
Tensor compute_alone(const World& world) {
  return compute({.copies = 1,
                  .tensor = 1,
                  .dispatch = ExpertDispatch::kAuto,
                  .spreads = false,
                  .num_shared = world.num_shared,
                  .first_copy = world.copies - 1})[0];
}

// The distance of a rank's results to those of one copy that has all tokens, relative to their
// size.
double distance(const World& world) {
  // All copies' tokens begin alike, so the longest one alone has what all should get.
  const Tensor expected = compute_alone(world);
  double worst = 0;
  const std::vector<Tensor> ours = compute(world);
  for (const Tensor& result : ours) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < result.num_elements(); ++i) {
      const double a = result.data<float>()[i], b = expected.data<float>()[i];
      difference += (a - b) * (a - b);
      norm += b * b;
    }
    worst = std::max(worst, std::sqrt(difference / norm));
  }
  return worst;
}

TEST(ExpertExchange, EveryWayGivesTheSameSums) {
  for (const int64_t num_shared : {0, 1}) {
    for (const ExpertDispatch dispatch : {ExpertDispatch::kGather, ExpertDispatch::kAllToAll}) {
      for (const auto& [copies, tensor] : {std::pair{2, 1}, {3, 1}, {2, 2}, {2, 3}}) {
        SCOPED_TRACE(fmt::format("{} copies of {} ranks, {} shared", copies, tensor, num_shared));
        EXPECT_LE(distance({copies, tensor, dispatch, true, num_shared}), 1e-6);
      }
    }
    // A part of every expert on each rank.
    EXPECT_LE(distance({2, 1, ExpertDispatch::kGather, false, num_shared}), 1e-6);
    EXPECT_LE(distance({2, 2, ExpertDispatch::kGather, false, num_shared}), 1e-6);
  }
}

TEST(ExpertExchange, TokensInFloat8AreOffByTheirRounding) {
  const double error = distance({2, 1, ExpertDispatch::kAllToAllFloat8});
  std::printf("tokens sent in FP8: relative error %.4f of a layer's result\n", error);
  EXPECT_GT(error, 1e-3);  // they were
  EXPECT_LE(error, 0.05);  // at most 1/16 of a value, 0.026 of it on average, of two factors each
}

}  // namespace
}  // namespace atom
