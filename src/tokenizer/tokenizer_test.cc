// The tokenizer's own behavior on small tokenizers made here: errors, configuration, corner cases.
#include "tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer_data_test.h"

namespace atom {
namespace {

using Ids = std::vector<int32_t>;

// A tokenizer.json whose model is `model` and that has the further fields `more`.
std::string with_model(const std::string& model, const std::string& more = "") {
  return fmt::format("{{{}{}\"model\": {}}}", more, more.empty() ? "" : ", ", model);
}

const char* const kModel = R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 3,
  "<s>": 4, "</s>": 5, "▁": 6, "▁a": 7}, "merges": ["a b", ["ab", "b"], "▁ a"]})";

std::shared_ptr<const Tokenizer> make(const std::string& json, const std::string& config = "") {
  auto tokenizer = Tokenizer::from_json(json, config);
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status().message();
    return nullptr;
  }
  return *tokenizer;
}

void expect_error(const std::string& json, const std::string& part) {
  const auto tokenizer = Tokenizer::from_json(json);
  ASSERT_FALSE(tokenizer.ok()) << json.substr(0, 200);
  EXPECT_NE(tokenizer.status().message().find(part), std::string::npos)
      << tokenizer.status().message() << "\nlacks: " << part;
}

TEST(TokenizerJson, ErrorsNameTheEntry) {
  expect_error("", "expected '{'");
  expect_error("[]", "tokenizer.json:1:1");
  expect_error("{}", "no \"model\"");
  expect_error("\xFF", "UTF-8");
  expect_error(with_model(kModel) + "x", "after the end");
  expect_error("{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [", "tokenizer.json:1:");
  expect_error(R"({"model": 3})", "must be an object");
  expect_error(with_model(R"({"type": "WordPiece", "vocab": {}, "merges": []})"), "WordPiece");
  expect_error(with_model(R"({"type": "Unigram", "vocab": [["a", 0.5]]})"), "Unigram");
  expect_error(with_model(R"({"vocab": [], "merges": []})"), "model.vocab");
  expect_error(with_model(R"({"vocab": {"a": 0}})"), "model.merges is missing");
  expect_error(with_model(R"({"vocab": {"a": "0"}, "merges": []})"), "expected an integer");
  expect_error(with_model(R"({"vocab": {"a": 1.5}, "merges": []})"), "expected an integer");
  expect_error(with_model(R"({"vocab": {"a": -1}, "merges": []})"), "the id -1 of token \"a\"");
  expect_error(with_model(R"({"vocab": {"a": 99999999}, "merges": []})"), "99999999");
  expect_error(with_model(R"({"vocab": {"a": 0, "b": 0}, "merges": []})"), "both \"a\" and \"b\"");
  expect_error(with_model(R"({"vocab": {"a": 0, "a": 1}, "merges": []})"), "listed twice");
  expect_error(with_model(R"({"vocab": {"a\ud800": 0}, "merges": []})"), "surrogate");
  const std::string vocab = R"({"vocab": {"a": 0, "b": 1}, "merges": )";
  expect_error(with_model(vocab + R"(["a c"]})"), "merges[0]: the token \"c\"");
  expect_error(with_model(vocab + R"([["c", "a"]]})"), "the token \"c\"");
  expect_error(with_model(vocab + R"(["a b"]})"), "the token \"ab\"");
  expect_error(with_model(vocab + R"(["ab"]})"), "one space between");
  expect_error(with_model(vocab + R"([["a"]]})"), "a merge must be");
  expect_error(with_model(vocab + R"([["a", "b", "c"]]})"), "expected ']'");
  expect_error(with_model(vocab + R"([["", "a"]]})"), "not in model.vocab");
  expect_error(with_model(vocab + R"([3]})"), "a merge must be");
  expect_error(with_model(vocab + R"([], "unk_token": "?"})"), "model.unk_token \"?\"");
  expect_error(with_model(vocab + R"([], "unk_token": 3})"), "unk_token");
  expect_error(with_model(vocab + R"([], "dropout": 0.1})"), "dropout");
  expect_error(with_model(vocab + R"([], "byte_fallback": 1})"), "byte_fallback");
  // The merges before the vocabulary.
  expect_error(with_model(R"({"merges": ["a c"], "vocab": {"a": 0}})"), "the token \"c\"");
}

