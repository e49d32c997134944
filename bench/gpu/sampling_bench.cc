// Times the GPU's sampler on logits of a large vocabulary, beside the greedy choice and the time to
// read the logits once.
//
// usage: sampling_bench
#include "sampling/sample_rows.h"

#include <cmath>
#include <random>

#include "harness.h"
#include "ops/argmax/argmax_kernels.h"
#include "sampling/sample_row_params.h"

namespace atom::bench {
namespace {

constexpr int64_t kVocabSize = 128256;
constexpr int kRuns = 9;

struct Case {
  const char* name;
  SamplingParams params;
  int num_generated = 0;  // distinct tokens that penalties know
};

std::vector<Case> cases() {
  std::vector<Case> result;
  const auto add = [&](const char* name, auto&& change, int num_generated = 0) {
    Case& added = result.emplace_back(Case{name, {}, num_generated});
    added.params.seed = 1;
    change(added.params);
  };
  add("plain", [](SamplingParams&) {});
  add("top_p", [](SamplingParams& p) { p.top_p = 0.9f; });
  add("top_k", [](SamplingParams& p) { p.top_k = 50; });
  add("top_k+top_p", [](SamplingParams& p) {
    p.top_k = 50;
    p.top_p = 0.9f;
  });
  add("min_p", [](SamplingParams& p) { p.min_p = 0.05f; });
  add(
      "penalties", [](SamplingParams& p) { p.repetition_penalty = 1.2f; }, 1000);
  add("logprobs 5", [](SamplingParams& p) { p.logprobs = 5; });
  return result;
}

std::vector<float> random_logits(int num_rows) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> row(kVocabSize), all;
  for (float& x : row) x = std::round(3 * normal(random) * 16) / 16;
  for (int i = 0; i < num_rows; ++i) all.insert(all.end(), row.begin(), row.end());
  return all;
}

void time_case(const Case& c, int num_rows, const Buffer& logits) {
  SamplingState state(c.params, {}, {}, kVocabSize);
  for (int i = 0; i < c.num_generated; ++i) state.append(i * 101);
  std::vector<SampleRowParams> rows;
  std::vector<LogitEdit> edits;
  for (int i = 0; i < num_rows; ++i) {
    const DeviceSamplingRow row{&state, static_cast<uint32_t>(i), -1};
    rows.push_back(sample_row_params(row, &edits));
  }
  edits.emplace_back();
  Buffer row_buffer(static_cast<int64_t>(rows.size() * sizeof(SampleRowParams)));
  Buffer edit_buffer(static_cast<int64_t>(edits.size() * sizeof(LogitEdit)));
  Buffer ids(num_rows * 4);
  Buffer logprobs(int64_t{num_rows} * (1 + kMaxRowLogprobs) * int64_t{sizeof(TokenLogprob)});
  row_buffer.upload(rows);
  edit_buffer.upload(edits);
  const SampleRowsArgs args{logits.data<float>(),
                            row_buffer.data<SampleRowParams>(),
                            edit_buffer.data<LogitEdit>(),
                            ids.data<int32_t>(),
                            ids.data<int32_t>(),
                            logprobs.data<TokenLogprob>(),
                            /*masks=*/nullptr,
                            /*mask_words=*/0,
                            kVocabSize,
                            num_rows};
  const double us = time_graph([&](gpuStream_t stream) { sample_rows(args, stream); }, kRuns);
  std::printf("  %-12s %8.2f us\n", c.name, us);
}

void run() {
  const Roofs roofs = measure_roofs();
  for (const int num_rows : {1, 8, 64, 256}) {
    Buffer logits(num_rows * kVocabSize * 4);
    logits.upload(random_logits(num_rows));
    std::printf("%d rows of %ld: read once %.2f us\n",
                num_rows,
                static_cast<long>(kVocabSize),
                static_cast<double>(logits.size()) / roofs.read * 1e6);
    Buffer ids(num_rows * 4), partial(num_rows * ops::kArgmaxParts * 8);
    const ops::ArgmaxKeysArgs keys{.logits = logits.data<float>(),
                                   .keys = partial.data<uint64_t>(),
                                   .num_rows = num_rows,
                                   .num_ids = kVocabSize,
                                   .row_stride = kVocabSize,
                                   .first_id = 0};
    const ops::ArgmaxChoiceArgs choice{partial.data<uint64_t>(), ids.data<int32_t>(), num_rows, 1};
    const double us = time_graph(
        [&](gpuStream_t stream) {
          ops::argmax_keys_cuda(keys, stream);
          ops::argmax_of_keys_cuda(choice, stream);
        },
        kRuns);
    std::printf("  %-12s %8.2f us\n", "greedy", us);
    for (const Case& c : cases()) time_case(c, num_rows, logits);
  }
}

}  // namespace
}  // namespace atom::bench

int main() {
  atom::bench::run();
  return 0;
}
