// Checks the GPU sampler against the CPU's functions of src/sampling on the same logits, and times
// it.
//
// usage: sampling_bench
//
// A token must be the CPU's. Where the borders of top_p differ, both borders are looked at: they
// may differ only by tokens whose mass is lost in the rounding of the sums.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "harness.h"
#include "sampling/argmax_cuda.h"
#include "sampling/filters.h"
#include "sampling/logit_edits.h"
#include "sampling/logprobs.h"
#include "sampling/row_kernels.h"
#include "sampling/sample_rows_cuda.h"

namespace atom::bench {
namespace {

struct Step {
  std::vector<SamplingParams> params;
  std::vector<SamplingState> states;
  std::vector<std::vector<uint32_t>> allowed;  // empty: all
  std::vector<float> logits;                   // [rows, vocab]
  int64_t vocab = 0;
};

Step random_step(int num_rows, int64_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<float> values) {
    return *(values.begin() + random() % values.size());
  };
  std::normal_distribution<float> normal;
  Step step;
  step.vocab = vocab;
  step.logits.resize(num_rows * vocab);
  step.allowed.resize(num_rows);
  for (int row = 0; row < num_rows; ++row) {
    const float spread = pick({0.0f, 0.5f, 2.0f, 5.0f});
    float* logits = &step.logits[row * vocab];
    for (int64_t i = 0; i < vocab; ++i) {
      logits[i] = spread * normal(random);
      // Ties, as logits of 16-bit models have them.
      if (row % 3 == 0) logits[i] = std::round(logits[i] * 8) / 8;
      if (row % 7 == 3 && random() % 2 == 0) logits[i] = -INFINITY;
    }
    if (row % 29 == 5) logits[random() % vocab] = NAN;
    if (row % 29 == 6) logits[random() % vocab] = INFINITY;
    if (row % 29 == 7) std::fill(logits, logits + vocab, -INFINITY);
    SamplingParams p;
    p.temperature = pick({0.0f, 0.3f, 0.7f, 1.0f, 1.0f, 2.5f});
    p.top_p = pick({1.0f, 1.0f, 0.9f, 0.95f, 0.5f, 0.01f});
    p.top_k = static_cast<int>(pick({0, 0, 1, 2, 40, 1000, 1e6f}));
    p.min_p = pick({0.0f, 0.0f, 0.05f, 0.5f, 1.0f});
    p.seed = (uint64_t{random()} << 32) | random();
    p.logprobs = static_cast<int>(pick({0, 1, 5, 20, 64}));
    if (row % 4 == 1) {
      p.repetition_penalty = 1.3f;
      p.frequency_penalty = 0.4f;
      p.presence_penalty = -0.7f;
    }
    if (row % 5 == 2) {
      p.logit_bias = {{static_cast<int32_t>(random() % (vocab / 2)), 4.5f},
                      {static_cast<int32_t>(vocab / 2 + random() % (vocab / 2)), -30.0f}};
      p.min_tokens = 9;
    }
    std::vector<int32_t> prompt(20), eos = {static_cast<int32_t>(random() % vocab)};
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % vocab);
    step.params.push_back(p);
    step.states.emplace_back(p, prompt, eos, vocab);
    for (int i = 0; i < 6; ++i) step.states.back().append(prompt[i % 4]);
    if (row % 6 == 4) {
      step.allowed[row].resize((vocab + 31) / 32);
      for (uint32_t& word : step.allowed[row]) word = random() & random();
    }
  }
  return step;
}

std::vector<LogitEdit> edits_of(const SamplingState& state) {
  std::vector<LogitEdit> edits;
  const auto edit_of = [&](int32_t id) -> LogitEdit& {
    for (LogitEdit& edit : edits) {
      if (edit.token_id == id) return edit;
    }
    edits.push_back({});
    edits.back().token_id = id;
    return edits.back();
  };
  for (int32_t id : state.forbidden_token_ids()) edit_of(id).is_forbidden = true;
  for (const auto& [id, bias] : state.params().logit_bias) edit_of(id).bias += bias;
  for (const SamplingState::SeenToken& seen : state.seen_tokens()) {
    LogitEdit& edit = edit_of(seen.token_id);
    edit.is_seen = true;
    edit.num_generated = seen.num_generated;
  }
  return edits;
}

