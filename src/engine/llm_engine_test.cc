// The engine end to end on the demo model.
#include "engine/llm_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "tests/support/test_folders.h"

namespace atom {
namespace {

EngineConfig demo_config() {
  EngineConfig config;
  config.model.model = demo_model_folder();
  config.model.max_model_len = 512;
  config.device.device = DeviceChoice::kCpu;  // where answers do not depend on the batch
  return config;
}

std::unique_ptr<LLMEngine> make_engine(const EngineConfig& config = demo_config()) {
  Result<std::unique_ptr<LLMEngine>> engine = LLMEngine::create(config);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status().message();
    std::abort();
  }
  return std::move(engine).value();
}

std::string chat(const std::string& question) {
  return "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n";
}

const std::vector<std::string> kQuestions = {
    "tar", "chmod", "What is ffmpeg?", "How do I use git commit?", "ls", "grep", "sed", "awk"};

std::vector<Prompt> prompts(size_t count) {
  std::vector<Prompt> result;
  for (size_t i = 0; i < count; ++i) result.emplace_back(chat(kQuestions[i % kQuestions.size()]));
  return result;
}

SamplingParams greedy(int32_t max_tokens) {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = max_tokens;
  return params;
}

SamplingParams random(uint64_t seed, int32_t max_tokens) {
  SamplingParams params;
  params.seed = seed;
  params.max_tokens = max_tokens;
  params.ignore_eos = true;
  return params;
}

std::vector<int32_t> tokens(const RequestOutput& output, size_t answer = 0) {
  return output.outputs[answer].token_ids;
}

TEST(LLMEngine, AnswersFromTheDemoModel) {
  const auto engine = make_engine();
  const RequestOutput output = engine->generate({chat("tar")}, greedy(24))[0];
  EXPECT_TRUE(output.status.ok());
  EXPECT_TRUE(output.finished);
  EXPECT_EQ(output.outputs[0].text.substr(0, 25), "`tar`: Archiving utility.");
  EXPECT_EQ(output.outputs[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output.outputs[0].token_ids.size(), 24u);
  EXPECT_GT(output.metrics.first_token, output.metrics.arrival);
}

struct Ranks {
  int tensor_parallel_size;
  int data_parallel_size;
  int pipeline_parallel_size = 1;
};

TEST(LLMEngine, RanksAndCopiesAnswerAsOneDoes) {
  EngineConfig config = demo_config();
  config.model.dtype = DType::kFloat32;
  std::vector<SamplingParams> sampling;
  for (uint64_t i = 0; i < 12; ++i) sampling.push_back(i % 2 == 0 ? greedy(16) : random(i, 16));
  sampling[3].n = 2;
  const std::vector<RequestOutput> expected = make_engine(config)->generate(prompts(12), sampling);
  for (const auto& [tensor, data, stages] :
       {Ranks{2, 1}, Ranks{4, 1}, Ranks{1, 3}, Ranks{2, 2}, Ranks{1, 1, 3}, Ranks{2, 1, 2}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} copies, {} stages", tensor, data, stages));
    config.parallel.pipeline_parallel_size = stages;
    config.parallel.tensor_parallel_size = tensor;
    config.parallel.data_parallel_size = data;
    const auto engine = make_engine(config);
    const std::vector<RequestOutput> ours = engine->generate(prompts(12), sampling);
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_TRUE(ours[i].status.ok()) << ours[i].status.message();
      for (size_t k = 0; k < expected[i].outputs.size(); ++k) {
        EXPECT_EQ(tokens(ours[i], k), tokens(expected[i], k)) << i;
      }
    }
    EXPECT_EQ(engine->stats().num_running, 0);
    EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
    EXPECT_EQ(engine->stats().num_blocks, int64_t{data} * engine->memory().num_blocks);
  }
}

TEST(LLMEngine, RanksThatCannotShareALayerAreRefused) {
  EngineConfig config = demo_config();
  config.parallel.tensor_parallel_size = 5;
  const Status refused = LLMEngine::create(config).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_NE(
      refused.message().find("--tensor-parallel-size 5: model.layers.0.self_attn.qkv_proj has"),
      std::string::npos)
      << refused.message();
}

// Callbacks of several copies come from several threads, one at a time, and requests are aborted
// where they run.
TEST(LLMEngine, CopiesAbortAndCallBackOneAtATime) {
  EngineConfig config = demo_config();
  config.parallel.data_parallel_size = 2;
  config.parallel.data_parallel_balance = DataParallelBalance::kRoundRobin;
  const auto engine = make_engine(config);
  std::atomic<int> num_inside{0}, num_finished{0}, num_aborted{0};
  std::vector<RequestId> ids;
  for (uint64_t i = 0; i < 10; ++i) {
    const auto callback = [&](const RequestOutput& output, const RequestUpdate&) {
      EXPECT_EQ(++num_inside, 1);
      if (output.finished) {
        num_aborted += output.outputs[0].finish_reason == FinishReason::kAbort ? 1 : 0;
        ++num_finished;
      }
      --num_inside;
    };
    ids.push_back(engine->submit(chat("tar"), random(i, i < 4 ? 480 : 20), callback).value());
  }
  for (size_t i = 0; i < 4; ++i) engine->abort(ids[i]);
  while (num_finished < 10) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(num_aborted, 4);
}

TEST(LLMEngine, OneBadRequestLeavesTheOthersUnchanged) {
  const auto engine = make_engine();
  const RequestOutput alone = engine->generate({chat("tar")}, greedy(16))[0];
  std::vector<Prompt> batch = {chat("tar"),
                               "",
                               std::vector<int32_t>{1, 99999},
                               chat("tar"),
                               std::vector<int32_t>(600, 5),
                               std::vector<int32_t>{-1}};
  std::vector<SamplingParams> sampling(batch.size(), greedy(16));
  sampling[3].top_p = std::nanf("");
  const std::vector<RequestOutput> outputs = engine->generate(batch, sampling);
  EXPECT_EQ(tokens(outputs[0]), tokens(alone));
  EXPECT_EQ(outputs[1].status.message(), "the prompt is empty");
  EXPECT_NE(outputs[2].status.message().find("id 99999"), std::string::npos);
  EXPECT_NE(outputs[3].status.message().find("top_p"), std::string::npos);
  EXPECT_NE(outputs[4].status.message().find("600 tokens"), std::string::npos);
  EXPECT_NE(outputs[4].status.message().find("512"), std::string::npos);
  EXPECT_NE(outputs[5].status.message().find("id -1"), std::string::npos);
}

TEST(LLMEngine, ARequestDoesNotDependOnItsBatch) {
  const auto engine = make_engine();
  const std::vector<Prompt> batch = prompts(24);
  std::vector<SamplingParams> sampling;
  for (size_t i = 0; i < batch.size(); ++i) {
    sampling.push_back(random(1000 + i, 8 + static_cast<int32_t>(i)));
    if (i % 3 == 1) sampling.back().top_p = 0.8f;
    if (i % 3 == 2) sampling.back().repetition_penalty = 1.3f;
  }
  const std::vector<RequestOutput> together = engine->generate(batch, sampling);
  for (size_t i = 0; i < batch.size(); i += 5) {
    const std::span<const SamplingParams> own(&sampling[i], 1);
    const RequestOutput alone = engine->generate(std::span(&batch[i], 1), own)[0];
    EXPECT_EQ(tokens(together[i]), tokens(alone)) << i;
  }
}

TEST(LLMEngine, SynchronousAndAheadSchedulingAgree) {
  EngineConfig config = demo_config();
  config.scheduler.max_num_batched_tokens = 24;
  config.scheduler.max_num_seqs = 6;
  config.cache.num_blocks = 40;
  std::vector<std::vector<RequestOutput>> results;
  for (const bool async : {false, true}) {
    config.scheduler.async_scheduling = async;
    const auto engine = make_engine(config);
    std::vector<SamplingParams> sampling;
    for (size_t i = 0; i < 20; ++i) sampling.push_back(random(i, 40));
    results.push_back(engine->generate(prompts(20), sampling));
  }
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(tokens(results[0][i]), tokens(results[1][i])) << i;
}

TEST(LLMEngine, StopStringsEndAcrossTokenBorders) {
  const auto engine = make_engine();
  SamplingParams sampling = greedy(60);
  const std::string whole = engine->generate({chat("tar")}, sampling)[0].outputs[0].text;
  sampling.stop = {"chiving uti"};
  const RequestOutput stopped = engine->generate({chat("tar")}, sampling)[0];
  EXPECT_EQ(stopped.outputs[0].text, whole.substr(0, whole.find("chiving uti")));
  EXPECT_EQ(stopped.outputs[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.outputs[0].stop_string, "chiving uti");
  sampling.include_stop_str_in_output = true;
  const RequestOutput included = engine->generate({chat("tar")}, sampling)[0];
  EXPECT_EQ(included.outputs[0].text, whole.substr(0, whole.find("chiving uti") + 11));
}

TEST(LLMEngine, BadWordsDoNotCome) {
  const auto engine = make_engine();
  SamplingParams params = greedy(24);
  const std::string free = engine->generate({chat("tar")}, params)[0].outputs[0].text;
  ASSERT_NE(free.find("Archiving utility"), std::string::npos) << free;
  params.bad_words = {"utility", "Archiving"};
  const RequestOutput output = engine->generate({chat("tar")}, params)[0];
  ASSERT_TRUE(output.status.ok());
  EXPECT_EQ(output.outputs[0].text.find("utility"), std::string::npos) << output.outputs[0].text;
  EXPECT_EQ(output.outputs[0].text.find("Archiving"), std::string::npos) << output.outputs[0].text;
  EXPECT_FALSE(output.outputs[0].text.empty());
}

TEST(LLMEngine, ThinkingEndsWhenItsBudgetIsUsedUp) {
  const auto engine = make_engine();
  SamplingParams params = greedy(12);
  const std::vector<int32_t> free = tokens(engine->generate({chat("tar")}, params)[0]);
  params.max_thinking_tokens = 5;
  params.starts_thinking = true;
  params.thinking_closing_ids = engine->tokenize("</think>", false).value();
  const std::vector<int32_t> limited = tokens(engine->generate({chat("tar")}, params)[0]);
  std::vector<int32_t> expected(free.begin(), free.begin() + 5);
  expected.insert(
      expected.end(), params.thinking_closing_ids.begin(), params.thinking_closing_ids.end());
  ASSERT_GE(limited.size(), expected.size());
  EXPECT_EQ(std::vector<int32_t>(limited.begin(), limited.begin() + expected.size()), expected);
}

TEST(LLMEngine, StreamedTextAddsUpToTheWhole) {
  const auto engine = make_engine();
  std::string streamed;
  std::vector<int32_t> ids;
  std::atomic<bool> finished{false};
  RequestOutput last;
  const auto on_output = [&](const RequestOutput& output, const RequestUpdate& update) {
    streamed += update.text;
    ids.insert(ids.end(), update.token_ids.begin(), update.token_ids.end());
    if (!output.finished) return;
    last = output;
    finished = true;
    finished.notify_one();
  };
  ASSERT_TRUE(engine->submit(chat("What is ffmpeg?"), random(3, 100), on_output).ok());
  finished.wait(false);
  EXPECT_EQ(streamed, last.outputs[0].text);
  EXPECT_EQ(ids, last.outputs[0].token_ids);
}

TEST(LLMEngine, SeveralAnswersHaveTheirOwnSeeds) {
  const auto engine = make_engine();
  SamplingParams sampling = random(11, 20);
  sampling.temperature = 3;
  sampling.n = 3;
  const RequestOutput output = engine->generate({chat("sed")}, sampling)[0];
  ASSERT_EQ(output.outputs.size(), 3u);
  EXPECT_NE(tokens(output, 0), tokens(output, 1));
  sampling.n = 1;
  sampling.seed = 13;
  EXPECT_EQ(tokens(output, 2), tokens(engine->generate({chat("sed")}, sampling)[0]));
}

TEST(LLMEngine, LogprobsOfPromptAndAnswer) {
  const auto engine = make_engine();
  SamplingParams sampling = greedy(5);
  sampling.logprobs = 2;
  sampling.prompt_logprobs = 0;
  const RequestOutput output = engine->generate({chat("tar")}, sampling)[0];
  EXPECT_EQ(output.prompt_logprobs.size(), output.prompt_token_ids.size() - 1);
  ASSERT_EQ(output.outputs[0].logprobs.size(), 5u);
  for (const TokenLogprobs& position : output.outputs[0].logprobs) {
    ASSERT_EQ(position.size(), 3u);
    EXPECT_EQ(position[0].rank, 1);
    EXPECT_EQ(position[0].token_id, position[1].token_id);
    EXPECT_GT(position[1].logprob, position[2].logprob);
  }

  // The answer, scored as a prompt, has the logprobs it was generated with.
  std::vector<int32_t> scored = output.prompt_token_ids;
  const std::vector<int32_t> answer = tokens(output);
  scored.insert(scored.end(), answer.begin(), answer.end());
  SamplingParams score = greedy(0);
  score.prompt_logprobs = 0;
  const RequestOutput again = engine->generate({scored}, score)[0];
  EXPECT_TRUE(again.status.ok()) << again.status.message();
  ASSERT_EQ(again.prompt_logprobs.size(), scored.size() - 1);
  EXPECT_TRUE(tokens(again).empty());
  for (size_t i = 0; i < 5; ++i) {
    const TokenLogprobs& position = again.prompt_logprobs[output.prompt_token_ids.size() - 1 + i];
    EXPECT_EQ(position[0].logprob, output.outputs[0].logprobs[i][0].logprob);
  }
}

TEST(LLMEngine, AbortEndsARequestAndFreesItsBlocks) {
  const auto engine = make_engine();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> num_tokens{0};
    std::atomic<bool> finished{false};
    FinishReason reason = FinishReason::kNone;
    const auto on_output = [&](const RequestOutput& output, const RequestUpdate& update) {
      num_tokens += static_cast<int>(update.token_ids.size());
      num_tokens.notify_one();
      if (!output.finished) return;
      reason = output.outputs[0].finish_reason;
      finished = true;
      finished.notify_one();
    };
    const Result<RequestId> id = engine->submit(chat("tar"), random(round, 400), on_output);
    ASSERT_TRUE(id.ok());
    num_tokens.wait(0);
    engine->abort(*id);
    finished.wait(false);
    EXPECT_EQ(reason, FinishReason::kAbort);
    EXPECT_LT(num_tokens.load(), 400);
  }
  engine->abort(123456);
  (void)engine->generate({chat("ls")}, greedy(2));
  const CoreStats stats = engine->stats();
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
}

TEST(LLMEngine, DestructionWithUnfinishedRequests) {
  for (int round = 0; round < 5; ++round) {
    const auto engine = make_engine();
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(engine->submit(chat("tar"), random(i, 300), nullptr).ok());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round * 3));
  }
}

