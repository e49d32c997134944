// What the grammars of 64 sequences take in a step, by kind of grammar: the masks, filled by one
// thread and by as many as the machine has, and the tokens that have come. Each step's token is
// drawn from those that may come. $ATOM_BENCH_TOKENIZER: a folder with a tokenizer (tokenizer.json,
// or a released tiktoken.model); without it the demo model's.
#include <benchmark/benchmark.h>

#include <time.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/check.h"

#include "runner/grammar_masks.h"
#include "structured_output/grammar_compiler.h"
#include "structured_output/structural_tag.h"
#include "tests/support/test_folders.h"
#include "tokenizer/tokenizer.h"

namespace atom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kNumSequences = 64;
constexpr size_t kAnswerTokens = 200;
constexpr const char* kSchema = R"({"type": "array", "minItems": 300, "items": {
    "type": "object", "required": ["name", "n", "ok", "tags"], "properties": {
        "name": {"type": "string"}, "n": {"type": "integer"}, "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}}}}})";

const Tokenizer& tokenizer() {
  static const std::shared_ptr<const Tokenizer> loaded = [] {
    const char* folder = std::getenv("ATOM_BENCH_TOKENIZER");
    return Tokenizer::load(folder == nullptr ? demo_model_folder() : folder).value();
  }();
  return *loaded;
}

std::shared_ptr<const CompiledGrammar> compile(const OrderedJson& format) {
  static const std::unique_ptr<GrammarCompiler> compiler = [] {
    const int32_t ends[] = {tokenizer().vocab_size() - 1};
    return GrammarCompiler::create(tokenizer(), tokenizer().vocab_size(), ends).value();
  }();
  return compiler->compile(structural_tag_text(format, "bench").value()).value();
}

// One of the tokens that may come, each as likely.
int32_t draw(const GrammarMasks& masks, size_t index, std::mt19937& random) {
  const uint32_t* words = masks.allowed(index)[0];
  const int32_t vocab_size = tokenizer().vocab_size();
  std::uniform_int_distribution<int32_t> any(0, vocab_size - 1);
  for (int32_t id = any(random);; id = (id + 1) % vocab_size) {
    if (words == nullptr || ((words[id / 32] >> (id % 32)) & 1) != 0) return id;
  }
}

// The whole process's CPU time, which others on the machine disturb least.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Answers {
 public:
  explicit Answers(std::shared_ptr<const CompiledGrammar> grammar) : grammar_(std::move(grammar)) {
    restart();
  }

  void restart() {
    states_.clear();
    for (size_t i = 0; i < kNumSequences; ++i) states_.emplace_back(grammar_, ReasoningMarks());
    for (size_t i = 0; i < kNumSequences; ++i) sequences_[i].grammar = &states_[i];
  }

  void fill(ThreadPool& pool) { masks_.fill(pool, sequences_); }

  void draw_tokens() {
    taken_.clear();
    for (size_t i = 0; i < kNumSequences; ++i) {
      tokens_[i].token_id = draw(masks_, i, random_);
      taken_.push_back({&states_[i], std::span(tokens_).subspan(i, 1)});
    }
  }

  void accept(ThreadPool& pool) {
    accept_tokens(pool, taken_);
    for (const SampledToken& token : tokens_) CHECK(token.status.ok());
  }

 private:
  const std::shared_ptr<const CompiledGrammar> grammar_;
  std::mt19937 random_{1};
  std::vector<GrammarState> states_;
  std::vector<GrammarMasks::Sequence> sequences_{kNumSequences};
  std::vector<SampledToken> tokens_{kNumSequences};
  std::vector<GrammarTokens> taken_;
  GrammarMasks masks_;
};

void run(benchmark::State& bench, const OrderedJson& format) {
  Answers answers(compile(format));
  ThreadPool pool(static_cast<int>(bench.range(0)));
  double accepting = 0;
  double busy = 0;
  size_t num_steps = 0;
  for (auto _ : bench) {
    if (++num_steps % kAnswerTokens == 0) answers.restart();
    const double begin_busy = cpu_seconds();
    const Clock::time_point begin = Clock::now();
    answers.fill(pool);
    bench.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
    busy += cpu_seconds() - begin_busy;
    answers.draw_tokens();
    const double begin_accepting = cpu_seconds();
    answers.accept(pool);
    accepting += cpu_seconds() - begin_accepting;
  }
  using benchmark::Counter;
  bench.counters["fill_cpu_us"] = Counter(busy * 1e6, Counter::kAvgIterations);
  bench.counters["accept_cpu_us"] = Counter(accepting * 1e6, Counter::kAvgIterations);
}

void schema(benchmark::State& bench) {
  run(bench, json_schema_format(OrderedJson::parse(kSchema), "schema").value());
}

void text_of_classes(benchmark::State& bench) {
  run(bench, regex_format("[a-z ]{400}", "regex").value());
}

void alternatives(benchmark::State& bench) {
  run(bench, regex_format("([a-z]|[0-9]| ){400}", "regex").value());
}

void threads(benchmark::internal::Benchmark* bench) {
  bench->Arg(1)->UseManualTime()->Unit(benchmark::kMicrosecond);
  const auto all = static_cast<int64_t>(std::thread::hardware_concurrency());
  if (all > 1) bench->Arg(all);
}

BENCHMARK(schema)->Apply(threads);
BENCHMARK(text_of_classes)->Apply(threads);
BENCHMARK(alternatives)->Apply(threads);

}  // namespace
}  // namespace atom
