// One data-parallel rank: the loop thread that takes requests, schedules steps, hands them to the
// runner's thread and sends what came of them. Speaks only messages (engine/messages.h), so it runs
// as a thread of the front end's process or as a child process alike.
//
// The loop is one step ahead of the device: while step n runs, step n+1 is scheduled with the
// tokens of step n still unknown, and waits in the runner's queue when step n ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <unordered_map>
#include <zmq.hpp>

#include "config/resolve.h"
#include "engine/core_endpoints.h"
#include "engine/grammar_rests.h"
#include "engine/lockstep.h"
#include "engine/messages.h"
#include "engine/profiler.h"
#include "engine/runner_group.h"
#include "scheduler/scheduler.h"
#include "structured_output/compile_queue.h"

namespace atom {

// The place of a core among copies that are one core together.
struct CopyPlace {
  int copy = 0;                       // of those of this node
  std::shared_ptr<LocalRanks> ranks;  // of all of them
  // Of all copies, a rank each, where they share their experts; else null. Outlives the core.
  Communicator* lockstep = nullptr;
};

class EngineCore {
 public:
  // Loads the model, announces itself, then serves until Shutdown. Called on the core's own thread;
  // returns when the core has ended. False when it failed, which is reported as CoreFailed.
  static bool serve(const ResolvedConfig& config,
                    int64_t num_sampled_ids,
                    zmq::context_t& context,
                    const EngineCoreEndpoints& endpoints,
                    const CopyPlace* place = nullptr);
  // Reports a core that failed before it could serve.
  static void report_failure(zmq::context_t& context,
                             const EngineCoreEndpoints& endpoints,
                             const Status& status);
  // What is to be asked while other nodes are waited for: it says that this core lives, though
  // nothing is loaded yet, and is always true. The socket outlives it.
  static std::function<bool()> beat_while_waiting(zmq::socket_t* responses);

 private:
  using Clock = RunnerGroup::Clock;

  struct Queueing {
    Clock::time_point arrival;
    std::chrono::nanoseconds duration{0};  // 0 until the first step of the request is scheduled
  };

  EngineCore(const ResolvedConfig& config,
             int64_t num_sampled_ids,
             Profiler* profiler,
             const CopyPlace* place,
             std::unique_ptr<RunnerGroup> runner,
             zmq::socket_t requests,
             zmq::socket_t responses,
             std::chrono::milliseconds heartbeat);

  // Serves until Shutdown, which is ok, or until the ranks cannot go on.
  Status loop();
  // Takes every message that has arrived; waits for one, or for the time of a heartbeat, when there
  // is nothing else to do.
  void receive_requests();
  void handle(CoreRequest request);
  // Checks a request; one with a structural tag waits for its grammar then.
  void take(AddRequest add);
  // Schedules a request or answers why not.
  void admit(AddRequest add, Result<std::shared_ptr<const CompiledGrammar>> grammar);
  void refuse(SequenceId id, const Status& status);
  void abort(SequenceId id);
  void admit_compiled();
  void control_profile(ProfileAction action);
  void send_profile_if_written();
  void submit_steps();
  // Where copies share experts: submits a step, a dummy if this copy has nothing to compute, if any
  // of them has. False: all end now.
  Result<bool> submit_together();
  Result<StepSignals> agree(const StepSignals& own);
  SchedulerOutput schedule();
  // Says once that the batch is too large for drafts.
  void note_drafting(const SchedulerOutput& step);
  // For a request that is known to the scheduler; an unfinished one stays known.
  RequestDelta& add_delta(SequenceId id, FinishReason finish_reason);
  void collect_step();
  void note_times(const RunnerGroup::Completed& completed);
  void send_outbox();
  void send_heartbeat_if_due();
  void send(const CoreResponse& response);
  CoreStats stats() const;

  const ResolvedConfig config_;
  Profiler& profiler_;
  Scheduler scheduler_;
  std::unique_ptr<RunnerGroup> runner_;
  zmq::socket_t requests_;
  zmq::socket_t responses_;
  StepOutput outbox_;                                  // deltas not sent yet
  std::unordered_map<SequenceId, Queueing> queueing_;  // of unfinished requests
  CompileQueue compile_queue_;
  std::unordered_map<SequenceId, AddRequest> compiling_;  // requests that wait for their grammar
  const std::chrono::milliseconds heartbeat_;
  Clock::time_point heartbeat_due_;
  std::optional<Lockstep> lockstep_;  // of copies that share experts
  bool others_work_ = false;          // some of them did in the last step
  // Exchanges before this copy may sleep: a message was a call, and what it was for may have come
  // to another copy after the exchange that is on its way had begun, but not after the next one.
  int num_exchanges_due_ = 0;
  bool stopping_ = false;
  bool noted_large_batch_ = false;
  uint64_t num_ticks_ = 0;
  CoreStats counted_;  // what this object counts; stats() adds what others do
  GrammarRests grammar_rests_;
  bool was_idle_ = true;  // since the last step
};

}  // namespace atom
