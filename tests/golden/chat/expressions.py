"""Small templates, each one construct of Jinja or a meeting of two: what make_chat.py renders with
VARIABLES to show what Jinja itself gives."""

import itertools

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " Hi, wörld! "},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "n": 2}]},
    ],
    "empty": [], "nothing": None, "yes": True, "no": False, "zero": 0, "n": 7, "neg": -3,
    "half": 2.5, "small": 1e-7, "large": 1e16, "tenth": 0.1, "text": "Grüße, ÄÖ 東京 🙂!",
    "plain": "the quick-brown (fox) <jumps>", "lines": "a\n\n  b\r\nc\u2028d\n", "quote": "it's \"x\"\\\n",
    "d": {"b": 1, "A": [1, 2], "c": {"x": None}, "items": "own", "10": "ten"},
    "l": [3, 1, 2, 3, "3", 1.0, True], "words": ["beta", "Alpha", "gamma", "alpha"],
    "rows": [{"k": "x", "v": 2, "t": {"u": [5, 6]}}, {"k": "Y", "v": 1}, {"k": "x", "v": 3}],
    "blank": "  \t\n \u00a0\u3000", "bos_token": "<s>",
}

VALUES = ["0", "-2", "2.5", "true", "none", "'a'", "'ab'", "[1]", "(1, 'a')", "{'a': 1}", "missing"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
          "and", "or"]

EXPRESSIONS = []


def show(*expressions):
    EXPRESSIONS.extend("{{ " + expression + " }}" for expression in expressions)


# Operators on every pair of kinds of values.
for operator in BINARY:
    show(*(f"{a} {operator} {b}" for a, b in itertools.product(VALUES, VALUES)
           if (operator, a, b) != ("**", "-2", "2.5")))  # complex

# Precedence and associativity.
show("1 + 2 * 3 - 4 / 2", "2 ** 3 ** 2", "-2 ** 2", "- -3", "+4", "not 1 == 2", "not not 1",
     "1 < 2 < 3", "3 > 2 > 2", "1 < 3 > 2", "1 == 1 != 2", "1 in [1] == true", "1 ~ 2 + 3",
     "'a' ~ 1 * 2 ~ none", "1 + 1 ~ 1 + 1", "7 // 2 * 2", "7 % 4 % 2", "-7 // 2", "-7 % 3", "7 % -3",
     "-7.5 // 2", "-7.5 % 2", "7.5 % -2", "0.0 % -2", "5 // 0.3", "1e308 * 10", "2 ** -1", "0 ** 0",
     "2 ** 0.5", "0 ** -1", "true + true", "true and 'x' or 'y'", "'' or none or 0",
     "1 and [] and 2", "1 if 0 else 2 if 0 else 3", "1 if 0", "'x' if yes", "(1 if 0) is defined",
     "1 if 1 else 1 / 0", "1 or 1 / 0", "0 and 1 / 0", "not none is none", "n is not none and n > 5",
     "'a' 'b' \"c\"", "2 * 'ab' * 2", "'a' * -1", "[0] * 3 + [1]", "(1,)", "()", "(1)", "1, 2",
     "[1, 2,]", "{'a': 1,}", "{1: 2, true: 3, 1.0: 4}", "{'a': 1, 'a': 2}", "{(1, 2): 3}", "{[]: 1}",
     "0x1F + 0b101 + 0o17 + 1_000", "1_0.5", "1e3", "1.5e-3", ".5", "1.", "00", "01", "1__0",
     "9223372036854775807", "10000000000 * 3", "1 is 1", "not")

# Numbers as Python writes them.
show(*(str(x) for x in (0.1, 1.0, -0.0, 1e15, 1e16, 123456789012345680.0, 1e-4, 1e-5, 1.5e300, 2.5e-300,
                        3.14159265358979, 100.0, 1e22, 5e-324, 0.1 + 0.2)))
show("small", "large", "tenth * 3", "1 / 3", "10 / 5", "7 / 2", "1e400", "-1e400", "1e400 - 1e400",
     "[1.0, 'a', none, true, [], {}, (), (1,), {'k': [1.5]}]", "[missing]", "d", "l", "quote", "[quote]",
     "['\\u00e9\\x07\\u200b\\U0001F642\\u3000\\xad']", "[\"'\", '\"', '\\'\"', '\\n\\t\\r\\\\\\0']",
     "'\\101\\x41\\u0041\\q\\\n!'", "'\\xg'")

