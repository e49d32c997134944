#include "server/openai/generation.h"

#include <algorithm>
#include <new>
#include <utility>

#include "server/endpoint.h"
#include "server/openai/api_error.h"

namespace atom::server {
namespace {

// An answer that is not streamed is held whole; a larger one is refused, or ends with an error.
constexpr size_t kMaxAnswerBytes = 64 << 20;
// About the JSON of {"12345":{"logprob":-12.345678,"rank":12,"decoded_token":" token"}}.
constexpr size_t kLogprobBytes = 80;
constexpr size_t kTokenBytes = 16;  // its text and its id

Status answer_too_large() {
  return invalid_argument("the answer would be larger than {} MiB", kMaxAnswerBytes >> 20);
}

template <typename T>
void append_from(const std::vector<T>& from, size_t begin, std::vector<T>* to) {
  to->insert(to->end(), from.begin() + static_cast<ptrdiff_t>(begin), from.end());
}

size_t about_bytes(std::span<const TokenLogprobs> tokens) {
  size_t entries = 0;
  for (const TokenLogprobs& token : tokens) entries += token.size();
  return entries * sizeof(TokenLogprob);
}

}  // namespace

Generation::Generation(ServerContext* context,
                       std::shared_ptr<ObservedExchange> exchange,
                       GenerationPlan plan)
    : context_(context),
      exchange_(std::move(exchange)),
      prompts_(std::move(plan.prompts)),
      sampling_(std::move(plan.sampling)),
      stream_(plan.stream),
      stream_options_(plan.stream_options),
      format_(std::move(plan.format)),
      ticket_(std::move(plan.ticket)),
      choices_(prompts_.size() * sampling_.n),
      outputs_(stream_ ? 0 : prompts_.size()),
      progress_(prompts_.size()) {}

// What the key makes of the request, or why it does not allow it.
Status Generation::apply_key(const Caller& caller, SamplingParams* sampling) {
  const ApiKey& key = caller.key();
  sampling->cache_salt = caller.cache_salt(sampling->cache_salt);
  if (sampling->priority >= key.min_priority && sampling->priority <= key.max_priority) return {};
  return invalid_argument("priority is {}; the API key allows {} to {}",
                          sampling->priority,
                          key.min_priority,
                          key.max_priority);
}

void Generation::start(ServerContext* context,
                       std::shared_ptr<ObservedExchange> exchange,
                       GenerationPlan plan) {
  if (const Status status = apply_key(*exchange->caller(), &plan.sampling); !status.ok()) {
    ApiError error = to_api_error(status);
    error.param = "priority";
    return exchange->respond(error_response(error));
  }
  const std::shared_ptr<Generation> generation(
      new Generation(context, std::move(exchange), std::move(plan)));
  generation->exchange_->on_disconnect([weak = std::weak_ptr(generation), context] {
    context->metrics.count_disconnect();
    if (const std::shared_ptr<Generation> gone = weak.lock()) gone->cancel();
  });
  Status status = generation->check_size();
  if (status.ok()) status = generation->submit_all();
  if (!status.ok()) {
    generation->cancel();
    respond_error(generation->exchange_, status);
    return;
  }
  if (!generation->stream_) return;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  generation->exchange_->stream(std::move(head), generation);
}

Status Generation::check_size() const {
  size_t num_tokens = 0;
  for (const auto& prompt : prompts_) num_tokens += prompt.size();
  const size_t logprobs = sampling_.prompt_logprobs ? *sampling_.prompt_logprobs + 1 : 0;
  const size_t bytes = num_tokens * static_cast<size_t>(format_->num_prompt_copies()) *
                       (kTokenBytes + logprobs * kLogprobBytes);
  return bytes > kMaxAnswerBytes && !stream_ ? answer_too_large() : Status();
}

Status Generation::submit_all() {
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    ASSIGN_OR_RETURN(
        const RequestId id,
        context_->engine.submit(prompts_[prompt],
                                sampling_,
                                [self = shared_from_this(), prompt](const RequestOutput& output,
                                                                    const RequestUpdate& update) {
                                  self->on_output(prompt, output, update);
                                }));
    bool cancelled = false;
    {
      const MutexLock lock(&mutex_);
      ids_.push_back(id);
      cancelled = cancelled_;
    }
    if (cancelled) context_->engine.abort(id);
  }
  return {};
}

