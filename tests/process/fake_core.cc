// A core without a model, run in place of `atom`, that behaves or misbehaves as --model says:
//   serve            answers every request with one token
//   exit-loading     exits with code 3 before it is ready
//   fail-loading     reports CoreFailed
//   die-when-asked   kills itself at the first request
//   fail-when-asked  reports CoreFailed at the first request
//   stuck-when-asked keeps its heartbeat, but its step makes no progress
//   hang-when-asked  falls silent at the first request, and ignores Shutdown
//   grow-when-asked  takes 1 GiB of memory at the first request, then answers
//   babble           sends what is no message, then serves
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/child_process.h"
#include "engine/core_arguments.h"
#include "engine/messages.h"
#include "engine/zmq_frames.h"

namespace {

using namespace atom;  // NOLINT

class FakeCore {
 public:
  explicit FakeCore(const CoreArguments& arguments)
      : arguments_(arguments),
        mode_(arguments.config.model.model),
        requests_(atom::connect(context_,
                                zmq::socket_type::dealer,
                                arguments.endpoints.requests,
                                arguments.endpoints.identity)),
        responses_(atom::connect(context_, zmq::socket_type::push, arguments.endpoints.responses)) {
  }

  int run() {
    if (mode_ == "exit-loading") return 3;
    if (mode_ == "fail-loading") {
      EngineCore::report_failure(
          context_, arguments_.endpoints, not_found("the fake checkpoint is absent"));
      return 1;
    }
    send(CoreLoading{LoadingStage::kWeights, 1, 2});
    if (mode_ == "babble") babble();
    send(CoreReady{1, 2, 3, 4, 5});
    while (!stopping_) {
      if (const auto frame = receive_frame(requests_, arguments_.endpoints.heartbeat)) {
        const Result<CoreRequest> request = decode_core_request(*frame);
        if (request.ok()) handle(*request);
      }
      send(CoreHeartbeat{++num_ticks_, num_steps_, stuck_ ? 1u : 0u, 0});
    }
    return 0;
  }

 private:
  void handle(const CoreRequest& request) {
    if (std::holds_alternative<Shutdown>(request)) {
      stopping_ = true;
      return;
    }
    const auto* add = std::get_if<AddRequest>(&request);
    if (add == nullptr) return;
    if (mode_ == "die-when-asked") std::raise(SIGKILL);
    if (mode_ == "hang-when-asked") {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    if (mode_ == "grow-when-asked" && num_steps_ == 0) grow();
    if (mode_ == "fail-when-asked") {
      send(CoreFailed{StatusCode::kInternal, "a fake fault"});
    } else if (mode_ == "stuck-when-asked") {
      stuck_ = true;
    } else {
      StepOutput step;
      RequestDelta& delta = step.deltas.emplace_back();
      delta.id = add->id;
      delta.token_ids = {7};
      delta.finish_reason = FinishReason::kLength;
      step.stats.num_steps = ++num_steps_;
      send(std::move(step));
    }
  }

  // In small pages, which take their time to be freed.
  void grow() {
    constexpr size_t kSize = size_t{1} << 30;
    void* memory =
        ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::madvise(memory, kSize, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < kSize; i += 4096) {
      static_cast<volatile uint8_t*>(memory)[i] = 1;
      if (i % (kSize / 64) == 0) send(CoreHeartbeat{++num_ticks_, 0, 0, 0});
    }
  }

  void babble() {
    for (uint8_t kind = 0; kind < 255; ++kind) {
      send_frame(responses_, {kind, 255, 255, 255, 255, 0, 1, 2});
      send_frame(responses_, std::vector<uint8_t>(kind, kind));
    }
  }

  void send(const CoreResponse& response) { send_frame(responses_, encode(response)); }

  const CoreArguments arguments_;
  const std::string mode_;
  zmq::context_t context_;
  zmq::socket_t requests_;
  zmq::socket_t responses_;
  bool stopping_ = false;
  bool stuck_ = false;
  uint64_t num_ticks_ = 0;
  uint64_t num_steps_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != kEngineCoreCommand) return 2;
  const std::vector<std::string> args(argv + 2, argv + argc);
  const Result<CoreArguments> arguments = parse_core_arguments(args);
  if (!arguments.ok() || !exit_with_parent(arguments->lifeline)) return 2;
  return FakeCore(*arguments).run();
}