# Indices, slices and attributes.
for value in ("text", "l", "'abcdef'", "(1, 2, 3)", "range(10)|list", "range(2, 20, 3)", "empty", "''"):
    show(*(f"{value}[{index}]" for index in
           ("0", "-1", "2", "99", "-99", "true", "'x'", "none", "1.0", "missing", ":", "1:", ":2", "-2:",
            ":-1", "::2", "::-1", "1:5:2", "5:1:-1", "-1:0:-2", "99:", "-99:", ":99", "3:1", "::0",
            "none:none", "0:9223372036854775807:3")))
show("text['a':]", "l['a':]", "d[1:]", "d['b']", "d.b", "d['nope']", "d.nope", "d.nope.x", "d['nope']['x']", "missing.x", "missing['x']",
     "d.c.x", "d.c.x.y", "d.A.0", "d.A.1", "d.A[5] is defined", "d['items']",
     "d.10", "d['10']", "d[10]", "d.items()|list", "d.keys()", "d.values()", "d.items()", "d.get('b')",
     "d.get('z')", "d.get('z', 3)", "d.get()", "d.pop", "d.pop('b')", "d.update({})", "l.append(1)",
     "l.append is defined", "d.clear is defined", "d.copy() == d", "d.__class__", "d._x", "''.__class__",
     "text.nope", "nothing.x", "nothing['x']", "none.x is defined", "messages[0].role",
     "messages[0]['role'].upper()", "messages[-1].tool_calls[0].name", "messages[1].content.strip()",
     "messages[2].content is none", "messages.role", "messages['role']", "range(3)[1]", "range(3)[-1]",
     "range(3)[5]", "d[[]]", "d[{}]", "(d)['b']", "d['b'] + d.A[1]", "d.c['x'] is none", "l[l[1]]",
     "d.keys()[0]", "missing()", "nothing()", "n()", "'a'()", "d.b()")

# Methods of texts.
for value in ("text", "plain", "lines", "blank", "''", "'  xyx  '", "'xxyxx'"):
    show(*(f"{value}.{call}" for call in
           ("strip()", "lstrip()", "rstrip()", "strip('x ')", "lstrip('x')", "rstrip('x!🙂')",
            "strip(none)", "split()", "split(' ')", "split('x')", "split(none, 1)", "split(' ', 1)",
            "rsplit(' ', 1)", "rsplit(none, 1)", "rsplit()", "split(maxsplit=1)", "split('')",
            "splitlines()", "upper()", "lower()", "title()", "capitalize()", "swapcase()",
            "startswith('the')", "startswith(('x', 'G'))", "endswith('!')", "startswith('r', 1)",
            "endswith('e', 0, 3)", "find('x')", "rfind('x')", "find('京')", "find('zz')", "find('')",
            "find('x', 3)", "find('x', -3, -1)", "index('zz')", "count('x')", "count('')",
            "count('xx')", "replace('x', 'Y')", "replace('x', 'Y', 1)", "replace('', '-')",
            "replace('xx', '')", "removeprefix('x')", "removesuffix('x')", "partition('x')",
            "rpartition('x')", "partition(' ')", "rpartition('zz')", "zfill(9)", "ljust(9, '.')",
            "rjust(9)", "center(9, '*')", "center(8, '*')", "isalpha()", "isdigit()", "isspace()",
            "isupper()", "islower()", "isalnum()", "isnumeric()", "isdecimal()")))
