// The sampling options of generate and chat: SamplingParams by vLLM's names.
#pragma once

#include <functional>
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

  bool asks_for_logprobs() const { return asks_for_logprobs_; }

 private:
  using Edit = std::function<void(SamplingParams*)>;

  Option make(std::string name, std::string value_name, std::string help);
  template <typename T>
  Option number(std::string name,
                T min,
                T max,
                std::string default_value,
                std::string help,
                std::function<void(SamplingParams*, T)> assign);
  Option toggle(std::string name, bool SamplingParams::*field, bool fallback, std::string help);
  void add_shaping(std::vector<Option>* options);
  void add_penalties(std::vector<Option>* options);
  void add_length(std::vector<Option>* options);
  void add_stops(std::vector<Option>* options);
  void add_scores(std::vector<Option>* options);

  std::vector<Edit> edits_;
  bool sets_temperature_ = false;
  bool asks_for_logprobs_ = false;
};

}  // namespace atom::cli
