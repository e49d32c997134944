// The layers for multi-token prediction of every golden case that has them, and what the trained
// ones of tldr-mtp-10m draft.
#include <gtest/gtest.h>

#include <algorithm>
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

// The layer was trained: its first drafts are the oracle's, and as many drafts of each depth are
// right as the oracle counted.
TEST(MtpModels, TrainedLayerDraftsLikeTheOracle) {
  const std::optional<std::string> shared = shared_folder();
  if (!shared) GTEST_SKIP() << "no folder beside the project";
  const std::string folder = *shared + "/models/tldr-mtp-10m";
  std::ifstream file(folder + "/golden_text.json");
  if (!file) GTEST_SKIP() << "no tldr-mtp-10m";
  const nlohmann::json golden = nlohmann::json::parse(file);
  DraftedModel model(folder);
  int num_first = 0, num_same = 0;
  std::vector<int> num_right(3), num_places(3);
  for (const auto& question : golden.at("float32")) {
    std::vector<int32_t> tokens = question.at("prompt_ids");
    const std::vector<int32_t> output = question.at("output_ids");
    const std::vector<int32_t> first_drafts = question.at("mtp_first_draft");
    int32_t begin = 0;
    for (size_t i = 0; i + 1 < output.size(); ++i) {
      tokens.push_back(output[i]);
      const std::vector<int32_t> drafts = model.drafts_behind(tokens, begin);
      begin = static_cast<int32_t>(tokens.size()) - 1;
      ASSERT_EQ(drafts.size(), 3u);
      if (i < first_drafts.size()) {
        ++num_first;
        num_same += drafts[0] == first_drafts[i] ? 1 : 0;
      }
      bool right = true;
      for (size_t depth = 0; depth < 3 && i + 1 + depth < output.size(); ++depth) {
        right = right && drafts[depth] == output[i + 1 + depth];
        num_right[depth] += right ? 1 : 0;
        ++num_places[depth];
      }
    }
  }
  EXPECT_GE(num_same, num_first * 99 / 100) << num_first;
  const std::vector<double> wanted = golden.at("acceptance_float32");
  for (size_t depth = 0; depth < 3; ++depth) {
    EXPECT_NEAR(static_cast<double>(num_right[depth]) / num_places[depth], wanted[depth], 0.02)
        << "depth " << depth;
  }
}

}  // namespace
}  // namespace atom
