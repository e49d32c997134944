#include "spec_decode/eagle_proposer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/argmax/argmax.h"
#include "ops/embedding/embedding.h"
#include "ops/pending_tokens/pending_tokens.h"
#include "spec_decode/choose_drafts.h"
#include "spec_decode/pass_arrays.h"

namespace atom {
namespace {

constexpr int64_t kNumArrays = 8;

int64_t num_pass_elements(const SchedulerConfig& config) {
  const int64_t table_width = num_blocks_for(config.max_model_len, config.block_size);
  return 4 * int64_t{config.max_num_batched_tokens} + 3 * (config.max_num_seqs + 1) +
         config.max_num_seqs * table_width + kNumArrays * PassArrays::kAlignment;
}

int64_t max_drafts(const SchedulerConfig& config) {
  return int64_t{config.max_num_seqs} * config.num_speculative_tokens;
}

// Passes that are enqueued before the host waits.
int max_passes(const DraftModel& model, const SchedulerConfig& config) {
  return std::max(model.num_layers(), config.num_speculative_tokens);
}

}  // namespace

EagleProposer::EagleProposer(const DraftModel& model,
                             const SchedulerConfig& config,
                             const ParallelContext& parallel,
                             int64_t num_sampled_ids,
                             const Stream& stream)
    : model_(model),
      parallel_(parallel),
      num_drafts_(config.num_speculative_tokens),
      block_size_(config.block_size),
      num_sampled_ids_(num_sampled_ids),
      stream_(stream),
      inputs_(stream, num_pass_elements(config), max_passes(model, config)),
      rows_(stream, config.max_num_seqs, max_passes(model, config)),
      drafts_(stream, max_drafts(config)) {
  if (stream.device().is_cpu() || parallel.copies_share_experts()) return;
  padded_.emplace(model, config, num_sampled_ids, stream, drafts_);
}

int64_t EagleProposer::num_bytes(const DraftModel& model,
                                 const SchedulerConfig& config,
                                 Device device) {
  const int64_t num_elements = num_pass_elements(config) + config.max_num_seqs + max_drafts(config);
  const int64_t of_padded = device.is_cpu() ? 0 : PaddedDrafts::num_bytes(model, config);
  return num_elements * int64_t{sizeof(int32_t)} + of_padded;
}

void EagleProposer::add_rows(const DraftRequest& request,
                             int32_t first_position,
                             int32_t num_rows,
                             Pass& pass) const {
  for (int32_t position = first_position; position < first_position + num_rows; ++position) {
    pass.positions.push_back(position);
    pass.slots.push_back(request.slot_of(position, block_size_));
  }
  pass.query_start.push_back(pass.query_start.back() + num_rows);
  pass.seq_lens.push_back(first_position + num_rows);
  pass.block_ids.push_back(request.block_ids);
}

void EagleProposer::pad(Pass& pass) {
  if (!pass.token_ids.empty()) return;
  pass.token_ids = pass.positions = pass.hidden_rows = {0};
  pass.slots = {-1};
  pass.query_start = {0, 1};
  pass.settled_lens = {0};
  // It reads itself, in a place that it does not write: whatever is there.
  static constexpr int32_t kAnyBlock[] = {0};
  pass.seq_lens = {1};
  pass.block_ids = {kAnyBlock};
}

Tensor EagleProposer::run(const Pass& pass,
                          const Tensor& hidden,
                          int draft,
                          const ForwardContext& step) {
  int64_t min_queries = INT64_MAX, max_queries = 0;
  for (size_t s = 0; s + 1 < pass.query_start.size(); ++s) {
    const int64_t queries = pass.query_start[s + 1] - pass.query_start[s];
    min_queries = std::min(min_queries, queries);
    max_queries = std::max(max_queries, queries);
  }
  PassArrays arrays(inputs_);
  ForwardContext context{.stream = stream_,
                         .workspace = step.workspace,
                         .token_ids = arrays.add(pass.token_ids),
                         .positions = arrays.add(pass.positions),
                         .batch = {.block_tables = arrays.add_tables(pass.block_ids),
                                   .query_start = arrays.add(pass.query_start),
                                   .seq_lens = arrays.add(pass.seq_lens),
                                   .settled_lens = arrays.add(pass.settled_lens),
                                   .slot_mapping = arrays.add(pass.slots),
                                   .min_queries = min_queries,
                                   .max_queries = max_queries},
                         .storage = step.storage};
  const Tensor hidden_rows = arrays.add(pass.hidden_rows);
  arrays.send();
  tokens_of_ranks_ = parallel_.exchange_token_counts(stream_, context.num_tokens());
  context.tokens_of_ranks = tokens_of_ranks_;
  context.is_dummy = pass.slots.front() < 0;
  if (draft > 0) {
    ops::fill_pending_tokens(stream_, drafts_.view(0, {drafts_.size()}), context.token_ids);
  }
  return model_.forward(hidden, hidden_rows, draft, context);
}

void EagleProposer::take_drafts(const Tensor& hidden,
                                std::span<const int32_t> rows,
                                Round& round,
                                const ForwardContext& step) {
  if (rows.empty()) return;
  rows_.rotate();
  std::ranges::copy(rows, rows_.host());
  rows_.send(0, std::ssize(rows));
  for (const size_t request : round.active) {
    round.places[request].push_back(round.num_places++);
  }
  const int64_t num_rows = std::ssize(rows), first_place = round.num_places - num_rows;
  choose_drafts(model_,
                hidden,
                rows_.view(0, {num_rows}),
                round.feedback.narrow(0, 0, num_rows),
                drafts_.view(first_place, {num_rows}),
                num_sampled_ids_,
                step);
}

void EagleProposer::fetch_drafts(Round& round) {
  // On a device ranks that have the same weights may each find another one best.
  if (parallel_.context_parallel != nullptr && !stream_.device().is_cpu()) {
    parallel_.context_parallel->broadcast(stream_, drafts_.view(0, {round.num_places}), /*root=*/0);
  }
  drafts_.fetch(0, round.num_places);
  if (!stream_.device().is_cpu()) stream_.queue().synchronize();
  for (size_t s = 0; s < round.places.size(); ++s) {
    for (const int32_t place : round.places[s]) {
      // A row without a best token drafts some token all the same: it is only a guess.
      round.drafts[s].push_back(std::max(0, drafts_.host()[place]));
    }
  }
}

EagleProposer::Round EagleProposer::begin(std::span<const DraftRequest> requests,
                                          const Tensor& hidden,
                                          const ForwardContext& step) const {
  Round round;
  round.requests = requests;
  round.places.resize(requests.size());
  round.drafts.resize(requests.size());
  const int64_t num_rows = std::max<int64_t>(1, std::ssize(requests));
  round.feedback = step.workspace.tensor({num_rows, model_.hidden_size()}, hidden.dtype());
  for (const DraftRequest& request : requests) {
    round.wanted.push_back(request.num_wanted(model_.num_layers(), block_size_));
  }
  return round;
}

EagleProposer::Pass EagleProposer::all_rows(const Round& round,
                                            int layer,
                                            std::vector<int32_t>* last_rows) const {
  Pass pass;
  for (size_t s = 0; s < round.requests.size(); ++s) {
    const DraftRequest& request = round.requests[s];
    const auto num_known = static_cast<int32_t>(request.token_ids.size());
    const std::vector<int32_t>& places = round.places[s];
    for (int32_t i = 0; i < request.num_rows; ++i) {
      const int32_t place = request.first_position + i + 1 + layer;
      const int32_t drafted = place - num_known;
      // Some token where none is known: the row is there for those behind it.
      pass.token_ids.push_back(drafted < 0                    ? request.token_ids[place]
                               : drafted < std::ssize(places) ? ~places[drafted]
                                                              : 0);
      const auto row = static_cast<int32_t>(pass.hidden_rows.size());
      pass.hidden_rows.push_back(layer == 0 ? request.first_row + i : row);
    }
    add_rows(request, request.first_position, request.num_rows, pass);
    pass.settled_lens.push_back(request.num_settled);
    last_rows->push_back(pass.query_start.back() - 1);
  }
  return pass;
}

EagleProposer::Pass EagleProposer::next_rows(Round& round, int32_t draft) const {
  Pass pass;
  const std::vector<size_t> before = std::exchange(round.active, {});
  for (size_t fed = 0; fed < before.size(); ++fed) {
    const size_t s = before[fed];
    if (round.wanted[s] <= draft) continue;
    const DraftRequest& request = round.requests[s];
    const int32_t position =
        request.first_position + request.num_rows + draft - model_.num_layers();
    round.active.push_back(s);
    pass.token_ids.push_back(~round.places[s].back());
    pass.hidden_rows.push_back(static_cast<int32_t>(fed));
    add_rows(request, position, 1, pass);
    pass.settled_lens.push_back(position);
  }
  return pass;
}

std::vector<std::vector<int32_t>> EagleProposer::propose(std::span<const DraftRequest> requests,
                                                         const Tensor& hidden,
                                                         const ForwardContext& step) {
  const Workspace::Scope scope(step.workspace);
  Round round = begin(requests, hidden, step);
  const int num_layers = model_.num_layers();
  {
    const Workspace::Scope states(step.workspace);
    Tensor state = hidden;
    for (int layer = 0; layer < num_layers; ++layer) {
      std::vector<int32_t> last_rows, rows;
      Pass pass = all_rows(round, layer, &last_rows);
      pad(pass);
      state = run(pass, state, layer, step);
      round.active.clear();
      for (size_t s = 0; s < requests.size(); ++s) {
        if (round.wanted[s] <= layer) continue;
        round.active.push_back(s);
        rows.push_back(last_rows[s]);
      }
      take_drafts(state, rows, round, step);
    }
  }
  const bool steps_together = parallel_.copies_share_experts();
  for (int32_t draft = num_layers; steps_together ? draft < num_drafts_ : !round.active.empty();
       ++draft) {
    const Workspace::Scope states(step.workspace);
    Pass pass = next_rows(round, draft);
    if (round.active.empty() && !steps_together) break;
    pad(pass);
    std::vector<int32_t> rows(round.active.size());
    std::iota(rows.begin(), rows.end(), 0);
    take_drafts(run(pass, round.feedback, draft, step), rows, round, step);
  }
  if (round.num_places > 0) fetch_drafts(round);
  return std::move(round.drafts);
}

const PaddedDraftShape* EagleProposer::recorded(int64_t batch, int64_t queries) const {
  return padded_ ? padded_->find(batch, queries) : nullptr;
}

Status EagleProposer::record(const PaddedDraftShape& shape,
                             const Tensor& hidden,
                             const ForwardContext& step) {
  return padded_ ? padded_->record(shape, hidden, step) : Status();
}

std::vector<std::vector<int32_t>> EagleProposer::propose_recorded(
    const PaddedDraftShape& shape,
    std::span<const DraftRequest> requests,
    const Tensor& hidden,
    const ForwardContext& step) {
  Round round;
  round.places.resize(requests.size());
  round.drafts.resize(requests.size());
  int32_t most = 0;
  for (size_t s = 0; s < requests.size(); ++s) {
    const int32_t wanted = requests[s].num_wanted(model_.num_layers(), block_size_);
    most = std::max(most, wanted);
    for (int32_t draft = 0; draft < wanted; ++draft) {
      round.places[s].push_back(draft * static_cast<int32_t>(shape.batch) +
                                static_cast<int32_t>(s));
    }
  }
  const bool is_in_vain = most == 0 && shape.num_drafts > 0;
  if (is_in_vain || most > shape.num_drafts) return propose(requests, hidden, step);
  // Ranks of this stage alone draft.
  if (parallel_.tensor_parallel != nullptr) parallel_.tensor_parallel->meet_all();
  padded_->run(shape, requests, hidden, step);
  round.num_places = most * static_cast<int32_t>(shape.batch);
  if (round.num_places > 0) fetch_drafts(round);
  return std::move(round.drafts);
}

void EagleProposer::measure(const DraftModel& model,
                            const Tensor& hidden,
                            int64_t num_seqs,
                            const ForwardContext& step) {
  Workspace& workspace = step.workspace;
  const Workspace::Scope scope(workspace);
  const Tensor feedback = workspace.tensor({num_seqs, model.hidden_size()}, hidden.dtype());
  Tensor state = hidden;
  const Tensor hidden_rows = Tensor::meta({step.num_tokens()}, DType::kInt32);
  for (int draft = 0; draft < model.num_layers(); ++draft) {
    state = model.forward(state, hidden_rows, draft, step);
  }
  const int64_t num_rows = std::min(num_seqs, kMaxDraftLogitsRows);
  const Tensor rows = workspace.tensor({num_rows}, DType::kInt32);
  const Tensor selected = feedback.narrow(0, 0, num_rows);
  ops::embedding(step.stream, rows, state, selected);
  const Tensor logits = workspace.tensor({num_rows, model.num_ids()}, DType::kFloat32);
  model.compute_logits(selected, logits, step);
  ops::argmax(step.stream, logits, model.num_ids(), rows, workspace);
}

}  // namespace atom
