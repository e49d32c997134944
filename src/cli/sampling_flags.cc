#include "cli/sampling_flags.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "cli/parse_values.h"

namespace atom::cli {
namespace {

constexpr size_t kMaxShown = 100;

Status bad_value(const Option& option, const std::string& text, const std::string& expected) {
  return invalid_argument(
      "{} is '{}'; expected {}", option.names[0], text.substr(0, kMaxShown), expected);
}

std::string option_name(std::string_view field) {
  std::string name = "--" + std::string(field);
  std::ranges::replace(name, '_', '-');
  return name;
}

// As --help shows it; empty for what has no plain default.
template <typename T>
std::string default_text(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else {
    return {};
  }
}

}  // namespace

void SamplingFlags::bind(const NumberRange& range, float SamplingParams::*member, Option* option) {
  option->value_name = "NUMBER";
  option->range = range.text();
  option->set = [this, range, member, self = *option](const std::string& text) -> Status {
    const std::optional<float> value = parse_number<float>(text);
    if (!value || !range.contains(*value))
      return bad_value(self, text, "a number in " + range.text());
    edits_.push_back([member, value](SamplingParams* params) { params->*member = *value; });
    return {};
  };
}

template <typename Integer>
void SamplingFlags::bind(const IntegerRange& range,
                         Integer SamplingParams::*member,
                         Option* option) {
  option->value_name = "INT";
  option->range = range.text();
  option->set = [this, range, member, self = *option](const std::string& text) -> Status {
    const std::optional<int32_t> value = parse_number<int32_t>(text);
    if (!value || *value < range.min || *value > range.max) {
      return bad_value(self, text, "an integer in " + range.text());
    }
    edits_.push_back([member, value](SamplingParams* params) { params->*member = *value; });
    return {};
  };
}

void SamplingFlags::bind(const AnyBool&, bool SamplingParams::*member, Option* option) {
  option->value_name = "BOOL";
  option->negatable = true;
  option->implicit_value = "true";
  option->set = [this, member, self = *option](const std::string& text) -> Status {
    if (text != "true" && text != "false") return bad_value(self, text, "true or false");
    edits_.push_back(
        [member, value = text == "true"](SamplingParams* params) { params->*member = value; });
    return {};
  };
}

void SamplingFlags::bind(const AnySeed&,
                         std::optional<uint64_t> SamplingParams::*member,
                         Option* option) {
  option->value_name = "INT";
  option->set = [this, member, self = *option](const std::string& text) -> Status {
    const std::optional<uint64_t> value = parse_number<uint64_t>(text);
    if (!value) return bad_value(self, text, "an integer of 64 bits");
    edits_.push_back([member, value](SamplingParams* params) { params->*member = value; });
    return {};
  };
}

void SamplingFlags::bind(const Text& rule, std::string SamplingParams::*member, Option* option) {
  option->value_name = "TEXT";
  option->set = [this, rule, member, self = *option](const std::string& text) -> Status {
    RETURN_IF_ERROR(rule.check(self.names[0].c_str(), text, 0));
    edits_.push_back([member, text](SamplingParams* params) { params->*member = text; });
    return {};
  };
}

void SamplingFlags::bind(const TextList& rule,
                         std::vector<std::string> SamplingParams::*member,
                         Option* option) {
  option->value_name = "TEXT";
  option->repeatable = true;
  option->set = [this, rule, member, self = *option](const std::string& text) -> Status {
    RETURN_IF_ERROR(rule.check(self.names[0].c_str(), {text}, 0));
    edits_.push_back([member, text](SamplingParams* params) { (params->*member).push_back(text); });
    return {};
  };
}

void SamplingFlags::bind(const TokenIdList&,
                         std::vector<int32_t> SamplingParams::*member,
                         Option* option) {
  option->value_name = "IDS";
  option->repeatable = true;
  option->set = [this, member, self = *option](const std::string& text) -> Status {
    Result<std::vector<int32_t>> parsed = parse_token_ids(text);
    if (!parsed.ok()) return parsed.status().with_context(self.names[0]);
    edits_.push_back([member, added = *std::move(parsed)](SamplingParams* params) {
      std::vector<int32_t>& all = params->*member;
      all.insert(all.end(), added.begin(), added.end());
    });
    return {};
  };
}

void SamplingFlags::bind(const TokenSequences&,
                         std::vector<std::vector<int32_t>> SamplingParams::*member,
                         Option* option) {
  option->value_name = "IDS";
  option->repeatable = true;
  option->set = [this, member, self = *option](const std::string& text) -> Status {
    Result<std::vector<int32_t>> parsed = parse_token_ids(text);
    if (!parsed.ok()) return parsed.status().with_context(self.names[0]);
    edits_.push_back([member, added = *std::move(parsed)](SamplingParams* params) {
      (params->*member).push_back(added);
    });
    return {};
  };
}

void SamplingFlags::bind(const TokenBiases& rule,
                         LogitBias SamplingParams::*member,
                         Option* option) {
  option->value_name = "ID:BIAS";
  option->repeatable = true;
  option->set = [this, rule, member, self = *option](const std::string& text) -> Status {
    const NumberRange range{-rule.max_bias, rule.max_bias};
    const std::string_view pair = text;
    const size_t colon = std::min(pair.find(':'), pair.size());
    const auto id = parse_number<int32_t>(pair.substr(0, colon));
    const auto bias = parse_number<float>(pair.substr(std::min(colon + 1, pair.size())));
    if (!id || !bias || *id < 0 || !range.contains(*bias)) {
      return bad_value(
          self, text, fmt::format("a token id and a bias in {}, such as 42:-5", range.text()));
    }
    edits_.push_back([member, entry = std::pair(*id, *bias)](SamplingParams* params) {
      (params->*member).push_back(entry);
    });
    return {};
  };
}

std::vector<Option> SamplingFlags::options(bool for_generate) {
  constexpr unsigned kTakenByChat = kTakenByCommands & ~kTakenByGenerate;
  const unsigned taker = for_generate ? kTakenByGenerate : kTakenByChat;
  const SamplingParams initial_values;
  std::vector<Option> options;
  const auto add =
      [&](const char* name, const auto& rule, auto member, unsigned takers, const char* help) {
        if ((takers & taker) == 0) return;
        Option option;
        option.names = {option_name(name)};
        option.group = "Sampling";
        option.help = help;
        option.default_value = default_text(initial_values.*member);
        if ((takers & kTakenByCheckpoints) != 0) {
          option.default_value = "generation_config.json's, else " + option.default_value;
        }
        bind(rule, member, &option);
        options.push_back(std::move(option));
      };
#define SAMPLING_FIELD(type, name, initial, rule, takers, help) \
  add(#name, rule, &SamplingParams::name, takers, help);
#include "config/sampling_fields.def"
#undef SAMPLING_FIELD
  // What the parameter's own default does not say.
  for (Option& option : options) {
    if (option.names[0] == "--max-tokens") {
      option.default_value = "generation_config.json's max_new_tokens, else what fits";
    } else if (option.names[0] == "--temperature") {
      option.default_value =
          "generation_config.json's, else 0 when that says do_sample false, else 1";
    }
  }
  return options;
}

SamplingParams SamplingFlags::apply(SamplingParams params,
                                    const GenerationConfig& generation_config) const {
  if (!generation_config.temperature && generation_config.do_sample == false) {
    params.temperature = 0;
  }
  for (const Edit& edit : edits_) edit(&params);
  return params;
}

std::optional<int32_t> SamplingFlags::given_max_tokens() const {
  SamplingParams params;
  params.max_tokens = 0;
  params = apply(params, GenerationConfig());
  return params.max_tokens == 0 ? std::nullopt : std::optional(params.max_tokens);
}

Status SamplingFlags::check_length(int32_t max_model_len) const {
  const int32_t max_tokens = given_max_tokens().value_or(0);
  if (max_tokens < max_model_len) return {};
  return invalid_argument(
      "--max-tokens is {}, and the model's limit is {} tokens, prompt and answer together",
      max_tokens,
      max_model_len);
}

bool SamplingFlags::asks_for_logprobs() const {
  const SamplingParams params = apply(SamplingParams(), GenerationConfig());
  return params.logprobs || params.prompt_logprobs;
}

}  // namespace atom::cli
