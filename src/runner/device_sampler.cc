#include "runner/device_sampler.h"

#include <algorithm>
#include <cstring>

#include "ops/argmax/argmax.h"
#include "sampling/logprobs.h"
#include "tensor/pinned_tensor.h"

namespace atom {
namespace {

// Rows of logits that are scored together.
constexpr int64_t kScoredRows = 64;
// Of the buffer for edits, besides what a single row may need.
constexpr int64_t kEditsPerRow = 64;

constexpr int64_t kParamsWords = sizeof(SampleRowParams) / sizeof(int32_t);
constexpr int64_t kEditWords = sizeof(LogitEdit) / sizeof(int32_t);
constexpr int64_t kLogprobWords = sizeof(TokenLogprob) / sizeof(int32_t);
constexpr int64_t kRowLogprobWords = (1 + kMaxRowLogprobs) * kLogprobWords;

int64_t num_input_words(int64_t max_rows, int64_t vocab_size) {
  const int64_t num_edits = max_row_edits(vocab_size) + max_rows * kEditsPerRow;
  return max_rows * kParamsWords + num_edits * kEditWords;
}

int64_t num_mask_words(int64_t vocab_size) {
  return (vocab_size + 31) / 32;
}

RowFault fault_of(int32_t token_id) {
  CHECK(token_id >= kTokenNoCandidate);
  return token_id == kTokenNotANumber ? RowFault::kNotANumber : RowFault::kNoCandidate;
}

}  // namespace

SampledToken FetchedTokens::token(int64_t row, const SamplingParams& params) const {
  SampledToken result;
  const int32_t token_id = token_ids[row];
  if (token_id < 0) {
    result.status = row_status(fault_of(token_id));
    return result;
  }
  result.token_id = token_id;
  if (params.logprobs) {
    const TokenLogprob* entries = logprobs + row * (1 + kMaxRowLogprobs);
    // Fewer when the row has fewer tokens that may come at all.
    for (int32_t i = 0; i <= *params.logprobs && entries[i].rank > 0; ++i) {
      result.logprobs.push_back(entries[i]);
    }
  }
  return result;
}

DeviceSampler::DeviceSampler(DeviceRuntime& runtime,
                             const Stream& stream,
                             int64_t max_rows,
                             int64_t vocab_size,
                             int64_t num_sampled_ids,
                             Communicator* alike)
    : stream_(&stream),
      alike_(alike),
      host_stream_(&stream.pool()),
      num_sampled_ids_(num_sampled_ids),
      max_rows_(max_rows),
      inputs_(stream, num_input_words(max_rows, vocab_size), kMaxDeviceSteps),
      token_ids_(stream, max_rows, kMaxDeviceSteps),
      logprobs_(stream, max_rows * kRowLogprobWords, kMaxDeviceSteps),
      mask_words_(num_mask_words(num_sampled_ids)),
      masks_(stream, max_rows * mask_words_, kMaxDeviceSteps),
      mask_queue_(runtime.create_queue()),
      host_logits_(pinned_tensor(
          stream.device(), {std::min(max_rows, kScoredRows), vocab_size}, DType::kFloat32)) {}

int64_t DeviceSampler::num_bytes(int64_t max_rows, int64_t vocab_size) {
  const int64_t words = num_input_words(max_rows, vocab_size) +
                        max_rows * (1 + kRowLogprobWords + num_mask_words(vocab_size));
  return words * int64_t{sizeof(int32_t)};
}

SamplingKind DeviceSampler::kind_of(std::span<const DeviceSamplingRow> rows) {
  const bool all_largest = std::ranges::all_of(
      rows, [](const DeviceSamplingRow& row) { return takes_largest_logit(row); });
  return all_largest ? SamplingKind::kLargest : SamplingKind::kAny;
}

bool DeviceSampler::send_rows(std::span<const DeviceSamplingRow> rows, int64_t num_padded) {
  CHECK(static_cast<int64_t>(rows.size()) <= num_padded);
  CHECK(num_padded <= max_rows_);
  params_.clear();
  edits_.clear();
  int32_t num_masks = 0;
  for (const DeviceSamplingRow& row : rows) {
    params_.push_back(sample_row_params(row, &edits_));
    if (has_mask(row)) params_.back().mask = num_masks++;
  }
  params_.resize(static_cast<size_t>(num_padded));
  const int64_t edits_begin = max_rows_ * kParamsWords;
  const int64_t edits_end = edits_begin + static_cast<int64_t>(edits_.size()) * kEditWords;
  if (edits_end > inputs_.size()) return false;
  DeviceQueue& queue = num_masks > 0 ? *mask_queue_ : stream_->queue();
  inputs_.rotate();
  std::memcpy(inputs_.host(), params_.data(), params_.size() * sizeof(SampleRowParams));
  inputs_.send_through(queue, 0, num_padded * kParamsWords);
  if (!edits_.empty()) {
    std::memcpy(inputs_.host() + edits_begin, edits_.data(), edits_.size() * sizeof(LogitEdit));
    inputs_.send_through(queue, edits_begin, edits_end);
  }
  if (num_masks > 0) send_masks(rows);
  return true;
}

void DeviceSampler::send_masks(std::span<const DeviceSamplingRow> rows) {
  masks_.rotate();
  int64_t end = 0;
  for (const DeviceSamplingRow& row : rows) {
    if (!has_mask(row)) continue;
    std::memcpy(masks_.host() + end, row.allowed, mask_words_ * sizeof(uint32_t));
    end += mask_words_;
  }
  masks_.send_through(*mask_queue_, 0, end);
  mask_queue_->synchronize();
}

void DeviceSampler::choose(SamplingKind kind, const Tensor& logits, Workspace& workspace) {
  CHECK(kind != SamplingKind::kLater);
  if (kind == SamplingKind::kAny) {
    choose_sent(logits, 0, token_ids().data<int32_t>());
  } else {
    const Tensor ids = token_ids_.view(0, {logits.size(0)});
    ops::argmax(*stream_, logits, num_sampled_ids_, ids, workspace);
  }
  take_first_ranks(logits.size(0));
}

void DeviceSampler::choose_largest_of_parts(const Tensor& logits,
                                            int64_t first_id,
                                            const ParallelContext& ranks,
                                            Workspace& workspace) {
  const int64_t num_rows = logits.size(0);
  const int64_t num_ids = std::clamp<int64_t>(num_sampled_ids_ - first_id, 0, logits.size(1));
  const Workspace::Scope scope(workspace);
  const Tensor keys =
      workspace.tensor({ranks.tensor_parallel_size, num_rows, ops::kArgmaxKeys}, DType::kInt64);
  const Tensor own = keys.narrow(0, ranks.tensor_parallel_rank, 1);
  ops::argmax_keys(*stream_, logits, num_ids, first_id, own.view({num_rows, ops::kArgmaxKeys}));
  ranks.all_gather(*stream_, own, keys);
  ops::argmax_of_keys(*stream_, keys, token_ids_.view(0, {num_rows}));
  take_first_ranks(num_rows);
}

void DeviceSampler::take_first_ranks(int64_t num_rows) {
  if (alike_ != nullptr) alike_->broadcast(*stream_, token_ids_.view(0, {num_rows}), /*root=*/0);
}

void DeviceSampler::choose_sent(const Tensor& logits, int64_t first_row, int32_t* token_ids_out) {
  int32_t* words = inputs_.view(0, {inputs_.size()}).data<int32_t>();
  int32_t* logprobs = logprobs_.view(0, {logprobs_.size()}).data<int32_t>();
  sample_rows(
      {.logits = logits.data<float>(),
       .rows = reinterpret_cast<const SampleRowParams*>(words),
       .edits = reinterpret_cast<LogitEdit*>(words + max_rows_ * kParamsWords),
       .previous_ids = token_ids().data<int32_t>(),
       .token_ids = token_ids_out,
       .logprobs = reinterpret_cast<TokenLogprob*>(logprobs + first_row * kRowLogprobWords),
       .masks = reinterpret_cast<const uint32_t*>(masks_.view(0, {masks_.size()}).data<int32_t>()),
       .mask_words = mask_words_,
       .logits_stride = logits.stride(0),
       .num_rows = logits.size(0)},
      stream_->queue().handle());
}

void DeviceSampler::send_and_choose(std::span<const DeviceSamplingRow> rows,
                                    const Tensor& logits,
                                    Workspace& workspace) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  if (send_rows(rows, num_rows)) return choose(SamplingKind::kAny, logits, workspace);
  // Rows may ask for any token of the step before until the last part is done.
  const Workspace::Scope scope(workspace);
  const Tensor chosen = workspace.tensor({num_rows}, DType::kInt32);
  for (int64_t begin = 0; begin < num_rows;) {
    int64_t count = num_rows - begin;
    while (
        !send_rows(rows.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)), count)) {
      count /= 2;  // one row always fits
    }
    choose_sent(logits.narrow(0, begin, count), begin, chosen.data<int32_t>() + begin);
    stream_->queue().synchronize();
    begin += count;
  }
  stream_->queue().copy(token_ids().raw_data(), chosen.raw_data(), chosen.num_bytes());
  take_first_ranks(num_rows);
}

