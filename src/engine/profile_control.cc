#include "engine/profile_control.h"

#include <utility>

namespace atom {

Status ProfileControl::begin(ProfileAction action, ProfileCallback callback) {
  const MutexLock lock(&mutex_);
  if (callback_) return invalid_argument("a profile is being started or stopped");
  if (action == ProfileAction::kStop && !lost_.ok()) return std::exchange(lost_, Status());
  if (action == ProfileAction::kStart && is_on_) {
    return invalid_argument("a profile is being recorded already: stop it first");
  }
  if (action == ProfileAction::kStop && !is_on_) {
    return invalid_argument("no profile is being recorded: start one first");
  }
  lost_ = Status();
  callback_ = std::move(callback);
  return {};
}

void ProfileControl::on_answer(const CoreProfile& answer) {
  ProfileCallback callback;
  {
    const MutexLock lock(&mutex_);
    callback = std::exchange(callback_, nullptr);
    if (!callback) return;
    is_on_ = answer.action == ProfileAction::kStart && answer.code == StatusCode::kOk;
  }
  if (answer.code != StatusCode::kOk) return callback(Status(answer.code, answer.text));
  callback(ProfileFile{answer.text, answer.num_spans, answer.num_dropped_spans});
}

void ProfileControl::lose(const Status& why) {
  ProfileCallback callback;
  const Status lost = internal_error("the profile is lost: {}", why.message());
  {
    const MutexLock lock(&mutex_);
    callback = std::exchange(callback_, nullptr);
    // Who waits for an answer is told now, anyone else when the profile is to end.
    if (is_on_ && !callback) lost_ = lost;
    is_on_ = false;
  }
  if (callback) callback(lost);
}

}  // namespace atom
