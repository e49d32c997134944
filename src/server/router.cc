#include "server/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "config/suggest.h"
#include "server/observed_exchange.h"

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

void log_request(const HttpRequest& request, int status, double seconds) {
  const std::initializer_list<log::Field> fields = {
      {"request_id", request.id},
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

Router::Router(ServerContext* context) : context_(context), keys_(context->options.api_keys) {}

Router::Match Router::find(const HttpRequest& request) const {
  const EngineConfig& config = context_->engine.config().engine;
  Match match;
  for (const Route& route : routes()) {
    if (!matches(route.path, request.path) || !exists(route, config)) continue;
    if (route.method == effective_method(request)) match.route = &route;
    if (!match.allowed.empty()) match.allowed += ", ";
    match.allowed += route.method;
  }
  return match;
}

void Router::handle(std::shared_ptr<HttpExchange> inner) const {
  const HttpRequest& request = inner->request();
  const Match match = find(request);
  const char* pattern = match.route != nullptr ? match.route->path : "other";
  const auto observe = [context = context_, pattern](const HttpRequest& observed,
                                                     const ObservedExchange::Outcome& outcome) {
    const double seconds = std::chrono::duration<double>(outcome.duration).count();
    context->metrics.count_http(observed.method, pattern, outcome.status, seconds);
    log_request(observed, outcome.status, seconds);
  };
  const ExchangePtr exchange =
      std::make_shared<ObservedExchange>(std::move(inner), cors_headers(request), observe);
  if (is_preflight(request)) {
    HttpResponse response;
    response.status = 204;
    response.content_type.clear();
    exchange->respond(std::move(response));
  } else if (match.route == nullptr) {
    refuse(exchange, match);
  } else if (match.route->needs_key && !keys_.empty() &&
             !keys_.accepts(request.header("Authorization"))) {
    context_->metrics.count_rejected(RejectReason::kUnauthorized);
    ApiError error;
    error.http_status = 401;
    error.code = "invalid_api_key";
    error.message = request.header("Authorization").empty()
                        ? "no API key: send the header 'Authorization: Bearer KEY'"
                        : "the API key is not one of this server's";
    respond_error(exchange, error);
  } else {
    dispatch(*match.route, exchange);
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
  if (route.runs_on == RunsOn::kGeneration) {
    if (!check_engine(exchange)) return;
    // What cannot be taken is refused before it costs a worker anything.
    if (context_->admission.is_full()) return refuse_queue_full(context_, exchange);
  }
  const bool posted =
      context_->workers.try_post([context = context_, endpoint = route.endpoint, exchange] {
        endpoint->answer(context, exchange);
      });
  if (!posted) refuse_queue_full(context_, exchange);
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

void Router::refuse(const ExchangePtr& exchange, const Match& match) const {
  const HttpRequest& request = exchange->request();
  ApiError error;
  if (!match.allowed.empty()) {
    error.http_status = 405;
    error.code = "method_not_allowed";
    error.message = fmt::format("{} takes {}", request.path, match.allowed);
    HttpResponse response = error_response(error);
    response.headers.emplace_back("Allow", match.allowed);
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
