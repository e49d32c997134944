#include "server/ui/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/ui/page_files.h"

namespace atom::server {
namespace {

constexpr std::string_view kFolder = "/ui/";
constexpr std::string_view kMainFile = "index.html";

// Everything comes from this server, nothing is written into the page as code or style, and no
// script may make elements of text.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

std::string_view content_type(std::string_view name) {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/html; charset=utf-8";
}

HttpHeaders page_headers() {
  return {{"Content-Security-Policy", kContentSecurityPolicy},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cache-Control", "no-cache"}};
}

void respond_file(std::string_view name, const ExchangePtr& exchange) {
  const auto file = std::ranges::find(page_files(), name, &PageFile::name);
  if (file == page_files().end()) {
    ApiError error;
    error.http_status = 404;
    error.code = "unknown_path";
    error.message = fmt::format("the page has no file '{}'", name.substr(0, 200));
    return respond_error(exchange, error);
  }
  HttpResponse response;
  response.content_type = content_type(name);
  response.headers = page_headers();
  response.body = file->text;
  exchange->respond(std::move(response));
}

// What the page asks for is relative to its own path, which has to end with a slash then.
void page(ServerContext* context, const ExchangePtr& exchange) {
  if (exchange->request().path.ends_with('/')) return respond_file(kMainFile, exchange);
  HttpResponse response;
  response.status = 308;
  response.content_type = "text/plain";
  response.headers = page_headers();
  response.headers.emplace_back("Location", context->options.root_path + "/");
  exchange->respond(std::move(response));
}

void page_file(ServerContext* context, const ExchangePtr& exchange) {
  respond_file(route_path(*context, exchange->request()).substr(kFolder.size()), exchange);
}

constinit const Endpoint kPage{
    page, {.id = "get_page", .summary = "The page.", .content_type = "text/html"}};
constinit const Endpoint kPageFile{page_file,
                                   {.id = "get_page_file", .summary = "What the page is made of."}};

constexpr Route kPageRoutes[] = {
    {"GET", "/", RunsOn::kIoThread, false, &kPage},
    {"GET", "/ui/{file}", RunsOn::kIoThread, false, &kPageFile},
};

}  // namespace

std::span<const Route> page_routes(const ServerOptions& options) {
  if (!options.serves_page) return {};
  return kPageRoutes;
}

}  // namespace atom::server
