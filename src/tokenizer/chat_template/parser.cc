#include "tokenizer/chat_template/parser.h"

#include <initializer_list>
#include <string>

#include "tokenizer/chat_template/expression_parser.h"
#include "tokenizer/chat_template/lexer.h"
#include "tokenizer/chat_template/limits.h"
#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {
namespace {

constexpr std::string_view kUnsupportedTags[] = {
    "autoescape", "block", "call", "do", "extends", "from", "import", "include", "print", "trans"};
constexpr int kMaxBlockDepth = 100;

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view source)
      : tokens_(tokenize(source)), expressions_(&tokens_) {}

  Body run() { return parse_body("the template", 1, {}); }

 private:
  // Statements up to a tag named in `ends`, whose name is then the current token. Without `ends`:
  // up to the end of the template.
  Body parse_body(std::string_view opener,
                  int opener_line,
                  std::initializer_list<std::string_view> ends) {
    if (++depth_ > kMaxBlockDepth) {
      throw TemplateError(StatusCode::kResourceExhausted,
                          fmt::format("blocks are nested deeper than {} levels", kMaxBlockDepth),
                          tokens_.line());
    }
    Body body;
    while (true) {
      const Token token = tokens_.take();
      if (token.type == TokenType::kData) {
        body.push_back({token.line, DataStatement{std::string(token.text)}});
      } else if (token.type == TokenType::kVariableBegin) {
        ExpressionPtr value = expressions_.parse_tuple(true);
        body.push_back({token.line, OutputStatement{std::move(value)}});
        tokens_.expect(TokenType::kVariableEnd, "'}}' or an operator");
      } else if (token.type == TokenType::kBlockBegin) {
        for (const std::string_view end : ends) {
          if (!tokens_.is_name(end)) continue;
          --depth_;
          return body;
        }
        Statement statement = parse_statement();
        statement.line = token.line;
        body.push_back(std::move(statement));
        tokens_.expect(TokenType::kBlockEnd, "'%}' or an operator");
      } else {
        if (ends.size() == 0) break;
        fail_at(opener_line, "'{}' is not closed; '{}' is missing", opener, *(ends.end() - 1));
      }
    }
    --depth_;
    return body;
  }

  Statement parse_statement() {
    const Token tag = tokens_.expect(TokenType::kName, "the name of a statement");
    const int line = tag.line;
    if (tag.text == "if") return {line, parse_if(line)};
    if (tag.text == "for") return {line, parse_for(line)};
    if (tag.text == "set") return parse_set(line);
    if (tag.text == "macro") return {line, parse_macro(line)};
    if (tag.text == "with") return {line, parse_with(line)};
    if (tag.text == "generation") return {line, parse_generation(line)};
    if (tag.text == "filter") return {line, parse_filter(line)};
    if (tag.text == "break" || tag.text == "continue") {
      if (loop_depth_ == 0) fail_at(line, "'{}' stands outside of a loop", tag.text);
      if (tag.text == "break") return {line, BreakStatement{}};
      return {line, ContinueStatement{}};
    }
    for (const std::string_view unsupported : kUnsupportedTags) {
      if (tag.text != unsupported) continue;
      throw TemplateError(
          StatusCode::kUnimplemented,
          fmt::format("'{}' is not supported; a chat template may use if, for, set, macro, with, "
                      "filter, generation, raw, break and continue",
                      tag.text),
          line);
    }
    if (tag.text.starts_with("end") || tag.text == "else" || tag.text == "elif") {
      fail_at(line, "'{}' closes nothing that is open here", tag.text);
    }
    fail_at(line, "there is no statement '{}'", tag.text);
  }

  void end_tag() { tokens_.expect(TokenType::kBlockEnd, "'%}'"); }

  IfStatement parse_if(int line) {
    IfStatement statement;
    ExpressionPtr condition = expressions_.parse_tuple(false);
    while (true) {
      end_tag();
      Body body = parse_body("if", line, {"elif", "else", "endif"});
      statement.branches.emplace_back(std::move(condition), std::move(body));
      if (tokens_.skip_name("elif")) {
        condition = expressions_.parse_tuple(false);
        continue;
      }
      if (tokens_.skip_name("else")) {
        end_tag();
        statement.otherwise = parse_body("else", line, {"endif"});
      }
      tokens_.expect_name("endif");
      return statement;
    }
  }

  ForStatement parse_for(int line) {
    ForStatement statement;
    statement.target = parse_target(false);
    tokens_.expect_name("in");
    statement.iterable = expressions_.parse_tuple(false);
    if (tokens_.skip_name("if")) statement.condition = expressions_.parse();
    if (tokens_.is_name("recursive")) {
      throw TemplateError(StatusCode::kUnimplemented,
                          "'recursive' loops are not supported: use a macro that calls itself",
                          line);
    }
    end_tag();
    const int reads_before = expressions_.num_loop_reads();
    ++loop_depth_;
    statement.body = parse_body("for", line, {"else", "endfor"});
    --loop_depth_;
    statement.uses_loop = expressions_.num_loop_reads() > reads_before;
    if (tokens_.skip_name("else")) {
      end_tag();
      statement.otherwise = parse_body("else", line, {"endfor"});
    }
    tokens_.expect_name("endfor");
    return statement;
  }

  Statement parse_set(int line) {
    Target target = parse_target(true);
    if (tokens_.skip_operator("=")) {
      ExpressionPtr value = expressions_.parse_tuple(true);
      return {line, SetStatement{std::move(target), std::move(value)}};
    }
    ExpressionPtr value = expressions_.parse_filters(expressions_.block_text(line));
    end_tag();
    Body body = parse_inner_body("set", line, "endset");
    return {line, SetBlockStatement{std::move(target), std::move(value), std::move(body)}};
  }

  FilterStatement parse_filter(int line) {
    FilterStatement statement;
    statement.value = expressions_.parse_filters_after_bar(expressions_.block_text(line));
    end_tag();
    statement.body = parse_inner_body("filter", line, "endfilter");
    return statement;
  }

  WithStatement parse_with(int line) {
    WithStatement statement;
    while (!tokens_.is(TokenType::kBlockEnd)) {
      if (!statement.assignments.empty()) tokens_.expect_operator(",");
      Target target = parse_single_target(false);
      tokens_.expect_operator("=");
      statement.assignments.emplace_back(std::move(target), expressions_.parse());
    }
    end_tag();
    statement.body = parse_body("with", line, {"endwith"});
    tokens_.expect_name("endwith");
    return statement;
  }

  // Marks what an assistant wrote, for training: here its body is written out.
  WithStatement parse_generation(int line) {
    WithStatement statement;
    end_tag();
    statement.body = parse_inner_body("generation", line, "endgeneration");
    return statement;
  }

  MacroStatement parse_macro(int line) {
    MacroStatement macro;
    macro.name = tokens_.expect(TokenType::kName, "the name of the macro").text;
    tokens_.expect_operator("(");
    while (!tokens_.is_operator(")")) {
      if (!macro.parameters.empty()) {
        tokens_.expect_operator(",");
        if (tokens_.is_operator(")")) break;
      }
      const Token name = tokens_.expect(TokenType::kName, "the name of a parameter");
      MacroParameter parameter{std::string(name.text), nullptr};
      if (tokens_.skip_operator("=")) {
        parameter.fallback = expressions_.parse();
      } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
        fail_at(name.line, "parameter '{}' needs a default, as the one before it", name.text);
      }
      macro.parameters.push_back(std::move(parameter));
    }
    tokens_.expect_operator(")");
    end_tag();
    macro.body = parse_inner_body("macro", line, "endmacro");
    return macro;
  }

  // The body of a block that runs on its own, so that a loop around it cannot be left from within.
  Body parse_inner_body(std::string_view opener, int line, std::string_view end) {
    const int outer_loops = std::exchange(loop_depth_, 0);
    Body body = parse_body(opener, line, {end});
    loop_depth_ = outer_loops;
    tokens_.expect_name(end);
    return body;
  }

  // One target, or several with commas between them.
  Target parse_target(bool allow_attribute) {
    Target first = parse_single_target(allow_attribute);
    if (!tokens_.is_operator(",")) return first;
    Target tuple;
    tuple.elements.push_back(std::move(first));
    while (tokens_.skip_operator(",")) {
      if (!tokens_.is(TokenType::kName) && !tokens_.is_operator("(")) break;
      if (tokens_.is_name("in")) break;
      tuple.elements.push_back(parse_single_target(allow_attribute));
    }
    return tuple;
  }

  Target parse_single_target(bool allow_attribute) {
    if (tokens_.is_operator("(")) {
      if (++depth_ > kMaxBlockDepth) fail_at(tokens_.line(), "the targets are nested too deep");
      tokens_.take();
      Target inner = parse_target(allow_attribute);
      tokens_.expect_operator(")");
      --depth_;
      return inner;
    }
    const Token name = tokens_.expect(TokenType::kName, "the name of a variable");
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (name.text == reserved) fail_at(name.line, "'{}' cannot be assigned to", name.text);
    }
    Target target;
    target.name = name.text;
    if (allow_attribute && tokens_.skip_operator(".")) {
      target.attribute = tokens_.expect(TokenType::kName, "the name of an attribute").text;
    } else if (tokens_.is_operator(".") || tokens_.is_operator("[")) {
      fail_at(name.line, "only names and attributes of a namespace can be assigned to");
    }
    return target;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Body parse_template(std::string_view source) {
  const std::string normalized = normalize_source(source);
  return TemplateParser(normalized).run();
}

}  // namespace atom::jinja