TEST(TokenizerJson, ComponentErrorsNameTheKind) {
  const auto expect = [](const std::string& field, const std::string& part) {
    expect_error(with_model(kModel, field), part);
  };
  expect(R"("normalizer": {"type": "Nmt"})", "normalizer \"Nmt\" is not supported");
  expect(R"("normalizer": "NFC")", "normalizer");
  expect(R"("normalizer": {"type": "Replace", "pattern": "a", "content": ""})", "\"pattern\"");
  expect(R"("pre_tokenizer": {"type": "UnicodeScripts"})", "UnicodeScripts");
  expect(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})",
         "regular expression");
  expect(
      R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sometimes"})",
      "Sometimes");
  expect(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"},
             {"type": "Digits"}]})",
         "ByteLevel must be last");
  expect(R"("post_processor": {"type": "BertProcessing"})", "BertProcessing");
  expect(R"("post_processor": {"type": "TemplateProcessing", "single": []})", "no {\"Sequence\"");
  expect(R"("post_processor": {"type": "TemplateProcessing", "single":
             [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}})",
         "\"x\"");
  expect(R"("post_processor": {"type": "TemplateProcessing", "single":
             [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}],
             "special_tokens": {"x": {"ids": [77]}}})",
         "the id 77 has no token");
  expect(R"("decoder": {"type": "CTC"})", "CTC");
  expect(R"("added_tokens": [{"id": 0, "content": "z"}])", "belongs to \"a\"");
  expect(R"("added_tokens": [{"id": 8, "content": "z"}, {"id": 8, "content": "y"}])", "the id 8");
  expect(R"("added_tokens": [{"id": 8, "content": "z"}, {"id": 9, "content": "z"}])", "twice");
  expect(R"("added_tokens": [{"id": -8, "content": "z"}])", "\"z\"");
  expect(R"("added_tokens": [{"id": 8}])", "added_tokens[0]");
  expect(R"("added_tokens": {})", "must be an array");
  expect(R"("normalizer": null, "normalizer": null)", "twice");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";
  expect("\"x\": " + deep, "nested too deeply");
}

TEST(TokenizerJson, AddedTokensAreBoundedAsTheNormalizerMakesThem) {
  const std::string content(1 << 20, 'b');
  std::string tokens;
  for (int i = 0; i < 20; ++i) {
    tokens += fmt::format(
        R"({}{{"id": {}, "content": "a{}", "normalized": true}})", i > 0 ? ", " : "", 8 + i, i);
  }
  const auto file = [&](const std::string& with) {
    return with_model(kModel,
                      R"("normalizer": {"type": "Replace", "pattern": {"String": "a"},)"
                      R"( "content": ")" +
                          with + R"("}, "added_tokens": [)" + tokens + "]");
  };
  expect_error(file(content), "the added tokens, normalized, have more than 16777216 bytes");
  EXPECT_NE(make(file("b")), nullptr);
}

TEST(Tokenizer, UnknownCharactersAreDroppedFusedOrUnknown) {
  const std::string vocab = R"("vocab": {"a": 0, "?": 1, "<0xC3>": 2, "<0xA9>": 3}, "merges": [])";
  EXPECT_EQ(make(with_model("{" + vocab + "}"))->encode("axxa", false).value(), (Ids{0, 0}));
  EXPECT_EQ(make(with_model("{" + vocab + R"(, "unk_token": "?"})"))->encode("axxa", false).value(),
            (Ids{0, 1, 1, 0}));
  const auto fused = make(
      with_model("{" + vocab + R"(, "unk_token": "?", "fuse_unk": true, "byte_fallback": true})"));
  EXPECT_EQ(fused->encode("axéxxa", false).value(), (Ids{0, 1, 2, 3, 1, 0}));
}

