#include "engine/llm_engine.h"

#include <algorithm>
#include <thread>

#include "base/env.h"
#include "base/mutex.h"
#include "config/dp_environment.h"
#include "engine/check_request.h"
#include "engine/core_manager.h"
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
  explicit Batch(size_t size) : outputs_(size) {}

  void finish(size_t index, RequestOutput output, const std::function<void(size_t)>& on_finished) {
    const MutexLock lock(&mutex_);
    outputs_[index] = std::move(output);
    ++num_finished_;
    if (on_finished) on_finished(num_finished_);
    all_finished_.notify_one();
  }

  // Once; waits for all of them.
  std::vector<RequestOutput> take() {
    MutexLock lock(&mutex_);
    while (num_finished_ != outputs_.size()) all_finished_.wait(&lock);
    return std::move(outputs_);
  }

 private:
  Mutex mutex_;
  Condition all_finished_;
  std::vector<RequestOutput> outputs_ GUARDED_BY(mutex_);
  size_t num_finished_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

LLMEngine::LLMEngine(ResolvedConfig config,
                     GenerationConfig generation_config,
                     std::shared_ptr<const Tokenizer> tokenizer)
    : config_(std::move(config)),
      generation_config_(std::move(generation_config)),
      tokenizer_(std::move(tokenizer)),
      outputs_(tokenizer_),
      router_(config_.num_cores(), config_.engine.parallel.data_parallel_balance),
      seeds_(config_.engine.model.seed),
      facts_(config_.num_cores()),
      managers_(config_.num_cores()) {}

LLMEngine::~LLMEngine() = default;

void LLMEngine::stop(const Status& why) {
  for (const auto& manager : managers_) manager->stop();
  {
    const MutexLock lock(&submit_mutex_);
    refusal_ = why;
  }
  outputs_.fail_all(why);
  profile_.lose(why);
}

Result<std::unique_ptr<LLMEngine>> LLMEngine::create(const EngineConfig& asked,
                                                     LLMEngineOptions options) {
  EngineConfig config = asked;
  RETURN_IF_ERROR(apply_dp_environment(env(), &config));
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
  RETURN_IF_ERROR(engine->start_cores(sampled_ids, options));
  return engine;
}

Status LLMEngine::start_cores(int64_t num_sampled_ids, const LLMEngineOptions& options) {
  const size_t num_cores = managers_.size();
  std::vector<Status> statuses(num_cores);
  const auto start = [&](size_t core) {
    CoreLaunch launch = options.launch;
    if (num_cores > 1) launch.name = fmt::format("copy {} of the engine", core);
    // Each has cards of its own, where it has any.
    ResolvedConfig config = config_;
    config.engine.device.first_card +=
        static_cast<int32_t>(core) * config.engine.parallel.ranks_of_copy();
    Result<std::unique_ptr<CoreManager>> manager = CoreManager::start(
        config, num_sampled_ids, std::move(launch), handlers_of(static_cast<int>(core), options));
    statuses[core] = manager.status();
    if (manager.ok()) managers_[core] = std::move(manager).value();
  };
  std::vector<std::thread> threads;
  for (size_t core = 1; core < num_cores; ++core) threads.emplace_back(start, core);
  start(0);
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) RETURN_IF_ERROR(status);
  return {};
}

CoreHandlers LLMEngine::handlers_of(int core, const LLMEngineOptions& options) {
  CoreHandlers handlers;
  if (core == 0) handlers.on_loading = options.on_loading;
  handlers.on_ready = [this, core](const CoreReady& ready) { on_ready(core, ready); };
  handlers.on_step = [this, core](const StepOutput& step) { on_step(core, step); };
  handlers.on_profile = [this](const CoreProfile& profile) {
    const MutexLock output_lock(&output_mutex_);
    profile_.on_answer(profile);
  };
  handlers.on_down = [this, core](const Status& lost, const Status& refusal) {
    on_down(core, lost, refusal);
  };
  handlers.on_health = [this, core, tell = options.on_health](const EngineHealth& health) {
    const MutexLock output_lock(&output_mutex_);
    std::vector<EngineHealth> healths;
    {
      const MutexLock lock(&mutex_);
      facts_[core].health = health;
      for (const CoreFacts& facts : facts_) healths.push_back(facts.health);
    }
    if (tell) tell(health_of_all(healths));
  };
  return handlers;
}

EngineHealth LLMEngine::health() const {
  if (managers_.size() == 1) return managers_.front()->health();
  std::vector<EngineHealth> healths;
  for (const auto& manager : managers_) healths.push_back(manager->health());
  return health_of_all(healths);
}

uint64_t LLMEngine::draw_seed() {
  const MutexLock lock(&mutex_);
  return seeds_();
}

