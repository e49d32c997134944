// ModelRunner's choice of tokens from what the head gives.
#include <algorithm>

#include "ops/embedding/embedding.h"
#include "runner/model_runner.h"
#include "runner/step_profile.h"

namespace atom {
namespace {

GrammarState* grammar_of(RunnerSequence& sequence) {
  return sequence.grammar ? &*sequence.grammar : nullptr;
}

// Gives a sequence what was sampled for it on the CPU, and its grammar has taken.
void take_verified(std::span<SampledToken> tokens,
                   RunnerSequence& sequence,
                   SequenceOutput& result) {
  for (SampledToken& token : tokens) {
    if (token.status.ok()) {
      result.token_ids.push_back(token.token_id);
      if (sequence.sampling.params().logprobs) {
        result.logprobs.push_back(std::move(token.logprobs));
      }
    } else {
      result.error = token.status.message();
      // A step already ordered for this sequence needs some token to go on with.
      token.token_id = 0;
      sequence.sampling.append(0);
    }
    sequence.token_ids.push_back(token.token_id);
  }
  if (sequence.grammar) result.grammar_work = sequence.grammar->take_work();
  sequence.drafts.clear();
  if (!sequence.state_slots.empty()) sequence.state_index = tokens.size() - 1;
}

}  // namespace

void ModelRunner::choose_masked(const SchedulerOutput& step,
                                std::span<DeviceSamplingRow> rows,
                                const Tensor& logits,
                                StepInFlight& flight) {
  const HostRange whole(recorder_, "masks");
  // The last in flight is this step.
  for (size_t i = 0; i + 1 < in_flight_.size(); ++i) {
    if (in_flight_[i].events == nullptr) continue;
    in_flight_[i].events->end->wait();
    const HostRange range(recorder_, "take tokens");
    settle(in_flight_[i]);
  }
  std::vector<GrammarMasks::Sequence> constrained;
  std::vector<size_t> sampled;  // indices of sequences
  for (size_t s = 0; s < step.scheduled.size(); ++s) {
    if (step.scheduled[s].num_sampled == 0) continue;
    RunnerSequence& sequence = *sequences_.scheduled()[s];
    const auto num_drafts = static_cast<size_t>(step.scheduled[s].num_drafts());
    const auto drafts = std::span<const int32_t>(sequence.drafts).first(num_drafts);
    sampled.push_back(s);
    constrained.push_back({grammar_of(sequence), drafts});
  }
  {
    const HostRange range(recorder_, "fill masks");
    grammar_masks_.fill(stream_.pool(), constrained);
  }
  size_t row = 0;
  for (size_t i = 0; i < sampled.size(); ++i) {
    const std::span<const TokenBitmask> allowed = grammar_masks_.allowed(i);
    for (size_t place = 0; place <= constrained[i].drafts.size(); ++place, ++row) {
      rows[row].pending_row = -1;
      if (!allowed.empty()) rows[row].allowed = allowed[place];
    }
    if (grammar_masks_.status(i).ok()) continue;
    flight.output.sequences[sampled[i]].error = grammar_masks_.status(i).message();
  }
  CHECK(row == rows.size());
  choose_behind(rows, logits);
}

void ModelRunner::choose_behind(std::span<const DeviceSamplingRow> rows, const Tensor& logits) {
  const Workspace::Scope scope(workspace_);
  workspace_.skip_behind(logits);
  device_sampler_->send_and_choose(rows, logits, workspace_);
}

void ModelRunner::choose(const SchedulerOutput& step,
                         std::span<const HeadRow> rows,
                         std::span<DeviceSamplingRow> sampling,
                         const Tensor& hidden,
                         const ForwardContext& context,
                         StepInFlight& flight) {
  if (rows.empty()) return;
  const Workspace::Scope scope(workspace_);
  const Tensor logits = logits_of(rows, hidden, context);
  if (has_grammar(sequences_.scheduled())) return choose_masked(step, sampling, logits, flight);
  const SamplingKind kind = DeviceSampler::kind_of(sampling);
  if (kind == SamplingKind::kLargest) return device_sampler_->choose(kind, logits, workspace_);
  device_sampler_->send_and_choose(sampling, logits, workspace_);
}

void ModelRunner::verify(const SchedulerOutput& step,
                         std::span<const DeviceSamplingRow> sampling,
                         StepInFlight& flight) {
  if (sampling.empty()) return;
  const HostRange range(recorder_, "verify");
  const FetchedTokens fetched = device_sampler_->fetch(sampling);
  queue_->synchronize();
  int64_t row = 0;
  std::vector<SampledToken> tokens;
  for (size_t s = 0; s < step.scheduled.size(); ++s) {
    const int32_t num_sampled = step.scheduled[s].num_sampled;
    if (num_sampled == 0) continue;
    RunnerSequence& sequence = *sequences_.scheduled()[s];
    std::vector<SampledToken> sampled;
    for (int32_t i = 0; i < num_sampled; ++i) {
      sampled.push_back(fetched.token(row++, sequence.sampling.params()));
    }
    const auto num_drafts = static_cast<size_t>(step.scheduled[s].num_drafts());
    const std::span drafts = std::span(sequence.drafts).first(num_drafts);
    rejection_sampler_.accept({&sequence.sampling, drafts}, sampled, tokens);
    if (sequence.grammar) {
      const GrammarTokens taken{&*sequence.grammar, tokens};
      accept_tokens(stream_.pool(), {&taken, 1});
    }
    take_verified(tokens, sequence, flight.output.sequences[s]);
  }
}

Tensor ModelRunner::logits_of(std::span<const HeadRow> rows,
                              const Tensor& hidden,
                              const ForwardContext& context) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  const Tensor selected = workspace_.tensor({num_rows, hidden.size(1)}, hidden.dtype());
  const Tensor logits = workspace_.tensor({num_rows, config_.model.vocab_size}, DType::kFloat32);
  row_ids_->rotate();
  for (int64_t i = 0; i < num_rows; ++i) row_ids_->host()[i] = rows[i].hidden_row;
  row_ids_->send(0, num_rows);
  ops::embedding(stream_, row_ids_->view(0, {num_rows}), hidden, selected);
  model_->compute_logits(selected, logits, context);
  return logits;
}

