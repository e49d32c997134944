// An engine core that computes nothing: every step brings one token for each request. In the place
// of the engine's process it shows what the front end can do (frontend_server.cc).
#include <fmt/core.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "base/child_process.h"
#include "engine/core_arguments.h"
#include "engine/messages.h"
#include "engine/zmq_frames.h"

namespace atom {
namespace {

constexpr int32_t kFirstToken = 300;  // ordinary text in the demo model's vocabulary
constexpr int32_t kNumTokens = 1000;
constexpr std::chrono::milliseconds kHeartbeat{10};

class StubCore {
 public:
  StubCore(zmq::context_t& context, const EngineCoreEndpoints& endpoints)
      : requests_(
            connect(context, zmq::socket_type::dealer, endpoints.requests, endpoints.identity)),
        responses_(connect(context, zmq::socket_type::push, endpoints.responses)) {}

  void serve() {
    CoreReady ready;
    ready.num_blocks = 1 << 20;
    ready.block_size = 16;
    send(ready);
    while (!stopping_) {
      receive();
      step();
    }
  }

 private:
  struct Request {
    int32_t num_left = 0;
    int32_t next_token = 0;
  };

  void receive() {
    auto timeout = running_.empty() ? kHeartbeat : std::chrono::milliseconds(0);
    while (const auto frame = receive_frame(requests_, timeout)) {
      const Result<CoreRequest> request = decode_core_request(*frame);
      CHECK(request.ok());
      handle(*request);
      timeout = std::chrono::milliseconds(0);
    }
  }

  void handle(const CoreRequest& request) {
    if (const auto* add = std::get_if<AddRequest>(&request)) {
      running_[add->id] = {add->sampling.max_tokens, static_cast<int32_t>(add->id % kNumTokens)};
    } else if (const auto* abort = std::get_if<AbortRequests>(&request)) {
      for (const SequenceId id : abort->ids) running_.erase(id);
    } else {
      stopping_ = true;
    }
  }

  void step() {
    if (running_.empty()) {
      send(CoreHeartbeat{});
      return;
    }
    StepOutput output;
    for (auto entry = running_.begin(); entry != running_.end();) {
      Request& request = entry->second;
      RequestDelta& delta = output.deltas.emplace_back();
      delta.id = entry->first;
      delta.token_ids = {kFirstToken + request.next_token};
      request.next_token = (request.next_token + 1) % kNumTokens;
      if (--request.num_left <= 0) {
        delta.finish_reason = FinishReason::kLength;
        entry = running_.erase(entry);
      } else {
        ++entry;
      }
    }
    output.stats.num_steps = ++num_steps_;
    output.stats.num_running = static_cast<int32_t>(running_.size());
    send(std::move(output));
  }

  void send(const CoreResponse& response) { send_frame(responses_, encode(response)); }

  zmq::socket_t requests_;
  zmq::socket_t responses_;
  std::unordered_map<SequenceId, Request> running_;
  uint64_t num_steps_ = 0;
  bool stopping_ = false;
};

int run(const std::vector<std::string>& args) {
  const Result<CoreArguments> arguments = parse_core_arguments(args);
  if (!arguments.ok()) {
    fmt::print(stderr, "stub_engine_core: {}\n", arguments.status().message());
    return 2;
  }
  if (!exit_with_parent(arguments->lifeline)) return 2;
  zmq::context_t context;
  StubCore(context, arguments->endpoints).serve();
  return 0;
}

}  // namespace
}  // namespace atom

// argv[1] is the command, kEngineCoreCommand.
int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return atom::run(std::vector<std::string>(argv + 2, argv + argc));
}
