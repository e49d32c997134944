#include "engine/profiler.h"

#include <fmt/chrono.h>

#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/log.h"

namespace atom {
namespace {

// "atom-20261122T081530.123Z-rank0.json"
std::string file_name() {
  const auto now = std::chrono::system_clock::now();
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  return fmt::format("atom-{:%Y%m%dT%H%M%S}.{:03}Z-rank0.json",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                     since_epoch.count() % 1000);
}

TraceLabels labels(const ResolvedConfig& config) {
  TraceLabels labels;
  labels.process = "atom engine, rank 0";
  labels.notes = {{"version", ATOM_VERSION},
                  {"model", config.engine.model.model},
                  {"architecture", config.model.architecture},
                  {"dtype", dtype_name(config.dtype)},
                  {"operators", "of steps that are not recorded (--enable-graphs)"}};
  return labels;
}

Status write_trace(const std::string& path,
                   const SpanRecording& recording,
                   const TraceLabels& trace_labels) {
  try {
    return replace_file(path, chrome_trace(recording, trace_labels));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("{}: there is no memory to write it", path);
  }
}

CoreProfile write_profile(const std::string& path,
                          const SpanRecording& recording,
                          const TraceLabels& trace_labels) {
  const Status status = write_trace(path, recording, trace_labels);
  CoreProfile profile{ProfileAction::kStop,
                      status.ok() ? StatusCode::kOk : StatusCode::kInternal,
                      status.ok() ? path : status.message(),
                      recording.spans.size(),
                      recording.num_dropped};
  if (!status.ok()) {
    log::error("the profile is lost: {}", status.message());
  } else if (profile.num_dropped_spans > 0) {
    log::warning("{}: the profile is full after {} spans, the last {} were dropped",
                 path,
                 profile.num_spans,
                 profile.num_dropped_spans);
  } else {
    log::info("{}: a profile of {} spans", path, profile.num_spans);
  }
  return profile;
}

}  // namespace

Status Profiler::start() {
  if (folder().empty()) return invalid_argument("the engine runs without --profile-dir");
  if (recorder_.is_on()) return invalid_argument("a profile is being recorded already");
  if (is_writing()) return invalid_argument("the last profile is still being written");
  std::error_code error;
  std::filesystem::create_directories(folder(), error);
  if (!std::filesystem::is_directory(folder(), error)) {
    return internal_error("--profile-dir: the folder {} cannot be made", folder());
  }
  recorder_.start();
  return {};
}

Status Profiler::stop() {
  if (!recorder_.is_on()) return invalid_argument("no profile is being recorded");
  auto write = [path = folder() + "/" + file_name(),
                recording = recorder_.stop(),
                trace_labels = labels(config_)] {
    return write_profile(path, recording, trace_labels);
  };
  try {
    written_ = std::async(std::launch::async, std::move(write));
  } catch (const std::system_error& error) {
    return internal_error("the profile is lost: no thread to write it: {}", error.what());
  }
  return {};
}

std::optional<CoreProfile> Profiler::take_written() {
  if (!is_writing() || written_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return std::nullopt;
  }
  return written_.get();
}

}  // namespace atom