TEST(Tokenizer, WordSplitOfLongTextsChangesNothing) {
  const auto tokenizer =
      make(with_model(kModel, R"("normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})"));
  std::string text;
  Ids expected;
  for (int i = 0; i < 20; ++i) {
    text += i == 0 ? "abb" : " abb";
    expected.insert(expected.end(), {6, 3});
  }
  EXPECT_EQ(tokenizer->encode(text, false).value(), expected);
}

TEST(Tokenizer, MergesAcrossWordsForbidTheWordSplit) {
  const auto tokenizer = make(with_model(
      R"({"vocab": {"a": 0, "b": 1, "▁": 2, "b▁": 3, "ab": 4}, "merges": ["b ▁", "a b"]})"));
  std::string text;
  Ids expected;
  for (int i = 0; i < 20; ++i) {
    text += "abb▁";
    expected.insert(expected.end(), {4, 3});
  }
  EXPECT_EQ(tokenizer->encode(text, false).value(), expected);
}

TEST(Tokenizer, InvalidUtf8CountsAsReplacementCharacter) {
  const auto tokenizer = make(with_model(R"({"vocab": {"a": 0, "�": 1}, "merges": []})"));
  EXPECT_EQ(tokenizer
                ->encode("a\xFF"
                         "a\xE4\xB8",
                         false)
                .value(),
            (Ids{0, 1, 0, 1}));
}

TEST(Tokenizer, AddBosAndEosOfTheConfiguration) {
  const std::string json =
      with_model(kModel, R"("added_tokens": [{"id": 4, "content": "<s>", "special": true},
                                  {"id": 5, "content": "</s>", "special": true}])");
  const std::string names = R"("bos_token": "<s>", "eos_token": {"content": "</s>"})";
  const auto encode = [&](const std::string& config, const std::string& text) {
    return make(json, config)->encode(text, true).value();
  };
  EXPECT_EQ(encode("{" + names + "}", "a"), (Ids{0}));
  EXPECT_EQ(encode("{" + names + R"(, "add_bos_token": true})", "a"), (Ids{4, 0}));
  EXPECT_EQ(encode("{" + names + R"(, "add_bos_token": true})", "<s>a"), (Ids{4, 0}));
  EXPECT_EQ(encode("{" + names + R"(, "add_bos_token": false, "add_eos_token": true})", "a"),
            (Ids{0, 5}));
  const auto tokenizer = make(json, "{" + names + "}");
  EXPECT_EQ(tokenizer->bos_token_id(), 4);
  EXPECT_EQ(tokenizer->eos_token_id(), 5);
  EXPECT_EQ(tokenizer->pad_token_id(), std::nullopt);
  EXPECT_EQ(tokenizer->special_tokens().at("eos_token"), "</s>");
  EXPECT_EQ(tokenizer->special_tokens().size(), 2u);
}

TEST(Tokenizer, TokensOfTheConfigurationAreAdded) {
  const auto tokenizer = make(with_model(kModel), R"({
    "eos_token": "</s>", "pad_token": "<nowhere>", "extra_special_tokens": {"x_token": "<s>"},
    "added_tokens_decoder": {"8": {"content": "<new>", "special": true}, "0": {"content": "clash"},
                             "9": {"content": "<tool>", "special": false}}})");
  EXPECT_EQ(tokenizer->encode("a<new></s><tool><s>", false).value(), (Ids{0, 8, 5, 9, 4}));
  EXPECT_EQ(tokenizer->decode(Ids{0, 8, 5, 9, 4}, true), "a <tool>");
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_TRUE(tokenizer->is_special(8));
  EXPECT_FALSE(tokenizer->is_special(9));
  EXPECT_EQ(tokenizer->pad_token_id(), std::nullopt);
  EXPECT_EQ(tokenizer->special_tokens().at("x_token"), "<s>");
  EXPECT_EQ(tokenizer->token_to_id("<tool>"), 9);
  EXPECT_EQ(tokenizer->token_to_id("abb"), 3);
  EXPECT_EQ(tokenizer->token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(3), "abb");
  EXPECT_EQ(tokenizer->id_to_token(1000), "");
  EXPECT_EQ(tokenizer->id_to_token(-1), "");
  EXPECT_FALSE(Tokenizer::from_json(with_model(kModel),
                                    R"({"added_tokens_decoder": {"x": {"content": "y"}}})")
                   .ok());
}