struct DeviceStep {
  Buffer logits, rows, edits, allowed, ids;
  SampleRowsLaunch launch;

  static std::vector<LogitEdit> all_edits(const Step& step, std::vector<SampleRowParams>& rows) {
    std::vector<LogitEdit> all;
    int32_t masks = 0;
    for (size_t i = 0; i < step.params.size(); ++i) {
      const SamplingParams& p = step.params[i];
      SampleRowParams row;
      row.seed = *p.seed;
      row.position = step.states[i].num_generated();
      row.vocab_size = static_cast<int32_t>(step.vocab);
      row.temperature = p.temperature;
      row.inverse_temperature = 1.0f / p.temperature;
      row.min_p_offset = p.min_p > 0.0f ? p.temperature * std::log(p.min_p) : -INFINITY;
      row.top_p = p.top_p;
      row.top_k = p.top_k;
      row.repetition_penalty = p.repetition_penalty;
      row.frequency_penalty = p.frequency_penalty;
      row.presence_penalty = p.presence_penalty;
      const auto edits = edits_of(step.states[i]);
      row.first_edit = static_cast<int32_t>(all.size());
      row.num_edits = static_cast<int32_t>(edits.size());
      all.insert(all.end(), edits.begin(), edits.end());
      if (!step.allowed[i].empty()) row.allowed_row = masks++;
      rows.push_back(row);
    }
    all.push_back({});
    return all;
  }

  explicit DeviceStep(const Step& step, std::vector<SampleRowParams> host_rows = {})
      : logits(step.logits.size() * 4),
        rows(step.params.size() * sizeof(SampleRowParams)),
        edits(all_edits(step, host_rows).size() * sizeof(LogitEdit)),
        allowed((step.vocab + 31) / 32 * 4 * (step.params.size() + 1)),
        ids(step.params.size() * 4) {
    host_rows.clear();
    edits.upload(all_edits(step, host_rows));
    logits.upload(step.logits);
    rows.upload(host_rows);
    std::vector<uint32_t> masks;
    for (const auto& mask : step.allowed) masks.insert(masks.end(), mask.begin(), mask.end());
    if (!masks.empty()) allowed.upload(masks);
    launch.logits = logits.data<float>();
    launch.rows = rows.data<SampleRowParams>();
    launch.edits = edits.data<LogitEdit>();
    launch.allowed = allowed.data<uint32_t>();
    launch.token_ids = ids.data<int32_t>();
    launch.logits_stride = step.vocab;
    launch.allowed_stride = (step.vocab + 31) / 32;
    launch.num_rows = static_cast<int32_t>(step.params.size());
    launch.overlaps_previous = true;
  }
};

struct CpuChoice {
  int32_t token_id;
  double border_gap;  // of top_p: how near the wanted mass comes to a token's border, of the total
};