FetchedTokens DeviceSampler::fetch(std::span<const DeviceSamplingRow> rows) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  token_ids_.rotate();
  token_ids_.fetch(0, num_rows);
  int32_t num_logprobs = -1;
  for (const DeviceSamplingRow& row : rows) {
    num_logprobs = std::max(num_logprobs, row.state->params().logprobs.value_or(-1));
  }
  logprobs_.rotate();
  if (num_logprobs >= 0) {
    const int64_t num_columns = (1 + num_logprobs) * kLogprobWords;
    logprobs_.fetch_columns(0, num_rows, kRowLogprobWords, num_columns);
  }
  return {token_ids_.host(), reinterpret_cast<const TokenLogprob*>(logprobs_.host())};
}

void DeviceSampler::score(const Tensor& logits,
                          std::span<const ScoredToken> tokens,
                          std::span<Result<TokenLogprobs>> out) {
  const auto num_rows = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < num_rows; begin += host_logits_.size(0)) {
    const int64_t count = std::min(host_logits_.size(0), num_rows - begin);
    const Tensor part = logits.narrow(0, begin, count);
    const Tensor fetched = host_logits_.narrow(0, 0, count);
    stream_->queue().copy(fetched.raw_data(), part.raw_data(), part.num_bytes());
    stream_->queue().synchronize();
    const auto first = static_cast<size_t>(begin);
    const auto size = static_cast<size_t>(count);
    sampler_.score(host_stream_, fetched, tokens.subspan(first, size), out.subspan(first, size));
  }
}

}  // namespace atom
