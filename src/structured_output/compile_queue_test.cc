#include "structured_output/compile_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/support/test_folders.h"
#include "tokenizer/tokenizer.h"

namespace atom {
namespace {

Result<std::unique_ptr<GrammarCompiler>> demo_compiler() {
  const auto tokenizer = Tokenizer::load(demo_model_folder()).value();
  const int32_t ends[] = {2};
  return GrammarCompiler::create(*tokenizer, tokenizer->vocab_size(), ends);
}

std::string choice(const std::string& text) {
  return R"({"type": "structural_tag", "format": {"type": "const_string", "value": ")" + text +
         "\"}}";
}

std::vector<CompileQueue::Done> wait_for(CompileQueue* queue) {
  std::vector<CompileQueue::Done> all;
  while (queue->is_busy()) {
    for (CompileQueue::Done& done : queue->take_done()) all.push_back(std::move(done));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return all;
}

TEST(CompileQueue, EveryGrammarEndsOnce) {
  CompileQueue queue(demo_compiler, {});
  EXPECT_FALSE(queue.is_busy());
  for (uint64_t id = 0; id < 50; ++id) queue.submit(id, choice(std::to_string(id % 7)));
  queue.submit(50, "{");
  std::set<uint64_t> ids;
  for (const CompileQueue::Done& done : wait_for(&queue)) {
    EXPECT_TRUE(ids.insert(done.id).second);
    EXPECT_EQ(done.grammar.ok(), done.id != 50);
    if (!done.grammar.ok()) {
      EXPECT_EQ(done.grammar.status().code(), StatusCode::kInvalidArgument);
    }
  }
  EXPECT_EQ(ids.size(), 51u);
}

TEST(CompileQueue, AFailureOfTheCompilerIsEachGrammars) {
  const auto fail = []() -> Result<std::unique_ptr<GrammarCompiler>> {
    return not_found("no tokenizer");
  };
  CompileQueue queue(fail, {});
  queue.submit(1, choice("a"));
  queue.submit(2, choice("b"));
  for (const CompileQueue::Done& done : wait_for(&queue)) {
    EXPECT_EQ(done.grammar.status().code(), StatusCode::kNotFound);
  }
}

// Also while the compiler is made; what was compiled is found at once then.
TEST(CompileQueue, EqualGrammarsShareACompilation) {
  const auto release = std::make_shared<std::atomic<bool>>(false);
  const auto wait_then_make = [release] {
    while (!*release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return demo_compiler();
  };
  CompileQueue queue(wait_then_make, {});
  for (uint64_t id = 0; id < 8; ++id) queue.submit(id, choice(id == 5 ? "b" : "a"));
  EXPECT_EQ(queue.find(choice("a")), nullptr);
  *release = true;
  std::set<const CompiledGrammar*> grammars;
  for (const CompileQueue::Done& done : wait_for(&queue)) {
    grammars.insert(done.grammar.value().get());
    const auto found = queue.find(choice(done.id == 5 ? "b" : "a"));
    EXPECT_EQ(found, done.grammar.value());
  }
  EXPECT_EQ(grammars.size(), 2u);
  EXPECT_EQ(queue.find(choice("c")), nullptr);
}

// Those who wait for a grammar that is given up are told with it: it takes one thread, not four.
TEST(CompileQueue, EqualGrammarsAreGivenUpTogether) {
  const auto release = std::make_shared<std::atomic<bool>>(false);
  const auto block = [release]() -> Result<std::unique_ptr<GrammarCompiler>> {
    while (!*release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return not_found("released");
  };
  CompileQueue queue(
      block, {.num_threads = 1, .num_lost_threads = 2, .time = std::chrono::milliseconds(20)});
  for (uint64_t id = 0; id < 4; ++id) queue.submit(id, choice("a"));
  const std::vector<CompileQueue::Done> all = wait_for(&queue);
  EXPECT_EQ(all.size(), 4u);
  for (const CompileQueue::Done& done : all) {
    EXPECT_EQ(done.grammar.status().code(), StatusCode::kInvalidArgument);
  }
  *release = true;
}

// A thread that does not come back is given up, and others take its place.
TEST(CompileQueue, SlowGrammarsAreGivenUp) {
  const auto release = std::make_shared<std::atomic<bool>>(false);
  const auto block = [release]() -> Result<std::unique_ptr<GrammarCompiler>> {
    while (!*release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return not_found("released");
  };
  const CompileQueue::Limits limits{
      .num_threads = 1, .num_lost_threads = 2, .time = std::chrono::milliseconds(20)};
  CompileQueue queue(block, limits);
  for (uint64_t id = 0; id < 4; ++id) queue.submit(id, choice(std::to_string(id)));
  int num_late = 0;
  int num_refused = 0;
  for (const CompileQueue::Done& done : wait_for(&queue)) {
    const StatusCode code = done.grammar.status().code();
    num_late += code == StatusCode::kInvalidArgument ? 1 : 0;
    num_refused += code == StatusCode::kUnavailable ? 1 : 0;
  }
  EXPECT_EQ(num_late, 2);
  EXPECT_EQ(num_refused, 2);
  queue.submit(4, choice("a"));
  for (const CompileQueue::Done& done : queue.take_done()) {
    EXPECT_EQ(done.grammar.status().code(), StatusCode::kUnavailable);
  }
  *release = true;
}

}  // namespace
}  // namespace atom
