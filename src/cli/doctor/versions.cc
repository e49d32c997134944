// Apart from the rest: the headers of the libraries.
#include <curl/curlver.h>
#include <fmt/format.h>
#include <openssl/opensslv.h>
#include <zmq.h>
#include <boost/version.hpp>

#include "cli/doctor/system_findings.h"

namespace atom::cli::doctor {

Findings list_versions() {
  const auto version = [](std::string name, std::string value) {
    return Finding{"versions", std::move(name), Severity::kOk, std::move(value), ""};
  };
  return {
      version("atom", ATOM_VERSION),
      version("compiler", __VERSION__),
      version("libzmq",
              fmt::format("{}.{}.{}", ZMQ_VERSION_MAJOR, ZMQ_VERSION_MINOR, ZMQ_VERSION_PATCH)),
      version(
          "Boost",
          fmt::format(
              "{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100)),
      version("OpenSSL", OPENSSL_VERSION_STR),
      version("libcurl", LIBCURL_VERSION),
      version(
          "fmt",
          fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)),
  };
}

}  // namespace atom::cli::doctor