// On the engine's thread, which serves everybody: what fails here fails this request.
void Generation::on_output(size_t prompt,
                           const RequestOutput& output,
                           const RequestUpdate& update) {
  try {
    take_output(prompt, output, update);
  } catch (const std::bad_alloc&) {
    fail(Status(StatusCode::kUnavailable, "out of memory"));
  }
}

void Generation::take_output(size_t prompt,
                             const RequestOutput& output,
                             const RequestUpdate& update) {
  bool all_finished = false;
  bool is_too_slow = false;
  Status failure;
  {
    const MutexLock lock(&mutex_);
    observe(prompt, output, update);
    if (!output.status.ok() && failure_.ok()) failure_ = failure = output.status;
    if (stream_ && !cancelled_) {
      collect_news(prompt, output, update);
      is_too_slow = buffered_ > context_->options.max_stream_buffer;
    }
    if (!stream_) {
      count_bytes(update, output.outputs[update.index]);
      if (num_answer_bytes_ > kMaxAnswerBytes && failure_.ok()) failure = answer_too_large();
    }
    if (output.finished) {
      finish_prompt(prompt, output);
      all_finished = num_finished_ == prompts_.size();
      if (all_finished) ticket_.give_back();
    }
  }
  if (is_too_slow) fail(resource_exhausted("the client reads more slowly than the answer grows"));
  if (!failure.ok()) fail(failure);
  if (stream_) {
    exchange_->notify();
  } else if (all_finished) {
    context_->workers.post([self = shared_from_this()] { self->respond(); });
  }
}

void Generation::count_bytes(const RequestUpdate& update, const CompletionOutput& answer) {
  num_answer_bytes_ += update.text.size() + update.token_ids.size() * kTokenBytes;
  const size_t fresh = std::min(update.token_ids.size(), answer.logprobs.size());
  for (const TokenLogprobs& token : std::span(answer.logprobs).last(fresh)) {
    num_answer_bytes_ += token.size() * kLogprobBytes;
  }
}

void Generation::collect_news(size_t prompt,
                              const RequestOutput& output,
                              const RequestUpdate& update) {
  Choice& choice = choices_[prompt * sampling_.n + update.index];
  ChoiceNews& news = choice.news;
  const CompletionOutput& answer = output.outputs[update.index];
  news.text += update.text;
  news.token_ids.insert(news.token_ids.end(), update.token_ids.begin(), update.token_ids.end());
  size_t bytes = update.text.size() + update.token_ids.size() * sizeof(int32_t);
  if (sampling_.logprobs) {
    const size_t fresh = std::min(update.token_ids.size(), answer.logprobs.size());
    append_from(answer.logprobs, answer.logprobs.size() - fresh, &news.logprobs);
    bytes += about_bytes(std::span(news.logprobs).last(fresh));
  }
  if (answer.finish_reason != FinishReason::kNone) {
    news.finish_reason = answer.finish_reason;
    news.stop_string = answer.stop_string;
    news.stop_token_id = answer.stop_token_id;
  }
  buffered_ += bytes;
  choice.has_news = true;
  if (sampling_.prompt_logprobs) release_news(prompt, output);
}

void Generation::release_news(size_t prompt, const RequestOutput& output) {
  const bool is_scored = output.prompt_logprobs.size() + 1 >= prompts_[prompt].size();
  for (int32_t i = 0; i < sampling_.n; ++i) {
    Choice& choice = choices_[prompt * sampling_.n + i];
    choice.is_held = !is_scored;
    if (!is_scored || std::exchange(choice.has_prompt_logprobs, true)) continue;
    choice.news.prompt_logprobs = output.prompt_logprobs;
    buffered_ += about_bytes(output.prompt_logprobs);
  }
}

void Generation::observe(size_t prompt, const RequestOutput& output, const RequestUpdate& update) {
  if (update.token_ids.empty()) return;
  const size_t index = prompt * sampling_.n + update.index;
  Choice& choice = choices_[index];
  const double previous = std::exchange(choice.last_token_time, update.time);
  const auto num_tokens = static_cast<int32_t>(update.token_ids.size());
  context_->metrics.observe_tokens(num_tokens, previous > 0 ? update.time - previous : kNoGap);
  if (!std::exchange(progress_[prompt].is_computed, true)) {
    context_->metrics.observe_first_token(output.metrics.time_to_first_token(),
                                          static_cast<int32_t>(prompts_[prompt].size()));
  }
  choice.num_generated += num_tokens;
}

