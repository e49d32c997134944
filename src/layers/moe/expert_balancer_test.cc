// Experts change places between four ranks while tokens are computed: each slot then has what a
// fresh load of its expert would be, and results stay.
#include "layers/moe/expert_balancer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "comm/local/local_group.h"
#include "layers/moe/expert_slots.h"
#include "ops/test_tensors.h"

namespace atom {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kWidth = 64;
constexpr int64_t kExperts = 10;
constexpr int64_t kRedundant = 6;
constexpr int64_t kTopK = 3;
constexpr int64_t kSize = 32;
constexpr int64_t kTokens = 13;
constexpr int kSteps = 24;

Tensor values(const Shape& shape, uint64_t seed) {
  return ops::random_tensor(shape, DType::kFloat32, seed, 0.5f);
}

void load(FusedMoE& layer, const Stream& stream, int64_t num_shared) {
  layer.allocate_parameters(stream);
  for (const NamedParameter& named : layer.named_parameters()) {
    const bool is_down = named.name.starts_with("down");
    for (const std::string half : {"gate", "up", "down"}) {
      if (is_down != (half == "down")) continue;
      for (int64_t e = 0; e < kExperts + num_shared; ++e) {
        const Shape shape = is_down ? Shape{kWidth, kSize} : Shape{kSize, kWidth};
        const std::string id = (e < kExperts ? std::to_string(e) : "shared") + "." + half;
        const uint64_t seed = 10 * static_cast<uint64_t>(e) + half.size();
        EXPECT_TRUE(named.parameter->load(values(shape, seed), id).ok()) << id;
      }
    }
  }
  EXPECT_TRUE(layer.finish_load(stream).ok());
}

struct Way {
  int copies = 1;  // each of kRanks / copies ranks
  ExpertDispatch dispatch = ExpertDispatch::kGather;
  bool is_quantized = false;
  int64_t num_shared = 0;
};

// A rank's layer and all that it computes with.
class Rank {
 public:
  Rank(const Way& way, const ParallelContext& parallel)
      : way_(way), build_{config_, DType::kFloat32, 64} {
    config_.hidden_size = kWidth;
    if (way.is_quantized) {
      QuantScheme scheme = {QuantType::kPerToken, QuantType::kPerToken};
      scheme.weight_dtype = scheme.activation_dtype = QuantDType::kInt8;
      scheme.online = true;
      config_.quantization.groups = {{every_linear(), scheme}};
    }
    build_.parallel = parallel;
    FusedMoEOptions options;
    options.num_experts = kExperts;
    options.num_shared = way.num_shared;
    options.intermediate_size = kSize;
    layer_ = std::make_unique<FusedMoE>(build_, options);
    EXPECT_TRUE(build_.status.ok()) << build_.status.message();
    exchange_ = make_expert_exchange(build_, expert_owners(build_, options));
    load(*layer_, stream_, way.num_shared);
  }

  FusedMoE& layer() { return *layer_; }
  std::vector<FusedMoE*> moving() const { return build_.moving_experts; }
  const Stream& stream() const { return stream_; }

  // y of kTokens tokens, which all choose experts `busy` and the one behind it.
  Tensor compute(int64_t busy, bool is_dummy = false) {
    const Workspace::Scope scope(workspace_);
    const Tensor ids = Tensor::empty({kTokens}, DType::kInt32);
    for (int64_t t = 0; t < kTokens; ++t) ids.data<int32_t>()[t] = static_cast<int32_t>(t);
    const std::vector<int32_t> counts(kRanks, static_cast<int32_t>(kTokens));
    const ForwardContext context{.stream = stream_,
                                 .workspace = workspace_,
                                 .token_ids = ids,
                                 .positions = ids,
                                 .batch = {},
                                 .storage = storage_,
                                 .tokens_of_ranks = counts,
                                 .is_dummy = is_dummy};
    const MoeRouter::Choice choice = choose(busy);
    layer_->choose_slots(choice, context);
    const Tensor y = Tensor::empty({kTokens, kWidth}, DType::kFloat32);
    const Tensor x = values({kTokens, kWidth}, 6);
    const ExpertRows rows = exchange_->prepare(x, choice, y, context);
    layer_->forward(rows.x, rows.choice, rows.y, context);
    exchange_->finalize(rows, y, context);
    if (exchange_->leaves_parts()) build_.parallel.all_reduce(context.stream, y);
    return y;
  }

 private:
  MoeRouter::Choice choose(int64_t busy) const {
    const int64_t k = kTopK + way_.num_shared;
    const MoeRouter::Choice choice = {Tensor::empty({kTokens, k}, DType::kInt32),
                                      Tensor::empty({kTokens, k}, DType::kFloat32)};
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t j = 0; j < k; ++j) {
        const int64_t place = busy + (j < 2 ? j : 2 + t % (kExperts - 2));
        const int64_t expert = j < kTopK ? place % kExperts : has_turn(t) ? kExperts : -1;
        choice.ids.data<int32_t>()[t * k + j] = static_cast<int32_t>(expert);
        choice.weights.data<float>()[t * k + j] = 0.1f * static_cast<float>(j + 1);
      }
    }
    return choice;
  }

  // Ranks of one copy share out the tokens of experts that all of them have.
  bool has_turn(int64_t token) const {
    const ParallelContext& parallel = build_.parallel;
    return parallel.copies_share_experts() ||
           token % parallel.tensor_parallel_size == parallel.tensor_parallel_rank;
  }

  const Way way_;
  ModelConfig config_;
  BuildContext build_;
  ThreadPool pool_{1};
  Stream stream_{&pool_};
  Workspace workspace_{4 << 20};
  LayerStorage storage_;
  std::unique_ptr<FusedMoE> layer_;
  std::unique_ptr<ExpertExchange> exchange_;
};