show("', '.join(words)", "''.join([])", "'-'.join('abc')", "'-'.join([1])", "'-'.join(d)",
     "'{} {}'.format(1, 'a')", "'{1} {0} {k}'.format(1, 2, k=3)", "'{{}}'.format()", "'{}'.format()",
     "'%s %d %r' % (1, 2, 'a')", "'%s' % 'x'", "'%5.2f|%-5d|%05d|%+d' % (1.234, 3, -4, 5)", "'%%'",
     "'%s' % [1]", "'%(a)s' % {'a': 1}", "'%s %s' % 1", "'%x %X %o %e %g' % (255, 255, 8, 12345.678, 0.0001)",
     "'%d' % 2.9", "'%d' % 'a'", "'%c' % 'a'", "'%s' % none", "'%s' % (1, 2)", "'%.3s' % 'abcdef'",
     "'%5s|%-5s|' % ('é', 'é')", "'a' % 1", "'a' % [1]",
     "'ǆ'.title()", "'ß'.upper()", "'ß'.capitalize()", "'ΑΣ'.lower()", "'ΑΣ ΑΣ'.title()", "'ﬁx'.upper()",
     "'İ'.lower()", "'ǅ'.isupper()", "'ª'.islower()", "'²'.isdigit()", "'½'.isnumeric()", "'٣'.isdecimal()",
     "\"they're bill's\".title()", "'x1y a-b'.title()", "'ÉCOLE 1ère'.capitalize()", "'x'.nope()",
     "'a,b,,c'.split(',')", "'a,b,,c'.rsplit(',', 2)", "',a,'.split(',')",
     "' a  b c '.split(none, 1)", "' a  b c '.rsplit(none, 1)", "'a b'.split(none, 0)", "'aXbX'.split('X', 0)",
     "'</think>x</think> y'.split('</think>')[-1].lstrip()", "'abc'.startswith('')", "'a' in 'abc'",
     "'' in ''", "1 in 'abc'", "none in [none]", "'b' in d", "1.0 in [1]", "[1] in [[1]]", "'x' in none",
     "'x' in missing", "missing in [1]", "missing in 'a'", "2 in range(5)", "'b' in d.keys()", "1 in d.values()",
     "[1, 2].index(2)", "[1, 2].index(3)", "[1, 1].count(1)", "(1, 2).count(1)", "(1, 2).append")

# Filters.
for value in ("text", "plain", "lines", "blank", "''", "n", "half", "none", "missing", "true", "l", "d", "words"):
    show(*(f"{value}|{name}" for name in
           ("upper", "lower", "capitalize", "title", "trim", "trim('x')", "string", "length", "count", "list",
            "first", "last", "reverse|list", "default('z')", "d('z', true)", "default", "int", "float",
            "int(5)", "abs", "round", "join", "join('|')", "tojson", "safe", "indent", "unique|list", "sort",
            "select|list", "reject('none')|list", "map('string')|list", "replace('e', 'E')", "max", "min", "sum",
            "items|list", "batch(2)|list")))
