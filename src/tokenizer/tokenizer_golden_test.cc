// Golden ids and texts of the model families, whole and streamed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_data_test.h"
#include "tokenizer/unicode.h"

namespace atom {
namespace {

class GoldenFamily : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = family_folder(GetParam());
    if (!file_exists(folder + "/golden.json")) GTEST_SKIP() << folder << " is absent";
    auto tokenizer = Tokenizer::load(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = *tokenizer;
    auto golden = read_json_file(folder + "/golden.json");
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    golden_ = std::move(golden).value();
    ASSERT_GT(golden_.size(), 200u);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  Json golden_;
};

TEST_P(GoldenFamily, EncodesAndDecodes) {
  for (const Json& entry : golden_) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    const auto ids_special =
        entry["ids_special"].is_null() ? ids : entry["ids_special"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->encode(text, false).value(), ids) << text;
    EXPECT_EQ(tokenizer_->encode(text, true).value(), ids_special) << text;
    EXPECT_EQ(tokenizer_->decode(ids, false), entry["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer_->decode(ids, true), entry["decoded_skip"].get<std::string>());
  }
}

TEST_P(GoldenFamily, StreamsTheSameText) {
  for (const Json& entry : golden_) {
    const auto ids = entry["ids"].get<std::vector<int32_t>>();
    for (const bool skip : {false, true}) {
      IncrementalDetokenizer detokenizer(tokenizer_, skip);
      std::string text;
      for (const int32_t id : ids) {
        const std::string part = detokenizer.append(id);
        EXPECT_TRUE(is_valid_utf8(part));
        text += part;
      }
      text += detokenizer.finish();
      EXPECT_EQ(text, entry[skip ? "decoded_skip" : "decoded"].get<std::string>());
    }
  }
}

// Ids in no sensible order, among them half characters and ids that do not exist.
TEST_P(GoldenFamily, StreamsRandomIds) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> ids;
    for (size_t i = random() % 20; i > 0; --i) {
      ids.push_back(static_cast<int32_t>(random() % (tokenizer_->vocab_size() + 3)) - 1);
    }
    IncrementalDetokenizer detokenizer(tokenizer_, true);
    std::string text;
    for (const int32_t id : ids) {
      const std::string part = detokenizer.append(id);
      ASSERT_TRUE(is_valid_utf8(part));
      text += part;
    }
    text += detokenizer.finish();
    ASSERT_EQ(text, tokenizer_->decode(ids, true));
    for (const int32_t id : ids) {
      ASSERT_LE(tokenizer_->token_bytes(id).size(), tokenizer_->max_token_bytes());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families,
                         GoldenFamily,
                         testing::ValuesIn(kTokenizerFamilies),
                         [](const auto& family) {
                           std::string name = family.param;
                           std::erase(name, '.');
                           return name;
                         });

TEST(GoldenModel, EncodesRenderedQuestions) {
  const std::string folder = shared_path("models/tldr-8m");
  if (!file_exists(folder + "/golden_text.json")) GTEST_SKIP() << folder << " is absent";
  auto loaded = Tokenizer::load(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const Tokenizer& tokenizer = **loaded;
  EXPECT_EQ(tokenizer.vocab_size(), 8192);
  EXPECT_EQ(tokenizer.eos_token_id(), 2);
  EXPECT_EQ(tokenizer.pad_token_id(), 0);
  EXPECT_EQ(tokenizer.bos_token_id(), std::nullopt);
  EXPECT_EQ(tokenizer.special_tokens().at("eos_token"), "<|im_end|>");
  EXPECT_TRUE(tokenizer.is_special(1));
  const Json golden = read_json_file(folder + "/golden_text.json").value();
  for (const Json& entry : golden["float32"]) {
    const std::string prompt = "<|im_start|>user\n" + entry["question"].get<std::string>() +
                               "<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(tokenizer.encode(prompt, false).value(),
              entry["prompt_ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(tokenizer.decode(entry["output_ids"].get<std::vector<int32_t>>(), true),
              entry["text"].get<std::string>());
  }
}

}  // namespace
}  // namespace atom
