// Takes every request on the I/O thread and brings it to its endpoint: checks path, method, key,
// quotas and state of the server, and that no web page of others' is behind it; answers CORS
// preflights, and moves work off the I/O thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/routes.h"
#include "server/server_context.h"

namespace atom::server {

class Router {
 public:
  // The context outlives the router.
  explicit Router(ServerContext* context);

  // On the I/O thread. Whether the body of a request with this head is worth reading: there is a
  // route that takes it and the client may use it.
  bool accepts_body(const HttpRequest& head) const;

  // On the I/O thread. A request whose body was not accepted is refused.
  void handle(std::shared_ptr<HttpExchange> exchange) const;

 private:
  // Null: none of this path and method.
  const Route* find(const HttpRequest& request) const;
  // The methods of the routes with this path, "GET, POST".
  std::string allowed_methods(const HttpRequest& request) const;
  // Why the request is refused by its head, whatever its body; nothing when it is not.
  std::optional<ApiError> judge(const Route& route,
                                const HttpRequest& request,
                                const Caller* caller) const;
  std::optional<ApiError> judge_key(const Route& route,
                                    const HttpRequest& request,
                                    const Caller* caller) const;
  bool is_own_host(std::string_view host) const;
  bool is_own_origin(std::string_view origin, std::string_view host) const;
  HttpHeaders cors_headers(const HttpRequest& request) const;
  void dispatch(const Route& route, const ExchangePtr& exchange) const;
  // False, and answered, when the engine can take no requests.
  bool check_engine(const ExchangePtr& exchange) const;
  // There is no route of this path and method.
  void refuse(const ExchangePtr& exchange) const;

  ServerContext* const context_;
  const bool checks_host_;
};

}  // namespace atom::server
