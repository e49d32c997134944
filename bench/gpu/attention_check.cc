// Compares the attention kernels with float64 on random batches, and a query's bits alone, in a
// shorter chunk and in the batch with each other.
#include <algorithm>
#include <cstdio>
#include <random>

#include "attention_bench.h"
#include "attention_case.h"
#include "ops/attention/decode/decode_cuda.h"
#include "ops/attention/prefill/prefill_cuda.h"
#include "ops/attention/prefill/prefill_sm90.h"

namespace atom::bench {
namespace {

using ops::AttentionArgs;

// Relative error of one token and head: rounding of the weights and of the result.
double tolerance(Element element) {
  return element == Element::kBFloat16 ? 6e-3 : 1e-3;
}

// The last two have no room, or not enough, for copies of an FP8 cache.
enum class Variant { kDecode, kPrefillCuda, kPrefillSm90, kPrefillSm90Direct, kPrefillSm90Part };
constexpr Variant kVariants[] = {Variant::kDecode,
                                 Variant::kPrefillCuda,
                                 Variant::kPrefillSm90,
                                 Variant::kPrefillSm90Direct,
                                 Variant::kPrefillSm90Part};

const char* name_of(Variant variant) {
  switch (variant) {
    case Variant::kDecode:
      return "decode";
    case Variant::kPrefillCuda:
      return "prefill_cuda";
    case Variant::kPrefillSm90:
      return "prefill_sm90";
    case Variant::kPrefillSm90Direct:
      return "direct";
    case Variant::kPrefillSm90Part:
      return "part";
  }
  return "";
}

bool supports(Variant variant, const AttentionArgs& params) {
  if (variant == Variant::kDecode) {
    return ops::supports_attention_decode_cuda(params);
  }
  if (variant == Variant::kPrefillCuda) {
    return ops::supports_attention_prefill_cuda(params);
  }
  return ops::supports_attention_prefill_sm90(params) &&
         (variant == Variant::kPrefillSm90 ||
          ops::attention_prefill_sm90_workspace_size(params) > 0);
}

// Runs a variant; `min_queries` is of the prefill ones.
class Launcher {
 public:
  Launcher() : workspace_(size_t{256} << 20), counters_(size_t{1} << 20) {
    check_gpu(ATOM_GPU(Memset)(counters_.get(), 0, counters_.size()), "clear");
  }

  void run(Variant variant, const AttentionArgs& params, int min_queries) {
    gpuError_t error = ATOM_GPU(Success);
    auto* counters = static_cast<int32_t*>(counters_.get());
    if (variant == Variant::kDecode) {
      // In which a row's bits do not depend on the batch; attention_decode_bench has the others.
      const ops::AttentionDecodeTuning tuning = {.fixed_splits = true};
      if (ops::attention_decode_workspace_size(params, tuning) > workspace_.size() ||
          ops::attention_decode_num_counters(params) * 4 > counters_.size()) {
        check_gpu(cudaErrorMemoryAllocation, "workspace");
      }
      error =
          ops::launch_attention_decode_cuda(params, workspace_.get(), counters, nullptr, tuning);
    } else if (variant == Variant::kPrefillCuda) {
      error = ops::launch_attention_prefill_cuda(params, min_queries, counters, nullptr);
    } else {
      const size_t full = ops::attention_prefill_sm90_workspace_size(params);
      const size_t size = variant == Variant::kPrefillSm90       ? full
                          : variant == Variant::kPrefillSm90Part ? full * 5 / 8
                                                                 : 0;
      if (size > workspace_.size()) {
        check_gpu(cudaErrorMemoryAllocation, "workspace");
      }
      // What a launch finds there may be anything.
      check_gpu(ATOM_GPU(Memset)(workspace_.get(), 0xff, size), "poison");
      error = ops::launch_attention_prefill_sm90(
          params, min_queries, workspace_.get(), size, counters, nullptr);
    }
    check_gpu(error, name_of(variant));
    check_gpu(ATOM_GPU(DeviceSynchronize)(), name_of(variant));
  }

