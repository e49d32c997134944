// What stands behind an operand: attributes, subscripts, calls, filters and tests.
#include <optional>
#include <utility>

#include "tokenizer/chat_template/expression_nodes.h"
#include "tokenizer/chat_template/expression_parser.h"
#include "tokenizer/chat_template/number_literal.h"
#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr object) {
  while (true) {
    if (tokens_.is_operator(".")) {
      object = parse_dot(std::move(object));
    } else if (tokens_.is_operator("[")) {
      object = parse_subscript(std::move(object));
    } else if (tokens_.is_operator("(")) {
      const int line = tokens_.line();
      CallArguments arguments = parse_arguments();
      ExpressionPtr call = make_expression(line, Call{}, {&object});
      raise_height(call.get(), arguments);
      call->node = Call{std::move(object), std::move(arguments)};
      object = std::move(call);
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::parse_dot(ExpressionPtr object) {
  const int line = tokens_.line();
  tokens_.expect_operator(".");
  if (tokens_.is(TokenType::kInteger)) {
    ExpressionPtr key = make_expression(line, Literal{integer_literal(tokens_.take())});
    ExpressionPtr access = make_expression(line, ItemAccess{}, {&object, &key});
    access->node = ItemAccess{std::move(object), std::move(key)};
    return access;
  }
  const Token name = tokens_.expect(TokenType::kName, "the name of an attribute behind '.'");
  ExpressionPtr access = make_expression(line, AttributeAccess{}, {&object});
  access->node = AttributeAccess{std::move(object), std::string(name.text)};
  return access;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = tokens_.line();
  tokens_.expect_operator("[");
  ExpressionPtr parts[3];
  int num_colons = 0;
  while (!tokens_.is_operator("]")) {
    if (tokens_.skip_operator(":")) {
      if (++num_colons > 2) fail_at(line, "a slice has at most two ':'");
    } else if (parts[num_colons]) {
      fail_at(line, "expected ':' or ']', found {}", tokens_.describe_current());
    } else {
      parts[num_colons] = parse();
    }
  }
  tokens_.expect_operator("]");
  if (num_colons > 0) {
    ExpressionPtr slice =
        make_expression(line, SliceAccess{}, {&object, &parts[0], &parts[1], &parts[2]});
    slice->node = SliceAccess{
        std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])};
    return slice;
  }
  if (!parts[0]) fail_at(line, "expected an index between '[' and ']'");
  ExpressionPtr access = make_expression(line, ItemAccess{}, {&object, &parts[0]});
  access->node = ItemAccess{std::move(object), std::move(parts[0])};
  return access;
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr input) {
  while (true) {
    if (tokens_.skip_operator("|")) {
      input = parse_filter(std::move(input));
    } else if (tokens_.skip_name("is")) {
      input = parse_test(std::move(input));
    } else if (tokens_.is_operator("(")) {
      input = parse_postfix(std::move(input));
    } else {
      return input;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input) {
  while (tokens_.skip_operator("|")) input = parse_filter(std::move(input));
  return input;
}

ExpressionPtr ExpressionParser::parse_filters_after_bar(ExpressionPtr input) {
  return parse_filters(parse_filter(std::move(input)));
}

std::string ExpressionParser::parse_dotted_name(std::string_view wanted) {
  std::string name(tokens_.expect(TokenType::kName, wanted).text);
  while (tokens_.skip_operator(".")) {
    name += '.';
    name += tokens_.expect(TokenType::kName, wanted).text;
  }
  return name;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  const int line = tokens_.line();
  std::string name = parse_dotted_name("the name of a filter behind '|'");
  CallArguments arguments;
  if (tokens_.is_operator("(")) arguments = parse_arguments();
  ExpressionPtr filter = make_expression(line, FilterCall{}, {&input});
  raise_height(filter.get(), arguments);
  filter->node = FilterCall{std::move(input), std::move(name), std::move(arguments)};
  return filter;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int line = tokens_.line();
  const bool is_negated = tokens_.skip_name("not");
  std::string name = parse_dotted_name("the name of a test behind 'is'");
  CallArguments arguments;
  const bool begins_argument = tokens_.is(TokenType::kName) || tokens_.is(TokenType::kString) ||
                               tokens_.is(TokenType::kInteger) || tokens_.is(TokenType::kFloat) ||
                               tokens_.is_operator("[") || tokens_.is_operator("{");
  const bool continues = tokens_.is_name("else") || tokens_.is_name("or") || tokens_.is_name("and");
  if (tokens_.is_operator("(")) {
    arguments = parse_arguments();
  } else if (begins_argument && !continues) {
    if (tokens_.is_name("is")) fail_at(line, "tests cannot be chained: use 'and'");
    // `x is none if c`, `x is in y`: the keyword ends the test, an operand does not.
    if (!tokens_.is_name("if") && !tokens_.is_name("not") && !tokens_.is_name("in")) {
      const DepthGuard guard(&depth_, tokens_.line());
      arguments.positional.push_back(parse_postfix(parse_primary()));
    }
  }
  ExpressionPtr test = make_expression(line, TestCall{}, {&input});
  raise_height(test.get(), arguments);
  test->node = TestCall{std::move(input), std::move(name), std::move(arguments), is_negated};
  return test;
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  tokens_.expect_operator("(");
  bool is_first = true;
  while (!tokens_.is_operator(")")) {
    if (!is_first) {
      tokens_.expect_operator(",");
      if (tokens_.is_operator(")")) break;
    }
    is_first = false;
    const int line = tokens_.line();
    if (tokens_.is_operator("*") || tokens_.is_operator("**")) {
      fail_at(line, "'*' and '**' in a call are not supported: name the arguments");
    }
    const Token& next = tokens_.next();
    if (tokens_.is(TokenType::kName) && next.type == TokenType::kOperator && next.text == "=") {
      std::string name(tokens_.take().text);
      tokens_.take();
      arguments.named.emplace_back(std::move(name), parse());
    } else {
      if (!arguments.named.empty()) fail_at(line, "an unnamed argument stands behind a named one");
      arguments.positional.push_back(parse());
    }
  }
  tokens_.expect_operator(")");
  return arguments;
}

}  // namespace atom::jinja
