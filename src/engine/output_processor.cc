#include "engine/output_processor.h"

#include <algorithm>

#include "base/clock.h"

namespace atom {
namespace {

// As many ids as can matter for how the text goes on.
std::span<const int32_t> tail(std::span<const int32_t> ids) {
  return ids.last(std::min<size_t>(ids.size(), 8));
}

}  // namespace

OutputProcessor::OutputProcessor(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

OutputProcessor::Entry OutputProcessor::prepare(RequestOutput output,
                                                const SamplingParams& sampling,
                                                std::span<const SequenceId> sequence_ids,
                                                OutputCallback callback) const {
  auto request = std::make_shared<Request>();
  request->output = std::move(output);
  request->output.metrics.arrival = steady_seconds();
  request->stop = sampling.stop;
  request->include_stop = sampling.include_stop_str_in_output;
  request->num_unfinished = sequence_ids.size();
  request->callback = std::move(callback);
  request->answers.reserve(sequence_ids.size());
  request->output.outputs.reserve(sequence_ids.size());
  for (size_t i = 0; i < sequence_ids.size(); ++i) {
    Answer& answer = request->answers.emplace_back();
    answer.sequence_id = sequence_ids[i];
    if (tokenizer_ != nullptr) {
      answer.detokenizer.emplace(tokenizer_,
                                 sampling.skip_special_tokens,
                                 tail(request->output.prompt_token_ids),
                                 sampling.kept_special_token_ids);
      answer.stops.emplace(sampling.stop, sampling.include_stop_str_in_output);
    }
    request->output.outputs.emplace_back().index = static_cast<int32_t>(i);
  }
  return request;
}

void OutputProcessor::add(Entry entry) {
  const MutexLock lock(&mutex_);
  for (size_t i = 0; i < entry->answers.size(); ++i) {
    places_[entry->answers[i].sequence_id] = {entry, i};
  }
  requests_[entry->output.id] = std::move(entry);
}

std::vector<SequenceId> OutputProcessor::process(const StepOutput& step) {
  const double time = steady_seconds();
  std::vector<SequenceId> stopped;
  RequestUpdate update;  // one for all, which keeps its memory
  update.time = time;
  for (const RequestDelta& delta : step.deltas) {
    const Place place = find(delta.id);
    if (place.request == nullptr) continue;
    Request& request = *place.request;
    update.text.clear();
    update.index = static_cast<int32_t>(place.index);
    if (apply(request, place.index, delta, &update)) stopped.push_back(delta.id);
    if (request.output.outputs[place.index].finish_reason != FinishReason::kNone) {
      finish_answer(request, update);
    }
    if (request.callback) request.callback(request.output, update);
  }
  return stopped;
}

OutputProcessor::Place OutputProcessor::find(SequenceId id) const {
  const MutexLock lock(&mutex_);
  const auto found = places_.find(id);
  return found == places_.end() ? Place() : found->second;
}

bool OutputProcessor::apply(Request& request,
                            size_t index,
                            const RequestDelta& delta,
                            RequestUpdate* update) {
  RequestOutput& output = request.output;
  CompletionOutput& answer = output.outputs[index];
  if (output.metrics.first_token == 0 && !delta.token_ids.empty()) {
    output.metrics.first_token = update->time;
  }
  output.metrics.num_cached_tokens = delta.num_cached_tokens;
  if (output.metrics.scheduled == 0 && delta.queue_ns > 0) {
    output.metrics.scheduled = output.metrics.arrival + static_cast<double>(delta.queue_ns) * 1e-9;
  }
  if (!delta.prompt_logprobs.empty()) {
    output.prompt_logprobs.insert(
        output.prompt_logprobs.end(), delta.prompt_logprobs.begin(), delta.prompt_logprobs.end());
  }
  answer.finish_reason = delta.finish_reason;
  answer.stop_token_id = delta.stop_token_id;
  if (delta.finish_reason == FinishReason::kError) {
    output.status = Status(delta.error_code, delta.error);
  }
  size_t num_tokens = delta.token_ids.size();
  const bool stopped = append_text(request, index, delta, &num_tokens, &update->text);
  answer.text += update->text;
  update->token_ids.assign(delta.token_ids.begin(), delta.token_ids.begin() + num_tokens);
  answer.token_ids.insert(
      answer.token_ids.end(), update->token_ids.begin(), update->token_ids.end());
  if (!delta.logprobs.empty()) {
    answer.logprobs.insert(answer.logprobs.end(),
                           delta.logprobs.begin(),
                           delta.logprobs.begin() + std::min(num_tokens, delta.logprobs.size()));
  }
  return stopped;
}

bool OutputProcessor::append_text(Request& request,
                                  size_t index,
                                  const RequestDelta& delta,
                                  size_t* num_tokens,
                                  std::string* text) {
  Answer& answer = request.answers[index];
  CompletionOutput& output = request.output.outputs[index];
  if (!answer.detokenizer) return false;
  const bool finished = output.finish_reason != FinishReason::kNone;
  const size_t count = delta.token_ids.size();
  // Token by token: what comes behind a stop string is no part of the answer. A delta without a
  // token may finish an answer, too.
  for (size_t i = 0; i < std::max<size_t>(count, 1); ++i) {
    const bool is_last = i + 1 >= count;
    // The token that ends an answer is no part of its text.
    const bool is_silent = is_last && delta.stop_token_id && !request.include_stop;
    std::string fresh;
    if (i < count && !is_silent) fresh = answer.detokenizer->append(delta.token_ids[i]);
    if (is_last && finished) fresh += answer.detokenizer->finish();
    StopStringMatcher::Output matched = answer.stops->feed(fresh);
    *text += matched.text;
    if (!matched.found) continue;
    *num_tokens = std::min(i + 1, count);
    output.stop_string = request.stop[matched.stop_index];
    output.stop_token_id.reset();
    output.finish_reason = FinishReason::kStop;
    return !finished;
  }
  if (finished) *text += answer.stops->finish();
  return false;
}

void OutputProcessor::finish_answer(Request& request, const RequestUpdate& update) {
  const MutexLock lock(&mutex_);
  places_.erase(request.answers[update.index].sequence_id);
  if (--request.num_unfinished > 0) return;
  request.output.finished = true;
  request.output.metrics.finished = update.time;
  requests_.erase(request.output.id);
}

std::vector<SequenceId> OutputProcessor::unfinished_sequences(RequestId id) const {
  std::vector<SequenceId> ids;
  const MutexLock lock(&mutex_);
  const auto found = requests_.find(id);
  if (found == requests_.end()) return ids;
  for (const Answer& answer : found->second->answers) {
    if (places_.contains(answer.sequence_id)) ids.push_back(answer.sequence_id);
  }
  return ids;
}

void OutputProcessor::fail(std::span<const SequenceId> ids, const Status& status) {
  StepOutput step;
  for (const SequenceId id : ids) {
    RequestDelta& delta = step.deltas.emplace_back();
    delta.id = id;
    delta.finish_reason = FinishReason::kError;
    delta.error_code = status.code();
    delta.error = status.message();
  }
  (void)process(step);
}

void OutputProcessor::fail_all(const Status& status) {
  std::vector<SequenceId> ids;
  {
    const MutexLock lock(&mutex_);
    for (const auto& [id, place] : places_) ids.push_back(id);
  }
  fail(ids, status);
}

}  // namespace atom
