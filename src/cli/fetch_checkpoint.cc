#include "cli/fetch_checkpoint.h"

#include <fmt/format.h>

#include "base/log.h"
#include "cli/progress_bar.h"
#include "cli/report.h"
#include "cli/style.h"
#include "hub/hub.h"

namespace atom::cli {
namespace {

Result<std::string> fetch(const std::string& name, const hub::HubOptions& options) {
  PullProgress progress;
  Result<std::string> folder = hub::resolve_checkpoint(
      name, options, [&](const hub::Progress& state) { return progress.show(state); });
  progress.finish();
  if (folder.ok() && progress.shown()) note(fmt::format("downloaded {} → {}", name, *folder));
  return folder;
}

}  // namespace

PullProgress::PullProgress() = default;

PullProgress::~PullProgress() = default;

bool PullProgress::show(const hub::Progress& progress) {
  if (!progress.waiting_for.empty() && !said_waiting_) {
    finish();
    said_waiting_ = true;
    note(fmt::format("waiting for another process that downloads {}",
                     printable(progress.waiting_for)));
  }
  if (progress.bytes_total == 0) return true;
  if (bar_ == nullptr || progress.bytes_total != bytes_total_) {
    bytes_total_ = progress.bytes_total;
    bytes_shown_ = 0;
    bar_ = std::make_unique<ProgressBar>("downloading", bytes_total_);
  }
  // What was downloaded in vain is not taken back: a bar does not run backwards.
  if (progress.bytes_done > bytes_shown_) {
    bar_->advance(progress.bytes_done - bytes_shown_);
    bytes_shown_ = progress.bytes_done;
  }
  return true;
}

void PullProgress::finish() {
  if (bar_ != nullptr) bar_->finish();
}

Status fetch_checkpoint(hub::FileSet files, ModelSourceConfig* source) {
  const bool model_is_name = hub::is_hub_name(source->model);
  if (!source->revision.empty() && !model_is_name) {
    log::warning("--revision is of no use: {} is no model of a hub", source->model);
  }
  if (!model_is_name && !hub::is_hub_name(source->tokenizer)) return {};
  ASSIGN_OR_RETURN(hub::HubOptions options, hub::options_from_environment());
  if (hub::is_hub_name(source->tokenizer)) {
    options.files = hub::FileSet::kWithoutWeights;
    ASSIGN_OR_RETURN(source->tokenizer, fetch(source->tokenizer, options));
  }
  options.files = files;
  options.revision = source->revision;
  ASSIGN_OR_RETURN(source->model, fetch(source->model, options));
  return {};
}

}  // namespace atom::cli
