// One request being answered. Held by shared_ptr; every method may be called from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/http_message.h"

namespace atom::server {

// A body sent piece by piece. The connection asks for the next piece when the socket has room, so
// what a slow client has not taken yet waits, merged, in the stream. Called on the I/O thread,
// never after the exchange's disconnect callback.
class BodyStream {
 public:
  enum class State {
    kMore,   // there will be more: HttpExchange::notify() says when
    kEnd,    // complete with what was appended
    kBroken  // cannot be completed: the connection is closed without an end of the body
  };

  virtual ~BodyStream() = default;
  // Appends what is ready to `out`, possibly nothing.
  virtual State take(std::string* out) = 0;
  // What to send when nothing was ready for the keep-alive interval; empty for nothing.
  virtual std::string_view keep_alive() const { return {}; }
};

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;

  // Exactly one of the two, once.
  virtual void respond(HttpResponse response) = 0;
  // `head.body` must be empty.
  virtual void stream(HttpResponse head, std::shared_ptr<BodyStream> body) = 0;
  // Instead of them, when answering went wrong: answers if nothing has, and what is answered later
  // is dropped.
  virtual void fail(HttpResponse response) = 0;

  // True once the client has gone: work for it is in vain.
  virtual const std::atomic<bool>& gone() const = 0;

  // The stream has something to take. Cheap when a wake-up is already on its way.
  virtual void notify() = 0;

  // `callback` runs once on the I/O thread if the client goes away, or is too slow to be waited
  // for, before the whole response was written; at once (on the I/O thread) if that has happened.
  // It is dropped when the response is complete.
  virtual void on_disconnect(std::function<void()> callback) = 0;
};

}  // namespace atom::server
