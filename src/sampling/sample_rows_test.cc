// The sampler of a GPU against the CPU's on the same logits. Skipped where there is no GPU.
#include "sampling/sample_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/test_tensors.h"
#include "sampling/filters.h"
#include "sampling/sample_row_params.h"
#include "sampling/sampler.h"

namespace atom {
namespace {

// Rows of one step, each with a state that knows all tokens and one that lacks the last.
struct Step {
  int64_t vocab_size = 0;
  std::vector<SamplingState> complete;
  std::vector<SamplingState> lagging;
  std::vector<int32_t> last_tokens;          // of each row
  std::vector<float> logits;                 // [num_rows, vocab_size]
  std::vector<std::vector<uint32_t>> masks;  // of each row; empty: every token may come

  int64_t num_rows() const { return static_cast<int64_t>(complete.size()); }
  TokenBitmask allowed(int64_t row) const {
    return masks[row].empty() ? nullptr : masks[row].data();
  }
  float* row(int64_t index) { return &logits[static_cast<size_t>(index * vocab_size)]; }
};

SamplingParams random_params(int row, int64_t vocab_size, std::mt19937& random) {
  const auto pick = [&](std::initializer_list<float> values) {
    return *(values.begin() + random() % values.size());
  };
  SamplingParams params;
  params.temperature = pick({0.0f, 0.3f, 0.7f, 1.0f, 1.0f, 2.5f});
  params.top_p = pick({1.0f, 1.0f, 0.9f, 0.95f, 0.5f, 0.01f});
  params.top_k = static_cast<int>(pick({0, 0, 1, 2, 40, 1000, 1e6f}));
  params.min_p = pick({0.0f, 0.0f, 0.05f, 0.5f, 1.0f});
  params.seed = (uint64_t{random()} << 32) | random();
  if (row % 2 == 0) params.logprobs = static_cast<int>(pick({0, 1, 5, 20, 64}));
  if (row % 4 <= 1) {
    params.repetition_penalty = 1.3f;
    params.frequency_penalty = 0.4f;
    params.presence_penalty = -0.7f;
  }
  if (row % 5 == 2) {
    const auto half = static_cast<int32_t>(vocab_size / 2);
    params.logit_bias = {{static_cast<int32_t>(random() % half), 4.5f},
                         {static_cast<int32_t>(half + random() % half), -30.0f}};
    params.min_tokens = 9;
  }
  return params;
}

void fill_logits(int row, float* logits, int64_t vocab_size, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const float spread = std::array{0.0f, 0.5f, 2.0f, 5.0f}[random() % 4];
  for (int64_t i = 0; i < vocab_size; ++i) {
    logits[i] = spread * normal(random);
    // Ties, as logits of 16-bit models have them.
    if (row % 3 == 0) logits[i] = std::round(logits[i] * 8) / 8;
    if (row % 7 == 3 && random() % 2 == 0) logits[i] = -INFINITY;
  }
  if (row % 29 == 5) logits[random() % vocab_size] = NAN;
  if (row % 29 == 6) logits[random() % vocab_size] = INFINITY;
  if (row % 29 == 7) std::fill(logits, logits + vocab_size, -INFINITY);
}

// From a few tokens to nearly all, an end token among them.
std::vector<uint32_t> random_mask(int64_t vocab_size, int32_t end, std::mt19937& random) {
  std::vector<uint32_t> mask(static_cast<size_t>(vocab_size + 31) / 32);
  const uint32_t share = std::array{0u, 1u, 30u, 500u, 990u}[random() % 5];
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (id == end || random() % 1000 < share) mask[id / 32] |= 1u << (id % 32);
  }
  return mask;
}

Step random_step(int num_rows, int64_t vocab_size, uint32_t seed, bool with_masks) {
  std::mt19937 random(seed);
  const auto any_token = [&] { return static_cast<int32_t>(random() % vocab_size); };
  Step step;
  step.vocab_size = vocab_size;
  step.logits.resize(static_cast<size_t>(num_rows * vocab_size));
  for (int row = 0; row < num_rows; ++row) {
    fill_logits(row, step.row(row), vocab_size, random);
    std::vector<int32_t> prompt(20);
    for (int32_t& id : prompt) id = any_token();
    const std::vector<int32_t> eos = {any_token()};
    const SamplingParams params = random_params(row, vocab_size, random);
    step.complete.emplace_back(params, prompt, eos, vocab_size);
    for (int i = 0; i < 6; ++i) step.complete.back().append(prompt[i % 4]);
    step.lagging.push_back(step.complete.back());
    step.last_tokens.push_back(row % 3 == 0 ? any_token() : prompt[1]);
    step.complete.back().append(step.last_tokens.back());
    step.masks.emplace_back();
    if (with_masks && row % 3 != 2) step.masks.back() = random_mask(vocab_size, eos[0], random);
  }
  return step;
}

std::vector<SampledToken> sample_on_cpu(const Step& step) {
  ThreadPool pool(2);
  Tensor logits = Tensor::zeros({step.num_rows(), step.vocab_size}, DType::kFloat32);
  std::ranges::copy(step.logits, logits.data<float>());
  std::vector<SamplingRow> rows;
  for (int64_t row = 0; row < step.num_rows(); ++row) {
    rows.push_back({&step.complete[row], step.allowed(row)});
  }
  std::vector<SampledToken> result(rows.size());
  Sampler().sample(Stream(&pool), logits, rows, result);
  return result;
}

class DeviceCopies {
 public:
  explicit DeviceCopies(DeviceRuntime& runtime)
      : runtime_(runtime), queue_(runtime.create_queue()) {}

