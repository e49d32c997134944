#include "engine/copy_group.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "comm/local/local_group.h"
#include "engine/zmq_frames.h"

namespace atom {
namespace {

// How often the hub looks whether its copies have ended.
constexpr std::chrono::milliseconds kEndPoll{5};

std::chrono::milliseconds patience(const ResolvedConfig& config) {
  return std::chrono::milliseconds(
      static_cast<int64_t>(config.engine.supervision.step_timeout * 1000));
}

}  // namespace

bool CopyGroup::serve(const ResolvedConfig& config,
                      int64_t num_sampled_ids,
                      zmq::context_t& context,
                      const EngineCoreEndpoints& endpoints) {
  Result<std::shared_ptr<LocalRanks>> ranks = make_local_ranks(config);
  if (!ranks.ok()) {
    EngineCore::report_failure(context, endpoints, ranks.status());
    return false;
  }
  CopyGroup group(config, num_sampled_ids, context, endpoints, *std::move(ranks));
  return group.run();
}

CopyGroup::CopyGroup(const ResolvedConfig& config,
                     int64_t num_sampled_ids,
                     zmq::context_t& context,
                     const EngineCoreEndpoints& endpoints,
                     std::shared_ptr<LocalRanks> ranks)
    : config_(config),
      num_sampled_ids_(num_sampled_ids),
      context_(context),
      endpoints_(endpoints),
      ranks_(std::move(ranks)),
      lockstep_(make_local_group(config.engine.parallel.data_parallel_size, patience(config))),
      requests_(connect(context, zmq::socket_type::dealer, endpoints.requests, endpoints.identity)),
      responses_(connect(context, zmq::socket_type::push, endpoints.responses)),
      router_(config.engine.parallel.data_parallel_size,
              config.engine.parallel.data_parallel_balance),
      last_sent_(std::chrono::steady_clock::now()) {
  CHECK(config.copies_share_experts);
}

CopyGroup::~CopyGroup() {
  for (const auto& copy : copies_) {
    if (copy->thread.joinable()) copy->thread.join();
  }
}

void CopyGroup::start_copies() {
  for (int i = 0; i < config_.engine.parallel.data_parallel_size; ++i) {
    Copy& copy = *copies_.emplace_back(std::make_unique<Copy>());
    copy.endpoints = {fmt::format("inproc://atom-copy-{}-requests", i),
                      fmt::format("inproc://atom-copy-{}-responses", i),
                      fmt::format("copy-{}", i),
                      endpoints_.heartbeat};
    copy.requests = atom::bind(context_, zmq::socket_type::dealer, copy.endpoints.requests);
    copy.responses = atom::bind(context_, zmq::socket_type::pull, copy.endpoints.responses);
    copy.place = std::make_unique<CopyPlace>(CopyPlace{i, ranks_, lockstep_[i].get()});
  }
  num_running_ = static_cast<int>(copies_.size());
  for (const auto& copy : copies_) {
    copy->thread = std::thread([this, c = copy.get()] {
      EngineCore::serve(config_, num_sampled_ids_, context_, c->endpoints, c->place.get());
      // Where it has failed the others are not to wait for it.
      c->place->lockstep->fail(unavailable("copy {} of the engine has ended", c->place->copy));
      --num_running_;
    });
  }
}

bool CopyGroup::run() {
  start_copies();
  for (;;) {
    wait();
    // What copies have said before they ended is there by now.
    const bool have_ended = num_running_ == 0;
    for (size_t i = 0; i < copies_.size(); ++i) {
      while (auto frame = receive_frame(copies_[i]->responses)) {
        Result<CoreResponse> response = decode_core_response(*frame);
        CHECK(response.ok());
        handle(static_cast<int>(i), std::move(*response));
      }
    }
    while (auto frame = receive_frame(requests_)) {
      Result<CoreRequest> request = decode_core_request(*frame);
      if (request.ok()) {
        handle(std::move(*request));
      } else {
        log::error("engine core: {}", request.status().message());
      }
    }
    if (have_ended) break;
    send_heartbeat_if_due();
  }
  if (!failed_) return true;
  EngineCore::report_failure(context_, endpoints_, Status(failed_->code, failed_->reason));
  return false;
}

void CopyGroup::wait() {
  std::vector<zmq::pollitem_t> items = {{requests_.handle(), 0, ZMQ_POLLIN, 0}};
  for (const auto& copy : copies_) {
    items.push_back({copy->responses.handle(), 0, ZMQ_POLLIN, 0});
  }
  const bool all_run = num_running_ == std::ssize(copies_) && is_ready_ && !failed_;
  const std::chrono::milliseconds timeout = all_run ? endpoints_.heartbeat : kEndPoll;
  try {
    zmq::poll(items.data(), items.size(), std::min(timeout, endpoints_.heartbeat));
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
  }
}

void CopyGroup::handle(CoreRequest request) {
  if (auto* add = std::get_if<AddRequest>(&request)) {
    give(std::move(*add));
  } else if (const auto* aborts = std::get_if<AbortRequests>(&request)) {
    give(*aborts);
  } else if (std::holds_alternative<ControlProfile>(request)) {
    send_to(*copies_.front(), request);
    wake_others(0);
  } else {
    for (const auto& copy : copies_) send_to(*copy, request);
  }
}

void CopyGroup::give(AddRequest add) {
  const SequenceId id = add.id;
  const auto num_tokens = static_cast<int64_t>(add.prompt_token_ids.size());
  const std::vector<uint64_t> prefix =
      config_.scheduler.enable_prefix_caching
          ? prefix_hashes(add.prompt_token_ids, add.sampling.cache_salt)
          : std::vector<uint64_t>();
  const int chosen = router_.route(std::span(&id, 1), num_tokens, prefix);
  send_to(*copies_[chosen], std::move(add));
  wake_others(chosen);
}

void CopyGroup::wake_others(int copy) {
  for (int i = 0; i < std::ssize(copies_); ++i) {
    if (i != copy) send_to(*copies_[i], AbortRequests{});
  }
}

void CopyGroup::give(const AbortRequests& aborts) {
  std::vector<AbortRequests> of_copies(copies_.size());
  for (const SequenceId id : aborts.ids) {
    if (const std::optional<int> copy = router_.core_of(id)) of_copies[*copy].ids.push_back(id);
  }
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (!of_copies[i].ids.empty()) send_to(*copies_[i], std::move(of_copies[i]));
  }
}