void ModelRunner::sample_rows(const SchedulerOutput& step,
                              std::span<const HeadRow> rows,
                              const Tensor& logits,
                              StepInFlight& flight) {
  const HostRange range(recorder_, "sample");
  trace_.begin("sample", "host", {});
  std::vector<size_t> sampled;  // indices of sequences
  std::vector<DraftedSequence> drafted;
  std::vector<GrammarMasks::Sequence> constrained;
  for (size_t i = 0; i < rows.size(); i += step.scheduled[rows[i].sequence].num_sampled) {
    const size_t index = rows[i].sequence;
    RunnerSequence& sequence = *sequences_.scheduled()[index];
    const auto num_drafts = static_cast<size_t>(step.scheduled[index].num_drafts());
    const auto drafts = std::span<const int32_t>(sequence.drafts).first(num_drafts);
    sampled.push_back(index);
    drafted.push_back({&sequence.sampling, drafts});
    constrained.push_back({grammar_of(sequence), drafts});
  }
  grammar_masks_.fill(stream_.pool(), constrained);
  for (size_t i = 0; i < drafted.size(); ++i) drafted[i].allowed = grammar_masks_.allowed(i);
  std::vector<std::vector<SampledToken>> tokens(drafted.size());
  rejection_sampler_.sample(stream_, logits, drafted, tokens);
  std::vector<GrammarTokens> taken;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (constrained[i].grammar != nullptr) taken.push_back({constrained[i].grammar, tokens[i]});
  }
  accept_tokens(stream_.pool(), taken);
  for (size_t i = 0; i < tokens.size(); ++i) {
    RunnerSequence& sequence = *sequences_.scheduled()[sampled[i]];
    SequenceOutput& result = flight.output.sequences[sampled[i]];
    if (!grammar_masks_.status(i).ok()) result.error = grammar_masks_.status(i).message();
    take_verified(tokens[i], sequence, result);
  }
}

void ModelRunner::accept(std::span<const SampledRow> rows,
                         std::span<SampledToken> tokens,
                         ModelRunnerOutput* output) {
  std::vector<GrammarTokens> taken;
  for (size_t i = 0; i < rows.size(); ++i) {
    RunnerSequence* sequence = sequences_.find(rows[i].id);
    if (sequence != nullptr && sequence->grammar) {
      taken.push_back({&*sequence->grammar, tokens.subspan(i, 1)});
    }
  }
  accept_tokens(stream_.pool(), taken);
  for (size_t i = 0; i < rows.size(); ++i) {
    RunnerSequence* sequence = sequences_.find(rows[i].id);
    if (sequence == nullptr) continue;
    SampledToken& token = tokens[i];
    SequenceOutput& result = output->sequences[rows[i].output_index];
    if (sequence->grammar) result.grammar_work = sequence->grammar->take_work();
    if (token.status.ok()) {
      result.token_ids.push_back(token.token_id);
      if (sequence->sampling.params().logprobs)
        result.logprobs.push_back(std::move(token.logprobs));
    } else {
      result.error = token.status.message();
      // A step already ordered for this sequence needs some token to go on with.
      token.token_id = 0;
    }
    sequence->token_ids[rows[i].token_index] = token.token_id;
    sequence->sampling.append(token.token_id);
  }
}

void ModelRunner::score_rows(std::span<const HeadRow> rows,
                             const Tensor& logits,
                             StepInFlight& flight) {
  std::vector<ScoredToken> tokens;
  for (const HeadRow& row : rows) {
    const RunnerSequence& sequence = *sequences_.scheduled()[row.sequence];
    const SamplingParams& params = sequence.sampling.params();
    tokens.push_back({row.scored_token, *params.prompt_logprobs, config_.model.vocab_size});
  }
  std::vector<Result<TokenLogprobs>> scores(rows.size(), TokenLogprobs());
  if (device_sampler_) {
    device_sampler_->score(logits, tokens, scores);
  } else {
    sampler_.score(stream_, logits, tokens, scores);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    SequenceOutput& result = flight.output.sequences[rows[i].sequence];
    if (scores[i].ok()) {
      result.prompt_logprobs.push_back(std::move(scores[i]).value());
    } else {
      result.error = scores[i].status().message();
      result.prompt_logprobs.emplace_back();
    }
  }
}

}  // namespace atom