  template <typename T>
  T* send(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    memory_.push_back(runtime_.allocate(bytes));
    queue_->copy(memory_.back().get(), values.data(), bytes);
    return static_cast<T*>(memory_.back().get());
  }

  template <typename T>
  std::vector<T> fetch(const T* values, int64_t count) {
    std::vector<T> result(static_cast<size_t>(count));
    queue_->copy(result.data(), values, count * static_cast<int64_t>(sizeof(T)));
    queue_->synchronize();
    return result;
  }

  DeviceQueue& queue() { return *queue_; }

 private:
  DeviceRuntime& runtime_;
  std::unique_ptr<DeviceQueue> queue_;
  std::vector<std::shared_ptr<void>> memory_;
};

struct DeviceResult {
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprob> logprobs;
};

// The last tokens are known to the device only, except where `known` says otherwise; a row of
// padding follows.
DeviceResult sample_on_device(const Step& step, bool known) {
  DeviceCopies copies(*ops::test_gpu());
  std::vector<SampleRowParams> rows;
  std::vector<LogitEdit> edits;
  std::vector<uint32_t> masks;
  int32_t num_masks = 0;
  for (int64_t row = 0; row < step.num_rows(); ++row) {
    const SamplingState& complete = step.complete[row];
    DeviceSamplingRow sampled{&complete, complete.num_generated(), -1};
    if (!known) sampled.state = &step.lagging[row];
    if (!known) sampled.pending_row = static_cast<int32_t>(row);
    sampled.allowed = step.allowed(row);
    rows.push_back(sample_row_params(sampled, &edits));
    if (!has_mask(sampled)) continue;
    rows.back().mask = num_masks++;
    masks.insert(masks.end(), step.masks[row].begin(), step.masks[row].end());
  }
  masks.emplace_back();
  rows.emplace_back();
  edits.emplace_back();
  std::vector<float> logits = step.logits;
  logits.resize(logits.size() + step.vocab_size, NAN);
  std::vector<int32_t> ids = step.last_tokens;
  ids.push_back(0);
  const auto num_rows = static_cast<int64_t>(rows.size());
  SampleRowsArgs args{};
  args.logits = copies.send(logits);
  args.rows = copies.send(rows);
  args.edits = copies.send(edits);
  args.token_ids = copies.send(ids);
  args.previous_ids = args.token_ids;
  args.logprobs = copies.send(std::vector<TokenLogprob>(num_rows * (1 + kMaxRowLogprobs)));
  args.masks = copies.send(masks);
  args.mask_words = (step.vocab_size + 31) / 32;
  args.logits_stride = step.vocab_size;
  args.num_rows = num_rows;
  sample_rows(args, copies.queue().handle());
  return {copies.fetch(args.token_ids, num_rows),
          copies.fetch(args.logprobs, num_rows * (1 + kMaxRowLogprobs))};
}

// How near the mass that top_p wants comes to a border between tokens, as a share of the whole.
double border_gap(const Step& step, int64_t row) {
  const SamplingState& state = step.complete[row];
  SamplingParams params = state.params();
  if (params.top_p >= 1.0f || params.temperature < kGreedyTemperature) return 1;
  const auto begin = step.logits.begin() + row * step.vocab_size;
  std::vector<float> edited(begin, begin + step.vocab_size);
  edit_logits(state, step.allowed(row), edited.data());
  RowScratch scratch;
  const LogitsRow scanned = scan_row(edited.data(), step.vocab_size, scratch);
  if (scanned.fault != RowFault::kNone) return 1;
  const Cut cut = choose_cut(scanned, params, scratch);
  params.top_p = 1.0f;
  const Cut outer = choose_cut(scanned, params, scratch);
  double total = 0, kept = 0, last = 0;
  for (int64_t id = 0; id < step.vocab_size; ++id) {
    const float x = edited[id];
    if (x < outer.logit || (x == outer.logit && id > outer.token_id)) continue;
    const double mass = std::exp((double{x} - double{scanned.max}) / params.temperature);
    total += mass;
    if (x > cut.logit || (x == cut.logit && id <= cut.token_id)) kept += mass;
    if (x == cut.logit && id == cut.token_id) last = mass;
  }
  const double wanted = double{state.params().top_p} * total;
  return std::min(std::abs(kept - wanted), std::abs(wanted - (kept - last))) / total;
}

void expect_logprobs(const TokenLogprobs& expected,
                     const TokenLogprob* got,
                     const std::string& at) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(got[i].token_id, expected[i].token_id) << at << " entry " << i;
    ASSERT_EQ(got[i].rank, expected[i].rank) << at << " entry " << i;
    if (got[i].logprob == expected[i].logprob) continue;  // -inf too
    ASSERT_NEAR(got[i].logprob, expected[i].logprob, 1e-5) << at << " entry " << i;
  }
}

