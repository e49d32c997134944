#include "engine/core_manager.h"

#include "base/log.h"
#include "engine/engine_core.h"
#include "engine/zmq_frames.h"

namespace atom {
namespace {

constexpr const char* kRequestsEndpoint = "inproc://atom-core-requests";
constexpr const char* kResponsesEndpoint = "inproc://atom-core-responses";
constexpr const char* kCoreIdentity = "core-0";

}  // namespace

CoreManager::CoreManager(ResponseHandler on_response)
    : requests_(bind(context_, zmq::socket_type::router, kRequestsEndpoint)),
      responses_(bind(context_, zmq::socket_type::pull, kResponsesEndpoint)),
      on_response_(std::move(on_response)) {}

Result<std::unique_ptr<CoreManager>> CoreManager::start(const ResolvedConfig& config,
                                                        int64_t num_sampled_ids,
                                                        const LoadingHandler& on_loading,
                                                        ResponseHandler on_response) {
  std::unique_ptr<CoreManager> manager(new CoreManager(std::move(on_response)));
  manager->core_thread_ = std::thread([config, num_sampled_ids, context = &manager->context_] {
    EngineCore::serve(
        config, num_sampled_ids, *context, {kRequestsEndpoint, kResponsesEndpoint, kCoreIdentity});
  });
  RETURN_IF_ERROR(manager->wait_until_ready(on_loading));
  manager->receive_thread_ = std::thread([m = manager.get()] { m->receive_loop(); });
  return manager;
}

CoreManager::~CoreManager() {
  stopping_ = true;
  if (receive_thread_.joinable()) {
    // The core ends and says nothing more; an empty frame ends the receiver.
    (void)send(Shutdown{});
    core_thread_.join();
    zmq::socket_t wake = connect(context_, zmq::socket_type::push, kResponsesEndpoint);
    send_frame(wake, {});
    receive_thread_.join();
  } else {
    core_thread_.join();
  }
}

Status CoreManager::wait_until_ready(const LoadingHandler& on_loading) {
  for (;;) {
    const std::optional<std::vector<uint8_t>> frame = receive_frame(responses_, /*wait=*/true);
    ASSIGN_OR_RETURN(const CoreResponse response, decode_core_response(*frame));
    if (const auto* loading = std::get_if<CoreLoading>(&response)) {
      if (on_loading) on_loading(*loading);
    } else if (const auto* ready = std::get_if<CoreReady>(&response)) {
      ready_ = *ready;
      return {};
    } else if (const auto* failed = std::get_if<CoreFailed>(&response)) {
      return {failed->code, failed->reason};
    }
  }
}

Status CoreManager::send(const CoreRequest& request) {
  const std::vector<uint8_t> frame = encode(request);
  const std::lock_guard lock(send_mutex_);
  if (send_frame_to(requests_, kCoreIdentity, frame)) return {};
  return unavailable("the engine core is gone");
}

void CoreManager::receive_loop() {
  for (;;) {
    const std::optional<std::vector<uint8_t>> frame = receive_frame(responses_, /*wait=*/true);
    if (stopping_ && frame->empty()) return;
    Result<CoreResponse> response = decode_core_response(*frame);
    if (response.ok()) {
      on_response_(std::move(*response));
    } else {
      log::error("core manager: {}", response.status().message());
    }
  }
}

}  // namespace atom