void Generation::finish_prompt(size_t prompt, const RequestOutput& output) {
  ++num_finished_;
  int64_t num_tokens = static_cast<int64_t>(output.prompt_token_ids.size());
  for (const CompletionOutput& answer : output.outputs) {
    num_tokens += static_cast<int64_t>(answer.token_ids.size());
  }
  exchange_->caller()->spend_tokens(num_tokens);
  progress_[prompt].num_cached = output.metrics.num_cached_tokens;
  RequestRecord record;
  record.arrival = output.metrics.arrival;
  record.scheduled = output.metrics.scheduled;
  record.first_token = output.metrics.first_token;
  record.finished = output.metrics.finished;
  record.num_prompt_tokens = static_cast<int32_t>(output.prompt_token_ids.size());
  record.max_tokens = sampling_.max_tokens;
  for (const CompletionOutput& answer : output.outputs) {
    record.n = answer.index == 0 ? sampling_.n : 0;
    record.num_generated_tokens = static_cast<int32_t>(answer.token_ids.size());
    record.finish_reason = answer.finish_reason;
    context_->metrics.observe_finished(record);
  }
  if (!stream_) outputs_[prompt] = output;
}

Generation::State Generation::take(std::string* out) {
  struct Ready {
    int32_t choice;
    ChoiceNews news;
  };
  std::vector<Ready> ready;
  Status failure;
  bool is_complete = false;
  Usage usage_now;
  {
    const MutexLock lock(&mutex_);
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (!choices_[i].has_news || choices_[i].is_held || choices_[i].news.is_empty()) continue;
      choices_[i].has_news = false;
      ready.push_back({static_cast<int32_t>(i), std::exchange(choices_[i].news, {})});
    }
    buffered_ = 0;
    failure = failure_;
    is_complete = num_finished_ == prompts_.size();
    usage_now = usage();
  }
  const bool shows_usage = includes_usage() && stream_options_.continuous_usage_stats;
  const Usage* shown = shows_usage ? &usage_now : nullptr;
  for (const Ready& one : ready) format_->append_events(one.choice, one.news, shown, out);
  if (!failure.ok()) {
    format_->append_error(to_api_error(failure), out);
    return State::kEnd;
  }
  if (!is_complete) return State::kMore;
  if (includes_usage()) format_->append_usage_event(usage_now, out);
  format_->append_end(out);
  return State::kEnd;
}

void Generation::cancel() {
  std::vector<RequestId> ids;
  {
    const MutexLock lock(&mutex_);
    cancelled_ = true;
    ids = ids_;
  }
  for (const RequestId id : ids) context_->engine.abort(id);
}

void Generation::fail(const Status& status) {
  {
    const MutexLock lock(&mutex_);
    if (failure_.ok()) failure_ = status;
    buffered_ = 0;
  }
  cancel();
}

void Generation::respond() {
  Status failure;
  std::vector<RequestOutput> outputs;
  Usage usage_now;
  {
    const MutexLock lock(&mutex_);
    failure = failure_;
    outputs.swap(outputs_);
    usage_now = usage();
  }
  if (!failure.ok()) {
    respond_error(exchange_, failure);
    return;
  }
  try {
    HttpResponse response;
    response.body = format_->body(outputs, usage_now);
    exchange_->respond(std::move(response));
  } catch (const std::bad_alloc&) {
    exchange_->fail(error_response(to_api_error(unavailable("out of memory"))));
  }
}

bool Generation::includes_usage() const {
  return stream_options_.include_usage || context_->options.force_include_usage;
}

Usage Generation::usage() const {
  Usage usage;
  for (const auto& prompt : prompts_) usage.prompt_tokens += static_cast<int64_t>(prompt.size());
  for (const Choice& choice : choices_) usage.completion_tokens += choice.num_generated;
  // What others have sent before is nobody's to know.
  if (context_->keys.shares_cache()) return usage;
  usage.cached_tokens = 0;
  for (const Prompt& prompt : progress_) *usage.cached_tokens += prompt.num_cached;
  return usage;
}

}  // namespace atom::server
