#include "spec_decode/padded_drafts.h"

#include <algorithm>
#include <numeric>

#include "ops/pending_tokens/pending_tokens.h"
#include "spec_decode/choose_drafts.h"
#include "spec_decode/pass_arrays.h"

namespace atom {
namespace {

using Values = std::vector<int32_t>;

Values ascending(int64_t count) {
  Values values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

// What stands for the step's rows in each of the model's layers, but for their tokens.
struct StepRows {
  Values positions;
  Values slots;
  Values hidden_rows;
  Values query_start = {0};
  Values seq_lens;
  Values settled_lens;
  Values last_rows;
};

StepRows rows_of(const PaddedDraftShape& shape,
                 std::span<const DraftRequest> requests,
                 int32_t block_size) {
  StepRows rows;
  for (const DraftRequest& request : requests) {
    CHECK(request.num_rows <= shape.queries);
    for (int32_t i = 0; i < request.num_rows; ++i) {
      const int32_t position = request.first_position + i;
      rows.positions.push_back(position);
      rows.slots.push_back(request.slot_of(position, block_size));
      rows.hidden_rows.push_back(request.first_row + i);
    }
    rows.query_start.push_back(rows.query_start.back() + request.num_rows);
    rows.seq_lens.push_back(request.first_position + request.num_rows);
    rows.settled_lens.push_back(request.num_settled);
    rows.last_rows.push_back(rows.query_start.back() - 1);
  }
  // As InputBuilder pads: each sequence that is left has a row, the last one the rest.
  const auto num_rows = static_cast<int32_t>(shape.num_rows());
  while (std::ssize(rows.seq_lens) < shape.num_seqs()) {
    const bool is_last = std::ssize(rows.seq_lens) + 1 == shape.num_seqs();
    rows.query_start.push_back(is_last ? num_rows : rows.query_start.back() + 1);
    rows.seq_lens.push_back(0);
    rows.settled_lens.push_back(0);
  }
  CHECK(rows.query_start.back() == num_rows);
  // Padding repeats the last row's state and token: what is routed like it reads no other experts.
  const int32_t repeated = rows.hidden_rows.empty() ? 0 : rows.hidden_rows.back();
  rows.positions.resize(num_rows, 0);
  rows.slots.resize(num_rows, -1);
  rows.hidden_rows.resize(num_rows, repeated);
  rows.last_rows.resize(shape.batch, 0);
  return rows;
}

// The tokens of the step's rows for `layer`, `layer` places further on than the first layer's.
Values tokens_of(const PaddedDraftShape& shape,
                 std::span<const DraftRequest> requests,
                 int32_t layer,
                 int32_t num_layers,
                 int32_t block_size) {
  const auto batch = static_cast<int32_t>(shape.batch);
  Values tokens;
  for (size_t s = 0; s < requests.size(); ++s) {
    const DraftRequest& request = requests[s];
    const int32_t num_wanted = request.num_wanted(num_layers, block_size);
    for (int32_t i = 0; i < request.num_rows; ++i) {
      const int32_t place = request.first_position + i + 1 + layer;
      const int32_t drafted = place - static_cast<int32_t>(request.token_ids.size());
      // Some token where no draft is made: the row is there for those behind it.
      tokens.push_back(drafted < 0            ? request.token_ids[place]
                       : drafted < num_wanted ? ~(drafted * batch + static_cast<int32_t>(s))
                                              : 0);
    }
  }
  tokens.resize(shape.num_rows(), tokens.empty() ? 0 : tokens.back());
  return tokens;
}

// The row of each sequence behind the step's for draft number `draft`.
struct NextRows {
  Values token_ids;
  Values positions;
  Values slots;
  Values seq_lens;
  Values settled_lens;
};

NextRows next_rows(const PaddedDraftShape& shape,
                   std::span<const DraftRequest> requests,
                   int32_t draft,
                   int32_t num_layers,
                   int32_t block_size) {
  const auto batch = static_cast<int32_t>(shape.batch);
  NextRows rows{
      Values(batch, 0), Values(batch, 0), Values(batch, -1), Values(batch, 0), Values(batch, 0)};
  for (size_t s = 0; s < requests.size(); ++s) {
    const DraftRequest& request = requests[s];
    if (request.num_wanted(num_layers, block_size) <= draft) continue;
    const int32_t position = request.first_position + request.num_rows + draft - num_layers;
    rows.token_ids[s] = ~((draft - 1) * batch + static_cast<int32_t>(s));
    rows.positions[s] = position;
    rows.slots[s] = request.slot_of(position, block_size);
    rows.seq_lens[s] = position + 1;
    rows.settled_lens[s] = position;
  }
  return rows;
}

int64_t num_elements(const DraftModel& model, const SchedulerConfig& config) {
  const int64_t batch = config.max_num_seqs, drafts = config.num_speculative_tokens;
  const int64_t rows =
      std::max(batch, std::min<int64_t>(config.max_num_batched_tokens, batch * (1 + drafts)));
  const int64_t of_rows = (4 + model.num_layers()) * rows;
  const int64_t of_seqs = 2 * batch + 3 * (batch + 2) + batch + 1;
  const int64_t num_arrays = 10 + model.num_layers() + 5 * drafts;
  return of_rows + of_seqs + 5 * drafts * batch + num_arrays * PassArrays::kAlignment;
}

}  // namespace

PaddedDrafts::PaddedDrafts(const DraftModel& model,
                           const SchedulerConfig& config,
                           int64_t num_sampled_ids,
                           const Stream& stream,
                           HostMirror& drafts)
    : model_(model),
      block_size_(config.block_size),
      num_sampled_ids_(num_sampled_ids),
      stream_(stream),
      drafts_(drafts),
      inputs_(stream, num_elements(model, config), kMaxDeviceSteps) {}

int64_t PaddedDrafts::num_bytes(const DraftModel& model, const SchedulerConfig& config) {
  return num_elements(model, config) * int64_t{sizeof(int32_t)};
}

PaddedDrafts::Inputs PaddedDrafts::send(const PaddedDraftShape& shape,
                                        std::span<const DraftRequest> requests) {
  CHECK(std::ssize(requests) <= shape.batch);
  const int num_layers = model_.num_layers();
  PassArrays arrays(inputs_);
  Inputs inputs;
  inputs.rows = arrays.add(ascending(shape.batch));
  const StepRows step = rows_of(shape, requests, block_size_);
  inputs.last_rows = arrays.add(step.last_rows);
  Pass rows{.positions = arrays.add(step.positions),
            .slots = arrays.add(step.slots),
            .query_start = arrays.add(step.query_start),
            .seq_lens = arrays.add(step.seq_lens),
            .settled_lens = arrays.add(step.settled_lens),
            .hidden_rows = arrays.add(step.hidden_rows)};
  const Tensor own_rows = arrays.add(ascending(shape.num_rows()));
  for (int layer = 0; layer < num_layers; ++layer) {
    Pass& pass = inputs.passes.emplace_back(rows);
    pass.token_ids = arrays.add(tokens_of(shape, requests, layer, num_layers, block_size_));
    if (layer > 0) pass.hidden_rows = own_rows;
  }
  const Tensor starts = arrays.add(ascending(shape.batch + 1));
  for (int32_t draft = num_layers; draft < shape.num_drafts; ++draft) {
    const NextRows next = next_rows(shape, requests, draft, num_layers, block_size_);
    inputs.passes.push_back({.token_ids = arrays.add(next.token_ids),
                             .positions = arrays.add(next.positions),
                             .slots = arrays.add(next.slots),
                             .query_start = starts,
                             .seq_lens = arrays.add(next.seq_lens),
                             .settled_lens = arrays.add(next.settled_lens),
                             .hidden_rows = inputs.rows});
  }
  arrays.send();
  return inputs;
}

Tensor PaddedDrafts::forward(const Pass& pass,
                             const Tensor& hidden,
                             int draft,
                             int64_t max_queries,
                             const ForwardContext& step) const {
  const int64_t num_seqs = pass.seq_lens.size(0);
  const ForwardContext context{
      .stream = stream_,
      .workspace = step.workspace,
      .token_ids = pass.token_ids,
      .positions = pass.positions,
      .batch = {.block_tables = step.batch.block_tables.narrow(0, 0, num_seqs),
                .query_start = pass.query_start,
                .seq_lens = pass.seq_lens,
                .settled_lens = pass.settled_lens,
                .slot_mapping = pass.slots,
                .min_queries = 1,
                .max_queries = max_queries},
      .storage = step.storage};
  ops::fill_pending_tokens(stream_, drafts_.view(0, {drafts_.size()}), context.token_ids);
  return model_.forward(hidden, pass.hidden_rows, draft, context);
}

void PaddedDrafts::enqueue(const PaddedDraftShape& shape,
                           const Inputs& inputs,
                           const Tensor& hidden,
                           const ForwardContext& step) {
  const Workspace::Scope scope(step.workspace);
  const int num_layers = model_.num_layers();
  const Tensor feedback =
      step.workspace.tensor({shape.batch, model_.hidden_size()}, hidden.dtype());
  const auto take = [&](const Tensor& states, const Tensor& rows, int32_t draft) {
    if (draft >= shape.num_drafts) return;
    const Tensor drafts = drafts_.view(draft * shape.batch, {shape.batch});
    choose_drafts(model_, states, rows, feedback, drafts, num_sampled_ids_, step);
  };
  {
    const Workspace::Scope states(step.workspace);
    Tensor state = hidden;
    for (int layer = 0; layer < num_layers; ++layer) {
      state = forward(inputs.passes[layer], state, layer, shape.queries, step);
      take(state, inputs.last_rows, layer);
    }
  }
  for (int32_t draft = num_layers; draft < shape.num_drafts; ++draft) {
    const Workspace::Scope states(step.workspace);
    take(forward(inputs.passes[draft], feedback, draft, 1, step), inputs.rows, draft);
  }
}

Status PaddedDrafts::record(const PaddedDraftShape& shape,
                            const Tensor& hidden,
                            const ForwardContext& step) {
  DeviceQueue& queue = stream_.queue();
  const Inputs inputs = send(shape, {});
  // Once for real: kernels are loaded and algorithms chosen at first use.
  enqueue(shape, inputs, hidden, step);
  queue.synchronize();
  queue.begin_recording();
  enqueue(shape, inputs, hidden, step);
  Result<std::unique_ptr<DeviceGraph>> graph = queue.end_recording();
  if (!graph.ok()) {
    return internal_error(
        "the drafts behind a step of {} sequences could not be recorded: {}; --enable-graphs=false "
        "runs every step without recording",
        shape.batch,
        graph.status().message());
  }
  recorded_[{shape.batch, shape.queries}] = {shape, std::move(*graph)};
  return {};
}

const PaddedDraftShape* PaddedDrafts::find(int64_t batch, int64_t queries) const {
  const auto found = recorded_.find({batch, queries});
  return found == recorded_.end() ? nullptr : &found->second.shape;
}

void PaddedDrafts::run(const PaddedDraftShape& shape,
                       std::span<const DraftRequest> requests,
                       const Tensor& hidden,
                       const ForwardContext& step) {
  const Inputs inputs = send(shape, requests);
  const auto recorded = recorded_.find({shape.batch, shape.queries});
  if (recorded == recorded_.end()) return enqueue(shape, inputs, hidden, step);
  recorded->second.graph->launch();
}

}  // namespace atom
