"""What structured answers are asked for in tests: schemas, expressions and grammars, each small
enough for an answer of a few hundred tokens whatever is drawn."""
import itertools

STRING = {"type": "string", "maxLength": 8}
LEAVES = [
    STRING,
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": "^[a-c]{2,4}$"},
    {"type": "string", "pattern": "^(red|green)-[0-9]{1,3}$"},
    {"type": "string", "pattern": "^[\"\\\\ab]{3}$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "enum": ["one", "two", "th\"ree", "vier \u00e4\u20ac"]},
    {"enum": [1, "1", None, True, [1, 2], {"a": {"b": []}}]},
    {"const": "fixed"},
    {"const": {"k": [1, None]}},
    {"type": "integer", "minimum": -5, "maximum": 120},
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9},
    {"type": "integer", "minimum": 1000000, "maximum": 1000007},
    {"type": "integer", "minimum": -30, "maximum": 30, "multipleOf": 7},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": -2.5, "maximum": 2.5},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["integer", "null"], "minimum": 3, "maximum": 44},
    {"type": ["string", "boolean"], "maxLength": 3},
]


def schemas():
    """At least 200."""
    for leaf in LEAVES:
        yield leaf
        yield {"type": "array", "items": leaf, "maxItems": 3}
        yield {"type": "array", "items": leaf, "minItems": 2, "maxItems": 2}
        yield {"type": "object", "properties": {"value": leaf}, "required": ["value"]}
        yield {"type": "object", "properties": {"a": leaf, "b": {"type": "boolean"}}}
        yield {"anyOf": [leaf, {"type": "array", "items": {"type": "null"}, "maxItems": 2}]}
    for first, second in itertools.islice(itertools.combinations(LEAVES, 2), 0, None, 3):
        yield {"type": "object", "properties": {"first": first, "n": {"$ref": "#/$defs/x"}},
               "required": ["first"], "additionalProperties": False, "$defs": {"x": second}}
    yield {"type": "array", "prefixItems": [STRING, {"type": "null"}], "minItems": 1, "maxItems": 2}
    yield {"type": "array", "prefixItems": [STRING], "items": {"type": "boolean"}, "maxItems": 3}
    yield {"type": "object", "minProperties": 1, "properties": {
        "x": {"type": "null"}, "y": {"type": "boolean"}}}
    yield {"type": "object", "patternProperties": {"^k[0-9]$": {"type": "boolean"}},
           "maxProperties": 3}
    yield {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2,
           "propertyNames": {"maxLength": 4}}
    yield {"allOf": [{"type": "boolean"}]}
    yield {"oneOf": [{"type": "object", "required": ["kind", "n"], "properties": {
        "kind": {"const": "a"}, "n": {"type": "null"}}}, {"type": "object", "required": ["kind"],
        "properties": {"kind": {"const": "b"}}}]}
    yield {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["v"],
        "properties": {"v": {"type": "boolean"}, "next": {"anyOf": [
            {"type": "null"}, {"type": "object", "properties": {"v": {"type": "null"}}}]}}}}}


