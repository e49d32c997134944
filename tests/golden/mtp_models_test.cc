// The layers for multi-token prediction of every golden case that has them, and what the trained
// ones of tldr-mtp-10m draft.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "models/registry.h"
#include "runner/input_builder.h"
#include "runner/layer_storage.h"
#include "runner/model_source.h"
#include "spec_decode/eagle_proposer.h"
#include "tests/support/golden_case.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

constexpr int32_t kBlockSize = 16;
constexpr int32_t kMaxTokens = 1024;

// A target and its draft layers, with one sequence.
class DraftedModel {
 public:
  explicit DraftedModel(const std::string& folder) {
    EngineConfig engine;
    engine.model.model = folder;
    engine.model.dtype = DType::kFloat32;
    engine.model.max_model_len = kMaxTokens;
    engine.cache.block_size = kBlockSize;
    engine.speculative.method = SpeculativeMethod::kMtp;
    engine.speculative.num_tokens = 3;
    config_ = resolve(engine, load_model_config(folder).value()).value();
    built_ = build_model(config_).value();
    const Status loaded =
        load_weights(config_, stream_, *built_.model, built_.draft.get(), nullptr);
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    constexpr int64_t kNumBlocks = kMaxTokens / kBlockSize;
    storage_ =
        make_layer_storage(stream_,
                           built_.storage,
                           {kNumBlocks, kBlockSize, config_.scheduler.num_slots_per_sequence()});
    builder_.emplace(config_.scheduler, stream_);
    block_ids_.resize(kNumBlocks);
    std::iota(block_ids_.begin(), block_ids_.end(), 0);
  }

  // The target's hidden states of tokens [begin, end), for `use`.
  template <typename Use>
  void forward(const std::vector<int32_t>& token_ids, int32_t begin, int32_t end, const Use& use) {
    SamplingParams params;
    params.seed = 0;
    RunnerSequence sequence{.token_ids = token_ids,
                            .num_prompt_tokens = end,
                            .block_ids = block_ids_,
                            .sampling = SamplingState(params, {}, {}, config_.model.vocab_size)};
    for (int32_t i = 0; i < config_.scheduler.num_slots_per_sequence(); ++i) {
      sequence.state_slots.push_back(i);
    }
    SchedulerOutput step;
    ScheduledSequence& scheduled = step.scheduled.emplace_back();
    scheduled.num_computed_tokens = begin;
    scheduled.num_new_tokens = end - begin;
    RunnerSequence* sequences[] = {&sequence};
    const StepInputs inputs = builder_->build(step, sequences);
    Workspace workspace(int64_t{256} << 20);
    const ForwardContext context{.stream = stream_,
                                 .workspace = workspace,
                                 .token_ids = inputs.token_ids,
                                 .positions = inputs.positions,
                                 .batch = inputs.batch,
                                 .storage = storage_,
                                 .state_slots = inputs.state_slots,
                                 .token_state_slots = inputs.token_state_slots};
    use(built_.model->forward(context), context);
  }

  // Logits of the draft layer for each token but the last.
  Tensor draft_logits(const std::vector<int32_t>& token_ids) {
    const auto count = static_cast<int32_t>(token_ids.size());
    const Tensor logits = Tensor::empty({count, config_.model.vocab_size}, DType::kFloat32);
    forward(token_ids, 0, count, [&](const Tensor& hidden, const ForwardContext& context) {
      const Tensor next = context.workspace.tensor({count}, DType::kInt32);
      std::copy(token_ids.begin() + 1, token_ids.end(), next.data<int32_t>());
      next.data<int32_t>()[count - 1] = 0;
      const Tensor rows = context.workspace.tensor({count}, DType::kInt32);
      std::iota(rows.data<int32_t>(), rows.data<int32_t>() + count, 0);
      const ForwardContext draft{.stream = stream_,
                                 .workspace = context.workspace,
                                 .token_ids = next,
                                 .positions = context.positions,
                                 .batch = context.batch,
                                 .storage = storage_};
      built_.draft->compute_logits(built_.draft->forward(hidden, rows, 0, draft), logits, draft);
    });
    return logits;
  }

