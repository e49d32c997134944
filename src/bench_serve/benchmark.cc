#include "bench_serve/benchmark.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "bench_serve/connection.h"
#include "bench_serve/http_fetch.h"
#include "bench_serve/prompt_files.h"
#include "bench_serve/random_prompts.h"
#include "bench_serve/server_probe.h"
#include "tokenizer/tokenizer.h"

namespace atom::bench_serve {
namespace {

constexpr double kConnectTimeout = 10;  // seconds
constexpr int32_t kDefaultInputLen = 1024;
constexpr int32_t kDefaultOutputLen = 128;
constexpr int32_t kDefaultPrefixPart = 256;  // of the prefix dataset: prefix and what follows
constexpr int32_t kDefaultNumPrefixes = 10;
// What the server may put around a prompt, when lengths are fitted into its context.
constexpr int32_t kContextSlack = 64;

// Arrivals stay as they are when the prompts change, and the other way round.
constexpr uint64_t kArrivalStream = 0x9e3779b97f4a7c15;

Result<std::string> header_lines(const BenchmarkOptions& options) {
  std::string lines = "User-Agent: atom-bench\r\nAccept-Encoding: identity\r\n";
  bool has_authorization = false;
  const auto add = [&lines](std::string_view name, std::string_view value) {
    lines += fmt::format("{}: {}\r\n", name, value);
  };
  for (const std::string& header : options.headers) {
    const size_t split = header.find_first_of(":=");
    const bool is_plain = std::all_of(
        header.begin(), header.end(), [](char c) { return static_cast<uint8_t>(c) >= ' '; });
    if (split == std::string::npos || split == 0 || !is_plain ||
        header.substr(0, split).find(' ') != std::string::npos) {
      return invalid_argument("'{}' is no header; expected NAME=VALUE", header.substr(0, 100));
    }
    const std::string name = header.substr(0, split);
    const size_t value = std::min(header.find_first_not_of(' ', split + 1), header.size());
    add(name, std::string_view(header).substr(value));
    has_authorization |= name == "Authorization" || name == "authorization";
  }
  if (options.api_key.empty() || has_authorization) return lines;
  if (options.api_key.find_first_of("\r\n") != std::string::npos) {
    return invalid_argument("the API key holds a line break");
  }
  add("Authorization", "Bearer " + options.api_key);
  return lines;
}

// Without a tokenizer: about four bytes, and at least a word, are a token.
int32_t estimate_tokens(const std::string& text) {
  size_t words = 0;
  bool in_word = false;
  for (const char c : text) {
    const bool is_letter = c != ' ' && c != '\n' && c != '\t';
    words += is_letter && !in_word ? 1 : 0;
    in_word = is_letter;
  }
  const size_t tokens = std::max(words, (text.size() + 3) / 4);
  return static_cast<int32_t>(std::min<size_t>(tokens, INT32_MAX));
}

// Servers refuse fields they do not know: what can be left out is, when one complains of it.
bool adapt(const std::string& complaint, BodyOptions* body) {
  const auto mentions = [&](const char* name) { return complaint.find(name) != std::string::npos; };
  if (body->include_usage && mentions("stream_options")) {
    body->include_usage = false;
  } else if (body->ignore_eos && mentions("ignore_eos")) {
    body->ignore_eos = false;
  } else if (body->max_tokens_name == "max_tokens" && mentions("max_completion_tokens")) {
    body->max_tokens_name = "max_completion_tokens";
  } else {
    return false;
  }
  return true;
}

class Benchmark {
 public:
  Benchmark(const BenchmarkOptions& options, const BenchmarkHooks& hooks)
      : options_(options), hooks_(hooks) {}

  Result<BenchmarkReport> run();

 private:
  Status connect();
  Status find_model();
  Status load_tokenizer();
  Status fit_lengths();
  Status find_material();
  Result<std::vector<Prompt>> make_prompts(size_t count) const;
  Result<std::vector<Prompt>> read_prompts(size_t count) const;
  Status prepare();
  Status write_requests();
  Result<LoadResult> send(size_t first,
                          size_t count,
                          std::span<const double> schedule,
                          bool shows_progress) const;
  Status check();
  Status warm_up();
  bool makes_prompts() const {
    return options_.dataset == Dataset::kRandom || options_.dataset == Dataset::kPrefix;
  }
  void note(const std::string& line) const {
    if (hooks_.on_note) hooks_.on_note(line);
  }

