#include "engine/messages.h"

#include <gtest/gtest.h>

#include <limits>

namespace atom {
namespace {

AddRequest full_request() {
  AddRequest add;
  add.id = 77;
  add.prompt_token_ids = {1, 2, 3};
  add.sampling.temperature = 0.5f;
  add.sampling.logit_bias = {{4, -1.5f}, {5, 2.0f}};
  add.sampling.seed = std::numeric_limits<uint64_t>::max();
  add.sampling.stop = {"a", "\xc3\xa9"};
  add.sampling.stop_token_ids = {9};
  add.sampling.kept_special_token_ids = {6, 7};
  add.sampling.bad_word_ids = {{1}, {2, 3}};
  add.sampling.max_thinking_tokens = 12;
  add.sampling.thinking_end_ids = {4, 5};
  add.sampling.logprobs = 3;
  add.sampling.cache_salt = "tenant";
  return add;
}

StepOutput full_step() {
  StepOutput step;
  RequestDelta& delta = step.deltas.emplace_back();
  delta.id = 5;
  delta.token_ids = {10, 11};
  delta.logprobs = {{{10, -0.5f, 1}}, {{11, -2.0f, 4}, {12, -0.1f, 1}}};
  delta.prompt_logprobs = {{{1, -3.0f, 7}}};
  delta.finish_reason = FinishReason::kStop;
  delta.stop_token_id = 11;
  delta.error = "e";
  step.stats.num_steps = 99;
  return step;
}

CoreProfile full_profile() {
  return {ProfileAction::kStop, StatusCode::kOk, "/tmp/a.json", 7, 8};
}

TEST(Messages, RequestsSurviveTheWire) {
  const std::vector<uint8_t> bytes = encode(CoreRequest(full_request()));
  const auto add = std::get<AddRequest>(decode_core_request(bytes).value());
  EXPECT_EQ(add.id, 77u);
  EXPECT_EQ(add.prompt_token_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(add.sampling.logit_bias[1], (std::pair<int32_t, float>{5, 2.0f}));
  EXPECT_EQ(add.sampling.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(add.sampling.stop[1], "\xc3\xa9");
  EXPECT_EQ(add.sampling.kept_special_token_ids, (std::vector<int32_t>{6, 7}));
  EXPECT_EQ(add.sampling.bad_word_ids, (std::vector<std::vector<int32_t>>{{1}, {2, 3}}));
  EXPECT_EQ(add.sampling.max_thinking_tokens, 12);
  EXPECT_EQ(add.sampling.thinking_end_ids, (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(add.sampling.prompt_logprobs, std::nullopt);
  EXPECT_EQ(add.sampling.cache_salt, "tenant");
  EXPECT_EQ(encode(CoreRequest(add)), bytes);

  const auto abort =
      std::get<AbortRequests>(decode_core_request(encode(AbortRequests{{1, 2}})).value());
  EXPECT_EQ(abort.ids, (std::vector<SequenceId>{1, 2}));
  EXPECT_TRUE(std::holds_alternative<Shutdown>(
      decode_core_request(encode(CoreRequest(Shutdown{}))).value()));
  const std::vector<uint8_t> stop = encode(CoreRequest(ControlProfile{ProfileAction::kStop}));
  EXPECT_EQ(std::get<ControlProfile>(decode_core_request(stop).value()).action,
            ProfileAction::kStop);
}

TEST(Messages, ResponsesSurviveTheWire) {
  const std::vector<uint8_t> bytes = encode(CoreResponse(full_step()));
  const CoreResponse response = decode_core_response(bytes).value();
  const auto& step = std::get<StepOutput>(response);
  EXPECT_EQ(step.deltas[0].logprobs[1][1].token_id, 12);
  EXPECT_EQ(step.deltas[0].stop_token_id, 11);
  EXPECT_EQ(step.stats.num_steps, 99u);
  EXPECT_EQ(encode(response), bytes);

  const auto failed = std::get<CoreFailed>(
      decode_core_response(encode(CoreFailed{StatusCode::kNotFound, "gone"})).value());
  EXPECT_EQ(failed.code, StatusCode::kNotFound);
  EXPECT_EQ(failed.reason, "gone");

  const std::vector<uint8_t> written = encode(CoreResponse(full_profile()));
  const CoreResponse answer = decode_core_response(written).value();
  const auto& profile = std::get<CoreProfile>(answer);
  EXPECT_EQ(profile.action, ProfileAction::kStop);
  EXPECT_EQ(profile.code, StatusCode::kOk);
  EXPECT_EQ(profile.text, "/tmp/a.json");
  EXPECT_EQ(profile.num_spans, 7u);
  EXPECT_EQ(profile.num_dropped_spans, 8u);
  EXPECT_EQ(encode(answer), written);

  const auto heartbeat = std::get<CoreHeartbeat>(
      decode_core_response(encode(CoreHeartbeat{1, 2, 3, ~uint64_t{0}})).value());
  EXPECT_EQ(heartbeat.num_ticks, 1u);
  EXPECT_EQ(heartbeat.num_steps, 2u);
  EXPECT_EQ(heartbeat.num_steps_in_flight, 3u);
  EXPECT_EQ(heartbeat.runner_progress, ~uint64_t{0});
}

TEST(Messages, EveryTruncationIsRefused) {
  for (const std::vector<uint8_t>& bytes : {encode(CoreRequest(full_request())),
                                            encode(CoreRequest(ControlProfile{})),
                                            encode(CoreResponse(full_step())),
                                            encode(CoreResponse(full_profile())),
                                            encode(CoreResponse(CoreHeartbeat{1, 2, 3, 4}))}) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      const std::span<const uint8_t> cut(bytes.data(), size);
      EXPECT_FALSE(decode_core_request(cut).ok()) << size;
      EXPECT_FALSE(decode_core_response(cut).ok()) << size;
    }
  }
}

TEST(Messages, TrailingBytesAndHugeCountsAreRefused) {
  std::vector<uint8_t> bytes = encode(CoreRequest(AbortRequests{{1}}));
  bytes.push_back(0);
  EXPECT_FALSE(decode_core_request(bytes).ok());
  // Kind, then a count of 2^32 - 1 ids.
  EXPECT_FALSE(decode_core_request(std::vector<uint8_t>{1, 255, 255, 255, 255}).ok());
  EXPECT_FALSE(decode_core_request(std::vector<uint8_t>{9}).ok());
  // A profile's action and status that do not exist.
  EXPECT_FALSE(decode_core_request(std::vector<uint8_t>{3, 2}).ok());
  bytes = encode(CoreResponse(full_profile()));
  bytes[2] = 255;
  EXPECT_FALSE(decode_core_response(bytes).ok());
}

SchedulerOutput full_scheduler_output() {
  SchedulerOutput step;
  step.step = 9;
  NewSequence& added = step.new_sequences.emplace_back();
  added.id = 4;
  added.prompt_token_ids = {1, 2, 3};
  added.sampling = full_request().sampling;
  added.sampling.structural_tag = "{}";
  ScheduledSequence& scheduled = step.scheduled.emplace_back();
  scheduled.id = 4;
  scheduled.num_computed_tokens = 1;
  scheduled.num_new_tokens = 2;
  scheduled.reset_block_table = true;
  scheduled.new_block_ids = {7, 8};
  scheduled.state_slots = {5};
  scheduled.num_sampled = 1;
  scheduled.told_token_ids = {11, 12};
  scheduled.told_drafts = {13};
  step.state_restores = {{1, 2}};
  step.state_saves = {{3, 4}, {5, 6}};
  step.finished = {2};
  step.num_tokens = 2;
  step.wants_drafts = true;
  step.is_dummy = true;
  return step;
}

TEST(Messages, StepsSurviveTheWireToOtherNodes) {
  const std::vector<uint8_t> bytes = encode(full_scheduler_output());
  const Result<SchedulerOutput> step = decode_scheduler_output(bytes);
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->step, 9u);
  EXPECT_EQ(step->new_sequences[0].prompt_token_ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(step->new_sequences[0].sampling.structural_tag, "{}");
  EXPECT_TRUE(step->scheduled[0].reset_block_table);
  EXPECT_EQ(step->scheduled[0].new_block_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(step->scheduled[0].told_token_ids, (std::vector<int32_t>{11, 12}));
  EXPECT_EQ(step->scheduled[0].told_drafts, (std::vector<int32_t>{13}));
  EXPECT_EQ(step->state_saves[1].to, 6);
  EXPECT_EQ(step->finished, (std::vector<SequenceId>{2}));
  EXPECT_TRUE(step->wants_drafts);
  EXPECT_TRUE(step->is_dummy);
  EXPECT_EQ(encode(*step), bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_scheduler_output(std::span(bytes).first(size)).ok()) << size;
  }
}

}  // namespace
}  // namespace atom
