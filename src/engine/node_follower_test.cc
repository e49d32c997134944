// An engine over nodes that are threads of this process, end to end on the demo model and on one
// with experts.
#include "engine/node_follower.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "comm/tcp/join_socket.h"
#include "engine/llm_engine.h"
#include "tests/support/synthetic_checkpoint.h"
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

std::vector<std::vector<int32_t>> answers_to(const std::vector<Prompt>& prompts,
                                             LLMEngine* engine,
                                             const SamplingParams& sampling) {
  std::vector<std::vector<int32_t>> answers;
  for (const RequestOutput& output : engine->generate(prompts, {&sampling, 1})) {
    EXPECT_TRUE(output.status.ok()) << output.status.message();
    answers.push_back(output.outputs.empty() ? std::vector<int32_t>()
                                             : output.outputs[0].token_ids);
  }
  return answers;
}

std::vector<std::vector<int32_t>> answers_of(LLMEngine* engine, const SamplingParams& sampling) {
  return answers_to(node_prompts(), engine, sampling);
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

  struct Other {
    std::unique_ptr<NodeFollower> follower;
    std::thread thread;
    Status ended;
  };

  // The head's engine, and the other nodes on threads.
  std::unique_ptr<LLMEngine> start(EngineConfig config, int32_t num_nodes = 2) {
    config.nodes.num_nodes = num_nodes;
    config.nodes.master_port = free_port();
    config.nodes.secret_file = secret_;
    for (int32_t node = 1; node < num_nodes; ++node) {
      EngineConfig other = config;
      other.nodes.node_rank = node;
      others_.push_back(std::make_unique<Other>());
      others_.back()->follower = NodeFollower::create(other).value();
      others_.back()->thread =
          std::thread([other = others_.back().get()] { other->ended = other->follower->run(); });
    }
    Result<std::unique_ptr<LLMEngine>> engine = LLMEngine::create(config);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }

  // The head has ended; says whether the others took it so.
  void expect_ends() {
    for (const auto& other : others_) {
      other->thread.join();
      EXPECT_TRUE(other->ended.ok()) << other->ended.message();
    }
    others_.clear();
  }

  void stop_following() {
    for (const auto& other : others_) other->follower->stop();
    for (const auto& other : others_) other->thread.join();
    others_.clear();
  }

  std::string secret_;
  SamplingParams sampling_;
  std::vector<std::unique_ptr<Other>> others_;
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
    expect_ends();
  }
}

TEST_F(NodeFollowing, CopiesOfNodesAnswerAsOneDoes) {
  const auto alone = answers_of(LLMEngine::create(node_config()).value().get(), sampling_);
  struct Spread {
    int32_t tensor, copies, nodes;
  };
  for (const auto [tensor, copies, nodes] : {Spread{1, 2, 2}, Spread{2, 4, 2}, Spread{2, 2, 4}}) {
    EngineConfig config = node_config();
    config.parallel.tensor_parallel_size = tensor;
    config.parallel.data_parallel_size = copies;
    std::unique_ptr<LLMEngine> engine = start(config, nodes);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(answers_of(engine.get(), sampling_), alone) << copies << " on " << nodes;
    engine.reset();
    expect_ends();
  }
}

// Tokens that differ by nothing but the order of sums are the same in float32.
TEST_F(NodeFollowing, CopiesOfNodesShareExperts) {
  const TemporaryFolder folder;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/qwen3-moe", folder.path()).ok());
  EngineConfig one = node_config();
  one.model.model = folder.path();
  one.model.skip_tokenizer_init = true;
  one.model.max_model_len = 128;
  one.cache.num_blocks = 64;
  std::vector<Prompt> prompts;
  for (int32_t i = 0; i < 5; ++i) {
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < 20 + 3 * i; ++t) ids.push_back((7 * t + i) % 31);
    prompts.emplace_back(std::move(ids));
  }
  sampling_.ignore_eos = true;
  const auto alone = answers_to(prompts, LLMEngine::create(one).value().get(), sampling_);
  struct Spread {
    int32_t tensor, copies, stages, nodes;
    bool separates_attention, spreads_experts;
  };
  for (const Spread& spread : {Spread{1, 2, 1, 2, false, true},
                               Spread{2, 1, 1, 2, true, true},
                               Spread{2, 1, 1, 2, true, false},
                               Spread{1, 2, 2, 2, false, true},
                               Spread{2, 2, 1, 4, false, true}}) {
    EngineConfig config = one;
    config.parallel.tensor_parallel_size = spread.tensor;
    config.parallel.data_parallel_size = spread.copies;
    config.parallel.pipeline_parallel_size = spread.stages;
    config.parallel.enable_dp_attention = spread.separates_attention;
    config.parallel.enable_expert_parallel = spread.spreads_experts;
    std::unique_ptr<LLMEngine> engine = start(config, spread.nodes);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(answers_to(prompts, engine.get(), sampling_), alone)
        << spread.tensor << " x " << spread.copies << " on " << spread.nodes;
    engine.reset();
    expect_ends();
  }
}

TEST_F(NodeFollowing, ANodeWithCopiesThatStopsEndsAllRequests) {
  EngineConfig config = node_config();
  config.parallel.data_parallel_size = 2;
  std::unique_ptr<LLMEngine> engine = start(config);
  ASSERT_NE(engine, nullptr);
  stop_following();
  const std::vector<Prompt> prompts = node_prompts();
  for (const RequestOutput& output : engine->generate(prompts, {&sampling_, 1})) {
    EXPECT_NE(output.status.message().find("node 1 has stopped"), std::string::npos)
        << output.status.message();
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