  BenchmarkOptions options_;
  const BenchmarkHooks& hooks_;
  std::string headers_;
  std::string path_;
  std::unique_ptr<Connector> connector_;
  ServedModel model_;
  BodyOptions body_;
  RandomPromptOptions random_options_;
  PromptMaterial material_;
  std::vector<Prompt> prompts_;            // the measured ones, then those to warm up with
  std::vector<PreparedRequest> requests_;  // of prompts_
};

Status Benchmark::connect() {
  ASSIGN_OR_RETURN(headers_, header_lines(options_));
  ASSIGN_OR_RETURN(const ServerUrl url, ServerUrl::parse(options_.base_url));
  const bool is_chat = options_.endpoint == EndpointKind::kChat;
  path_ = options_.endpoint_path;
  if (path_.empty()) path_ = is_chat ? "/v1/chat/completions" : "/v1/completions";
  constexpr int kPause = 500;  // ms
  for (double waited = 0;; waited += kPause / 1e3) {
    Result<std::unique_ptr<Connector>> connector =
        Connector::create(url, options_.verify_certificate, kConnectTimeout);
    // A server that loads its model may take connections and say 503.
    if (connector.ok()) {
      connector_ = *std::move(connector);
      const Status found = find_model();
      if (found.ok() || waited >= options_.ready_timeout) return found;
    } else if (waited >= options_.ready_timeout) {
      return connector.status();
    }
    if (waited == 0) note("waiting for the server");
    pollfd stop{options_.stop_fd, POLLIN, 0};
    if (poll(&stop, 1, kPause) > 0) return {StatusCode::kAborted, "interrupted"};
  }
}

Status Benchmark::find_model() {
  const ServerProbe probe(connector_.get(), headers_, options_.stop_fd);
  ASSIGN_OR_RETURN(model_, probe.find_model(options_.model));
  return {};
}

Status Benchmark::load_tokenizer() {
  if (options_.tokenizer.empty()) return {};
  ASSIGN_OR_RETURN(material_.tokenizer, Tokenizer::load(options_.tokenizer));
  return {};
}

// Chooses the lengths that the user did not.
Status Benchmark::fit_lengths() {
  const bool is_prefix = options_.dataset == Dataset::kPrefix;
  const int32_t input_len = is_prefix ? kDefaultPrefixPart : kDefaultInputLen;
  RandomPromptOptions& random = random_options_;
  random.prefix_len = options_.prefix_len.value_or(is_prefix ? kDefaultPrefixPart : 0);
  random.num_prefixes = options_.num_prefixes.value_or(is_prefix ? kDefaultNumPrefixes : 1);
  random.input_len = options_.input_len.value_or(LengthDistribution::fixed(input_len));
  random.output_len = options_.output_len.value_or(LengthDistribution::fixed(kDefaultOutputLen));
  const auto total = [&random] {
    return int64_t{random.prefix_len} + random.input_len.usual_max() +
           random.output_len.usual_max() + kContextSlack;
  };
  if (makes_prompts() && model_.max_len > 0 && total() > model_.max_len) {
    // What the user chose stays.
    if (!options_.output_len) {
      random.output_len =
          LengthDistribution::fixed(std::clamp(model_.max_len / 8, 1, kDefaultOutputLen));
    }
    const int64_t room = model_.max_len - (total() - random.input_len.usual_max());
    if (!options_.input_len && room > 0 && room < input_len) {
      random.input_len = LengthDistribution::fixed(static_cast<int32_t>(room));
    }
    if (total() - kContextSlack > model_.max_len) {
      return invalid_argument(
          "{} tokens in and {} out are beyond the model's context of {}; lower --input-len, "
          "--output-len or --prefix-len",
          int64_t{random.prefix_len} + random.input_len.usual_max(),
          random.output_len.usual_max(),
          model_.max_len);
    }
    if (!options_.input_len || !options_.output_len) {
      note(fmt::format("lengths fitted into the context of {} tokens: {} in, {} out",
                       model_.max_len,
                       random.input_len.to_string(),
                       random.output_len.to_string()));
    }
  }
  ASSIGN_OR_RETURN(random.input_len, random.input_len.spread(options_.input_range_ratio));
  ASSIGN_OR_RETURN(random.output_len, random.output_len.spread(options_.output_range_ratio));
  return {};
}

// Decides what made-up prompts are made of.
Status Benchmark::find_material() {
  if (!makes_prompts()) return {};
  const bool may_use_ids = options_.endpoint == EndpointKind::kCompletions &&
                           options_.prompt_format != PromptFormat::kText;
  const ServerProbe probe(connector_.get(), headers_, options_.stop_fd);
  if (may_use_ids) {
    std::vector<int32_t>& ids = material_.token_ids;
    const char* source = "--vocab-size";
    if (options_.vocab_size > 0) {
      ids.resize(static_cast<size_t>(options_.vocab_size));
      std::iota(ids.begin(), ids.end(), 0);
    } else if (material_.tokenizer != nullptr) {
      source = "the tokenizer";
      for (int32_t id = 0; id < material_.tokenizer->vocab_size(); ++id) {
        const bool is_text = !material_.tokenizer->is_special(id);
        if (is_text && !material_.tokenizer->token_bytes(id).empty()) ids.push_back(id);
      }
    } else {
      source = "the server's /tokenize";
      ASSIGN_OR_RETURN(ids, probe.token_ids(model_.name));
    }
    if (!ids.empty()) {
      note(fmt::format("prompts: token ids, chosen from {} of {}", ids.size(), source));
      return {};
    }
  }
  if (options_.prompt_format == PromptFormat::kTokenIds) {
    return invalid_argument(
        "prompts of token ids need the completions endpoint and --tokenizer or --vocab-size");
  }
  if (material_.tokenizer != nullptr && options_.endpoint == EndpointKind::kCompletions) {
    note("prompts: words, counted with the tokenizer");
    return {};
  }
  ASSIGN_OR_RETURN(const BodyWriter writer, BodyWriter::create(body_));
  ASSIGN_OR_RETURN(const WordCost cost, probe.measure_words(writer, path_));
  material_.tokens_per_word = cost.per_word;
  material_.tokens_around = cost.around;
  note(fmt::format(
      "prompts: words, {:.2f} tokens each and {:.0f} around them", cost.per_word, cost.around));
  return {};
}

Result<std::vector<Prompt>> Benchmark::read_prompts(size_t count) const {
  PromptFileOptions file;
  file.path = options_.dataset_path;
  file.count = count;
  file.shuffle = options_.shuffle;
  if (options_.output_len && !options_.output_len->is_fixed()) {
    return invalid_argument("prompts of a file need a fixed --output-len");
  }
  if (options_.output_len) file.output_len = options_.output_len->usual_max();
  file.default_output_len = kDefaultOutputLen;
  file.count_tokens = [this](const std::string& text) {
    if (material_.tokenizer == nullptr) return estimate_tokens(text);
    const Result<std::vector<int32_t>> ids = material_.tokenizer->encode(text, false);
    return ids.ok() ? static_cast<int32_t>(ids->size()) : estimate_tokens(text);
  };
  Random random(options_.seed);
  return options_.dataset == Dataset::kShareGpt ? load_sharegpt(file, &random)
                                                : load_prompt_lines(file, &random);
}

Result<std::vector<Prompt>> Benchmark::make_prompts(size_t count) const {
  if (!makes_prompts()) return read_prompts(count);
  Random random(options_.seed);
  RandomPromptOptions options = random_options_;
  options.count = count;
  return make_random_prompts(options, material_, &random);
}

Status Benchmark::write_requests() {
  ASSIGN_OR_RETURN(const BodyWriter writer, BodyWriter::create(body_));
  requests_.clear();
  requests_.reserve(prompts_.size());
  for (const Prompt& prompt : prompts_) {
    ASSIGN_OR_RETURN(const std::string body, writer.write(prompt));
    requests_.push_back({http_request(connector_->url(), "POST", path_, headers_, body),
                         prompt.prompt_len,
                         body_.stream});
  }
  return {};
}

Status Benchmark::prepare() {
  RETURN_IF_ERROR(find_material());
  ASSIGN_OR_RETURN(prompts_, make_prompts(options_.num_prompts + options_.num_warmups));
  return write_requests();
}

Result<LoadResult> Benchmark::send(size_t first,
                                   size_t count,
                                   std::span<const double> schedule,
                                   bool shows_progress) const {
  LoadOptions load;
  load.max_concurrency = options_.max_concurrency;
  load.timeout = options_.timeout;
  load.stop_fd = options_.stop_fd;
  if (shows_progress) load.on_progress = hooks_.on_progress;
  return run_load(*connector_, std::span(requests_).subspan(first, count), schedule, load);
}

// The first request alone, so that what is wrong with all of them is said once.
Status Benchmark::check() {
  const std::vector<double> at_once(1, 0);
  for (int attempt = 0; attempt < 5; ++attempt) {
    ASSIGN_OR_RETURN(const LoadResult run, send(options_.num_prompts, 1, at_once, false));
    if (run.interrupted) return {StatusCode::kAborted, "interrupted"};
    const Answer& answer = run.records[0].answer;
    if (answer.error_kind == ErrorKind::kNone) return {};
    const bool is_refused = answer.error_kind == ErrorKind::kStatus &&
                            (answer.http_status == 400 || answer.http_status == 422);
    if (is_refused && adapt(answer.error, &body_)) {
      note("sending without what the server refused: " + answer.error);
      RETURN_IF_ERROR(write_requests());
    } else if (is_refused && !material_.token_ids.empty() && options_.vocab_size == 0 &&
               options_.prompt_format == PromptFormat::kAuto) {
      note("sending text, for the server refused token ids: " + answer.error);
      options_.prompt_format = PromptFormat::kText;
      material_.token_ids.clear();
      RETURN_IF_ERROR(prepare());
    } else {
      return unavailable("the first request failed: {}", answer.error);
    }
  }
  return unavailable("the server refuses every form of the request");
}

Status Benchmark::warm_up() {
  if (options_.num_warmups == 0) return {};
  RETURN_IF_ERROR(check());
  if (options_.num_warmups == 1) return {};
  const std::vector<double> at_once(options_.num_warmups - 1, 0);
  ASSIGN_OR_RETURN(const LoadResult run,
                   send(options_.num_prompts + 1, at_once.size(), at_once, false));
  if (run.interrupted) return {StatusCode::kAborted, "interrupted"};
  return {};
}

Result<BenchmarkReport> Benchmark::run() {
  RETURN_IF_ERROR(load_tokenizer());
  RETURN_IF_ERROR(connect());
  note(fmt::format("model: {}", model_.name));
  RETURN_IF_ERROR(fit_lengths());
  body_.kind = options_.endpoint;
  body_.model = model_.name;
  body_.stream = options_.stream;
  body_.ignore_eos = options_.ignore_eos.value_or(makes_prompts());
  body_.temperature = options_.temperature;
  body_.extra_body = options_.extra_body;
  RETURN_IF_ERROR(prepare());
  RETURN_IF_ERROR(warm_up());

  Random random(options_.seed ^ kArrivalStream);
  const std::vector<double> schedule =
      make_schedule(options_.arrivals, options_.num_prompts, &random);
  BenchmarkReport report;
  report.options = options_;
  report.model = model_.name;
  report.endpoint_path = path_;
  report.started_at = std::time(nullptr);
  ASSIGN_OR_RETURN(report.run, send(0, options_.num_prompts, schedule, true));
  report.metrics = compute_metrics(report.run, options_.metrics);
  return report;
}

}  // namespace

const char* dataset_name(Dataset dataset) {
  switch (dataset) {
    case Dataset::kRandom:
      return "random";
    case Dataset::kPrefix:
      return "prefix";
    case Dataset::kShareGpt:
      return "sharegpt";
    case Dataset::kCustom:
      return "custom";
  }
  return "";
}

Result<BenchmarkReport> run_benchmark(const BenchmarkOptions& options,
                                      const BenchmarkHooks& hooks) {
  return Benchmark(options, hooks).run();
}

}  // namespace atom::bench_serve
