// Takes every request on the I/O thread and brings it to its endpoint: checks path, method, key and
// state of the server, answers CORS preflights, and moves work off the I/O thread.
#pragma once

#include <memory>

#include "server/api_keys.h"
#include "server/routes.h"
#include "server/server_context.h"

namespace atom::server {

class Router {
 public:
  // The context outlives the router.
  explicit Router(ServerContext* context);

  // On the I/O thread.
  void handle(std::shared_ptr<HttpExchange> exchange) const;

 private:
  struct Match {
    const Route* route = nullptr;  // null: none of this path and method
    std::string allowed;           // methods of the routes with this path, "GET, POST"
  };

  Match find(const HttpRequest& request) const;
  HttpHeaders cors_headers(const HttpRequest& request) const;
  void dispatch(const Route& route, const ExchangePtr& exchange) const;
  // False, and answered, when the engine can take no requests.
  bool check_engine(const ExchangePtr& exchange) const;
  void refuse(const ExchangePtr& exchange, const Match& match) const;

  ServerContext* const context_;
  const ApiKeys keys_;
};

}  // namespace atom::server