show("'42'|int", "' 42 '|int", "'4_2'|int", "'42.9'|int", "'x'|int", "'x'|int(-1)", "'1f'|int(0, 16)",
     "'0x1f'|int(0, 16)", "'0b11'|int(0, 2)", "'0o17'|int(0, 8)", "'-5'|int", "'+5'|int", "'- 5'|int", "'1e3'|int",
     "'inf'|int", "3.99|int", "-3.99|int", "true|int", "'1.5'|float", "' 1e3 '|float", "'nan'|float", "'x'|float",
     "'x'|float(1.5)", "'1_0.5'|float", "'.5'|float", "'5.'|float", "'infinity'|float", "'0x10'|float",
     "42.55|round(1)", "42.55|round(1, 'floor')", "42.55|round(1, 'ceil')", "2.5|round", "3.5|round", "-2.5|round",
     "2.675|round(2)", "7|round", "7|round(1)", "7|round(method='floor')", "2.5|round|int", "'x'|round",
     "2.5|round(1, 'nope')", "l|sort", "words|sort", "words|sort(reverse=true)", "words|sort(case_sensitive=true)",
     "rows|sort(attribute='v')|map(attribute='v')|list", "rows|sort(attribute='k,v')|map(attribute='v')|list",
     "rows|sort(true, attribute='k')|map(attribute='v')|list", "[3, 1, 2]|sort", "[[2, 1], [1, 2]]|sort",
     "words|unique|list", "words|unique(true)|list", "rows|unique(attribute='k')|map(attribute='v')|list",
     "[1, 1.0, true, 2]|unique|list", "[[1]]|unique|list", "d|dictsort", "{'b': 2, 'A': 1, 'c': 0}|dictsort",
     "{'b': 2, 'A': 1, 'c': 0}|dictsort(true)", "{'b': 2, 'A': 1}|dictsort(false, 'value')",
     "{'b': 2, 'A': 1}|dictsort(by='value', reverse=true)", "d|dictsort(by='x')", "rows|map(attribute='k')|join(',')",
     "rows|map(attribute='t.u.1')|list", "rows|map(attribute='t.u.1', default='-')|list", "rows|map(attribute='nope')|list",
     "rows|map(attribute='t', default={})|list", "rows|join(',', 'k')", "rows|join(attribute='v')", "words|map('upper')|join(' ')",
     "words|map('replace', 'a', 'o')|list", "words|map('nope')|list", "[]|map('nope')|list",
     "rows|selectattr('k', 'equalto', 'x')|list|length", "rows|selectattr('t')|list|length",
     "rows|selectattr('t', 'defined')|list", "rows|rejectattr('t', 'defined')|map(attribute='v')|list",
     "rows|selectattr('v', '>', 1)|map(attribute='v')|list", "rows|selectattr('v', 'in', [1, 3])|map(attribute='v')|list",
     "rows|rejectattr('v', 'odd')|map(attribute='v')|list", "rows|selectattr('t.u', 'defined')|list|length",
     "messages|selectattr('role', 'ne', 'system')|map(attribute='role')|join(' ')", "messages|selectattr('content', 'none')|list|length",
     "[1, 2, 3, 4]|select('odd')|list", "[1, 2, 3, 4]|reject('odd')|list", "[1, 2, 3, 4]|select('divisibleby', 2)|list",
     "[1, 2, 3]|select('lessthan', 3)|list", "[0, 1, '', 'a', none]|select|list", "[0, 1, '', 'a', none]|reject|list",
     "words|select('nope')|list", "words|select|length", "words|select|first", "words|select|last", "words|map('upper')|first",
     "(words|select) is iterable", "(words|select) is sequence", "(empty|select) and 'true'", "(words|reject('string')) and 'true'",
     "(words|select)[0] is defined", "words|select|list|first", "words|reverse|first", "'abc'|reverse", "'aé🙂'|reverse",
     "range(3)|reverse|list", "d|reverse|list", "words|reverse is sequence", "[1, 2, 3]|sum", "rows|sum(attribute='v')", "[1]|sum(start=2.5)",
     "['a']|sum", "[[1], [2]]|sum(start=[])", "words|max", "words|min", "rows|max(attribute='v')", "[]|max", "[1, 'a']|max",
     "[1, 2, 3]|batch(2)|list", "[1, 2, 3]|batch(2, 0)|list", "'abc'|batch(2)|list", "'a\nb\n\nc'|indent", "'a\nb\n\nc'|indent(2, true)",
     "'a\nb\n\nc'|indent(2, blank=true)", "'a\nb'|indent('> ')", "'a\nb'|indent(width=1, first=true)", "''|indent(2, true)", "3|indent",
     "'a%sb'|format(1)", "'%(x)s'|format(x=2)", "'%s %s'|format(1)", "''|default('x')", "''|default('x', true)", "missing|default('x')",
     "missing.x|default('y')", "d.nope|default('y')", "none|default('x')", "none|default('x', boolean=true)", "missing|d", "missing|default(none)",
     "d|attr('b') is defined", "'x'|attr('upper') is defined", "'a-b'|replace('-', '+')", "'aaa'|replace('a', 'b', 2)", "123|replace(2, 'x')", "none|replace('o', '0')",
     "'a'|center(5)", "'a'|nope", "1|upper|lower", "-1|abs", "(-1)|abs", "-1.5|abs", "1 + 2|abs", "-'1'|int", "2 ** '3'|int", "not 'a'|upper",
     "'a'|upper ~ 'b'|upper", "'a b'|upper is upper", "'A'|lower is upper", "'x'|upper()", "'x'|upper(1)", "'x'|replace('x')", "'x'|trim(chars='x')")

# JSON.
show("d|tojson", "messages|tojson", "text|tojson", "quote|tojson", "'\\x00\\x1f\\x7f\\u2028</&>\\u00e9'|tojson", "d|tojson(indent=2)",
     "d|tojson(indent=0)", "d|tojson(indent='--')", "d|tojson(true)", "text|tojson(ensure_ascii=true)", "d|tojson(sort_keys=true)",
     "d|tojson(separators=(',', ':'))", "d|tojson(false, 2, (',', ':'), true)", "[]|tojson(indent=2)", "{}|tojson(indent=2)", "[[], {}]|tojson(indent=1)",
     "1.0|tojson", "1e400|tojson", "(1e400 - 1e400)|tojson", "missing|tojson", "none|tojson", "true|tojson", "(1, 2)|tojson", "{1: 2, none: 3, 1.5: 4, true: 5}|tojson",
     "{(1, 2): 3}|tojson", "range(3)|tojson", "words|select|tojson", "d.items()|tojson", "'a'|tojson|tojson", "{'b': 1, 'a': 2}|tojson(sort_keys=true, indent=1)",
     "{1: 1, 'a': 2}|tojson(sort_keys=true)", "'\U0001F642'|tojson(ensure_ascii=true)", "d|tojson(nope=1)", "namespace(a=1)|tojson")

