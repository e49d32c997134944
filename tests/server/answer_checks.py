"""Checks of structured answers that share no code with the server: JSON Schema as far as the tests
use it, and texts derived from EBNF grammars."""
import json
import re

TYPES = {
    "string": lambda x: isinstance(x, str),
    "integer": lambda x: isinstance(x, (int, float)) and not isinstance(x, bool) and x == int(x),
    "number": lambda x: isinstance(x, (int, float)) and not isinstance(x, bool),
    "boolean": lambda x: isinstance(x, bool),
    "null": lambda x: x is None,
    "array": lambda x: isinstance(x, list),
    "object": lambda x: isinstance(x, dict),
}
FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": r"\d{1,3}(\.\d{1,3}){3}",
    "hostname": r"[a-z0-9.-]+",
    "email": r".+@.+",
}


def equal(a, b):
    """JSON's equality: True is not 1."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True) or (
        TYPES["number"](a) and TYPES["number"](b) and a == b)


def follows(value, schema, root=None):
    """Whether a value follows a schema."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        target = root
        for name in schema["$ref"].lstrip("#/").split("/"):
            target = target[name] if name else target
        return follows(value, target, root)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    checks = [not types or any(TYPES[t](value) for t in types)]
    if "const" in schema:
        checks.append(equal(value, schema["const"]))
    if "enum" in schema:
        checks.append(any(equal(value, one) for one in schema["enum"]))
    if "anyOf" in schema:
        checks.append(any(follows(value, one, root) for one in schema["anyOf"]))
    if "oneOf" in schema:
        checks.append(sum(follows(value, one, root) for one in schema["oneOf"]) == 1)
    if "allOf" in schema:
        checks.append(all(follows(value, one, root) for one in schema["allOf"]))
    if isinstance(value, str):
        checks += string_checks(value, schema)
    elif TYPES["number"](value):
        checks += number_checks(value, schema)
    elif isinstance(value, list):
        checks += array_checks(value, schema, root)
    elif isinstance(value, dict):
        checks += object_checks(value, schema, root)
    return all(checks)


def string_checks(value, schema):
    yield len(value) >= schema.get("minLength", 0)
    yield len(value) <= schema.get("maxLength", len(value))
    if "pattern" in schema:
        yield re.search(schema["pattern"], value) is not None
    if "format" in schema:
        yield re.fullmatch(FORMATS[schema["format"]], value) is not None


def number_checks(value, schema):
    yield value >= schema.get("minimum", value)
    yield value <= schema.get("maximum", value)
    yield "exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"]
    yield "exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"]
    yield "multipleOf" not in schema or value % schema["multipleOf"] == 0


def array_checks(value, schema, root):
    prefix = schema.get("prefixItems", [])
    yield len(value) >= schema.get("minItems", 0)
    yield len(value) <= schema.get("maxItems", len(value))
    for item, one in zip(value, prefix):
        yield follows(item, one, root)
    for item in value[len(prefix):]:
        yield follows(item, schema.get("items", True), root)


def object_checks(value, schema, root):
    yield len(value) >= schema.get("minProperties", 0)
    yield len(value) <= schema.get("maxProperties", len(value))
    yield all(name in value for name in schema.get("required", []))
    for name, member in value.items():
        yield follows(name, schema.get("propertyNames", True), root)
        matched = name in schema.get("properties", {})
        if matched:
            yield follows(member, schema["properties"][name], root)
        for pattern, one in schema.get("patternProperties", {}).items():
            if re.search(pattern, name):
                matched = True
                yield follows(member, one, root)
        if not matched:
            yield follows(member, schema.get("additionalProperties", True), root)
