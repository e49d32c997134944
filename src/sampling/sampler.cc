#include "sampling/sampler.h"

#include <atomic>

#include "sampling/filters.h"
#include "sampling/logprobs.h"
#include "sampling/row_kernels.h"
#include "tensor/tensor_check.h"

namespace atom {
namespace {

int32_t choose_token(const LogitsRow& row, const SamplingState& state, RowScratch& scratch) {
  const SamplingParams& params = state.params();
  if (params.temperature < kGreedyTemperature) return best_token(row);
  const Cut cut = choose_cut(row, params, scratch);
  const int64_t token_id = row_kernels().draw({.logits = row.logits,
                                               .block_max = row.block_max,
                                               .vocab_size = row.vocab_size,
                                               .max = row.max,
                                               .inverse_temperature = 1.0f / params.temperature,
                                               .cut_logit = cut.logit,
                                               .cut_token_id = cut.token_id,
                                               .seed = *params.seed,
                                               .position = state.num_generated()});
  CHECK(token_id >= 0);
  return static_cast<int32_t>(token_id);
}

}  // namespace

void sample_row(const SamplingRow& request, float* logits, RowScratch& scratch, SampledToken& out) {
  const SamplingState& state = *request.state;
  const int64_t vocab_size = state.vocab_size();
  const std::optional<int32_t>& num_logprobs = state.params().logprobs;
  out = {};

  float* edited = logits;
  const bool has_edits = has_logit_edits(state, request.allowed);
  if (has_edits) {
    if (num_logprobs) {
      scratch.edited.assign(logits, logits + vocab_size);
      edited = scratch.edited.data();
    }
    edit_logits(state, request.allowed, edited);
  }
  LogitsRow row = scan_row(edited, vocab_size, scratch);
  out.status = row_status(row.fault);
  if (!out.status.ok()) return;
  const int32_t token_id = choose_token(row, state, scratch);

  if (num_logprobs) {
    if (has_edits) {
      row = scan_row(logits, vocab_size, scratch);
      out.status = row_status(row.fault);
      if (!out.status.ok()) return;
    }
    out.logprobs = row_logprobs(row, token_id, *num_logprobs, scratch);
  }
  out.token_id = token_id;
}

void Sampler::sample(const Stream& stream,
                     const Tensor& logits,
                     std::span<const SamplingRow> rows,
                     std::span<SampledToken> out) {
  TensorCheck("sample").tensor("logits", logits, {"num_rows", "vocab_size"}, DType::kFloat32);
  CHECK(static_cast<int64_t>(rows.size()) == logits.size(0));
  CHECK(out.size() == rows.size());
  if (stream.is_dry_run()) return;
  for (const SamplingRow& row : rows) {
    CHECK(row.state != nullptr);
    CHECK(row.state->vocab_size() <= logits.size(1));
  }
  for_each_row(stream, logits.size(0), [&](int64_t row, RowScratch& scratch) {
    sample_row(rows[row], logits.data<float>() + row * logits.stride(0), scratch, out[row]);
  });
}

void Sampler::score(const Stream& stream,
                    const Tensor& logits,
                    std::span<const ScoredToken> tokens,
                    std::span<Result<TokenLogprobs>> out) {
  TensorCheck("score").tensor("logits", logits, {"num_rows", "vocab_size"}, DType::kFloat32);
  CHECK(static_cast<int64_t>(tokens.size()) == logits.size(0));
  CHECK(out.size() == tokens.size());
  if (stream.is_dry_run()) return;
  for (const ScoredToken& token : tokens) CHECK(token.vocab_size <= logits.size(1));
  for_each_row(stream, logits.size(0), [&](int64_t row, RowScratch& scratch) {
    const ScoredToken& token = tokens[row];
    out[row] = row_logprobs(logits.data<float>() + row * logits.stride(0),
                            token.vocab_size,
                            token.token_id,
                            token.num_logprobs,
                            scratch);
  });
}

void Sampler::for_each_row(const Stream& stream,
                           int64_t num_rows,
                           const std::function<void(int64_t row, RowScratch&)>& body) {
  ThreadPool& pool = stream.pool();
  if (scratch_.size() < static_cast<size_t>(pool.num_threads())) {
    scratch_.resize(static_cast<size_t>(pool.num_threads()));
  }
  if (num_rows == 1) return body(0, scratch_[0]);
  std::atomic<int64_t> next{0};
  pool.share([&](int worker) {
    for (int64_t row = next++; row < num_rows; row = next++) body(row, scratch_[worker]);
  });
}

}  // namespace atom
