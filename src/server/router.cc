#include "server/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "config/suggest.h"
#include "server/http/http_text.h"
#include "server/observed_exchange.h"
#include "server/request_work.h"
#include "server/ui/page.h"

namespace atom::server {
namespace {

constexpr int kRetryAfter = 1;  // seconds
constexpr const char* kPreflightMaxAge = "600";

// "/v1/models/{model}" matches "/v1/models/a" and, because names of models have slashes,
// "/v1/models/a/b".
bool matches(std::string_view pattern, std::string_view path) {
  const size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) return pattern == path;
  return path.size() > brace && path.substr(0, brace) == pattern.substr(0, brace);
}

// HEAD is GET without a body, which the connection leaves out.
std::string_view effective_method(const HttpRequest& request) {
  return request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
}

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && !request.header("Origin").empty() &&
         !request.header("Access-Control-Request-Method").empty();
}

ApiError unavailable_error(std::string code, std::string message) {
  ApiError error;
  error.http_status = 503;
  error.type = "service_unavailable";
  error.code = std::move(code);
  error.message = std::move(message);
  error.retry_after = kRetryAfter;
  return error;
}

// Anthropic's clients send their key in a header of its own.
std::string authorization(const HttpRequest& request) {
  const std::string_view given = request.header("Authorization");
  const std::string_view key = request.header("x-api-key");
  if (!given.empty() || key.empty()) return std::string(given);
  return fmt::format("Bearer {}", key);
}

std::string lowered(std::string_view text) {
  std::string result(text);
  std::ranges::transform(
      result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// "localhost" of "localhost:8000", "[::1]" of "[::1]:8000".
std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon == host.npos || host.find(']', colon) != host.npos) return host;
  return host.substr(0, colon);
}

// Not a name: nobody's DNS answers for it.
bool is_address(std::string_view host) {
  return host.starts_with('[') || host.find_first_not_of("0123456789.") == host.npos;
}

bool is_loopback(const HttpServerOptions& http) {
  return http.unix_socket.empty() && (http.host == "localhost" || http.host == "::1" ||
                                      http.host == "[::1]" || http.host.starts_with("127."));
}

bool has_body(const HttpRequest& request) {
  const std::string_view length = request.header("Content-Length");
  return !request.header("Transfer-Encoding").empty() || (!length.empty() && length != "0");
}

bool is_from_browser(const HttpRequest& request) {
  return !request.header("Origin").empty() || !request.header("Sec-Fetch-Site").empty();
}

// A page may send nothing that is JSON by its type to others without asking first.
bool is_json(const HttpRequest& request) {
  const std::string_view type = request.header("Content-Type");
  if (type.empty()) return !is_from_browser(request);
  const std::string_view essence = type.substr(0, type.find_first_of("; \t"));
  constexpr std::string_view kSuffix = "+json";
  return equals_ignoring_case(essence, "application/json") ||
         (essence.size() >= kSuffix.size() &&
          equals_ignoring_case(essence.substr(essence.size() - kSuffix.size()), kSuffix));
}

ApiError refusal(int status, std::string code, std::string message) {
  ApiError error;
  error.http_status = status;
  error.code = std::move(code);
  error.message = std::move(message);
  return error;
}

void log_request(const HttpRequest& request, const Caller* caller, int status, double seconds) {
  const bool is_named = caller != nullptr && !caller->key().name.empty();
  const std::string_view key = is_named ? std::string_view(caller->key().name) : "-";
  const std::initializer_list<log::Field> fields = {
      {"request_id", request.id},
      {"key", key},
      {"method", request.method},
      {"path", request.path},
      {"status", status},
      {"duration_ms", std::round(seconds * 1e6) / 1e3},
      {"peer", request.peer}};
  if (status >= 500) {
    log::warning_with(fields, "request failed");
  } else {
    log::info_with(fields, "request");
  }
}

}  // namespace

Router::Router(ServerContext* context)
    : context_(context),
      checks_host_(is_loopback(context->options.http) || !context->options.allowed_hosts.empty()) {}

const Route* Router::find(const HttpRequest& request) const {
  const EngineConfig& config = context_->engine.config().engine;
  const std::string_view path = route_path(*context_, request);
  const std::string_view method = effective_method(request);
  for (const std::span<const Route> table : {routes(), page_routes(context_->options)}) {
    for (const Route& route : table) {
      if (matches(route.path, path) && route.method == method && exists(route, config)) {
        return &route;
      }
    }
  }
  return nullptr;
}

