#include "scheduler/checkpoint_places.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

SchedulerConfig config_of(int32_t interval) {
  SchedulerConfig config;
  config.block_size = 16;
  config.num_state_slots = 4;
  config.state_checkpoint_interval = interval;
  config.answer_checkpoint_interval = 40;  // three blocks
  config.min_checkpoint_tokens = 100;
  return config;
}

TEST(CheckpointPlaces, AreMultiplesAndTheEndOfAPrompt) {
  const CheckpointPlaces places(config_of(256));
  const CheckpointPlaces::OfPrompt prompt = places.of_prompt(400, 0, 0);
  EXPECT_EQ(places.next_in_prompt(prompt, 0), 256);
  EXPECT_EQ(places.next_in_prompt(prompt, 255), 256);
  EXPECT_EQ(places.next_in_prompt(prompt, 256), 384);
  EXPECT_EQ(places.next_in_prompt(prompt, 384), 512);
}

TEST(CheckpointPlaces, ThePromptsLastTokenIsLeft) {
  const CheckpointPlaces places(config_of(1024));
  EXPECT_EQ(places.of_prompt(400, 0, 0).end, 384);
  EXPECT_EQ(places.of_prompt(401, 0, 0).end, 400);
}

TEST(CheckpointPlaces, WhereCachedBlocksEndAThirdPromptMayBegin) {
  const CheckpointPlaces places(config_of(1024));
  const CheckpointPlaces::OfPrompt prompt = places.of_prompt(600, 320, 0);
  EXPECT_EQ(places.next_in_prompt(prompt, 0), 320);
  EXPECT_EQ(places.next_in_prompt(prompt, 320), 592);
}

TEST(CheckpointPlaces, WhatSavesLittleIsNotWorthAStep) {
  const CheckpointPlaces places(config_of(1024));
  const CheckpointPlaces::OfPrompt prompt = places.of_prompt(400, 320, 304);
  EXPECT_EQ(places.next_in_prompt(prompt, 304), 1024);
}

TEST(CheckpointPlaces, AnswersHaveThemEveryFewBlocks) {
  const CheckpointPlaces places(config_of(256));
  EXPECT_EQ(places.next_in_answer(0), 48);
  EXPECT_EQ(places.next_in_answer(48), 96);
  EXPECT_EQ(places.next_in_answer(250), 256);
  EXPECT_TRUE(places.is_passing(96));
  EXPECT_FALSE(places.is_passing(256));
  EXPECT_EQ(CheckpointPlaces(config_of(16)).next_in_answer(0), 16);
}

TEST(CheckpointPlaces, WithoutAnIntervalThereAreNone) {
  const CheckpointPlaces places(config_of(0));
  EXPECT_FALSE(places.exist());
  EXPECT_EQ(places.next_in_prompt(places.of_prompt(4000, 0, 0), 0), INT32_MAX);
  EXPECT_EQ(places.next_in_answer(100), INT32_MAX);
}

}  // namespace
}  // namespace atom
