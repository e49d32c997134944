// The sampling options of generate and chat: the parameters of sampling_fields.def.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cli/option.h"
#include "config/generation_config.h"
#include "config/sampling_params.h"

namespace atom::cli {

// What the command line asks for, to be laid over a checkpoint's defaults.
class SamplingFlags {
 public:
  // The options set this object, which outlives them. Those about several answers and scores are
  // for `generate` only.
  std::vector<Option> options(bool for_generate);

  // `defaults` with what was asked for. For people at a terminal, unlike for a server, the
  // temperature of a checkpoint that says do_sample false and gives none is 0.
  SamplingParams apply(SamplingParams defaults, const GenerationConfig& generation_config) const;

  bool asks_for_logprobs() const;
  // --max-tokens, if it was given and is not 0.
  std::optional<int32_t> given_max_tokens() const;
  // An error when a limit was given that no prompt's answer can reach.
  Status check_length(int32_t max_model_len) const;

 private:
  using Edit = std::function<void(SamplingParams*)>;

  // How a text becomes an edit of `member`; one per rule of sampling_rules.h.
  void bind(const NumberRange& range, float SamplingParams::*member, Option* option);
  template <typename Integer>
  void bind(const IntegerRange& range, Integer SamplingParams::*member, Option* option);
  void bind(const AnyBool&, bool SamplingParams::*member, Option* option);
  void bind(const AnySeed&, std::optional<uint64_t> SamplingParams::*member, Option* option);
  void bind(const Text& rule, std::string SamplingParams::*member, Option* option);
  void bind(const TextList& rule, std::vector<std::string> SamplingParams::*member, Option* option);
  void bind(const TokenIdList&, std::vector<int32_t> SamplingParams::*member, Option* option);
  void bind(const TokenSequences&,
            std::vector<std::vector<int32_t>> SamplingParams::*member,
            Option* option);
  void bind(const TokenBiases& rule, LogitBias SamplingParams::*member, Option* option);

  std::vector<Edit> edits_;
};

}  // namespace atom::cli