 private:
  DeviceBuffer workspace_;
  DeviceBuffer counters_;
};

struct Outcome {
  double error = 0;
  int wrong_poison = 0;    // rows written that should not be, or the reverse
  int different_bits = 0;  // rows
};

bool same_row(const AttentionProblem& problem,
              const std::vector<uint16_t>& a,
              const std::vector<uint16_t>& b,
              int token) {
  const int64_t begin = token * problem.row_size();
  return std::equal(a.begin() + begin, a.begin() + begin + problem.row_size(), b.begin() + begin);
}

Outcome check(Launcher& launcher, AttentionProblem& problem, Variant variant, int min_queries) {
  Outcome outcome;
  if (variant == Variant::kPrefillSm90Direct || variant == Variant::kPrefillSm90Part) {
    problem.poison();
    launcher.run(Variant::kPrefillSm90, problem.params(), min_queries);
  }
  const std::vector<uint16_t> expanded = problem.read_out();
  problem.poison();
  launcher.run(variant, problem.params(), min_queries);
  const std::vector<uint16_t> out = problem.read_out();
  const auto& sequences = problem.shape().sequences;
  const auto takes = [&](int num_queries, int seq_len) {
    return seq_len > 0 &&
           (variant == Variant::kDecode ? num_queries == 1 : num_queries >= min_queries);
  };
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (int j = 0; j < sequences[s].num_queries; ++j) {
      const int token = problem.first_token(s) + j;
      const bool poisoned = problem.is_poisoned(out, token);
      if (poisoned == takes(sequences[s].num_queries, sequences[s].seq_len)) {
        ++outcome.wrong_poison;
      } else if (!poisoned) {
        outcome.error = std::max(outcome.error, problem.error_of(out, token));
      }
    }
  }
  // The same bits again, alone, and with fewer queries.
  problem.poison();
  launcher.run(variant, problem.params(), min_queries);
  const std::vector<uint16_t> again = problem.read_out();
  for (size_t token = 0; token < out.size() / problem.row_size(); ++token) {
    outcome.different_bits += !same_row(problem, out, again, token);
    if (variant == Variant::kPrefillSm90Direct || variant == Variant::kPrefillSm90Part) {
      outcome.different_bits += !same_row(problem, out, expanded, token);
    }
  }
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int num_queries = sequences[s].num_queries;
    if (!takes(num_queries, sequences[s].seq_len)) {
      continue;
    }
    for (int part : {num_queries, (num_queries + 2) / 3, 1}) {
      if (!takes(part, sequences[s].seq_len)) {
        continue;
      }
      problem.poison();
      launcher.run(variant, problem.last_queries(s, part), min_queries);
      const std::vector<uint16_t> alone = problem.read_out();
      for (int j = num_queries - part; j < num_queries; ++j) {
        outcome.different_bits += !same_row(problem, out, alone, problem.first_token(s) + j);
      }
    }
  }
  return outcome;
}

std::vector<SequenceShape> random_sequences(uint32_t seed, int count, int max_len, bool singles) {
  std::mt19937 random(seed);
  std::vector<SequenceShape> sequences;
  for (int i = 0; i < count; ++i) {
    const int seq_len = 1 + random() % max_len;
    const int kind = singles ? 0 : random() % 4;
    const int num_queries = kind == 0   ? 1
                            : kind == 1 ? seq_len
                                        : 1 + static_cast<int>(random() % seq_len);
    sequences.push_back({std::min(num_queries, 400), seq_len});
    if (random() % 5 == 0) {
      sequences.push_back({1, 0});
    }
  }
  return sequences;
}

