// Compiles grammars on threads of its own, for a loop that must not wait. A grammar that takes
// longer than the limit is given up: its requester is told, its thread ends when XGrammar returns,
// and another one takes its place as long as not too many are lost in this way. Requests for the
// same grammar share one compilation. One thread uses it; it may go while threads still compile.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "structured_output/compiled_grammar.h"
#include "structured_output/grammar_compiler.h"

namespace atom {

class CompileQueue {
 public:
  using MakeCompiler = std::function<Result<std::unique_ptr<GrammarCompiler>>()>;
  struct Limits {
    int num_threads = 2;
    int num_lost_threads = 4;
    std::chrono::milliseconds time{20'000};  // of one grammar
  };

  // `make_compiler` runs once, on a thread of the queue, when the first grammar comes.
  CompileQueue(MakeCompiler make_compiler, const Limits& limits);
  ~CompileQueue();

  // A grammar that was compiled lately, else null. Does not wait.
  std::shared_ptr<const CompiledGrammar> find(const std::string& structural_tag);

  // `id` names the grammar in what take_done() gives.
  void submit(uint64_t id, std::string structural_tag);
  struct Done {
    uint64_t id = 0;
    Result<std::shared_ptr<const CompiledGrammar>> grammar;
  };
  // Those that have ended since the last call, with success or without.
  std::vector<Done> take_done();
  // Some that were submitted have not ended.
  bool is_busy() const { return num_unfinished_ > 0; }

 private:
  struct Shared;
  void start_threads();

  const Limits limits_;
  const std::shared_ptr<Shared> shared_;
  size_t num_unfinished_ = 0;
  int num_threads_ = 0;  // started and not lost
};

}  // namespace atom