CpuChoice choose_on_cpu(const Step& step, size_t index, std::vector<float>& edited) {
  const SamplingState& state = step.states[index];
  const SamplingParams& params = step.params[index];
  const float* logits = &step.logits[index * step.vocab];
  edited.assign(logits, logits + step.vocab);
  const TokenBitmask mask = step.allowed[index].empty() ? nullptr : step.allowed[index].data();
  edit_logits(state, mask, edited.data());
  RowScratch scratch;
  const LogitsRow row = scan_row(edited.data(), step.vocab, scratch);
  if (row.fault == RowFault::kNotANumber) return {kTokenNotANumber, 1};
  if (row.fault == RowFault::kNoCandidate) return {kTokenNoCandidate, 1};
  if (params.temperature < 1e-5f) return {best_token(row), 1};
  const Cut cut = choose_cut(row, params, scratch);
  const auto token = row_kernels().draw({.logits = row.logits,
                                         .block_max = row.block_max,
                                         .vocab_size = row.vocab_size,
                                         .max = row.max,
                                         .inverse_temperature = 1.0f / params.temperature,
                                         .cut_logit = cut.logit,
                                         .cut_token_id = cut.token_id,
                                         .seed = *params.seed,
                                         .position = state.num_generated()});
  if (params.top_p >= 1.0f) return {static_cast<int32_t>(token), 1};
  SamplingParams without = params;
  without.top_p = 1.0f;
  const Cut outer = choose_cut(row, without, scratch);
  double total = 0, kept = 0, last = 0;
  for (int64_t id = 0; id < step.vocab; ++id) {
    const float x = edited[id];
    if (!(x > outer.logit || (x == outer.logit && id <= outer.token_id))) continue;
    const double mass = std::exp((double{x} - double{row.max}) / params.temperature);
    total += mass;
    if (x > cut.logit || (x == cut.logit && id <= cut.token_id)) kept += mass;
    if (x == cut.logit && id == cut.token_id) last = mass;
  }
  const double wanted = double{params.top_p} * total;
  return {static_cast<int32_t>(token),
          std::min(std::fabs(kept - wanted), std::fabs(wanted - (kept - last))) / total};
}

int check_tokens(int num_rows, int64_t vocab, uint32_t seed) {
  const Step step = random_step(num_rows, vocab, seed);
  DeviceStep device(step);
  ATOM_BENCH_CHECK(launch_edit_logits(device.launch, nullptr));
  ATOM_BENCH_CHECK(launch_sample_rows(device.launch, nullptr));
  const auto ids = device.ids.download<int32_t>();
  const auto edited = device.logits.download<float>();
  int wrong = 0, borderline = 0, wrong_edits = 0;
  std::vector<float> expected_edits;
  for (int row = 0; row < num_rows; ++row) {
    const CpuChoice expected = choose_on_cpu(step, row, expected_edits);
    wrong_edits += std::memcmp(&edited[row * vocab], expected_edits.data(), vocab * 4) != 0 ? 1 : 0;
    if (ids[row] == expected.token_id) continue;
    if (expected.border_gap < 1e-7) {
      ++borderline;
    } else {
      ++wrong;
      if (wrong <= 3) {
        const SamplingParams& p = step.params[row];
        std::printf("  row %d: got %d, expected %d; t %g top_p %g top_k %d min_p %g gap %g\n",
                    row,
                    ids[row],
                    expected.token_id,
                    p.temperature,
                    p.top_p,
                    p.top_k,
                    p.min_p,
                    expected.border_gap);
      }
    }
  }
  const bool passed = wrong == 0 && wrong_edits == 0 && borderline * 100 <= num_rows;
  std::printf("sample %d rows x %ld: %s wrong %d, wrong edits %d, decided by rounding %d\n",
              num_rows,
              static_cast<long>(vocab),
              passed ? "PASS" : "FAIL",
              wrong,
              wrong_edits,
              borderline);
  return passed ? 0 : 1;
}

