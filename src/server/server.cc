#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <optional>
#include <thread>
#include <utility>

#include "server/http/listening_sockets.h"
#include "server/memory_trimmer.h"
#include "server/router.h"
#include "server/server_context.h"

namespace atom::server {
namespace {

constexpr size_t kMaxQueuedWork = 16384;  // requests waiting for a worker
constexpr size_t kMaxQueuedStatus = 256;  // of /metrics
// For the errors with which unfinished answers end to reach their clients.
constexpr std::chrono::milliseconds kLastWords{500};

int num_workers(int asked) {
  if (asked > 0) return asked;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 8);
}

int64_t admission_limit(const LLMEngine& engine) {
  const SchedulerOptions& scheduler = engine.config().engine.scheduler;
  return int64_t{scheduler.max_num_seqs} + scheduler.max_num_waiting;
}

ServerMetricsOptions metrics_options(const LLMEngine& engine, const ServerOptions& options) {
  ServerMetricsOptions result;
  result.model_name = options.served_model_names.front();
  result.max_model_len = engine.config().max_model_len();
  result.block_size = engine.memory().block_size;
  result.num_blocks = engine.memory().num_blocks;
  result.enable_prefix_caching = engine.config().engine.cache.enable_prefix_caching;
  result.cache_dtype = dtype_name(engine.config().dtype);
  return result;
}

OpenApiOptions openapi_options(const LLMEngine& engine,
                               const ServerOptions& options,
                               bool needs_api_key) {
  OpenApiOptions result;
  result.version = ATOM_VERSION;
  result.defaults = engine.default_sampling();
  result.vocab_size = engine.config().model.vocab_size;
  result.needs_api_key = needs_api_key;
  result.strict_fields = options.strict_fields;
  result.keeps_responses = options.max_stored_bytes > 0;
  result.root_path = options.root_path;
  return result;
}

// Those of the options and of their file.
Result<std::vector<ApiKey>> read_keys(const ServerOptions& options) {
  std::vector<ApiKey> keys = options.api_keys;
  if (options.api_key_file.empty()) return keys;
  ASSIGN_OR_RETURN(const std::vector<ApiKey> more, read_api_key_file(options.api_key_file));
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// The program's version and a hash (FNV-1a) of the options that decide which tokens come.
std::string system_fingerprint(const ResolvedConfig& config) {
  const EngineConfig& engine = config.engine;
  const std::string text = fmt::format("{} {} {} {} {}",
                                       engine.model.model,
                                       dtype_name(config.dtype),
                                       static_cast<int>(engine.model.quantization),
                                       config.model.vocab_size,
                                       engine.parallel.tensor_parallel_size);
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return fmt::format("fp_atom_{}_{:08x}", ATOM_VERSION, hash);
}

}  // namespace

struct Server::Impl {
  Impl(std::unique_ptr<LLMEngine> the_engine,
       const ServerOptions& options,
       const std::vector<ApiKey>& all_keys,
       std::unique_ptr<const ChatFormat> chat,
       std::string why_no_chat)
      : engine(std::move(the_engine)),
        num_worker_threads(num_workers(options.num_workers)),
        context{*engine,
                options,
                std::move(chat),
                std::move(why_no_chat),
                static_cast<int64_t>(std::time(nullptr)),
                openapi_document(openapi_options(*engine, options, !all_keys.empty()),
                                 engine->config().engine),
                system_fingerprint(engine->config()),
                ApiKeys(all_keys, options.cache_salt_per_key),
                Admission(admission_limit(*engine)),
                ServerMetrics(metrics_options(*engine, options)),
                {},
                ResponseStore(options.max_stored_bytes),
                [this] {
                  const HttpServer* server = listening;
                  return server == nullptr ? 0 : server->stats().num_connections;
                },
                {false},
                WorkerPool(1, kMaxQueuedStatus),
                WorkerPool(num_worker_threads, kMaxQueuedWork)},
        router(&context) {}

  std::unique_ptr<LLMEngine> engine;
  const int num_worker_threads;
  ServerContext context;
  Router router;
  std::unique_ptr<HttpServer> http;
  std::atomic<const HttpServer*> listening{nullptr};  // http, once it is there
  std::optional<MemoryTrimmer> trimmer;               // of what http has freed
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// Exchanges may outlive the HTTP server: what the engine still says to them is dropped.
Server::~Server() {
  drain();
  impl_->engine->stop(unavailable("the server is shutting down; the answer is not complete"));
  wait_until_idle(kLastWords);
  impl_->context.workers.stop();
  impl_->context.status_worker.stop();
  impl_->trimmer.reset();
  impl_->http.reset();
  impl_->engine.reset();
}

// The sockets are closed again: while the model loads, clients are better refused than kept
// waiting.
Status Server::check(const ModelSourceConfig& model, const ServerOptions& options) {
  RETURN_IF_ERROR(ChatFormat::check(model, options));
  const HttpServerOptions& http = options.http;
  return http.unix_socket.empty() ? ListeningSockets::open_tcp(http.host, http.port).status()
                                  : ListeningSockets::open_unix(http.unix_socket).status();
}

Result<std::unique_ptr<Server>> Server::start(std::unique_ptr<LLMEngine> engine,
                                              const ServerOptions& options) {
  Result<std::unique_ptr<const ChatFormat>> chat = ChatFormat::create(*engine, options);
  if (!chat.ok() && chat.status().code() != StatusCode::kNotFound) return chat.status();
  ASSIGN_OR_RETURN(const std::vector<ApiKey> keys, read_keys(options));
  const std::string why_no_chat = chat.status().message();
  auto impl = std::make_unique<Impl>(
      std::move(engine), options, keys, chat.ok() ? std::move(*chat) : nullptr, why_no_chat);
  const Router* router = &impl->router;
  ASSIGN_OR_RETURN(
      impl->http,
      HttpServer::start(
          options.http,
          [router](std::shared_ptr<HttpExchange> exchange) { router->handle(std::move(exchange)); },
          [router](const HttpRequest& head) { return router->accepts_body(head); }));
  impl->listening = impl->http.get();
  impl->trimmer.emplace([server = impl->http.get()] { return server->stats().num_freed; });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Status Server::reload() {
  ASSIGN_OR_RETURN(const std::vector<ApiKey> keys, read_keys(impl_->context.options));
  RETURN_IF_ERROR(impl_->http->reload_tls());
  impl_->context.keys.set(keys);
  return {};
}

uint16_t Server::port() const {
  return impl_->http->port();
}

const LLMEngine& Server::engine() const {
  return *impl_->engine;
}

const std::string& Server::why_no_chat() const {
  return impl_->context.why_no_chat;
}

void Server::drain() {
  impl_->context.draining = true;
  impl_->http->drain();
}

bool Server::wait_until_idle(std::chrono::milliseconds timeout) {
  return impl_->http->wait_until_idle(timeout);
}

}  // namespace atom::server
