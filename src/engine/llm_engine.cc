#include "engine/llm_engine.h"

#include <algorithm>
#include <condition_variable>

#include "config/context_length.h"
#include "models/registry.h"

namespace atom {
namespace {

// Rows of the head past the tokenizer's ids are padding and never sampled.
int64_t num_sampled_ids(const ModelConfig& model, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return model.vocab_size;
  return std::min<int64_t>(model.vocab_size, tokenizer->vocab_size());
}

// Collects the outputs of generate() and wakes it when all are there.
class Batch {
 public:
  explicit Batch(size_t size) : outputs(size) {}

  void finish(size_t index, RequestOutput output, const std::function<void(size_t)>& on_finished) {
    const std::lock_guard lock(mutex_);
    outputs[index] = std::move(output);
    ++num_finished_;
    if (on_finished) on_finished(num_finished_);
    all_finished_.notify_one();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    all_finished_.wait(lock, [this] { return num_finished_ == outputs.size(); });
  }

  std::vector<RequestOutput> outputs;

 private:
  std::mutex mutex_;
  std::condition_variable all_finished_;
  size_t num_finished_ = 0;
};

}  // namespace

LLMEngine::LLMEngine(ResolvedConfig config,
                     GenerationConfig generation_config,
                     std::shared_ptr<const Tokenizer> tokenizer)
    : config_(std::move(config)),
      generation_config_(std::move(generation_config)),
      tokenizer_(std::move(tokenizer)),
      outputs_(tokenizer_),
      seeds_(config_.engine.model.seed) {}

LLMEngine::~LLMEngine() = default;

void LLMEngine::stop(const Status& why) {
  manager_->stop();
  {
    const std::lock_guard lock(submit_mutex_);
    refusal_ = why;
  }
  outputs_.fail_all(why);
  profile_.lose(why);
}

Result<std::unique_ptr<LLMEngine>> LLMEngine::create(const EngineConfig& config,
                                                     LLMEngineOptions options) {
  const ModelSourceConfig& source = config.model;
  ASSIGN_OR_RETURN(const ModelConfig model, load_model_config(source.model));
  ASSIGN_OR_RETURN(ResolvedConfig resolved, resolve(config, model));
  ASSIGN_OR_RETURN(GenerationConfig generation_config,
                   load_generation_config(source, model.vocab_size));
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!source.skip_tokenizer_init) {
    ASSIGN_OR_RETURN(tokenizer,
                     Tokenizer::load(source.tokenizer.empty() ? source.model : source.tokenizer));
  }
  const int64_t sampled_ids = num_sampled_ids(model, tokenizer.get());
  std::unique_ptr<LLMEngine> engine(
      new LLMEngine(std::move(resolved), std::move(generation_config), std::move(tokenizer)));
  CoreHandlers handlers;
  handlers.on_loading = std::move(options.on_loading);
  handlers.on_ready = [e = engine.get()](const CoreReady& ready) { e->on_ready(ready); };
  handlers.on_step = [e = engine.get()](const StepOutput& step) { e->on_step(step); };
  handlers.on_profile = [e = engine.get()](const CoreProfile& profile) {
    e->profile_.on_answer(profile);
  };
  handlers.on_down = [e = engine.get()](const Status& lost, const Status& refusal) {
    e->on_down(lost, refusal);
  };
  handlers.on_health = std::move(options.on_health);
  ASSIGN_OR_RETURN(
      engine->manager_,
      CoreManager::start(
          engine->config_, sampled_ids, std::move(options.launch), std::move(handlers)));
  return engine;
}

Status LLMEngine::check(const std::vector<int32_t>& prompt_token_ids,
                        const SamplingParams& sampling) const {
  const int64_t vocab_size = config_.model.vocab_size;
  RETURN_IF_ERROR(sampling.validate(vocab_size));
  if (tokenizer_ == nullptr && !sampling.stop.empty()) {
    return invalid_argument("stop strings need a tokenizer, and skip_tokenizer_init is set");
  }
  if (tokenizer_ == nullptr && !sampling.bad_words.empty()) {
    return invalid_argument("bad_words need a tokenizer, and skip_tokenizer_init is set");
  }
  if (prompt_token_ids.empty()) return invalid_argument("the prompt is empty");
  for (size_t i = 0; i < prompt_token_ids.size(); ++i) {
    if (prompt_token_ids[i] >= 0 && prompt_token_ids[i] < vocab_size) continue;
    return invalid_argument("prompt token {} is id {}, outside the vocabulary [0, {})",
                            i,
                            prompt_token_ids[i],
                            vocab_size);
  }
  return check_context_length(
      static_cast<int64_t>(prompt_token_ids.size()), sampling.max_tokens, config_.max_model_len());
}

uint64_t LLMEngine::draw_seed() {
  const std::lock_guard lock(mutex_);
  return seeds_();
}

Result<std::vector<int32_t>> LLMEngine::tokenize(const std::string& text,
                                                 bool add_special_tokens) const {
  if (tokenizer_ == nullptr) {
    return invalid_argument("a text prompt needs a tokenizer, and skip_tokenizer_init is set");
  }
  return tokenizer_->encode(text, add_special_tokens);
}

std::vector<std::vector<int32_t>> LLMEngine::tokens_of_words(
    const std::vector<std::string>& words) const {
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string& word : words) {
    const size_t begin = std::min(word.find_first_not_of(' '), word.size());
    // At the beginning of a text and behind a space, words mostly have different tokens.
    for (const char* space : {"", " "}) {
      Result<std::vector<int32_t>> ids =
          tokenizer_->encode(space + word.substr(begin), /*add_special_tokens=*/false);
      if (ids.ok() && !ids->empty()) sequences.push_back(*std::move(ids));
    }
  }
  std::ranges::sort(sequences);
  sequences.erase(std::unique(sequences.begin(), sequences.end()), sequences.end());
  return sequences;
}

