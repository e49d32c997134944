// The layers for multi-token prediction of every golden case that has them, and what the trained
// one of tldr-mtp-10m drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/golden/drafted_model.h"
#include "tests/support/golden_case.h"
#include "tests/support/mtp_case.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

TEST(MtpModels, LogitsAreTheGoldenOnes) {
  int num_cases = 0;
  for (const std::string& path : golden_case_folders()) {
    const Result<GoldenCase> golden = load_golden_case(path);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    if (golden->prompts.front().mtp_logits.values.empty()) continue;
    SCOPED_TRACE(golden->name);
    ++num_cases;
    const TemporaryFolder folder;
    ASSERT_TRUE(materialize_checkpoint(path, folder.path()).ok());
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

// No oracle has a draft layer with an indexer. One that selects as many tokens as there are attends
// to all, like DeepSeek-V3's of the same tensors.
TEST(MtpModels, AnIndexerThatSelectsAllChangesNothing) {
  constexpr size_t kNumTokens = 24;  // below "index_topk"
  for (const char* name : {"deepseek-v32", "glm-moe-dsa-shared"}) {
    SCOPED_TRACE(name);
    const std::string folder = golden_folder() + "/" + name;
    std::vector<int32_t> ids = load_golden_case(folder).value().prompts.front().ids;
    ids.resize(kNumTokens);
    std::vector<float> logits[2];
    for (const Indexers indexers : {Indexers::kKept, Indexers::kDropped}) {
      const TemporaryFolder checkpoint;
      ASSERT_TRUE(materialize_with_mtp(folder, checkpoint.path(), indexers).ok());
      DraftedModel model(checkpoint.path());
      const Tensor computed = model.draft_logits(ids);
      const float* values = computed.data<float>();
      logits[indexers == Indexers::kKept].assign(values, values + computed.num_elements());
    }
    EXPECT_LE(relative_error(logits[1], logits[0]), kFloat32Bound);
  }
}

// How often the drafts of each depth are right, those before them too.
class Acceptance {
 public:
  // `drafts` of the tokens from output[place] on.
  void add(std::span<const int32_t> drafts, std::span<const int32_t> output, size_t place) {
    bool right = true;
    for (size_t depth = 0; depth < DraftedModel::kNumDrafts && place + depth < output.size();
         ++depth) {
      right = right && drafts[depth] == output[place + depth];
      num_right_[depth] += right ? 1 : 0;
      ++num_places_[depth];
    }
  }

  // A near tie may fall to either side and moves a share by 0.0012; states fed back without their
  // norm move the proposer's third by 0.0048.
  void expect(const std::vector<double>& shares) const {
    for (size_t depth = 0; depth < DraftedModel::kNumDrafts; ++depth) {
      EXPECT_NEAR(num_right_[depth] / num_places_[depth], shares.at(depth), 0.0025) << depth;
    }
  }

 private:
  std::vector<double> num_right_ = std::vector<double>(DraftedModel::kNumDrafts);
  std::vector<double> num_places_ = std::vector<double>(DraftedModel::kNumDrafts);
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
      ASSERT_EQ(drafts.size(), DraftedModel::kNumDrafts);
      acceptance.add(drafts, output, i + 1);
    }
  }
  acceptance.expect({728.0 / 859, 415.0 / 847, 224.0 / 835});
}

}  // namespace
}  // namespace atom