TEST(Tokenizer, PreTokenizerBehaviors) {
  const auto pieces = [](const std::string& pre_tokenizer, const std::string& text) {
    // Every character is a token and nothing merges, but a piece that is a token is that token.
    const auto tokenizer = make(with_model(R"({"ignore_merges": true, "vocab": {"a": 0, "-": 1,
      "--": 2, "a-": 3, "-a": 4, "a--": 5, "--a": 6, "aa": 7, "▁": 8, "▁a": 9, "1": 10, "11": 11},
      "merges": []})",
                                           "\"pre_tokenizer\": " + pre_tokenizer));
    std::string joined;
    const Ids ids = tokenizer->encode(text, false).value();
    for (const int32_t id : ids) {
      joined.append(joined.empty() ? "" : "|").append(tokenizer->id_to_token(id));
    }
    return joined;
  };
  const auto split = [&](const std::string& behavior, const std::string& text, bool invert) {
    return pieces(fmt::format(R"({{"type": "Split", "pattern": {{"String": "-"}},
      "behavior": "{}", "invert": {}}})",
                              behavior,
                              invert),
                  text);
  };
  EXPECT_EQ(split("Isolated", "aa--a-", false), "aa|-|-|a|-");
  EXPECT_EQ(split("Removed", "aa--a-", false), "aa|a");
  EXPECT_EQ(split("Removed", "aa--a-", true), "-|-|-");
  EXPECT_EQ(split("MergedWithPrevious", "a--a-", false), "a-|-|a-");
  EXPECT_EQ(split("MergedWithNext", "-a--a-", false), "-a|-|-a|-");
  EXPECT_EQ(split("Contiguous", "a--aa-", false), "a|--|aa|-");
  EXPECT_EQ(pieces(R"({"type": "Metaspace", "prepend_scheme": "always"})", "a a  a"), "▁a|▁a|▁|▁a");
  EXPECT_EQ(pieces(R"({"type": "Metaspace", "prepend_scheme": "never"})", "a a"), "a|▁a");
  EXPECT_EQ(pieces(R"({"type": "Metaspace", "add_prefix_space": false})", "a"), "a");
  EXPECT_EQ(pieces(R"({"type": "Digits", "individual_digits": false})", "a11a"), "a|11|a");
  EXPECT_EQ(pieces(R"({"type": "Digits", "individual_digits": true})", "a11a"), "a|1|1|a");
  EXPECT_EQ(pieces(R"({"type": "Whitespace"})", "aa -- a"), "aa|--|a");
  EXPECT_EQ(pieces(R"({"type": "WhitespaceSplit"})", " a- -a "), "a-|-a");
  EXPECT_EQ(pieces(R"({"type": "Punctuation"})", "a--a"), "a|-|-|a");
}

TEST(Tokenizer, Normalizers) {
  const auto normalized = [](const std::string& normalizer, const std::string& text) {
    const auto tokenizer =
        make(with_model(R"({"vocab": {"a": 0, "i": 1, "̇": 2, "b": 3, " ": 4}, "merges": []})",
                        "\"normalizer\": " + normalizer));
    std::string joined;
    const Ids ids = tokenizer->encode(text, false).value();
    for (const int32_t id : ids) {
      joined += tokenizer->id_to_token(id);
    }
    return joined;
  };
  EXPECT_EQ(normalized(R"({"type": "Lowercase"})", "Aİ"), "ai̇");
  EXPECT_EQ(normalized(R"({"type": "Strip"})", "\u3000 a a\n"), "a a");
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": false})", " a "), " a");
  EXPECT_EQ(normalized(R"({"type": "NFKC"})", "ａ"), "a");
  EXPECT_EQ(
      normalized(R"({"type": "Replace", "pattern": {"Regex": "x+"}, "content": "b"})", "axxaxb"),
      "abab"
      "b");
  EXPECT_EQ(normalized(R"({"type": "Sequence", "normalizers": []})", "ab"), "ab");
}

