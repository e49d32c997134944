#include "engine/node_follower.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "config/dp_environment.h"
#include "engine/copy_host.h"
#include "models/registry.h"
#include "runner/node_plan.h"
#include "structured_output/grammar_compiler.h"
#include "tokenizer/tokenizer.h"

namespace atom {
namespace {

using std::chrono::milliseconds;

// Between two groups. The head needs a moment to see that the last one is over, too.
constexpr milliseconds kFirstPause{200};
constexpr milliseconds kLastPause{5'000};

std::string tokenizer_of(const ModelSourceConfig& source) {
  return source.tokenizer.empty() ? source.model : source.tokenizer;
}

// Compiles the grammars of new sequences, which the head has compiled already.
class StepGrammars {
 public:
  StepGrammars(const ResolvedConfig& config, int64_t num_sampled_ids)
      : config_(config), num_sampled_ids_(num_sampled_ids) {}

  Status add(SchedulerOutput* step) {
    for (NewSequence& sequence : step->new_sequences) {
      std::string tag = std::exchange(sequence.sampling.structural_tag, {});
      if (tag.empty()) continue;
      if (compiler_ == nullptr) {
        ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                         Tokenizer::load(tokenizer_of(config_.engine.model)));
        ASSIGN_OR_RETURN(
            compiler_,
            GrammarCompiler::create(*tokenizer, num_sampled_ids_, config_.model.eos_token_ids));
      }
      ASSIGN_OR_RETURN(sequence.grammar, compiler_->compile(tag));
    }
    return {};
  }

 private:
  const ResolvedConfig& config_;
  const int64_t num_sampled_ids_;
  std::unique_ptr<GrammarCompiler> compiler_;
};

}  // namespace

NodeFollower::NodeFollower(ResolvedConfig config, int64_t num_sampled_ids)
    : config_(std::move(config)), num_sampled_ids_(num_sampled_ids) {}

Result<std::unique_ptr<NodeFollower>> NodeFollower::create(const EngineConfig& asked) {
  EngineConfig config = asked;
  RETURN_IF_ERROR(apply_dp_environment(env(), &config));
  ASSIGN_OR_RETURN(const ModelConfig model, load_model_config(config.model.model));
  ASSIGN_OR_RETURN(ResolvedConfig resolved, resolve(config, model));
  int64_t num_sampled_ids = model.vocab_size;
  if (!config.model.skip_tokenizer_init) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                     Tokenizer::load(tokenizer_of(config.model)));
    num_sampled_ids = std::min<int64_t>(num_sampled_ids, tokenizer->vocab_size());
  }
  return std::unique_ptr<NodeFollower>(new NodeFollower(std::move(resolved), num_sampled_ids));
}

Status NodeFollower::run() {
  milliseconds pause = kFirstPause;
  while (!stopping_) {
    bool joined = false;
    const Status status = run_once(&joined);
    if (stopping_) break;
    if (status.code() == StatusCode::kAborted) {
      log::info("the head has ended");
      return {};
    }
    if (!joined && status.code() != StatusCode::kUnavailable) return status;
    log::warning("{}: joining the head again", status.message());
    if (joined) pause = kFirstPause;
    for (milliseconds slept{0}; slept < pause && !stopping_; slept += kFirstPause) {
      std::this_thread::sleep_for(kFirstPause);
    }
    pause = std::min(2 * pause, kLastPause);
  }
  return {};
}

Status NodeFollower::run_once(bool* joined) {
  const NodesConfig& nodes = config_.engine.nodes;
  log::info("joining the head at {} port {}", nodes.master_address, nodes.master_port);
  ASSIGN_OR_RETURN(const std::shared_ptr<NodeRanks> ranks,
                   make_node_ranks(config_, num_sampled_ids_, [this] { return !stopping_; }));
  publish(ranks);
  const Status status = compute(ranks, joined);
  publish(nullptr);
  return status;
}

Status NodeFollower::compute(const std::shared_ptr<NodeRanks>& ranks, bool* joined) {
  const NodesConfig& nodes = config_.engine.nodes;
  if (NodePlan(config_).leads(nodes.node_rank)) {
    log::info("node {} of {} has {} copies of the model",
              nodes.node_rank,
              nodes.num_nodes,
              ranks->num_copies());
    CopyHost host(config_, num_sampled_ids_, ranks);
    const Status status = host.run();
    *joined = host.was_ready();
    return status;
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<RunnerGroup> group,
      RunnerGroup::create_copy(config_, num_sampled_ids_, nullptr, nullptr, ranks, /*copy=*/0));
  *joined = true;
  log::info("node {} of {} computes", nodes.node_rank, nodes.num_nodes);
  StepGrammars grammars(config_, num_sampled_ids_);
  return group->follow([&](SchedulerOutput* step) { return grammars.add(step); });
}

Status NodeFollower::has_stopped() const {
  return unavailable("node {} has stopped", config_.engine.nodes.node_rank);
}

void NodeFollower::publish(std::shared_ptr<NodeRanks> ranks) {
  const MutexLock lock(&mutex_);
  ranks_ = std::move(ranks);
  if (ranks_ != nullptr && stopping_) ranks_->fail(has_stopped());
}

void NodeFollower::stop() {
  stopping_ = true;
  const MutexLock lock(&mutex_);
  if (ranks_ != nullptr) ranks_->fail(has_stopped());
}

}  // namespace atom