void expect_same(const Step& step, bool known) {
  const std::vector<SampledToken> expected = sample_on_cpu(step);
  const DeviceResult got = sample_on_device(step, known);
  EXPECT_EQ(got.token_ids.back(), 0);  // of the padding
  int decided_by_rounding = 0;
  for (int64_t row = 0; row < step.num_rows(); ++row) {
    const SamplingParams& params = step.complete[row].params();
    const std::string at = fmt::format("row {}: temperature {} top_p {} top_k {} min_p {}",
                                       row,
                                       params.temperature,
                                       params.top_p,
                                       params.top_k,
                                       params.min_p);
    const SampledToken& token = expected[row];
    const int32_t id = got.token_ids[row];
    if (!token.status.ok()) {
      const bool is_number = token.status.message().find("NaN") == std::string::npos;
      EXPECT_EQ(id, is_number ? kTokenNoCandidate : kTokenNotANumber) << at;
    } else if (id != token.token_id) {
      EXPECT_LT(border_gap(step, row), 1e-7) << at << ": " << id << " for " << token.token_id;
      ++decided_by_rounding;
    } else if (params.logprobs) {
      const TokenLogprob* entries = &got.logprobs[row * (1 + kMaxRowLogprobs)];
      expect_logprobs(token.logprobs, entries, at);
      const auto count = static_cast<int32_t>(token.logprobs.size());
      if (count <= *params.logprobs) {
        EXPECT_EQ(entries[count].rank, 0) << at;
      }
    }
  }
  EXPECT_LE(decided_by_rounding * 100, step.num_rows());
}

TEST(SampleRows, ChoosesWhatTheCpuChooses) {
  if (ops::test_gpu() == nullptr) GTEST_SKIP() << "no GPU";
  uint32_t seed = 0;
  for (const auto& [num_rows, vocab_size] :
       {std::pair{300, 77}, {203, 1000}, {64, 32000}, {32, 128256}}) {
    for (const bool known : {true, false}) {
      for (const bool masked : {false, true}) {
        // A mask supposes all tokens before.
        if (masked && !known) continue;
        SCOPED_TRACE(fmt::format("{} rows of {}, {} {}", num_rows, vocab_size, known, masked));
        expect_same(random_step(num_rows, vocab_size, ++seed, masked), known);
      }
    }
  }
}

}  // namespace
}  // namespace atom