double distance(const Tensor& a, const Tensor& b) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = a.data<float>()[i], y = b.data<float>()[i];
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / norm);
}

void expect_same_bytes(const std::vector<Tensor>& ours, const std::vector<Tensor>& expected) {
  ASSERT_EQ(ours.size(), expected.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].num_bytes(), expected[i].num_bytes());
    EXPECT_EQ(std::memcmp(ours[i].raw_data(), expected[i].raw_data(), ours[i].num_bytes()), 0);
  }
}

ParallelContext parallel_of(const Way& way, int rank, Communicator* tensor, Communicator* experts) {
  const int tensor_size = kRanks / way.copies;
  return {.tensor_parallel_rank = rank % tensor_size,
          .tensor_parallel_size = tensor_size,
          .expert_parallel = true,
          .tensor_parallel = tensor,
          .data_parallel_rank = rank / tensor_size,
          .data_parallel_size = way.copies,
          .dispatch = way.dispatch,
          .moves_experts = true,
          .num_redundant_experts = kRedundant,
          .experts = experts,
          .token_counts = {}};
}

void check(const Way& way) {
  const auto all = make_local_group(kRanks, std::chrono::seconds(20));
  std::vector<std::vector<std::unique_ptr<Communicator>>> tensor;
  for (int copy = 0; copy < way.copies; ++copy) {
    tensor.push_back(make_local_group(kRanks / way.copies, std::chrono::seconds(20)));
  }
  Rank whole(way, {});
  constexpr int64_t kBusy[] = {0, 5};  // first, and from the middle on
  const Tensor expected[] = {whole.compute(kBusy[0]), whole.compute(kBusy[1])};
  EplbConfig config;
  config.enabled = true;
  config.rebalance_interval = 5;
  config.load_window_size = 3;
  std::vector<ExpertPlacement> placements(kRanks);
  std::vector<ExpertBalancer::Figures> figures(kRanks);
  const auto run = [&](int rank) {
    const int size = kRanks / way.copies;
    Communicator* const group =
        way.copies > 1 ? tensor[rank / size][rank % size].get() : all[rank].get();
    const ParallelContext parallel =
        parallel_of(way, rank, group, way.copies > 1 ? all[rank].get() : nullptr);
    Rank ours(way, parallel);
    ASSERT_EQ(ours.moving().size(), 1u);
    ExpertBalancer balancer(config, parallel, ours.moving(), ours.stream());
    for (int step = 0; step < kSteps; ++step) {
      const size_t half = step < kSteps / 2 ? 0 : 1;
      EXPECT_LE(distance(ours.compute(kBusy[half]), expected[half]), 1e-6) << step;
      balancer.end_step(ours.stream());
    }
    placements[rank] = ours.layer().slots()->placement();
    figures[rank] = balancer.figures();
    const ExpertPlacement& placement = placements[rank];
    for (int64_t slot = 0; slot < placement.slots_of_rank(); ++slot) {
      const int32_t expert = placement.expert_of[rank * placement.slots_of_rank() + slot];
      SCOPED_TRACE(fmt::format("rank {}, slot {}, expert {}", rank, slot, expert));
      expect_same_bytes(ours.layer().slot_tensors(slot), whole.layer().slot_tensors(expert));
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  ExpertBalancer::Figures sum;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(placements[rank], placements[0]);
    sum.num_tokens += figures[rank].num_tokens;
    sum.num_largest_tokens += figures[rank].num_largest_tokens;
    sum.num_moves += figures[rank].num_moves;
  }
  // Those that were busy at last are everywhere.
  const auto slots = placements[0].slots_of_experts();
  EXPECT_EQ(slots[kBusy[1]].size(), size_t{kRanks});
  EXPECT_EQ(slots[kBusy[1] + 1].size(), size_t{kRanks});
  EXPECT_GE(sum.num_moves, 8u);
  // Four windows of three steps, two of them before anything was moved for them.
  EXPECT_NEAR(static_cast<double>(sum.num_tokens), 4.0 * 3 * kTokens * kTopK * kRanks, 2 * kRanks);
  const double balance =
      static_cast<double>(sum.num_tokens) / static_cast<double>(sum.num_largest_tokens);
  EXPECT_GT(balance, 0.4);
  EXPECT_LT(balance, 0.95);
}

TEST(ExpertBalancer, EverySlotHasItsExpertAndResultsStay) {
  check({});
  check({.copies = 4});
  check({.copies = 2, .dispatch = ExpertDispatch::kAllToAll, .num_shared = 1});
  check({.is_quantized = true, .num_shared = 1});
}

}  // namespace
}  // namespace atom
