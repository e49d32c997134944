#include "engine/copy_group.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "comm/local/local_group.h"
#include "engine/copy_thread.h"
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
  CopyGroup group(config, num_sampled_ids, context, endpoints);
  if (const Status status = group.make_ranks(); !status.ok()) {
    EngineCore::report_failure(context, endpoints, status);
    return false;
  }
  return group.run();
}

CopyGroup::CopyGroup(const ResolvedConfig& config,
                     int64_t num_sampled_ids,
                     zmq::context_t& context,
                     const EngineCoreEndpoints& endpoints)
    : config_(config),
      num_sampled_ids_(num_sampled_ids),
      context_(context),
      endpoints_(endpoints),
      plan_(config),
      requests_(connect(context, zmq::socket_type::dealer, endpoints.requests, endpoints.identity)),
      responses_(connect(context, zmq::socket_type::push, endpoints.responses)),
      router_(config.engine.parallel.data_parallel_size,
              config.engine.parallel.data_parallel_balance),
      last_sent_(std::chrono::steady_clock::now()) {
  CHECK(config.copies_are_one_core());
}

CopyGroup::~CopyGroup() {
  for (std::thread& thread : threads_) thread.join();
}

Status CopyGroup::make_ranks() {
  if (plan_.num_nodes() == 1) {
    ASSIGN_OR_RETURN(ranks_, make_local_ranks(config_));
    lockstep_ = make_local_group(plan_.num_copies(), patience(config_));
    return {};
  }
  ASSIGN_OR_RETURN(
      nodes_,
      make_node_ranks(config_, num_sampled_ids_, EngineCore::beat_while_waiting(&responses_)));
  ranks_ = nodes_;
  node_requests_.resize(static_cast<size_t>(plan_.num_nodes()));
  for (int node = 1; node < plan_.num_nodes(); ++node) {
    if (!plan_.leads(node)) continue;
    node_requests_[static_cast<size_t>(node)] =
        std::make_unique<CopyChannel>(&nodes_->nodes(), node);
  }
  return {};
}

void CopyGroup::start_copies() {
  num_running_ = nodes_ == nullptr ? plan_.num_copies() : plan_.num_copies_of_node();
  for (int i = 0; i < plan_.num_copies(); ++i) {
    Copy& copy = *copies_.emplace_back(std::make_unique<Copy>());
    copy.number = i;
    copy.endpoints = copy_endpoints(i, endpoints_.heartbeat);
    copy.responses = atom::bind(context_, zmq::socket_type::pull, copy.endpoints.responses);
    const int node = plan_.leader_of(i);
    copy.node = node == 0 ? nullptr : node_requests_[static_cast<size_t>(node)].get();
    if (copy.node != nullptr) continue;
    copy.requests = atom::bind(context_, zmq::socket_type::dealer, copy.endpoints.requests);
    copy.place = {i, ranks_, nullptr};
    if (nodes_ == nullptr) copy.place.lockstep = lockstep_[static_cast<size_t>(i)].get();
    if (nodes_ != nullptr && config_.copies_share_experts) {
      copy.place.lockstep = nodes_->lockstep()[static_cast<size_t>(i)];
    }
  }
  for (const auto& copy : copies_) {
    if (copy->node != nullptr) continue;
    threads_.emplace_back([this, c = copy.get()] {
      serve_copy(config_, num_sampled_ids_, context_, c->endpoints, c->place);
      --num_running_;
    });
  }
  for (int node = 1; node < plan_.num_nodes(); ++node) {
    if (!plan_.leads(node)) continue;
    ++num_running_;
    threads_.emplace_back([this, node] {
      listen_to(node);
      --num_running_;
    });
  }
}

void CopyGroup::listen_to(int node) {
  std::vector<zmq::socket_t> responses;
  const int first = plan_.first_copy_of(node);
  for (int i = 0; i < plan_.num_copies_of_node(); ++i) {
    const std::string& endpoint = copies_[static_cast<size_t>(first + i)]->endpoints.responses;
    responses.push_back(connect(context_, zmq::socket_type::push, endpoint));
  }
  CopyChannel channel(nodes_->answers_of(node), /*other=*/1);
  while (std::optional<CopyFrame> frame = channel.receive()) {
    const int of_node = frame->copy - first;
    CHECK(of_node >= 0);
    CHECK(of_node < std::ssize(responses));
    send_frame(responses[static_cast<size_t>(of_node)], frame->bytes);
  }
}

// Nothing that is on its way is waited for: nobody is there any more who asked.
void CopyGroup::end_nodes() {
  is_ending_ = true;
  ranks_->fail(Status(StatusCode::kAborted, "the head has ended"));
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
  const bool all_run = num_running_ == std::ssize(threads_) && is_ready_ && !failed_;
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
  } else if (nodes_ != nullptr) {
    end_nodes();
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
  if (!config_.copies_share_experts) return;
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
    if (is_ending_) return;
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
  if (copy.node != nullptr) {
    copy.node->send({copy.number, encode(request)});
  } else {
    send_frame(copy.requests, encode(request));
  }
}

bool serve_core(const ResolvedConfig& config,
                int64_t num_sampled_ids,
                zmq::context_t& context,
                const EngineCoreEndpoints& endpoints) {
  return config.copies_are_one_core()
             ? CopyGroup::serve(config, num_sampled_ids, context, endpoints)
             : EngineCore::serve(config, num_sampled_ids, context, endpoints);
}

}  // namespace atom