REGEXES = [
    "a", "abc", "a|bc", "(a|b)c", "[abc]", "[a-z]{3}", "[a-z]{2,6}", "[A-Z][a-z]{0,5}", "\\d{4}",
    "\\d{4}-\\d{2}-\\d{2}", "(yes|no)", "(yes|no)( maybe)?", "x{3}y{2}", "(ab){2,4}", "a?b?c?d",
    "[0-9a-f]{8}", "#[0-9A-F]{6}", "(\\+|-)?[0-9]{1,5}", "[0-9]{1,3}(\\.[0-9]{1,3}){3}",
    "https?://[a-z]{2,8}\\.(com|org)", "[a-z]{1,5}@[a-z]{1,5}\\.de", "\\(\\d{3}\\) \\d{3}-\\d{4}",
    "[^a-z]{2}", "[^\\d\\s]{3}", "\\w{1,8}", "\\w{1,4} \\w{1,4}", "\\s\\S{2}", "\\D{3}", "\\W{2}",
    "(one|two|three){2}", "((a|b)(c|d)){3}", "(a(b(c)?)?)?d", "[-a]{3}", "[\\]\\[]{2}", "\\$\\^\\.\\*",
    "\\{\"k\": [0-9]\\}", "<b>[a-z]{1,9}</b>", "(?:x|y){4}", "[\\x41-\\x45]{3}", "\\u0041[\\u0061-\\u0063]",
    "[a-c]{0,3}e", "(a|ab)(c|bcd)", "(a{1,3}){1,3}", "[a-z]{1,9}?!", "a{0,2}b{0,2}c", ".{1,6}",
    "[\\u00e4\\u00f6]{2}", "\u00e4(\u00f6|\u20ac)?", "(Monday|Tuesday)", "[1-9][0-9]{0,2}( km| m)",
    "(0|1){8}", "[ab]{5}", "\\t?\\n?z", "q(u[aeiou]){1,3}", "([01]\\d|2[0-3]):[0-5]\\d", "^abc$",
]

# Each with an expression for what it derives, where Python can say it.
GRAMMARS = [
    ('root ::= "a"', "a"),
    ('root ::= "a" | "b"', "a|b"),
    ('root ::= "a" "b"', "ab"),
    ('root ::= ("a" | "b") "c"', "[ab]c"),
    ('root ::= [a-z]', "[a-z]"),
    ('root ::= [^a-z0-9]', "[^a-z0-9]"),
    ('root ::= "x"?  "y"', "x?y"),
    ('root ::= [0-9]{3}', "[0-9]{3}"),
    ('root ::= [0-9]{1,4}', "[0-9]{1,4}"),
    ('root ::= x y\nx ::= "x"{2}\ny ::= "y"', "xxy"),
    ('root ::= greeting " " name\ngreeting ::= "hello" | "hi"\nname ::= [A-Z] [a-z]{1,6}',
     "(hello|hi) [A-Z][a-z]{1,6}"),
    ('# a comment\nroot ::= "q" # another', "q"),
    ('root ::= "\\"" [a-c]{2} "\\""', '"[a-c]{2}"'),
    ('root ::= "\\n" "\\t"', "\n\t"),
    ('root ::= "\\u00e4"', "\u00e4"),
    ('root ::= ("ab" | "cd"){2,3}', "(ab|cd){2,3}"),
    ('root ::= item ("," item){0,2}\nitem ::= [0-9]{1,2}', "[0-9]{1,2}(,[0-9]{1,2}){0,2}"),
    ('root ::= "" | "z"', "z?"),
    ('root ::= sign? digits\nsign ::= "-" | "+"\ndigits ::= [1-9] [0-9]{0,3}',
     "[-+]?[1-9][0-9]{0,3}"),
    ('root ::= "(" inner ")"\ninner ::= "" | "a"', "\\(a?\\)"),
]
for word in ("cat", "dog", "bird", "fish", "cow"):
    GRAMMARS.append((f'root ::= "the " "{word}" end\nend ::= "s"? "!"', f"the {word}s?!"))
    GRAMMARS.append((f'root ::= "{word}"{{1,3}}', f"({word}){{1,3}}"))
    GRAMMARS.append((f'root ::= [{word}]{{4}}', f"[{word}]{{4}}"))
    GRAMMARS.append((f'root ::= a | b\na ::= "{word}" b\nb ::= [xyz]', f"({word})?[xyz]"))
    GRAMMARS.append((f'root ::= ("{word}" | "no {word}") ("." | "?")', f"(no )?{word}[.?]"))
    GRAMMARS.append((f'root ::= w " and " w\nw ::= "{word}" | "none"',
                     f"({word}|none) and ({word}|none)"))
# Not regular: checked by functions of the test.
BALANCED = 'root ::= "(" root ")" | "."'
SUM = 'root ::= term "=" [0-9]{1,2}\nterm ::= [0-9] | "(" term "+" term ")"'