# Tests.
for value in ("1", "0", "2.5", "true", "none", "'a'", "'A1'", "''", "[]", "(1,)", "{}", "missing", "range(2)", "d.keys()", "namespace()"):
    show(*(f"{value} is {name}" for name in
           ("defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping",
            "iterable", "sequence", "callable", "odd", "even", "upper", "lower", "eq 1", "ne 1", "in [1, none, 'a']", "not none",
            "sameas true", "divisibleby 2", "equalto('a')", "gt 0", "not not", "nope")))
show("1 is eq 1 and 2 is ne 1", "n is divisibleby(7) and true", "n is divisibleby 7", "'upper' is filter", "'nope' is filter", "'odd' is test",
     "n is odd or zero", "n is odd if yes else 1", "n is in([7])", "n is in [7]", "'a' is in 'abc'", "n is not odd", "not n is odd", "n is odd is true",
     "d is mapping and d.b is number", "x is defined", "messages[9] is defined", "messages[0].nope is defined", "nothing is defined", "nothing is none",
     "none is sameas none", "n is lessthan 8", "n is greaterthan(8)", "n is <= 7", "[1, 2] is eq [1, 2]")

# Undefined.
show("missing", "missing is defined", "missing == missing", "missing == none", "missing == ''", "missing != 1", "missing or 'x'", "not missing",
     "missing ~ 'x'", "missing + 'x'", "'x' + missing", "missing < 1", "missing|length", "missing|list", "missing|join", "missing|upper", "missing|first", "missing[1:]",
     "[missing]|join('-')", "missing in missing", "-missing", "missing * 2", "missing|int", "missing|trim", "missing|string == ''", "(missing if 0) is defined", "missing is none", "missing is string")

# Globals.
show("range(3)", "range(1, 4)", "range(5, 0, -2)|list", "range(0)|list", "range(1, 2, 3, 4)", "range(2, 5)|length", "range(0, 1, 0)", "range(1000000)", "range('a')",
     "range(100000)|length", "range(-9223372036854775807, 9223372036854775807)", "dict(a=1, b=2)", "dict({'a': 1}, b=2)", "dict([('a', 1)])", "dict()", "namespace(a=1).a", "namespace(a=1).b is defined",
     "namespace(a=1)", "namespace({'a': 1}, b=2)", "namespace(_a=1)", "raise_exception('no')", "nope()", "dict(a=1).a", "range(3) == range(0, 3, 1)", "range(0) == range(1, 1)", "range(3)[::-1]", "range(10)[2:8:2]|list",
     "range(3)|first", "range(3)|last", "dict(1)", "loop", "caller", "varargs")

