#include "cli/sampling_flags.h"

#include <limits>
#include <type_traits>
#include <utility>

#include "cli/parse_values.h"

namespace atom::cli {
namespace {

constexpr int32_t kIntMax = std::numeric_limits<int32_t>::max();
// The smallest value of a range that is open at 0.
constexpr float kPositive = 1e-6f;

}  // namespace

Option SamplingFlags::make(std::string name, std::string value_name, std::string help) {
  Option option;
  option.names = {std::move(name)};
  option.group = "Sampling";
  option.value_name = std::move(value_name);
  option.help = std::move(help);
  return option;
}

template <typename T>
Option SamplingFlags::number(std::string name,
                             T min,
                             T max,
                             std::string default_value,
                             std::string help,
                             std::function<void(SamplingParams*, T)> assign) {
  constexpr bool kIsInteger = std::is_integral_v<T>;
  Option option = make(name, kIsInteger ? "INT" : "NUMBER", std::move(help));
  option.range = fmt::format("[{}, {}]", min, max);
  option.default_value = std::move(default_value);
  option.set =
      [this, name, min, max, assign = std::move(assign)](const std::string& text) -> Status {
    const std::optional<T> value = parse_number<T>(text);
    if (!value || !(*value >= min && *value <= max)) {
      return invalid_argument("{} is '{}'; expected {} in [{}, {}]",
                              name,
                              text.substr(0, 100),
                              kIsInteger ? "an integer" : "a number",
                              min,
                              max);
    }
    edits_.push_back([assign, value](SamplingParams* params) { assign(params, *value); });
    return {};
  };
  return option;
}

Option SamplingFlags::toggle(std::string name,
                             bool SamplingParams::*field,
                             bool fallback,
                             std::string help) {
  Option option = make(std::move(name), "BOOL", std::move(help));
  option.negatable = true;
  option.implicit_value = "true";
  option.default_value = fallback ? "true" : "false";
  option.set = [this, name = option.names[0], field](const std::string& text) -> Status {
    if (text != "true" && text != "false") {
      return invalid_argument("{} is '{}'; expected true or false", name, text.substr(0, 100));
    }
    edits_.push_back([field, value = text == "true"](SamplingParams* p) { p->*field = value; });
    return {};
  };
  return option;
}

void SamplingFlags::add_shaping(std::vector<Option>* options) {
  Option temperature = number<float>(
      "--temperature",
      0,
      100,
      "",
      "How freely tokens are chosen; 0 takes the most likely one. Default: the temperature of "
      "generation_config.json, else 0 when that says do_sample false, else 1",
      [](SamplingParams* p, float value) { p->temperature = value; });
  temperature.set = [this, inner = std::move(temperature.set)](const std::string& text) {
    sets_temperature_ = true;
    return inner(text);
  };
  options->push_back(std::move(temperature));
  options->push_back(number<float>(
      "--top-p",
      kPositive,
      1,
      "generation_config.json's, else 1",
      "Choose among the likeliest tokens that have this probability together; 1 is off.",
      [](SamplingParams* p, float value) { p->top_p = value; }));
  options->push_back(number<int32_t>("--top-k",
                                     -1,
                                     kIntMax,
                                     "generation_config.json's, else 0",
                                     "Choose among this many likeliest tokens; 0 and -1 are off.",
                                     [](SamplingParams* p, int32_t value) { p->top_k = value; }));
  options->push_back(number<float>(
      "--min-p",
      0,
      1,
      "generation_config.json's, else 0",
      "Leave out tokens less likely than this part of the likeliest one's probability; 0 is off.",
      [](SamplingParams* p, float value) { p->min_p = value; }));
}

void SamplingFlags::add_penalties(std::vector<Option>* options) {
  options->push_back(
      number<float>("--presence-penalty",
                    -2,
                    2,
                    "0",
                    "Against tokens that were generated already.",
                    [](SamplingParams* p, float value) { p->presence_penalty = value; }));
  options->push_back(number<float>("--frequency-penalty",
                                   -2,
                                   2,
                                   "0",
                                   "Against tokens for each time that they were generated.",
                                   [](SamplingParams* p, float v) { p->frequency_penalty = v; }));
  options->push_back(
      number<float>("--repetition-penalty",
                    kPositive,
                    100,
                    "generation_config.json's, else 1",
                    "Divides the scores of tokens in the prompt and the answer; 1 is off.",
                    [](SamplingParams* p, float value) { p->repetition_penalty = value; }));
  Option bias =
      make("--logit-bias", "ID:BIAS", "Adds a bias in [-100, 100] to the score of a token id.");
  bias.repeatable = true;
  bias.set = [this](const std::string& text) -> Status {
    const size_t colon = std::min(text.find(':'), text.size());
    const auto id = parse_number<int32_t>(std::string_view(text).substr(0, colon));
    const auto value =
        parse_number<float>(std::string_view(text).substr(std::min(colon + 1, text.size())));
    if (!id || !value || *id < 0 || !(*value >= -100 && *value <= 100)) {
      return invalid_argument(
          "--logit-bias is '{}'; expected a token id and a bias in [-100, 100], such as 42:-5",
          text.substr(0, 100));
    }
    edits_.push_back([entry = std::pair(*id, *value)](SamplingParams* params) {
      params->logit_bias.push_back(entry);
    });
    return {};
  };
  options->push_back(std::move(bias));
}

void SamplingFlags::add_length(std::vector<Option>* options) {
  options->push_back(
      number<int32_t>("--max-tokens",
                      0,
                      kIntMax,
                      "generation_config.json's max_new_tokens, else what fits",
                      "Longest answer in tokens; 0 only scores the prompt.",
                      [](SamplingParams* p, int32_t value) { p->max_tokens = value; }));
  options->push_back(number<int32_t>("--min-tokens",
                                     0,
                                     kIntMax,
                                     "0",
                                     "No token ends the answer before it has so many.",
                                     [](SamplingParams* p, int32_t v) { p->min_tokens = v; }));
}

void SamplingFlags::add_stops(std::vector<Option>* options) {
  Option stop = make("--stop", "TEXT", "The answer ends before this text.");
  stop.repeatable = true;
  stop.set = [this](const std::string& text) -> Status {
    if (text.empty()) return invalid_argument("--stop is empty; expected a text");
    edits_.push_back([text](SamplingParams* params) { params->stop.push_back(text); });
    return {};
  };
  options->push_back(std::move(stop));
  Option ids = make("--stop-token-ids", "IDS", "The answer ends with any of these tokens: 1,2,3.");
  ids.repeatable = true;
  ids.set = [this](const std::string& text) -> Status {
    Result<std::vector<int32_t>> parsed = parse_token_ids(text);
    if (!parsed.ok()) return parsed.status().with_context("--stop-token-ids");
    edits_.push_back([added = *std::move(parsed)](SamplingParams* params) {
      std::vector<int32_t>& all = params->stop_token_ids;
      all.insert(all.end(), added.begin(), added.end());
    });
    return {};
  };
  options->push_back(std::move(ids));
  options->push_back(toggle(
      "--ignore-eos", &SamplingParams::ignore_eos, false, "Go on behind the end-of-text token."));
  options->push_back(toggle("--include-stop-str-in-output",
                            &SamplingParams::include_stop_str_in_output,
                            false,
                            "Keep what ended the answer in its text."));
  options->push_back(toggle("--skip-special-tokens",
                            &SamplingParams::skip_special_tokens,
                            true,
                            "Leave special tokens out of the text."));
}

void SamplingFlags::add_scores(std::vector<Option>* options) {
  options->push_back(number<int32_t>("--n",
                                     1,
                                     SamplingParams::kMaxN,
                                     "1",
                                     "Answers per prompt.",
                                     [](SamplingParams* p, int32_t value) { p->n = value; }));
  const auto scores =
      [&](const char* name, const char* help, std::optional<int32_t> SamplingParams::*field) {
        Option option = number<int32_t>(
            name,
            0,
            SamplingParams::kMaxLogprobs,
            "",
            help,
            [field](SamplingParams* params, int32_t value) { params->*field = value; });
        option.set = [this, inner = std::move(option.set)](const std::string& text) {
          asks_for_logprobs_ = true;
          return inner(text);
        };
        options->push_back(std::move(option));
      };
  scores("--logprobs",
         "Log-probability of each token of the answer, and of this many likeliest ones; needs "
         "--json.",
         &SamplingParams::logprobs);
  scores("--prompt-logprobs",
         "The same for each token of the prompt but the first; needs --json.",
         &SamplingParams::prompt_logprobs);
  options->push_back(
      number<int32_t>("--priority",
                      std::numeric_limits<int32_t>::min(),
                      kIntMax,
                      "0",
                      "Lower runs earlier, with --scheduling-policy priority.",
                      [](SamplingParams* p, int32_t value) { p->priority = value; }));
}

std::vector<Option> SamplingFlags::options(bool for_generate) {
  std::vector<Option> options;
  add_shaping(&options);
  add_penalties(&options);
  add_length(&options);
  add_stops(&options);
  if (for_generate) add_scores(&options);
  return options;
}

SamplingParams SamplingFlags::apply(SamplingParams params,
                                    const GenerationConfig& generation_config) const {
  if (!sets_temperature_ && !generation_config.temperature &&
      generation_config.do_sample == false) {
    params.temperature = 0;
  }
  for (const Edit& edit : edits_) edit(&params);
  return params;
}

}  // namespace atom::cli
