// What the endpoints share. Made once by Server, const but for what synchronizes itself.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/llm_engine.h"
#include "server/admission.h"
#include "server/api_keys.h"
#include "server/body_reader.h"
#include "server/chat_format.h"
#include "server/metrics/server_metrics.h"
#include "server/response_store.h"
#include "server/server_options.h"
#include "server/worker_pool.h"

namespace atom::server {

struct ServerContext {
  LLMEngine& engine;
  const ServerOptions options;
  const std::unique_ptr<const ChatFormat> chat;  // null without tokenizer or chat template
  const std::string why_no_chat;
  const int64_t created;                 // Unix time of the start
  const std::string openapi_document;    // JSON
  const std::string system_fingerprint;  // of what makes the answers
  ApiKeys keys;
  Admission admission;
  ServerMetrics metrics;
  UnknownFieldLog unknown_fields;
  ResponseStore responses;
  std::function<size_t()> num_connections;  // of HTTP, open now
  std::atomic<bool> draining{false};
  WorkerPool status_worker;  // last: their threads use what is above
  WorkerPool workers;

  const std::string& model_name() const { return options.served_model_names.front(); }
  bool serves(std::string_view model) const;
};

}  // namespace atom::server
