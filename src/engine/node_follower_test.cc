// An engine over two nodes that are threads of this process, end to end on the demo model.
#include "engine/node_follower.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "comm/tcp/join_socket.h"
#include "engine/llm_engine.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

constexpr const char* kNodeQuestions[] = {"tar", "chmod", "What is ffmpeg?", "sed"};

// A port that was free a moment ago.
uint16_t free_port() {
  return local_address(listen_on("127.0.0.1", 0).value()).value().port;
}

EngineConfig node_config() {
  EngineConfig config;
  config.model.model = demo_model_folder();
  config.model.dtype = DType::kFloat32;
  config.model.max_model_len = 512;
  config.device.device = DeviceChoice::kCpu;
  config.device.num_threads = 2;
  return config;
}

std::vector<Prompt> node_prompts() {
  std::vector<Prompt> prompts;
  for (const char* question : kNodeQuestions) {
    prompts.emplace_back("<|im_start|>user\n" + std::string(question) +
                         "<|im_end|>\n<|im_start|>assistant\n");
  }
  return prompts;
}

std::vector<std::vector<int32_t>> answers_of(LLMEngine* engine, const SamplingParams& sampling) {
  std::vector<std::vector<int32_t>> answers;
  for (const RequestOutput& output : engine->generate(node_prompts(), {&sampling, 1})) {
    EXPECT_TRUE(output.status.ok()) << output.status.message();
    answers.push_back(output.outputs.empty() ? std::vector<int32_t>()
                                             : output.outputs[0].token_ids);
  }
  return answers;
}

class NodeFollowing : public testing::Test {
 protected:
  void SetUp() override {
    secret_ = testing::TempDir() + "/atom_node_secret";
    ASSERT_TRUE(replace_file(secret_, "what the nodes of a test know\n").ok());
    sampling_.temperature = 0;
    sampling_.max_tokens = 24;
  }
  void TearDown() override { stop_following(); }

  // The head's engine, and the other node on a thread.
  std::unique_ptr<LLMEngine> start(EngineConfig config) {
    config.nodes.num_nodes = 2;
    config.nodes.master_port = free_port();
    config.nodes.secret_file = secret_;
    EngineConfig other = config;
    other.nodes.node_rank = 1;
    follower_ = NodeFollower::create(other).value();
    worker_ = std::thread([this] { followed_ = follower_->run(); });
    Result<std::unique_ptr<LLMEngine>> engine = LLMEngine::create(config);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }

  void stop_following() {
    if (follower_ != nullptr) follower_->stop();
    if (worker_.joinable()) worker_.join();
  }

  std::string secret_;
  SamplingParams sampling_;
  std::unique_ptr<NodeFollower> follower_;
  std::thread worker_;
  Status followed_;
};

TEST_F(NodeFollowing, NodesAnswerAsOneDoesAndEndWithTheHead) {
  const auto alone = answers_of(LLMEngine::create(node_config()).value().get(), sampling_);
  struct Split {
    int32_t tensor, stages;
  };
  for (const auto [tensor, stages] : {Split{2, 1}, Split{1, 2}, Split{2, 2}}) {
    EngineConfig config = node_config();
    config.parallel.tensor_parallel_size = tensor;
    config.parallel.pipeline_parallel_size = stages;
    std::unique_ptr<LLMEngine> engine = start(config);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(answers_of(engine.get(), sampling_), alone) << tensor << " x " << stages;
    engine.reset();
    worker_.join();
    EXPECT_TRUE(followed_.ok()) << followed_.message();
  }
}

// Compiled grammars do not travel.
TEST_F(NodeFollowing, GrammarsHoldOnAllNodes) {
  EngineConfig config = node_config();
  config.parallel.tensor_parallel_size = 2;
  std::unique_ptr<LLMEngine> engine = start(config);
  ASSERT_NE(engine, nullptr);
  sampling_.structural_tag =
      R"({"type": "structural_tag", "format": {"type": "regex", "pattern": "[ab]{5}"}})";
  const std::vector<Prompt> prompts = node_prompts();
  for (const RequestOutput& output : engine->generate(prompts, {&sampling_, 1})) {
    ASSERT_TRUE(output.status.ok()) << output.status.message();
    EXPECT_EQ(output.outputs[0].text.size(), 5u);
    EXPECT_EQ(output.outputs[0].text.find_first_not_of("ab"), std::string::npos);
  }
}

TEST_F(NodeFollowing, ANodeThatStopsEndsTheRequests) {
  EngineConfig config = node_config();
  config.parallel.tensor_parallel_size = 2;
  std::unique_ptr<LLMEngine> engine = start(config);
  ASSERT_NE(engine, nullptr);
  stop_following();
  const std::vector<Prompt> prompts = node_prompts();
  for (const RequestOutput& output : engine->generate(prompts, {&sampling_, 1})) {
    EXPECT_NE(output.status.message().find("node 1 has stopped"), std::string::npos)
        << output.status.message();
  }
}

TEST_F(NodeFollowing, WithoutASecretThereIsNoEngine) {
  EngineConfig config = node_config();
  config.parallel.tensor_parallel_size = 2;
  config.nodes.num_nodes = 2;
  EXPECT_NE(LLMEngine::create(config).status().message().find("--node-secret-file"),
            std::string::npos);
  ASSERT_TRUE(replace_file(secret_, "short\n").ok());
  config.nodes.secret_file = secret_;
  EXPECT_NE(LLMEngine::create(config).status().message().find("5 bytes"), std::string::npos);
}

}  // namespace
}  // namespace atom