TEST(Tokenizer, ByteLevelAddsItsPrefixSpacePerPiece) {
  const auto tokenizer =
      make(with_model(R"({"vocab": {"a": 0, "Ġ": 1, "Ġa": 2}, "merges": ["Ġ a"]})",
                      R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true},
                         "decoder": {"type": "ByteLevel"})"));
  EXPECT_EQ(tokenizer->encode("a a", false).value(), (Ids{2, 2}));
  EXPECT_EQ(tokenizer->encode("", false).value(), Ids{});
}

TEST(Tokenizer, TextLimitIsAnError) {
  const auto tokenizer = make(with_model(kModel));
  EXPECT_FALSE(tokenizer->encode(std::string((size_t{64} << 20) + 1, 'a'), false).ok());
}

TEST(Tokenizer, CanBeUsedByManyThreads) {
  const auto tokenizer = make(make_large_tokenizer_json(2000));
  const std::string text = make_prose(20000);
  const Ids expected = tokenizer->encode(text, false).value();
  std::vector<std::thread> threads;
  std::vector<int> num_equal(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i)
        num_equal[t] += tokenizer->encode(text, false).value() == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_equal, std::vector<int>(4, 5));
  EXPECT_EQ(tokenizer->decode(expected, false), text);
}

TEST(Tokenizer, LoadSaysWhichFilesWereLookedFor) {
  const auto tokenizer = Tokenizer::load("/nonexistent");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kNotFound);
  for (const char* name : {"/nonexistent", "tokenizer.json", "tokenizer.model"}) {
    EXPECT_NE(tokenizer.status().message().find(name), std::string::npos);
  }
}

TEST(Tokenizer, SpecialTokensMapCountsWhereTheConfigurationIsSilent) {
  const std::string folder = testing::TempDir() + "/atom_tokenizer_map";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/tokenizer.json") << with_model(kModel);
  std::ofstream(folder + "/special_tokens_map.json")
      << R"({"eos_token": {"content": "</s>"}, "bos_token": "b"})";
  std::ofstream(folder + "/tokenizer_config.json") << R"({"bos_token": "<s>"})";
  const auto tokenizer = Tokenizer::load(folder);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->bos_token_id(), 4);
  EXPECT_EQ((*tokenizer)->eos_token_id(), 5);
}

TEST(IncrementalDetokenizer, ContextKeepsTheLeadingSpace) {
  const auto tokenizer = make(with_model(kModel, R"("decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})"));
  EXPECT_EQ(IncrementalDetokenizer(tokenizer, false).append(7), "a");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer, false, Ids{7}).append(7), " a");
}

TEST(IncrementalDetokenizer, KeepsTheSpecialTokensAskedFor) {
  const auto tokenizer = make(with_model(kModel, R"("added_tokens": [
    {"id": 4, "content": "<s>", "special": true},
    {"id": 5, "content": "</s>", "special": true}])"));
  const auto text = [&](bool skip, std::vector<int32_t> kept) {
    IncrementalDetokenizer detokenizer(tokenizer, skip, {}, std::move(kept));
    std::string all;
    for (const int32_t id : {4, 5, 4}) all += detokenizer.append(id);
    return all + detokenizer.finish();
  };
  EXPECT_EQ(text(true, {}), "");
  EXPECT_EQ(text(true, {5}), "</s>");
  EXPECT_EQ(text(true, {4, 5}), "<s> </s> <s>");
  EXPECT_EQ(text(false, {5}), "<s> </s> <s>");
}

}  // namespace
}  // namespace atom
