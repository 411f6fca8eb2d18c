"""Writes chats.jsonl: conversations through chat templates by transformers, and expressions.jsonl:
small templates by the Jinja environment that transformers makes.

    python tests/golden/chat/make_chat.py

The committed files: transformers 5.24.0, tokenizers 0.23.3, jinja2 3.1.6.

Each line of chats.jsonl is a template by its name, or a case: messages and variables, and what
transformers' apply_chat_template gives, or the error (for raise_exception its message). Each line of
expressions.jsonl is a template with what it gives; null where it is an error.
"""

import copy
import datetime
import itertools
import json
import pathlib

import tokenizers
import transformers
from transformers.utils import chat_template_utils

from expressions import EXPRESSIONS, VARIABLES
from templates import TEMPLATES

HERE = pathlib.Path(__file__).parent


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 15, 4, 5)


chat_template_utils.datetime = FixedTime

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a \"place\"\nin <degrees> & more: 20 °C.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Where, é.g. 東京"},
                "days": {"type": "integer", "default": 1, "minimum": -1.5},
                "units": {"type": ["string", "null"], "enum": ["C", "F", None]},
                "tags": {"type": "array", "items": {"type": "boolean"}},
                "more": {"type": "object", "properties": {"b": {"type": "number"}, "A": {}}},
            },
            "required": ["place"],
        },
        "return": {"type": "number"},
    },
}
TOOL2 = {"type": "function", "function": {"name": "stop", "description": "", "parameters": {
    "type": "object", "properties": {}}}}