std::string Router::allowed_methods(const HttpRequest& request) const {
  const EngineConfig& config = context_->engine.config().engine;
  const std::string_view path = route_path(*context_, request);
  std::string methods;
  for (const std::span<const Route> table : {routes(), page_routes(context_->options)}) {
    for (const Route& route : table) {
      if (!matches(route.path, path) || !exists(route, config)) continue;
      if (!methods.empty()) methods += ", ";
      methods += route.method;
    }
  }
  return methods;
}

bool Router::is_own_host(std::string_view host) const {
  if (!checks_host_ || host.empty()) return true;
  const std::string_view given = without_port(host);
  if (given.empty() || is_address(given)) return true;
  const std::string name = lowered(given);
  const std::vector<std::string>& allowed = context_->options.allowed_hosts;
  return name == "localhost" || name.ends_with(".localhost") ||
         name == lowered(context_->options.http.host) ||
         std::ranges::any_of(allowed, [&name](const std::string& own) {
           return own == "*" || lowered(own) == name;
         });
}

bool Router::is_own_origin(std::string_view origin, std::string_view host) const {
  const std::vector<std::string>& allowed = context_->options.allowed_origins;
  if (std::ranges::find(allowed, "*") != allowed.end() ||
      std::ranges::find(allowed, origin) != allowed.end()) {
    return true;
  }
  const bool is_tls = !context_->options.http.tls_certificate_file.empty();
  return lowered(origin) == (is_tls ? "https://" : "http://") + lowered(host);
}

std::optional<ApiError> Router::judge_key(const Route& route,
                                          const HttpRequest& request,
                                          const Caller* caller) const {
  const bool needs_key =
      route.needs_key || (route.scope == KeyScope::kMetrics && context_->keys.protects_metrics());
  if (!needs_key) return std::nullopt;
  if (caller == nullptr) {
    return refusal(401,
                   "invalid_api_key",
                   authorization(request).empty()
                       ? "no API key: send the header 'Authorization: Bearer KEY'"
                       : "the API key is not one of this server's");
  }
  if (caller->key().may(route.scope)) return std::nullopt;
  return refusal(403, "insufficient_scope", "the API key is not for this path");
}

std::optional<ApiError> Router::judge(const Route& route,
                                      const HttpRequest& request,
                                      const Caller* caller) const {
  const std::string_view host = request.header("Host");
  if (!is_own_host(host)) {
    return refusal(403,
                   "host_not_allowed",
                   "the request is for a host of another name: it would take --allowed-hosts");
  }
  if (std::string_view(route.method) == "POST") {
    const std::string_view origin = request.header("Origin");
    if (!origin.empty() && !is_own_origin(origin, host)) {
      return refusal(403,
                     "origin_not_allowed",
                     "the request comes from a page of another origin: it would take "
                     "--allowed-origins");
    }
    if (has_body(request) && !is_json(request)) {
      return refusal(415,
                     "unsupported_media_type",
                     "the body is no JSON by its type: send 'Content-Type: application/json'");
    }
  }
  return judge_key(route, request, caller);
}

bool Router::accepts_body(const HttpRequest& head) const {
  const Route* route = find(head);
  if (route == nullptr || head.method != "POST") return false;
  return !judge(*route, head, context_->keys.find(authorization(head)).get());
}

void Router::handle(std::shared_ptr<HttpExchange> inner) const {
  const HttpRequest& request = inner->request();
  const Route* route = find(request);
  const CallerPtr caller = context_->keys.find(authorization(request));
  const char* pattern = route != nullptr ? route->path : "other";
  const auto observe = [context = context_, pattern, caller](
                           const HttpRequest& observed, const ObservedExchange::Outcome& outcome) {
    const double seconds = std::chrono::duration<double>(outcome.duration).count();
    context->metrics.count_http(observed.method, pattern, outcome.status, seconds);
    log_request(observed, caller.get(), outcome.status, seconds);
  };
  const ExchangePtr exchange =
      std::make_shared<ObservedExchange>(std::move(inner), caller, cors_headers(request), observe);
  if (is_preflight(request)) {
    HttpResponse response;
    response.status = 204;
    response.content_type = {};
    exchange->respond(std::move(response));
  } else if (route == nullptr) {
    refuse(exchange);
  } else if (const std::optional<ApiError> error = judge(*route, request, caller.get())) {
    if (error->http_status == 401) context_->metrics.count_rejected(RejectReason::kUnauthorized);
    respond_error(exchange, *error);
  } else {
    dispatch(*route, exchange);
  }
}

