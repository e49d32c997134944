// What EAGLE-3 heads of tests/data/eagle3 draft for the golden models of the same names, and what
// they share with none. Numbers are those of eagle3_reference.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/golden/drafted_model.h"
#include "tests/support/golden_case.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

// "llama": the target's embedding, ids of its own. "gpt-oss": another width, an embedding of its
// own, two layers, and every norm that a head may have.
class Eagle3Models : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    const std::string golden = golden_folder() + "/" + name;
    const std::string head = golden_folder() + "/../eagle3/" + name;
    ASSERT_TRUE(materialize_checkpoint(golden, target_.path()).ok());
    const Status written = materialize_checkpoint(head, head_.path());
    ASSERT_TRUE(written.ok()) << written.message();
    std::ifstream file(head + "/golden.json");
    expected_ = nlohmann::json::parse(file);
    ids_ = load_golden_case(golden).value().prompts.front().ids;
    model_.emplace(target_.path(), head_.path());
  }

  TemporaryFolder target_, head_;
  nlohmann::json expected_;
  std::vector<int32_t> ids_;
  std::optional<DraftedModel> model_;
};

TEST_P(Eagle3Models, LogitsAreTheReferences) {
  const Tensor logits = model_->draft_logits(ids_);
  std::vector<float> ours, theirs;
  for (const int32_t position : expected_.at("positions").get<std::vector<int32_t>>()) {
    const float* row = logits.data<float>() + position * logits.size(1);
    ours.insert(ours.end(), row, row + logits.size(1));
  }
  for (const nlohmann::json& row : expected_.at("logits")) {
    const std::vector<float> values = row;
    theirs.insert(theirs.end(), values.begin(), values.end());
  }
  EXPECT_LE(relative_error(ours, theirs), kFloat32Bound);
}

// Whatever part of the tokens the target computes in the step before.
TEST_P(Eagle3Models, ProposerDraftsWhatTheReferenceDoes) {
  const std::vector<std::vector<int32_t>> expected = expected_.at("drafts");
  int32_t computed = 0;
  for (size_t count = 2; count <= ids_.size(); ++count) {
    const std::vector<int32_t> known(ids_.begin(), ids_.begin() + static_cast<int>(count));
    EXPECT_EQ(model_->drafts_behind(known, computed), expected.at(count - 2)) << count;
    if (count % 3 == 0) computed = static_cast<int32_t>(count) - 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         Eagle3Models,
                         testing::Values("llama", "gpt-oss"),
                         [](const auto& tested) {
                           return std::string(tested.param) == "llama" ? "Llama" : "GptOss";
                         });

}  // namespace
}  // namespace atom
