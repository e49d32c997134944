// Compares the decode attention kernel with float64 on random batches of single queries, for
// several ways of dividing the work.
#include <algorithm>
#include <cstdio>
#include <random>

#include "attention_case.h"
#include "attention_decode_bench.h"
#include "ops/attention/decode/decode_cuda.h"

namespace atom::bench {
namespace {

using ops::AttentionArgs;
using ops::AttentionDecodeTuning;

struct Way {
  const char* name;
  AttentionDecodeTuning tuning;
};

// Few blocks make long shares of many rows, many blocks make many parts of a row.
constexpr Way kWays[] = {
    {"default", {}},
    {"parts 1", {.max_parts = 1}},
    {"parts 64", {.max_parts = 64}},
    {"parts 1000", {.max_parts = 1000}},
    {"blocks 1", {.max_blocks = 1}},
    {"blocks 5", {.max_parts = 2, .max_blocks = 5}},
    {"blocks 5, parts 50", {.max_parts = 50, .max_blocks = 5}},
    {"blocks 300", {.max_parts = 1000, .max_blocks = 300}},
    {"no overlap", {.overlaps_previous = false}},
    {"no clusters", {.max_cluster = 1}},
    {"clusters of 2", {.max_cluster = 2}},
    {"shares", {.even_splits = false}},
    {"1 item", {.max_even_teams = 1, .shares_tiles = 1 << 20}},
    {"2 items", {.max_even_teams = 2, .shares_tiles = 1 << 20}},
    {"items, blocks 9", {.max_blocks = 9, .shares_tiles = 1 << 20}},
    {"blocks 20", {.max_blocks = 20}},
    {"fixed", {.fixed_splits = true}},
    {"fixed, block 1", {.fixed_splits = true, .max_blocks = 1}},
};

// Relative error of one token and head: rounding of the weights and of the result.
double tolerance(Element element) {
  return element == Element::kBFloat16 ? 6e-3 : 1e-3;
}

class Launcher {
 public:
  Launcher() : workspace_(size_t{256} << 20), counters_(size_t{1} << 20) {
    check_gpu(ATOM_GPU(Memset)(counters_.get(), 0, counters_.size()), "clear");
  }

  void run(const AttentionDecodeTuning& tuning, const AttentionArgs& params) {
    if (ops::attention_decode_workspace_size(params, tuning) > workspace_.size() ||
        ops::attention_decode_num_counters(params) * 4 > counters_.size()) {
      check_gpu(cudaErrorMemoryAllocation, "workspace");
    }
    // What an earlier launch left must not matter.
    check_gpu(ATOM_GPU(Memset)(workspace_.get(), 0xff, size_t{32} << 20), "poison");
    check_gpu(
        ops::launch_attention_decode_cuda(
            params, workspace_.get(), static_cast<int32_t*>(counters_.get()), nullptr, tuning),
        "decode");
    check_gpu(ATOM_GPU(DeviceSynchronize)(), "decode");
  }

  bool counters_are_zero() const {
    std::vector<int32_t> host(counters_.size() / 4);
    check_gpu(
        ATOM_GPU(Memcpy)(host.data(), counters_.get(), counters_.size(), cudaMemcpyDeviceToHost),
        "read");
    return std::all_of(host.begin(), host.end(), [](int32_t count) { return count == 0; });
  }

 private:
  DeviceBuffer workspace_;
  DeviceBuffer counters_;
};

struct Outcome {
  int computed = 0;  // rows
  double error = 0;
  int wrong_poison = 0;    // rows written that should not be, or the reverse
  int different_bits = 0;  // rows