Result<RequestId> LLMEngine::submit(const Prompt& prompt,
                                    SamplingParams sampling,
                                    OutputCallback callback) {
  RequestOutput output;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    ASSIGN_OR_RETURN(output.prompt_token_ids, tokenize(*text, /*add_special_tokens=*/true));
  } else {
    output.prompt_token_ids = std::get<std::vector<int32_t>>(prompt);
  }
  RETURN_IF_ERROR(check(output.prompt_token_ids, sampling));
  sampling.bad_word_ids = tokens_of_words(sampling.bad_words);
  sampling.bad_words.clear();
  if (const uint64_t epoch = cache_epoch_; epoch > 0) {
    sampling.cache_salt += fmt::format("\n{}", epoch);
  }
  const RequestId id = next_request_id_.fetch_add(1);
  output.id = id;
  const uint64_t seed = sampling.seed ? *sampling.seed : draw_seed();
  std::vector<AddRequest> messages(sampling.n);
  std::vector<SequenceId> sequence_ids;
  for (size_t i = 0; i < messages.size(); ++i) {
    messages[i] = {next_sequence_id_.fetch_add(1), output.prompt_token_ids, sampling};
    messages[i].sampling.n = 1;
    messages[i].sampling.seed = seed + i;
    // Every answer has the same prompt: it is scored with the first.
    if (i > 0) messages[i].sampling.prompt_logprobs.reset();
    sequence_ids.push_back(messages[i].id);
  }
  const std::lock_guard lock(submit_mutex_);
  RETURN_IF_ERROR(refusal_);
  outputs_.add(std::move(output), sampling, std::move(sequence_ids), std::move(callback));
  for (AddRequest& message : messages) manager_->send(std::move(message));
  return id;
}

void LLMEngine::abort(RequestId id) {
  std::vector<SequenceId> ids = outputs_.unfinished_sequences(id);
  if (!ids.empty()) manager_->send(AbortRequests{std::move(ids)});
}

Status LLMEngine::start_profile(ProfileCallback callback) {
  return control_profile(ProfileAction::kStart, std::move(callback));
}

Status LLMEngine::stop_profile(ProfileCallback callback) {
  return control_profile(ProfileAction::kStop, std::move(callback));
}

Status LLMEngine::control_profile(ProfileAction action, ProfileCallback callback) {
  const std::lock_guard lock(submit_mutex_);
  RETURN_IF_ERROR(refusal_);
  RETURN_IF_ERROR(profile_.begin(action, std::move(callback)));
  manager_->send(ControlProfile{action});
  return {};
}

void LLMEngine::on_ready(const CoreReady& ready) {
  {
    const std::lock_guard lock(mutex_);
    ready_ = ready;
    stats_.num_blocks = stats_.num_free_blocks = ready.num_blocks;
  }
  const std::lock_guard lock(submit_mutex_);
  refusal_ = Status();
}

void LLMEngine::on_step(const StepOutput& step) {
  {
    const std::lock_guard lock(mutex_);
    stats_ = step.stats;
  }
  std::vector<SequenceId> stopped = outputs_.process(step);
  if (!stopped.empty()) manager_->send(AbortRequests{std::move(stopped)});
}

void LLMEngine::on_down(const Status& lost, const Status& refusal) {
  {
    const std::lock_guard lock(submit_mutex_);
    refusal_ = refusal;
  }
  {
    const std::lock_guard lock(mutex_);
    earlier_stats_.add_counters(stats_);
    stats_ = {};
    stats_.num_blocks = stats_.num_free_blocks = ready_.num_blocks;
  }
  outputs_.fail_all(lost);
  profile_.lose(lost);
}

std::vector<RequestOutput> LLMEngine::generate(std::span<const Prompt> prompts,
                                               std::span<const SamplingParams> sampling,
                                               const std::function<void(size_t)>& on_finished) {
  CHECK((sampling.size() == 1 || sampling.size() == prompts.size()));
  Batch batch(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const SamplingParams& params = sampling[sampling.size() == 1 ? 0 : i];
    const Result<RequestId> id =
        submit(prompts[i], params, [&, i](const RequestOutput& output, const RequestUpdate&) {
          if (output.finished) batch.finish(i, output, on_finished);
        });
    if (id.ok()) continue;
    RequestOutput refused;
    refused.finished = true;
    refused.status = id.status();
    batch.finish(i, std::move(refused), on_finished);
  }
  batch.wait();
  return std::move(batch.outputs);
}

std::vector<RequestOutput> LLMEngine::generate(std::initializer_list<Prompt> prompts,
                                               const SamplingParams& sampling) {
  return generate(std::span(prompts.begin(), prompts.size()), std::span(&sampling, 1));
}

SamplingParams LLMEngine::default_sampling() const {
  SamplingParams params;
  params.max_tokens = config_.max_model_len();
  generation_config_.apply_to(&params);
  return params;
}

CoreReady LLMEngine::memory() const {
  const std::lock_guard lock(mutex_);
  return ready_;
}

CoreStats LLMEngine::stats() const {
  const std::lock_guard lock(mutex_);
  CoreStats stats = stats_;
  stats.add_counters(earlier_stats_);
  return stats;
}

}  // namespace atom