void CopyGroup::handle(int index, CoreResponse response) {
  Copy& copy = *copies_[index];
  copy.has_spoken = true;
  if (auto* step = std::get_if<StepOutput>(&response)) {
    router_.note(*step);
    copy.stats = step->stats;
    step->stats = {};
    for (const auto& one : copies_) step->stats.add(one->stats);
    send(response);
  } else if (const auto* heartbeat = std::get_if<CoreHeartbeat>(&response)) {
    copy.heartbeat = *heartbeat;
  } else if (const auto* ready = std::get_if<CoreReady>(&response)) {
    copy.ready = *ready;
    copy.stats.num_blocks = copy.stats.num_free_blocks = ready->num_blocks;
    announce_when_ready();
  } else if (auto* failed = std::get_if<CoreFailed>(&response)) {
    if (!failed_) failed_ = std::move(*failed);
    ranks_->fail(Status(failed_->code, failed_->reason));
  } else if (std::holds_alternative<CoreProfile>(response) || index == 0) {
    send(response);
  }
}

void CopyGroup::announce_when_ready() {
  CoreReady all;
  for (const auto& copy : copies_) {
    if (!copy->ready) return;
    all.weights += copy->ready->weights;
    all.workspace += copy->ready->workspace;
    all.kv_cache += copy->ready->kv_cache;
    all.num_blocks += copy->ready->num_blocks;
    all.block_size = copy->ready->block_size;
  }
  for (int i = 0; i < std::ssize(copies_); ++i) router_.set_up(i);
  is_ready_ = true;
  send(all);
}

// When all copies have spoken since the last: one that is silent makes the core silent.
void CopyGroup::send_heartbeat_if_due() {
  if (!is_ready_ || failed_) return;
  if (std::chrono::steady_clock::now() - last_sent_ < endpoints_.heartbeat) return;
  CoreHeartbeat all;
  for (const auto& copy : copies_) {
    if (!copy->has_spoken) return;
    all.num_ticks += copy->heartbeat.num_ticks;
    all.num_steps += copy->heartbeat.num_steps;
    all.num_steps_in_flight += copy->heartbeat.num_steps_in_flight;
    all.runner_progress += copy->heartbeat.runner_progress;
  }
  for (const auto& copy : copies_) copy->has_spoken = false;
  send(all);
}

void CopyGroup::send(const CoreResponse& response) {
  send_frame(responses_, encode(response));
  last_sent_ = std::chrono::steady_clock::now();
}

void CopyGroup::send_to(Copy& copy, const CoreRequest& request) {
  send_frame(copy.requests, encode(request));
}

bool serve_core(const ResolvedConfig& config,
                int64_t num_sampled_ids,
                zmq::context_t& context,
                const EngineCoreEndpoints& endpoints) {
  return config.copies_share_experts
             ? CopyGroup::serve(config, num_sampled_ids, context, endpoints)
             : EngineCore::serve(config, num_sampled_ids, context, endpoints);
}

}  // namespace atom
