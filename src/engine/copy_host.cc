#include "engine/copy_host.h"

#include <utility>

#include "base/log.h"
#include "engine/copy_thread.h"
#include "engine/core_watch.h"
#include "engine/zmq_frames.h"
#include "runner/node_plan.h"

namespace atom {

CopyHost::CopyHost(const ResolvedConfig& config,
                   int64_t num_sampled_ids,
                   std::shared_ptr<NodeRanks> ranks)
    : config_(config),
      num_sampled_ids_(num_sampled_ids),
      ranks_(std::move(ranks)),
      first_copy_(NodePlan(config).first_copy_of(config.engine.nodes.node_rank)) {}

Status CopyHost::run() {
  make_copies();
  num_running_ = static_cast<int>(copies_.size());
  std::vector<std::thread> threads;
  for (const auto& copy : copies_) {
    threads.emplace_back([this, c = copy.get()] {
      serve_copy(config_, num_sampled_ids_, context_, c->endpoints, c->place);
      --num_running_;
    });
  }
  threads.emplace_back([this] { take_requests(); });
  send_responses();
  // Where the copies have failed by themselves the head has been told, and ends the nodes; it may
  // be gone as well.
  ranks_->fail(unavailable("the copies of node {} have ended", config_.engine.nodes.node_rank));
  for (std::thread& thread : threads) thread.join();
  return ranks_->status();
}

void CopyHost::make_copies() {
  for (int i = 0; i < ranks_->num_copies(); ++i) {
    Copy& copy = *copies_.emplace_back(std::make_unique<Copy>());
    copy.number = first_copy_ + i;
    copy.endpoints = copy_endpoints(copy.number, CoreWatch::kHeartbeat);
    copy.requests = atom::bind(context_, zmq::socket_type::dealer, copy.endpoints.requests);
    copy.responses = atom::bind(context_, zmq::socket_type::pull, copy.endpoints.responses);
    copy.place = {i, ranks_, nullptr};
    if (config_.copies_share_experts) {
      copy.place.lockstep = ranks_->lockstep()[static_cast<size_t>(i)];
    }
  }
}

void CopyHost::take_requests() {
  CopyChannel channel(&ranks_->nodes(), /*other=*/0);
  while (std::optional<CopyFrame> frame = channel.receive()) {
    const int of_node = frame->copy - first_copy_;
    CHECK(of_node >= 0);
    CHECK(of_node < std::ssize(copies_));
    send_frame(copies_[static_cast<size_t>(of_node)]->requests, frame->bytes);
  }
}

void CopyHost::send_responses() {
  CopyChannel channel(ranks_->answers_of(config_.engine.nodes.node_rank), /*other=*/0);
  std::vector<zmq::pollitem_t> items;
  for (const auto& copy : copies_) {
    items.push_back({copy->responses.handle(), 0, ZMQ_POLLIN, 0});
  }
  for (;;) {
    try {
      zmq::poll(items.data(), items.size(), CoreWatch::kHeartbeat);
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
    // What copies have said before they ended is there by now.
    const bool have_ended = num_running_ == 0;
    for (const auto& copy : copies_) {
      while (std::optional<std::vector<uint8_t>> frame = receive_frame(copy->responses)) {
        if (!was_ready()) {
          const Result<CoreResponse> response = decode_core_response(*frame);
          if (response.ok() && std::holds_alternative<CoreReady>(*response)) ++num_ready_;
        }
        channel.send({copy->number, *std::move(frame)});
      }
    }
    if (have_ended) return;
  }
}

}  // namespace atom
