// What crosses between the front end and an EngineCore, and between the nodes of one. The same
// messages travel over inproc, ipc and tcp; their encoding is fixed, capped and fuzzed
// (base/wire.h). Integers that come from outside are checked again by the core: a message is not
// trusted because it decoded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "config/sampling_params.h"
#include "engine/core_stats.h"
#include "scheduler/scheduler_output.h"
#include "scheduler/sequence.h"

namespace atom {

// ---- front end -> core -------------------------------------------------------------------------

struct AddRequest {
  SequenceId id = 0;  // chosen by the front end, unique for the life of the core
  std::vector<int32_t> prompt_token_ids;
  SamplingParams sampling;  // n == 1: the front end makes one request per answer; seed set
};

struct AbortRequests {
  std::vector<SequenceId> ids;  // unknown ids are ignored: the request may just have finished
};

struct Shutdown {};

enum class ProfileAction : uint8_t { kStart, kStop };
// Answered by a CoreProfile.
struct ControlProfile {
  ProfileAction action = ProfileAction::kStart;
};

using CoreRequest = std::variant<AddRequest, AbortRequests, Shutdown, ControlProfile>;

// ---- core -> front end -------------------------------------------------------------------------

// "stop", "length", "abort", "error"; "" while unfinished.
const char* finish_reason_name(FinishReason reason);

// What one step brought for one request.
struct RequestDelta {
  SequenceId id = 0;
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;         // one per token when asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt tokens computed by this step
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> stop_token_id;           // the token that ended it, under kStop
  int32_t num_cached_tokens = 0;                  // prompt tokens found in the prefix cache
  uint64_t queue_ns = 0;                          // from its arrival to the step that began it
  StatusCode error_code = StatusCode::kInternal;  // under kError
  std::string error;                              // under kError: why
};

struct StepOutput {
  std::vector<RequestDelta> deltas;
  CoreStats stats;
};

// How far the core's start is: bytes of weights in place, then batch sizes whose decode step is
// recorded.
enum class LoadingStage : uint8_t { kWeights, kGraphs };
struct CoreLoading {
  LoadingStage stage = LoadingStage::kWeights;
  uint64_t done = 0;
  uint64_t total = 0;
};

// The core has its weights and memory and takes requests. Bytes.
struct CoreReady {
  int64_t weights = 0;
  int64_t workspace = 0;
  int64_t kv_cache = 0;
  int32_t num_blocks = 0;
  int32_t block_size = 0;
};

// The core cannot start or cannot go on; every unfinished request of it is lost.
struct CoreFailed {
  StatusCode code = StatusCode::kInternal;
  std::string reason;
};

// Sent by the core's loop itself when it has had nothing else to say for a while: a loop that is
// stuck is silent, and a runner that is stuck makes no progress.
struct CoreHeartbeat {
  uint64_t num_ticks = 0;            // turns of the loop
  uint64_t num_steps = 0;            // steps done
  uint64_t num_steps_in_flight = 0;  // steps that the runner has been given and not finished
  uint64_t runner_progress = 0;      // grows while the runner executes a step
};

// A profile has begun; or it has ended and its file is written.
struct CoreProfile {
  ProfileAction action = ProfileAction::kStart;
  StatusCode code = StatusCode::kOk;
  std::string text;  // the file's path after kStop, or why the action failed
  uint64_t num_spans = 0;
  uint64_t num_dropped_spans = 0;
};

using CoreResponse =
    std::variant<StepOutput, CoreLoading, CoreReady, CoreFailed, CoreHeartbeat, CoreProfile>;

std::vector<uint8_t> encode(const CoreRequest& request);
std::vector<uint8_t> encode(const CoreResponse& response);
// A step, as other nodes of the engine get it; compiled grammars are left out, a request's
// structural_tag says what they were made of.
std::vector<uint8_t> encode(const SchedulerOutput& step);
Result<CoreRequest> decode_core_request(std::span<const uint8_t> bytes);
Result<CoreResponse> decode_core_response(std::span<const uint8_t> bytes);
Result<SchedulerOutput> decode_scheduler_output(std::span<const uint8_t> bytes);

}  // namespace atom