int check_logprobs(int num_rows, int64_t vocab) {
  const Step step = random_step(num_rows, vocab, 99);
  DeviceStep device(step);
  constexpr int kMaxBest = 20;
  std::vector<int32_t> chosen(num_rows), num_best(num_rows), vocab_sizes(num_rows, vocab);
  std::vector<Result<TokenLogprobs>> expected;
  RowScratch scratch;
  for (int row = 0; row < num_rows; ++row) {
    chosen[row] = static_cast<int32_t>((row * 7919) % vocab);
    num_best[row] = row % (kMaxBest + 1);
    expected.push_back(
        row_logprobs(&step.logits[row * vocab], vocab, chosen[row], num_best[row], scratch));
    if (!expected.back().ok()) chosen[row] = -1;
  }
  Buffer chosen_ids(num_rows * 4), best(num_rows * 4), sizes(num_rows * 4);
  Buffer ids(num_rows * (kMaxBest + 1) * 4), logprobs(ids.size()), ranks(ids.size());
  chosen_ids.upload(chosen);
  best.upload(num_best);
  sizes.upload(vocab_sizes);
  RowLogprobsLaunch p;
  p.logits = device.logits.data<float>();
  p.chosen = chosen_ids.data<int32_t>();
  p.num_best = best.data<int32_t>();
  p.vocab_sizes = sizes.data<int32_t>();
  p.token_ids = ids.data<int32_t>();
  p.logprobs = logprobs.data<float>();
  p.ranks = ranks.data<int32_t>();
  p.logits_stride = vocab;
  p.num_rows = num_rows;
  p.max_best = kMaxBest;
  ATOM_BENCH_CHECK(launch_row_logprobs(p, nullptr));
  const auto got_ids = ids.download<int32_t>(), got_ranks = ranks.download<int32_t>();
  const auto got = logprobs.download<float>();
  int wrong = 0;
  double worst = 0;
  for (int row = 0; row < num_rows; ++row) {
    if (!expected[row].ok()) continue;
    const TokenLogprobs& list = expected[row].value();
    for (size_t i = 0; i < list.size(); ++i) {
      const size_t at = row * (kMaxBest + 1) + i;
      if (got_ids[at] != list[i].token_id || got_ranks[at] != list[i].rank) ++wrong;
      if (list[i].logprob == got[at]) continue;  // -inf too
      const double error = std::fabs(got[at] - list[i].logprob);
      worst = error > worst || error != error ? error : worst;
    }
  }
  const bool passed = wrong == 0 && worst < 1e-5;
  std::printf("logprobs %d rows x %ld: %s wrong %d max_err %.2e\n",
              num_rows,
              static_cast<long>(vocab),
              passed ? "PASS" : "FAIL",
              wrong,
              worst);
  return passed ? 0 : 1;
}

void time_sampling(const char* name, int num_rows, float top_p, int top_k, float spread) {
  const int64_t vocab = 128256;
  Step step;
  step.vocab = vocab;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> row(vocab);
  for (float& x : row) x = spread * normal(random);
  for (int i = 0; i < num_rows; ++i) step.logits.insert(step.logits.end(), row.begin(), row.end());
  step.allowed.resize(num_rows);
  SamplingParams p;
  p.top_p = top_p;
  p.top_k = top_k;
  for (int i = 0; i < num_rows; ++i) {
    p.seed = i;
    step.params.push_back(p);
    step.states.emplace_back(p, std::vector<int32_t>{}, std::vector<int32_t>{}, vocab);
  }
  DeviceStep device(step);
  const double us =
      time_graph([&](gpuStream_t s) { ATOM_BENCH_CHECK(launch_sample_rows(device.launch, s)); }, 9);
  std::printf("time sample %-12s %3d rows, spread %.1f: %8.2f us\n", name, num_rows, spread, us);
}

int run() {
  print_device();
  int failed = check_tokens(203, 1000, 1) + check_tokens(64, 32000, 2) +
               check_tokens(32, 128256, 3) + check_tokens(300, 77, 4) + check_logprobs(50, 128256) +
               check_logprobs(100, 333);
  for (int rows : {1, 8, 64, 256}) {
    time_sampling("plain", rows, 1.0f, 0, 3.0f);
    time_sampling("top_p", rows, 0.9f, 0, 3.0f);
    time_sampling("top_k", rows, 1.0f, 50, 3.0f);
    time_sampling("both", rows, 0.9f, 50, 3.0f);
    time_sampling("plain flat", rows, 1.0f, 0, 0.1f);
  }
  std::printf("sampling_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main() {
  return atom::bench::run();
}
