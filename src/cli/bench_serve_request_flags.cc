// What the requests of `atom bench serve` ask.
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_serve_groups.h"
#include "cli/bench_serve_option_kinds.h"

namespace atom::cli {
namespace {

using namespace atom::bench_serve;  // NOLINT: nearly every type here is its

constexpr const char* kRequestsGroup = "Requests";

Option ratio_option(const char* name, const char* help, std::vector<double*> targets) {
  Option option =
      with_setter(name, kRequestsGroup, "NUMBER", help, [=](const std::string& text) -> Status {
        const std::optional<double> value = parse_number<double>(text);
        if (!value || !(*value >= 0) || *value >= 1) return wrong_value(name, text, "[0, 1)");
        for (double* target : targets) *target = *value;
        return {};
      });
  option.range = "[0, 1)";
  option.default_value.assign(1, '0');
  return option;
}

Option length_option(const char* name,
                     const char* default_value,
                     const char* help,
                     std::optional<LengthDistribution>* target) {
  Option option =
      with_setter(name, kRequestsGroup, "LENGTH", help, [=](const std::string& text) -> Status {
        const Result<LengthDistribution> length = LengthDistribution::parse(text);
        if (!length.ok()) return length.status().with_context(name);
        *target = *length;
        return {};
      });
  option.default_value = default_value;
  return option;
}

// Where prompts come from.
void add_dataset_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  options->push_back(
      with_name(choice_option<Dataset>("--dataset",
                                       kRequestsGroup,
                                       {{"random", Dataset::kRandom},
                                        {"prefix", Dataset::kPrefix},
                                        {"sharegpt", Dataset::kShareGpt},
                                        {"custom", Dataset::kCustom}},
                                       "random",
                                       "random: made-up prompts; prefix: the same, in "
                                       "groups that begin alike; sharegpt: conversations "
                                       "of a JSON file; custom: a file with a prompt, or "
                                       "a JSON object with \"prompt\" or \"messages\", in "
                                       "each line.",
                                       &benchmark->dataset),
                "--dataset-name"));
  options->push_back(text_option("--dataset-path",
                                 kRequestsGroup,
                                 "FILE",
                                 "File of the sharegpt and custom datasets.",
                                 &benchmark->dataset_path));
}

// How long prompts and answers are.
void add_length_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  options->push_back(
      with_name(length_option("--input-len",
                              "1024, or 256 of prefix",
                              "Tokens of a prompt, behind its prefix: a number, "
                              "uniform:LOW:HIGH, normal:MEAN:STD or lognormal:MEAN:STD.",
                              &benchmark->input_len),
                "--random-input-len"));
  options->push_back(with_name(length_option("--output-len",
                                             "128, or as in the file",
                                             "Tokens of an answer, in the same forms.",
                                             &benchmark->output_len),
                               "--random-output-len"));
  options->push_back(with_name(
      ratio_option(
          "--range-ratio",
          "Spreads fixed lengths evenly from LENGTH * (1 - ratio) to LENGTH * (1 + ratio).",
          {&benchmark->input_range_ratio, &benchmark->output_range_ratio}),
      "--random-range-ratio"));
  const auto optional_count =
      [&](const char* name, int32_t min, const char* help, std::optional<int32_t>* target) {
        return count_option(name, kRequestsGroup, min, help, target);
      };
  options->push_back(
      with_name(with_default(optional_count("--prefix-len",
                                            0,
                                            "Tokens that prompts with the same prefix share.",
                                            &benchmark->prefix_len),
                             "0, or 256 of prefix"),
                "--random-prefix-len"));
  options->push_back(with_default(
      optional_count("--num-prefixes", 1, "Different prefixes.", &benchmark->num_prefixes),
      "1, or 10 of prefix"));
}

// In which order prompts are taken, and how they are written.
void add_format_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  options->push_back(with_setter("--disable-shuffle",
                                 kRequestsGroup,
                                 "",
                                 "Take a file's prompts in their order.",
                                 [=](const std::string&) -> Status {
                                   benchmark->shuffle = false;
                                   return {};
                                 }));
  options->push_back(text_option("--tokenizer",
                                 kRequestsGroup,
                                 "FOLDER",
                                 "Tokenizer of the model, for prompts of exact length. Without it "
                                 "the server is asked.",
                                 &benchmark->tokenizer));
  options->push_back(count_option("--vocab-size",
                                  kRequestsGroup,
                                  1,
                                  "Token ids below it are sent as random prompts.",
                                  &benchmark->vocab_size));
  options->push_back(
      choice_option<PromptFormat>("--prompt-format",
                                  kRequestsGroup,
                                  {{"auto", PromptFormat::kAuto},
                                   {"ids", PromptFormat::kTokenIds},
                                   {"text", PromptFormat::kText}},
                                  "auto",
                                  "How random prompts are sent; auto: as token ids to "
                                  "completions if some are known, else as text.",
                                  &benchmark->prompt_format));
}

void add_body_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  Option ignore_eos = with_setter("--ignore-eos",
                                  kRequestsGroup,
                                  "",
                                  "Answers go on to their full length.",
                                  [=](const std::string& text) -> Status {
                                    benchmark->ignore_eos = text == "true";
                                    return {};
                                  });
  ignore_eos.negatable = true;
  options->push_back(with_default(std::move(ignore_eos), "with made-up prompts"));
  options->push_back(with_setter("--temperature",
                                 kRequestsGroup,
                                 "NUMBER",
                                 "Sampling temperature; without it the server's default.",
                                 [=](const std::string& text) -> Status {
                                   const auto value = parse_number<double>(text);
                                   if (!value || !(*value >= 0) || std::isinf(*value)) {
                                     return wrong_value("--temperature", text, "a number from 0");
                                   }
                                   benchmark->temperature = *value;
                                   return {};
                                 }));
  options->push_back(text_option("--extra-body",
                                 kRequestsGroup,
                                 "JSON",
                                 "An object whose fields every request gets.",
                                 &benchmark->extra_body));
  options->push_back(with_setter("--disable-stream",
                                 kRequestsGroup,
                                 "",
                                 "Ask for whole answers: only end-to-end times are measured.",
                                 [=](const std::string&) -> Status {
                                   benchmark->stream = false;
                                   return {};
                                 }));
}

}  // namespace

void add_request_options(BenchServeFlags* flags, std::vector<Option>* options) {
  add_dataset_options(flags, options);
  add_length_options(flags, options);
  add_format_options(flags, options);
  add_body_options(flags, options);
}

}  // namespace atom::cli