HttpHeaders Router::cors_headers(const HttpRequest& request) const {
  const std::string_view origin = request.header("Origin");
  const std::vector<std::string>& allowed = context_->options.allowed_origins;
  if (origin.empty() || allowed.empty()) return {};
  const bool any = std::ranges::find(allowed, "*") != allowed.end();
  if (!any && std::ranges::find(allowed, origin) == allowed.end()) return {};
  HttpHeaders headers = {
      {"Access-Control-Allow-Origin", any ? "*" : std::string(origin)},
      {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
  };
  if (!any) headers.emplace_back("Vary", "Origin");
  if (is_preflight(request)) {
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    const std::string_view asked = request.header("Access-Control-Request-Headers");
    headers.emplace_back("Access-Control-Allow-Headers",
                         asked.empty() ? "Authorization, Content-Type" : std::string(asked));
    headers.emplace_back("Access-Control-Max-Age", kPreflightMaxAge);
  }
  return headers;
}

void Router::dispatch(const Route& route, const ExchangePtr& exchange) const {
  if (route.runs_on == RunsOn::kIoThread) return route.endpoint->answer(context_, exchange);
  if (route.runs_on != RunsOn::kStatus && exchange->caller() != nullptr) {
    if (const int wait = exchange->caller()->try_request(); wait > 0) {
      return refuse_rate(context_, exchange, wait, "the API key has used up its quota");
    }
  }
  if (route.runs_on == RunsOn::kGeneration) {
    if (!check_engine(exchange)) return;
    // What cannot be taken is refused before it costs a worker anything.
    if (context_->admission.is_full()) return refuse_queue_full(context_, exchange);
  }
  const auto work = std::make_shared<RequestWork>(context_, route.endpoint, exchange);
  exchange->on_disconnect([context = context_, weak = std::weak_ptr(work)] {
    context->metrics.count_disconnect();
    if (const std::shared_ptr<RequestWork> abandoned = weak.lock()) abandoned->drop();
  });
  WorkerPool& pool = route.runs_on == RunsOn::kStatus ? context_->status_worker : context_->workers;
  if (!pool.try_post([work] { work->run(); })) refuse_queue_full(context_, exchange);
}

bool Router::check_engine(const ExchangePtr& exchange) const {
  if (context_->draining) {
    context_->metrics.count_rejected(RejectReason::kDraining);
    respond_error(exchange, unavailable_error("draining", "the server is shutting down"));
    return false;
  }
  const EngineHealth health = context_->engine.health();
  if (health.state == EngineState::kReady || health.state == EngineState::kUnresponsive) {
    return true;
  }
  context_->metrics.count_rejected(RejectReason::kEngineDown);
  respond_error(exchange, unavailable_error(engine_state_name(health.state), health.reason));
  return false;
}

void Router::refuse(const ExchangePtr& exchange) const {
  const HttpRequest& request = exchange->request();
  ApiError error;
  if (const std::string allowed = allowed_methods(request); !allowed.empty()) {
    error.http_status = 405;
    error.code = "method_not_allowed";
    error.message = fmt::format("{} takes {}", request.path, allowed);
    HttpResponse response = error_response(error);
    response.headers.emplace_back("Allow", allowed);
    return exchange->respond(std::move(response));
  }
  std::vector<std::string> paths;
  for (const Route& route : routes()) {
    if (exists(route, context_->engine.config().engine)) paths.emplace_back(route.path);
  }
  error.http_status = 404;
  error.code = "unknown_path";
  const std::string nearest = nearest_name(request.path, paths);
  error.message = fmt::format("there is nothing at {}{}",
                              request.path.substr(0, 200),
                              nearest.empty() ? "" : "; did you mean " + nearest + "?");
  respond_error(exchange, error);
}

}  // namespace atom::server
