#include "server/parsers/object_call_reader.h"

namespace atom::server {

void ObjectCallReader::begin_section() {
  ToolCallReader::begin_section();
  object_.reset();
}

size_t ObjectCallReader::read_object(std::string_view text, DeltaWriter& out) {
  const size_t used = object_->read(text, out);
  if (object_->begun()) undecided_.clear();
  switch (object_->status()) {
    case CallObjectReader::Status::kOpen:
      break;
    case CallObjectReader::Status::kDone:
      end_object(/*is_whole=*/true);
      break;
    case CallObjectReader::Status::kRejected:
      undecided_ += object_->undecided();
      reject();
      break;
    case CallObjectReader::Status::kBroken:
      end_object(/*is_whole=*/false);
      break;
  }
  return used;
}

void ObjectCallReader::finish(DeltaWriter&) {
  if (status() != Status::kReading) return;
  const bool in_object = object_ && object_->status() == CallObjectReader::Status::kOpen;
  if (in_object && !object_->begun()) undecided_ += object_->undecided();
  if (undecided_.empty()) {
    done();
  } else {
    reject();
  }
}

}  // namespace atom::server
