#include "server/parsers/harmony_parser.h"

#include <algorithm>
#include <utility>

#include "server/parsers/json_scanner.h"
#include "server/parsers/marker_set.h"

namespace atom::server {
namespace {

constexpr std::string_view kStartMarker = "<|start|>";
constexpr std::string_view kChannelMarker = "<|channel|>";
constexpr std::string_view kConstrainMarker = "<|constrain|>";
constexpr std::string_view kFunctions = "functions.";
// Headers are a few words; text this long without <|message|> is none.
constexpr size_t kMaxHeaderSize = 1024;

enum Kind { kStart, kChannel, kConstrain, kMessage, kStop };

std::vector<MarkerSet::Marker> make_markers() {
  return {{std::string(kStartMarker), kStart},
          {std::string(kChannelMarker), kChannel},
          {std::string(kConstrainMarker), kConstrain},
          {"<|message|>", kMessage},
          {"<|end|>", kStop},
          {"<|call|>", kStop},
          {"<|return|>", kStop}};
}

const MarkerSet& markers() {
  static const MarkerSet set(make_markers());
  return set;
}

bool is_space_only(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

struct Header {
  std::string_view channel;
  std::string_view recipient;
};

// assistant to=functions.f<|channel|>commentary json, or the recipient behind the channel.
Header parse_header(std::string_view text) {
  Header header;
  bool channel_follows = false;
  while (!text.empty()) {
    if (text.starts_with(kChannelMarker)) {
      channel_follows = true;
      text.remove_prefix(kChannelMarker.size());
    } else if (text.starts_with(kConstrainMarker)) {
      text.remove_prefix(kConstrainMarker.size());
    } else if (is_json_space(text[0])) {
      text.remove_prefix(1);
    } else {
      // At least one byte, so that a lone '<' does not stop the walk.
      const std::string_view word = text.substr(0, text.find_first_of(" \t\r\n<", 1));
      if (channel_follows) header.channel = word;
      if (!channel_follows && word.starts_with("to=")) header.recipient = word.substr(3);
      channel_follows = false;
      text.remove_prefix(word.size());
    }
  }
  return header;
}

}  // namespace

std::vector<std::string> HarmonyParser::marker_tokens() {
  std::vector<std::string> tokens;
  for (MarkerSet::Marker& marker : make_markers()) tokens.push_back(std::move(marker.text));
  return tokens;
}

HarmonyParser::HarmonyParser(std::string_view prompt_tail, const Options& options)
    : options_(options), out_({.id_seed = options.id_seed}) {
  const size_t start = prompt_tail.rfind(kStartMarker);
  if (start == std::string_view::npos) return;
  run(prompt_tail.substr(start), true);
  out_ = DeltaWriter({.id_seed = options.id_seed});
  prompt_header_ = std::exchange(header_, {});
  header_has_marker_ = false;
  had_reasoning_ = false;
  had_content_ = false;
  if (channel_ == Channel::kCall) channel_ = Channel::kContent;  // it began outside of the answer
}

OutputDelta HarmonyParser::feed(std::string_view text) {
  held_.feed(text, [this](std::string_view known) { return run(known, false); });
  return out_.take();
}

OutputDelta HarmonyParser::finish() {
  run(held_.take(), true);
  if (in_header_) give_header_back();
  end_message();
  return out_.take();
}

size_t HarmonyParser::run(std::string_view text, bool final) {
  size_t used = 0;
  while (used < text.size()) {
    const std::string_view rest = text.substr(used);
    const bool in_header = in_header_;
    const size_t taken = in_header ? read_header(rest, final) : read_message(rest, final);
    used += taken;
    if (taken == 0 && in_header == in_header_) break;
  }
  return used;
}

size_t HarmonyParser::read_header(std::string_view text, bool final) {
  if (header_.size() >= kMaxHeaderSize) {
    give_header_back();
    in_header_ = false;
    return 0;
  }
  const MarkerSet::Match match = markers().find(text, final);
  if (match.position > 0) {
    const size_t used = std::min(match.position, kMaxHeaderSize - header_.size());
    header_.append(text.substr(0, used));
    return used;
  }
  switch (match.kind) {
    case kChannel:
    case kConstrain:
      header_has_marker_ = true;
      header_.append(text.substr(0, match.size));
      break;
    case kMessage:
      begin_message();
      break;
    case kStart:
    case kStop:
      give_header_back();
      end_message();
      header_has_marker_ = match.kind == kStart;
      break;
    default:
      break;
  }
  return match.size;
}

// A header with markers is structure that is cut off or broken; one without is what the model
// said without a header.
void HarmonyParser::give_header_back() {
  channel_ = Channel::kContent;
  is_first_text_ = true;
  const std::string text = std::exchange(header_, {});
  if (!header_has_marker_ && !is_space_only(text)) write(text);
  header_has_marker_ = false;
}

void HarmonyParser::begin_message() {
  const std::string text = std::exchange(prompt_header_, {}) + std::exchange(header_, {});
  const Header header = parse_header(text);
  in_header_ = false;
  header_has_marker_ = false;
  is_first_text_ = true;
  channel_ = header.channel == "analysis" && options_.with_reasoning ? Channel::kReasoning
                                                                     : Channel::kContent;
  const bool to_function =
      header.recipient.starts_with(kFunctions) && header.recipient.size() > kFunctions.size();
  if (!to_function || !options_.with_tools) return;
  channel_ = Channel::kCall;
  arguments_form_ = ArgumentsForm::kUnknown;
  arguments_reader_ = ArgumentsReader();
  out_.begin_call(header.recipient.substr(kFunctions.size()));
}

size_t HarmonyParser::read_message(std::string_view text, bool final) {
  const MarkerSet::Match match = markers().find(text, final);
  write(text.substr(0, match.position));
  const size_t used = match.position + match.size;
  if (match.kind == kStop) {
    end_message();
  } else if (match.kind == kStart || match.kind == kChannel) {
    // The end of this message was left out.
    end_message();
    header_has_marker_ = true;
    if (match.kind == kChannel) header_ = kChannelMarker;
  }
  return used;
}

void HarmonyParser::end_message() {
  if (channel_ == Channel::kCall) {
    out_.arguments(std::exchange(undecided_, {}));
    if (is_first_text_) out_.arguments("{}");
  } else if (!is_first_text_) {
    (channel_ == Channel::kReasoning ? had_reasoning_ : had_content_) = true;
  }
  channel_ = Channel::kContent;
  is_first_text_ = true;
  in_header_ = true;
}

void HarmonyParser::write(std::string_view text) {
  if (text.empty()) return;
  const bool is_first = std::exchange(is_first_text_, false);
  switch (channel_) {
    case Channel::kReasoning:
      if (is_first && had_reasoning_) out_.reasoning("\n");
      out_.reasoning(text);
      break;
    case Channel::kContent:
      if (is_first && had_content_) out_.content("\n");
      out_.content(text);
      break;
    case Channel::kCall:
      write_arguments(text);
      break;
  }
}

// As they stand, except that a string holding them is unpacked.
void HarmonyParser::write_arguments(std::string_view text) {
  if (arguments_form_ == ArgumentsForm::kUnknown) {
    const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    out_.arguments(text.substr(0, first));
    text.remove_prefix(first);
    if (text.empty()) return;
    arguments_form_ = text[0] == '"' ? ArgumentsForm::kString : ArgumentsForm::kVerbatim;
  }
  if (arguments_form_ == ArgumentsForm::kString) {
    scratch_.clear();
    const size_t used = arguments_reader_.read(text, &scratch_);
    undecided_.append(text.substr(0, used));
    if (arguments_reader_.begun()) undecided_.clear();
    out_.arguments(scratch_);
    text.remove_prefix(used);
    if (arguments_reader_.status() == ArgumentsReader::Status::kOpen) return;
    arguments_form_ = ArgumentsForm::kVerbatim;
    out_.arguments(std::exchange(undecided_, {}));
  }
  out_.arguments(text);
}

}  // namespace atom::server