  // For each depth and place the best token of the layer that runs on its own rows again: row i of
  // depth d gets row i of the depth before and the token at i + 1 + d.
  std::vector<std::vector<int32_t>> drafts_of_rows(const std::vector<int32_t>& token_ids,
                                                   int32_t num_depths) {
    const auto count = static_cast<int32_t>(token_ids.size());
    std::vector<std::vector<int32_t>> drafts;
    forward(token_ids, 0, count, [&](const Tensor& hidden, const ForwardContext& context) {
      const Tensor rows = context.workspace.tensor({count}, DType::kInt32);
      std::iota(rows.data<int32_t>(), rows.data<int32_t>() + count, 0);
      const Tensor logits = Tensor::empty({count, config_.model.vocab_size}, DType::kFloat32);
      Tensor state = hidden;
      for (int32_t depth = 0; depth < num_depths; ++depth) {
        const Tensor next = context.workspace.tensor({count}, DType::kInt32);
        for (int32_t i = 0; i < count; ++i) {
          const int32_t place = i + 1 + depth;
          next.data<int32_t>()[i] = place < count ? token_ids[place] : 0;
        }
        const ForwardContext draft{.stream = stream_,
                                   .workspace = context.workspace,
                                   .token_ids = next,
                                   .positions = context.positions,
                                   .batch = context.batch,
                                   .storage = storage_};
        state = built_.draft->forward(state, rows, 0, draft);
        built_.draft->compute_logits(state, logits, draft);
        std::vector<int32_t>& best = drafts.emplace_back();
        for (int32_t i = 0; i < count; ++i) {
          const float* row = logits.data<float>() + i * logits.size(1);
          best.push_back(static_cast<int32_t>(std::max_element(row, row + logits.size(1)) - row));
        }
      }
    });
    return drafts;
  }

  // What is drafted behind `token_ids`, of which the target has not computed those from `begin` on.
  std::vector<int32_t> drafts_behind(const std::vector<int32_t>& token_ids, int32_t begin) {
    std::vector<int32_t> drafts;
    const auto end = static_cast<int32_t>(token_ids.size()) - 1;
    forward(token_ids, begin, end, [&](const Tensor& hidden, const ForwardContext& context) {
      const EagleProposer proposer(
          *built_.draft, config_.model.hidden_size, kBlockSize, config_.model.vocab_size);
      DraftRequest request{.token_ids = token_ids, .block_ids = block_ids_};
      request.first_position = begin;
      request.num_rows = end - begin;
      request.num_drafts = 3;
      drafts = proposer.propose(std::span(&request, 1), hidden, context)[0];
    });
    return drafts;
  }

 private:
  ThreadPool pool_{2};
  const Stream stream_{&pool_};
  ResolvedConfig config_;
  BuiltModel built_;
  LayerStorage storage_;
  std::optional<InputBuilder> builder_;
  std::vector<int32_t> block_ids_;
};

TEST(MtpModels, LogitsAreTheGoldenOnes) {
  int num_cases = 0;
  for (const std::string& path : golden_case_folders()) {
    const Result<GoldenCase> golden = load_golden_case(path);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    if (golden->prompts.front().mtp_logits.values.empty()) continue;
    SCOPED_TRACE(golden->name);
    ++num_cases;
    const TemporaryFolder folder;
    ASSERT_TRUE(materialise_checkpoint(path, folder.path()).ok());
    DraftedModel model(folder.path());
    for (const GoldenPrompt& prompt : golden->prompts) {
      const Tensor logits = model.draft_logits(prompt.ids);
      std::vector<float> ours;
      for (const int32_t position : prompt.mtp_positions) {
        const float* row = logits.data<float>() + position * logits.size(1);
        ours.insert(ours.end(), row, row + logits.size(1));
      }
      EXPECT_LE(relative_error(ours, prompt.mtp_logits.values), kFloat32Bound);
    }
  }
  EXPECT_EQ(num_cases, 5);
}