// Long contexts, wide groups, and FP8 in many blocks.
void add_special_cases(std::vector<AttentionCase>* cases) {
  AttentionCase shape;
  shape.name = "long";
  shape.num_heads = 4;
  shape.num_kv_heads = 1;
  shape.sinks = true;
  shape.sequences = {{1, 30001}, {1, 9000}, {150, 4000}, {1, 0}, {129, 129}, {128, 128}, {1, 1}};
  cases->push_back(shape);
  shape.name = "long window 5000 block 128";
  shape.sliding_window = 5000;
  shape.block_size = 128;
  cases->push_back(shape);
  shape.name = "group 1";
  shape.sliding_window = 0;
  shape.block_size = 16;
  shape.num_kv_heads = 4;
  shape.sequences = random_sequences(9, 10, 600, false);
  cases->push_back(shape);
  shape.name = "fp8 in many blocks";
  shape.kv_element = Element::kFloat8E4M3;
  shape.sequences = {{300, 3000}, {1, 2500}, {2, 700}, {200, 1000}, {1, 0}, {40, 40}, {150, 4100}};
  cases->push_back(shape);
  shape.kv_element = Element::kBFloat16;
  shape.name = "group 40";
  shape.num_heads = 40;
  shape.num_kv_heads = 1;
  shape.sequences = random_sequences(10, 6, 300, false);
  cases->push_back(shape);
}

std::vector<AttentionCase> make_cases() {
  constexpr Element kHalf = Element::kFloat16;
  constexpr Element kBf16 = Element::kBFloat16;
  constexpr Element kFp8 = Element::kFloat8E4M3;
  std::vector<AttentionCase> cases;
  for (int head_dim : {64, 128, 256}) {
    for (Element element : {kBf16, kHalf}) {
      for (bool fp8 : {false, true}) {
        AttentionCase shape;
        shape.element = element;
        shape.kv_element = fp8 ? kFp8 : element;
        shape.head_dim = head_dim;
        shape.name = std::string(element == kBf16 ? "bf16" : "fp16") + (fp8 ? "/fp8" : "") + " d" +
                     std::to_string(head_dim);
        shape.sequences = random_sequences(head_dim, 6, 500, false);
        cases.push_back(shape);
        shape.name += " window sinks group 8";
        shape.sliding_window = head_dim == 64 ? 100 : 33;
        shape.sinks = true;
        shape.num_heads = 8;
        shape.num_kv_heads = 1;
        shape.block_size = 32;
        shape.sequences = random_sequences(head_dim + 1, 6, 700, false);
        cases.push_back(shape);
        shape.name = cases[cases.size() - 2].name + " singles group 12";
        shape.sliding_window = 0;
        shape.num_heads = 24;
        shape.num_kv_heads = 2;
        shape.block_size = 64;
        shape.sequences = random_sequences(head_dim + 2, 40, 1500, true);
        cases.push_back(shape);
      }
    }
  }
  add_special_cases(&cases);
  std::stable_partition(
      cases.begin(), cases.end(), [](const AttentionCase& a) { return a.kv_element == a.element; });
  return cases;
}

}  // namespace

int check_attention() {
  Launcher launcher;
  int failures = 0;
  uint32_t seed = 1;
  for (const AttentionCase& shape : make_cases()) {
    AttentionProblem problem(shape, ++seed);
    std::printf("%-36s", shape.name.c_str());
    for (Variant variant : kVariants) {
      if (!supports(variant, problem.params())) {
        continue;
      }
      for (int min_queries : {1, 2}) {
        if (variant == Variant::kDecode && min_queries == 2) {
          continue;
        }
        const Outcome outcome = check(launcher, problem, variant, min_queries);
        const bool passed = outcome.error <= tolerance(shape.element) &&
                            outcome.wrong_poison == 0 && outcome.different_bits == 0;
        failures += !passed;
        if (min_queries == 1 || !passed) {
          std::printf(" | %s: %s %.1e", name_of(variant), passed ? "PASS" : "FAIL", outcome.error);
        }
        if (!passed) {
          std::printf(" rows not as they should be %d, other bits %d (min %d)",
                      outcome.wrong_poison,
                      outcome.different_bits,
                      min_queries);
        }
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("check: %d failures\n", failures);
  return failures;
}

}  // namespace atom::bench
