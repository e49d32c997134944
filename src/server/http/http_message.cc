#include "server/http/http_message.h"

#include "server/http/http_text.h"

namespace atom::server {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key.size() == name.size() && equals_ignoring_case(key, name)) return value;
  }
  return {};
}

}  // namespace atom::server
