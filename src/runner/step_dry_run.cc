#include "runner/step_dry_run.h"

#include <algorithm>

#include "ops/argmax/argmax.h"
#include "runner/context_rows.h"
#include "runner/draft_rows.h"
#include "runner/layer_storage.h"
#include "spec_decode/eagle_proposer.h"

namespace atom {
namespace {

constexpr int64_t kMaxLogitsRows = 64;

Tensor int32_meta(const Shape& shape) {
  return Tensor::meta(shape, DType::kInt32);
}

// Bytes of a step of `num_tokens` tokens in `num_seqs` sequences with `num_rows` rows of logits.
int64_t measure_step(const ResolvedConfig& config,
                     const BuiltModel& built,
                     const LayerStorage& storage,
                     int64_t num_tokens,
                     int64_t num_seqs,
                     int64_t num_rows) {
  const CausalLM& model = *built.model;
  Stream stream = Stream::dry_run(built.device);
  stream.set_fixed_rows(config.engine.device.deterministic);
  Workspace workspace;
  const int64_t max_blocks = num_blocks_for(config.max_model_len(), config.scheduler.block_size);
  const ops::PagedBatch batch{.block_tables = int32_meta({num_seqs, max_blocks}),
                              .query_start = int32_meta({num_seqs + 1}),
                              .seq_lens = int32_meta({num_seqs}),
                              .settled_lens = int32_meta({num_seqs}),
                              .slot_mapping = int32_meta({num_tokens})};
  const std::vector<int32_t> tokens_of_ranks =
      built.parallel.exchange_token_counts(stream, num_tokens);
  const int32_t context_size = built.parallel.context_parallel_size;
  ContextSplit split;
  split.slots = int32_meta({context_size, max_own_rows(num_tokens, num_seqs, context_size)});
  const ForwardContext context{
      .stream = stream,
      .workspace = workspace,
      .token_ids = int32_meta({num_tokens}),
      .positions = int32_meta({num_tokens}),
      .batch = batch,
      .storage = storage,
      .window_batch = config.scheduler.num_kv_groups > 1 ? batch : ops::PagedBatch(),
      .state_slots = int32_meta({num_seqs}),
      .token_state_slots =
          config.scheduler.num_speculative_tokens > 0 ? int32_meta({num_tokens}) : Tensor(),
      .aux_hidden = aux_hidden_of(config, built.num_aux_layers, num_tokens, workspace),
      .tokens_of_ranks = tokens_of_ranks,
      .split = context_size > 1 ? &split : nullptr};
  const Tensor hidden = model.forward(context);
  // All rows of the step, see ContextRows::whole().
  if (context_size > 1) workspace.tensor(hidden.shape(), hidden.dtype());
  if (context_size > 1 && context.aux_hidden.defined()) {
    workspace.tensor(context.aux_hidden.shape(), context.aux_hidden.dtype());
  }
  const Tensor rows = workspace.tensor({num_rows, hidden.size(1)}, hidden.dtype());
  const Tensor logits = workspace.tensor({num_rows, config.model.vocab_size}, DType::kFloat32);
  model.compute_logits(rows, logits, context);
  if (built.draft != nullptr) {
    const Tensor& states = context.aux_hidden.defined() ? context.aux_hidden : hidden;
    EagleProposer::measure(*built.draft, states, num_seqs, context);
  }
  if (!built.device.is_cpu()) {
    const Tensor ids = Tensor::meta({num_rows}, DType::kInt32);
    ops::argmax(stream, logits, config.model.vocab_size, ids, workspace);
  }
  return workspace.peak_size();
}

}  // namespace

int64_t max_logits_rows(const SchedulerConfig& config, Device device) {
  // On a GPU reading the head's weight once for all sequences counts for more than the memory.
  const int64_t drafts = int64_t{config.num_speculative_tokens} * config.largest_drafting_batch();
  const int64_t rows = device.is_cpu()
                           ? kMaxLogitsRows
                           : std::max<int64_t>(kMaxLogitsRows, config.max_num_seqs + drafts);
  return std::min<int64_t>(config.max_num_batched_tokens, rows);
}

int64_t measure_workspace(const ResolvedConfig& config, const BuiltModel& built) {
  const LayerStorage storage = make_layer_storage(
      Stream::dry_run(built.device),
      built.storage,
      {.num_blocks = 1, .block_size = config.scheduler.block_size, .num_slots = 1});
  const int64_t max_tokens = config.scheduler.max_num_batched_tokens;
  const int64_t max_rows = max_logits_rows(config.scheduler, built.device);
  int64_t peak = 0;
  // Kernels may take more scratch for a small step than for a large one: every small size, then
  // powers of two, then the largest.
  int64_t num_tokens = 1;
  // Padded steps that verify drafts have one sequence more.
  const int64_t max_seqs =
      config.scheduler.max_num_seqs + (config.scheduler.num_speculative_tokens > 0 ? 1 : 0);
  while (true) {
    const int64_t num_seqs = std::min(num_tokens, max_seqs);
    const int64_t num_rows = std::min(num_tokens, max_rows);
    for (const int64_t seqs : {int64_t{1}, num_seqs}) {
      peak = std::max(peak, measure_step(config, built, storage, num_tokens, seqs, num_rows));
    }
    if (num_tokens == max_tokens) return peak;
    num_tokens = std::min(num_tokens < 64 ? num_tokens + 1 : 2 * num_tokens, max_tokens);
  }
}

}  // namespace atom