Result<std::vector<int32_t>> LLMEngine::tokenize(const std::string& text,
                                                 bool add_special_tokens) const {
  if (tokenizer_ == nullptr) {
    return invalid_argument("a text prompt needs a tokenizer, and skip_tokenizer_init is set");
  }
  return tokenizer_->encode(text, add_special_tokens);
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
  RETURN_IF_ERROR(check_request(config_, output.prompt_token_ids, sampling));
  sampling.bad_word_ids = tokens_of_words(tokenizer_.get(), sampling.bad_words);
  sampling.bad_words.clear();
  if (const uint64_t epoch = cache_epoch_; epoch > 0) {
    sampling.cache_salt += fmt::format("\n{}", epoch);
  }
  const RequestId id = next_request_id_.fetch_add(1);
  output.id = id;
  const uint64_t seed = sampling.seed ? *sampling.seed : draw_seed();
  std::vector<SequenceId> ids(std::exchange(sampling.n, 1));
  for (SequenceId& sequence_id : ids) sequence_id = next_sequence_id_.fetch_add(1);
  const auto num_prompt_tokens = static_cast<int64_t>(output.prompt_token_ids.size());
  const bool seeks_prefix = config_.num_cores() > 1 && config_.scheduler.enable_prefix_caching;
  const std::vector<uint64_t> prefix =
      seeks_prefix ? prefix_hashes(output.prompt_token_ids, sampling.cache_salt)
                   : std::vector<uint64_t>();
  AddRequest first{ids[0], output.prompt_token_ids, {}};
  OutputProcessor::Entry entry =
      outputs_.prepare(std::move(output), sampling, ids, std::move(callback));
  // One message, which says in turn what each answer's core has to know.
  first.sampling = std::move(sampling);
  CoreRequest message = std::move(first);
  auto& add = std::get<AddRequest>(message);
  const MutexLock lock(&submit_mutex_);
  RETURN_IF_ERROR(refusal_);
  outputs_.add(std::move(entry));
  CoreManager& manager = [&]() -> CoreManager& {
    const MutexLock router_lock(&router_mutex_);
    return *managers_[router_.route(ids, num_prompt_tokens, prefix)];
  }();
  for (size_t i = 0; i < ids.size(); ++i) {
    add.id = ids[i];
    add.sampling.seed = seed + i;
    // Every answer has the same prompt: it is scored with the first.
    if (i > 0) add.sampling.prompt_logprobs.reset();
    manager.send(message);
  }
  return id;
}

void LLMEngine::abort(RequestId id) {
  send_abort(outputs_.unfinished_sequences(id));
}

void LLMEngine::send_abort(std::span<const SequenceId> ids) {
  std::vector<AbortRequests> aborts(managers_.size());
  {
    // Behind the requests: an abort that comes before its request would be lost.
    const MutexLock lock(&submit_mutex_);
    const MutexLock router_lock(&router_mutex_);
    for (const SequenceId id : ids) {
      if (const std::optional<int> core = router_.core_of(id)) aborts[*core].ids.push_back(id);
    }
  }
  for (size_t core = 0; core < aborts.size(); ++core) {
    if (!aborts[core].ids.empty()) managers_[core]->send(std::move(aborts[core]));
  }
}

Status LLMEngine::start_profile(ProfileCallback callback) {
  return control_profile(ProfileAction::kStart, std::move(callback));
}

Status LLMEngine::stop_profile(ProfileCallback callback) {
  return control_profile(ProfileAction::kStop, std::move(callback));
}

Status LLMEngine::control_profile(ProfileAction action, ProfileCallback callback) {
  const MutexLock lock(&submit_mutex_);
  RETURN_IF_ERROR(refusal_);
  RETURN_IF_ERROR(profile_.begin(action, std::move(callback)));
  managers_.front()->send(ControlProfile{action});
  return {};
}

void LLMEngine::on_ready(int core, const CoreReady& ready) {
  {
    const MutexLock lock(&mutex_);
    CoreFacts& facts = facts_[core];
    facts.ready = ready;
    facts.stats.num_blocks = facts.stats.num_free_blocks = ready.num_blocks;
  }
  const MutexLock lock(&submit_mutex_);
  const MutexLock router_lock(&router_mutex_);
  router_.set_up(core);
  refusal_ = Status();
}

void LLMEngine::on_step(int core, const StepOutput& step) {
  {
    const MutexLock lock(&mutex_);
    facts_[core].stats = step.stats;
  }
  {
    const MutexLock lock(&router_mutex_);
    router_.note(step);
  }
  std::vector<SequenceId> stopped;
  {
    const MutexLock lock(&output_mutex_);
    stopped = outputs_.process(step);
  }
  if (!stopped.empty()) managers_[core]->send(AbortRequests{std::move(stopped)});
}

void LLMEngine::on_down(int core, const Status& lost, const Status& refusal) {
  std::vector<SequenceId> ids;
  {
    const MutexLock lock(&submit_mutex_);
    const MutexLock router_lock(&router_mutex_);
    ids = router_.set_down(core);
    if (!router_.is_any_up()) refusal_ = refusal;
  }
  {
    const MutexLock lock(&mutex_);
    CoreFacts& facts = facts_[core];
    facts.earlier.add_counters(facts.stats);
    facts.stats = {};
    facts.stats.num_blocks = facts.stats.num_free_blocks = facts.ready.num_blocks;
  }
  const MutexLock lock(&output_mutex_);
  outputs_.fail(ids, lost);
  if (core == 0) profile_.lose(lost);
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
  return batch.take();
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
  const MutexLock lock(&mutex_);
  return facts_.front().ready;
}

CoreStats LLMEngine::stats() const {
  const MutexLock lock(&mutex_);
  CoreStats all;
  for (const CoreFacts& facts : facts_) {
    all.add(facts.stats);
    all.add_counters(facts.earlier);
  }
  return all;
}

}  // namespace atom
