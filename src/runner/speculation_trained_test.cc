// Drafts of a layer that was trained.
#include "runner/speculation_harness_test.h"

namespace atom {
namespace {

// tldr-mtp-10m, whose draft layer was trained, on the questions of its oracle's answers.
class SpeculationTrained : public testing::Test {
 protected:
  void SetUp() override {
    const std::optional<std::string> shared = shared_folder();
    if (!shared) GTEST_SKIP() << "no folder beside the project";
    config_ = crowded_with_drafts(SpeculativeMethod::kMtp, 3);
    config_.model.model = *shared + "/models/tldr-mtp-10m";
    config_.cache.num_blocks = 400;
    const std::string answers = config_.model.model + "/golden_text.json";
    if (!std::ifstream(answers)) GTEST_SKIP() << "no tldr-mtp-10m";
    questions_ = read_json(answers).at("float32");
  }

  // Each share is the reference's but for two points.
  void expect_acceptance();

  EngineConfig config_;
  nlohmann::json questions_;
};

TEST_F(SpeculationTrained, ChangesNoAnswer) {
  std::mt19937 random(12);
  config_.cache.num_blocks = 26;
  const std::vector<Request> requests =
      random_requests(std::max<size_t>(24, num_speculation_requests()), random);
  EXPECT_GT(check_drafts(config_, requests).num_accepted, 50);
}

// The counts are those of the reference's drafts on a walk through the oracle's answers
// (tests/golden/mtp_reference.py).
TEST_F(SpeculationTrained, AcceptanceIsTheReferences) {
  expect_acceptance();
}

TEST_F(SpeculationTrained, AcceptanceByAnFp8HeadIsTheReferences) {
  config_.speculative.draft_head_dtype = DraftHeadDType::kFloat8;
  expect_acceptance();
}

// Counts verifications, each of which begins behind what the one before accepted.
void SpeculationTrained::expect_acceptance() {
  std::vector<Request> requests;
  for (const nlohmann::json& question : questions_) {
    Request& request = requests.emplace_back();
    request.prompt = question.at("prompt_ids").get<std::vector<int32_t>>();
    request.sampling.temperature = 0;
    request.sampling.seed = 1;
    request.sampling.max_tokens = static_cast<int32_t>(question.at("output_ids").size());
    request.sampling.ignore_eos = true;
  }
  Engine engine(config_, test_device());
  const std::vector<Answer> answers = engine.run(requests, [](uint64_t) { return SIZE_MAX; });
  size_t num_same = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::vector<int32_t> expected = questions_[i].at("output_ids");
    num_same += answers[i].token_ids == expected ? 1 : 0;
  }
  EXPECT_GE(num_same, answers.size() - 2);  // of near ties
  const SchedulerStats stats = engine.stats();
  const auto count = static_cast<double>(stats.num_verifications);
  const double expected[] = {273.0 / 347, 150.0 / 347, 86.0 / 347};
  for (size_t i = 0; i < 3; ++i) {
    const double share = static_cast<double>(stats.num_accepted_at[i]) / count;
    EXPECT_NEAR(share, expected[i], 0.02) << i;
  }
}

}  // namespace
}  // namespace atom
