#include "cli/bench_serve_flags.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "bench_serve/metric_names.h"
#include "cli/parse_values.h"

namespace atom::cli {
namespace {

using namespace atom::bench_serve;  // NOLINT: nearly every type here is its

constexpr const char* kServer = "Server";
constexpr const char* kLoad = "Load";
constexpr const char* kRequests = "Requests";
constexpr const char* kResults = "Results";
constexpr int32_t kMaxRequests = 1 << 22;
constexpr const char* kNamedLater = "auto";  // --save-result without a file

Status wrong_value(std::string_view name, std::string_view text, std::string_view expected) {
  return invalid_argument("{} is '{}'; expected {}", name, text.substr(0, 100), expected);
}

Option with_setter(std::string name,
                   const char* group,
                   std::string value_name,
                   std::string help,
                   std::function<Status(const std::string&)> set) {
  Option option;
  option.names = {std::move(name)};
  option.group = group;
  option.value_name = std::move(value_name);
  option.help = std::move(help);
  option.set = std::move(set);
  return option;
}

// A number above `above`; "inf" where `may_be_unlimited`.
Option number(const char* name,
              const char* group,
              double above,
              bool may_be_unlimited,
              const char* help,
              double* target) {
  Option option = with_setter(name, group, "NUMBER", help, [=](const std::string& text) -> Status {
    const std::optional<double> value = parse_number<double>(text);
    if (!value || std::isnan(*value) || *value <= above ||
        (std::isinf(*value) && !may_be_unlimited)) {
      const std::string expected =
          fmt::format("a number above {:g}{}", above, may_be_unlimited ? " or inf" : "");
      return wrong_value(name, text, expected);
    }
    *target = *value;
    return {};
  });
  option.default_value = fmt::format("{:g}", *target);
  return option;
}

Option ratio(const char* name, const char* help, std::vector<double*> targets) {
  Option option =
      with_setter(name, kRequests, "NUMBER", help, [=](const std::string& text) -> Status {
        const std::optional<double> value = parse_number<double>(text);
        if (!value || !(*value >= 0) || *value >= 1) return wrong_value(name, text, "[0, 1)");
        for (double* target : targets) *target = *value;
        return {};
      });
  option.range = "[0, 1)";
  option.default_value = "0";
  return option;
}

// One of a few words, each with what it stands for.
template <typename T>
Option choice(const char* name,
              const char* group,
              std::vector<std::pair<std::string, T>> values,
              const char* default_value,
              const char* help,
              T* target) {
  std::string names;
  for (const auto& [word, value] : values) names += (names.empty() ? "" : "|") + word;
  Option option = with_setter(name, group, names, help, [=](const std::string& text) -> Status {
    for (const auto& [word, value] : values) {
      if (word != text) continue;
      *target = value;
      return {};
    }
    return wrong_value(name, text, "one of " + names);
  });
  option.default_value = default_value;
  return option;
}

template <typename Count>
Option count(const char* name, const char* group, int32_t min, const char* help, Count* target) {
  Option option = with_setter(name, group, "INT", help, [=](const std::string& text) -> Status {
    const std::optional<int32_t> value = parse_number<int32_t>(text);
    if (!value || *value < min || *value > kMaxRequests) {
      return wrong_value(name, text, fmt::format("an integer in [{}, {}]", min, kMaxRequests));
    }
    *target = static_cast<Count>(*value);
    return {};
  });
  option.range = fmt::format("[{}, {}]", min, kMaxRequests);
  return option;
}

template <typename T>
Option with_default(Option option, const T& value) {
  option.default_value = fmt::format("{}", value);
  return option;
}

Option length(const char* name,
              const char* default_value,
              const char* help,
              std::optional<LengthDistribution>* target) {
  Option option =
      with_setter(name, kRequests, "LENGTH", help, [=](const std::string& text) -> Status {
        const Result<LengthDistribution> length = LengthDistribution::parse(text);
        if (!length.ok()) return length.status().with_context(name);
        *target = *length;
        return {};
      });
  option.default_value = default_value;
  return option;
}

Option with_name(Option option, const char* name) {
  option.names.push_back(name);
  return option;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

Status add_goodput(const std::string& text, Goodput* goodput) {
  for (const std::string_view pair : split(text, ',')) {
    const size_t colon = std::min(pair.find(':'), pair.size());
    const std::string_view name = pair.substr(0, colon);
    const auto limit = parse_number<double>(pair.substr(std::min(colon + 1, pair.size())));
    std::optional<double>* target = nullptr;
    if (name == "ttft") target = &goodput->ttft;
    if (name == "tpot") target = &goodput->tpot;
    if (name == "e2el" || name == "e2e") target = &goodput->e2el;
    if (target == nullptr || !limit || !(*limit >= 0)) {
      return wrong_value("--goodput", pair, "ttft:MS, tpot:MS or e2el:MS");
    }
    *target = *limit;
  }
  return {};
}

Status set_percentiles(const std::string& text, std::vector<double>* percentiles) {
  percentiles->clear();
  for (const std::string_view part : split(text, ',')) {
    const std::optional<double> value = parse_number<double>(part);
    if (!value || !(*value >= 0) || *value > 100 || percentiles->size() == 32) {
      return wrong_value("--metric-percentiles", text, "numbers in [0, 100], as 50,90,99");
    }
    percentiles->push_back(*value);
  }
  return {};
}

Status set_metrics(const std::string& text, std::vector<std::string>* metrics) {
  metrics->clear();
  for (const std::string_view part : split(text, ',')) {
    const auto names = metric_names();
    const bool known = std::any_of(
        names.begin(), names.end(), [&](const MetricName& metric) { return part == metric.key; });
    if (!known) return wrong_value("--percentile-metrics", part, "some of ttft,tpot,itl,e2el");
    metrics->emplace_back(part);
  }
  return {};
}

Status set_endpoint(const std::string& text, BenchmarkOptions* benchmark) {
  const bool is_path = text.starts_with('/') && std::all_of(text.begin(), text.end(), [](char c) {
                         return c > ' ' && c < 0x7f;
                       });
  if (text != "completions" && text != "chat" && !is_path) {
    return wrong_value("--endpoint", text, "completions, chat or a path such as /v1/completions");
  }
  const bool is_chat = text.find("chat") != std::string::npos;
  benchmark->endpoint = is_chat ? EndpointKind::kChat : EndpointKind::kCompletions;
  benchmark->endpoint_path = is_path ? text : "";
  return {};
}

Status set_backend(const std::string& text, BenchmarkOptions* benchmark) {
  if (text == "openai-chat") return set_endpoint("chat", benchmark);
  // --endpoint beside it says more.
  if (text == "openai" || text == "vllm" || text == "sglang") return {};
  return wrong_value("--backend", text, "one of openai, vllm, sglang, openai-chat");
}

void add_server_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  Option url = with_setter("--base-url",
                           kServer,
                           "URL",
                           "The server: http://HOST:PORT, https://HOST or unix:/PATH.",
                           [=](const std::string& text) -> Status {
                             flags->has_base_url = true;
                             benchmark->base_url = text;
                             return {};
                           });
  options->push_back(with_default(std::move(url), benchmark->base_url));
  options->push_back(text_option("--host",
                                 kServer,
                                 "NAME",
                                 "Host of the server, where there is no --base-url.",
                                 &flags->host));
  options->push_back(int_option("--port", kServer, 1, 65535, "Its port.", &flags->port));
  Option endpoint =
      with_setter("--endpoint",
                  kServer,
                  "completions|chat|PATH",
                  "Where requests go; a path with \"chat\" in it takes messages.",
                  [=](const std::string& text) { return set_endpoint(text, benchmark); });
  options->push_back(with_default(std::move(endpoint), "completions"));
  options->push_back(with_setter(
      "--backend",
      kServer,
      "openai|vllm|sglang|openai-chat",
      "vLLM's name for the protocol: openai-chat is --endpoint chat, the others completions.",
      [=](const std::string& text) { return set_backend(text, benchmark); }));
  options->push_back(with_setter("--trust-remote-code",
                                 kServer,
                                 "",
                                 "No effect: no code of a model is ever run.",
                                 [](const std::string&) -> Status {
                                   log::warning(
                                       "--trust-remote-code has no effect: no code of a model is "
                                       "ever run");
                                   return {};
                                 }));
  options->push_back(text_option("--model",
                                 kServer,
                                 "NAME",
                                 "The model to ask for; without it the first of /v1/models.",
                                 &benchmark->model));
  options->push_back(text_option("--api-key",
                                 kServer,
                                 "KEY",
                                 "Sent as a bearer token; without it $OPENAI_API_KEY.",
                                 &benchmark->api_key));
  Option header = with_setter("--header",
                              kServer,
                              "NAME=VALUE",
                              "A header of every request.",
                              [=](const std::string& text) -> Status {
                                benchmark->headers.push_back(text);
                                return {};
                              });
  header.repeatable = true;
  options->push_back(std::move(header));
  options->push_back(with_setter("--insecure",
                                 kServer,
                                 "",
                                 "Accept any certificate of a https server.",
                                 [=](const std::string&) -> Status {
                                   benchmark->verify_certificate = false;
                                   return {};
                                 }));
  options->push_back(number(
      "--timeout", kServer, 0, false, "Seconds that a request may take.", &benchmark->timeout));
  options->push_back(number("--ready-check-timeout-sec",
                            kServer,
                            -1,
                            false,
                            "Seconds to wait for the server to become ready.",
                            &benchmark->ready_timeout));
}

void add_load_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  ArrivalOptions* arrivals = &benchmark->arrivals;
  options->push_back(with_default(
      count("--num-prompts", kLoad, 1, "Requests that are measured.", &benchmark->num_prompts),
      benchmark->num_prompts));
  options->push_back(with_default(
      count("--num-warmups",
            kLoad,
            0,
            "Requests before them. The first is sent alone: what is wrong with all is said once.",
            &benchmark->num_warmups),
      benchmark->num_warmups));
  options->push_back(number("--request-rate",
                            kLoad,
                            0,
                            true,
                            "Requests/s, sent when they are due whatever the server does; inf "
                            "sends all at once.",
                            &arrivals->request_rate));
  options->push_back(number("--burstiness",
                            kLoad,
                            0,
                            true,
                            "Shape of the gamma distribution of the gaps between requests: 1 is a "
                            "Poisson process, less is burstier, more is more even.",
                            &arrivals->burstiness));
  options->push_back(choice<std::string>(
      "--arrival",
      kLoad,
      {{"poisson", "poisson"}, {"constant", "constant"}, {"burst", "burst"}},
      "poisson",
      "poisson leaves the gaps to --burstiness; constant makes them equal; burst sends groups of "
      "--burst-size at even gaps.",
      &flags->arrival));
  options->push_back(with_default(
      count("--burst-size", kLoad, 1, "Requests of a burst.", &arrivals->burst_size), 10));
  options->push_back(with_name(
      choice<RampUp>("--ramp-up-strategy",
                     kLoad,
                     {{"linear", RampUp::kLinear}, {"exponential", RampUp::kExponential}},
                     "",
                     "Instead of --request-rate: the rate grows from --ramp-up-start-rps to "
                     "--ramp-up-end-rps over the run.",
                     &arrivals->ramp_up),
      "--ramp-up"));
  for (auto& [name, target] : {std::pair{"--ramp-up-start-rps", &arrivals->ramp_up_start},
                               std::pair{"--ramp-up-end-rps", &arrivals->ramp_up_end}}) {
    Option rate = number(name, kLoad, -1e-9, false, "Requests/s of the ramp.", target);
    rate.default_value.clear();
    options->push_back(std::move(rate));
  }
  options->push_back(count("--max-concurrency",
                           kLoad,
                           1,
                           "Requests under way at a time; later ones wait. No limit without it.",
                           &benchmark->max_concurrency));
  options->push_back(with_default(
      count("--seed", kLoad, 0, "Of prompts, lengths and arrivals.", &benchmark->seed), 0));
}

void add_prompt_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  options->push_back(with_name(choice<Dataset>("--dataset",
                                               kRequests,
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
                                 kRequests,
                                 "FILE",
                                 "File of the sharegpt and custom datasets.",
                                 &benchmark->dataset_path));
  options->push_back(with_name(length("--input-len",
                                      "1024, or 256 of prefix",
                                      "Tokens of a prompt, behind its prefix: a number, "
                                      "uniform:LOW:HIGH, normal:MEAN:STD or lognormal:MEAN:STD.",
                                      &benchmark->input_len),
                               "--random-input-len"));
  options->push_back(with_name(length("--output-len",
                                      "128, or as in the file",
                                      "Tokens of an answer, in the same forms.",
                                      &benchmark->output_len),
                               "--random-output-len"));
  options->push_back(with_name(
      ratio("--range-ratio",
            "Spreads fixed lengths evenly from LENGTH * (1 - ratio) to LENGTH * (1 + ratio).",
            {&benchmark->input_range_ratio, &benchmark->output_range_ratio}),
      "--random-range-ratio"));
  const auto optional_count =
      [&](const char* name, int32_t min, const char* help, std::optional<int32_t>* target) {
        return count(name, kRequests, min, help, target);
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
  options->push_back(with_setter("--disable-shuffle",
                                 kRequests,
                                 "",
                                 "Take a file's prompts in their order.",
                                 [=](const std::string&) -> Status {
                                   benchmark->shuffle = false;
                                   return {};
                                 }));
  options->push_back(text_option("--tokenizer",
                                 kRequests,
                                 "FOLDER",
                                 "Tokenizer of the model, for prompts of exact length. Without it "
                                 "the server is asked.",
                                 &benchmark->tokenizer));
  options->push_back(count("--vocab-size",
                           kRequests,
                           1,
                           "Token ids below it are sent as random prompts.",
                           &benchmark->vocab_size));
  options->push_back(choice<PromptFormat>("--prompt-format",
                                          kRequests,
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
                                  kRequests,
                                  "",
                                  "Answers go on to their full length.",
                                  [=](const std::string& text) -> Status {
                                    benchmark->ignore_eos = text == "true";
                                    return {};
                                  });
  ignore_eos.negatable = true;
  options->push_back(with_default(std::move(ignore_eos), "with made-up prompts"));
  options->push_back(with_setter("--temperature",
                                 kRequests,
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
                                 kRequests,
                                 "JSON",
                                 "An object whose fields every request gets.",
                                 &benchmark->extra_body));
  options->push_back(with_setter("--disable-stream",
                                 kRequests,
                                 "",
                                 "Ask for whole answers: only end-to-end times are measured.",
                                 [=](const std::string&) -> Status {
                                   benchmark->stream = false;
                                   return {};
                                 }));
}

void add_result_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  Option goodput = with_setter(
      "--goodput",
      kResults,
      "METRIC:MS",
      "Counts requests within all these limits, of ttft, tpot and e2el in milliseconds, as "
      "ttft:200 tpot:50.",
      [=](const std::string& text) { return add_goodput(text, &benchmark->metrics.goodput); });
  goodput.repeatable = true;
  options->push_back(std::move(goodput));
  Option metrics =
      with_setter("--percentile-metrics",
                  kResults,
                  "LIST",
                  "Metrics that are reported.",
                  [=](const std::string& text) { return set_metrics(text, &flags->json.metrics); });
  options->push_back(with_default(std::move(metrics), "ttft,tpot,itl,e2el"));
  Option percentiles = with_setter(
      "--metric-percentiles", kResults, "LIST", "Their percentiles.", [=](const std::string& text) {
        return set_percentiles(text, &benchmark->metrics.percentiles);
      });
  options->push_back(with_default(std::move(percentiles), "50,90,95,99"));
  Option save = text_option("--save-result",
                            kResults,
                            "FILE",
                            "File for all figures as JSON, under vLLM's names; without FILE it is "
                            "named by --result-filename, or after model and time.",
                            &flags->save_result);
  save.implicit_value = kNamedLater;
  options->push_back(std::move(save));
  options->push_back(
      text_option("--result-filename", kResults, "FILE", "The same.", &flags->result_filename));
  options->push_back(text_option("--result-dir",
                                 kResults,
                                 "FOLDER",
                                 "Where that file goes if its name is no path from the root.",
                                 &flags->result_dir));
  options->push_back(switch_option(
      "--save-detailed", kResults, "The JSON gets every request too.", &flags->json.detailed));
  options->push_back(text_option("--html",
                                 kResults,
                                 "FILE",
                                 "File for a report with plots, which needs nothing else.",
                                 &flags->html));
  options->push_back(
      text_option("--label", kResults, "TEXT", "Name of the run in both.", &benchmark->label));
  options->push_back(with_name(
      switch_option("--no-progress", kResults, "No line of progress.", &flags->no_progress),
      "--disable-tqdm"));
}

// Where the result goes, of what the three options say.
void name_result_file(BenchServeFlags* flags) {
  std::string& file = flags->save_result;
  if (file.empty() || file == kNamedLater) {
    const bool wants_file = !file.empty();
    file = flags->result_filename;
    if (file.empty() && wants_file) {
      file = fmt::format("atom-{:%Y%m%d-%H%M%S}.json", fmt::gmtime(std::time(nullptr)));
    }
  }
  if (!file.empty() && !file.starts_with('/') && !flags->result_dir.empty()) {
    file = flags->result_dir + "/" + file;
  }
}

Status check_arrivals(BenchServeFlags* flags) {
  ArrivalOptions& arrivals = flags->benchmark.arrivals;
  const bool has_burst_size = arrivals.burst_size > 0;
  if (flags->arrival == "burst") {
    if (!has_burst_size) arrivals.burst_size = 10;
    arrivals.burstiness = kUnlimited;
  } else if (has_burst_size) {
    return invalid_argument("--burst-size needs --arrival burst");
  } else {
    arrivals.burst_size = 1;
  }
  if (flags->arrival == "constant") arrivals.burstiness = kUnlimited;
  const bool has_ends = arrivals.ramp_up_start > 0 || arrivals.ramp_up_end > 0;
  if (arrivals.ramp_up == RampUp::kNone) {
    if (has_ends) return invalid_argument("the ends of a ramp need --ramp-up-strategy");
    return {};
  }
  if (!std::isinf(arrivals.request_rate)) {
    return invalid_argument("--ramp-up-strategy takes the place of --request-rate; set one");
  }
  if (arrivals.ramp_up_end <= 0) {
    return invalid_argument("--ramp-up-strategy needs --ramp-up-end-rps above 0");
  }
  if (arrivals.ramp_up == RampUp::kExponential && arrivals.ramp_up_start <= 0) {
    return invalid_argument("an exponential ramp needs --ramp-up-start-rps above 0");
  }
  return {};
}

}  // namespace

std::vector<Option> bench_serve_options(BenchServeFlags* flags) {
  // Zero until set, so that a size without its arrival is seen.
  flags->benchmark.arrivals.burst_size = 0;
  std::vector<Option> options;
  add_server_options(flags, &options);
  add_load_options(flags, &options);
  add_prompt_options(flags, &options);
  add_body_options(flags, &options);
  add_result_options(flags, &options);
  return options;
}

Status finish_bench_serve_flags(const std::vector<std::string>& arguments, BenchServeFlags* flags) {
  BenchmarkOptions& benchmark = flags->benchmark;
  for (const std::string& argument : arguments) {
    // vLLM takes several pairs behind one --goodput.
    if (!benchmark.metrics.goodput.any() || argument.find(':') == std::string::npos) {
      return invalid_argument("unexpected argument '{}'; the server is named by --base-url",
                              argument.substr(0, 100));
    }
    RETURN_IF_ERROR(add_goodput(argument, &benchmark.metrics.goodput));
  }
  if (!flags->has_base_url) {
    const std::string host = flags->host.empty() ? "127.0.0.1" : flags->host;
    const bool is_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
    benchmark.base_url =
        fmt::format(fmt::runtime(is_ipv6 ? "http://[{}]:{}" : "http://{}:{}"), host, flags->port);
  } else if (!flags->host.empty()) {
    return invalid_argument("--host and --base-url both name the server; set one");
  }
  if (benchmark.api_key.empty()) benchmark.api_key = env().openai_api_key;
  name_result_file(flags);
  const bool needs_file =
      benchmark.dataset == Dataset::kShareGpt || benchmark.dataset == Dataset::kCustom;
  const char* dataset = dataset_name(benchmark.dataset);
  if (needs_file && benchmark.dataset_path.empty()) {
    return invalid_argument("--dataset {} needs --dataset-path FILE", dataset);
  }
  if (!needs_file && !benchmark.dataset_path.empty()) {
    return invalid_argument("--dataset {} takes no --dataset-path", dataset);
  }
  return check_arrivals(flags);
}

}  // namespace atom::cli
