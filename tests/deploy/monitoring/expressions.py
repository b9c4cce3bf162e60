"""The expressions of dashboards and rules, as a Prometheus is asked for them."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import yaml


class Expression(NamedTuple):
    where: str  # "Queue, A": for messages
    text: str


_TOKEN = re.compile(
    r"""\{(?:[^}"]|"(?:[^"\\]|\\.)*")*\}  # matchers, with their braces
      | \[[^\]]*\]                        # a range
      | "(?:[^"\\]|\\.)*"
      | [A-Za-z_:][A-Za-z0-9_:]*
      | [0-9][0-9.]*(?:e[+-]?[0-9]+)?[a-z]*
      | [<>=!]= | [-+*/%^(),<>]""",
    re.X,
)
_COMPARISONS = {"==", "!=", "<=", ">=", "<", ">"}
_WORDS = {"and", "or", "unless", "offset", "bool"}
_LABEL_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_AFTER_NAMES = {"(", "by", "without"}  # of functions, not of series


def _tokens(text: str) -> List[str]:
    tokens = _TOKEN.findall(text)
    if _without_spaces("".join(tokens)) != _without_spaces(text):
        raise ValueError(f"not understood: {text}")
    return tokens


def _without_spaces(text: str) -> str:
    return re.sub(r"""("(?:[^"\\]|\\.)*")|\s+""", lambda match: match.group(1) or "", text)


def selectors(text: str) -> List[str]:
    """The series that an expression is made of, each once: 'up{job="attnd"}'. Ranges are left out."""
    tokens = _tokens(text)
    found: List[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        following = tokens[at + 1] if at + 1 < len(tokens) else ""
        if token in _LABEL_LISTS:
            at = tokens.index(")", at) if following == "(" else at
        elif token[0] == "{":
            raise ValueError(f"a selector without a name in {text}")
        elif re.match(r"[A-Za-z_:]", token) and token not in _WORDS and following not in _AFTER_NAMES:
            found.append(token + (following if following[:1] == "{" else ""))
            at += following[:1] == "{"
        at += 1
    return list(dict.fromkeys(found))


def without_comparison(text: str) -> str:
    """An alert's expression as what it looks at: without "> 0.9", and of absent(X) X itself."""
    tokens = _tokens(text)
    kept: List[str] = []
    at = 0
    while at < len(tokens):
        if tokens[at] in _COMPARISONS and re.match(r"[0-9]", tokens[at + 1]):
            at += 2
            continue
        if tokens[at] != "absent":
            kept.append(tokens[at])
        at += 1
    return " ".join(kept)


def read_yaml(path: pathlib.Path) -> Any:
    return yaml.load(path.read_text(), Loader=yaml.CSafeLoader)


def rules(path: pathlib.Path) -> List[Dict[str, Any]]:
    """The rules of all groups of a file."""
    return [rule for group in read_yaml(path)["groups"] for rule in group["rules"]]


def panels(dashboard: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Those that show something, in folded rows too."""
    flat: List[Dict[str, Any]] = []
    for panel in dashboard["panels"]:
        flat += panel.get("panels", []) if panel["type"] == "row" else [panel]
    return flat


def _replaced(text: str, values: Dict[str, str]) -> str:
    def value(match: "re.Match[str]") -> str:
        name = match.group(1) or match.group(2)
        if name not in values:
            raise ValueError(f"unknown variable ${name} in {text}")
        return values[name]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)


def of_dashboard(path: pathlib.Path, values: Dict[str, str]) -> Tuple[List[Expression], List[Expression]]:
    """What the panels ask; and what else does: annotations, and the selectors behind variables."""
    dashboard = json.loads(path.read_text())
    asked = [
        Expression(f"{panel['title']}, {target['refId']}", _replaced(target["expr"], values))
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]
    return asked, [Expression(name, _replaced(text, values)) for name, text in _beside(dashboard)]


def _beside(dashboard: Dict[str, Any]) -> Iterator[Tuple[str, str]]:
    for annotation in dashboard["annotations"]["list"]:
        if "expr" in annotation:
            yield f"annotation {annotation['name']}", annotation["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])
            if match is None:
                raise ValueError(f"variable {variable['name']} is no label_values(series, label)")
            yield f"variable {variable['name']}", match.group(1)