def m(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = m("assistant", "", tool_calls=[{"id": "abcdefghi", "type": "function", "function": {
    "name": "get_weather", "arguments": {"place": "Köln", "days": 2}}}])
BARE_CALL = {"role": "assistant", "tool_calls": CALL["tool_calls"]}
TWO_CALLS = m("assistant", "Both.", tool_calls=[CALL["tool_calls"][0], {
    "id": "123456789", "type": "function", "function": {"name": "stop", "arguments": "{}"}}])

CHATS = {
    "user": [m("user", "Hello")],
    "system": [m("system", "Be brief."), m("user", "Hello")],
    "system no_think": [m("system", "Be brief. /no_think "), m("user", "Hello")],
    "override": [m("system", "/system_override Only this.  "), m("user", "Hello")],
    "turns": [m("user", "Hi"), m("assistant", "Hello!"), m("user", "And?")],
    "system turns": [m("system", "S"), m("user", "Hi"), m("assistant", "Hello!"),
                     m("user", "And?"), m("assistant", "Well.")],
    "ends with assistant": [m("user", "Hi"), m("assistant", " Hello! \n")],
    "blanks": [m("user", "  \n Hi \u3000\t"), m("assistant", "\n\nA\n\n"), m("user", " ")],
    "empty": [m("system", ""), m("user", ""), m("assistant", ""), m("user", "")],
    "unicode": [m("system", "Ünï — 日本語"), m("user", "emoji 🙂 \u200d é ｜ \x1f \x7f"),
                m("assistant", "«да»"), m("user", "'\"\\ \\n {{ x }} {% if %}")],
    "special": [m("user", "<|im_end|></s>[INST]<end_of_turn>"), m("assistant", "<s>"),
                m("user", "x")],
    "two users": [m("user", "a"), m("user", "b")],
    "assistant first": [m("assistant", "a"), m("user", "b")],
    "two systems": [m("system", "a"), m("system", "b"), m("user", "c")],
    "late system": [m("user", "a"), m("system", "b"), m("user", "c")],
    "unknown role": [m("user", "a"), m("critic", "b")],
    "developer": [m("developer", "a"), m("user", "b")],
    "thinking": [m("user", "a"), m("assistant", "<think>\n\nhm\n\n</think>\n\nyes\n"), m("user", "b"),
                 m("assistant", "<think>oh</think>no")],
    "reasoning": [m("user", "a"), m("assistant", "yes", reasoning_content="\nhm\n"),
                  m("user", "b"), m("assistant", "no", thinking="oh")],
    "call": [m("user", "Weather?"), CALL, m("tool", "20", name="get_weather",
                                            tool_call_id="abcdefghi"), m("assistant", "20 °C.")],
    "bare call": [m("user", "Weather?"), BARE_CALL, m("tool", "20", tool_call_id="abcdefghi")],
    "two calls": [m("user", "Weather?"), TWO_CALLS, m("tool", "20", tool_call_id="abcdefghi"),
                  m("tool", "ok", tool_call_id="123456789"), m("user", "Thanks")],
    "structured result": [m("user", "Weather?"), CALL, m("tool", {"content": [1, 2.5, None, True]},
                                                         tool_call_id="abcdefghi")],
    "no content": [m("user", None), {"role": "assistant"}],
    "parts": [m("system", [{"type": "text", "text": "S"}]),
              m("user", [{"type": "text", "text": " one "}, {"type": "image"},
                         {"type": "text", "text": "two"}])],
    "number": [m("user", 3)],
    "tools in system": [m("system", "S", tools="[]"), m("user", "a")],
    "tool_response": [m("user", "a"), m("assistant", "b"),
                      m("user", "<tool_response>x</tool_response>"), m("assistant", "c")],
    "long": [m("user" if i % 2 == 0 else "assistant", f"turn {i} " + "x" * (i % 7)) for i in range(12)],
}

OPTIONS = {
    "": {"add_generation_prompt": True},
    "no prompt": {"add_generation_prompt": False},
    "tools": {"add_generation_prompt": True, "tools": [TOOL, TOOL2]},
    "documents": {"add_generation_prompt": True,
                  "documents": [{"title": "t", "text": "One."}, {"title": "u", "text": "Two & 2."}]},
    "no thinking": {"add_generation_prompt": True, "enable_thinking": False},
    "date": {"add_generation_prompt": True, "date_string": "1 Jan 2030", "tools": [TOOL],
             "tools_in_user_message": False, "controls": {"length": "short", "citations": True}},
    "builtin": {"add_generation_prompt": True, "builtin_tools": ["code_interpreter", "get_weather"]},
}
# All conversations go through the first two options, these through the others too.
WITH_OPTIONS = ["system turns", "call"]
WITH_PROMPT_ONLY = ["long", "two users", "number", "no content", "unicode", "special", "blanks",
                    "assistant first", "two systems", "override", "system no_think"]

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def outcome(render):
    try:
        return {"expected": render()}
    except Exception as error:
        own = type(error).__name__ == "TemplateError"
        return {"error": str(error) if own else ""}


def write(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(path.name, len(rows), "lines,", path.stat().st_size, "bytes")


def chats():
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **SPECIAL)
    rows = [{"special_tokens": SPECIAL, "now": "2024-07-26 15:04:05"}]
    rows += [{"name": name, "chat": chat} for name, chat in CHATS.items()]
    rows += [{"name": name, "options": options} for name, options in OPTIONS.items()]
    for family, template in TEMPLATES.items():
        rows.append({"name": family, "template": template})
        for (chat, messages), (option, options) in itertools.product(CHATS.items(), OPTIONS.items()):
            if option not in ("", "no prompt") and chat not in WITH_OPTIONS:
                continue
            if option == "no prompt" and chat in WITH_PROMPT_ONLY:
                continue
            result = outcome(lambda: tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=False, **options))
            rows.append({"family": family, "messages": chat, "with": option, **result})
    write(HERE / "chats.jsonl", rows)


def expressions():
    rows = [{"variables": VARIABLES}]
    for template in EXPRESSIONS:
        try:
            compiled = chat_template_utils._compile_jinja_template(template)
            # A copy: the filter indent changes a list in place.
            text = compiled.render(**copy.deepcopy(VARIABLES))
            rows.append({"template": template, "expected": text})
        except Exception:
            rows.append({"template": template, "expected": None})
    write(HERE / "expressions.jsonl", rows)


chats()
expressions()
