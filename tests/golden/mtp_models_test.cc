// The layers for multi-token prediction of every golden case that has them, and what the trained
// one of tldr-mtp-10m drafts.
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
constexpr size_t kNumDrafts = 3;

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
    engine.speculative.num_tokens = kNumDrafts;
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
      draft_rows(hidden, tokens_behind(token_ids), logits, context);
    });
    return logits;
  }

  // [depth][row]: what each row of `token_ids` drafts when the layer computes all rows anew for
  // each depth, every one from the state and the draft that it got itself at the depth before.
  std::vector<std::vector<int32_t>> drafts_of_rows(const std::vector<int32_t>& token_ids) {
    const auto count = static_cast<int32_t>(token_ids.size());
    const Tensor logits = Tensor::empty({count, config_.model.vocab_size}, DType::kFloat32);
    std::vector<std::vector<int32_t>> drafts;
    forward(token_ids, 0, count, [&](const Tensor& hidden, const ForwardContext& context) {
      Tensor state = hidden;
      std::vector<int32_t> next = tokens_behind(token_ids);
      for (size_t depth = 0; depth < kNumDrafts; ++depth) {
        state = draft_rows(state, next, logits, context);
        for (int32_t row = 0; row < count; ++row) {
          const float* values = logits.data<float>() + row * logits.size(1);
          const float* best = std::max_element(values, values + logits.size(1));
          next[row] = static_cast<int32_t>(best - values);
        }
        drafts.push_back(next);
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
      request.num_drafts = kNumDrafts;
      drafts = proposer.propose(std::span(&request, 1), hidden, context)[0];
    });
    return drafts;
  }

 private:
  // Of each row; behind the last one stands any token.
  static std::vector<int32_t> tokens_behind(const std::vector<int32_t>& token_ids) {
    std::vector<int32_t> next(token_ids.begin() + 1, token_ids.end());
    next.push_back(0);
    return next;
  }

  // One pass of the draft layer over all rows of the target's step -> its states.
  Tensor draft_rows(const Tensor& hidden,
                    const std::vector<int32_t>& next_ids,
                    const Tensor& logits,
                    const ForwardContext& context) const {
    const int64_t count = std::ssize(next_ids);
    const Tensor next = context.workspace.tensor({count}, DType::kInt32);
    std::ranges::copy(next_ids, next.data<int32_t>());
    const Tensor rows = context.workspace.tensor({count}, DType::kInt32);
    std::iota(rows.data<int32_t>(), rows.data<int32_t>() + count, 0);
    const ForwardContext draft{.stream = stream_,
                               .workspace = context.workspace,
                               .token_ids = next,
                               .positions = context.positions,
                               .batch = context.batch,
                               .storage = storage_};
    const Tensor state = built_.draft->forward(hidden, rows, 0, draft);
    built_.draft->compute_logits(state, logits, draft);
    return state;
  }

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

// How often the drafts of each depth are right, those before them too.
class Acceptance {
 public:
  // `drafts` of the tokens from output[place] on.
  void add(std::span<const int32_t> drafts, std::span<const int32_t> output, size_t place) {
    bool right = true;
    for (size_t depth = 0; depth < kNumDrafts && place + depth < output.size(); ++depth) {
      right = right && drafts[depth] == output[place + depth];
      num_right_[depth] += right ? 1 : 0;
      ++num_places_[depth];
    }
  }

  // A near tie may fall to either side and moves a share by 0.0012; states fed back without their
  // norm move the proposer's third by 0.0048.
  void expect(const std::vector<double>& shares) const {
    for (size_t depth = 0; depth < kNumDrafts; ++depth) {
      EXPECT_NEAR(num_right_[depth] / num_places_[depth], shares.at(depth), 0.0025) << depth;
    }
  }

 private:
  std::vector<double> num_right_ = std::vector<double>(kNumDrafts);
  std::vector<double> num_places_ = std::vector<double>(kNumDrafts);
};

// tldr-mtp-10m, whose draft layer was trained, and its oracle's answers to twelve questions.
class TrainedMtp : public testing::Test {
 protected:
  void SetUp() override {
    const std::optional<std::string> shared = shared_folder();
    if (!shared) GTEST_SKIP() << "no folder beside the project";
    const std::string folder = *shared + "/models/tldr-mtp-10m";
    std::ifstream file(folder + "/golden_text.json");
    if (!file) GTEST_SKIP() << "no tldr-mtp-10m";
    golden_ = nlohmann::json::parse(file);
    model_.emplace(folder);
  }

  nlohmann::json golden_;
  std::optional<DraftedModel> model_;
};

// The oracle counts drafts of which each depth is one more pass over the whole sequence.
TEST_F(TrainedMtp, RowsDraftLikeTheOracle) {
  Acceptance acceptance;
  int num_first = 0, num_same = 0;
  for (const nlohmann::json& question : golden_.at("float32")) {
    std::vector<int32_t> tokens = question.at("prompt_ids");
    const size_t last_of_prompt = tokens.size() - 1;
    const std::vector<int32_t> output = question.at("output_ids");
    const std::vector<int32_t> first_drafts = question.at("mtp_first_draft");
    tokens.insert(tokens.end(), output.begin(), output.end());
    const std::vector<std::vector<int32_t>> by_depth = model_->drafts_of_rows(tokens);
    for (size_t i = 0; i + 1 < output.size(); ++i) {
      std::vector<int32_t> drafts;
      for (const std::vector<int32_t>& rows : by_depth) drafts.push_back(rows[last_of_prompt + i]);
      ++num_first;
      num_same += drafts[0] == first_drafts.at(i) ? 1 : 0;
      acceptance.add(drafts, output, i + 1);
    }
  }
  EXPECT_GE(num_same, num_first * 99 / 100) << num_first;
  acceptance.expect(golden_.at("acceptance_float32"));
}

// The proposer computes one more row per draft. The rows before keep what the first pass made of
// the known tokens, where the oracle's hold guesses by then: so its second and third drafts are
// right more often than the oracle's. The shares are those of mtp_reference.py.
TEST_F(TrainedMtp, ProposerDraftsBehindKnownTokens) {
  Acceptance acceptance;
  for (const nlohmann::json& question : golden_.at("float32")) {
    std::vector<int32_t> tokens = question.at("prompt_ids");
    const std::vector<int32_t> output = question.at("output_ids");
    int32_t computed = 0;
    for (size_t i = 0; i + 1 < output.size(); ++i) {
      tokens.push_back(output[i]);
      const std::vector<int32_t> drafts = model_->drafts_behind(tokens, computed);
      computed = static_cast<int32_t>(tokens.size()) - 1;
      ASSERT_EQ(drafts.size(), kNumDrafts);
      acceptance.add(drafts, output, i + 1);
    }
  }
  acceptance.expect({728.0 / 859, 415.0 / 847, 224.0 / 835});
}

}  // namespace
}  // namespace atom