  bool passed(Element element) const {
    return error <= tolerance(element) && wrong_poison == 0 && different_bits == 0;
  }
};

bool same_row(const AttentionProblem& problem,
              const std::vector<uint16_t>& a,
              const std::vector<uint16_t>& b,
              int token) {
  const int64_t begin = token * problem.row_size();
  return std::equal(a.begin() + begin, a.begin() + begin + problem.row_size(), b.begin() + begin);
}

Outcome check(Launcher& launcher, AttentionProblem& problem, const AttentionDecodeTuning& tuning) {
  Outcome outcome;
  problem.poison();
  launcher.run(tuning, problem.params());
  const std::vector<uint16_t> out = problem.read_out();
  problem.poison();
  launcher.run(tuning, problem.params());
  const std::vector<uint16_t> again = problem.read_out();
  const auto& sequences = problem.shape().sequences;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const bool is_row = sequences[s].num_queries == 1 && sequences[s].seq_len > 0;
    for (int j = 0; j < sequences[s].num_queries; ++j) {
      const int token = problem.first_token(s) + j;
      outcome.different_bits += !same_row(problem, out, again, token);
      if (problem.is_poisoned(out, token) == is_row) {
        ++outcome.wrong_poison;
      } else if (is_row) {
        ++outcome.computed;
        outcome.error = std::max(outcome.error, problem.error_of(out, token));
      }
    }
    // Fixed splits: the same bits alone.
    if (is_row && tuning.fixed_splits && s < 6) {
      problem.poison();
      launcher.run(tuning, problem.last_queries(s, 1));
      outcome.different_bits += !same_row(problem, out, problem.read_out(), problem.first_token(s));
    }
  }
  return outcome;
}

// Of any lengths, with rows of padding; or chunks among them.
std::vector<SequenceShape> random_rows(uint32_t seed, int count, int max_len, bool chunks) {
  std::mt19937 random(seed);
  std::vector<SequenceShape> rows;
  for (int i = 0; i < count; ++i) {
    const int seq_len = 1 + static_cast<int>(random() % max_len);
    const bool is_chunk = chunks && random() % 3 == 0;
    rows.push_back(
        {is_chunk ? std::min(seq_len, 2 + static_cast<int>(random() % 20)) : 1, seq_len});
    if (random() % 5 == 0) {
      rows.push_back({1, 0});
    }
  }
  return rows;
}

void add_cases_of(std::vector<AttentionCase>& cases, AttentionCase shape) {
  const std::string name = shape.name;
  const int d = shape.head_dim;
  const auto add = [&](const char* what, int num_heads, int num_kv_heads) {
    shape.name = name + what;
    shape.num_heads = num_heads;
    shape.num_kv_heads = num_kv_heads;
    cases.push_back(shape);
  };
  shape.sequences = random_rows(d, 8, 400, true);
  add(" group 4 x 8", 32, 8);
  shape.block_size = 32;
  shape.sliding_window = d == 64 ? 100 : 33;
  shape.sinks = true;
  shape.sequences = random_rows(d + 1, 20, 500, false);
  add(" group 8 window sinks", 8, 1);
  shape.block_size = 64;
  shape.sliding_window = 0;
  shape.sequences = random_rows(d + 2, 20, 900, false);
  add(" group 12 x 2 sinks", 24, 2);
  shape.block_size = 16;
  shape.sinks = false;
  shape.table_width = 8192;
  shape.sequences = random_rows(d + 3, 4, 2500, false);
  add(" group 1 x 4 wide table", 4, 4);
  shape.sliding_window = 1000;
  add(" group 5 x 6 window wide table", 30, 6);
}

// Of few long rows, in so many parts that they are joined in groups.
void add_cases_in_parts(std::vector<AttentionCase>& cases, AttentionCase shape) {
  shape.num_heads = 16;
  shape.num_kv_heads = 2;
  const Element element = shape.element;
  for (const int head_dim : {64, 128, 256}) {
    shape.head_dim = head_dim;
    for (const Element kv_element : {element, Element::kFloat8E4M3}) {
      shape.kv_element = kv_element;
      const std::string kind =
          " d" + std::to_string(head_dim) + (kv_element == element ? "" : " fp8");
      shape.name = "one row of 20000" + kind;
      shape.sequences = {{1, 20000}};
      cases.push_back(shape);
      shape.name = "three rows in parts" + kind;
      shape.sequences = {{1, 9000}, {1, 9100}, {1, 8700}};
      cases.push_back(shape);
    }
  }
}

std::vector<AttentionCase> make_cases() {
  std::vector<AttentionCase> cases;
  for (int head_dim : {64, 128, 256}) {
    for (Element element : {Element::kBFloat16, Element::kFloat16}) {
      for (Element kv_element : {element, Element::kFloat8E4M3}) {
        AttentionCase shape;
        shape.element = element;
        shape.kv_element = kv_element;
        shape.head_dim = head_dim;
        shape.name = std::string(element == Element::kBFloat16 ? "bf16" : "fp16") +
                     (kv_element == element ? "" : "/fp8") + " d" + std::to_string(head_dim);
        add_cases_of(cases, shape);
      }
    }
  }
  AttentionCase shape;
  shape.name = "long";
  shape.num_heads = 4;
  shape.num_kv_heads = 1;
  shape.sinks = true;
  shape.sequences = {{1, 30001}, {1, 9000}, {1, 0}, {5, 4000}, {1, 1}, {1, 16}, {1, 17}};
  cases.push_back(shape);
  shape.name = "long window 5000 block 128";
  shape.sliding_window = 5000;
  shape.block_size = 128;
  cases.push_back(shape);
  shape.name = "one row of 8192";
  shape.sliding_window = 0;
  shape.block_size = 16;
  shape.num_heads = 32;
  shape.num_kv_heads = 8;
  shape.sequences = {{1, 8192}};
  cases.push_back(shape);
  add_cases_in_parts(cases, shape);
  shape.name = "one row of 1";
  shape.sequences = {{1, 1}};
  cases.push_back(shape);
  shape.name = "padding only";
  shape.sequences = {{1, 0}, {1, 0}};
  cases.push_back(shape);
  shape.name = "700 rows";
  shape.num_heads = 8;
  shape.num_kv_heads = 2;
  shape.sequences = random_rows(11, 600, 200, false);
  cases.push_back(shape);
  shape.name = "90 rows of 300";
  shape.num_heads = 32;
  shape.num_kv_heads = 8;
  shape.sequences.assign(90, {1, 300});
  cases.push_back(shape);
  shape.name = "group 40";
  shape.num_heads = 40;
  shape.num_kv_heads = 1;
  shape.sequences = random_rows(10, 6, 300, false);
  cases.push_back(shape);
  return cases;
}

}  // namespace

int check_decode() {
  Launcher launcher;
  int failures = 0;
  uint32_t seed = 1;
  for (const AttentionCase& shape : make_cases()) {
    AttentionProblem problem(shape, ++seed);
    std::printf("%-44s", shape.name.c_str());
    int passed = 0;
    double worst = 0;
    int rows = 0;
    for (const Way& way : kWays) {
      const Outcome outcome = check(launcher, problem, way.tuning);
      rows = outcome.computed;
      worst = std::max(worst, outcome.error);
      if (outcome.passed(shape.element)) {
        ++passed;
        continue;
      }
      ++failures;
      std::printf(" | %s: FAIL %.1e, rows not as they should be %d, other bits %d",
                  way.name,
                  outcome.error,
                  outcome.wrong_poison,
                  outcome.different_bits);
    }
    std::printf(" %d ways pass, %d rows, worst %.1e\n", passed, rows, worst);
    std::fflush(stdout);
  }
  if (!launcher.counters_are_zero()) {
    ++failures;
    std::printf("counters are not zero\n");
  }
  std::printf("check: %d failures\n", failures);
  return failures;
}

}  // namespace atom::bench