TEST(LLMEngine, PreemptionDoesNotChangeAnswers) {
  EngineConfig config = demo_config();
  config.model.max_model_len = 160;
  std::vector<SamplingParams> sampling;
  for (size_t i = 0; i < 12; ++i) sampling.push_back(random(i, 100));
  const std::vector<RequestOutput> roomy = make_engine(config)->generate(prompts(12), sampling);
  config.cache.num_blocks = 20;
  const auto engine = make_engine(config);
  const std::vector<RequestOutput> tight = engine->generate(prompts(12), sampling);
  EXPECT_GT(engine->stats().num_preemptions, 0u);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(tokens(roomy[i]), tokens(tight[i])) << i;
}

TEST(LLMEngine, WithoutATokenizer) {
  EngineConfig config = demo_config();
  config.model.skip_tokenizer_init = true;
  const auto engine = make_engine(config);
  const std::vector<RequestOutput> outputs =
      engine->generate({std::vector<int32_t>{1, 648, 201}, "text"}, greedy(4));
  EXPECT_EQ(tokens(outputs[0]).size(), 4u);
  EXPECT_EQ(outputs[0].outputs[0].text, "");
  EXPECT_NE(outputs[1].status.message().find("skip_tokenizer_init"), std::string::npos);
}

TEST(LLMEngine, CreationErrorsSayWhatIsWrong) {
  EngineConfig config = demo_config();
  config.model.model = "/nonexistent";
  EXPECT_NE(LLMEngine::create(config).status().message().find("/nonexistent"), std::string::npos);
  config = demo_config();
  config.cache.num_blocks = 3;
  const Status status = LLMEngine::create(config).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("--max-model-len"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace atom