EXPRESSIONS += [
    # Statements.
    "{% if yes %}a{% elif no %}b{% else %}c{% endif %}", "{% if no %}a{% elif n > 3 %}b{% elif yes %}x{% else %}c{% endif %}",
    "{% if no %}a{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if yes: %}a{% endif %}", "{% if 1, 2 %}a{% endif %}",
    "{% if yes %}a", "{% endif %}", "{% else %}", "{% if %}a{% endif %}", "{% nope %}", "{% if yes %}{% endfor %}",
    "{% for x in l %}{{ x }},{% endfor %}", "{% for x in empty %}{{ x }}{% else %}none{% endfor %}", "{% for x in [1] %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in l if x is number %}{{ loop.index }}:{{ x }} {% endfor %}", "{% for x in l if x == 99 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|items %}{{ k }}{{ loop.length }}{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for c in text %}{{ c }}.{% endfor %}", "{% for x in missing %}{{ x }}{% endfor %}", "{% for x in none %}{{ x }}{% endfor %}", "{% for x in 5 %}{{ x }}{% endfor %}",
    "{% for x in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for x in 'abc' %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in 'abc' %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in 'abcd' %}{{ loop.cycle('o', 'e') }}{% endfor %}", "{% for x in 'aabbb' %}{{ loop.changed(x) }}{% endfor %}", "{% for x in 'ab' %}{{ loop }}{% endfor %}",
    "{% for x in 'ab' %}{% for y in 'cd' %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in 'ab' %}{% set o = loop %}{% for y in 'cd' %}{{ o.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in l %}{% if loop.index == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if loop.index is odd %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% break %}", "{% continue %}",
    "{% for x in 'ab' %}{% for y in 'cd' %}{% if y == 'd' %}{% break %}{% endif %}{{ x }}{{ y }}{% endfor %}{% endfor %}", "{% for x in [1] %}{% break %}{% else %}e{% endfor %}", "{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}", "{% for x in [1, 2] %}{{ x }}{% continue %}{% else %}e{% endfor %}",
    "{% for x in l if loop.index > 1 %}{{ x }}{% endfor %}", "{% for x in [1, 2] if x > n %}{{ x }}{% endfor %}", "{% for loop in [1] %}{% endfor %}", "{% for x in (1, 2) %}{{ x }}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in [1, 2, 3]|reverse %}{{ x }}{{ loop.last }}{% endfor %}", "{% for x in words|map('upper') %}{{ x }}{{ loop.length }}{% endfor %}", "{% for true in [1] %}{% endfor %}", "{% for d.x in [1] %}{% endfor %}",
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set x = 1, 2 %}{{ x }}", "{% set (x, y) = 'ab' %}{{ y }}{{ x }}", "{% set x, y = 1 %}", "{% set x %}a{{ n }}b{% endset %}[{{ x }}]", "{% set x | upper | replace('A', 'b') %}a{% endset %}{{ x }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}", "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}",
    "{% set d.b = 5 %}", "{% set missing.b = 5 %}", "{% set ns = namespace() %}{% set ns._a = 1 %}", "{% set ns = namespace() %}{% set ns.x %}a{% endset %}{{ ns.x }}", "{% set n = n + 1 %}{{ n }}", "{% set messages = messages[1:] %}{{ messages|length }}",
    "{% for i in [1] %}{% set z = 5 %}{% endfor %}{{ z }}", "{% if no %}{% set z = 5 %}{% endif %}{{ z is defined }}", "{% if no %}{% set n = 5 %}{% endif %}{{ n }}", "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y }}", "{% set true = 1 %}", "{% set 'a' = 1 %}", "{% set x = %}", "{% set x %}a",
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(b=4, a=5) }}|{{ m() }}|", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(c=2) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(3) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}{{ n }}{{ x }}{% endmacro %}{% set x = 9 %}{{ m() }}", "{% macro m() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% macro m(i) %}{% if i > 0 %}{{ i }}{{ m(i - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2) }}{{ m(1) }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m('a') | upper }}{{ m('b') + m('c') }}{{ m.name }}", "{% macro m(x) %}{{ caller() }}{{ x }}{% endmacro %}{% call m(1) %}body{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{{ n }}{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% for i in [1, 2] %}{% macro m(x) %}{{ x }}{{ i }}{% endmacro %}{{ m(n) }}{% endfor %}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(messages) %}{{ messages }}{% endmacro %}{{ m(1) }}{{ messages|length }}", "{% macro m() %}{% break %}{% endmacro %}", "{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% filter upper %}a{{ n }}b{% endfilter %}", "{% filter replace('a', 'b')|upper %}aXa{% endfilter %}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% with a = n, n = 1 %}{{ a }}{{ n }}{% endwith %}{{ n }}", "{% print 1, 'a' %}", "{% generation %}a{% set g = 1 %}{{ g }}{% endgeneration %}{{ g }}",
    "{% raw %}{{ x }}{% if %}{% endraw %}", "{%- raw -%} {{ x }} {%- endraw -%} b", "a {% raw %} b {% endraw %} c", "{% raw %}a", "{# comment #}a{#- c -#} b", "a {#- {{ x }} {% if %} #} b", "{# open", "{{ open", "{% open", "{{ '}}' }}", "{{ '%}' }}{% if '%}' %}x{% endif %}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {'b': 1}} }}", "{{ '{{' }}", "{ { } } {x} #} %} }}",
    "{{ }}", "{{ 1 2 }}", "{{ (1 }}", "{{ 1) }}", "{{ [1} }}", "{{ $ }}", "{{ a.b. }}", "{{ a..b }}", "{{ 'a }}", "{{ 1 + }}", "{{ * 2 }}", "{{ f(a=1, 2) }}", "{{ dict(a=1, a=2) }}", "{{ f(,) }}", "{{ 1 if }}", "{{ a | }}", "{{ a is }}", "{% for %}{% endfor %}", "{% for x %}{% endfor %}", "{% for x in l %}", "{% macro %}{% endmacro %}", "{{ not }}", "{{ 1 = 2 }}", "{{ a; b }}", "{% set %}",
    "{% do 1 %}", "{% if x = 1 %}{% endif %}", "{{ 1 === 1 }}", "{{ a & b }}", "{{ a ? b : c }}", "{{ a ! b }}", "{{ `a` }}", "{{ \"a\nb\" }}", "{{ 'a\\\nb' }}",
    # What stays of newlines and blanks.
    "a\n", "a\n\n", "\n", "", "a\r\nb\rc\n", " {% if yes %} a {% endif %} \n b", "  {% if yes %}\n  a\n  {% endif %}\nb\n", "x {% if yes %}\n  a\n  {% endif %}\nb", "a\n  {{ n }}  \nb", "a\n  {{- n -}}  \nb", "a\n  {%- if yes -%}  \n b \n {%- endif -%} \n c", "a\n  {%+ if yes %}\n b{%+ endif %}\nc", "a\n  {% if yes +%}\n b\n  {% endif +%}\nc",
    "  {# c #}\nb", "a {# c #}\nb", "a\n  {#- c -#}\n  b", "a\n  {#+ c +#}\n  b", "{% for x in [1, 2] %}\n  {{ x }}\n{% endfor %}\nend", "{%- for x in [1, 2] %}\n  {{- x }}\n{%- endfor %}\n", "  {% set x = 1 %}\n  {{ x }}\n", "\t{% set x = 1 %}\t\n{{ x }}", " {% if yes %}{% if yes %}  a{% endif %}\n{% endif %}\n", "\u00a0 {% if yes %}a{% endif %}", "a\u3000{%- if yes %}b{% endif %}", "{% if yes %}\n\n\na{% endif %}", "{{ n }}\n\n{{ n }}\n",
    "{{ n -}}\n\n {{ n }}", "{{ n }} \n {{- n }}", "{{- n -}}", " {{+ n }} ", " {%+ set x = 1 +%}\n{{ x }}", "a{% if yes %}\n{% endif %}b", "a {%- raw %} b {% endraw -%} c", "  {% raw %}\n b\n  {% endraw %}\n c", "  {% raw +%} b {% endraw +%}\n c", "{%if yes%}a{%endif%}", "{%-if yes-%} a {%-endif-%}", "{{n}}{{-n-}}{{ -n }}{{- -n -}}", "{{\nn\n}}", "{%\nif\nyes\n%}a{%\nendif\n%}", "{#\n\n#}\n\na", "\n\n  {% if yes %}  \n\n a", "{% set x = 1 %}\n\n{% set y = 2 %}\n\n{{ x + y }}\n\n",
    # As templates of chats have it.
    "{%- for m in messages %}\n    {%- if m.role == 'user' %}\n        {{- '<u>' + m.content|trim + '</u>\\n' }}\n    {%- elif m['role'] == \"system\" %}\n        {{- m.content }}\n    {%- endif %}\n{%- endfor %}\n",
    "{% set found = messages | selectattr('role', 'equalto', 'user') | list %}{% if found %}{{ found[-1].content }}{% endif %}", "{% for m in messages[::-1] %}{{ (messages|length - 1) - loop.index0 }}{{ m.role }} {% endfor %}", "{% for m in messages %}{{ m.role ~ ': ' ~ (m.content or 'nothing') }}\n{% endfor %}", "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ rest|length }}",
    "{{ bos_token }}{{ eos_token }}", "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}{% endfor %}", "{{ raise_exception('a ' + 1|string) }}", "{% if tools is defined and tools %}t{% else %}none{% endif %}", "{% set ns = namespace(found=false, n=[]) %}{% for m in messages %}{% if not ns.found and m.tool_calls is defined %}{% set ns.found = true %}{% set ns.n = ns.n + [loop.index] %}{% endif %}{% endfor %}{{ ns.found }}{{ ns.n }}",
]
