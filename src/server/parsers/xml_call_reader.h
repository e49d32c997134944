// The families that write every argument between tags of its own, as bare text:
//   Qwen3-Coder, Qwen3.5
//   <tool_call><function=f><parameter=k>\nv\n</parameter></function></tool_call> GLM-4.5 to 4.7
//   <tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call> DeepSeek V3.2
//   <｜DSML｜function_calls><｜DSML｜invoke name="f">
//                         <｜DSML｜parameter name="k" string="true">v</｜DSML｜parameter>
//                         </｜DSML｜invoke></｜DSML｜function_calls>
// with white space between the tags. A missing end of a parameter or call is understood when the
// next one begins on a new line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/parsers/marker_set.h"
#include "server/parsers/tool_call_reader.h"
#include "server/parsers/typed_arguments.h"

namespace atom::server {

struct XmlTags {
  std::vector<std::string> section_begin;
  std::vector<std::string> section_end;
  std::string call_begin;  // empty: a section is one call, and the name follows its marker
  std::string call_end;
  std::string key_begin;
  std::string key_end;
  std::string value_begin;  // empty: the value follows the key
  std::string value_end;
  bool has_attributes = false;  // names end with a quote, and attributes may follow
  bool trim_newlines = false;   // values stand on lines of their own
};

struct XmlSyntax {
  explicit XmlSyntax(XmlTags tags);

  XmlTags tags;
  MarkerSet between;  // between the parts of a call, and between calls
  MarkerSet header;   // behind a name
  MarkerSet key;      // behind a key
  MarkerSet value;    // behind a value
};

const XmlSyntax& qwen_coder_syntax();
const XmlSyntax& glm_syntax();
const XmlSyntax& dsml_syntax();

class XmlCallReader : public ToolCallReader {
 public:
  XmlCallReader(const XmlSyntax& syntax, std::shared_ptr<const ToolTypes> types);

  // `marker`: the section's or, where the model left that out, a call's.
  void start(std::string_view marker) override;
  size_t read(std::string_view text, bool final, DeltaWriter& out) override;
  void finish(DeltaWriter& out) override;

 private:
  enum class State : uint8_t { kSection, kHeader, kBody, kKey, kBeforeValue, kValue };

  size_t step(std::string_view text, bool final, DeltaWriter& out);
  size_t read_section(std::string_view text);
  size_t read_header(std::string_view text, DeltaWriter& out);
  size_t read_body(std::string_view text, DeltaWriter& out);
  size_t read_key(std::string_view text, DeltaWriter& out);
  size_t read_before_value(std::string_view text, DeltaWriter& out);
  size_t read_value(std::string_view text, bool final, DeltaWriter& out);
  bool take_header_byte(char c);
  size_t end_header(const MarkerSet::Match& match, DeltaWriter& out);
  void begin_header(std::string_view marker);
  void begin_key();
  void begin_value(DeltaWriter& out);
  void give_key_back(std::string_view end, DeltaWriter& out);
  void leave();

  const XmlSyntax& syntax_;
  const std::shared_ptr<const ToolTypes> types_;
  TypedArguments arguments_;
  State state_ = State::kSection;
  int32_t num_calls_ = 0;
  std::string header_;  // of a call or a parameter
  bool name_ended_ = false;
  std::string name_;
  char last_byte_ = '\n';  // of the value so far
};

}  // namespace atom::server