// How often all drafts up to a depth were right.
class Acceptance {
 public:
  // `draft_at(depth)` behind `place` of `tokens`.
  template <typename Draft>
  void count(const std::vector<int32_t>& tokens, size_t place, const Draft& draft_at) {
    bool right = true;
    for (size_t depth = 0; depth < 3 && place + 2 + depth < tokens.size(); ++depth) {
      right = right && draft_at(depth) == tokens[place + 2 + depth];
      num_right_[depth] += right ? 1 : 0;
      ++num_places_[depth];
    }
  }
  double at(size_t depth) const {
    return static_cast<double>(num_right_[depth]) / num_places_[depth];
  }

 private:
  int num_right_[3] = {}, num_places_[3] = {};
};

// The layer was trained: its first drafts are the oracle's, and drafts of each depth are right as
// often as the oracle counted, which ran the layer on all rows again. The proposer goes on from the
// rows of the first draft instead, which is right more often.
TEST(MtpModels, TrainedLayerDraftsLikeTheOracle) {
  const std::optional<std::string> shared = shared_folder();
  if (!shared) GTEST_SKIP() << "no folder beside the project";
  const std::string folder = *shared + "/models/tldr-mtp-10m";
  std::ifstream file(folder + "/golden_text.json");
  if (!file) GTEST_SKIP() << "no tldr-mtp-10m";
  const nlohmann::json golden = nlohmann::json::parse(file);
  DraftedModel model(folder);
  int num_first = 0, num_same = 0, num_questions = 0;
  Acceptance of_rows, of_proposer;
  for (const auto& question : golden.at("float32")) {
    std::vector<int32_t> tokens = question.at("prompt_ids");
    const size_t begin = tokens.size();
    const std::vector<int32_t> output = question.at("output_ids");
    const std::vector<int32_t> first_drafts = question.at("mtp_first_draft");
    tokens.insert(tokens.end(), output.begin(), output.end());
    const auto drafts = model.drafts_of_rows(tokens, 3);
    for (size_t i = 0; i + 1 < output.size(); ++i) {
      const size_t row = begin + i - 1;  // whose next token is output i
      of_rows.count(tokens, row, [&](size_t depth) { return drafts[depth][row]; });
      if (i >= first_drafts.size()) continue;
      ++num_first;
      num_same += drafts[0][row] == first_drafts[i] ? 1 : 0;
    }
    if (num_questions++ >= 4) continue;
    int32_t computed = 0;
    for (size_t i = 0; i + 1 < output.size(); ++i) {
      const std::vector<int32_t> known(tokens.begin(), tokens.begin() + begin + i + 1);
      const std::vector<int32_t> proposed = model.drafts_behind(known, computed);
      computed = static_cast<int32_t>(known.size()) - 1;
      ASSERT_EQ(proposed.size(), 3u);
      EXPECT_EQ(proposed[0], drafts[0][begin + i - 1]);
      of_proposer.count(tokens, begin + i - 1, [&](size_t depth) { return proposed[depth]; });
    }
  }
  EXPECT_GE(num_same, num_first * 99 / 100) << num_first;
  const std::vector<double> wanted = golden.at("acceptance_float32");
  for (size_t depth = 0; depth < 3; ++depth) {
    EXPECT_NEAR(of_rows.at(depth), wanted[depth], 0.02) << "depth " << depth;
    EXPECT_GE(of_proposer.at(depth), wanted[depth] - 0.02) << "depth " << depth;
    std::printf("depth %zu: %.3f of rows, %.3f of the proposer\n",
                depth,
                of_rows.at(depth),
                of_proposer.at(depth));
  }
}

}  // namespace
}  // namespace atom
